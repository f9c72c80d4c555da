//! DRIVE and EDEN: a random rotation, a few bits per number, one scale.

use corewire_sketch::{CommonRandomness, Words};

use crate::bits::{BitReader, BitWriter};
use crate::codec::{Address, Codec, CodecError, Law, admit_clamped, admit_message, energy, index_dim};
use crate::rotation::Rotation;
use crate::sparse::choose;

/// What the scale is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// No bias: many machines average their vectors.
    Unbiased,
    /// The least error of this one vector: one machine sends, or error feedback follows.
    LeastError,
}

/// EDEN: the numbers of a randomly rotated vector, quantised to the centroids that are best for normal numbers.
///
/// - Rule: y = R v with R = H D' H D on blocks of n coordinates (H Hadamard, D and D' random signs of the machine's own), c_i the
///   Lloyd-Max centroid of N(0, 1) nearest to sqrt(n) y_i/||y||; C(v) = R' (S c) with S = ||y||^2/<c, y> (unbiased) or
///   <c, y>/||c||^2 (least error). A fractional number of bits gives the larger whole number to a random part of the coordinates;
///   below one bit the others get the centroid 0 (the authors' code drops coordinates before the rotation instead: the limit is the
///   same, but then it matters which).
/// - Law: with the unbiased scale <C(v), v> = ||v||^2 always, and for a uniformly random rotation C is unbiased; then
///   omega -> 1/q - 1 for large n, q = 0.6366, 0.8825, 0.9655, 0.9905 for 1 to 4 bits (the share of a normal number's energy that its
///   centroid has) and mixtures for fractional bits. The Hadamard rotation only comes near this; two passes of it instead of the
///   authors' one come nearer (see the test on a vector of two entries). With the least-error scale contractive in
///   expectation: centroids +-a give E||C(v) - v||^2 <= (1 - sqrt(2) a + a^2) ||v||^2 by Khintchine's inequality E|y_i| >= ||v||/sqrt(2 n)
///   (Szarek's constant), and a may be any of the centroids, or 1/sqrt(2) up to one bit; so delta = 0.5 b for b <= 1 bits, and 0.43 or
///   more above. In the limit the share q arrives.
/// - Bytes: 32 bits per block and b bits per coordinate; 784 coordinates of one bit are three blocks.
/// - Checked: centroids against Lloyd's iteration; omega of normal vectors against 1/q - 1.
/// - Reference: EDEN: Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning, S. Vargaftik, R. Ben
///   Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak, M. Mitzenmacher, 2022.
#[derive(Clone, Debug)]
pub struct Eden {
    rotation: Rotation,
    dim: usize,
    /// Every number has this many bits,
    bits: usize,
    /// and this share of them one more.
    richer: f64,
    aim: Aim,
    randomness: CommonRandomness,
}

/// The positive centroids of 1 to 4 bits for N(0, 1) (Quantizing for Minimum Distortion, J. Max, 1960); written out, since decoding
/// must give the same bits everywhere. Zero bits have the centroid zero.
const CENTROIDS: [&[f64]; 5] = [
    &[0.0],
    &[0.797884560803],
    &[0.452780034636, 1.510417608499],
    &[0.245094178944, 0.756005281206, 1.343909278505, 2.151945704537],
    &[
        0.128395029851,
        0.388048299490,
        0.656759118532,
        0.942340456487,
        1.256231197347,
        1.618046386022,
        2.069017226531,
        2.732589570995,
    ],
];

/// The share of a normal number's energy that its centroid has.
const SHARES: [f64; 5] = [0.0, std::f64::consts::FRAC_2_PI, 0.882518152171, 0.965452239211, 0.990498991992];

