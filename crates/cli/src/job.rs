//! The job file: TOML and `--set` overrides become typed values, or an error that names the key and what to do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use corewire_comm::group::MOST_MACHINES;
use corewire_comm::{Deadline, Link};
use corewire_data::shard::Split;
use corewire_data::{ColumnOptions, ColumnRef, Missing, Normalise, ReadOptions};
use corewire_nn::Architecture;
use corewire_optim::catalogue::{MethodInfo, MethodSettings, Sent, StepKind, Training, WireKind, find, nearest};
use corewire_optim::method::core::Goal;
use corewire_optim::problem::Model;
use corewire_optim::proximal::Proximal;
use corewire_optim::run::Gap;
use corewire_sketch::Family;
use toml::{Table, Value};

/// A whole job.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is solved.
    pub problem: ProblemSpec,
    /// How many machines.
    pub machines: usize,
    /// Which engine.
    pub engine: Engine,
    /// By which method.
    pub method: MethodSpec,
    /// Over which link.
    pub link: Option<Link>,
    /// Until when.
    pub stop: StopSpec,
    /// What may be used up on the way.
    pub limits: LimitSpec,
    /// The graph of machines without a centre, if there is one.
    pub graph: Option<GraphSpec>,
    /// The merged table, for the copy that a run keeps.
    pub table: Table,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// All machines in this process.
    Threads,
    /// The processes of an MPI job.
    Mpi,
}

impl Engine {
    const WORDS: [(&'static str, Self); 2] = [("threads", Self::Threads), ("mpi", Self::Mpi)];

    /// The engine of this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, engine)| *engine)
    }
}

/// Where the rows are.
#[derive(Clone, Debug, PartialEq)]
pub enum DataSource {
    /// Bundled.
    Digits,
    /// A quadratic whose eigenvalues fall by a power law.
    PowerLaw,
    /// One file with all rows, shared out over the machines.
    File(PathBuf),
    /// One file per machine, which that machine alone reads: a pattern with `{machine}`, or one path each.
    Sites(Vec<PathBuf>),
}

impl DataSource {
    /// How people call it.
    pub fn name(&self) -> String {
        let file = |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        match self {
            Self::Digits => "digits".to_owned(),
            Self::PowerLaw => "power-law".to_owned(),
            Self::File(path) => file(path),
            Self::Sites(paths) => paths.first().map_or_else(String::new, |first| format!("{} and others", file(first))),
        }
    }

    /// Whether every machine has rows of its own.
    pub fn is_sites(&self) -> bool {
        matches!(self, Self::Sites(_))
    }
}

/// What is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Logistic regression.
    Logistic,
    /// Ridge regression.
    Ridge,
    /// Multinomial logistic regression.
    Softmax,
    /// Logistic regression with a regulariser that is not convex.
    LogisticNonconvex,
    /// A small network.
    TwoLayer,
    /// A synthetic quadratic.
    Quadratic,
    /// A network with one hidden layer.
    Mlp,
    /// A small convolutional network.
    LeNet,
    /// A small residual network.
    SmallResNet,
    /// ResNet-18.
    ResNet18,
}

impl ModelKind {
    const WORDS: [(&'static str, Self); 10] = [
        ("logistic", Self::Logistic),
        ("ridge", Self::Ridge),
        ("softmax", Self::Softmax),
        ("logistic-nonconvex", Self::LogisticNonconvex),
        ("two-layer", Self::TwoLayer),
        ("quadratic", Self::Quadratic),
        ("mlp", Self::Mlp),
        ("lenet", Self::LeNet),
        ("resnet-small", Self::SmallResNet),
        ("resnet18", Self::ResNet18),
    ];

    /// Whether it is trained by mini-batches and rates.
    pub fn is_network(self) -> bool {
        matches!(self, Self::Mlp | Self::LeNet | Self::SmallResNet | Self::ResNet18)
    }

    /// Whether its Hessian is told by rows, as core-newton needs it.
    pub fn is_curved(self) -> bool {
        matches!(self, Self::Ridge | Self::Logistic | Self::Softmax | Self::Quadratic)
    }

    /// Whether it tells all classes apart, and not two sides.
    pub fn has_classes(self) -> bool {
        self.is_network() || matches!(self, Self::Softmax | Self::TwoLayer)
    }

    /// Its word in a job.
    pub fn name(self) -> &'static str {
        Self::WORDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// The two sides of a binary model.
#[derive(Clone, Debug, PartialEq)]
pub enum Classes {
    /// Odd against even.
    Parity,
    /// These against those, by their labels as text.
    Sides([Vec<String>; 2]),
    /// This one against all others.
    Positive(String),
}

/// How much the rows of a class count.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// So much that all classes weigh alike together.
    Balanced,
    /// So much each; 1 where nothing is said.
    Named(BTreeMap<String, f64>),
}

/// Rows that are kept from training.
#[derive(Clone, Debug, PartialEq)]
pub enum TestRows {
    /// A file of them, which machine 0 reads.
    File(PathBuf),
    /// This share of every machine's rows.
    Share(f64),
}

/// `[problem]`.
#[derive(Clone, Debug)]
pub struct ProblemSpec {
    /// Where the rows are.
    pub data: DataSource,
    /// What is fitted.
    pub model: ModelKind,
    /// l2.
    pub alpha: f64,
    /// An l1 term and bounds.
    pub proximal: Proximal,
    /// Weight of the non-convex regulariser.
    pub nonconvex: f64,
    /// Only the first rows.
    pub rows: Option<usize>,
    /// The two sides of a binary model.
    pub classes: Option<Classes>,
    /// Whether ridge fits the sides of a binary label, and not a number.
    pub binary: bool,
    /// How much the rows of a class count.
    pub class_weights: Option<ClassWeights>,
    /// How files are read.
    pub read: ReadOptions,
    /// Coordinates of a synthetic problem.
    pub dim: usize,
    /// Its decay.
    pub decay: f64,
    /// Who gets which rows.
    pub split: Split,
    /// Whether a column of ones is added.
    pub intercept: bool,
    /// How features are scaled.
    pub normalise: Normalise,
    /// Hidden units of a network that has such.
    pub hidden: usize,
    /// Whether pictures are moved about for training.
    pub augment: bool,
    /// A file of tensors from which a network begins.
    pub start: Option<PathBuf>,
    /// Rows held out for a test.
    pub test: Option<TestRows>,
}

impl ProblemSpec {
    /// The model, as the library has it.
    pub fn model(&self) -> Model {
        match self.model {
            ModelKind::Logistic => Model::Logistic,
            ModelKind::Ridge | ModelKind::Quadratic => Model::Ridge,
            ModelKind::Softmax => Model::Softmax,
            ModelKind::LogisticNonconvex => Model::LogisticNonconvex { lambda: self.nonconvex },
            ModelKind::TwoLayer => Model::TwoLayer { hidden: self.hidden },
            kind => {
                let architecture = match kind {
                    ModelKind::LeNet => Architecture::LeNet,
                    ModelKind::SmallResNet => Architecture::SmallResNet,
                    ModelKind::ResNet18 => Architecture::ResNet18,
                    _ => Architecture::Mlp { hidden: self.hidden },
                };
                Model::Network { architecture, augment: self.augment }
            }
        }
    }
}

/// `[method]`.
#[derive(Clone, Debug)]
pub struct MethodSpec {
    /// One of `corewire methods`; `None` for auto.
    pub name: Option<String>,
    /// Parameters after the colon.
    pub parameters: BTreeMap<String, String>,
    /// The keys of CORE methods.
    pub settings: MethodSettings,
    /// An integer seed, for reproducible runs.
    pub seed: u64,
    /// A file with a secret seed.
    pub seed_file: Option<PathBuf>,
}

impl MethodSpec {
    /// Whether every round is a pass over all rows, of a network too.
    fn passes_over_all_rows(&self) -> bool {
        self.name.as_deref().and_then(|name| find(name).ok()).is_some_and(MethodInfo::compares)
    }

