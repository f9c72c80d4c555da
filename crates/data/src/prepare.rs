//! From rows as they are in a file to rows as a model wants them: labels, scaled features, an intercept. What all machines must share is a
//! value that is agreed on first; nothing here is guessed from a part of the rows.

use std::sync::Arc;

use crate::{DataError, DataSet, Matrix, Missing, Raw, Rows, Schema, Survey, Unknown};

/// What a model makes of a label.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// A number, less the mean of all rows where there is an intercept.
    Numbers {
        /// What is subtracted, and added to what a model says.
        centre: f64,
    },
    /// -1 or +1: these classes against those; rows of other classes are left out.
    Sides {
        /// Labelled -1.
        negative: Vec<f64>,
        /// Labelled +1.
        positive: Vec<f64>,
    },
    /// Even against odd: +1 against -1.
    Parity,
    /// The place of the class in this list.
    Classes(Vec<f64>),
}

/// How features are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalise {
    /// Every column to mean 0 and deviation 1; sparse columns keep their zeros, and so their mean.
    Standard,
    /// Every channel of a picture to mean 0 and deviation 1.
    Channels,
    /// Every row to unit norm.
    Unit,
    /// As they are.
    None,
}

impl Normalise {
    /// The word for it in a job.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Channels => "channels",
            Self::Unit => "unit",
            Self::None => "none",
        }
    }
}

/// What is subtracted from every column, and by what it is divided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scaling {
    /// Subtracted; zeros where zeros have to stay.
    pub shifts: Vec<f64>,
    /// Divided by; never 0.
    pub scales: Vec<f64>,
}

impl Scaling {
    /// The scaling of every column, where this is the scaling of every channel.
    pub fn spread(&self, columns: usize) -> Self {
        let pixels = columns / self.shifts.len().max(1);
        let spread = |numbers: &[f64]| numbers.iter().flat_map(|&number| vec![number; pixels]).collect();
        Self { shifts: spread(&self.shifts), scales: spread(&self.scales) }
    }
}

/// Sums over rows from which means and deviations follow, and which can be merged.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// How many rows.
    pub rows: f64,
    /// The mean of every column.
    pub means: Vec<f64>,
    /// The sum of squared deviations from it.
    pub squares: Vec<f64>,
}

impl Moments {
    /// Of these rows, zeros included.
    pub fn of(matrix: &Matrix) -> Self {
        let (rows, dim) = (matrix.rows() as f64, matrix.dim());
        let (mut means, mut squares, mut stored) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        for row in matrix.iter() {
            row.entries().for_each(|(j, value)| means[j] += value);
        }
        means.iter_mut().for_each(|mean| *mean /= rows.max(1.0));
        for row in matrix.iter() {
            for (j, value) in row.entries() {
                squares[j] += (value - means[j]) * (value - means[j]);
                stored[j] += 1.0;
            }
        }
        // Entries that a sparse row does not store are zeros.
        for j in 0..dim {
            squares[j] += (rows - stored[j]) * means[j] * means[j];
        }
        Self { rows, means, squares }
    }

    /// Both together (Chan, Golub and LeVeque 1979).
    pub fn merge(&mut self, other: &Self) {
        let rows = self.rows + other.rows;
        if rows == 0.0 {
            return;
        }
        for j in 0..self.means.len() {
            let gap = other.means[j] - self.means[j];
            self.means[j] += gap * other.rows / rows;
            self.squares[j] += other.squares[j] + gap * gap * self.rows * other.rows / rows;
        }
        self.rows = rows;
    }

    /// Of so many channels, each as many columns in a row as the others: all pixels of a channel count as rows of one column.
    ///
    /// # Panics
    /// Unless the channels have equally many columns.
    pub fn by_channel(&self, channels: usize) -> Self {
        let pixels = self.means.len() / channels.max(1);
        assert_eq!(channels * pixels, self.means.len(), "channels have equally many columns");
        let mut pooled = Self { rows: 0.0, means: Vec::new(), squares: Vec::new() };
        for (means, squares) in self.means.chunks_exact(pixels).zip(self.squares.chunks_exact(pixels)) {
            let column = |(&mean, &square)| Self { rows: self.rows, means: vec![mean], squares: vec![square] };
            let mut channel = Self { rows: 0.0, means: vec![0.0], squares: vec![0.0] };
            means.iter().zip(squares).map(column).for_each(|column| channel.merge(&column));
            pooled.rows = channel.rows;
            pooled.means.append(&mut channel.means);
            pooled.squares.append(&mut channel.squares);
        }
        pooled
    }

