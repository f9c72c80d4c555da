//! A vector seen as a matrix, and the two decompositions that low-rank codecs need: orthonormal columns and singular values.

/// The matrix as which a vector is seen: row by row, with zeros after the vector's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    rows: usize,
    columns: usize,
}

impl Shape {
    /// A matrix of this shape.
    ///
    /// # Panics
    /// If either is 0.
    pub fn new(rows: usize, columns: usize) -> Self {
        assert!(rows > 0 && columns > 0, "a matrix has at least one row and one column");
        Self { rows, columns }
    }

    /// The matrix nearest to a square that holds `dim` numbers.
    pub fn square(dim: usize) -> Self {
        let mut columns = (dim as f64).sqrt() as usize;
        while columns * columns < dim {
            columns += 1;
        }
        let columns = columns.max(1);
        Self { rows: dim.div_ceil(columns).max(1), columns }
    }

    /// How many rows.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn columns(self) -> usize {
        self.columns
    }

    /// The smaller of both: the rank that a matrix can have.
    pub fn most_rank(self) -> usize {
        self.rows.min(self.columns)
    }

    /// Whether a vector of this dimension fits.
    pub(crate) fn check(self, dim: usize) {
        assert!(self.rows.saturating_mul(self.columns) >= dim, "the matrix holds the whole vector");
    }
}

/// One term of a singular value decomposition: `value` times `left` `right`'.
pub(crate) struct Atom {
    pub(crate) value: f64,
    pub(crate) left: Vec<f64>,
    pub(crate) right: Vec<f64>,
}

/// The singular value decomposition of a vector seen as a matrix, largest values first; all `most_rank` of them.
///
/// One-sided Jacobi: pairs of the shorter side's vectors are turned until all are orthogonal (Golub and Van Loan, Matrix
/// Computations, 8.6.3). Small, accurate, and quick enough for the few hundred rows of a gradient's matrix.
pub(crate) fn singular_atoms(shape: Shape, vector: &[f64]) -> Vec<Atom> {
    let (rows, columns) = (shape.rows(), shape.columns());
    // Values near 1, so that no square underflows.
    let largest = vector.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let at = |row: usize, column: usize| vector.get(row * columns + column).map_or(0.0, |x| x / unit);
    let transposed = rows > columns;
    let (short, long) = if transposed { (columns, rows) } else { (rows, columns) };
    let entry = |s: usize, l: usize| if transposed { at(l, s) } else { at(s, l) };
    let mut turned: Vec<Vec<f64>> = (0..short).map(|s| (0..long).map(|l| entry(s, l)).collect()).collect();
    let mut turns: Vec<Vec<f64>> = (0..short).map(|s| (0..short).map(|t| f64::from(s == t)).collect()).collect();
    for _ in 0..60 {
        let mut settled = true;
        for p in 0..short {
            for q in p + 1..short {
                let (alpha, beta) = (dot(&turned[p], &turned[p]), dot(&turned[q], &turned[q]));
                let gamma = dot(&turned[p], &turned[q]);
                if gamma.abs() <= 1e-14 * (alpha * beta).sqrt() {
                    continue;
                }
                settled = false;
                let zeta = (beta - alpha) / (2.0 * gamma);
                let tangent = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
                let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
                turn(&mut turned, p, q, cosine, cosine * tangent);
                turn(&mut turns, p, q, cosine, cosine * tangent);
            }
        }
        if settled {
            break;
        }
    }
    let mut atoms: Vec<Atom> = turned
        .into_iter()
        .zip(turns)
        .map(|(mut long, short)| {
            let value = dot(&long, &long).sqrt();
            if value > 0.0 {
                long.iter_mut().for_each(|x| *x /= value);
            }
            let (left, right) = if transposed { (long, short) } else { (short, long) };
            Atom { value: value * unit, left, right }
        })
        .collect();
    atoms.sort_by(|a, b| b.value.total_cmp(&a.value));
    atoms
}

