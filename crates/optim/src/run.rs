//! The one round loop. Every engine runs it, on every machine: the method's round, then what is known of it, then the decision to go on.
//!
//! A round is the method's own exchanges and nothing more. What the loop has to say rides on the first of them as control words: machine
//! 0's wish to end after this round or to take a snapshot, and now and then every machine's digest of the common state. Where one process
//! holds all machines they are looked at beside the protocol, which costs no byte.

use std::sync::Arc;

use corewire_comm::numbers::{self, Number};
use corewire_comm::{Collective, Combine, CommError, Metered, Neighbours, Phase, Reduction, Reply, Traffic};
use corewire_journal::{MachineState, Snapshot};

use crate::error::RunError;
use crate::method::{Context, Method, Outcome, Settings};
use crate::objective::Objective;
use crate::score::{HeldOut, Score};
use crate::state::{self, Scope};

/// When to stop. The first that holds ends the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// After this many rounds.
    pub rounds: u64,
    /// At this relative suboptimality (f - f*)/(f0 - f*).
    pub target: Option<f64>,
    /// f* where it is known.
    pub optimum: Option<f64>,
    /// At this estimate of the gradient's norm.
    pub gradient: Option<f64>,
    /// At this estimate of the gradient's norm, relative to the first.
    pub gradient_relative: Option<f64>,
    /// At this estimate of f - f*, by methods that have one; relative to the first estimate if negative.
    pub gap: Option<Gap>,
    /// After so many evaluations on held-out rows without a better one.
    pub patience: Option<u64>,
    /// After these seconds by machine 0's clock.
    pub seconds: Option<f64>,
    /// After this many bytes on the wire, both ways together, a machine.
    pub bytes: Option<u64>,
    /// Digests are compared every so many rounds.
    pub digest_every: u64,
    /// f is evaluated over all machines every so many rounds. `None`: every round where that costs nothing, never where it would have to
    /// travel.
    pub evaluate_every: Option<u64>,
    /// Whether machine 0 alone knows the bounds on the gradient and the gap, and has to tell the others that they hold.
    pub led: bool,
    /// Whether machine 0 keeps snapshots; the same on every machine.
    pub snapshots: bool,
    /// Whether some machine holds rows out, so that the end is scored even where nothing before it was; the same on every machine.
    pub scores: bool,
}

/// A bound on the estimated f - f*.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gap {
    /// As it is.
    Absolute(f64),
    /// Relative to the first estimate.
    Relative(f64),
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            rounds: 5000,
            target: None,
            optimum: None,
            gradient: None,
            gradient_relative: None,
            gap: None,
            patience: None,
            seconds: None,
            bytes: None,
            // Often enough to stop before much is lost.
            digest_every: 32,
            evaluate_every: None,
            led: false,
            snapshots: false,
            scores: false,
        }
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The relative suboptimality was reached.
    Target,
    /// The gradient was small enough.
    Gradient,
    /// The estimated gap was small enough.
    Gap,
    /// The held-out rows were no longer fitted better.
    Patience,
    /// All rounds were run, or all that the method has.
    Rounds,
    /// The time was up.
    Seconds,
    /// The bytes were spent.
    Bytes,
    /// Somebody asked for it.
    Stopped,
    /// f is no longer a number, or has grown a million times and stayed there.
    Diverged,
}

const ENDS: [Ended; 9] = [
    Ended::Target,
    Ended::Gradient,
    Ended::Gap,
    Ended::Patience,
    Ended::Rounds,
    Ended::Seconds,
    Ended::Bytes,
    Ended::Stopped,
    Ended::Diverged,
];

impl Ended {
    /// Whether the run did what was asked of it.
    pub fn is_reached(self) -> bool {
        matches!(self, Self::Target | Self::Gradient | Self::Gap | Self::Patience)
    }
}

