//! Eigenvalues and eigenvectors of symmetric matrices: Householder's reduction to tridiagonal form and the implicit QL method for dense
//! ones (Wilkinson and Reinsch 1971), Lanczos' recursion for those that are only known by their products. Plain arithmetic and square roots
//! in a fixed order, so that every machine finds the same bits.

use crate::vector::{add_scaled, dot, norm_squared};

/// Vectors, or coordinates of all vectors, that are worked on together.
const LANES: usize = 16;
/// Rotations that wait until there are so many times the size of the matrix of them.
const WAITING: usize = 64;

/// Eigenvalues, largest first, and where they were asked for the unit eigenvectors, one after the other in the same order.
#[derive(Clone, Debug, PartialEq)]
pub struct Eigen {
    /// Largest first.
    pub values: Vec<f64>,
    /// As many vectors as values, or none.
    pub vectors: Vec<Vec<f64>>,
}

impl Eigen {
    /// Those of the matrix times a number.
    #[must_use]
    pub fn scaled(mut self, by: f64) -> Self {
        self.values.iter_mut().for_each(|value| *value *= by);
        self
    }
}

/// All eigenvalues of a symmetric matrix, of which the lower triangle is read, row by row.
///
/// # Panics
/// Unless the matrix has `size` squared entries.
pub fn values(matrix: Vec<f64>, size: usize) -> Vec<f64> {
    let reduced = Tridiagonal::reduce(matrix, size);
    let Tridiagonal { mut diagonal, mut side, .. } = reduced;
    rotate(&mut diagonal, &mut side, &mut []);
    sorted(diagonal, Vec::new()).values
}

/// All eigenvalues and eigenvectors of a symmetric matrix, of which the lower triangle is read, row by row.
///
/// # Panics
/// Unless the matrix has `size` squared entries.
pub fn pairs(matrix: Vec<f64>, size: usize) -> Eigen {
    let reduced = Tridiagonal::reduce(matrix, size);
    let mut vectors: Vec<Vec<f64>> = (0..size).map(|k| unit(size, k)).collect();
    let Tridiagonal { mut diagonal, mut side, reflections } = reduced;
    rotate(&mut diagonal, &mut side, &mut vectors);
    // Back through the reflections, the last one first; a few vectors at a time, which stay in the cache.
    for some in vectors.chunks_mut(LANES) {
        for (k, (factor, reflection)) in reflections.iter().enumerate().rev().filter(|(_, (factor, _))| *factor != 0.0)
        {
            for vector in &mut *some {
                let tail = &mut vector[k + 1..];
                let overlap = factor * dot(reflection, tail);
                add_scaled(-overlap, reflection, tail);
            }
        }
    }
    sorted(diagonal, vectors)
}

/// The eigenvalues of a tridiagonal matrix, and the squared first components of its eigenvectors: nodes and weights of a quadrature.
pub fn quadrature(mut diagonal: Vec<f64>, mut side: Vec<f64>) -> (Vec<f64>, Vec<f64>) {
    // Only the first components are carried along: eigenvectors of one coordinate each.
    let mut first: Vec<Vec<f64>> = (0..diagonal.len()).map(|k| vec![f64::from(u8::from(k == 0))]).collect();
    side.resize(diagonal.len(), 0.0);
    rotate(&mut diagonal, &mut side, &mut first);
    (diagonal, first.iter().map(|first| first[0] * first[0]).collect())
}

fn unit(size: usize, k: usize) -> Vec<f64> {
    let mut unit = vec![0.0; size];
    unit[k] = 1.0;
    unit
}

fn sorted(values: Vec<f64>, vectors: Vec<Vec<f64>>) -> Eigen {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let mut vectors: Vec<Option<Vec<f64>>> = vectors.into_iter().map(Some).collect();
    let taken = order.iter().filter_map(|&k| vectors.get_mut(k).and_then(Option::take));
    let vectors = taken.collect();
    Eigen { values: order.iter().map(|&k| values[k]).collect(), vectors }
}

/// Q' A Q with the reflections that make up Q.
struct Tridiagonal {
    diagonal: Vec<f64>,
    /// `side[k]` stands between `diagonal[k]` and `diagonal[k + 1]`; the last is 0.
    side: Vec<f64>,
    /// 1 - factor v v' on the coordinates after the k-th.
    reflections: Vec<(f64, Vec<f64>)>,
}

