//! `corewire graph`: what a graph of machines costs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use corewire_optim::decentral::Averaging;
use corewire_optim::gossip::{Scheme, chebyshev_iterations, plain_iterations};
use corewire_optim::graph::Graph;
use corewire_sketch::{CommonRandomness, Seed};

use crate::job::{GraphSpec, Job};

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
    /// An edge list: two machines a line.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The accuracy that gossip shall reach.
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

/// The graph that a job or the arguments describe.
pub fn build(spec: &GraphSpec, machines: usize, randomness: &CommonRandomness) -> Result<Graph> {
    let side = |machines: usize| {
        let rows = (1..=machines).rfind(|rows| machines.is_multiple_of(*rows) && rows * rows <= machines).unwrap_or(1);
        (rows, machines / rows)
    };
    let graph = match spec.shape.as_str() {
        "ring" => Graph::ring(machines)?,
        "path" => Graph::path(machines)?,
        "grid" => Graph::grid(side(machines).0, side(machines).1)?,
        "torus" => Graph::torus(side(machines).0, side(machines).1)?,
        "star" => Graph::star(machines)?,
        "complete" => Graph::complete(machines)?,
        "hypercube" => {
            if !machines.is_power_of_two() {
                anyhow::bail!("a hypercube has a power of two machines; found {machines}");
            }
            Graph::hypercube(machines.trailing_zeros())?
        }
        "regular" => Graph::random_regular(machines, spec.degree, randomness)?,
        "erdos-renyi" => Graph::erdos_renyi(machines, spec.probability, randomness)?,
        _ => {
            let path = spec
                .file
                .as_ref()
                .ok_or_else(|| anyhow!("a graph from a file needs the file: `--file edges.txt`, or `graph.file`"))?;
            read(path)?
        }
    };
    if graph.machines() != machines {
        anyhow::bail!("the graph joins {} machines and there are {machines}: they must be as many", graph.machines());
    }
    Ok(graph)
}

fn read(path: &Path) -> Result<Graph> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Graph::parse_edges(&text).with_context(|| format!("in {}", path.display()))
}

/// How the machines of a job average by gossip.
pub fn averaging(spec: &GraphSpec, job: &Job, randomness: &CommonRandomness) -> Result<Averaging> {
    let graph = build(spec, job.machines, randomness)?;
    let scheme = if spec.gossip == "plain" { Scheme::Plain } else { Scheme::Chebyshev };
    let double = job.method.wire == "f64";
    Ok(Averaging::new(graph, scheme, spec.iterations, spec.tolerance, double)?)
}

/// `corewire graph`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let spec = GraphSpec {
        shape: arguments.shape.clone(),
        degree: arguments.degree,
        probability: arguments.probability,
        file: arguments.file.clone(),
        gossip: "chebyshev".to_owned(),
        iterations: None,
        tolerance: arguments.tolerance,
    };
    let randomness = CommonRandomness::new(&Seed::reproducible(arguments.seed));
    let graph = match (arguments.shape.as_str(), &arguments.file) {
        // A file says itself how many machines there are.
        ("file", Some(path)) => read(path)?,
        _ => build(&spec, arguments.machines, &randomness)?,
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
        "a mean of {} floats costs the whole graph {} by Chebyshev gossip and {} by a spanning tree ({tree_messages} messages, {} hops up and down), {:.0} times less",
        arguments.budget,
        crate::units::bytes(gossip_bytes),
        crate::units::bytes(tree_bytes),
        tree.height(),
        gossip_bytes / tree_bytes
    );
    println!("use the tree unless links come and go; then gossip, and count what it costs");
    if let Some(path) = &arguments.plot {
        println!("the graph is drawn in {}", path.display());
    }
    Ok(())
}
