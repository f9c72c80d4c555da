//! `corewire compare`: many methods on one problem, by real bytes; `corewire report` and `corewire methods`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use corewire_comm::Solo;
use corewire_optim::catalogue;
use corewire_optim::run::{Ended, Record};
use corewire_optim::spectrum;

use crate::interrupt::{interrupted, watch_interrupts};
use crate::recorder::Recorder;
use crate::report::{self, LinkInfo, Point, ProblemInfo, Report, RunInfo};
use crate::session::{self, Pooled, Session, execute};
use crate::{job, out, progress, summary, units};

/// What `compare` runs when nobody says otherwise: CORE, the yardsticks, and one or two of each family of the field.
const DEFAULT: &str = "core-newton,core-agd,core-cg,core-gd,cg,lbfgs,acgd,cgd,ef21,diana,marina,scaffnew,scaffold,topk-ef,qsgd,drive,powersgd,ef-signsgd";
/// Tuning tries factors on each method's own step, twice as large each time, until it diverges or two in a row are no better, and at most
/// this: theory's steps for error feedback are a hundred times too careful on real data. Where none is better than the step itself, smaller
/// ones are tried while they help.
const LARGEST_FACTOR: f64 = 4096.0;
/// A curve is drawn from at most so many points.
const POINTS: usize = 300;

/// Arguments of `corewire compare`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The job file; the bundled job without one.
    job: Option<PathBuf>,
    /// Overrides a key of the job file.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Methods with parameters, as in cgd,core-agd,ef21:k=15; or `all`. Several parameters are separated by `;`.
    #[arg(long, default_value = DEFAULT, hide_default_value = true)]
    methods: String,
    /// The relative suboptimality to reach.
    #[arg(long)]
    target: Option<f64>,
    /// Leaves the baselines their steps of theory; without it each gets the best of a common grid, which nobody is billed for.
    #[arg(long)]
    no_tune: bool,
    /// The folder of the table, the data and the report.
    #[arg(long, value_name = "DIR", default_value = "corewire-compare")]
    out: PathBuf,
    /// One JSON object per method, one line each.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long)]
    quiet: bool,
}

/// One run of the comparison.
struct Compared {
    name: String,
    parameters: BTreeMap<String, String>,
    tuned: Option<String>,
    seconds: f64,
    result: Result<session::Done<Recorder>>,
}

impl Compared {
    fn id(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if parameters.is_empty() { self.name.clone() } else { format!("{}:{}", self.name, parameters.join(",")) }
    }

    fn is_better_than(&self, other: &Self) -> bool {
        self.rank().0.cmp(&other.rank().0).then(self.rank().1.total_cmp(&other.rank().1)).is_lt()
    }

    /// Sorts those that reached the target by total bytes, the others after them by how near they came.
    fn rank(&self) -> (u8, f64) {
        match &self.result {
            Ok(done) if done.finish.ended == Ended::Target => (0, done.finish.last.traffic.wire_bytes()),
            Ok(done) => (1, best(&done.observer.records)),
            Err(_) => (2, 0.0),
        }
    }
}

fn best(records: &[Record]) -> f64 {
    records.iter().filter_map(|record| record.relative).filter(|relative| relative.is_finite()).fold(1.0, f64::min)
}