    /// To mean 0 and deviation 1; a constant column is left where it is but for its mean. With `sparse` zeros stay zeros.
    pub fn scaling(&self, sparse: bool) -> Scaling {
        let deviation = |square: &f64| {
            let deviation = (square / self.rows.max(1.0)).sqrt();
            if deviation > 0.0 && deviation.is_finite() { deviation } else { 1.0 }
        };
        let scales = self.squares.iter().map(deviation).collect();
        let shifts = if sparse { vec![0.0; self.means.len()] } else { self.means.clone() };
        Scaling { shifts, scales }
    }
}

/// Everything that is done to rows before a model sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Preparation {
    /// How columns of words and cells without values become numbers, where the file may have such.
    pub schema: Option<Arc<Schema>>,
    /// What becomes of labels.
    pub labels: Labels,
    /// How features are scaled.
    pub normalise: Normalise,
    /// The agreed scaling, with [`Normalise::Standard`] and [`Normalise::Channels`].
    pub scaling: Option<Scaling>,
    /// Whether a last column of ones is added.
    pub intercept: bool,
}

impl Preparation {
    /// Rows as the model wants them.
    ///
    /// # Panics
    /// If the scaling is for another number of columns, or is missing.
    pub fn apply(&self, set: DataSet) -> Result<DataSet, DataError> {
        Ok(self.features(self.relabel(set)?))
    }

    /// What the classes or sides of a model are called, the negative side first; nothing for a regression.
    pub fn class_names(&self) -> Vec<String> {
        let named = |labels: &[f64]| labels.iter().map(|&label| self.class_name(label)).collect::<Vec<_>>();
        match &self.labels {
            Labels::Numbers { .. } => Vec::new(),
            Labels::Parity => vec!["odd".to_owned(), "even".to_owned()],
            Labels::Sides { negative, positive } => vec![named(negative).join("|"), named(positive).join("|")],
            Labels::Classes(classes) => named(classes),
        }
    }

    /// The numbers of a file that was read for this preparation, and the words among them that it does not know.
    pub fn encode(&self, raw: Raw) -> Result<(DataSet, Unknown), DataError> {
        match (raw, &self.schema) {
            (Raw::Table(table), Some(schema)) => schema.encode(table),
            (Raw::Table(table), None) => Survey::of(&table).schema(Missing::Error).encode(table),
            (Raw::Rows(set, _), _) => Ok((set, Unknown::default())),
        }
    }

    /// Whether labels are two sides.
    pub fn has_sides(&self) -> bool {
        matches!(self.labels, Labels::Parity | Labels::Sides { .. })
    }

    /// What a label is called.
    pub fn class_name(&self, label: f64) -> String {
        let words = self.schema.as_ref().and_then(|schema| schema.label_words());
        words.and_then(|words| words.get(label as usize).cloned()).unwrap_or_else(|| label.to_string())
    }

    /// Labels as the model wants them.
    pub fn relabel(&self, set: DataSet) -> Result<DataSet, DataError> {
        match &self.labels {
            Labels::Numbers { centre } => {
                let labels = set.labels.iter().map(|label| label - centre).collect();
                Ok(DataSet { labels, ..set })
            }
            Labels::Parity => set.parity(),
            Labels::Sides { negative, positive } => Ok(set.keep_classes(negative, positive)),
            Labels::Classes(classes) => {
                let labels = set.class_indices(classes)?.into_iter().map(|class| class as f64).collect();
                Ok(DataSet { labels, ..set })
            }
        }
    }

    /// Features as the model wants them; labels stay.
    pub fn features(&self, set: DataSet) -> DataSet {
        let set = match self.normalise {
            Normalise::None => set,
            Normalise::Unit => set.unit_norm(),
            Normalise::Standard | Normalise::Channels => {
                let scaling = self.scaling.as_ref().expect("a scaling was agreed on");
                DataSet { matrix: set.matrix.scaled(&scaling.shifts, &scaling.scales), ..set }
            }
        };
        if self.intercept { set.with_bias() } else { set }
    }
}

