//! Many dithered integers at once, a few nanoseconds each: one spread for all of them, and the code of asymmetric numeral systems.
//!
//! The model is that of [`IntegerCoder`](super::IntegerCoder), tabulated once for each message at [`LEVELS`] sizes of the dither, with
//! integers of at most [`REACH`] in size as symbols. Larger ones are rare and follow at the end. Where the spread is large, an integer is
//! divided by a power of two first, and what is left of it follows as raw bits. All of it is integer arithmetic: no two machines differ.
//!
//! The streams are ranged asymmetric numeral systems (Duda 2009; Giesen 2014): a state x of 32 bits takes a symbol of frequency f and
//! cumulative frequency c as x/f 2^14 + x mod f + c, and gives 16 bits away before it would overflow. Four states take turns, so that
//! none waits for the others, and few branches depend on what is coded.

use super::integer::{CodeError, Dither, Odds, divide};

/// Frequencies add up to two to this power.
const PRECISION: u32 = 14;
/// States lie between this and 2^16 times this.
const LOW: u32 = 1 << 16;
/// States that take turns.
const STATES: usize = 4;
/// Sizes of the dither that the table tells apart.
const LEVELS: usize = 32;
/// The largest integer that is a symbol.
const REACH: i32 = 7;
/// Integers from -7 to 7, and the symbol of all others.
const SYMBOLS: usize = 16;
const ESCAPE: usize = SYMBOLS - 1;
/// Spreads are told in sixteenths of an octave, from 2^-6 on.
const FINEST: f64 = 1.0 / 64.0;
/// The largest spread whose integers are symbols themselves.
const WIDEST: i64 = (5 << 16) / 2;

const DAMAGED: CodeError = CodeError("a message of many integers");

/// The frequencies of the symbols at one size of the dither.
#[derive(Clone, Copy)]
struct Row {
    /// Those of all symbols before, and of all.
    starts: [u16; SYMBOLS + 1],
}

impl Row {
    fn count(&self, symbol: usize) -> u32 {
        u32::from(self.starts[symbol + 1] - self.starts[symbol])
    }
}

struct Table {
    rows: [Row; LEVELS],
    /// The power of two by which integers are divided.
    grain: u32,
}

impl Table {
    fn new(spread: u8) -> Self {
        let spread = spread_of(spread);
        let mut grain = 0;
        while spread >> grain > WIDEST {
            grain += 1;
        }
        let spread = spread >> grain;
        let rows = std::array::from_fn(|level| {
            // The middle of the level, or no dither where integers are divided.
            let dither = if grain == 0 { Dither::of_size((2 * level as u32 + 1) << 25) } else { Dither::NONE };
            let odds = Odds::new(spread, dither);
            let mut starts = [0; SYMBOLS + 1];
            let room = (1 << PRECISION) - SYMBOLS as i64;
            for symbol in 0..ESCAPE {
                let k = symbol as i32 - REACH;
                let share = ((odds.below(k) - odds.below(k - 1)) * room) >> 30;
                starts[symbol + 1] = starts[symbol] + 1 + share as u16;
            }
            // What rounding down has left goes to the last symbol.
            starts[SYMBOLS] = 1 << PRECISION;
            Row { starts }
        });
        Self { rows, grain }
    }
}

/// The row of a dither.
fn level(dither: Dither) -> usize {
    ((dither.size() >> 26) as usize).min(LEVELS - 1)
}

/// The spread of a message's first byte, in units of 2^-16.
fn spread_of(byte: u8) -> i64 {
    // 2^(1/16) to the power of the low four bits, in units of 2^-16.
    const SIXTEENTHS: [i64; 16] = [
        65_536, 68_438, 71_468, 74_632, 77_936, 81_386, 84_990, 88_752, 92_682, 96_785, 101_070, 105_545, 110_218,
        115_098, 120_194, 125_515,
    ];
    (SIXTEENTHS[usize::from(byte % 16)] << (byte / 16)) >> 6
}

