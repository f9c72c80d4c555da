//! Synthetic quadratics with a known spectrum: f_i(x) = (1/2) x' diag(lambda) x + b_i' x, where the b_i of all machines cancel.

use corewire_algebra::eigen::Eigen;

use super::{Curved, Objective, wanted};

/// One machine's share of a diagonal quadratic.
pub struct Quadratic {
    eigenvalues: Vec<f64>,
    linear: Vec<f64>,
}

impl Quadratic {
    /// From the eigenvalues, which all machines share, and this machine's linear term.
    ///
    /// # Panics
    /// If the two differ in length.
    pub fn new(eigenvalues: Vec<f64>, linear: Vec<f64>) -> Self {
        assert_eq!(eigenvalues.len(), linear.len(), "a linear term has a coordinate an eigenvalue");
        Self { eigenvalues, linear }
    }

    /// The eigenvalues i^-decay + alpha.
    pub fn power_law(dim: usize, decay: f64, alpha: f64) -> Vec<f64> {
        (1..=dim).map(|i| libm::pow(i as f64, -decay) + alpha).collect()
    }
}

impl Objective for Quadratic {
    fn dim(&self) -> usize {
        self.eigenvalues.len()
    }

    fn value(&mut self, x: &[f64]) -> f64 {
        let terms = self.eigenvalues.iter().zip(&self.linear).zip(x);
        terms.map(|((l, b), x)| 0.5 * l * x * x + b * x).sum()
    }

    fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        for (((out, l), b), x) in out.iter_mut().zip(&self.eigenvalues).zip(&self.linear).zip(x) {
            *out = l * x + b;
        }
    }

    fn hessian_vector(&mut self, _: &[f64], v: &[f64], out: &mut [f64]) {
        for ((out, l), v) in out.iter_mut().zip(&self.eigenvalues).zip(v) {
            *out = l * v;
        }
    }

    fn bound_trace(&self) -> Option<f64> {
        Some(self.eigenvalues.iter().sum())
    }

    fn strong_convexity(&self) -> f64 {
        self.eigenvalues.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn is_quadratic(&self) -> bool {
        true
    }

    fn rows(&self) -> usize {
        1
    }

    fn curved(&mut self) -> Option<&mut dyn Curved> {
        Some(self)
    }
}

impl Curved for Quadratic {
    fn eigenpairs(&mut self, _: &[f64], always: usize, most: usize, least: f64) -> Eigen {
        let dim = self.eigenvalues.len();
        let smallest = self.strong_convexity();
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| self.eigenvalues[b].total_cmp(&self.eigenvalues[a]).then(a.cmp(&b)));
        // Before they are written out, d numbers each.
        let above = order.iter().take_while(|&&k| self.eigenvalues[k] - smallest > least).count();
        order.truncate(most.min(above.max(always)));
        let unit = |&k: &usize| {
            let mut unit = vec![0.0; dim];
            unit[k] = 1.0;
            unit
        };
        let values = order.iter().map(|&k| self.eigenvalues[k] - smallest).collect();
        wanted(Eigen { values, vectors: order.iter().map(unit).collect() }, always, most, least)
    }

    fn trace(&mut self, _: &[f64]) -> f64 {
        self.eigenvalues.iter().sum::<f64>() - self.strong_convexity() * self.eigenvalues.len() as f64
    }

    fn root_rows(&self) -> usize {
        self.eigenvalues.len()
    }

    fn combine_root(&mut self, _: &[f64], coefficients: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let smallest = self.strong_convexity();
        let entry = |(c, value): (&f64, &f64)| c * (value - smallest).max(0.0).sqrt();
        coefficients.iter().map(|row| row.iter().zip(&self.eigenvalues).map(entry).collect()).collect()
    }

    fn touched(&self) -> Vec<bool> {
        vec![true; self.eigenvalues.len()]
    }

    fn column_rows(&self) -> Vec<f64> {
        vec![f64::INFINITY; self.eigenvalues.len()]
    }

    fn row_scatter(&mut self, _: &[f64], _: &[Vec<f64>]) -> f64 {
        0.0
    }
}
