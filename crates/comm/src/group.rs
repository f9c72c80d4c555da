//! Machines of one process, and the exchanges between them. Every machine is a coroutine with a stack of its own, and as many threads as
//! there are cores take turns in running them: a machine that waits costs nothing, and a thousand machines need no thousand threads.
//! Between processes a [`Transport`] carries what the machines hand in; a process alone has none to carry.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corosensei::stack::DefaultStack;
use corosensei::{CoroutineResult, ScopedCoroutine, Yielder};

use crate::collective::{Collective, Combine, CommError, Cost, Reduction, Reply, Roster};
use crate::frame;
use crate::neighbours::{self, Neighbours, Parcels};
use crate::numbers::{self, pack_integers, unpack_integers};

/// More machines than this in one process are refused: each has a stack, and systems limit how many there can be.
pub const MOST_MACHINES: usize = 16_384;
/// Bytes of address space of a machine's stack, taken page by page as it is used; nothing here recurses deeply.
pub const STACK_BYTES: usize = 1 << 20;

/// Integers to be summed in place.
pub enum Integers<'a> {
    /// Of 32 bits.
    I32(&'a mut [i32]),
    /// Of 64 bits.
    I64(&'a mut [i64]),
}

/// The way between processes, each of which holds a contiguous range of machines in the order of process numbers.
pub trait Transport: Send {
    /// This process's number, from 0.
    fn process(&self) -> usize;

    /// How many machines each process holds, in the order of their numbers.
    fn machines(&self) -> &[usize];

    /// Brings the messages of this process's machines to process 0, where `combine` turns the messages of all machines, in rank order,
    /// into the one that returns to every process. An error of `combine` must reach every process as that error.
    fn exchange(&mut self, mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError>;

    /// Whether the way adds integers itself, by [`Transport::sum`].
    fn sums_integers(&self) -> bool {
        false
    }

    /// Replaces the integers by their sums over all processes; sums wrap. Called only where [`Transport::sums_integers`].
    fn sum(&mut self, integers: Integers<'_>) -> Result<(), CommError> {
        let _ = integers;
        Err(CommError::Engine { process: self.process(), what: "it does not add integers".to_owned() })
    }

    /// Whether a message may be damaged on the way without anybody noticing, so that it needs a checksum.
    fn needs_checksums(&self) -> bool {
        false
    }

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

/// The machines of one process, before they run.
pub struct Group {
    meeting: Meeting,
    first_rank: usize,
    size: usize,
    local: usize,
    sums_integers: bool,
    checked: bool,
    alone: bool,
    /// How many machines get a stack: all, but in a test.
    stacks: usize,
}

/// One machine of a group. Dropped before its time it ends the group with an error that names it.
pub struct Machine<'a> {
    group: &'a Group,
    yielder: &'a Yielder<(), ()>,
    /// Its index among the machines of this process; machine 0 of a process speaks for it.
    local: usize,
    done: u64,
}

struct Meeting {
    state: Mutex<State>,
    /// Told to all threads when something happened that a machine may wait for.
    changed: Condvar,
    /// How long a machine may keep the others waiting.
    deadline: Option<Deadline>,
}

/// How long others are waited for, and what then.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// So long.
    pub after: Duration,
    /// `None`: the group ends with an error. Otherwise this is told who is late, and the waiting goes on.
    pub tell: Option<fn(&str)>,
}

/// What a machine brings to a meeting.
enum Deposit {
    /// Nothing yet.
    Absent,
    /// A sealed message to the hub, and what for.
    ToHub { framed: Vec<u8>, why: &'static str },
    /// Integers, with control words at their end, for a way that adds by itself.
    Integers(Vec<u8>),
    /// A message that does not leave the process.
    Beside(Vec<u8>),
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
    /// Grows with everything that a machine may wait for.
    version: u64,
    answer: Answer,
    /// What the neighbours of each local machine sent in the last swap.
    inboxes: Vec<neighbours::Swapped>,
    failure: Option<CommError>,
}

/// What the last exchange brought to all machines of the process.
#[derive(Clone)]
struct Answer {
    message: Arc<[u8]>,
    control: Vec<i32>,
    /// Of the way down, and of the way to wait for.
    cost: Cost,
}

impl Group {
    /// The machines of this process, over a transport to the others.
    ///
    /// # Panics
    /// If this process holds no machine, or more than [`MOST_MACHINES`].
    pub fn new(transport: impl Transport + 'static) -> Self {
        let process = transport.process();
        let local = transport.machines()[process];
        assert!((1..=MOST_MACHINES).contains(&local), "a process of a group holds 1 to {MOST_MACHINES} machines");
        let first_rank = transport.machines()[..process].iter().sum();
        let size = transport.machines().iter().sum();
        let (sums_integers, checked) = (transport.sums_integers(), transport.needs_checksums());
        let alone = transport.machines().len() == 1;
        let state = State {
            transport: Box::new(transport),
            deposits: absent(local),
            arrived: 0,
            present: local,
            done: 0,
            version: 0,
            answer: Answer { message: Arc::from([]), control: Vec::new(), cost: Cost::default() },
            inboxes: vec![neighbours::Swapped::default(); local],
            failure: None,
        };
        let meeting = Meeting { state: Mutex::new(state), changed: Condvar::new(), deadline: None };
        Self { meeting, first_rank, size, local, sums_integers, checked, alone, stacks: local }
    }

    /// No machine of this process may keep the others waiting for longer.
    pub fn with_deadline(mut self, deadline: Option<Deadline>) -> Self {
        self.meeting.deadline = deadline;
        self
    }

    /// A machine's stack.
    fn stack(&self, local: usize) -> std::io::Result<DefaultStack> {
        if local >= self.stacks {
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        DefaultStack::new(STACK_BYTES)
    }

    /// Runs `body` on every machine of this process and returns what they return, in rank order. Where the system has no memory for a
    /// machine's stack, or no thread, that is what all of them return.
    ///
    /// # Panics
    /// If a machine panics.
    pub fn run<R: Send, E: Send + From<CommError>>(
        self,
        body: impl Fn(&mut Machine<'_>) -> Result<R, E> + Sync,
    ) -> Vec<Result<R, E>> {
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(self.local);
        let (each, more) = (self.local / threads, self.local % threads);
        let mut next = 0;
        let ranges: Vec<Range<usize>> = (0..threads)
            .map(|thread| {
                let first = next;
                next += each + usize::from(thread < more);
                first..next
            })
            .collect();
        let results: Vec<Mutex<Option<Result<R, E>>>> = (0..self.local).map(|_| Mutex::new(None)).collect();
        let place = |local: usize| results[local].lock().unwrap_or_else(PoisonError::into_inner);
        let (group, body) = (&self, &|machine: &mut Machine<'_>| *place(machine.local) = Some(body(machine)));
        std::thread::scope(|scope| {
            let start = |range: Range<usize>| {
                let count = range.len();
                let (first, last) = (self.first_rank + range.start, self.first_rank + range.end - 1);
                let machines = range.clone();
                let thread = std::thread::Builder::new()
                    .name(format!("machines {first} to {last}"))
                    // Starting a machine, and a turn of all, nest as deeply as there are machines.
                    .stack_size((2 << 20) + 2048 * count)
                    .spawn_scoped(scope, move || start_machines(group, body, machines, &mut || false));
                (range, thread.map_err(|error| group.meeting.lacks("a thread", count, &error)))
            };
            let threads: Vec<_> = ranges.into_iter().map(start).collect();
            let results = threads.into_iter().flat_map(|(range, thread)| {
                let ended =
                    thread.and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                range.map(move |local| match (place(local).take(), &ended) {
                    (Some(result), _) => result,
                    (None, Err(failure)) => Err(failure.clone().into()),
                    (None, Ok(())) => unreachable!("a thread ends when all its machines have"),
                })
            });
            results.collect()
        })
    }
}

/// Runs `body` on `count` machines in this process.
pub fn run<R: Send, E: Send + From<CommError>>(
    count: usize,
    body: impl Fn(&mut Machine<'_>) -> Result<R, E> + Sync,
) -> Vec<Result<R, E>> {
    Group::new(Solo::new(count)).run(body)
}

/// Starts these machines and runs them to their end; an error where the system has not the memory for all. `turn` lets all machines that
/// were started before go on until they wait, and says whether one of them is still there. A coroutine lives in a scope, hence the
/// recursion.
fn start_machines(
    group: &Group,
    body: &dyn Fn(&mut Machine<'_>),
    mut machines: Range<usize>,
    turn: &mut dyn FnMut() -> bool,
) -> Result<(), CommError> {
    let count = machines.len();
    let Some(local) = machines.next() else {
        group.meeting.take_turns(turn);
        return Ok(());
    };
    let stack = match group.stack(local) {
        Ok(stack) => stack,
        Err(error) => {
            let failure = group.meeting.lacks("memory for its stack", count, &error);
            group.meeting.take_turns(turn);
            return Err(failure);
        }
    };
    let machine = ScopedCoroutine::with_stack(stack, |yielder: &Yielder<(), ()>, ()| {
        body(&mut Machine { group, yielder, local, done: 0 });
    });
    machine.scope(|mut machine| {
        let mut runs = true;
        let mut turn = || {
            let before = turn();
            runs = runs && matches!(machine.as_mut().resume(()), CoroutineResult::Yield(()));
            before | runs
        };
        start_machines(group, body, machines, &mut turn)
    })
}

impl Machine<'_> {
    /// Swaps sealed messages with neighbours; the checks and the order are [`neighbours::carry`]'s.
    pub(crate) fn swap_parcels(&mut self, parcels: Parcels) -> Result<neighbours::Swapped, CommError> {
        let (local, checked) = (self.local, self.group.checked);
        self.meet(
            Deposit::ToNeighbours(parcels),
            |state, exchange| state.carry_parcels(exchange, checked),
            |state| std::mem::take(&mut state.inboxes[local]),
        )
    }

    /// A message to a neighbour in its envelope.
    pub(crate) fn seal(&self, message: &[u8]) -> Vec<u8> {
        frame::seal(self.done, &[], message, self.group.checked)
    }

    /// Leaves the deposit, waits until all machines of the process have left theirs and its first machine has carried them, and
    /// collects.
    fn meet<R>(
        &mut self,
        deposit: Deposit,
        carry: impl FnOnce(&mut State, u64) -> Result<(), CommError>,
        collect: impl FnOnce(&mut State) -> R,
    ) -> Result<R, CommError> {
        let meeting = &self.group.meeting;
        let mut state = meeting.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.deposits[self.local] = deposit;
        state.arrived += 1;
        let everyone = state.deposits.len();
        if state.arrived == everyone && self.local != 0 {
            meeting.announce(&mut state);
        }
        let waits = |state: &State| match self.local {
            0 => state.arrived < everyone,
            _ => state.done == self.done,
        };
        while waits(&state) && state.failure.is_none() {
            drop(state);
            self.yielder.suspend(());
            state = meeting.lock();
        }
        if self.local == 0 && state.failure.is_none() {
            state.arrived = 0;
            match carry(&mut state, self.done) {
                Ok(()) => state.done += 1,
                Err(failure) => state.failure = Some(failure),
            }
            meeting.announce(&mut state);
        }
        if state.done == self.done {
            return Err(state.failure.clone().expect("only a failure leaves a meeting without an answer"));
        }
        self.done += 1;
        Ok(collect(&mut state))
    }
}

impl Collective for Machine<'_> {
    fn rank(&self) -> usize {
        self.group.first_rank + self.local
    }

    fn size(&self) -> usize {
        self.group.size
    }

    fn reduce(&mut self, message: &[u8], control: &mut [i32], mut how: Reduction<'_>) -> Result<Reply, CommError> {
        let Group { sums_integers, checked, size, .. } = *self.group;
        let (words, why) = (control.len(), how.name());
        let (deposit, up) = match how.integer_bytes() {
            Some(width) if sums_integers => {
                let mut deposit = message.to_vec();
                control.iter().for_each(|&word| push_integer(i64::from(word), width, &mut deposit));
                let control_bytes = (words * width) as u64;
                (Deposit::Integers(deposit), Cost { up_bytes: message.len() as u64, control_bytes, ..Cost::default() })
            }
            integers => {
                // A star packs integers that are to be summed.
                let packed = integers.map(|width| pack(message, width));
                let payload = packed.as_deref().unwrap_or(message);
                let framed = frame::seal(self.done, control, payload, checked);
                let opened = frame::open(self.done, words, &framed, checked).expect("an envelope that was just sealed");
                let Cost { up_bytes, control_bytes, frame_bytes, .. } = cost_of(&opened);
                let up = Cost { up_bytes, control_bytes, frame_bytes, ..Cost::default() };
                (Deposit::ToHub { framed, why }, up)
            }
        };
        let answer = self.meet(
            deposit,
            |state, exchange| match how.integer_bytes().filter(|_| sums_integers) {
                Some(width) => state.carry_integers(width, words),
                None => state.carry(exchange, words, checked, why, &mut how),
            },
            |state| state.answer.clone(),
        )?;
        control.copy_from_slice(&answer.control);
        let cost = Cost {
            up_bytes: up.up_bytes,
            control_bytes: up.control_bytes + answer.cost.control_bytes,
            frame_bytes: up.frame_bytes + answer.cost.frame_bytes,
            ..answer.cost
        };
        Ok(Reply { message: answer.message, roster: Roster::All(size), cost })
    }

    fn beside(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Option<Result<Arc<[u8]>, CommError>> {
        self.group.alone.then(|| {
            self.meet(
                Deposit::Beside(message.to_vec()),
                |state, _| state.combine_beside(combine),
                |state| Arc::clone(&state.answer.message),
            )
        })
    }

    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        Some(self)
    }
}

fn cost_of(opened: &frame::Opened<'_>) -> Cost {
    Cost {
        up_bytes: opened.message.len() as u64,
        control_bytes: opened.control_bytes,
        frame_bytes: opened.frame_bytes,
        ..Cost::default()
    }
}

fn push_integer(number: i64, width: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes()[..width]);
}

/// Integers of this width, packed behind their number.
fn pack(message: &[u8], width: usize) -> Vec<u8> {
    let mut packed = Vec::new();
    numbers::push_count((message.len() / width) as u64, &mut packed);
    packed.extend(match width {
        4 => pack_integers(message.chunks_exact(4).map(|bytes| i64::from(<i32 as numbers::Number>::read(bytes)))),
        _ => pack_integers(message.chunks_exact(8).map(<i64 as numbers::Number>::read)),
    });
    packed
}

/// Undoes [`pack`].
fn unpack(mut packed: &[u8], width: usize) -> Option<Vec<u8>> {
    let count = numbers::take_count(&mut packed)?;
    let integers = unpack_integers(packed, usize::try_from(count).ok()?)?;
    let mut message = Vec::with_capacity(integers.len() * width);
    integers.into_iter().for_each(|number| push_integer(number, width, &mut message));
    Some(message)
}

fn absent(count: usize) -> Vec<Deposit> {
    (0..count).map(|_| Deposit::Absent).collect()
}

impl State {
    /// Machine 0 of the process: carries all local messages to the hub and keeps the reply for the others.
    fn carry(
        &mut self,
        exchange: u64,
        words: usize,
        checked: bool,
        why: &'static str,
        how: &mut Reduction<'_>,
    ) -> Result<(), CommError> {
        let mine = self.take_deposits(why, |deposit| match deposit {
            Deposit::ToHub { framed, why: theirs } if theirs == why => Ok(framed),
            Deposit::ToHub { why: theirs, .. } => Err(theirs),
            other => Err(other.name()),
        })?;
        let packs = how.integer_bytes();
        let mut longest_up = mine.iter().map(Vec::len).max().unwrap_or(0);
        let mut open_and_combine = |framed: &[&[u8]]| {
            longest_up = framed.iter().map(|framed| framed.len()).max().unwrap_or(0);
            let mut messages = Vec::with_capacity(framed.len());
            let mut control = vec![0i32; words];
            let damaged = |rank, what| CommError::Damaged { rank, exchange, what };
            for (rank, framed) in framed.iter().enumerate() {
                let opened = frame::open(exchange, words, framed, checked).map_err(|what| damaged(rank, what))?;
                control.iter_mut().zip(&opened.control).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
                messages.push(opened.message);
            }
            let Some(width) = packs else {
                return Ok(frame::seal(exchange, &control, &how.combine(&messages)?, checked));
            };
            let unpacked = messages.iter().enumerate().map(|(rank, message)| {
                unpack(message, width).ok_or_else(|| damaged(rank, "it is not a code of integers".to_owned()))
            });
            let unpacked: Vec<Vec<u8>> = unpacked.collect::<Result<_, _>>()?;
            let sums = how.combine(&unpacked.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            Ok(frame::seal(exchange, &control, &pack(&sums, width), checked))
        };
        let framed = self.transport.exchange(mine, &mut open_and_combine)?;
        let damaged = |what| CommError::Damaged { rank: 0, exchange, what };
        let opened = frame::open(exchange, words, &framed, checked).map_err(damaged)?;
        let message = match packs {
            None => Arc::from(opened.message),
            Some(width) => unpack(opened.message, width)
                .map(Arc::from)
                .ok_or_else(|| damaged("it is not a code of integers".to_owned()))?,
        };
        let passed = cost_of(&opened);
        let cost = Cost {
            up_bytes: 0,
            down_bytes: passed.up_bytes,
            hops: 2,
            path_bytes: (longest_up + framed.len()) as u64,
            ..passed
        };
        self.answer = Answer { message, control: opened.control, cost };
        Ok(())
    }

    /// Machine 0 of the process: lets the transport add all integers.
    fn carry_integers(&mut self, width: usize, words: usize) -> Result<(), CommError> {
        let mine = self.take_deposits("to sum integers", |deposit| match deposit {
            Deposit::Integers(integers) => Ok(integers),
            other => Err(other.name()),
        })?;
        let mine: Vec<&[u8]> = mine.iter().map(Vec::as_slice).collect();
        let sums = match width {
            4 => {
                let mut sums: Vec<i32> = numbers::read(&numbers::sum::<i32>(&mine)?).collect();
                self.transport.sum(Integers::I32(&mut sums))?;
                numbers::to_bytes(&sums)
            }
            _ => {
                let mut sums: Vec<i64> = numbers::read(&numbers::sum::<i64>(&mine)?).collect();
                self.transport.sum(Integers::I64(&mut sums))?;
                numbers::to_bytes(&sums)
            }
        };
        let (message, control) = sums.split_at(sums.len() - words * width);
        let control = control.chunks_exact(width).map(|word| <i32 as numbers::Number>::read(&word[..4])).collect();
        let (down_bytes, control_bytes) = (message.len() as u64, (words * width) as u64);
        let path_bytes = 2 * (down_bytes + control_bytes);
        let cost = Cost { down_bytes, control_bytes, hops: 2, path_bytes, ..Cost::default() };
        self.answer = Answer { message: Arc::from(message), control, cost };
        Ok(())
    }

    /// Machine 0 of the only process: what does not leave it.
    fn combine_beside(&mut self, combine: &mut Combine<'_>) -> Result<(), CommError> {
        let mine = self.take_deposits("beside the protocol", |deposit| match deposit {
            Deposit::Beside(message) => Ok(message),
            other => Err(other.name()),
        })?;
        self.answer.message = combine(&mine.iter().map(Vec::as_slice).collect::<Vec<_>>())?.into();
        Ok(())
    }

    /// Who kept a thread waiting for so long.
    fn late(&self, waited: Duration) -> CommError {
        let first: usize = self.transport.machines()[..self.transport.process()].iter().sum();
        let missing = self.deposits.iter().position(|deposit| matches!(deposit, Deposit::Absent)).unwrap_or(0);
        CommError::Late { rank: first + missing, exchange: self.done, seconds: waited.as_secs() }
    }

    /// Machine 0 of the process: carries all local messages to the neighbours, and theirs back.
    fn carry_parcels(&mut self, exchange: u64, checked: bool) -> Result<(), CommError> {
        let outgoing = self.take_deposits("to its neighbours", |deposit| match deposit {
            Deposit::ToNeighbours(parcels) => Ok(parcels),
            other => Err(other.name()),
        })?;
        self.inboxes = neighbours::carry(&mut *self.transport, exchange, outgoing, checked)?;
        Ok(())
    }

    /// All local deposits, if they are of the kind that the process's first machine brought; `take` says what else it is.
    fn take_deposits<T>(
        &mut self,
        kind: &str,
        take: impl Fn(Deposit) -> Result<T, &'static str>,
    ) -> Result<Vec<T>, CommError> {
        let everyone = self.deposits.len();
        let first: usize = self.transport.machines()[..self.transport.process()].iter().sum();
        let deposits = std::mem::replace(&mut self.deposits, absent(everyone));
        let refused = |local: usize, other: &str| {
            CommError::refused(first + local, format!("it sends {other} where machine {first} sends {kind}"))
        };
        let taken = deposits.into_iter().enumerate();
        taken.map(|(local, deposit)| take(deposit).map_err(|other| refused(local, other))).collect()
    }
}

impl Deposit {
    fn name(&self) -> &'static str {
        match self {
            Self::Absent => "nothing",
            Self::ToHub { why, .. } => why,
            Self::Integers(_) => "to sum integers",
            Self::Beside(_) => "beside the protocol",
            Self::ToNeighbours(_) => "to its neighbours",
        }
    }
}

impl Meeting {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking machine says so through its drop; the state itself is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, state: &mut State) {
        state.version += 1;
        self.changed.notify_all();
    }

    /// So many machines are gone, because of `why` unless the group has failed before; returns what it failed by.
    fn depart(&self, machines: usize, why: CommError) -> CommError {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.failure = Some(why.clone());
            self.announce(&mut state);
        }
        let why = state.failure.clone().unwrap_or(why);
        state.present -= machines;
        if state.present == 0 {
            state.transport.leave(&why);
        }
        why
    }

    /// So many machines cannot be started, for the system lacks something.
    fn lacks(&self, lacking: &str, machines: usize, error: &std::io::Error) -> CommError {
        let process = self.lock().transport.process();
        let what = format!("the system has not {lacking} for every machine ({error}); take fewer, or raise its limits");
        self.depart(machines, CommError::Engine { process, what })
    }

    /// Lets a thread's machines take turns until all have come to their end; between turns it waits for news.
    fn take_turns(&self, turn: &mut dyn FnMut() -> bool) {
        loop {
            let seen = self.lock().version;
            if !turn() {
                return;
            }
            let mut begun = Instant::now();
            let mut state = self.lock();
            while state.version == seen {
                state = match self.deadline {
                    None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(deadline) => {
                        let left = deadline.after.saturating_sub(begun.elapsed());
                        if left.is_zero() && state.failure.is_none() {
                            let late = state.late(deadline.after);
                            let Some(tell) = deadline.tell else {
                                state.failure = Some(late);
                                self.announce(&mut state);
                                break;
                            };
                            tell(&late.to_string());
                            begun = Instant::now();
                        }
                        let waited = self.changed.wait_timeout(state, left.max(Duration::from_millis(1)));
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        let left = CommError::Left { rank: self.rank(), exchange: self.done };
        self.group.meeting.depart(1, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(machine: &mut Machine<'_>, message: &[u8]) -> Result<(), CommError> {
        machine.exchange(message, Reduction::Gather).map(drop)
    }

    #[test]
    fn a_machine_that_leaves_is_named_by_all_others() {
        let results = run(5, |machine| {
            gather(machine, b"here")?;
            if machine.rank() == 3 {
                return Err(CommError::refused(3, "it had enough"));
            }
            gather(machine, b"still here")
        });
        for (rank, result) in results.into_iter().enumerate() {
            let expected = match rank {
                3 => CommError::refused(3, "it had enough"),
                _ => CommError::Left { rank: 3, exchange: 1 },
            };
            assert_eq!(result.unwrap_err(), expected);
        }
    }

    #[test]
    fn machines_that_finish_early_do_not_spoil_the_last_exchange() {
        for _ in 0..200 {
            assert!(run(8, |machine| gather(machine, b"x")).into_iter().all(|result| result.is_ok()));
        }
    }

    #[test]
    fn five_thousand_machines_sum() {
        let results = run(5000, |machine| {
            let mut sum = machine.rank() as i64;
            for _ in 0..3 {
                sum = machine.exchange(&sum.to_le_bytes(), Reduction::SumI64)?.numbers().next().unwrap();
            }
            Ok::<_, CommError>(sum)
        });
        assert!(results.into_iter().all(|sum| sum.unwrap() == 12_497_500 * 5000 * 5000));
    }

    #[test]
    fn a_machine_that_keeps_the_others_waiting_is_named_and_ends_the_group_or_is_waited_for() {
        static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        if std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
            println!("skipped: on one core nobody waits while another sleeps");
            return;
        }
        let late = |tell: Option<fn(&str)>| {
            let deadline = Deadline { after: Duration::from_millis(100), tell };
            Group::new(Solo::new(2)).with_deadline(Some(deadline)).run(|machine| {
                if machine.rank() == 1 {
                    std::thread::sleep(Duration::from_millis(600));
                }
                gather(machine, b"x")
            })
        };
        assert_eq!(late(None)[0], Err(CommError::Late { rank: 1, exchange: 0, seconds: 0 }));
        let waited = late(Some(|late| TOLD.lock().unwrap().push(late.to_owned())));
        assert_eq!(waited, [Ok(()), Ok(())]);
        assert!(TOLD.lock().unwrap().iter().all(|late| late.contains("machine 1 did not arrive")));
        assert!(!TOLD.lock().unwrap().is_empty());
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
        fn needs_checksums(&self) -> bool {
            true
        }
        fn exchange(&mut self, mut mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
            mine[self.1][3] ^= 4;
            self.0.exchange(mine, combine)
        }
    }

    #[test]
    fn a_damaged_message_names_its_machine() {
        for result in Group::new(Bent(Solo::new(4), 2)).run(|machine| gather(machine, b"payload")) {
            assert!(matches!(result.unwrap_err(), CommError::Damaged { rank: 2, exchange: 0, .. }));
        }
    }

    #[test]
    fn a_panic_of_a_machine_is_a_panic_of_the_group() {
        let panicked = std::panic::catch_unwind(|| {
            run(5, |machine| {
                assert!(machine.rank() != 3, "machine 3 lost its mind");
                gather(machine, b"x")
            })
        });
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"machine 3 lost its mind"));
    }

    #[test]
    fn without_memory_for_all_stacks_those_that_wait_and_those_that_never_began_say_so() {
        let mut group = Group::new(Solo::new(9));
        group.stacks = 3;
        let results = group.run(|machine| {
            let rank = machine.rank();
            if rank > 0 {
                gather(machine, b"x")?;
            }
            Ok::<_, CommError>(rank)
        });
        assert_eq!(results.len(), 9);
        for (rank, result) in results.into_iter().enumerate() {
            match result {
                Ok(found) => assert_eq!((rank, found), (0, 0)),
                Err(CommError::Engine { what, .. }) => {
                    assert!(rank > 0 && what.contains("memory for its stack"), "{what}")
                }
                Err(other) => panic!("{rank}: {other}"),
            }
        }
    }
}
