//! The one round loop. Every engine runs it, on every machine: the method's round, then one exchange around the meter that sums f, compares
//! digests and brings machine 0's decision to go on or to stop.

use std::sync::Arc;

use corewire_comm::{Carried, Collective, Combine, CommError, Metered, Neighbours, Reply, Traffic};

use crate::error::RunError;
use crate::journal::{MachineState, Snapshot};
use crate::method::{Machine, Method, Outcome, Settings};
use crate::objective::Objective;
use crate::state;
use crate::vector;

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
    /// After these seconds by machine 0's clock.
    pub seconds: Option<f64>,
    /// After this many payload bytes, up and down together, a machine.
    pub bytes: Option<u64>,
    /// Digests are compared every so many rounds.
    pub digest_every: u64,
    /// f is evaluated every so many rounds.
    pub evaluate_every: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            rounds: 5000,
            target: None,
            optimum: None,
            gradient: None,
            seconds: None,
            bytes: None,
            // Every round where a drift is being looked for, else often enough to stop before much is lost.
            digest_every: if cfg!(debug_assertions) { 1 } else { 32 },
            evaluate_every: 1,
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
    /// All rounds were run.
    Rounds,
    /// The time was up.
    Seconds,
    /// The bytes were spent.
    Bytes,
    /// Somebody asked for it.
    Stopped,
    /// f is no longer a number, or has grown a million times.
    Diverged,
}

const ENDS: [Ended; 7] =
    [Ended::Target, Ended::Gradient, Ended::Rounds, Ended::Seconds, Ended::Bytes, Ended::Stopped, Ended::Diverged];

/// What is known after a round. Bytes are means over machines, since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Rounds done.
    pub round: u64,
    /// f at the iterate.
    pub value: f64,
    /// (f - f*)/(f0 - f*), where f* is known.
    pub relative: Option<f64>,
    /// What the method says.
    pub outcome: Outcome,
    /// Payload up, a machine.
    pub up_bytes: f64,
    /// Payload down, a machine.
    pub down_bytes: f64,
    /// Envelopes, both ways, a machine.
    pub frame_bytes: u64,
    /// Exchanges.
    pub trips: u64,
    /// Seconds on the modelled link.
    pub link_seconds: f64,
    /// Seconds by machine 0's clock.
    pub seconds: f64,
}

/// What machine 0 is told of, and asked. The other machines have [`Silent`].
pub trait Observer {
    /// The replies that preparation received: enough to prepare again without the machines.
    fn prepared(&mut self, replies: &[Arc<[u8]>], settings: Settings, method: &mut dyn Method) -> Result<(), RunError> {
        let _ = (replies, settings, method);
        Ok(())
    }

    /// A round is over: its record, and the replies that it received.
    fn round(&mut self, record: &Record, replies: &[Arc<[u8]>], method: &mut dyn Method) -> Result<(), RunError> {
        let _ = (record, replies, method);
        Ok(())
    }

    /// Whether every machine's state is wanted after this many rounds; `last` says that the run ends here.
    fn wants_snapshot(&mut self, round: u64, last: bool) -> bool {
        let _ = (round, last);
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
    /// f at the start.
    pub initial: f64,
    /// The last record.
    pub last: Record,
    /// Digest of the final common state.
    pub digest: u64,
    /// The final iterate.
    pub iterate: Vec<f64>,
    /// What the method settled on.
    pub settings: Settings,
}

/// A collective that keeps the replies, for the journal.
struct Taped<'a, C> {
    inner: &'a mut C,
    replies: Vec<Arc<[u8]>>,
}

impl<C: Collective> Collective for Taped<'_, C> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn exchange(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Result<Reply, CommError> {
        let reply = self.inner.exchange(message, combine)?;
        self.replies.push(Arc::clone(&reply.message));
        Ok(reply)
    }

    /// What neighbours say is not kept: a run by gossip has no common state that could be replayed.
    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        self.inner.neighbours()
    }

    fn carried(&self) -> Option<&Carried> {
        self.inner.carried()
    }
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Begin {
    /// Rounds already done.
    pub round: u64,
    /// What had passed by then at this machine.
    pub traffic: Traffic,
    /// f at the very start, if it is known from before.
    pub initial: Option<f64>,
}

