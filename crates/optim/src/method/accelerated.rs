//! Momentum: y = x + (1 - b)(x - x_prev), x+ = y - h g~(y). With a sketched estimate it is CORE-AGD (Algorithm 4, with usable constants).

use super::gradient::Algorithm;
use super::{Context, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::Estimate;
use crate::proximal::Proximal;
use crate::state::{Scope, Stateful, Visitor};
use crate::tuning::{Curvature, Pair, Spectrum, accelerate};

/// Pairs are tuned as if the noise were this much larger: the spectrum is a guess.
const CAUTION: f64 = 1.3;

/// Watches the free estimate of ||g||^2 and tells when the smoothness was underestimated.
///
/// Where the probe guessed L too small the iterates grow; the estimate of ||g||^2 then leaves its minimum far behind.
#[derive(Clone, Debug)]
pub struct Guard {
    curvature: Curvature,
    budget: f64,
    running: f64,
    least: f64,
}

impl Guard {
    /// Guards a method tuned for this curvature and effective budget.
    pub fn new(curvature: Curvature, budget: f64) -> Self {
        Self { curvature, budget, running: 0.0, least: f64::INFINITY }
    }

    /// The pair for what is believed now.
    pub fn tune(&self) -> Pair {
        accelerate(&Spectrum::fitted(&self.curvature), self.curvature.smoothness, self.budget / CAUTION)
    }

    /// Takes in the newest estimate of ||g||^2; after an alarm, a new pair.
    fn watch(&mut self, energy: f64) -> Option<Pair> {
        self.running = if self.least.is_infinite() { energy } else { 0.8 * self.running + 0.2 * energy };
        self.least = self.least.min(self.running);
        if self.running <= 9.0 * self.least {
            return None;
        }
        self.curvature.smoothness = (1.4 * self.curvature.smoothness).min(self.curvature.trace);
        self.least = f64::INFINITY;
        Some(self.tune())
    }
}

/// Nesterov's method with a fixed pair, and a guard where the pair rests on a guess.
pub struct Accelerated {
    x: Vec<f64>,
    previous: Vec<f64>,
    query: Vec<f64>,
    pair: Pair,
    guard: Option<Guard>,
    proximal: Proximal,
}

impl Accelerated {
    /// From a start, with a fixed pair.
    pub fn new(start: Vec<f64>, step: f64, damping: f64) -> Self {
        let pair = Pair { step, damping, decay: 1.0 };
        Self { previous: start.clone(), query: start.clone(), x: start, pair, guard: None, proximal: Proximal::NONE }
    }

    /// From a start, with a pair that was tuned for the guard's curvature.
    pub fn guarded(start: Vec<f64>, guard: Guard, step: f64, damping: f64) -> Self {
        Self { guard: Some(guard), ..Self::new(start, step, damping) }
    }
}

impl Accelerated {
    /// With a proximal step.
    pub fn with_proximal(self, proximal: Proximal) -> Self {
        Self { proximal, ..self }
    }
}

impl Stateful for Accelerated {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "previous", &mut self.previous);
        visitor.vector(Scope::Common, "query", &mut self.query);
        visitor.number(Scope::Common, "step", &mut self.pair.step);
        visitor.number(Scope::Common, "damping", &mut self.pair.damping);
        if let Some(guard) = &mut self.guard {
            visitor.number(Scope::Common, "guard_smoothness", &mut guard.curvature.smoothness);
            visitor.number(Scope::Common, "guard_running", &mut guard.running);
            visitor.number(Scope::Common, "guard_least", &mut guard.least);
        }
    }
}

impl Algorithm for Accelerated {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn query(&self) -> &[f64] {
        &self.query
    }

    fn advance(
        &mut self,
        _: u64,
        gradient: &[f64],
        estimate: &Estimate,
        _: Option<f64>,
        _: &mut Context<'_>,
    ) -> Result<Outcome, RunError> {
        let Pair { step, damping, .. } = self.pair;
        std::mem::swap(&mut self.previous, &mut self.x);
        // What vanishes at the end: the gradient, or with a proximal step the move over the step's length.
        let mut energy = estimate.energy;
        if self.proximal.is_none() {
            for i in 0..self.x.len() {
                self.x[i] = self.query[i] - step * gradient[i];
            }
        } else {
            energy = 0.0;
            for i in 0..self.x.len() {
                self.x[i] = self.proximal.step(self.query[i] - step * gradient[i], step);
                energy += ((self.x[i] - self.query[i]) / step).powi(2);
            }
        }
        let alarm = self.guard.as_mut().and_then(|guard| guard.watch(energy));
        let momentum = if alarm.is_some() { 0.0 } else { 1.0 - damping };
        for i in 0..self.x.len() {
            self.query[i] = self.x[i] + momentum * (self.x[i] - self.previous[i]);
        }
        if let Some(pair) = alarm {
            self.pair = pair;
        }
        Ok(Outcome {
            gradient_norm: Some(energy.max(0.0).sqrt()),
            step: Some(step),
            rejected: alarm.is_some(),
            gap: None,
        })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.pair.step), damping: Some(self.pair.damping), ..Settings::default() }
    }
}
