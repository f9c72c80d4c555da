//! EXTRA (Shi, Ling, Wu, Yin 2015): gradient descent on a graph whose second step undoes the bias of the first.

use super::Averaging;
use crate::error::RunError;
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};

/// x1 = W x0 - a g(x0), then x2 = (I + W) x1 - ((I + W)/2) x0 - a (g(x1) - g(x0)), with Metropolis weights W: d numbers to each neighbour a
/// round.
///
/// Converges to the optimum for a < (1 + lambda_min(W))/L_max.
pub struct Extra {
    x: Vec<f64>,
    /// ((I + W)/2) of the iterate before; nothing before the first round.
    half: Vec<f64>,
    /// The gradient at the iterate before.
    gradient: Vec<f64>,
    step: f64,
    averaging: Averaging,
    mixed: Vec<f64>,
    next_gradient: Vec<f64>,
}

impl Extra {
    /// From a start.
    pub fn new(start: Vec<f64>, averaging: &Averaging, step: f64) -> Self {
        let zeros = vec![0.0; start.len()];
        Self {
            x: start,
            half: Vec::new(),
            gradient: zeros.clone(),
            step,
            averaging: averaging.with_floats(),
            mixed: zeros.clone(),
            next_gradient: zeros,
        }
    }
}

impl Stateful for Extra {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Local, "x", &mut self.x);
        visitor.vector(Scope::Local, "half", &mut self.half);
        visitor.vector(Scope::Local, "gradient", &mut self.gradient);
    }
}

impl Method for Extra {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn iterates_agree(&self) -> bool {
        false
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        context.objective.gradient(&self.x, &mut self.next_gradient);
        self.averaging.mix(round, context.comm, &self.x, &mut self.mixed)?;
        let first = self.half.is_empty();
        self.half.resize(self.x.len(), 0.0);
        for i in 0..self.x.len() {
            let both = self.x[i] + self.mixed[i];
            self.x[i] = match first {
                true => self.mixed[i] - self.step * self.next_gradient[i],
                false => both - self.half[i] - self.step * (self.next_gradient[i] - self.gradient[i]),
            };
            self.half[i] = 0.5 * both;
        }
        std::mem::swap(&mut self.gradient, &mut self.next_gradient);
        Ok(Outcome { gradient_norm: None, step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}
