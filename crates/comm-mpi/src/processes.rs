//! The transport between the processes of a job. Every call opens with the same small all-gather, in which each process says what it
//! came for: so a process that has left is noticed by those that still wait, and calls out of step are refused instead of hanging.

use std::sync::Arc;

use corewire_comm::{Combine, CommError, Deadline, Integers, Transport};

use crate::call::Communicator;
use crate::job::{self, Job};

/// The way between the processes of a job, for one group.
pub struct Processes {
    communicator: Communicator,
    machines: Vec<usize>,
    /// How many bytes one call of MPI may move: counts and positions are 32-bit integers there.
    largest_bytes: usize,
    state: State,
    /// Last, so that MPI ends after everything else.
    job: Arc<Job>,
}

enum State {
    Open,
    /// Every process knows that the group has ended.
    Over,
    /// A call failed: nobody knows what the others know.
    Broken(CommError),
}

/// What a process comes for.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Purpose {
    Exchange,
    Sum,
    Deliver,
    Leave,
}

const REPLY: u8 = 0;
const FAILURE: u8 = 1;

impl Processes {
    pub(crate) fn new(communicator: Communicator, machines: Vec<usize>, job: Arc<Job>) -> Self {
        Self { communicator, machines, largest_bytes: i32::MAX as usize, state: State::Open, job }
    }

    /// Lets one call of MPI move at most so many bytes; longer messages travel in pieces. Every process must set the same.
    ///
    /// # Panics
    /// If that is less than a byte per process, or more than a 32-bit integer can count.
    pub fn with_largest_bytes(mut self, bytes: usize) -> Self {
        assert!((self.machines.len()..=i32::MAX as usize).contains(&bytes), "{bytes} bytes a call cannot be");
        self.largest_bytes = bytes;
        self
    }

    /// How long a process may keep the others waiting; `None` for ever.
    pub fn with_deadline(mut self, deadline: Option<Deadline>) -> Self {
        self.communicator.set_deadline(deadline);
        self
    }

    /// Says what this process came for, with a length (of `reason`, where it came to leave), and returns the lengths of all. Where one came
    /// to leave, that is the end for all, and an error for those who did not.
    fn convene(&mut self, purpose: Purpose, length: usize, reason: &[u8]) -> Result<Vec<usize>, CommError> {
        let said = self.communicator.all_gather([purpose as u64, length as u64])?;
        let leave = Purpose::Leave as u64;
        if let Some(process) = said.iter().position(|[theirs, _]| *theirs == leave) {
            self.state = State::Over;
            // The reason is the lowest leaver's; where all have come to the end nobody asks for it.
            if said.iter().all(|[theirs, _]| *theirs == leave) {
                return Ok(Vec::new());
            }
            let mut theirs = vec![0; said[process][1] as usize];
            if process == self.process() {
                theirs.copy_from_slice(reason);
            }
            self.broadcast(process, &mut theirs)?;
            return Err(self.read_error(&theirs));
        }
        if let Some(process) = said.iter().position(|[theirs, _]| *theirs != said[0][0]) {
            self.state = State::Over;
            let what = "it and process 0 are out of step: one meets at the hub, the other its neighbours".to_owned();
            return Err(self.job.in_common(CommError::Engine { process, what }));
        }
        Ok(said.iter().map(|[_, length]| *length as usize).collect())
    }

