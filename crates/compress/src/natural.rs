//! Natural compression: powers of two.

use corewire_sketch::CommonRandomness;

use crate::bits::{BitReader, BitWriter};
use crate::codec::{Address, Codec, CodecError, Law, admit_clamped, admit_message};

/// The exponent that code 0 would have: code c stands for 2^(c - 127), but code 0 for zero.
const BIAS: i64 = 127;

/// Every magnitude to one of its two neighbouring powers of two, at random so that it is unbiased.
///
/// - Rule: for 2^e <= |v_i| < 2^(e+1), C(v)_i = sign(v_i) 2^(e+1) with probability |v_i|/2^e - 1, else sign(v_i) 2^e. Magnitudes
///   below 2^-126 go to 2^-126 or 0, still unbiased.
/// - Law: unbiased with omega = 1/8, attained at |v_i| = (4/3) 2^e: (2 - t)(t - 1)/t^2 is largest at t = 4/3.
/// - Bytes: 9 bits per coordinate, a sign and eight bits of exponent.
/// - Checked: mean; the variance at t = 4/3 against 1/8.
/// - Reference: Natural Compression for Distributed Deep Learning, S. Horváth, C.-Y. Ho, Ľ. Horváth, A. Sahu, M. Canini,
///   P. Richtárik, 2019.
#[derive(Clone, Debug)]
pub struct Natural {
    dim: usize,
    randomness: CommonRandomness,
}

impl Natural {
    /// Natural compression of vectors of this dimension.
    pub fn new(dim: usize, randomness: &CommonRandomness) -> Self {
        Self { dim, randomness: randomness.clone() }
    }
}

impl Codec for Natural {
    fn name(&self) -> &'static str {
        "natural"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        Law::Unbiased { omega: 0.125 }
    }

    fn fixed_len(&self) -> Option<usize> {
        Some((9 * self.dim).div_ceil(8))
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut words = address.own_words(&self.randomness);
        let mut writer = BitWriter::new(message);
        for x in vector.iter() {
            let magnitude = x.abs();
            let exponent = (magnitude.to_bits() >> 52) as i64 - 1023;
            // Clamped magnitudes are below 2^128, so the larger neighbour has a code of eight bits.
            let code = match u64::try_from(exponent + BIAS) {
                Ok(below @ 1..) => below + u64::from(words.next_coin(magnitude / power(exponent) - 1.0)),
                _ => u64::from(words.next_coin(magnitude / power(1 - BIAS))),
            };
            writer.write(u64::from(*x < 0.0) << 8 | code, 9);
        }
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        for x in out {
            let code = reader.read(9)?;
            let magnitude = if code & 255 == 0 { 0.0 } else { power((code & 255) as i64 - BIAS) };
            *x = if code >> 8 == 1 { -magnitude } else { magnitude };
        }
        reader.finish()
    }
}

/// 2^exponent, exactly.
fn power(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    #[test]
    fn powers_of_two_travel_exactly_and_four_thirds_has_variance_one_eighth() {
        let d = 40_000;
        let mut codec = Natural::new(d, &CommonRandomness::new(&Seed::reproducible(6)));
        let (mut message, mut out) = (Vec::new(), vec![0.0; d]);
        let mut decoded = |x: f64| {
            codec.encode(Address::new(1, 0), &vec![x; d], &mut message);
            codec.decode(Address::new(1, 0), &message, &mut out).unwrap();
            out.clone()
        };
        for x in [1.0, -0.25, 1024.0, power(-126), power(127)] {
            assert!(decoded(x).iter().all(|&y| y == x));
        }
        let t = 4.0 / 3.0;
        let out = decoded(t);
        assert!(out.iter().all(|&y| y == 1.0 || y == 2.0));
        let mean = out.iter().sum::<f64>() / d as f64;
        let omega = out.iter().map(|y| (y - t) * (y - t)).sum::<f64>() / d as f64 / (t * t);
        // One entry has deviation sqrt(1/8) t = 0.47, and its squared error over t^2 takes 1/16 and 1/4 with probabilities 2/3 and
        // 1/3, deviation 0.088: four standard errors each.
        assert!((mean - t).abs() < 4.0 * 0.4715 / 200.0);
        assert!((omega - 0.125).abs() < 4.0 * 0.0884 / 200.0);
        // The smallest and largest magnitudes stay between their neighbours.
        assert!(decoded(1e-300).iter().all(|&y| y == 0.0));
        assert!(decoded(1e300).iter().all(|&y| y == power(127) || y == power(128)));
    }
}
