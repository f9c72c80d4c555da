//! CORE-GD for non-convex problems (Algorithm 3): a step is kept only if f did not rise.
//!
//! The value of f travels with the next message, so a refused step costs a round and no more. The printed algorithm uses a signed mean as
//! a norm and constants a thousand times too careful; see the errata page. Options I and II, printed or usable, are steps of this file.

use super::gradient::Algorithm;
use super::{Context, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::Estimate;
use crate::state::{Scope, Stateful, Visitor};

/// What Options I and II need to know. Trace, smoothness and gap may be left open as NaN, to be learned from the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Landscape {
    /// r_1: bound on the sum of absolute eigenvalues of the Hessian.
    pub trace: f64,
    /// L.
    pub smoothness: f64,
    /// H: Lipschitz constant of the Hessian.
    pub hessian_lipschitz: f64,
    /// Delta: f(x0) - f* at most.
    pub gap: f64,
    /// m.
    pub budget: f64,
    /// d.
    pub dim: f64,
}

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Longer by a tenth after a kept step, shorter by four tenths after a refused one, from this step.
    Backtracking(f64),
    /// Option I: min(linear part, curvature part with the estimated norm of the last gradient).
    OptionI {
        /// What is known.
        landscape: Landscape,
        /// Whether the constants are the printed ones.
        printed: bool,
    },
    /// Option II: the same with (L Delta)^(1/2) for the norm.
    OptionII {
        /// What is known.
        landscape: Landscape,
        /// Whether the constants are the printed ones.
        printed: bool,
    },
}

impl Rule {
    /// What it rests on, where that is more than a step.
    pub fn landscape_mut(&mut self) -> Option<&mut Landscape> {
        match self {
            Self::Backtracking(_) => None,
            Self::OptionI { landscape, .. } | Self::OptionII { landscape, .. } => Some(landscape),
        }
    }
}

/// With this probability some norm of a run is estimated too small by half.
const RISK: f64 = 0.01;

/// The least budget at which Option I may trust the norms that it estimates in so many rounds: 3.2 ln(N/delta).
pub fn trusted_budget(rounds: u64) -> f64 {
    3.2 * libm::log(rounds.max(1) as f64 / RISK)
}

impl Landscape {
    /// Whether something is left open.
    pub fn is_open(&self) -> bool {
        self.trace.is_nan() || self.smoothness.is_nan() || self.gap.is_nan()
    }

    /// Puts what was learned where it is open.
    pub fn learn(&mut self, trace: f64, smoothness: f64, gap: f64) {
        for (known, learned) in [(&mut self.trace, trace), (&mut self.smoothness, smoothness), (&mut self.gap, gap)] {
            if known.is_nan() {
                *known = learned;
            }
        }
    }

    /// The step for a gradient of this norm.
    pub fn step(&self, norm: f64, printed: bool) -> f64 {
        let (m, d) = (self.budget, self.dim);
        if printed {
            let shrink = libm::pow(m / d, 0.75) / 1600.0;
            return (m / (16.0 * self.trace)).min(shrink / (self.hessian_lipschitz * norm).sqrt());
        }
        let linear = m / (2.0 * (self.trace + (m + 1.0) * self.smoothness));
        let curved = (1.5 / (1.6 * self.hessian_lipschitz * norm)).sqrt() * libm::pow(m / (d + m + 1.0), 0.75);
        linear.min(curved)
    }
}

/// Descent with the comparison step.
pub struct Comparing {
    /// The best point so far, and what is known of it.
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    /// Where the next gradient and value are wanted.
    candidate: Vec<f64>,
    rule: Rule,
    step: f64,
    /// phat of the last kept round: independent of the directions it scales.
    norm: f64,
}

impl Comparing {
    /// From a start.
    pub fn new(start: Vec<f64>, rule: Rule) -> Self {
        let step = match rule {
            Rule::Backtracking(step) => step,
            _ => 0.0,
        };
        let gradient = vec![0.0; start.len()];
        Self { candidate: start.clone(), x: start, value: f64::INFINITY, gradient, rule, step, norm: f64::NAN }
    }

    fn choose_step(&self, norm: f64) -> f64 {
        match self.rule {
            Rule::Backtracking(_) => self.step,
            Rule::OptionI { landscape, printed } => {
                let last = if self.norm.is_nan() { norm } else { self.norm };
                landscape.step(last, printed)
            }
            Rule::OptionII { landscape, printed } => {
                landscape.step((landscape.smoothness * landscape.gap).sqrt(), printed)
            }
        }
    }
}

impl Stateful for Comparing {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.number(Scope::Common, "value", &mut self.value);
        visitor.vector(Scope::Common, "gradient", &mut self.gradient);
        visitor.vector(Scope::Common, "candidate", &mut self.candidate);
        visitor.number(Scope::Common, "step", &mut self.step);
        visitor.number(Scope::Common, "norm", &mut self.norm);
    }
}

impl Algorithm for Comparing {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn query(&self) -> &[f64] {
        &self.candidate
    }

    fn wants_value(&self) -> bool {
        true
    }

    fn advance(
        &mut self,
        _: u64,
        gradient: &[f64],
        estimate: &Estimate,
        value: Option<f64>,
        _: &mut Context<'_>,
    ) -> Result<Outcome, RunError> {
        let value = value.expect("the value was wanted");
        let norm = estimate.energy.max(0.0).sqrt();
        // A NaN is not kept.
        let kept = value <= self.value;
        let first = self.value.is_infinite();
        if kept {
            self.x.copy_from_slice(&self.candidate);
            self.value = value;
            self.gradient.copy_from_slice(gradient);
        }
        if matches!(self.rule, Rule::Backtracking(_)) && !first {
            self.step *= if kept { 1.1 } else { 0.6 };
        }
        let step = self.choose_step(norm);
        if kept {
            self.norm = norm;
        }
        // <g, g~> > 0, so a shorter step along the same estimate must succeed; a fixed step needs other directions, hence the same point
        // again.
        let again = !kept && !matches!(self.rule, Rule::Backtracking(_));
        let step = if again { 0.0 } else { step };
        for ((candidate, x), g) in self.candidate.iter_mut().zip(&self.x).zip(&self.gradient) {
            *candidate = x - step * g;
        }
        Ok(Outcome { gradient_norm: Some(norm), step: Some(step), rejected: !kept, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}
