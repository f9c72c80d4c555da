//! Machines as threads of a process. Between processes a [`Transport`] carries what the threads hand in; a process alone has none to carry.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::collective::{Collective, Combine, CommError, Reply};
use crate::frame;
use crate::neighbours::{self, Neighbours, Parcels};

/// The way between processes, each of which holds a contiguous range of machines in the order of process numbers.
pub trait Transport: Send {
    /// This process's number, from 0.
    fn process(&self) -> usize;

    /// How many machines each process holds, in the order of their numbers.
    fn machines(&self) -> &[usize];

    /// Brings the messages of this process's machines to process 0, where `combine` turns the messages of all machines, in rank order,
    /// into the one that returns to every process. An error of `combine` must reach every process as that error.
    fn exchange(&mut self, mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError>;

    /// Brings `bundles[q]` from this process to process q, for every q, and returns what every process sent here, in their order.
    /// This goes through process 0, so that any engine has it; an engine with a direct way overrides it.
    fn deliver(&mut self, bundles: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CommError> {
        neighbours::deliver_through_hub(self, bundles)
    }

    /// The last machine of this process is gone, because of `why`: other processes that still wait for it must learn that.
    /// A process of a run that has come to its end calls it too, so whoever waits for nobody must not be disturbed.
    fn leave(&mut self, why: &CommError) {
        // A process that is alone has nobody to tell.
        let _ = why;
    }
}

/// The transport of a process that is alone.
#[derive(Debug)]
pub struct Solo {
    machines: [usize; 1],
}

impl Solo {
    /// A process that holds all the machines.
    pub fn new(machines: usize) -> Self {
        Self { machines: [machines] }
    }
}

impl Transport for Solo {
    fn process(&self) -> usize {
        0
    }

    fn machines(&self) -> &[usize] {
        &self.machines
    }

    fn exchange(&mut self, mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
        let messages: Vec<&[u8]> = mine.iter().map(Vec::as_slice).collect();
        combine(&messages).map(Arc::from)
    }
}

/// The machines of one process, before they are handed to their threads.
pub struct Group {
    meeting: Arc<Meeting>,
    first_rank: usize,
    size: usize,
    local: usize,
}

/// One machine of a group: a thread owns it. Dropped before its time it ends the group with an error that names it.
pub struct Machine {
    meeting: Arc<Meeting>,
    /// Its index among the machines of this process; machine 0 of a process speaks for it.
    local: usize,
    rank: usize,
    size: usize,
    done: u64,
}

struct Meeting {
    state: Mutex<State>,
    /// Told to the process's first machine when all messages are there.
    complete: Condvar,
    /// Told to all when the reply is there.
    answered: Condvar,
}

/// What a machine brings to a meeting.
enum Deposit {
    /// Nothing yet.
    Absent,
    /// A sealed message to the hub.
    ToHub(Vec<u8>),
    /// Sealed messages to its neighbours.
    ToNeighbours(Parcels),
}

struct State {
    transport: Box<dyn Transport>,
    deposits: Vec<Deposit>,
    arrived: usize,
    /// Machines of this process that still have their handle.
    present: usize,
    /// Exchanges completed; a machine waits until it exceeds its own count.
    done: u64,
    reply: Option<Reply>,
    /// What the neighbours of each local machine sent in the last swap.
    inboxes: Vec<Vec<Arc<[u8]>>>,
    failure: Option<CommError>,
}

impl Group {
    /// The machines of this process, over a transport to the others.
    ///
    /// # Panics
    /// If this process holds no machine.
    pub fn new(transport: impl Transport + 'static) -> Self {
        let process = transport.process();
        let local = transport.machines()[process];
        assert!(local > 0, "a process of a group holds at least one machine");
        let first_rank = transport.machines()[..process].iter().sum();
        let size = transport.machines().iter().sum();
        let state = State {
            transport: Box::new(transport),
            deposits: absent(local),
            arrived: 0,
            present: local,
            done: 0,
            reply: None,
            inboxes: vec![Vec::new(); local],
            failure: None,
        };
        let meeting = Meeting { state: Mutex::new(state), complete: Condvar::new(), answered: Condvar::new() };
        Self { meeting: Arc::new(meeting), first_rank, size, local }
    }

    /// One handle a machine, in rank order.
    pub fn into_machines(self) -> Vec<Machine> {
        let machine = |local| Machine {
            meeting: Arc::clone(&self.meeting),
            local,
            rank: self.first_rank + local,
            size: self.size,
            done: 0,
        };
        (0..self.local).map(machine).collect()
    }

    /// Runs `body` on every machine of this process, each on a thread of its own, and returns what they return, in rank order.
    pub fn run<R: Send, E: Send>(self, body: impl Fn(&mut Machine) -> Result<R, E> + Sync) -> Vec<Result<R, E>> {
        let machines = self.into_machines();
        std::thread::scope(|scope| {
            let body = &body;
            let start = |mut machine: Machine| {
                std::thread::Builder::new()
                    .name(format!("machine {}", machine.rank))
                    // A thousand machines fit into memory; nothing here recurses deeply.
                    .stack_size(2 << 20)
                    .spawn_scoped(scope, move || body(&mut machine))
                    .expect("the system gives a thread to every machine")
            };
            let threads: Vec<_> = machines.into_iter().map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        })
    }
}

/// Runs `body` on `count` machines in this process.
pub fn run<R: Send, E: Send>(count: usize, body: impl Fn(&mut Machine) -> Result<R, E> + Sync) -> Vec<Result<R, E>> {
    Group::new(Solo::new(count)).run(body)
}

impl Collective for Machine {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Result<Reply, CommError> {
        let deposit = Deposit::ToHub(frame::seal(self.done, message));
        self.meet(
            deposit,
            |state, exchange| state.carry(exchange, combine),
            |state| state.reply.clone().expect("a completed exchange has a reply"),
        )
    }

    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        Some(self)
    }
}

impl Machine {
    /// Swaps sealed messages with neighbours; the checks and the order are [`neighbours::carry`]'s.
    pub(crate) fn swap_parcels(&mut self, parcels: Parcels) -> Result<Vec<Arc<[u8]>>, CommError> {
        let local = self.local;
        self.meet(Deposit::ToNeighbours(parcels), State::carry_parcels, |state| {
            std::mem::take(&mut state.inboxes[local])
        })
    }