impl Tridiagonal {
    fn reduce(mut matrix: Vec<f64>, size: usize) -> Self {
        assert_eq!(matrix.len(), size * size, "a square matrix");
        let mut side = vec![0.0; size];
        let mut reflections = Vec::with_capacity(size.saturating_sub(2));
        let mut product = vec![0.0; size];
        for k in 0..size.saturating_sub(1) {
            let mut column: Vec<f64> = (k + 1..size).map(|i| matrix[i * size + k]).collect();
            // Scaled, so that tiny and huge matrices neither underflow nor overflow.
            let scale = column.iter().fold(0.0f64, |most, entry| most.max(entry.abs()));
            if column.len() == 1 || column[1..].iter().all(|&entry| entry == 0.0) {
                side[k] = column[0];
                reflections.push((0.0, column));
                continue;
            }
            column.iter_mut().for_each(|entry| *entry /= scale);
            let norm = norm_squared(&column).sqrt();
            let turned = if column[0] > 0.0 { -norm } else { norm };
            side[k] = turned * scale;
            column[0] -= turned;
            let factor = 2.0 / norm_squared(&column);
            // A -= v w' + w v', w = p - (factor/2)(p'v) v, p = factor A v, on the lower triangle of what is left.
            let product = &mut product[..column.len()];
            product.fill(0.0);
            for (i, &v) in column.iter().enumerate() {
                let row = &matrix[(k + 1 + i) * size + k + 1..][..=i];
                let (last, before) = row.split_last().expect("a row has its diagonal");
                product[i] += dot(before, &column[..i]) + last * v;
                add_scaled(v, before, &mut product[..i]);
            }
            product.iter_mut().for_each(|p| *p *= factor);
            let overlap = 0.5 * factor * dot(product, &column);
            add_scaled(-overlap, &column, product);
            for i in 0..column.len() {
                let row = &mut matrix[(k + 1 + i) * size + k + 1..][..=i];
                let (v, w) = (column[i], product[i]);
                row.iter_mut().zip(product.iter().zip(&column)).for_each(|(a, (w_j, v_j))| *a -= v * w_j + w * v_j);
            }
            reflections.push((factor, column));
        }
        let diagonal = (0..size).map(|k| matrix[k * size + k]).collect();
        Self { diagonal, side, reflections }
    }
}

/// Makes a tridiagonal matrix diagonal by implicit QL steps; `vectors`, rows of a matrix or none, are rotated along.
fn rotate(diagonal: &mut [f64], side: &mut [f64], vectors: &mut [Vec<f64>]) {
    // By a power of two, which costs no bit: the squares below would under- or overflow for tiny and huge matrices.
    let most = diagonal.iter().chain(&*side).fold(0.0f64, |most, entry| most.max(entry.abs()));
    let scale = if most.is_normal() { f64::from_bits(most.to_bits() & f64::INFINITY.to_bits()) } else { 1.0 };
    diagonal.iter_mut().chain(&mut *side).for_each(|entry| *entry /= scale);
    rotate_scaled(diagonal, side, vectors);
    diagonal.iter_mut().chain(side).for_each(|entry| *entry *= scale);
}

fn rotate_scaled(diagonal: &mut [f64], side: &mut [f64], vectors: &mut [Vec<f64>]) {
    let size = diagonal.len();
    let mut turns = Vec::new();
    for low in 0..size {
        // Converges cubically; thirty steps per value are never needed for finite entries.
        for _ in 0..60 {
            let negligible = |m: usize| {
                let around = diagonal[m].abs() + diagonal[m + 1].abs();
                side[m].abs() <= f64::EPSILON * around || side[m] == 0.0
            };
            let high = (low..size - 1).find(|&m| negligible(m)).unwrap_or(size - 1);
            if high == low {
                break;
            }
            let half = (diagonal[low + 1] - diagonal[low]) / (2.0 * side[low]);
            let length = (half * half + 1.0).sqrt();
            let mut g = diagonal[high] - diagonal[low] + side[low] / (half + length.copysign(half));
            let (mut s, mut c, mut p) = (1.0, 1.0, 0.0);
            let mut split = false;
            for i in (low..high).rev() {
                let (f, b) = (s * side[i], c * side[i]);
                let r = (f * f + g * g).sqrt();
                side[i + 1] = r;
                if r == 0.0 {
                    diagonal[i + 1] -= p;
                    side[high] = 0.0;
                    split = true;
                    break;
                }
                s = f / r;
                c = g / r;
                g = diagonal[i + 1] - p;
                let t = (diagonal[i] - g) * s + 2.0 * c * b;
                p = s * t;
                diagonal[i + 1] = g + p;
                g = c * t - b;
                if !vectors.is_empty() {
                    turns.push(Turn { at: i, c, s });
                }
            }
            if !split {
                diagonal[low] -= p;
                side[low] = g;
                side[high] = 0.0;
            }
            if turns.len() > WAITING * size {
                turn(vectors, &turns);
                turns.clear();
            }
        }
    }
    turn(vectors, &turns);
}

