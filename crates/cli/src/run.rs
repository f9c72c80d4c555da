//! `corewire run`: a job from its file to its summary.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use corewire_comm::{Solo, Transport};
use corewire_journal::Stored;
use corewire_optim::run::Ended;

use crate::earlier::Earlier;
use crate::header::Header;
use crate::interrupt::{self, rounds_begin, watch_interrupts};
use crate::job::{self, Engine, Job};
use crate::recorder::Recorder;
use crate::run_folder::RunFolder;
use crate::session::{Done, Prepared, Resume, Session, execute};
use crate::{choose, model, summary, tensorboard};

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
    /// Resumes the run in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "job")]
    resume: Option<PathBuf>,
    /// With --resume and --out: takes the first rounds of the run to a new folder, whatever follows them, and goes on there.
    #[arg(long, value_name = "ROUND", requires_all = ["resume", "out"], conflicts_with = "restart")]
    before: Option<u64>,
    /// With --resume and --out: runs the same job again from its start, in a new folder.
    #[arg(long, requires_all = ["resume", "out"])]
    restart: bool,
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

/// `corewire run`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    watch_interrupts();
    let (mut job, earlier) = match &arguments.resume {
        None => (job::load(arguments.job.as_deref(), &arguments.set)?, None),
        Some(folder) => {
            if arguments.set.iter().any(|key| !key.starts_with("stop.") && !key.starts_with("limits.")) {
                bail!("a resumed run keeps its parameters; only `stop.*` and `limits.*` can be set");
            }
            if arguments.restart {
                (again(folder, &arguments.set)?, None)
            } else {
                if arguments.out.is_some() && arguments.before.is_none() {
                    bail!("a run is resumed in its own folder; `--before ROUND` or `--restart` take it to another");
                }
                let earlier = Earlier::before(folder, arguments.before.unwrap_or(u64::MAX))?;
                (earlier.job(&arguments.set)?, Some(earlier))
            }
        }
    };
    if let Some(engine) = arguments.engine.as_deref().and_then(Engine::parse) {
        job.engine = engine;
    }
    match job.engine {
        Engine::Threads => run_on(true, |machines| Ok(Solo::new(machines)), job, earlier, arguments),
        #[cfg(feature = "mpi")]
        Engine::Mpi => run_on_mpi(job, earlier, arguments),
        #[cfg(not(feature = "mpi"))]
        Engine::Mpi => bail!("this corewire was built without the engine `mpi`; build it with `--features mpi`"),
    }
}

/// Runs under mpirun: the same job, the same loop; process 0 prints, and whoever fails ends all.
#[cfg(feature = "mpi")]
fn run_on_mpi(job: Job, earlier: Option<Earlier>, arguments: &Arguments) -> Result<ExitCode> {
    let deadline = job.limits.deadline();
    let mut mpi = corewire_comm_mpi::Mpi::initialise()?;
    let leads = mpi.process() == 0;
    let transport = |machines| Ok(mpi.transport(machines)?.with_deadline(deadline));
    match run_on(leads, transport, job, earlier, arguments) {
        Ok(code) => {
            mpi.finish();
            Ok(code)
        }
        Err(error) => {
            let cause = error.downcast_ref::<corewire_optim::RunError>().and_then(|error| match error {
                corewire_optim::RunError::Comm(cause) => Some(cause.clone()),
                _ => None,
            });
            mpi.fail(1, &crate::secrecy::without_seeds(&format!("{error:#}")), cause.as_ref())
        }
    }
}