    /// Refuses a key that the named method would ignore.
    pub fn refuse_unread(&self) -> Result<()> {
        let Some(info) = self.name.as_deref().and_then(|name| find(name).ok()) else { return Ok(()) };
        match self.settings.unread(info) {
            Some((key, readers)) => {
                bail!("`{}` does not read `method.{key}`: leave it out, or take {}", info.id, readers.join(" or "))
            }
            None => Ok(()),
        }
    }
}

/// `[stop]`.
#[derive(Clone, Debug)]
pub struct StopSpec {
    /// Rounds at most.
    pub rounds: Option<u64>,
    /// Passes over all rows, for networks; rounds once it is known how many they are.
    pub epochs: Option<f64>,
    /// Relative suboptimality; 0 for all rounds, `None` for what the kind of data allows.
    pub target: Option<f64>,
    /// Norm of the gradient.
    pub gradient: Option<f64>,
    /// Norm of the gradient relative to the first.
    pub gradient_relative: Option<f64>,
    /// Estimated f - f*, relative to the first estimate.
    pub gap: Option<f64>,
    /// Estimated f - f*, as it is.
    pub gap_absolute: Option<f64>,
    /// Rounds between evaluations of f over all machines.
    pub evaluate_every: Option<u64>,
    /// Evaluations on held-out rows without a better one.
    pub patience: Option<u64>,
    /// Seconds.
    pub seconds: Option<f64>,
    /// Bytes on the wire.
    pub bytes: Option<u64>,
}

/// What is asked for without a word.
pub const DEFAULT_TARGET: f64 = 1e-6;
/// Seconds that computing f* may take.
const DEFAULT_OPTIMUM_SECONDS: f64 = 30.0;
/// Rounds at most.
pub const DEFAULT_ROUNDS: u64 = 5000;
/// Passes over all rows, for networks.
const DEFAULT_EPOCHS: f64 = 10.0;
/// The rate of networks.
const DEFAULT_RATE: f64 = 0.03;
/// Coordinates of a network for each scalar that travels.
const DEFAULT_RATIO: f64 = 12.0;

impl StopSpec {
    /// The relative suboptimality to reach, where f* is known.
    pub fn target(&self) -> Option<f64> {
        Some(self.target.unwrap_or(DEFAULT_TARGET)).filter(|&target| target > 0.0)
    }

    /// The relative gradient norm to reach: what was asked, or what stands for the target. f - f* falls with its square, and a tenth is
    /// for caution.
    pub fn gradient_relative(&self, has_optimum: bool) -> Option<f64> {
        self.gradient_relative.or(self.unmeasured(has_optimum).map(|target| 0.1 * target.sqrt()))
    }

    /// The gap to reach, by methods that estimate it, likewise: the estimate may be wrong by two and a half.
    pub fn gap(&self, has_optimum: bool) -> Option<Gap> {
        let relative = || self.gap.or(self.unmeasured(has_optimum).map(|target| 0.4 * target)).map(Gap::Relative);
        self.gap_absolute.map(Gap::Absolute).or_else(relative)
    }

    /// The key that only a method that estimates the gap can heed, if it is set.
    pub fn asks_for_gap(&self) -> Option<&'static str> {
        let keys = [("stop.gap", self.gap), ("stop.gap_absolute", self.gap_absolute)];
        keys.into_iter().find_map(|(key, value)| value.map(|_| key))
    }

    /// The target where it cannot be measured, and nothing else was asked for.
    fn unmeasured(&self, has_optimum: bool) -> Option<f64> {
        let keys = [self.gradient, self.gradient_relative, self.gap, self.gap_absolute];
        let asked = keys.iter().any(Option::is_some);
        self.target().filter(|_| !has_optimum && !asked && self.patience.is_none())
    }
}

/// `[limits]`.
#[derive(Clone, Debug)]
pub struct LimitSpec {
    /// How long machines wait for each other; `None` for ever.
    pub wait_seconds: Option<f64>,
    /// Whether a machine that is late by then is told of and waited for, and does not end the run.
    pub waits_on: bool,
    /// Bytes of memory; `None` for a share of what this computer has.
    pub memory: Option<u64>,
    /// Seconds that computing f* may take; `None` for the default.
    pub optimum_seconds: Option<f64>,
}

impl LimitSpec {
    /// How long f* may be computed.
    pub fn optimum_seconds(&self) -> f64 {
        self.optimum_seconds.unwrap_or(DEFAULT_OPTIMUM_SECONDS)
    }

    /// How long machines wait for each other, and what then.
    pub fn deadline(&self) -> Option<Deadline> {
        let tell: fn(&str) = |late| eprintln!("corewire: {late}; waiting on, as `limits.on_late` says");
        let after = std::time::Duration::from_secs_f64(self.wait_seconds?);
        Some(Deadline { after, tell: self.waits_on.then_some(tell) })
    }
}

/// `[graph]`.
#[derive(Clone, Debug)]
pub struct GraphSpec {
    /// ring, path, grid ... or `file`.
    pub shape: String,
    /// Degree of a random regular graph.
    pub degree: usize,
    /// Probability of an Erdos-Renyi edge.
    pub probability: f64,
    /// An edge list.
    pub file: Option<PathBuf>,
    /// How machines come to a common number.
    pub gossip: Gossip,
    /// Iterations of gossip; `None` for what the tolerance needs.
    pub iterations: Option<usize>,
    /// Tolerance of gossip.
    pub tolerance: f64,
}

/// How machines without a centre come to a common number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gossip {
    /// By sums over a spanning tree.
    Tree,
    /// By Chebyshev gossip.
    Chebyshev,
    /// By plain gossip.
    Plain,
}

impl GraphSpec {
    /// Whether machines gossip, and do not sum over a tree.
    pub fn gossips(&self) -> bool {
        self.gossip != Gossip::Tree
    }
}