/// Makes `count` columns of `len` numbers, one after the other, orthonormal, by Gram and Schmidt, twice for accuracy. A column that
/// depends on those before it becomes zero.
///
/// Fixed order, no library functions but the square root: the same bits everywhere.
pub fn orthogonalise(columns: &mut [f64], len: usize) {
    assert!(len > 0 && columns.len().is_multiple_of(len), "columns of equal length");
    for at in (0..columns.len()).step_by(len) {
        let (before, rest) = columns.split_at_mut(at);
        let column = &mut rest[..len];
        let original = dot(column, column).sqrt();
        for _ in 0..2 {
            for other in before.chunks(len) {
                let along = dot(other, column);
                column.iter_mut().zip(other).for_each(|(x, o)| *x -= along * o);
            }
        }
        let norm = dot(column, column).sqrt();
        // What is left of a dependent column is rounding, 2^-53 a term.
        let factor = if norm > 1e-12 * original { 1.0 / norm } else { 0.0 };
        column.iter_mut().for_each(|x| *x *= factor);
    }
}

/// The inner product, summed in order.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn turn(vectors: &mut [Vec<f64>], p: usize, q: usize, cosine: f64, sine: f64) {
    let (low, high) = vectors.split_at_mut(q);
    for (x, y) in low[p].iter_mut().zip(&mut high[0]) {
        (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
    }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::{CommonRandomness, Purpose, Seed};

    use super::*;

    fn numbers(count: usize) -> Vec<f64> {
        let mut words = CommonRandomness::new(&Seed::reproducible(31)).words(Purpose::Compressor, 0, 0);
        (0..count).map(|_| words.next_dither()).collect()
    }

    #[test]
    fn atoms_are_orthonormal_and_sum_to_the_matrix() {
        for (rows, columns, dim) in [(5, 5, 25), (7, 4, 28), (4, 9, 33), (1, 6, 6), (6, 1, 5)] {
            let vector = numbers(dim);
            let shape = Shape::new(rows, columns);
            let atoms = singular_atoms(shape, &vector);
            assert_eq!(atoms.len(), shape.most_rank());
            for (i, a) in atoms.iter().enumerate() {
                assert!(i == 0 || a.value <= atoms[i - 1].value);
                for (j, b) in atoms.iter().enumerate() {
                    let expected = f64::from(i == j);
                    // A few sweeps of turns, each rounding once.
                    assert!((dot(&a.left, &b.left) - expected).abs() < 1e-12);
                    assert!((dot(&a.right, &b.right) - expected).abs() < 1e-12);
                }
            }
            for (k, x) in vector.iter().enumerate() {
                let sum: f64 = atoms.iter().map(|a| a.value * a.left[k / columns] * a.right[k % columns]).sum();
                assert!((sum - x).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn zero_and_tiny_matrices_have_a_decomposition() {
        assert!(singular_atoms(Shape::new(3, 3), &[0.0; 9]).iter().all(|atom| atom.value == 0.0));
        let tiny = singular_atoms(Shape::new(2, 2), &[3e-300, 0.0, 0.0, 4e-300]);
        assert!((tiny[0].value / 4e-300 - 1.0).abs() < 1e-15 && (tiny[1].value / 3e-300 - 1.0).abs() < 1e-15);
    }

    #[test]
    fn orthogonal_columns_are_orthonormal_and_dependent_ones_vanish() {
        let mut columns = numbers(12);
        let copy: Vec<f64> = columns[..4].iter().map(|x| 2.0 * x).collect();
        columns.extend(copy);
        orthogonalise(&mut columns, 4);
        for i in 0..4 {
            for j in 0..4 {
                let expected = f64::from(i == j && i < 3);
                let found = dot(&columns[4 * i..4 * i + 4], &columns[4 * j..4 * j + 4]);
                assert!((found - expected).abs() < 1e-14, "{i} {j} {found}");
            }
        }
    }

    #[test]
    fn the_square_shape_holds_the_vector_and_no_row_more() {
        for dim in [0, 1, 2, 3, 784, 785, 100_000] {
            let shape = Shape::square(dim);
            assert!(shape.rows() * shape.columns() >= dim);
            assert!((shape.rows() - 1) * shape.columns() <= dim);
        }
        assert_eq!(Shape::square(784), Shape::new(28, 28));
    }
}
