//! P = W'W + alpha as eigenpairs, largest first; all that is orthogonal to them has the eigenvalue alpha.
//!
//! With several blocks of coordinates, the classes of softmax, P is this in every block, but for the blocks' mean, where it is alpha:
//! (I - 11'/k) times W'W, and alpha.

use corewire_algebra::eigen::{self, Eigen};
use corewire_algebra::vector::{add_scaled, dot, norm_squared};

/// Directions that are shrunk together.
const GROUP: usize = 8;

/// Gram matrices up to this size are solved whole.
const LARGEST_GRAM: usize = 1600;
/// Eigenpairs that are looked for in larger ones.
const MOST_PAIRS: usize = 96;

pub(super) struct Preconditioner {
    /// Coordinates of a block, and how many blocks there are.
    columns: usize,
    blocks: usize,
    alpha: f64,
    values: Vec<f64>,
    vectors: Vec<Vec<f64>>,
    /// alpha and the eigenvalues as they were found, before curvature was added.
    found: (f64, Vec<f64>),
}

/// A vector by the eigenvectors of P.
struct Parts {
    /// The weights of the eigenvectors, block by block, and what is left of each block.
    inside: Vec<f64>,
    outside: Vec<f64>,
    /// The blocks' mean, which both are without; empty where there is one block.
    mean: Vec<f64>,
}

impl Preconditioner {
    /// From rows whose Gram matrix is W'W.
    pub(super) fn from_rows(rows: &[&[f64]], scale: f64, (dim, blocks): (usize, usize), alpha: f64) -> Self {
        let count = rows.len();
        let found = if count.min(dim) > LARGEST_GRAM {
            // The outer eigenpairs are what the rows are for; what Lanczos' recursion has not found counts as alpha.
            let start: Vec<f64> = (0..dim).map(|i| 1.0 + ((i * i) % 7) as f64 - 3.25).collect();
            let krylov = eigen::lanczos(&start, 2 * MOST_PAIRS, |v, out| {
                out.fill(0.0);
                rows.iter().for_each(|row| add_scaled(scale * dot(row, v), row, out));
            });
            krylov.pairs(MOST_PAIRS)
        } else if count < dim {
            let mut gram = vec![0.0; count * count];
            for i in 0..count {
                for j in 0..=i {
                    gram[i * count + j] = scale * dot(rows[i], rows[j]);
                }
            }
            let Eigen { values, vectors } = eigen::pairs(gram, count);
            let real = values.iter().take_while(|&&value| value > 1e-12 * values[0].max(0.0)).count();
            let lift = |(value, weights): (&f64, &Vec<f64>)| {
                let mut lifted = vec![0.0; dim];
                let scale = (scale / value).sqrt();
                weights.iter().zip(rows).for_each(|(weight, row)| add_scaled(weight * scale, row, &mut lifted));
                lifted
            };
            let vectors = values[..real].iter().zip(&vectors).map(lift).collect();
            Eigen { values: values[..real].to_vec(), vectors }
        } else {
            let mut gram = vec![0.0; dim * dim];
            for row in rows {
                for i in 0..dim {
                    let weight = scale * row[i];
                    if weight != 0.0 {
                        add_scaled(weight, &row[..=i], &mut gram[i * dim..i * dim + i + 1]);
                    }
                }
            }
            eigen::pairs(gram, dim)
        };
        Self::from_pairs(found, (dim, blocks), alpha)
    }

    /// From the eigenpairs of W'W.
    pub(super) fn from_pairs(eigen: Eigen, (columns, blocks): (usize, usize), alpha: f64) -> Self {
        let values: Vec<f64> = eigen.values.iter().map(|value| value.max(0.0) + alpha).collect();
        Self { columns, blocks, alpha, found: (alpha, values.clone()), values, vectors: eigen.vectors }
    }

    /// P as it was found, and so much more everywhere.
    pub(super) fn set_added(&mut self, more: f64) {
        self.alpha = self.found.0 + more;
        self.values.iter_mut().zip(&self.found.1).for_each(|(value, found)| *value = found + more);
    }

    /// Eigenvectors that a block lacks.
    fn left_over(&self) -> f64 {
        (self.columns - self.values.len()) as f64
    }

    /// Blocks but for their mean.
    fn freedom(&self) -> f64 {
        (self.blocks - 1).max(1) as f64
    }

    pub(super) fn trace(&self) -> f64 {
        let mean = if self.blocks > 1 { self.columns as f64 * self.alpha } else { 0.0 };
        self.freedom() * (self.values.iter().sum::<f64>() + self.left_over() * self.alpha) + mean
    }

