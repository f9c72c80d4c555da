//! Ridge-separable models: f_i(x) = (n/N) sum over the machine's rows of sigma(b'x) + (alpha/2)||x||^2.

use corewire_algebra::eigen::{self, Eigen};
use corewire_data::Matrix;
use corewire_sketch::Words;

use super::{Curved, Objective, wanted};
use crate::layout::Layout;
use crate::proximal::Proximal;
use corewire_algebra::vector;

/// The loss of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// (b'x - y)^2 / 2.
    Ridge,
    /// ln(1 + exp(-y b'x)), y = +-1.
    Logistic,
    /// Cross entropy of `classes` classes; y is the class's index; x holds one block of coordinates a class.
    Softmax {
        /// How many.
        classes: usize,
    },
}

/// A linear model on one machine's rows.
pub struct Linear {
    matrix: Matrix,
    labels: Vec<f64>,
    loss: Loss,
    /// n/N: what a row weighs in f_i.
    weight: f64,
    /// What each row counts beside that; empty where all count 1.
    counts: Vec<f64>,
    alpha: f64,
    /// Weight of the non-convex regulariser sum x_j^2/(1 + x_j^2), the field's standard test of non-convex methods.
    nonconvex: f64,
    proximal: Proximal,
    /// Scratch: b'x for every row (and class), then what is multiplied back.
    margins: Vec<f64>,
    other: Vec<f64>,
}

impl Linear {
    /// A model of these rows, each of weight `weight` (n/N for n machines and N rows in all).
    ///
    /// # Panics
    /// If there is not one label a row, or a softmax label is no class.
    pub fn new(matrix: Matrix, labels: Vec<f64>, loss: Loss, weight: f64, alpha: f64) -> Self {
        assert_eq!(matrix.rows(), labels.len(), "every row has its label");
        let blocks = match loss {
            Loss::Softmax { classes } => {
                let is_class = |&y: &f64| y >= 0.0 && y.fract() == 0.0 && (y as usize) < classes;
                assert!(labels.iter().all(is_class), "a softmax label is the index of a class");
                classes
            }
            _ => 1,
        };
        let margins = vec![0.0; matrix.rows() * blocks];
        Self {
            other: margins.clone(),
            matrix,
            labels,
            loss,
            weight,
            counts: Vec::new(),
            alpha,
            nonconvex: 0.0,
            proximal: Proximal::NONE,
            margins,
        }
    }

    /// Adds `lambda` sum x_j^2/(1 + x_j^2).
    pub fn with_nonconvex(mut self, lambda: f64) -> Self {
        self.nonconvex = lambda;
        self
    }

    /// Says that an l1 term and bounds belong to the problem.
    pub fn with_proximal(mut self, proximal: Proximal) -> Self {
        self.proximal = proximal;
        self
    }

    /// Says what each row counts; 1 where nothing is said.
    ///
    /// # Panics
    /// If there is not one count a row.
    pub fn with_counts(mut self, counts: Vec<f64>) -> Self {
        assert!(counts.is_empty() || counts.len() == self.labels.len(), "every row has its count");
        self.counts = counts;
        self
    }

    /// Multiplies what belongs to the rows by what they count, class by class.
    fn count_rows(counts: &[f64], values: &mut [f64]) {
        if !counts.is_empty() {
            for values in values.chunks_exact_mut(counts.len()) {
                values.iter_mut().zip(counts).for_each(|(value, count)| *value *= count);
            }
        }
    }

    fn count(&self, row: usize) -> f64 {
        self.counts.get(row).copied().unwrap_or(1.0)
    }

    /// The rows.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// The upper bound of sigma'' (for softmax, of the largest eigenvalue of a row's Hessian in its margins).
    fn smoothness(&self) -> f64 {
        match self.loss {
            Loss::Ridge => 1.0,
            Loss::Logistic => 0.25,
            Loss::Softmax { .. } => 0.5,
        }
    }

