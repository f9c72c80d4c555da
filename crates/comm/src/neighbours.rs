//! Messages between neighbours of a graph. Which graph it is, and what the messages mean, belongs to others.

use std::sync::Arc;

use crate::collective::{Collective, CommError};
use crate::frame;
use crate::group::{Machine, Transport};
use crate::numbers::{push_count, take_bytes, take_count};

/// What the neighbours sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Swapped {
    /// Their messages, in the order of the neighbours.
    pub messages: Vec<Arc<[u8]>>,
    /// Bytes of the envelopes on each edge, both ways.
    pub frame_bytes: Vec<u64>,
}

/// One machine's view of its neighbours. The group's hub stays within reach, for the start, for evaluation and for checks.
///
/// Law: every machine of the group makes the same calls in the same order, each with its own neighbours (none, for some, is fine).
/// A relation that is not symmetric breaks the group: the machines of the processes that see it fail at once, all others at their next
/// call.
pub trait Neighbours: Collective {
    /// Sends `messages[i]` to `neighbours[i]` and returns theirs, in the same order.
    ///
    /// # Panics
    /// Unless neighbours are ascending ranks of other machines, with one message each.
    fn swap_each(&mut self, neighbours: &[usize], messages: &[Vec<u8>]) -> Result<Swapped, CommError>;

    /// Sends `message` to each of `neighbours` and returns theirs, in the same order.
    ///
    /// # Panics
    /// Unless neighbours are ascending ranks of other machines.
    fn swap(&mut self, neighbours: &[usize], message: &[u8]) -> Result<Swapped, CommError>;
}

impl Neighbours for Machine<'_> {
    fn swap_each(&mut self, neighbours: &[usize], messages: &[Vec<u8>]) -> Result<Swapped, CommError> {
        check(self, neighbours);
        assert_eq!(neighbours.len(), messages.len(), "each neighbour gets one message");
        let sealed = messages.iter().map(|message| Arc::from(self.seal(message)));
        let parcels = neighbours.iter().copied().zip(sealed).collect();
        self.swap_parcels(parcels)
    }

    fn swap(&mut self, neighbours: &[usize], message: &[u8]) -> Result<Swapped, CommError> {
        check(self, neighbours);
        let sealed: Arc<[u8]> = Arc::from(self.seal(message));
        self.swap_parcels(neighbours.iter().map(|&to| (to, Arc::clone(&sealed))).collect())
    }
}

fn check(machine: &Machine<'_>, neighbours: &[usize]) {
    assert!(neighbours.is_sorted_by(|a, b| a < b), "neighbours are ascending ranks: {neighbours:?}");
    assert!(neighbours.last().is_none_or(|&last| last < machine.size()), "neighbours are machines of the group");
    assert!(!neighbours.contains(&machine.rank()), "no machine is its own neighbour");
}

/// Sealed messages, each with the rank at the other end, in ascending order.
pub(crate) type Parcels = Vec<(usize, Arc<[u8]>)>;

/// Takes the parcels of all machines of this process to their receivers, and returns what each of them got, opened, in the order of
/// senders.
pub(crate) fn carry(
    transport: &mut dyn Transport,
    exchange: u64,
    outgoing: Vec<Parcels>,
    checked: bool,
) -> Result<Vec<Swapped>, CommError> {
    let process = transport.process();
    let ranks = ranks(transport.machines());
    let mine = ranks[process].clone();
    let mut arrived: Vec<Parcels> = vec![Vec::new(); mine.len()];
    let mut bundles = vec![Vec::new(); ranks.len()];
    for (from, parcels) in mine.clone().zip(&outgoing) {
        for (to, sealed) in parcels {
            if mine.contains(to) {
                arrived[to - mine.start].push((from, Arc::clone(sealed)));
            } else {
                let bundle = &mut bundles[ranks.partition_point(|range| range.end <= *to)];
                [from, *to, sealed.len()].iter().for_each(|&number| push_count(number as u64, bundle));
                bundle.extend_from_slice(sealed);
            }
        }
    }
    for (bundle, theirs) in transport.deliver(bundles)?.iter().zip(&ranks) {
        let mut rest = &bundle[..];
        while !rest.is_empty() {
            let parcel = take_parcel(&mut rest).filter(|(from, to, _)| theirs.contains(from) && mine.contains(to));
            let Some((from, to, sealed)) = parcel else {
                let what = "what its process sent to its neighbours cannot be taken apart".to_owned();
                return Err(CommError::Damaged { rank: theirs.start, exchange, what });
            };
            arrived[to - mine.start].push((from, Arc::from(sealed)));
        }
    }
    let inbox = |((rank, mut parcels), sent): ((usize, Parcels), &Parcels)| {
        parcels.sort_by_key(|(from, _)| *from);
        check_symmetry(rank, sent, &parcels)?;
        let mut swapped = Swapped::default();
        for ((from, theirs), (_, own)) in parcels.iter().zip(sent) {
            let damaged = |what| CommError::Damaged { rank: *from, exchange, what };
            let opened = frame::open(exchange, 0, theirs, checked).map_err(damaged)?;
            let own = frame::open(exchange, 0, own, checked).map_err(damaged)?;
            swapped.frame_bytes.push(opened.frame_bytes + own.frame_bytes);
            swapped.messages.push(Arc::from(opened.message));
        }
        Ok(swapped)
    };
    mine.zip(arrived).zip(&outgoing).map(inbox).collect()
}

