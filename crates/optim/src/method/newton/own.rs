//! Machine 0's own curvature, which costs no byte.

use corewire_algebra::eigen::Eigen;

use super::{MOST_COLUMNS, Rules, places, restricted};
use crate::objective::Objective;

/// Of a matrix that is too large to be solved whole so many eigenpairs are found as take about so many multiplications.
const MOST_WORK: f64 = 5e9;
/// Eigenvalues below this share of alpha count for nothing.
const LEAST: f64 = 0.01;

/// The largest eigenpairs of a Hessian less alpha, and what is known of the others.
#[derive(Clone)]
pub(super) struct Found {
    pub pairs: Eigen,
    /// The other eigenvalues are at most this.
    pub rest: f64,
    /// So many of them may not be 0, and they sum to this.
    others: f64,
    left: f64,
}

impl Found {
    /// All that there are.
    fn whole(pairs: Eigen) -> Self {
        Self { pairs, rest: 0.0, others: 0.0, left: 0.0 }
    }

    /// Of so many times as many rows.
    pub(super) fn scaled(self, by: f64) -> Self {
        Self { pairs: self.pairs.scaled(by), rest: by * self.rest, left: by * self.left, ..self }
    }

    /// An upper bound on how many directions the Hessian tells apart from alpha.
    pub(super) fn directions(&self, alpha: f64) -> f64 {
        let share = |value: f64| value / (value + alpha);
        let mean = (self.left / self.others.max(1.0)).min(self.rest);
        self.pairs.values.iter().copied().map(share).sum::<f64>() + self.others * share(mean)
    }

    /// In the active columns of a block.
    pub(super) fn restricted(self, active: &[f64]) -> Self {
        Self { pairs: restricted(self.pairs, active), ..self }
    }
}

/// Where it comes from: the rows of machine 0.
pub(super) struct Own<'a> {
    pub objective: &'a mut dyn Objective,
    pub x: &'a [f64],
    pub active: &'a [f64],
    pub rules: Rules,
}

impl Own<'_> {
    /// x, where its active coordinates are these.
    fn at(&self, coordinates: &[f64]) -> Vec<f64> {
        let mut at = self.x.to_vec();
        let places = places(self.active, self.rules.blocks, at.len());
        places.zip(coordinates).for_each(|(j, x)| at[j] = *x);
        at
    }

    /// The trace of a block where the active coordinates are these, as a share of the bound on it that holds everywhere; 1 without rows.
    pub(super) fn share_of_bound(&mut self, coordinates: &[f64]) -> f64 {
        let at = self.at(coordinates);
        let bound = self.objective.bound_trace().unwrap_or(0.0) - self.rules.alpha * at.len() as f64;
        let trace = self.objective.curved().map_or(0.0, |curved| curved.trace(&at));
        if bound > 0.0 { self.rules.blocks as f64 * trace / bound } else { 1.0 }
    }

    /// Where the active coordinates are these.
    pub(super) fn curvature(&mut self, coordinates: &[f64]) -> Found {
        let Rules { alpha, blocks, .. } = self.rules;
        let at = self.at(coordinates);
        let Some(curved) = self.objective.curved() else {
            return Found::whole(Eigen { values: Vec::new(), vectors: Vec::new() });
        };
        let side = curved.root_rows().min(at.len() / blocks);
        let most = most_pairs(side);
        let pairs = restricted(curved.eigenpairs(&at, 0, most, LEAST * alpha), self.active);
        if most == side {
            return Found::whole(pairs);
        }
        let left = (curved.trace(&at) - pairs.values.iter().sum::<f64>()).max(0.0);
        let rest = pairs.values.last().map_or(left, |last| last.min(left));
        Found { rest, others: (side - pairs.values.len()) as f64, left, pairs }
    }
}

/// Eigenpairs that are looked for in a matrix of so many rows or columns, whichever are fewer.
fn most_pairs(side: usize) -> usize {
    if side <= MOST_COLUMNS { side } else { ((MOST_WORK / side as f64).sqrt() / 3.0).ceil() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_matrices_are_solved_whole_and_larger_ones_take_about_as_much_work() {
        assert_eq!(most_pairs(MOST_COLUMNS), MOST_COLUMNS);
        for side in [MOST_COLUMNS + 1, 10_000, 100_000] {
            // Lanczos' recursion takes three steps for a pair, and as many products with the basis as there are steps, twice.
            let steps = 3.0 * most_pairs(side) as f64;
            assert!((0.9..1.1).contains(&(steps * steps * side as f64 / MOST_WORK)), "{side}");
        }
    }

    #[test]
    fn directions_that_were_not_found_are_counted_as_if_they_were_equal() {
        let pairs = Eigen { values: vec![3.0, 1.0], vectors: Vec::new() };
        let found = |rest, others, left| Found { pairs: pairs.clone(), rest, others, left };
        assert_eq!(found(0.0, 0.0, 0.0).directions(1.0), 0.75 + 0.5);
        // 100 that sum to 25, and none of them is above 1.
        assert_eq!(found(1.0, 100.0, 25.0).directions(1.0), 1.25 + 100.0 * 0.2);
        assert_eq!(found(0.25, 100.0, 1e9).directions(1.0), 1.25 + 100.0 * 0.2);
    }
}
