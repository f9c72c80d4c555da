//! The folder of a comparison: its results, its curves and its report, which are there as soon as a method has ended.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corewire_optim::catalogue;
use corewire_optim::run::{Ended, Passed, Record};
use corewire_optim::spectrum;

use super::compared::{Compared, best};
use crate::report::{self, LinkInfo, Point, ProblemInfo, Report, RunInfo};
use crate::session::{self, Session};
use crate::{job, summary};

/// A curve is drawn from at most so many points.
const POINTS: usize = 300;

/// Where a comparison is kept.
pub struct Results {
    folder: PathBuf,
    frame: Report,
}

impl Results {
    /// Makes the folder, so that whoever cannot write there learns it before anything has run.
    pub fn create(folder: &Path, session: &Session, tuned: bool) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let results = Self { folder: folder.to_owned(), frame: frame(session, tuned)? };
        results.write(session, &[])?;
        Ok(results)
    }

    /// Writes what is there of these methods in place of what was.
    pub fn write(&self, session: &Session, done: &[&Compared]) -> Result<Report> {
        let runs = done.iter().map(|done| run_info(&session.job, done)).collect();
        let report = Report { runs, ..self.frame.clone() };
        let path = self.folder.join("results.json");
        std::fs::write(&path, serde_json::to_string(&report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        write_csv(&session.job, done, &self.curves())?;
        write_page(&report, &self.folder)?;
        Ok(report)
    }

    /// The file of all curves.
    pub fn curves(&self) -> PathBuf {
        self.folder.join("compare.csv")
    }
}

/// Writes the report's page, and says where.
pub fn write_page(report: &Report, folder: &Path) -> Result<PathBuf> {
    let page = folder.join("report.html");
    std::fs::write(&page, report::render(report)).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

fn write_csv(job: &job::Job, done: &[&Compared], path: &Path) -> Result<()> {
    let mut csv = String::from(
        "method,round,relative,value,up_bytes,down_bytes,wire_bytes,exchanges,link_seconds,seconds,score\n",
    );
    for done in done {
        let Ok(session::Done { observer, .. }) = &done.result else { continue };
        let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:e}"));
        for record in thinned(job, &observer.records) {
            let passed = &record.traffic;
            csv += &format!(
                "\"{}\",{},{},{},{},{},{},{},{},{:.6},{}\n",
                done.id(),
                record.round,
                optional(record.relative),
                optional(record.value),
                passed.up_bytes,
                passed.down_bytes,
                passed.wire_bytes(),
                passed.exchanges,
                passed.link_seconds,
                record.seconds,
                optional(record.score.map(|score| score.score))
            );
        }
    }
    std::fs::write(path, csv).with_context(|| format!("cannot write {}", path.display()))
}

/// At most `POINTS` of the records in which f was looked at: all early ones, then ever fewer, and always the last.
fn thinned<'a>(job: &job::Job, records: &'a [Record]) -> Vec<&'a Record> {
    let (every, last) = (job.stop.evaluate_every.unwrap_or(1).max(1), records.last().map(|record| record.round));
    let looked_at = |record: &&Record| record.round.is_multiple_of(every) || Some(record.round) == last;
    let records: Vec<&Record> = records.iter().filter(looked_at).collect();
    if records.len() <= POINTS {
        return records;
    }
    let ratio = records.len() as f64 / (POINTS / 2) as f64;
    let mut kept: Vec<usize> = (0..POINTS / 2).chain((0..POINTS / 2).map(|i| (i as f64 * ratio) as usize)).collect();
    kept.push(records.len() - 1);
    kept.sort_unstable();
    kept.dedup();
    kept.into_iter().filter_map(|index| records.get(index).copied()).collect()
}

