//! What a trained model says of rows: scores, classes, and how well they fit.

use corewire_algebra::vector;
use corewire_data::DataSet;

use crate::objective::{Linear, Loss, Objective, TwoLayer, layered};
use crate::problem::Model;
use crate::score::{HeldOut, Score};

/// What a model knows of the rows it was trained on beside x: the statistics of batch norms. Empty for all others.
///
/// They are no part of the training, where every batch has its own: they follow from x and rows, so that neither the journal nor the
/// machines have to carry them.
pub fn statistics(model: Model, classes: usize, x: &[f64], training: &DataSet) -> Vec<f64> {
    if !model.is_network() || training.rows() == 0 {
        return Vec::new();
    }
    let rows: Vec<usize> = (0..training.rows().min(STATISTICS_ROWS)).collect();
    let network = model.network(training.dim(), classes);
    let pixels = layered::pixels(&training.matrix.select(&rows));
    network.statistics(&layered::narrow(x), &pixels).into_iter().map(f64::from).collect()
}

/// Rows that statistics are taken of.
pub const STATISTICS_ROWS: usize = 512;
/// Rows that are scored together.
const TOGETHER: usize = 64;

/// A score per class for every row; one score for models without classes. `statistics` are those of [`statistics`].
pub fn scores(model: Model, classes: usize, x: &[f64], statistics: &[f64], set: &DataSet) -> Vec<Vec<f64>> {
    if !model.is_network() {
        return (0..set.rows()).map(|row| row_scores(model, classes, x, set, row)).collect();
    }
    let network = model.network(set.dim(), classes);
    let (x, statistics) = (layered::narrow(x), layered::narrow(statistics));
    let rows: Vec<usize> = (0..set.rows()).collect();
    let part = |rows: &[usize]| network.scores(&x, &layered::pixels(&set.matrix.select(rows)), &statistics);
    let wide = |scores: &[f32]| scores.iter().map(|&score| f64::from(score)).collect();
    rows.chunks(TOGETHER).flat_map(|rows| part(rows).chunks_exact(classes).map(wide).collect::<Vec<_>>()).collect()
}

fn row_scores(model: Model, classes: usize, x: &[f64], set: &DataSet, row: usize) -> Vec<f64> {
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

fn largest_of(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)
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
    /// Where statistics of batch norms come from.
    pub known: Known,
}

/// Where the statistics of batch norms come from.
pub enum Known {
    /// From these rows, at every x anew.
    Rows(DataSet),
    /// They are these, for one x.
    Statistics(Vec<f64>),
}

impl HeldOutRows {
    fn scores(&self, x: &[f64]) -> Vec<Vec<f64>> {
        let found = match &self.known {
            Known::Rows(rows) => &statistics(self.model, self.classes, x, rows),
            Known::Statistics(statistics) => statistics,
        };
        scores(self.model, self.classes, x, found, &self.set)
    }

    /// The mean loss of the rows, without regulariser.
    fn loss(&self, x: &[f64], scores: &[Vec<f64>]) -> f64 {
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
            Model::Network { .. } => {
                let loss = |(scores, label): (&Vec<f64>, &f64)| {
                    let own = scores[*label as usize];
                    let top = largest_of(scores);
                    top - own + scores.iter().map(|score| (score - top).exp()).sum::<f64>().ln()
                };
                weight * scores.iter().zip(&set.labels).map(loss).sum::<f64>()
            }
        }
    }
}

impl HeldOut for HeldOutRows {
    fn sums(&mut self, x: &[f64]) -> [f64; Score::SUMS] {
        let (rows, all) = (self.set.rows() as f64, self.scores(x));
        let (mut right, mut squares, mut targets, mut squared_targets) = (0.0, 0.0, 0.0, 0.0);
        for (scores, &label) in all.iter().zip(&self.set.labels) {
            if self.model.has_classes() {
                right += f64::from(u8::from(largest(scores) as f64 == label));
            } else if self.sides {
                right += f64::from(u8::from((scores[0] >= 0.0) == (label >= 0.0)));
            }
            squares += (scores[0] - label) * (scores[0] - label);
            targets += label;
            squared_targets += label * label;
        }
        let classified = if self.sides || self.model.has_classes() { rows } else { 0.0 };
        [rows, rows * self.loss(x, &all), right, squares, targets, squared_targets, classified]
    }
}

/// The probability of every class from its scores: of the negative and the positive side, where there is one score. `None` for ridge, whose
/// scores are no logarithms of odds.
pub fn probabilities(model: Model, scores: &[f64]) -> Option<Vec<f64>> {
    let margins = match (model, scores) {
        (Model::Ridge, _) => return None,
        (_, &[score]) => vec![0.0, score],
        (_, scores) => scores.to_vec(),
    };
    let top = largest_of(&margins);
    let powers: Vec<f64> = margins.iter().map(|margin| (margin - top).exp()).collect();
    let sum: f64 = powers.iter().sum();
    Some(powers.into_iter().map(|power| power / sum).collect())
}

/// How well classes are told apart.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassMetrics {
    /// The share of rows that are right.
    pub accuracy: f64,
    /// The mean over classes of the share of their rows that are right.
    pub balanced_accuracy: f64,
    /// Mean of -ln of the true class's probability.
    pub log_loss: Option<f64>,
    /// The probability that a row of the positive side has the larger score, for two sides that both occur.
    pub auc: Option<f64>,
    /// The share of rows of the largest class: who always says it is as often right.
    pub majority: f64,
}

/// How well numbers are met.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueMetrics {
    /// 1 - (squared errors)/(squared deviations from the mean).
    pub r2: f64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean absolute error.
    pub mae: f64,
}

