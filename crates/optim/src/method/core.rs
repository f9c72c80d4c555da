//! The CORE methods: a plan of what is wanted, and `prepare`, which learns from the machines what the plan leaves open.

use corewire_sketch::{AnySketch, CommonRandomness, Family, Purpose, Sketch};

use super::accelerated::{Accelerated, Guard};
use super::conjugate::SketchedConjugate;
use super::descent::{Descent, Step};
use super::gradient::{Batch, GradientMethod};
use super::nonconvex::{Comparing, Rule};
use super::{Machine, Method, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::{MeanEstimator, Quantised, Quantiser, Sketched, Width};
use crate::state::{Stateful, Visitor};
use crate::tuning::{Curvature, Spectrum, small_eigenvalues};

/// How the scalars travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wire {
    /// As floats.
    Float(Width),
    /// As dithered integers.
    Quantised(Quantiser),
}

impl Wire {
    /// The factor by which the wire multiplies the variance of a sketch.
    pub fn noise(&self) -> f64 {
        match self {
            Wire::Float(_) => 1.0,
            Wire::Quantised(quantiser) => quantiser.noise(),
        }
    }
}

/// The sketch that is wanted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The family of directions.
    pub family: Family,
    /// The budget m; `None` chooses it.
    pub budget: Option<usize>,
    /// Coordinates of a block, each with its share of the budget; `None` for one sketch over all coordinates.
    pub block: Option<std::num::NonZeroUsize>,
    /// How scalars travel.
    pub wire: Wire,
    /// The common randomness.
    pub randomness: CommonRandomness,
}

impl Plan {
    /// The sketch with this budget.
    pub fn sketch(&self, dim: usize, budget: usize) -> Result<AnySketch, RunError> {
        let unsuited = |error: corewire_sketch::SketchError| RunError::Unsuited(error.to_string());
        match self.block {
            None => AnySketch::new(self.family, &self.randomness, dim, budget).map_err(unsuited),
            Some(block) => {
                let blocks = dim.div_ceil(block.get());
                let budgets = vec![budget.div_ceil(blocks); blocks];
                AnySketch::blocks(self.family, &self.randomness, dim, block, &budgets).map_err(unsuited)
            }
        }
    }

    /// The estimator with this budget.
    pub fn estimator(&self, dim: usize, budget: usize) -> Result<Box<dyn MeanEstimator>, RunError> {
        let sketch = self.sketch(dim, budget)?;
        Ok(match self.wire {
            Wire::Float(width) => Box::new(Sketched::new(sketch, &self.randomness, width)),
            Wire::Quantised(quantiser) => Box::new(Quantised::new(sketch, &self.randomness, quantiser)),
        })
    }

    /// The budget of which a step rule may count: with blocks, the smallest block's, since the curvature may all sit there.
    fn counting_budget(&self, dim: usize, budget: usize) -> f64 {
        let whole = match self.block {
            None => budget as f64,
            Some(block) => budget.div_ceil(dim.div_ceil(block.get())) as f64,
        };
        whole / self.wire.noise()
    }
}

/// The step of CORE-GD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepRule {
    /// 1.5 m/(tr + (m + 1) L).
    Auto,
    /// m/(tr + (m + 1) L): the factor 1 - mu h a round.
    Safe,
    /// m/(4 tr), the paper's.
    Theory,
    /// Exact along each estimate, for one more float.
    LineSearch,
    /// A number.
    Fixed(f64),
}

/// Which method is built on the sketch.
#[derive(Clone, Debug)]
pub enum Flavour {
    /// CORE-GD, with a proximal step for l1, and CORE-SGD with mini-batches.
    Descent {
        /// How far.
        step: StepRule,
        /// Mini-batches.
        batch: Option<Batch>,
    },
    /// CORE-AGD, tuned and guarded, or with a fixed step and damping.
    Accelerated {
        /// (h, b) where they are given.
        fixed: Option<(f64, f64)>,
    },
    /// CORE-CG.
    Conjugate {
        /// Directions remembered.
        memory: usize,
        /// Bytes of each number of the second message.
        number_bytes: usize,
    },
    /// The comparison step for non-convex problems. `None`: backtracking from the safe step.
    Comparing {
        /// How far.
        rule: Option<Rule>,
    },
}

