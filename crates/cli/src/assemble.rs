//! From a job to a problem, a seed and a method on every machine.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use corewire_data::{DataSet, ReadOptions};
use corewire_optim::decentral::{self, Averaging, Wanted};
use corewire_optim::estimator::{Form, Quantiser, Width};
use corewire_optim::method::core::{Core, Flavour, Goal, Plan, StepRule, Wire};
use corewire_optim::method::field::Known;
use corewire_optim::method::gradient::Batch;
use corewire_optim::method::nonconvex::{Landscape, Rule};
use corewire_optim::method::{Method, field};
use corewire_optim::objective::Objective;
use corewire_optim::optimum;
use corewire_optim::problem::{Model, Problem};
use corewire_sketch::{CommonRandomness, Family, Seed};

use crate::job::{Job, ProblemSpec};

/// The seed of a job: a secret one from a file, or a reproducible one from an integer.
pub fn seed(job: &Job) -> Result<Seed> {
    match &job.method.seed_file {
        None => Ok(Seed::reproducible(job.method.seed)),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| {
                format!("cannot read `method.seed_file` {}; `corewire seed FILE` makes one", path.display())
            })?;
            Seed::parse(&text).with_context(|| format!("in {}", path.display()))
        }
    }
}

/// The rows of a job, labelled for its model.
pub fn data_set(spec: &ProblemSpec) -> Result<DataSet> {
    let set = match spec.data.as_str() {
        "digits" => corewire_data::digits(),
        path => {
            let path = Path::new(path);
            if !path.exists() {
                bail!(
                    "there is no data set `{}`: `problem.data` is `digits`, `power-law` or the path of a LIBSVM, IDX or CSV file; \
                     `corewire data list` shows what can be fetched",
                    spec.data
                );
            }
            corewire_data::load(path, &ReadOptions::default())?
        }
    };
    let set = match spec.rows {
        Some(rows) => set.first_rows(rows),
        None => set,
    };
    label(set, spec, None)
}

/// The rows of a job as they are in the file.
pub fn raw_data_set(data: &str, dim: Option<usize>) -> Result<DataSet> {
    match data {
        "digits" => Ok(corewire_data::digits()),
        path => Ok(corewire_data::load(Path::new(path), &ReadOptions { dim, ..ReadOptions::default() })?),
    }
}

/// Gives rows the labels that a model wants, unit norm and a bias column.
pub fn label(set: DataSet, spec: &ProblemSpec, classes: Option<&[f64]>) -> Result<DataSet> {
    let set = match spec.model.as_str() {
        "softmax" | "two-layer" => {
            let own = set.classes();
            let labels = set.class_indices(classes.unwrap_or(&own))?.into_iter().map(|class| class as f64).collect();
            DataSet::new(set.name.clone(), set.matrix, labels)
        }
        _ => match (&spec.classes, set.classes().len()) {
            (Some([negative, positive]), _) => set.select_classes(negative, positive)?,
            (None, 2) => set.binary()?,
            (None, count) if spec.model == "ridge" && count > 20 => set,
            (None, 10) => set.parity()?,
            (None, count) => bail!(
                "{} has {count} classes and `{}` needs two sides: set `problem.classes`, for example [[1], [2]]",
                set.name,
                spec.model
            ),
        },
    };
    let set = if spec.normalise { set.unit_norm() } else { set };
    Ok(if spec.bias { set.with_bias() } else { set })
}

/// The problem of a job.
pub fn problem(job: &Job, randomness: &CommonRandomness) -> Result<Problem> {
    let spec = &job.problem;
    if spec.data == "power-law" {
        return Ok(Problem::power_law(spec.dim, spec.decay, spec.alpha, job.machines, randomness));
    }
    let set = data_set(spec)?;
    let model = match spec.model.as_str() {
        "ridge" => Model::Ridge,
        "logistic" => Model::Logistic,
        "softmax" => Model::Softmax,
        "logistic-nonconvex" => Model::LogisticNonconvex { lambda: spec.nonconvex },
        "two-layer" => Model::TwoLayer { hidden: spec.hidden },
        other => bail!("`problem.model` {other} cannot be fitted to rows"),
    };
    Ok(Problem::rows(set, model, spec.alpha, spec.l1, job.machines, spec.split, randomness))
}

