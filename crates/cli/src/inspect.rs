//! `corewire inspect`: does it help, with which budget, and on which link?

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use corewire_comm::Link;
use corewire_optim::objective::Objective;
use corewire_optim::optimum;
use corewire_optim::replay::Facts;
use corewire_optim::spectrum::{self, Measured};
use serde::Serialize;

use crate::choose::{self, Forecast, candidates, detail_of, forecasts};
use crate::session::{Session, default_method, most_hub_bytes};
use crate::{bench, curvature, job, out, plot, units};

/// Arguments of `corewire inspect`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The job file; the bundled job without one.
    job: Option<PathBuf>,
    /// Overrides a key of the job file.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Bandwidth of a machine's link, in megabits a second.
    #[arg(long)]
    mbit_s: Option<f64>,
    /// Its round trip, in milliseconds.
    #[arg(long)]
    rtt_ms: Option<f64>,
    /// Bytes that each message costs beside its payload.
    #[arg(long)]
    overhead_bytes: Option<f64>,
    /// Draws the eigenvalues to this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// A trained network, to see its curvature beside that of the start.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    #[command(flatten)]
    effort: curvature::Effort,
    /// One JSON object at the end.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Inspection {
    dim: usize,
    rows: usize,
    /// What was measured, where it was not all.
    sample: Option<String>,
    machines: usize,
    trace: f64,
    smoothness: f64,
    strong_convexity: f64,
    r1: f64,
    r_half: f64,
    effective_dimension: f64,
    exact: bool,
    budget: Option<usize>,
    methods: Vec<Prediction>,
    recommendation: String,
    advice: String,
    break_even_mbit_s: f64,
}

#[derive(Serialize)]
struct Prediction {
    method: String,
    reached: bool,
    rounds: f64,
    exchanges: f64,
    up_bytes: f64,
    down_bytes: f64,
    wire_bytes: f64,
    link_seconds: Option<f64>,
    /// What machine 0 keeps of all machines' curvature, at most; null where none is sent.
    hub_bytes: Option<f64>,
    /// What an observer learns.
    observer: &'static str,
}

