//! Blocks of numbers, averaged by swaps with neighbours, and what is left of their differences. What the numbers mean is not its business.

use std::ops::Range;
use std::sync::Arc;

use corewire_algebra::eigen;
use corewire_comm::{Collective, CommError};

use super::wire::{GossipWire, Line, Sizes};
use crate::error::RunError;
use corewire_graph::gossip::{Gossip, GossipError, GossipPlan, Scheme, local_disagreement};
use corewire_graph::graph::{Graph, LaplacianSpectrum};

/// What a machine sees may be this much worse, times the root of the number of machines, than the tolerance before it counts as missed:
/// the tolerance bounds the root of the sum of squares over all machines, and one machine knows only its neighbours' numbers.
const SLACK: f64 = 10.0;
/// What gossip can reach where numbers travel as 32 bits.
const LEAST_SINGLE: f64 = 1e-6;
/// How many times the tolerance the noise of integers may take: at most 27 times in simulations of rings and grids of 16 and 64 machines.
const INTEGERS: f64 = 30.0;

/// A graph and the way in which its machines average, the same for all.
#[derive(Clone, Debug)]
pub struct Averaging {
    graph: Arc<Graph>,
    spectrum: LaplacianSpectrum,
    plan: GossipPlan,
    /// Whether the number of iterations was given, and does not follow from the tolerance.
    given: bool,
    tolerance: f64,
    wire: GossipWire,
    least_mixing: f64,
}

impl Averaging {
    /// Averages to `tolerance`, in as many iterations as that takes or in the given number.
    pub fn new(
        graph: Graph,
        scheme: Scheme,
        iterations: Option<usize>,
        tolerance: f64,
        wire: GossipWire,
    ) -> Result<Self, GossipError> {
        let spectrum = graph.spectrum();
        let needed = GossipPlan::new(scheme, spectrum, tolerance)?;
        let plan = iterations.map_or(needed, |given| GossipPlan::with_iterations(scheme, spectrum, given));
        // 1 - W is positive semidefinite; a power iteration errs by a few per cent, towards a larger step.
        let largest = eigen::largest(graph.machines(), |v, out| {
            for (i, out) in out.iter_mut().enumerate() {
                *out = graph.neighbours(i).iter().map(|&j| metropolis(&graph, i, j) * (v[i] - v[j])).sum();
            }
        });
        let least_mixing = 1.0 - largest;
        Ok(Self { graph: Arc::new(graph), spectrum, plan, given: iterations.is_some(), tolerance, wire, least_mixing })
    }

