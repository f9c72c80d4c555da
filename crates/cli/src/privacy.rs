//! `corewire privacy`: what an observer of the messages learns, and `corewire seed`: a secret seed in a file of its own.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use corewire_privacy::{Accountant, MOST_SCALARS, threat_model};
use corewire_sketch::Seed;

/// Arguments of `corewire privacy`.
#[derive(clap::Args)]
pub struct Arguments {
    /// How much two adjacent gradients may differ in norm, relative to it.
    #[arg(long, default_value_t = 0.01)]
    adjacency: f64,
    /// The probability delta.
    #[arg(long, default_value_t = 1e-5)]
    delta: f64,
    /// Scalars a round, m.
    #[arg(long, default_value_t = 10)]
    budget: u64,
    /// Rounds, K.
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// The reverse: the most rounds for this epsilon.
    #[arg(long)]
    epsilon: Option<f64>,
    /// The family that the run uses.
    #[arg(long, default_value = "gaussian")]
    family: corewire_sketch::Family,
    /// The wire that the run uses.
    #[arg(long, default_value = "f32", value_parser = ["f32", "bf16", "q", "q-sum"])]
    wire: String,
    /// Draws epsilon over rounds to this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// One JSON object at the end.
    #[arg(long)]
    json: bool,
}

/// `corewire privacy`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let accountant = Accountant::new(arguments.adjacency, arguments.delta)?;
    let Some(scalars) = arguments.budget.checked_mul(arguments.rounds).filter(|&scalars| scalars <= MOST_SCALARS)
    else {
        bail!("`--budget` times `--rounds` is at most {MOST_SCALARS} scalars; take fewer of one of them");
    };
    use corewire_sketch::Family;
    if !matches!(arguments.family, Family::Gaussian | Family::GaussianStrict) || arguments.wire != "f32" {
        let why = format!(
            "there is no epsilon for family {} and wire {}: the account holds for Gaussian directions and unquantised scalars alone",
            arguments.family, arguments.wire
        );
        match arguments.json {
            true => println!(
                "{}",
                serde_json::json!({ "epsilon": null, "delta": arguments.delta, "scalars": scalars, "paper_epsilon": null, "paper_holds": null, "why": why })
            ),
            false => println!("{why}"),
        }
        return Ok(());
    }
    let rounds = match arguments.epsilon {
        Some(epsilon) => accountant.rounds_within(epsilon, arguments.budget)?,
        None => arguments.rounds,
    };
    if rounds == 0 {
        let (epsilon, budget) = (arguments.epsilon.unwrap_or(0.0), arguments.budget);
        let one = accountant.epsilon(budget)?;
        let why =
            format!("not one round of {budget} scalars stays within epsilon {epsilon}: it alone reaches {one:.3}");
        match arguments.json {
            true => println!(
                "{}",
                serde_json::json!({ "epsilon": one, "delta": arguments.delta, "scalars": 0, "rounds": 0, "why": why })
            ),
            false => println!("{why}"),
        }
        return Ok(());
    }
    let scalars = arguments.budget.saturating_mul(rounds);
    let epsilon = accountant.epsilon(scalars)?;
    let (paper, holds) = (accountant.paper_epsilon(), accountant.paper_holds(scalars)?);
    if let Some(path) = &arguments.plot {
        std::fs::write(path, plot(&accountant, arguments.budget, rounds.max(1))?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json {
        let report = serde_json::json!({
            "epsilon": epsilon, "delta": arguments.delta, "scalars": scalars, "rounds": rounds,
            "paper_epsilon": paper, "paper_holds": holds, "renyi_epsilon": accountant.renyi_epsilon(scalars)?,
        });
        println!("{report}");
        return Ok(());
    }
    match arguments.epsilon {
        Some(wanted) => println!(
            "at most {rounds} rounds of {} scalars stay within epsilon {wanted} (they reach {epsilon:.3})",
            arguments.budget
        ),
        None => println!(
            "epsilon {epsilon:.3} at delta {:.0e} after {rounds} rounds of {} scalars ({scalars} in all)",
            arguments.delta, arguments.budget
        ),
    }
    let verdict = if holds { "holds here" } else { "is false here" };
    println!(
        "the paper's figure is {paper:.3}, whatever the number of scalars; it {verdict} (it holds up to {} scalars)",
        accountant.paper_holds_up_to()
    );
    println!("\nwhat this means:");
    for sentence in threat_model() {
        println!("- {sentence}");
    }
    Ok(())
}

/// Epsilon against rounds, the paper's constant beside it.
fn plot(accountant: &Accountant, budget: u64, rounds: u64) -> Result<String> {
    let (width, height, left, bottom) = (640.0, 360.0, 60.0, 45.0);
    let points: Vec<(f64, f64)> = (0..=60)
        .map(|i| ((rounds as f64 * f64::from(i) / 60.0).round() as u64).max(1))
        .map(|k| Ok((k as f64, accountant.epsilon(budget * k)?)))
        .collect::<Result<_>>()?;
    let paper = accountant.paper_epsilon();
    let top = points.iter().map(|point| point.1).fold(paper, f64::max) * 1.05;
    let x = |k: f64| left + k / rounds as f64 * (width - left - 20.0);
    let y = |epsilon: f64| 20.0 + (1.0 - epsilon / top) * (height - bottom - 20.0);
    let line: Vec<String> = points.iter().map(|&(k, epsilon)| format!("{:.1},{:.1}", x(k), y(epsilon))).collect();
    let ticks: String = (0..=4)
        .map(|i| {
            let (epsilon, k) = (top * f64::from(i) / 4.0, rounds as f64 * f64::from(i) / 4.0);
            format!(
                "<line class=\"grid\" x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{epsilon:.2}</text><text x=\"{:.1}\" y=\"{}\" \
                 text-anchor=\"middle\">{k:.0}</text>",
                width - 20.0,
                left - 8.0,
                y(epsilon) + 4.0,
                x(k),
                height - bottom + 20.0,
                at = y(epsilon)
            )
        })
        .collect();
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <style>svg{{background:#fff;color:#223}} text{{fill:currentColor}} .grid{{stroke:currentColor;opacity:.15}} @media (prefers-color-scheme: dark){{svg{{background:#14171c;color:#d5dae2}}}}</style>\n\
         {ticks}\n<polyline fill=\"none\" stroke=\"#2a78c8\" stroke-width=\"2.5\" points=\"{}\"/>\n\
         <line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#c8642a\" stroke-dasharray=\"5 4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">the paper's claim</text>\n\
         <text x=\"{left}\" y=\"14\">epsilon</text><text x=\"{}\" y=\"{}\" text-anchor=\"middle\">rounds of \
             {budget} scalars</text>\n</svg>\n",
        line.join(" "),
        width - 20.0,
        width - 24.0,
        y(paper) - 6.0,
        0.5 * (width + left),
        height - 8.0,
        at = y(paper)
    ))
}

/// `corewire seed FILE`.
pub fn create_seed(path: &Path, json: bool) -> Result<()> {
    let seed = Seed::random().map_err(|error| anyhow::anyhow!("the system gave no random numbers: {error}"))?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options
        .open(path)
        .with_context(|| format!("cannot create {}; an existing seed is never overwritten", path.display()))?;
    file.write_all(seed.reveal().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    match json {
        true => println!("{}", serde_json::json!({ "file": path, "commitment": seed.commitment().to_string() })),
        false => println!(
            "a secret seed is in {} (only you can read it); its commitment is {}\nput it on every machine over a \
             channel that you trust, and set method.seed_file to it",
            path.display(),
            seed.commitment()
        ),
    }
    Ok(())
}
