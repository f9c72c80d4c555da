//! From a job's file to rows that a model can be fitted to: read, held out, labelled, weighed, scaled and shared out; and back, for the
//! method that sends them. Machines and their messages are not known here.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow, bail};
use corewire_data::{DataSet, Labels, Moments, Normalise, Preparation, Raw, ReadOptions, Schema, Survey, Unknown};
use corewire_nn::{Network, Shape};
use corewire_optim::method::baselines::shipped::Shipment;
use corewire_optim::objective::Objective;
use corewire_optim::problem::{Model, ModelSpec, Problem, rows_digest};
use corewire_optim::sites::SiteFacts;
use corewire_sketch::{CommonRandomness, Purpose};

use crate::job::{ClassWeights, Classes, DEFAULT_ROUNDS, DataSource, Job, ProblemSpec, TestRows};
use crate::memory::{self, Size};

/// What sending rows would take is measured on so many of them at most.
const MOST_EXAMPLES: usize = 500;
/// And on so many numbers: to pack pictures takes seconds.
const MOST_NUMBERS: usize = 1 << 19;

/// All rows, in this process.
#[derive(Clone)]
pub struct Pooled {
    /// Shared out over the machines.
    pub problem: Arc<Problem>,
    /// What was done to the rows.
    pub preparation: Arc<Preparation>,
    /// Rows held out, prepared likewise.
    pub held_out: Option<Arc<DataSet>>,
    /// Rows of an average machine as they were read, a part of them where they are many.
    example: Option<Arc<Raw>>,
    /// What they were read from, if it is a file.
    unprepared: Option<Arc<Unprepared>>,
}

impl Pooled {
    /// What it would take a machine, on average, to send its rows once and to be sent x in 32-bit floats.
    pub fn shipped_bytes(&self) -> Result<Option<f64>> {
        let Some(example) = &self.example else { return Ok(None) };
        let share = self.problem.row_count() as f64 / self.problem.machines() as f64;
        let rows = corewire_data::pack(example)?.len() as f64 * share / example.rows() as f64;
        Ok(Some(rows + 4.0 * self.problem.dim() as f64))
    }

    /// The rows as they can be sent, if they are from a file.
    pub fn shipment(&self) -> Option<Arc<dyn Shipment>> {
        let unprepared = Arc::clone(self.unprepared.as_ref()?);
        Some(Arc::new(Shipped { unprepared, problem: Arc::clone(&self.problem) }))
    }
}

/// The rows of a job as they were read, from its file again when they are to be sent: most jobs never send them, and preparing them took
/// them away.
struct Unprepared {
    job: Job,
    randomness: CommonRandomness,
    rows: OnceLock<Result<Raw, String>>,
}

impl Unprepared {
    fn rows(&self) -> Result<&Raw, String> {
        let read = || unprepared(&self.job, &self.randomness).map(|(rows, _)| rows);
        self.rows.get_or_init(|| read().map_err(|error| format!("{error:#}"))).as_ref().map_err(Clone::clone)
    }
}

/// Those rows, shared out.
struct Shipped {
    unprepared: Arc<Unprepared>,
    problem: Arc<Problem>,
}

impl Shipment for Shipped {
    fn pack(&self, rank: usize) -> Result<Vec<u8>, String> {
        let rows = self.unprepared.rows()?;
        let share = self.problem.share(rank).filter(|_| rows.rows() == self.problem.row_count());
        let share = share.ok_or("the file has other rows than when it was first read")?;
        corewire_data::pack(&rows.select(share)).map_err(|error| format!("its rows cannot be packed: {error}"))
    }