/// The byte whose spread is nearest to that of some integers.
fn spread_byte(integers: &[i32], dithers: &[Dither]) -> u8 {
    // Eight sums at a time. Only the sender computes this, in floats.
    let mut sums = [0.0; 8];
    for (integers, dithers) in integers.chunks(8).zip(dithers.chunks(8)) {
        for ((sum, &z), u) in sums.iter_mut().zip(integers).zip(dithers) {
            let scalar = f64::from(z) - u.value();
            *sum += scalar * scalar;
        }
    }
    let squares = sums.iter().sum::<f64>();
    // The error of the quantiser adds 1/12.
    let spread = (squares / integers.len().max(1) as f64 - 1.0 / 12.0).max(FINEST * FINEST).sqrt();
    ((spread / FINEST).log2() * 16.0).round().clamp(0.0, 255.0) as u8
}

/// Appends the code of `integers` to `message`. It costs what the entropy given the dithers is, some twenty bytes, and one percent.
///
/// # Panics
/// If there are not as many dithers as integers.
pub fn encode_many(integers: &[i32], dithers: &[Dither], message: &mut Vec<u8>) {
    assert_eq!(integers.len(), dithers.len(), "every integer has its dither");
    let byte = spread_byte(integers, dithers);
    let table = Table::new(byte);
    let quotient = |(&integer, &dither): (&i32, &Dither)| match table.grain {
        0 if dither.is_negative() => integer.wrapping_neg(),
        0 => integer,
        grain => divide(integer, grain).0,
    };
    let quotients: Vec<i32> = integers.iter().zip(dithers).map(quotient).collect();
    let is_small = |quotient: i32| quotient.unsigned_abs() <= REACH as u32;
    let symbol = |&quotient: &i32| if is_small(quotient) { (quotient + REACH) as u8 } else { ESCAPE as u8 };
    let symbols: Vec<u8> = quotients.iter().map(symbol).collect();
    let (states, words) = taken(&table, &symbols, dithers);
    message.push(byte);
    states.iter().for_each(|state| message.extend_from_slice(&state.to_le_bytes()));
    message.extend(words.iter().rev().flat_map(|word| word.to_le_bytes()));
    // Backwards, like all of it.
    if table.grain > 0 {
        let mut raw = Bits::default();
        integers.iter().rev().for_each(|&integer| raw.push(divide(integer, table.grain).1, table.grain));
        message.extend(raw.finish());
    }
    let others = quotients.iter().rev().filter(|quotient| !is_small(**quotient));
    message.extend(others.flat_map(|other| other.to_le_bytes()));
}

/// The states after they took all symbols, and what they gave away. Backwards, because states give symbols back in the opposite order.
fn taken(table: &Table, symbols: &[u8], dithers: &[Dither]) -> ([u32; STATES], Vec<u16>) {
    // 2^46 over each frequency, rounded up: below 2^18 times a frequency, a multiplication then divides exactly.
    const SHIFT: u32 = 46;
    let inverse = |row: &Row, symbol| (1u64 << SHIFT).div_ceil(row.count(symbol).into());
    let inverses: [[u64; SYMBOLS]; LEVELS] =
        table.rows.each_ref().map(|row| std::array::from_fn(|symbol| inverse(row, symbol)));
    let (mut states, mut words, mut given) = ([LOW; STATES], vec![0; symbols.len() + 1], 0);
    for (symbols, dithers) in symbols.chunks(STATES).zip(dithers.chunks(STATES)).rev() {
        for ((&symbol, &dither), state) in symbols.iter().zip(dithers).zip(&mut states).rev() {
            let (level, symbol) = (level(dither), usize::from(symbol) % SYMBOLS);
            let (start, count) = (table.rows[level].starts[symbol], table.rows[level].count(symbol));
            let full = *state >= count << (32 - PRECISION);
            words[given] = *state as u16;
            given += usize::from(full);
            let room = if full { *state >> 16 } else { *state };
            let quotient = ((u64::from(room) * inverses[level][symbol]) >> SHIFT) as u32;
            *state = (quotient << PRECISION) + (room - quotient * count) + u32::from(start);
        }
    }
    words.truncate(given);
    (states, words)
}

