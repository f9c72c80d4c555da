//! Scalars as dithered integers, coded given their dithers.
//!
//! A scalar p becomes z = round(p/D + u) with a dither u, uniform in (-1/2, 1/2), that sender and receiver share; (z - u) D is unbiased
//! with error uniform in (-D/2, D/2), independent of p (Schuchman 1964). Because the receiver knows u, only z *given* u has to be sent:
//! for small p/D that is far less than the entropy of z (Ziv 1985; Zamir and Feder 1992). The coder models p/D as centred with a spread
//! that both ends follow from the integers so far, and computes in integers only, so that no two machines can differ.

use super::range::{Decoder, Encoder};
use crate::Words;

/// A dither in units of 2^-32, an odd multiple of half of one: 2 u + 1 for the stored integer u.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dither(i32);

/// A message that no encoder wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not fit the code of dithered integers")]
pub struct CodeError(pub(super) &'static str);

impl Dither {
    /// Fills `out` with the dithers of an address, two a word.
    pub fn fill(words: &mut Words, out: &mut [Dither]) {
        for pair in out.chunks_mut(2) {
            let word = words.next_u64();
            pair[0] = Self(word as u32 as i32);
            if let Some(second) = pair.get_mut(1) {
                *second = Self((word >> 32) as u32 as i32);
            }
        }
    }

    /// No dither, for integers that were not dithered.
    pub const NONE: Dither = Dither(0);

    /// The dither of this size, in units of 2^-32, that is not negative.
    pub(super) fn of_size(size: u32) -> Self {
        Self(size as i32)
    }

    /// Its size, in units of 2^-32.
    pub(super) fn size(self) -> u32 {
        self.0.unsigned_abs()
    }

    pub(super) fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Its value in (-1/2, 1/2).
    #[inline]
    pub fn value(self) -> f64 {
        (f64::from(self.0) + 0.5) * (1.0 / 4_294_967_296.0)
    }
}

/// The dithered integer of a scalar. Scalars beyond what 31 bits hold saturate, which costs accuracy only where the scale was off by a
/// billion.
#[inline]
pub fn quantise(scalar: f64, step: f64, dither: Dither) -> i32 {
    // The cast cuts off towards zero, and ties have no weight.
    let place = scalar / step + dither.value();
    (place + 0.5f64.copysign(place)).clamp(-MOST, MOST) as i32
}

/// The scalar of a dithered integer.
#[inline]
pub fn dequantise(integer: i32, step: f64, dither: Dither) -> f64 {
    (f64::from(integer) - dither.value()) * step
}

const MOST: f64 = 1_073_741_823.0;
/// Magnitudes from here on are written in an Exp-Golomb code.
const ESCAPE: i32 = 18;
/// How many integers the spread remembers.
const MEMORY: u64 = 96;

/// The model of one sender's integers; the receiver keeps a twin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntegerCoder {
    /// Running mean of (z - u)^2, in units of 2^-32.
    energy: u64,
    /// Integers seen, up to `MEMORY`.
    seen: u64,
}

impl Default for IntegerCoder {
    fn default() -> Self {
        Self::new()
    }
}

impl IntegerCoder {
    /// A model that has seen nothing.
    pub fn new() -> Self {
        Self { energy: 1 << 32, seen: 0 }
    }

    /// A model for integers without dither whose mean square is about 2^`log_energy`: for an aggregator that keeps no state.
    pub fn stateless(log_energy: u8) -> Self {
        Self { energy: 1 << (32 + u32::from(log_energy.min(24))), seen: MEMORY / 4 }
    }

    /// Its state, for a snapshot.
    pub fn state(&self) -> [u64; 2] {
        [self.energy, self.seen]
    }

    /// From its state.
    pub fn from_state([energy, seen]: [u64; 2]) -> Self {
        Self { energy: energy.min(1 << 62), seen: seen.min(MEMORY) }
    }

    /// Appends the code of `integers` to `message`.
    ///
    /// # Panics
    /// If there are not as many dithers as integers.
    pub fn encode(&mut self, integers: &[i32], dithers: &[Dither], message: &mut Vec<u8>) {
        assert_eq!(integers.len(), dithers.len(), "every integer has its dither");
        let mut encoder = Encoder::new(message);
        for (&integer, &dither) in integers.iter().zip(dithers) {
            encode_one(&mut encoder, &self.odds(dither), integer);
            self.learn(integer, dither);
        }
        encoder.finish();
    }