/// What a model's predictions of prepared rows are worth.
#[derive(Clone, Debug, PartialEq)]
pub enum Metrics {
    /// Of classes.
    Classes(ClassMetrics),
    /// Of numbers.
    Values(ValueMetrics),
}

impl HeldOutRows {
    /// Everything that people ask of these rows.
    pub fn metrics(&self, x: &[f64]) -> Metrics {
        let rows = self.set.rows();
        let all = self.scores(x);
        if !self.sides && !self.model.has_classes() {
            let errors = || all.iter().zip(&self.set.labels).map(|(scores, label)| scores[0] - label);
            let mean = self.set.labels.iter().sum::<f64>() / rows as f64;
            let spread: f64 = self.set.labels.iter().map(|label| (label - mean) * (label - mean)).sum();
            let squares: f64 = errors().map(|error| error * error).sum();
            let mae = errors().map(f64::abs).sum::<f64>() / rows as f64;
            return Metrics::Values(ValueMetrics {
                r2: 1.0 - squares / spread,
                rmse: (squares / rows as f64).sqrt(),
                mae,
            });
        }
        let class = |row: usize| match self.sides {
            true => usize::from(self.set.labels[row] >= 0.0),
            false => self.set.labels[row] as usize,
        };
        let said = |row: usize| match self.sides {
            true => usize::from(all[row][0] >= 0.0),
            false => largest(&all[row]),
        };
        let counted = if self.sides { 2 } else { self.classes };
        let (mut there, mut right) = (vec![0.0; counted], vec![0.0; counted]);
        for row in 0..rows {
            there[class(row)] += 1.0;
            right[class(row)] += f64::from(u8::from(said(row) == class(row)));
        }
        let occurring: Vec<usize> = (0..counted).filter(|&class| there[class] > 0.0).collect();
        let balanced = occurring.iter().map(|&class| right[class] / there[class]).sum::<f64>() / occurring.len() as f64;
        let losses = (0..rows).map(|row| {
            // As others do, so that one impossible row does not make the mean infinite.
            probabilities(self.model, &all[row]).map(|p| -p[class(row)].max(f64::EPSILON).ln())
        });
        let log_loss = losses.sum::<Option<f64>>().map(|sum| sum / rows as f64);
        Metrics::Classes(ClassMetrics {
            accuracy: right.iter().sum::<f64>() / rows as f64,
            balanced_accuracy: balanced,
            log_loss,
            auc: (self.sides && occurring.len() == 2).then(|| auc(all.iter().map(|s| s[0]).zip((0..rows).map(class)))),
            majority: there.iter().copied().fold(0.0, f64::max) / rows as f64,
        })
    }
}

/// The area under the curve of true against false positives, by the ranks of the positives; equal scores share theirs.
fn auc(rows: impl Iterator<Item = (f64, usize)>) -> f64 {
    let mut rows: Vec<(f64, usize)> = rows.collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positives = rows.iter().filter(|row| row.1 == 1).count() as f64;
    let negatives = rows.len() as f64 - positives;
    let mut ranks = 0.0;
    let mut before = 0;
    for equal in rows.chunk_by(|a, b| a.0 == b.0) {
        let rank = before as f64 + (equal.len() as f64 + 1.0) / 2.0;
        ranks += rank * equal.iter().filter(|row| row.1 == 1).count() as f64;
        before += equal.len();
    }
    (ranks - positives * (positives + 1.0) / 2.0) / (positives * negatives)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewire_data::Matrix;

    fn rows(model: Model, labels: &[f64], sides: bool, classes: usize) -> HeldOutRows {
        let values = (0..labels.len()).map(|i| i as f64 - 1.5).collect();
        let set = DataSet::new("set", Matrix::dense(values, 1), labels.to_vec());
        HeldOutRows { set, model, classes, sides, known: Known::Statistics(Vec::new()) }
    }

    #[test]
    fn metrics_of_four_rows_are_those_by_hand() {
        // Scores -1.5, -0.5, 0.5, 1.5; one of each side is wrong.
        let Metrics::Classes(found) = rows(Model::Logistic, &[-1.0, 1.0, -1.0, 1.0], true, 0).metrics(&[1.0]) else {
            panic!("classes")
        };
        assert_eq!((found.accuracy, found.balanced_accuracy, found.majority), (0.5, 0.5, 0.5));
        // Of four pairs three are in order.
        assert_eq!(found.auc, Some(0.75));
        let loss = |margin: f64| (1.0 + (-margin).exp()).ln();
        let expected = (loss(1.5) + loss(-0.5) + loss(-0.5) + loss(1.5)) / 4.0;
        assert!((found.log_loss.unwrap() - expected).abs() < 1e-12);
        let Metrics::Values(found) = rows(Model::Ridge, &[-1.5, -0.5, 0.5, 3.5], false, 0).metrics(&[1.0]) else {
            panic!("values")
        };
        assert_eq!((found.rmse, found.mae), (1.0, 0.5));
        assert!((found.r2 - (1.0 - 4.0 / 14.0)).abs() < 1e-12, "{found:?}");
        assert_eq!(auc([(0.0, 1), (0.0, 0), (0.0, 1)].into_iter()), 0.5);
    }

    #[test]
    fn an_unbalanced_class_counts_as_much_in_the_balanced_accuracy() {
        let Metrics::Classes(found) = rows(Model::Softmax, &[0.0, 1.0, 1.0, 1.0], false, 3).metrics(&[0.0, 1.0, -9.0])
        else {
            panic!("classes")
        };
        // Class 1 has the largest score where the row is above 0, class 2 below it.
        assert_eq!((found.accuracy, found.majority, found.auc), (0.5, 0.75, None));
        assert!((found.balanced_accuracy - (0.0 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
    }
}