/// What is known after a round. Bytes are means over machines, since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Rounds done.
    pub round: u64,
    /// f at the iterate, where it was evaluated.
    pub value: Option<f64>,
    /// (f - f*)/(f0 - f*), where both are known.
    pub relative: Option<f64>,
    /// How the iterate does on held-out rows.
    pub score: Option<Score>,
    /// What the method says.
    pub outcome: Outcome,
    /// What has passed.
    pub traffic: Passed,
    /// Seconds by machine 0's clock.
    pub seconds: f64,
}

/// [`Traffic`] as a mean over machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Payload up.
    pub up_bytes: f64,
    /// Payload down.
    pub down_bytes: f64,
    /// Control, both ways.
    pub control_bytes: f64,
    /// Envelopes, both ways.
    pub frame_bytes: f64,
    /// Everything before the first round.
    pub setup_bytes: f64,
    /// Exchanges without set-up.
    pub trips: u64,
    /// All exchanges.
    pub exchanges: u64,
    /// Seconds on the modelled link.
    pub link_seconds: f64,
}

/// How many numbers of a machine's traffic are averaged.
const AVERAGED: usize = 5;

impl Passed {
    fn averaged(traffic: &Traffic) -> [f64; AVERAGED] {
        let Traffic { up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes, .. } = *traffic;
        [up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes].map(|count| count as f64)
    }

    fn new(means: [f64; AVERAGED], own: &Traffic) -> Self {
        let [up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes] = means;
        let Traffic { trips, exchanges, link_seconds, .. } = *own;
        Self { up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes, trips, exchanges, link_seconds }
    }

    /// Everything, both ways.
    pub fn wire_bytes(&self) -> f64 {
        self.up_bytes + self.down_bytes + self.control_bytes + self.frame_bytes + self.setup_bytes
    }
}

/// What machine 0 is told of, and asked. The other machines have [`Silent`].
pub trait Observer {
    /// The replies that preparation received: enough to prepare again without the machines.
    fn prepared(&mut self, replies: &[Arc<[u8]>], settings: Settings) -> Result<(), RunError> {
        let _ = (replies, settings);
        Ok(())
    }

    /// A round is over: its record, and the replies that it received.
    fn round(&mut self, record: &Record, replies: &[Arc<[u8]>]) -> Result<(), RunError> {
        let _ = (record, replies);
        Ok(())
    }

    /// f at x, where this process has all rows although the machines are on several.
    fn value(&mut self, x: &[f64]) -> Option<f64> {
        let _ = x;
        None
    }

    /// Whether every machine's state is wanted after this many rounds.
    fn wants_snapshot(&mut self, round: u64) -> bool {
        let _ = round;
        false
    }

    /// Every machine's state, as it was wanted.
    fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), RunError> {
        let _ = snapshot;
        Ok(())
    }

    /// Whether to stop after this round.
    fn wants_stop(&mut self) -> bool {
        false
    }

    /// Seconds since the run began.
    fn seconds(&self) -> f64 {
        0.0
    }
}

/// An observer that does nothing.
#[derive(Debug)]
pub struct Silent;

impl Observer for Silent {}

/// How a run ended, as each machine knows it.
#[derive(Clone, Debug)]
pub struct Finish {
    /// Why.
    pub ended: Ended,
    /// f at the start, where it was evaluated.
    pub initial: Option<f64>,
    /// The last record.
    pub last: Record,
    /// Digest of the final common state.
    pub digest: u64,
    /// The final iterate.
    pub iterate: Vec<f64>,
    /// What the method settled on.
    pub settings: Settings,
}

/// A collective that lets control words ride on the first exchange of a round, and keeps the replies for the journal.
struct Ridden<'a, 'b> {
    inner: &'a mut Metered<'b>,
    replies: Vec<Arc<[u8]>>,
    /// What this machine has to say; then, once they rode, the sums over machines.
    words: Vec<i32>,
    rode: bool,
}

impl<'a, 'b> Ridden<'a, 'b> {
    fn new(inner: &'a mut Metered<'b>) -> Self {
        Self { inner, replies: Vec::new(), words: Vec::new(), rode: true }
    }

    fn begin_round(&mut self, words: Vec<i32>) {
        self.replies.clear();
        self.words = words;
        self.rode = false;
    }