    /// Reads as many integers as there are dithers from the whole of `message`.
    ///
    /// # Panics
    /// If there are not as many dithers as integers.
    pub fn decode(&mut self, message: &[u8], dithers: &[Dither], integers: &mut [i32]) -> Result<(), CodeError> {
        assert_eq!(integers.len(), dithers.len(), "every integer has its dither");
        let mut decoder = Decoder::new(message);
        for (integer, &dither) in integers.iter_mut().zip(dithers) {
            *integer = decode_one(&mut decoder, &self.odds(dither))?;
            self.learn(*integer, dither);
        }
        if decoder.is_exhausted() { Ok(()) } else { Err(CodeError("what follows the last integer")) }
    }

    fn learn(&mut self, integer: i32, dither: Dither) {
        let decoded = (i64::from(integer) << 16) - i64::from(dither.0 >> 16);
        let square = (decoded.unsigned_abs().min(1 << 31)).pow(2);
        self.seen = (self.seen + 1).min(MEMORY);
        // A division by the count: the first integers set the scale at once.
        let weight = self.seen + 1;
        self.energy = (self.energy / weight).saturating_mul(weight - 1).saturating_add(square / weight);
    }

    fn odds(&self, dither: Dither) -> Odds {
        // The error of the quantiser adds 1/12 to the mean square; the rest is the spread of p/D.
        let variance = self.energy.saturating_sub((1 << 32) / 12).max(LEAST_VARIANCE);
        Odds::new(variance.isqrt() as i64, dither)
    }
}

/// Writes dithered integers whose spreads both ends know by other means, in one stream.
pub struct SpreadEncoder<'a>(Encoder<'a>);

impl<'a> SpreadEncoder<'a> {
    /// Appends to `message`.
    pub fn new(message: &'a mut Vec<u8>) -> Self {
        Self(Encoder::new(message))
    }

    /// Writes an integer whose scalar, in units of the step, is centred with this spread.
    pub fn push(&mut self, integer: i32, dither: Dither, spread: f64) {
        encode_one(&mut self.0, &Odds::new(fixed(spread), dither), integer);
    }

    /// Ends the stream.
    pub fn finish(self) {
        self.0.finish();
    }
}

/// Reads what a [`SpreadEncoder`] wrote.
pub struct SpreadDecoder<'a>(Decoder<'a>);

impl<'a> SpreadDecoder<'a> {
    /// From the whole of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Self(Decoder::new(message))
    }

    /// The next integer.
    pub fn next(&mut self, dither: Dither, spread: f64) -> Result<i32, CodeError> {
        decode_one(&mut self.0, &Odds::new(fixed(spread), dither))
    }

    /// Refuses bytes that are left over.
    pub fn finish(self) -> Result<(), CodeError> {
        if self.0.is_exhausted() { Ok(()) } else { Err(CodeError("what follows the last integer")) }
    }
}

/// A spread in units of 2^-16, within what the odds can tell apart.
fn fixed(spread: f64) -> i64 {
    (spread * 65_536.0).clamp(1024.0, (1u64 << 46) as f64) as i64
}

/// Spreads from here on are coded at a coarser grain, which the model can tell apart; what is left of an integer is as likely as not.
const COARSE: i64 = 5 << 16;

fn encode_one(encoder: &mut Encoder<'_>, odds: &Odds, integer: i32) {
    if let Some((grain, odds)) = odds.coarser() {
        let (quotient, rest) = divide(integer, grain);
        encode_small(encoder, &odds, quotient);
        encoder.raw(rest, grain);
    } else {
        encode_small(encoder, odds, integer);
    }
}

fn decode_one(decoder: &mut Decoder<'_>, odds: &Odds) -> Result<i32, CodeError> {
    let Some((grain, odds)) = odds.coarser() else { return decode_small(decoder, odds) };
    let quotient = i64::from(decode_small(decoder, &odds)?);
    let integer = (quotient << grain) - (1 << (grain - 1)) + i64::from(decoder.raw(grain));
    i32::try_from(integer).map_err(|_| TOO_LONG)
}