    fn unpack(&self, packed: &[&[u8]]) -> Result<Box<dyn Objective>, String> {
        let Unprepared { job, randomness, .. } = &*self.unprepared;
        let like = self.unprepared.rows()?.select(&[]);
        let rows = corewire_data::unpack(packed, &like).map_err(|error| error.to_string())?;
        let mut job = job.clone();
        // A path of penalties has another one than the file was read with.
        job.set_alpha(self.problem.spec().alpha);
        job.problem.test = None;
        let pooled = prepared(&job, rows, None, randomness).map_err(|error| format!("{error:#}"))?;
        pooled.problem.pooled().ok_or_else(|| "there are no rows to solve for".to_owned())
    }
}

/// Reads all rows and shares them out.
pub fn pool(job: &Job, randomness: &CommonRandomness) -> Result<Pooled> {
    let spec = &job.problem;
    if spec.data == DataSource::PowerLaw {
        check_memory(job, Size { coordinates: spec.dim, ..Size::default() }, job.machines)?;
        let preparation = Preparation {
            schema: None,
            labels: Labels::Numbers { centre: 0.0 },
            normalise: Normalise::None,
            scaling: None,
            intercept: false,
        };
        let problem = Arc::new(power_law(job, job.machines, randomness));
        return Ok(Pooled {
            problem,
            preparation: Arc::new(preparation),
            held_out: None,
            example: None,
            unprepared: None,
        });
    }
    let (raw, kept) = unprepared(job, randomness)?;
    let pooled = prepared(job, raw, kept, randomness)?;
    let unprepared = Unprepared { job: job.clone(), randomness: randomness.clone(), rows: OnceLock::new() };
    Ok(Pooled { unprepared: Some(Arc::new(unprepared)), ..pooled })
}

/// The rows of a job's file as they were read, and those that are held out.
fn unprepared(job: &Job, randomness: &CommonRandomness) -> Result<(Raw, Option<Raw>)> {
    let spec = &job.problem;
    let raw = read_rows(&spec.data, &ReadOptions { rows: spec.rows, ..read_options(job) })?;
    let raw = match spec.rows {
        Some(rows) if rows < raw.rows() => raw.select(&(0..rows).collect::<Vec<_>>()),
        _ => raw,
    };
    let (raw, kept) = hold_out(raw, spec, 0, randomness);
    Ok((check_named_classes(raw, spec)?, kept))
}

/// Rows as the job wants them, shared out.
fn prepared(job: &Job, raw: Raw, kept: Option<Raw>, randomness: &CommonRandomness) -> Result<Pooled> {
    let spec = &job.problem;
    let numbers = match &raw {
        Raw::Rows(set, _) => set.matrix.nonzeros(),
        Raw::Table(table) => table.columns.len() * raw.rows(),
    };
    let most = MOST_EXAMPLES.min(MOST_NUMBERS / numbers.div_ceil(raw.rows().max(1)).max(1)).max(1);
    let example: Vec<usize> = (0..raw.rows()).step_by(job.machines).take(most).collect();
    let example = (!example.is_empty()).then(|| Arc::new(raw.select(&example)));
    let schema = match &raw {
        Raw::Table(table) => Some(Survey::of(table).schema(spec.read.columns.missing)),
        Raw::Rows(..) => None,
    };
    let sparse = |set: &DataSet| schema.as_ref().map_or(set.matrix.is_sparse(), Schema::keeps_zeros);
    let set = match (raw, &schema) {
        (Raw::Table(table), Some(schema)) => schema.encode(table)?.0,
        (Raw::Rows(set, _), _) => set,
        (Raw::Table(_), None) => unreachable!("a table has a schema"),
    };
    let name = set.name.clone();
    if set.rows() == 0 {
        bail!("{name} has no row of the classes of `problem.classes`");
    }
    let columns = set.dim();
    let words = schema.as_ref().and_then(Schema::label_words);
    let classes = match words {
        Some(words) => (0..words.len()).map(|place| place as f64).collect(),
        None if counts_classes(spec) => set.classes(),
        None => Vec::new(),
    };
    let scored = if spec.model().has_classes() { classes.len() } else { 0 };
    check_memory(job, Size::of(&set, spec, scored), job.machines)?;
    check_pictures(spec, columns, classes.len())?;
    let scaling = match spec.normalise {
        Normalise::Standard => Some(Moments::of(&set.matrix).scaling(sparse(&set))),
        Normalise::Channels => {
            let channels = Moments::of(&set.matrix).by_channel(channels(columns));
            Some(channels.scaling(false).spread(columns))
        }
        Normalise::Unit | Normalise::None => None,
    };
    let labels = label_rule(spec, &classes, words, &name)?;
    if let Labels::Sides { negative, positive } = &labels {
        // A class that no row has is a mistake.
        set.select_classes(negative, positive)?;
    }
    let mut preparation = Preparation {
        schema: schema.map(Arc::new),
        labels,
        normalise: spec.normalise,
        scaling,
        intercept: spec.intercept,
    };
    let data = weigh(spec, &mut preparation, set, classes.len(), |sums| Ok(sums.to_vec()))?.0;
    let held_out = held_out(job, kept, columns, &preparation)?.map(Arc::new);
    let problem = Problem::rows(data, model_spec(spec, classes.len()), job.machines, spec.split, randomness);
    let (problem, preparation) = (Arc::new(problem), Arc::new(preparation));
    Ok(Pooled { problem, preparation, held_out, example, unprepared: None })
}