impl Job {
    /// Settles the method and its parameters, written as in [`parse_method`], also in the copy that a run keeps.
    pub fn choose_method(&mut self, name: &str) {
        let (own, parameters) = parse_method(name).expect("a method that is chosen is well-formed");
        (self.method.name, self.method.parameters) = (Some(own), parameters);
        let section = self.table.entry("method").or_insert_with(|| Value::Table(Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.insert("name".to_owned(), Value::String(name.to_owned()));
        }
    }

    /// Settles how many rounds the passes over so many rows are, also in the copy that a run keeps, and how often f is looked at.
    pub fn settle_epochs(&mut self, rows: usize) {
        let Some(training) = &self.method.settings.training else { return };
        let per_epoch = match self.method.passes_over_all_rows() {
            true => 1.0,
            false => (rows / (self.machines * training.batch).max(1)).max(1) as f64,
        };
        let epochs = self.stop.epochs.take().unwrap_or(DEFAULT_EPOCHS);
        let rounds = self.stop.rounds.unwrap_or((epochs * per_epoch).ceil() as u64);
        self.stop.evaluate_every.get_or_insert(per_epoch as u64);
        self.train_for(rounds);
    }

    /// Trains for so many rounds, also in the copy that a run keeps.
    pub fn train_for(&mut self, rounds: u64) {
        let Some(training) = &mut self.method.settings.training else { return };
        training.rounds = rounds;
        self.stop.rounds = Some(rounds);
        self.method.settings.rounds = rounds;
        let section = self.table.entry("stop").or_insert_with(|| Value::Table(Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.remove("epochs");
            section.insert("rounds".to_owned(), Value::Integer(rounds as i64));
        }
    }

    /// Changes the penalty, also in the copy that a run keeps.
    pub fn set_alpha(&mut self, alpha: f64) {
        self.problem.alpha = alpha;
        let section = self.table.entry("problem").or_insert_with(|| Value::Table(Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.insert("alpha".to_owned(), Value::Float(alpha));
        }
    }

    /// The job as text for a file in this folder: its paths are meant from there, so that it tells nothing of where else things lie.
    pub fn portable(&self, folder: &Path) -> String {
        let mut table = self.table.clone();
        for (section, keys) in PATHS {
            let Some(section) = table.get_mut(section).and_then(Value::as_table_mut) else { continue };
            for value in keys.iter().filter_map(|key| Some((*key, section.get(*key)?.clone()))).collect::<Vec<_>>() {
                section.insert(value.0.to_owned(), map_paths(&value.1, &|path| relative(folder, path)));
            }
        }
        table.to_string()
    }

    /// What all machines must share, as text: the job without paths, engine and limits.
    pub fn common(&self) -> String {
        let mut table = self.table.clone();
        table.remove("limits");
        for (section, keys) in PATHS.into_iter().chain([("machines", &["engine"][..])]) {
            if let Some(section) = table.get_mut(section).and_then(Value::as_table_mut) {
                keys.iter().for_each(|key| {
                    section.remove(*key);
                });
            }
        }
        table.to_string()
    }
}

/// The keys that hold paths, or lists of paths.
const PATHS: [(&str, &[&str]); 4] = [
    ("problem", &["data", "test", "start"]),
    ("machines", &["data"]),
    ("method", &["seed_file"]),
    ("graph", &["file"]),
];

/// A path, or a list of paths, with every absolute one changed.
fn map_paths(value: &Value, change: &impl Fn(&Path) -> PathBuf) -> Value {
    match value {
        Value::String(text) if Path::new(text).is_absolute() => {
            Value::String(change(Path::new(text)).to_string_lossy().into_owned())
        }
        Value::Array(paths) => Value::Array(paths.iter().map(|path| map_paths(path, change)).collect()),
        other => other.clone(),
    }
}

/// The way from a folder to a path, both without links; where there is none the path stays as it is.
fn relative(folder: &Path, path: &Path) -> PathBuf {
    let (Some(folder), Some(target)) = (without_links(folder), without_links(path)) else { return path.to_owned() };
    let common = folder.components().zip(target.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(common).map(|_| std::path::Component::ParentDir);
    up.chain(target.components().skip(common)).collect()
}

/// A path whose folders, as far as they exist, are the true ones.
fn without_links(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let existing = path.ancestors().find_map(|folder| Some((folder, folder.canonicalize().ok()?)))?;
    Some(existing.1.join(path.strip_prefix(existing.0).ok()?))
}

/// A text in it is no longer than the longest path.
const MOST_TEXT: usize = 4096;
/// A job file is no longer than this; a list of 16,384 paths is two megabytes.
const MOST_BYTES: u64 = 16 << 20;

/// Reads a job file, if there is one, and applies the overrides.
pub fn load(path: Option<&Path>, overrides: &[String]) -> Result<Job> {
    let mut table = match path {
        None => Table::new(),
        Some(path) => {
            let unread = || format!("cannot read the job file {}", path.display());
            let about = std::fs::metadata(path).with_context(unread)?;
            if !about.is_file() || about.len() > MOST_BYTES {
                bail!("{}: a job is a plain file of at most {MOST_BYTES} bytes", unread());
            }
            let text = std::fs::read_to_string(path).with_context(unread)?;
            parse(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    // Relative paths in a job file are meant from where it lies, those of `--set` from where the user is.
    let base = path.and_then(Path::parent);
    for assignment in overrides {
        let (section, key) = set(&mut table, assignment)?;
        if base.is_some() && PATHS.iter().any(|(name, keys)| *name == section && keys.contains(&key)) {
            make_whole(&mut table, section, key, None);
        }
    }
    from_table(table, base)
}

/// A job from the text that a run kept in this folder.
pub fn from_text(text: &str, folder: &Path, overrides: &[String]) -> Result<Job> {
    let mut table = parse(text)?;
    for assignment in overrides {
        set(&mut table, assignment)?;
    }
    from_table(table, Some(folder))
}

/// Parses the text of a job file.
pub fn parse(text: &str) -> Result<Table> {
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        anyhow!("line {line}: {}", error.message().replace('\n', " "))
    })
}

/// Puts SECTION.KEY=VALUE into a table, and says where.
fn set<'a>(table: &mut Table, assignment: &'a str) -> Result<(&'a str, &'a str)> {
    let usage = "`--set` takes SECTION.KEY=VALUE, for example `--set method.budget=64`";
    let (key, value) = assignment.split_once('=').ok_or_else(|| anyhow!("{usage}; found `{assignment}`"))?;
    let (section, key) = key.trim().split_once('.').ok_or_else(|| anyhow!("{usage}; found `{assignment}`"))?;
    let value = value.trim();
    // A value that is no TOML is a bare word.
    let parsed = format!("value = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    let parsed = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    let content = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    let content = content.as_table_mut().ok_or_else(|| anyhow!("{usage}; found `{assignment}`"))?;
    content.insert(key.to_owned(), parsed);
    Ok((section, key))
}

/// A table that remembers which keys were asked for: what is left over is unknown.
struct Reader<'a> {
    table: &'a Table,
    asked: RefCell<Vec<String>>,
}

impl<'a> Reader<'a> {
    fn new(table: &'a Table) -> Self {
        Self { table, asked: RefCell::default() }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.asked.borrow_mut().push(key.to_owned());
        let (section, name) = key.split_once('.').expect("keys have a section");
        self.table.get(section)?.as_table()?.get(name)
    }

    fn string(&self, key: &str, default: &str) -> Result<String> {
        match self.get(key) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other @ (Value::Integer(_) | Value::Float(_))) => Ok(other.to_string()),
            Some(other) => bail!("`{key}` is a text, for example \"{default}\"; found {other}"),
        }
    }

    fn number(&self, key: &str, allowed: impl Fn(f64) -> bool, meaning: &str) -> Result<Option<f64>> {
        let value = match self.get(key) {
            None => return Ok(None),
            Some(Value::Float(value)) => *value,
            Some(Value::Integer(value)) => *value as f64,
            Some(Value::String(text)) if text == "auto" => return Ok(None),
            Some(Value::String(text)) => text.parse().map_err(|_| anyhow!("`{key}` is {meaning}; found \"{text}\""))?,
            Some(other) => bail!("`{key}` is {meaning}; found {other}"),
        };
        if !value.is_finite() || !allowed(value) {
            bail!("`{key}` is {meaning}; found {value}");
        }
        Ok(Some(value))
    }

    fn count(&self, key: &str, least: u64) -> Result<Option<u64>> {
        let meaning = format!("a whole number of at least {least}");
        let value =
            self.number(key, |value| value.fract() == 0.0 && value >= least as f64 && value < 9e15, &meaning)?;
        Ok(value.map(|value| value as u64))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Boolean(flag)) => Ok(*flag),
            Some(other) => bail!("`{key}` is true or false; found {other}"),
        }
    }

