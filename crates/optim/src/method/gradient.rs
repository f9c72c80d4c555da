//! One round of every gradient method: gradient -> estimate of the mean -> step. The estimator decides what travels, the algorithm what is
//! done with it.

use corewire_data::shard::permutation;
use corewire_sketch::{CommonRandomness, Purpose};

use super::{Context, Method, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::{Estimate, MeanEstimator};
use crate::state::{Stateful, Visitor};

/// What is done with an estimate of the gradient.
pub trait Algorithm: Stateful + Send {
    /// The point that the algorithm would hand over now.
    fn iterate(&self) -> &[f64];

    /// Where the next gradient is wanted.
    fn query(&self) -> &[f64] {
        self.iterate()
    }

    /// Whether f at the query is wanted with the gradient.
    fn wants_value(&self) -> bool {
        false
    }

    /// Uses the estimate of the gradient at the query, and of f there if it was wanted.
    fn advance(
        &mut self,
        round: u64,
        gradient: &[f64],
        estimate: &Estimate,
        value: Option<f64>,
        context: &mut Context<'_>,
    ) -> Result<Outcome, RunError>;

    /// What it settled on.
    fn settings(&self) -> Settings {
        Settings::default()
    }
}

/// Mini-batches: every machine shuffles its rows anew for every pass over them, and takes so many in a round.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Rows per machine and round.
    pub rows: usize,
    randomness: CommonRandomness,
    /// The pass that is under way, and its order of rows: what follows from round and rank is no state.
    pass: Option<(u64, Vec<usize>)>,
}

impl Batch {
    /// So many rows per machine and round.
    pub fn new(rows: usize, randomness: &CommonRandomness) -> Self {
        Self { rows, randomness: randomness.clone(), pass: None }
    }

    /// The rows of a round, of so many. A last part of a pass that fills no batch is left out.
    fn draw(&mut self, round: u64, rank: usize, rows: usize) -> &[usize] {
        let rounds = (rows / self.rows.max(1)).max(1) as u64;
        let (pass, place) = (round / rounds, (round % rounds) as usize);
        let order = match self.pass.take() {
            Some((known, order)) if known == pass && order.len() == rows => order,
            _ => {
                let mut words = self.randomness.words(Purpose::Shuffle, pass, rank as u32);
                permutation(rows, || words.next_u64())
            }
        };
        let (_, order) = self.pass.insert((pass, order));
        &order[(place * self.rows).min(rows)..((place + 1) * self.rows).min(rows)]
    }
}

/// Overwrites `out` with the gradient at x of all rows, or of the round's mini-batch.
pub(super) fn local_gradient(
    batch: &mut Option<Batch>,
    round: u64,
    x: &[f64],
    context: &mut Context<'_>,
    out: &mut [f64],
) {
    let Some(batch) = batch else { return context.objective.gradient(x, out) };
    let (rows, rank) = (context.objective.rows(), context.comm.rank());
    let mut words = batch.randomness.words(Purpose::Pictures, round, rank as u32);
    let drawn = batch.draw(round, rank, rows);
    context.objective.batch_gradient(x, drawn, &mut words, out);
}

/// An estimator and an algorithm make a method.
pub struct GradientMethod<E, A> {
    estimator: E,
    algorithm: A,
    batch: Option<Batch>,
    budget: Option<usize>,
    gradient: Vec<f64>,
}

impl<E: MeanEstimator, A: Algorithm> GradientMethod<E, A> {
    /// From its two parts.
    pub fn new(estimator: E, algorithm: A) -> Self {
        let dim = algorithm.iterate().len();
        Self { estimator, algorithm, batch: None, budget: None, gradient: vec![0.0; dim] }
    }

    /// With gradients of mini-batches.
    pub fn with_batch(mut self, batch: Option<Batch>) -> Self {
        self.batch = batch;
        self
    }

    /// Tells that so many scalars travel.
    pub fn with_budget(mut self, budget: usize) -> Self {
        self.budget = Some(budget);
        self
    }
}

impl<E: MeanEstimator, A: Algorithm> Stateful for GradientMethod<E, A> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.algorithm.visit(visitor);
        self.estimator.visit(visitor);
    }
}

impl<E: MeanEstimator, A: Algorithm> Method for GradientMethod<E, A> {
    fn iterate(&self) -> &[f64] {
        self.algorithm.iterate()
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let query = self.algorithm.query();
        local_gradient(&mut self.batch, round, query, context, &mut self.gradient);
        let mut value = [0.0];
        let extra = if self.algorithm.wants_value() {
            value[0] = context.objective.value(query);
            &mut value[..]
        } else {
            &mut []
        };
        // Not kept from round to round, for the same reason that it grows late.
        let mut mean = Vec::new();
        let estimate = context.estimate(&mut self.estimator, round, &self.gradient, extra, &mut mean)?;
        let value = extra.first().copied();
        self.algorithm.advance(round, &mean, &estimate, value, context)
    }

    fn settings(&self) -> Settings {
        Settings { budget: self.budget, ..self.algorithm.settings() }
    }
}