/// The rows of a file, or the bundled ones.
pub fn read_rows(source: &DataSource, options: &ReadOptions) -> Result<Raw> {
    match source {
        DataSource::Digits => Ok(Raw::Rows(corewire_data::digits(), true)),
        DataSource::File(path) => {
            if !path.exists() {
                bail!(
                    "there is no data set `{}`: `problem.data` is `digits`, `power-law` or the path of a LIBSVM, IDX or CSV file; \
                     `corewire data list` shows what can be fetched",
                    path.display()
                );
            }
            Ok(corewire_data::read(path, options)?)
        }
        DataSource::PowerLaw | DataSource::Sites(_) => bail!("these are not the rows of one file"),
    }
}

/// How files are read within the limits of a job.
fn read_options(job: &Job) -> ReadOptions {
    memory::read_options(&job.problem.read, memory::allowed(&job.limits))
}

pub fn power_law(job: &Job, machines: usize, randomness: &CommonRandomness) -> Problem {
    let spec = &job.problem;
    Problem::power_law(spec.dim, spec.decay, spec.alpha, machines, randomness)
}

/// A machine's own file: its rows for training, and those it holds out.
pub fn read_site(path: &Path, job: &Job, rank: usize, randomness: &CommonRandomness) -> Result<(Raw, Option<Raw>)> {
    let spec = &job.problem;
    if spec.rows.is_some() {
        bail!("`problem.rows` is for one file with all rows; here every machine has its own");
    }
    let options = ReadOptions { allow_empty: true, ..read_options(job) };
    let raw = of_named_classes(corewire_data::read(path, &options)?, spec);
    Ok(hold_out(raw, spec, rank, randomness))
}

/// What a machine tells of its rows.
pub fn site_facts(raw: &Raw, spec: &ProblemSpec) -> Result<SiteFacts> {
    let (set, fixed_columns, survey) = match raw {
        Raw::Rows(set, fixed) => (set.clone(), *fixed, None),
        Raw::Table(table) => {
            let survey = Survey::of(table);
            let schema = survey.schema(spec.read.columns.missing);
            (schema.encode(table.clone())?.0, true, Some((survey, schema)))
        }
    };
    let words = survey.as_ref().is_some_and(|(_, schema)| schema.label_words().is_some());
    let rows = rows_digest(&set, 0..set.rows());
    Ok(SiteFacts {
        rows: set.rows() as u64,
        columns: survey.as_ref().map_or(set.dim(), |(survey, _)| survey.features()) as u64,
        fixed_columns,
        sparse: set.matrix.is_sparse(),
        classes: if counts_classes(spec) && !words { set.classes() } else { Vec::new() },
        digest: match &survey {
            // The same zeros and ones may stand for other words.
            Some((_, schema)) => digest_of(&[rows, serde_json::to_string(schema)?]),
            None => rows,
        },
        survey: survey.map(|(survey, _)| survey),
    })
}

