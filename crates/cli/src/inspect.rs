//! `corewire inspect`: does it help, with which budget, and on which link?

use std::path::PathBuf;

use anyhow::Result;
use corewire_comm::Link;
use corewire_optim::method::field;
use corewire_optim::objective::Objective;
use corewire_optim::spectrum::{self, Measured};
use corewire_optim::vector;
use serde::Serialize;

use crate::choose::{Forecast, forecast};
use crate::job;
use crate::run::Assembled;
use crate::units;

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
    /// One JSON object at the end.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Inspection {
    dim: usize,
    rows: usize,
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
    trips: f64,
    up_bytes: f64,
    down_bytes: f64,
    link_seconds: Option<f64>,
}

/// tr(A) where it is known for nothing.
pub fn exact_trace(assembled: &Assembled) -> Option<f64> {
    assembled.problem.pooled().bound_trace()
}

/// Rounds of uncompressed gradient descent to a target, by running it on all data; `true` says that it was given up and would be more.
pub fn plain_descent(assembled: &Assembled, target: f64) -> Option<(u64, bool)> {
    descend(assembled, target, false)
}

/// Gradient descent with step 1/L, or Nesterov's method, on all data.
fn descend(assembled: &Assembled, target: f64, momentum: bool) -> Option<(u64, bool)> {
    let optimum = assembled.optimum?;
    let mut pooled = assembled.problem.pooled();
    if pooled.l1() > 0.0 {
        return None;
    }
    let mut x = assembled.problem.start().to_vec();
    let mut y = x.clone();
    let smoothness = field::local_smoothness(&mut *pooled, &x);
    let mu = pooled.strong_convexity();
    let root = (mu / smoothness).sqrt();
    let weight = if momentum { (1.0 - root) / (1.0 + root) } else { 0.0 };
    let gap = pooled.value(&x) - optimum;
    let mut gradient = vec![0.0; x.len()];
    // About two seconds of work, then it is enough to say "more than".
    let most = (2e9 / (assembled.problem.row_count() as f64 * x.len() as f64)).clamp(200.0, 20_000.0) as u64;
    for round in 1..=most {
        pooled.gradient(&y, &mut gradient);
        for i in 0..x.len() {
            let next = y[i] - gradient[i] / smoothness;
            y[i] = next + weight * (next - x[i]);
            x[i] = next;
        }
        if pooled.value(&x) - optimum <= target * gap {
            return Some((round, false));
        }
    }
    Some((most, true))
}

/// `corewire inspect`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut overrides = arguments.set.clone();
    for (key, value) in
        [("mbit_s", arguments.mbit_s), ("rtt_ms", arguments.rtt_ms), ("overhead_bytes", arguments.overhead_bytes)]
    {
        overrides.extend(value.map(|value| format!("link.{key}={value}")));
    }
    let assembled = Assembled::new(job::load(arguments.job.as_deref(), &overrides)?)?;
    let job = &assembled.job;
    let mut pooled = assembled.problem.pooled();
    let start = assembled.problem.start();
    let Measured { spectrum, eigenvalues } = match assembled.problem.known_eigenvalues() {
        Some(known) => Measured {
            spectrum: corewire_optim::tuning::Spectrum::from_eigenvalues(known),
            eigenvalues: Some(known.to_vec()),
        },
        None => spectrum::measure(&mut *pooled, start, &assembled.randomness),
    };
    let mu = assembled.facts.strong_convexity;
    let effective = spectrum.effective_dimension(mu);

    let target = if job.stop.target > 0.0 { job.stop.target } else { 1e-6 };
    let mut methods: Vec<Forecast> = Vec::new();
    let dense = 4.0 * assembled.problem.dim() as f64;
    for (name, momentum) in [("cgd", false), ("acgd", true)] {
        if let Some((rounds, more)) = descend(&assembled, target, momentum) {
            let rounds = rounds as f64;
            methods.push(Forecast {
                name: name.to_owned(),
                budget: None,
                reached: !more,
                rounds,
                trips: rounds,
                up_bytes: rounds * dense,
                down_bytes: rounds * dense,
            });
        }
    }
    let names: &[&str] = if assembled.facts.convex && assembled.optimum.is_some() {
        &["cg", "core-gd", "core-agd", "core-cg"]
    } else {
        &["core-nonconvex"]
    };
    for name in names {
        methods.push(forecast(&assembled, name)?);
    }

    let link = job.link;
    let seconds = |forecast: &Forecast| link.as_ref().map(|link| forecast.seconds(link));
    let best = |cost: &dyn Fn(&Forecast) -> f64| {
        methods
            .iter()
            .filter(|method| method.reached)
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
            .map(|method| method.name.clone())
    };
    let by_bytes = best(&|method| method.up_bytes + method.down_bytes);
    let by_time = link.as_ref().and_then(|link| best(&|method| method.seconds(link)));
    let recommendation = by_time.clone().or(by_bytes.clone()).unwrap_or_else(|| "none".to_owned());
    let advice = advise(&methods, &recommendation, by_bytes.as_deref(), link.as_ref());
    let break_even = break_even(&mut *pooled, start, &methods, dense);
    let budget = methods.iter().find(|method| method.name == "core-agd").and_then(|method| method.budget);

    let inspection = Inspection {
        dim: assembled.problem.dim(),
        rows: assembled.problem.row_count(),
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
                trips: method.trips,
                up_bytes: method.up_bytes,
                down_bytes: method.down_bytes,
                link_seconds: seconds(method),
            })
            .collect(),
        recommendation,
        advice,
        break_even_mbit_s: break_even,
    };
    if let Some(path) = &arguments.plot {
        std::fs::write(path, crate::plot::eigenvalues(&spectrum, eigenvalues.as_deref(), mu))?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&inspection)?);
        return Ok(());
    }
    print(&inspection, &spectrum, link.as_ref());
    if let Some(path) = &arguments.plot {
        println!("the eigenvalues are drawn in {}", path.display());
    }
    Ok(())
}

