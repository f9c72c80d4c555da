//! The job file: TOML and `--set` overrides become typed values, or an error that names the key and what to do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use corewire_comm::Link;
use corewire_data::shard::Split;
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
    pub engine: String,
    /// By which method.
    pub method: MethodSpec,
    /// Over which link.
    pub link: Option<Link>,
    /// Until when.
    pub stop: StopSpec,
    /// The graph of machines without a centre, if there is one.
    pub graph: Option<GraphSpec>,
    /// The merged table, for the copy that a run keeps.
    pub table: Table,
}

/// `[problem]`.
#[derive(Clone, Debug)]
pub struct ProblemSpec {
    /// `digits`, `power-law`, or a path.
    pub data: String,
    /// The model's name.
    pub model: String,
    /// l2.
    pub alpha: f64,
    /// l1.
    pub l1: f64,
    /// Weight of the non-convex regulariser.
    pub nonconvex: f64,
    /// Only the first rows.
    pub rows: Option<usize>,
    /// The two sides of a binary model.
    pub classes: Option<[Vec<f64>; 2]>,
    /// Coordinates of a synthetic problem.
    pub dim: usize,
    /// Its decay.
    pub decay: f64,
    /// Who gets which rows.
    pub split: Split,
    /// Whether a column of ones is added.
    pub bias: bool,
    /// Whether rows are scaled to unit norm.
    pub normalise: bool,
    /// Hidden units of the small network.
    pub hidden: usize,
    /// Rows held out for a test, as a file.
    pub test: Option<String>,
}

/// `[method]`.
#[derive(Clone, Debug)]
pub struct MethodSpec {
    /// `auto` or one of `corewire methods`.
    pub name: String,
    /// Parameters after the colon.
    pub parameters: BTreeMap<String, String>,
    /// m.
    pub budget: Option<usize>,
    /// The family, `None` for auto.
    pub family: Option<Family>,
    /// Block size.
    pub block: Option<usize>,
    /// f32, bf16, q, q-sum.
    pub wire: String,
    /// auto, safe, theory, line-search, option-1, option-2, or a number.
    pub step: String,
    /// b of the accelerated method, with a numeric step.
    pub damping: Option<f64>,
    /// An integer seed, for reproducible runs.
    pub seed: u64,
    /// A file with a secret seed.
    pub seed_file: Option<PathBuf>,
    /// `bytes` or `time`.
    pub goal: Option<String>,
    /// eta up and down of wire q.
    pub eta_up: Option<f64>,
    /// See `eta_up`.
    pub eta_down: Option<f64>,
    /// Directions that core-cg remembers.
    pub memory: Option<usize>,
    /// Rows of a mini-batch.
    pub batch: Option<usize>,
    /// Lipschitz constant of the Hessian, for the non-convex options.
    pub hessian_lipschitz: f64,
}

/// `[stop]`.
#[derive(Clone, Debug)]
pub struct StopSpec {
    /// Rounds at most.
    pub rounds: u64,
    /// Relative suboptimality.
    pub target: f64,
    /// Norm of the gradient.
    pub gradient: Option<f64>,
    /// Seconds.
    pub seconds: Option<f64>,
    /// Payload bytes.
    pub bytes: Option<u64>,
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
    /// tree, chebyshev or plain.
    pub gossip: String,
    /// Iterations of gossip; `None` for what the tolerance needs.
    pub iterations: Option<usize>,
    /// Tolerance of gossip.
    pub tolerance: f64,
}

impl GraphSpec {
    /// Whether machines gossip, and do not sum over a tree.
    pub fn gossips(&self) -> bool {
        self.gossip != "tree"
    }
}

impl Job {
    /// Settles the method, also in the copy that a run keeps.
    pub fn choose_method(&mut self, name: &str) {
        self.method.name = name.to_owned();
        let section = self.table.entry("method").or_insert_with(|| Value::Table(Table::new()));
        if let Some(section) = section.as_table_mut() {
            section.insert("name".to_owned(), Value::String(name.to_owned()));
        }
    }
}

/// Reads a job file, if there is one, and applies the overrides.
pub fn load(path: Option<&Path>, overrides: &[String]) -> Result<Job> {
    let mut table = match path {
        None => Table::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the job file {}", path.display()))?;
            parse(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    for assignment in overrides {
        set(&mut table, assignment)?;
    }
    // Relative paths in a job file are meant from where it lies.
    let base = path.and_then(Path::parent).map(Path::to_owned);
    from_table(table, base.as_deref())
}

/// A job from the text that a run kept: its paths are already whole.
pub fn from_text(text: &str, overrides: &[String]) -> Result<Job> {
    let mut table = parse(text)?;
    for assignment in overrides {
        set(&mut table, assignment)?;
    }
    from_table(table, None)
}

/// Parses the text of a job file.
pub fn parse(text: &str) -> Result<Table> {
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        anyhow!("line {line}: {}", error.message().replace('\n', " "))
    })
}

