//! A job with everything that running it needs: seed, problem, method, rules; and the way from a job to its end on the machines of a
//! process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use corewire_comm::{Collective, CommError, Group, Metered, Reduction, Transport, Tree, handshake};
use corewire_data::{DataSet, Labels, Moments, Normalise, Preparation, ReadOptions};
use corewire_graph::gossip::Scheme;
use corewire_graph::graph::Graph;
use corewire_journal::{Contents, MachineState, Snapshot};
use corewire_optim::catalogue::{self, Constants, MethodInfo, Request, WireKind};
use corewire_optim::decentral::{Averaging, GossipWire};
use corewire_optim::method::Method;
use corewire_optim::optimum;
use corewire_optim::predict::HeldOutRows;
use corewire_optim::probe::Probe;
use corewire_optim::problem::{ModelSpec, Problem, rows_digest};
use corewire_optim::replay::{self, Facts};
use corewire_optim::run::{Begin, Finish, First, Gap, Observer, Rules, RunPart, Silent};
use corewire_optim::score::HeldOut;
use corewire_optim::sites::{self, ClassRule, SiteFacts};
use corewire_optim::{RunError, method, state};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Purpose, Seed, Sketch};
use zeroize::Zeroizing;

use crate::job::{
    Classes, DEFAULT_ROUNDS, DataSource, Engine, Gossip, GraphSpec, Job, ModelKind, ProblemSpec, TestRows,
};
use crate::memory::{self, Size};
use crate::{cache, secrecy};

/// The seed of a job: a secret one from a file, or a reproducible one from an integer.
pub fn seed(job: &Job) -> Result<Seed> {
    match &job.method.seed_file {
        None => Ok(Seed::reproducible(job.method.seed)),
        Some(path) => {
            secrecy::guard(job.engine != Engine::Threads);
            let unread =
                || format!("cannot read `method.seed_file` {}; `corewire seed FILE` makes one", path.display());
            secrecy::check_file(path, &memory::plain_file(path, 1 << 10).with_context(unread)?)?;
            let text = Zeroizing::new(std::fs::read_to_string(path).with_context(unread)?);
            Seed::parse(&text).with_context(|| format!("in {}", path.display()))
        }
    }
}

/// The rows of a file, or the bundled ones.
pub fn read_rows(source: &DataSource, options: &ReadOptions) -> Result<DataSet> {
    match source {
        DataSource::Digits => Ok(corewire_data::digits()),
        DataSource::File(path) => {
            if !path.exists() {
                bail!(
                    "there is no data set `{}`: `problem.data` is `digits`, `power-law` or the path of a LIBSVM, IDX or CSV file; \
                     `corewire data list` shows what can be fetched",
                    path.display()
                );
            }
            Ok(corewire_data::load(path, options)?)
        }
        DataSource::PowerLaw | DataSource::Sites(_) => bail!("these are not the rows of one file"),
    }
}

/// How machines without a centre are joined.
pub fn build_graph(spec: &GraphSpec, machines: usize, randomness: &CommonRandomness) -> Result<Graph> {
    let n = machines as f64;
    let edges = match spec.shape.as_str() {
        "complete" => n * n / 2.0,
        "erdos-renyi" => spec.probability * n * n / 2.0,
        "regular" => spec.degree as f64 * n / 2.0,
        _ => 2.0 * n,
    };
    // Each edge at both ends, and beside them names, degrees and distances.
    memory::check_bytes(&format!("{edges} edges of {machines} machines"), 32.0 * edges + 100.0 * n, memory::share())?;
    let graph = match (spec.shape.as_str(), &spec.file) {
        ("file", Some(path)) => read_graph(path)?,
        ("file", None) => bail!("a graph from a file needs the file: `--file edges.txt`, or `graph.file`"),
        (shape, _) => Graph::named(shape, machines, spec.degree, spec.probability, randomness)?,
    };
    if graph.machines() != machines {
        bail!("the graph joins {} machines and there are {machines}: they must be as many", graph.machines());
    }
    Ok(graph)
}

/// A graph from a list of edges.
pub fn read_graph(path: &Path) -> Result<Graph> {
    let unread = || format!("cannot read {}", path.display());
    memory::plain_file(path, 1 << 28).with_context(unread)?;
    let text = std::fs::read_to_string(path).with_context(unread)?;
    Graph::parse_edges(&text).with_context(|| format!("in {}", path.display()))
}