/// How many common directions the probe uses.
const PROBES: usize = 16;
/// The probe's L spreads by about a third: this much is added.
const CAUTION: f64 = 1.2;

/// A CORE method.
pub struct Core {
    plan: Plan,
    flavour: Flavour,
    start: Vec<f64>,
    /// What the user says of the curvature; the rest is asked of the machines.
    known: Option<Curvature>,
    settings: Settings,
    inner: Option<Box<dyn Method>>,
}

impl Core {
    /// From a start. `known` spares the probe.
    pub fn new(plan: Plan, flavour: Flavour, start: Vec<f64>, known: Option<Curvature>) -> Self {
        Self { plan, flavour, start, known, settings: Settings::default(), inner: None }
    }

    fn inner(&mut self) -> &mut Box<dyn Method> {
        self.inner.as_mut().expect("a method is prepared before its first round")
    }

    /// The trace, and L from G = Xi A Xi' with a few common directions, all in one message.
    fn probe(&self, machine: &mut Machine<'_>) -> Result<Curvature, RunError> {
        let dim = self.start.len();
        let count = PROBES.min(dim);
        let directions = AnySketch::new(Family::Rademacher, &self.plan.randomness, dim, count)
            .expect("a few directions of a vector that has coordinates")
            .with_purpose(Purpose::Probe);
        let known_trace = machine.objective.bound_trace();
        let mut numbers = vec![known_trace.unwrap_or(0.0)];
        let (mut direction, mut product, mut row) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; count]);
        for k in 0..count {
            let mut unit = vec![0.0; count];
            unit[k] = count as f64;
            directions.reconstruct(0, &unit, &mut direction);
            machine.objective.bound_vector(&self.start, &direction, &mut product);
            directions.project(0, &product, &mut row);
            numbers.extend_from_slice(&row[..=k]);
        }
        if !crate::vector::all_finite(&numbers) {
            return Err(RunError::NotFinite { rank: machine.comm.rank(), round: 0, what: "a curvature" });
        }
        machine.short_means(&mut numbers, 2)?;
        let mut matrix = vec![0.0; count * count];
        let mut entries = numbers[1..].iter();
        for k in 0..count {
            for l in 0..=k {
                let entry = *entries.next().expect("one entry a pair");
                matrix[k * count + l] = entry;
                matrix[l * count + k] = entry;
            }
        }
        let diagonal = (0..count).map(|k| matrix[k * count + k]).sum::<f64>() / count as f64;
        let trace = if known_trace.is_some() { numbers[0] } else { diagonal };
        let largest = small_eigenvalues(&mut matrix, count).into_iter().fold(0.0, f64::max);
        let guess = if count > 1 { (largest - diagonal) / (count as f64 - 1.0) } else { diagonal };
        let smoothness = (CAUTION * guess).clamp(trace / dim as f64, trace);
        Ok(Curvature { dim, trace, smoothness, strong_convexity: machine.objective.strong_convexity() })
    }

    fn curvature(&mut self, machine: &mut Machine<'_>) -> Result<Curvature, RunError> {
        let curvature = match self.known {
            Some(known) => known,
            None => self.probe(machine)?,
        };
        self.settings.trace = Some(curvature.trace);
        self.settings.smoothness = Some(curvature.smoothness);
        Ok(curvature)
    }

    /// m/(tr + (m + 1) L).
    fn safe_step(&self, curvature: &Curvature, budget: usize) -> f64 {
        let m = self.plan.counting_budget(self.start.len(), budget);
        m / (curvature.trace + (m + 1.0) * curvature.smoothness)
    }
}

impl Stateful for Core {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.inner().visit(visitor);
    }
}

impl Method for Core {
    fn iterate(&self) -> &[f64] {
        self.inner.as_ref().map_or(&self.start, |inner| inner.iterate())
    }

