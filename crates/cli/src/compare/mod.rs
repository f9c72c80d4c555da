//! `corewire compare`: many methods on one problem, by real bytes; `corewire report` and `corewire methods`.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use corewire_comm::Solo;
use corewire_optim::catalogue;
use corewire_optim::run::{Ended, Passed, Record};
use corewire_optim::spectrum;

use crate::interrupt::{interrupted, watch_interrupts};
use crate::recorder::Recorder;
use crate::report::{self, LinkInfo, Point, ProblemInfo, Report, RunInfo};
use crate::session::{self, Pooled, Session, execute};
use crate::{job, out, progress, summary, units};

/// What `compare` runs when nobody says otherwise: CORE, the yardsticks, and one or two of each family of the field.
const DEFAULT: &str = "\
    core-newton,core-agd,core-cg,core-gd,cg,lbfgs,acgd,cgd,ef21,diana,marina,scaffnew,scaffold,topk-ef,qsgd,drive,powersgd,ef-signsgd";
/// What it trains networks with: each kind of compression that has been proposed for them.
const NETWORKS: &str = "core-sgd,sgd,qsgd,terngrad,ef-signsgd,topk-ef,dgc,powersgd,drive,eden,onebit-adam";
/// Tuning goes along a grid from where theory is, up until two in a row are no better, then down while that helps, and at most so far:
/// theory's steps for error feedback are a hundred times too careful on real data.
const FARTHEST: i32 = 12;
/// What `codec` is tried with beside its default, where a method takes it.
const CODECS: [&str; 5] = ["drive", "eden", "qsgd", "natural", "randk-common"];
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
    #[arg(long)]
    methods: Option<String>,
    /// The relative suboptimality to reach.
    #[arg(long)]
    target: Option<f64>,
    /// Leaves the baselines their steps and parameters of theory; without it each gets the best of a common grid, which nobody is billed
    /// for.
    #[arg(long)]
    no_tune: bool,
    /// Runs every method on so many seeds, and gives the mean and what lies farthest apart.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
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

/// A method of the comparison.
struct Compared {
    name: String,
    parameters: BTreeMap<String, String>,
    /// What tuning chose.
    tuned: Option<String>,
    seconds: f64,
    result: Result<session::Done<Recorder>>,
    /// How the runs with further seeds ended.
    others: Vec<(Ended, Passed)>,
    /// Whether seconds on a link are what is paid.
    timed: bool,
}

impl Compared {
    fn id(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if parameters.is_empty() { self.name.clone() } else { format!("{}:{}", self.name, parameters.join(",")) }
    }

    fn is_better_than(&self, other: &Self) -> bool {
        self.rank().0.cmp(&other.rank().0).then(self.rank().1.total_cmp(&other.rank().1)).is_lt()
    }

    /// Sorts those that reached the target by what they cost, the others after them by how near they came.
    fn rank(&self) -> (u8, f64) {
        match &self.result {
            Ok(_) if self.reached() => (0, self.mean(|passed| self.cost(passed))),
            Ok(done) => (1, best(&done.observer.records)),
            Err(_) => (2, 0.0),
        }
    }

    fn cost(&self, passed: &Passed) -> f64 {
        if self.timed { passed.link_seconds } else { passed.wire_bytes() }
    }

    /// Bytes beyond which nothing can be better.
    fn bound(&self) -> Option<f64> {
        (self.rank().0 == 0 && !self.timed).then(|| self.rank().1)
    }

    fn shown(&self, cost: f64) -> String {
        if self.timed { units::seconds(cost) } else { units::bytes(cost) }
    }

    /// How the runs of all seeds ended.
    fn ends(&self) -> impl Iterator<Item = (Ended, Passed)> {
        let first = self.result.as_ref().ok().map(|done| (done.finish.ended, done.finish.last.traffic));
        first.into_iter().chain(self.others.iter().copied())
    }

