//! CORE-GD and CORE-AGD without a centre (Algorithm 5, with the mean that it leaves out in print).

use super::GossipMean;
use crate::error::RunError;
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};

/// x+ = y - h g~(y), y = x + (1 - b)(x - x_prev), on every machine with its own x and g~; b = 1 is CORE-GD.
///
/// Corrected, x, x_prev and y all move by the pull at y: differences between machines that lie in all three alike, and would stay for ever,
/// shrink a round by a share of m/(m+d+1); those between x and x_prev die by the momentum's factor 1 - b as they always do.
pub struct GossipCore {
    x: Vec<f64>,
    previous: Vec<f64>,
    query: Vec<f64>,
    step: f64,
    damping: f64,
    mean: GossipMean,
    corrected: bool,
    gradient: Vec<f64>,
    estimate: Vec<f64>,
    pull: Vec<f64>,
}

impl GossipCore {
    /// From a start that all machines share, without correction.
    pub fn new(start: Vec<f64>, mean: GossipMean, step: f64, damping: f64) -> Self {
        let zeros = vec![0.0; start.len()];
        Self {
            previous: start.clone(),
            query: start.clone(),
            x: start,
            step,
            damping,
            mean,
            corrected: false,
            gradient: zeros.clone(),
            estimate: zeros.clone(),
            pull: zeros,
        }
    }

    /// With the correction, for twice the bytes.
    pub fn corrected(mut self) -> Self {
        self.corrected = true;
        self
    }
}

impl Stateful for GossipCore {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Local, "x", &mut self.x);
        visitor.vector(Scope::Local, "previous", &mut self.previous);
        visitor.vector(Scope::Local, "query", &mut self.query);
    }
}

impl Method for GossipCore {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn iterates_agree(&self) -> bool {
        false
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        context.objective.gradient(&self.query, &mut self.gradient);
        let estimate = match self.corrected {
            true => self.mean.estimate_and_pull(
                round,
                &self.gradient,
                &self.query,
                context.comm,
                &mut self.estimate,
                &mut self.pull,
            )?,
            false => self.mean.estimate(round, &self.gradient, context.comm, &mut self.estimate)?,
        };
        let momentum = 1.0 - self.damping;
        for i in 0..self.x.len() {
            self.previous[i] = self.x[i] + self.pull[i];
            self.x[i] = self.query[i] + self.pull[i] - self.step * self.estimate[i];
            self.query[i] = self.x[i] + momentum * (self.x[i] - self.previous[i]);
        }
        Ok(Outcome {
            gradient_norm: Some(estimate.energy.max(0.0).sqrt()),
            step: Some(self.step),
            rejected: false,
            gap: None,
        })
    }

    fn settings(&self) -> Settings {
        Settings {
            budget: Some(self.mean.budget()),
            step: Some(self.step),
            damping: Some(self.damping),
            ..Settings::default()
        }
    }
}
