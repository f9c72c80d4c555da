//! What a trained model says of rows: scores, classes, and how well they fit.

use corewire_algebra::vector;
use corewire_data::DataSet;

use crate::objective::{Linear, Loss, Objective, TwoLayer};
use crate::problem::Model;
use crate::score::{HeldOut, Score};

/// A score per class for one row; one score for models without classes.
pub fn scores(model: Model, classes: usize, x: &[f64], set: &DataSet, row: usize) -> Vec<f64> {
    let dim = set.dim();
    match model {
        Model::Softmax => x.chunks_exact(dim).map(|x| set.matrix.dot(row, x)).collect(),
        Model::TwoLayer { hidden } => {
            let (w1, rest) = x.split_at(hidden * dim);
            let (b1, rest) = rest.split_at(hidden);
            let (w2, b2) = rest.split_at(classes * hidden);
            let unit = |k: usize| (set.matrix.dot(row, &w1[k * dim..(k + 1) * dim]) + b1[k]).tanh();
            let units: Vec<f64> = (0..hidden).map(unit).collect();
            (0..classes).map(|c| vector::dot(&w2[c * hidden..(c + 1) * hidden], &units) + b2[c]).collect()
        }
        _ => vec![set.matrix.dot(row, x)],
    }
}

/// The place of the largest score; of equals the last.
pub fn largest(scores: &[f64]) -> usize {
    (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0)
}

/// Prepared rows that are held out, for a model.
pub struct HeldOutRows {
    /// The rows, prepared as those of training were.
    pub set: DataSet,
    /// The model.
    pub model: Model,
    /// Its classes, where labels are such.
    pub classes: usize,
    /// Whether labels are the sides +-1.
    pub sides: bool,
}

impl HeldOutRows {
    /// The mean loss of the rows, without regulariser.
    fn loss(&self, x: &[f64]) -> f64 {
        let (set, weight) = (&self.set, 1.0 / self.set.rows().max(1) as f64);
        let linear = |loss| Linear::new(set.matrix.clone(), set.labels.clone(), loss, weight, 0.0).value(x);
        match self.model {
            Model::Ridge => linear(Loss::Ridge),
            Model::Softmax => linear(Loss::Softmax { classes: self.classes }),
            Model::TwoLayer { hidden } => {
                let labels = set.labels.iter().map(|&label| label as usize).collect();
                TwoLayer::new(set.matrix.clone(), labels, hidden, self.classes, weight, 0.0).value(x)
            }
            Model::Logistic | Model::LogisticNonconvex { .. } => linear(Loss::Logistic),
        }
    }
}

impl HeldOut for HeldOutRows {
    fn sums(&mut self, x: &[f64]) -> [f64; Score::SUMS] {
        let rows = self.set.rows() as f64;
        let (mut right, mut squares, mut targets, mut squared_targets) = (0.0, 0.0, 0.0, 0.0);
        for i in 0..self.set.rows() {
            let (scores, label) = (scores(self.model, self.classes, x, &self.set, i), self.set.labels[i]);
            if self.model.has_classes() {
                right += f64::from(u8::from(largest(&scores) as f64 == label));
            } else if self.sides {
                right += f64::from(u8::from((scores[0] >= 0.0) == (label >= 0.0)));
            }
            squares += (scores[0] - label) * (scores[0] - label);
            targets += label;
            squared_targets += label * label;
        }
        let classified = if self.sides || self.model.has_classes() { rows } else { 0.0 };
        [rows, rows * self.loss(x), right, squares, targets, squared_targets, classified]
    }
}
