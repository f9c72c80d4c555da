//! Which rows of the Hadamard matrix a round uses: a uniformly random set, in increasing order.

use crate::kernel::{Kernel, Keystream, Operation, Order, STRIP, Simd, Stream};

/// A set of rows as one bit per row.
#[derive(Default)]
pub(crate) struct Rows {
    bits: Vec<u64>,
    /// How many chosen rows lie before each block of 512, and how many there are.
    ranks: Vec<u32>,
    /// For each strip of 512 columns of the table, which of its 32 lines have a chosen row in any row of the table; or nothing.
    lines: Vec<u32>,
    /// The set is of the rows that are left out.
    inverted: bool,
    of: usize,
    /// How many were asked for, and the first words that they were drawn with.
    drawn: (usize, [u64; 32]),
}

impl Rows {
    pub(crate) const fn new() -> Self {
        Self { bits: Vec::new(), ranks: Vec::new(), lines: Vec::new(), inverted: false, of: 0, drawn: (0, [0; 32]) }
    }

    /// `count` of `of` rows, every set equally likely (Floyd's algorithm; Bentley and Floyd, CACM 30, 1987). Above half of them, the rows
    /// left out are drawn. The draws are those of [`Words::next_below`](crate::Words::next_below) at the address.
    ///
    /// A set that is here already stays: a round's projection and reconstruction want the same, and so do all machines of a thread.
    pub(crate) fn choose(&mut self, kernel: Kernel, stream: Stream, address: u32, of: usize, count: usize) {
        let mut words = Draws { kernel, stream, address, buffer: [0; 32], used: 0, counter: 0 };
        words.refill();
        if (self.of, self.drawn) == (of, (count, words.buffer)) {
            return;
        }
        self.drawn = (count, words.buffer);
        self.of = of;
        self.inverted = count > of / 2;
        let draws = if self.inverted { of - count } else { count };
        self.bits.clear();
        self.bits.resize(of.div_ceil(64), 0);
        let bits = &mut self.bits[..];
        for last in of - draws..of {
            let row = words.below(last as u64 + 1) as usize;
            let row = if bits[row / 64] >> (row % 64) & 1 == 0 { row } else { last };
            bits[row / 64] |= 1 << (row % 64);
        }
        kernel.run(Rank { rows: self });
    }

    /// One bit for each of the rows 64 `index`, 64 `index` + 1, ...
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> u64 {
        let word = if self.inverted { !self.bits[index] } else { self.bits[index] };
        if self.of < 64 { word & ((1 << self.of) - 1) } else { word }
    }

    /// How many chosen rows lie before row 512 `block`.
    #[inline(always)]
    pub(crate) fn rank(&self, block: usize) -> usize {
        self.ranks[block] as usize
    }

    /// Whether there is a chosen row among `len` from `start` on, both multiples of 64.
    #[inline(always)]
    pub(crate) fn any(&self, start: usize, len: usize) -> bool {
        if len >= STRIP {
            return self.rank(start / STRIP) < self.rank((start + len) / STRIP);
        }
        (start / 64..(start + len) / 64).any(|index| self.word(index) != 0)
    }

    /// Looks which lines of a table of this many columns have a chosen row, where they are few; else [`all_lines`](Self::all_lines) is
    /// empty.
    pub(crate) fn mark_lines(&mut self, order: Order) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        if order.is_power() && self.rank(self.ranks.len() - 1) <= order.columns() / 32 {
            lines.resize(order.columns() / STRIP, 0);
            self.for_each(|row| {
                let column = row % order.columns();
                lines[column / STRIP] |= 1 << (column % STRIP / 16);
            });
        }
        self.lines = lines;
    }

    /// For each strip, one bit for each line; empty where all are meant.
    pub(crate) fn all_lines(&self) -> &[u32] {
        &self.lines
    }

    /// The lines of a strip that have a chosen row, or all.
    #[inline(always)]
    pub(crate) fn lines(&self, strip: usize) -> u32 {
        self.lines.get(strip).copied().unwrap_or(u32::MAX)
    }

    /// Calls `visit` with every chosen row, in increasing order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize)) {
        for index in 0..self.bits.len() {
            let mut word = self.word(index);
            while word != 0 {
                visit(index * 64 + word.trailing_zeros() as usize);
                word &= word - 1;
            }
        }
    }
}

/// Counts the rows before each block.
struct Rank<'a> {
    rows: &'a mut Rows,
}

