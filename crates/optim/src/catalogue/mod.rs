//! Every method by name: what it is, where it comes from, what can be set, and the way from there to a method. `corewire methods` and the
//! page of methods are made from it.
//!
//! # Layout
//! - `baselines`: the methods of the literature, one row each.
//! - `core_methods`: the CORE methods and those for machines without a centre, likewise.
//! - `builder`: parameters -> channels, codecs, steps. `constants`: L, mu and their kin.

mod baselines;
mod builder;
mod constants;
mod core_methods;

pub use builder::Built;
pub use constants::Constants;

use std::collections::BTreeMap;
use std::sync::Arc;

use builder::{Builder, Values};
use corewire_sketch::{CommonRandomness, Family};

use crate::decentral::Averaging;
use crate::method::baselines::shipped::Shipment;
use crate::method::core::Goal;
use crate::method::descent::{Descent, Schedule, Step};
use crate::method::reduced::Reduced;

/// A parameter of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What holds without it; `auto` is worked out from what is known.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What tuning tries in place of the default, beside the step, k and p, which it looks for along a grid.
    pub tries: &'static [&'static str],
}

const fn parameter(name: &'static str, default: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, default, meaning, tries: &[] }
}

impl Parameter {
    const fn trying(self, tries: &'static [&'static str]) -> Self {
        Self { tries, ..self }
    }
}

const SCALE: Parameter = parameter("scale", "1", "factor on theory's step");
const WIRE: Parameter = parameter("wire", "f32", "how numbers travel that no codec has encoded: f32 or f64");
const BATCH: Parameter = parameter("batch", "0", "rows of a mini-batch per machine; 0 takes all");

/// A method that can be built.
pub struct MethodInfo {
    /// How people choose it.
    pub id: &'static str,
    /// Its name.
    pub title: &'static str,
    /// What it does.
    pub line: &'static str,
    /// Where it comes from.
    pub reference: &'static str,
    /// core, baseline, second-order, quantisation, sparsification, error-feedback, variance-reduced, local, low-rank, sketch or
    /// decentralised.
    pub family: &'static str,
    /// Whether it converges to the optimum, however different the machines are, with its default parameters and full gradients.
    pub exact: bool,
    /// Whether its theory is for convex problems alone.
    pub convex_only: bool,
    /// Whether it needs strong convexity, so that a small l2 term is added where there is none: its step or its momentum has mu in it, it
    /// solves with a Hessian, or the noise of a sketch would walk along flat directions for ever.
    pub strongly_convex: bool,
    /// Whether it takes the proximal step of an l1 term and of bounds.
    pub proximal: bool,
    /// What can be set after the colon.
    pub parameters: &'static [Parameter],
    build: fn(&Builder<'_>) -> Built,
    /// Its form for machines without a centre, if it has one.
    gossip: Option<fn(&Builder<'_>, &Averaging) -> Built>,
}

/// What a row does not say: nothing is claimed, nothing can be set, and without a build of its own it runs by gossip only.
const PLAIN: MethodInfo = MethodInfo {
    id: "",
    title: "",
    line: "",
    reference: "",
    family: "",
    exact: false,
    convex_only: false,
    strongly_convex: false,
    proximal: false,
    parameters: &[],
    build: core_methods::by_gossip_only,
    gossip: None,
};

impl MethodInfo {
    /// Whether it is one of CORE's, which learn what they need from the machines and take the keys of a job's section.
    pub fn is_core(&self) -> bool {
        self.family == "core"
    }

    /// Whether it sends the rows themselves.
    pub fn ships_rows(&self) -> bool {
        self.id == "ship-rows"
    }

    /// Whether it estimates f - f* on its way.
    pub fn estimates_gap(&self) -> bool {
        self.id == "core-newton"
    }

    /// Whether it trains networks: by mini-batches, a rate and descent, or by comparing values.
    pub fn trains(&self) -> bool {
        self.id == "core-sgd"
            || self.compares()
            || (self.has("batch") && !matches!(self.family, "local" | "variance-reduced"))
    }

    /// Whether it passes over all rows in every round, of a network too, and compares values of f.
    pub fn compares(&self) -> bool {
        self.id == "core-nonconvex"
    }

    /// Whether it has a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter.name == name)
    }

    /// Whether it has a step that a grid can tune, or another parameter to be tried.
    pub fn tunes(&self) -> bool {
        self.has("scale") || self.parameters.iter().any(|parameter| !parameter.tries.is_empty())
    }

    /// Whether machines without a centre can run it by gossip.
    pub fn gossips(&self) -> bool {
        self.gossip.is_some()
    }
}

/// All methods: CORE's first.
pub fn methods() -> impl Iterator<Item = &'static MethodInfo> {
    core_methods::CORE.iter().chain(baselines::BASELINES)
}