/// A job with all that does not depend on where its machines are.
#[derive(Clone)]
pub struct Session {
    /// The job.
    pub job: Job,
    /// Its seed.
    pub seed: Seed,
    /// What follows from the seed.
    pub randomness: CommonRandomness,
    /// The rows of all machines and what was done to them, where this process has them.
    pub pooled: Option<Pooled>,
    /// f*, if it is known.
    pub optimum: Option<f64>,
    /// What each phase took.
    pub phases: Vec<(&'static str, f64)>,
    constants: Arc<OnceLock<Constants>>,
}

/// All rows, in this process.
#[derive(Clone)]
pub struct Pooled {
    /// Shared out over the machines.
    pub problem: Arc<Problem>,
    /// What was done to the rows.
    pub preparation: Arc<Preparation>,
    /// Rows held out, prepared likewise.
    pub held_out: Option<Arc<DataSet>>,
}

impl Session {
    /// Reads the data and computes f*, where one process can know them.
    pub fn new(job: Job) -> Result<Self> {
        let mut session = Self::without_optimum(job)?;
        let stop = &session.job.stop;
        if stop.target().is_some() || (stop.gradient.is_none() && stop.gradient_relative.is_none()) {
            session.time("f*", |session| {
                session.optimum = optimum_of(session)?;
                Ok(())
            })?;
        }
        Ok(session)
    }

    /// Reads the data.
    pub fn without_optimum(job: Job) -> Result<Self> {
        let seed = seed(&job)?;
        let randomness = CommonRandomness::new(&seed);
        let (pooled, optimum, phases) = (None, None, Vec::new());
        let mut session = Self { job, seed, randomness, pooled, optimum, phases, constants: Arc::default() };
        if !session.job.problem.data.is_sites() {
            session.time("reading", |session| {
                session.pooled = Some(pool(&session.job, &session.randomness)?);
                Ok(())
            })?;
        }
        Ok(session)
    }

    fn time(&mut self, phase: &'static str, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        work(self)?;
        self.phases.push((phase, begun.elapsed().as_secs_f64()));
        Ok(())
    }

    /// The same problem with another method.
    pub fn with_method(&self, name: &str, parameters: BTreeMap<String, String>) -> Self {
        let mut other = self.clone();
        other.job.choose_method(name);
        other.job.method.parameters = parameters;
        other
    }

    /// The same rows on so many machines.
    pub fn with_machines(&self, machines: usize) -> Self {
        let mut other = self.clone();
        other.job.machines = machines;
        other.constants = Arc::default();
        if let Some(pooled) = &mut other.pooled {
            pooled.problem = Arc::new(match pooled.problem.data() {
                Some(data) => {
                    let spec = *pooled.problem.spec();
                    Problem::rows(Arc::clone(data), spec, machines, self.job.problem.split, &self.randomness)
                }
                None => power_law(&self.job, machines, &self.randomness),
            });
        }
        other
    }

    /// The problem, which this process has whole.
    pub fn problem(&self) -> Result<&Arc<Problem>> {
        let rows = "this needs all rows in one place, but they stay at their sites";
        Ok(&self.pooled.as_ref().ok_or_else(|| anyhow!("{rows}"))?.problem)
    }

    /// What the theory of the baselines rests on: given to all of them alike, and not billed.
    pub fn constants(&self) -> Result<&Constants> {
        let problem = self.problem()?;
        Ok(self.constants.get_or_init(|| Constants::measure(problem)))
    }

    /// The method's row in the catalogue; auto must have been settled.
    pub fn info(&self) -> Result<&'static MethodInfo> {
        let name =
            self.job.method.name.as_deref().ok_or_else(|| anyhow!("`method.name` = \"auto\" is not settled yet"))?;
        catalogue::find(name)
            .map_err(|error| anyhow!("{error}; `corewire methods` lists all methods and their parameters"))
    }

    /// Refuses a mistake in the method's parameters before anything runs.
    pub fn check_method(&self) -> Result<()> {
        let info = self.info()?;
        if self.pooled.is_none() {
            return Ok(());
        }
        let problem = self.problem()?;
        let constants = match info.is_core() && !self.gossips() {
            true => Constants::none(problem.dim(), problem.machines(), problem.spec().l1),
            false => self.constants()?.clone(),
        };
        let facts = Facts::of(&*problem.objective(0), problem.machines());
        self.method(info, problem.start(), &constants, facts.quadratic, self.averaging()?.as_ref()).map(drop)
    }

    /// A fresh method for a machine.
    pub fn method(
        &self,
        info: &'static MethodInfo,
        start: &[f64],
        constants: &Constants,
        quadratic: bool,
        averaging: Option<&Averaging>,
    ) -> Result<Box<dyn Method>> {
        let spec = &self.job.method;
        let request = Request {
            info,
            parameters: &spec.parameters,
            settings: &spec.settings,
            start,
            constants,
            quadratic,
            randomness: &self.randomness,
        };
        catalogue::build(&request, averaging)
            .map_err(|error| anyhow!("{error}; `corewire methods` lists all methods and their parameters"))
    }