/// Where to begin to look for the symbol of a place among the frequencies.
struct Hints([[u8; HINTS]; LEVELS]);

/// Of this many equal parts of the frequencies, few have the end of a symbol.
const HINTS: usize = 256;

impl Hints {
    const PART: u32 = PRECISION - HINTS.ilog2();

    fn new(table: &Table) -> Self {
        let mut hints = [[0; HINTS]; LEVELS];
        for (row, hints) in table.rows.iter().zip(&mut hints) {
            let first = |symbol: usize| usize::from(row.starts[symbol]).div_ceil(1 << Self::PART);
            (0..SYMBOLS).for_each(|symbol| hints[first(symbol)..first(symbol + 1)].fill(symbol as u8));
        }
        Self(hints)
    }

    #[inline(always)]
    fn symbol(&self, level: usize, row: &Row, slot: u32) -> usize {
        let mut symbol = usize::from(self.0[level][(slot >> Self::PART) as usize]);
        while u32::from(row.starts[symbol + 1]) <= slot {
            symbol += 1;
        }
        symbol
    }
}

/// Reads as many integers as there are dithers from the whole of `message`.
///
/// # Panics
/// If there are not as many dithers as integers.
pub fn decode_many(message: &[u8], dithers: &[Dither], integers: &mut [i32]) -> Result<(), CodeError> {
    assert_eq!(integers.len(), dithers.len(), "every integer has its dither");
    let (&byte, rest) = message.split_first().ok_or(DAMAGED)?;
    let table = Table::new(byte);
    let (head, stream) = rest.split_first_chunk::<{ 4 * STATES }>().ok_or(DAMAGED)?;
    let mut states = [0; STATES];
    states.iter_mut().zip(head.as_chunks::<4>().0).for_each(|(state, bytes)| *state = u32::from_le_bytes(*bytes));
    let hints = Hints::new(&table);
    // Where the words end is known when the last integer has been read.
    let words = stream.as_chunks::<2>().0;
    let (mut position, mut escapes) = (0, 0);
    for (integers, dithers) in integers.chunks_mut(STATES).zip(dithers.chunks(STATES)) {
        for ((integer, &dither), state) in integers.iter_mut().zip(dithers).zip(&mut states) {
            let (level, slot) = (level(dither), *state & ((1 << PRECISION) - 1));
            let row = &table.rows[level];
            let symbol = hints.symbol(level, row, slot);
            let taken = row.count(symbol) * (*state >> PRECISION) + slot - u32::from(row.starts[symbol]);
            let word = words.get(position).map_or(0, |&word| u32::from(u16::from_le_bytes(word)));
            let empty = taken < LOW;
            *state = if empty { taken << 16 | word } else { taken };
            position += usize::from(empty);
            escapes += usize::from(symbol == ESCAPE);
            *integer = symbol as i32 - REACH;
        }
    }
    let rest = stream.get(2 * position..).ok_or(DAMAGED)?;
    let (raw, others) = rest.split_at_checked((integers.len() * table.grain as usize).div_ceil(8)).ok_or(DAMAGED)?;
    if states != [LOW; STATES] || others.len() != 4 * escapes {
        return Err(DAMAGED);
    }
    // What was written backwards is read backwards.
    let (mut raw, mut others) = (Reader { bytes: raw, at: 0 }, others.as_chunks::<4>().0.iter());
    if escapes > 0 {
        for integer in integers.iter_mut().rev().filter(|integer| **integer == ESCAPE as i32 - REACH) {
            *integer = others.next().map(|other| i32::from_le_bytes(*other)).ok_or(DAMAGED)?;
        }
    }
    if table.grain == 0 {
        // The likelier side was written as the positive one.
        for (integer, &dither) in integers.iter_mut().zip(dithers) {
            *integer = if dither.is_negative() { integer.wrapping_neg() } else { *integer };
        }
    } else {
        for integer in integers.iter_mut().rev() {
            let lowest = (i64::from(*integer) << table.grain) - (1 << (table.grain - 1));
            *integer = i32::try_from(lowest + i64::from(raw.take(table.grain))).map_err(|_| DAMAGED)?;
        }
    }
    Ok(())
}