/// The method of this name, or the nearest one.
pub fn find(id: &str) -> Result<&'static MethodInfo, String> {
    methods().find(|method| method.id == id).ok_or_else(|| {
        let near = nearest(id, methods().map(|method| method.id));
        format!("there is no method `{id}`; the nearest is `{near}`")
    })
}

/// How a CORE method's scalars travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    /// Dithered integers through a hub.
    Q,
    /// Dithered integers, summed by whoever can add.
    QSum,
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    Bf16,
    /// 64-bit floats, for uncompressed methods.
    F64,
}

/// How far a CORE method steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepKind {
    /// The method's own default.
    Auto,
    /// m/(tr + (m + 1) L).
    Safe,
    /// The paper's; Option I as printed for non-convex problems.
    Theory,
    /// Exact along each estimate.
    LineSearch,
    /// Option I for non-convex problems.
    OptionI,
    /// Option II.
    OptionII,
    /// Option II as printed.
    TheoryII,
    /// A number.
    Fixed(f64),
}

/// What machines send when a network is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Their momentum; the step has none of its own.
    Momentum,
    /// Their gradient; the step follows a velocity.
    Gradient,
}

impl Sent {
    /// What it is called; `auto` is what suits the method.
    pub const NAMES: [(&'static str, Option<Sent>); 3] =
        [("auto", None), ("momentum", Some(Sent::Momentum)), ("gradient", Some(Sent::Gradient))];
}

/// How a network is trained, by every method that can: mini-batches, a rate that follows a schedule, momentum and weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// The rate at its largest, as PyTorch counts it: x moves by it times the sum of momenta.
    pub rate: f64,
    /// Rows of a mini-batch per machine.
    pub batch: usize,
    /// The share of the momentum that is kept.
    pub momentum: f64,
    /// What travels; `None` for what suits the method.
    pub sent: Option<Sent>,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The share of all rounds in which the rate rises.
    pub warm_up: f64,
    /// Whether it falls along a cosine afterwards, and does not stay.
    pub cosine: bool,
    /// All rounds.
    pub rounds: u64,
    /// Coordinates for each scalar of core-sgd.
    pub ratio: f64,
}

impl Training {
    /// The rate, times this.
    fn schedule(&self, gain: f64) -> Schedule {
        let warm_up = (self.warm_up * self.rounds as f64).round() as u64;
        Schedule { step: self.rate * gain, warm_up, end: self.cosine.then_some(self.rounds) }
    }