    /// Whether the machines gossip.
    pub fn gossips(&self) -> bool {
        self.job.graph.as_ref().is_some_and(GraphSpec::gossips)
    }

    /// How the machines average, where they gossip.
    pub fn averaging(&self) -> Result<Option<Averaging>> {
        let Some(spec) = self.job.graph.as_ref().filter(|spec| spec.gossips()) else { return Ok(None) };
        let graph = build_graph(spec, self.job.machines, &self.randomness)?;
        let scheme = if spec.gossip == Gossip::Plain { Scheme::Plain } else { Scheme::Chebyshev };
        let wire = match self.job.method.settings.wire {
            WireKind::Q => GossipWire::Quantised(Box::new(self.randomness.clone())),
            WireKind::F32 => GossipWire::F32,
            WireKind::F64 => GossipWire::F64,
            WireKind::QSum | WireKind::Bf16 => bail!("gossip takes `method.wire` = \"q\", \"f32\" or \"f64\""),
        };
        Ok(Some(Averaging::new(graph, scheme, spec.iterations, spec.tolerance, wire)?))
    }

    /// Every machine's parent in the tree over which the machines talk, where they do.
    fn tree(&self) -> Result<Option<Vec<Option<usize>>>> {
        let Some(spec) = self.job.graph.as_ref().filter(|spec| !spec.gossips()) else { return Ok(None) };
        let tree = build_graph(spec, self.job.machines, &self.randomness)?.spanning_tree(0);
        Ok(Some((0..tree.machines()).map(|machine| tree.parent(machine)).collect()))
    }

    /// When to stop.
    pub fn rules(&self, snapshots: bool) -> Rules {
        let (stop, sites) = (&self.job.stop, self.job.problem.data.is_sites());
        Rules {
            rounds: stop.rounds.unwrap_or(DEFAULT_ROUNDS),
            target: stop.target().filter(|_| self.optimum.is_some()),
            optimum: self.optimum,
            gradient: stop.gradient,
            gradient_relative: stop.gradient_relative(sites),
            gap: stop.gap(sites).map(Gap::Relative),
            patience: stop.patience,
            seconds: stop.seconds,
            bytes: stop.bytes,
            // Whoever counts evaluations wants them, also where they have to travel.
            evaluate_every: stop.evaluate_every.or(stop.patience.map(|_| 1)),
            snapshots,
            scores: self.job.problem.test.is_some(),
            ..Rules::default()
        }
    }

    /// What all machines must agree on before the first round.
    fn handshake(&self, snapshots: bool) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("seed commitment", self.seed.commitment().to_string()),
            ("job", self.job.common()),
            ("snapshots", snapshots.to_string()),
            ("kernel test vector", kernel_test_vector(&self.randomness)),
        ];
        if let Some(Pooled { problem, .. }) = &self.pooled {
            fields.push(("rows", digest_of(&shares(problem))));
        }
        fields
    }
}

/// The digests of all machines' rows.
pub fn shares(problem: &Problem) -> Vec<String> {
    (0..problem.machines()).map(|rank| problem.share_digest(rank).unwrap_or_default()).collect()
}

fn digest_of(texts: &[String]) -> String {
    blake3::hash(texts.concat().as_bytes()).to_hex()[..16].to_owned()
}

fn power_law(job: &Job, machines: usize, randomness: &CommonRandomness) -> Problem {
    let spec = &job.problem;
    Problem::power_law(spec.dim, spec.decay, spec.alpha, machines, randomness)
}

/// How files are read within the limits of a job.
fn read_options(job: &Job) -> ReadOptions {
    memory::read_options(memory::allowed(&job.limits))
}