    /// Process 0 gets the bytes of every process, the others nothing.
    fn gather(&mut self, mine: &[u8], lengths: &[usize]) -> Result<Vec<Vec<u8>>, CommError> {
        let piece = self.largest_bytes / lengths.len();
        let mut all: Vec<Vec<u8>> = lengths.iter().map(|_| Vec::new()).collect();
        for start in (0..lengths.iter().copied().max().unwrap_or(0)).step_by(piece) {
            let counts: Vec<usize> = lengths.iter().map(|length| length.saturating_sub(start).min(piece)).collect();
            let from = start.min(mine.len());
            let arrived = self.communicator.gather(&mine[from..from + counts[self.process()]], &counts)?;
            if self.process() == 0 {
                append(&mut all, &counts, &arrived);
            }
        }
        Ok(all)
    }

    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), CommError> {
        bytes.chunks_mut(self.largest_bytes).try_for_each(|piece| self.communicator.broadcast(root, piece))
    }

    /// What process 0 made of all messages comes to every process, be it a reply or a failure.
    fn announce(&mut self, outcome: Result<Vec<u8>, CommError>) -> Result<Arc<[u8]>, CommError> {
        let (status, mut bytes) = match outcome {
            Ok(bytes) => (REPLY, bytes),
            Err(error) => (FAILURE, error.to_bytes()),
        };
        let mut head = [0; 9];
        head[0] = status;
        head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.broadcast(0, &mut head)?;
        let [status, length @ ..] = head;
        bytes.resize(u64::from_le_bytes(length) as usize, 0);
        self.broadcast(0, &mut bytes)?;
        if status == REPLY {
            return Ok(Arc::from(bytes));
        }
        self.state = State::Over;
        Err(self.job.in_common(self.read_error(&bytes)))
    }

    fn read_error(&self, bytes: &[u8]) -> CommError {
        CommError::from_bytes(bytes).unwrap_or_else(|| CommError::Engine {
            process: self.process(),
            what: "another process failed, and its reason cannot be read".to_owned(),
        })
    }

    fn try_exchange(&mut self, mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
        let mut sent = Vec::with_capacity(mine.iter().map(|message| 8 + message.len()).sum());
        for message in &mine {
            sent.extend_from_slice(&(message.len() as u64).to_le_bytes());
            sent.extend_from_slice(message);
        }
        let lengths = self.convene(Purpose::Exchange, sent.len(), &[])?;
        let all = self.gather(&sent, &lengths)?;
        let outcome = match self.process() {
            0 => split(&all, &self.machines).and_then(|messages| combine(&messages)),
            _ => Ok(Vec::new()),
        };
        self.announce(outcome)
    }

    fn try_sum(&mut self, integers: Integers<'_>) -> Result<(), CommError> {
        let bytes = match &integers {
            Integers::I32(numbers) => 4 * numbers.len(),
            Integers::I64(numbers) => 8 * numbers.len(),
        };
        let lengths = self.convene(Purpose::Sum, bytes, &[])?;
        if let Some(process) = lengths.iter().position(|length| *length != lengths[0]) {
            self.state = State::Over;
            let what = format!("it sums {} bytes of integers, process 0 {}", lengths[process], lengths[0]);
            return Err(self.job.in_common(CommError::Engine { process, what }));
        }
        let most = self.largest_bytes / 8;
        match integers {
            Integers::I32(numbers) => numbers.chunks_mut(most).try_for_each(|piece| self.communicator.sum_i32(piece)),
            Integers::I64(numbers) => numbers.chunks_mut(most).try_for_each(|piece| self.communicator.sum_i64(piece)),
        }
    }

    fn try_deliver(&mut self, bundles: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CommError> {
        let longest = bundles.iter().map(Vec::len).max().unwrap_or(0);
        let longest = self.convene(Purpose::Deliver, longest, &[])?.into_iter().max().unwrap_or(0);
        let sent: Vec<u64> = bundles.iter().map(|bundle| bundle.len() as u64).collect();
        let lengths: Vec<usize> =
            self.communicator.all_to_all(&sent)?.into_iter().map(|length| length as usize).collect();
        let piece = self.largest_bytes / lengths.len();
        let mut arrived: Vec<Vec<u8>> = lengths.iter().map(|&length| Vec::with_capacity(length)).collect();
        // All processes take as many turns as the longest bundle of the job needs.
        for start in (0..longest).step_by(piece) {
            let turn = |length: usize| start.min(length)..(start + piece).min(length);
            let parts: Vec<&[u8]> = bundles.iter().map(|bundle| &bundle[turn(bundle.len())]).collect();
            let counts: Vec<usize> = lengths.iter().map(|&length| turn(length).len()).collect();
            let incoming = self.communicator.scatter_and_gather(&parts, &counts)?;
            append(&mut arrived, &counts, &incoming);
        }
        Ok(arrived)
    }

    /// A failure that the others do not know of comes from a call of MPI that did not succeed.
    fn note<T>(&mut self, result: Result<T, CommError>) -> Result<T, CommError> {
        if let (Err(error), State::Open) = (&result, &self.state) {
            self.state = State::Broken(error.clone());
        }
        result
    }
}

impl Transport for Processes {
    fn process(&self) -> usize {
        self.communicator.process()
    }

    fn machines(&self) -> &[usize] {
        &self.machines
    }

    fn exchange(&mut self, mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
        let result = self.try_exchange(mine, combine);
        self.note(result)
    }

    fn sums_integers(&self) -> bool {
        true
    }

    fn sum(&mut self, integers: Integers<'_>) -> Result<(), CommError> {
        let result = self.try_sum(integers);
        self.note(result)
    }

    fn deliver(&mut self, bundles: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CommError> {
        let result = self.try_deliver(bundles);
        self.note(result)
    }

    fn leave(&mut self, why: &CommError) {
        if let State::Open = self.state {
            let reason = why.to_bytes();
            let result = self.convene(Purpose::Leave, reason.len(), &reason).map(drop);
            // Whatever the others said, this process has left.
            let _ = self.note(result);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let process = self.process();
        self.leave(&CommError::Left { rank: self.machines[..process].iter().sum(), exchange: 0 });
        if let State::Over = self.state {
            let result = self.communicator.free();
            self.state = result.map_or_else(State::Broken, |()| State::Over);
        }
        if let State::Broken(why) = &self.state {
            job::abort(process, 1, &why.to_string());
        }
    }
}

/// Appends to each of `all` its part of `bytes`.
fn append(all: &mut [Vec<u8>], counts: &[usize], mut bytes: &[u8]) {
    for (all, &count) in all.iter_mut().zip(counts) {
        let (part, tail) = bytes.split_at(count);
        all.extend_from_slice(part);
        bytes = tail;
    }
}

/// The messages of all machines, from what every process sent.
fn split<'a>(all: &'a [Vec<u8>], machines: &[usize]) -> Result<Vec<&'a [u8]>, CommError> {
    let mut messages = Vec::with_capacity(machines.iter().sum());
    for (process, (mut rest, &count)) in all.iter().map(Vec::as_slice).zip(machines).enumerate() {
        for _ in 0..count {
            let message = rest
                .split_first_chunk::<8>()
                .and_then(|(length, tail)| tail.split_at_checked(u64::from_le_bytes(*length) as usize));
            let Some((message, tail)) = message else {
                let what = format!("what it sent is not the messages of its {count} machines");
                return Err(CommError::Engine { process, what });
            };
            messages.push(message);
            rest = tail;
        }
    }
    Ok(messages)
}
