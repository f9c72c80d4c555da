//! What a run says at its end: one JSON object for programs, a few sentences for people.

use std::path::Path;

use anyhow::Result;
use corewire_optim::catalogue::WireKind;
use corewire_optim::optimum;
use corewire_optim::run::{Ended, Finish};
use serde::Serialize;

use crate::job::{self, DataSource};
use crate::out;
use crate::rows::Pooled;
use crate::session::{Prepared, Session};
use crate::units;
use crate::worth::{self, Worth};

/// The JSON object of a run. Names are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The method's id, with its parameters where it was given any.
    pub method: String,
    /// The model.
    pub model: String,
    /// The data.
    pub data: String,
    /// How many machines.
    pub machines: usize,
    /// d.
    pub dim: usize,
    /// m.
    pub budget: Option<usize>,
    /// The family of directions.
    pub family: Option<String>,
    /// How numbers travel.
    pub wire: String,
    /// Rounds.
    pub rounds: u64,
    /// Whether the target was reached.
    pub reached: bool,
    /// (f - f*)/(f0 - f*).
    pub relative: Option<f64>,
    /// f.
    pub value: Option<f64>,
    /// Payload up, per machine.
    pub up_bytes: f64,
    /// Payload down, per machine.
    pub down_bytes: f64,
    /// Control words, evaluations and snapshots, both ways.
    pub control_bytes: f64,
    /// Envelopes, both ways.
    pub frame_bytes: f64,
    /// Everything before the first round.
    pub setup_bytes: f64,
    /// All of it.
    pub wire_bytes: f64,
    /// Exchanges without those of set-up.
    pub trips: u64,
    /// All exchanges.
    pub exchanges: u64,
    /// Wall-clock seconds of the rounds.
    pub seconds: f64,
    /// Of all phases.
    pub total_seconds: f64,
    /// Seconds on the modelled link.
    pub link_seconds: Option<f64>,
    /// Of the final common state.
    pub digest: String,
    /// f at x0.
    pub initial: Option<f64>,
    /// f*.
    pub optimum: Option<f64>,
    /// tr(A) as the method believes it.
    pub trace: Option<f64>,
    /// L as the method believes it.
    pub smoothness: Option<f64>,
    /// mu.
    pub strong_convexity: f64,
    /// The integer seed, or null where it is secret.
    pub seed: Option<u64>,
    /// The seed's commitment.
    pub commitment: String,
    /// Why it ended.
    pub ended: String,
    /// Accuracy or R2 on held-out rows, where there are such.
    pub score: Option<f64>,
    /// Mean loss of a held-out row.
    pub test_loss: Option<f64>,
    /// What always saying the larger class, or the mean, would have scored.
    pub baseline: Option<f64>,
    /// The area under the curve on held-out rows of two sides, where one process has them.
    pub auc: Option<f64>,
    /// Accuracy or R2 on the rows of training, where one process has them.
    pub training_score: Option<f64>,
    /// alpha in the terms of scikit-learn, where it has the model.
    pub scikit_learn: Option<String>,
}