    /// out[c * rows + i] = b_i' x_c for every class c.
    fn multiply(matrix: &Matrix, x: &[f64], out: &mut [f64]) {
        let (rows, dim) = (matrix.rows(), matrix.dim());
        if rows > 0 {
            for (x, out) in x.chunks_exact(dim).zip(out.chunks_exact_mut(rows)) {
                matrix.multiply(0..rows, x, out);
            }
        }
    }

    /// out += B' weights, class by class.
    fn multiply_back(matrix: &Matrix, weights: &[f64], out: &mut [f64]) {
        let (rows, dim) = (matrix.rows(), matrix.dim());
        if rows > 0 {
            for (weights, out) in weights.chunks_exact(rows).zip(out.chunks_exact_mut(dim)) {
                matrix.multiply_transposed_add(0..rows, weights, out);
            }
        }
    }

    /// Turns margins into the derivatives of the losses, times the weight of a row.
    fn derivatives(&mut self) {
        let (rows, weight) = (self.labels.len(), self.weight);
        match self.loss {
            Loss::Ridge => {
                for (margin, y) in self.margins.iter_mut().zip(&self.labels) {
                    *margin = weight * (*margin - y);
                }
            }
            Loss::Logistic => {
                for (margin, y) in self.margins.iter_mut().zip(&self.labels) {
                    *margin = -weight * y * sigmoid(-y * *margin);
                }
            }
            Loss::Softmax { classes } => {
                for i in 0..rows {
                    softmax(&mut self.margins, rows, classes, i);
                    self.margins[self.labels[i] as usize * rows + i] -= 1.0;
                    for c in 0..classes {
                        self.margins[c * rows + i] *= weight;
                    }
                }
            }
        }
        Self::count_rows(&self.counts, &mut self.margins);
    }

    fn add_regulariser_gradient(&self, x: &[f64], out: &mut [f64]) {
        for (out, &x) in out.iter_mut().zip(x) {
            let square = 1.0 + x * x;
            *out += self.alpha * x + self.nonconvex * 2.0 * x / (square * square);
        }
    }
}

impl Objective for Linear {
    fn dim(&self) -> usize {
        self.matrix.dim() * self.blocks()
    }

    fn layout(&self) -> Layout {
        match self.loss {
            Loss::Softmax { classes } => Layout::new([("weight".to_owned(), vec![classes, self.matrix.dim()])]),
            _ => Layout::vector(self.dim()),
        }
    }

    fn blocks(&self) -> usize {
        match self.loss {
            Loss::Softmax { classes } => classes,
            _ => 1,
        }
    }

    fn value(&mut self, x: &[f64]) -> f64 {
        Self::multiply(&self.matrix, x, &mut self.margins);
        let rows = self.labels.len();
        let row_loss = |i: usize| {
            let (margin, y) = (self.margins[i], self.labels[i]);
            match self.loss {
                Loss::Ridge => 0.5 * (margin - y) * (margin - y),
                Loss::Logistic => log1p_exp(-y * margin),
                Loss::Softmax { classes } => {
                    let margin = |c: usize| self.margins[c * rows + i];
                    let top = (0..classes).map(margin).fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = (0..classes).map(|c| (margin(c) - top).exp()).sum();
                    top + sum.ln() - margin(y as usize)
                }
            }
        };
        let loss: f64 = (0..rows).map(|i| self.count(i) * row_loss(i)).sum();
        let mut value = self.weight * loss + 0.5 * self.alpha * vector::norm_squared(x);
        if self.nonconvex != 0.0 {
            value += self.nonconvex * x.iter().map(|x| x * x / (1.0 + x * x)).sum::<f64>();
        }
        if self.proximal.l1 != 0.0 {
            value += self.proximal.l1 * x.iter().map(|x| x.abs()).sum::<f64>();
        }
        value
    }

    fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        Self::multiply(&self.matrix, x, &mut self.margins);
        self.derivatives();
        out.fill(0.0);
        Self::multiply_back(&self.matrix, &self.margins, out);
        self.add_regulariser_gradient(x, out);
    }

    fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        let (rows, weight) = (self.labels.len(), self.weight);
        Self::multiply(&self.matrix, v, &mut self.other);
        match self.loss {
            Loss::Ridge => self.other.iter_mut().for_each(|v| *v *= weight),
            Loss::Logistic => {
                Self::multiply(&self.matrix, x, &mut self.margins);
                for (v, margin) in self.other.iter_mut().zip(&self.margins) {
                    let p = sigmoid(*margin);
                    *v *= weight * p * (1.0 - p);
                }
            }
            Loss::Softmax { classes } => {
                Self::multiply(&self.matrix, x, &mut self.margins);
                for i in 0..rows {
                    softmax(&mut self.margins, rows, classes, i);
                    let mean: f64 = (0..classes).map(|c| self.margins[c * rows + i] * self.other[c * rows + i]).sum();
                    for c in 0..classes {
                        let at = c * rows + i;
                        self.other[at] = weight * self.margins[at] * (self.other[at] - mean);
                    }
                }
            }
        }
        Self::count_rows(&self.counts, &mut self.other);
        out.fill(0.0);
        Self::multiply_back(&self.matrix, &self.other, out);
        for ((out, &x), &v) in out.iter_mut().zip(x).zip(v) {
            let square = 1.0 + x * x;
            *out += (self.alpha + self.nonconvex * (2.0 - 6.0 * x * x) / (square * square * square)) * v;
        }
    }

    fn image(&mut self, v: &[f64]) -> Vec<f64> {
        let mut image = vec![0.0; self.margins.len()];
        Self::multiply(&self.matrix, v, &mut image);
        image
    }

    fn gram(&mut self, x: &[f64], directions: &[&[f64]], images: &[&[f64]]) -> Vec<f64> {
        let (rows, weight) = (self.labels.len(), self.weight);
        if self.loss != Loss::Ridge {
            Self::multiply(&self.matrix, x, &mut self.margins);
        }
        let mut gram = Vec::with_capacity(directions.len() * (directions.len() + 1) / 2);
        if let Loss::Softmax { classes } = self.loss {
            (0..rows).for_each(|i| softmax(&mut self.margins, rows, classes, i));
        }
        for a in 0..directions.len() {
            // The image of a, times the Hessian of the losses in the margins.
            for i in 0..rows {
                match self.loss {
                    Loss::Ridge => self.other[i] = weight * images[a][i],
                    Loss::Logistic => {
                        let p = sigmoid(self.margins[i]);
                        self.other[i] = weight * p * (1.0 - p) * images[a][i];
                    }
                    Loss::Softmax { classes } => {
                        let at = |c: usize| c * rows + i;
                        let mean: f64 = (0..classes).map(|c| self.margins[at(c)] * images[a][at(c)]).sum();
                        for c in 0..classes {
                            self.other[at(c)] = weight * self.margins[at(c)] * (images[a][at(c)] - mean);
                        }
                    }
                }
            }
            Self::count_rows(&self.counts, &mut self.other);
            for b in 0..=a {
                let mut product =
                    vector::dot(&self.other, images[b]) + self.alpha * vector::dot(directions[a], directions[b]);
                if self.nonconvex != 0.0 {
                    product += self.nonconvex
                        * (0..x.len())
                            .map(|j| {
                                let square = 1.0 + x[j] * x[j];
                                (2.0 - 6.0 * x[j] * x[j]) / (square * square * square)
                                    * directions[a][j]
                                    * directions[b][j]
                            })
                            .sum::<f64>();
                }
                gram.push(product);
            }
        }
        gram
    }

    fn bound_vector(&mut self, _: &[f64], v: &[f64], out: &mut [f64]) {
        let (rows, weight) = (self.labels.len(), self.weight * self.smoothness());
        Self::multiply(&self.matrix, v, &mut self.other);
        if let Loss::Softmax { classes } = self.loss {
            // (1/2)(I - 11'/k) dominates every softmax Hessian (Boehning 1992).
            for i in 0..rows {
                let mean = (0..classes).map(|c| self.other[c * rows + i]).sum::<f64>() / classes as f64;
                (0..classes).for_each(|c| self.other[c * rows + i] -= mean);
            }
        }
        self.other.iter_mut().for_each(|v| *v *= weight);
        Self::count_rows(&self.counts, &mut self.other);
        out.fill(0.0);
        Self::multiply_back(&self.matrix, &self.other, out);
        vector::add_scaled(self.alpha + 2.0 * self.nonconvex, v, out);
    }

    fn bound_trace(&self) -> Option<f64> {
        let norms = self.matrix.row_norms();
        let squares: f64 = norms.iter().enumerate().map(|(i, norm)| self.count(i) * norm * norm).sum();
        let directions = match self.loss {
            Loss::Softmax { classes } => classes as f64 - 1.0,
            _ => 1.0,
        };
        let rows = self.weight * self.smoothness() * directions * squares;
        Some(rows + self.dim() as f64 * (self.alpha + 2.0 * self.nonconvex))
    }

    fn strong_convexity(&self) -> f64 {
        if self.nonconvex == 0.0 { self.alpha } else { 0.0 }
    }

    fn is_quadratic(&self) -> bool {
        self.loss == Loss::Ridge && self.nonconvex == 0.0
    }

    fn is_convex(&self) -> bool {
        self.nonconvex == 0.0
    }

    fn rows(&self) -> usize {
        self.labels.len()
    }

    fn batch_gradient(&mut self, x: &[f64], rows: &[usize], _: &mut Words, out: &mut [f64]) {
        out.fill(0.0);
        if !rows.is_empty() {
            let dim = self.matrix.dim();
            // A batch stands for all rows of the machine.
            let weight = self.weight * self.labels.len() as f64 / rows.len() as f64;
            for &i in rows {
                let (y, weight) = (self.labels[i], weight * self.count(i));
                match self.loss {
                    Loss::Ridge => self.matrix.axpy(i, weight * (self.matrix.dot(i, x) - y), out),
                    Loss::Logistic => {
                        let margin = self.matrix.dot(i, x);
                        self.matrix.axpy(i, -weight * y * sigmoid(-y * margin), out);
                    }
                    Loss::Softmax { classes } => {
                        let mut p: Vec<f64> = x.chunks_exact(dim).map(|x| self.matrix.dot(i, x)).collect();
                        softmax(&mut p, 1, classes, 0);
                        p[y as usize] -= 1.0;
                        for (p, out) in p.into_iter().zip(out.chunks_exact_mut(dim)) {
                            self.matrix.axpy(i, weight * p, out);
                        }
                    }
                }
            }
        }
        self.add_regulariser_gradient(x, out);
    }

    fn proximal(&self) -> Proximal {
        self.proximal
    }

    fn curved(&mut self) -> Option<&mut dyn Curved> {
        (self.nonconvex == 0.0).then_some(self as &mut dyn Curved)
    }
}

