//! `corewire run`: a job from its file to its summary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use corewire_comm::{Solo, Transport};
use corewire_journal::{self as journal, Snapshot};
use corewire_optim::run::Ended;

use crate::header::{self, Header};
use crate::interrupt::watch_interrupts;
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

/// A run that is gone on with: where it is, and what its journal holds.
struct Earlier {
    folder: PathBuf,
    header: Header,
    contents: journal::Contents,
}

/// `corewire run`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    watch_interrupts();
    let (mut job, earlier) = match &arguments.resume {
        None => (job::load(arguments.job.as_deref(), &arguments.set)?, None),
        Some(folder) => {
            let (header, contents) = header::open(folder)?;
            if arguments.set.iter().any(|key| !key.starts_with("stop.") && !key.starts_with("limits.")) {
                bail!("a resumed run keeps its parameters; only `stop.*` and `limits.*` can be set");
            }
            let job = job::from_text(&header.job, &arguments.set)?;
            (job, Some(Earlier { folder: folder.clone(), header, contents }))
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
            mpi.fail(1, &format!("{error:#}"), cause.as_ref())
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
    // Only the process that decides needs f*.
    let session = if leads { Session::new(job)? } else { Session::without_optimum(job)? };
    let session = choose::settle(session, quiet)?;
    if session.job.method.name.is_some() {
        session.check_method()?;
    }
    let folder = arguments.out.clone().or(arguments.resume.clone());
    if let Some(folder) = arguments.out.as_deref().filter(|_| leads) {
        RunFolder::check_new(folder)?;
    }
    let resume = match &earlier {
        None => None,
        Some(Earlier { folder, header, contents }) => {
            header.check_seed(&session.seed)?;
            let snapshot = Snapshot::newest(folder, contents.rounds.len() as u64, &journal::run_id(&contents.header))?
                .filter(|snapshot| snapshot.machines.len() == session.job.machines);
            Some(Resume { contents: contents.clone(), snapshot })
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
        let kept = match (&earlier, &folder) {
            (None, None) => None,
            (None, Some(folder)) => Some(new_folder(&session, prepared, folder)?),
            (Some(earlier), _) => {
                earlier.header.check(prepared)?;
                let begin =
                    resume.as_ref().and_then(|resume| resume.snapshot.as_ref()).map_or(0, |snapshot| snapshot.round);
                // Without a snapshot the run begins anew, and what it computes is held against the journal.
                Some(RunFolder::reopen(&earlier.folder, &earlier.contents, begin)?)
            }
        };
        let pooled = session.pooled.as_ref().filter(|_| several).and_then(|pooled| pooled.problem.pooled());
        let board = board.lock().expect("nobody panics here").take();
        let recorder = Recorder::new(quiet, rules.rounds, rules.target);
        Ok(recorder.with_folder(kept).with_board(board).with_pooled(pooled))
    };
    let machines = session.job.machines;
    let done = execute(&session, transport(machines)?, folder.is_some(), observe, resume.as_ref())?;
    let Some(Done { finish, prepared, observer }) = done else { return Ok(ExitCode::SUCCESS) };
    observer.close()?;
    if let Some(folder) = &folder {
        model::write(&folder.join("model.safetensors"), &session, &prepared, &finish)?;
    }
    let report = summary::Report::new(&session, &prepared, &finish);
    match arguments.json {
        true => crate::out::line(&serde_json::to_string(&report)?)?,
        false => summary::print(&session, &finish, &report, folder.as_deref())?,
    }
    Ok(exit_code(finish.ended, &rules))
}

/// 0 where the run did what it was asked, 2 where it ended without, 130 where somebody stopped it.
fn exit_code(ended: Ended, rules: &corewire_optim::run::Rules) -> ExitCode {
    let asked = rules.target.is_some() || rules.gradient.is_some() || rules.gradient_relative.is_some();
    match ended {
        Ended::Stopped => ExitCode::from(130),
        ended if ended.is_reached() => ExitCode::SUCCESS,
        Ended::Diverged => ExitCode::from(2),
        _ if asked || rules.gap.is_some() => ExitCode::from(2),
        _ => ExitCode::SUCCESS,
    }
}

fn new_folder(session: &Session, prepared: &Prepared, folder: &Path) -> Result<RunFolder> {
    let kept = RunFolder::create(folder, &Header::of(session, prepared).to_text()?)?;
    describe(session, prepared, folder)?;
    Ok(kept)
}

/// Writes what a run needs beside its journal.
fn describe(session: &Session, prepared: &Prepared, folder: &Path) -> Result<()> {
    let job = folder.join("job.toml");
    std::fs::write(&job, session.job.table.to_string()).with_context(|| format!("cannot write {}", job.display()))?;
    let start = BTreeMap::from([("x".to_owned(), prepared.start.clone())]);
    journal::write_model(&folder.join("start.safetensors"), &(start, BTreeMap::new()))?;
    Ok(())
}
