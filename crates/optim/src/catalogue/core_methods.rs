//! The CORE methods, one row each, and those that machines without a centre run. Defaults that were measured stand beside the method they
//! are for.

use std::num::NonZeroUsize;

use corewire_sketch::AnySketch;

use super::builder::{Builder, Built, boxed};
use super::{MethodInfo, PLAIN, Sent, StepKind, Training, WireKind, parameter};
use crate::decentral::{Averaging, Extra, GossipCore, GossipMean, Msda};
use crate::estimator::{Form, Quantiser, Width};
use crate::method::core::{Core, CoreAlgorithm, Plan, StepRule, Wire};
use crate::method::gradient::Batch;
use crate::method::newton;
use crate::method::nonconvex::{Landscape, Rule, trusted_budget};
use crate::tuning::{Curvature, Spectrum, accelerate};

/// How coarse wire q is by default: see docs/core-q.md. The gradients of conjugate directions fall so fast that the scale of the round before
/// last is of no use.
const AGD_CODE: Quantiser = Quantiser { eta_up: 0.2, eta_down: 0.2, theta: 1.0, keep: 0.7, form: Form::Hub };
const CG_CODE: Quantiser = Quantiser { eta_up: 0.05, eta_down: 0.05, keep: 0.0, ..AGD_CODE };
/// Directions that core-cg remembers off quadratics, where each costs as many numbers as there are directions.
const CG_MEMORY: usize = 3;
/// Momentum of core-sgd.
const SGD_MOMENTUM: f64 = 0.9;
/// By gossip pairs are tuned as if the noise were this much larger, as in the centralised method.
const CAUTION: f64 = 1.3;

