//! The randomised Hadamard rotation of DRIVE and EDEN. What is done with the rotated numbers belongs to them.

use corewire_sketch::{Words, hadamard_transform};

/// Random signs and a Hadamard transform, twice, on blocks whose sizes are powers of two.
///
/// One pass leaves a vector of few entries on few values, and their signs are then far from unbiased; after two passes the numbers
/// are close to normal for every vector. The papers' code has one pass and pads the whole vector to one power of two; blocks cost
/// fewer bits.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    dim: usize,
    blocks: Vec<usize>,
}

const PASSES: usize = 2;

/// The random signs of one message, 64 a word.
pub(crate) struct Signs(Vec<u64>);

impl Rotation {
    /// Blocks for `dim` coordinates of `bits` bits where every block costs 32 bits more: the cheapest of splitting off the largest
    /// power of two and of padding what is left to the next one.
    pub(crate) fn new(dim: usize, bits: f64) -> Self {
        let mut blocks = Vec::new();
        let mut left = dim;
        while left > 0 {
            let block = if splits(left, bits) { 1 << left.ilog2() } else { left.next_power_of_two() };
            blocks.push(block);
            left = left.saturating_sub(block);
        }
        Self { dim, blocks }
    }

    /// The sizes of the blocks, in order; only the last is padded.
    pub(crate) fn blocks(&self) -> &[usize] {
        &self.blocks
    }

    pub(crate) fn signs(&self, words: &mut Words) -> Signs {
        let count: usize = self.blocks.iter().map(|block| PASSES * block.div_ceil(64)).sum();
        Signs((0..count).map(|_| words.next_u64()).collect())
    }

    /// Rotates the vector; the result is as long as all blocks.
    pub(crate) fn forward(&self, signs: &Signs, vector: &[f64]) -> Vec<f64> {
        let mut out = vector.to_vec();
        out.resize(self.blocks.iter().sum(), 0.0);
        self.each_block(signs, &mut out, |block, passes| {
            for signs in passes {
                flip(block, signs);
                hadamard(block);
            }
        });
        out
    }

    /// Rotates back.
    pub(crate) fn inverse(&self, signs: &Signs, mut rotated: Vec<f64>, out: &mut [f64]) {
        self.each_block(signs, &mut rotated, |block, passes| {
            for signs in passes.iter().rev() {
                hadamard(block);
                flip(block, signs);
            }
        });
        out.copy_from_slice(&rotated[..self.dim]);
    }

    fn each_block(&self, signs: &Signs, numbers: &mut [f64], mut rotate: impl FnMut(&mut [f64], &[&[u64]; PASSES])) {
        let (mut numbers, mut signs) = (numbers, &signs.0[..]);
        for &size in &self.blocks {
            let (block, others) = numbers.split_at_mut(size);
            let (own, rest) = signs.split_at(PASSES * size.div_ceil(64));
            rotate(block, &[&own[..own.len() / PASSES], &own[own.len() / PASSES..]]);
            (numbers, signs) = (others, rest);
        }
    }
}

/// Whether `left` coordinates are cheaper with the largest power of two split off than padded whole.
fn splits(left: usize, bits: f64) -> bool {
    let power = 1 << left.ilog2();
    left != power
        && power as f64 * bits + 32.0 + cost(left - power, bits) < left.next_power_of_two() as f64 * bits + 32.0
}

fn cost(left: usize, bits: f64) -> f64 {
    if left == 0 {
        return 0.0;
    }
    let power = 1 << left.ilog2();
    let padded = left.next_power_of_two() as f64 * bits + 32.0;
    if left == power { padded } else { padded.min(power as f64 * bits + 32.0 + cost(left - power, bits)) }
}

fn flip(block: &mut [f64], signs: &[u64]) {
    for (i, x) in block.iter_mut().enumerate() {
        if signs[i / 64] >> (i % 64) & 1 == 1 {
            *x = -*x;
        }
    }
}

/// The orthonormal Walsh-Hadamard transform in place, its own inverse.
fn hadamard(block: &mut [f64]) {
    hadamard_transform(block);
    let factor = 1.0 / (block.len() as f64).sqrt();
    block.iter_mut().for_each(|x| *x *= factor);
}

#[cfg(test)]
mod tests {
    use corewire_sketch::{CommonRandomness, Purpose, Seed};

    use super::*;

    #[test]
    fn rotating_keeps_the_norm_and_rotating_back_gives_the_vector() {
        let mut words = CommonRandomness::new(&Seed::reproducible(8)).words(Purpose::Compressor, 0, 0);
        for dim in [0, 1, 2, 3, 64, 100, 784] {
            let rotation = Rotation::new(dim, 1.0);
            let signs = rotation.signs(&mut words);
            let vector: Vec<f64> = (0..dim).map(|_| words.next_dither()).collect();
            let rotated = rotation.forward(&signs, &vector);
            let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>();
            assert!((norm(&rotated) - norm(&vector)).abs() < 1e-12 * (1.0 + norm(&vector)));
            let mut back = vec![0.0; dim];
            rotation.inverse(&signs, rotated, &mut back);
            // Each of forty passes of a butterfly rounds once, 2^-53 relative to a norm below 10.
            assert!(back.iter().zip(&vector).all(|(a, b)| (a - b).abs() < 1e-13));
        }
    }

    #[test]
    fn blocks_are_the_cheapest() {
        assert_eq!(Rotation::new(784, 1.0).blocks(), [512, 256, 16]);
        assert_eq!(Rotation::new(1000, 1.0).blocks(), [1024]);
        assert_eq!(Rotation::new(100_000, 1.0).blocks(), [65_536, 32_768, 1024, 512, 128, 32]);
        assert!(Rotation::new(0, 1.0).blocks().is_empty());
    }

    #[test]
    fn the_transform_is_the_hadamard_matrix() {
        for column in 0..8 {
            let mut unit = [0.0; 8];
            unit[column] = 1.0;
            hadamard(&mut unit);
            for (row, x) in unit.iter().enumerate() {
                let sign = if (row & column).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                assert!((x - sign / 8f64.sqrt()).abs() < 1e-15);
            }
        }
    }
}
