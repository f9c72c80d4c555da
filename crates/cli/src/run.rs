//! `corewire run`, `replay` and `journal verify`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Context, Result, anyhow, bail};
use corewire_comm::{Collective, Group, Metered, Solo, Transport, Tree, handshake};
use corewire_optim::decentral::Averaging;
use corewire_optim::journal::{self, Contents, Facts, Snapshot};
use corewire_optim::method::Method;
use corewire_optim::method::field::Known;
use corewire_optim::problem::Problem;
use corewire_optim::run::{Begin, Finish, Observer, Rules, Silent};
use corewire_optim::{RunError, state};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Seed, Sketch};
use serde::{Deserialize, Serialize};

use crate::desk::{Archive, Desk, watch_interrupts};
use crate::job::{self, Job};
use crate::{assemble, summary};

/// Arguments of `corewire run`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The job file; the bundled job without one.
    job: Option<PathBuf>,
    /// Overrides a key of the job file, as in method.budget=64.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The engine.
    #[arg(long, value_parser = ["threads", "mpi"])]
    engine: Option<String>,
    /// Keeps the run in this folder: journal, snapshots, table of rounds, model.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Goes on with the run in this folder.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["job", "out"])]
    resume: Option<PathBuf>,
    /// Writes TensorBoard events into the folder of the run (or `runs/` without one).
    #[arg(long)]
    tensorboard: bool,
    /// Ends with one JSON object instead of the summary.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long)]
    quiet: bool,
}

/// What a journal's header says, as JSON.
#[derive(Serialize, Deserialize)]
struct Header {
    version: String,
    commitment: String,
    dim: usize,
    machines: usize,
    strong_convexity: f64,
    quadratic: bool,
    convex: bool,
    trace_known: bool,
    l1: f64,
    /// f* where it was known, as bits.
    optimum: Option<String>,
    /// The job as it was run.
    job: String,
    /// What a method other than CORE was given: L, the largest L_i, mu, tr(A), the coupling, l1.
    known: Option<[f64; 6]>,
    /// The diagonal of A, for those that sample by it.
    diagonal: Option<Vec<f64>>,
}

impl Header {
    fn facts(&self) -> Facts {
        Facts {
            dim: self.dim,
            machines: self.machines,
            strong_convexity: self.strong_convexity,
            quadratic: self.quadratic,
            convex: self.convex,
            trace_known: self.trace_known,
            l1: self.l1,
        }
    }
}

/// A job with everything that running it needs.
pub struct Assembled {
    /// The job, with all choices made.
    pub job: Job,
    /// Its problem.
    pub problem: Arc<Problem>,
    /// Its seed.
    pub seed: Seed,
    /// What follows from the seed.
    pub randomness: CommonRandomness,
    /// f*, if it is known.
    pub optimum: Option<f64>,
    /// What a method may ask.
    pub facts: Facts,
    /// What the theory of the other methods rests on, once it was asked for.
    known: Arc<OnceLock<Known>>,
    /// How machines without a centre average, once it was asked for.
    averaging: Arc<OnceLock<Averaging>>,
}

impl Assembled {
    /// Reads the data and computes f*.
    pub fn new(job: Job) -> Result<Self> {
        let mut assembled = Self::with_optimum(job, None)?;
        if assembled.job.stop.target > 0.0 || assembled.job.stop.gradient.is_none() {
            assembled.optimum = assemble::optimum(&assembled.job, &assembled.problem)?;
        }
        Ok(assembled)
    }

    /// Reads the data; f* is handed in.
    pub fn with_optimum(job: Job, optimum: Option<f64>) -> Result<Self> {
        let seed = assemble::seed(&job)?;
        let randomness = CommonRandomness::new(&seed);
        let problem = Arc::new(assemble::problem(&job, &randomness)?);
        let facts = Facts::of(&*problem.objective(0), problem.machines());
        Ok(Self { job, problem, seed, randomness, optimum, facts, known: Arc::default(), averaging: Arc::default() })
    }

    /// The same problem with another method.
    pub fn with_method(&self, name: &str, parameters: BTreeMap<String, String>) -> Self {
        let mut job = self.job.clone();
        job.choose_method(name);
        job.method.parameters = parameters;
        Self {
            job,
            problem: Arc::clone(&self.problem),
            seed: self.seed.clone(),
            randomness: self.randomness.clone(),
            optimum: self.optimum,
            facts: self.facts,
            known: Arc::clone(&self.known),
            averaging: Arc::clone(&self.averaging),
        }
    }

