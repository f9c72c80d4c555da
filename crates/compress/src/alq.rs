//! ALQ: stochastic rounding to levels that follow the distribution of the coordinates.

use corewire_sketch::CommonRandomness;

use crate::bits::{BitReader, BitWriter};
use crate::codec::{
    Address, Codec, CodecError, Law, admit_clamped, admit_message, at_least, bucket_lens, energy, nearest,
};

/// QSGD with levels of least variance for the coordinates seen last.
///
/// - Rule: r_i = |v_i|/norm of the bucket; C(v)_i = norm sign(v_i) l, where l is one of the two levels around r_i, at random so that it is
///   unbiased. Levels are 0 = l_0 < l_1 < .. < l_s = 1, s = 2^(bits - 1) - 1. After each message (or every `period`-th) they are fitted
///   for the next: coordinate descent on the variance, F(l_j) = F(l_{j+1}) - the integral of (r - l_{j-1})/(l_{j+1} - l_{j-1}) dF
///   over [l_{j-1}, l_{j+1}], F being the distribution of the r_i, weighted by the squares of their buckets' norms.
/// - Law: unbiased. For levels whose neighbours have ratios at most q, omega = (q - 1)^2/(4 q) + min(l_1 sqrt(B), l_1^2 B/4) for buckets
///   of B: the first term bounds the coordinates above l_1, the second those below. It changes with the levels.
/// - Bytes: 4 for each level but 0 and 1, 4 a bucket, and `bits` bits per coordinate. The levels travel, so a message explains itself.
/// - Differs from the paper: F is the distribution of a sample of the coordinates themselves instead of a truncated normal fitted to
///   their mean and variance, and each machine has its own levels instead of common ones; levels start at powers of 1/2.
/// - Checked: mean; levels against the condition above by brute force; variance falls below that of equal and of exponential levels.
/// - Reference: Adaptive Gradient Quantization for Data-Parallel SGD, F. Faghri, I. Tabrizian, I. Markov, D. Alistarh, D. Roy,
///   A. Ramezani-Kebrya, 2020.
#[derive(Clone, Debug)]
pub struct Alq {
    dim: usize,
    bits: u32,
    bucket: usize,
    period: u64,
    encoded: u64,
    /// From 0 to 1, each exactly an `f32`.
    levels: Vec<f64>,
    randomness: CommonRandomness,
}

/// How many coordinates the distribution is taken from at most.
const SAMPLE: usize = 4096;

impl Alq {
    /// `bits` bits per coordinate with its sign, and buckets of `bucket` coordinates; levels are fitted after every message.
    ///
    /// # Panics
    /// If `bits` is not between 2 and 8 or `bucket` is 0.
    pub fn new(dim: usize, bits: u32, bucket: usize, randomness: &CommonRandomness) -> Self {
        assert!((2..=8).contains(&bits), "ALQ has between 2 and 8 bits per coordinate");
        assert!(bucket > 0, "a bucket has at least one coordinate");
        let steps = (1i32 << (bits - 1)) - 1;
        // Powers of 1/2 as far as they tell levels apart in practice.
        let levels = std::iter::once(0.0).chain((0..steps).rev().map(|j| 2f64.powi(-j))).collect();
        Self { dim, bits, bucket, period: 1, encoded: 0, levels, randomness: randomness.clone() }
    }

    /// Fits the levels after every `period`-th message only.
    ///
    /// # Panics
    /// If `period` is 0.
    pub fn with_period(self, period: u64) -> Self {
        assert!(period > 0, "a period is at least one message");
        Self { period, ..self }
    }

    /// The levels of the next message, from 0 to 1.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// Goes on with these levels, which another codec of the same parameters had.
    ///
    /// # Panics
    /// If there are not as many, or they do not rise from 0 to 1.
    pub fn set_levels(&mut self, levels: Vec<f64>) {
        let rising = levels.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(levels.len() == self.levels.len() && rising, "levels of another codec of the same parameters");
        assert!(levels.first() == Some(&0.0) && levels.last() == Some(&1.0), "levels rise from 0 to 1");
        self.levels = levels;
    }