/// `corewire inspect`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut overrides = arguments.set.clone();
    for (key, value) in
        [("mbit_s", arguments.mbit_s), ("rtt_ms", arguments.rtt_ms), ("overhead_bytes", arguments.overhead_bytes)]
    {
        overrides.extend(value.map(|value| format!("link.{key}={value}")));
    }
    let whole = Session::without_optimum(job::load(arguments.job.as_deref(), &overrides)?, arguments.json)?;
    if whole.job.problem.model.is_network() {
        return curvature::run(
            &whole,
            &arguments.effort,
            arguments.model.as_deref(),
            arguments.plot.as_deref(),
            arguments.json,
        );
    }
    if arguments.model.is_some() {
        bail!("`--model` is for networks, whose curvature changes with training");
    }
    let rows = whole.problem()?.row_count();
    let (dim, share) = (whole.problem()?.dim(), whole.problem()?.largest_share());
    let (whole, sample) = whole.tried()?;
    let (session, is_sample) = (sample.as_ref().unwrap_or(&whole), sample.is_some());
    let sample = is_sample.then(|| choose::told(Some(session), rows));
    let (job, problem) = (&session.job, session.problem()?);
    let mut pooled = problem.pooled().ok_or_else(|| anyhow!("`inspect` needs all rows in one place"))?;
    let start = problem.start();
    let Measured { spectrum, eigenvalues } = match problem.known_eigenvalues() {
        Some(known) => Measured {
            spectrum: corewire_optim::tuning::Spectrum::from_eigenvalues(known),
            eigenvalues: Some(known.to_vec()),
        },
        None => spectrum::measure(&mut *pooled, start, &session.randomness),
    };
    let mu = pooled.strong_convexity();
    let effective = spectrum.effective_dimension(mu);

    let target = job.stop.target().unwrap_or(job::DEFAULT_TARGET);
    let mut methods: Vec<Forecast> = Vec::new();
    let dense = 4.0 * dim as f64;
    // About two seconds of work, then it is enough to say "more than".
    let most = (2e9 / (problem.row_count() as f64 * start.len() as f64)).clamp(200.0, 20_000.0) as u64;
    for (name, momentum) in [("cgd", false), ("acgd", true)] {
        let Some(optimum) = session.optimum.filter(|_| pooled.proximal().is_none()) else { continue };
        let found = optimum::rounds_of_descent(&mut *pooled, start, optimum, target, momentum, most);
        let rounds = found.unwrap_or(most) as f64;
        methods.push(Forecast {
            name: name.to_owned(),
            budget: None,
            reached: found.is_some(),
            timed_out: false,
            rounds,
            exchanges: rounds + 1.0,
            up_bytes: rounds * dense,
            down_bytes: rounds * dense,
            // An envelope of three bytes each way.
            wire_bytes: rounds * (2.0 * dense + 6.0),
        });
    }
    // What auto would choose from; the others are there to be seen.
    let (choices, others): (Vec<&str>, &[&str]) = match (pooled.is_convex(), session.optimum) {
        (true, Some(_)) => (candidates(job, &Facts::of(&*pooled, job.machines), problem.largest_share()), &["core-gd"]),
        _ if session.gave_up => (Vec::new(), &[]),
        // Nobody knows f*: what auto takes then ends by an estimate of its own.
        (true, None) => (vec![default_method(&Facts::of(&*pooled, job.machines), session)], &[]),
        _ => (vec!["core-nonconvex"], &[]),
    };
    methods.retain(|method| !choices.contains(&&method.name[..]));
    methods.extend(forecasts(session, &[&choices, others].concat(), is_sample)?);

    let link = job.link;
    let seconds = |forecast: &Forecast| link.as_ref().map(|link| forecast.seconds(link));
    let best = |cost: &dyn Fn(&Forecast) -> f64| {
        methods
            .iter()
            .filter(|method| method.reached && choices.contains(&&method.name[..]))
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
            .map(|method| method.name.clone())
    };
    let by_bytes = best(&|method| method.wire_bytes);
    let by_time = link.as_ref().and_then(|link| best(&|method| method.seconds(link)));
    let recommendation = by_time.clone().or(by_bytes.clone()).unwrap_or_else(|| "none".to_owned());
    let advice = advise(&methods, &recommendation, by_bytes.as_deref(), link.as_ref());
    let break_even = break_even(&mut *pooled, start, &methods, dense);
    let budget = methods.iter().find(|method| method.name == "core-agd").and_then(|method| method.budget);

    let facts = Facts { dim, ..Facts::of(&*pooled, job.machines) };
    let inspection = Inspection {
        dim,
        rows,
        sample,
        machines: job.machines,
        trace: spectrum.trace(),
        smoothness: spectrum.smoothness(),
        strong_convexity: mu,
        r1: spectrum.trace(),
        r_half: spectrum.root_trace(),
        effective_dimension: effective,
        exact: eigenvalues.is_some(),
        budget,
        methods: methods
            .iter()
            .map(|method| Prediction {
                method: method.name.clone(),
                reached: method.reached,
                rounds: method.rounds,
                exchanges: method.exchanges,
                up_bytes: method.up_bytes,
                down_bytes: method.down_bytes,
                wire_bytes: method.wire_bytes,
                link_seconds: seconds(method),
                hub_bytes: Some(detail_of(&method.name))
                    .filter(|_| tells_curvature(job, &method.name))
                    .map(|detail| most_hub_bytes(&facts, share, detail)),
                observer: observed(job, &method.name),
            })
            .collect(),
        recommendation,
        advice,
        break_even_mbit_s: break_even,
    };
    if let Some(path) = &arguments.plot {
        let curve = plot::Curve::new("eigenvalues", &spectrum, eigenvalues.as_deref());
        std::fs::write(path, plot::eigenvalues(&[curve], mu))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json {
        return out::line(&serde_json::to_string(&inspection)?);
    }
    print(&inspection, &spectrum, link.as_ref());
    if let Some(path) = &arguments.plot {
        println!("the eigenvalues are drawn in {}", path.display());
    }
    Ok(())
}

fn print(inspection: &Inspection, spectrum: &corewire_optim::tuning::Spectrum, link: Option<&Link>) {
    println!("{} rows, d = {}, {} machines", inspection.rows, inspection.dim, inspection.machines);
    if let Some(sample) = &inspection.sample {
        println!("measured{sample}; with all of them figures differ somewhat");
    }
    let how = if inspection.exact { "exactly" } else { "by stochastic Lanczos quadrature" };
    println!(
        "curvature ({how}): trace {:.4}, L {:.4}, mu {:.1e}; r_1/2 {:.2}; effective dimension {:.1} of {}",
        inspection.trace,
        inspection.smoothness,
        inspection.strong_convexity,
        inspection.r_half,
        inspection.effective_dimension,
        inspection.dim
    );
    println!("{}", plot::sparkline(spectrum));
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["method", "rounds", "exchanges", "up", "down", "wire", "on the link"]);
    for method in &inspection.methods {
        let more = if method.reached { "" } else { "> " };
        table.add_row([
            method.method.clone(),
            format!("{more}{:.0}", method.rounds),
            format!("{more}{:.0}", method.exchanges),
            format!("{more}{}", units::bytes(method.up_bytes)),
            format!("{more}{}", units::bytes(method.down_bytes)),
            format!("{more}{}", units::bytes(method.wire_bytes)),
            method.link_seconds.map_or("-".to_owned(), |seconds| format!("{more}{}", units::seconds(seconds))),
        ]);
    }
    println!("{table}");
    if link.is_none() {
        println!("name a link to see seconds: --mbit-s 10 --rtt-ms 40");
    }
    println!("{}", inspection.advice);
    if let Some(chosen) = inspection.methods.iter().find(|method| method.method == inspection.recommendation) {
        if let Some(hub) = chosen.hub_bytes {
            println!("memory at the hub: machine 0 keeps up to {} of all machines' curvature", units::bytes(hub));
        }
        println!("privacy: {}", chosen.observer);
    }
    let link = match inspection.break_even_mbit_s {
        speed if speed.is_finite() => format!("below {speed:.0} Mbit/s"),
        _ => "on any link".to_owned(),
    };
    println!("break-even: sketching a gradient on this machine costs less than sending it {link}");
}

