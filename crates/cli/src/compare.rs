//! `corewire compare`: many methods on one problem, by real bytes; `corewire report` and `corewire methods`.

use std::collections::{BTreeMap, VecDeque};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corewire_comm::Solo;
use corewire_optim::method::field;
use corewire_optim::run::{Ended, Finish, Record};
use corewire_optim::spectrum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::desk::{Desk, interrupted, watch_interrupts};
use crate::job;
use crate::report::{self, LinkInfo, Point, ProblemInfo, Report, RunInfo};
use crate::run::{Assembled, execute};
use crate::{summary, units};

/// What `compare` runs when nobody says otherwise: CORE, the yardsticks, and one or two of each family of the field.
const DEFAULT: &str =
    "core-agd,core-cg,core-gd,cg,acgd,cgd,ef21,diana,marina,scaffnew,scaffold,topk-ef,qsgd,drive,powersgd,ef-signsgd";
/// The common grid of `--tune`: factors on each method's own step, up to the first that diverges. Theory's steps for error feedback are a
/// hundred times too careful on real data, so a shorter grid would be unfair to it.
const GRID: [f64; 11] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
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
    /// Tries a small common grid over each method's step and keeps the best.
    #[arg(long)]
    tune: bool,
    /// The folder of the table, the data and the report.
    #[arg(long, value_name = "DIR", default_value = "corewire-compare")]
    out: PathBuf,
    /// One JSON object a method, a line each.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(long)]
    quiet: bool,
}

/// One run of the comparison.
struct Done {
    name: String,
    parameters: BTreeMap<String, String>,
    tuned: Option<String>,
    seconds: f64,
    result: Result<(Finish, Vec<Record>)>,
}

impl Done {
    fn id(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if parameters.is_empty() { self.name.clone() } else { format!("{}:{}", self.name, parameters.join(",")) }
    }

