//! QSGD: stochastic rounding to levels that divide the norm evenly.

use corewire_sketch::CommonRandomness;

use crate::bits::{BitReader, BitWriter, gamma_bits, omega_bits};
use crate::codec::{
    Address, Codec, CodecError, Law, admit_clamped, admit_message, at_least, bucket_lens, energy, index_dim,
};

/// What the levels of a bucket divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// The Euclidean norm: the paper's theory.
    Euclidean,
    /// The largest magnitude: the paper's experiments.
    Largest,
}

/// Every coordinate to one of the two nearest of s levels of its bucket's norm, at random so that it is unbiased.
///
/// - Rule: C(v)_i = norm sign(v_i) l_i/s, where l_i is floor(s |v_i|/norm) or one more, the latter with probability s |v_i|/norm - floor.
/// - Law: unbiased. E||C(v) - v||^2 = (norm/s)^2 sum p_i (1 - p_i), p_i being the probability above. For buckets of B coordinates
///   omega = min(B/(4 s^2), sqrt(B)/s) with the Euclidean norm (the paper has B/s^2: p (1 - p) <= 1/4 is four times better), and
///   min(B/(4 s^2), (1 + sqrt(B))/(2 s)) with the largest magnitude.
/// - Bytes: by bucket 33 bits, then the shorter of two forms: gap (Elias omega), sign and level (Elias gamma) of every level that is
///   not 0; or level + 1 (Elias gamma) of every coordinate, with a sign where it is not 0. The norm is rounded up to `f32`, so it
///   is exceeded by no coordinate and the rounding leaves C unbiased.
/// - Checked: the moments against the formula above; the expected number of levels that are not 0 against the paper's
///   s (s + sqrt(B)).
/// - Reference: QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, D. Alistarh, D. Grubic, J. Li,
///   R. Tomioka, M. Vojnovic, 2017.
#[derive(Clone, Debug)]
pub struct Qsgd {
    dim: usize,
    levels: u32,
    bucket: usize,
    norm: Norm,
    randomness: CommonRandomness,
}

impl Qsgd {
    /// s = `levels` levels, and buckets of `bucket` coordinates.
    ///
    /// # Panics
    /// If `levels` is not in 1..2^31, `bucket` is 0, or `dim` is not below 2^32.
    pub fn new(dim: usize, levels: u32, bucket: usize, norm: Norm, randomness: &CommonRandomness) -> Self {
        assert!(levels > 0 && levels < 1 << 31, "QSGD has between 1 and 2^31 - 1 levels");
        assert!(bucket > 0, "a bucket has at least one coordinate");
        Self { dim: index_dim(dim), levels, bucket, norm, randomness: randomness.clone() }
    }
}

impl Codec for Qsgd {
    fn name(&self) -> &'static str {
        match self.norm {
            Norm::Euclidean => "qsgd",
            Norm::Largest => "qsgd-max",
        }
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        let (b, s) = (self.bucket.min(self.dim) as f64, f64::from(self.levels));
        let few = match self.norm {
            Norm::Euclidean => b.sqrt() / s,
            Norm::Largest => (1.0 + b.sqrt()) / (2.0 * s),
        };
        Law::Unbiased { omega: few.min(b / (4.0 * s * s)) }
    }

    fn fixed_len(&self) -> Option<usize> {
        None
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut words = address.own_words(&self.randomness);
        let mut writer = BitWriter::new(message);
        let mut quantised = Vec::with_capacity(self.bucket.min(self.dim));
        for bucket in vector.chunks(self.bucket) {
            let norm = f64::from(at_least(match self.norm {
                Norm::Euclidean => energy(bucket).sqrt(),
                Norm::Largest => bucket.iter().fold(0.0, |most, x| x.abs().max(most)),
            }));
            writer.write_f32(norm);
            quantised.clear();
            quantised.extend(bucket.iter().map(|x| {
                let exact = if norm > 0.0 { x.abs() / norm * f64::from(self.levels) } else { 0.0 };
                let level = (exact as u64 + u64::from(words.next_coin(exact.fract()))).min(u64::from(self.levels));
                (level, *x < 0.0)
            }));
            write_levels(&mut writer, &quantised);
        }
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(None, message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        let mut rest = out;
        for len in bucket_lens(self.dim, self.bucket) {
            let (bucket, others) = rest.split_at_mut(len);
            let norm = reader.read_scale()?;
            read_levels(&mut reader, bucket, self.levels)?;
            for x in bucket {
                *x = *x / f64::from(self.levels) * norm;
            }
            rest = others;
        }
        reader.finish()
    }
}

fn write_levels(writer: &mut BitWriter<'_>, quantised: &[(u64, bool)]) {
    let each: u64 = quantised.iter().map(|&(level, _)| gamma_bits(level + 1) + u64::from(level > 0)).sum();
    let mut before = 0;
    let mut gaps = 0;
    for (i, &(level, _)) in quantised.iter().enumerate() {
        if level > 0 {
            gaps += omega_bits((i + 1 - before) as u64) + 1 + gamma_bits(level);
            before = i + 1;
        }
    }
    gaps += omega_bits((quantised.len() + 1 - before) as u64);
    writer.write(u64::from(gaps < each), 1);
    if gaps < each {
        let mut before = 0;
        for (i, &(level, negative)) in quantised.iter().enumerate() {
            if level > 0 {
                writer.write_omega((i + 1 - before) as u64);
                writer.write(u64::from(negative), 1);
                writer.write_gamma(level);
                before = i + 1;
            }
        }
        // The last gap leads one past the bucket: its end.
        writer.write_omega((quantised.len() + 1 - before) as u64);
    } else {
        for &(level, negative) in quantised {
            writer.write_gamma(level + 1);
            if level > 0 {
                writer.write(u64::from(negative), 1);
            }
        }
    }
}

