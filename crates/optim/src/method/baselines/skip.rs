//! Scaffnew and GradSkip: local steps with control variates, and a common coin that says when to communicate.

use corewire_sketch::{CommonRandomness, Purpose};

use super::local_smoothness;
use crate::error::RunError;
use crate::estimator::Exact;
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};

/// Scaffnew: xh_i = x_i - gamma (grad f_i(x_i) - h_i); with probability p all take x = mean(xh_i - (gamma/p) h_i), and
/// h_i += (p/gamma)(x - xh_i); else x_i = xh_i.
///
/// GradSkip: with a private coin of probability 1 - q_i machine i first sets h_i = grad f_i(x_i); it then stands still until the next
/// communication and computes no more gradients.
///
/// A round is all local steps up to and including the next communication.
pub struct Scaffnew {
    x: Vec<f64>,
    shift: Vec<f64>,
    step: f64,
    probability: f64,
    /// mu, where gradients are skipped.
    skipping: Option<f64>,
    max_smoothness: f64,
    /// q_i.
    keep_going: f64,
    exact: Exact,
    randomness: CommonRandomness,
}

impl Scaffnew {
    /// Scaffnew with step gamma and probability p of communication.
    pub fn new(start: Vec<f64>, step: f64, probability: f64, exact: Exact, randomness: &CommonRandomness) -> Self {
        let shift = vec![0.0; start.len()];
        Self {
            x: start,
            shift,
            step,
            probability,
            skipping: None,
            max_smoothness: 0.0,
            keep_going: 1.0,
            exact,
            randomness: randomness.clone(),
        }
    }

    /// GradSkip: q_i = (1 - 1/kappa_i)/(1 - 1/kappa_max), with kappa_i from the machine's own smoothness, measured before the first round.
    pub fn skipping(self, strong_convexity: f64, max_smoothness: f64) -> Self {
        Self { skipping: Some(strong_convexity), max_smoothness, ..self }
    }
}

impl Stateful for Scaffnew {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        visitor.number(Scope::Local, "keep_going", &mut self.keep_going);
    }
}

impl Method for Scaffnew {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        if let Some(mu) = self.skipping {
            let smoothness = local_smoothness(context.objective, &self.x).max(mu);
            let most = self.max_smoothness.max(smoothness);
            self.keep_going = if most > mu { (1.0 - mu / smoothness) / (1.0 - mu / most) } else { 1.0 };
        }
        Ok(())
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let mut coins = self.randomness.words(Purpose::Coin, round, 0);
        let mut own_coins = self.randomness.words(Purpose::Coin, round, 1 + context.comm.rank() as u32);
        let mut local = self.x.clone();
        let mut gradient = vec![0.0; dim];
        let mut still = false;
        loop {
            if !still {
                context.objective.gradient(&local, &mut gradient);
                if self.skipping.is_some() && !own_coins.next_coin(self.keep_going) {
                    self.shift.copy_from_slice(&gradient);
                    still = true;
                }
                for ((x, g), h) in local.iter_mut().zip(&gradient).zip(&self.shift) {
                    *x -= self.step * (g - h);
                }
            }
            if coins.next_coin(self.probability) {
                break;
            }
        }
        let weight = self.step / self.probability;
        let message: Vec<f64> = local.iter().zip(&self.shift).map(|(x, h)| x - weight * h).collect();
        let mut mean = vec![0.0; dim];
        context.estimate(&mut self.exact, round, &message, &mut [], &mut mean)?;
        for ((h, mean), local) in self.shift.iter_mut().zip(&mean).zip(&local) {
            *h += (mean - local) / weight;
        }
        // x moved by about gamma/p times the gradient.
        let moved: f64 = mean.iter().zip(&self.x).map(|(new, old)| (new - old) * (new - old)).sum();
        self.x = mean;
        Ok(Outcome { gradient_norm: Some(moved.sqrt() / weight), step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}