/// Reads all rows and shares them out.
fn pool(job: &Job, randomness: &CommonRandomness) -> Result<Pooled> {
    let spec = &job.problem;
    if spec.data == DataSource::PowerLaw {
        check_memory(job, Size { coordinates: spec.dim, ..Size::default() }, job.machines)?;
        let preparation =
            Preparation { labels: Labels::Numbers, normalise: Normalise::None, scaling: None, intercept: false };
        let problem = Arc::new(power_law(job, job.machines, randomness));
        return Ok(Pooled { problem, preparation: Arc::new(preparation), held_out: None });
    }
    let raw = read_rows(&spec.data, &ReadOptions { rows: spec.rows, ..read_options(job) })?;
    let raw = match spec.rows {
        Some(rows) => raw.first_rows(rows),
        None => raw,
    };
    let columns = raw.dim();
    let classes = if spec.model().has_classes() { raw.classes().len() } else { 0 };
    check_memory(job, Size::of(&raw, spec, classes), job.machines)?;
    let (raw, kept) = hold_out(raw, spec, 0, randomness);
    let name = raw.name.clone();
    let raw = select_sides(raw, spec)?;
    let classes = if counts_classes(spec) { raw.classes() } else { Vec::new() };
    let scaling =
        (spec.normalise == Normalise::Standard).then(|| Moments::of(&raw.matrix).scaling(raw.matrix.is_sparse()));
    let labels = label_rule(spec, &classes, &name)?;
    let preparation = Preparation { labels, normalise: spec.normalise, scaling, intercept: spec.intercept };
    let data = preparation.apply(raw)?;
    if data.rows() == 0 {
        bail!("{name} has no row of the classes of `problem.classes`");
    }
    let held_out = held_out(job, kept, columns, &preparation)?.map(Arc::new);
    let problem = Problem::rows(data, model_spec(spec, classes.len()), job.machines, spec.split, randomness);
    Ok(Pooled { problem: Arc::new(problem), preparation: Arc::new(preparation), held_out })
}

/// Refuses what so many machines of this process could not hold.
fn check_memory(job: &Job, size: Size, machines: usize) -> Result<()> {
    let spec = &job.method;
    let hub = spec.name.as_deref().is_some_and(|name| name == "core-newton");
    let memory =
        spec.settings.memory.map_or(0, |memory| memory.min(job.stop.rounds.unwrap_or(DEFAULT_ROUNDS) as usize));
    memory::check(&Size { machines, hub, memory, ..size }, memory::allowed(&job.limits))
}

fn model_spec(spec: &ProblemSpec, classes: usize) -> ModelSpec {
    let model = spec.model();
    ModelSpec { model, classes: if model.has_classes() { classes } else { 0 }, alpha: spec.alpha, l1: spec.l1 }
}

/// Whether the distinct labels have to be known before rows can be labelled.
fn counts_classes(spec: &ProblemSpec) -> bool {
    spec.model().has_classes() || (spec.binary && spec.classes.is_none())
}

/// Rows of the two sides alone, where sides are named; a class that no row has is a mistake.
fn select_sides(set: DataSet, spec: &ProblemSpec) -> Result<DataSet> {
    match &spec.classes {
        Some(Classes::Sides([negative, positive])) if !spec.data.is_sites() => {
            set.select_classes(negative, positive)?;
            Ok(keep_sides(set, negative, positive))
        }
        Some(Classes::Sides([negative, positive])) => Ok(keep_sides(set, negative, positive)),
        _ => Ok(set),
    }
}

fn keep_sides(set: DataSet, negative: &[f64], positive: &[f64]) -> DataSet {
    let named = |i: &usize| negative.contains(&set.labels[*i]) || positive.contains(&set.labels[*i]);
    set.select(&(0..set.rows()).filter(named).collect::<Vec<_>>())
}

/// What becomes of labels, given the classes of all rows.
fn label_rule(spec: &ProblemSpec, classes: &[f64], name: &str) -> Result<Labels> {
    if spec.model().has_classes() {
        return Ok(Labels::Classes(classes.to_vec()));
    }
    Ok(match &spec.classes {
        Some(Classes::Parity) => Labels::Parity,
        Some(Classes::Sides([negative, positive])) => {
            Labels::Sides { negative: negative.clone(), positive: positive.clone() }
        }
        None if !spec.binary => Labels::Numbers,
        None => match classes {
            &[negative, positive] => Labels::Sides { negative: vec![negative], positive: vec![positive] },
            classes => bail!(
                "{name} has {} classes and `{}` needs two sides: set `problem.classes`, for example [[{}], [{}]] or \"parity\"",
                classes.len(),
                spec.model.name(),
                classes.first().copied().unwrap_or(1.0),
                classes.last().copied().unwrap_or(2.0)
            ),
        },
    })
}

/// Takes a share of the rows out of training, drawn from the common randomness.
fn hold_out(
    set: DataSet,
    spec: &ProblemSpec,
    rank: usize,
    randomness: &CommonRandomness,
) -> (DataSet, Option<DataSet>) {
    let Some(TestRows::Share(share)) = spec.test else { return (set, None) };
    let mut words = randomness.words(Purpose::Shuffle, u64::MAX - 1, rank as u32);
    let order = corewire_data::shard::permutation(set.rows(), || words.next_u64());
    let (kept, rest) = order.split_at((share * set.rows() as f64).round() as usize);
    let sorted = |rows: &[usize]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        rows
    };
    (set.select(&sorted(rest)), Some(set.select(&sorted(kept))))
}