/// The nearest multiple of 2^`grain`, in units of it, and how far the integer lies above the lowest one that it is nearest to.
pub(super) fn divide(integer: i32, grain: u32) -> (i32, u32) {
    let raised = i64::from(integer) + (1 << (grain - 1));
    ((raised >> grain) as i32, (raised & ((1 << grain) - 1)) as u32)
}

fn encode_small(encoder: &mut Encoder<'_>, odds: &Odds, integer: i32) {
    // The likelier side is written as the positive one, so that a model serves both.
    let integer = if odds.mirrored { -integer } else { integer };
    encoder.decide(integer == 0, odds.zero());
    if integer != 0 {
        encoder.decide(integer > 0, odds.positive());
        encode_magnitude(encoder, odds, integer);
    }
}

fn decode_small(decoder: &mut Decoder<'_>, odds: &Odds) -> Result<i32, CodeError> {
    if decoder.decide(odds.zero()) {
        return Ok(0);
    }
    let positive = decoder.decide(odds.positive());
    let magnitude = decode_magnitude(decoder, odds, positive)?;
    Ok(if positive ^ odds.mirrored { magnitude } else { -magnitude })
}

const TOO_LONG: CodeError = CodeError("an integer of more than 31 bits");

/// Spread 1/64: below it the odds no longer change.
const LEAST_VARIANCE: u64 = 1 << 20;

/// How likely each integer is, given the spread and a dither that is not negative.
pub(super) struct Odds {
    /// In units of 2^-16.
    spread: i64,
    /// In units of 2^-32.
    dither: i64,
    mirrored: bool,
}

impl Odds {
    pub(super) fn new(spread: i64, dither: Dither) -> Self {
        Self { spread, dither: i64::from(dither.0).abs(), mirrored: dither.0 < 0 }
    }

    /// Where the spread is large, the power of two by which an integer is divided before its quotient is coded, and the quotient's odds.
    fn coarser(&self) -> Option<(u32, Odds)> {
        let grain = (self.spread / COARSE + 1).ilog2();
        // At such spreads a dither of half an integer tells nothing.
        (grain > 0).then(|| (grain, Odds { spread: self.spread >> grain, dither: 0, mirrored: false }))
    }

    /// P(z <= k), in units of 2^-30.
    pub(super) fn below(&self, k: i32) -> i64 {
        // z <= k means p/D < k + 1/2 - u.
        let threshold = (i64::from(k) << 32) + (1 << 31) - self.dither;
        let position = threshold.abs() / self.spread * CELLS_A_SPREAD;
        let cell = (position >> 16) as usize;
        let tail = if cell >= TAIL.len() - 1 {
            0
        } else {
            let (here, next) = (i64::from(TAIL[cell]), i64::from(TAIL[cell + 1]));
            here + (((next - here) * (position & 0xffff)) >> 16)
        };
        if threshold < 0 { tail } else { (1 << 30) - tail }
    }

    fn zero(&self) -> u16 {
        share(self.below(0) - self.below(-1), 1 << 30)
    }

    /// P(z > 0 | z != 0).
    fn positive(&self) -> u16 {
        let (above, below) = ((1 << 30) - self.below(0), self.below(-1));
        share(above, above + below)
    }

    /// P(|z| = k | |z| >= k, sign).
    fn stop(&self, k: i32, positive: bool) -> u16 {
        let beyond = |k: i32| if positive { (1 << 30) - self.below(k - 1) } else { self.below(-k) };
        let (from, after) = (beyond(k), beyond(k + 1));
        share(from - after, from)
    }
}

/// A ratio as a probability, kept away from 0 and 1 so that a surprise costs at most twelve bits.
fn share(part: i64, whole: i64) -> u16 {
    const LEAST: i64 = 16;
    (((part << 16) + (whole >> 1)) / whole.max(1)).clamp(LEAST, (1 << 16) - LEAST) as u16
}

fn encode_magnitude(encoder: &mut Encoder<'_>, odds: &Odds, integer: i32) {
    let magnitude = integer.abs();
    for k in 1..ESCAPE {
        encoder.decide(magnitude == k, odds.stop(k, integer > 0));
        if magnitude == k {
            return;
        }
    }
    let rest = (magnitude - ESCAPE) as u32 + 1;
    let bits = 31 - rest.leading_zeros();
    for i in 0..bits {
        encoder.decide(false, 1 << 14);
        debug_assert!(i < 31);
    }
    encoder.decide(true, 1 << 14);
    encoder.raw(rest, bits);
}