/// `corewire compare`.
pub fn run(arguments: &Arguments) -> Result<()> {
    watch_interrupts();
    let mut overrides = arguments.set.clone();
    overrides.extend(arguments.target.map(|target| format!("stop.target={target}")));
    let mut loaded = job::load(arguments.job.as_deref(), &overrides)?;
    loaded.stop.rounds = loaded.stop.rounds.or(Some(2000));
    // Without f* there is nothing to compare by, so it may take its time.
    loaded.limits.optimum_seconds = loaded.limits.optimum_seconds.or(Some(f64::INFINITY));
    let session = Session::without_optimum(loaded, arguments.quiet || arguments.json)?.with_optimum()?;
    if session.gave_up {
        bail!("`compare` measures the way to f*, which takes longer than `limits.optimum_seconds`: remove that key");
    }
    if session.optimum.is_none() && session.job.stop.target().is_some() {
        bail!(
            "`compare` measures the way to f*, which is not known here: take a convex model with alpha > 0, or set stop.target=0"
        );
    }
    let wanted = methods(&arguments.methods)?;
    // Mistakes in a method's parameters are told before anything runs.
    for (name, parameters) in &wanted {
        session.with_method(name, parameters.clone()).check_method()?;
    }
    let done = run_all(&session, wanted, !arguments.no_tune);
    let report = build_report(&session, &done, !arguments.no_tune)?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot create the folder {}", arguments.out.display()))?;
    let results = arguments.out.join("results.json");
    std::fs::write(&results, serde_json::to_string(&report)?)
        .with_context(|| format!("cannot write {}", results.display()))?;
    write_csv(&done, &arguments.out.join("compare.csv"))?;
    let page = write_page(&report, &arguments.out)?;
    if arguments.json {
        for compared in &done {
            match &compared.result {
                Ok(done) => {
                    let session = session.with_method(&compared.name, compared.parameters.clone());
                    let report = summary::Report::new(&session, &done.prepared, &done.finish);
                    let report = summary::Report { method: compared.id(), ..report };
                    out::line(&serde_json::to_string(&report)?)?;
                }
                Err(error) => {
                    out::json(&serde_json::json!({ "method": compared.id(), "error": format!("{error:#}") }))?;
                }
            }
        }
        return Ok(());
    }
    print_table(&done, session.job.link.is_some());
    println!("{}", report::conclusion(&report));
    if let Some(bytes) = session.pooled.as_ref().map_or(Ok(None), Pooled::shipped_bytes)? {
        // The runs are sorted: the first is the cheapest of those that reached the target.
        let against = done.first().filter(|compared| compared.rank().0 == 0).map(|compared| {
            format!(", {} times the bytes of {}", units::times(bytes / compared.rank().1), compared.name)
        });
        println!(
            "sending the rows themselves once, under xz, would take {} per machine in one exchange{}",
            units::bytes(bytes),
            against.unwrap_or_default()
        );
    }
    println!("the report is in {}, the curves in {}", page.display(), arguments.out.join("compare.csv").display());
    Ok(())
}

/// `corewire report DIR`: rebuilds the page from results.json.
pub fn rebuild(folder: &Path, json: bool) -> Result<()> {
    let path = folder.join("results.json");
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}; `corewire compare --out {}` makes it", path.display(), folder.display())
    })?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{} was not written by `corewire compare`", path.display()))?;
    let page = write_page(&report, folder)?;
    match json {
        true => println!("{}", serde_json::json!({ "report": page, "runs": report.runs.len() })),
        false => println!("the report is in {}", page.display()),
    }
    Ok(())
}