/// Held-out rows as the model wants them: those that were kept, or those of the test file.
fn held_out(job: &Job, kept: Option<DataSet>, columns: usize, preparation: &Preparation) -> Result<Option<DataSet>> {
    let raw = match (&job.problem.test, kept) {
        (None, _) => return Ok(None),
        (Some(TestRows::Share(_)), kept) => kept,
        (Some(TestRows::File(path)), _) => {
            let options = ReadOptions { dim: Some(columns), ..read_options(job) };
            Some(corewire_data::load(path, &options).with_context(|| "cannot use `problem.test`")?)
        }
    };
    raw.map(|raw| Ok(preparation.apply(raw)?)).transpose()
}

/// f*, from the cache where this problem was solved before; `None` where no solver is trusted with it.
fn optimum_of(session: &Session) -> Result<Option<f64>> {
    let Some(Pooled { problem, .. }) = &session.pooled else { return Ok(None) };
    if let Some(known) = problem.known_optimum() {
        return Ok(Some(known));
    }
    let Some(mut pooled) = problem.pooled() else { return Ok(None) };
    if !pooled.is_convex() || pooled.strong_convexity() == 0.0 {
        return Ok(None);
    }
    let name = cache::optimum_name(&format!("{:?}", problem.spec()), &mut *pooled);
    let start = problem.start();
    if let Some(value) = cache::read_optimum(&name).filter(|&value| optimum::is_plausible(&mut *pooled, start, value)) {
        return Ok(Some(value));
    }
    let value = if pooled.l1() > 0.0 {
        let smoothness = method::baselines::local_smoothness(&mut *pooled, start);
        optimum::minimise_l1(&mut *pooled, start, 1.05 * smoothness).1
    } else {
        optimum::minimise(&mut *pooled, start).1
    };
    cache::write_optimum(&name, value);
    Ok(Some(value))
}

/// A digest of what the kernels of this machine rebuild from fixed scalars, in every family.
fn kernel_test_vector(randomness: &CommonRandomness) -> String {
    let mut hasher = blake3::Hasher::new();
    let scalars: Vec<f64> = (0..7).map(|j| 1.0 / f64::from(j + 3)).collect();
    let mut out = vec![0.0; 333];
    for family in Family::ALL {
        let sketch = AnySketch::new(family, randomness, out.len(), scalars.len()).expect("a small sketch");
        sketch.reconstruct(1, &scalars, &mut out);
        hasher.update(&corewire_comm::numbers::to_bytes(&out));
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Where a resumed run goes on.
pub struct Resume {
    /// The journal.
    pub contents: Contents,
    /// Its snapshots, the newest first.
    pub snapshots: Vec<Snapshot>,
}

impl Resume {
    /// After how many rounds.
    pub fn round(&self) -> u64 {
        self.snapshots.first().map_or(0, |snapshot| snapshot.round)
    }

    /// What all machines must agree on: the run, where it goes on, and what had happened until then.
    fn place(&self) -> String {
        let link = self.contents.link_at(self.round()).unwrap_or_default();
        format!("{} after round {}, {link:02x?}", corewire_journal::run_id(&self.contents.header), self.round())
    }
}

/// What machine 0 knows when its machines are ready for the first round.
pub struct Prepared {
    /// What a method may ask.
    pub facts: Facts,
    /// x0.
    pub start: Vec<f64>,
    /// The method.
    pub info: &'static MethodInfo,
    /// What a baseline was given.
    pub constants: Option<Constants>,
    /// What was done to the rows.
    pub preparation: Preparation,
    /// The digests of all machines' rows.
    pub shares: Vec<String>,
}

/// How a run ended: as machine 0 saw it.
pub struct Done<O> {
    /// Why, where, and with which digest.
    pub finish: Finish,
    /// What was settled before the first round.
    pub prepared: Prepared,
    /// Machine 0's observer.
    pub observer: O,
}

/// Runs a job on the machines of this process. `observe` makes machine 0's observer once everything is settled; where machine 0 is in
/// another process nothing comes back but the end.
pub fn execute<O: Observer + Send>(
    session: &Session,
    transport: impl Transport + 'static,
    snapshots: bool,
    observe: impl Fn(&Prepared) -> Result<O> + Sync,
    resume: Option<&Resume>,
) -> Result<Option<Done<O>>> {
    let tree = session.tree()?;
    let mut fields = session.handshake(snapshots);
    fields.extend(resume.map(|resume| ("resumed run", resume.place())));
    let place: Mutex<Option<(Prepared, O)>> = Mutex::new(None);
    let results = Group::new(transport).with_deadline(session.job.limits.deadline()).run(|machine| -> Result<Finish> {
        let rank = machine.rank();
        let ready = |prepared: &Prepared| observe(prepared);
        let duty = Duty { session, fields: &fields, snapshots, resume, observe: &ready };
        let (finish, kept) = match &tree {
            None => duty.take_part(&mut Metered::new(machine, session.job.link))?,
            Some(parents) => duty.take_part(&mut Metered::new(Tree::new(machine, parents), session.job.link))?,
        };
        if rank == 0 {
            *place.lock().expect("nobody panics here") = kept;
        }
        Ok(finish)
    });
    let mut finish = None;
    let mut errors = Vec::new();
    for result in results {
        match result {
            Ok(done) => finish = finish.or(Some(done)),
            Err(error) => errors.push(error),
        }
    }
    // Who failed says more than who saw it fail.
    errors.sort_by_key(|error| error.downcast_ref::<RunError>().is_some_and(RunError::is_consequence));
    if let Some(error) = errors.into_iter().next() {
        return Err(error);
    }
    let kept = place.into_inner().expect("nobody panics here");
    Ok(kept.zip(finish).map(|((prepared, observer), finish)| Done { finish, prepared, observer }))
}

/// What a machine needs to take part.
struct Duty<'a, O> {
    session: &'a Session,
    fields: &'a [(&'static str, String)],
    snapshots: bool,
    resume: Option<&'a Resume>,
    observe: &'a (dyn Fn(&Prepared) -> Result<O> + 'a),
}

