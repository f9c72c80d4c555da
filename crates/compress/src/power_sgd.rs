//! PowerSGD's pieces: one step of a power iteration towards a matrix of low rank. Not a codec, because sums over the machines stand
//! between the pieces; who takes them belongs to the caller.

use corewire_sketch::CommonRandomness;

use crate::codec::Address;
use crate::matrix::{Shape, dot, orthogonalise};

/// The steps of PowerSGD for a vector seen as a matrix M of low rank r.
///
/// - Rule: P = M Q, sum P over the machines, orthonormalise P, Q = M' P, sum Q, decode P Q'. Q is kept for the next round.
/// - Law: for one matrix, P Q' = P P' M is an orthogonal projection of M: ||M - P P' M|| <= ||M||, and with Q kept over rounds of the
///   same M it converges to the best matrix of rank r. Both maps are linear in M for fixed Q and P, so sums of P and of Q over the
///   machines are those of the sum of M.
/// - Bytes: 4 r (rows + columns), in two dependent sums, as `f32`.
/// - Checked: against a dense power iteration and the singular values.
/// - Reference: PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization, T. Vogels, S. P. Karimireddy,
///   M. Jaggi, 2019.
///
/// ```
/// use corewire_compress::{Address, PowerSgd, Shape};
/// use corewire_sketch::{CommonRandomness, Seed};
///
/// let power = PowerSgd::new(6, Shape::new(2, 3), 1);
/// let mut q = power.start(Address::default(), &CommonRandomness::new(&Seed::reproducible(1)));
/// let rank_one = [1.0, 2.0, 3.0, 2.0, 4.0, 6.0];
/// let (mut p, mut out) = (power.new_p(), [0.0; 6]);
/// power.project_left(&rank_one, &q, &mut p); // then sum p over the machines
/// power.orthogonalise(&mut p);
/// power.project_right(&rank_one, &p, &mut q); // then sum q over the machines
/// power.decode(&p, &q, &mut out);
/// assert!(out.iter().zip(&rank_one).all(|(a, b)| (a - b).abs() < 1e-12));
/// ```
#[derive(Clone, Debug)]
pub struct PowerSgd {
    dim: usize,
    shape: Shape,
    rank: usize,
}

impl PowerSgd {
    /// Rank `rank`, or the matrix's largest where that is less.
    ///
    /// # Panics
    /// If `rank` is 0 or the matrix does not hold the vector.
    pub fn new(dim: usize, shape: Shape, rank: usize) -> Self {
        assert!(rank > 0, "a rank is at least 1");
        shape.check(dim);
        Self { dim, shape, rank: rank.min(shape.most_rank()) }
    }

    /// The rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The matrix's shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How many numbers P has: the rank's columns of `rows` numbers, one column after the other.
    pub fn p_len(&self) -> usize {
        self.rank * self.shape.rows()
    }

    /// How many numbers Q has: the rank's columns of `columns` numbers, one column after the other.
    pub fn q_len(&self) -> usize {
        self.rank * self.shape.columns()
    }

    /// A P of zeros.
    pub fn new_p(&self) -> Vec<f64> {
        vec![0.0; self.p_len()]
    }

    /// The first Q, common to all machines: independent numbers in (-1/2, 1/2).
    pub fn start(&self, address: Address, randomness: &CommonRandomness) -> Vec<f64> {
        let mut words = address.common_words(randomness);
        (0..self.q_len()).map(|_| words.next_dither()).collect()
    }

    /// P = M Q; `p` is overwritten.
    pub fn project_left(&self, vector: &[f64], q: &[f64], p: &mut [f64]) {
        self.check(vector, p, q);
        p.fill(0.0);
        let (rows, columns) = (self.shape.rows(), self.shape.columns());
        for (row, entries) in vector.chunks(columns).enumerate() {
            for k in 0..self.rank {
                p[k * rows + row] = dot(entries, &q[k * columns..(k + 1) * columns]);
            }
        }
    }

    /// Makes the columns of P orthonormal.
    pub fn orthogonalise(&self, p: &mut [f64]) {
        assert_eq!(p.len(), self.p_len(), "a P of the right size");
        orthogonalise(p, self.shape.rows());
    }

    /// Q = M' P; `q` is overwritten.
    pub fn project_right(&self, vector: &[f64], p: &[f64], q: &mut [f64]) {
        self.check(vector, p, q);
        q.fill(0.0);
        let (rows, columns) = (self.shape.rows(), self.shape.columns());
        for (row, entries) in vector.chunks(columns).enumerate() {
            for k in 0..self.rank {
                let weight = p[k * rows + row];
                q[k * columns..].iter_mut().zip(entries).for_each(|(x, m)| *x += weight * m);
            }
        }
    }

