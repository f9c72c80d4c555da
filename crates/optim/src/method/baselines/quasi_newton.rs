//! L-BFGS, uncompressed: one gradient and one value per exchange, whether the step is kept or not.

use corewire_algebra::vector::{add_scaled, dot, norm_squared};

use crate::error::RunError;
use crate::estimator::Exact;
use crate::method::secants::Secants;
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};

/// Limited-memory BFGS (Liu and Nocedal 1989) with backtracking: a step is kept where f falls by a ten-thousandth of what the slope
/// promises. Every evaluation is an exchange of d floats and f, so a refused step costs a round.
pub struct Lbfgs {
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    /// Where the next gradient is wanted.
    trial: Vec<f64>,
    direction: Vec<f64>,
    length: f64,
    secants: Secants,
    /// 1/L, the length of the first step.
    first: f64,
    exact: Exact,
}

impl Lbfgs {
    /// From a start; the first step is `first` times the gradient.
    pub fn new(start: Vec<f64>, memory: usize, first: f64, exact: Exact) -> Self {
        Self {
            trial: start.clone(),
            direction: vec![0.0; start.len()],
            x: start,
            value: f64::INFINITY,
            gradient: Vec::new(),
            length: 1.0,
            secants: Secants::new(memory),
            first,
            exact,
        }
    }

    /// -H g, with H scaled by the latest pair.
    fn descend(&self) -> Vec<f64> {
        let mut direction = self.secants.inverse(&self.gradient, |mut q, latest| {
            let scale = latest.map_or(self.first, |(s, y)| dot(s, y) / norm_squared(y));
            q.iter_mut().for_each(|value| *value *= scale);
            q
        });
        direction.iter_mut().for_each(|value| *value = -*value);
        direction
    }
}

impl Stateful for Lbfgs {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.number(Scope::Common, "value", &mut self.value);
        visitor.vector(Scope::Common, "gradient", &mut self.gradient);
        visitor.vector(Scope::Common, "trial", &mut self.trial);
        visitor.vector(Scope::Common, "direction", &mut self.direction);
        visitor.number(Scope::Common, "length", &mut self.length);
        visitor.vectors(Scope::Common, "steps", &mut self.secants.steps);
        visitor.vectors(Scope::Common, "changes", &mut self.secants.changes);
    }
}

impl Method for Lbfgs {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let (mut local, mut gradient) = (vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(&self.trial, &mut local);
        let mut value = [context.objective.value(&self.trial)];
        let estimate = context.estimate(&mut self.exact, round, &local, &mut value, &mut gradient)?;
        let slope = if self.gradient.is_empty() { 0.0 } else { dot(&self.gradient, &self.direction) };
        // Near the end f no longer tells; rounding is forgiven.
        let slack = 1e-4 * self.length * slope + 1e-13 * value[0].abs();
        let rejected = !(value[0] <= self.value + slack || self.gradient.is_empty());
        if rejected {
            // The minimiser of the parabola through f, its slope and the new f, kept between a tenth and a half.
            let drop = value[0] - self.value - self.length * slope;
            let best = -slope * self.length * self.length / (2.0 * drop);
            self.length = if drop > 0.0 { best.clamp(0.1 * self.length, 0.5 * self.length) } else { 0.5 * self.length };
        } else {
            if !self.gradient.is_empty() {
                let s: Vec<f64> = self.trial.iter().zip(&self.x).map(|(new, old)| new - old).collect();
                let y: Vec<f64> = gradient.iter().zip(&self.gradient).map(|(new, old)| new - old).collect();
                if dot(&s, &y) > 1e-10 * norm_squared(&y).sqrt() * norm_squared(&s).sqrt() {
                    self.secants.push(s, y);
                }
            }
            self.x.copy_from_slice(&self.trial);
            (self.value, self.gradient) = (value[0], gradient);
            self.direction = self.descend();
            self.length = 1.0;
        }
        self.trial.copy_from_slice(&self.x);
        add_scaled(self.length, &self.direction, &mut self.trial);
        Ok(Outcome { gradient_norm: Some(estimate.energy.sqrt()), step: Some(self.length), rejected, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings::default()
    }
}
