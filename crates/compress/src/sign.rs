//! One bit per coordinate: signs alone, signs with their mean magnitude, and 1-bit SGD's two means.

use crate::bits::{BitReader, BitWriter};
use crate::codec::{Address, Codec, CodecError, Law, admit_clamped, admit_message, bucket_lens};

/// The magnitude that decoded signs get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitude {
    /// One: signSGD, where only a vote of signs is wanted.
    One,
    /// The mean magnitude ||v||_1/d: EF-signSGD.
    Mean,
}

/// The sign of every coordinate; zero counts as positive.
///
/// - Rule: C(v)_i = m sign(v_i), m = 1 or ||v||_1/d.
/// - Law: with the mean magnitude contractive with delta = 1/d, always: ||C(v) - v||^2 = ||v||^2 - ||v||_1^2/d exactly, and
///   ||v||_1 >= ||v||. With magnitude one: neither.
/// - Bytes: ceil(d/8), and 4 more with the mean magnitude.
/// - Checked: the exact error above.
/// - Reference: signSGD: Compressed Optimisation for Non-Convex Problems, J. Bernstein, Y.-X. Wang, K. Azizzadenesheli,
///   A. Anandkumar, 2018; Error Feedback Fixes SignSGD and other Gradient Compression Schemes, S. P. Karimireddy, Q. Rebjock,
///   S. Stich, M. Jaggi, 2019.
#[derive(Clone, Debug)]
pub struct Sign {
    dim: usize,
    magnitude: Magnitude,
}

impl Sign {
    /// Signs with this magnitude.
    pub fn new(dim: usize, magnitude: Magnitude) -> Self {
        Self { dim, magnitude }
    }
}

impl Codec for Sign {
    fn name(&self) -> &'static str {
        match self.magnitude {
            Magnitude::One => "signsgd",
            Magnitude::Mean => "sign-mean",
        }
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        match self.magnitude {
            Magnitude::One => Law::Neither,
            Magnitude::Mean => Law::Contractive { delta: 1.0 / self.dim.max(1) as f64 },
        }
    }

    fn fixed_len(&self) -> Option<usize> {
        let scale = if self.magnitude == Magnitude::Mean { 4 } else { 0 };
        Some(scale + self.dim.div_ceil(8))
    }

    fn encode(&mut self, _: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut writer = BitWriter::new(message);
        if self.magnitude == Magnitude::Mean {
            writer.write_f32(vector.iter().map(|x| x.abs()).sum::<f64>() / self.dim.max(1) as f64);
        }
        vector.iter().for_each(|x| writer.write(u64::from(*x < 0.0), 1));
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        let magnitude = match self.magnitude {
            Magnitude::One => 1.0,
            Magnitude::Mean => reader.read_scale()?,
        };
        for x in out {
            *x = if reader.read(1)? == 1 { -magnitude } else { magnitude };
        }
        reader.finish()
    }
}

/// The sign of every coordinate, decoded with the mean of the column's positive and of its negative entries.
///
/// - Rule: C(v)_i = the mean of the column's entries of v_i's sign; zero counts as positive.
/// - Law: contractive with delta = 1/B for columns of B coordinates, always: C projects on the indicators of the two groups, and a
///   group of k entries of one sign keeps ||.||_1^2/k >= ||.||^2/k of its energy. Meant for use inside error feedback.
/// - Bytes: by column 64 + B bits.
/// - Checked: the exact error, by Pythagoras.
/// - Reference: 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs,
///   F. Seide, H. Fu, J. Droppo, G. Li, D. Yu, 2014.
#[derive(Clone, Debug)]
pub struct OneBit {
    dim: usize,
    column: usize,
}

impl OneBit {
    /// Columns of `column` coordinates.
    ///
    /// # Panics
    /// If `column` is 0.
    pub fn new(dim: usize, column: usize) -> Self {
        assert!(column > 0, "a column has at least one coordinate");
        Self { dim, column }
    }
}

impl Codec for OneBit {
    fn name(&self) -> &'static str {
        "onebit"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        Law::Contractive { delta: 1.0 / self.column.min(self.dim).max(1) as f64 }
    }

    fn fixed_len(&self) -> Option<usize> {
        Some(bucket_lens(self.dim, self.column).map(|len| 64 + len).sum::<usize>().div_ceil(8))
    }

    fn encode(&mut self, _: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut writer = BitWriter::new(message);
        for column in vector.chunks(self.column) {
            let mean = |negative: bool| {
                let group = || column.iter().filter(|x| (**x < 0.0) == negative);
                group().sum::<f64>() / group().count().max(1) as f64
            };
            writer.write_f32(mean(false));
            writer.write_f32(mean(true));
            column.iter().for_each(|x| writer.write(u64::from(*x < 0.0), 1));
        }
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        for column in out.chunks_mut(self.column) {
            let means = [reader.read_f32()?, reader.read_f32()?];
            for x in column {
                *x = means[reader.read(1)? as usize];
            }
        }
        reader.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(codec: &mut impl Codec, vector: &[f64]) -> Vec<f64> {
        let mut message = Vec::new();
        let mut out = vec![0.0; vector.len()];
        codec.encode(Address::default(), vector, &mut message);
        codec.decode(Address::default(), &message, &mut out).unwrap();
        out
    }

    #[test]
    fn signs_with_their_mean_lose_exactly_what_the_law_says() {
        let vector = [3.0, -1.0, 0.0, 4.0];
        let out = through(&mut Sign::new(4, Magnitude::Mean), &vector);
        assert_eq!(out, [2.0, -2.0, 2.0, 2.0]);
        let error: f64 = out.iter().zip(&vector).map(|(a, b)| (a - b) * (a - b)).sum();
        assert_eq!(error, 26.0 - 64.0 / 4.0);
        assert_eq!(through(&mut Sign::new(4, Magnitude::One), &vector), [1.0, -1.0, 1.0, 1.0]);
    }

    #[test]
    fn a_column_is_decoded_with_its_two_means() {
        let vector = [1.0, 3.0, -2.0, -4.0, 8.0];
        assert_eq!(through(&mut OneBit::new(5, 4), &vector), [2.0, 2.0, -3.0, -3.0, 8.0]);
    }
}