impl Report {
    /// Of a finished run.
    pub fn new(session: &Session, prepared: &Prepared, finish: &Finish) -> Self {
        let (job, last) = (&session.job, &finish.last);
        let (core, passed) = (prepared.info.is_core(), &last.traffic);
        let wire = match job.method.settings.wire {
            WireKind::F64 => "f64",
            _ if !core => "f32",
            WireKind::Q => "q",
            WireKind::QSum => "q-sum",
            WireKind::F32 => "f32",
            WireKind::Bf16 => "bf16",
        };
        let training = Worth::training(session, prepared, finish);
        let worth = Worth::held_out(session, prepared, finish);
        let exact_trace = || session.pooled.as_ref()?.problem.pooled()?.bound_trace();
        Self {
            method: job::written_method(prepared.info.id, &job.method.parameters),
            model: job.problem.model.name().to_owned(),
            data: job.problem.data.name(),
            machines: job.machines,
            dim: prepared.facts.dim,
            budget: finish.settings.budget,
            family: core.then(|| job.method.settings.family.to_string()),
            wire: wire.to_owned(),
            rounds: last.round,
            reached: finish.ended.is_reached(),
            relative: last.relative,
            value: last.value,
            up_bytes: passed.up_bytes,
            down_bytes: passed.down_bytes,
            control_bytes: passed.control_bytes,
            frame_bytes: passed.frame_bytes,
            setup_bytes: passed.setup_bytes,
            wire_bytes: passed.wire_bytes(),
            trips: passed.trips,
            exchanges: passed.exchanges,
            seconds: last.seconds,
            total_seconds: last.seconds + session.phases.iter().map(|phase| phase.1).sum::<f64>(),
            link_seconds: job.link.map(|_| passed.link_seconds),
            digest: format!("{:016x}", finish.digest),
            initial: finish.initial,
            optimum: session.optimum,
            trace: finish.settings.trace.or_else(exact_trace),
            smoothness: finish.settings.smoothness,
            strong_convexity: prepared.facts.strong_convexity,
            seed: job.method.seed_file.is_none().then_some(job.method.seed),
            commitment: session.seed.commitment().to_string(),
            ended: format!("{:?}", finish.ended).to_lowercase(),
            score: last.score.map(|score| score.score),
            test_loss: last.score.map(|score| score.loss),
            baseline: worth.as_ref().or(training.as_ref()).and_then(|worth| worth.baseline),
            auc: worth.as_ref().and_then(|worth| worth.auc),
            training_score: training.as_ref().map(|worth| worth.score),
            scikit_learn: worth::scikit_learn(&job.problem, prepared.weight),
        }
    }
}

/// Rounds of uncompressed gradient descent to the target, by running it on all data for about two seconds; `None` where it takes longer.
fn descent_rounds(session: &Session, target: f64) -> Option<u64> {
    let problem = &session.pooled.as_ref()?.problem;
    let mut pooled = problem.pooled().filter(|pooled| pooled.proximal().is_none())?;
    let most = (2e9 / (problem.row_count() as f64 * problem.dim() as f64)).clamp(200.0, 20_000.0) as u64;
    optimum::rounds_of_descent(&mut *pooled, problem.start(), session.optimum?, target, false, most)
}

/// core-newton takes twenty rounds or so, and rarely fifty.
const SLOW: u64 = 100;

