//! All coordinates in few bits, rounded to nearest.

use crate::codec::{Address, Codec, CodecError, Law, admit_clamped, admit_message, at_least, bucket_lens};

/// Coordinates that share a scale in eight bits.
const BLOCK: usize = 256;
/// The largest integer of eight bits that is used.
const MOST: f64 = 127.0;

/// Every coordinate in 16 or 8 bits, rounded to nearest.
///
/// - Rule: in 16 bits the nearest bfloat16, the upper half of an `f32`; in 8 bits round(127 v_i/s) s/127, s the largest magnitude of 256
///   coordinates, rounded up to an `f32`.
/// - Law: contractive. A bfloat16 is within 2^-8 of a normal number, so delta = 1 - 2^-16. In a block of b coordinates an integer is
///   within s/254, and s is at most the block's norm: delta = 1 - b/254^2.
/// - Bytes: 2 d; d and 4 per block.
/// - Checked: the bounds on each coordinate.
#[derive(Clone, Debug)]
pub struct Narrow {
    dim: usize,
    half: bool,
}

impl Narrow {
    /// In 16 bits.
    pub fn bf16(dim: usize) -> Self {
        Self { dim, half: true }
    }

    /// In 8 bits.
    pub fn int8(dim: usize) -> Self {
        Self { dim, half: false }
    }
}

impl Codec for Narrow {
    fn name(&self) -> &'static str {
        if self.half { "bf16" } else { "int8" }
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        let lost = if self.half { 1.0 / 65536.0 } else { BLOCK.min(self.dim) as f64 / (4.0 * MOST * MOST) };
        Law::Contractive { delta: 1.0 - lost }
    }

    fn fixed_len(&self) -> Option<usize> {
        Some(if self.half { 2 * self.dim } else { self.dim + 4 * self.dim.div_ceil(BLOCK) })
    }

    fn encode(&mut self, _: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        message.clear();
        if self.half {
            // The largest bfloat16, where rounding up would end at infinity.
            let most = f32::from_bits(0x7f7f_0000);
            let bits = |x: &f64| (*x as f32).clamp(-most, most).to_bits();
            message.extend(vector.iter().flat_map(|x| (((bits(x) + 0x8000) >> 16) as u16).to_le_bytes()));
            return;
        }
        for block in vector.chunks(BLOCK) {
            let scale = at_least(block.iter().fold(0.0, |most, x| x.abs().max(most)));
            message.extend_from_slice(&scale.to_le_bytes());
            let step = f64::from(scale) / MOST;
            let integer = |x: &f64| if step > 0.0 { (x / step).round().clamp(-MOST, MOST) as i8 } else { 0 };
            message.extend(block.iter().map(|x| integer(x) as u8));
        }
    }

    fn decode(&self, _: Address, mut message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        if self.half {
            for (x, bytes) in out.iter_mut().zip(message.as_chunks().0) {
                *x = f64::from(f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16));
            }
            return if out.iter().all(|x| x.is_finite()) { Ok(()) } else { Err(CodecError::NotFinite) };
        }
        let mut rest = out;
        for length in bucket_lens(self.dim, BLOCK) {
            let (block, others) = rest.split_at_mut(length);
            let (scale, tail) = message.split_first_chunk::<4>().ok_or(CodecError::Truncated)?;
            let (integers, tail) = tail.split_at_checked(length).ok_or(CodecError::Truncated)?;
            let scale = f32::from_le_bytes(*scale);
            if !scale.is_finite() {
                return Err(CodecError::NotFinite);
            }
            if scale.is_sign_negative() || integers.contains(&(i8::MIN as u8)) {
                return Err(CodecError::Range { what: "a scale or an integer" });
            }
            let step = f64::from(scale) / MOST;
            block.iter_mut().zip(integers).for_each(|(x, &integer)| *x = step * f64::from(integer as i8));
            (rest, message) = (others, tail);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_coordinate_is_within_its_bound() {
        let vector: Vec<f64> = (0..700).map(|i| f64::from(i * i % 1009) - 400.0).collect();
        let (mut message, mut out) = (Vec::new(), vec![0.0; 700]);
        let mut decoded = |mut codec: Narrow| {
            codec.encode(Address::default(), &vector, &mut message);
            codec.decode(Address::default(), &message, &mut out).unwrap();
            out.clone()
        };
        for (x, y) in vector.iter().zip(decoded(Narrow::bf16(700))) {
            assert!((x - y).abs() <= x.abs() / 256.0, "{x} became {y}");
        }
        for (block, found) in vector.chunks(BLOCK).zip(decoded(Narrow::int8(700)).chunks(BLOCK)) {
            let most = block.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            block.iter().zip(found).for_each(|(x, y)| assert!((x - y).abs() <= most / 254.0 * (1.0 + 1e-6)));
        }
    }
}