/// f*, from the cache where this problem was solved before; `None` where no solver is trusted with it.
pub fn optimum(job: &Job, problem: &Problem) -> Result<Option<f64>> {
    if let Some(known) = problem.known_optimum() {
        return Ok(Some(known));
    }
    let mut pooled = problem.pooled();
    if !pooled.is_convex() || pooled.strong_convexity() == 0.0 {
        return Ok(None);
    }
    let file = cache_folder().map(|folder| folder.join(fingerprint(job, &mut *pooled)));
    if let Some(text) = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok())
        && let Ok(bits) = u64::from_str_radix(text.trim(), 16)
    {
        return Ok(Some(f64::from_bits(bits)));
    }
    let value = if pooled.l1() > 0.0 {
        let smoothness = field::local_smoothness(&mut *pooled, problem.start());
        optimum::minimise_l1(&mut *pooled, problem.start(), 1.05 * smoothness).1
    } else {
        optimum::minimise(&mut *pooled, problem.start()).1
    };
    if let Some(file) = file {
        // A cache that cannot be written costs only the next run's time.
        let _ = std::fs::create_dir_all(file.parent().unwrap_or(Path::new("")));
        let _ = std::fs::write(file, format!("{:016x}\n", value.to_bits()));
    }
    Ok(Some(value))
}

/// Where optima and fetched data sets are kept.
pub fn cache_folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    cache.map(|cache| cache.join("corewire"))
}

/// A name for the problem in the cache: its numbers, seen through a few values and gradients, and its parameters.
fn fingerprint(job: &Job, pooled: &mut dyn Objective) -> String {
    let dim = pooled.dim();
    let mut hasher = blake3::Hasher::new();
    let spec = &job.problem;
    hasher.update(
        format!("{} {} {} {} {} {:?}", spec.model, spec.alpha, spec.l1, dim, pooled.rows(), spec.nonconvex).as_bytes(),
    );
    let mut gradient = vec![0.0; dim];
    for probe in 0..2 {
        let mut words = CommonRandomness::new(&Seed::reproducible(probe)).words(corewire_sketch::Purpose::Start, 0, 0);
        let x: Vec<f64> = (0..dim).map(|_| words.next_unit() - 0.5).collect();
        pooled.gradient(&x, &mut gradient);
        hasher.update(&pooled.value(&x).to_le_bytes());
        gradient.iter().for_each(|g| {
            hasher.update(&g.to_le_bytes());
        });
    }
    format!("optimum-{}", &hasher.finalize().to_hex()[..32])
}

/// The wire of a job, with the defaults that measured best for the method.
pub fn wire(job: &Job, name: &str) -> Result<Wire> {
    let (eta_up, eta_down) = if name == "core-cg" { CG_ETA } else { AGD_ETA };
    let quantiser = |form| Quantiser {
        eta_up: job.method.eta_up.unwrap_or(eta_up),
        eta_down: job.method.eta_down.unwrap_or(eta_down),
        theta: 1.0,
        form,
    };
    match job.method.wire.as_str() {
        "f32" => Ok(Wire::Float(Width::F32)),
        "bf16" => Ok(Wire::Float(Width::Bf16)),
        "q" => Ok(Wire::Quantised(quantiser(Form::Hub))),
        "q-sum" => Ok(Wire::Quantised(quantiser(Form::Sum))),
        other => bail!("`method.wire` = \"{other}\" is for uncompressed methods; `{name}` takes q, q-sum, f32 or bf16"),
    }
}

/// Measured: see docs/core-q.md.
const AGD_ETA: (f64, f64) = (0.2, 0.2);
const CG_ETA: (f64, f64) = (0.01, 0.01);
/// Directions that core-cg remembers on quadratics and elsewhere: measured too.
const CG_MEMORY: (usize, usize) = (5, 3);

