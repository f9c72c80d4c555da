//! Some coordinates, each with its value: the largest, random ones, or those above a threshold.

use corewire_sketch::{CommonRandomness, Words};

use crate::bits::{BitReader, BitWriter, index_bits};
use crate::codec::{Address, Codec, CodecError, Law, admit, admit_message, index_dim};

/// The K coordinates of largest magnitude; of equal ones the first.
///
/// - Rule: C(v)_i = v_i for the K largest |v_i|, else 0.
/// - Law: contractive with delta = K/d, always: the K largest of d squares are at least K/d of their sum.
/// - Bytes: K (32 + ceil(log2 d)) bits.
/// - Checked: against a sort, and equality in the law on vectors of equal magnitudes.
/// - Reference: Sparsified SGD with Memory, S. Stich, J.-B. Cordonnier, M. Jaggi, 2018.
#[derive(Clone, Debug)]
pub struct TopK {
    dim: usize,
    keep: usize,
}

impl TopK {
    /// Keeps `keep` coordinates, or all where there are fewer.
    ///
    /// # Panics
    /// If `keep` is 0, or `dim` is not below 2^32.
    pub fn new(dim: usize, keep: usize) -> Self {
        Self { dim: index_dim(dim), keep: at_least_one(keep).min(dim) }
    }

    /// How many coordinates travel.
    pub fn keep(&self) -> usize {
        self.keep
    }
}

impl Codec for TopK {
    fn name(&self) -> &'static str {
        "topk"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        Law::Contractive { delta: share(self.keep, self.dim) }
    }

    fn fixed_len(&self) -> Option<usize> {
        Some(pairs_len(self.dim, self.keep))
    }

    fn encode(&mut self, _: Address, vector: &[f64], message: &mut Vec<u8>) {
        admit(self.dim, vector);
        let mut writer = BitWriter::new(message);
        write_pairs(&mut writer, vector, &largest(vector, self.keep));
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        read_pairs(&mut reader, self.keep, out)?;
        reader.finish()
    }
}

/// Whether the positions of random coordinates travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indices {
    /// Every machine draws its own, and they travel, as in a system without common randomness.
    Private,
    /// All machines draw the same ones, and only values travel.
    Common,
}

/// K coordinates at random, scaled up.
///
/// - Rule: C(v)_i = (d/K) v_i for K coordinates drawn without replacement, else 0. The factor is applied by the decoder.
/// - Law: unbiased with omega = d/K - 1, with equality for every v: each coordinate survives with probability K/d.
/// - Bytes: K (32 + ceil(log2 d)) bits with private indices, 4 K with common ones.
/// - Checked: mean and the exact variance.
/// - Reference: Sparsified SGD with Memory, S. Stich, J.-B. Cordonnier, M. Jaggi, 2018; unbiased form: Distributed learning with
///   compressed gradient differences, K. Mishchenko, E. Gorbunov, M. Takáč, P. Richtárik, 2019.
#[derive(Clone, Debug)]
pub struct RandK {
    dim: usize,
    keep: usize,
    indices: Indices,
    randomness: CommonRandomness,
}

impl RandK {
    /// Keeps `keep` coordinates, or all where there are fewer.
    ///
    /// # Panics
    /// If `keep` is 0, or `dim` is not below 2^32.
    pub fn new(dim: usize, keep: usize, indices: Indices, randomness: &CommonRandomness) -> Self {
        Self { dim: index_dim(dim), keep: at_least_one(keep).min(dim), indices, randomness: randomness.clone() }
    }

    fn drawn(&self, address: Address) -> Vec<u32> {
        let mut words = match self.indices {
            Indices::Private => address.own_words(&self.randomness),
            Indices::Common => address.common_words(&self.randomness),
        };
        choose(&mut words, self.dim, self.keep)
    }
}

impl Codec for RandK {
    fn name(&self) -> &'static str {
        match self.indices {
            Indices::Private => "randk",
            Indices::Common => "randk-common",
        }
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        Law::Unbiased { omega: 1.0 / share(self.keep, self.dim) - 1.0 }
    }

    fn fixed_len(&self) -> Option<usize> {
        Some(match self.indices {
            Indices::Private => pairs_len(self.dim, self.keep),
            Indices::Common => 4 * self.keep,
        })
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        admit(self.dim, vector);
        let drawn = self.drawn(address);
        let mut writer = BitWriter::new(message);
        match self.indices {
            Indices::Private => write_pairs(&mut writer, vector, &drawn),
            Indices::Common => drawn.iter().for_each(|&i| writer.write_f32(vector[i as usize])),
        }
        writer.finish();
    }

    fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        match self.indices {
            Indices::Private => read_pairs(&mut reader, self.keep, out)?,
            Indices::Common => {
                out.fill(0.0);
                for i in self.drawn(address) {
                    out[i as usize] = reader.read_f32()?;
                }
            }
        }
        let factor = 1.0 / share(self.keep, self.dim);
        out.iter_mut().for_each(|x| *x *= factor);
        reader.finish()
    }
}