    fn choice(&self, key: &str, choices: &[&str]) -> Result<String> {
        let found = self.string(key, choices[0])?;
        if choices.contains(&found.as_str()) {
            return Ok(found);
        }
        let nearest = nearest(&found, choices.iter().copied());
        bail!("`{key}` is one of {}; found \"{found}\", did you mean \"{nearest}\"?", choices.join(", "))
    }

    /// One of a list of words with their meanings; the first is the default.
    fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<T> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let found = self.choice(key, &names)?;
        Ok(words.iter().find(|(name, _)| *name == found).expect("a choice is one of the words").1)
    }

    fn path(&self, key: &str, base: Option<&Path>) -> Result<Option<PathBuf>> {
        let text = self.string(key, "")?;
        Ok((!text.is_empty()).then(|| from_base(base, &text)))
    }

    /// Refuses keys that nobody asked for.
    fn finish(&self) -> Result<()> {
        let asked = self.asked.borrow();
        for (section, content) in self.table {
            let Some(content) = content.as_table() else {
                let keys = asked.iter().filter(|key| key.ends_with(&format!(".{section}")));
                let hint = keys.map(|key| format!("; did you mean `{key}`?")).next().unwrap_or_default();
                bail!("`{section}` is outside any section{hint}");
            };
            let known = asked.iter().any(|key| key.split('.').next() == Some(section));
            for name in content.keys().map(String::as_str).chain(content.is_empty().then_some("")) {
                let key = format!("{section}.{name}");
                if known && (name.is_empty() || asked.contains(&key)) {
                    continue;
                }
                let nearest = nearest(&key, asked.iter().map(String::as_str));
                let key: String = key.chars().take(60).collect();
                bail!("unknown key `{key}`; the nearest known one is `{nearest}`");
            }
        }
        Ok(())
    }
}

/// A path of a job file, meant from where the file lies; `~` is the home folder.
fn from_base(base: Option<&Path>, text: &str) -> PathBuf {
    match base {
        Some(base) if Path::new(text).is_relative() => base.join(text),
        _ => PathBuf::from(text),
    }
}

/// A job from its table; relative paths are meant from `base`.
pub fn from_table(mut table: Table, base: Option<&Path>) -> Result<Job> {
    for (section, content) in &table {
        let mut texts =
            content.as_table().into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)));
        if let Some((key, text)) = texts.find(|(_, text)| text.len() > MOST_TEXT) {
            let key: String = format!("{section}.{key}").chars().take(60).collect();
            bail!("`{key}` has {} bytes; no value is longer than {MOST_TEXT}", text.len());
        }
    }
    let job = read_table(&Reader::new(&table), base)?;
    // The copy that a run keeps lies elsewhere, and must still find its files.
    for (section, keys) in PATHS {
        keys.iter().for_each(|key| make_whole(&mut table, section, key, base));
    }
    Ok(Job { table, ..job })
}

/// Makes the path or paths of a key whole; relative ones are meant from `base`, or from where the user is.
fn make_whole(table: &mut Table, section: &str, key: &str, base: Option<&Path>) {
    let whole = |text: &str| {
        let path = from_base(base, text);
        Value::String(std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned())
    };
    let is_path = |text: &str| !matches!(text, "" | "digits" | "power-law");
    match table.get_mut(section).and_then(Value::as_table_mut).and_then(|section| section.get_mut(key)) {
        Some(Value::Array(paths)) => {
            paths.iter_mut().for_each(|path| *path = path.as_str().map_or(path.clone(), whole));
        }
        Some(value) => *value = value.as_str().filter(|text| is_path(text)).map_or(value.clone(), whole),
        None => {}
    }
}

/// Where the rows are: a name, a path, a pattern or a list of paths.
fn read_data(reader: &Reader<'_>, base: Option<&Path>, machines: Option<usize>) -> Result<(DataSource, usize)> {
    let data = reader.get("problem.data").cloned();
    let value = match (data, reader.get("machines.data").cloned()) {
        (data, None) => data,
        (None, sites) => sites,
        (Some(_), Some(_)) => bail!("`problem.data` and `machines.data` both say where the rows are; keep one"),
    };
    let count = machines.unwrap_or(50);
    match value {
        None => Ok((DataSource::Digits, count)),
        Some(Value::String(text)) => Ok(match text.as_str() {
            "digits" => (DataSource::Digits, count),
            "power-law" => (DataSource::PowerLaw, count),
            pattern if pattern.contains("{machine}") => {
                let Some(count) = machines else {
                    bail!("`problem.data` has a file for each machine: say how many with `machines.count`");
                };
                let path = |rank: usize| from_base(base, &pattern.replace("{machine}", &rank.to_string()));
                (DataSource::Sites((0..count).map(path).collect()), count)
            }
            path => (DataSource::File(from_base(base, path)), count),
        }),
        Some(Value::Array(paths)) if !paths.is_empty() => {
            let path = |value: &Value| match value {
                Value::String(text) => Ok(from_base(base, text)),
                other => Err(anyhow!("a list in `problem.data` has one path for each machine; found {other}")),
            };
            let paths: Vec<PathBuf> = paths.iter().map(path).collect::<Result<_>>()?;
            if machines.is_some_and(|machines| machines != paths.len()) {
                bail!("`problem.data` lists {} files and `machines.count` is {count}", paths.len());
            }
            let count = paths.len();
            Ok((DataSource::Sites(paths), count))
        }
        Some(other) => {
            bail!("`problem.data` is a name, a path, a pattern with {{machine}} or a list of paths; found {other}")
        }
    }
}

