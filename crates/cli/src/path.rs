//! `corewire path`: one model for each of several penalties, each from where the last one ended, and the one that held-out rows like best.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use corewire_comm::Solo;
use corewire_optim::run::Ended;
use serde_json::json;

use crate::header::Header;
use crate::job::{self, DEFAULT_TARGET, Engine, TestRows};
use crate::recorder::Recorder;
use crate::session::{Done, Session, execute};
use crate::{choose, model, out, units, worth};

/// Arguments of `corewire path`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The job file; the bundled job without one.
    job: Option<PathBuf>,
    /// Overrides a key of the job file, as in problem.l1=0.01.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The values of `problem.alpha` that are tried.
    #[arg(long, value_delimiter = ',', default_value = "1,0.1,0.01,1e-3,1e-4,1e-5")]
    alphas: Vec<f64>,
    /// Writes the chosen model into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// One JSON object per penalty, one line each, the chosen one last.
    #[arg(long)]
    json: bool,
}

/// The share of rows that is held out where the job names none.
const SHARE: f64 = 0.2;

/// A model of the path.
struct Step {
    alpha: f64,
    session: Session,
    done: Done<Recorder>,
}

impl Step {
    fn loss(&self) -> f64 {
        self.done.finish.last.score.map_or(f64::INFINITY, |score| score.loss)
    }
}

/// `corewire path`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut alphas = arguments.alphas.clone();
    if alphas.iter().any(|alpha| !(*alpha > 0.0 && alpha.is_finite())) {
        bail!("`--alphas` are positive numbers; found {alphas:?}");
    }
    // From the flattest model on, so that each is close to the next.
    alphas.sort_by(|a, b| b.total_cmp(a));
    let mut job = job::load(arguments.job.as_deref(), &arguments.set)?;
    if job.engine != Engine::Threads {
        bail!("`path` runs on threads; run the chosen alpha under mpirun");
    }
    if job.problem.test.is_none() {
        job.problem.test = Some(TestRows::Share(SHARE));
        if !arguments.json {
            out::line(&format!("`problem.test` names no rows to choose by: {:.0} % are held out", 100.0 * SHARE))?;
        }
    }
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    let mut steps: Vec<Step> = Vec::new();
    let read = Session::without_optimum(job, arguments.json)?;
    // The smallest penalty takes the most exchanges, and so decides which method is best.
    let hardest = read.with_alpha(*alphas.last().expect("there is a default"), None)?;
    let method = choose::settle(hardest)?.job.method;
    for &alpha in &alphas {
        let start = steps.last().map(|step| Arc::new(step.done.finish.iterate.clone()));
        let mut session = read.with_alpha(alpha, start)?;
        session.job.method = method.clone();
        let done = execute(&session, Solo::new(session.job.machines), false, |_| Ok(Recorder::silent()), None)?;
        steps.push(Step { alpha, session, done: done.expect("machine 0 is in this process") });
    }
    let best = (0..steps.len()).min_by(|&a, &b| steps[a].loss().total_cmp(&steps[b].loss())).unwrap_or(0);
    if let Some(folder) = &arguments.out {
        let Step { session, done, .. } = &steps[best];
        let path = folder.join("model.safetensors");
        let header = Header::of(session, &done.prepared, folder);
        model::write(&path, &header.about(&header.to_text()?), &done.prepared, &done.finish)?;
    }
    tell(&steps, best, arguments)
}

fn tell(steps: &[Step], best: usize, arguments: &Arguments) -> Result<()> {
    let all: f64 = steps.iter().map(|step| step.done.finish.last.traffic.wire_bytes()).sum();
    let object = |step: &Step, chosen: bool| {
        let (last, prepared) = (&step.done.finish.last, &step.done.prepared);
        let zeros = step.done.finish.iterate.iter().filter(|x| **x == 0.0).count();
        json!({
            "alpha": step.alpha, "method": prepared.info.id, "rounds": last.round, "wire_bytes": last.traffic.wire_bytes(),
            "reached": step.done.finish.ended.is_reached(), "test_loss": last.score.map(|score| score.loss),
            "score": last.score.map(|score| score.score), "zeros": zeros, "chosen": chosen,
            "scikit_learn": worth::scikit_learn(&step.session.job.problem, prepared.weight),
        })
    };
    if arguments.json {
        for (i, step) in steps.iter().enumerate().filter(|(i, _)| *i != best).chain([(best, &steps[best])]) {
            out::json(&object(step, i == best))?;
        }
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["alpha", "rounds", "wire", "held-out loss", "score", "scikit-learn"]);
    for (i, step) in steps.iter().enumerate() {
        let (last, prepared) = (&step.done.finish.last, &step.done.prepared);
        let missed = if step.done.finish.ended == Ended::Rounds { " (missed the target)" } else { "" };
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        table.add_row([
            format!("{}{}", step.alpha, if i == best { " <- best" } else { "" }),
            format!("{}{missed}", last.round),
            units::bytes(last.traffic.wire_bytes()),
            number(last.score.map(|score| score.loss)),
            number(last.score.map(|score| score.score)),
            worth::scikit_learn(&step.session.job.problem, prepared.weight).unwrap_or_default(),
        ]);
    }
    out::line(&table.to_string())?;
    let method = steps[best].done.prepared.info.id;
    out::line(&format!("{method}, {} on the wire per machine for all of them", units::bytes(all)))?;
    if best == 0 || best + 1 == steps.len() {
        out::line("the best alpha is at an end of the list: try further ones with `--alphas`")?;
    }
    match &arguments.out {
        Some(folder) => out::line(&format!("the best model is in {}", folder.join("model.safetensors").display())),
        None => out::line(&format!("take `problem.alpha` = {}; `--out DIR` keeps the model", steps[best].alpha)),
    }
}

impl Session {
    /// The same rows with another penalty, from another start.
    fn with_alpha(&self, alpha: f64, start: Option<Arc<Vec<f64>>>) -> Result<Self> {
        let mut other = self.with_penalty(alpha)?;
        // A warm start is nearer, and the target is meant from where a cold one would begin.
        if let (Some(start), Some(pooled), Some(optimum)) = (&start, &other.pooled, other.optimum)
            && let Some(mut objective) = pooled.problem.pooled()
        {
            let cold = objective.value(pooled.problem.start()) - optimum;
            let warm = objective.value(start) - optimum;
            let target = other.job.stop.target().unwrap_or(DEFAULT_TARGET);
            other.job.stop.target = Some((target * cold / warm).clamp(target, 0.5));
        }
        other.start = start;
        Ok(other)
    }
}
