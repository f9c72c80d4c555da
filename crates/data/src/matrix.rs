//! The rows of a data set, dense or sparse, and their products with vectors.
//!
//! It knows nothing of labels or losses. Every product has a fixed order of summation and uses no fused multiply-add,
//! so it gives the same bits on every CPU; a product over a range of rows gives the bits of the same product row by row.

use std::ops::Range;

use crate::kernel;

/// A matrix by rows. Past its constructor every value is finite and every index is below [`Matrix::dim`].
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    dim: usize,
    storage: Rows,
}

/// How the rows of a [`Matrix`] are stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// Every value, row after row.
    Dense {
        /// `rows * dim` values.
        values: Vec<f64>,
    },
    /// Only the values that are not zero (compressed sparse rows).
    Sparse {
        /// Row `i` has the entries `offsets[i]..offsets[i + 1]`.
        offsets: Vec<usize>,
        /// The column of each entry, ascending within a row.
        indices: Vec<u32>,
        /// The value of each entry.
        values: Vec<f64>,
    },
}

/// One row of a [`Matrix`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row<'a> {
    /// All values of the row.
    Dense(&'a [f64]),
    /// The columns and values of the row's entries.
    Sparse(&'a [u32], &'a [f64]),
}

impl<'a> Row<'a> {
    /// The stored entries (column, value) in ascending order of columns; a dense row gives its zeros too.
    pub fn entries(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        let (dense, indices, sparse): (&[f64], &[u32], &[f64]) = match self {
            Row::Dense(values) => (values, &[], &[]),
            Row::Sparse(indices, values) => (&[], indices, values),
        };
        let sparse = indices.iter().zip(sparse).map(|(&column, &value)| (column as usize, value));
        dense.iter().copied().enumerate().chain(sparse)
    }

    /// The stored values.
    pub fn values(self) -> &'a [f64] {
        match self {
            Row::Dense(values) | Row::Sparse(_, values) => values,
        }
    }

    /// The product with `x`.
    pub fn dot(self, x: &[f64]) -> f64 {
        match self {
            Row::Dense(values) => kernel::dense_dot(values, x),
            Row::Sparse(indices, values) => kernel::sparse_dot(indices, values, x),
        }
    }

    /// The Euclidean norm; neither overflow nor underflow of the squares disturbs it.
    pub fn norm(self) -> f64 {
        let values = self.values();
        let sum: f64 = values.iter().map(|v| v * v).sum();
        if sum.is_normal() && sum < f64::MAX {
            return sum.sqrt();
        }
        let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        if largest == 0.0 {
            return 0.0;
        }
        let sum: f64 = values.iter().map(|v| (v / largest) * (v / largest)).sum();
        largest * sum.sqrt()
    }
}

/// Below this share of non-zero values a matrix is stored sparse.
const SPARSE_BELOW: f64 = 0.5;

impl Matrix {
    /// A dense matrix of `values.len() / dim` rows.
    ///
    /// # Panics
    /// If `dim` is zero, does not divide the number of values, or a value is not finite.
    pub fn dense(values: Vec<f64>, dim: usize) -> Self {
        assert!(dim > 0, "a matrix has at least one column");
        assert!(values.len().is_multiple_of(dim), "{} values do not fill rows of {dim}", values.len());
        assert!(values.iter().all(|v| v.is_finite()), "every value of a matrix is finite");
        Self { rows: values.len() / dim, dim, storage: Rows::Dense { values } }
    }

