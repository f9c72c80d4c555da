//! `corewire compare`: many methods on one problem, by real bytes; `corewire report` and `corewire methods`.
//!
//! # Layout
//! - [`compared`]: one method, how it ran and how it ranks.
//! - [`tune`]: a baseline's best parameters.
//! - [`results`]: the folder of a comparison.

mod compared;
mod results;
mod tune;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use corewire_optim::catalogue::{self, MethodInfo};
use corewire_optim::run::{Ended, Passed};

use crate::interrupt::{self, interrupted, watch_interrupts};
use crate::report::{self, Report};
use crate::rows::Pooled;
use crate::session::{self, Session};
use crate::{job, out, progress, summary, units};
use compared::{Compared, attempt, best};
use results::{Results, write_page};

/// What `compare` runs when nobody says otherwise: CORE, the yardsticks, and one or two of each family of the field.
const DEFAULT: &str = "\
    core-newton,core-agd,core-cg,core-gd,cg,lbfgs,acgd,cgd,ef21,diana,marina,scaffnew,scaffold,topk-ef,qsgd,drive,powersgd,ef-signsgd,\
    ship-rows";
/// Rows are sent, without being asked for, up to so many entries.
const MOST_SENT: usize = 4_000_000;
/// What it trains networks with: each kind of compression that has been proposed for them.
const NETWORKS: &str = "\
    core-sgd,core-sgd:send=gradient,sgd,qsgd,qsgd:send=momentum,terngrad,ef-signsgd,topk-ef,dgc,powersgd,drive,eden,eden:send=momentum,\
    onebit-adam";
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
    /// Tunes networks on so many passes over the rows, which is quicker and less fair: a long run may want another rate than a short one.
    #[arg(long, value_name = "EPOCHS", conflicts_with = "no_tune", value_parser = clap::value_parser!(u64).range(1..))]
    tune_epochs: Option<u64>,
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

/// `corewire compare`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
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
    let named = arguments.methods.as_deref().unwrap_or(if network { NETWORKS } else { DEFAULT });
    let mut wanted = methods(named, network)?;
    if arguments.methods.as_deref().is_none_or(|methods| methods == "all") {
        // There must be rows, and not so many that packing them takes minutes; what they would take is told all the same.
        let sends = session.problem()?.data().is_some_and(|data| data.matrix.nonzeros() <= MOST_SENT);
        wanted.retain(|(name, _)| sends || name != "ship-rows");
        // Nobody named them: what does not fit a network's job, as `method.send` does not fit all, is left out.
        let fits = |(name, parameters): &(String, BTreeMap<String, String>)| {
            session.with_method(name, parameters.clone()).check_method().is_ok()
        };
        if network && wanted.iter().any(fits) {
            wanted.retain(fits);
        }
    }
    // Mistakes in a method's parameters are told before anything runs.
    for (name, parameters) in &wanted {
        if network && catalogue::find(name).is_ok_and(MethodInfo::compares) {
            bail!("`{name}` passes over all rows in every round, where the others take mini-batches: run it by itself");
        }
        session.with_method(name, parameters.clone()).check_method()?;
    }
    let tuning = tuning(&session, arguments)?;
    let results = Results::create(&arguments.out, &session, !arguments.no_tune)?;
    let done = run_all(&session, wanted, &tuning, arguments.seeds, &results);
    let report = results.write(&session, &done.iter().collect::<Vec<_>>())?;
    let code = if interrupted() { ExitCode::from(interrupt::exit_code()) } else { ExitCode::SUCCESS };
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
        return Ok(code);
    }
    print_table(&done, session.target().is_some());
    println!("{}", report::conclusion(&report));
    let shown = done.iter().any(|compared| compared.name == "ship-rows");
    if let Some(bytes) = session.pooled.as_ref().filter(|_| !shown).map_or(Ok(None), Pooled::shipped_bytes)? {
        // The runs are sorted: the first is the cheapest of those that reached the target.
        let against = done.first().filter(|compared| compared.rank().0 == 0).map(|compared| {
            match bytes / compared.mean(Passed::wire_bytes) {
                fewer if fewer < 1.0 => {
                    format!(", {} times fewer bytes than {}", units::times(1.0 / fewer), compared.id())
                }
                more => format!(", {} times the bytes of {}", units::times(more), compared.id()),
            }
        });
        println!(
            "sending the rows themselves once, under xz, would take {} per machine in one exchange{}",
            units::bytes(bytes),
            against.unwrap_or_default()
        );
    }
    let page = arguments.out.join("report.html");
    println!("the report is in {}, the curves in {}", page.display(), results.curves().display());
    Ok(code)
}