fn print(inspection: &Inspection, spectrum: &corewire_optim::tuning::Spectrum, link: Option<&Link>) {
    println!("{} rows, d = {}, {} machines", inspection.rows, inspection.dim, inspection.machines);
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
    println!("{}", crate::plot::sparkline(spectrum));
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["method", "rounds", "trips", "up", "down", "on the link"]);
    for method in &inspection.methods {
        let more = if method.reached { "" } else { "> " };
        table.add_row([
            method.method.clone(),
            format!("{more}{:.0}", method.rounds),
            format!("{more}{:.0}", method.trips),
            format!("{more}{}", units::bytes(method.up_bytes)),
            format!("{more}{}", units::bytes(method.down_bytes)),
            method.link_seconds.map_or("-".to_owned(), |seconds| format!("{more}{}", units::seconds(seconds))),
        ]);
    }
    println!("{table}");
    if link.is_none() {
        println!("name a link to see seconds: --mbit-s 10 --rtt-ms 40");
    }
    println!("{}", inspection.advice);
    println!(
        "break-even: sketching a gradient on this machine costs less than sending it below {:.0} Mbit/s",
        inspection.break_even_mbit_s
    );
}

/// The recommendation in a sentence or two.
fn advise(methods: &[Forecast], chosen: &str, by_bytes: Option<&str>, link: Option<&Link>) -> String {
    let find = |name: &str| methods.iter().find(|method| method.name == name && method.reached);
    let total = |method: &Forecast| method.up_bytes + method.down_bytes;
    let Some(best) = find(chosen) else {
        return "don't: no method reached the target in the trial; take more rounds, a larger alpha or a looser target"
            .to_owned();
    };
    match link {
        None => match (chosen.starts_with("core-"), find("cg")) {
            (true, Some(cg)) => format!(
                "use {chosen}: {} a machine in all, {:.1} times fewer bytes than CG, the best uncompressed method",
                units::bytes(total(best)),
                total(cg) / total(best)
            ),
            (true, None) => format!("use {chosen}: {} a machine in all", units::bytes(total(best))),
            (false, _) => format!(
                "don't compress: {chosen} needs the fewest bytes, {} a machine in all",
                units::bytes(total(best))
            ),
        },
        Some(link) => {
            let latency = best.trips * link.rtt_ms * 1e-3;
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
    let timing = crate::bench::time_sketch(corewire_sketch::Family::Hadamard, &gradient, budget);
    debug_assert!(vector::all_finite(&gradient));
    let coded = methods
        .iter()
        .find(|method| method.name == "core-agd")
        .map_or(0.0, |method| (method.up_bytes + method.down_bytes) / method.trips);
    let saved_bits = 8.0 * (2.0 * dense - coded).max(0.0);
    saved_bits / (timing.project_seconds + timing.reconstruct_seconds) / 1e6
}