/// A rotation of the vectors `at` and `at + 1`.
struct Turn {
    at: usize,
    c: f64,
    s: f64,
}

/// Applies rotations, one after the other, to a few coordinates of all vectors at a time: those stay in the cache, where all coordinates of
/// all vectors would pass through it once per sweep. No coordinate knows of another, so no bit depends on it.
fn turn(vectors: &mut [Vec<f64>], turns: &[Turn]) {
    let length = vectors.first().map_or(0, Vec::len);
    let mut some = vec![[0.0; LANES]; vectors.len()];
    for first in (0..length).step_by(LANES) {
        let count = LANES.min(length - first);
        let part = first..first + count;
        some.iter_mut().zip(&*vectors).for_each(|(some, vector)| some[..count].copy_from_slice(&vector[part.clone()]));
        for &Turn { at, c, s } in turns {
            let (before, after) = some.split_at_mut(at + 1);
            for (z, w) in before[at].iter_mut().zip(&mut after[0]) {
                (*z, *w) = (c * *z - s * *w, s * *z + c * *w);
            }
        }
        some.iter().zip(&mut *vectors).for_each(|(some, vector)| vector[part.clone()].copy_from_slice(&some[..count]));
    }
}

/// The tridiagonal matrix of Lanczos' recursion from a start, kept orthogonal to all earlier vectors, and those vectors.
#[derive(Clone, Debug)]
pub struct Krylov {
    /// Its diagonal.
    pub diagonal: Vec<f64>,
    /// What stands beside the diagonal, one entry fewer.
    pub side: Vec<f64>,
    /// The orthonormal vectors.
    pub basis: Vec<Vec<f64>>,
    /// The length of what the next vector would have been: 0 where there is none.
    pub left: f64,
}

impl Krylov {
    /// The largest eigenpairs that the recursion has found, at most `most`: those above rounding whose residual is below a thousandth
    /// of their value.
    pub fn pairs(&self, most: usize) -> Eigen {
        let size = self.diagonal.len();
        let (mut diagonal, mut side) = (self.diagonal.clone(), self.side.clone());
        side.resize(size, 0.0);
        let mut vectors: Vec<Vec<f64>> = (0..size).map(|k| unit(size, k)).collect();
        rotate(&mut diagonal, &mut side, &mut vectors);
        let Eigen { values, vectors } = sorted(diagonal, vectors);
        let rounding = 1e-13 * values.first().map_or(0.0, |largest| largest.abs());
        let converged =
            |k: &usize| values[*k] > rounding && self.left * vectors[*k][size - 1].abs() <= 1e-3 * values[*k];
        let kept: Vec<usize> = (0..size.min(most)).take_while(converged).collect();
        let lift = |&k: &usize| {
            let mut lifted = vec![0.0; self.basis.first().map_or(0, Vec::len)];
            vectors[k].iter().zip(&self.basis).for_each(|(weight, vector)| add_scaled(*weight, vector, &mut lifted));
            lifted
        };
        Eigen { values: kept.iter().map(|&k| values[k]).collect(), vectors: kept.iter().map(lift).collect() }
    }
}