/// All of them.
pub(super) const CORE: &[MethodInfo] = &[
    MethodInfo {
        id: "core-newton",
        title: "CORE-Newton",
        line: "curvature once, then quantised gradients and quasi-Newton steps; few exchanges",
        reference: "docs/core-newton.md",
        family: "core",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        proximal: true,
        parameters: &[parameter("detail", "1", "how much more is told than is worth its bytes, to save exchanges")],
        build: |b| {
            let (s, defaults) = (b.settings, newton::Rules::default());
            if !matches!(s.wire, WireKind::Q) {
                return Err("core-newton has one wire, q: its hub keeps state".to_owned());
            }
            let mut rules = defaults.with_detail(b.values.number("detail", 1.0, 1.0, 1e6)?);
            let defaults = rules;
            rules.curvature = s.curvature;
            rules.eta_up = s.eta_up.unwrap_or(defaults.eta_up);
            rules.eta_down = s.eta_down.unwrap_or(defaults.eta_down);
            Ok(boxed(newton::Newton::new(b.start(), rules, b.randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "core-agd",
        title: "CORE-AGD",
        line: "momentum on the sketched gradient; the fewest bytes where rounds are cheap; proximal with `problem.l1`",
        reference: "CORE, Algorithm 4, with usable constants: docs/errata.md",
        family: "core",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        proximal: true,
        build: |b| {
            let s = b.settings;
            let fixed = match (s.step, s.damping) {
                (StepKind::Fixed(step), Some(damping)) => Some((step, damping)),
                (StepKind::Auto, None) => None,
                _ => {
                    return Err(
                        "core-agd takes `method.step` and `method.damping` as numbers together, or neither".to_owned()
                    );
                }
            };
            core(b, CoreAlgorithm::Accelerated { fixed }, AGD_CODE)
        },
        gossip: Some(|b, averaging| gossip_core(b, averaging, true)),
        ..PLAIN
    },
    MethodInfo {
        id: "core-cg",
        title: "CORE-CG",
        line: "conjugate directions on the sketched gradient; few rounds and nothing to tune",
        reference: "docs/core-q.md",
        family: "core",
        exact: true,
        convex_only: true,
        build: |b| {
            // On quadratics a direction costs one number more per round: little beside many coordinates, much beside few.
            let memory = b.settings.memory.unwrap_or(if b.quadratic { (b.dim / 40).clamp(5, 20) } else { CG_MEMORY });
            let number_bytes = if b.quadratic { 3 } else { 2 };
            core(b, CoreAlgorithm::Conjugate { memory, number_bytes }, CG_CODE)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "core-gd",
        title: "CORE-GD",
        line: "gradient descent on the sketched gradient, the paper's Algorithm 2; proximal with `problem.l1`",
        reference: "CORE, Algorithm 2",
        family: "core",
        exact: true,
        strongly_convex: true,
        proximal: true,
        build: |b| core(b, CoreAlgorithm::Descent { step: step_rule(b)?, batch: None, momentum: 0.0 }, AGD_CODE),
        gossip: Some(|b, averaging| gossip_core(b, averaging, false)),
        ..PLAIN
    },
    MethodInfo {
        id: "core-sgd",
        title: "CORE-SGD",
        line: "mini-batches; a sketch of every machine's momentum travels, and not of its gradient (CORE-M)",
        reference: "CORE, section on networks; docs/networks.md",
        family: "core",
        proximal: true,
        parameters: &[parameter("scale", "1", "factor on the rate of a network")],
        build: |b| {
            if let Some(training) = &b.settings.training {
                return core_training(b, training);
            }
            if b.scale != 1.0 {
                return Err("`scale` of core-sgd is for networks; elsewhere take `method.step`".to_owned());
            }
            let rows = b.settings.batch.unwrap_or(32);
            let batch = Some(Batch::new(rows, b.randomness));
            let momentum = b.settings.momentum.unwrap_or(SGD_MOMENTUM);
            core(b, CoreAlgorithm::Descent { step: step_rule(b)?, batch, momentum }, AGD_CODE)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "core-nonconvex",
        title: "CORE-GD for non-convex problems",
        line: "a step is kept only if f did not rise, the paper's Algorithm 3",
        reference: "CORE, Algorithm 3",
        family: "core",
        exact: true,
        parameters: &[
            parameter(
                "trace",
                "auto",
                "r_1 of Options I and II: the sum of absolute eigenvalues of the Hessian; auto learns it from the machines",
            ),
            parameter("smoothness", "auto", "L of Options I and II; likewise"),
            parameter("gap", "auto", "f(x0) - f* at most, for Option II; auto is f(x0)"),
        ],
        build: |b| core(b, CoreAlgorithm::Comparing { rule: nonconvex_rule(b)? }, AGD_CODE),
        ..PLAIN
    },
    MethodInfo {
        id: "extra",
        title: "EXTRA",
        line: "gradient descent on a graph whose second step undoes the bias of the first; by gossip only",
        reference: "Shi, Ling, Wu, Yin, EXTRA, 2015",
        family: "decentralised",
        exact: true,
        convex_only: true,
        gossip: Some(|b, averaging| {
            let auto = 0.9 * (1.0 + averaging.least_mixing()) / b.constants.max_smoothness;
            Ok(boxed(Extra::new(b.start(), averaging, gossip_step(b)?.unwrap_or(auto))))
        }),
        ..PLAIN
    },
    MethodInfo {
        id: "msda",
        title: "MSDA",
        line: "Nesterov's method on the dual problem, with Chebyshev gossip as its matrix; by gossip only",
        reference: "Scaman, Bach, Bubeck, Lee, Massoulie, Optimal Algorithms for Smooth and Strongly Convex Distributed Optimization, 2017",
        family: "decentralised",
        exact: true,
        convex_only: true,
        gossip: Some(|b, averaging| {
            let c = b.constants;
            if c.strong_convexity <= 0.0 {
                let what = "`msda` works on the dual problem and needs strong convexity: set `problem.alpha` above 0";
                return Err(what.to_owned());
            }
            Ok(boxed(Msda::new(b.start(), averaging, c.strong_convexity, c.max_smoothness)))
        }),
        ..PLAIN
    },
];

pub(super) fn by_gossip_only(b: &Builder<'_>) -> Built {
    let id = b.values.info.id;
    Err(format!(
        "`{id}` runs by gossip only: name a graph, as in `graph.shape` = \"ring\" with `graph.gossip` = \"chebyshev\""
    ))
}

fn core(b: &Builder<'_>, algorithm: CoreAlgorithm, code: Quantiser) -> Built {
    Ok(boxed(Core::new(plan(b, code)?, algorithm, b.start(), None)))
}

/// CORE-M on a network: 32-bit scalars of the momentum, a share of the coordinates, no shifts, which noise of mini-batches would drown.
fn core_training(b: &Builder<'_>, training: &Training) -> Built {
    let budget = b.settings.budget.unwrap_or((b.dim as f64 / training.ratio).round().max(1.0) as usize);
    let estimator = plan(b, Quantiser { theta: 0.0, ..AGD_CODE })?
        .estimator::<f32>(b.dim, budget)
        .map_err(|error| error.to_string())?;
    Ok(boxed(b.trained(training, estimator, Sent::Momentum).with_budget(budget)))
}

/// What the settings make of a sketch with this code.
fn plan(b: &Builder<'_>, code: Quantiser) -> Result<Plan, String> {
    let s = b.settings;
    let (eta_up, eta_down) = (s.eta_up.unwrap_or(code.eta_up), s.eta_down.unwrap_or(code.eta_down));
    let quantiser = |form| Quantiser { eta_up, eta_down, form, ..code };
    let wire = match s.wire {
        WireKind::F32 => Wire::Float(Width::F32),
        WireKind::Bf16 => Wire::Float(Width::Bf16),
        WireKind::Q => Wire::Quantised(quantiser(Form::Hub)),
        WireKind::QSum => Wire::Quantised(quantiser(Form::Sum)),
        WireKind::F64 => {
            let id = b.values.info.id;
            return Err(format!(
                "`method.wire` = \"f64\" is for uncompressed methods; `{id}` takes q, q-sum, f32 or bf16"
            ));
        }
    };
    Ok(Plan {
        family: s.family,
        budget: s.budget,
        block: s.block.and_then(NonZeroUsize::new),
        wire,
        randomness: b.randomness.clone(),
        goal: s.goal,
    })
}

fn does_not_fit(b: &Builder<'_>, what: &str) -> String {
    format!("`method.step` = \"{what}\" does not fit {}", b.values.info.id)
}

fn step_rule(b: &Builder<'_>) -> Result<StepRule, String> {
    Ok(match b.settings.step {
        StepKind::Auto => StepRule::Auto,
        StepKind::Safe => StepRule::Safe,
        StepKind::Theory => StepRule::Theory,
        StepKind::LineSearch => StepRule::LineSearch,
        StepKind::Fixed(step) => StepRule::Fixed(step),
        StepKind::OptionI => return Err(does_not_fit(b, "option-1")),
        StepKind::OptionII => return Err(does_not_fit(b, "option-2")),
        StepKind::TheoryII => return Err(does_not_fit(b, "theory-2")),
    })
}

fn nonconvex_rule(b: &Builder<'_>) -> Result<Option<Rule>, String> {
    let (option_two, printed) = match b.settings.step {
        StepKind::Auto => return Ok(None),
        StepKind::Fixed(step) => return Ok(Some(Rule::Backtracking(step))),
        StepKind::OptionI => (false, false),
        StepKind::Theory => (false, true),
        StepKind::OptionII => (true, false),
        StepKind::TheoryII => (true, true),
        StepKind::Safe => return Err(does_not_fit(b, "safe")),
        StepKind::LineSearch => return Err(does_not_fit(b, "line-search")),
    };
    // What is left open is learned from the machines.
    let number = |name: &str| match b.values.text(name) {
        "auto" => Ok(f64::NAN),
        _ => b.values.number(name, 0.0, 0.0, f64::INFINITY),
    };
    let budget = b.settings.budget.ok_or("this `method.step` needs `method.budget`")?;
    let least = trusted_budget(b.settings.rounds);
    if !option_two && (budget as f64) < least.min(b.dim as f64) {
        return Err(format!(
            "this `method.step` trusts estimated norms: in {} rounds it needs `method.budget` of at least {:.0}, 3.2 ln(N/delta) with \
             delta = 0.01; take more, fewer rounds or \"option-2\"",
            b.settings.rounds,
            least.ceil()
        ));
    }
    let landscape = Landscape {
        trace: number("trace")?,
        smoothness: number("smoothness")?,
        hessian_lipschitz: b.settings.hessian_lipschitz,
        gap: number("gap")?,
        budget: budget as f64,
        dim: b.dim as f64,
    };
    Ok(Some(if option_two { Rule::OptionII { landscape, printed } } else { Rule::OptionI { landscape, printed } }))
}

fn gossip_step(b: &Builder<'_>) -> Result<Option<f64>, String> {
    let s = b.settings;
    if s.block.is_some() || s.batch.is_some() {
        let what = "`method.block` and `method.batch` have no form for gossip; with `graph.gossip` = \"tree\" they do";
        return Err(what.to_owned());
    }
    match s.step {
        StepKind::Auto => Ok(None),
        StepKind::Fixed(step) => Ok(Some(step)),
        _ => Err("this `method.step` has no form for gossip: take auto or a number".to_owned()),
    }
}

/// CORE-GD or CORE-AGD by gossip, on the wire of the averaging.
fn gossip_core(b: &Builder<'_>, averaging: &Averaging, accelerated: bool) -> Built {
    let (s, c, given) = (b.settings, b.constants, gossip_step(b)?);
    let curvature =
        Curvature { dim: b.dim, trace: c.trace, smoothness: c.smoothness, strong_convexity: c.strong_convexity };
    // The number of iterations of gossip is the same for any budget, so the best one is that of the centralised method with floats.
    let plan = Plan {
        family: s.family,
        budget: None,
        block: None,
        wire: Wire::Float(Width::F32),
        randomness: b.randomness.clone(),
        goal: s.goal,
    };
    let budget = s.budget.unwrap_or_else(|| plan.automatic_budget(&curvature, accelerated));
    let sketch = AnySketch::new(s.family, b.randomness, b.dim, budget).map_err(|error| error.to_string())?;
    let m = budget as f64;
    let (step, damping) = match accelerated {
        false => (1.5 * m / (c.trace + (m + 1.0) * c.smoothness), 1.0),
        true => {
            let pair = accelerate(&Spectrum::fitted(&curvature), c.smoothness, m / CAUTION);
            (pair.step, pair.damping)
        }
    };
    let mean = GossipMean::new(averaging.clone(), sketch);
    let method = GossipCore::new(b.start(), mean, given.unwrap_or(step), s.damping.unwrap_or(damping));
    Ok(boxed(method.corrected()))
}