    /// Of P^-1, where gradients are noisy: everywhere but in the blocks' mean.
    pub(super) fn inverse_trace(&self) -> f64 {
        let block = self.values.iter().map(|value| 1.0 / value).sum::<f64>() + self.left_over() / self.alpha;
        self.freedom() * block
    }

    fn split(&self, g: &[f64]) -> Parts {
        let mean = if self.blocks > 1 { block_mean(g, self.columns) } else { Vec::new() };
        let (mut inside, mut outside) = (Vec::with_capacity(self.blocks * self.values.len()), g.to_vec());
        for block in outside.chunks_exact_mut(self.columns.max(1)) {
            block.iter_mut().zip(&mean).for_each(|(value, mean)| *value -= mean);
            let weights: Vec<f64> = self.vectors.iter().map(|vector| dot(vector, block)).collect();
            weights.iter().zip(&self.vectors).for_each(|(weight, vector)| add_scaled(-weight, vector, block));
            inside.extend(weights);
        }
        Parts { inside, outside, mean }
    }

    fn join(&self, Parts { inside, mut outside, mean }: Parts) -> Vec<f64> {
        let count = self.values.len();
        for (at, block) in outside.chunks_exact_mut(self.columns.max(1)).enumerate() {
            let weights = &inside[at * count..(at + 1) * count];
            weights.iter().zip(&self.vectors).for_each(|(weight, vector)| add_scaled(*weight, vector, block));
            block.iter_mut().zip(&mean).for_each(|(value, mean)| *value += mean);
        }
        outside
    }

    /// Scales g along every eigenvector by what `by` makes of its eigenvalue.
    fn scaled(&self, g: &[f64], by: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let mut parts = self.split(g);
        parts
            .inside
            .iter_mut()
            .zip(self.values.iter().cycle())
            .for_each(|(weight, value)| *weight = by(*weight, *value));
        parts.outside.iter_mut().chain(&mut parts.mean).for_each(|value| *value = by(*value, self.alpha));
        self.join(parts)
    }

    /// P^-1 g.
    pub(super) fn solve(&self, g: &[f64]) -> Vec<f64> {
        self.scaled(g, |weight, value| weight / value)
    }

    /// P g.
    pub(super) fn multiply(&self, g: &[f64]) -> Vec<f64> {
        self.scaled(g, |weight, value| weight * value)
    }

    /// A gradient with noise of variance `noise` a coordinate, each group of directions shortened by the share of its energy that is noise.
    /// The blocks' mean has none.
    pub(super) fn shrink(&self, g: &[f64], noise: f64) -> Vec<f64> {
        let mut parts = self.split(g);
        let factor = |energy: f64, size: f64| if energy > 0.0 { (1.0 - noise * size / energy).max(0.0) } else { 0.0 };
        let count = self.values.len();
        for first in (0..count).step_by(GROUP) {
            let size = GROUP.min(count - first);
            let group = |block: usize| block * count + first..block * count + first + size;
            let energy = (0..self.blocks).map(|block| norm_squared(&parts.inside[group(block)])).sum();
            let share = factor(energy, self.freedom() * size as f64);
            for block in 0..self.blocks {
                parts.inside[group(block)].iter_mut().for_each(|weight| *weight *= share);
            }
        }
        let left = self.freedom() * self.left_over();
        let share = if left > 0.0 { factor(norm_squared(&parts.outside), left) } else { 0.0 };
        parts.outside.iter_mut().for_each(|value| *value *= share);
        self.join(parts)
    }

    /// E: twice the gap that a quadratic with this curvature would have, no less than a hundredth of what noise alone gives.
    pub(super) fn energy(&self, g: &[f64], noise: f64) -> f64 {
        dot(g, &self.solve(g)).max(self.least_energy(noise))
    }

    /// A hundredth of the energy that noise alone gives.
    pub(super) fn least_energy(&self, noise: f64) -> f64 {
        0.01 * noise * self.inverse_trace()
    }

    /// The smallest eigenvalue.
    pub(super) fn least(&self) -> f64 {
        self.alpha
    }
}

/// The mean of the blocks of a vector.
pub(super) fn block_mean(vector: &[f64], columns: usize) -> Vec<f64> {
    let mut mean = vec![0.0; columns];
    let share = columns as f64 / vector.len().max(1) as f64;
    vector.chunks_exact(columns.max(1)).for_each(|block| add_scaled(share, block, &mut mean));
    mean
}