/// Refuses what so many machines of this process could not hold.
pub fn check_memory(job: &Job, size: Size, machines: usize) -> Result<()> {
    let spec = &job.method;
    let hub = spec.name.as_deref() == Some("core-newton");
    // A detail that is no number is refused elsewhere.
    let detail = spec.parameters.get("detail").and_then(|detail| detail.parse().ok()).unwrap_or(1.0);
    let detail = if hub { detail } else { 0.0 };
    let memory =
        spec.settings.memory.map_or(0, |memory| memory.min(job.stop.rounds.unwrap_or(DEFAULT_ROUNDS) as usize));
    memory::check(&Size { machines, detail, memory, ..size }, memory::allowed(&job.limits))
}

/// How many channels pictures of so many columns have; one where they are none.
pub fn channels(columns: usize) -> usize {
    Shape::of_columns(columns).map_or(1, |shape| shape.channels)
}

/// Refuses rows that a network cannot look at.
pub fn check_pictures(spec: &ProblemSpec, columns: usize, classes: usize) -> Result<()> {
    let Model::Network { architecture, augment } = spec.model() else { return Ok(()) };
    Network::new(architecture, columns, classes).map_err(|error| anyhow!("{}: {error}", spec.data.name()))?;
    if augment && Shape::of_columns(columns).is_none() {
        bail!("`problem.augment` moves square pictures about, and rows of {columns} columns are none");
    }
    Ok(())
}

pub fn model_spec(spec: &ProblemSpec, classes: usize) -> ModelSpec {
    let model = spec.model();
    ModelSpec {
        model,
        classes: if model.has_classes() { classes } else { 0 },
        alpha: spec.alpha,
        proximal: spec.proximal,
    }
}

/// Whether the distinct labels have to be known before rows can be labelled.
pub fn counts_classes(spec: &ProblemSpec) -> bool {
    let open = matches!(spec.classes, None | Some(Classes::Positive(_)));
    spec.model().has_classes() || (spec.binary && open)
}

/// Rows of the two sides alone, where sides are named; a class that no row has is a mistake.
fn check_named_classes(raw: Raw, spec: &ProblemSpec) -> Result<Raw> {
    if let Some(Classes::Sides(sides)) = &spec.classes {
        for class in sides.iter().flatten() {
            if raw.with_labels(std::slice::from_ref(class)).rows() == 0 {
                let known = raw.classes();
                let more = if known.len() > 12 { ", ..." } else { "" };
                let known = known[..known.len().min(12)].join(", ");
                bail!("{} has no class `{class}`; there is {known}{more}", spec.data.name());
            }
        }
    }
    Ok(of_named_classes(raw, spec))
}

/// Rows of the two sides alone, where sides are named.
fn of_named_classes(raw: Raw, spec: &ProblemSpec) -> Raw {
    match &spec.classes {
        Some(Classes::Sides(sides)) => raw.with_labels(&sides.concat()),
        _ => raw,
    }
}