impl Matrix {
    /// Every entry less its column's shift, over its column's scale. Shifts other than 0 make a sparse matrix dense.
    ///
    /// # Panics
    /// Unless there is a shift and a scale for every column.
    pub fn scaled(self, shifts: &[f64], scales: &[f64]) -> Self {
        let dim = self.dim();
        assert!(shifts.len() == dim && scales.len() == dim, "every column has a shift and a scale");
        if let Rows::Sparse { offsets, indices, values } = self.storage()
            && shifts.iter().all(|&shift| shift == 0.0)
        {
            let values = indices.iter().zip(values).map(|(&j, value)| value / scales[j as usize]).collect();
            return Self::sparse(offsets.clone(), indices.clone(), values, dim);
        }
        let dense = self.to_dense();
        let Rows::Dense { values } = dense.storage() else { unreachable!("it was just made dense") };
        let scale = |(at, value): (usize, &f64)| (value - shifts[at % dim]) / scales[at % dim];
        Self::dense(values.iter().enumerate().map(scale).collect(), dim)
    }

    /// The same rows with more columns, all zero.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn widened(self, dim: usize) -> Self {
        assert!(dim >= self.dim(), "columns are only added");
        if dim == self.dim() {
            return self;
        }
        match self.storage() {
            Rows::Sparse { offsets, indices, values } => {
                Self::sparse(offsets.clone(), indices.clone(), values.clone(), dim)
            }
            Rows::Dense { values } => {
                let own = self.dim();
                let mut wide = Vec::with_capacity(self.rows() * dim);
                for i in 0..self.rows() {
                    wide.extend_from_slice(&values[i * own..(i + 1) * own]);
                    wide.resize((i + 1) * dim, 0.0);
                }
                Self::dense(wide, dim)
            }
        }
    }

    /// Whether zeros are not stored.
    pub fn is_sparse(&self) -> bool {
        matches!(self.storage(), Rows::Sparse { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Matrix {
        Matrix::dense(vec![1.0, 5.0, 0.0, 3.0, 5.0, 2.0, 8.0, 5.0, 1.0, 0.0, 5.0, 0.0], 3)
    }

    #[test]
    fn moments_of_parts_merge_to_those_of_the_whole() {
        let whole = Moments::of(&rows());
        let mut merged = Moments::of(&rows().select(&[0, 1]));
        merged.merge(&Moments::of(&rows().select(&[])));
        merged.merge(&Moments::of(&rows().select(&[2, 3])));
        for (a, b) in merged.means.iter().chain(&merged.squares).zip(whole.means.iter().chain(&whole.squares)) {
            assert!((a - b).abs() < 1e-12);
        }
        let sparse = Moments::of(&rows().compact());
        assert!(sparse.squares.iter().zip(&whole.squares).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn a_channel_has_the_moments_of_all_its_pixels() {
        let wide = Matrix::dense(vec![1.0, 5.0, 0.0, 3.0, 5.0, 2.0, 8.0, 5.0], 4);
        let pooled = Moments::of(&wide).by_channel(2);
        let channels = Matrix::dense(vec![1.0, 0.0, 5.0, 3.0, 5.0, 8.0, 2.0, 5.0], 2);
        let expected = Moments::of(&channels);
        assert_eq!((pooled.rows, pooled.means.len()), (4.0, 2));
        for (a, b) in pooled.means.iter().chain(&pooled.squares).zip(expected.means.iter().chain(&expected.squares)) {
            assert!((a - b).abs() < 1e-12, "{pooled:?} {expected:?}");
        }
        let spread = pooled.scaling(false).spread(4);
        assert_eq!((spread.shifts[0], spread.shifts[2]), (spread.shifts[1], spread.shifts[3]));
    }

    #[test]
    fn standardised_columns_have_mean_zero_and_deviation_one_but_for_constant_ones() {
        let scaling = Moments::of(&rows()).scaling(false);
        let scaled = Moments::of(&rows().scaled(&scaling.shifts, &scaling.scales));
        for j in [0, 2] {
            assert!(scaled.means[j].abs() < 1e-12 && (scaled.squares[j] / 4.0 - 1.0).abs() < 1e-12);
        }
        assert_eq!((scaled.means[1], scaled.squares[1]), (0.0, 0.0));
    }
}
