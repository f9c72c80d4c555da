//! `corewire graph`: what a graph of machines costs.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use corewire_graph::gossip::{chebyshev_iterations, plain_iterations};
use corewire_sketch::{CommonRandomness, Seed};

use crate::job::{Gossip, GraphSpec};
use crate::session::{build_graph, read_graph};
use crate::units;

/// Arguments of `corewire graph`.
#[derive(clap::Args)]
pub struct Arguments {
    /// ring, path, grid, torus, star, complete, hypercube, regular, erdos-renyi, or file.
    #[arg(default_value = "ring", value_parser = ["ring", "path", "grid", "torus", "star", "complete", "hypercube", "regular", "erdos-renyi", "file"])]
    shape: String,
    /// How many machines.
    #[arg(long, default_value_t = 16)]
    machines: usize,
    /// Degree of a random regular graph.
    #[arg(long, default_value_t = 4)]
    degree: usize,
    /// Probability of an edge of an Erdos-Renyi graph.
    #[arg(long, default_value_t = 0.2)]
    probability: f64,
    /// An edge list: two machines per line.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The accuracy that gossip must reach.
    #[arg(long, default_value_t = 1e-8)]
    tolerance: f64,
    /// Scalars a message, m.
    #[arg(long, default_value_t = 64)]
    budget: usize,
    /// The seed of a random graph.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Draws the graph to this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// One JSON object at the end.
    #[arg(long)]
    json: bool,
}

/// `corewire graph`.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !(1e-15..1.0).contains(&arguments.tolerance) {
        bail!("`--tolerance` is between 1e-15 and 1; found {}", arguments.tolerance);
    }
    let spec = GraphSpec {
        shape: arguments.shape.clone(),
        degree: arguments.degree,
        probability: arguments.probability,
        file: arguments.file.clone(),
        gossip: Gossip::Chebyshev,
        iterations: None,
        tolerance: arguments.tolerance,
    };
    let randomness = CommonRandomness::new(&Seed::reproducible(arguments.seed));
    let graph = match (arguments.shape.as_str(), &arguments.file) {
        // A file says itself how many machines there are.
        ("file", Some(path)) => read_graph(path)?,
        _ => build_graph(&spec, arguments.machines, &randomness)?,
    };
    let spectrum = graph.spectrum();
    let (chebyshev, plain) =
        (chebyshev_iterations(spectrum.gamma(), spec.tolerance), plain_iterations(spectrum.gamma(), spec.tolerance));
    let tree = graph.central_tree();
    let tree_messages = 2 * (graph.machines() - 1);
    if let Some(path) = &arguments.plot {
        std::fs::write(path, graph.to_svg()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let block = 4.0 * arguments.budget as f64;
    let gossip_bytes = 2.0 * graph.edge_count() as f64 * chebyshev as f64 * block;
    let tree_bytes = tree_messages as f64 * block;
    if arguments.json {
        let report = serde_json::json!({
            "machines": graph.machines(), "edges": graph.edge_count(), "gamma": spectrum.gamma(), "diameter": graph.diameter(),
            "chebyshev_rounds": chebyshev, "plain_rounds": plain, "tree_messages": tree_messages, "tree_height": tree.height(),
            "gossip_bytes": gossip_bytes, "tree_bytes": tree_bytes,
        });
        println!("{report}");
        return Ok(());
    }
    println!(
        "{} of {} machines, {} edges, diameter {}",
        arguments.shape,
        graph.machines(),
        graph.edge_count(),
        graph.diameter()
    );
    println!(
        "gamma = lambda_2/lambda_max = {:.3e}/{:.3e} = {:.3e}",
        spectrum.second(),
        spectrum.largest(),
        spectrum.gamma()
    );
    println!("to {:.0e}: {chebyshev} iterations of Chebyshev gossip, {plain} of plain gossip", spec.tolerance);
    println!(
        "a mean of {} floats costs the whole graph {} by Chebyshev gossip and {} by a spanning tree \
         ({tree_messages} messages, {} hops up and down), {:.0} times less",
        arguments.budget,
        units::bytes(gossip_bytes),
        units::bytes(tree_bytes),
        tree.height(),
        gossip_bytes / tree_bytes
    );
    println!("use the tree unless links come and go; then gossip, and count what it costs");
    if let Some(path) = &arguments.plot {
        println!("the graph is drawn in {}", path.display());
    }
    Ok(())
}