    /// Sorts those that reached the target by total bytes, the others after them by how near they came.
    fn rank(&self) -> (u8, f64) {
        match &self.result {
            Ok((finish, _)) if finish.ended == Ended::Target => (0, finish.last.up_bytes + finish.last.down_bytes),
            Ok((_, records)) => (1, best(records)),
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
    if loaded.table.get("stop").and_then(|stop| stop.get("rounds")).is_none() {
        loaded.stop.rounds = 2000;
    }
    let assembled = Assembled::new(loaded)?;
    if assembled.optimum.is_none() && assembled.job.stop.target > 0.0 {
        bail!(
            "`compare` measures the way to f*, which is not known here: take a convex model with alpha > 0, or set stop.target=0"
        );
    }
    let wanted = methods(&arguments.methods)?;
    // Mistakes in a method's parameters are told before anything runs.
    for (name, parameters) in &wanted {
        drop(assembled.with_method(name, parameters.clone()).method()?);
    }
    let done = run_all(&assembled, wanted, arguments.tune, arguments.quiet || arguments.json);
    let report = build_report(&assembled, &done);
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make the folder {}", arguments.out.display()))?;
    let results = arguments.out.join("results.json");
    std::fs::write(&results, serde_json::to_string(&report)?)
        .with_context(|| format!("cannot write {}", results.display()))?;
    write_csv(&done, &arguments.out.join("compare.csv"))?;
    let page = write_page(&report, &arguments.out)?;
    if arguments.json {
        for done in &done {
            if let Ok((finish, _)) = &done.result {
                let assembled = assembled.with_method(&done.name, done.parameters.clone());
                println!("{}", serde_json::to_string(&summary::Report::new(&assembled, finish))?);
            } else if let Err(error) = &done.result {
                println!("{}", serde_json::json!({ "method": done.id(), "error": format!("{error:#}") }));
            }
        }
        return Ok(());
    }
    print_table(&done, assembled.job.link.is_some());
    println!("{}", report::answer(&report));
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
        .with_context(|| format!("{} is no result of `corewire compare`", path.display()))?;
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
            let core = ["core-agd", "core-cg", "core-gd"];
            let others = field::catalogue().into_iter().map(|entry| entry.id);
            core.into_iter().chain(others).collect::<Vec<_>>().join(",")
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
fn run_all(
    assembled: &Assembled,
    wanted: Vec<(String, BTreeMap<String, String>)>,
    tune: bool,
    quiet: bool,
) -> Vec<Done> {
    let total = wanted.len() as u64;
    let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
        let style = ProgressStyle::with_template("{pos} of {len} methods {wide_bar:.cyan/dim} {msg}")
            .expect("a valid template");
        let bar = ProgressBar::new(total).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    });
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
            let finished = run_one(assembled, &name, parameters, tune);
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
    let mut done: Vec<(usize, Done)> = done.into_inner().expect("nobody panics here");
    done.sort_by_key(|entry| entry.0);
    let mut done: Vec<Done> = done.into_iter().map(|entry| entry.1).collect();
    done.sort_by(|a, b| a.rank().0.cmp(&b.rank().0).then(a.rank().1.total_cmp(&b.rank().1)));
    done
}

fn run_one(assembled: &Assembled, name: &str, parameters: BTreeMap<String, String>, tune: bool) -> Done {
    let attempt = |parameters: BTreeMap<String, String>, tuned: Option<String>| {
        let begun = Instant::now();
        let variant = assembled.with_method(name, parameters.clone());
        let desk = Desk::new(true, 0, None).keeping_records();
        let result = execute(&variant, Solo::new(variant.job.machines), desk, None);
        let result = result.map(|(finish, desk)| (finish, desk.records));
        Done { name: name.to_owned(), parameters, tuned, seconds: begun.elapsed().as_secs_f64(), result }
    };
    if !tune || name.starts_with("core-") || parameters.contains_key("scale") || name == "cg" {
        return attempt(parameters, None);
    }
    let mut tries = Vec::new();
    for scale in GRID {
        let mut parameters = parameters.clone();
        parameters.insert("scale".to_owned(), scale.to_string());
        let done = attempt(parameters, Some(format!("step x {scale}")));
        let diverged = done.result.as_ref().map_or(true, |(finish, _)| finish.ended == Ended::Diverged);
        tries.push(done);
        if (diverged && scale >= 1.0) || interrupted() {
            break;
        }
    }
    tries
        .into_iter()
        .min_by(|a, b| a.rank().0.cmp(&b.rank().0).then(a.rank().1.total_cmp(&b.rank().1)))
        .expect("the grid is not empty")
}

fn print_table(done: &[Done], link: bool) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    let mut header = vec!["method", "reached", "rounds", "up", "down", "in all", "x best", "seconds"];
    if link {
        header.push("on the link");
    }
    table.set_header(header);
    let least = done.first().map_or(0.0, |done| done.rank().1);
    for done in done {
        let row = match &done.result {
            Err(error) => vec![done.id(), format!("failed: {error:#}")],
            Ok((finish, records)) => {
                let last = &finish.last;
                let reached = match finish.ended {
                    Ended::Target => "yes".to_owned(),
                    Ended::Diverged => "diverged".to_owned(),
                    _ => format!("never reached (best {:.0e})", best(records)),
                };
                let total = last.up_bytes + last.down_bytes;
                let times =
                    if finish.ended == Ended::Target { format!("{:.1}", total / least) } else { "-".to_owned() };
                let mut row = vec![
                    done.id(),
                    reached,
                    last.round.to_string(),
                    units::bytes(last.up_bytes),
                    units::bytes(last.down_bytes),
                    units::bytes(total),
                    times,
                    format!("{:.1}", done.seconds),
                ];
                if link {
                    row.push(units::seconds(last.link_seconds));
                }
                row
            }
        };
        table.add_row(row);
    }
    println!("{table}");
}

