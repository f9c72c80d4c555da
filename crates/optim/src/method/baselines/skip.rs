//! Scaffnew, GradSkip and LoCoDL: local steps with control variates, and a common coin that says when to communicate.

use corewire_sketch::{CommonRandomness, Purpose};

use super::local_smoothness;
use crate::error::RunError;
use crate::estimator::{Channel, Exact, channel_mean};
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

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

/// LoCoDL: half of the strong convexity is split off as a function g that all machines know. Local steps
/// xh_i = x_i - gamma (grad f_i(x_i) - u_i) and yh = y - gamma (grad g(y) - v); where the common coin falls, d_i = C(xh_i - yh) travels,
/// with D = mean d_i/2: x_i = (1 - rho) xh_i + rho (yh + D), y = yh + rho D, u_i += w (D - d_i), v += w D; else x_i = xh_i, y = yh.
///
/// A round is all local steps up to and including the next communication. y is what the method hands over.
pub struct LoCoDl {
    y: Vec<f64>,
    common_shift: Vec<f64>,
    x: Vec<f64>,
    shift: Vec<f64>,
    constants: LoCoDlConstants,
    channel: Channel,
    randomness: CommonRandomness,
}

/// The constants of LoCoDL.
#[derive(Clone, Copy, Debug)]
pub struct LoCoDlConstants {
    /// gamma.
    pub step: f64,
    /// How often the machines communicate.
    pub probability: f64,
    /// The curvature of g.
    pub split: f64,
    /// How far x_i and y go to the mean.
    pub rho: f64,
    /// w: how far the shifts follow.
    pub follow: f64,
}

impl LoCoDlConstants {
    /// Those of the theory: `omega` for one machine, `noise` for the mean of all, which is omega/n where machines err independently.
    pub fn theory(step: f64, mu: f64, omega: f64, noise: f64) -> Self {
        let rho = 1.0 / (1.0 + noise);
        // The rate of the shifts, p^2 rho/(1 + 2 omega), is to be that of the steps, gamma mu.
        let probability = (step * mu * (1.0 + 2.0 * omega) / rho).sqrt().min(1.0);
        Self { step, probability, split: 0.5 * mu, rho, follow: probability * rho / (step * (1.0 + 2.0 * omega)) }
    }
}

impl LoCoDl {
    /// From a start; the channel's codec must be unbiased.
    pub fn new(start: Vec<f64>, channel: Channel, constants: LoCoDlConstants, randomness: &CommonRandomness) -> Self {
        let zeros = vec![0.0; start.len()];
        Self {
            x: start.clone(),
            y: start,
            common_shift: zeros.clone(),
            shift: zeros,
            constants,
            channel,
            randomness: randomness.clone(),
        }
    }
}

impl Stateful for LoCoDl {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "y", &mut self.y);
        visitor.vector(Scope::Common, "common_shift", &mut self.common_shift);
        visitor.vector(Scope::Local, "x", &mut self.x);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        self.channel.visit(visitor);
    }
}

impl Method for LoCoDl {
    fn iterate(&self) -> &[f64] {
        &self.y
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let LoCoDlConstants { step, probability, split, rho, follow } = self.constants;
        let dim = self.y.len();
        let mut coins = self.randomness.words(Purpose::Coin, round, 0);
        let (mut gradient, mut mean) = (vec![0.0; dim], vec![0.0; dim]);
        loop {
            context.objective.gradient(&self.x, &mut gradient);
            for j in 0..dim {
                self.x[j] -= step * (gradient[j] - split * self.x[j] - self.shift[j]);
                self.y[j] -= step * (split * self.y[j] - self.common_shift[j]);
            }
            if coins.next_coin(probability) {
                break;
            }
        }
        let apart: Vec<f64> = self.x.iter().zip(&self.y).map(|(x, y)| x - y).collect();
        channel_mean(&mut self.channel, round, &apart, context.comm, &mut mean)?;
        for (j, sent) in self.channel.sent().iter().enumerate() {
            let towards = 0.5 * mean[j];
            self.x[j] += rho * (self.y[j] + towards - self.x[j]);
            self.shift[j] += follow * (towards - sent);
        }
        vector::add_scaled(0.5 * rho, &mean, &mut self.y);
        vector::add_scaled(0.5 * follow, &mean, &mut self.common_shift);
        Ok(Outcome { step: Some(step), ..Outcome::default() })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.constants.step), ..Settings::default() }
    }
}
