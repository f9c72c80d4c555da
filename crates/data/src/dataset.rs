//! A matrix with a label for each row, and the relabellings that turn it into a problem.
//!
//! What a label means to a model (a target, a sign, a class) is the model's business.

use crate::{DataError, Matrix};

/// Rows and their labels.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSet {
    /// What the set is called in messages and records: a file's name, or `digits`.
    pub name: String,
    /// One row a sample.
    pub matrix: Matrix,
    /// One finite label a row.
    pub labels: Vec<f64>,
    /// How much each row counts; empty where all count alike.
    pub weights: Vec<f64>,
}

impl DataSet {
    /// A data set of these rows and labels.
    ///
    /// # Panics
    /// If there is not one finite label a row.
    pub fn new(name: impl Into<String>, matrix: Matrix, labels: Vec<f64>) -> Self {
        assert_eq!(matrix.rows(), labels.len(), "one label a row");
        assert!(labels.iter().all(|l| l.is_finite()), "every label is finite");
        Self { name: name.into(), matrix, labels, weights: Vec::new() }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.matrix.rows()
    }

    /// How many columns there are.
    pub fn dim(&self) -> usize {
        self.matrix.dim()
    }

    /// The distinct labels, ascending.
    pub fn classes(&self) -> Vec<f64> {
        // Adding zero turns -0 into 0, so that the two are one class.
        let mut labels: Vec<f64> = self.labels.iter().map(|l| l + 0.0).collect();
        labels.sort_by(f64::total_cmp);
        labels.dedup();
        labels
    }

    /// The rows named, in that order, with their labels.
    pub fn select(&self, rows: &[usize]) -> Self {
        let pick = |values: &[f64]| rows.iter().filter_map(|&i| values.get(i).copied()).collect();
        let (labels, weights) = (pick(&self.labels), pick(&self.weights));
        Self { name: self.name.clone(), matrix: self.matrix.select(rows), labels, weights }
    }

    /// The first `count` rows, or all of them where there are fewer.
    pub fn first_rows(self, count: usize) -> Self {
        if count >= self.rows() {
            return self;
        }
        self.select(&(0..count).collect::<Vec<_>>())
    }

    /// The same set with every row scaled to unit norm; rows of zeros stay zero.
    pub fn unit_norm(self) -> Self {
        Self { matrix: self.matrix.unit_norm(), ..self }
    }

    /// The same set with one more column, the last, that is 1 in every row.
    pub fn with_bias(self) -> Self {
        Self { matrix: self.matrix.with_bias(), ..self }
    }

    /// The same rows with the columns alone in which most of them have a value; of equals the first. An intercept is among them.
    pub fn commonest_columns(self, most: usize) -> Self {
        let dim = self.dim();
        if dim <= most {
            return self;
        }
        let mut counts = vec![0usize; dim];
        for row in self.matrix.iter() {
            row.entries().filter(|entry| entry.1 != 0.0).for_each(|(column, _)| counts[column] += 1);
        }
        let mut columns: Vec<usize> = (0..dim).collect();
        columns.sort_by_key(|&column| std::cmp::Reverse(counts[column]));
        columns.truncate(most);
        columns.sort_unstable();
        let mut places = vec![None; dim];
        columns.iter().enumerate().for_each(|(place, &column)| places[column] = Some(place as u32));
        let (mut offsets, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in self.matrix.iter() {
            for (column, value) in row.entries().filter(|entry| entry.1 != 0.0) {
                if let Some(place) = places[column] {
                    indices.push(place);
                    values.push(value);
                }
            }
            offsets.push(indices.len());
        }
        Self { matrix: Matrix::sparse(offsets, indices, values, most).compact(), ..self }
    }

    /// The same rows labelled +1 where the label is even and -1 where it is odd.
    pub fn parity(self) -> Result<Self, DataError> {
        // Above 2^53 every float is even, which would be an answer but not a true one.
        let labels = self.labels.iter().map(|&label| {
            if label.fract() != 0.0 || label.abs() > 9007199254740992.0 {
                return Err(self.complaint(format!("label {label} has no parity; name two classes instead")));
            }
            Ok(if label % 2.0 == 0.0 { 1.0 } else { -1.0 })
        });
        let labels = labels.collect::<Result<_, _>>()?;
        Ok(Self { labels, ..self })
    }

    /// Only the rows whose label is in `negative` (labelled -1 from now on) or in `positive` (+1).
    pub fn select_classes(&self, negative: &[f64], positive: &[f64]) -> Result<Self, DataError> {
        let classes = self.classes();
        for class in negative.iter().chain(positive) {
            if !classes.contains(class) {
                return Err(self.complaint(format!("there is no class {class}; there is {}", listed(&classes))));
            }
            if negative.contains(class) && positive.contains(class) {
                return Err(self.complaint(format!("class {class} stands on both sides; name it once")));
            }
        }
        Ok(self.keep_classes(negative, positive))
    }

    /// [`DataSet::select_classes`] where a class may be missing: one machine's shard may hold one class only.
    pub fn keep_classes(&self, negative: &[f64], positive: &[f64]) -> Self {
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        for (i, label) in self.labels.iter().enumerate() {
            let side = if positive.contains(label) {
                1.0
            } else if negative.contains(label) {
                -1.0
            } else {
                continue;
            };
            rows.push(i);
            labels.push(side);
        }
        Self { labels, ..self.select(&rows) }
    }

    /// The same rows with the smaller of the two labels as -1 and the larger as +1.
    pub fn binary(self) -> Result<Self, DataError> {
        match self.classes()[..] {
            [negative, positive] => self.select_classes(&[negative], &[positive]),
            ref classes => {
                let what = format!("a binary model needs two classes, but there is {}; name two", listed(classes));
                Err(self.complaint(what))
            }
        }
    }

    /// The place of each row's label in `classes`: the numbers 0 to k - 1 of a softmax model.
    ///
    /// A held-out set is given the classes of its training set, so that both number them alike.
    pub fn class_indices(&self, classes: &[f64]) -> Result<Vec<usize>, DataError> {
        let find = |label: &f64| {
            classes.iter().position(|class| class == label).ok_or_else(|| {
                self.complaint(format!("label {label} is not a known class; known is {}", listed(classes)))
            })
        };
        self.labels.iter().map(find).collect()
    }

    fn complaint(&self, what: String) -> DataError {
        DataError::Labels { name: self.name.clone(), what }
    }
}

/// The classes as a person would list them, cut short where there are many.
fn listed(classes: &[f64]) -> String {
    const LIMIT: usize = 12;
    let mut shown: Vec<String> = classes.iter().take(LIMIT).map(f64::to_string).collect();
    if classes.len() > LIMIT {
        shown.push(format!("... ({} in all)", classes.len()));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_columns_has_the_commonest_in_their_order() {
        let rows = vec![1.0, 0.0, 2.0, 3.0, 4.0, 0.0, 5.0, 0.0, 6.0, 0.0, 0.0, 7.0];
        let set = DataSet::new("set", Matrix::dense(rows, 4), vec![1.0, 2.0, 3.0]);
        let sample = set.clone().commonest_columns(2);
        assert_eq!((sample.dim(), &sample.labels), (2, &set.labels));
        let row = |i: usize| sample.matrix.row(i).entries().filter(|entry| entry.1 != 0.0).collect::<Vec<_>>();
        // Columns 1 and 3 of four have three and two values, and column 4 as many as column 3, but later.
        assert_eq!((row(0), row(2)), (vec![(0, 1.0), (1, 2.0)], vec![(0, 6.0)]));
        assert_eq!(set.clone().commonest_columns(4), set);
    }
}