    /// Whether it reached the target with every seed.
    fn reached(&self) -> bool {
        self.ends().all(|(ended, _)| ended == Ended::Target)
    }

    fn mean(&self, of: impl Fn(&Passed) -> f64) -> f64 {
        self.ends().map(|(_, passed)| of(&passed)).sum::<f64>() / self.ends().count() as f64
    }

    /// The least and the most that a seed cost, and how many reached the target, in words.
    fn spread(&self) -> Option<String> {
        let costs: Vec<f64> = self.ends().map(|(_, passed)| self.cost(&passed)).collect();
        let (least, most) = costs.iter().fold((f64::INFINITY, 0.0f64), |(a, b), &cost| (a.min(cost), b.max(cost)));
        let (reached, seeds) = (self.ends().filter(|(ended, _)| *ended == Ended::Target).count(), costs.len());
        let there = if reached < seeds { format!("; {reached} of {seeds} reached") } else { String::new() };
        (seeds > 1).then(|| format!("{} to {}{there}", self.shown(least), self.shown(most)))
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
    let network = loaded.problem.model.is_network();
    if !network {
        loaded.stop.rounds = loaded.stop.rounds.or(Some(2000));
    }
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
    if arguments.seeds > 1 && session.job.method.seed_file.is_some() {
        bail!("`--seeds` counts up from `method.seed`, and a secret seed is one: remove `method.seed_file`");
    }
    let wanted = methods(arguments.methods.as_deref().unwrap_or(if network { NETWORKS } else { DEFAULT }))?;
    // Mistakes in a method's parameters are told before anything runs.
    for (name, parameters) in &wanted {
        session.with_method(name, parameters.clone()).check_method()?;
    }
    let done = run_all(&session, wanted, !arguments.no_tune, arguments.seeds);
    let report = build_report(&session, &done, !arguments.no_tune)?;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot create the folder {}", arguments.out.display()))?;
    let results = arguments.out.join("results.json");
    std::fs::write(&results, serde_json::to_string(&report)?)
        .with_context(|| format!("cannot write {}", results.display()))?;
    write_csv(&session.job, &done, &arguments.out.join("compare.csv"))?;
    let page = write_page(&report, &arguments.out)?;
    if arguments.json {
        for compared in &done {
            match &compared.result {
                Ok(done) => {
                    let session = session.with_method(&compared.name, compared.parameters.clone());
                    let report = summary::Report::new(&session, &done.prepared, &done.finish);
                    let report = summary::Report { method: compared.id(), ..report };
                    let mut object = serde_json::to_value(&report)?;
                    if arguments.seeds > 1 {
                        let costs: Vec<f64> = compared.ends().map(|(_, passed)| compared.cost(&passed)).collect();
                        object["reached"] = compared.reached().into();
                        object["mean"] = compared.mean(|passed| compared.cost(passed)).into();
                        object["seeds"] = costs.into();
                    }
                    out::json(&object)?;
                }
                Err(error) => {
                    out::json(&serde_json::json!({ "method": compared.id(), "error": format!("{error:#}") }))?;
                }
            }
        }
        return Ok(());
    }
    print_table(&done, session.target().is_some());
    println!("{}", report::conclusion(&report));
    if let Some(bytes) = session.pooled.as_ref().map_or(Ok(None), Pooled::shipped_bytes)? {
        // The runs are sorted: the first is the cheapest of those that reached the target.
        let against = done.first().filter(|compared| compared.rank().0 == 0).map(|compared| {
            match bytes / compared.mean(Passed::wire_bytes) {
                fewer if fewer < 1.0 => {
                    format!(", {} times fewer bytes than {}", units::times(1.0 / fewer), compared.name)
                }
                more => format!(", {} times the bytes of {}", units::times(more), compared.name),
            }
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
fn run_all(
    session: &Session,
    wanted: Vec<(String, BTreeMap<String, String>)>,
    tune: bool,
    seeds: u64,
) -> Vec<Compared> {
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
            let mut finished = run_one(session, &name, parameters, tune);
            finished.run_seeds(session, seeds);
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

/// Runs a method once; where it cannot cost less than so many bytes it is given up.
fn attempt(session: &Session, name: &str, parameters: &BTreeMap<String, String>, most: Option<f64>) -> Compared {
    let begun = Instant::now();
    let mut variant = session.with_method(name, parameters.clone());
    let bytes = most.map(|most| most.ceil() as u64);
    variant.job.stop.bytes = [variant.job.stop.bytes, bytes].into_iter().flatten().min();
    let solo = Solo::new(variant.job.machines);
    let result = execute(&variant, solo, false, |_| Ok(Recorder::silent().keeping_records()), None);
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
    fn run_seeds(&mut self, session: &Session, seeds: u64) {
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

/// A baseline's best parameters so far, and how it does with them.
struct Tuning<'a> {
    session: &'a Session,
    best: Compared,
    /// What the user named stays as it is.
    given: &'a BTreeMap<String, String>,
    /// Bytes that are too many in any case.
    most: Option<f64>,
}

impl<'a> Tuning<'a> {
    /// Begins with these parameters.
    fn new(
        session: &'a Session,
        name: &str,
        parameters: &BTreeMap<String, String>,
        given: &'a BTreeMap<String, String>,
        most: Option<f64>,
    ) -> Self {
        let mut tuning = Self { session, best: attempt(session, name, parameters, most), given, most };
        tuning.climb_step();
        tuning
    }

    /// Tries the best with one parameter changed, and whether that is better or is out of the question.
    fn change(&mut self, key: &str, value: String) -> Option<bool> {
        let mut parameters = self.best.parameters.clone();
        parameters.insert(key.to_owned(), value);
        if parameters == self.best.parameters || interrupted() {
            return None;
        }
        let done = attempt(self.session, &self.best.name, &parameters, self.best.bound().or(self.most));
        if done.result.as_ref().map_or(true, |done| done.finish.ended == Ended::Diverged) {
            return None;
        }
        let better = done.is_better_than(&self.best);
        if better {
            self.best = done;
        }
        Some(better)
    }

    /// Goes along a grid from its middle: up, and down where nothing above was better.
    fn climb(&mut self, key: &str, value: impl Fn(i32) -> String) {
        if self.given.contains_key(key) {
            return;
        }
        let middle = self.best.parameters.get(key).cloned();
        for direction in [1, -1] {
            let mut in_vain = 0;
            for place in (1..=FARTHEST).map(|place| direction * place) {
                in_vain = match self.change(key, value(place)) {
                    Some(true) => 0,
                    Some(false) => in_vain + 1,
                    None => break,
                };
                if in_vain >= if direction > 0 { 2 } else { 1 } {
                    break;
                }
            }
            if self.best.parameters.get(key) != middle.as_ref() {
                break;
            }
        }
    }

    /// The factor on theory's step, by powers of 2 from where it is.
    fn climb_step(&mut self) {
        let from: f64 = self.best.parameters.get("scale").and_then(|scale| scale.parse().ok()).unwrap_or(1.0);
        self.climb("scale", |place| (from * 2f64.powi(place)).to_string());
    }
}

/// Runs a method; a baseline with the best step, codec, k and p that are found.
fn run_one(session: &Session, name: &str, given: BTreeMap<String, String>, tune: bool) -> Compared {
    let network = session.job.problem.model.is_network();
    let info = catalogue::find(name).ok().filter(|info| tune && info.tunes() && (network || !info.is_core()));
    let Some(info) = info else { return attempt(session, name, &given, None) };
    let has = |key: &str| info.parameters.iter().any(|parameter| parameter.name == key) && !given.contains_key(key);
    let mut parameters = given.clone();
    if has("scale") {
        parameters.insert("scale".to_owned(), "1".to_owned());
    }
    let mut tuning = Tuning::new(session, name, &parameters, &given, None);
    if has("codec") {
        for codec in CODECS {
            parameters.insert("codec".to_owned(), codec.to_owned());
            if session.with_method(name, parameters.clone()).check_method().is_ok() {
                // Each codec has a step of its own, which may be far from the best of another.
                let other = Tuning::new(session, name, &parameters, &given, tuning.best.bound());
                if other.best.is_better_than(&tuning.best) {
                    tuning = other;
                }
            }
        }
    }
    let dim = session.problem().map_or(1, |problem| problem.dim());
    if has("k") && !network {
        let middle = dim.div_ceil(50) as f64;
        tuning.climb("k", |place| (middle * 2f64.powi(place)).clamp(1.0, dim as f64).round().to_string());
    }
    if has("p") {
        tuning.climb("p", |place| (0.1 * 2f64.powi(place)).min(1.0).to_string());
    }
    tuning.climb_step();
    let chosen = tuning.best.parameters.iter().filter(|(key, _)| !given.contains_key(*key));
    let chosen: Vec<String> = chosen.map(|(key, value)| format!("{key} {value}")).collect();
    Compared { tuned: Some(chosen.join(", ").replace("scale ", "step x ")), ..tuning.best }
}

fn print_table(done: &[Compared], aimed: bool) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    let header = ["method", "reached", "rounds", "exchanges", "up", "down", "wire", "x best", "seconds"];
    let (link, seeds) = (done.iter().any(|done| done.timed), done.iter().find_map(Compared::spread).is_some());
    let score = |done: &Compared| done.result.as_ref().ok()?.finish.last.score.map(|score| score.score);
    let scored = done.iter().any(|done| score(done).is_some());
    let more = [(link, "on the link"), (scored, "held-out score"), (seeds, "over seeds")];
    table.set_header(header.into_iter().chain(more.iter().filter(|more| more.0).map(|more| more.1)));
    let least = done.first().map_or(0.0, |done| done.rank().1);
    for done in done {
        let row = match &done.result {
            Err(error) => vec![done.id(), format!("failed: {error:#}")],
            Ok(session::Done { finish, observer, .. }) => {
                let (last, records) = (&finish.last, &observer.records);
                let reached = match finish.ended {
                    Ended::Target if done.reached() => "yes".to_owned(),
                    Ended::Target => "not with every seed".to_owned(),
                    Ended::Diverged => "diverged".to_owned(),
                    _ if !aimed => last.value.map_or_else(String::new, |value| format!("f = {value:.5}")),
                    _ => format!("never reached (best {:.0e})", best(records)),
                };
                let times = if done.reached() { format!("{:.1}", done.rank().1 / least) } else { "-".to_owned() };
                let mut row = vec![
                    done.id(),
                    reached,
                    last.round.to_string(),
                    format!("{:.0}", done.mean(|passed| passed.exchanges as f64)),
                    units::bytes(done.mean(|passed| passed.up_bytes)),
                    units::bytes(done.mean(|passed| passed.down_bytes)),
                    units::bytes(done.mean(Passed::wire_bytes)),
                    times,
                    format!("{:.1}", done.seconds),
                ];
                let cells = [
                    units::seconds(done.mean(|passed| passed.link_seconds)),
                    score(done).map_or("-".to_owned(), |score| format!("{score:.4}")),
                    done.spread().unwrap_or_default(),
                ];
                row.extend(cells.into_iter().zip(more).filter(|(_, more)| more.0).map(|(cell, _)| cell));
                row
            }
        };
        table.add_row(row);
    }
    println!("{table}");
}

fn write_csv(job: &job::Job, done: &[Compared], path: &Path) -> Result<()> {
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

fn build_report(session: &Session, done: &[Compared], tuned: bool) -> Result<Report> {
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
    };
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
