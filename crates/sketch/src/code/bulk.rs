//! Many dithered integers at once, a few nanoseconds each: one spread for all of them, and the code of asymmetric numeral systems.
//!
//! The model is that of [`IntegerCoder`](super::IntegerCoder), tabulated once for each message at [`LEVELS`] sizes of the dither, with
//! integers of at most [`REACH`] in size as symbols. Larger ones are rare and follow at the end. Where the spread is large, an integer is
//! divided by a power of two first, and what is left of it follows as raw bits. All of it is integer arithmetic: no two machines differ.
//!
//! The streams are ranged asymmetric numeral systems (Duda 2009; Giesen 2014): a state x of 32 bits takes a symbol of frequency f and
//! cumulative frequency c as x/f 2^14 + x mod f + c, and gives bytes away before it would overflow. Two states take turns, so that one
//! does not wait for the other.

use super::integer::{CodeError, Dither, Odds, divide};

/// Frequencies add up to two to this power.
const PRECISION: u32 = 14;
/// States lie between this and 256 times this.
const LOW: u32 = 1 << 23;
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

/// The frequencies of the symbols at one size of the dither, cumulated; the first is 0 and the end is not in it.
type Row = [u16; SYMBOLS];

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
            let mut row = [0; SYMBOLS];
            let room = (1 << PRECISION) - SYMBOLS as i64;
            let mut end = 0;
            for (symbol, start) in row.iter_mut().enumerate() {
                *start = end as u16;
                let k = symbol as i32 - REACH;
                end += 1 + if symbol == ESCAPE { 0 } else { ((odds.below(k) - odds.below(k - 1)) * room) >> 30 };
            }
            row
        });
        Self { rows, grain }
    }

    fn row(&self, dither: Dither) -> &Row {
        &self.rows[((dither.size() >> 26) as usize).min(LEVELS - 1)]
    }

    /// Whether the integer is written with the other sign: the likelier side is the positive one.
    fn mirrors(&self, dither: Dither) -> bool {
        self.grain == 0 && dither.is_negative()
    }
}

/// Where a symbol's frequencies begin, and how many there are.
fn range(row: &Row, symbol: usize) -> (u32, u32) {
    let start = u32::from(row[symbol]);
    let end = row.get(symbol + 1).map_or(1 << PRECISION, |&next| u32::from(next));
    (start, end - start)
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
    let squares = integers.iter().zip(dithers).map(|(&z, u)| (f64::from(z) - u.value()).powi(2)).sum::<f64>();
    // The error of the quantiser adds 1/12. Only the sender computes this, in floats.
    let spread = (squares / integers.len().max(1) as f64 - 1.0 / 12.0).max(FINEST * FINEST).sqrt();
    ((spread / FINEST).log2() * 16.0).round().clamp(0.0, 255.0) as u8
}

/// Appends the code of `integers` to `message`. It costs what the entropy given the dithers is, some ten bytes, and one percent.
///
/// # Panics
/// If there are not as many dithers as integers.
pub fn encode_many(integers: &[i32], dithers: &[Dither], message: &mut Vec<u8>) {
    assert_eq!(integers.len(), dithers.len(), "every integer has its dither");
    let byte = spread_byte(integers, dithers);
    let table = Table::new(byte);
    let (mut states, mut stream, mut raw, mut others) = ([LOW; 2], Vec::new(), Bits::default(), Vec::new());
    // Backwards, because states give symbols back in the opposite order.
    for (i, (&integer, &dither)) in integers.iter().zip(dithers).enumerate().rev() {
        let (quotient, rest) = if table.grain == 0 { (integer, 0) } else { divide(integer, table.grain) };
        raw.push(rest, table.grain);
        let quotient = if table.mirrors(dither) { quotient.wrapping_neg() } else { quotient };
        let symbol = if quotient.unsigned_abs() <= REACH as u32 { (quotient + REACH) as usize } else { ESCAPE };
        if symbol == ESCAPE {
            others.push(quotient);
        }
        let (start, count) = range(table.row(dither), symbol);
        let state = &mut states[i % 2];
        while *state >= (LOW >> PRECISION << 8) * count {
            stream.push(*state as u8);
            *state >>= 8;
        }
        *state = ((*state / count) << PRECISION) + *state % count + start;
    }
    message.push(byte);
    states.iter().for_each(|state| message.extend_from_slice(&state.to_le_bytes()));
    message.extend(stream.iter().rev());
    message.extend(raw.finish());
    message.extend(others.iter().flat_map(|other| other.to_le_bytes()));
}

/// Reads as many integers as there are dithers from the whole of `message`.
///
/// # Panics
/// If there are not as many dithers as integers.
pub fn decode_many(message: &[u8], dithers: &[Dither], integers: &mut [i32]) -> Result<(), CodeError> {
    assert_eq!(integers.len(), dithers.len(), "every integer has its dither");
    let (&byte, rest) = message.split_first().ok_or(DAMAGED)?;
    let table = Table::new(byte);
    let (head, stream) = rest.split_first_chunk::<8>().ok_or(DAMAGED)?;
    let [first, second] = [0, 4].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let (mut states, mut position, mut escapes) = ([first, second], 0, 0);
    for (i, (integer, &dither)) in integers.iter_mut().zip(dithers).enumerate() {
        let (row, state) = (table.row(dither), &mut states[i % 2]);
        let slot = *state & ((1 << PRECISION) - 1);
        let symbol = row.iter().map(|&start| u16::from(u32::from(start) <= slot)).sum::<u16>() as usize - 1;
        let (start, count) = range(row, symbol);
        *state = count * (*state >> PRECISION) + slot - start;
        while *state < LOW {
            *state = *state << 8 | u32::from(*stream.get(position).ok_or(DAMAGED)?);
            position += 1;
        }
        escapes += usize::from(symbol == ESCAPE);
        *integer = if symbol == ESCAPE { i32::MAX } else { symbol as i32 - REACH };
    }
    if states != [LOW; 2] {
        return Err(DAMAGED);
    }
    let raw_bytes = (integers.len() * table.grain as usize).div_ceil(8);
    let (raw, others) = stream[position..].split_at_checked(raw_bytes).ok_or(DAMAGED)?;
    if others.len() != 4 * escapes {
        return Err(DAMAGED);
    }
    // What was written backwards is read backwards.
    let (mut raw, mut others) = (Reader { bytes: raw, at: 0 }, others.as_chunks::<4>().0.iter());
    for (integer, &dither) in integers.iter_mut().zip(dithers).rev() {
        if *integer == i32::MAX {
            *integer = others.next().map(|other| i32::from_le_bytes(*other)).ok_or(DAMAGED)?;
        }
        if table.mirrors(dither) {
            *integer = integer.wrapping_neg();
        }
        if table.grain > 0 {
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