    /// What the theory of the other methods rests on: given to all of them alike, and never billed.
    pub fn known(&self) -> &Known {
        self.known.get_or_init(|| Known::measure(&self.problem))
    }

    /// A fresh method.
    pub fn method(&self) -> Result<Box<dyn Method>> {
        if let Some(averaging) = self.averaging()? {
            return assemble::gossip_method(&self.job, self.problem.start(), averaging, self.known(), &self.randomness);
        }
        assemble::method(&self.job, self.problem.start(), self.facts.quadratic, &self.randomness, || {
            self.known().clone()
        })
    }

    /// How the machines average, where they gossip.
    fn averaging(&self) -> Result<Option<&Averaging>> {
        let Some(spec) = self.job.graph.as_ref().filter(|spec| spec.gossips()) else { return Ok(None) };
        if self.averaging.get().is_none() {
            let averaging = crate::graph::averaging(spec, &self.job, &self.randomness)?;
            // Whoever was first made the same one.
            let _ = self.averaging.set(averaging);
        }
        Ok(self.averaging.get())
    }

    /// Every machine's parent in the tree over which the machines talk, where they do.
    fn tree(&self) -> Result<Option<Vec<Option<usize>>>> {
        let Some(spec) = self.job.graph.as_ref().filter(|spec| !spec.gossips()) else { return Ok(None) };
        let tree = crate::graph::build(spec, self.job.machines, &self.randomness)?.spanning_tree(0);
        Ok(Some((0..tree.machines()).map(|machine| tree.parent(machine)).collect()))
    }

    /// When to stop.
    pub fn rules(&self) -> Rules {
        let stop = &self.job.stop;
        Rules {
            rounds: stop.rounds,
            target: (stop.target > 0.0).then_some(stop.target),
            optimum: self.optimum,
            gradient: stop.gradient,
            seconds: stop.seconds,
            bytes: stop.bytes,
            ..Rules::default()
        }
    }

    /// What all machines must agree on before the first round.
    fn handshake(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("seed commitment", self.seed.commitment().to_string()),
            ("job", toml::to_string(&self.job.table)?),
            ("shards", self.problem.manifest()),
            ("kernel test vector", kernel_test_vector(&self.randomness)),
        ])
    }

    fn uses_known(&self) -> Option<&Known> {
        (!self.job.method.name.starts_with("core-")).then(|| self.known())
    }

    fn header(&self) -> Result<String> {
        let Facts { dim, machines, strong_convexity, quadratic, convex, trace_known, l1 } = self.facts;
        let header = Header {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commitment: self.seed.commitment().to_string(),
            dim,
            machines,
            strong_convexity,
            quadratic,
            convex,
            trace_known,
            l1,
            optimum: self.optimum.map(|optimum| format!("{:016x}", optimum.to_bits())),
            job: toml::to_string(&self.job.table)?,
            known: self
                .uses_known()
                .map(|k| [k.smoothness, k.max_smoothness, k.strong_convexity, k.trace, k.coupling, k.l1]),
            diagonal: self.uses_known().and_then(|known| known.diagonal.clone()),
        };
        Ok(serde_json::to_string(&header)?)
    }
}