    /// Exchanges and swaps that this machine has completed: the number of the next.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Leaves the deposit, waits until all machines of the process have left theirs and its first machine has carried them, and
    /// collects.
    fn meet<R>(
        &mut self,
        deposit: Deposit,
        carry: impl FnOnce(&mut State, u64) -> Result<(), CommError>,
        collect: impl FnOnce(&mut State) -> R,
    ) -> Result<R, CommError> {
        let meeting = Arc::clone(&self.meeting);
        let mut state = meeting.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.deposits[self.local] = deposit;
        state.arrived += 1;
        let everyone = state.deposits.len();
        if self.local == 0 {
            while state.arrived < everyone && state.failure.is_none() {
                state = meeting.complete.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.failure.is_none() {
                state.arrived = 0;
                match carry(&mut state, self.done) {
                    Ok(()) => state.done += 1,
                    Err(failure) => state.failure = Some(failure),
                }
                meeting.answered.notify_all();
            }
        } else {
            if state.arrived == everyone {
                meeting.complete.notify_one();
            }
            while state.done == self.done && state.failure.is_none() {
                state = meeting.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if state.done == self.done {
            return Err(state.failure.clone().expect("only a failure leaves a meeting without an answer"));
        }
        self.done += 1;
        Ok(collect(&mut state))
    }
}

fn absent(count: usize) -> Vec<Deposit> {
    (0..count).map(|_| Deposit::Absent).collect()
}

impl State {
    /// Machine 0 of the process: carries all local messages to the hub and keeps the reply for the others.
    fn carry(&mut self, exchange: u64, combine: &mut Combine<'_>) -> Result<(), CommError> {
        let mine = self.take_deposits("to its neighbours", "to the hub", |deposit| match deposit {
            Deposit::ToHub(framed) => Some(framed),
            _ => None,
        })?;
        let mut open_and_combine = |framed: &[&[u8]]| {
            let mut messages = Vec::with_capacity(framed.len());
            for (rank, framed) in framed.iter().enumerate() {
                let damaged = |what| CommError::Damaged { rank, exchange, what };
                messages.push(frame::open(exchange, framed).map_err(damaged)?);
            }
            let longest = messages.iter().map(|message| message.len()).max().unwrap_or(0);
            let mut down = combine(&messages)?;
            down.extend_from_slice(&(longest as u64).to_le_bytes());
            Ok(frame::seal(exchange, &down))
        };
        let framed = self.transport.exchange(mine, &mut open_and_combine)?;
        let damaged = |what| CommError::Damaged { rank: 0, exchange, what };
        let body = frame::open(exchange, &framed).map_err(damaged)?;
        let (message, longest) = body.split_last_chunk::<8>().ok_or_else(|| damaged("it is too short".to_owned()))?;
        self.reply = Some(Reply { message: Arc::from(message), longest_up: u64::from_le_bytes(*longest) as usize });
        Ok(())
    }

    /// Machine 0 of the process: carries all local messages to the neighbours, and theirs back.
    fn carry_parcels(&mut self, exchange: u64) -> Result<(), CommError> {
        let outgoing = self.take_deposits("to the hub", "to its neighbours", |deposit| match deposit {
            Deposit::ToNeighbours(parcels) => Some(parcels),
            _ => None,
        })?;
        self.inboxes = neighbours::carry(&mut *self.transport, exchange, outgoing)?;
        Ok(())
    }

    /// All local deposits, if they are of the kind that the process's first machine brought.
    fn take_deposits<T>(
        &mut self,
        other: &str,
        kind: &str,
        take: impl Fn(Deposit) -> Option<T>,
    ) -> Result<Vec<T>, CommError> {
        let everyone = self.deposits.len();
        let first: usize = self.transport.machines()[..self.transport.process()].iter().sum();
        let deposits = std::mem::replace(&mut self.deposits, absent(everyone));
        let refused = |local| CommError::Refused {
            rank: first + local,
            what: format!("it sends {other} where machine {first} sends {kind}"),
        };
        deposits.into_iter().enumerate().map(|(local, deposit)| take(deposit).ok_or_else(|| refused(local))).collect()
    }
}

impl Meeting {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking machine says so through its drop; the state itself is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let mut state = self.meeting.lock();
        if state.failure.is_none() {
            state.failure = Some(CommError::Left { rank: self.rank, exchange: self.done });
            self.meeting.complete.notify_all();
            self.meeting.answered.notify_all();
        }
        state.present -= 1;
        if state.present == 0 {
            let why = state.failure.clone().expect("a machine that is gone has left");
            state.transport.leave(&why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;

    #[test]
    fn a_machine_that_leaves_is_named_by_all_others() {
        let results = run(5, |machine| {
            machine.all_gather(b"here")?;
            if machine.rank() == 3 {
                return Err(CommError::Refused { rank: 3, what: "it had enough".to_owned() });
            }
            machine.all_gather(b"still here").map(drop)
        });
        for (rank, result) in results.into_iter().enumerate() {
            let expected = match rank {
                3 => CommError::Refused { rank: 3, what: "it had enough".to_owned() },
                _ => CommError::Left { rank: 3, exchange: 1 },
            };
            assert_eq!(result.unwrap_err(), expected);
        }
    }

    #[test]
    fn machines_that_finish_early_do_not_spoil_the_last_exchange() {
        for _ in 0..200 {
            let results = run(8, |machine| machine.all_gather(b"x"));
            assert!(results.into_iter().all(|result| result.is_ok()));
        }
    }

    #[test]
    fn a_thousand_machines_sum() {
        let results = run(1000, |machine| {
            let mut numbers = [machine.rank() as i64; 3];
            for _ in 0..3 {
                machine.all_reduce_sum(Numbers::I64(&mut numbers))?;
            }
            Ok::<_, CommError>(numbers[0])
        });
        assert!(results.into_iter().all(|sum| sum.unwrap() == 499_500 * 1000 * 1000));
    }

    /// A transport that bends one byte of one machine's message.
    struct Bent(Solo, usize);

    impl Transport for Bent {
        fn process(&self) -> usize {
            0
        }
        fn machines(&self) -> &[usize] {
            self.0.machines()
        }
        fn exchange(&mut self, mut mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
            mine[self.1][9] ^= 4;
            self.0.exchange(mine, combine)
        }
    }

    #[test]
    fn a_damaged_message_names_its_machine() {
        let results = Group::new(Bent(Solo::new(4), 2)).run(|machine| machine.all_gather(b"payload"));
        for result in results {
            assert!(matches!(result.unwrap_err(), CommError::Damaged { rank: 2, exchange: 0, .. }));
        }
    }
}