/// Bits one after the other, the lowest of a byte first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    pending: u64,
    count: u32,
}

impl Bits {
    fn push(&mut self, bits: u32, count: u32) {
        self.pending |= u64::from(bits) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.pending as u8);
            self.pending >>= 8;
            self.count -= 8;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push(self.pending as u8);
        }
        self.bytes
    }
}

/// Reads what [`Bits`] wrote; past the end, zeros.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: u32) -> u32 {
        let bit = |at: usize| u32::from(self.bytes.get(at / 8).copied().unwrap_or(0) >> (at % 8) & 1);
        let bits = (0..count).fold(0, |bits, k| bits | bit(self.at + k as usize) << k);
        self.at += count as usize;
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::quantise;
    use crate::{CommonRandomness, Purpose, Seed, Words};

    fn words(row: u32) -> Words {
        CommonRandomness::new(&Seed::reproducible(12)).words(Purpose::Dither, 0, row)
    }

    fn dithers(count: usize) -> Vec<Dither> {
        let mut dithers = vec![Dither::NONE; count];
        Dither::fill(&mut words(0), &mut dithers);
        dithers
    }

    /// Twelve uniforms, four from each word, make a Gaussian that is good enough here.
    fn integers(dithers: &[Dither], spread: f64) -> Vec<i32> {
        let mut values = words(1);
        let mut four = || {
            let word = values.next_u64();
            (0..4).map(|k| (word >> (16 * k) & 0xffff) as f64).sum::<f64>() / 65_536.0
        };
        let mut gaussian = || four() + four() + four() - 6.0;
        dithers.iter().map(|&dither| quantise(gaussian() * spread, 1.0, dither)).collect()
    }

    #[test]
    fn integers_come_back_at_their_entropy() {
        let dithers = dithers(10_000);
        // Entropies given the dither by numerical integration, as for the coder of one sender; log2(spread sqrt(2 pi e)) for large ones.
        for (spread, entropy) in [(0.27, 0.70), (0.645, 1.53), (3.0, 3.64), (20.0, 6.37), (300.0, 10.28)] {
            let integers = integers(&dithers, spread);
            let mut message = Vec::new();
            encode_many(&integers, &dithers, &mut message);
            let mut again = vec![0; integers.len()];
            decode_many(&message, &dithers, &mut again).unwrap();
            assert_eq!(integers, again);
            let bits = message.len() as f64 * 8.0 / 1e4;
            assert!((0.97..1.05).contains(&(bits / entropy)), "{bits} bits where the entropy is {entropy}");
        }
    }

    #[test]
    fn any_integers_come_back() {
        for count in [0, 1, 2, 3, 100] {
            let dithers = dithers(count);
            for integers in [vec![0; count], vec![i32::MAX; count], vec![i32::MIN; count], integers(&dithers, 1e8)] {
                let mut message = Vec::new();
                encode_many(&integers, &dithers, &mut message);
                let mut again = vec![7; count];
                decode_many(&message, &dithers, &mut again).unwrap();
                assert_eq!(integers, again);
            }
        }
    }

    #[test]
    fn hostile_bytes_give_an_error_or_integers_but_never_a_panic() {
        let (dithers, mut noise) = (dithers(30), words(2));
        let mut sound = Vec::new();
        encode_many(&integers(&dithers, 2.0), &dithers, &mut sound);
        let mut integers = vec![0; 30];
        for length in 0..80 {
            for _ in 0..30 {
                let bytes: Vec<u8> = (0..length).map(|_| noise.next_u64() as u8).collect();
                assert!(decode_many(&bytes, &dithers, &mut integers).is_err());
            }
        }
        for at in 0..sound.len() {
            let mut bent = sound.clone();
            bent[at] ^= 1 << (at % 8);
            let _ = decode_many(&bent, &dithers, &mut integers);
            assert!(decode_many(&sound[..at], &dithers, &mut integers).is_err());
        }
    }
}