/// What becomes of labels, given the classes of all rows and their words, where labels are such.
pub fn label_rule(spec: &ProblemSpec, classes: &[f64], words: Option<&[String]>, name: &str) -> Result<Labels> {
    let called = |class: &f64| match words {
        Some(words) => words.get(*class as usize).cloned().unwrap_or_default(),
        None => class.to_string(),
    };
    if spec.model().has_classes() {
        return Ok(Labels::Classes(classes.to_vec()));
    }
    let number = |class: &String| match words {
        Some(words) => words.iter().position(|word| word == class).map(|place| place as f64),
        None => class.parse().ok(),
    };
    let find = |class: &String| {
        let known: Vec<String> = classes.iter().map(called).collect();
        number(class).ok_or_else(|| anyhow!("{name} has no class `{class}`; there is {}", known.join(", ")))
    };
    let side = |side: &[String]| side.iter().map(find).collect::<Result<Vec<f64>>>();
    Ok(match &spec.classes {
        Some(Classes::Parity) => match words {
            None => Labels::Parity,
            Some(_) => bail!("{name} has words for labels, which are neither even nor odd: set `problem.positive`"),
        },
        Some(Classes::Sides([negative, positive])) => {
            Labels::Sides { negative: side(negative)?, positive: side(positive)? }
        }
        Some(Classes::Positive(positive)) => {
            let positive = side(std::slice::from_ref(positive))?;
            let negative: Vec<f64> = classes.iter().copied().filter(|class| !positive.contains(class)).collect();
            if negative.len() == classes.len() || negative.is_empty() {
                let known: Vec<String> = classes.iter().map(called).collect();
                bail!("`problem.positive` has to be one class of several; {name} has {}", known.join(", "));
            }
            Labels::Sides { negative, positive }
        }
        None if !spec.binary => match words {
            None => Labels::Numbers { centre: 0.0 },
            Some(words) => bail!(
                "the labels of {name} are words, as `{}`, and ridge fits numbers: set `problem.label` to another column, \
                 or `problem.model` to \"logistic\"",
                words.first().map_or("", String::as_str)
            ),
        },
        None => match classes {
            &[negative, positive] => Labels::Sides { negative: vec![negative], positive: vec![positive] },
            classes => bail!(
                "{name} has {} classes and `{}` needs two sides: set `problem.positive` to one of them, or `problem.classes`, for \
                 example [[{}], [{}]]{}",
                classes.len(),
                spec.model.name(),
                classes.first().map_or("1".to_owned(), called),
                classes.last().map_or("2".to_owned(), called),
                if words.is_none() { " or \"parity\"" } else { "" }
            ),
        },
    })
}

/// Prepares rows, gives them their weights, and says what the rows of all machines weigh together. `add_up` adds numbers over
/// all machines; it is called only where a sum is needed.
pub fn weigh(
    spec: &ProblemSpec,
    preparation: &mut Preparation,
    mut set: DataSet,
    classes: usize,
    add_up: impl FnOnce(&[f64]) -> Result<Vec<f64>>,
) -> Result<(DataSet, Option<f64>)> {
    if let Some(ClassWeights::Named(named)) = &spec.class_weights {
        let called: Vec<String> = set.labels.iter().map(|&label| preparation.class_name(label)).collect();
        let weight = |name: &String| named.get(name).copied().unwrap_or(1.0);
        multiply_weights(&mut set, called.iter().map(weight));
    }
    let centred = matches!(preparation.labels, Labels::Numbers { .. }) && preparation.intercept;
    let balanced = spec.class_weights == Some(ClassWeights::Balanced);
    if set.weights.is_empty()
        && !centred
        && !balanced
        && spec.class_weights.is_none()
        && spec.read.columns.weights.is_none()
    {
        return Ok((preparation.apply(set)?, None));
    }
    let weight = |set: &DataSet, row: usize| set.weights.get(row).copied().unwrap_or(1.0);
    if centred {
        // A mean far from 0 would otherwise be paid for by the penalty of the intercept.
        let sums: [f64; 2] = (0..set.rows())
            .fold([0.0; 2], |[whole, sum], i| [whole + weight(&set, i), sum + weight(&set, i) * set.labels[i]]);
        let [whole, sum] = add_up(&sums)?[..] else { bail!("two sums were asked for") };
        check_weight(whole)?;
        preparation.labels = Labels::Numbers { centre: sum / whole };
        return Ok((preparation.apply(set)?, Some(whole)));
    }
    let mut set = preparation.apply(set)?;
    // Rows and weight of every class.
    let class = |label: f64| if preparation.has_sides() { usize::from(label > 0.0) } else { label as usize };
    let counted = if preparation.has_sides() { 2 } else { classes.max(1) };
    let mut sums = vec![0.0; 2 * counted];
    for i in 0..set.rows() {
        let class = class(set.labels[i]).min(counted - 1);
        sums[2 * class] += 1.0;
        sums[2 * class + 1] += weight(&set, i);
    }
    let sums = add_up(&sums)?;
    let rows: f64 = sums.iter().step_by(2).sum();
    let share = |class: usize| if balanced { rows / (counted as f64 * sums[2 * class].max(1.0)) } else { 1.0 };
    let whole = (0..counted).map(|class| share(class) * sums[2 * class + 1]).sum();
    check_weight(whole)?;
    if balanced {
        let shares: Vec<f64> = set.labels.iter().map(|&label| share(class(label))).collect();
        multiply_weights(&mut set, shares.into_iter());
    }
    Ok((set, Some(whole)))
}