/// A digest of what the kernels of this machine rebuild from fixed scalars, in every family.
fn kernel_test_vector(randomness: &CommonRandomness) -> String {
    let mut hasher = blake3::Hasher::new();
    let scalars: Vec<f64> = (0..7).map(|j| 1.0 / f64::from(j + 3)).collect();
    let mut out = vec![0.0; 333];
    for family in Family::ALL {
        let sketch = AnySketch::new(family, randomness, out.len(), scalars.len()).expect("a small sketch");
        sketch.reconstruct(1, &scalars, &mut out);
        out.iter().for_each(|value| {
            hasher.update(&value.to_bits().to_le_bytes());
        });
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

/// Where a resumed run goes on.
pub struct Resume {
    contents: Contents,
    snapshot: Option<Snapshot>,
}

/// Runs a job on the machines of this process; returns how it ended and machine 0's observer.
pub fn execute<O: Observer + Send>(
    assembled: &Assembled,
    transport: impl Transport + 'static,
    observer: O,
    resume: Option<&Resume>,
) -> Result<(Finish, O)> {
    // A mistake in the job is told once, not by every machine.
    drop(assembled.method()?);
    let tree = assembled.tree()?;
    let rules = assembled.rules();
    let observer = Mutex::new(Some(observer));
    let fields = assembled.handshake()?;
    let results = Group::new(transport).run(|machine| {
        let rank = machine.rank();
        handshake::agree(machine, &fields)?;
        let mut objective = assembled.problem.objective(rank);
        let mut method = assembled.method().map_err(|error| RunError::Unsuited(format!("{error:#}")))?;
        let mut begin = Begin::default();
        if let Some(resume) = resume {
            begin = go_back(resume, &mut *method, assembled.facts, rank)?;
        }
        let link = assembled.job.link;
        let mut own = (rank == 0).then(|| observer.lock().expect("nobody panics here").take()).flatten();
        let mut silent = Silent;
        let watching: &mut dyn Observer = match &mut own {
            Some(observer) => observer,
            None => &mut silent,
        };
        let (objective, method) = (&mut *objective, &mut *method);
        let finish = match &tree {
            None => {
                let mut comm = Metered::new(machine, link);
                corewire_optim::run::run(&mut comm, objective, method, &rules, begin, watching)
            }
            Some(parents) => {
                let mut comm = Metered::new(Tree::new(machine, parents), link);
                corewire_optim::run::run(&mut comm, objective, method, &rules, begin, watching)
            }
        };
        if own.is_some() {
            *observer.lock().expect("nobody panics here") = own;
        }
        finish
    });
    let observer =
        observer.into_inner().expect("nobody panics here").ok_or_else(|| anyhow!("machine 0 is not here"))?;
    let mut finish = None;
    let mut errors = Vec::new();
    for result in results {
        match result {
            Ok(done) => finish = finish.or(Some(done)),
            Err(error) => errors.push(error),
        }
    }
    // Who failed says more than who saw it fail.
    errors.sort_by_key(RunError::is_consequence);
    match (errors.into_iter().next(), finish) {
        (Some(error), _) => Err(error.into()),
        (None, Some(finish)) => Ok((finish, observer)),
        (None, None) => bail!("no machine ran"),
    }
}

/// Prepares a method from the journal and puts a machine's snapshot back.
fn go_back(resume: &Resume, method: &mut dyn Method, facts: Facts, rank: usize) -> Result<Begin, RunError> {
    let Some(snapshot) = &resume.snapshot else { return Ok(Begin::default()) };
    journal::prepare(method, &resume.contents, facts)?;
    let machine = &snapshot.machines[rank];
    state::restore(method, machine.saved.clone()).map_err(RunError::Unsuited)?;
    Ok(Begin { round: snapshot.round, traffic: machine.traffic, initial: Some(snapshot.initial) })
}

/// `corewire run`.
pub fn run(arguments: &Arguments) -> Result<()> {
    watch_interrupts();
    let (job, resumed) = match &arguments.resume {
        None => (job::load(arguments.job.as_deref(), &arguments.set)?, None),
        Some(folder) => {
            let (header, contents) = open(folder)?;
            let overrides: Vec<String> = arguments.set.clone();
            if overrides.iter().any(|key| !key.starts_with("stop.")) {
                bail!("a resumed run keeps its parameters; only `stop.*` can be set");
            }
            (job::from_text(&header.job, &overrides)?, Some((folder.clone(), header, contents)))
        }
    };
    let mut job = job;
    if let Some(engine) = &arguments.engine {
        job.engine = engine.clone();
    }
    match job.engine.as_str() {
        "threads" => run_on(true, |machines| Ok(Solo::new(machines)), job, resumed, arguments),
        #[cfg(feature = "mpi")]
        "mpi" => run_on_mpi(job, resumed, arguments),
        other => bail!("this corewire was built without the engine `{other}`; build it with `--features {other}`"),
    }
}

/// Runs under mpirun: the same job, the same loop; process 0 prints, and whoever fails ends all.
#[cfg(feature = "mpi")]
fn run_on_mpi(job: Job, resumed: Option<(PathBuf, Header, Contents)>, arguments: &Arguments) -> Result<()> {
    let mut mpi = corewire_comm_mpi::Mpi::initialise()?;
    let leads = mpi.process() == 0;
    match run_on(leads, |machines| Ok(mpi.transport(machines)?), job, resumed, arguments) {
        Ok(()) => {
            mpi.finish();
            Ok(())
        }
        Err(error) => {
            let cause = error.downcast_ref::<RunError>().and_then(|error| match error {
                RunError::Comm(cause) => Some(cause.clone()),
                _ => None,
            });
            mpi.fail(1, &format!("{error:#}"), cause.as_ref())
        }
    }
}

/// Runs on the transport of an engine. Only the process that leads prints, and keeps the journal.
fn run_on<T: Transport + 'static>(
    leads: bool,
    transport: impl FnOnce(usize) -> Result<T>,
    job: Job,
    resumed: Option<(PathBuf, Header, Contents)>,
    arguments: &Arguments,
) -> Result<()> {
    let quiet = arguments.quiet || arguments.json || !leads;
    // Only the process that decides needs f*.
    let assembled = if leads { Assembled::new(job)? } else { Assembled::with_optimum(job, None)? };
    let assembled = crate::choose::settle(assembled, quiet)?;
    let target = (assembled.job.stop.target > 0.0 && assembled.optimum.is_some()).then_some(assembled.job.stop.target);
    let desk = Desk::new(quiet, assembled.job.stop.rounds, target);

    let folder = arguments.out.clone().or(arguments.resume.clone());
    let (archive, resume) = match resumed {
        None => (folder.as_deref().filter(|_| leads).map(|folder| new_archive(&assembled, folder)).transpose()?, None),
        Some((folder, header, contents)) => {
            if header.commitment != assembled.seed.commitment().to_string() {
                bail!("the seed is not the one of this run: its commitment is {}", header.commitment);
            }
            if header.facts() != assembled.facts {
                bail!(
                    "the data is not that of this run: it had {} coordinates on {} machines",
                    header.dim,
                    header.machines
                );
            }
            let snapshot = Snapshot::newest(&folder, contents.rounds.len() as u64)?
                .filter(|snapshot| snapshot.machines.len() == assembled.facts.machines);
            let begin = snapshot.as_ref().map_or(0, |snapshot| snapshot.round);
            let archive = match (leads, begin) {
                (false, _) => None,
                // Without a snapshot the run begins anew; what it computes is what the journal said.
                (true, 0) => Some(restart(&folder, &assembled)?),
                (true, begin) => Some(Archive::reopen(&folder, &contents, begin)?),
            };
            (archive, Some(Resume { contents, snapshot }))
        }
    };
    let board = match arguments.tensorboard && leads {
        true => {
            let folder = folder.clone().unwrap_or_else(|| PathBuf::from("runs"));
            Some(crate::tensorboard::Board::create(&folder)?)
        }
        false => None,
    };
    let desk = desk.with_archive(archive).with_board(board);
    let (finish, desk) = execute(&assembled, transport(assembled.job.machines)?, desk, resume.as_ref())?;
    desk.close()?;
    if !leads {
        return Ok(());
    }
    if let Some(folder) = &folder {
        write_model(&assembled, &finish, &folder.join("model.safetensors"))?;
    }
    let accuracy = crate::evaluate::held_out(&assembled, &finish)?;
    let report = summary::Report { test_accuracy: accuracy, ..summary::Report::new(&assembled, &finish) };
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        summary::print(&assembled, &finish, &report, folder.as_deref())?;
    }
    Ok(())
}