    /// Fits the levels to the normalised magnitudes of this vector.
    fn fit(&mut self, vector: &[f64]) {
        let stride = vector.len().div_ceil(SAMPLE).max(1);
        let mut sample = Vec::new();
        for bucket in vector.chunks(self.bucket) {
            let total = energy(bucket);
            if total > 0.0 {
                sample.extend(bucket.iter().step_by(stride).map(|x| ((x * x / total).sqrt().min(1.0), total)));
            }
        }
        if let Some(distribution) = Distribution::new(sample) {
            fit_levels(&distribution, &mut self.levels);
        }
    }
}

impl Codec for Alq {
    fn name(&self) -> &'static str {
        "alq"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        let b = self.bucket.min(self.dim) as f64;
        let ratio = self.levels[1..].windows(2).map(|pair| pair[1] / pair[0]).fold(1.0, f64::max);
        let first = self.levels[1];
        let above = (ratio - 1.0) * (ratio - 1.0) / (4.0 * ratio);
        Law::Unbiased { omega: above + (first * b.sqrt()).min(first * first * b / 4.0) }
    }

    fn fixed_len(&self) -> Option<usize> {
        let bucket_bits: usize = bucket_lens(self.dim, self.bucket).map(|len| 32 + self.bits as usize * len).sum();
        Some((32 * (self.levels.len() - 2) + bucket_bits).div_ceil(8))
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut words = address.own_words(&self.randomness);
        let mut writer = BitWriter::new(message);
        let inner = 1..self.levels.len() - 1;
        self.levels[inner].iter().for_each(|&level| writer.write_f32(level));
        for bucket in vector.chunks(self.bucket) {
            let norm = f64::from(at_least(energy(bucket).sqrt()));
            writer.write_f32(norm);
            for x in bucket {
                let r = if norm > 0.0 { x.abs() / norm } else { 0.0 };
                let above = self.levels.partition_point(|&level| level <= r).min(self.levels.len() - 1);
                let (low, high) = (self.levels[above - 1], self.levels[above]);
                let code = above - 1 + usize::from(words.next_coin((r - low) / (high - low)));
                writer.write((code << 1) as u64 | u64::from(*x < 0.0), self.bits);
            }
        }
        writer.finish();
        self.encoded += 1;
        if self.encoded.is_multiple_of(self.period) {
            self.fit(&vector);
        }
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        let mut levels = vec![0.0];
        for _ in 0..self.levels.len() - 2 {
            levels.push(reader.read_f32()?);
        }
        levels.push(1.0);
        if levels.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(CodecError::Range { what: "a level" });
        }
        for bucket in out.chunks_mut(self.bucket) {
            let norm = reader.read_scale()?;
            for x in bucket {
                let code = reader.read(self.bits)?;
                let magnitude = levels[(code >> 1) as usize] * norm;
                *x = if code & 1 == 1 { -magnitude } else { magnitude };
            }
        }
        reader.finish()
    }
}

/// Sorted numbers in [0, 1] with weights, and their sums so far: F and the integral of r dF.
struct Distribution {
    at: Vec<f64>,
    weight: Vec<f64>,
    moment: Vec<f64>,
}

impl Distribution {
    fn new(mut sample: Vec<(f64, f64)>) -> Option<Self> {
        if sample.is_empty() {
            return None;
        }
        sample.sort_by(|a, b| a.0.total_cmp(&b.0));
        let largest = sample.iter().fold(0.0, |most: f64, (_, w)| most.max(*w));
        let (mut weight, mut moment) = (vec![0.0], vec![0.0]);
        for (i, (r, w)) in sample.iter().enumerate() {
            weight.push(weight[i] + w / largest);
            moment.push(moment[i] + r * (w / largest));
        }
        Some(Self { at: sample.into_iter().map(|(r, _)| r).collect(), weight, moment })
    }

    /// The level between `low` and `high` of least variance, if the numbers between them tell.
    fn best_between(&self, low: f64, high: f64) -> Option<f64> {
        let first = self.at.partition_point(|&r| r < low);
        let end = self.at.partition_point(|&r| r <= high);
        let weight = self.weight[end] - self.weight[first];
        let integral = (self.moment[end] - self.moment[first] - low * weight) / (high - low);
        let target = self.weight[end] - integral;
        let k = self.weight[first..=end].partition_point(|&w| w < target);
        let level = *self.at[first..end].get(k.max(1) - 1)?;
        (low < level && level < high).then_some(level)
    }
}

