//! Replaying a run without its machines: the replies of the journal in place of the group, and an objective that has no data.

use std::ops::Range;
use std::sync::Arc;

use corewire_comm::{Collective, CommError, Cost, Reduction, Reply, Roster};
use corewire_journal::{Contents, JournalError};

use crate::error::RunError;
use crate::method::{Context, Method};
use crate::objective::Objective;
use crate::proximal::Proximal;

/// What a method may ask of an objective beside numbers; the journal's header keeps it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// Number of coordinates.
    pub dim: usize,
    /// See [`Objective::blocks`].
    pub blocks: usize,
    /// How many machines took part.
    pub machines: usize,
    /// See [`Objective::strong_convexity`].
    pub strong_convexity: f64,
    /// See [`Objective::is_quadratic`].
    pub quadratic: bool,
    /// See [`Objective::is_convex`].
    pub convex: bool,
    /// Whether [`Objective::bound_trace`] knows.
    pub trace_known: bool,
    /// See [`Objective::proximal`].
    pub proximal: Proximal,
}

impl Facts {
    /// Of an objective in a group.
    pub fn of(objective: &dyn Objective, machines: usize) -> Self {
        Self {
            dim: objective.dim(),
            blocks: objective.blocks(),
            machines,
            strong_convexity: objective.strong_convexity(),
            quadratic: objective.is_quadratic(),
            convex: objective.is_convex(),
            trace_known: objective.bound_trace().is_some(),
            proximal: objective.proximal(),
        }
    }
}

/// An objective without data: what it computes reaches nobody.
pub struct Spectator(pub Facts);

impl Objective for Spectator {
    fn dim(&self) -> usize {
        self.0.dim
    }

    fn blocks(&self) -> usize {
        self.0.blocks
    }

    fn value(&mut self, _: &[f64]) -> f64 {
        0.0
    }

    fn gradient(&mut self, _: &[f64], out: &mut [f64]) {
        out.fill(0.0);
    }

    fn hessian_vector(&mut self, _: &[f64], _: &[f64], out: &mut [f64]) {
        out.fill(0.0);
    }

    fn bound_trace(&self) -> Option<f64> {
        self.0.trace_known.then_some(0.0)
    }

    fn strong_convexity(&self) -> f64 {
        self.0.strong_convexity
    }

    fn is_quadratic(&self) -> bool {
        self.0.quadratic
    }

    fn is_convex(&self) -> bool {
        self.0.convex
    }

    fn rows(&self) -> usize {
        0
    }

    fn proximal(&self) -> Proximal {
        self.0.proximal
    }
}

/// A collective that answers from the journal. Its rank is that of nobody, so that it is never the hub.
pub struct Replayed {
    machines: usize,
    replies: std::vec::IntoIter<Arc<[u8]>>,
}

impl Replayed {
    /// Answers with these replies, in order.
    pub fn new(machines: usize, replies: Vec<Arc<[u8]>>) -> Self {
        Self { machines, replies: replies.into_iter() }
    }

    /// Whether all replies were asked for.
    pub fn is_exhausted(&self) -> bool {
        self.replies.len() == 0
    }
}

impl Collective for Replayed {
    fn rank(&self) -> usize {
        self.machines
    }

    fn size(&self) -> usize {
        self.machines
    }

    fn reduce(&mut self, _: &[u8], _: &mut [i32], _: Reduction<'_>) -> Result<Reply, CommError> {
        let what = || {
            "the journal has fewer replies than the method asks for: was it written with other parameters?".to_owned()
        };
        let message = self.replies.next().ok_or_else(|| CommError::Engine { process: 0, what: what() })?;
        Ok(Reply { message, roster: Roster::All(self.machines), cost: Cost::default() })
    }
}

/// Runs a fresh method through the preparation and the first `rounds` rounds of a journal.
pub fn replay(method: &mut dyn Method, contents: &Contents, facts: Facts, rounds: u64) -> Result<(), RunError> {
    prepare(method, contents, facts)?;
    advance(method, contents, facts, 0..rounds)
}

/// Runs a method that was prepared and brought to the beginning of some rounds of a journal through them.
pub fn advance(method: &mut dyn Method, contents: &Contents, facts: Facts, rounds: Range<u64>) -> Result<(), RunError> {
    let last = contents.rounds.len() as u64;
    if rounds.end > last {
        return Err(JournalError::NoRound { wanted: rounds.end, last }.into());
    }
    let mut objective = Spectator(facts);
    for entry in &contents.rounds[rounds.start as usize..rounds.end as usize] {
        let mut comm = Replayed::new(facts.machines, entry.replies.clone());
        method.round(
            entry.round,
            &mut Context { objective: &mut objective, comm: &mut comm, message: &mut Vec::new() },
        )?;
        if !comm.is_exhausted() {
            return Err(JournalError::Mismatch { round: entry.round }.into());
        }
    }
    Ok(())
}

/// Runs a fresh method through the preparation of a journal.
pub fn prepare(method: &mut dyn Method, contents: &Contents, facts: Facts) -> Result<(), RunError> {
    let replies = contents.preparation.as_ref().map_or(Vec::new(), |entry| entry.replies.clone());
    let mut comm = Replayed::new(facts.machines, replies);
    method.prepare(&mut Context { objective: &mut Spectator(facts), comm: &mut comm, message: &mut Vec::new() })?;
    match comm.is_exhausted() {
        true => Ok(()),
        false => Err(JournalError::Mismatch { round: 0 }.into()),
    }
}
