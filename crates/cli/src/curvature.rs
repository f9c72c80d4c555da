//! `corewire inspect` of a network: the spectrum of its Hessian before and after training, and whether it decays as the paper supposes.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use corewire_optim::problem::Problem;
use corewire_optim::spectrum::Density;
use serde::Serialize;

use crate::model::Trained;
use crate::progress::Phase;
use crate::session::Session;
use crate::{out, plot};

/// How much is looked at: each product with the Hessian costs about three gradients of its rows in 64 bits.
#[derive(clap::Args)]
pub struct Effort {
    /// Of a network: the Hessian of so many rows.
    #[arg(long, default_value_t = 512)]
    rows: usize,
    /// Of a network: random starts of the quadrature.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    starts: u16,
    /// Of a network: products with the Hessian from each start, as far as 2 GB of vectors allow.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(2..))]
    products: u16,
}

/// Bytes of the vectors that a start keeps.
const MOST_BYTES: usize = 2 << 30;
/// Below this share of d L the sum of eigenvalues is small: a sketch then costs less than the gradient.
const SMALL: f64 = 0.1;

#[derive(Serialize)]
struct Spectrum {
    at: &'static str,
    r1: f64,
    r_half: f64,
    smoothness: f64,
    trace: f64,
    smallest: f64,
    /// r_1/(d L): 1 for a flat spectrum.
    share: f64,
    /// The density: eigenvalues, and how many each stands for.
    density: Vec<(f64, f64)>,
}

impl Spectrum {
    fn of(at: &'static str, dim: usize, density: &Density) -> Self {
        let (r1, smoothness) = (density.absolute_sum(1.0), density.smoothness());
        Self {
            at,
            r1,
            r_half: density.absolute_sum(0.5),
            smoothness,
            trace: density.trace(),
            smallest: density.ends().0,
            share: r1 / (dim as f64 * smoothness),
            density: density.nodes().to_vec(),
        }
    }
}

/// Measures the network of a job at its start and, where there is one, as it was trained.
pub fn run(session: &Session, effort: &Effort, model: Option<&Path>, plot_to: Option<&Path>, json: bool) -> Result<()> {
    let problem = session.problem()?;
    let data = problem.data().ok_or_else(|| anyhow!("`inspect` needs all rows in one place"))?;
    let step = data.rows().div_ceil(effort.rows.max(1));
    let sample: Vec<usize> = (0..data.rows()).step_by(step.max(1)).collect();
    let few = Problem::rows(data.select(&sample), *problem.spec(), 1, session.job.problem.split, &session.randomness);
    let mut objective = few.objective(0);
    let dim = problem.dim();
    let start = session.start.as_ref().map_or(problem.start(), |start| &start[..]);
    let trained = model.map(Trained::read).transpose()?;
    let mut points = vec![("the start", start)];
    if let Some(trained) = &trained {
        if trained.x.len() != dim {
            bail!("the model has {} parameters, and the job's network {dim}", trained.x.len());
        }
        points.push(("the model", &trained.x));
    }
    let (starts, most) = (usize::from(effort.starts), usize::from(effort.products));
    let steps = most.min((MOST_BYTES / (8 * dim)).max(8));
    let (mut spectra, mut curves) = (Vec::new(), Vec::new());
    for (at, x) in points {
        let _bar = Phase::new(json, "the Hessian", 0);
        let density = Density::of(&mut *objective, x, starts, steps, &session.randomness);
        spectra.push(Spectrum::of(at, dim, &density));
        curves.push(plot::Curve::new(at, &density.side(false), None));
        curves.push(plot::Curve::new(&format!("{at}, negative"), &density.side(true), None).dashed());
    }
    if let Some(path) = plot_to {
        std::fs::write(path, plot::eigenvalues(&curves, 0.0))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let rows = sample.len();
    if json {
        return out::json(
            &serde_json::json!({ "dim": dim, "rows": rows, "starts": starts, "steps": steps, "spectra": spectra }),
        );
    }
    out::line(&format!(
        "d = {dim}; the Hessian of {rows} rows by stochastic Lanczos quadrature, {starts} starts of {steps} products"
    ))?;
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["at", "r_1", "r_1/2", "L", "trace", "smallest", "r_1/(d L)"]);
    for known in &spectra {
        let Spectrum { at, r1, r_half, smoothness, trace, smallest, share, .. } = known;
        let number = |value: &f64| format!("{value:.4}");
        let cells = [r1, r_half, smoothness, trace, smallest].map(number);
        table.add_row([vec![(*at).to_owned()], cells.to_vec(), vec![format!("{share:.1e}")]].concat());
    }
    out::line(&table.to_string())?;
    for Spectrum { at, share, .. } in &spectra {
        let verdict = match *share < SMALL {
            true => "it decays fast, as the paper supposes",
            false => "it hardly decays, which the paper does not suppose",
        };
        out::line(&format!("at {at} the eigenvalues sum to {:.2} % of d L: {verdict}", 100.0 * share))?;
    }
    match plot_to {
        Some(path) => out::line(&format!("the magnitudes are drawn in {}", path.display())),
        None => Ok(()),
    }
}
