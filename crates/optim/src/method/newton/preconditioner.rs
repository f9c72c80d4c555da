//! P = W'W + alpha as eigenpairs, largest first; all that is orthogonal to them has the eigenvalue alpha.
//!
//! Of a large W'W only the largest eigenpairs are found. Its rows are then kept, and P^-1 g comes from conjugate gradients, which those
//! eigenpairs make short.
//!
//! With several blocks of coordinates, the classes of softmax, P is this in every block, but for the blocks' mean, where it is alpha:
//! (I - 11'/k) times W'W, and alpha.

use corewire_algebra::eigen::{self, Eigen};
use corewire_algebra::vector::{add_scaled, dot, norm_squared};

/// Directions that are shrunk together.
const GROUP: usize = 8;

/// Gram matrices up to this size are solved whole; those of rows that are longer than many, where that takes no more than so many
/// multiplications.
const LARGEST_GRAM: usize = 1600;
const MOST_WORK: f64 = 1e10;
/// Eigenpairs that are looked for in larger ones.
const MOST_PAIRS: usize = 96;
/// Conjugate gradients end where the residual's energy is so much smaller than at their start, and after so many products.
const SOLVED: f64 = 1e-6;
const MOST_PRODUCTS: usize = 100;

pub(super) struct Preconditioner {
    /// Coordinates of a block, and how many blocks there are.
    columns: usize,
    blocks: usize,
    /// alpha, with what was added to it.
    alpha: f64,
    /// What is orthogonal to the eigenvectors has so much more than alpha.
    rest: f64,
    values: Vec<f64>,
    vectors: Vec<Vec<f64>>,
    /// alpha and the eigenvalues as they were found, before curvature was added.
    found: (f64, Vec<f64>),
    /// The rows of W, where not all eigenpairs were found.
    rows: Option<Rows>,
}

/// W, one row after the other.
struct Rows {
    entries: Vec<f32>,
    /// The mean eigenvalue of W'W outside the eigenvectors, in a space of so many dimensions; beyond it there is none.
    mean: f64,
    rank: usize,
}

impl Rows {
    /// Adds W'W v to `out`.
    fn multiply(&self, v: &[f64], out: &mut [f64]) {
        for row in self.entries.chunks_exact(v.len().max(1)) {
            let weight: f64 = lanes(row, v);
            out.iter_mut().zip(row).for_each(|(out, &entry)| *out += weight * f64::from(entry));
        }
    }
}

