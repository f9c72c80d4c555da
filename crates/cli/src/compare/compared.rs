//! One method of a comparison: how it ran, and how it ranks.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use corewire_comm::Solo;
use corewire_optim::run::{Ended, Passed, Record};

use crate::job;
use crate::recorder::Recorder;
use crate::session::{self, Session, execute};
use crate::units;

/// A method of the comparison.
pub struct Compared {
    /// Its name in the catalogue.
    pub name: String,
    /// What was given and what was tuned.
    pub parameters: BTreeMap<String, String>,
    /// What tuning chose.
    pub tuned: Option<String>,
    /// By the clock, of the run that counts.
    pub seconds: f64,
    /// How it went.
    pub result: Result<session::Done<Recorder>>,
    /// How the runs with further seeds ended.
    pub others: Vec<(Ended, Passed)>,
    /// Whether seconds on a link are what is paid.
    pub timed: bool,
}

impl Compared {
    /// Its name with its parameters.
    pub fn id(&self) -> String {
        job::written_method(&self.name, &self.parameters)
    }

    /// Whether it is cheaper, or nearer where neither arrived.
    pub fn is_better_than(&self, other: &Self) -> bool {
        self.order(other).is_lt()
    }

    /// The better one is less.
    pub fn order(&self, other: &Self) -> Ordering {
        let ((kind, cost), (other_kind, other_cost)) = (self.rank(), other.rank());
        kind.cmp(&other_kind).then(cost.total_cmp(&other_cost))
    }

    /// How it went, in a line.
    pub fn line(&self) -> String {
        let took = units::seconds(self.seconds);
        match &self.result {
            Err(error) => format!("{} failed: {error:#}", self.id()),
            Ok(done) => {
                let last = &done.finish.last;
                let value = last.value.map_or(String::new(), |value| format!(", f = {value:.5}"));
                let score = last.score.map_or(String::new(), |score| format!(", score {:.4}", score.score));
                let bytes = units::bytes(self.mean(Passed::wire_bytes));
                format!("{}{value}{score}, {bytes} per machine, in {took}", self.id())
            }
        }
    }

    /// Sorts those that reached the target by what they cost, the others after them by how near they came.
    pub fn rank(&self) -> (u8, f64) {
        match &self.result {
            Ok(_) if self.reached() => (0, self.mean(|passed| self.cost(passed))),
            Ok(done) => (1, best(&done.observer.records)),
            Err(_) => (2, 0.0),
        }
    }

    /// What is paid: bytes, or seconds on the link.
    pub fn cost(&self, passed: &Passed) -> f64 {
        if self.timed { passed.link_seconds } else { passed.wire_bytes() }
    }

    /// Bytes beyond which nothing can be better.
    pub fn bound(&self) -> Option<f64> {
        (self.rank().0 == 0 && !self.timed).then(|| self.rank().1)
    }

    /// A cost in words.
    pub fn shown(&self, cost: f64) -> String {
        if self.timed { units::seconds(cost) } else { units::bytes(cost) }
    }

    /// How the runs of all seeds ended.
    pub fn ends(&self) -> impl Iterator<Item = (Ended, Passed)> {
        let first = self.result.as_ref().ok().map(|done| (done.finish.ended, done.finish.last.traffic));
        first.into_iter().chain(self.others.iter().copied())
    }

    /// Whether it reached the target with every seed.
    pub fn reached(&self) -> bool {
        self.ends().all(|(ended, _)| ended == Ended::Target)
    }

    /// A mean over seeds.
    pub fn mean(&self, of: impl Fn(&Passed) -> f64) -> f64 {
        self.ends().map(|(_, passed)| of(&passed)).sum::<f64>() / self.ends().count() as f64
    }

    /// The least and the most that a seed cost, and how many reached the target, in words.
    pub fn spread(&self) -> Option<String> {
        let costs: Vec<f64> = self.ends().map(|(_, passed)| self.cost(&passed)).collect();
        let (least, most) = costs.iter().fold((f64::INFINITY, 0.0f64), |(a, b), &cost| (a.min(cost), b.max(cost)));
        let (reached, seeds) = (self.ends().filter(|(ended, _)| *ended == Ended::Target).count(), costs.len());
        let there = if reached < seeds { format!("; {reached} of {seeds} reached") } else { String::new() };
        (seeds > 1).then(|| format!("{} to {}{there}", self.shown(least), self.shown(most)))
    }
}

/// The least relative suboptimality on the way.
pub fn best(records: &[Record]) -> f64 {
    records.iter().filter_map(|record| record.relative).filter(|relative| relative.is_finite()).fold(1.0, f64::min)
}

/// Runs a method once; where it cannot cost less than so many bytes it is given up.
pub fn attempt(session: &Session, name: &str, parameters: &BTreeMap<String, String>, most: Option<f64>) -> Compared {
    let begun = Instant::now();
    let mut variant = session.with_method(name, parameters.clone());
    let bytes = most.map(|most| most.ceil() as u64);
    variant.job.stop.bytes = [variant.job.stop.bytes, bytes].into_iter().flatten().min();
    let solo = Solo::new(variant.job.machines);
    let result = execute(&variant, solo, false, |_| Ok(Recorder::unseen().keeping_records()), None);
    Compared {
        name: name.to_owned(),
        parameters: parameters.clone(),
        tuned: None,
        seconds: begun.elapsed().as_secs_f64(),
        result: result.map(|done| done.expect("machine 0 is in this process")),
        others: Vec::new(),
        timed: variant.job.link.is_some(),
    }
}

impl Compared {
    /// The same method and parameters with further seeds.
    pub fn run_seeds(&mut self, session: &Session, seeds: u64) {
        for seed in (1..seeds).map(|more| session.job.method.seed + more) {
            let other = session.with_seed(seed).map(|session| attempt(&session, &self.name, &self.parameters, None));
            match other.and_then(|other| other.result) {
                Ok(done) => self.others.push((done.finish.ended, done.finish.last.traffic)),
                Err(error) => {
                    self.result = Err(error.context(format!("with seed {seed}")));
                    return;
                }
            }
        }
    }
}
