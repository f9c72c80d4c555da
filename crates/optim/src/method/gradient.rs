//! One round of every gradient method: gradient -> estimate of the mean -> step. The estimator decides what travels, the algorithm what is
//! done with it.

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

/// A mini-batch: how many rows each machine draws, and from which randomness.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Rows a machine.
    pub rows: usize,
    /// Drawn from here, by round and rank.
    pub randomness: corewire_sketch::CommonRandomness,
}

/// An estimator and an algorithm make a method.
pub struct GradientMethod<E, A> {
    estimator: E,
    algorithm: A,
    batch: Option<Batch>,
    gradient: Vec<f64>,
    mean: Vec<f64>,
}

impl<E: MeanEstimator, A: Algorithm> GradientMethod<E, A> {
    /// From its two parts.
    pub fn new(estimator: E, algorithm: A) -> Self {
        let dim = algorithm.iterate().len();
        Self { estimator, algorithm, batch: None, gradient: vec![0.0; dim], mean: vec![0.0; dim] }
    }

    /// With gradients of mini-batches.
    pub fn with_batch(mut self, batch: Option<Batch>) -> Self {
        self.batch = batch;
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
        match &self.batch {
            None => context.objective.gradient(query, &mut self.gradient),
            Some(batch) => {
                let rows = context.objective.rows();
                let rank = context.comm.rank() as u32;
                let mut words = batch.randomness.words(corewire_sketch::Purpose::Shuffle, round, rank);
                let count = if rows == 0 { 0 } else { batch.rows };
                let drawn: Vec<usize> = (0..count).map(|_| words.next_below(rows as u64) as usize).collect();
                context.objective.batch_gradient(query, &drawn, &mut self.gradient);
            }
        }
        let mut value = [0.0];
        let extra = if self.algorithm.wants_value() {
            value[0] = context.objective.value(query);
            &mut value[..]
        } else {
            &mut []
        };
        let estimate = context.estimate(&mut self.estimator, round, &self.gradient, extra, &mut self.mean)?;
        let value = extra.first().copied();
        self.algorithm.advance(round, &self.mean, &estimate, value, context)
    }

    fn settings(&self) -> Settings {
        self.algorithm.settings()
    }
}
