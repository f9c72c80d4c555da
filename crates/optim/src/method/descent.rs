//! Gradient descent with fixed or searched steps, and its proximal form. With a sketched estimate it is CORE-GD (Algorithm 2).

use super::gradient::Algorithm;
use super::{Context, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::Estimate;
use crate::proximal::Proximal;
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// This far, always.
    Fixed(f64),
    /// <g, g~>/(g~' H g~): the curvature along the estimate is one more float, in a second message.
    LineSearch,
    /// As far as the round says.
    Scheduled(Schedule),
}

/// A step that changes over the rounds: it rises evenly in a warm-up, then stays or falls along half a cosine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The largest step.
    pub step: f64,
    /// Rounds of the warm-up.
    pub warm_up: u64,
    /// The round at which the cosine ends; `None` for a step that stays.
    pub end: Option<u64>,
}

impl Schedule {
    /// The step of a round.
    pub fn at(&self, round: u64) -> f64 {
        if round < self.warm_up {
            return self.step * (round + 1) as f64 / self.warm_up as f64;
        }
        let Some(end) = self.end else { return self.step };
        let left = end.saturating_sub(self.warm_up).max(1) as f64;
        let share = ((round - self.warm_up) as f64 / left).min(1.0);
        // Never quite zero: a run that goes on beyond the end still learns.
        self.step * (0.5 * (1.0 + libm::cos(std::f64::consts::PI * share))).max(LEAST_SHARE)
    }
}

/// What is left of a step at the end of the cosine: the paper's networks go from 5e-2 to 3e-6.
const LEAST_SHARE: f64 = 6e-5;

/// x+ = prox(x - h g~), where prox is the proximal step of an l1 term and bounds.
pub struct Descent {
    x: Vec<f64>,
    step: Step,
    proximal: Proximal,
    curvature: Vec<f64>,
    momentum: f64,
    /// v = b v + (1 - b) g~, where b is the momentum; nothing without one.
    velocity: Vec<f64>,
    /// x falls by this share of a step, whatever the gradient: decoupled weight decay.
    decay: f64,
}

impl Descent {
    /// From a start.
    pub fn new(start: Vec<f64>, step: Step) -> Self {
        Self {
            x: start,
            step,
            proximal: Proximal::NONE,
            curvature: Vec::new(),
            momentum: 0.0,
            velocity: Vec::new(),
            decay: 0.0,
        }
    }

    /// With a proximal step.
    pub fn with_proximal(mut self, proximal: Proximal) -> Self {
        self.proximal = proximal;
        self
    }

    /// With decoupled weight decay.
    pub fn with_decay(mut self, decay: f64) -> Self {
        self.decay = decay;
        self
    }

    /// Along a velocity that follows the estimates, keeping this share of what it was.
    pub fn with_momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self.velocity = if momentum == 0.0 { Vec::new() } else { vec![0.0; self.x.len()] };
        self
    }
}

impl Stateful for Descent {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "velocity", &mut self.velocity);
    }
}

impl Algorithm for Descent {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn advance(
        &mut self,
        round: u64,
        gradient: &[f64],
        estimate: &Estimate,
        _: Option<f64>,
        context: &mut Context<'_>,
    ) -> Result<Outcome, RunError> {
        let step = match self.step {
            Step::Fixed(step) => step,
            Step::Scheduled(schedule) => schedule.at(round),
            Step::LineSearch => {
                self.curvature.resize(self.x.len(), 0.0);
                context.objective.hessian_vector(&self.x, gradient, &mut self.curvature);
                let mut curvature = [vector::dot(gradient, &self.curvature)];
                context.means(round, &mut curvature, false)?;
                // Along a flat or downward direction a quadratic has no minimum: stay.
                if curvature[0] > 0.0 { estimate.energy / curvature[0] } else { 0.0 }
            }
        };
        for (v, g) in self.velocity.iter_mut().zip(gradient) {
            *v = self.momentum * *v + (1.0 - self.momentum) * g;
        }
        let direction = if self.momentum == 0.0 { gradient } else { &self.velocity };
        // What vanishes at the end: the gradient, or with a proximal step the move over the step's length.
        let free = self.proximal.is_none();
        let mut energy = if free { estimate.energy } else { 0.0 };
        for (x, g) in self.x.iter_mut().zip(direction) {
            let last = *x;
            *x -= step * (g + self.decay * last);
            if !free {
                *x = self.proximal.step(*x, step);
                energy += ((*x - last) / step).powi(2);
            }
        }
        Ok(Outcome { gradient_norm: Some(energy.sqrt()), step: Some(step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        let step = match self.step {
            Step::Fixed(step) => Some(step),
            Step::Scheduled(schedule) => Some(schedule.step),
            Step::LineSearch => None,
        };
        Settings { step, ..Settings::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_rises_stays_and_falls() {
        let schedule = Schedule { step: 2.0, warm_up: 4, end: Some(104) };
        let at = |round| schedule.at(round);
        assert_eq!((at(0), at(1), at(3), at(4)), (0.5, 1.0, 2.0, 2.0));
        assert!((at(54) - 1.0).abs() < 1e-12, "half way down a cosine");
        assert!(at(104) == 2.0 * LEAST_SHARE && at(1000) == at(104), "{}", at(104));
        assert_eq!(Schedule { end: None, ..schedule }.at(1000), 2.0);
    }
}
