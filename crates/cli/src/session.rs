//! A job with everything that running it needs: seed, problem, method, rules; and the way from a job to its end on the machines of a
//! process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use corewire_comm::{Collective, CommError, Group, Metered, Reduction, Transport, Tree, handshake};
use corewire_data::{DataSet, Moments, Normalise, Preparation, Rows, Schema};
use corewire_graph::gossip::Scheme;
use corewire_graph::graph::Graph;
use corewire_journal::{Contents, MachineState, Snapshot};
use corewire_optim::catalogue::{self, Constants, MethodInfo, Request, WireKind};
use corewire_optim::decentral::{Averaging, GossipWire};
use corewire_optim::layout::Layout;
use corewire_optim::method::Method;
use corewire_optim::method::newton::{MOST_TELLINGS, most_rows};
use corewire_optim::optimum;
use corewire_optim::predict::{self, HeldOutRows, Known, STATISTICS_ROWS};
use corewire_optim::probe::Probe;
use corewire_optim::problem::{Model, ModelSpec, Problem};
use corewire_optim::replay::{self, Facts};
use corewire_optim::run::{Begin, Finish, First, Observer, Rules, RunPart, Silent};
use corewire_optim::score::HeldOut;
use corewire_optim::sites::{self, ClassRule};
use corewire_optim::{RunError, method, state};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Purpose, Seed, Sketch};
use zeroize::Zeroizing;

use crate::job::{DEFAULT_ROUNDS, DataSource, Engine, Gossip, GraphSpec, Job, TestRows};
use crate::memory::{self, Size};
use crate::progress::Phase;
use crate::rows::{
    Pooled, channels, check_memory, check_pictures, counts_classes, digest_of, held_out, label_rule, model_spec, pool,
    power_law, read_site, site_facts, weigh,
};
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

/// Methods are tried on all rows up to so many entries of rows and of the machines' iterates, and on a sample of so many otherwise.
const MOST_TRIED: usize = 4_000_000;
const SAMPLED: usize = 200_000;
/// And on a sample where f* of all of them is not found in so many seconds.
const SOON: f64 = 5.0;
/// f* of a sample takes a second or two; so many seconds where others use the machine. What is chosen must not hang on that.
const OF_SAMPLE: f64 = 60.0;
/// A sample has at most so many columns.
const MOST_COLUMNS: usize = 512;

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
    /// Whether it took too long to find.
    pub gave_up: bool,
    /// Whether nobody is told of progress.
    pub quiet: bool,
    /// What each phase took.
    pub phases: Vec<(&'static str, f64)>,
    /// Where to begin, if not at the problem's own start.
    pub start: Option<Arc<Vec<f64>>>,
    /// How many times as many columns there are as this sample has; 1 where it is no sample.
    pub left_out: f64,
    /// How many times the rank of a machine's Hessian in all rows is that in this sample, at most.
    pub rank_left_out: f64,
    constants: Arc<OnceLock<Constants>>,
}