fn read_proximal(reader: &Reader<'_>, model: ModelKind) -> Result<Proximal> {
    let l1 = reader.number("problem.l1", |x| x >= 0.0, "a number, 0 or more")?.unwrap_or(0.0);
    let bound = |key, none| Ok::<f64, anyhow::Error>(reader.number(key, |_| true, "a number")?.unwrap_or(none));
    let lower = bound("problem.lower", Proximal::NONE.lower)?;
    let upper = bound("problem.upper", Proximal::NONE.upper)?;
    if lower > upper {
        bail!("`problem.lower` is {lower}, above `problem.upper`, which is {upper}: no coefficient lies between them");
    }
    let proximal = Proximal { l1, lower, upper };
    let without = model.is_network() || matches!(model, ModelKind::TwoLayer | ModelKind::Quadratic);
    if !proximal.is_none() && without {
        bail!(
            "`{}` has neither an l1 term nor bounds: remove `problem.l1`, `problem.lower` and `problem.upper`",
            model.name()
        );
    }
    Ok(proximal)
}

fn read_problem(reader: &Reader<'_>, base: Option<&Path>, data: DataSource) -> Result<ProblemSpec> {
    let not_negative = |value: f64| value >= 0.0;
    let models: Vec<(&str, ModelKind)> = match data {
        DataSource::PowerLaw => vec![("quadratic", ModelKind::Quadratic)],
        _ => ModelKind::WORDS.iter().copied().filter(|(_, kind)| *kind != ModelKind::Quadratic).collect(),
    };
    let model = reader.word("problem.model", &models)?;
    let tasks: &[(&str, bool)] = match model {
        ModelKind::Ridge | ModelKind::Quadratic => &[("regression", false), ("binary", true)],
        ModelKind::Logistic | ModelKind::LogisticNonconvex => &[("binary", true)],
        _ => &[("multiclass", false)],
    };
    let task = reader.word("problem.task", tasks)?;
    let positive = reader.get("problem.positive").map(|value| class_name(value, "problem.positive")).transpose()?;
    let classes = match (reader.get("problem.classes"), positive) {
        (None, None) => None,
        (None, Some(positive)) => Some(Classes::Positive(positive)),
        (Some(_), Some(_)) => bail!("`problem.classes` and `problem.positive` both name the sides; keep one"),
        (Some(Value::String(word)), _) if word == "parity" => Some(Classes::Parity),
        (Some(value), _) => Some(Classes::Sides(read_classes(value)?)),
    };
    if classes.is_some() && model.has_classes() {
        bail!(
            "`problem.classes` and `problem.positive` name two sides; `{}` takes all classes as they are",
            model.name()
        );
    }
    // The bundled digits have ten classes, and binary models of them tell odd from even.
    let bundled = matches!(data, DataSource::Digits | DataSource::PowerLaw);
    let sided = !model.has_classes();
    let classes = classes.or((data == DataSource::Digits && sided).then_some(Classes::Parity));
    let words = [
        ("standard", Normalise::Standard),
        ("channels", Normalise::Channels),
        ("unit", Normalise::Unit),
        ("none", Normalise::None),
    ];
    let normalise = match reader.get("problem.normalise") {
        None if model.is_network() => Normalise::Channels,
        None if bundled => Normalise::Unit,
        _ => reader.word("problem.normalise", &words)?,
    };
    let binary = task || classes.is_some();
    let class_weights = read_class_weights(reader)?;
    if class_weights.is_some() && sided && !binary {
        bail!("`problem.class_weights` is for classes, and this is a regression; `problem.weights` names a column");
    }
    let read = read_columns(reader)?;
    let layered = model.is_network() || model == ModelKind::TwoLayer;
    if layered && (class_weights.is_some() || read.columns.weights.is_some()) {
        bail!("`{}` takes all rows alike: remove `problem.weights` and `problem.class_weights`", model.name());
    }
    let start = reader.path("problem.start", base)?;
    let augment = reader.flag("problem.augment", false)?;
    if !model.is_network() && (start.is_some() || augment) {
        bail!("`problem.start` and `problem.augment` are for networks: mlp, lenet, resnet-small or resnet18");
    }
    let (l2, intercept) = match model.is_network() {
        // Networks have biases of their own, and `method.weight_decay`.
        true => (0.0, false),
        false => (1e-3, !bundled),
    };
    if let Some(Value::Array(_)) = reader.get("problem.alpha") {
        bail!("`problem.alpha` is one number; `corewire path --alphas 1,0.1,0.01` tries several and chooses");
    }
    Ok(ProblemSpec {
        binary,
        class_weights,
        read,
        classes,
        model,
        alpha: reader.number("problem.alpha", not_negative, "a number, 0 or more")?.unwrap_or(l2),
        proximal: read_proximal(reader, model)?,
        nonconvex: reader.number("problem.nonconvex", not_negative, "a number, 0 or more")?.unwrap_or(0.1),
        rows: reader.count("problem.rows", 1)?.map(|rows| rows as usize),
        dim: reader.count("problem.dim", 1)?.unwrap_or(10_000) as usize,
        decay: reader.number("problem.decay", not_negative, "a number, 0 or more")?.unwrap_or(1.5),
        split: reader
            .string("problem.split", "random")?
            .parse::<Split>()
            .map_err(|error| anyhow!("`problem.split`: {error}"))?,
        intercept: reader.flag("problem.intercept", intercept)?,
        normalise,
        hidden: reader.count("problem.hidden", 1)?.unwrap_or(if layered && model == ModelKind::Mlp { 32 } else { 16 })
            as usize,
        augment,
        start,
        test: match reader.get("problem.test") {
            None => None,
            Some(Value::String(path)) if path.is_empty() => None,
            Some(Value::String(path)) => Some(TestRows::File(from_base(base, path))),
            Some(_) => {
                let meaning = "a path, or a share of the rows between 0 and 1, as in 0.25";
                reader.number("problem.test", |share| share > 0.0 && share < 1.0, meaning)?.map(TestRows::Share)
            }
        },
        data,
    })
}

/// The keys that only mini-batches of a network heed.
const TRAINING_KEYS: [&str; 5] =
    ["method.ratio", "method.send", "method.weight_decay", "method.schedule", "method.warm_up"];