/// Gram matrices up to this size are solved whole; larger ones by Lanczos' recursion.
const LARGEST_GRAM: usize = 1600;

impl Linear {
    /// The weight of every row in the Hessian at x, or in that of a class of softmax: a row's (diag(p) - pp') is taken for a multiple of
    /// (I - 11'/k) with the same trace, which it is where all classes are as likely.
    fn row_curvatures(&mut self, x: &[f64]) -> Vec<f64> {
        let rows = self.labels.len();
        let mut curvatures = match self.loss {
            Loss::Logistic => {
                Self::multiply(&self.matrix, x, &mut self.margins);
                let curvature = |margin: &f64| {
                    let p = sigmoid(*margin);
                    self.weight * p * (1.0 - p)
                };
                self.margins.iter().map(curvature).collect()
            }
            Loss::Softmax { classes } => {
                Self::multiply(&self.matrix, x, &mut self.margins);
                let share = self.weight / (classes as f64 - 1.0).max(1.0);
                let curvature = |i: usize| {
                    softmax(&mut self.margins, rows, classes, i);
                    share * (0..classes).map(|c| self.margins[c * rows + i]).map(|p| p * (1.0 - p)).sum::<f64>()
                };
                (0..rows).map(curvature).collect()
            }
            Loss::Ridge => vec![self.weight; rows],
        };
        Self::count_rows(&self.counts, &mut curvatures);
        curvatures
    }