impl Eden {
    /// `bits` bits per coordinate, in (0, 4].
    ///
    /// # Panics
    /// If `bits` is out of range, or `dim` is not below 2^32.
    pub fn new(dim: usize, bits: f64, aim: Aim, randomness: &CommonRandomness) -> Self {
        assert!(bits > 0.0 && bits <= 4.0, "EDEN has more than 0 and at most 4 bits per coordinate");
        let rotation = Rotation::new(index_dim(dim), bits);
        Self { rotation, dim, bits: bits as usize, richer: bits.fract(), aim, randomness: randomness.clone() }
    }

    /// How many numbers of a block have one bit more; rounded up, or nothing of a small block might arrive.
    fn rich(&self, block: usize) -> usize {
        (self.richer * block as f64).ceil() as usize
    }

    /// The bits of every number of a block.
    fn widths(&self, words: &mut Words, block: usize) -> Vec<usize> {
        let mut widths = vec![self.bits; block];
        if self.richer > 0.0 {
            choose(words, block, self.rich(block)).iter().for_each(|&i| widths[i as usize] += 1);
        }
        widths
    }
}

impl Codec for Eden {
    fn name(&self) -> &'static str {
        "eden"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn law(&self) -> Law {
        match self.aim {
            Aim::Unbiased => {
                let more = if self.richer > 0.0 { SHARES[self.bits + 1] - SHARES[self.bits] } else { 0.0 };
                Law::Nearly { omega: 1.0 / (SHARES[self.bits] + self.richer * more) - 1.0 }
            }
            Aim::LeastError if self.bits == 0 => Law::Contractive { delta: 0.5 * self.richer },
            Aim::LeastError if self.bits == 1 && self.richer == 0.0 => Law::Contractive { delta: 0.5 },
            Aim::LeastError => {
                let best = |bits: usize| CENTROIDS[bits].iter().map(|a| 2f64.sqrt() * a - a * a).fold(0.0, f64::max);
                let richer = if self.richer > 0.0 { best(self.bits + 1) } else { 1.0 };
                Law::Contractive { delta: best(self.bits).min(richer) }
            }
        }
    }

    fn fixed_len(&self) -> Option<usize> {
        let block_bits = |&block: &usize| {
            let rich = if self.richer > 0.0 { self.rich(block) } else { 0 };
            32 + self.bits * block + rich
        };
        Some(self.rotation.blocks().iter().map(block_bits).sum::<usize>().div_ceil(8))
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        let vector = admit_clamped(self.dim, vector);
        let mut words = address.own_words(&self.randomness);
        let signs = self.rotation.signs(&mut words);
        let rotated = self.rotation.forward(&signs, &vector);
        let mut writer = BitWriter::new(message);
        let mut rest = &rotated[..];
        for &size in self.rotation.blocks() {
            let (block, others) = rest.split_at(size);
            rest = others;
            let widths = self.widths(&mut words, size);
            let total = energy(block);
            let unit = if total > 0.0 { (size as f64 / total).sqrt() } else { 0.0 };
            let codes: Vec<usize> =
                block.iter().zip(&widths).map(|(y, &bits)| nearest_centroid(CENTROIDS[bits], y.abs() * unit)).collect();
            let (mut inner, mut squares) = (0.0, 0.0);
            for ((y, &bits), &code) in block.iter().zip(&widths).zip(&codes) {
                inner += y.abs() * CENTROIDS[bits][code];
                squares += CENTROIDS[bits][code] * CENTROIDS[bits][code];
            }
            let scale = match self.aim {
                _ if inner <= 0.0 => 0.0,
                Aim::Unbiased => total / inner,
                Aim::LeastError => inner / squares,
            };
            writer.write_f32(scale);
            for ((y, &bits), &code) in block.iter().zip(&widths).zip(&codes) {
                if bits > 0 {
                    writer.write((code << 1) as u64 | u64::from(*y < 0.0), bits as u32);
                }
            }
        }
        writer.finish();
    }

    fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        admit_message(self.fixed_len(), message, self.dim, out)?;
        let mut words = address.own_words(&self.randomness);
        let signs = self.rotation.signs(&mut words);
        let mut reader = BitReader::new(message);
        let mut rotated = Vec::with_capacity(self.rotation.blocks().iter().sum());
        for &size in self.rotation.blocks() {
            let scale = reader.read_scale()?;
            for bits in self.widths(&mut words, size) {
                let code = reader.read(bits as u32)? as usize;
                let magnitude = CENTROIDS[bits][code >> 1] * scale;
                rotated.push(if code & 1 == 1 { -magnitude } else { magnitude });
            }
        }
        self.rotation.inverse(&signs, rotated, out);
        reader.finish()
    }
}

fn nearest_centroid(centroids: &[f64], x: f64) -> usize {
    centroids.windows(2).take_while(|pair| x > (pair[0] + pair[1]) / 2.0).count()
}

/// DRIVE: the signs of a randomly rotated vector, and one scale. It is [`Eden`] with one bit.
///
/// - Rule: C(v) = S R' sign(R v) with S = ||v||^2/||R v||_1 (unbiased) or ||R v||_1/d (least error), on blocks.
/// - Law: as [`Eden`]: nearly unbiased with omega = pi/2 - 1 in the limit, or contractive in expectation with delta = 1/2 (2/pi in
///   the limit).
/// - Bytes: 32 bits per block and one bit per coordinate.
/// - Checked: both errors of normal vectors against the paper's limits pi/2 - 1 and 1 - 2/pi; the exact error
///   ||v||^2 (d ||v||^2/||Rv||_1^2 - 1) follows from <C(v), v> = ||v||^2.
/// - Reference: DRIVE: One-bit Distributed Mean Estimation, S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson, Y. Ben-Itzhak,
///   M. Mitzenmacher, 2021.
#[derive(Clone, Debug)]
pub struct Drive(Eden);

impl Drive {
    /// One bit per coordinate.
    ///
    /// # Panics
    /// If `dim` is not below 2^32.
    pub fn new(dim: usize, aim: Aim, randomness: &CommonRandomness) -> Self {
        Self(Eden::new(dim, 1.0, aim, randomness))
    }
}

impl Codec for Drive {
    fn name(&self) -> &'static str {
        "drive"
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn law(&self) -> Law {
        self.0.law()
    }

    fn fixed_len(&self) -> Option<usize> {
        self.0.fixed_len()
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        self.0.encode(address, vector, message);
    }

    fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        self.0.decode(address, message, out)
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use corewire_sketch::Seed;

    use super::*;

    fn randomness() -> CommonRandomness {
        CommonRandomness::new(&Seed::reproducible(21))
    }

    /// Mean decoded vector and mean relative squared error over rounds.
    fn moments(codec: &mut impl Codec, vector: &[f64], rounds: u64) -> (Vec<f64>, f64) {
        let (mut message, mut out) = (Vec::new(), vec![0.0; vector.len()]);
        let mut mean = vec![0.0; vector.len()];
        let mut error = 0.0;
        for round in 0..rounds {
            let address = Address::new(round, 3);
            codec.encode(address, vector, &mut message);
            codec.decode(address, &message, &mut out).unwrap();
            for ((m, x), v) in mean.iter_mut().zip(&out).zip(vector) {
                *m += x / rounds as f64;
                error += (x - v) * (x - v);
            }
        }
        (mean, error / rounds as f64 / energy(vector))
    }

    fn normal(dim: usize) -> Vec<f64> {
        let mut words = Address::new(0, 7).own_words(&randomness());
        (0..dim).map(|_| (0..12).map(|_| words.next_dither()).sum()).collect()
    }

