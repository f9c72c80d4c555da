//! Count sketch: a small linear table from which the large coordinates can be read. Not a codec, because sums of tables are what is
//! wanted; who takes them belongs to the caller.

use corewire_sketch::CommonRandomness;

use crate::codec::Address;
use crate::sparse::largest;

/// A linear map of vectors to tables of rows x columns numbers.
///
/// - Rule: row r adds s_r(i) v_i to its column h_r(i), with random signs s and columns h; v_i is estimated by the median over the rows
///   of s_r(i) times that cell.
/// - Law: each row's estimate is unbiased with variance at most ||v||^2/columns; the median of rows errs by more than
///   sqrt(8/columns) ||v|| with a probability that falls exponentially in the rows. Tables add as vectors do.
/// - Bytes: 4 rows columns, as `f32`.
/// - Checked: linearity exactly, mean and variance of a row, and that heavy coordinates are found.
/// - Reference: Finding Frequent Items in Data Streams, M. Charikar, K. Chen, M. Farach-Colton, 2002; Communication-efficient
///   Distributed SGD with Sketching, N. Ivkin, D. Rothchild, E. Ullah, V. Braverman, I. Stoica, R. Arora, 2019; FetchSGD:
///   Communication-Efficient Federated Learning with Sketching, D. Rothchild and others, 2020.
///
/// The signs and columns depend on the seed and `number` alone, not on a round: FetchSGD keeps tables over rounds.
#[derive(Clone, Debug)]
pub struct CountSketch {
    dim: usize,
    columns: usize,
    rows: usize,
    /// For every row and coordinate twice the cell's position in the table, plus one for a negative sign.
    cells: Vec<u32>,
}

/// The stream of addresses that is kept for count sketches, so that no codec of some round draws the same numbers.
const STREAM: u8 = u8::MAX;

impl CountSketch {
    /// The sketch with this number, of tables of `rows` x `columns`.
    ///
    /// # Panics
    /// If either is 0 or the table has 2^31 cells or more.
    pub fn new(dim: usize, rows: usize, columns: usize, number: u64, randomness: &CommonRandomness) -> Self {
        assert!(rows > 0 && columns > 0, "a table has at least one row and one column");
        assert!(rows.saturating_mul(columns) < 1 << 31, "a table has fewer than 2^31 cells");
        let mut cells = Vec::with_capacity(rows * dim);
        for row in 0..rows {
            let mut words = Address::new(number, row as u32).with_stream(STREAM).own_words(randomness);
            for _ in 0..dim {
                let draw = words.next_below(2 * columns as u64) as usize;
                cells.push((2 * row * columns + draw) as u32);
            }
        }
        Self { dim, columns, rows, cells }
    }

    /// The dimension of the vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How many numbers a table has.
    pub fn table_len(&self) -> usize {
        self.rows * self.columns
    }

    /// A table of zeros.
    pub fn new_table(&self) -> Vec<f64> {
        vec![0.0; self.table_len()]
    }

    /// Adds the sketch of `factor` times `vector` to the table.
    pub fn add(&self, vector: &[f64], factor: f64, table: &mut [f64]) {
        assert_eq!(vector.len(), self.dim, "a vector of the right dimension");
        self.check(table);
        for row in 0..self.rows {
            for (x, &cell) in vector.iter().zip(&self.cells[row * self.dim..]) {
                table[cell as usize / 2] += signed(factor * x, cell);
            }
        }
    }

    /// Adds the sketch of `value` at one coordinate.
    pub fn add_one(&self, index: usize, value: f64, table: &mut [f64]) {
        self.check(table);
        for row in 0..self.rows {
            let cell = self.cells[row * self.dim + index];
            table[cell as usize / 2] += signed(value, cell);
        }
    }

    /// The estimate of one coordinate: the median of the rows', the mean of the middle two where their number is even.
    pub fn estimate(&self, table: &[f64], index: usize) -> f64 {
        self.check(table);
        let mut estimates: Vec<f64> = (0..self.rows)
            .map(|row| self.cells[row * self.dim + index])
            .map(|cell| signed(table[cell as usize / 2], cell))
            .collect();
        estimates.sort_by(f64::total_cmp);
        let middle = self.rows / 2;
        if self.rows % 2 == 1 { estimates[middle] } else { (estimates[middle - 1] + estimates[middle]) / 2.0 }
    }