fn new_archive(assembled: &Assembled, folder: &Path) -> Result<Archive> {
    let archive = Archive::create(folder, &assembled.header()?)?;
    describe(assembled, folder)?;
    Ok(archive)
}

/// Writes what a run needs beside its journal.
fn describe(assembled: &Assembled, folder: &Path) -> Result<()> {
    let job = folder.join("job.toml");
    std::fs::write(&job, toml::to_string(&assembled.job.table)?)
        .with_context(|| format!("cannot write {}", job.display()))?;
    journal::write_model(&folder.join("start.safetensors"), assembled.problem.start(), HashMap::new())?;
    Ok(())
}

/// A run that stopped before its first snapshot begins anew in the same folder.
fn restart(folder: &Path, assembled: &Assembled) -> Result<Archive> {
    let archive = Archive::replace(folder, &assembled.header()?)?;
    describe(assembled, folder)?;
    Ok(archive)
}

fn write_model(assembled: &Assembled, finish: &Finish, path: &Path) -> Result<()> {
    let spec = &assembled.job.problem;
    let about = HashMap::from([
        ("model".to_owned(), spec.model.clone()),
        ("data".to_owned(), spec.data.clone()),
        ("bias".to_owned(), spec.bias.to_string()),
        ("normalise".to_owned(), spec.normalise.to_string()),
        ("hidden".to_owned(), spec.hidden.to_string()),
        ("rounds".to_owned(), finish.last.round.to_string()),
        ("digest".to_owned(), format!("{:016x}", finish.digest)),
        ("job".to_owned(), toml::to_string(&assembled.job.table)?),
        ("classes".to_owned(), crate::evaluate::classes(spec)?),
    ]);
    Ok(journal::write_model(path, &finish.iterate, about)?)
}