/// Runs on the transport of an engine. Only the process that leads prints, and keeps the journal.
fn run_on<T: Transport + 'static>(
    leads: bool,
    transport: impl FnOnce(usize) -> Result<T>,
    job: Job,
    earlier: Option<Earlier>,
    arguments: &Arguments,
) -> Result<ExitCode> {
    let quiet = arguments.quiet || arguments.json || !leads;
    if !leads {
        // Only the process that leads ends a run by a signal.
        rounds_begin();
    }
    job.method.refuse_unread()?;
    let held = match &earlier {
        Some(earlier) if leads && arguments.before.is_none() => {
            Some(RunFolder::hold(&earlier.folder, &earlier.contents)?)
        }
        _ => None,
    };
    let session = choose::settle(Session::without_optimum(job, quiet)?)?;
    // Only the process that decides needs f*.
    let session = if leads { session.with_optimum()? } else { session };
    if session.job.method.name.is_some() {
        session.check_method()?;
    }
    let folder = arguments.out.clone().or(arguments.resume.clone());
    if let Some(folder) = arguments.out.as_deref().filter(|_| leads) {
        RunFolder::check_new(folder)?;
        if session.job.method.seed_file.is_some() {
            RunFolder::close_to_others(folder)?;
        }
    }
    let kept =
        earlier.as_ref().map(|earlier| usable_snapshots(earlier, arguments.before.is_some(), quiet)).transpose()?;
    let kept = kept.unwrap_or_default();
    let resume = match &earlier {
        None => None,
        Some(earlier) => {
            earlier.header.check_seed(&session.seed)?;
            let snapshots = kept.iter().map(|stored| stored.snapshot.clone()).collect();
            Some(Resume { contents: earlier.contents.clone(), snapshots })
        }
    };
    let board = match arguments.tensorboard && leads {
        true => {
            let folder = folder.clone().unwrap_or_else(|| PathBuf::from("runs"));
            std::sync::Mutex::new(Some(tensorboard::Board::create(&folder)?))
        }
        false => std::sync::Mutex::new(None),
    };
    let rules = session.rules(folder.is_some());
    let several = session.job.engine != Engine::Threads;
    let observe = |prepared: &Prepared| -> Result<Recorder> {
        let begin = resume.as_ref().map_or(0, Resume::round);
        let kept = match (&earlier, &folder) {
            (_, None) => None,
            (None, Some(folder)) => {
                Some(RunFolder::create(folder, &Header::of(&session, prepared, folder), &prepared.start)?)
            }
            (Some(earlier), Some(folder)) => {
                earlier.header.check(prepared)?;
                // Without a snapshot the run begins anew, and what it computes is held against the journal.
                Some(match &held {
                    Some(held) => RunFolder::reopen(folder, held, &earlier.header, &earlier.contents, begin)?,
                    None => {
                        let header = Header::of(&session, prepared, folder);
                        RunFolder::branch(folder, &header, &prepared.start, &earlier.contents, &kept, begin)?
                    }
                })
            }
        };
        let pooled = session.pooled.as_ref().filter(|_| several).and_then(|pooled| pooled.problem.pooled());
        let board = board.lock().expect("nobody panics here").take();
        let recorder = Recorder::new(quiet, rules.rounds, rules.target);
        Ok(recorder.with_folder(kept).with_board(board).with_pooled(pooled))
    };
    let machines = session.job.machines;
    let done = execute(&session, transport(machines)?, folder.is_some(), observe, resume.as_ref())?;
    let Some(Done { finish, prepared, mut observer }) = done else { return Ok(ExitCode::SUCCESS) };
    observer.close()?;
    if let (Some(folder), Some(about)) = (&folder, observer.about()) {
        model::write(&folder.join("model.safetensors"), about, &prepared, &finish)?;
    }
    let report = summary::Report::new(&session, &prepared, &finish);
    match arguments.json {
        true => crate::out::line(&serde_json::to_string(&report)?)?,
        false => summary::print(&session, &prepared, &finish, &report, folder.as_deref())?,
    }
    Ok(exit_code(finish.ended, &rules))
}

/// 0 where the run did what it was asked, 2 where it ended without, 130 or 143 where somebody stopped it.
fn exit_code(ended: Ended, rules: &corewire_optim::run::Rules) -> ExitCode {
    let asked = rules.target.is_some() || rules.gradient.is_some() || rules.gradient_relative.is_some();
    match ended {
        Ended::Stopped => ExitCode::from(interrupt::exit_code()),
        ended if ended.is_reached() => ExitCode::SUCCESS,
        Ended::Diverged => ExitCode::from(2),
        _ if asked || rules.gap.is_some() => ExitCode::from(2),
        _ => ExitCode::SUCCESS,
    }
}

/// The job of a run that is to be begun again. Its journal may be damaged to the first byte: then the copy of the job serves.
fn again(folder: &Path, overrides: &[String]) -> Result<Job> {
    let text = match Earlier::before(folder, 0) {
        Ok(earlier) => earlier.header.job,
        Err(_) => {
            let path = folder.join("job.toml");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?
        }
    };
    job::from_text(&text, folder, overrides)
}

/// The snapshots that a run goes on from. Everything in its folder must belong to it; one damaged snapshot is told of and passed over,
/// but where none is whole the user decides what is to be done.
fn usable_snapshots(earlier: &Earlier, before: bool, quiet: bool) -> Result<Vec<Stored>> {
    earlier.start()?;
    earlier.check_others()?;
    let snapshots = earlier.snapshots(before)?;
    if let (Some(damaged), true, false) = (snapshots.damaged.first(), snapshots.whole.is_empty(), before) {
        let folder = earlier.folder.display();
        bail!(
            "{damaged}; no snapshot of this run is whole: take them away and resume to run it from its start against the journal, \
             or begin again with `--resume {folder} --restart --out NEW`"
        );
    }
    for damaged in snapshots.damaged.iter().filter(|_| !quiet) {
        eprintln!("corewire: {damaged}; going on from an older one");
    }
    Ok(snapshots.whole)
}