    /// The sums of the words. Where the round had no exchange to ride on, by gossip, they travel alone; within one process they need not.
    fn end_round(&mut self, alone: bool) -> Result<&[i32], RunError> {
        if !self.rode && !alone {
            self.inner.set_phase(Phase::Control);
            self.inner.reduce(&[], &mut self.words, Reduction::SumI32)?;
            self.inner.set_phase(Phase::Rounds);
        }
        self.rode = true;
        Ok(&self.words)
    }
}

impl Collective for Ridden<'_, '_> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn reduce(&mut self, message: &[u8], control: &mut [i32], how: Reduction<'_>) -> Result<Reply, CommError> {
        debug_assert!(control.is_empty(), "the loop alone sends control words");
        let first = !std::mem::replace(&mut self.rode, true);
        let words = if first { &mut self.words[..] } else { &mut [] };
        let reply = self.inner.reduce(message, words, how)?;
        self.replies.push(Arc::clone(&reply.message));
        Ok(reply)
    }

    fn beside(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Option<Result<Arc<[u8]>, CommError>> {
        self.inner.beside(message, combine)
    }

    /// What neighbours say is not kept: a run by gossip has no common state that could be replayed.
    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        self.inner.neighbours()
    }
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Begin {
    /// Rounds already done.
    pub round: u64,
    /// What had passed by then at this machine, set-up included.
    pub traffic: Traffic,
    /// f at the very start, if it is known from before.
    pub initial: Option<f64>,
    /// The first estimates of the gradient's norm and of the gap, if they are known from before.
    pub first: First,
}

/// The first estimates that relative rules compare with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct First {
    /// Of the gradient's norm.
    pub gradient_norm: Option<f64>,
    /// Of f - f*.
    pub gap: Option<f64>,
}

/// One machine's part of a run.
pub struct RunPart<'a> {
    /// Its share of the problem.
    pub objective: &'a mut dyn Objective,
    /// The method.
    pub method: &'a mut dyn Method,
    /// Rows that it holds out, if it does.
    pub held_out: Option<&'a mut dyn HeldOut>,
    /// Machine 0's observer; [`Silent`] elsewhere.
    pub observer: &'a mut dyn Observer,
}

impl<'a> RunPart<'a> {
    /// Without rows held out.
    pub fn new(objective: &'a mut dyn Objective, method: &'a mut dyn Method, observer: &'a mut dyn Observer) -> Self {
        Self { objective, method, held_out: None, observer }
    }
}

/// Runs a prepared or fresh method on one machine until a rule holds.
///
/// With `begin.round == 0` the method is prepared first; after a resume it must have been prepared and restored. What the meter has counted
/// before is set-up.
pub fn run(comm: &mut Metered<'_>, part: &mut RunPart<'_>, rules: &Rules, begin: Begin) -> Result<Finish, RunError> {
    let mut scratch = Vec::new();
    let mut ridden = Ridden::new(comm);
    if begin.round == 0 {
        part.method.prepare(&mut Context { objective: part.objective, comm: &mut ridden, message: &mut scratch })?;
        part.observer.prepared(&ridden.replies, part.method.settings())?;
    } else {
        // The machines shook hands again, which is set-up too.
        let again = ridden.inner.traffic();
        ridden.inner.set_traffic(begin.traffic.plus(&again));
    }
    ridden.inner.set_phase(Phase::Rounds);
    let mut watch = Watch {
        rules,
        initial: begin.initial,
        value: None,
        score: None,
        best: (f64::INFINITY, 0),
        grown: 0,
        first: begin.first,
        alone: false,
    };
    let mut status = watch.look(begin.round, Outcome::default(), 0, ridden.inner, part)?;
    // After a resume one may be due at once; what was asked for is taken.
    if status.snapshot {
        watch.snapshot(begin.round, ridden.inner, part)?;
    }
    let ended = loop {
        if let Some(ended) = status.ended {
            break ended;
        }
        let round = status.record.round;
        let check = round.is_multiple_of(rules.digest_every) && part.method.iterates_agree();
        let own = if check { state::digest(part.method) as i32 } else { 0 };
        let mut words = vec![status.wish];
        words.extend(check.then_some(own));
        ridden.begin_round(words);
        let outcome = part
            .method
            .round(round, &mut Context { objective: part.objective, comm: &mut ridden, message: &mut scratch })?;
        let words = ridden.end_round(watch.alone)?;
        let wish = words[0];
        if check && words[1] != own.wrapping_mul(ridden.size() as i32) {
            return Err(find_drifted(round, own, ridden.inner)?);
        }
        status = watch.look(round + 1, outcome, wish, ridden.inner, part)?;
        part.observer.round(&status.record, &ridden.replies)?;
        if status.snapshot {
            watch.snapshot(round + 1, ridden.inner, part)?;
        }
    };
    if !watch.alone {
        if rules.scores && rules.evaluate_every.is_none() {
            let (value, score) = watch.over_machines(ridden.inner, part)?;
            (status.record.value, status.record.score) = (Some(value), score);
        }
        watch.close(&mut status.record, ridden.inner)?;
    }
    Ok(Finish {
        ended,
        initial: watch.initial,
        last: status.record,
        digest: state::digest(part.method),
        iterate: part.method.iterate().to_vec(),
        settings: part.method.settings(),
    })
}