/// Runs at most `steps` steps of the recursion for a matrix that `multiply` applies. Where the space of the start is exhausted it goes on in
/// what is orthogonal to it, since that has the other eigenvectors of eigenvalues which it has met already.
pub fn lanczos(start: &[f64], steps: usize, mut multiply: impl FnMut(&[f64], &mut [f64])) -> Krylov {
    let mut krylov = Krylov { diagonal: Vec::new(), side: Vec::new(), basis: Vec::new(), left: 0.0 };
    let norm = norm_squared(start).sqrt();
    if norm == 0.0 || !norm.is_finite() {
        return krylov;
    }
    let mut next: Vec<f64> = start.iter().map(|value| value / norm).collect();
    let (mut largest, mut is_start) = (0.0f64, true);
    while krylov.diagonal.len() < steps.min(start.len()) {
        krylov.basis.push(next);
        let last = krylov.basis.last().expect("it was just pushed");
        next = vec![0.0; start.len()];
        multiply(last, &mut next);
        krylov.diagonal.push(dot(last, &next));
        let image = norm_squared(&next).sqrt();
        largest = largest.max(image);
        krylov.remove_basis(&mut next);
        krylov.left = norm_squared(&next).sqrt();
        if krylov.left <= 1e-13 * largest || !krylov.left.is_finite() {
            // A start that the matrix takes to nothing tells that it does so to all that is left.
            let is_over = !krylov.left.is_finite() || is_start && image <= 1e-13 * largest;
            krylov.left = 0.0;
            match krylov.another_start().filter(|_| !is_over) {
                Some(start) => next = start,
                None => break,
            }
            is_start = true;
        } else {
            next.iter_mut().for_each(|value| *value /= krylov.left);
            is_start = false;
        }
        krylov.side.push(krylov.left);
    }
    krylov.side.truncate(krylov.diagonal.len().saturating_sub(1));
    krylov
}

impl Krylov {
    /// Makes a vector orthogonal to the basis.
    fn remove_basis(&self, vector: &mut [f64]) {
        // Twice is enough (Kahan; Parlett 1980).
        for _ in 0..2 {
            for earlier in &self.basis {
                let overlap = dot(earlier, vector);
                add_scaled(-overlap, earlier, vector);
            }
        }
    }

    /// A unit vector that is orthogonal to the basis; none where that is all of space.
    fn another_start(&self) -> Option<Vec<f64>> {
        let (dim, count) = (self.basis.first()?.len(), self.basis.len());
        let mut start = irregular(dim, count);
        self.remove_basis(&mut start);
        let norm = norm_squared(&start).sqrt();
        start.iter_mut().for_each(|value| *value /= norm);
        (count < dim && norm > 1e-9).then_some(start)
    }
}