    /// P Q' as a vector; `out` is overwritten.
    pub fn decode(&self, p: &[f64], q: &[f64], out: &mut [f64]) {
        self.check(out, p, q);
        out.fill(0.0);
        let (rows, columns) = (self.shape.rows(), self.shape.columns());
        for (row, entries) in out.chunks_mut(columns).enumerate() {
            for k in 0..self.rank {
                let weight = p[k * rows + row];
                entries.iter_mut().zip(&q[k * columns..]).for_each(|(x, y)| *x += weight * y);
            }
        }
    }

    fn check(&self, vector: &[f64], p: &[f64], q: &[f64]) {
        assert_eq!(vector.len(), self.dim, "a vector of the right dimension");
        assert_eq!((p.len(), q.len()), (self.p_len(), self.q_len()), "a P and a Q of the right size");
    }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;
    use crate::codec::energy;
    use crate::matrix::singular_atoms;

    const SHAPE: (usize, usize) = (6, 9);
    const DIM: usize = 52;

    fn setting() -> (PowerSgd, Vec<f64>, Vec<f64>) {
        let randomness = CommonRandomness::new(&Seed::reproducible(51));
        let power = PowerSgd::new(DIM, Shape::new(SHAPE.0, SHAPE.1), 2);
        let mut words = Address::new(9, 9).own_words(&randomness);
        let vector = (0..DIM).map(|_| words.next_dither()).collect();
        let q = power.start(Address::default(), &randomness);
        (power, vector, q)
    }

    fn dense(vector: &[f64]) -> impl Fn(usize, usize) -> f64 {
        move |row, column| vector.get(row * SHAPE.1 + column).copied().unwrap_or(0.0)
    }

    #[test]
    fn one_round_is_a_dense_power_iteration() {
        let (power, vector, mut q) = setting();
        let m = dense(&vector);
        let (mut p, mut out) = (power.new_p(), vec![0.0; DIM]);
        let expected_p: Vec<f64> = (0..2)
            .flat_map(|k| (0..SHAPE.0).map(move |row| (k, row)))
            .map(|(k, row)| (0..SHAPE.1).map(|c| m(row, c) * q[k * SHAPE.1 + c]).sum())
            .collect();
        power.project_left(&vector, &q, &mut p);
        assert!(p.iter().zip(&expected_p).all(|(a, b)| (a - b).abs() < 1e-14));
        power.orthogonalise(&mut p);
        power.project_right(&vector, &p, &mut q);
        power.decode(&p, &q, &mut out);
        // P P' M, entry by entry.
        for (i, x) in out.iter().enumerate() {
            let (row, column) = (i / SHAPE.1, i % SHAPE.1);
            let mut expected = 0.0;
            for k in 0..2 {
                for other in 0..SHAPE.0 {
                    expected += p[k * SHAPE.0 + row] * p[k * SHAPE.0 + other] * m(other, column);
                }
            }
            assert!((x - expected).abs() < 1e-14);
        }
    }

    #[test]
    fn rounds_on_one_matrix_converge_to_the_best_of_that_rank() {
        // A full matrix: what is decoded outside a vector's end would not be seen, and the error not that of the matrix.
        let full = SHAPE.0 * SHAPE.1;
        let power = PowerSgd::new(full, Shape::new(SHAPE.0, SHAPE.1), 2);
        let randomness = CommonRandomness::new(&Seed::reproducible(52));
        let mut words = Address::new(9, 9).own_words(&randomness);
        let vector: Vec<f64> = (0..full).map(|_| words.next_dither()).collect();
        let mut q = power.start(Address::default(), &randomness);
        let (mut p, mut out) = (power.new_p(), vec![0.0; full]);
        let mut last = f64::INFINITY;
        for _ in 0..400 {
            power.project_left(&vector, &q, &mut p);
            power.orthogonalise(&mut p);
            power.project_right(&vector, &p, &mut q);
            power.decode(&p, &q, &mut out);
            let error: Vec<f64> = out.iter().zip(&vector).map(|(a, b)| a - b).collect();
            assert!(energy(&error) <= last + 1e-12);
            last = energy(&error);
        }
        let atoms = singular_atoms(Shape::new(SHAPE.0, SHAPE.1), &vector);
        let best: f64 = atoms[2..].iter().map(|atom| atom.value * atom.value).sum();
        // The gap closes as (l_3/l_2)^(4 rounds), here far below rounding.
        assert!((last / best - 1.0).abs() < 1e-9, "{last} against {best}");
    }

    #[test]
    fn the_pieces_are_linear_so_sums_may_be_taken_between_them() {
        let (power, vector, q) = setting();
        let (half, rest): (Vec<f64>, Vec<f64>) = vector.iter().map(|x| (0.25 * x, 0.75 * x)).unzip();
        let (mut a, mut b, mut whole) = (power.new_p(), power.new_p(), power.new_p());
        power.project_left(&half, &q, &mut a);
        power.project_left(&rest, &q, &mut b);
        power.project_left(&vector, &q, &mut whole);
        assert!(a.iter().zip(&b).zip(&whole).all(|((a, b), w)| (a + b - w).abs() < 1e-14));
    }
}
