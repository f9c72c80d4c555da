//! The CORE methods: a plan of what is wanted, and `prepare`, which learns from the machines what the plan leaves open.

use corewire_comm::{CommError, Reduction, numbers};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Real};

use super::accelerated::{Accelerated, Guard};
use super::conjugate::SketchedConjugate;
use super::descent::{Descent, Step};
use super::gradient::{Batch, GradientMethod};
use super::nonconvex::{Comparing, Rule};
use super::{Context, Method, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::{Anchored, MeanEstimator, Momentum, Quantised, Quantiser, Sketched, Width};
use crate::probe::Probe;
use crate::proximal::Proximal;
use crate::spectrum::Density;
use crate::state::{Stateful, Visitor};
use crate::tuning::{Curvature, Pair, Spectrum, decay};

/// Random starts of the density of absolute eigenvalues, and products with the Hessian from each: enough for a tenth.
const DENSITY_STARTS: usize = 2;
const DENSITY_STEPS: usize = 24;

/// How the scalars travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wire {
    /// As floats.
    Float(Width),
    /// As dithered integers.
    Quantised(Quantiser),
}

impl Wire {
    /// About how many bytes a machine sends and receives in a round of this budget.
    fn round_bytes(&self, budget: usize) -> f64 {
        let m = budget as f64;
        match self {
            Wire::Float(Width::F32) => 8.0 * m,
            Wire::Float(Width::Bf16) => 4.0 * m,
            // A bit up and one and a half down a scalar, and the ends of two messages.
            Wire::Quantised(_) => 2.5 / 8.0 * m + 1.5,
        }
    }

    /// The factor by which the wire multiplies the variance of a sketch.
    pub fn noise(&self) -> f64 {
        match self {
            Wire::Float(_) => 1.0,
            Wire::Quantised(quantiser) => quantiser.noise(),
        }
    }
}

