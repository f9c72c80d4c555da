//! What a run says at its end: one JSON object for programs, a few sentences for people.

use std::path::Path;

use anyhow::Result;
use corewire_optim::run::{Ended, Finish};
use serde::Serialize;

use crate::run::Assembled;
use crate::units;

/// The JSON object of a run. Names are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The method's id.
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
    pub value: f64,
    /// Payload up, a machine.
    pub up_bytes: f64,
    /// Payload down, a machine.
    pub down_bytes: f64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Seconds on the modelled link.
    pub link_seconds: Option<f64>,
    /// Of the final common state.
    pub digest: String,
    /// f at x0.
    pub initial: f64,
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
    /// Exchanges.
    pub trips: u64,
    /// Envelopes, both ways.
    pub frame_bytes: u64,
    /// Why it ended.
    pub ended: String,
    /// The share of held-out rows that the model gets right, where there are such.
    pub test_accuracy: Option<f64>,
}

impl Report {
    /// Of a finished run.
    pub fn new(assembled: &Assembled, finish: &Finish) -> Self {
        let (job, last) = (&assembled.job, &finish.last);
        let core = job.method.name.starts_with("core-");
        let gossips = job.graph.as_ref().is_some_and(crate::job::GraphSpec::gossips);
        let family = job.method.family.unwrap_or(corewire_sketch::Family::Hadamard).to_string();
        Self {
            method: job.method.name.clone(),
            model: job.problem.model.clone(),
            data: job.problem.data.clone(),
            machines: job.machines,
            dim: assembled.problem.dim(),
            budget: finish.settings.budget,
            family: core.then_some(family),
            wire: if (core && !gossips) || job.method.wire == "f64" {
                job.method.wire.clone()
            } else {
                "f32".to_owned()
            },
            rounds: last.round,
            reached: matches!(finish.ended, Ended::Target | Ended::Gradient),
            relative: last.relative,
            value: last.value,
            up_bytes: last.up_bytes,
            down_bytes: last.down_bytes,
            seconds: last.seconds,
            link_seconds: job.link.map(|_| last.link_seconds),
            digest: format!("{:016x}", finish.digest),
            initial: finish.initial,
            optimum: assembled.optimum,
            trace: finish.settings.trace.or_else(|| crate::inspect::exact_trace(assembled)),
            smoothness: finish.settings.smoothness,
            strong_convexity: assembled.facts.strong_convexity,
            seed: job.method.seed_file.is_none().then_some(job.method.seed),
            commitment: assembled.seed.commitment().to_string(),
            trips: last.trips,
            frame_bytes: last.frame_bytes,
            ended: format!("{:?}", finish.ended).to_lowercase(),
            test_accuracy: None,
        }
    }
}

/// The closing words.
pub fn print(assembled: &Assembled, finish: &Finish, report: &Report, folder: Option<&Path>) -> Result<()> {
    let job = &assembled.job;
    let last = &finish.last;
    let (up, down) = (units::bytes(last.up_bytes), units::bytes(last.down_bytes));
    println!(
        "{} on {} ({}, d = {}), {} machines, m = {}, wire {}",
        report.method,
        report.data,
        report.model,
        report.dim,
        report.machines,
        report.budget.map_or("d".to_owned(), |budget| budget.to_string()),
        report.wire
    );
    let state = match (last.relative, finish.ended) {
        (_, Ended::Target) => format!("reached {:.0e} in {} rounds", job.stop.target, last.round),
        (_, Ended::Gradient) => format!("the gradient is small enough after {} rounds", last.round),
        (_, Ended::Diverged) => {
            format!("diverged after {} rounds: take a smaller `method.step` or a larger `method.budget`", last.round)
        }
        (Some(relative), ended) => format!("{} after {} rounds at {relative:.1e}", words(ended), last.round),
        (None, ended) => format!("{} after {} rounds at f = {:.6}", words(ended), last.round, last.value),
    };
    println!("{state}; {up} up and {down} down a machine, in {}", units::seconds(last.seconds));
    if finish.ended == Ended::Target
        && report.method != "cgd"
        && let Some((rounds, more)) = crate::inspect::plain_descent(assembled, job.stop.target)
    {
        let dense = 4.0 * report.dim as f64 * rounds as f64;
        let ratio = 2.0 * dense / (last.up_bytes + last.down_bytes);
        let than = if more { "more than " } else { "" };
        println!(
            "uncompressed gradient descent would have taken {than}{rounds} rounds and sent {than}{} each way, {ratio:.0} times more",
            units::bytes(dense)
        );
    }
    if let Some(accuracy) = report.test_accuracy {
        println!("on the held-out rows it gets {:.2} % right", 100.0 * accuracy);
    }
    if let Some(seconds) = report.link_seconds {
        println!("on the link of the job: {}", units::seconds(seconds));
    }
    if !job.method.name.starts_with("core-") {
        println!("messages are not protected: who sees them sees the gradients");
    } else if job.method.seed_file.is_none() {
        println!(
            "the seed is a public number: who sees the messages can rebuild the gradient's estimate; `corewire seed FILE` makes a secret one"
        );
    } else {
        println!("who sees the messages but not the seed learns sizes, not directions; see `corewire privacy`");
    }
    println!("digest {}", report.digest);
    if let Some(folder) = folder {
        println!("the run is in {}: model.safetensors, rounds.csv, journal.bin", folder.display());
    }
    Ok(())
}

fn words(ended: Ended) -> &'static str {
    match ended {
        Ended::Rounds => "stopped at the last round",
        Ended::Seconds => "stopped as the time was up",
        Ended::Bytes => "stopped as the bytes were spent",
        Ended::Stopped => "stopped as you wished",
        Ended::Target | Ended::Gradient | Ended::Diverged => "ended",
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
