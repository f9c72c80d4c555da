//! Random numbers by address: (seed, purpose, round, row, coordinate) names a number, and nothing is ever consumed.
//! What the numbers mean belongs to the families and codes that read them.

use chacha20::ChaCha12;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use zeroize::Zeroizing;

use crate::Seed;

/// What a random number is for. Numbers of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// Entries of random directions, and the signs of the Hadamard family.
    Directions = 0,
    /// Which rows of the Hadamard matrix a round uses.
    Rows = 1,
    /// Dither of the scalars that a machine sends; the row is its rank.
    Dither = 2,
    /// Dither of the scalars that come back.
    DownlinkDither = 3,
    /// Coins that all machines toss together.
    Coin = 4,
    /// Random choices inside a vector compressor; the row is the machine's rank, or 0 for common ones.
    Compressor = 5,
    /// Order and assignment of data rows, mini-batches.
    Shuffle = 6,
    /// Directions that probe the spectrum.
    Probe = 7,
    /// Starting points.
    Start = 8,
    /// Gossip, graphs and whatever concerns the network's shape.
    Graph = 9,
    /// Synthetic problems.
    Synthetic = 10,
    /// Dither of the factors of a machine's curvature; the row is its rank.
    Factors = 11,
    /// Where pictures are cut out for training, and which are mirrored; the row is the machine's rank.
    Pictures = 12,
}

const PURPOSES: usize = 13;

/// The randomness that all holders of a seed share.
#[derive(Clone)]
pub struct CommonRandomness {
    /// One ChaCha12 key a purpose, so that an address need not carry the purpose.
    keys: Zeroizing<[[u8; 32]; PURPOSES]>,
}

impl CommonRandomness {
    /// The randomness of this seed.
    pub fn new(seed: &Seed) -> Self {
        let key = |purpose: u32| {
            let mut label = *b"corewire purpose 0000";
            label[17..].copy_from_slice(&purpose.to_le_bytes());
            *blake3::keyed_hash(seed.bytes(), &label).as_bytes()
        };
        Self { keys: Zeroizing::new(std::array::from_fn(|purpose| key(purpose as u32))) }
    }

    /// The words at one address, from coordinate 0 on.
    pub fn words(&self, purpose: Purpose, round: u64, row: u32) -> Words {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&round.to_le_bytes());
        nonce[8..].copy_from_slice(&row.to_le_bytes());
        let cipher = ChaCha12::new(self.key(purpose).into(), &nonce.into());
        Words { cipher, block: [0; 64], used: 64 }
    }

    /// The key of a purpose, for kernels that run the block function themselves.
    pub(crate) fn key(&self, purpose: Purpose) -> &[u8; 32] {
        &self.keys[purpose as usize]
    }
}

impl std::fmt::Debug for CommonRandomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommonRandomness(..)")
    }
}

/// The 64-bit words of one address: the ChaCha12 key stream of the purpose's key, with the round and the row as nonce.
pub struct Words {
    cipher: ChaCha12,
    block: [u8; 64],
    used: usize,
}

impl Words {
    /// Goes to the 64-bit word with this index.
    pub fn seek(&mut self, word: u64) {
        self.cipher.seek(word / 8 * 64);
        self.refill();
        self.used = (word % 8) as usize * 8;
    }

    /// The next word.
    pub fn next_u64(&mut self) -> u64 {
        if self.used == 64 {
            self.refill();
        }
        let mut word = [0; 8];
        word.copy_from_slice(&self.block[self.used..self.used + 8]);
        self.used += 8;
        u64::from_le_bytes(word)
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn next_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number in (-1/2, 1/2), symmetric about 0.
    pub fn next_dither(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64) - 0.5
    }

    /// A whole number below `bound`, every one equally likely (rejection from the low product, as Lemire has it).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn next_below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no whole number below 0");
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            let low = product as u64;
            // The division is needed only where a rejection is possible at all.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// True with this probability.
    pub fn next_coin(&mut self, probability: f64) -> bool {
        self.next_unit() < probability
    }

    /// Shuffles by Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.next_below(i as u64 + 1) as usize;
            items.swap(i, j);
        }
    }

    fn refill(&mut self) {
        self.block = [0; 64];
        self.cipher.apply_keystream(&mut self.block);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_does_not_depend_on_how_it_was_reached() {
        let randomness = CommonRandomness::new(&Seed::reproducible(1));
        let mut straight = randomness.words(Purpose::Coin, 3, 5);
        let words: Vec<u64> = (0..40).map(|_| straight.next_u64()).collect();
        for start in [0, 1, 7, 8, 9, 31] {
            let mut jumped = randomness.words(Purpose::Coin, 3, 5);
            jumped.seek(start);
            assert_eq!(jumped.next_u64(), words[start as usize]);
        }
    }

    #[test]
    fn addresses_and_purposes_differ() {
        let randomness = CommonRandomness::new(&Seed::reproducible(1));
        let first = |purpose, round, row| randomness.words(purpose, round, row).next_u64();
        let all = [
            first(Purpose::Coin, 0, 0),
            first(Purpose::Coin, 0, 1),
            first(Purpose::Coin, 1, 0),
            first(Purpose::Rows, 0, 0),
        ];
        for i in 0..all.len() {
            for j in 0..i {
                assert_ne!(all[i], all[j]);
            }
        }
    }

    #[test]
    fn dithers_are_inside_the_open_interval_and_centred() {
        let mut words = CommonRandomness::new(&Seed::reproducible(2)).words(Purpose::Dither, 0, 0);
        let dithers: Vec<f64> = (0..100_000).map(|_| words.next_dither()).collect();
        assert!(dithers.iter().all(|u| u.abs() < 0.5));
        // The mean's standard deviation is sqrt(1/12/1e5) = 9.1e-4; the seed is fixed.
        assert!((dithers.iter().sum::<f64>() / 1e5).abs() < 4e-3);
    }
}