/// Levels with their signs, as whole numbers.
fn read_levels(reader: &mut BitReader<'_>, bucket: &mut [f64], levels: u32) -> Result<(), CodecError> {
    let checked = |level: u64, negative: u64| {
        let magnitude = if level <= u64::from(levels) { level as f64 } else { f64::NAN };
        if magnitude.is_nan() {
            return Err(CodecError::Range { what: "a level" });
        }
        Ok(if negative == 1 { -magnitude } else { magnitude })
    };
    bucket.fill(0.0);
    if reader.read(1)? == 0 {
        for x in bucket {
            let level = reader.read_gamma()? - 1;
            if level > 0 {
                let negative = reader.read(1)?;
                *x = checked(level, negative)?;
            }
        }
        return Ok(());
    }
    let mut before = 0u64;
    loop {
        let at = before + reader.read_omega()?;
        if at == bucket.len() as u64 + 1 {
            return Ok(());
        }
        let Some(x) = bucket.get_mut(at as usize - 1) else {
            return Err(CodecError::Range { what: "a gap" });
        };
        let negative = reader.read(1)?;
        *x = checked(reader.read_gamma()?, negative)?;
        before = at;
    }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    #[test]
    fn the_moments_are_the_papers() {
        let randomness = CommonRandomness::new(&Seed::reproducible(11));
        let d = 64;
        let s = 4;
        let mut words = Address::new(0, 9).own_words(&randomness);
        let vector: Vec<f64> = (0..d).map(|_| words.next_dither()).collect();
        let norm = energy(&vector).sqrt();
        let exact: f64 = vector
            .iter()
            .map(|x| {
                let p = (x.abs() / norm * f64::from(s)).fract();
                norm * norm / f64::from(s * s) * p * (1.0 - p)
            })
            .sum();
        let mut codec = Qsgd::new(d, s, d, Norm::Euclidean, &randomness);
        let (mut message, mut out) = (Vec::new(), vec![0.0; d]);
        let trials = 4000;
        let (mut sum, mut squares, mut nonzero) = (0.0, 0.0, 0);
        for round in 0..trials {
            let address = Address::new(round, 0);
            codec.encode(address, &vector, &mut message);
            codec.decode(address, &message, &mut out).unwrap();
            let error: f64 = out.iter().zip(&vector).map(|(a, b)| (a - b) * (a - b)).sum();
            sum += error;
            squares += error * error;
            nonzero += out.iter().filter(|&&x| x != 0.0).count();
        }
        let n = trials as f64;
        let mean = sum / n;
        let deviation = ((squares / n - mean * mean) / n).sqrt();
        // Four standard errors of the measured mean; the seed is fixed.
        assert!((mean - exact).abs() < 4.0 * deviation, "{mean} against {exact} +- {deviation}");
        // At most s^2 entries reach the first level, and the others leave 0 with probabilities s |v_i|/norm, at most s sqrt(d) in all.
        assert!(nonzero as f64 / n <= f64::from(s) * (f64::from(s) + (d as f64).sqrt()));
    }

    #[test]
    fn at_sqrt_d_levels_a_coordinate_costs_less_than_the_papers_bound() {
        let randomness = CommonRandomness::new(&Seed::reproducible(12));
        let d = 10_000;
        let mut words = Address::new(0, 9).own_words(&randomness);
        // Sums of twelve dithers are close to normal.
        let vector: Vec<f64> = (0..d).map(|_| (0..12).map(|_| words.next_dither()).sum()).collect();
        let mut message = Vec::new();
        Qsgd::new(d, 100, d, Norm::Euclidean, &randomness).encode(Address::new(1, 0), &vector, &mut message);
        // The paper states 2.8 d + 32 bits in expectation.
        assert!((message.len() * 8) as f64 <= 2.8 * d as f64 + 32.0, "{}", message.len());
    }

    #[test]
    fn a_level_past_the_last_and_a_gap_past_the_end_are_refused() {
        let randomness = CommonRandomness::new(&Seed::reproducible(13));
        let codec = Qsgd::new(3, 2, 3, Norm::Largest, &randomness);
        let decode = |write: &dyn Fn(&mut BitWriter<'_>)| {
            let mut message = Vec::new();
            let mut writer = BitWriter::new(&mut message);
            writer.write_f32(1.0);
            write(&mut writer);
            writer.finish();
            codec.decode(Address::default(), &message, &mut [0.0; 3])
        };
        let level = decode(&|writer| {
            writer.write(0, 1);
            writer.write_gamma(4);
            writer.write(0, 1);
        });
        assert_eq!(level, Err(CodecError::Range { what: "a level" }));
        let gap = decode(&|writer| {
            writer.write(1, 1);
            writer.write_omega(5);
        });
        assert_eq!(gap, Err(CodecError::Range { what: "a gap" }));
    }
}