fn open(folder: &Path) -> Result<(Header, Contents)> {
    let path = folder.join("journal.bin");
    if !path.exists() {
        bail!(
            "{} holds no run: there is no journal.bin; `corewire run --out {}` makes one",
            folder.display(),
            folder.display()
        );
    }
    let contents = journal::read(&path)?;
    let header = serde_json::from_str(&contents.header)
        .with_context(|| format!("{}: the header is not understood", path.display()))?;
    Ok((header, contents))
}

/// The method of a journal, replayed through so many rounds without any data.
fn replayed(folder: &Path, header: &Header, contents: &Contents, rounds: u64) -> Result<Box<dyn Method>> {
    let job = job::from_text(&header.job, &[])?;
    if job.graph.as_ref().is_some_and(job::GraphSpec::gossips) {
        bail!("a run by gossip has no common state and cannot be replayed; with `graph.gossip` = \"tree\" it could be");
    }
    let seed = assemble::seed(&job)?;
    if seed.commitment().to_string() != header.commitment {
        bail!("the seed is not the one of this run: its commitment is {}", header.commitment);
    }
    let (start, _) = journal::read_model(&folder.join("start.safetensors"))?;
    let known = || {
        let [smoothness, max_smoothness, strong_convexity, trace, coupling, l1] = header.known.unwrap_or([1.0; 6]);
        Known {
            smoothness,
            max_smoothness,
            strong_convexity,
            trace,
            machines: header.machines,
            dim: header.dim,
            diagonal: header.diagonal.clone(),
            coupling,
            l1,
        }
    };
    let mut method = assemble::method(&job, &start, header.quadratic, &CommonRandomness::new(&seed), known)?;
    journal::replay(&mut *method, contents, header.facts(), rounds)?;
    Ok(method)
}

/// `corewire replay`.
pub fn replay(folder: &Path, to: Option<u64>, out: &Path, json: bool) -> Result<()> {
    let (header, contents) = open(folder)?;
    let rounds = to.unwrap_or(contents.rounds.len() as u64);
    let mut method = replayed(folder, &header, &contents, rounds)?;
    let digest = state::digest(&mut *method);
    let about = HashMap::from([
        ("rounds".to_owned(), rounds.to_string()),
        ("digest".to_owned(), format!("{digest:016x}")),
        ("job".to_owned(), header.job.clone()),
    ]);
    journal::write_model(out, method.iterate(), about)?;
    if json {
        let report = serde_json::json!({ "rounds": rounds, "digest": format!("{digest:016x}"), "model": out });
        println!("{report}");
    } else {
        println!("replayed {rounds} rounds from {} without data; digest {digest:016x}", folder.display());
        println!("the model is in {}", out.display());
    }
    Ok(())
}

/// `corewire journal verify`.
pub fn verify(folder: &Path, json: bool) -> Result<()> {
    let (header, contents) = open(folder)?;
    let rounds = contents.rounds.len() as u64;
    let method = replayed(folder, &header, &contents, rounds);
    let digest = match method {
        Ok(mut method) => state::digest(&mut *method),
        Err(error) => return Err(error.context("every record is whole, but they cannot be replayed")),
    };
    let newest = Snapshot::newest(folder, rounds)?;
    if json {
        let report = serde_json::json!({
            "rounds": rounds, "bytes": contents.whole_bytes, "torn_bytes": contents.torn_bytes,
            "digest": format!("{digest:016x}"), "snapshot": newest.map(|snapshot| snapshot.round),
        });
        println!("{report}");
        return Ok(());
    }
    println!(
        "{rounds} rounds in {} bytes, every record whole and chained; replayed to digest {digest:016x}",
        contents.whole_bytes
    );
    if contents.torn_bytes > 0 {
        println!(
            "{} bytes at the end were being written when the run stopped; a resume cuts them off",
            contents.torn_bytes
        );
    }
    match newest {
        Some(snapshot) => println!("newest snapshot: after round {}", snapshot.round),
        None => println!("no snapshot yet: a resume begins at the start"),
    }
    Ok(())
}