    /// A sparse matrix of `offsets.len() - 1` rows.
    ///
    /// # Panics
    /// If the offsets do not start at 0, descend or do not end at the number of entries, if the columns of a row do
    /// not ascend or reach `dim`, or a value is not finite.
    pub fn sparse(offsets: Vec<usize>, indices: Vec<u32>, values: Vec<f64>, dim: usize) -> Self {
        assert!(dim > 0 && dim <= u32::MAX as usize, "a sparse matrix has from 1 to 2^32 - 1 columns");
        assert!(offsets.first() == Some(&0) && offsets.last() == Some(&indices.len()), "offsets span the entries");
        assert!(indices.len() == values.len(), "each entry has a column and a value");
        assert!(values.iter().all(|v| v.is_finite()), "every value of a matrix is finite");
        for pair in offsets.windows(2) {
            let row = indices.get(pair[0]..pair[1]).expect("offsets ascend");
            assert!(row.windows(2).all(|c| c[0] < c[1]), "the columns of a row ascend");
            assert!(row.last().is_none_or(|&c| (c as usize) < dim), "a column is below the dimension");
        }
        Self { rows: offsets.len() - 1, dim, storage: Rows::Sparse { offsets, indices, values } }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are: the dimension d.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How the rows are stored.
    pub fn storage(&self) -> &Rows {
        &self.storage
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        match &self.storage {
            Rows::Dense { values } => 8 * values.len(),
            Rows::Sparse { offsets, indices, values } => 8 * offsets.len() + 4 * indices.len() + 8 * values.len(),
        }
    }

    /// How many values are not zero.
    pub fn nonzeros(&self) -> usize {
        let values = match &self.storage {
            Rows::Dense { values } | Rows::Sparse { values, .. } => values,
        };
        values.iter().filter(|&&v| v != 0.0).count()
    }

    /// Row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> Row<'_> {
        match &self.storage {
            Rows::Dense { values } => Row::Dense(&values[i * self.dim..(i + 1) * self.dim]),
            Rows::Sparse { offsets, indices, values } => {
                let span = offsets[i]..offsets[i + 1];
                Row::Sparse(&indices[span.clone()], &values[span])
            }
        }
    }

    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows).map(|i| self.row(i))
    }

    /// The Euclidean norm of each row.
    pub fn row_norms(&self) -> Vec<f64> {
        self.iter().map(Row::norm).collect()
    }

    /// The product of row `i` with `x`.
    pub fn dot(&self, i: usize, x: &[f64]) -> f64 {
        assert_eq!(x.len(), self.dim, "the vector has one coordinate a column");
        self.row(i).dot(x)
    }

    /// Adds `scale` times row `i` to `out`.
    pub fn axpy(&self, i: usize, scale: f64, out: &mut [f64]) {
        self.multiply_transposed_add(i..i + 1, &[scale], out);
    }

    /// Overwrites `out` with the products of the rows in `range` with `x`.
    ///
    /// # Panics
    /// If the range leaves the matrix or a length does not match.
    pub fn multiply(&self, range: Range<usize>, x: &[f64], out: &mut [f64]) {
        self.check(&range, x.len(), out.len());
        match &self.storage {
            Rows::Dense { values } => {
                kernel::dense_multiply(&values[range.start * self.dim..range.end * self.dim], x, out);
            }
            Rows::Sparse { offsets, indices, values } => {
                kernel::sparse_multiply(&offsets[range.start..=range.end], indices, values, x, out);
            }
        }
    }

    /// Adds to `out` the sum over the rows in `range` of the row times its weight.
    ///
    /// # Panics
    /// If the range leaves the matrix or a length does not match.
    pub fn multiply_transposed_add(&self, range: Range<usize>, weights: &[f64], out: &mut [f64]) {
        self.check(&range, out.len(), weights.len());
        match &self.storage {
            Rows::Dense { values } => {
                let rows = &values[range.start * self.dim..range.end * self.dim];
                kernel::dense_multiply_transposed_add(rows, weights, out);
            }
            Rows::Sparse { offsets, indices, values } => {
                let offsets = &offsets[range.start..=range.end];
                kernel::sparse_multiply_transposed_add(offsets, indices, values, weights, out);
            }
        }
    }

    /// Overwrites `out`, of `dim * dim` values, with the symmetric matrix X' diag(weights) X over all rows.
    ///
    /// # Panics
    /// If a length does not match.
    pub fn gram(&self, weights: &[f64], out: &mut [f64]) {
        assert_eq!(weights.len(), self.rows, "one weight a row");
        assert_eq!(out.len(), self.dim * self.dim, "the Gram matrix has dim * dim values");
        out.fill(0.0);
        match &self.storage {
            Rows::Dense { values } => kernel::dense_gram(values, self.dim, weights, out),
            Rows::Sparse { offsets, indices, values } => {
                kernel::sparse_gram(offsets, indices, values, self.dim, weights, out);
            }
        }
    }

    /// The rows named, in that order; a row may be named more than once.
    pub fn select(&self, rows: &[usize]) -> Self {
        let storage = match &self.storage {
            Rows::Dense { .. } => {
                let mut values = Vec::with_capacity(rows.len() * self.dim);
                for &i in rows {
                    values.extend_from_slice(self.row(i).values());
                }
                Rows::Dense { values }
            }
            Rows::Sparse { offsets, .. } => {
                let entries = rows.iter().map(|&i| offsets[i + 1] - offsets[i]).sum();
                let (mut indices, mut values) = (Vec::with_capacity(entries), Vec::with_capacity(entries));
                let mut ends = Vec::with_capacity(rows.len() + 1);
                ends.push(0);
                for &i in rows {
                    if let Row::Sparse(columns, entries) = self.row(i) {
                        indices.extend_from_slice(columns);
                        values.extend_from_slice(entries);
                    }
                    ends.push(indices.len());
                }
                Rows::Sparse { offsets: ends, indices, values }
            }
        };
        Self { rows: rows.len(), dim: self.dim, storage }
    }

    /// The same matrix with one more column, the last, that is 1 in every row.
    pub fn with_bias(&self) -> Self {
        let dim = self.dim + 1;
        let storage = match &self.storage {
            Rows::Dense { .. } => {
                let mut values = Vec::with_capacity(self.rows * dim);
                for row in self.iter() {
                    values.extend_from_slice(row.values());
                    values.push(1.0);
                }
                Rows::Dense { values }
            }
            Rows::Sparse { indices: old, .. } => {
                let column = u32::try_from(self.dim).expect("a sparse matrix has at most 2^32 - 1 columns");
                let (mut indices, mut values) =
                    (Vec::with_capacity(old.len() + self.rows), Vec::with_capacity(old.len() + self.rows));
                let mut offsets = Vec::with_capacity(self.rows + 1);
                offsets.push(0);
                for row in self.iter() {
                    if let Row::Sparse(columns, entries) = row {
                        indices.extend_from_slice(columns);
                        values.extend_from_slice(entries);
                    }
                    indices.push(column);
                    values.push(1.0);
                    offsets.push(indices.len());
                }
                Rows::Sparse { offsets, indices, values }
            }
        };
        Self { rows: self.rows, dim, storage }
    }

    /// The same matrix with every row scaled to unit norm; rows of zeros stay zero.
    pub fn unit_norm(mut self) -> Self {
        let norms = self.row_norms();
        let scale = |row: &mut [f64], norm: f64| {
            if norm > 0.0 {
                row.iter_mut().for_each(|v| *v /= norm);
            }
        };
        match &mut self.storage {
            Rows::Dense { values } => {
                values.chunks_exact_mut(self.dim).zip(norms).for_each(|(row, norm)| scale(row, norm));
            }
            Rows::Sparse { offsets, values, .. } => {
                for (span, norm) in offsets.windows(2).zip(norms) {
                    scale(&mut values[span[0]..span[1]], norm);
                }
            }
        }
        self
    }

    /// The same matrix in the smaller of the two forms: sparse if fewer than half of its values are not zero.
    pub fn compact(self) -> Self {
        let (rows, dim) = (self.rows, self.dim);
        let nonzeros = self.nonzeros();
        let sparse = (nonzeros as f64) < SPARSE_BELOW * (rows as f64) * (dim as f64);
        match self.storage {
            Rows::Dense { values } if sparse && dim <= u32::MAX as usize => {
                let mut offsets = Vec::with_capacity(rows + 1);
                let (mut indices, mut kept) = (Vec::with_capacity(nonzeros), Vec::with_capacity(nonzeros));
                offsets.push(0);
                for row in values.chunks_exact(dim) {
                    for (column, &value) in row.iter().enumerate() {
                        if value != 0.0 {
                            indices.push(column as u32);
                            kept.push(value);
                        }
                    }
                    offsets.push(indices.len());
                }
                Self { rows, dim, storage: Rows::Sparse { offsets, indices, values: kept } }
            }
            // At least half of the values are there already, so the dense form is at most twice as large.
            Rows::Sparse { .. } if !sparse => self.to_dense(),
            storage => Self { rows, dim, storage },
        }
    }

    /// The same matrix with every value stored.
    pub fn to_dense(&self) -> Self {
        let mut values = vec![0.0; self.rows * self.dim];
        for (row, out) in self.iter().zip(values.chunks_exact_mut(self.dim)) {
            row.entries().for_each(|(column, value)| out[column] = value);
        }
        Self { rows: self.rows, dim: self.dim, storage: Rows::Dense { values } }
    }

    fn check(&self, range: &Range<usize>, columns: usize, rows: usize) {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        assert_eq!(columns, self.dim, "a vector over the columns has one coordinate a column");
        assert_eq!(rows, range.len(), "a vector over the rows has one coordinate a row");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The slow obvious products over entries: what "correct" means.
    mod reference {
        use super::*;

        pub(super) fn multiply(matrix: &Matrix, x: &[f64]) -> Vec<f64> {
            matrix.iter().map(|row| row.entries().map(|(j, v)| v * x[j]).sum()).collect()
        }

        pub(super) fn multiply_transposed(matrix: &Matrix, weights: &[f64]) -> Vec<f64> {
            let mut out = vec![0.0; matrix.dim()];
            for (row, weight) in matrix.iter().zip(weights) {
                row.entries().for_each(|(j, v)| out[j] += weight * v);
            }
            out
        }

        pub(super) fn gram(matrix: &Matrix, weights: &[f64]) -> Vec<f64> {
            let d = matrix.dim();
            let mut out = vec![0.0; d * d];
            for (row, weight) in matrix.iter().zip(weights) {
                for (i, a) in row.entries() {
                    row.entries().for_each(|(j, b)| out[i * d + j] += weight * a * b);
                }
            }
            out
        }
    }

    /// Small whole numbers: every sum of products is exact, so every order of summation gives the same bits.
    fn whole(length: usize) -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec((-9i8..10).prop_map(f64::from), length)
    }

    fn problem() -> impl Strategy<Value = (Matrix, Vec<f64>, Vec<f64>)> {
        (1usize..40, 1usize..40, any::<bool>()).prop_flat_map(|(rows, dim, sparse)| {
            let values = (whole(rows * dim), prop::collection::vec(0u8..4, rows * dim));
            (values, whole(dim), whole(rows)).prop_map(move |((mut values, keep), x, weights)| {
                if sparse {
                    values.iter_mut().zip(keep).for_each(|(v, k)| *v *= f64::from(u8::from(k == 0)));
                }
                (Matrix::dense(values, dim).compact(), x, weights)
            })
        })
    }

    proptest! {
        #![proptest_config(crate::fixed_cases())]

        #[test]
        fn products_are_those_of_the_reference((matrix, x, weights) in problem()) {
            let (rows, dim) = (matrix.rows(), matrix.dim());
            let mut products = vec![f64::NAN; rows];
            matrix.multiply(0..rows, &x, &mut products);
            prop_assert_eq!(&products, &reference::multiply(&matrix, &x));
            let mut sum = vec![0.0; dim];
            matrix.multiply_transposed_add(0..rows, &weights, &mut sum);
            prop_assert_eq!(&sum, &reference::multiply_transposed(&matrix, &weights));
            let mut gram = vec![f64::NAN; dim * dim];
            matrix.gram(&weights, &mut gram);
            prop_assert_eq!(gram, reference::gram(&matrix, &weights));
        }

        #[test]
        fn a_range_gives_the_bits_of_its_rows_one_by_one((matrix, x, weights) in problem(), cut in 0.0f64..1.0) {
            // Thirds are not exact, so that a different order of summation would show.
            let matrix = matrix.unit_norm();
            let x: Vec<f64> = x.iter().map(|x| x / 3.0).collect();
            let weights: Vec<f64> = weights.iter().map(|w| w / 3.0).collect();
            let range = (matrix.rows() as f64 * cut) as usize..matrix.rows();
            let mut products = vec![0.0; range.len()];
            matrix.multiply(range.clone(), &x, &mut products);
            let one_by_one: Vec<f64> = range.clone().map(|i| matrix.dot(i, &x)).collect();
            prop_assert_eq!(products, one_by_one);
            let (mut sum, mut one_by_one) = (x.clone(), x);
            matrix.multiply_transposed_add(range.clone(), &weights[range.clone()], &mut sum);
            range.for_each(|i| matrix.axpy(i, weights[i], &mut one_by_one));
            prop_assert_eq!(sum, one_by_one);
        }

        #[test]
        fn both_forms_hold_the_same_matrix((matrix, _, _) in problem(), seed: usize) {
            let dense = matrix.to_dense();
            prop_assert_eq!(&dense.clone().compact(), &matrix);
            let rows: Vec<usize> = (0..5).map(|i| (seed % 1000 + 7 * i) % matrix.rows()).collect();
            prop_assert_eq!(matrix.select(&rows).to_dense(), dense.select(&rows));
            prop_assert_eq!(matrix.with_bias().to_dense(), dense.with_bias());
            prop_assert_eq!(matrix.clone().unit_norm().to_dense(), dense.unit_norm());
        }
    }

    #[test]
    fn rows_of_unit_norm_have_unit_norm_and_zero_rows_stay_zero() {
        let extreme = vec![3e200, 4e200, 0.0, 0.0, 3e-200, -4e-200, 1.0, 0.0];
        let norms = Matrix::dense(extreme, 2).unit_norm().row_norms();
        // A norm and a division each round once or twice.
        for (norm, expected) in norms.iter().zip([1.0, 0.0, 1.0, 1.0]) {
            assert!((norm - expected).abs() < 4.0 * f64::EPSILON, "{norms:?}");
        }
    }
}