/// One machine's share, ready to be trained on.
struct Share {
    problem: Arc<Problem>,
    preparation: Preparation,
    held_out: Option<DataSet>,
    /// Machine 0's list of all digests.
    shares: Vec<String>,
}

impl<O: Observer> Duty<'_, O> {
    /// From the handshake to the end of the run. Machine 0 gets back what was prepared and its observer.
    fn take_part<C: Collective>(&self, comm: &mut Metered<C>) -> Result<(Finish, Option<(Prepared, O)>)> {
        let (session, rank) = (self.session, comm.rank());
        handshake::agree(comm, self.fields).map_err(RunError::from)?;
        let share = self.share(comm)?;
        let mut objective = share.problem.objective(rank);
        let facts = Facts::of(&*objective, comm.size());
        let info = match &session.job.method.name {
            Some(_) => session.info()?,
            // Nobody has all rows to try methods on, so the rule is the same everywhere.
            None => {
                catalogue::find(default_method(&facts, session.job.problem.model)).map_err(|error| anyhow!(error))?
            }
        };
        if session.job.stop.gap.is_some() && !info.estimates_gap() {
            bail!("`stop.gap` needs a method that estimates the gap, and {} does not: take core-newton", info.id);
        }
        let constants = match info.is_core() && !session.gossips() {
            true => None,
            false => Some(self.constants(comm, &share.problem, &mut *objective)?),
        };
        let none = Constants::none(facts.dim, facts.machines, facts.l1);
        let averaging = session.averaging()?;
        let start = share.problem.start();
        let prepared = Prepared {
            facts,
            start: start.to_vec(),
            info,
            constants,
            preparation: share.preparation,
            shares: share.shares,
        };
        let given = prepared.constants.as_ref().unwrap_or(&none);
        let fresh = || session.method(info, start, given, facts.quadratic, averaging.as_ref());
        let mut method = fresh()?;
        let mut own = match rank {
            0 => Some((self.observe)(&prepared)?),
            _ => None,
        };
        let mut begin = Begin::default();
        if let Some(resume) = self.resume {
            begin = go_back(resume, &mut *method, facts, rank)?;
            if rank == 0 && !session.gossips() {
                check_snapshot(resume, &mut *method, &mut *fresh()?, facts)?;
            }
        }
        let spec = share.problem.spec();
        let mut held_out = share.held_out.map(|set| HeldOutRows {
            set,
            model: spec.model,
            classes: spec.classes,
            sides: session.job.problem.binary,
        });
        let mut silent = Silent;
        let mut part = RunPart {
            objective: &mut *objective,
            method: &mut *method,
            held_out: held_out.as_mut().map(|rows| rows as &mut dyn HeldOut),
            observer: match &mut own {
                Some(observer) => observer,
                None => &mut silent,
            },
        };
        let finish = corewire_optim::run::run(comm, &mut part, &session.rules(self.snapshots), begin)?;
        Ok((finish, own.map(|observer| (prepared, observer))))
    }

    /// This machine's rows: its part of what the process has, or its own file and what all agree on.
    fn share<C: Collective>(&self, comm: &mut Metered<C>) -> Result<Share> {
        let (session, rank) = (self.session, comm.rank());
        let spec = &session.job.problem;
        if let Some(Pooled { problem, preparation, held_out }) = &session.pooled {
            // Where one process has all rows, machine 0 has those that are held out.
            let held_out = held_out.as_ref().filter(|_| rank == 0).map(|set| DataSet::clone(set));
            let (problem, preparation) = (Arc::clone(problem), Preparation::clone(preparation));
            let shares =
                if rank == 0 && (self.snapshots || self.resume.is_some()) { shares(&problem) } else { Vec::new() };
            return Ok(Share { problem, preparation, held_out, shares });
        }
        let DataSource::Sites(paths) = &spec.data else { bail!("there are no rows") };
        let read = read_site(&paths[rank], &session.job, rank, &session.randomness);
        let facts = read.as_ref().map(|(set, _, fixed_columns)| SiteFacts {
            rows: set.rows() as u64,
            columns: set.dim() as u64,
            fixed_columns: *fixed_columns,
            sparse: set.matrix.is_sparse(),
            classes: if counts_classes(spec) { set.classes() } else { Vec::new() },
            digest: rows_digest(set, 0..set.rows()),
        });
        let facts = facts.map_err(|error| format!("{error:#}"));
        let rule = match (counts_classes(spec), spec.model().has_classes()) {
            (false, _) => ClassRule::Numbers,
            (true, true) => ClassRule::Any,
            (true, false) => ClassRule::Two,
        };
        let (agreed, shares) = sites::agree(comm, facts, &rule).map_err(RunError::from)?;
        let (set, kept, _) = read?;
        let machines = if session.job.engine == Engine::Threads { comm.size() } else { 1 };
        let classes = if spec.model().has_classes() { agreed.classes.len() } else { 0 };
        check_memory(&session.job, Size { columns: agreed.columns, ..Size::of(&set, spec, classes) }, machines)?;
        let widen = |set: DataSet| DataSet { matrix: set.matrix.widened(agreed.columns), ..set };
        let (set, kept) = (widen(set), kept.map(widen));
        let scaling = match spec.normalise {
            Normalise::Standard => {
                let mine = Moments::of(&set.matrix);
                Some(sites::agree_on_scaling(comm, &mine, agreed.sparse).map_err(RunError::from)?)
            }
            _ => None,
        };
        let labels = label_rule(spec, &agreed.classes, &set.name)?;
        let preparation = Preparation { labels, normalise: spec.normalise, scaling, intercept: spec.intercept };
        let kept = kept.filter(|_| matches!(spec.test, Some(TestRows::Share(_))));
        let held_out = match (&spec.test, rank) {
            (Some(TestRows::File(_)), 1..) => None,
            _ => held_out(&session.job, kept, agreed.columns, &preparation)?,
        };
        let data = preparation.apply(set)?;
        let model = model_spec(spec, agreed.classes.len());
        let problem = Problem::site(data, model, rank, comm.size(), agreed.rows, &session.randomness);
        Ok(Share { problem: Arc::new(problem), preparation, held_out, shares })
    }

    /// What a baseline is given, the same numbers on every machine.
    fn constants<C: Collective>(
        &self,
        comm: &mut Metered<C>,
        problem: &Problem,
        objective: &mut dyn corewire_optim::objective::Objective,
    ) -> Result<Constants> {
        let layout = problem.layout();
        let misread = || RunError::from(CommError::refused(0, "its constants are not understood"));
        if self.session.pooled.is_some() {
            // Measured once where the machines are in one process; else those of machine 0 travel.
            let measure = |_: &[&[u8]]| -> Result<Vec<u8>, CommError> {
                let constants =
                    self.session.constants().map_err(|error| CommError::refused(0, format!("{error:#}")))?;
                Ok(constants.to_bytes())
            };
            let bytes = match comm.beside(&[], &mut { measure }) {
                Some(bytes) => bytes.map_err(RunError::from)?,
                None => comm.exchange(&[], Reduction::Hub(&mut { measure })).map_err(RunError::from)?.message,
            };
            return Ok(Constants::from_bytes(&bytes, problem.machines(), layout).ok_or_else(misread)?);
        }
        let probe = Probe::new(problem.dim(), &self.session.randomness);
        let start = problem.start();
        let smoothness = method::baselines::local_smoothness(objective, start);
        let mut scratch = Vec::new();
        let mut context = method::Context { objective, comm: &mut *comm, message: &mut scratch };
        let mut message = probe.message(&mut context, start)?;
        let (strong_convexity, l1) = (context.objective.strong_convexity(), context.objective.l1());
        message.extend_from_slice(&smoothness.to_le_bytes());
        let mut answer = |messages: &[&[u8]]| {
            let short = |rank| CommError::refused(rank, "what it tells of its curvature is too short");
            let mut probes = Vec::with_capacity(messages.len());
            let mut most = 0.0f64;
            for (rank, message) in messages.iter().enumerate() {
                let (probe, own) = message.split_last_chunk::<8>().ok_or_else(|| short(rank))?;
                most = most.max(f64::from_le_bytes(*own));
                probes.push(probe);
            }
            let curvature = probe.guess(&probes, strong_convexity)?;
            let constants = Constants {
                smoothness: curvature.smoothness,
                max_smoothness: most.max(curvature.smoothness),
                strong_convexity,
                trace: curvature.trace,
                ..Constants::none(problem.dim(), problem.machines(), l1)
            };
            Ok(constants.to_bytes())
        };
        let reply = comm.exchange(&message, Reduction::Hub(&mut answer)).map_err(RunError::from)?;
        Ok(Constants::from_bytes(&reply.message, problem.machines(), layout).ok_or_else(misread)?)
    }
}