fn check_weight(whole: f64) -> Result<()> {
    if !(whole > 0.0 && whole.is_finite()) {
        bail!("the rows weigh {whole} together: `problem.weights` has to name a column with positive numbers");
    }
    Ok(())
}

fn multiply_weights(set: &mut DataSet, factors: impl Iterator<Item = f64>) {
    if set.weights.is_empty() {
        set.weights = vec![1.0; set.rows()];
    }
    set.weights.iter_mut().zip(factors).for_each(|(weight, factor)| *weight *= factor);
}

/// Takes a share of the rows out of training, drawn from the common randomness.
fn hold_out(raw: Raw, spec: &ProblemSpec, rank: usize, randomness: &CommonRandomness) -> (Raw, Option<Raw>) {
    let Some(TestRows::Share(share)) = spec.test else { return (raw, None) };
    let mut words = randomness.words(Purpose::Shuffle, u64::MAX - 1, rank as u32);
    let order = corewire_data::shard::permutation(raw.rows(), || words.next_u64());
    let (kept, rest) = order.split_at((share * raw.rows() as f64).round() as usize);
    let sorted = |rows: &[usize]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows
    };
    (raw.select(&sorted(rest)), Some(raw.select(&sorted(kept))))
}

/// Held-out rows as the model wants them: those that were kept, or those of the test file.
pub fn held_out(job: &Job, kept: Option<Raw>, columns: usize, preparation: &Preparation) -> Result<Option<DataSet>> {
    let raw = match (&job.problem.test, kept) {
        (None, _) | (Some(TestRows::Share(_)), None) => return Ok(None),
        (Some(TestRows::Share(_)), Some(kept)) => kept,
        (Some(TestRows::File(path)), _) => {
            let schema = preparation.schema.clone();
            let dim = schema.is_none().then_some(columns);
            let options = ReadOptions { dim, schema, held_out: true, ..read_options(job) };
            corewire_data::read(path, &options).with_context(|| "cannot use `problem.test`")?
        }
    };
    let (set, unknown) = preparation.encode(raw)?;
    tell_unknown(&unknown, "held-out rows");
    let set = DataSet { weights: Vec::new(), matrix: set.matrix.widened(columns), ..set };
    Ok(Some(preparation.apply(set)?))
}

/// Says where rows have words that a model does not know.
pub fn tell_unknown(unknown: &Unknown, whose: &str) {
    if let Some((column, word)) = &unknown.first {
        let word = if word.is_empty() { "no value".to_owned() } else { format!("`{word}`") };
        eprintln!(
            "note: {} cells of the {whose} have words that no row of training had, as {word} in `{column}`; they count as none \
             of the known ones",
            unknown.cells
        );
    }
}

/// A short digest of texts, one after the other.
pub fn digest_of(texts: &[String]) -> String {
    blake3::hash(texts.concat().as_bytes()).to_hex()[..16].to_owned()
}