fn decode_magnitude(decoder: &mut Decoder<'_>, odds: &Odds, positive: bool) -> Result<i32, CodeError> {
    for k in 1..ESCAPE {
        if decoder.decide(odds.stop(k, positive)) {
            return Ok(k);
        }
    }
    let mut bits = 0;
    while !decoder.decide(1 << 14) {
        bits += 1;
        if bits > 30 {
            return Err(TOO_LONG);
        }
    }
    let rest = 1u32 << bits | decoder.raw(bits);
    i32::try_from(rest - 1).ok().and_then(|rest| rest.checked_add(ESCAPE)).ok_or(TOO_LONG)
}

const CELLS_A_SPREAD: i64 = 32;

/// The upper tail of the model's distribution at multiples of 1/32 of the spread, in units of 2^-30: nine parts of a Gaussian and one of
/// a Gaussian twice as wide, scaled to variance one, so that a spread that lags behind is forgiven.
static TAIL: [u32; 257] = tail_table();

const fn tail_table() -> [u32; 257] {
    let mut table = [0; 257];
    let mut i = 0;
    // Variance 0.9 + 0.1 * 4 = 1.3 before scaling; its root.
    let scale = 1.140_175_425_099_138;
    while i < table.len() {
        let t = i as f64 / CELLS_A_SPREAD as f64 * scale;
        let tail = 0.9 * gaussian_tail(t) + 0.1 * gaussian_tail(t / 2.0);
        table[i] = (tail * (1u64 << 30) as f64 + 0.5) as u32;
        i += 1;
    }
    table
}