    /// Eigenpairs of B' diag(weights) B by the rows' own Gram matrix, which is the smaller side.
    fn pairs_of_rows(&self, weights: &[f64]) -> Eigen {
        let (rows, dim) = (self.matrix.rows(), self.matrix.dim());
        let mut gram = vec![0.0; rows * rows];
        let mut row = vec![0.0; dim];
        for i in 0..rows {
            row.fill(0.0);
            self.matrix.axpy(i, weights[i].sqrt(), &mut row);
            for j in 0..=i {
                gram[i * rows + j] = weights[j].sqrt() * self.matrix.dot(j, &row);
            }
        }
        self.lift(weights, eigen::pairs(gram, rows))
    }

    /// The same by Lanczos' recursion, whose vectors are as short as there are rows.
    fn outer_pairs_of_rows(&self, weights: &[f64], most: usize) -> Eigen {
        let (rows, dim) = (self.matrix.rows(), self.matrix.dim());
        let roots: Vec<f64> = weights.iter().map(|weight| weight.sqrt()).collect();
        let (mut scaled, mut image) = (vec![0.0; rows], vec![0.0; dim]);
        let krylov = eigen::lanczos(&eigen::irregular(rows, 0), lanczos_steps(most, rows), |v, out| {
            scaled.iter_mut().zip(v).zip(&roots).for_each(|((s, v), root)| *s = v * root);
            image.fill(0.0);
            self.matrix.multiply_transposed_add(0..rows, &scaled, &mut image);
            self.matrix.multiply(0..rows, &image, out);
            out.iter_mut().zip(&roots).for_each(|(out, root)| *out *= root);
        });
        self.lift(weights, krylov.pairs(most))
    }

    /// Eigenpairs of B' diag(weights) B from those of the rows' Gram matrix.
    fn lift(&self, weights: &[f64], Eigen { values, vectors }: Eigen) -> Eigen {
        let (rows, dim) = (self.matrix.rows(), self.matrix.dim());
        let lift = |(value, vector): (&f64, &Vec<f64>)| {
            let mut lifted = vec![0.0; dim];
            if *value > 0.0 {
                let scale = 1.0 / value.sqrt();
                (0..rows).for_each(|i| self.matrix.axpy(i, scale * weights[i].sqrt() * vector[i], &mut lifted));
            }
            lifted
        };
        // Only those that are more than rounding are worth lifting.
        let real = values.iter().take_while(|&&value| value > 1e-10 * values[0].max(0.0)).count();
        let vectors = values[..real].iter().zip(&vectors).map(lift).collect();
        Eigen { values: values[..real].to_vec(), vectors }
    }
}