/// Whether machines send rows of their curvature with this method.
fn tells_curvature(job: &job::Job, name: &str) -> bool {
    detail_of(name) > 0.0 && job.method.settings.curvature && job.machines > 1
}

/// What somebody learns who sees a machine's messages. docs/privacy.md has the whole of it.
fn observed(job: &job::Job, name: &str) -> &'static str {
    match name {
        _ if tells_curvature(job, name) => {
            "who sees a machine's messages and has the seed learns its gradients and noisy eigenvectors of its rows, which tell more; \
             `method.curvature=false` sends no eigenvectors"
        }
        _ if detail_of(name) > 0.0 => {
            "who sees a machine's messages and has the seed learns its gradients, to about a bit per coordinate"
        }
        _ if name.starts_with("core-") => {
            "who sees a machine's messages and has the seed learns random projections of its gradients, one for each scalar sent"
        }
        _ => "who sees a machine's messages learns its gradients, seed or not",
    }
}

/// The recommendation in a sentence or two.
fn advise(methods: &[Forecast], chosen: &str, by_bytes: Option<&str>, link: Option<&Link>) -> String {
    let find = |name: &str| methods.iter().find(|method| method.name == name && method.reached);
    let total = |method: &Forecast| method.wire_bytes;
    let Some(best) = find(chosen) else {
        return "don't: no method reached the target in the trial; take more rounds, a larger alpha or a looser target"
            .to_owned();
    };
    match link {
        None => match (chosen.starts_with("core-"), find("cg")) {
            (true, Some(cg)) => format!(
                "use {chosen}: {} per machine in all, {:.1} times fewer bytes than CG, the best uncompressed method",
                units::bytes(total(best)),
                total(cg) / total(best)
            ),
            (true, None) => format!("use {chosen}: {} per machine in all", units::bytes(total(best))),
            (false, _) => format!(
                "don't compress: {chosen} needs the fewest bytes, {} per machine in all",
                units::bytes(total(best))
            ),
        },
        Some(link) => {
            let latency = best.exchanges * link.rtt_ms * 1e-3;
            let seconds = best.seconds(link);
            let mut advice = match chosen.starts_with("core-") {
                true => format!("use {chosen}: {} on this link", units::seconds(seconds)),
                false => format!(
                    "use {}: {} on this link, fewer than any compressed method",
                    chosen.to_uppercase(),
                    units::seconds(seconds)
                ),
            };
            if latency > 0.5 * seconds {
                advice += &format!(
                    "; {:.0} % of it is waiting for round trips, so many small rounds lose here",
                    100.0 * latency / seconds
                );
            }
            if let Some(by_bytes) = by_bytes.filter(|by_bytes| *by_bytes != chosen).and_then(find) {
                advice += &format!(
                    "; where bytes are what is paid for, {} sends only {}",
                    by_bytes.name,
                    units::bytes(total(by_bytes))
                );
            }
            advice
        }
    }
}

/// The bandwidth below which projecting and rebuilding takes less time than sending what it saves.
fn break_even(objective: &mut dyn Objective, x: &[f64], methods: &[Forecast], dense: f64) -> f64 {
    let Some(budget) = methods.iter().find(|method| method.name == "core-agd").and_then(|method| method.budget) else {
        return f64::INFINITY;
    };
    let mut gradient = vec![0.0; x.len()];
    objective.gradient(x, &mut gradient);
    let timing = bench::time_sketch(corewire_sketch::Family::Hadamard, &gradient, budget);
    let coded = methods
        .iter()
        .find(|method| method.name == "core-agd")
        .map_or(0.0, |method| method.wire_bytes / method.exchanges);
    let saved_bits = 8.0 * (2.0 * dense - coded).max(0.0);
    saved_bits / (timing.project_seconds + timing.reconstruct_seconds) / 1e6
}
