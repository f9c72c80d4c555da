//! CORE-M: every machine sends its momentum, and not its gradient, through another estimator.
//!
//! Noise on a gradient enters the momentum and moves x by 1/(1 - b) times itself; noise on the momentum moves it once. Estimators are
//! linear in expectation, so that the expected step is the same.

use corewire_comm::{CommError, Reply};
use corewire_sketch::Real;

use super::{How, MeanEstimator, Next, Place};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor, visit_reals};

/// u = b u + (1 - b) g on every machine; the inner estimator carries u, in its own width.
pub struct Momentum<T: Real, E> {
    inner: E,
    keep: f64,
    momentum: Vec<T>,
    /// The mean as the inner estimator has it.
    mean: Vec<T>,
}

impl<T: Real, E: MeanEstimator<T>> Momentum<T, E> {
    /// Keeps this share of what it was.
    pub fn new(inner: E, dim: usize, keep: f64) -> Self {
        Self { inner, keep, momentum: vec![T::ZERO; dim], mean: Vec::new() }
    }
}

impl<T: Real, E: MeanEstimator<T>> Stateful for Momentum<T, E> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visit_reals(visitor, Scope::Local, "momentum", &mut self.momentum);
        self.inner.visit(visitor);
    }
}

impl<T: Real, E: MeanEstimator<T>> MeanEstimator for Momentum<T, E> {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        if at.stage == 0 {
            for (momentum, gradient) in self.momentum.iter_mut().zip(local) {
                *momentum = T::from_f64(self.keep * momentum.to_f64() + (1.0 - self.keep) * gradient);
            }
        }
        self.inner.contribute(at, &self.momentum, extra, message)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        self.inner.combine(at, messages, extras)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        // Kept for this call alone: a machine of many coordinates has no room for vectors that rest.
        self.mean.resize(mean.len(), T::ZERO);
        let next = self.inner.absorb(at, reply, extra, &mut self.mean)?;
        if let Next::Done(_) = next {
            mean.iter_mut().zip(&self.mean).for_each(|(wide, mean)| *wide = mean.to_f64());
        }
        self.mean = Vec::new();
        Ok(next)
    }

    fn effective_budget(&self) -> f64 {
        self.inner.effective_budget()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::{Exact, estimate};
    use corewire_comm::{Collective, Group, Solo};

    #[test]
    fn the_mean_momentum_is_the_momentum_of_the_mean() {
        let gradient =
            |rank: usize, round: u64| (0..5).map(|j| (rank * 7 + j) as f64 + round as f64).collect::<Vec<_>>();
        let ends = Group::new(Solo::new(3)).run(|machine| {
            let mut estimator = Momentum::<f64, _>::new(Exact { double: true }, 5, 0.75);
            let (mut mean, mut message) = (vec![0.0; 5], Vec::new());
            for round in 0..4 {
                let local = gradient(machine.rank(), round);
                estimate(&mut estimator, round, &local, &mut [], machine, &mut message, &mut mean)?;
            }
            Ok::<_, RunError>(mean)
        });
        let mut expected = vec![0.0; 5];
        for round in 0..4 {
            for (j, expected) in expected.iter_mut().enumerate() {
                let mean = (0..3).map(|rank| gradient(rank, round)[j]).sum::<f64>() / 3.0;
                *expected = 0.75 * *expected + 0.25 * mean;
            }
        }
        for mean in ends.into_iter().map(Result::unwrap) {
            assert!(mean.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "{mean:?} {expected:?}");
        }
    }
}