/// Eigenpairs of a positive semidefinite matrix, of which the lower triangle is read. Coordinates without any are left out: of MNIST's columns
/// a fifth is empty, and the time goes with the third power.
fn pairs_of_columns(gram: Vec<f64>, dim: usize) -> Eigen {
    let some: Vec<usize> = (0..dim).filter(|&j| gram[j * dim + j] > 0.0).collect();
    if some.len() == dim {
        return eigen::pairs(gram, dim);
    }
    let size = some.len();
    let mut smaller = vec![0.0; size * size];
    for (a, i) in some.iter().enumerate() {
        some[..=a].iter().enumerate().for_each(|(b, j)| smaller[a * size + b] = gram[i * dim + j]);
    }
    let Eigen { values, vectors } = eigen::pairs(smaller, size);
    let spread = |vector: &Vec<f64>| {
        let mut whole = vec![0.0; dim];
        some.iter().zip(vector).for_each(|(&j, value)| whole[j] = *value);
        whole
    };
    Eigen { values, vectors: vectors.iter().map(spread).collect() }
}

/// Three times as many steps as pairs are wanted, and some: the outer eigenvalues have converged by then.
fn lanczos_steps(most: usize, size: usize) -> usize {
    3 * most.min(size) + 60
}

impl Curved for Linear {
    fn eigenpairs(&mut self, x: &[f64], always: usize, most: usize, least: f64) -> Eigen {
        let (rows, dim) = (self.matrix.rows(), self.matrix.dim());
        if rows == 0 {
            return Eigen { values: Vec::new(), vectors: Vec::new() };
        }
        let weights = self.row_curvatures(x);
        let small = rows.min(dim);
        let found = if small > LARGEST_GRAM && rows < dim {
            self.outer_pairs_of_rows(&weights, most)
        } else if small > LARGEST_GRAM || most.saturating_mul(4) < small {
            let mut product = vec![0.0; rows];
            let krylov = eigen::lanczos(&eigen::irregular(dim, 0), lanczos_steps(most, dim), |v, out| {
                self.matrix.multiply(0..rows, v, &mut product);
                product.iter_mut().zip(&weights).for_each(|(p, w)| *p *= w);
                out.fill(0.0);
                self.matrix.multiply_transposed_add(0..rows, &product, out);
            });
            krylov.pairs(most)
        } else if rows < dim {
            self.pairs_of_rows(&weights)
        } else {
            let mut gram = vec![0.0; dim * dim];
            self.matrix.gram(&weights, &mut gram);
            pairs_of_columns(gram, dim)
        };
        wanted(found, always, most, least)
    }

    fn trace(&mut self, x: &[f64]) -> f64 {
        let weights = self.row_curvatures(x);
        self.matrix.row_norms().iter().zip(&weights).map(|(norm, weight)| weight * norm * norm).sum()
    }

    fn root_rows(&self) -> usize {
        self.matrix.rows()
    }

    fn combine_root(&mut self, x: &[f64], coefficients: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let roots: Vec<f64> = self.row_curvatures(x).iter().map(|weight| weight.sqrt()).collect();
        let combine = |row: &Vec<f64>| {
            let product: Vec<f64> = row.iter().zip(&roots).map(|(c, root)| c * root).collect();
            let mut out = vec![0.0; self.matrix.dim()];
            self.matrix.multiply_transposed_add(0..self.matrix.rows(), &product, &mut out);
            out
        };
        coefficients.iter().map(combine).collect()
    }

    fn touched(&self) -> Vec<bool> {
        let mut touched = vec![false; self.matrix.dim()];
        for row in self.matrix.iter() {
            row.entries().filter(|entry| entry.1 != 0.0).for_each(|(column, _)| touched[column] = true);
        }
        touched
    }

    fn column_rows(&self) -> Vec<f64> {
        let (mut squares, mut fourths) = (vec![0.0; self.matrix.dim()], vec![0.0; self.matrix.dim()]);
        for (column, value) in self.matrix.iter().flat_map(|row| row.entries()) {
            squares[column] += value * value;
            fourths[column] += value.powi(4);
        }
        squares.iter().zip(&fourths).map(|(square, fourth)| square * square / fourth.max(f64::MIN_POSITIVE)).collect()
    }