fn write_page(report: &Report, folder: &Path) -> Result<PathBuf> {
    let page = folder.join("report.html");
    std::fs::write(&page, report::render(report)).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

/// The methods of `--methods`. Commas separate methods; a part with `=` but no `:` belongs to the method before it.
fn methods(text: &str) -> Result<Vec<(String, BTreeMap<String, String>)>> {
    let text = match text {
        "all" => {
            let wanted = |info: &&catalogue::MethodInfo| {
                info.family != "decentralised" && !matches!(info.id, "core-nonconvex" | "core-sgd")
            };
            catalogue::methods().filter(wanted).map(|info| info.id).collect::<Vec<_>>().join(",")
        }
        text => text.replace(';', ","),
    };
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match parts.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') => {
                last.push(if last.contains(':') { ',' } else { ':' });
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    if parts.is_empty() {
        bail!("`--methods` names no method");
    }
    parts.iter().map(|part| job::parse_method(part)).collect()
}

/// Runs all, as many at a time as there are cores.
fn run_all(session: &Session, wanted: Vec<(String, BTreeMap<String, String>)>, tune: bool) -> Vec<Compared> {
    let total = wanted.len() as u64;
    let bar = progress::bar(session.quiet, total, "{pos} of {len} methods {wide_bar:.cyan/dim} {msg}");
    let queue: Mutex<VecDeque<_>> = Mutex::new(wanted.into_iter().enumerate().collect());
    let done = Mutex::new(Vec::new());
    let running = Mutex::new(Vec::<String>::new());
    let show = || {
        if let Some(bar) = &bar {
            bar.set_message(running.lock().expect("nobody panics here").join(", "));
        }
    };
    let worker = || {
        loop {
            let next = queue.lock().expect("nobody panics here").pop_front();
            let Some((index, (name, parameters))) = next.filter(|_| !interrupted()) else { return };
            running.lock().expect("nobody panics here").push(name.clone());
            show();
            let finished = run_one(session, &name, parameters, tune);
            running.lock().expect("nobody panics here").retain(|other| *other != name);
            done.lock().expect("nobody panics here").push((index, finished));
            show();
            if let Some(bar) = &bar {
                bar.inc(1);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(worker);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let mut done: Vec<(usize, Compared)> = done.into_inner().expect("nobody panics here");
    done.sort_by_key(|entry| entry.0);
    let mut done: Vec<Compared> = done.into_iter().map(|entry| entry.1).collect();
    done.sort_by(|a, b| a.rank().0.cmp(&b.rank().0).then(a.rank().1.total_cmp(&b.rank().1)));
    done
}

fn run_one(session: &Session, name: &str, parameters: BTreeMap<String, String>, tune: bool) -> Compared {
    let attempt = |parameters: BTreeMap<String, String>, tuned: Option<String>| {
        let begun = Instant::now();
        let variant = session.with_method(name, parameters.clone());
        let solo = Solo::new(variant.job.machines);
        let result = execute(&variant, solo, false, |_| Ok(Recorder::silent().keeping_records()), None);
        let result = result.map(|done| done.expect("machine 0 is in this process"));
        Compared { name: name.to_owned(), parameters, tuned, seconds: begun.elapsed().as_secs_f64(), result }
    };
    let fixed = catalogue::find(name).is_ok_and(|info| info.is_core() || !info.tunes());
    if !tune || fixed || parameters.contains_key("scale") {
        return attempt(parameters, None);
    }
    let scaled = |scale: f64| {
        let mut parameters = parameters.clone();
        parameters.insert("scale".to_owned(), scale.to_string());
        attempt(parameters, Some(format!("step x {scale}")))
    };
    let diverged = |done: &Compared| done.result.as_ref().map_or(true, |done| done.finish.ended == Ended::Diverged);
    let mut best = scaled(1.0);
    let (mut scale, mut in_vain) = (1.0, 0);
    while scale < LARGEST_FACTOR && in_vain < 2 && !diverged(&best) && !interrupted() {
        scale *= 2.0;
        let done = scaled(scale);
        if diverged(&done) {
            break;
        }
        in_vain = if done.is_better_than(&best) { 0 } else { in_vain + 1 };
        best = if in_vain == 0 { done } else { best };
    }
    scale = 1.0;
    while best.parameters.get("scale").is_some_and(|best| *best == scale.to_string()) && !interrupted() {
        scale /= 2.0;
        let done = scaled(scale);
        if scale < 1.0 / LARGEST_FACTOR || !done.is_better_than(&best) {
            break;
        }
        best = done;
    }
    best
}

fn print_table(done: &[Compared], link: bool) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    let mut header = vec!["method", "reached", "rounds", "exchanges", "up", "down", "wire", "x best", "seconds"];
    if link {
        header.push("on the link");
    }
    table.set_header(header);
    let least = done.first().map_or(0.0, |done| done.rank().1);
    for done in done {
        let row = match &done.result {
            Err(error) => vec![done.id(), format!("failed: {error:#}")],
            Ok(session::Done { finish, observer, .. }) => {
                let (last, records) = (&finish.last, &observer.records);
                let reached = match finish.ended {
                    Ended::Target => "yes".to_owned(),
                    Ended::Diverged => "diverged".to_owned(),
                    _ => format!("never reached (best {:.0e})", best(records)),
                };
                let passed = &last.traffic;
                let total = passed.wire_bytes();
                let times =
                    if finish.ended == Ended::Target { format!("{:.1}", total / least) } else { "-".to_owned() };
                let mut row = vec![
                    done.id(),
                    reached,
                    last.round.to_string(),
                    passed.exchanges.to_string(),
                    units::bytes(passed.up_bytes),
                    units::bytes(passed.down_bytes),
                    units::bytes(total),
                    times,
                    format!("{:.1}", done.seconds),
                ];
                if link {
                    row.push(units::seconds(passed.link_seconds));
                }
                row
            }
        };
        table.add_row(row);
    }
    println!("{table}");
}

fn write_csv(done: &[Compared], path: &Path) -> Result<()> {
    let mut csv =
        String::from("method,round,relative,value,up_bytes,down_bytes,wire_bytes,exchanges,link_seconds,seconds\n");
    for done in done {
        let Ok(session::Done { observer, .. }) = &done.result else { continue };
        let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:e}"));
        for record in thinned(&observer.records) {
            let passed = &record.traffic;
            csv += &format!(
                "\"{}\",{},{},{},{},{},{},{},{},{:.6}\n",
                done.id(),
                record.round,
                optional(record.relative),
                optional(record.value),
                passed.up_bytes,
                passed.down_bytes,
                passed.wire_bytes(),
                passed.exchanges,
                passed.link_seconds,
                record.seconds
            );
        }
    }
    std::fs::write(path, csv).with_context(|| format!("cannot write {}", path.display()))
}

/// At most `POINTS` records: all early ones, then ever fewer, and always the last.
fn thinned(records: &[Record]) -> Vec<&Record> {
    if records.len() <= POINTS {
        return records.iter().collect();
    }
    let ratio = records.len() as f64 / (POINTS / 2) as f64;
    let mut kept: Vec<usize> = (0..POINTS / 2).chain((0..POINTS / 2).map(|i| (i as f64 * ratio) as usize)).collect();
    kept.push(records.len() - 1);
    kept.sort_unstable();
    kept.dedup();
    kept.into_iter().filter_map(|index| records.get(index)).collect()
}

fn build_report(session: &Session, done: &[Compared], tuned: bool) -> Result<Report> {
    let (job, problem, constants) = (&session.job, session.problem()?, session.constants()?);
    let mut pooled = problem.pooled().context("`compare` needs all rows in one place")?;
    let measured = match problem.known_eigenvalues() {
        Some(known) => spectrum::Measured {
            spectrum: corewire_optim::tuning::Spectrum::from_eigenvalues(known),
            eigenvalues: Some(known.to_vec()),
        },
        None => spectrum::measure(&mut *pooled, problem.start(), &session.randomness),
    };
    let initial = pooled.value(problem.start());
    let run = |done: &Compared| {
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
            tuned: done.tuned.clone(),
            note: None,
            error: None,
            trace: Vec::new(),
        };
        match &done.result {
            Err(error) => info.error = Some(format!("{error:#}")),
            Ok(session::Done { finish, observer, .. }) => {
                let (last, records) = (&finish.last, &observer.records);
                let passed = &last.traffic;
                info.reached = finish.ended == Ended::Target;
                info.rounds = last.round;
                info.trips = passed.exchanges;
                info.relative = last.relative.unwrap_or(f64::NAN);
                info.best = best(records);
                info.value = last.value.unwrap_or(f64::NAN);
                info.up_bytes = passed.up_bytes;
                info.down_bytes = passed.down_bytes;
                info.wire_bytes = passed.wire_bytes();
                info.link_seconds = job.link.map(|_| passed.link_seconds);
                info.note = match (finish.ended, finish.settings.budget) {
                    (Ended::Diverged, _) => Some("diverged".to_owned()),
                    (_, Some(budget)) => Some(format!("m = {budget}")),
                    _ => None,
                };
                let point = |record: &Record| Point {
                    round: record.round,
                    relative: record.relative.unwrap_or(f64::NAN),
                    up_bytes: record.traffic.up_bytes,
                    down_bytes: record.traffic.down_bytes,
                    wire_bytes: record.traffic.wire_bytes(),
                    seconds: record.seconds,
                    link_seconds: record.traffic.link_seconds,
                };
                let start = Point { relative: 1.0, ..Point::default() };
                info.trace = std::iter::once(start).chain(thinned(records).into_iter().map(point)).collect();
            }
        }
        info
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    Ok(Report {
        title: format!("{} on {}", job.problem.model.name(), job.problem.data.name()),
        command: command_line(std::env::args()),
        tuning: match tuned {
            true => "each baseline's step is the best of a grid of powers of 2, which is not billed".to_owned(),
            false => "baselines have their steps of theory (--no-tune)".to_owned(),
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
            trace: measured.spectrum.trace(),
            smoothness: constants.smoothness,
            strong_convexity: constants.strong_convexity,
            effective_dimension: measured.spectrum.effective_dimension(constants.strong_convexity),
            seed: job.method.seed_file.as_ref().map_or(job.method.seed.to_string(), |_| "secret".to_owned()),
        },
        target: job.stop.target().unwrap_or(0.0),
        link: job.link.map(|link| LinkInfo {
            mbit_s: link.mbit_s,
            rtt_ms: link.rtt_ms,
            overhead_bytes: link.overhead_bytes,
        }),
        eigenvalues: measured.eigenvalues.unwrap_or_default().into_iter().take(2000).collect(),
        runs: done.iter().map(run).collect(),
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

/// `corewire methods`.
pub fn list(json: bool) -> Result<()> {
    if json {
        for info in catalogue::methods() {
            let parameter = |p: &catalogue::Parameter| serde_json::json!({ "name": p.name, "default": p.default, "meaning": p.meaning });
            out::json(&serde_json::json!({
                "id": info.id, "title": info.title, "line": info.line, "family": info.family, "exact": info.exact,
                "proximal": info.proximal, "gossip": info.gossips(), "reference": info.reference,
                "parameters": info.parameters.iter().map(parameter).collect::<Vec<_>>(),
            }))?;
        }
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table.set_header(["method", "what it does", "parameters"]);
    for info in catalogue::methods() {
        let parameters: Vec<String> = info.parameters.iter().map(|p| format!("{}={}", p.name, p.default)).collect();
        let parameters =
            if info.is_core() && parameters.is_empty() { "keys of [method]".to_owned() } else { parameters.join(" ") };
        table.add_row([info.id.to_owned(), info.line.to_owned(), parameters]);
    }
    println!("{table}");
    println!("parameters follow a colon, as in ef21:k=15; each method has a page in docs/methods.md");
    Ok(())
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
