//! TernGrad: minus one, zero or one times a scale.

use corewire_sketch::CommonRandomness;

use crate::codec::{Address, Codec, CodecError, Law, admit_clamped, admit_message, at_least, bucket_lens, energy};

/// Every coordinate to -s, 0 or s, at random so that it is unbiased.
///
/// - Rule: s = the largest |v_i| of the layer, C(v)_i = s sign(v_i) with probability |v_i|/s, else 0. With clipping, v_i is first
///   clamped to `clip` root mean squares of the layer (the paper takes 2.5 deviations, of gradients with mean near 0).
/// - Law: without clipping unbiased with omega = (sqrt(B) - 1)/2 for layers of B coordinates: the variance is
///   s ||v||_1 - ||v||^2, which is largest for one large and B - 1 equal small entries. With clipping: neither.
/// - Bytes: by layer 4 + ceil(B/5), five digits of base 3 a byte.
/// - Checked: mean, and equality in the law on the worst vector.
/// - Reference: TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning, W. Wen, C. Xu, F. Yan, C. Wu,
///   Y. Wang, Y. Chen, H. Li, 2017.
#[derive(Clone, Debug)]
pub struct TernGrad {
    dim: usize,
    layer: usize,
    clip: Option<f64>,
    randomness: CommonRandomness,
}

impl TernGrad {
    /// Layers of `layer` coordinates, clipped at `clip` root mean squares where it is given.
    ///
    /// # Panics
    /// If `layer` is 0 or `clip` is not positive.
    pub fn new(dim: usize, layer: usize, clip: Option<f64>, randomness: &CommonRandomness) -> Self {
        assert!(layer > 0, "a layer has at least one coordinate");
        assert!(clip.is_none_or(|clip| clip > 0.0), "a clipping factor is positive");
        Self { dim, layer, clip, randomness: randomness.clone() }
    }
}

impl Codec for TernGrad {
    fn name(&self) -> &'static str {
        if self.clip.is_some() { "terngrad" } else { "terngrad-unclipped" }
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        if self.clip.is_some() {
            return Law::Neither;
        }
        let b = self.layer.min(self.dim) as f64;
        Law::Unbiased { omega: ((b.sqrt() - 1.0) / 2.0).max(0.0) }
    }

    fn fixed_len(&self) -> Option<usize> {
        Some(bucket_lens(self.dim, self.layer).map(|len| 4 + len.div_ceil(5)).sum())
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut words = address.own_words(&self.randomness);
        message.clear();
        for layer in vector.chunks(self.layer) {
            let limit = match self.clip {
                Some(clip) => clip * (energy(layer) / layer.len() as f64).sqrt(),
                None => f64::INFINITY,
            };
            let scale = at_least(layer.iter().fold(0.0, |most, x| x.abs().max(most)).min(limit));
            message.extend(scale.to_le_bytes());
            let scale = f64::from(scale);
            for five in layer.chunks(5) {
                let digit = |x: &f64| match words.next_unit() * scale < x.abs() {
                    true if *x < 0.0 => 2,
                    true => 1,
                    false => 0,
                };
                let digits: Vec<u8> = five.iter().map(digit).collect();
                message.push(digits.iter().rev().fold(0, |byte, digit| byte * 3 + digit));
            }
        }
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut rest = message;
        for layer in out.chunks_mut(self.layer) {
            let (head, tail) = rest.split_first_chunk::<4>().ok_or(CodecError::Truncated)?;
            let (digits, others) = tail.split_at_checked(layer.len().div_ceil(5)).ok_or(CodecError::Truncated)?;
            rest = others;
            let scale = f64::from(f32::from_le_bytes(*head));
            if !scale.is_finite() {
                return Err(CodecError::NotFinite);
            }
            if scale < 0.0 {
                return Err(CodecError::Range { what: "a scale" });
            }
            for (five, &byte) in layer.chunks_mut(5).zip(digits) {
                let mut byte = byte;
                for x in five {
                    *x = [0.0, scale, -scale][usize::from(byte % 3)];
                    byte /= 3;
                }
                if byte > 0 {
                    return Err(CodecError::Range { what: "a group of five digits" });
                }
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    #[test]
    fn clipping_bounds_the_scale() {
        let randomness = CommonRandomness::new(&Seed::reproducible(5));
        let mut vector = vec![1.0; 99];
        vector.push(100.0);
        let mut message = Vec::new();
        TernGrad::new(100, 100, Some(2.5), &randomness).encode(Address::default(), &vector, &mut message);
        let scale = f32::from_le_bytes(message[..4].try_into().unwrap());
        let root_mean_square = (10_099.0f64 / 100.0).sqrt();
        assert!((f64::from(scale) / (2.5 * root_mean_square) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_law_is_attained_by_one_large_and_equal_small_entries() {
        // m = cos t and the others sin t/sqrt(B - 1) with tan 2t = sqrt(B - 1); the variance of the rule is s||v||_1 - ||v||^2.
        let b: f64 = 64.0;
        let t = (b - 1.0).sqrt().atan() / 2.0;
        let l1 = t.cos() + (b - 1.0).sqrt() * t.sin();
        assert!((t.cos() * l1 - 1.0 - (b.sqrt() - 1.0) / 2.0).abs() < 1e-12);
    }
}
