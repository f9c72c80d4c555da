//! One round of every gradient method: gradient -> estimate of the mean -> step. The estimator decides what travels, the algorithm what is done with it.

use super::{Machine, Method, Outcome, Settings};
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
        gradient: &[f64],
        estimate: &Estimate,
        value: Option<f64>,
        machine: &mut Machine<'_>,
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

    fn round(&mut self, round: u64, machine: &mut Machine<'_>) -> Result<Outcome, RunError> {
        let query = self.algorithm.query();
        match &self.batch {
            None => machine.objective.gradient(query, &mut self.gradient),
            Some(batch) => {
                let rows = machine.objective.rows();
                let rank = machine.comm.rank() as u32;
                let mut words = batch.randomness.words(corewire_sketch::Purpose::Shuffle, round, rank);
                let count = if rows == 0 { 0 } else { batch.rows };
                let drawn: Vec<usize> = (0..count).map(|_| words.next_below(rows as u64) as usize).collect();
                machine.objective.batch_gradient(query, &drawn, &mut self.gradient);
            }
        }
        let mut value = [0.0];
        let extra = if self.algorithm.wants_value() {
            value[0] = machine.objective.value(query);
            &mut value[..]
        } else {
            &mut []
        };
        let estimate = self.estimator.estimate(round, &self.gradient, extra, machine.comm, &mut self.mean)?;
        let value = extra.first().copied();
        self.algorithm.advance(&self.mean, &estimate, value, machine)
    }

    fn settings(&self) -> Settings {
        self.algorithm.settings()
    }
}

impl<T: MeanEstimator + ?Sized> MeanEstimator for Box<T> {
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn corewire_comm::Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        (**self).estimate(round, local, extra, comm, mean)
    }

    fn effective_budget(&self) -> f64 {
        (**self).effective_budget()
    }
}

impl<T: Stateful + ?Sized> Stateful for Box<T> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        (**self).visit(visitor);
    }
}