/// What the report has of a method.
fn run_info(job: &job::Job, done: &Compared) -> RunInfo {
    let family = catalogue::find(&done.name).map_or("other", |info| info.family);
    let mut info = RunInfo {
        method: done.id(),
        label: done.id(),
        family: family.to_owned(),
        reached: false,
        rounds: 0,
        trips: 0,
        relative: f64::NAN,
        best: f64::NAN,
        value: f64::NAN,
        up_bytes: 0.0,
        down_bytes: 0.0,
        wire_bytes: 0.0,
        seconds: done.seconds,
        link_seconds: None,
        score: None,
        tuned: done.tuned.clone(),
        note: None,
        error: None,
        trace: Vec::new(),
    };
    match &done.result {
        Err(error) => info.error = Some(format!("{error:#}")),
        Ok(session::Done { finish, observer, .. }) => {
            let (last, records) = (&finish.last, &observer.records);
            info.reached = done.reached();
            info.rounds = last.round;
            info.trips = done.mean(|passed| passed.exchanges as f64).round() as u64;
            info.relative = last.relative.unwrap_or(f64::NAN);
            info.best = best(records);
            info.value = last.value.unwrap_or(f64::NAN);
            info.up_bytes = done.mean(|passed| passed.up_bytes);
            info.down_bytes = done.mean(|passed| passed.down_bytes);
            info.wire_bytes = done.mean(Passed::wire_bytes);
            info.link_seconds = job.link.map(|_| done.mean(|passed| passed.link_seconds));
            info.score = last.score.map(|score| score.score);
            let note = match (finish.ended, finish.settings.budget) {
                (Ended::Diverged, _) => Some("diverged".to_owned()),
                (_, Some(budget)) => Some(format!("m = {budget}")),
                _ => None,
            };
            let seeds = done.spread().map(|spread| format!("{} seeds: {spread}", done.ends().count()));
            info.note = Some([note, seeds].into_iter().flatten().collect::<Vec<_>>().join("; "));
            info.note = info.note.filter(|note| !note.is_empty());
            let point = |record: &Record| Point {
                round: record.round,
                relative: record.relative.unwrap_or(f64::NAN),
                up_bytes: record.traffic.up_bytes,
                down_bytes: record.traffic.down_bytes,
                wire_bytes: record.traffic.wire_bytes(),
                seconds: record.seconds,
                link_seconds: record.traffic.link_seconds,
                score: record.score.map(|score| score.score),
            };
            let start = Point { relative: 1.0, ..Point::default() };
            info.trace = std::iter::once(start).chain(thinned(job, records).into_iter().map(point)).collect();
        }
    }
    info
}

/// The report before its first method.
fn frame(session: &Session, tuned: bool) -> Result<Report> {
    let (job, problem, constants) = (&session.job, session.problem()?, session.constants()?);
    let mut pooled = problem.pooled().context("`compare` needs all rows in one place")?;
    let measured = match problem.known_eigenvalues() {
        Some(known) => Some(spectrum::Measured {
            spectrum: corewire_optim::tuning::Spectrum::from_eigenvalues(known),
            eigenvalues: Some(known.to_vec()),
        }),
        // Hundreds of passes over all rows: `inspect` does it, for whoever wants to know.
        None if job.problem.model.is_network() => None,
        None => Some(spectrum::measure(&mut *pooled, problem.start(), &session.randomness)),
    };
    let spectrum = measured.as_ref().map(|measured| &measured.spectrum);
    let initial = pooled.value(problem.start());
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    Ok(Report {
        title: format!("{} on {}", job.problem.model.name(), job.problem.data.name()),
        command: command_line(std::env::args()),
        tuning: match tuned {
            true => "each baseline has the best step, codec, k and p of a grid, which is not billed".to_owned(),
            false => "baselines have their steps and parameters of theory (--no-tune)".to_owned(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: summary::today(),
        system: format!(
            "{} {}, {cores} cores, kernel {}",
            std::env::consts::OS,
            std::env::consts::ARCH,
            corewire_sketch::kernel_name()
        ),
        problem: ProblemInfo {
            data: job.problem.data.name(),
            model: job.problem.model.name().to_owned(),
            rows: problem.row_count(),
            dim: problem.dim(),
            machines: job.machines,
            alpha: job.problem.alpha,
            split: job.problem.split.to_string(),
            initial,
            optimum: session.optimum,
            trace: spectrum.map_or(f64::NAN, |spectrum| spectrum.trace()),
            smoothness: spectrum.map_or(f64::NAN, |_| constants.smoothness),
            strong_convexity: constants.strong_convexity,
            effective_dimension: spectrum
                .map_or(f64::NAN, |spectrum| spectrum.effective_dimension(constants.strong_convexity)),
            seed: job.method.seed_file.as_ref().map_or(job.method.seed.to_string(), |_| "secret".to_owned()),
            rounds_per_epoch: job
                .method
                .settings
                .training
                .map(|training| problem.row_count() as f64 / (job.machines * training.batch) as f64),
        },
        target: session.target().unwrap_or(0.0),
        link: job.link.map(|link| LinkInfo {
            mbit_s: link.mbit_s,
            rtt_ms: link.rtt_ms,
            overhead_bytes: link.overhead_bytes,
        }),
        eigenvalues: measured.and_then(|known| known.eigenvalues).unwrap_or_default().into_iter().take(2000).collect(),
        runs: Vec::new(),
    })
}

/// The command as somebody else would type it: without the folders of this computer.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let short = |word: &str| match Path::new(word) {
        path if path.is_absolute() => {
            path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
        _ => word.to_owned(),
    };
    let word = |word: String| match word.split_once('=') {
        Some((key, value)) => format!("{key}={}", short(value)),
        None => short(&word),
    };
    std::iter::once("corewire".to_owned()).chain(words.skip(1).map(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_does_not_tell_where_things_lie() {
        let words = [
            "/home/me/bin/corewire",
            "compare",
            "/secret/job.toml",
            "--set",
            "problem.data=/secret/a.csv",
            "--out",
            "here",
        ];
        let told = command_line(words.into_iter().map(str::to_owned));
        assert_eq!(told, "corewire compare job.toml --set problem.data=a.csv --out here");
    }
}
