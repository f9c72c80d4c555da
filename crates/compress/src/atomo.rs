//! ATOMO: random singular vectors.

use corewire_sketch::CommonRandomness;

use crate::bits::{BitReader, BitWriter, index_bits};
use crate::codec::{Address, Codec, CodecError, Law, admit_clamped, admit_message};
use crate::matrix::{Shape, singular_atoms};

/// The vector as a matrix, of which each singular atom survives with a probability that grows with its singular value.
///
/// - Rule: M = sum of l_i u_i w_i'; C(M) = the sum of (l_i/p_i) u_i w_i' over independent coins of probability p_i, where
///   p_i = min(1, c l_i) with sum p_i = s: the p_i of least variance.
/// - Law: unbiased with omega = r/s - 1 for rank r <= min(rows, columns), or 0 where s >= r: equal probabilities s/r would give
///   exactly that, and the chosen ones are no worse.
/// - Bytes: for each of the k drawn atoms 4 (rows + columns), the value being inside u; and a count. E k = s, at most.
/// - Checked: mean; the exact variance sum l_i^2 (1/p_i - 1).
/// - Reference: ATOMO: Communication-efficient Learning via Atomic Sparsification, H. Wang, S. Sievert, Z. Charles, S. Liu,
///   S. Wright, D. Papailiopoulos, 2018.
#[derive(Clone, Debug)]
pub struct Atomo {
    dim: usize,
    shape: Shape,
    atoms: usize,
    randomness: CommonRandomness,
}

impl Atomo {
    /// About `atoms` (s) atoms a message, of the vector seen as a matrix of this shape.
    ///
    /// # Panics
    /// If `atoms` is 0 or the matrix does not hold the vector.
    pub fn new(dim: usize, shape: Shape, atoms: usize, randomness: &CommonRandomness) -> Self {
        assert!(atoms > 0, "at least one atom is expected");
        shape.check(dim);
        Self { dim, shape, atoms, randomness: randomness.clone() }
    }
}

impl Codec for Atomo {
    fn name(&self) -> &'static str {
        "atomo"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        Law::Unbiased { omega: (self.shape.most_rank() as f64 / self.atoms as f64 - 1.0).max(0.0) }
    }

    fn fixed_len(&self) -> Option<usize> {
        None
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut words = address.own_words(&self.randomness);
        let atoms = singular_atoms(self.shape, &vector);
        let values: Vec<f64> = atoms.iter().map(|atom| atom.value).collect();
        let probabilities = probabilities(&values, self.atoms);
        let drawn: Vec<_> = atoms.iter().zip(&probabilities).filter(|(_, p)| words.next_coin(**p)).collect();
        let mut writer = BitWriter::new(message);
        writer.write(drawn.len() as u64, index_bits(self.shape.most_rank() + 1));
        for (atom, p) in drawn {
            atom.left.iter().for_each(|x| writer.write_f32(x * (atom.value / p)));
            atom.right.iter().for_each(|x| writer.write_f32(*x));
        }
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(None, message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        let count = reader.read_below(self.shape.most_rank() + 1, "a count")?;
        let (mut left, mut right) = (vec![0.0; self.shape.rows()], vec![0.0; self.shape.columns()]);
        out.fill(0.0);
        for _ in 0..count {
            for x in left.iter_mut().chain(&mut right) {
                *x = reader.read_f32()?;
            }
            for (row, u) in out.chunks_mut(self.shape.columns()).zip(&left) {
                row.iter_mut().zip(&right).for_each(|(x, w)| *x += u * w);
            }
        }
        reader.finish()
    }
}

/// p_i = min(1, c value_i) with sum `budget`, for values in descending order: as long as the largest would exceed 1, it is 1.
fn probabilities(values: &[f64], budget: usize) -> Vec<f64> {
    // Sums of tails, smallest first, so that nothing is lost by subtraction.
    let mut tails = vec![0.0; values.len() + 1];
    for i in (0..values.len()).rev() {
        tails[i] = tails[i + 1] + values[i];
    }
    let mut left = budget as f64;
    let mut certain = 0;
    while certain < values.len() && left * values[certain] >= tails[certain] && left > 0.0 {
        certain += 1;
        left -= 1.0;
    }
    let rest = tails[certain];
    let chance = |(i, value): (usize, &f64)| match i < certain {
        _ if *value == 0.0 => 0.0,
        true => 1.0,
        false => left * value / rest,
    };
    values.iter().enumerate().map(chance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_the_budget_and_follow_the_values() {
        assert_eq!(probabilities(&[4.0, 2.0, 1.0, 1.0], 1), [0.5, 0.25, 0.125, 0.125]);
        assert_eq!(probabilities(&[8.0, 2.0, 1.0, 1.0], 2), [1.0, 0.5, 0.25, 0.25]);
        assert_eq!(probabilities(&[8.0, 2.0, 1.0, 0.0], 5), [1.0, 1.0, 1.0, 0.0]);
        assert_eq!(probabilities(&[0.0, 0.0], 1), [0.0, 0.0]);
        assert_eq!(probabilities(&[3.0], 1), [1.0]);
    }

    #[test]
    fn the_variance_is_the_papers() {
        // A diagonal matrix is its own decomposition.
        let randomness = CommonRandomness::new(&corewire_sketch::Seed::reproducible(41));
        let values = [4.0, 2.0, 1.0, 1.0];
        let mut vector = vec![0.0; 16];
        (0..4).for_each(|i| vector[5 * i] = values[i]);
        let mut codec = Atomo::new(16, Shape::new(4, 4), 2, &randomness);
        let p = probabilities(&values, 2);
        let exact: f64 = values.iter().zip(&p).map(|(l, p)| l * l * (1.0 / p - 1.0)).sum();
        let (mut message, mut out) = (Vec::new(), vec![0.0; 16]);
        let trials = 4000;
        let mut errors = Vec::new();
        for round in 0..trials {
            codec.encode(Address::new(round, 0), &vector, &mut message);
            codec.decode(Address::new(round, 0), &message, &mut out).unwrap();
            errors.push(out.iter().zip(&vector).map(|(a, b)| (a - b) * (a - b)).sum::<f64>());
        }
        let mean = errors.iter().sum::<f64>() / trials as f64;
        let deviation = (errors.iter().map(|e| (e - mean) * (e - mean)).sum::<f64>() / trials as f64).sqrt();
        // Four standard errors; the seed is fixed.
        assert!((mean - exact).abs() < 4.0 * deviation / (trials as f64).sqrt(), "{mean} against {exact}");
    }
}