/// Coordinate descent in place, on levels that stay strictly ascending when rounded to `f32`.
fn fit_levels(distribution: &Distribution, levels: &mut [f64]) {
    for _ in 0..20 {
        for j in 1..levels.len() - 1 {
            let (low, high) = (levels[j - 1], levels[j + 1]);
            if let Some(best) = distribution.best_between(low, high) {
                let best = f64::from(nearest(best));
                if low < best && best < high {
                    levels[j] = best;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    fn randomness() -> CommonRandomness {
        CommonRandomness::new(&Seed::reproducible(71))
    }

    fn normal(dim: usize) -> Vec<f64> {
        let mut words = Address::new(0, 7).own_words(&randomness());
        (0..dim).map(|_| (0..12).map(|_| words.next_dither()).sum()).collect()
    }

    /// The exact variance of rounding these numbers to these levels.
    fn variance(numbers: &[f64], levels: &[f64]) -> f64 {
        let one = |r: f64| {
            let above = levels.partition_point(|&level| level <= r).min(levels.len() - 1);
            (levels[above] - r) * (r - levels[above - 1])
        };
        numbers.iter().map(|&r| one(r)).sum()
    }

    #[test]
    fn one_level_is_the_best_of_all_places() {
        let numbers: Vec<f64> = normal(500).iter().map(|x| x.abs() / 5.0).collect();
        let distribution = Distribution::new(numbers.iter().map(|&r| (r, 1.0)).collect()).unwrap();
        let mut levels = [0.0, 0.5, 1.0];
        fit_levels(&distribution, &mut levels);
        let fitted = variance(&numbers, &levels);
        // The variance is convex in one level between two of the numbers, so the best is one of the numbers.
        let best = numbers.iter().map(|&r| variance(&numbers, &[0.0, r, 1.0])).fold(f64::INFINITY, f64::min);
        assert!(fitted <= best * (1.0 + 1e-5), "{fitted} against {best}");
    }

    #[test]
    fn fitted_levels_beat_equal_and_exponential_ones() {
        let vector = normal(1024);
        let norm = energy(&vector).sqrt();
        let numbers: Vec<f64> = vector.iter().map(|x| x.abs() / norm).collect();
        let mut codec = Alq::new(1024, 3, 1024, &randomness());
        let exponential = variance(&numbers, codec.levels());
        let mut message = Vec::new();
        codec.encode(Address::default(), &vector, &mut message);
        let fitted = variance(&numbers, codec.levels());
        let equal = variance(&numbers, &[0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0]);
        assert!(fitted < 0.2 * exponential && fitted < 0.2 * equal, "{fitted} against {exponential} and {equal}");
    }

    #[test]
    fn fitted_levels_keep_the_law() {
        let vector = normal(200);
        let mut fitted = Alq::new(200, 3, 64, &randomness());
        let (mut message, mut out) = (Vec::new(), vec![0.0; 200]);
        fitted.encode(Address::new(0, 0), &vector, &mut message);
        let omega = fitted.law().omega().unwrap();
        let trials = 1000;
        let (mut mean, mut total) = (vec![0.0; 200], 0.0);
        for round in 0..trials {
            let mut codec = fitted.clone();
            codec.encode(Address::new(round, 1), &vector, &mut message);
            codec.decode(Address::new(round, 1), &message, &mut out).unwrap();
            for ((m, x), v) in mean.iter_mut().zip(&out).zip(&vector) {
                *m += (x - v) / trials as f64;
                total += (x - v) * (x - v) / trials as f64;
            }
        }
        // The bound is for the worst vector, far above what this one has; sixteen times the mean's own variance, as for all codecs.
        assert!(total <= omega * energy(&vector), "{total} above {omega}");
        assert!(energy(&mean) <= 16.0 * total / trials as f64);
    }

    #[test]
    fn levels_stay_put_between_periods() {
        let mut codec = Alq::new(64, 3, 64, &randomness()).with_period(2);
        let start = codec.levels().to_vec();
        let mut message = Vec::new();
        codec.encode(Address::new(0, 0), &normal(64), &mut message);
        assert_eq!(codec.levels(), start);
        codec.encode(Address::new(1, 0), &normal(64), &mut message);
        assert_ne!(codec.levels(), start);
    }
}