/// The method that auto stands for where no trial can be made.
pub fn default_method(facts: &Facts, model: ModelKind) -> &'static str {
    let curved = matches!(model, ModelKind::Ridge | ModelKind::Logistic | ModelKind::Quadratic);
    if facts.l1 > 0.0 {
        "core-gd"
    } else if curved && facts.strong_convexity > 0.0 {
        "core-newton"
    } else if facts.convex {
        "core-agd"
    } else {
        "core-nonconvex"
    }
}

/// A machine's own file: its rows for training, those it holds out, and whether the format says how many columns there are.
fn read_site(
    path: &Path,
    job: &Job,
    rank: usize,
    randomness: &CommonRandomness,
) -> Result<(DataSet, Option<DataSet>, bool)> {
    let spec = &job.problem;
    if spec.rows.is_some() {
        bail!("`problem.rows` is for one file with all rows; here every machine has its own");
    }
    let options = ReadOptions { allow_empty: true, ..read_options(job) };
    let (set, fixed_columns) = corewire_data::load_shard(path, &options)?;
    let set = match spec.classes.as_ref().filter(|_| spec.model != ModelKind::Softmax) {
        Some(Classes::Sides([negative, positive])) => keep_sides(set, negative, positive),
        _ => set,
    };
    let (set, kept) = hold_out(set, spec, rank, randomness);
    Ok((set, kept, fixed_columns))
}

