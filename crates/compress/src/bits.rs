//! Bits in bytes, lowest first: fixed widths, `f32`, and Elias's gamma and omega codes of whole numbers from 1 on.
//! What the numbers mean belongs to the codecs.
//!
//! Reference: Universal codeword sets and representations of the integers, P. Elias, 1975.

use crate::codec::{CodecError, nearest};

/// How many bits tell `count` things apart: ceil(log2 count).
pub(crate) fn index_bits(count: usize) -> u32 {
    if count <= 1 { 0 } else { usize::BITS - (count - 1).leading_zeros() }
}

/// Appends bits to a message; `finish` writes the last byte, padded with zeros.
pub(crate) struct BitWriter<'a> {
    bytes: &'a mut Vec<u8>,
    word: u64,
    used: u32,
}

impl<'a> BitWriter<'a> {
    /// Overwrites the message.
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        Self { bytes, word: 0, used: 0 }
    }

    /// The low `bits` bits of `value`, at most 32, the others being zero.
    pub(crate) fn write(&mut self, value: u64, bits: u32) {
        debug_assert!(bits <= 32 && value >> bits == 0, "{value} does not fit in {bits} bits");
        self.word |= value << self.used;
        self.used += bits;
        while self.used >= 8 {
            self.bytes.push(self.word as u8);
            self.word >>= 8;
            self.used -= 8;
        }
    }

    pub(crate) fn write_f32(&mut self, x: f64) {
        self.write(u64::from(nearest(x).to_bits()), 32);
    }

    /// Elias's gamma: as many zeros as the binary form has digits after the first, a one, those digits.
    pub(crate) fn write_gamma(&mut self, n: u64) {
        let digits = n.ilog2();
        self.write(0, digits);
        self.write(1, 1);
        self.write(n ^ 1 << digits, digits);
    }

    /// Elias's omega: the binary form, before it the binary form of its length less one, and so on; then a zero.
    pub(crate) fn write_omega(&mut self, n: u64) {
        self.write_omega_groups(n);
        self.write(0, 1);
    }

    fn write_omega_groups(&mut self, n: u64) {
        if n > 1 {
            let digits = n.ilog2();
            self.write_omega_groups(u64::from(digits));
            self.write(1, 1);
            self.write(n ^ 1 << digits, digits);
        }
    }

    pub(crate) fn finish(self) {
        if self.used > 0 {
            self.bytes.push(self.word as u8);
        }
    }
}

/// The length of the gamma code of `n` in bits.
pub(crate) fn gamma_bits(n: u64) -> u64 {
    2 * u64::from(n.ilog2()) + 1
}

/// The length of the omega code of `n` in bits.
pub(crate) fn omega_bits(mut n: u64) -> u64 {
    let mut bits = 1;
    while n > 1 {
        bits += u64::from(n.ilog2()) + 1;
        n = u64::from(n.ilog2());
    }
    bits
}

/// Reads what a [`BitWriter`] wrote.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The first byte that is not yet in `word`.
    next: usize,
    word: u64,
    left: u32,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, next: 0, word: 0, left: 0 }
    }

    /// The next `bits` bits, at most 32.
    pub(crate) fn read(&mut self, bits: u32) -> Result<u64, CodecError> {
        while self.left < bits {
            let byte = *self.bytes.get(self.next).ok_or(CodecError::Truncated)?;
            self.word |= u64::from(byte) << self.left;
            self.next += 1;
            self.left += 8;
        }
        let value = self.word & ((1 << bits) - 1);
        self.word >>= bits;
        self.left -= bits;
        Ok(value)
    }

    /// A number below `count`, in as many bits as tell them apart.
    pub(crate) fn read_below(&mut self, count: usize, what: &'static str) -> Result<usize, CodecError> {
        let value = self.read(index_bits(count))? as usize;
        if value < count { Ok(value) } else { Err(CodecError::Range { what }) }
    }

    pub(crate) fn read_f32(&mut self) -> Result<f64, CodecError> {
        let x = f32::from_bits(self.read(32)? as u32);
        if x.is_finite() { Ok(f64::from(x)) } else { Err(CodecError::NotFinite) }
    }

    /// A scale: not negative.
    pub(crate) fn read_scale(&mut self) -> Result<f64, CodecError> {
        let x = self.read_f32()?;
        if x >= 0.0 { Ok(x) } else { Err(CodecError::Range { what: "a scale" }) }
    }

    pub(crate) fn read_gamma(&mut self) -> Result<u64, CodecError> {
        let mut digits = 0;
        while self.read(1)? == 0 {
            digits += 1;
            if digits > 32 {
                return Err(CodecError::Range { what: "a gamma code" });
            }
        }
        Ok(1 << digits | self.read(digits)?)
    }

    pub(crate) fn read_omega(&mut self) -> Result<u64, CodecError> {
        let mut n: u64 = 1;
        while self.read(1)? == 1 {
            if n > 32 {
                return Err(CodecError::Range { what: "an omega code" });
            }
            n = 1 << n | self.read(n as u32)?;
        }
        Ok(n)
    }

    /// Everything was read but the padding, which is zero.
    pub(crate) fn finish(self) -> Result<(), CodecError> {
        if self.next == self.bytes.len() && self.left < 8 && self.word == 0 {
            Ok(())
        } else {
            Err(CodecError::Trailing)
        }
    }
}