/// Runs a prepared or fresh method on one machine until a rule holds.
///
/// With `begin.round == 0` the method is prepared first; after a resume it must have been prepared and restored.
pub fn run<C: Collective>(
    comm: &mut Metered<C>,
    objective: &mut dyn Objective,
    method: &mut dyn Method,
    rules: &Rules,
    begin: Begin,
    observer: &mut dyn Observer,
) -> Result<Finish, RunError> {
    comm.set_traffic(begin.traffic);
    let mut tape = Taped { inner: comm, replies: Vec::new() };
    if begin.round == 0 {
        method.prepare(&mut Machine { objective, comm: &mut tape })?;
        observer.prepared(&tape.replies, method.settings(), method)?;
    }
    let mut loop_state = Loop { rules, initial: begin.initial, value: f64::NAN };
    let mut status = loop_state.status(begin.round, Outcome::default(), tape.inner, objective, method, observer)?;
    let ended = loop {
        if let Some(ended) = status.ended {
            break ended;
        }
        let round = status.record.round;
        tape.replies.clear();
        let outcome = method.round(round, &mut Machine { objective, comm: &mut tape })?;
        status = loop_state.status(round + 1, outcome, tape.inner, objective, method, observer)?;
        observer.round(&status.record, &tape.replies, method)?;
        if status.snapshot {
            loop_state.snapshot(round + 1, tape.inner, method, observer)?;
        }
    };
    Ok(Finish {
        ended,
        initial: loop_state.initial.unwrap_or(status.record.value),
        last: status.record,
        digest: state::digest(method),
        iterate: method.iterate().to_vec(),
        settings: method.settings(),
    })
}

/// What the exchange around the meter brought.
struct Status {
    record: Record,
    ended: Option<Ended>,
    snapshot: bool,
}

struct Loop<'a> {
    rules: &'a Rules,
    initial: Option<f64>,
    /// The last value that was computed.
    value: f64,
}

impl Loop<'_> {
    /// The exchange around the meter after a round.
    fn status<C: Collective>(
        &mut self,
        round: u64,
        outcome: Outcome,
        comm: &mut Metered<C>,
        objective: &mut dyn Objective,
        method: &mut dyn Method,
        observer: &mut dyn Observer,
    ) -> Result<Status, RunError> {
        let traffic = comm.traffic();
        // Nothing is known yet at the start and after a resume; all machines see the same values, so they agree.
        let evaluate =
            round.is_multiple_of(self.rules.evaluate_every) || round >= self.rules.rounds || self.value.is_nan();
        let value = match (evaluate, method.iterates_agree()) {
            (false, _) => self.value,
            (true, true) => objective.value(method.iterate()),
            (true, false) => objective.value(&farthest(method.iterate(), comm.unmetered())?),
        };
        let check = round.is_multiple_of(self.rules.digest_every);
        let digest = if check { state::digest(method) } else { 0 };
        let mut message = Vec::with_capacity(32);
        message.extend_from_slice(&value.to_le_bytes());
        message.extend_from_slice(&(traffic.up_bytes as f64).to_le_bytes());
        message.extend_from_slice(&(traffic.down_bytes as f64).to_le_bytes());
        message.extend_from_slice(&digest.to_le_bytes());
        let word = |message: &[u8], k: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&message[8 * k..8 * k + 8]);
            word
        };
        let number = |message: &[u8], k: usize| f64::from_le_bytes(word(message, k));
        let mut drifted = None;
        let initial = self.initial;
        let rules = self.rules;
        let reply = comm.unmetered().exchange(&message, &mut |messages| {
            let digests: Vec<[u8; 8]> = messages.iter().map(|message| word(message, 3)).collect();
            drifted = odd_one(&digests);
            if let Some(rank) = drifted {
                let what =
                    format!("has drifted: its state after round {round} differs from that of the other machines");
                return Err(CommError::Refused { rank, what });
            }
            let mean = |k| messages.iter().map(|message| number(message, k)).sum::<f64>() / messages.len() as f64;
            let (value, up, down, seconds) = (mean(0), mean(1), mean(2), observer.seconds());
            let value = if evaluate { value } else { number(messages[0], 0) };
            let verdict = rules.verdict(round, value, initial.unwrap_or(value), &outcome, up + down, seconds);
            let verdict = verdict.or_else(|| observer.wants_stop().then_some(Ended::Stopped));
            let snapshot = observer.wants_snapshot(round, verdict.is_some());
            let verdict = verdict.map_or(0, |ended| 1 + ENDS.iter().position(|&end| end == ended).unwrap_or(0) as u64);
            let mut reply = Vec::with_capacity(48);
            [value, up, down, seconds].iter().for_each(|number| reply.extend_from_slice(&number.to_le_bytes()));
            reply.extend_from_slice(&verdict.to_le_bytes());
            reply.extend_from_slice(&u64::from(snapshot).to_le_bytes());
            Ok(reply)
        });
        let reply = match reply {
            Err(CommError::Refused { rank, what }) if what.starts_with("has drifted") => {
                return Err(RunError::Drifted { rank, round });
            }
            reply => reply?.message,
        };
        let (value, up_bytes, down_bytes, seconds) =
            (number(&reply, 0), number(&reply, 1), number(&reply, 2), number(&reply, 3));
        self.value = value;
        let initial = *self.initial.get_or_insert(value);
        let verdict = u64::from_le_bytes(word(&reply, 4)) as usize;
        let record = Record {
            round,
            value,
            relative: self.rules.relative(value, initial),
            outcome,
            up_bytes,
            down_bytes,
            frame_bytes: traffic.frame_bytes,
            trips: traffic.trips,
            link_seconds: traffic.link_seconds,
            seconds,
        };
        let snapshot = u64::from_le_bytes(word(&reply, 5)) != 0;
        Ok(Status { record, ended: verdict.checked_sub(1).map(|at| ENDS[at]), snapshot })
    }

    /// Brings every machine's state to machine 0's observer, around the meter.
    fn snapshot<C: Collective>(
        &self,
        round: u64,
        comm: &mut Metered<C>,
        method: &mut dyn Method,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let state = MachineState { saved: state::save(method), traffic: comm.traffic() };
        let rank = comm.rank();
        let mut machines = Vec::new();
        comm.unmetered().exchange(&state.to_bytes(), &mut |messages| {
            machines = messages.iter().filter_map(|message| MachineState::from_bytes(message)).collect();
            Ok(Vec::new())
        })?;
        if rank == 0 {
            let initial = self.initial.expect("the first status set it");
            observer.snapshot(Snapshot { round, initial, machines })?;
        }
        Ok(())
    }
}