    fn prepare(&mut self, machine: &mut Machine<'_>) -> Result<(), RunError> {
        let dim = self.start.len();
        let start = self.start.clone();
        let (budget, inner): (usize, Box<dyn Method>) = match self.flavour.clone() {
            Flavour::Conjugate { memory, number_bytes } => {
                let budget = self.plan.budget.unwrap_or(dim);
                let estimator = self.plan.estimator(dim, budget)?;
                (budget, Box::new(SketchedConjugate::new(start, estimator, memory, number_bytes)))
            }
            Flavour::Accelerated { fixed } => {
                let known = match (fixed, self.plan.budget) {
                    (Some(_), Some(_)) => None,
                    _ => Some(self.curvature(machine)?),
                };
                let budget = match (self.plan.budget, &known) {
                    (Some(budget), _) => budget,
                    (None, Some(curvature)) => automatic_budget(curvature),
                    (None, None) => unreachable!("without a budget the curvature was asked for"),
                };
                let estimator = self.plan.estimator(dim, budget)?;
                let algorithm = match (fixed, known) {
                    (Some((step, damping)), _) => Accelerated::new(start, step, damping),
                    (None, Some(known)) => {
                        Accelerated::guarded(start, Guard::new(known, self.plan.counting_budget(dim, budget)))
                    }
                    (None, None) => unreachable!("without a fixed pair the curvature was asked for"),
                };
                (budget, Box::new(GradientMethod::new(estimator, algorithm)))
            }
            Flavour::Descent { step, batch } => {
                let needs = self.plan.budget.is_none() || matches!(step, StepRule::Auto | StepRule::Safe | StepRule::Theory);
                let known = if needs { Some(self.curvature(machine)?) } else { None };
                let budget = match (self.plan.budget, &known) {
                    (Some(budget), _) => budget,
                    (None, known) => known.as_ref().map_or(dim, automatic_budget),
                };
                let step = match (step, &known) {
                    (StepRule::Auto, Some(known)) => Step::Fixed(1.5 * self.safe_step(known, budget)),
                    (StepRule::Safe, Some(known)) => Step::Fixed(self.safe_step(known, budget)),
                    (StepRule::Theory, Some(known)) => {
                        Step::Fixed(self.plan.counting_budget(dim, budget) / (4.0 * known.trace))
                    }
                    (StepRule::Fixed(step), _) => Step::Fixed(step),
                    _ => Step::LineSearch,
                };
                let estimator = self.plan.estimator(dim, budget)?;
                let algorithm = Descent::new(start, step).with_l1(machine.objective.l1());
                (budget, Box::new(GradientMethod::new(estimator, algorithm).with_batch(batch)))
            }
            Flavour::Comparing { rule } => {
                let needs = self.plan.budget.is_none() || rule.is_none();
                let known = if needs { Some(self.curvature(machine)?) } else { None };
                let budget = self.plan.budget.unwrap_or_else(|| known.as_ref().map_or(dim, automatic_budget));
                let rule = rule.unwrap_or_else(|| {
                    Rule::Backtracking(known.as_ref().map_or(1.0, |known| self.safe_step(known, budget)))
                });
                let estimator = self.plan.estimator(dim, budget)?;
                (budget, Box::new(GradientMethod::new(estimator, Comparing::new(start, rule))))
            }
        };
        self.settings.budget = Some(budget);
        self.inner = Some(inner);
        Ok(())
    }

    fn round(&mut self, round: u64, machine: &mut Machine<'_>) -> Result<Outcome, RunError> {
        self.inner().round(round, machine)
    }

    fn settings(&self) -> Settings {
        let inner = self.inner.as_ref().map_or(Settings::default(), |inner| inner.settings());
        Settings { step: inner.step, damping: inner.damping, ..self.settings }
    }
}

/// ceil(d_eff) of the fitted spectrum.
fn automatic_budget(curvature: &Curvature) -> usize {
    let effective = Spectrum::fitted(curvature).effective_dimension(curvature.strong_convexity);
    (effective.ceil() as usize).clamp(1, curvature.dim)
}