fn write_csv(done: &[Done], path: &Path) -> Result<()> {
    let mut csv = String::from("method,round,relative,value,up_bytes,down_bytes,trips,link_seconds,seconds\n");
    for done in done {
        let Ok((_, records)) = &done.result else { continue };
        for record in thinned(records) {
            let relative = record.relative.map_or(String::new(), |relative| format!("{relative:e}"));
            csv += &format!(
                "\"{}\",{},{relative},{:e},{},{},{},{},{:.6}\n",
                done.id(),
                record.round,
                record.value,
                record.up_bytes,
                record.down_bytes,
                record.trips,
                record.link_seconds,
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

fn build_report(assembled: &Assembled, done: &[Done]) -> Report {
    let job = &assembled.job;
    let known = assembled.known();
    let mut pooled = assembled.problem.pooled();
    let measured = match assembled.problem.known_eigenvalues() {
        Some(known) => spectrum::Measured {
            spectrum: corewire_optim::tuning::Spectrum::from_eigenvalues(known),
            eigenvalues: Some(known.to_vec()),
        },
        None => spectrum::measure(&mut *pooled, assembled.problem.start(), &assembled.randomness),
    };
    let initial = pooled.value(assembled.problem.start());
    let families: BTreeMap<&str, &str> = field::catalogue().iter().map(|entry| (entry.id, entry.family)).collect();
    let run = |done: &Done| {
        let family = if done.name.starts_with("core-") {
            "core"
        } else {
            families.get(done.name.as_str()).copied().unwrap_or("other")
        };
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
            frame_bytes: 0.0,
            seconds: done.seconds,
            link_seconds: None,
            tuned: done.tuned.clone(),
            note: None,
            error: None,
            trace: Vec::new(),
        };
        match &done.result {
            Err(error) => info.error = Some(format!("{error:#}")),
            Ok((finish, records)) => {
                let last = &finish.last;
                info.reached = finish.ended == Ended::Target;
                info.rounds = last.round;
                info.trips = last.trips;
                info.relative = last.relative.unwrap_or(f64::NAN);
                info.best = best(records);
                info.value = last.value;
                info.up_bytes = last.up_bytes;
                info.down_bytes = last.down_bytes;
                info.frame_bytes = last.frame_bytes as f64;
                info.link_seconds = job.link.map(|_| last.link_seconds);
                info.note = match (finish.ended, finish.settings.budget) {
                    (Ended::Diverged, _) => Some("diverged".to_owned()),
                    (_, Some(budget)) => Some(format!("m = {budget}")),
                    _ => None,
                };
                let point = |record: &Record| Point {
                    round: record.round,
                    relative: record.relative.unwrap_or(f64::NAN),
                    up_bytes: record.up_bytes,
                    down_bytes: record.down_bytes,
                    seconds: record.seconds,
                    link_seconds: record.link_seconds,
                };
                let start =
                    Point { round: 0, relative: 1.0, up_bytes: 0.0, down_bytes: 0.0, seconds: 0.0, link_seconds: 0.0 };
                info.trace = std::iter::once(start).chain(thinned(records).into_iter().map(point)).collect();
            }
        }
        info
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    Report {
        title: format!("{} on {}", job.problem.model, job.problem.data),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: summary::today(),
        system: format!(
            "{} {}, {cores} cores, kernel {}",
            std::env::consts::OS,
            std::env::consts::ARCH,
            corewire_sketch::kernel_name()
        ),
        problem: ProblemInfo {
            data: job.problem.data.clone(),
            model: job.problem.model.clone(),
            rows: assembled.problem.row_count(),
            dim: assembled.problem.dim(),
            machines: job.machines,
            alpha: job.problem.alpha,
            split: job.problem.split.to_string(),
            initial,
            optimum: assembled.optimum,
            trace: measured.spectrum.trace(),
            smoothness: known.smoothness,
            strong_convexity: known.strong_convexity,
            effective_dimension: measured.spectrum.effective_dimension(known.strong_convexity),
            seed: job.method.seed_file.as_ref().map_or(job.method.seed.to_string(), |_| "secret".to_owned()),
        },
        target: job.stop.target,
        link: job.link.map(|link| LinkInfo {
            mbit_s: link.mbit_s,
            rtt_ms: link.rtt_ms,
            overhead_bytes: link.overhead_bytes,
        }),
        eigenvalues: measured.eigenvalues.unwrap_or_default().into_iter().take(2000).collect(),
        runs: done.iter().map(run).collect(),
    }
}

/// `corewire methods`.
pub fn list(json: bool) -> Result<()> {
    let core = [
        ("core-agd", "CORE-AGD", "momentum on a sketched gradient, tuned from a probe of the spectrum; fewest bytes"),
        ("core-cg", "CORE-CG", "conjugate directions on a sketched gradient; nothing to tune, few rounds"),
        ("core-gd", "CORE-GD", "descent on a sketched gradient (Algorithm 2), proximal where there is l1"),
        ("core-nonconvex", "CORE-GD, non-convex", "descent that keeps a step only if f did not rise (Algorithm 3)"),
        ("core-sgd", "CORE-SGD", "descent on sketched gradients of mini-batches"),
    ];
    let catalogue = field::catalogue();
    if json {
        for (id, title, line) in core {
            println!(
                "{}",
                serde_json::json!({ "id": id, "title": title, "line": line, "family": "core", "exact": true, "parameters": [] })
            );
        }
        for entry in &catalogue {
            let parameters: Vec<_> = entry
                .parameters
                .iter()
                .map(|p| serde_json::json!({ "name": p.name, "default": p.default, "meaning": p.meaning }))
                .collect();
            println!(
                "{}",
                serde_json::json!({ "id": entry.id, "title": entry.title, "line": entry.one_line, "family": entry.family, "exact": entry.exact, "reference": entry.reference, "parameters": parameters })
            );
        }
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table.set_header(["method", "what it does", "parameters"]);
    for (id, _, line) in core {
        table.add_row([id, line, "keys of [method]"]);
    }
    for entry in &catalogue {
        let parameters: Vec<String> = entry.parameters.iter().map(|p| format!("{}={}", p.name, p.default)).collect();
        table.add_row([entry.id.to_owned(), entry.one_line.to_owned(), parameters.join(" ")]);
    }
    println!("{table}");
    println!("parameters follow a colon, as in ef21:k=15; each method has a page in docs/methods.md");
    Ok(())
}
