//! Gradient descent with fixed or searched steps, and its proximal form. With a sketched estimate it is CORE-GD (Algorithm 2).

use super::gradient::Algorithm;
use super::{Context, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::Estimate;
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// This far, always.
    Fixed(f64),
    /// <g, g~>/(g~' H g~): the curvature along the estimate is one more float, in a second message.
    LineSearch,
}

/// x+ = prox(x - h g~), where prox shrinks towards 0 by h l1.
pub struct Descent {
    x: Vec<f64>,
    step: Step,
    l1: f64,
    curvature: Vec<f64>,
    momentum: f64,
    /// v = b v + (1 - b) g~, where b is the momentum; nothing without one.
    velocity: Vec<f64>,
}

impl Descent {
    /// From a start.
    pub fn new(start: Vec<f64>, step: Step) -> Self {
        Self { x: start, step, l1: 0.0, curvature: Vec::new(), momentum: 0.0, velocity: Vec::new() }
    }

    /// With a proximal step for `l1` ||x||_1.
    pub fn with_l1(mut self, l1: f64) -> Self {
        self.l1 = l1;
        self
    }

    /// Along a velocity that follows the estimates, keeping this share of what it was.
    pub fn with_momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self.velocity = if momentum == 0.0 { Vec::new() } else { vec![0.0; self.x.len()] };
        self
    }
}

/// The proximal step of `threshold` ||x||_1.
pub fn shrink(x: f64, threshold: f64) -> f64 {
    if x > threshold {
        x - threshold
    } else if x < -threshold {
        x + threshold
    } else {
        0.0
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
        // What vanishes at the end: the gradient, or with an l1 term the step over its length.
        let mut energy = if self.l1 == 0.0 { estimate.energy } else { 0.0 };
        for (x, g) in self.x.iter_mut().zip(direction) {
            let last = *x;
            *x -= step * g;
            if self.l1 != 0.0 {
                *x = shrink(*x, step * self.l1);
                energy += ((*x - last) / step).powi(2);
            }
        }
        Ok(Outcome { gradient_norm: Some(energy.sqrt()), step: Some(step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        let step = match self.step {
            Step::Fixed(step) => Some(step),
            Step::LineSearch => None,
        };
        Settings { step, ..Settings::default() }
    }
}