/// What an automatic budget minimises on the way to a target: seconds where a link is named, else bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The link, if time counts.
    pub link: Option<corewire_comm::Link>,
    /// The relative suboptimality that is wanted.
    pub target: f64,
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
    /// What an automatic budget is for.
    pub goal: Goal,
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
    pub fn estimator<T: Real>(&self, dim: usize, budget: usize) -> Result<Box<dyn MeanEstimator<T>>, RunError> {
        let sketch = self.sketch(dim, budget)?;
        Ok(match self.wire {
            Wire::Float(width) => Box::new(Sketched::new(sketch, &self.randomness, width)),
            Wire::Quantised(quantiser) => Box::new(Quantised::new(sketch, &self.randomness, quantiser)),
        })
    }

    /// The estimator of a method with this proximal step: anchored where there is one, since the gradient does not vanish then.
    fn estimator_with(
        &self,
        dim: usize,
        budget: usize,
        proximal: &Proximal,
    ) -> Result<Box<dyn MeanEstimator>, RunError> {
        let estimator = self.estimator(dim, budget)?;
        if proximal.is_none() {
            return Ok(estimator);
        }
        let (m, d) = (budget as f64, dim as f64);
        // Rows of a Hadamard matrix are orthogonal: with all of them nothing is lost.
        let lost = if self.family == Family::Hadamard { (d - m).max(0.0) / m } else { (d + 1.0) / m };
        Ok(Box::new(Anchored::new(estimator, dim, 1.0 / (self.wire.noise() * (1.0 + lost)))))
    }

    /// d, or the padded size of the Hadamard family where that is little more: with all of its rows a sketch loses nothing.
    fn full_budget(&self, dim: usize) -> usize {
        let padded = dim.next_power_of_two();
        let whole = self.family == Family::Hadamard && self.block.is_none() && padded * 4 <= dim * 5;
        if whole { padded } else { dim }
    }

    /// The budget that reaches the goal's target at the least cost by the theory of second moments: of those close to it, the
    /// largest, which takes the fewest rounds.
    pub fn automatic_budget(&self, curvature: &Curvature, accelerated: bool) -> usize {
        let spectrum = Spectrum::fitted(curvature);
        let dim = curvature.dim;
        let mut candidates: Vec<(usize, f64)> = Vec::new();
        let mut budget = 2usize.min(dim);
        loop {
            let counting = self.counting_budget(dim, budget);
            let decay = match accelerated {
                true => Guard::new(*curvature, counting).tune().decay,
                false => {
                    let step = 1.5 * counting / (curvature.trace + (counting + 1.0) * curvature.smoothness);
                    decay(&spectrum, step, 1.0, counting)
                }
            };
            let rounds = libm::log(1.0 / self.goal.target) / -libm::log(decay);
            let bytes = self.wire.round_bytes(budget);
            let cost = match self.goal.link {
                Some(link) => rounds * link.seconds(2.0, bytes),
                None => rounds * bytes,
            };
            candidates.push((budget, cost));
            if budget == dim {
                break;
            }
            budget = (budget * 5 / 4 + 1).min(dim);
        }
        let least = candidates.iter().map(|candidate| candidate.1).fold(f64::INFINITY, f64::min);
        // Floats make rounds dear and bytes flat; coded scalars the other way round.
        let slack = if matches!(self.wire, Wire::Float(_)) { 1.3 } else { 1.1 };
        let good = candidates.iter().rev().find(|candidate| candidate.1 <= slack * least);
        good.map_or(dim, |candidate| candidate.0)
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
#[expect(clippy::large_enum_variant, reason = "there is one a run")]
pub enum CoreAlgorithm {
    /// CORE-GD, with a proximal step, and CORE-SGD with mini-batches.
    Descent {
        /// How far.
        step: StepRule,
        /// Mini-batches.
        batch: Option<Batch>,
        /// The share of the last velocity that is kept.
        momentum: f64,
    },
    /// CORE-AGD, with a proximal step, tuned and guarded, or with a fixed step and damping.
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

/// What preparation settles.
struct Tuned {
    curvature: Curvature,
    budget: usize,
    step: f64,
    damping: f64,
}

/// A CORE method.
pub struct Core {
    plan: Plan,
    algorithm: CoreAlgorithm,
    start: Vec<f64>,
    /// What the user says of the curvature; the rest is asked of the machines.
    known: Option<Curvature>,
    settings: Settings,
    inner: Option<Box<dyn Method>>,
}

impl Core {
    /// From a start. `known` spares the probe.
    pub fn new(plan: Plan, algorithm: CoreAlgorithm, start: Vec<f64>, known: Option<Curvature>) -> Self {
        Self { plan, algorithm, start, known, settings: Settings::default(), inner: None }
    }

    fn inner(&mut self) -> &mut Box<dyn Method> {
        self.inner.as_mut().expect("a method is prepared before its first round")
    }

    /// Asks the machines for their curvature; machine 0 chooses what the plan leaves open, and answers with five floats.
    fn ask(&mut self, context: &mut Context<'_>) -> Result<Tuned, RunError> {
        if let Some(known) = self.known {
            self.settings.trace = Some(known.trace);
            self.settings.smoothness = Some(known.smoothness);
            return Ok(self.tune(known, &context.objective.proximal()));
        }
        let dim = self.start.len();
        let probe = Probe::new(dim, &self.plan.randomness);
        let message = probe.message(context, &self.start)?;
        let (strong_convexity, proximal) = (context.objective.strong_convexity(), context.objective.proximal());
        let mut answer = |messages: &[&[u8]]| {
            let curvature = probe.guess(messages, strong_convexity)?;
            let tuned = self.tune(curvature, &proximal);
            let numbers = [curvature.trace, curvature.smoothness, tuned.budget as f64, tuned.step, tuned.damping];
            let mut reply = Vec::new();
            numbers::push_floats(&numbers, false, &mut reply);
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut answer))?;
        let mut floats = [0.0; 5];
        if !numbers::read_floats(&reply.message, false, &mut floats) {
            return Err(CommError::refused(0, "its answer to the probe is not five floats").into());
        }
        let [trace, smoothness, budget, step, damping] = floats;
        self.settings.trace = Some(trace);
        self.settings.smoothness = Some(smoothness);
        let curvature = Curvature { dim, trace, smoothness, strong_convexity };
        // A reply of a damaged journal must not become an allocation.
        let budget = self.plan.budget.unwrap_or((budget as usize).clamp(1, dim.next_power_of_two()));
        Ok(Tuned { curvature, budget, step, damping })
    }

    /// What the plan leaves open: the budget, and the pair of the accelerated method.
    fn tune(&self, curvature: Curvature, proximal: &Proximal) -> Tuned {
        let accelerated = matches!(self.algorithm, CoreAlgorithm::Accelerated { .. });
        let budget = self.plan.budget.unwrap_or_else(|| match proximal.is_none() {
            true => self.plan.automatic_budget(&curvature, accelerated),
            // Noise of a lagging anchor is dearer than a few more scalars of a bit.
            false => self.plan.full_budget(curvature.dim),
        });
        let counting = self.plan.counting_budget(curvature.dim, budget);
        let pair = match accelerated {
            true => Guard::new(curvature, counting).tune(),
            false => Pair { step: 0.0, damping: 1.0, decay: 1.0 },
        };
        Tuned { curvature, budget, step: pair.step, damping: pair.damping }
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

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let dim = self.start.len();
        let start = self.start.clone();
        let proximal = context.objective.proximal();
        let (budget, inner): (usize, Box<dyn Method>) = match self.algorithm.clone() {
            CoreAlgorithm::Conjugate { memory, number_bytes } => {
                let budget = self.plan.budget.unwrap_or_else(|| self.plan.full_budget(dim));
                let estimator = self.plan.estimator(dim, budget)?;
                (budget, Box::new(SketchedConjugate::new(start, estimator, memory, number_bytes)))
            }
            CoreAlgorithm::Accelerated { fixed } => {
                let (budget, algorithm) = match (fixed, self.plan.budget) {
                    (Some((step, damping)), Some(budget)) => (budget, Accelerated::new(start, step, damping)),
                    (fixed, _) => {
                        let tuned = self.ask(context)?;
                        let (step, damping) = fixed.unwrap_or((tuned.step, tuned.damping));
                        let guard = Guard::new(tuned.curvature, self.plan.counting_budget(dim, tuned.budget));
                        (
                            tuned.budget,
                            match fixed {
                                Some(_) => Accelerated::new(start, step, damping),
                                None => Accelerated::guarded(start, guard, step, damping),
                            },
                        )
                    }
                };
                let estimator = self.plan.estimator_with(dim, budget, &proximal)?;
                (budget, Box::new(GradientMethod::new(estimator, algorithm.with_proximal(proximal))))
            }
            CoreAlgorithm::Descent { step, batch, momentum } => {
                let needs =
                    self.plan.budget.is_none() || matches!(step, StepRule::Auto | StepRule::Safe | StepRule::Theory);
                let tuned = if needs { Some(self.ask(context)?) } else { None };
                let budget = self.plan.budget.or(tuned.as_ref().map(|tuned| tuned.budget)).unwrap_or(dim);
                let step = match (step, &tuned) {
                    (StepRule::Auto, Some(tuned)) => Step::Fixed(1.5 * self.safe_step(&tuned.curvature, budget)),
                    (StepRule::Safe, Some(tuned)) => Step::Fixed(self.safe_step(&tuned.curvature, budget)),
                    (StepRule::Theory, Some(tuned)) => {
                        Step::Fixed(self.plan.counting_budget(dim, budget) / (4.0 * tuned.curvature.trace))
                    }
                    (StepRule::Fixed(step), _) => Step::Fixed(step),
                    _ => Step::LineSearch,
                };
                let algorithm = Descent::new(start, step).with_proximal(proximal);
                let estimator = self.plan.estimator_with(dim, budget, &proximal)?;
                let estimator = match momentum == 0.0 {
                    true => estimator,
                    false => Box::new(Momentum::<f64, _>::new(estimator, dim, momentum)),
                };
                (budget, Box::new(GradientMethod::new(estimator, algorithm).with_batch(batch)))
            }
            CoreAlgorithm::Comparing { mut rule } => {
                if let Some(landscape) = rule.as_mut().and_then(Rule::landscape_mut).filter(|known| known.is_open()) {
                    let objective = &mut *context.objective;
                    let own = Density::of(objective, &start, DENSITY_STARTS, DENSITY_STEPS, &self.plan.randomness);
                    // The sum of absolute eigenvalues is a norm, and so is the largest: of the mean it is at most the mean. No loss is
                    // below 0, so f itself bounds the gap.
                    let mut known = [own.absolute_sum(1.0), own.smoothness(), objective.value(&start)];
                    context.means(0, &mut known, false)?;
                    let [trace, smoothness, gap] = known;
                    landscape.learn(trace, smoothness, gap);
                    (self.settings.trace, self.settings.smoothness) = (Some(trace), Some(smoothness));
                }
                let needs = self.plan.budget.is_none() || rule.is_none();
                let tuned = if needs { Some(self.ask(context)?) } else { None };
                let budget = self.plan.budget.or(tuned.as_ref().map(|tuned| tuned.budget)).unwrap_or(dim);
                let rule = rule.unwrap_or_else(|| {
                    Rule::Backtracking(tuned.as_ref().map_or(1.0, |tuned| self.safe_step(&tuned.curvature, budget)))
                });
                let estimator = self.plan.estimator(dim, budget)?;
                (budget, Box::new(GradientMethod::new(estimator, Comparing::new(start, rule))))
            }
        };
        self.settings.budget = Some(budget);
        self.inner = Some(inner);
        Ok(())
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        self.inner().round(round, context)
    }

    fn settings(&self) -> Settings {
        let inner = self.inner.as_ref().map_or(Settings::default(), |inner| inner.settings());
        Settings { step: inner.step, damping: inner.damping, ..self.settings }
    }
}
