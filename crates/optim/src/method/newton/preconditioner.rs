//! P = W'W + alpha as eigenpairs, largest first; all that is orthogonal to them has the eigenvalue alpha.

use corewire_algebra::eigen::{self, Eigen};
use corewire_algebra::vector::{add_scaled, dot, norm_squared};

/// Directions that are shrunk together.
const GROUP: usize = 8;

/// Gram matrices up to this size are solved whole.
const LARGEST_GRAM: usize = 1600;
/// Eigenpairs that are looked for in larger ones.
const MOST_PAIRS: usize = 96;

pub(super) struct Preconditioner {
    dim: usize,
    alpha: f64,
    values: Vec<f64>,
    vectors: Vec<Vec<f64>>,
    /// alpha and the eigenvalues as they were found, before curvature was added.
    found: (f64, Vec<f64>),
}

impl Preconditioner {
    /// From rows whose Gram matrix is W'W.
    pub(super) fn from_rows(rows: &[Vec<f64>], scale: f64, dim: usize, alpha: f64) -> Self {
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
                    gram[i * count + j] = scale * dot(&rows[i], &rows[j]);
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
        Self::from_pairs(found, dim, alpha)
    }

    /// From the eigenpairs of W'W.
    pub(super) fn from_pairs(eigen: Eigen, dim: usize, alpha: f64) -> Self {
        let values: Vec<f64> = eigen.values.iter().map(|value| value.max(0.0) + alpha).collect();
        Self { dim, alpha, found: (alpha, values.clone()), values, vectors: eigen.vectors }
    }

    /// P as it was found, and so much more everywhere.
    pub(super) fn set_added(&mut self, more: f64) {
        self.alpha = self.found.0 + more;
        self.values.iter_mut().zip(&self.found.1).for_each(|(value, found)| *value = found + more);
    }

    fn left_over(&self) -> f64 {
        (self.dim - self.values.len()) as f64
    }

    pub(super) fn trace(&self) -> f64 {
        self.values.iter().sum::<f64>() + self.left_over() * self.alpha
    }

    pub(super) fn inverse_trace(&self) -> f64 {
        self.values.iter().map(|value| 1.0 / value).sum::<f64>() + self.left_over() / self.alpha
    }

    fn split(&self, g: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let inside: Vec<f64> = self.vectors.iter().map(|vector| dot(vector, g)).collect();
        let mut outside = g.to_vec();
        inside.iter().zip(&self.vectors).for_each(|(weight, vector)| add_scaled(-weight, vector, &mut outside));
        (inside, outside)
    }

    fn join(&self, inside: &[f64], mut outside: Vec<f64>) -> Vec<f64> {
        inside.iter().zip(&self.vectors).for_each(|(weight, vector)| add_scaled(*weight, vector, &mut outside));
        outside
    }

    /// P^-1 g.
    pub(super) fn solve(&self, g: &[f64]) -> Vec<f64> {
        let (mut inside, mut outside) = self.split(g);
        inside.iter_mut().zip(&self.values).for_each(|(weight, value)| *weight /= value);
        outside.iter_mut().for_each(|value| *value /= self.alpha);
        self.join(&inside, outside)
    }

    /// P g.
    pub(super) fn multiply(&self, g: &[f64]) -> Vec<f64> {
        let (mut inside, mut outside) = self.split(g);
        inside.iter_mut().zip(&self.values).for_each(|(weight, value)| *weight *= value);
        outside.iter_mut().for_each(|value| *value *= self.alpha);
        self.join(&inside, outside)
    }

    /// A gradient with noise of variance `noise` a coordinate, each group of directions shortened by the share of its energy that is noise.
    pub(super) fn shrink(&self, g: &[f64], noise: f64) -> Vec<f64> {
        let (mut inside, mut outside) = self.split(g);
        let factor = |energy: f64, size: f64| if energy > 0.0 { (1.0 - noise * size / energy).max(0.0) } else { 0.0 };
        for group in inside.chunks_mut(GROUP) {
            let share = factor(norm_squared(group), group.len() as f64);
            group.iter_mut().for_each(|weight| *weight *= share);
        }
        let share = if self.left_over() > 0.0 { factor(norm_squared(&outside), self.left_over()) } else { 0.0 };
        outside.iter_mut().for_each(|value| *value *= share);
        self.join(&inside, outside)
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