/// The wish for a snapshot, beside the number of an end.
const SNAPSHOT: i32 = 16;

/// What is known after a round, and what follows from it.
struct Status {
    record: Record,
    ended: Option<Ended>,
    snapshot: bool,
    /// What machine 0 has to say with the next round; 0 elsewhere.
    wish: i32,
}

struct Watch<'a> {
    rules: &'a Rules,
    initial: Option<f64>,
    /// The last value and score that were computed.
    value: Option<f64>,
    score: Option<Score>,
    /// The best held-out loss, and how many evaluations ago it was.
    best: (f64, u64),
    /// So many evaluations in a row found f a million times as large: one alone is a step that the method may take back.
    grown: u32,
    first: First,
    /// Whether one process holds all machines.
    alone: bool,
}

impl Watch<'_> {
    /// After a round, at whose end machine 0's `wish` reached all machines.
    fn look(
        &mut self,
        round: u64,
        outcome: Outcome,
        wish: i32,
        comm: &mut Metered<'_>,
        part: &mut RunPart<'_>,
    ) -> Result<Status, RunError> {
        self.first.gradient_norm = self.first.gradient_norm.or(outcome.gradient_norm);
        // A method that cannot tell yet says that the gap is infinite: nothing is small beside that.
        self.first.gap = self.first.gap.or(outcome.gap.filter(|gap| gap.is_finite()));
        // At the start and after a resume nothing is known yet; all machines see the same, so they agree.
        let every = self.rules.evaluate_every.unwrap_or(1);
        let due = round.is_multiple_of(every) || round >= self.rules.rounds || self.value.is_none();
        let estimates = self.rules.by_estimates(&outcome, &self.first);
        let last = (round >= self.rules.rounds).then_some(Ended::Rounds);
        let common = estimates.filter(|_| !self.rules.led).or(last);
        let done = part.method.is_done().then_some(Ended::Rounds);
        let evaluated = self.evaluate(due, comm, part)?;
        if let Some((value, score)) = evaluated {
            self.value = value.or(self.value);
            self.score = score.or(self.score);
            if let Some(score) = score {
                self.best = if score.loss < self.best.0 { (score.loss, 0) } else { (self.best.0, self.best.1 + 1) };
            }
        }
        if self.initial.is_none() {
            self.initial = self.value;
        }
        if evaluated.is_some() {
            self.grown = if self.has_grown() { self.grown + 1 } else { 0 };
        }
        let rank = comm.rank();
        let own = comm.traffic();
        let decide = |watch: &Self, means: [f64; AVERAGED], observer: &mut dyn Observer| {
            let passed = Passed::new(means, &own);
            let private = || estimates.or_else(|| watch.private_verdict(passed.wire_bytes(), observer));
            let verdict = common.or_else(private).or(done);
            let snapshot = watch.rules.snapshots && round > 0 && (verdict.is_some() || observer.wants_snapshot(round));
            (passed, verdict, snapshot)
        };
        if self.alone {
            // Bytes up, and down again machine 0's decision, within the process.
            let mut reply = |messages: &[&[u8]]| {
                let mut means = [0.0; AVERAGED];
                for message in messages {
                    means.iter_mut().zip(numbers::read::<f64>(message)).for_each(|(mean, count)| *mean += count);
                }
                means.iter_mut().for_each(|mean| *mean /= messages.len() as f64);
                let (_, verdict, snapshot) = decide(self, means, part.observer);
                let mut reply = numbers::to_bytes(&means);
                part.observer.seconds().push(&mut reply);
                word_of(verdict, snapshot).push(&mut reply);
                Ok(reply)
            };
            let message = numbers::to_bytes(&Passed::averaged(&own));
            let reply = comm.beside(&message, &mut reply).expect("one process holds all machines")?;
            let mut floats = numbers::read::<f64>(&reply[..48]);
            let means = std::array::from_fn(|_| floats.next().expect("five means"));
            let seconds = floats.next().expect("then seconds");
            let (ended, snapshot) = read_word(i32::read(&reply[48..]));
            let record = self.record(round, outcome, Passed::new(means, &own), seconds);
            return Ok(Status { record, ended, snapshot, wish: 0 });
        }
        let (ended, snapshot) = read_word(wish);
        let (passed, verdict, wanted) = match rank {
            0 => decide(self, Passed::averaged(&own), part.observer),
            _ => (Passed::new(Passed::averaged(&own), &own), None, false),
        };
        // A method that is done ends at once, on all machines; whether that is at the target machine 0 alone may know.
        let ended = common.or(ended).or_else(|| done.map(|done| verdict.unwrap_or(done)));
        let seconds = part.observer.seconds();
        Ok(Status {
            record: self.record(round, outcome, passed, seconds),
            ended,
            // At the end every machine knows it; before, machine 0's wish must have arrived.
            snapshot: self.rules.snapshots && round > 0 && (ended.is_some() || snapshot),
            wish: if ended.is_none() { word_of(verdict, wanted) } else { 0 },
        })
    }

    fn record(&self, round: u64, outcome: Outcome, traffic: Passed, seconds: f64) -> Record {
        let relative = self.value.zip(self.initial).and_then(|(value, initial)| self.rules.relative(value, initial));
        Record { round, value: self.value, relative, score: self.score, outcome, traffic, seconds }
    }

    /// f and the held-out score over all machines: beside the protocol where it is possible, by messages where they were asked for, by
    /// machine 0's observer where it has all rows.
    #[expect(clippy::type_complexity, reason = "two things that may each be unknown")]
    fn evaluate(
        &mut self,
        due: bool,
        comm: &mut Metered<'_>,
        part: &mut RunPart<'_>,
    ) -> Result<Option<(Option<f64>, Option<Score>)>, RunError> {
        // An empty meeting tells whether one process holds all machines.
        if !self.alone {
            self.alone = comm.beside(&[], &mut |_| Ok(Vec::new())).transpose()?.is_some();
        }
        if !due {
            return Ok(None);
        }
        if !self.alone && self.rules.evaluate_every.is_none() {
            return Ok(Some((part.observer.value(part.method.iterate()), None)));
        }
        let (value, score) = self.over_machines(comm, part)?;
        Ok(Some((Some(value), score)))
    }

    /// f and the held-out score, from every machine's part of them.
    fn over_machines(&self, comm: &mut Metered<'_>, part: &mut RunPart<'_>) -> Result<(f64, Option<Score>), RunError> {
        let farthest = match part.method.iterates_agree() {
            true => None,
            false => Some(self.farthest(part.method.iterate(), comm)?),
        };
        let x = farthest.as_deref().unwrap_or(part.method.iterate());
        let mut sums = vec![part.objective.value(x)];
        let has_score = part.held_out.is_some();
        sums.extend(part.held_out.as_mut().map_or(Score::NOTHING, |held_out| held_out.sums(x)));
        sums.push(f64::from(u8::from(has_score)));
        let message = numbers::to_bytes(&sums);
        let reply: Vec<f64> = numbers::read(&self.gather(&message, comm, &mut numbers::sum::<f64>)?).collect();
        let (scores, holders) = (&reply[1..reply.len() - 1], reply[reply.len() - 1]);
        let score = (holders > 0.0).then(|| Score::from_sums(scores)).flatten();
        Ok((reply[0] / comm.size() as f64, score))
    }

    /// An exchange that the loop itself needs: beside the protocol, or billed as control.
    fn gather(
        &self,
        message: &[u8],
        comm: &mut Metered<'_>,
        combine: &mut Combine<'_>,
    ) -> Result<Arc<[u8]>, CommError> {
        if self.alone {
            return comm.beside(message, combine).expect("one process holds all machines");
        }
        comm.set_phase(Phase::Control);
        let reply = comm.exchange(message, Reduction::Hub(&mut |messages| combine(messages)));
        comm.set_phase(Phase::Rounds);
        Ok(reply?.message)
    }

    /// The iterate that is farthest from the mean of all machines' iterates: how a run without a common iterate is judged.
    fn farthest(&self, iterate: &[f64], comm: &mut Metered<'_>) -> Result<Vec<f64>, CommError> {
        let mut pick = |messages: &[&[u8]]| {
            let count = messages[0].len() / 8;
            let mut mean = vec![0.0; count];
            for message in messages {
                mean.iter_mut()
                    .zip(numbers::read::<f64>(message))
                    .for_each(|(mean, x)| *mean += x / messages.len() as f64);
            }
            let distance = |message: &[u8]| -> f64 {
                numbers::read::<f64>(message).zip(&mean).map(|(x, mean)| (x - mean) * (x - mean)).sum()
            };
            let distances: Vec<f64> = messages.iter().map(|message| distance(message)).collect();
            // What is not a number counts as the greatest; of equals the first is taken.
            let rank = (0..distances.len()).rev().max_by(|&a, &b| distances[a].abs().total_cmp(&distances[b].abs()));
            Ok(messages[rank.unwrap_or(0)].to_vec())
        };
        let reply = self.gather(&numbers::to_bytes(iterate), comm, &mut pick)?;
        Ok(numbers::read(&reply).collect())
    }

    /// Brings what is common and every machine's own to machine 0's observer.
    fn snapshot(&self, round: u64, comm: &mut Metered<'_>, part: &mut RunPart<'_>) -> Result<(), RunError> {
        // In a network each of them is hundreds of megabytes, and all machines wait here at once: only the bytes are kept.
        let own = MachineState { saved: state::save(part.method, Scope::Local), traffic: comm.traffic() }.to_bytes();
        let mut machines = Vec::new();
        let mut keep = |messages: &[&[u8]]| {
            machines = messages.iter().filter_map(|message| MachineState::from_bytes(message)).collect();
            Ok(Vec::new())
        };
        self.gather(&own, comm, &mut keep)?;
        drop(own);
        if comm.rank() == 0 {
            let (first, common) = ([self.first.gradient_norm, self.first.gap], state::save(part.method, Scope::Common));
            part.observer.snapshot(Snapshot { round, initial: self.initial, first, common, machines })?;
        }
        Ok(())
    }

    /// The means over machines of what has passed, for the last record of a run on several processes.
    fn close(&self, last: &mut Record, comm: &mut Metered<'_>) -> Result<(), RunError> {
        comm.set_phase(Phase::Control);
        let own = Passed::averaged(&comm.traffic());
        let reply = comm.exchange(&numbers::to_bytes(&own), Reduction::SumF64)?;
        let (n, mut sums) = (reply.divisor(), reply.numbers::<f64>());
        let means = std::array::from_fn(|_| sums.next().map_or(f64::NAN, |sum| sum / n));
        last.traffic = Passed::new(means, &comm.traffic());
        Ok(())
    }

    /// Whether f has grown a million times.
    fn has_grown(&self) -> bool {
        self.value.zip(self.initial).is_some_and(|(value, initial)| {
            let floor = self.rules.optimum.unwrap_or(initial.min(0.0));
            // A start at the optimum is as far from it as rounding is.
            let distance = (initial - self.rules.optimum.unwrap_or(0.0)).abs().max(1e-12 * initial.abs());
            value - floor > 1e6 * distance
        })
    }

    /// What only machine 0 knows.
    fn private_verdict(&self, bytes: f64, observer: &mut dyn Observer) -> Option<Ended> {
        let rules = self.rules;
        let relative = self.value.zip(self.initial).and_then(|(value, initial)| rules.relative(value, initial));
        if rules.target.zip(relative).is_some_and(|(target, relative)| relative <= target) {
            Some(Ended::Target)
        } else if !self.value.is_none_or(f64::is_finite) || self.grown > 1 {
            Some(Ended::Diverged)
        } else if rules.patience.is_some_and(|patience| self.best.1 >= patience) {
            Some(Ended::Patience)
        } else if rules.seconds.is_some_and(|most| observer.seconds() >= most) {
            Some(Ended::Seconds)
        } else if rules.bytes.is_some_and(|most| bytes >= most as f64) {
            Some(Ended::Bytes)
        } else {
            observer.wants_stop().then_some(Ended::Stopped)
        }
    }
}