/// The ranks of every process.
fn ranks(machines: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut end = 0;
    let range = |&count: &usize| {
        end += count;
        end - count..end
    };
    machines.iter().map(range).collect()
}

fn take_parcel<'a>(rest: &mut &'a [u8]) -> Option<(usize, usize, &'a [u8])> {
    let mut number = || usize::try_from(take_count(rest)?).ok();
    let (from, to, length) = (number()?, number()?, number()?);
    Some((from, to, take_bytes(rest, length as u64)?))
}

fn check_symmetry(rank: usize, sent: &Parcels, received: &Parcels) -> Result<(), CommError> {
    let missing = |from: &Parcels, in_: &Parcels| {
        from.iter().map(|(rank, _)| *rank).find(|rank| in_.iter().all(|(other, _)| other != rank))
    };
    if let Some(stranger) = missing(received, sent) {
        let what = format!("it counts machine {rank} among its neighbours, which does not count it among its own");
        return Err(CommError::Refused { rank: stranger, what });
    }
    if let Some(silent) = missing(sent, received) {
        let what = format!("machine {silent} is its neighbour, but it is no neighbour of machine {silent}");
        return Err(CommError::Refused { rank, what });
    }
    if received.len() != sent.len() {
        let what = "it got two messages from one neighbour".to_owned();
        return Err(CommError::Refused { rank, what });
    }
    Ok(())
}