/// The coordinates whose magnitude reaches a quantile of the magnitudes: gradient dropping.
///
/// - Rule: t = the quantile of |v| at `drop`, of all coordinates or of a random sample of them; C(v)_i = v_i where |v_i| >= t and
///   v_i is not 0, else 0.
/// - Law: contractive; delta = ceil((1 - drop) d)/d where the quantile is exact, and 1/d where it is sampled, since the largest
///   coordinate always reaches a threshold that is itself a coordinate.
/// - Bytes: k (32 + ceil(log2 d)) + ceil(log2(d + 1)) bits for the k kept ones; k is about (1 - drop) d.
/// - Checked: against a sort, and that ties at the threshold all travel.
/// - Reference: Sparse Communication for Distributed Gradient Descent, A. Aji, K. Heafield, 2017.
#[derive(Clone, Debug)]
pub struct Dropping {
    dim: usize,
    drop: f64,
    sample: usize,
    randomness: CommonRandomness,
}

impl Dropping {
    /// Drops the share `drop` of the coordinates, by the quantile of all.
    ///
    /// # Panics
    /// If `drop` is not in [0, 1), or `dim` is not below 2^32.
    pub fn new(dim: usize, drop: f64, randomness: &CommonRandomness) -> Self {
        assert!((0.0..1.0).contains(&drop), "a dropped share is in [0, 1)");
        Self { dim: index_dim(dim), drop, sample: usize::MAX, randomness: randomness.clone() }
    }

    /// Estimates the quantile from `sample` coordinates drawn with replacement, as the paper does for speed.
    ///
    /// # Panics
    /// If `sample` is 0.
    pub fn with_sample(self, sample: usize) -> Self {
        Self { sample: at_least_one(sample), ..self }
    }

    /// How many of `count` magnitudes are to stay.
    fn stay(&self, count: usize) -> usize {
        (((1.0 - self.drop) * count as f64).ceil() as usize).clamp(1, count.max(1))
    }

    fn threshold(&self, address: Address, vector: &[f64]) -> f64 {
        let mut magnitudes: Vec<f64> = if self.sample >= self.dim {
            vector.iter().map(|x| x.abs()).collect()
        } else {
            let mut words = address.own_words(&self.randomness);
            (0..self.sample).map(|_| vector[words.next_below(self.dim as u64) as usize].abs()).collect()
        };
        if magnitudes.is_empty() {
            return 0.0;
        }
        let last = self.stay(magnitudes.len()) - 1;
        *magnitudes.select_nth_unstable_by(last, |a, b| b.total_cmp(a)).1
    }
}

impl Codec for Dropping {
    fn name(&self) -> &'static str {
        "dropping"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        let kept = if self.sample >= self.dim { self.stay(self.dim) } else { 1 };
        Law::Contractive { delta: share(kept, self.dim) }
    }

    fn fixed_len(&self) -> Option<usize> {
        None
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        admit(self.dim, vector);
        let threshold = self.threshold(address, vector);
        let reaches = |&i: &u32| vector[i as usize] != 0.0 && vector[i as usize].abs() >= threshold;
        let kept: Vec<u32> = (0..self.dim as u32).filter(reaches).collect();
        let mut writer = BitWriter::new(message);
        writer.write(kept.len() as u64, index_bits(self.dim + 1));
        write_pairs(&mut writer, vector, &kept);
        writer.finish();
    }

    fn decode(&self, _: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(None, message, self.dim, out)?;
        let mut reader = BitReader::new(message);
        let count = reader.read_below(self.dim + 1, "a count")?;
        read_pairs(&mut reader, count, out)?;
        reader.finish()
    }
}

/// The positions of the `keep` largest magnitudes, ascending; of equal ones the first.
pub(crate) fn largest(vector: &[f64], keep: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..vector.len() as u32).collect();
    if keep < order.len() {
        if keep > 0 {
            let magnitude = |i: u32| vector[i as usize].abs();
            order.select_nth_unstable_by(keep - 1, |&a, &b| magnitude(b).total_cmp(&magnitude(a)).then(a.cmp(&b)));
        }
        order.truncate(keep);
        order.sort_unstable();
    }
    order
}

/// `keep` of `dim` positions without replacement, every set equally likely, ascending: the first steps of a shuffle.
pub(crate) fn choose(words: &mut Words, dim: usize, keep: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..dim as u32).collect();
    for i in 0..keep {
        let j = i + words.next_below((dim - i) as u64) as usize;
        order.swap(i, j);
    }
    order.truncate(keep);
    order.sort_unstable();
    order
}