    #[test]
    fn drives_errors_are_the_papers_limits() {
        let vector = normal(4096);
        let (_, error) = moments(&mut Drive::new(4096, Aim::Unbiased, &randomness()), &vector, 20);
        // The paper's correction is of order sqrt(log d/d) at most, and measured ones are below 1/sqrt(d) = 1.6 %.
        assert!((error / (PI / 2.0 - 1.0) - 1.0).abs() < 0.02, "{error}");
        let (_, error) = moments(&mut Drive::new(4096, Aim::LeastError, &randomness()), &vector, 20);
        assert!((error / (1.0 - 2.0 / PI) - 1.0).abs() < 0.02, "{error}");
    }

    #[test]
    fn edens_errors_are_the_papers_limits() {
        let vector = normal(4096);
        for bits in [0.1, 0.5, 1.5, 2.0, 3.0, 4.0] {
            let mut codec = Eden::new(4096, bits, Aim::Unbiased, &randomness());
            let (_, error) = moments(&mut codec, &vector, 100);
            let omega = codec.law().omega().unwrap();
            // The error goes as the inverse square of <c, y>, whose terms have a relative deviation of 0.756 (one bit; less with more):
            // four standard errors for the numbers that carry it, and 1/sqrt(d) for the limit.
            let bound = 4.0 * 2.0 * 0.756 / (4096.0 * 100.0 * bits.min(1.0)).sqrt() + 1.0 / 64.0;
            assert!((error / omega - 1.0).abs() < bound, "{bits} bits: {error} against {omega}");
        }
    }

    #[test]
    fn the_inner_product_with_the_vector_is_exact() {
        let vector = normal(300);
        for bits in [0.3, 1.0, 2.5] {
            let mut codec = Eden::new(300, bits, Aim::Unbiased, &randomness());
            let (mean, _) = moments(&mut codec, &vector, 1);
            let inner: f64 = mean.iter().zip(&vector).map(|(a, b)| a * b).sum();
            // One rounding of a scale to f32.
            assert!((inner / energy(&vector) - 1.0).abs() < 1e-7);
        }
    }

    #[test]
    fn a_vector_of_two_entries_is_nearly_unbiased() {
        // With one pass of the Hadamard rotation the decoded vector would always be (1.25, 0, ..), since (1, 0.5) never changes the
        // sign of its larger part: a bias of 0.56.
        let mut vector = vec![0.0; 256];
        (vector[0], vector[1]) = (1.0, 0.5);
        let rounds = 4000;
        let (mean, error) = moments(&mut Drive::new(256, Aim::Unbiased, &randomness()), &vector, rounds);
        let bias: f64 = mean.iter().zip(&vector).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        // The mean of 4000 has deviation sqrt(error/4000) = 0.013 in all; twice that, and 1/d for a bias of its own.
        assert!(bias < 2.0 * (error * energy(&vector) / rounds as f64).sqrt() + 1.0 / 256.0, "{bias}");
    }

    #[test]
    fn centroids_are_a_fixed_point_of_lloyds_iteration() {
        // By Simpson's rule on a grid of 2^-12, whose error is below 1e-12 here.
        let moment = |from: f64, to: f64, power: i32| {
            let n = 2 * ((to - from) * 2048.0).ceil() as usize;
            let h = (to - from) / n as f64;
            let f = |x: f64| x.powi(power) * (-x * x / 2.0).exp();
            let inner: f64 = (1..n).map(|i| f(from + h * i as f64) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
            (f(from) + inner + f(to)) * h / 3.0
        };
        for (centroids, share) in CENTROIDS.iter().zip(SHARES).skip(1) {
            let mut kept = 0.0;
            for (k, c) in centroids.iter().enumerate() {
                let from = if k == 0 { 0.0 } else { (centroids[k - 1] + c) / 2.0 };
                let to = centroids.get(k + 1).map_or(12.0, |next| (next + c) / 2.0);
                assert!((moment(from, to, 1) / moment(from, to, 0) - c).abs() < 1e-10);
                kept += c * c * moment(from, to, 0) / moment(0.0, 12.0, 0);
            }
            assert!((kept - share).abs() < 1e-10);
        }
    }
}