/// Prepares a method from the journal and puts a machine's snapshot back.
fn go_back(resume: &Resume, method: &mut dyn Method, facts: Facts, rank: usize) -> Result<Begin> {
    let Some(snapshot) = resume.snapshots.first() else { return Ok(Begin::default()) };
    let machine = put_back(resume, snapshot, method, facts, rank)?;
    let [gradient_norm, gap] = snapshot.first;
    let (round, traffic, initial) = (snapshot.round, machine.traffic, snapshot.initial);
    Ok(Begin { round, traffic, initial, first: First { gradient_norm, gap } })
}

fn put_back<'a>(
    resume: &Resume,
    snapshot: &'a Snapshot,
    method: &mut dyn Method,
    facts: Facts,
    rank: usize,
) -> Result<&'a MachineState> {
    replay::prepare(method, &resume.contents, facts)?;
    let machine = snapshot.machines.get(rank).ok_or_else(|| anyhow!("the snapshot has no machine {rank}"))?;
    state::restore(method, machine.saved.clone()).map_err(RunError::Unsuited)?;
    Ok(machine)
}

/// Refuses a snapshot whose common state, which `restored` has, is not where the journal leads from the snapshot before it, or from the
/// start. `witness` is a fresh method.
fn check_snapshot(resume: &Resume, restored: &mut dyn Method, witness: &mut dyn Method, facts: Facts) -> Result<()> {
    let Some(newest) = resume.snapshots.first() else { return Ok(()) };
    let from = match resume.snapshots.get(1) {
        Some(older) => {
            put_back(resume, older, witness, facts, 0)?;
            older.round
        }
        None => {
            replay::prepare(witness, &resume.contents, facts)?;
            0
        }
    };
    replay::advance(witness, &resume.contents, facts, from..newest.round)?;
    if state::digest(witness) != state::digest(restored) {
        let name = Snapshot::path(Path::new(""), newest.round);
        bail!("{}: its common `state` is not where journal.bin leads to; take it away", name.display());
    }
    Ok(())
}
