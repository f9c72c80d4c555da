//! What a job leaves open: which method, by trying the candidates where all data is at hand.

use anyhow::Result;
use corewire_comm::Solo;
use corewire_optim::run::{Ended, Finish};

use crate::assemble;
use crate::desk::Desk;
use crate::job::Job;
use crate::run::{Assembled, execute};

/// How a method would fare: from a trial of all rounds on one machine that holds all data, and of a few rounds on all machines.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The method.
    pub name: String,
    /// The budget it would take.
    pub budget: Option<usize>,
    /// Whether it reached the target in the trial.
    pub reached: bool,
    /// Rounds.
    pub rounds: f64,
    /// Exchanges.
    pub trips: f64,
    /// Payload up, a machine.
    pub up_bytes: f64,
    /// Payload down, a machine.
    pub down_bytes: f64,
}

impl Forecast {
    /// Seconds on a link.
    pub fn seconds(&self, link: &corewire_comm::Link) -> f64 {
        self.trips * link.seconds(self.up_bytes / self.trips.max(1.0), self.down_bytes / self.trips.max(1.0))
    }

    /// What it is judged by.
    pub fn cost(&self, job: &Job) -> f64 {
        if !self.reached {
            return f64::INFINITY;
        }
        match assemble::time_link(job) {
            Some(link) => self.seconds(&link),
            None => self.up_bytes + self.down_bytes,
        }
    }
}

/// Rounds of the trial that measures bytes, and those of them that are left out as start-up.
const SHORT: (u64, u64) = (40, 15);

/// Tries a method. Nothing of it is billed to a run.
pub fn forecast(assembled: &Assembled, name: &str) -> Result<Forecast> {
    let mut job = assembled.job.clone();
    job.method.name = name.to_owned();
    // Over a tree the rounds are the same and the bytes in the same proportion; a trial through a hub tells enough.
    job.graph = None;
    // Rounds do not depend on how the rows are divided: the mean gradient is the same, and so is the noise relative to it.
    let mut alone = job.clone();
    alone.machines = 1;
    let alone = Assembled::with_optimum(alone, assembled.optimum)?;
    let rounds = run(&alone)?;
    // Bytes do.
    job.stop.rounds = SHORT.0;
    job.stop.target = 0.0;
    let together = Assembled::with_optimum(job, assembled.optimum)?;
    let (finish, desk) =
        execute(&together, Solo::new(together.job.machines), Desk::new(true, 0, None).keeping_records(), None)?;
    let (first, last) = (desk.records.iter().find(|record| record.round == SHORT.1), desk.records.last());
    let (up, down) = match (first, last) {
        (Some(first), Some(last)) if last.round > first.round => {
            let per = 1.0 / (last.round - first.round) as f64;
            let rest = rounds.last.round as f64 - first.round as f64;
            let extend = |then: f64, now: f64| (then + (now - then) * per * rest).max(0.0);
            (extend(first.up_bytes, last.up_bytes), extend(first.down_bytes, last.down_bytes))
        }
        _ => (finish.last.up_bytes, finish.last.down_bytes),
    };
    Ok(Forecast {
        name: name.to_owned(),
        budget: rounds.settings.budget,
        reached: rounds.ended == Ended::Target,
        rounds: rounds.last.round as f64,
        trips: rounds.last.trips as f64,
        up_bytes: up,
        down_bytes: down,
    })
}

fn run(assembled: &Assembled) -> Result<Finish> {
    Ok(execute(assembled, Solo::new(assembled.job.machines), Desk::new(true, 0, None), None)?.0)
}

/// Settles `method.name = "auto"`: whichever of core-agd and core-cg costs less on the job's link, or in bytes without one.
pub fn settle(mut assembled: Assembled, quiet: bool) -> Result<Assembled> {
    if assembled.job.method.name != "auto" {
        return Ok(assembled);
    }
    let mut name = if assembled.facts.convex { "core-agd" } else { "core-nonconvex" };
    let comparable = assembled.facts.convex
        && assembled.optimum.is_some()
        && assembled.job.stop.target > 0.0
        && assembled.facts.l1 == 0.0;
    if assembled.facts.l1 > 0.0 {
        name = "core-gd";
    }
    // Gossip has no conjugate gradients to choose.
    let gossips = assembled.job.graph.as_ref().is_some_and(|spec| spec.gossips());
    if comparable && !gossips && assembled.job.engine == "threads" {
        let (agd, cg) = (forecast(&assembled, "core-agd")?, forecast(&assembled, "core-cg")?);
        if cg.cost(&assembled.job) < agd.cost(&assembled.job) {
            name = "core-cg";
        }
        if !quiet {
            let goal = if assemble::time_link(&assembled.job).is_some() { "seconds on the link" } else { "bytes" };
            eprintln!(
                "tried on one machine: core-agd would need {:.0} rounds, core-cg {:.0}; {name} costs fewer {goal}",
                agd.rounds, cg.rounds
            );
        }
    }
    assembled.job.choose_method(name);
    Ok(assembled)
}
