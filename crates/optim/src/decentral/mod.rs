//! Methods for machines that talk to their neighbours only, by gossip. Runs over a spanning tree need none of this: there any method works,
//! see [`corewire_comm::Tree`].
//!
//! After gossip the machines agree to a tolerance and not to the bit, so every machine has an iterate of its own: all state is local.
//!
//! # Layout
//! - [`averaging`]: blocks of numbers, averaged with neighbours, and what is left of their differences.
//! - [`mean`]: CORE's estimate by gossip of its scalars, with or without a pull towards the others.
//! - [`core`]: CORE-GD and CORE-AGD on it (Algorithm 5).
//! - [`extra`], [`msda`]: what the field does without compression.

pub mod averaging;
pub mod core;
pub mod extra;
pub mod mean;
pub mod msda;

pub use averaging::Averaging;
pub use core::GossipCore;
pub use extra::Extra;
pub use mean::GossipMean;
pub use msda::Msda;

use corewire_sketch::{AnySketch, CommonRandomness, Family};

use crate::error::RunError;
use crate::method::Method;
use crate::method::field::Known;
use crate::tuning::{Curvature, Spectrum, accelerate};

/// The methods that can be built.
pub const METHODS: [&str; 4] = ["core-gd", "core-agd", "extra", "msda"];

/// What is wanted of a decentralised method; what is left open follows from the curvature.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The family of directions of a CORE method.
    pub family: Family,
    /// Its budget m; `None` for tr(A)/L, from which on more scalars a round save no rounds.
    pub budget: Option<usize>,
    /// The step; `None` for the rule of the centralised method, and theory's for the others.
    pub step: Option<f64>,
    /// 1 - momentum of core-agd; `None` for the tuned one.
    pub damping: Option<f64>,
    /// Whether the sketch of the iterate is gossiped too, and the machines are pulled towards each other by it.
    pub correct: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { family: Family::Hadamard, budget: None, step: None, damping: None, correct: true }
    }
}

/// Pairs are tuned as if the noise were this much larger, as in the centralised method.
const CAUTION: f64 = 1.3;

/// Builds one machine's part of a decentralised method.
pub fn build(
    id: &str,
    start: Vec<f64>,
    averaging: &Averaging,
    wanted: &Wanted,
    known: &Known,
    randomness: &CommonRandomness,
) -> Result<Box<dyn Method>, RunError> {
    let unsuited = |what: String| Err(RunError::Unsuited(what));
    if known.l1 > 0.0 {
        return unsuited(format!(
            "`{id}` by gossip has no proximal step: set `problem.l1` = 0, or `graph.gossip` = \"tree\""
        ));
    }
    let dim = start.len();
    match id {
        "core-gd" | "core-agd" => {
            let automatic = (known.trace / known.smoothness).ceil().clamp(1.0, dim as f64) as usize;
            let budget = wanted.budget.unwrap_or(automatic);
            let sketch = AnySketch::new(wanted.family, randomness, dim, budget)
                .map_err(|error| RunError::Unsuited(error.to_string()))?;
            let m = budget as f64;
            let (step, damping) = if id == "core-gd" {
                (1.5 * m / (known.trace + (m + 1.0) * known.smoothness), 1.0)
            } else {
                let curvature = Curvature {
                    dim,
                    trace: known.trace,
                    smoothness: known.smoothness,
                    strong_convexity: known.strong_convexity,
                };
                let pair = accelerate(&Spectrum::fitted(&curvature), known.smoothness, m / CAUTION);
                (pair.step, pair.damping)
            };
            let mean = GossipMean::new(averaging.clone(), sketch);
            let method = GossipCore::new(start, mean, wanted.step.unwrap_or(step), wanted.damping.unwrap_or(damping));
            Ok(Box::new(if wanted.correct { method.corrected() } else { method }))
        }
        "extra" => {
            let step = wanted.step.unwrap_or(0.9 * (1.0 + averaging.least_mixing()) / known.max_smoothness);
            Ok(Box::new(Extra::new(start, averaging.clone(), step)))
        }
        "msda" => {
            if known.strong_convexity <= 0.0 {
                return unsuited(
                    "`msda` works on the dual problem and needs strong convexity: set `problem.alpha` above 0"
                        .to_owned(),
                );
            }
            Ok(Box::new(Msda::new(start, averaging, known.strong_convexity, known.max_smoothness)))
        }
        _ => unsuited(format!(
            "`{id}` has no form for gossip, only {} have; with `graph.gossip` = \"tree\" every method runs",
            METHODS.join(", ")
        )),
    }
}