/// How a network is trained; the same keys are refused for any other model.
fn read_training(reader: &Reader<'_>, model: ModelKind, step: StepKind, stop: &StopSpec) -> Result<Option<Training>> {
    let share = |value: f64| (0.0..1.0).contains(&value);
    let set = TRAINING_KEYS.iter().chain(&["stop.epochs"]).find(|key| reader.get(key).is_some());
    let rate = match step {
        StepKind::Fixed(step) => step,
        _ => DEFAULT_RATE,
    };
    let training = Training {
        rate,
        batch: reader.count("method.batch", 1)?.unwrap_or(32) as usize,
        momentum: reader.number("method.momentum", share, "a number from 0 to below 1")?.unwrap_or(0.9),
        sent: reader.word("method.send", &Sent::NAMES)?,
        weight_decay: reader
            .number("method.weight_decay", |value| value >= 0.0, "a number, 0 or more")?
            .unwrap_or(5e-4),
        warm_up: reader.number("method.warm_up", share, "a share of the rounds, from 0 to below 1")?.unwrap_or(0.15),
        cosine: reader.word("method.schedule", &[("cosine", true), ("constant", false)])?,
        rounds: stop.rounds.unwrap_or(DEFAULT_ROUNDS),
        ratio: reader.number("method.ratio", |value| value >= 1.0, "a number of at least 1")?.unwrap_or(DEFAULT_RATIO),
    };
    match set {
        Some(key) if !model.is_network() => {
            bail!(
                "`{key}` is for networks: set `problem.model` to mlp, lenet, resnet-small or resnet18, or leave it out"
            )
        }
        _ => Ok(model.is_network().then_some(training)),
    }
}

fn read_method(
    reader: &Reader<'_>,
    base: Option<&Path>,
    link: Option<Link>,
    stop: &StopSpec,
    model: ModelKind,
) -> Result<MethodSpec> {
    let positive = |value: f64| value > 0.0;
    let count = |key: &str| -> Result<Option<usize>> { Ok(reader.count(key, 1)?.map(|count| count as usize)) };
    let (name, parameters) = parse_method(&reader.string("method.name", "auto")?)?;
    if name == "auto" && !parameters.is_empty() {
        bail!(
            "`method.name` is `auto` with parameters: they belong to one method, so name it, as in `core-newton:detail=10`"
        );
    }
    let steps = [
        ("auto", StepKind::Auto),
        ("safe", StepKind::Safe),
        ("theory", StepKind::Theory),
        ("line-search", StepKind::LineSearch),
        ("option-1", StepKind::OptionI),
        ("option-2", StepKind::OptionII),
        ("theory-2", StepKind::TheoryII),
    ];
    let step = reader.string("method.step", "auto")?;
    let step = match (steps.iter().find(|(word, _)| *word == step), step.parse::<f64>()) {
        (Some((_, kind)), _) => *kind,
        (None, Ok(step)) if step.is_finite() && step > 0.0 => StepKind::Fixed(step),
        _ => {
            let words: Vec<&str> = steps.iter().map(|(word, _)| *word).collect();
            bail!("`method.step` is {}, or a positive number; found \"{step}\"", words.join(", "));
        }
    };
    let wires = [
        ("q", WireKind::Q),
        ("q-sum", WireKind::QSum),
        ("f32", WireKind::F32),
        ("bf16", WireKind::Bf16),
        ("f64", WireKind::F64),
    ];
    let by_bytes = reader.choice("method.goal", &["auto", "bytes", "time"])? == "bytes";
    let settings = MethodSettings {
        budget: count("method.budget")?,
        family: match reader.string("method.family", "auto")?.as_str() {
            "auto" => Family::Hadamard,
            other => other.parse::<Family>().map_err(|error| anyhow!("`method.family`: {error}"))?,
        },
        block: count("method.block")?,
        wire: reader.word("method.wire", &wires)?,
        step,
        damping: reader.number("method.damping", |b| b > 0.0 && b <= 1.0, "a number above 0 and at most 1")?,
        eta_up: reader.number("method.eta_up", positive, "a positive number")?,
        eta_down: reader.number("method.eta_down", positive, "a positive number")?,
        memory: count("method.memory")?,
        batch: count("method.batch")?,
        momentum: reader.number("method.momentum", |b| (0.0..1.0).contains(&b), "a number from 0 to below 1")?,
        hessian_lipschitz: reader.number("method.hessian_lipschitz", positive, "a positive number")?.unwrap_or(1.0),
        curvature: reader.flag("method.curvature", true)?,
        goal: Goal { link: link.filter(|_| !by_bytes), target: stop.target().unwrap_or(DEFAULT_TARGET) },
        training: read_training(reader, model, step, stop)?,
        rounds: stop.rounds.unwrap_or(DEFAULT_ROUNDS),
    };
    Ok(MethodSpec {
        name: (name != "auto").then_some(name),
        parameters,
        settings,
        seed: reader.count("method.seed", 0)?.unwrap_or(0),
        seed_file: reader.path("method.seed_file", base)?,
    })
}

fn read_link(reader: &Reader<'_>) -> Result<Option<Link>> {
    let mbit_s = reader.number("link.mbit_s", |value| value > 0.0, "a positive number")?;
    let rtt_ms = reader.number("link.rtt_ms", |value| value >= 0.0, "a number, 0 or more")?;
    let overhead = reader.number("link.overhead_bytes", |value| value >= 0.0, "a number, 0 or more")?;
    Ok((mbit_s.is_some() || rtt_ms.is_some() || overhead.is_some()).then(|| Link {
        mbit_s: mbit_s.unwrap_or(100.0),
        rtt_ms: rtt_ms.unwrap_or(0.0),
        overhead_bytes: overhead.unwrap_or(66.0),
    }))
}

fn read_graph(reader: &Reader<'_>, base: Option<&Path>) -> Result<Option<GraphSpec>> {
    let shapes =
        ["none", "ring", "path", "grid", "torus", "star", "complete", "hypercube", "regular", "erdos-renyi", "file"];
    let shape = reader.choice("graph.shape", &shapes)?;
    let gossip = [("tree", Gossip::Tree), ("chebyshev", Gossip::Chebyshev), ("plain", Gossip::Plain)];
    let spec = GraphSpec {
        degree: reader.count("graph.degree", 1)?.unwrap_or(4) as usize,
        probability: reader
            .number("graph.probability", |p| p > 0.0 && p <= 1.0, "a number above 0 and at most 1")?
            .unwrap_or(0.2),
        file: reader.path("graph.file", base)?,
        gossip: reader.word("graph.gossip", &gossip)?,
        iterations: reader.count("graph.iterations", 1)?.map(|count| count as usize),
        tolerance: reader
            .number("graph.tolerance", |t| t > 0.0 && t < 1.0, "a number between 0 and 1")?
            .unwrap_or(1e-8),
        shape,
    };
    Ok((spec.shape != "none").then_some(spec))
}