/// P(Gaussian > t) for t >= 0: one half less the power series of the integral of the density.
const fn gaussian_tail(t: f64) -> f64 {
    // sum over k of (-1)^k t^(2k+1) / (2^k k! (2k+1)); stable enough below 5 for a table of 30 bits, and nothing is left beyond.
    if t >= 5.6 {
        return 0.0;
    }
    let (mut term, mut sum, mut k) = (t, t, 1);
    while k < 120 {
        term *= -t * t / (2.0 * k as f64);
        sum += term / (2.0 * k as f64 + 1.0);
        k += 1;
    }
    let tail = 0.5 - sum * 0.398_942_280_401_432_7;
    if tail > 0.0 { tail } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommonRandomness, Purpose, Seed};

    fn words(row: u32) -> Words {
        CommonRandomness::new(&Seed::reproducible(11)).words(Purpose::Dither, 0, row)
    }

    fn dithers(row: u32, count: usize) -> Vec<Dither> {
        let mut dithers = vec![Dither::NONE; count];
        Dither::fill(&mut words(row), &mut dithers);
        dithers
    }

    /// Twelve uniforms make a Gaussian that is good enough here.
    fn gaussian(words: &mut Words) -> f64 {
        (0..12).map(|_| words.next_unit()).sum::<f64>() - 6.0
    }

    #[test]
    fn the_tail_of_the_table_is_that_of_a_gaussian() {
        for (t, tail) in
            [(0.0, 0.5), (1.0, 0.158_655_253_931_457), (3.0, 0.001_349_898_031_630), (5.0, 2.866_515_719e-7)]
        {
            assert!((gaussian_tail(t) - tail).abs() < 1e-12, "{t}");
        }
        assert!(TAIL.windows(2).all(|pair| pair[0] >= pair[1]));
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding_over_many_messages() {
        for (case, spread) in [0.0, 0.1, 0.5, 3.0, 40.0, 1e5, 1e12].into_iter().enumerate() {
            let (mut sender, mut receiver) = (IntegerCoder::new(), IntegerCoder::new());
            let mut values = words(100 + case as u32);
            for message in 0..40 {
                let dithers = dithers(message, (message as usize * 5) % 61);
                let integers: Vec<i32> =
                    dithers.iter().map(|&dither| quantise(gaussian(&mut values) * spread, 1.0, dither)).collect();
                let mut bytes = Vec::new();
                sender.encode(&integers, &dithers, &mut bytes);
                let mut again = vec![0; integers.len()];
                receiver.decode(&bytes, &dithers, &mut again).unwrap();
                assert_eq!(integers, again);
                assert_eq!(sender, receiver);
            }
        }
    }

    #[test]
    fn a_stream_with_known_spreads_comes_back_and_costs_its_entropy() {
        let dithers = dithers(3, 4000);
        let spreads: Vec<f64> = (0..4000).map(|i| [0.01, 0.27, 0.645, 4.0][i % 4]).collect();
        let mut values = words(5);
        let integers: Vec<i32> =
            dithers.iter().zip(&spreads).map(|(&u, spread)| quantise(gaussian(&mut values) * spread, 1.0, u)).collect();
        let mut bytes = Vec::new();
        let mut encoder = SpreadEncoder::new(&mut bytes);
        integers.iter().zip(dithers.iter().zip(&spreads)).for_each(|(&z, (&u, &spread))| encoder.push(z, u, spread));
        encoder.finish();
        let mut decoder = SpreadDecoder::new(&bytes);
        for (z, (&u, &spread)) in integers.iter().zip(dithers.iter().zip(&spreads)) {
            assert_eq!(decoder.next(u, spread).unwrap(), *z);
        }
        decoder.finish().unwrap();
        // Entropies given the dither: about 0.04, 0.70, 1.53 and log2(4 sqrt(2 pi e)) = 4.05 bits, 6.32 in all. A thousand of each: they
        // scatter by 0.05.
        let bits = bytes.len() as f64 * 8.0 / 1000.0;
        assert!((6.2..6.5).contains(&bits), "{bits}");
    }

    #[test]
    fn a_message_costs_little_more_than_the_entropy_given_the_dither() {
        // h(X + U) for X ~ N(0, 0.27^2) is 0.70 bits, for 0.645 it is 1.53, by numerical integration; 60 messages of 1000 scalars.
        // For spreads well above 1 it is log2(spread sqrt(2 pi e)).
        for (spread, entropy) in [(0.27, 0.70), (0.645, 1.53), (6.0, 4.63), (50.0, 7.69), (500.0, 11.01), (3e4, 16.92)]
        {
            let mut coder = IntegerCoder::new();
            let (mut values, mut bytes) = (words(77), Vec::new());
            for message in 0..60 {
                let dithers = dithers(message, 1000);
                let integers: Vec<i32> =
                    dithers.iter().map(|&dither| quantise(gaussian(&mut values) * spread, 1.0, dither)).collect();
                coder.encode(&integers, &dithers, &mut bytes);
            }
            let bits = bytes.len() as f64 * 8.0 / 60_000.0;
            assert!(bits < entropy * 1.05, "{bits} bits per scalar for a spread of {spread}");
            assert!(bits > entropy * 0.97, "{bits} bits per scalar for a spread of {spread} is too good to be true");
        }
    }

    #[test]
    fn a_dithered_scalar_is_unbiased_with_the_stated_variance() {
        let dithers = dithers(5, 200_000);
        for scalar in [0.0, 0.3, -7.77] {
            let errors: Vec<f64> =
                dithers.iter().map(|&u| dequantise(quantise(scalar, 0.5, u), 0.5, u) - scalar).collect();
            let mean = errors.iter().sum::<f64>() / 2e5;
            let variance = errors.iter().map(|error| error * error).sum::<f64>() / 2e5;
            // D^2/12 = 1/48; the mean's deviation is 3.2e-4, the variance's relative one 0.2 %.
            assert!(mean.abs() < 1.3e-3);
            assert!((variance * 48.0 - 1.0).abs() < 8e-3);
        }
    }

    #[test]
    fn hostile_bytes_give_an_error_or_integers_but_never_a_panic() {
        let dithers = dithers(1, 30);
        let mut noise = words(9);
        let mut integers = vec![0; 30];
        let mut errors = 0;
        for length in 0..60 {
            for _ in 0..500 {
                let bytes: Vec<u8> = (0..length).map(|_| noise.next_u64() as u8 | 0x80).collect();
                errors += usize::from(IntegerCoder::new().decode(&bytes, &dithers, &mut integers).is_err());
            }
        }
        // Long messages cannot be canonical codes of thirty integers.
        assert!(errors > 10_000, "{errors}");
        assert!(IntegerCoder::new().decode(&[0], &dithers, &mut integers).is_err());
    }
}