/// [`Transport::deliver`] by one exchange: every process gets all bundles and keeps its own.
pub(crate) fn deliver_through_hub<T: Transport + ?Sized>(
    transport: &mut T,
    bundles: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, CommError> {
    let process = transport.process();
    let ranks = ranks(transport.machines());
    // The first machine of a process speaks for it.
    let mut messages = vec![Vec::new(); ranks[process].len()];
    for bundle in &bundles {
        push_count(bundle.len() as u64, &mut messages[0]);
        messages[0].extend_from_slice(bundle);
    }
    let all = transport.exchange(messages, &mut |messages| {
        Ok(ranks.iter().flat_map(|range| messages[range.start]).copied().collect())
    })?;
    let mut rest = &all[..];
    let mut mine = Vec::with_capacity(ranks.len());
    for sender in &ranks {
        for receiver in 0..ranks.len() {
            let length = take_count(&mut rest);
            let Some(bundle) = length.and_then(|length| take_bytes(&mut rest, length)) else {
                let what = format!("process {process} cannot take apart what machine {} sent", sender.start);
                return Err(CommError::Engine { process, what });
            };
            if receiver == process {
                mine.push(bundle.to_vec());
            }
        }
    }
    Ok(mine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Combine, Reduction};
    use crate::conformance;
    use crate::group::{self, Group};
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[test]
    fn threads_keep_the_laws_of_neighbours() {
        for size in [1, 2, 3, 4, 20] {
            for result in group::run(size, |machine| conformance::neighbours_suite(machine)) {
                result.unwrap();
            }
        }
    }

    /// Processes of a test: threads that hold their machines, with channels to process 0 and back.
    struct Wired {
        process: usize,
        machines: Vec<usize>,
        /// To process 0; at process 0 itself, from all others.
        up: Option<Sender<Said>>,
        ups: Vec<Receiver<Said>>,
        down: Option<Receiver<Result<Vec<u8>, CommError>>>,
        downs: Vec<Sender<Result<Vec<u8>, CommError>>>,
        /// Bends a byte of what this process gets from others, to see it noticed.
        bend: bool,
    }

    type Said = Result<Vec<Vec<u8>>, CommError>;

    fn wired(machines: &[usize]) -> Vec<Wired> {
        let mut all: Vec<Wired> = (0..machines.len())
            .map(|process| Wired {
                process,
                machines: machines.to_vec(),
                up: None,
                ups: Vec::new(),
                down: None,
                downs: Vec::new(),
                bend: false,
            })
            .collect();
        for process in 1..machines.len() {
            let ((up, at_hub), (from_hub, down)) = (channel(), channel());
            all[0].ups.push(at_hub);
            all[0].downs.push(from_hub);
            all[process].up = Some(up);
            all[process].down = Some(down);
        }
        all
    }

    impl Wired {
        fn say(&mut self, said: Said, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
            let gone = || CommError::Engine { process: 0, what: "gone".to_owned() };
            if let (Some(up), Some(down)) = (&self.up, &self.down) {
                up.send(said).map_err(|_| gone())?;
                return down.recv().map_err(|_| gone())?.map(Arc::from);
            }
            let theirs: Result<Vec<_>, _> = self.ups.iter().map(|up| up.recv().map_err(|_| gone())?).collect();
            let combined = said.and_then(|mut all| {
                all.extend(theirs?.into_iter().flatten());
                combine(&all.iter().map(Vec::as_slice).collect::<Vec<_>>())
            });
            for down in &self.downs {
                // Who has left does not listen.
                let _ = down.send(combined.clone());
            }
            combined.map(Arc::from)
        }
    }

    impl Transport for Wired {
        fn process(&self) -> usize {
            self.process
        }
        fn machines(&self) -> &[usize] {
            &self.machines
        }
        fn exchange(&mut self, mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
            self.say(Ok(mine), combine)
        }
        fn needs_checksums(&self) -> bool {
            true
        }
        fn deliver(&mut self, bundles: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CommError> {
            let mut arrived = deliver_through_hub(self, bundles)?;
            if let (true, Some(bundle)) = (self.bend, arrived.iter_mut().find(|bundle| !bundle.is_empty())) {
                *bundle.last_mut().unwrap() ^= 1;
            }
            Ok(arrived)
        }
        fn leave(&mut self, why: &CommError) {
            // After a failure that came from here the others have gone already.
            if self.up.as_ref().is_some_and(|up| up.send(Err(why.clone())).is_err()) {
                return;
            }
            if self.process == 0 {
                let ups = std::mem::take(&mut self.ups);
                // Whoever still waits hears why; whoever has left as well drops its end.
                while ups
                    .iter()
                    .zip(&self.downs)
                    .any(|(up, down)| up.recv().is_ok_and(|said| said.is_ok() && down.send(Err(why.clone())).is_ok()))
                {
                }
            }
        }
    }

    fn over_processes<R: Send>(
        transports: Vec<Wired>,
        body: impl Fn(&mut Machine<'_>) -> Result<R, String> + Sync,
    ) -> Vec<Result<R, String>> {
        std::thread::scope(|scope| {
            let body = &body;
            let start = |transport: Wired| scope.spawn(move || Group::new(transport).run(body));
            let threads: Vec<_> = transports.into_iter().map(start).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn processes_keep_the_laws_through_the_hub() {
        for machines in [&[1, 1][..], &[1, 1, 1], &[3, 2, 2], &[1, 4]] {
            for result in over_processes(wired(machines), |machine| conformance::suite(machine)) {
                result.unwrap();
            }
            for result in over_processes(wired(machines), |machine| conformance::neighbours_suite(machine)) {
                result.unwrap();
            }
        }
    }

    #[test]
    fn a_machine_that_leaves_is_named_in_every_process() {
        let results = over_processes(wired(&[2, 1, 2]), |machine| {
            machine.exchange(b"here", Reduction::Gather).map_err(|error| error.to_string())?;
            if machine.rank() == 2 {
                return Err("it had enough".to_owned());
            }
            machine.exchange(b"still here", Reduction::Gather).map(drop).map_err(|error| error.to_string())
        });
        for (rank, result) in results.into_iter().enumerate() {
            let expected = if rank == 2 { "it had enough" } else { "machine 2 left the group during exchange 1" };
            assert_eq!(result.unwrap_err(), expected);
        }
    }

    #[test]
    fn a_damaged_message_names_the_neighbour_that_sent_it() {
        let mut transports = wired(&[2, 2]);
        transports[1].bend = true;
        let results = over_processes(transports, |machine| {
            let neighbours = [[1, 3], [0, 2], [1, 3], [0, 2]][machine.rank()];
            machine.swap(&neighbours, b"payload").map(drop).map_err(|error| error.to_string())
        });
        // Process 0 got sound messages; in process 1 the last byte of what came, from machine 1 to machine 2, was bent.
        assert!(results[..2].iter().all(Result::is_ok));
        for result in &results[2..] {
            let error = result.as_ref().unwrap_err();
            assert_eq!(error, "the message of machine 1 in exchange 0 is damaged: its checksum does not match");
        }
    }

    #[test]
    fn a_relation_that_is_not_symmetric_names_both_machines() {
        let results = group::run(3, |machine| machine.swap([&[1][..], &[], &[]][machine.rank()], b"x"));
        for result in results {
            let error = result.unwrap_err().to_string();
            assert_eq!(error, "machine 0: machine 1 is its neighbour, but it is no neighbour of machine 1");
        }
    }

    #[test]
    fn a_machine_that_meets_at_the_hub_while_others_swap_is_refused() {
        let results = group::run(3, |machine| match machine.rank() {
            2 => machine.exchange(b"x", Reduction::Gather).map(drop),
            _ => machine.swap(&[1 - machine.rank()], b"x").map(drop),
        });
        for result in results {
            let error = result.unwrap_err().to_string();
            assert_eq!(error, "machine 2: it sends to gather where machine 0 sends to its neighbours");
        }
    }
}