    /// Descent from a start, with this share of a velocity kept. A velocity, and a momentum that travels, are means over rounds: `gain` makes
    /// sums of them, which are 1/(1 - b) times as long.
    fn descent(&self, start: Vec<f64>, kept: f64, gain: f64) -> Descent {
        let step = Step::Scheduled(self.schedule(gain));
        Descent::new(start, step).with_momentum(kept).with_decay(self.weight_decay)
    }
}

/// The keys that CORE methods share.
#[derive(Clone, Debug, PartialEq)]
pub struct MethodSettings {
    /// m; `None` chooses it.
    pub budget: Option<usize>,
    /// The family of directions.
    pub family: Family,
    /// Coordinates of a block.
    pub block: Option<usize>,
    /// How scalars travel.
    pub wire: WireKind,
    /// How far to step.
    pub step: StepKind,
    /// b of the accelerated method, with a fixed step.
    pub damping: Option<f64>,
    /// eta of the way up, with wire q.
    pub eta_up: Option<f64>,
    /// eta of the way down.
    pub eta_down: Option<f64>,
    /// Directions that core-cg remembers.
    pub memory: Option<usize>,
    /// Rows of a mini-batch.
    pub batch: Option<usize>,
    /// Weight of the last velocity in core-sgd.
    pub momentum: Option<f64>,
    /// Lipschitz constant of the Hessian, for the non-convex options.
    pub hessian_lipschitz: f64,
    /// Whether machines may send rows of their curvature, in core-newton.
    pub curvature: bool,
    /// What automatic choices minimise.
    pub goal: Goal,
    /// How a network is trained; `None` for any other model.
    pub training: Option<Training>,
    /// Rounds at most.
    pub rounds: u64,
}

impl Default for MethodSettings {
    fn default() -> Self {
        Self {
            budget: None,
            family: Family::Hadamard,
            block: None,
            wire: WireKind::Q,
            step: StepKind::Auto,
            damping: None,
            eta_up: None,
            eta_down: None,
            memory: None,
            batch: None,
            momentum: None,
            hessian_lipschitz: 1.0,
            curvature: true,
            goal: Goal { link: None, target: 1e-6 },
            training: None,
            rounds: 5000,
        }
    }
}

impl MethodSettings {
    /// A key that is set although this method does not read it, with those that do.
    pub fn unread(&self, method: &MethodInfo) -> Option<(&'static str, &'static [&'static str])> {
        let trained = self.training.is_some();
        let sketching: &[&str] = &["core-agd", "core-cg", "core-gd", "core-sgd", "core-nonconvex"];
        let stepping: &[&str] = &["core-agd", "core-gd", "core-sgd", "core-nonconvex"];
        let keys: [(&str, bool, &[&str]); 9] = [
            ("budget", self.budget.is_some(), sketching),
            ("family", self.family != Self::default().family, sketching),
            ("step", self.step != StepKind::Auto && !trained, stepping),
            ("block", self.block.is_some(), sketching),
            ("damping", self.damping.is_some(), &["core-agd"]),
            ("memory", self.memory.is_some(), &["core-cg"]),
            ("batch", self.batch.is_some() && !trained, &["core-sgd"]),
            ("momentum", self.momentum.is_some() && !trained, &["core-sgd"]),
            ("curvature", !self.curvature, &["core-newton"]),
        ];
        let (key, _, readers) = keys.into_iter().find(|(_, set, readers)| *set && !readers.contains(&method.id))?;
        Some((key, readers))
    }
}

/// What is wanted.
pub struct Request<'a> {
    /// The method.
    pub info: &'static MethodInfo,
    /// What follows the colon.
    pub parameters: &'a BTreeMap<String, String>,
    /// The keys of a CORE method.
    pub settings: &'a MethodSettings,
    /// x0.
    pub start: &'a [f64],
    /// L, mu and their kin; [`Constants::none`] for a CORE method.
    pub constants: &'a Constants,
    /// Whether the Hessian does not depend on x.
    pub quadratic: bool,
    /// The common randomness.
    pub randomness: &'a CommonRandomness,
    /// The rows as they can be sent, for the method that does.
    pub shipment: Option<&'a Arc<dyn Shipment>>,
}

/// Builds one machine's method. Every machine builds its own from the same request; with `averaging` it is the form for gossip.
pub fn build(request: &Request<'_>, averaging: Option<&Averaging>) -> Built {
    let &Request { info, parameters, settings, start, constants, quadratic, randomness, shipment } = request;
    let (id, dim) = (info.id, start.len());
    let (mut parameters, mut settings) = (parameters.clone(), settings.clone());
    // What travels is a parameter of every method that trains networks, so that one can be compared with itself.
    if let Some(training) = &mut settings.training
        && let Some(word) = parameters.remove("send")
    {
        let named = Sent::NAMES.into_iter().find(|(name, _)| *name == word);
        let wanted = || format!("parameter `send` of method `{id}` is `{word}`; it must be momentum, gradient or auto");
        training.sent = named.ok_or_else(wanted)?.1;
    }
    if settings.training.is_some() && !info.compares() && !matches!(settings.step, StepKind::Auto | StepKind::Fixed(_))
    {
        return Err(
            "`method.step` of a network that is trained by mini-batches is its rate: a positive number, or auto"
                .to_owned(),
        );
    }
    let (parameters, settings) = (&parameters, &settings);
    let values = Values::new(info, parameters)?;
    let scale = if info.has("scale") { values.number("scale", 1.0, f64::MIN_POSITIVE, f64::INFINITY)? } else { 1.0 };
    let wire = if info.has("wire") && !parameters.contains_key("wire") && settings.wire == WireKind::F64 {
        "f64"
    } else if info.has("wire") {
        values.choice("wire", &["f32", "f64"])?
    } else {
        "f32"
    };
    let double = wire == "f64";
    let reduced = averaging.is_none() && settings.training.is_none() && info.strongly_convex;
    let constants = &if reduced { constants.with_term(settings.goal.target) } else { constants.clone() };
    let builder = Builder { values, constants, settings, quadratic, start, randomness, shipment, dim, scale, double };
    match averaging {
        _ if settings.training.is_some() && (averaging.is_some() || !info.trains()) => {
            let those: Vec<&str> = methods().filter(|other| other.trains()).map(|other| other.id).collect();
            Err(match averaging {
                None => format!("method `{id}` does not train networks; take one of {}", those.join(", ")),
                Some(_) => "networks are not trained by gossip: leave `graph.gossip` at \"tree\"".to_owned(),
            })
        }
        None if !constants.proximal.is_none() && !info.proximal => {
            let others: Vec<&str> = methods().filter(|other| other.proximal).map(|other| other.id).take(4).collect();
            Err(format!("method `{id}` has no proximal step for {}; take {}", asking(constants), others.join(", ")))
        }
        None if reduced => Ok(Box::new(Reduced::new((info.build)(&builder)?, settings.goal.target))),
        None => (info.build)(&builder),
        Some(_) if !constants.proximal.is_none() => {
            let keys = asking(constants);
            Err(format!(
                "`{id}` by gossip has no proximal step for {keys}: remove it, or set `graph.gossip` = \"tree\""
            ))
        }
        Some(averaging) => {
            let unsuited = || {
                let those: Vec<&str> = methods().filter(|other| other.gossips()).map(|other| other.id).collect();
                format!(
                    "`{id}` has no form for gossip, only {} have; with `graph.gossip` = \"tree\" every method runs",
                    those.join(", ")
                )
            };
            info.gossip.ok_or_else(unsuited)?(&builder, averaging)
        }
    }
}

/// The keys that ask for a proximal step.
fn asking(constants: &Constants) -> &'static str {
    match (constants.proximal.l1 != 0.0, constants.proximal.is_bounded()) {
        (true, false) => "`problem.l1`",
        (false, _) => "`problem.lower` and `problem.upper`",
        (true, true) => "`problem.l1`, `problem.lower` and `problem.upper`",
    }
}

/// The candidate that takes the fewest changes of single characters, a swap of neighbours counting as one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> &'a str {
    // Long words are cut: nobody mistypes a thousand characters.
    let word: Vec<char> = word.chars().take(64).collect();
    candidates.into_iter().min_by_key(|candidate| changes(&word, candidate)).unwrap_or("")
}

fn changes(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<usize>>(), vec![0; b.len() + 1]];
    for i in 0..a.len() {
        let [before, last, row] = &mut rows;
        row[0] = i + 1;
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            row[j + 1] = replaced.min(row[j] + 1).min(last[j + 1] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_parameter_has_a_meaning() {
        let all: Vec<&MethodInfo> = methods().collect();
        for (i, info) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other.id != info.id), "{}", info.id);
            assert!(info.parameters.iter().all(|parameter| !parameter.meaning.is_empty()));
        }
    }

    #[test]
    fn the_nearest_name_counts_changes_and_swaps() {
        let count = |a: &str, b| changes(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!((count("kitten", "sitting"), count("", "abc"), count("ab", "ba")), (3, 3, 1));
        assert_eq!(find("core-adg").err().unwrap(), "there is no method `core-adg`; the nearest is `core-agd`");
    }
}