/// Indices below `dim`, ceil(log2 dim) bits each.
pub fn pack_indices(indices: &[u32], dim: usize) -> Vec<u8> {
    let mut message = Vec::new();
    let mut writer = BitWriter::new(&mut message);
    indices.iter().for_each(|&index| writer.write(u64::from(index), index_bits(dim)));
    writer.finish();
    message
}

/// Undoes [`pack_indices`]; refused unless the message is the code of just so many indices below `dim`.
pub fn unpack_indices(message: &[u8], count: usize, dim: usize) -> Result<Vec<u32>, CodecError> {
    if message.len() != (count * index_bits(dim) as usize).div_ceil(8) {
        return Err(CodecError::Truncated);
    }
    let mut reader = BitReader::new(message);
    (0..count).map(|_| reader.read_below(dim, "an index").map(|index| index as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_form_come_back_and_the_lengths_are_as_stated() {
        let numbers: Vec<u64> = (1..300).chain([1000, 65_535, 65_536, u64::from(u32::MAX)]).collect();
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        let mut bits = 0;
        for &n in &numbers {
            writer.write_gamma(n);
            writer.write_omega(n);
            writer.write(n, 32);
            writer.write_f32(n as f64);
            bits += gamma_bits(n) + omega_bits(n) + 64;
        }
        writer.finish();
        assert_eq!(bytes.len() as u64, bits.div_ceil(8));
        let mut reader = BitReader::new(&bytes);
        for &n in &numbers {
            assert_eq!(reader.read_gamma(), Ok(n));
            assert_eq!(reader.read_omega(), Ok(n));
            assert_eq!(reader.read(32), Ok(n));
            assert_eq!(reader.read_f32(), Ok(f64::from(n as f32)));
        }
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn codes_have_the_published_lengths() {
        // Elias 1975, and the tables at https://en.wikipedia.org/wiki/Elias_omega_coding: 1, 2, 4, 8, 16, 100, 1000.
        let lengths: Vec<u64> = [1, 2, 4, 8, 16, 100, 1000].map(omega_bits).to_vec();
        assert_eq!(lengths, [1, 3, 6, 7, 11, 13, 17]);
        assert_eq!([1, 2, 4, 8, 16].map(gamma_bits).to_vec(), [1, 3, 5, 7, 9]);
    }

    #[test]
    fn runaway_codes_padding_and_trailing_bytes_are_errors() {
        assert!(BitReader::new(&[0; 16]).read_gamma().is_err());
        assert!(BitReader::new(&[0xff; 64]).read_omega().is_err());
        assert_eq!(BitReader::new(&[0]).finish(), Err(CodecError::Trailing));
        let mut reader = BitReader::new(&[0b10]);
        assert_eq!(reader.read(1), Ok(0));
        assert_eq!(reader.finish(), Err(CodecError::Trailing));
        assert_eq!(BitReader::new(&[]).read(1), Err(CodecError::Truncated));
        assert_eq!(BitReader::new(&[]).finish(), Ok(()));
    }

    #[test]
    fn index_bits_tell_all_things_apart() {
        assert_eq!([0, 1, 2, 3, 4, 5, 784, 100_000].map(index_bits), [0, 0, 1, 2, 2, 3, 10, 17]);
    }
}