    fn row_scatter(&mut self, x: &[f64], directions: &[Vec<f64>]) -> f64 {
        let rows = self.matrix.rows();
        if rows < 2 || directions.is_empty() {
            return 0.0;
        }
        Self::multiply(&self.matrix, x, &mut self.margins);
        self.derivatives();
        let slopes = &self.margins;
        let mut products = vec![0.0; slopes.len()];
        let variance = |direction: &Vec<f64>| {
            Self::multiply(&self.matrix, direction, &mut products);
            let along = |i: usize| -> f64 {
                slopes.iter().zip(&products).skip(i).step_by(rows).map(|(slope, product)| slope * product).sum()
            };
            let (sum, squares) = (0..rows).map(along).fold((0.0, 0.0), |(sum, squares), t| (sum + t, squares + t * t));
            ((squares - sum * sum / rows as f64) / (rows as f64 - 1.0)).max(0.0)
        };
        directions.iter().map(variance).sum::<f64>() / directions.len() as f64
    }
}

fn sigmoid(t: f64) -> f64 {
    if t >= 0.0 {
        1.0 / (1.0 + (-t).exp())
    } else {
        let e = t.exp();
        e / (1.0 + e)
    }
}

/// ln(1 + exp(t)) without overflow.
fn log1p_exp(t: f64) -> f64 {
    if t > 0.0 { t + (-t).exp().ln_1p() } else { t.exp().ln_1p() }
}

/// Turns row i's margins (one a class, `rows` apart) into probabilities.
fn softmax(margins: &mut [f64], rows: usize, classes: usize, i: usize) {
    let top = (0..classes).map(|c| margins[c * rows + i]).fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for c in 0..classes {
        let e = (margins[c * rows + i] - top).exp();
        margins[c * rows + i] = e;
        sum += e;
    }
    (0..classes).for_each(|c| margins[c * rows + i] /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More rows than a Gram matrix is solved for, and still more columns: the recursion runs on the rows' side.
    #[test]
    fn eigenpairs_of_many_rows_and_more_columns_are_those_of_the_hessian() {
        let (rows, dim, alpha) = (LARGEST_GRAM + 100, 2 * LARGEST_GRAM, 0.5);
        let column = |row: usize, k: usize| (row * row * 31 + row * 7 + 611 * k) % dim;
        let mut indices: Vec<Vec<u32>> = (0..rows).map(|row| (0..5).map(|k| column(row, k) as u32).collect()).collect();
        // All rows share one column, which makes the largest eigenvalue stand apart.
        indices.iter_mut().for_each(|row| {
            row.push(0);
            row.sort_unstable();
            row.dedup();
        });
        let offsets = std::iter::once(0).chain(indices.iter().scan(0, |sum, row| {
            *sum += row.len();
            Some(*sum)
        }));
        let offsets: Vec<usize> = offsets.collect();
        let flat = indices.concat();
        let values = (0..flat.len()).map(|k| 0.5 + (k % 7) as f64 / 7.0).collect();
        let matrix = Matrix::sparse(offsets, flat, values, dim);
        let labels = (0..rows).map(|row| if row % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let mut linear = Linear::new(matrix, labels, Loss::Logistic, 1.0 / rows as f64, alpha);
        let x = vec![0.0; dim];
        let Eigen { values, vectors } = linear.eigenpairs(&x, 3, 3, 0.0);
        assert_eq!(values.len(), 3);
        let mut image = vec![0.0; dim];
        for (value, vector) in values.iter().zip(&vectors) {
            linear.hessian_vector(&x, vector, &mut image);
            // Pairs count without alpha; the recursion ends at a thousandth of an eigenvalue.
            vector::add_scaled(-(value + alpha), vector, &mut image);
            assert!(
                vector::norm_squared(&image).sqrt() < 2e-3 * value,
                "{value}: {}",
                vector::norm_squared(&image).sqrt()
            );
            assert!((vector::norm_squared(vector) - 1.0).abs() < 1e-9);
        }
        assert!(vector::dot(&vectors[0], &vectors[1]).abs() < 1e-9);
    }
}