/// A fresh method for a machine of this job.
///
/// `known` is asked only for methods other than CORE, which learn what they need from the machines.
pub fn method(
    job: &Job,
    start: &[f64],
    quadratic: bool,
    randomness: &CommonRandomness,
    known: impl FnOnce() -> Known,
) -> Result<Box<dyn Method>> {
    let spec = &job.method;
    let name = spec.name.as_str();
    let fixed: Option<f64> = spec.step.parse().ok();
    let flavour = match name {
        "core-gd" | "core-sgd" => Flavour::Descent {
            step: match (spec.step.as_str(), fixed) {
                (_, Some(step)) => StepRule::Fixed(step),
                ("safe", _) => StepRule::Safe,
                ("theory", _) => StepRule::Theory,
                ("line-search", _) => StepRule::LineSearch,
                ("auto", _) => StepRule::Auto,
                (other, _) => bail!("`method.step` = \"{other}\" does not fit {name}"),
            },
            batch: match (name, spec.batch) {
                ("core-sgd", batch) => Some(Batch { rows: batch.unwrap_or(32), randomness: randomness.clone() }),
                (_, None) => None,
                (_, Some(_)) => bail!("`method.batch` is for core-sgd; {name} uses all rows"),
            },
        },
        "core-agd" => Flavour::Accelerated {
            fixed: match (fixed, spec.damping, spec.step.as_str()) {
                (Some(step), Some(damping), _) => Some((step, damping)),
                (None, None, "auto") => None,
                _ => bail!("core-agd takes `method.step` and `method.damping` as numbers together, or neither"),
            },
        },
        "core-cg" => Flavour::Conjugate {
            memory: spec.memory.unwrap_or(if quadratic { CG_MEMORY.0 } else { CG_MEMORY.1 }),
            number_bytes: if quadratic { 3 } else { 2 },
        },
        "core-nonconvex" => Flavour::Comparing {
            rule: match (spec.step.as_str(), fixed) {
                ("auto", _) => None,
                (_, Some(step)) => Some(Rule::Backtracking(step)),
                (option @ ("option-1" | "option-2" | "theory"), _) => {
                    let number = |key: &str| -> Result<f64> {
                        let text = spec.parameters.get(key).ok_or_else(|| {
                            anyhow!("`method.step` = \"{option}\" needs what it rests on: core-nonconvex:trace=..,smoothness=..,gap=..")
                        })?;
                        text.parse().map_err(|_| anyhow!("`{key}` of core-nonconvex is a number; found `{text}`"))
                    };
                    let landscape = Landscape {
                        trace: number("trace")?,
                        smoothness: number("smoothness")?,
                        hessian_lipschitz: spec.hessian_lipschitz,
                        gap: number("gap")?,
                        budget: spec
                            .budget
                            .ok_or_else(|| anyhow!("`method.step` = \"{option}\" needs `method.budget`"))?
                            as f64,
                        dim: start.len() as f64,
                    };
                    let printed = option == "theory";
                    Some(match option {
                        "option-2" => Rule::OptionII { landscape, printed },
                        _ => Rule::OptionI { landscape, printed },
                    })
                }
                (other, _) => bail!("`method.step` = \"{other}\" does not fit core-nonconvex"),
            },
        },
        _ => return other_method(job, start, randomness, known()),
    };
    if name != "core-nonconvex" {
        known_parameters(&spec.parameters, name)?;
    }
    let plan = Plan {
        family: spec.family.unwrap_or(Family::Hadamard),
        budget: spec.budget,
        block: spec.block.and_then(NonZeroUsize::new),
        wire: wire(job, name)?,
        randomness: randomness.clone(),
        goal: Goal { link: time_link(job), target: if job.stop.target > 0.0 { job.stop.target } else { 1e-6 } },
    };
    Ok(Box::new(Core::new(plan, flavour, start.to_vec(), None)))
}

/// A fresh method for a machine of a job by gossip. Scalars travel as 64 bits with wire f64, and as 32 with any other.
pub fn gossip_method(
    job: &Job,
    start: &[f64],
    averaging: &Averaging,
    known: &Known,
    randomness: &CommonRandomness,
) -> Result<Box<dyn Method>> {
    let spec = &job.method;
    known_parameters(&spec.parameters, &spec.name)?;
    let step = match (spec.step.as_str(), spec.step.parse::<f64>()) {
        ("auto", _) => None,
        (_, Ok(step)) => Some(step),
        (other, _) => bail!("`method.step` = \"{other}\" has no form for gossip: take auto or a number"),
    };
    if spec.block.is_some() || spec.batch.is_some() {
        bail!("`method.block` and `method.batch` have no form for gossip; with `graph.gossip` = \"tree\" they do");
    }
    let wanted = Wanted {
        family: spec.family.unwrap_or(Family::Hadamard),
        budget: spec.budget,
        step,
        damping: spec.damping,
        correct: true,
    };
    Ok(decentral::build(&spec.name, start.to_vec(), averaging, &wanted, known, randomness)?)
}

/// The link whose seconds an automatic choice minimises; `None` where it minimises bytes.
pub fn time_link(job: &Job) -> Option<corewire_comm::Link> {
    match job.method.goal.as_deref() {
        Some("bytes") => None,
        _ => job.link,
    }
}

fn known_parameters(parameters: &BTreeMap<String, String>, name: &str) -> Result<()> {
    match parameters.keys().next() {
        None => Ok(()),
        Some(key) => bail!("{name} has no parameter `{key}`; its settings are keys of [method]"),
    }
}

fn other_method(job: &Job, start: &[f64], randomness: &CommonRandomness, known: Known) -> Result<Box<dyn Method>> {
    let mut parameters = job.method.parameters.clone();
    if job.method.wire == "f64" {
        parameters.entry("wire".to_owned()).or_insert_with(|| "f64".to_owned());
    }
    field::build(&job.method.name, &parameters, start.to_vec(), &known, randomness)
        .map_err(|error| anyhow!("{error}; `corewire methods` lists all methods and their parameters"))
}