    /// The estimates of all coordinates; `out` is overwritten.
    pub fn estimate_all(&self, table: &[f64], out: &mut [f64]) {
        assert_eq!(out.len(), self.dim, "a vector of the right dimension");
        out.iter_mut().enumerate().for_each(|(i, x)| *x = self.estimate(table, i));
    }

    /// The `keep` coordinates with the largest estimates, with these, in ascending order of the index.
    pub fn heavy(&self, table: &[f64], keep: usize) -> Vec<(u32, f64)> {
        let mut estimates = vec![0.0; self.dim];
        self.estimate_all(table, &mut estimates);
        largest(&estimates, keep.min(self.dim)).into_iter().map(|i| (i, estimates[i as usize])).collect()
    }

    fn check(&self, table: &[f64]) {
        assert_eq!(table.len(), self.table_len(), "a table of the right size");
    }
}

fn signed(x: f64, cell: u32) -> f64 {
    if cell & 1 == 1 { -x } else { x }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    fn randomness() -> CommonRandomness {
        CommonRandomness::new(&Seed::reproducible(61))
    }

    #[test]
    fn tables_add_as_vectors_do() {
        let sketch = CountSketch::new(40, 3, 8, 0, &randomness());
        let a: Vec<f64> = (0..40).map(f64::from).collect();
        let b: Vec<f64> = (0..40).map(|i| f64::from(i * i % 7)).collect();
        let (mut apart, mut together) = (sketch.new_table(), sketch.new_table());
        sketch.add(&a, 1.0, &mut apart);
        sketch.add(&b, -2.0, &mut apart);
        let sum: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - 2.0 * b).collect();
        for (i, x) in sum.iter().enumerate() {
            sketch.add_one(i, *x, &mut together);
        }
        // Small whole numbers: exact.
        assert_eq!(apart, together);
    }

    #[test]
    fn one_rows_estimate_is_unbiased_with_the_stated_variance() {
        let (dim, columns) = (50, 10);
        // Positive entries: without the signs their collisions would not cancel.
        let vector: Vec<f64> = (0..dim).map(|i| (i as f64).sin() + 1.0).collect();
        let total: f64 = vector.iter().map(|x| x * x).sum();
        let trials = 4000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for number in 0..trials {
            let sketch = CountSketch::new(dim, 1, columns, number, &randomness());
            let mut table = sketch.new_table();
            sketch.add(&vector, 1.0, &mut table);
            let error = sketch.estimate(&table, 7) - vector[7];
            sum += error;
            squares += error * error;
        }
        let exact = (total - vector[7] * vector[7]) / columns as f64;
        let n = trials as f64;
        // Four standard errors of the mean; a squared error's deviation is below twice its mean, as for heavier tails than normal.
        assert!((sum / n).abs() < 4.0 * (exact / n).sqrt());
        assert!((squares / n - exact).abs() < 4.0 * 2.0 * exact / n.sqrt(), "{} against {exact}", squares / n);
    }

    #[test]
    fn heavy_coordinates_are_found() {
        let dim = 10_000;
        let mut vector: Vec<f64> = (0..dim).map(|i| 0.01 * (i as f64).sin()).collect();
        for i in [17, 4711, 9999] {
            vector[i] = 10.0;
        }
        let sketch = CountSketch::new(dim, 5, 500, 1, &randomness());
        let mut table = sketch.new_table();
        sketch.add(&vector, 1.0, &mut table);
        let heavy = sketch.heavy(&table, 3);
        assert_eq!(heavy.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [17, 4711, 9999]);
        // The rest has energy 0.5, so a row errs by sqrt(0.5/500) = 0.03 unless two heavy ones collide, which the median survives.
        assert!(heavy.iter().all(|(_, x)| (x - 10.0).abs() < 0.2));
    }
}