/// The iterate that is farthest from the mean of all machines' iterates: how a run without a common iterate is judged.
fn farthest(iterate: &[f64], comm: &mut dyn Collective) -> Result<Vec<f64>, RunError> {
    let read = |message: &[u8]| -> Vec<f64> {
        message.chunks_exact(8).map(|word| f64::from_le_bytes(word.try_into().expect("a chunk of eight"))).collect()
    };
    let message: Vec<u8> = iterate.iter().flat_map(|value| value.to_le_bytes()).collect();
    let reply = comm.exchange(&message, &mut |messages| {
        let mut mean = vec![0.0; messages[0].len() / 8];
        for message in messages {
            vector::add_scaled(1.0 / messages.len() as f64, &read(message), &mut mean);
        }
        let distance = |message: &[u8]| -> f64 {
            read(message).iter().zip(&mean).map(|(value, mean)| (value - mean) * (value - mean)).sum()
        };
        let distances: Vec<f64> = messages.iter().map(|message| distance(message)).collect();
        // What is not a number counts as the greatest; of equals the first is taken.
        let rank = (0..distances.len()).rev().max_by(|&a, &b| distances[a].abs().total_cmp(&distances[b].abs()));
        Ok(messages[rank.unwrap_or(0)].to_vec())
    })?;
    Ok(read(&reply.message))
}

/// The machine whose digest is not that of most.
fn odd_one(digests: &[[u8; 8]]) -> Option<usize> {
    let votes = |digest: &[u8; 8]| digests.iter().filter(|other| *other == digest).count();
    if digests.iter().all(|digest| digest == &digests[0]) {
        return None;
    }
    let most = digests.iter().max_by_key(|digest| votes(digest))?;
    digests.iter().position(|digest| digest != most)
}

impl Rules {
    fn relative(&self, value: f64, initial: f64) -> Option<f64> {
        let optimum = self.optimum?;
        // A start at the optimum has nothing to gain: zero gained over zero to gain counts as reached.
        Some(if initial > optimum { (value - optimum) / (initial - optimum) } else { 0.0 })
    }

    fn verdict(
        &self,
        round: u64,
        value: f64,
        initial: f64,
        outcome: &Outcome,
        bytes: f64,
        seconds: f64,
    ) -> Option<Ended> {
        let reached = self.target.zip(self.relative(value, initial)).is_some_and(|(target, relative)| {
            // Target 0 asks for all rounds.
            target > 0.0 && relative <= target
        });
        let grown =
            value - self.optimum.unwrap_or(initial.min(0.0)) > 1e6 * (initial - self.optimum.unwrap_or(0.0)).abs();
        if reached {
            Some(Ended::Target)
        } else if !value.is_finite() || grown {
            Some(Ended::Diverged)
        } else if self.gradient.zip(outcome.gradient_norm).is_some_and(|(least, norm)| norm <= least) {
            Some(Ended::Gradient)
        } else if round >= self.rounds {
            Some(Ended::Rounds)
        } else if self.seconds.is_some_and(|most| seconds >= most) {
            Some(Ended::Seconds)
        } else if self.bytes.is_some_and(|most| bytes >= most as f64) {
            Some(Ended::Bytes)
        } else {
            None
        }
    }
}