fn set(table: &mut Table, assignment: &str) -> Result<()> {
    let usage = "`--set` takes SECTION.KEY=VALUE, for example `--set method.budget=64`";
    let (key, value) = assignment.split_once('=').ok_or_else(|| anyhow!("{usage}; found `{assignment}`"))?;
    let (section, key) = key.trim().split_once('.').ok_or_else(|| anyhow!("{usage}; found `{assignment}`"))?;
    let value = value.trim();
    // A value that is no TOML is a bare word.
    let parsed = format!("value = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    let parsed = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    let section = section.as_table_mut().ok_or_else(|| anyhow!("{usage}; found `{assignment}`"))?;
    section.insert(key.to_owned(), parsed);
    Ok(())
}

/// A table that remembers which keys were asked for: what is left over is unknown.
struct Reader<'a> {
    table: &'a Table,
    asked: RefCell<Vec<String>>,
}

impl Reader<'_> {
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

    /// Refuses keys that nobody asked for.
    fn finish(&self) -> Result<()> {
        let asked = self.asked.borrow();
        for (section, content) in self.table {
            let Some(content) = content.as_table() else {
                let keys = asked.iter().filter(|key| key.ends_with(&format!(".{section}")));
                let hint = keys.map(|key| format!("; did you mean `{key}`?")).next().unwrap_or_default();
                bail!("`{section}` stands outside any section{hint}");
            };
            let known = asked.iter().any(|key| key.split('.').next() == Some(section));
            for name in content.keys().map(String::as_str).chain(content.is_empty().then_some("")) {
                let key = format!("{section}.{name}");
                if known && (name.is_empty() || asked.contains(&key)) {
                    continue;
                }
                let nearest = nearest(&key, asked.iter().map(String::as_str));
                bail!("unknown key `{key}`; the nearest known one is `{nearest}`");
            }
        }
        Ok(())
    }
}

/// The candidate that takes the fewest edits.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> &'a str {
    candidates.into_iter().min_by_key(|candidate| edits(word, candidate)).unwrap_or("")
}

fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// A job from its table; relative paths are meant from `base`.
pub fn from_table(table: Table, base: Option<&Path>) -> Result<Job> {
    let mut job = read_table(table, base)?;
    // The copy that a run keeps lies elsewhere, and must still find its files.
    let data = Some(job.problem.data.clone()).filter(|data| !matches!(data.as_str(), "digits" | "power-law"));
    let seed_file = job.method.seed_file.clone();
    let graph_file = job.graph.as_ref().and_then(|graph| graph.file.clone());
    for (section, key, path) in [
        ("problem", "data", data.map(PathBuf::from)),
        ("problem", "test", job.problem.test.clone().map(PathBuf::from)),
        ("method", "seed_file", seed_file),
        ("graph", "file", graph_file),
    ] {
        if let (Some(path), Some(section)) = (path, job.table.get_mut(section).and_then(Value::as_table_mut)) {
            let path = std::path::absolute(&path).unwrap_or(path);
            section.insert(key.to_owned(), Value::String(path.to_string_lossy().into_owned()));
        }
    }
    Ok(job)
}