fn read_table(reader: &Reader<'_>, base: Option<&Path>) -> Result<Job> {
    let positive = |value: f64| value > 0.0;
    let machines = reader.count("machines.count", 1)?.map(|count| count as usize);
    check_machines(machines.unwrap_or(1))?;
    let (data, machines) = read_data(reader, base, machines)?;
    check_machines(machines)?;
    let problem = read_problem(reader, base, data)?;
    let engine = reader.word("machines.engine", &Engine::WORDS)?;
    let stop = StopSpec {
        rounds: reader.count("stop.rounds", 0)?,
        epochs: reader.number("stop.epochs", positive, "a positive number")?,
        target: reader.number("stop.target", |value| value >= 0.0, "a number, 0 or more")?,
        gradient: reader.number("stop.gradient", positive, "a positive number")?,
        gradient_relative: reader.number("stop.gradient_relative", positive, "a positive number")?,
        gap: reader.number("stop.gap", positive, "a positive number")?,
        gap_absolute: reader.number("stop.gap_absolute", positive, "a positive number")?,
        evaluate_every: reader.count("stop.evaluate_every", 1)?,
        patience: reader.count("stop.patience", 1)?,
        seconds: reader.number("stop.seconds", positive, "a positive number")?,
        bytes: reader.count("stop.bytes", 1)?,
    };
    if problem.data.is_sites() && stop.target.is_some_and(|target| target > 0.0) {
        bail!(
            "`stop.target` needs f*, which nobody knows where the rows stay at their sites; \
             take `stop.gradient_relative`, `stop.gap`, `stop.gap_absolute` or `stop.patience`"
        );
    }
    if stop.gap.is_some() && stop.gap_absolute.is_some() {
        bail!("`stop.gap` and `stop.gap_absolute` both say how small the estimated gap must be; keep one");
    }
    if stop.epochs.is_some() && stop.rounds.is_some() {
        bail!("`stop.epochs` and `stop.rounds` both say how long to train; keep one");
    }
    if problem.data.is_sites() && problem.model.is_network() && stop.rounds.is_none() {
        bail!("where the rows stay at their sites nobody counts epochs: say how long to train with `stop.rounds`");
    }
    if stop.patience.is_some() && problem.test.is_none() {
        bail!("`stop.patience` counts evaluations on held-out rows: name some with `problem.test`");
    }
    let limits = LimitSpec {
        wait_seconds: match reader.number("limits.wait_seconds", |value| value >= 0.0, "a number, 0 or more")? {
            None => Some(3600.0),
            Some(0.0) => None,
            given => given,
        },
        waits_on: reader.word("limits.on_late", &[("end", false), ("wait", true)])?,
        memory: reader.count("limits.memory", 1)?,
        optimum_seconds: reader.number("limits.optimum_seconds", |value| value >= 0.0, "a number, 0 or more")?,
    };
    let link = read_link(reader)?;
    let method = read_method(reader, base, link, &stop, problem.model)?;
    if problem.model.is_network() && method.passes_over_all_rows() {
        let batches = ["method.batch", "method.momentum", "problem.augment"];
        if let Some(key) = TRAINING_KEYS.iter().chain(&batches).find(|key| reader.get(key).is_some()) {
            bail!(
                "`{key}` is for mini-batches, and core-nonconvex passes over all rows in every round: leave it out, or take core-sgd"
            );
        }
    }
    let graph = read_graph(reader, base)?;
    reader.finish()?;
    if problem.data == DataSource::PowerLaw && problem.alpha == 0.0 && problem.decay > 0.0 && stop.target().is_some() {
        bail!(
            "`problem.alpha` = 0 leaves the flat directions of a power law without an end; take a positive one, or set `stop.target` = 0"
        );
    }
    Ok(Job { problem, machines, engine, method, link, stop, limits, graph, table: reader.table.clone() })
}

fn check_machines(machines: usize) -> Result<()> {
    if machines > MOST_MACHINES {
        bail!("`machines.count` is at most {MOST_MACHINES}; found {machines}");
    }
    Ok(())
}

/// Names of methods with a parameter, as people know them.
const SHORT_NAMES: [(&str, &str); 2] = [("cg-bf16", "cg:codec=bf16"), ("cg-int8", "cg:codec=int8")];

/// `name:key=value,key=value`.
pub fn parse_method(text: &str) -> Result<(String, BTreeMap<String, String>)> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    if let Some((_, whole)) = SHORT_NAMES.iter().find(|(short, _)| *short == name) {
        return parse_method(&format!("{whole},{rest}"));
    }
    let mut parameters = BTreeMap::new();
    for assignment in rest.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = assignment
            .split_once('=')
            .ok_or_else(|| anyhow!("parameters of a method are KEY=VALUE, as in `ef21:k=15`; found `{assignment}`"))?;
        parameters.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok((name.to_owned(), parameters))
}

/// The inverse of [`parse_method`].
pub fn written_method(name: &str, parameters: &BTreeMap<String, String>) -> String {
    let parameters: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if parameters.is_empty() { name.to_owned() } else { format!("{name}:{}", parameters.join(",")) }
}

fn read_classes(value: &Value) -> Result<[Vec<String>; 2]> {
    let usage = "`problem.classes` is \"parity\", two classes, [3, 8], or two lists of them, [[0, 1], [2, 3]]: the negative side first";
    let name = |value: &Value| class_name(value, "").map_err(|_| anyhow!("{usage}; found {value}"));
    let Some([negative, positive]) = value.as_array().map(Vec::as_slice) else {
        bail!("{usage}; found {value}");
    };
    let side = |value: &Value| match value {
        Value::Array(values) => values.iter().map(name).collect::<Result<Vec<String>>>(),
        value => Ok(vec![name(value)?]),
    };
    Ok([side(negative)?, side(positive)?])
}

/// A label as text.
fn class_name(value: &Value, key: &str) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        other => bail!("`{key}` is a label, as 1 or \"yes\"; found {other}"),
    }
}

fn read_class_weights(reader: &Reader<'_>) -> Result<Option<ClassWeights>> {
    let usage = "`problem.class_weights` is \"balanced\", or a positive number for each class, as { yes = 5, no = 1 }";
    match reader.get("problem.class_weights") {
        None => Ok(None),
        Some(Value::String(word)) if word == "balanced" => Ok(Some(ClassWeights::Balanced)),
        Some(Value::Table(weights)) => {
            let weight = |(name, value): (&String, &Value)| {
                let number = value.as_float().or(value.as_integer().map(|number| number as f64));
                let number = number.filter(|number| *number > 0.0 && number.is_finite());
                Ok((name.clone(), number.ok_or_else(|| anyhow!("{usage}; found {name} = {value}"))?))
            };
            Ok(Some(ClassWeights::Named(weights.iter().map(weight).collect::<Result<_>>()?)))
        }
        Some(other) => bail!("{usage}; found {other}"),
    }
}

/// How files are read.
fn read_columns(reader: &Reader<'_>) -> Result<ReadOptions> {
    let column = |key: &str, value: &Value| match value {
        Value::String(name) => Ok(ColumnRef::Name(name.clone())),
        Value::Integer(place) if *place > 0 => Ok(ColumnRef::Place(*place as usize)),
        other => bail!("`{key}` is a column's name or its place, counted from 1; found {other}"),
    };
    let one = |key: &str| reader.get(key).map(|value| column(key, value)).transpose();
    let list = |key: &str| match reader.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) => values.iter().map(|value| column(key, value)).collect::<Result<Vec<_>>>(),
        Some(value) => Ok(vec![column(key, value)?]),
    };
    let missing = [("error", Missing::Error), ("mean", Missing::Mean), ("indicator", Missing::Indicator)];
    let columns = ColumnOptions {
        label: one("problem.label")?,
        weights: one("problem.weights")?,
        drop: list("problem.drop")?,
        categorical: list("problem.categorical")?,
        missing: reader.word("problem.missing", &missing)?,
    };
    let header = match reader.get("problem.header") {
        None => None,
        Some(Value::String(word)) if word == "auto" => None,
        Some(_) => Some(reader.flag("problem.header", true)?),
    };
    let zero_based = reader.flag("problem.zero_based", false)?;
    Ok(ReadOptions { columns, header, zero_based, ..ReadOptions::default() })
}

