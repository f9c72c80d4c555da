//! All coordinates, uncompressed.

use crate::codec::{Address, Codec, CodecError, Law, admit, admit_message, nearest};

/// Every coordinate as it is, in single precision or double.
///
/// - Rule: C(v) = v, rounded to the nearest `f32` in single precision and exact in double.
/// - Law: unbiased with omega = 0 (in single precision up to the rounding, which is to nearest and hence not unbiased itself).
/// - Bytes: 4 d, or 8 d.
/// - Checked: bit by bit in double, within 2^-24 relative in single.
#[derive(Clone, Debug)]
pub struct Dense {
    dim: usize,
    double: bool,
}

impl Dense {
    /// Single precision.
    pub fn single(dim: usize) -> Self {
        Self { dim, double: false }
    }

    /// Double precision.
    pub fn double(dim: usize) -> Self {
        Self { dim, double: true }
    }
}

impl Codec for Dense {
    fn name(&self) -> &'static str {
        if self.double { "dense-f64" } else { "dense" }
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        Law::Unbiased { omega: 0.0 }
    }

    fn fixed_len(&self) -> Option<usize> {
        Some(self.dim * if self.double { 8 } else { 4 })
    }

    fn encode(&mut self, _: Address, vector: &[f64], message: &mut Vec<u8>) {
        admit(self.dim, vector);
        message.clear();
        if self.double {
            message.extend(vector.iter().flat_map(|x| x.to_le_bytes()));
        } else {
            message.extend(vector.iter().flat_map(|&x| nearest(x).to_le_bytes()));
        }
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        if self.double {
            for (x, bytes) in out.iter_mut().zip(message.as_chunks().0) {
                *x = f64::from_le_bytes(*bytes);
            }
        } else {
            for (x, bytes) in out.iter_mut().zip(message.as_chunks().0) {
                *x = f64::from(f32::from_le_bytes(*bytes));
            }
        }
        if out.iter().all(|x| x.is_finite()) { Ok(()) } else { Err(CodecError::NotFinite) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_is_exact_and_single_is_rounded_once() {
        let vector = [0.1, -1e300, 1e-300, 0.0, 7.0];
        let mut message = Vec::new();
        let mut out = [0.0; 5];
        let mut double = Dense::double(5);
        double.encode(Address::default(), &vector, &mut message);
        double.decode(Address::default(), &message, &mut out).unwrap();
        assert_eq!(out, vector);
        let mut single = Dense::single(5);
        single.encode(Address::default(), &vector, &mut message);
        single.decode(Address::default(), &message, &mut out).unwrap();
        assert_eq!(out, [f64::from(0.1f32), -f64::from(f32::MAX), 0.0, 0.0, 7.0]);
    }
}