fn read_table(table: Table, base: Option<&Path>) -> Result<Job> {
    let reader = Reader { table: &table, asked: RefCell::new(Vec::new()) };
    let positive = |value: f64| value > 0.0;
    let not_negative = |value: f64| value >= 0.0;
    let from_base = |path: String| match base {
        Some(base) if Path::new(&path).is_relative() => base.join(path).to_string_lossy().into_owned(),
        _ => path,
    };

    let data = reader.string("problem.data", "digits")?;
    let synthetic = data == "power-law";
    let data = if matches!(data.as_str(), "digits" | "power-law") { data } else { from_base(data) };
    let models: &[&str] = match synthetic {
        true => &["quadratic"],
        false => &["logistic", "ridge", "softmax", "logistic-nonconvex", "two-layer"],
    };
    let classes = match reader.get("problem.classes") {
        None => None,
        Some(value) => Some(read_classes(value)?),
    };
    let problem = ProblemSpec {
        data,
        model: reader.choice("problem.model", models)?,
        alpha: reader.number("problem.alpha", not_negative, "a number, 0 or more")?.unwrap_or(1e-3),
        l1: reader.number("problem.l1", not_negative, "a number, 0 or more")?.unwrap_or(0.0),
        nonconvex: reader.number("problem.nonconvex", not_negative, "a number, 0 or more")?.unwrap_or(0.1),
        rows: reader.count("problem.rows", 1)?.map(|rows| rows as usize),
        classes,
        dim: reader.count("problem.dim", 1)?.unwrap_or(10_000) as usize,
        decay: reader.number("problem.decay", not_negative, "a number, 0 or more")?.unwrap_or(1.5),
        split: {
            let split = reader.string("problem.split", "random")?;
            let alias = reader.string("problem.shards", &split)?;
            alias.parse::<Split>().map_err(|error| anyhow!("`problem.split`: {error}"))?
        },
        bias: reader.flag("problem.bias", false)?,
        normalise: reader.flag("problem.normalise", true)?,
        hidden: reader.count("problem.hidden", 1)?.unwrap_or(16) as usize,
        test: match reader.string("problem.test", "")? {
            text if text.is_empty() => None,
            text => Some(from_base(text)),
        },
    };
    let machines = reader.count("machines.count", 1)?.unwrap_or(50) as usize;
    if machines > 100_000 {
        bail!("`machines.count` is at most 100000; found {machines}");
    }
    let engine = reader.choice("machines.engine", &["threads", "mpi"])?;

    let named = reader.string("method.name", "auto")?;
    let (name, parameters) = parse_method(&named)?;
    let family = match reader.string("method.family", "auto")?.as_str() {
        "auto" => None,
        other => Some(other.parse::<Family>().map_err(|error| anyhow!("`method.family`: {error}"))?),
    };
    let method = MethodSpec {
        name,
        parameters,
        budget: reader.count("method.budget", 1)?.map(|budget| budget as usize),
        family,
        block: reader.count("method.block", 1)?.map(|block| block as usize),
        wire: reader.choice("method.wire", &["q", "q-sum", "f32", "bf16", "f64"])?,
        step: {
            let step = reader.string("method.step", "auto")?;
            let words = ["auto", "safe", "theory", "line-search", "option-1", "option-2"];
            if !words.contains(&step.as_str()) && !step.parse::<f64>().is_ok_and(|step| step.is_finite() && step > 0.0)
            {
                bail!("`method.step` is {}, or a positive number; found \"{step}\"", words.join(", "));
            }
            step
        },
        damping: reader.number("method.damping", |b| b > 0.0 && b <= 1.0, "a number above 0 and at most 1")?,
        seed: reader.count("method.seed", 0)?.unwrap_or(0),
        seed_file: match reader.string("method.seed_file", "")? {
            text if text.is_empty() => None,
            text => Some(PathBuf::from(from_base(text))),
        },
        goal: match reader.choice("method.goal", &["auto", "bytes", "time"])? {
            goal if goal == "auto" => None,
            goal => Some(goal),
        },
        eta_up: reader.number("method.eta_up", positive, "a positive number")?,
        eta_down: reader.number("method.eta_down", positive, "a positive number")?,
        memory: reader.count("method.memory", 1)?.map(|memory| memory as usize),
        batch: reader.count("method.batch", 1)?.map(|batch| batch as usize),
        hessian_lipschitz: reader.number("method.hessian_lipschitz", positive, "a positive number")?.unwrap_or(1.0),
    };
    let link = {
        let mbit_s = reader.number("link.mbit_s", positive, "a positive number")?;
        let rtt_ms = reader.number("link.rtt_ms", not_negative, "a number, 0 or more")?;
        let overhead = reader.number("link.overhead_bytes", not_negative, "a number, 0 or more")?;
        match (mbit_s, rtt_ms) {
            (None, None) if overhead.is_none() => None,
            _ => Some(Link {
                mbit_s: mbit_s.unwrap_or(100.0),
                rtt_ms: rtt_ms.unwrap_or(0.0),
                overhead_bytes: overhead.unwrap_or(66.0),
            }),
        }
    };
    let stop = StopSpec {
        rounds: reader.count("stop.rounds", 0)?.unwrap_or(5000),
        target: reader.number("stop.target", not_negative, "a number, 0 or more")?.unwrap_or(1e-6),
        gradient: reader.number("stop.gradient", positive, "a positive number")?,
        seconds: reader.number("stop.seconds", positive, "a positive number")?,
        bytes: reader.count("stop.bytes", 1)?,
    };
    let shapes =
        ["none", "ring", "path", "grid", "torus", "star", "complete", "hypercube", "regular", "erdos-renyi", "file"];
    let shape = reader.choice("graph.shape", &shapes)?;
    let graph_spec = GraphSpec {
        shape: shape.clone(),
        degree: reader.count("graph.degree", 1)?.unwrap_or(4) as usize,
        probability: reader
            .number("graph.probability", |p| p > 0.0 && p <= 1.0, "a number above 0 and at most 1")?
            .unwrap_or(0.2),
        file: match reader.string("graph.file", "")? {
            text if text.is_empty() => None,
            text => Some(PathBuf::from(from_base(text))),
        },
        gossip: reader.choice("graph.gossip", &["tree", "chebyshev", "plain"])?,
        iterations: reader.count("graph.iterations", 1)?.map(|count| count as usize),
        tolerance: reader
            .number("graph.tolerance", |t| t > 0.0 && t < 1.0, "a number between 0 and 1")?
            .unwrap_or(1e-8),
    };
    let graph = (shape != "none").then_some(graph_spec);
    reader.finish()?;
    if synthetic && problem.alpha == 0.0 && problem.decay > 0.0 && stop.target > 0.0 {
        bail!(
            "`problem.alpha` = 0 leaves the flat directions of a power law without an end; take a positive one, or set `stop.target` = 0"
        );
    }
    // The copy that a run keeps must mean the same from any folder.
    let mut table = table.clone();
    for (section, key, path) in [
        ("problem", "data", (!matches!(problem.data.as_str(), "digits" | "power-law")).then(|| problem.data.clone())),
        ("problem", "test", problem.test.clone()),
        ("method", "seed_file", method.seed_file.as_ref().map(|path| path.to_string_lossy().into_owned())),
        (
            "graph",
            "file",
            graph.as_ref().and_then(|graph| graph.file.as_ref()).map(|path| path.to_string_lossy().into_owned()),
        ),
    ] {
        let Some(path) = path else { continue };
        let whole = std::path::absolute(&path).map_or(path, |path| path.to_string_lossy().into_owned());
        if let Some(section) = table.get_mut(section).and_then(Value::as_table_mut) {
            section.insert(key.to_owned(), Value::String(whole));
        }
    }
    Ok(Job { problem, machines, engine, method, link, stop, graph, table })
}