/// Every key that is read, ascending.
#[cfg(test)]
pub fn known_keys() -> Vec<String> {
    let table = Table::new();
    let reader = Reader::new(&table);
    read_table(&reader, None).expect("an empty job is a job");
    let mut known = reader.asked.into_inner();
    known.sort();
    known.dedup();
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).and_then(|table| from_table(table, None)).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_job_is_the_bundled_one() {
        let job = load(None, &[]).unwrap();
        assert_eq!((job.problem.data, job.problem.model, job.machines), (DataSource::Digits, ModelKind::Logistic, 50));
        assert_eq!(job.problem.classes, Some(Classes::Parity));
    }

    #[test]
    fn overrides_win_and_bare_words_are_texts() {
        let overrides = ["method.budget=64", "problem.model=ridge", "problem.classes=[3, 8]", "stop.target=1e-4"];
        let job = load(None, &overrides.map(str::to_owned)).unwrap();
        assert_eq!(job.method.settings.budget, Some(64));
        assert_eq!(job.problem.model, ModelKind::Ridge);
        assert_eq!(job.problem.classes, Some(Classes::Sides([vec!["3".to_owned()], vec!["8".to_owned()]])));
        assert_eq!(job.stop.target(), Some(1e-4));
    }

    #[test]
    fn a_pattern_is_a_file_for_each_machine_and_machines_compare_the_job_without_paths() {
        let job = |folder: &str| {
            let data = format!("problem.data={folder}/{{machine}}.csv");
            load(None, &[data, "machines.count=3".to_owned()]).unwrap()
        };
        let files: Vec<PathBuf> = (0..3).map(|rank| PathBuf::from(format!("here/{rank}.csv"))).collect();
        assert_eq!(job("here").problem.data, DataSource::Sites(files));
        assert_eq!(job("here").common(), job("there").common());
        assert!(job("here").table.to_string().contains("{machine}.csv"));
        let stop = job("here").stop;
        assert_eq!((stop.gradient_relative(false), stop.gap(false)), (Some(1e-4), Some(Gap::Relative(4e-7))));
        assert_eq!((stop.gradient_relative(true), stop.gap(true)), (None, None));
    }

    #[test]
    fn mistakes_are_named_with_what_to_do() {
        for (text, expected) in [
            ("[method]\nbugdet = 3", "unknown key `method.bugdet`; the nearest known one is `method.budget`"),
            ("[methods]\nbudget = 3", "unknown key `methods.budget`; the nearest known one is `method.budget`"),
            ("budget = 3", "`budget` is outside any section; did you mean `method.budget`?"),
            ("[method]\nbudget = 0", "`method.budget` is a whole number of at least 1; found 0"),
            ("[method]\nbudget = 2.5", "found 2.5"),
            ("[method]\nbudget = \"many\"", "found \"many\""),
            ("[method]\nfamily = \"hadamar\"", "`method.family`"),
            ("[method]\nwire = \"f16\"", "did you mean \"bf16\"?"),
            ("[method]\nstep = -1.0", "`method.step`"),
            ("[method]\nstep = \"fast\"", "`method.step` is auto, safe"),
            ("[problem]\nmodel = \"lasso\"", "`problem.model` is one of"),
            ("[problem]\nalpha = -1", "`problem.alpha` is a number, 0 or more; found -1"),
            ("[problem]\nalpha = nan", "`problem.alpha`"),
            ("[problem]\nsplit = \"dirichlet:0\"", "`problem.split`"),
            ("[problem]\nclasses = [1]", "two classes, [3, 8], or two lists of them"),
            ("[problem]\nclasses = [1, 2]\npositive = 2", "both name the sides"),
            ("[problem]\npositive = true", "`problem.positive` is a label"),
            ("[problem]\nlabel = 0", "`problem.label` is a column's name or its place, counted from 1; found 0"),
            ("[problem]\ndrop = [1.5]", "`problem.drop` is a column's name or its place"),
            ("[problem]\nmissing = \"median\"", "`problem.missing` is one of error, mean, indicator"),
            ("[problem]\nclass_weights = 3", "`problem.class_weights` is \"balanced\""),
            ("[problem]\nclass_weights = { yes = -1 }", "found yes = -1"),
            ("[problem]\ndata = \"a.csv\"\nmodel = \"ridge\"\nclass_weights = \"balanced\"", "this is a regression"),
            ("[problem]\nmodel = \"two-layer\"\nweights = \"w\"", "`two-layer` takes all rows alike"),
            ("[problem]\nlower = 1\nupper = 0.5", "`problem.lower` is 1, above `problem.upper`, which is 0.5"),
            ("[problem]\nmodel = \"two-layer\"\nlower = 0", "`two-layer` has neither an l1 term nor bounds"),
            ("[problem]\nintercept = 1", "`problem.intercept` is true or false; found 1"),
            ("[problem]\nnormalise = \"units\"", "did you mean \"unit\"?"),
            ("[problem]\ndata = \"{machine}.csv\"", "say how many with `machines.count`"),
            ("[problem]\ndata = [\"a\", \"b\"]\n[stop]\ntarget = 1e-6", "`stop.target` needs f*"),
            ("[problem]\ntest = 2.0", "`problem.test` is a path, or a share"),
            ("[stop]\npatience = 3", "name some with `problem.test`"),
            ("[machines]\ncount = 0", "`machines.count` is a whole number of at least 1"),
            ("[machines]\ncount = 1000000", "`machines.count` is at most 16384"),
            ("[machines]\nengine = \"mpj\"", "did you mean \"mpi\"?"),
            ("[limits]\non_late = \"stop\"", "`limits.on_late` is one of end, wait"),
            ("[limits]\nmemory = 0", "`limits.memory` is a whole number of at least 1; found 0"),
            ("[link]\nmbit_s = 0", "`link.mbit_s` is a positive number"),
            ("[stop]\ntarget = -1e-6", "`stop.target`"),
            ("[graph]\nshape = \"rign\"", "did you mean \"ring\"?"),
            ("[problem\ndata = 1", "line 1"),
            ("[problem]\ndata = digits", "line 2"),
            ("[problem]\ndata = \"a\"\ndata = \"b\"", "line 3"),
        ] {
            let found = error(text);
            assert!(found.contains(expected), "{text:?}\n  gives    {found}\n  expected {expected}");
        }
    }
}