/// A vector that no eigenvector is orthogonal to by accident; another one for every `turn`. Its numbers are those of SplitMix64 (Steele et al.
/// 2014), between -1/2 and 1/2.
pub fn irregular(len: usize, turn: usize) -> Vec<f64> {
    let number = |i: u64| {
        let mut word = (((turn as u64) << 40) + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    (0..len as u64).map(number).collect()
}

/// The largest magnitude of an eigenvalue of a symmetric matrix that `multiply` applies, by a power iteration; a few per cent too small at
/// most.
pub fn largest(dim: usize, mut multiply: impl FnMut(&[f64], &mut [f64])) -> f64 {
    // Any start will do that no eigenvector is orthogonal to by accident: irregular signs and lengths.
    let mut direction: Vec<f64> = (0..dim).map(|i| ((i * i % 7) as f64 - 3.25) / (1.0 + (i % 5) as f64)).collect();
    let mut image = vec![0.0; dim];
    let mut value = 0.0f64;
    for _ in 0..300 {
        let norm = norm_squared(&direction).sqrt();
        if norm == 0.0 || !norm.is_finite() {
            break;
        }
        direction.iter_mut().for_each(|v| *v /= norm);
        multiply(&direction, &mut image);
        let last = value;
        value = dot(&direction, &image).abs();
        if (value - last).abs() <= 1e-6 * value {
            break;
        }
        std::mem::swap(&mut direction, &mut image);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries between -1 and 1 without any pattern that matters.
    fn symmetric(size: usize) -> Vec<f64> {
        let entry = |i: usize, j: usize| (((i * j + 3 * (i + j)) * 7919 % 1009) as f64 / 504.5) - 1.0;
        (0..size * size).map(|at| entry(at / size, at % size)).collect()
    }

    fn multiply(matrix: &[f64], size: usize, v: &[f64]) -> Vec<f64> {
        matrix.chunks_exact(size).map(|row| dot(row, v)).collect()
    }

    #[test]
    fn pairs_are_orthonormal_and_solve_their_equation() {
        for size in [1, 2, 3, 10, 65, 130] {
            let matrix = symmetric(size);
            let Eigen { values, vectors } = pairs(matrix.clone(), size);
            assert!(values.is_sorted_by(|a, b| a >= b));
            // Backward stable: the residual is a small multiple of size times the last bit of the norm, which is below `size`.
            let bound = 50.0 * size as f64 * size as f64 * f64::EPSILON;
            for (a, (value, vector)) in values.iter().zip(&vectors).enumerate() {
                let image = multiply(&matrix, size, vector);
                assert!(image.iter().zip(vector).all(|(image, v)| (image - value * v).abs() < bound), "size {size}");
                for (b, other) in vectors.iter().enumerate() {
                    assert!((dot(vector, other) - f64::from(u8::from(a == b))).abs() < bound);
                }
            }
            let alone = super::values(matrix, size);
            assert!(alone.iter().zip(&values).all(|(a, b)| (a - b).abs() < bound));
        }
    }

    #[test]
    fn special_matrices_are_solved() {
        assert_eq!(values(vec![2.0, 0.0, 0.0, 5.0], 2), [5.0, 2.0]);
        assert_eq!(values(vec![0.0; 16], 4), [0.0; 4]);
        let ones = values(vec![1.0; 25], 5);
        assert!((ones[0] - 5.0).abs() < 1e-14 && ones[1..].iter().all(|value| value.abs() < 1e-14));
        let tiny = values(vec![2e-300, 1e-300, 1e-300, 2e-300], 2);
        assert!((tiny[0] / 3e-300 - 1.0).abs() < 1e-12 && (tiny[1] / 1e-300 - 1.0).abs() < 1e-12);
        let huge = values(vec![2e300, 1e300, 1e300, 2e300], 2);
        assert!((huge[0] / 3e300 - 1.0).abs() < 1e-12 && (huge[1] / 1e300 - 1.0).abs() < 1e-12);
        assert!(values(Vec::new(), 0).is_empty());
    }

    #[test]
    fn lanczos_finds_the_ends_of_a_spectrum() {
        let size = 200;
        let spectrum: Vec<f64> = (1..=size).map(|i| 1.0 / (i * i) as f64).collect();
        let start: Vec<f64> = (0..size).map(|i| 1.0 + (i % 3) as f64).collect();
        let krylov = lanczos(&start, 40, |v, out| {
            out.iter_mut().zip(v.iter().zip(&spectrum)).for_each(|(out, (v, l))| *out = v * l);
        });
        let (nodes, weights) = quadrature(krylov.diagonal.clone(), krylov.side.clone());
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let top = nodes.iter().copied().fold(0.0, f64::max);
        assert!((top - 1.0).abs() < 1e-12);
        for (a, one) in krylov.basis.iter().enumerate() {
            for (b, other) in krylov.basis.iter().enumerate() {
                assert!((dot(one, other) - f64::from(u8::from(a == b))).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn equal_eigenvalues_are_all_found_and_nothing_is_looked_for_where_there_is_nothing() {
        // Two values, forty times each, and nothing in the other coordinates.
        let value = |i: usize| if i < 80 { 1.0 + (i % 2) as f64 } else { 0.0 };
        let mut products = 0;
        let krylov = lanczos(&irregular(300, 0), 300, |v, out| {
            products += 1;
            out.iter_mut().zip(v).enumerate().for_each(|(i, (out, v))| *out = value(i) * v);
        });
        let found = krylov.pairs(100).values;
        assert_eq!(found.len(), 80, "{found:?}");
        assert!(found[..40].iter().all(|value| (value - 2.0).abs() < 1e-9), "{found:?}");
        assert!(found[40..].iter().all(|value| (value - 1.0).abs() < 1e-9), "{found:?}");
        assert!(products < 150, "{products}");
        // All of space.
        let krylov = lanczos(&[1.0, 0.0, 0.0], 5, |v, out| out.copy_from_slice(v));
        assert_eq!((krylov.diagonal.len(), krylov.side, krylov.left), (3, vec![0.0; 2], 0.0));
        assert!((largest(3, |v, out| out.copy_from_slice(v)) - 1.0).abs() < 1e-12);
    }
}