fn at_least_one(keep: usize) -> usize {
    assert!(keep > 0, "at least one coordinate is kept");
    keep
}

fn share(keep: usize, dim: usize) -> f64 {
    if dim == 0 { 1.0 } else { keep as f64 / dim as f64 }
}

fn pairs_len(dim: usize, keep: usize) -> usize {
    (keep * (32 + index_bits(dim) as usize)).div_ceil(8)
}

fn write_pairs(writer: &mut BitWriter<'_>, vector: &[f64], positions: &[u32]) {
    for &i in positions {
        writer.write(u64::from(i), index_bits(vector.len()));
        writer.write_f32(vector[i as usize]);
    }
}

/// Positions must ascend: no coordinate is named twice.
fn read_pairs(reader: &mut BitReader<'_>, count: usize, out: &mut [f64]) -> Result<(), CodecError> {
    out.fill(0.0);
    let mut least = 0;
    for _ in 0..count {
        let i = reader.read_below(out.len(), "an index")?;
        if i < least {
            return Err(CodecError::Range { what: "an index" });
        }
        out[i] = reader.read_f32()?;
        least = i + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    fn randomness() -> CommonRandomness {
        CommonRandomness::new(&Seed::reproducible(3))
    }

    fn through(codec: &mut impl Codec, address: Address, vector: &[f64]) -> Vec<f64> {
        let mut message = Vec::new();
        let mut out = vec![0.0; vector.len()];
        codec.encode(address, vector, &mut message);
        codec.decode(address, &message, &mut out).unwrap();
        out
    }

    #[test]
    fn the_largest_travel_and_of_equal_ones_the_first() {
        let vector = [1.0, -3.0, 2.0, 3.0, -2.0, 0.0];
        assert_eq!(through(&mut TopK::new(6, 3), Address::default(), &vector), [0.0, -3.0, 2.0, 3.0, 0.0, 0.0]);
    }

    #[test]
    fn common_indices_agree_between_machines_and_private_ones_do_not() {
        let vector = vec![1.0; 1000];
        let support = |indices, machine| {
            let out = through(&mut RandK::new(1000, 20, indices, &randomness()), Address::new(4, machine), &vector);
            assert_eq!(out.iter().filter(|&&x| x == 50.0).count(), 20);
            out
        };
        assert_eq!(support(Indices::Common, 1), support(Indices::Common, 2));
        assert_ne!(support(Indices::Private, 1), support(Indices::Private, 2));
    }

    #[test]
    fn random_choices_are_uniform() {
        let mut counts = [0u32; 10];
        for round in 0..10_000 {
            for i in choose(&mut Address::new(round, 0).own_words(&randomness()), 10, 3) {
                counts[i as usize] += 1;
            }
        }
        // Each is binomial with mean 3000 and deviation sqrt(2100) = 46; the seed is fixed.
        assert!(counts.iter().all(|&c| c.abs_diff(3000) < 4 * 46), "{counts:?}");
    }

    #[test]
    fn dropping_keeps_what_reaches_the_quantile_with_all_its_ties() {
        let vector = [5.0, 1.0, -5.0, 2.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0];
        let kept = through(&mut Dropping::new(10, 0.9, &randomness()), Address::default(), &vector);
        assert_eq!(kept, [5.0, 0.0, -5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let kept = through(&mut Dropping::new(10, 0.0, &randomness()), Address::default(), &vector);
        assert_eq!(kept, vector);
    }

    #[test]
    fn a_sampled_quantile_keeps_about_the_wanted_share() {
        let vector: Vec<f64> = (1..=10_000).map(f64::from).collect();
        let mut codec = Dropping::new(10_000, 0.99, &randomness()).with_sample(1000);
        let kept = through(&mut codec, Address::new(1, 1), &vector).iter().filter(|&&x| x != 0.0).count();
        // The tenth largest of 1000 uniform numbers stands at 1 - 10/1001, with deviation sqrt(10)/1000: 100 +- 32 of 10,000.
        assert!((100 - 4 * 32..100 + 4 * 32).contains(&(kept as i32)), "{kept}");
    }

    #[test]
    fn an_index_named_twice_is_refused() {
        let mut message = Vec::new();
        let mut writer = BitWriter::new(&mut message);
        for _ in 0..2 {
            writer.write(1, 2);
            writer.write_f32(1.0);
        }
        writer.finish();
        let mut out = [0.0; 4];
        let result = TopK::new(4, 2).decode(Address::default(), &message, &mut out);
        assert_eq!(result, Err(CodecError::Range { what: "an index" }));
    }
}
