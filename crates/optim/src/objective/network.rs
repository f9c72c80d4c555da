//! A two-layer network written out by hand: one hidden layer of tanh units, a softmax on top. Small, non-convex, and easy to check.

use corewire_data::Matrix;
use corewire_sketch::Words;

use super::Objective;
use crate::layout::Layout;

/// One machine's rows under a network of `hidden` units: W1 (hidden x inputs), b1, W2 (classes x hidden), b2, in this order.
pub struct TwoLayer {
    matrix: Matrix,
    labels: Vec<usize>,
    hidden: usize,
    classes: usize,
    weight: f64,
    alpha: f64,
}

impl TwoLayer {
    /// A network on these rows, each of weight `weight` (n/N).
    ///
    /// # Panics
    /// If there is not one label a row, below `classes`.
    pub fn new(matrix: Matrix, labels: Vec<usize>, hidden: usize, classes: usize, weight: f64, alpha: f64) -> Self {
        assert_eq!(matrix.rows(), labels.len(), "every row has its label");
        assert!(labels.iter().all(|&label| label < classes), "a label is the index of a class");
        Self { matrix, labels, hidden, classes, weight, alpha }
    }

    /// How many parameters such a network has.
    pub fn parameters(inputs: usize, hidden: usize, classes: usize) -> usize {
        hidden.saturating_mul(inputs + 1).saturating_add(classes.saturating_mul(hidden.saturating_add(1)))
    }

    /// Adds the gradient of the rows, each times `weight`, to `out`, and returns their loss times `weight`.
    fn accumulate(
        &self,
        x: &[f64],
        rows: impl Iterator<Item = usize>,
        weight: f64,
        mut out: Option<&mut [f64]>,
    ) -> f64 {
        let (inputs, hidden, classes) = (self.matrix.dim(), self.hidden, self.classes);
        let (w1, rest) = x.split_at(hidden * inputs);
        let (b1, rest) = rest.split_at(hidden);
        let (w2, b2) = rest.split_at(classes * hidden);
        let (mut activation, mut logits, mut back) = (vec![0.0; hidden], vec![0.0; classes], vec![0.0; hidden]);
        let mut loss = 0.0;
        for i in rows {
            for k in 0..hidden {
                activation[k] = (self.matrix.dot(i, &w1[k * inputs..(k + 1) * inputs]) + b1[k]).tanh();
            }
            for c in 0..classes {
                logits[c] = corewire_algebra::vector::dot(&w2[c * hidden..(c + 1) * hidden], &activation) + b2[c];
            }
            let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|logit| (logit - top).exp()).sum();
            loss += top + sum.ln() - logits[self.labels[i]];
            let Some(out) = out.as_deref_mut() else { continue };
            let (out1, rest) = out.split_at_mut(hidden * inputs);
            let (out_b1, rest) = rest.split_at_mut(hidden);
            let (out2, out_b2) = rest.split_at_mut(classes * hidden);
            back.fill(0.0);
            for c in 0..classes {
                let p = (logits[c] - top).exp() / sum - f64::from(u8::from(c == self.labels[i]));
                out_b2[c] += weight * p;
                corewire_algebra::vector::add_scaled(weight * p, &activation, &mut out2[c * hidden..(c + 1) * hidden]);
                corewire_algebra::vector::add_scaled(p, &w2[c * hidden..(c + 1) * hidden], &mut back);
            }
            for k in 0..hidden {
                let slope = weight * back[k] * (1.0 - activation[k] * activation[k]);
                out_b1[k] += slope;
                self.matrix.axpy(i, slope, &mut out1[k * inputs..(k + 1) * inputs]);
            }
        }
        weight * loss
    }
}

impl Objective for TwoLayer {
    fn dim(&self) -> usize {
        Self::parameters(self.matrix.dim(), self.hidden, self.classes)
    }

    fn layout(&self) -> Layout {
        let (inputs, hidden, classes) = (self.matrix.dim(), self.hidden, self.classes);
        Layout::new([
            ("hidden.weight".to_owned(), vec![hidden, inputs]),
            ("hidden.bias".to_owned(), vec![hidden]),
            ("output.weight".to_owned(), vec![classes, hidden]),
            ("output.bias".to_owned(), vec![classes]),
        ])
    }

    fn value(&mut self, x: &[f64]) -> f64 {
        self.accumulate(x, 0..self.labels.len(), self.weight, None)
            + 0.5 * self.alpha * corewire_algebra::vector::norm_squared(x)
    }

    fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        self.accumulate(x, 0..self.labels.len(), self.weight, Some(out));
        corewire_algebra::vector::add_scaled(self.alpha, x, out);
    }

    /// By central differences of the gradient: enough for traces and probes, which are estimates themselves.
    fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        let length = corewire_algebra::vector::norm_squared(v).sqrt();
        if length == 0.0 {
            out.fill(0.0);
            return;
        }
        let step = 1e-5 / length;
        let shifted = |sign: f64| x.iter().zip(v).map(|(x, v)| x + sign * step * v).collect::<Vec<f64>>();
        let mut minus = vec![0.0; out.len()];
        self.gradient(&shifted(1.0), out);
        self.gradient(&shifted(-1.0), &mut minus);
        for (out, minus) in out.iter_mut().zip(minus) {
            *out = (*out - minus) / (2.0 * step);
        }
    }

    fn strong_convexity(&self) -> f64 {
        0.0
    }

    fn is_convex(&self) -> bool {
        false
    }

    fn rows(&self) -> usize {
        self.labels.len()
    }

    fn batch_gradient(&mut self, x: &[f64], rows: &[usize], _: &mut Words, out: &mut [f64]) {
        out.fill(0.0);
        if !rows.is_empty() {
            let weight = self.weight * self.labels.len() as f64 / rows.len() as f64;
            self.accumulate(x, rows.iter().copied(), weight, Some(out));
        }
        corewire_algebra::vector::add_scaled(self.alpha, x, out);
    }
}