impl Operation for Rank<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let mut ranks = std::mem::take(&mut self.rows.ranks);
        ranks.clear();
        ranks.push(0);
        let mut rank = 0;
        for block in 0..self.rows.of.div_ceil(STRIP) {
            let end = self.rows.bits.len().min((block + 1) * (STRIP / 64));
            for index in block * (STRIP / 64)..end {
                rank += self.rows.word(index).count_ones();
            }
            ranks.push(rank);
        }
        self.rows.ranks = ranks;
    }
}

struct Draws {
    kernel: Kernel,
    stream: Stream,
    address: u32,
    buffer: [u64; 32],
    used: usize,
    counter: u32,
}

impl Draws {
    fn refill(&mut self) {
        let blocks = self.kernel.run(Keystream { stream: self.stream, row: self.address, counter: self.counter });
        for (word, pair) in self.buffer.iter_mut().zip(blocks.as_flattened().as_chunks::<2>().0) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        self.counter = self.counter.wrapping_add(4);
        self.used = 0;
    }

    fn next(&mut self) -> u64 {
        if self.used == self.buffer.len() {
            self.refill();
        }
        self.used += 1;
        self.buffer[self.used - 1]
    }

    fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            let low = product as u64;
            // The division is needed only where a rejection is possible at all.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Directions;
    use crate::{CommonRandomness, Purpose, Seed};

    fn chosen(of: usize, count: usize, round: u64) -> Vec<usize> {
        let directions = Directions::new(&CommonRandomness::new(&Seed::reproducible(3)));
        let (mut set, mut rows) = (Rows::new(), Vec::new());
        set.choose(directions.kernel, directions.stream(Purpose::Rows, round), 0, of, count);
        set.for_each(|row| rows.push(row));
        for block in 0..of.div_ceil(512) {
            assert_eq!(set.rank(block), rows.iter().filter(|&&row| row < 512 * block).count());
        }
        rows
    }

    #[test]
    fn as_many_rows_as_asked_all_different() {
        for of in [1, 2, 4, 64, 128, 1024, 4096] {
            for count in [1, 2, 3, of / 2, of / 2 + 1, of - 1, of] {
                if count == 0 || count > of {
                    continue;
                }
                let rows = chosen(of, count, 7);
                assert_eq!(rows.len(), count);
                assert!(rows.is_sorted_by(|a, b| a < b) && rows[count - 1] < of);
            }
        }
    }

    #[test]
    fn a_set_is_drawn_anew_unless_it_is_the_same() {
        let directions = Directions::new(&CommonRandomness::new(&Seed::reproducible(3)));
        let mut set = Rows::new();
        for (of, count, round) in [(64, 5, 0), (64, 5, 0), (64, 6, 0), (128, 6, 0), (128, 6, 1), (64, 5, 0)] {
            let mut rows = Vec::new();
            set.choose(directions.kernel, directions.stream(Purpose::Rows, round), 0, of, count);
            set.for_each(|row| rows.push(row));
            assert_eq!(rows, chosen(of, count, round));
        }
    }

    #[test]
    fn every_pair_of_rows_is_equally_likely() {
        for count in [3, 6] {
            let rounds = 20_000;
            let mut pairs = [[0u32; 8]; 8];
            for round in 0..rounds {
                let rows = chosen(8, count, round);
                for &a in &rows {
                    for &b in &rows {
                        pairs[a][b] += 1;
                    }
                }
            }
            let probability = (count * (count - 1)) as f64 / 56.0;
            // Six standard deviations of a binomial; the seed is fixed.
            let bound = 6.0 * (rounds as f64 * probability * (1.0 - probability)).sqrt();
            for a in 0..8 {
                for b in (0..8).filter(|&b| b != a) {
                    assert!((f64::from(pairs[a][b]) - rounds as f64 * probability).abs() < bound);
                }
            }
        }
    }

    #[test]
    fn the_draws_are_those_of_the_words() {
        let randomness = CommonRandomness::new(&Seed::reproducible(3));
        let directions = Directions::new(&randomness);
        let stream = directions.stream(Purpose::Rows, 9);
        let mut draws = Draws { kernel: directions.kernel, stream, address: 5, buffer: [0; 32], used: 32, counter: 0 };
        let mut words = randomness.words(Purpose::Rows, 9, 5);
        for bound in 1..200 {
            let bound = bound * 0x0123_4567_89ab;
            assert_eq!(draws.below(bound), words.next_below(bound));
        }
    }
}