impl Session {
    /// Reads the data, where one process can have them.
    pub fn without_optimum(job: Job, quiet: bool) -> Result<Self> {
        let seed = seed(&job)?;
        let randomness = CommonRandomness::new(&seed);
        let mut session = Self {
            job,
            seed,
            randomness,
            pooled: None,
            optimum: None,
            gave_up: false,
            quiet,
            phases: Vec::new(),
            start: None,
            left_out: 1.0,
            rank_left_out: 1.0,
            constants: Arc::default(),
        };
        if !session.job.problem.data.is_sites() {
            let _bar = Phase::new(quiet, "reading", 0);
            session.time("reading", |session| {
                let pooled = pool(&session.job, &session.randomness)?;
                session.job.settle_epochs(pooled.problem.row_count());
                let start = |path: &std::path::PathBuf| {
                    network_start(path, &session.job, &pooled.problem.layout()).map(Arc::new)
                };
                session.start = session.job.problem.start.as_ref().map(start).transpose()?;
                session.pooled = Some(pooled);
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

    /// The same training, shorter, to tune by: held-out rows are scored only where they end it.
    pub fn training_for(&self, rounds: u64) -> Self {
        let mut other = self.clone();
        other.job.train_for(rounds);
        if let Some(pooled) = other.pooled.as_mut().filter(|_| self.job.stop.patience.is_none()) {
            pooled.held_out = None;
        }
        other
    }

    /// This problem with its f*, or a sample of it where that would take too long to try methods on.
    pub fn tried(self) -> Result<(Self, Option<Self>)> {
        let problem = self.problem()?;
        let soon = SOON.min(self.job.limits.optimum_seconds());
        let work = problem.data().map_or(0, |data| entries(data) + problem.machines() * problem.dim());
        let session = if work <= MOST_TRIED { self.with_optimum_in(soon)? } else { Self { gave_up: true, ..self } };
        let sample = if session.gave_up { session.sampled()? } else { None };
        Ok((Self { gave_up: false, ..session }, sample))
    }

    /// The same problem on a sample of its rows, and of its columns where there are very many, with f*.
    fn sampled(&self) -> Result<Option<Self>> {
        let Some(data) = self.pooled.as_ref().and_then(|pooled| pooled.problem.data()) else { return Ok(None) };
        let count = (data.rows() as f64 * SAMPLED as f64 / entries(data) as f64).ceil() as usize;
        let mut words = self.randomness.words(Purpose::Shuffle, u64::MAX - 2, 0);
        let mut rows = corewire_data::shard::permutation(data.rows(), || words.next_u64());
        rows.truncate(count.max(self.job.machines));
        rows.sort_unstable();
        let mut other = self.clone();
        other.constants = Arc::default();
        other.job.problem.test = None;
        if let Some(pooled) = &mut other.pooled {
            let (spec, split) = (*pooled.problem.spec(), self.job.problem.split);
            let sample = data.select(&rows).commonest_columns(MOST_COLUMNS);
            other.left_out = data.dim() as f64 / sample.dim() as f64;
            let rank = |set: &DataSet| set.dim().min(set.rows().div_ceil(self.job.machines)) as f64;
            other.rank_left_out = rank(data) / rank(&sample);
            let sample = Problem::rows(sample, spec, self.job.machines, split, &self.randomness);
            pooled.problem = Arc::new(sample);
        }
        Ok(Some(other.with_optimum_in(OF_SAMPLE)?))
    }

    /// Computes f*, where one process can know it, and says where that takes too long.
    pub fn with_optimum(self) -> Result<Self> {
        let seconds = self.job.limits.optimum_seconds();
        let session = self.with_optimum_in(seconds)?;
        if session.gave_up && !session.quiet {
            let why = if seconds > 0.0 { format!("not found in {seconds} s") } else { "not computed".to_owned() };
            eprintln!("f* was {why} (`limits.optimum_seconds`): the run ends by estimates of the gap or the gradient");
        }
        Ok(session)
    }

    /// Computes f* in so many seconds.
    fn with_optimum_in(mut self, seconds: f64) -> Result<Self> {
        let stop = &self.job.stop;
        if self.optimum.is_none()
            && (stop.target().is_some() || (stop.gradient.is_none() && stop.gradient_relative.is_none()))
        {
            self.time("f*", |session| {
                (session.optimum, session.gave_up) = optimum_of(session, seconds)?;
                Ok(())
            })?;
        }
        Ok(self)
    }

    /// The same rows with another alpha.
    pub fn with_penalty(&self, alpha: f64) -> Result<Self> {
        let mut other = self.clone();
        other.job.set_alpha(alpha);
        (other.optimum, other.gave_up) = (None, false);
        other.shared_out().with_optimum()
    }

    /// The same rows on so many machines.
    pub fn with_machines(&self, machines: usize) -> Self {
        let mut other = self.clone();
        other.job.machines = machines;
        other.shared_out()
    }

    /// The same rows and another seed: who has which of them, and all directions.
    pub fn with_seed(&self, seed: u64) -> Result<Self> {
        let mut other = self.clone();
        other.job.method.seed = seed;
        other.seed = self::seed(&other.job)?;
        other.randomness = CommonRandomness::new(&other.seed);
        Ok(other.shared_out())
    }

    /// Shares the rows out again, as the job says.
    fn shared_out(mut self) -> Self {
        self.constants = Arc::default();
        if let Some(pooled) = &mut self.pooled {
            let problem = match pooled.problem.data() {
                Some(data) => {
                    let spec = ModelSpec { alpha: self.job.problem.alpha, ..*pooled.problem.spec() };
                    Problem::rows(Arc::clone(data), spec, self.job.machines, self.job.problem.split, &self.randomness)
                }
                None => power_law(&self.job, self.job.machines, &self.randomness),
            };
            pooled.problem = Arc::new(problem);
        }
        self
    }

    /// The problem, which this process has whole.
    pub fn problem(&self) -> Result<&Arc<Problem>> {
        let rows = "this needs all rows in one place, but they stay at their sites";
        Ok(&self.pooled.as_ref().ok_or_else(|| anyhow!("{rows}"))?.problem)
    }

    /// What the theory of the baselines rests on: given to all of them alike, and not billed.
    pub fn constants(&self) -> Result<&Constants> {
        let problem = self.problem()?;
        Ok(self.constants.get_or_init(|| match problem.spec().model.is_network() {
            true => Constants::of_network(problem.machines(), problem.layout()),
            false => Constants::measure(problem),
        }))
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
            true => Constants::none(problem.dim(), problem.machines(), problem.spec().proximal),
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
        let shipment = self.pooled.as_ref().and_then(Pooled::shipment);
        if info.ships_rows() && shipment.is_none() {
            bail!(
                "`{}` sends the rows, and here they {}: take another method",
                info.id,
                match self.pooled {
                    None => "stay at their sites",
                    Some(_) => "are no file",
                }
            );
        }
        let request = Request {
            info,
            parameters: &spec.parameters,
            settings: &spec.settings,
            start,
            constants,
            quadratic,
            randomness: &self.randomness,
            shipment: shipment.as_ref(),
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

    /// The relative suboptimality to reach; of a network, the loss relative to the first, only where somebody asks for it.
    pub fn target(&self) -> Option<f64> {
        let stop = &self.job.stop;
        stop.target().filter(|_| !self.job.problem.model.is_network() || stop.target.is_some())
    }

    /// When to stop.
    pub fn rules(&self, snapshots: bool) -> Rules {
        let stop = &self.job.stop;
        // Where no solver is trusted with the problem, its rounds are all run.
        let network = self.job.problem.model.is_network();
        let measured = network || (!self.gave_up && !self.job.problem.data.is_sites());
        Rules {
            rounds: stop.rounds.unwrap_or(DEFAULT_ROUNDS),
            target: self.target().filter(|_| self.optimum.is_some()),
            optimum: self.optimum,
            gradient: stop.gradient,
            gradient_relative: stop.gradient_relative(measured),
            // Without a penalty f* is not known either.
            gap: stop.gap(measured && (network || self.job.problem.alpha > 0.0)),
            patience: stop.patience,
            seconds: stop.seconds,
            bytes: stop.bytes,
            // Whoever counts evaluations wants them, also where they have to travel.
            evaluate_every: stop.evaluate_every.or(stop.patience.map(|_| 1)),
            led: self.gave_up,
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

/// Where a network begins, by a file: a model of corewire's own, or tensors under PyTorch's names.
pub fn network_start(path: &Path, job: &Job, layout: &Layout) -> Result<Vec<f64>> {
    let shown = path.display();
    memory::plain_file(path, memory::allowed(&job.limits) / 8)
        .with_context(|| format!("cannot read {shown}, from which the network begins"))?;
    if let Ok((mut vectors, _)) = corewire_journal::read_model(path) {
        let x = vectors.remove("x").unwrap_or_default();
        if x.len() != layout.dim() {
            bail!("{shown} has {} parameters, and the network wants {}", x.len(), layout.dim());
        }
        return Ok(x);
    }
    let tensors = corewire_journal::read_tensors(path)?;
    let mut start = Vec::with_capacity(layout.dim());
    for block in layout.blocks() {
        let name = &block.name;
        let tensor = tensors.get(name).ok_or_else(|| anyhow!("{shown} has no tensor `{name}`"))?;
        if tensor.shape != block.shape {
            bail!("{shown}: `{name}` has the shape {:?}, and the network wants {:?}", tensor.shape, block.shape);
        }
        if !tensor.values.iter().all(|value| value.is_finite()) {
            bail!("{shown}: the numbers of `{name}` are not all finite");
        }
        start.extend(tensor.values.iter().map(|&value| f64::from(value)));
    }
    Ok(start)
}

/// How many numbers these rows have.
fn entries(data: &DataSet) -> usize {
    match data.matrix.storage() {
        Rows::Dense { values } | Rows::Sparse { values, .. } => values.len(),
    }
}

/// f*, from the cache where this problem was solved before; `None` where no solver is trusted with it, or where the time was up, which is
/// told.
fn optimum_of(session: &Session, seconds: f64) -> Result<(Option<f64>, bool)> {
    let Some(Pooled { problem, .. }) = &session.pooled else { return Ok((None, false)) };
    if let Some(known) = problem.known_optimum() {
        return Ok((Some(known), false));
    }
    if problem.spec().model.is_network() {
        // No cross entropy is below 0: what is shown is the loss relative to the first.
        return Ok((Some(0.0), false));
    }
    let Some(mut pooled) = problem.pooled() else { return Ok((None, false)) };
    if !pooled.is_convex() || pooled.strong_convexity() == 0.0 {
        return Ok((None, false));
    }
    if seconds == 0.0 {
        return Ok((None, true));
    }
    let name = cache::optimum_name(&format!("{:?}", problem.spec()), &mut *pooled);
    let start = problem.start();
    if let Some(value) = cache::read_optimum(&name).filter(|&value| optimum::is_plausible(&mut *pooled, start, value)) {
        return Ok((Some(value), false));
    }
    // All digits are there at 1e-14.
    let (bar, begun) = (Phase::new(session.quiet, "f*", 14), Instant::now());
    let mut in_time = true;
    let mut go_on = |left: f64| {
        bar.show((-left.log10()).max(0.0) as u64, || format!("{left:.0e} left, at most {seconds} s"));
        in_time = begun.elapsed().as_secs_f64() < seconds;
        in_time
    };
    let value = if !pooled.proximal().is_none() {
        let smoothness = method::baselines::local_smoothness(&mut *pooled, start);
        optimum::minimise_proximal(&mut *pooled, start, 1.05 * smoothness, &mut go_on).1
    } else {
        optimum::minimise_while(&mut *pooled, start, 1e-14, &mut go_on).1
    };
    if !in_time {
        return Ok((None, true));
    }
    cache::write_optimum(&name, value);
    Ok((Some(value), false))
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
    /// x0, on machine 0.
    pub start: Vec<f64>,
    /// The method.
    pub info: &'static MethodInfo,
    /// What a baseline was given.
    pub constants: Option<Constants>,
    /// What is fitted.
    pub model: Model,
    /// What was done to the rows.
    pub preparation: Preparation,
    /// What the rows of all machines weigh together.
    pub weight: f64,
    /// The digests of all machines' rows.
    pub shares: Vec<String>,
    /// Some of machine 0's rows, for the statistics of batch norms; none for other models.
    pub examples: DataSet,
    /// The classes of the model.
    pub classes: usize,
}

impl Prepared {
    /// What batch norms would know of the rows of training at x.
    pub fn statistics(&self, x: &[f64]) -> Vec<f64> {
        predict::statistics(self.model, self.classes, x, &self.examples)
    }
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
            Some(parents) => duty.take_part(&mut Metered::new(&mut Tree::new(machine, parents), session.job.link))?,
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
    fn take_part(&self, comm: &mut Metered<'_>) -> Result<(Finish, Option<(Prepared, O)>)> {
        let (session, rank) = (self.session, comm.rank());
        handshake::agree(comm, self.fields).map_err(RunError::from)?;
        let share = self.share(comm)?;
        let mut objective = share.problem.objective(rank);
        let facts = Facts::of(&*objective, comm.size());
        let info = match &session.job.method.name {
            Some(_) => session.info()?,
            // Nobody has all rows to try methods on, so the rule is the same everywhere.
            None => catalogue::find(default_method(&facts, session)).map_err(|error| anyhow!(error))?,
        };
        if let Some(key) = session.job.stop.asks_for_gap().filter(|_| !info.estimates_gap()) {
            bail!("`{key}` needs a method that estimates the gap, and {} does not: take core-newton", info.id);
        }
        let constants = match info.is_core() && !session.gossips() {
            true => None,
            false => Some(self.constants(comm, &share.problem, &mut *objective)?),
        };
        let none = Constants::none(facts.dim, facts.machines, facts.proximal);
        let averaging = session.averaging()?;
        let start = session.start.as_ref().map_or(share.problem.start(), |start| &start[..]);
        let prepared = Prepared {
            facts,
            // The others have it in their methods.
            start: if rank == 0 { start.to_vec() } else { Vec::new() },
            info,
            constants,
            model: share.problem.spec().model,
            preparation: share.preparation,
            weight: share.problem.weight(),
            shares: share.shares,
            examples: match rank {
                0 => {
                    share.problem.examples(0, if session.job.problem.model.is_network() { STATISTICS_ROWS } else { 0 })
                }
                _ => share.problem.examples(rank, 0),
            },
            classes: share.problem.spec().classes,
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
            known: Known::Rows(share.problem.examples(rank, STATISTICS_ROWS)),
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
    fn share(&self, comm: &mut Metered<'_>) -> Result<Share> {
        let (session, rank) = (self.session, comm.rank());
        let spec = &session.job.problem;
        if let Some(Pooled { problem, preparation, held_out, .. }) = &session.pooled {
            // Where one process has all rows, machine 0 has those that are held out.
            let held_out = held_out.as_ref().filter(|_| rank == 0).map(|set| DataSet::clone(set));
            let (problem, preparation) = (Arc::clone(problem), Preparation::clone(preparation));
            let shares =
                if rank == 0 && (self.snapshots || self.resume.is_some()) { shares(&problem) } else { Vec::new() };
            return Ok(Share { problem, preparation, held_out, shares });
        }
        let DataSource::Sites(paths) = &spec.data else { bail!("there are no rows") };
        let read = read_site(&paths[rank], &session.job, rank, &session.randomness);
        let facts = read
            .as_ref()
            .map_err(|error| format!("{error:#}"))
            .map(|(raw, _)| raw)
            .and_then(|raw| site_facts(raw, spec).map_err(|error| format!("{error:#}")));
        let rule = match (counts_classes(spec), spec.model().has_classes(), &spec.classes) {
            (false, _, _) => ClassRule::Numbers,
            (true, true, _) | (true, _, Some(_)) => ClassRule::Any,
            (true, false, None) => ClassRule::Two,
        };
        let missing = spec.read.columns.missing;
        let (agreed, shares) = sites::agree(comm, facts, &rule, missing).map_err(RunError::from)?;
        let (raw, kept) = read?;
        let name = paths[rank].file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let labels = label_rule(spec, &agreed.classes, agreed.schema.as_ref().and_then(Schema::label_words), &name)?;
        let schema = agreed.schema.map(Arc::new);
        let mut preparation =
            Preparation { schema, labels, normalise: spec.normalise, scaling: None, intercept: spec.intercept };
        let (set, _) = preparation.encode(raw)?;
        let set = DataSet { matrix: set.matrix.widened(agreed.columns), ..set };
        let machines = if session.job.engine == Engine::Threads { comm.size() } else { 1 };
        let scored = if spec.model().has_classes() { agreed.classes.len() } else { 0 };
        check_memory(&session.job, Size::of(&set, spec, scored), machines)?;
        check_pictures(spec, agreed.columns, agreed.classes.len())?;
        let mine = Moments::of(&set.matrix);
        preparation.scaling = match spec.normalise {
            Normalise::Standard => Some(sites::agree_on_scaling(comm, &mine, agreed.sparse).map_err(RunError::from)?),
            Normalise::Channels => {
                let mine = mine.by_channel(channels(agreed.columns));
                let scaling = sites::agree_on_scaling(comm, &mine, false).map_err(RunError::from)?;
                Some(scaling.spread(agreed.columns))
            }
            Normalise::Unit | Normalise::None => None,
        };
        let (data, weight) = weigh(spec, &mut preparation, set, agreed.classes.len(), |sums| {
            Ok(sites::add_up(comm, sums).map_err(RunError::from)?)
        })?;
        let kept = kept.filter(|_| matches!(spec.test, Some(TestRows::Share(_))));
        let held_out = match (&spec.test, rank) {
            (Some(TestRows::File(_)), 1..) => None,
            _ => held_out(&session.job, kept, agreed.columns, &preparation)?,
        };
        let model = model_spec(spec, agreed.classes.len());
        let weight = weight.unwrap_or(agreed.rows as f64);
        let problem = Problem::site(data, model, rank, comm.size(), agreed.rows, weight, &session.randomness);
        Ok(Share { problem: Arc::new(problem), preparation, held_out, shares })
    }

    /// What a baseline is given, the same numbers on every machine.
    fn constants(
        &self,
        comm: &mut Metered<'_>,
        problem: &Problem,
        objective: &mut dyn corewire_optim::objective::Objective,
    ) -> Result<Constants> {
        let layout = problem.layout();
        if problem.spec().model.is_network() {
            return Ok(Constants::of_network(problem.machines(), layout));
        }
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
            return Ok(Constants::from_bytes(&bytes, problem.machines(), layout, problem.spec().proximal)
                .ok_or_else(misread)?);
        }
        let probe = Probe::new(problem.dim(), &self.session.randomness);
        let start = problem.start();
        let smoothness = method::baselines::local_smoothness(objective, start);
        let mut scratch = Vec::new();
        let mut context = method::Context { objective, comm: &mut *comm, message: &mut scratch };
        let mut message = probe.message(&mut context, start)?;
        let (convex, strong_convexity) = (context.objective.is_convex(), context.objective.strong_convexity());
        message.extend_from_slice(&smoothness.to_le_bytes());
        let mut answer = |messages: &[&[u8]]| {
            let short = |rank| CommError::refused(rank, "what it tells of its curvature is too short");
            let mut probes = Vec::with_capacity(messages.len());
            let (mut most, mut squares) = (0.0f64, 0.0);
            for (rank, message) in messages.iter().enumerate() {
                let (probe, own) = message.split_last_chunk::<8>().ok_or_else(|| short(rank))?;
                let own = f64::from_le_bytes(*own);
                (most, squares) = (most.max(own), squares + own * own);
                probes.push(probe);
            }
            let curvature = probe.guess(&probes, strong_convexity)?;
            let constants = Constants {
                smoothness: curvature.smoothness,
                max_smoothness: most.max(curvature.smoothness),
                mean_smoothness: (squares / messages.len() as f64).sqrt().max(curvature.smoothness),
                convex,
                strong_convexity,
                trace: curvature.trace,
                ..Constants::none(problem.dim(), problem.machines(), problem.spec().proximal)
            };
            Ok(constants.to_bytes())
        };
        let reply = comm.exchange(&message, Reduction::Hub(&mut answer)).map_err(RunError::from)?;
        Ok(Constants::from_bytes(&reply.message, problem.machines(), layout, problem.spec().proximal)
            .ok_or_else(misread)?)
    }
}

/// More than this is not asked of machine 0 without a word.
const MOST_HUB_BYTES: f64 = 2e9;

/// What the hub of core-newton keeps of one telling at most: rows of curvature of every machine, no more than the largest has of data.
pub fn hub_bytes(facts: &Facts, share: Option<usize>, detail: f64) -> f64 {
    hub_rows(facts, share, detail, 1)
}

/// And what it keeps of all of them: on quadratics they add up.
pub fn most_hub_bytes(facts: &Facts, share: Option<usize>, detail: f64) -> f64 {
    hub_rows(facts, share, detail, if facts.quadratic { MOST_TELLINGS } else { 1 })
}

fn hub_rows(facts: &Facts, share: Option<usize>, detail: f64, tellings: usize) -> f64 {
    let columns = facts.dim / facts.blocks;
    let rank = share.unwrap_or(columns).min(columns);
    let rows = rank.min(tellings * most_rows(detail, facts.machines, columns));
    8.0 * rows as f64 * facts.machines as f64 * columns as f64
}

/// The method that auto stands for where no trial can be made.
pub fn default_method(facts: &Facts, session: &Session) -> &'static str {
    let model = session.job.problem.model;
    // Gossip has no hub. Without a penalty core-newton adds a small one, and says so.
    let hub = model.is_curved() && !session.gossips() && session.job.method.settings.wire == WireKind::Q;
    if model.is_network() {
        "core-sgd"
    } else if hub && hub_bytes(facts, None, 1.0) <= MOST_HUB_BYTES {
        "core-newton"
    } else if facts.convex {
        "core-agd"
    } else {
        "core-nonconvex"
    }
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
    state::restore(method, &snapshot.common, &machine.saved).map_err(RunError::Unsuited)?;
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