    /// The same with floats where it had integers, for methods that send something else in every round.
    pub fn with_floats(&self) -> Self {
        let wire = if matches!(self.wire, GossipWire::F64) { GossipWire::F64 } else { GossipWire::F32 };
        Self { wire, ..self.clone() }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The plan of an averaging.
    pub fn plan(&self) -> GossipPlan {
        self.plan
    }

    /// The smallest eigenvalue of the Metropolis weights.
    pub fn least_mixing(&self) -> f64 {
        self.least_mixing
    }

    /// The plan whose cost and gain are in balance where gossip is repeated anyway: 1/sqrt(gamma) iterations, unless a number was given.
    pub fn balanced_plan(&self) -> GossipPlan {
        if self.given {
            return self.plan;
        }
        let iterations = (1.0 / self.spectrum.gamma().sqrt()).floor().max(1.0) as usize;
        GossipPlan::with_iterations(self.plan.scheme(), self.spectrum, iterations)
    }

    /// Replaces `block` by what gossip makes of all machines' blocks, and refuses a result that misses the tolerance. `parts` are the
    /// lengths of the parts of a block, each of which is compared with its own size.
    pub fn average(
        &self,
        round: u64,
        comm: &mut dyn Collective,
        block: &mut [f64],
        parts: &[usize],
    ) -> Result<(), RunError> {
        debug_assert_eq!(parts.iter().sum::<usize>(), block.len());
        let rank = comm.rank();
        let mut ranges = Vec::with_capacity(parts.len());
        parts.iter().fold(0, |start, length| {
            ranges.push(start..start + length);
            start + length
        });
        let iterations = self.plan.iterations();
        let (mut sizes, mut left) = (vec![0.0f64; parts.len()], vec![0.0; parts.len()]);
        self.gossip(self.plan, round, comm, block, &ranges, |iteration, mine, theirs| {
            for (k, range) in ranges.iter().enumerate() {
                let theirs: Vec<&[f64]> = theirs.iter().map(|theirs| &theirs.known()[range.clone()]).collect();
                let mine = &mine[range.clone()];
                if iteration == 0 {
                    let all = theirs.iter().copied().chain([mine]).flatten();
                    sizes[k] = all.fold(0.0, |size, number| number.abs().max(size));
                }
                if iteration + 1 == iterations {
                    left[k] = local_disagreement(mine, &theirs);
                }
            }
        })?;
        // Neighbours are seen before the last iteration and not after it; what that one does is known.
        let earlier = GossipPlan::with_iterations(self.plan.scheme(), self.spectrum, iterations - 1);
        let last = self.plan.contraction() / earlier.contraction();
        let reachable = match self.wire {
            GossipWire::F64 => self.tolerance,
            GossipWire::F32 => self.tolerance.max(LEAST_SINGLE),
            GossipWire::Quantised(_) => INTEGERS * self.tolerance,
        };
        let allowed = SLACK * (self.graph.machines() as f64).sqrt() * reachable;
        for (left, size) in left.iter().zip(&sizes) {
            let within = left * last <= allowed * size;
            if !within {
                let needed = GossipPlan::new(self.plan.scheme(), self.spectrum, self.tolerance)
                    .map_or(usize::MAX, |plan| plan.iterations());
                return Err(RunError::Disagree {
                    rank,
                    round,
                    iterations,
                    achieved: left * last / size,
                    tolerance: self.tolerance,
                    // More iterations do not help where those that should suffice do not.
                    advice: if needed > iterations {
                        format!("raise `graph.iterations` to {needed}")
                    } else {
                        "the graph is not the one that was planned for, or a machine has diverged".to_owned()
                    },
                });
            }
        }
        Ok(())
    }

    /// Replaces `block` by what a plan makes of all machines' blocks. `watch` sees what each machine has made known in every iteration.
    pub(super) fn gossip(
        &self,
        plan: GossipPlan,
        round: u64,
        comm: &mut dyn Collective,
        block: &mut [f64],
        parts: &[Range<usize>],
        mut watch: impl FnMut(usize, &[f64], &[Line]),
    ) -> Result<(), RunError> {
        let mut gossip = Gossip::new(plan);
        let (mut mine, mut theirs) = self.lines(round, comm.rank(), block.len());
        let mut sizes = Sizes::new(block, parts);
        for iteration in 0..plan.iterations() {
            self.swap(comm, block, &mut sizes, &mut mine, &mut theirs)?;
            watch(iteration, mine.known(), &theirs);
            // Differences are those of what is known: alike on both sides of an edge, they leave the mean where it is.
            let theirs: Vec<&[f64]> = theirs.iter().map(Line::known).collect();
            gossip.step(block, mine.known(), &theirs);
            sizes.shrink(gossip.left());
        }
        Ok(())
    }

    /// Overwrites `out` with this machine's row of W times all machines' blocks, W being the Metropolis weights.
    pub(super) fn mix(
        &self,
        round: u64,
        comm: &mut dyn Collective,
        block: &[f64],
        out: &mut [f64],
    ) -> Result<(), RunError> {
        let rank = comm.rank();
        let (mut mine, mut theirs) = self.lines(round, rank, block.len());
        self.swap(comm, block, &mut Sizes::new(block, &[]), &mut mine, &mut theirs)?;
        out.copy_from_slice(block);
        for (&other, theirs) in self.graph.neighbours(rank).iter().zip(&theirs) {
            let weight = metropolis(&self.graph, rank, other);
            out.iter_mut()
                .zip(theirs.known().iter().zip(mine.known()))
                .for_each(|(out, (theirs, mine))| *out += weight * (theirs - mine));
        }
        Ok(())
    }

    /// The lines from a machine and from each of its neighbours, before anything was sent.
    fn lines(&self, round: u64, rank: usize, length: usize) -> (Line, Vec<Line>) {
        let line = |sender| Line::new(&self.wire, round, sender, length);
        (line(rank), self.graph.neighbours(rank).iter().copied().map(line).collect())
    }

    /// Makes a block known to all neighbours, and theirs here.
    fn swap(
        &self,
        comm: &mut dyn Collective,
        block: &[f64],
        sizes: &mut Sizes<'_>,
        mine: &mut Line,
        theirs: &mut [Line],
    ) -> Result<(), RunError> {
        let neighbours = self.graph.neighbours(comm.rank());
        let group = comm.neighbours().ok_or_else(|| {
            RunError::Unsuited(
                "gossip needs machines that can talk to their neighbours; these have only a hub".to_owned(),
            )
        })?;
        let swapped = group.swap(neighbours, &mine.say(block, sizes))?;
        for ((line, message), &rank) in theirs.iter_mut().zip(&swapped.messages).zip(neighbours) {
            line.hear(message, sizes).map_err(|what| CommError::Refused { rank, what })?;
        }
        Ok(())
    }
}

/// The weight of an edge.
fn metropolis(graph: &Graph, i: usize, j: usize) -> f64 {
    1.0 / (1 + graph.degree(i).max(graph.degree(j))) as f64
}