/// The closing words.
pub fn print(
    session: &Session,
    prepared: &Prepared,
    finish: &Finish,
    report: &Report,
    folder: Option<&Path>,
) -> Result<()> {
    let (job, last) = (&session.job, &finish.last);
    let passed = &last.traffic;
    out::line(&format!(
        "{} on {} ({}, d = {}), {} machines{}, wire {}",
        report.method,
        report.data,
        report.model,
        report.dim,
        report.machines,
        report.budget.map_or(String::new(), |budget| format!(", m = {budget}")),
        report.wire
    ))?;
    // The bundled rows are always the same, and so is what becomes of them.
    if matches!(job.problem.data, DataSource::File(_) | DataSource::Sites(_)) {
        out::line(&worth::decided(prepared))?;
        if let Some(terms) = &report.scikit_learn {
            out::line(&format!("alpha = {} is {terms} of scikit-learn", job.problem.alpha))?;
        }
    }
    if let Some(weight) = finish.settings.added {
        out::line(&format!(
            "`problem.alpha` = 0 leaves f without strong convexity, which {} needs: ({weight:.2e}/2)||x||^2 was added, the target \
             times the machines' mean smoothness",
            report.method
        ))?;
    }
    let (rounds, exchanges) = (last.round, passed.exchanges);
    let passed_by = format!("{rounds} round{} ({exchanges} exchanges)", if rounds == 1 { "" } else { "s" });
    let after = format!("after {passed_by}");
    let state = match (last.relative, finish.ended) {
        (_, Ended::Target) => {
            let target = job.stop.target().unwrap_or(0.0);
            format!("reached {target:.0e} in {passed_by}")
        }
        (_, Ended::Gradient) => format!("the gradient is small enough {after}"),
        (_, Ended::Gap) => format!("the estimated gap is small enough {after}"),
        (_, Ended::Patience) => format!("the held-out rows improve no further {after}"),
        (_, Ended::Diverged) if prepared.info.estimates_gap() => {
            format!(
                "diverged {after}: take a larger `problem.alpha`, other features (`problem.normalise`) or another method"
            )
        }
        (_, Ended::Diverged) => {
            format!("diverged {after}: take a smaller `method.step` or a larger `method.budget`")
        }
        // A network has no f* to be near to.
        (Some(relative), ended) if !job.problem.model.is_network() => {
            format!("{} {after} at {relative:.1e}", words(ended))
        }
        (_, ended) => {
            let loss = if job.problem.model.is_network() { "a training loss of" } else { "f =" };
            let value = last.value.map_or(String::new(), |value| format!(" at {loss} {value:.6}"));
            format!("{} {after}{value}", words(ended))
        }
    };
    out::line(&format!("{state}, in {}", units::seconds(last.seconds)))?;
    let aimed = job.stop.target().is_some() || job.stop.gap.is_some() || job.stop.gap_absolute.is_some();
    if prepared.info.estimates_gap() && aimed && finish.ended == Ended::Rounds && last.round >= SLOW {
        out::line(
            "so many rounds say that the curvature which machines tell is a poor model of f here: a larger `problem.alpha` or another \
             method, as lbfgs, may do better",
        )?;
    }
    let bytes = |count: f64| units::bytes(count);
    out::line(&format!(
        "{} on the wire per machine: {} up, {} down, {} set-up, {} control, {} frames",
        bytes(report.wire_bytes),
        bytes(passed.up_bytes),
        bytes(passed.down_bytes),
        bytes(passed.setup_bytes),
        bytes(passed.control_bytes),
        bytes(passed.frame_bytes)
    ))?;
    let phases: Vec<String> =
        session.phases.iter().map(|(name, seconds)| format!("{name} {}", units::seconds(*seconds))).collect();
    if !phases.is_empty() && report.total_seconds > 2.0 * last.seconds.max(0.5) {
        out::line(&format!("{} in all: {}", units::seconds(report.total_seconds), phases.join(", ")))?;
    }
    if finish.ended == Ended::Target && !report.method.starts_with("cgd") {
        let target = job.stop.target().unwrap_or(0.0);
        if let Some(rounds) = descent_rounds(session, target) {
            let dense = 8.0 * report.dim as f64 * rounds as f64;
            out::line(&format!(
                "uncompressed gradient descent would have taken {rounds} rounds and sent {}, {:.0} times as much",
                bytes(dense),
                dense / report.wire_bytes
            ))?;
        }
    }
    let pooled = session.pooled.as_ref().filter(|_| !prepared.info.ships_rows());
    if let Some(shipped) = pooled.map_or(Ok(None), Pooled::shipped_bytes)? {
        // A message each way.
        let cost = job.link.map_or(shipped, |link| link.seconds(2.0, shipped));
        if cost < report.link_seconds.unwrap_or(report.wire_bytes) {
            out::line(&format!(
                "sending the rows themselves once, under xz, would be cheaper: {} per machine in one exchange",
                bytes(shipped)
            ))?;
        }
    }
    match Worth::held_out(session, prepared, finish) {
        Some(worth) => worth.print("held-out rows")?,
        None => {
            if let Some(worth) = Worth::training(session, prepared, finish) {
                worth.print("rows of training")?;
            }
        }
    }
    if let Some(seconds) = report.link_seconds {
        out::line(&format!("on the link of the job: {}", units::seconds(seconds)))?;
    }
    out::line(if prepared.info.ships_rows() {
        "messages are not protected: anyone who sees them sees the rows"
    } else if report.family.is_none() {
        "messages are not protected: anyone who sees them sees the gradients"
    } else if job.method.seed_file.is_none() {
        "the seed is a public number: anyone who sees the messages can rebuild the gradient's estimate; \
         `corewire seed FILE` makes a secret one"
    } else {
        "anyone who sees the messages without the seed learns sizes, not directions; see `corewire privacy`"
    })?;
    out::line(&format!("digest {}", report.digest))?;
    if let Some(folder) = folder {
        out::line(&format!("the run is in {}: model.safetensors, rounds.csv, journal.bin", folder.display()))?;
    }
    Ok(())
}

fn words(ended: Ended) -> &'static str {
    match ended {
        Ended::Rounds => "stopped at the last round",
        Ended::Seconds => "stopped because the time was up",
        Ended::Bytes => "stopped because the bytes were used up",
        Ended::Stopped => "stopped at your request",
        _ => "ended",
    }
}

/// Today's date, from the days since 1970 by the civil calendar.
pub fn today() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // Shifted to begin on 1 March of year 0, so that leap days come last in their year.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}