fn word_of(verdict: Option<Ended>, snapshot: bool) -> i32 {
    let end = verdict.map_or(0, |ended| 1 + ENDS.iter().position(|&end| end == ended).unwrap_or(0) as i32);
    end + if snapshot { SNAPSHOT } else { 0 }
}

fn read_word(word: i32) -> (Option<Ended>, bool) {
    let end = usize::try_from(word % SNAPSHOT - 1).ok().and_then(|at| ENDS.get(at).copied());
    (end, word >= SNAPSHOT)
}

/// The digests did not add up: asks for all of them and names the machine whose digest is not that of most.
fn find_drifted(round: u64, own: i32, comm: &mut Metered<'_>) -> Result<RunError, RunError> {
    comm.set_phase(Phase::Control);
    let reply = comm.exchange(&own.to_le_bytes(), Reduction::Gather)?;
    let digests = reply.messages().unwrap_or_default();
    let votes = |digest: &[u8]| digests.iter().filter(|other| **other == digest).count();
    let most = digests.iter().max_by_key(|digest| votes(digest));
    let rank = digests.iter().position(|digest| Some(digest) != most).unwrap_or(0);
    Ok(CommError::Drifted { rank, round }.into())
}

impl Rules {
    fn relative(&self, value: f64, initial: f64) -> Option<f64> {
        let optimum = self.optimum?;
        // A start at the optimum has nothing to gain but rounding: zero gained over zero to gain counts as reached.
        Some(if initial - optimum > 1e-12 * initial.abs() { (value - optimum) / (initial - optimum) } else { 0.0 })
    }

    /// What follows from the estimates that every machine has.
    fn by_estimates(&self, outcome: &Outcome, first: &First) -> Option<Ended> {
        let small = |bound: Option<f64>, norm: Option<f64>| bound.zip(norm).is_some_and(|(bound, norm)| norm <= bound);
        let relative = outcome.gradient_norm.zip(first.gradient_norm).map(
            |(norm, first)| {
                if first > 0.0 { norm / first } else { 0.0 }
            },
        );
        let gap = match self.gap {
            None => false,
            Some(Gap::Absolute(bound)) => small(Some(bound), outcome.gap),
            Some(Gap::Relative(bound)) => small(first.gap.map(|first| bound * first), outcome.gap),
        };
        if small(self.gradient, outcome.gradient_norm) || small(self.gradient_relative, relative) {
            Some(Ended::Gradient)
        } else {
            gap.then_some(Ended::Gap)
        }
    }
}