/// The inner product of a row and a vector, in eight sums that a compiler may do at once.
fn lanes(row: &[f32], v: &[f64]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (rows, vectors) = (row.chunks_exact(8), v.chunks_exact(8));
    let rest: f64 = rows.remainder().iter().zip(vectors.remainder()).map(|(&a, b)| f64::from(a) * b).sum();
    for (row, v) in rows.zip(vectors) {
        for ((sum, &a), b) in sums.iter_mut().zip(row).zip(v) {
            *sum += f64::from(a) * b;
        }
    }
    rest + sums.iter().sum::<f64>()
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
        let is_long = count < dim && (count as f64).powi(2) * dim as f64 > MOST_WORK;
        if count.min(dim) > LARGEST_GRAM || is_long {
            return Self::from_many_rows(rows, scale, (dim, blocks), alpha);
        }
        let found = if count < dim {
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

    /// The same by the largest eigenpairs and the rows themselves.
    fn from_many_rows(rows: &[&[f64]], scale: f64, (dim, blocks): (usize, usize), alpha: f64) -> Self {
        let root = scale.sqrt();
        let entries: Vec<f32> = rows.iter().flat_map(|row| row.iter().map(|&entry| (root * entry) as f32)).collect();
        let mut kept = Rows { entries, mean: 0.0, rank: rows.len().min(dim) };
        let krylov = eigen::lanczos(&eigen::irregular(dim, 0), 2 * MOST_PAIRS, |v, out| {
            out.fill(0.0);
            kept.multiply(v, out);
        });
        let found = krylov.pairs(MOST_PAIRS.min(kept.rank));
        let trace = scale * rows.iter().map(|row| norm_squared(row)).sum::<f64>();
        let left = (trace - found.values.iter().sum::<f64>()).max(0.0);
        kept.mean = left / (kept.rank - found.values.len()).max(1) as f64;
        Self { rows: Some(kept), ..Self::from_pairs(found, (dim, blocks), alpha) }
    }

    /// From the eigenpairs of W'W.
    pub(super) fn from_pairs(eigen: Eigen, (columns, blocks): (usize, usize), alpha: f64) -> Self {
        let values: Vec<f64> = eigen.values.iter().map(|value| value.max(0.0) + alpha).collect();
        Self {
            columns,
            blocks,
            alpha,
            found: (alpha, values.clone()),
            values,
            vectors: eigen.vectors,
            rest: 0.0,
            rows: None,
        }
    }

    /// With so much more than alpha on what is orthogonal to the eigenvectors.
    pub(super) fn with_rest(self, rest: f64) -> Self {
        Self { rest, ..self }
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

    /// What the eigenvalues of a block sum to, each as `of` makes it.
    fn sum(&self, of: impl Fn(f64) -> f64) -> f64 {
        let found: f64 = self.values.iter().map(|&value| of(value)).sum();
        let (unknown, mean) = match &self.rows {
            None => (0.0, 0.0),
            Some(rows) => ((rows.rank - self.values.len()) as f64, rows.mean),
        };
        found + unknown * of(mean + self.alpha) + (self.left_over() - unknown) * of(self.rest + self.alpha)
    }

    /// Blocks but for their mean.
    fn freedom(&self) -> f64 {
        (self.blocks - 1).max(1) as f64
    }

    pub(super) fn trace(&self) -> f64 {
        let mean = if self.blocks > 1 { self.columns as f64 * self.alpha } else { 0.0 };
        self.freedom() * self.sum(|value| value) + mean
    }

    /// Of P^-1, where gradients are noisy: everywhere but in the blocks' mean.
    pub(super) fn inverse_trace(&self) -> f64 {
        self.freedom() * self.sum(|value| 1.0 / value)
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
        // What was not found counts as the smallest that was: that makes the spectrum which conjugate gradients see the shortest.
        let last = if self.rows.is_some() { self.values.last().copied() } else { None };
        let outside = last.unwrap_or(self.rest + self.alpha);
        parts.outside.iter_mut().for_each(|value| *value = by(*value, outside));
        parts.mean.iter_mut().for_each(|value| *value = by(*value, self.alpha));
        self.join(parts)
    }

    /// P^-1 g.
    pub(super) fn solve(&self, g: &[f64]) -> Vec<f64> {
        let roughly = |g: &[f64]| self.scaled(g, |weight, value| weight / value);
        if self.rows.is_none() {
            return roughly(g);
        }
        let (mut solution, mut residual) = (vec![0.0; g.len()], g.to_vec());
        let mut direction = roughly(&residual);
        let mut energy = dot(&residual, &direction);
        let enough = SOLVED * energy;
        for _ in 0..MOST_PRODUCTS {
            if energy <= enough {
                break;
            }
            let image = self.multiply(&direction);
            let curvature = dot(&direction, &image);
            if curvature <= 0.0 {
                break;
            }
            let step = energy / curvature;
            add_scaled(step, &direction, &mut solution);
            add_scaled(-step, &image, &mut residual);
            let next = roughly(&residual);
            let last = std::mem::replace(&mut energy, dot(&residual, &next));
            direction.iter_mut().zip(&next).for_each(|(old, new)| *old = new + energy / last * *old);
        }
        solution
    }

    /// P g.
    pub(super) fn multiply(&self, g: &[f64]) -> Vec<f64> {
        let Some(rows) = &self.rows else { return self.scaled(g, |weight, value| weight * value) };
        let mean = if self.blocks > 1 { block_mean(g, self.columns) } else { Vec::new() };
        let mut out: Vec<f64> = g.iter().map(|value| self.alpha * value).collect();
        for (block, out) in g.chunks_exact(self.columns.max(1)).zip(out.chunks_exact_mut(self.columns.max(1))) {
            let mut block = block.to_vec();
            block.iter_mut().zip(&mean).for_each(|(value, mean)| *value -= mean);
            rows.multiply(&block, out);
        }
        out
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

    /// The largest eigenvalue.
    pub(super) fn largest(&self) -> f64 {
        self.values.first().copied().unwrap_or(self.rest + self.alpha)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 300 rows of 200 columns whose lengths fall slowly: a hundred eigenpairs leave much of their matrix.
    fn rows() -> Vec<Vec<f64>> {
        let entry = |i: usize, j: usize| (((i * j + 3 * (i + j)) * 7919 % 1009) as f64 / 504.5) - 1.0;
        (0..300).map(|i| (0..200).map(|j| entry(i, j) / (1.0 + 0.05 * i as f64)).collect()).collect()
    }

    #[test]
    fn the_largest_eigenpairs_and_the_rows_do_what_all_eigenpairs_do() {
        let rows = rows();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        for blocks in [1, 3] {
            let whole = Preconditioner::from_rows(&rows, 0.02, (200, blocks), 1e-3);
            let mut many = Preconditioner::from_many_rows(&rows, 0.02, (200, blocks), 1e-3);
            assert!((whole.trace() / many.trace() - 1.0).abs() < 1e-6, "{} {}", whole.trace(), many.trace());
            // The unknown eigenvalues are counted as their mean, whose inverse is the least that theirs can sum to.
            let share = many.inverse_trace() / whole.inverse_trace();
            assert!((0.3..1.0).contains(&share), "{share}");
            let mut whole = whole;
            for added in [0.0, 0.5] {
                whole.set_added(added);
                many.set_added(added);
                let g: Vec<f64> = (0..200 * blocks).map(|i| ((i * 37 % 101) as f64 / 50.0) - 1.0).collect();
                let apart = |a: &[f64], b: &[f64]| {
                    let off: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
                    dot(&off, &whole.multiply(&off)) / dot(b, &whole.multiply(b))
                };
                // Rows are kept in 32 bits, and conjugate gradients end at a millionth of the energy by the rough inverse.
                assert!(apart(&many.multiply(&g), &whole.multiply(&g)) < 1e-10);
                assert!(apart(&many.solve(&g), &whole.solve(&g)) < 1e-4, "{added} {blocks}");
            }
        }
    }
}
