//! An estimator of differences to a common vector that follows the estimates, so that its noise vanishes where the mean does not move.
//!
//! A sketch's noise is as large as what is sketched. At the end of a proximal method the gradient does not vanish: it balances the l1 term.
//! All machines therefore subtract the same h before they sketch, add it back afterwards, and let it follow: h += rate times what was
//! decoded. Nothing of it travels. (DIANA keeps an h for every machine; here the directions are common, and so is the noise: one h is
//! enough.)

use corewire_algebra::vector;
use corewire_comm::{CommError, Reply};

use super::{Estimate, How, MeanEstimator, Next, Place};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};

/// An unbiased estimator, anchored.
pub struct Anchored<E> {
    inner: E,
    anchor: Vec<f64>,
    rate: f64,
    residual: Vec<f64>,
}

impl<E: MeanEstimator> Anchored<E> {
    /// From an anchor of zeros; the rate is at most 1/(1 + omega), where omega is the estimator's relative variance.
    pub fn new(inner: E, dim: usize, rate: f64) -> Self {
        Self { inner, anchor: vec![0.0; dim], rate, residual: vec![0.0; dim] }
    }
}

impl<E: MeanEstimator> Stateful for Anchored<E> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.inner.visit(visitor);
        visitor.vector(Scope::Common, "anchor", &mut self.anchor);
    }
}

impl<E: MeanEstimator> MeanEstimator for Anchored<E> {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        for ((residual, local), anchor) in self.residual.iter_mut().zip(local).zip(&self.anchor) {
            *residual = local - anchor;
        }
        self.inner.contribute(at, &self.residual, extra, message)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        self.inner.combine(at, messages, extras)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        let next = self.inner.absorb(at, reply, extra, mean)?;
        if next == Next::Again {
            return Ok(next);
        }
        for (mean, anchor) in mean.iter_mut().zip(&mut self.anchor) {
            let difference = *mean;
            *mean += *anchor;
            *anchor += self.rate * difference;
        }
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }

    fn effective_budget(&self) -> f64 {
        self.inner.effective_budget()
    }
}