/// `name:key=value,key=value`.
pub fn parse_method(text: &str) -> Result<(String, BTreeMap<String, String>)> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut parameters = BTreeMap::new();
    for assignment in rest.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = assignment
            .split_once('=')
            .ok_or_else(|| anyhow!("parameters of a method are KEY=VALUE, as in `ef21:k=15`; found `{assignment}`"))?;
        parameters.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok((name.to_owned(), parameters))
}

fn read_classes(value: &Value) -> Result<[Vec<f64>; 2]> {
    let usage =
        "`problem.classes` is two classes, [3, 8], or two lists of them, [[0, 1], [2, 3]]: the negative side first";
    let number = |value: &Value| match value {
        Value::Integer(value) => Ok(*value as f64),
        Value::Float(value) => Ok(*value),
        other => Err(anyhow!("{usage}; found {other}")),
    };
    let Some([negative, positive]) = value.as_array().map(Vec::as_slice) else {
        bail!("{usage}; found {value}");
    };
    let side = |value: &Value| match value {
        Value::Array(values) => values.iter().map(number).collect::<Result<Vec<f64>>>(),
        value => Ok(vec![number(value)?]),
    };
    Ok([side(negative)?, side(positive)?])
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
        assert_eq!((job.problem.data.as_str(), job.problem.model.as_str(), job.machines), ("digits", "logistic", 50));
    }

    #[test]
    fn overrides_win_and_bare_words_are_texts() {
        let overrides = ["method.budget=64", "problem.model=ridge", "problem.classes=[3, 8]", "stop.target=1e-4"];
        let job = load(None, &overrides.map(str::to_owned)).unwrap();
        assert_eq!(job.method.budget, Some(64));
        assert_eq!(job.problem.model, "ridge");
        assert_eq!(job.problem.classes, Some([vec![3.0], vec![8.0]]));
        assert_eq!(job.stop.target, 1e-4);
    }

    #[test]
    fn mistakes_are_named_with_what_to_do() {
        for (text, expected) in [
            ("[method]\nbugdet = 3", "unknown key `method.bugdet`; the nearest known one is `method.budget`"),
            ("[methods]\nbudget = 3", "unknown key `methods.budget`; the nearest known one is `method.budget`"),
            ("budget = 3", "`budget` stands outside any section; did you mean `method.budget`?"),
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
            ("[problem]\nclasses = [1]", "`problem.classes` is two classes"),
            ("[problem]\nbias = 1", "`problem.bias` is true or false; found 1"),
            ("[machines]\ncount = 0", "`machines.count` is a whole number of at least 1"),
            ("[machines]\ncount = 1000000", "`machines.count` is at most 100000"),
            ("[machines]\nengine = \"mpj\"", "did you mean \"mpi\"?"),
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