/// How parameters are found.
enum Tuning {
    /// They are theory's.
    None,
    /// By whole runs.
    Whole,
    /// By runs of so many rounds.
    Short(u64),
}

fn tuning(session: &Session, arguments: &Arguments) -> Result<Tuning> {
    let stop = &session.job.stop;
    Ok(match (arguments.no_tune, arguments.tune_epochs) {
        (true, _) => Tuning::None,
        (_, None) => Tuning::Whole,
        (_, Some(_)) if !session.job.problem.model.is_network() => {
            bail!("`--tune-epochs` is for networks; other models are tuned on whole runs")
        }
        // f of a network is looked at after every epoch, unless somebody says otherwise.
        (_, Some(epochs)) => Tuning::Short(epochs * stop.evaluate_every.unwrap_or(1)),
    })
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

/// The methods of `--methods`. Commas separate methods; a part with `=` but no `:` belongs to the method before it.
fn methods(text: &str, network: bool) -> Result<Vec<(String, BTreeMap<String, String>)>> {
    let text = match text {
        "all" => {
            let wanted = |info: &&catalogue::MethodInfo| match network {
                true => info.trains() && !info.compares() && info.id != "cgd",
                false => info.family != "decentralised" && !matches!(info.id, "core-nonconvex" | "core-sgd"),
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

/// Runs all, as many at a time as there are cores; what has ended is told and kept at once. After a signal there are only those.
fn run_all(
    session: &Session,
    wanted: Vec<(String, BTreeMap<String, String>)>,
    tuning: &Tuning,
    seeds: u64,
    results: &Results,
) -> Vec<Compared> {
    let total = wanted.len();
    let bar = progress::bar(session.quiet, total as u64, "{pos} of {len} methods {wide_bar:.cyan/dim} {msg}");
    let queue: Mutex<VecDeque<_>> = Mutex::new(wanted.into_iter().enumerate().collect());
    let done = Mutex::new(Vec::<(usize, Compared)>::new());
    let running = Mutex::new(Vec::<String>::new());
    let show = || {
        if let Some(bar) = &bar {
            bar.set_message(running.lock().expect("nobody panics here").join(", "));
        }
    };
    let tell = |words: &str| match &bar {
        Some(bar) => bar.println(words),
        None if session.quiet => {}
        None => eprintln!("{words}"),
    };
    let worker = || {
        loop {
            let next = queue.lock().expect("nobody panics here").pop_front();
            let Some((index, (name, parameters))) = next.filter(|_| !interrupted()) else { return };
            running.lock().expect("nobody panics here").push(name.clone());
            show();
            let mut finished = match *tuning {
                Tuning::None => attempt(session, &name, &parameters, None),
                Tuning::Whole => tune::tuned(session, &name, parameters, None),
                Tuning::Short(rounds) => tune::tuned(session, &name, parameters, Some(rounds)),
            };
            finished.run_seeds(session, seeds);
            if interrupted() {
                return;
            }
            running.lock().expect("nobody panics here").retain(|other| *other != name);
            let mut done = done.lock().expect("nobody panics here");
            done.push((index, finished));
            let last = &done[done.len() - 1].1;
            tell(&format!("{} of {total}: {}", done.len(), last.line()));
            // The last of these is written where an error can be returned.
            let _ = results.write(session, &sorted(&done));
            drop(done);
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
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let mut done = done.into_inner().expect("nobody panics here");
    done.sort_by(|a, b| a.1.order(&b.1).then(a.0.cmp(&b.0)));
    done.into_iter().map(|entry| entry.1).collect()
}

/// The best first; of equals the one that was named first.
fn sorted(done: &[(usize, Compared)]) -> Vec<&Compared> {
    let mut sorted: Vec<&(usize, Compared)> = done.iter().collect();
    sorted.sort_by(|a, b| a.1.order(&b.1).then(a.0.cmp(&b.0)));
    sorted.into_iter().map(|entry| &entry.1).collect()
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
        let parameters = info.parameters.iter().map(|p| format!("{}={}", p.name, p.default));
        let keys = info.is_core().then(|| "keys of [method]".to_owned());
        let parameters: Vec<String> = parameters.chain(keys).collect();
        table.add_row([info.id.to_owned(), info.line.to_owned(), parameters.join(" ")]);
    }
    println!("{table}");
    println!("parameters follow a colon, as in ef21:k=15; each method has a page in docs/methods.md");
    Ok(())
}
