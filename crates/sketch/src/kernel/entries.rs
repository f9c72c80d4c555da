//! The entries of a direction: Gaussian numbers or signs, a chunk of a tile for up to four rows at a time.

use std::f64::consts::LN_2;

use super::chacha::{Stream, blocks, blocks_at};
use super::dense::{CHUNK, TILE};
use super::{Operation, Simd};
use crate::Real;

/// Coordinates that one step of every generator makes; rows of a chunk are padded to it.
pub(super) const GROUP: usize = 64;

/// How the entries of a direction follow from its address.
pub(crate) trait Entries: Copy + Send + Sync {
    /// What is kept of four rows between the chunks of a tile.
    type State: Copy;

    /// `live` rows, at most four, from `first` on, at the start of a tile.
    fn start<S: Simd>(self, simd: S, stream: &Stream, first: u32, live: usize, tile: usize) -> Self::State;

    /// The next entries of each row: as many as fit in `out[row]`, a multiple of 64, the same for all.
    fn fill<S: Simd>(self, simd: S, state: &mut Self::State, out: &mut [&mut [f32]]);

    /// Rows that [`dot`](Self::dot) and [`add`](Self::add) take at a time, or 0 where the entries had better go through a buffer.
    fn at_once<S: Simd>(self) -> usize;

    /// Adds to each sum the inner product of a row with the next chunk of a vector, the entries never leaving the registers.
    fn dot<S: Simd, T: Real>(self, simd: S, state: &mut Self::State, vector: &[T], sums: &mut [T]);

    /// Adds to the next chunk of a total, a multiple of 64 long, each scalar times its row.
    fn add<S: Simd, T: Real>(self, simd: S, state: &mut Self::State, scalars: &[T], total: &mut [T]);
}

/// Sixteen numbers of a chunk from 16 `k` on, with zeros after its end.
#[inline(always)]
fn lanes_at<S: Simd, T: Real>(simd: S, chunk: &[T], k: usize) -> T::Lanes<S> {
    let (whole, tail) = chunk.as_chunks::<16>();
    match whole.get(k) {
        Some(lanes) => T::load(simd, lanes),
        None if k == whole.len() => {
            let mut padded = [T::default(); 16];
            padded[..tail.len()].copy_from_slice(tail);
            T::load(simd, &padded)
        }
        None => T::splat(simd, T::default()),
    }
}

/// Random signs: entry c is -1 where bit 31 - (c mod 512) / 16 of word c mod 16 of block c / 512 is set.
#[derive(Clone, Copy)]
pub(crate) struct Signs;

#[derive(Clone, Copy)]
pub(crate) struct SignState {
    stream: Stream,
    first: u32,
    block: u32,
}

impl Entries for Signs {
    type State = SignState;

    #[inline(always)]
    fn start<S: Simd>(self, _: S, stream: &Stream, first: u32, _: usize, tile: usize) -> SignState {
        SignState { stream: *stream, first, block: (tile * (TILE / 512)) as u32 }
    }

    #[inline(always)]
    fn fill<S: Simd>(self, simd: S, state: &mut SignState, out: &mut [&mut [f32]]) {
        let rows = std::array::from_fn(|row| state.first.wrapping_add(row as u32));
        let len = out[0].len();
        let one = simd.f_splat(1.0);
        for start in (0..len).step_by(512) {
            let words = blocks(simd, &state.stream, rows, [state.block; 4]);
            state.block = state.block.wrapping_add(1);
            let end = len.min(start + 512);
            for (row, words) in out.iter_mut().zip(&words) {
                let mut bits = simd.u_load(words);
                for lanes in row[start..end].as_chunks_mut::<16>().0 {
                    simd.f_store(simd.f_flip(one, bits), lanes);
                    bits = simd.u_shl::<1>(bits);
                }
            }
        }
    }

    #[inline(always)]
    fn at_once<S: Simd>(self) -> usize {
        SIGN_ROWS
    }

    #[inline(always)]
    fn dot<S: Simd, T: Real>(self, simd: S, state: &mut SignState, vector: &[T], sums: &mut [T]) {
        let words = state.words(simd, vector.len());
        let (wide, mut row) = (S::REGISTERS * 4 / size_of::<T>(), 0);
        while row < sums.len() {
            match sums.len() - row {
                8.. if wide >= 32 => {
                    dot_signs::<S, T, 8>(simd, &words, row, vector, sums);
                    row += 8;
                }
                4.. if wide >= 16 => {
                    dot_signs::<S, T, 4>(simd, &words, row, vector, sums);
                    row += 4;
                }
                2.. => {
                    dot_signs::<S, T, 2>(simd, &words, row, vector, sums);
                    row += 2;
                }
                _ => {
                    dot_signs::<S, T, 1>(simd, &words, row, vector, sums);
                    row += 1;
                }
            }
        }
    }

    #[inline(always)]
    fn add<S: Simd, T: Real>(self, simd: S, state: &mut SignState, scalars: &[T], total: &mut [T]) {
        let words = state.words(simd, total.len());
        let (wide, mut row) = (S::REGISTERS * 4 / size_of::<T>(), 0);
        while row < scalars.len() {
            match scalars.len() - row {
                8.. if wide >= 32 => {
                    add_signs::<S, T, 8>(simd, &words, row, scalars, total);
                    row += 8;
                }
                4.. => {
                    add_signs::<S, T, 4>(simd, &words, row, scalars, total);
                    row += 4;
                }
                2.. => {
                    add_signs::<S, T, 2>(simd, &words, row, scalars, total);
                    row += 2;
                }
                _ => {
                    add_signs::<S, T, 1>(simd, &words, row, scalars, total);
                    row += 1;
                }
            }
        }
    }
}

/// Rows of signs that are made together.
const SIGN_ROWS: usize = 8;

/// The signs of eight rows in a chunk: `[block][row]`.
type SignWords = [[[u32; 16]; SIGN_ROWS]; CHUNK / 512];

impl SignState {
    #[inline(always)]
    fn words<S: Simd>(&mut self, simd: S, len: usize) -> SignWords {
        let mut words = [[[0; 16]; SIGN_ROWS]; CHUNK / 512];
        let rows = |half: u32| std::array::from_fn(|row| self.first.wrapping_add(4 * half + row as u32));
        let (low, high, now, next) = (rows(0), rows(1), [self.block; 4], [self.block.wrapping_add(1); 4]);
        let out = words.as_flattened_mut();
        if S::REGISTERS >= 32 && len > 512 {
            blocks_at::<S, 4>(simd, &self.stream, &[low, high, low, high], &[now, now, next, next], out);
        } else {
            for (block, out) in out.chunks_exact_mut(SIGN_ROWS).enumerate().take(len.div_ceil(512)) {
                let counters = if block == 0 { now } else { next };
                blocks_at::<S, 2>(simd, &self.stream, &[low, high], &[counters, counters], out);
            }
        }
        self.block = self.block.wrapping_add(len.div_ceil(512) as u32);
        words
    }
}

/// The inner products of `R` rows of signs with a chunk: a sign is flipped in the vector's own lanes.
#[inline(always)]
fn dot_signs<S: Simd, T: Real, const R: usize>(simd: S, words: &SignWords, first: usize, chunk: &[T], sums: &mut [T]) {
    let mut sum = [T::splat(simd, T::default()); R];
    for (part, words) in chunk.chunks(512).zip(words) {
        let mut bits = [simd.u_splat(0); R];
        for r in 0..R {
            bits[r] = simd.u_load(&words[first + r]);
        }
        let (whole, tail) = part.as_chunks::<16>();
        for lanes in whole {
            let lanes = T::load(simd, lanes);
            for r in 0..R {
                sum[r] = T::lanes_add(simd, sum[r], T::flip(simd, lanes, bits[r]));
                bits[r] = simd.u_shl::<1>(bits[r]);
            }
        }
        if !tail.is_empty() {
            let lanes = lanes_at(simd, tail, 0);
            for r in 0..R {
                sum[r] = T::lanes_add(simd, sum[r], T::flip(simd, lanes, bits[r]));
            }
        }
    }
    for r in 0..R {
        sums[first + r] += T::lanes_sum(simd, sum[r]);
    }
}

/// Adds `R` scalars under the signs of their rows.
#[inline(always)]
fn add_signs<S: Simd, T: Real, const R: usize>(
    simd: S,
    words: &SignWords,
    first: usize,
    scalars: &[T],
    total: &mut [T],
) {
    let mut scalar = [T::splat(simd, T::default()); R];
    for r in 0..R {
        scalar[r] = T::splat(simd, scalars[first + r]);
    }
    for (part, words) in total.chunks_mut(512).zip(words) {
        let mut bits = [simd.u_splat(0); R];
        for r in 0..R {
            bits[r] = simd.u_load(&words[first + r]);
        }
        for lanes in part.as_chunks_mut::<16>().0 {
            let mut sum = T::load(simd, lanes);
            for r in 0..R {
                sum = T::lanes_add(simd, sum, T::flip(simd, scalar[r], bits[r]));
                bits[r] = simd.u_shl::<1>(bits[r]);
            }
            T::store(simd, sum, lanes);
        }
    }
}

/// Gaussian numbers from 32 random bits a pair: Box and Muller with a radius and an angle of 16 bits each, then two pairs are mixed,
/// (x1 + x2)/sqrt 2 and (x1 - x2)/sqrt 2, which makes the values dense and carries the tails past 5 sigma.
#[derive(Clone, Copy)]
pub(crate) struct Gauss16;

/// Gaussian numbers from 64 random bits a pair: Box and Muller with a radius of 30 bits and an angle of 32.
#[derive(Clone, Copy)]
pub(crate) struct Gauss32;

/// Sixteen generators xoshiro128++ for each of four rows: `[row][word of the state][lane]`.
type Generators = [[[u32; 16]; 4]; 4];

impl Entries for Gauss16 {
    type State = Generators;

    #[inline(always)]
    fn start<S: Simd>(self, simd: S, stream: &Stream, first: u32, live: usize, tile: usize) -> Generators {
        seed(simd, stream, first, live, tile)
    }

    #[inline(always)]
    fn fill<S: Simd>(self, simd: S, state: &mut Generators, out: &mut [&mut [f32]]) {
        for (row, generator) in out.iter_mut().zip(state) {
            lay_words::<S, 2>(simd, generator, row);
            for group in row.as_chunks_mut::<GROUP>().0 {
                let [first, second, third, fourth] = quarters(group);
                let (x1, y1) = pair16(simd, simd.f_to_bits(simd.f_load(first)));
                let (x2, y2) = pair16(simd, simd.f_to_bits(simd.f_load(second)));
                simd.f_store(simd.f_add(x1, x2), first);
                simd.f_store(simd.f_sub(x1, x2), second);
                simd.f_store(simd.f_add(y1, y2), third);
                simd.f_store(simd.f_sub(y1, y2), fourth);
            }
        }
    }

    #[inline(always)]
    fn at_once<S: Simd>(self) -> usize {
        if S::REGISTERS >= 16 { 4 } else { 0 }
    }

    #[inline(always)]
    fn dot<S: Simd, T: Real>(self, simd: S, state: &mut Generators, vector: &[T], sums: &mut [T]) {
        for (generator, sum) in state.iter_mut().zip(sums) {
            dot_row::<S, T, Self>(simd, generator, vector, sum);
        }
    }

    #[inline(always)]
    fn add<S: Simd, T: Real>(self, simd: S, state: &mut Generators, scalars: &[T], total: &mut [T]) {
        for (generator, &scalar) in state.iter_mut().zip(scalars) {
            add_row::<S, T, Self>(simd, generator, scalar, total);
        }
    }
}

impl Group for Gauss16 {
    #[inline(always)]
    fn next<S: Simd>(simd: S, generator: &mut [S::U; 4]) -> [S::F; 4] {
        let (x1, y1) = pair16(simd, next_word(simd, generator));
        let (x2, y2) = pair16(simd, next_word(simd, generator));
        [simd.f_add(x1, x2), simd.f_sub(x1, x2), simd.f_add(y1, y2), simd.f_sub(y1, y2)]
    }
}

impl Entries for Gauss32 {
    type State = Generators;

    #[inline(always)]
    fn start<S: Simd>(self, simd: S, stream: &Stream, first: u32, live: usize, tile: usize) -> Generators {
        seed(simd, stream, first, live, tile)
    }

    #[inline(always)]
    fn fill<S: Simd>(self, simd: S, state: &mut Generators, out: &mut [&mut [f32]]) {
        for (row, generator) in out.iter_mut().zip(state) {
            lay_words::<S, 4>(simd, generator, row);
            for group in row.as_chunks_mut::<GROUP>().0 {
                let [first, second, third, fourth] = quarters(group);
                for (x, y) in [(first, second), (third, fourth)] {
                    let words = (simd.f_to_bits(simd.f_load(x)), simd.f_to_bits(simd.f_load(y)));
                    let (cosine, sine) = pair32(simd, words.0, words.1);
                    simd.f_store(cosine, x);
                    simd.f_store(sine, y);
                }
            }
        }
    }

    #[inline(always)]
    fn at_once<S: Simd>(self) -> usize {
        if S::REGISTERS >= 16 { 4 } else { 0 }
    }

    #[inline(always)]
    fn dot<S: Simd, T: Real>(self, simd: S, state: &mut Generators, vector: &[T], sums: &mut [T]) {
        for (generator, sum) in state.iter_mut().zip(sums) {
            dot_row::<S, T, Self>(simd, generator, vector, sum);
        }
    }

    #[inline(always)]
    fn add<S: Simd, T: Real>(self, simd: S, state: &mut Generators, scalars: &[T], total: &mut [T]) {
        for (generator, &scalar) in state.iter_mut().zip(scalars) {
            add_row::<S, T, Self>(simd, generator, scalar, total);
        }
    }
}

impl Group for Gauss32 {
    #[inline(always)]
    fn next<S: Simd>(simd: S, generator: &mut [S::U; 4]) -> [S::F; 4] {
        let words = [next_word(simd, generator), next_word(simd, generator)];
        let (x1, y1) = pair32(simd, words[0], words[1]);
        let words = [next_word(simd, generator), next_word(simd, generator)];
        let (x2, y2) = pair32(simd, words[0], words[1]);
        [x1, y1, x2, y2]
    }
}

/// The next 64 entries of a row, in registers.
trait Group {
    fn next<S: Simd>(simd: S, generator: &mut [S::U; 4]) -> [S::F; 4];
}

/// The inner product of a row with a chunk.
#[inline(always)]
fn dot_row<S: Simd, T: Real, G: Group>(simd: S, generator: &mut [[u32; 16]; 4], chunk: &[T], sum: &mut T) {
    let mut state = [simd.u_splat(0); 4];
    for (state, words) in state.iter_mut().zip(&*generator) {
        *state = simd.u_load(words);
    }
    let mut lanes = T::splat(simd, T::default());
    let (whole, tail) = chunk.as_chunks::<GROUP>();
    for group in whole {
        let entries = G::next(simd, &mut state);
        for (entries, values) in entries.into_iter().zip(group.as_chunks::<16>().0) {
            lanes = T::fma(simd, T::widen(simd, entries), T::load(simd, values), lanes);
        }
    }
    if !tail.is_empty() {
        let entries = G::next(simd, &mut state);
        for (k, entries) in entries.into_iter().enumerate().take(tail.len().div_ceil(16)) {
            lanes = T::fma(simd, T::widen(simd, entries), lanes_at(simd, tail, k), lanes);
        }
    }
    *sum += T::lanes_sum(simd, lanes);
    for (state, words) in state.into_iter().zip(generator) {
        simd.u_store(state, words);
    }
}

/// Adds a scalar times a row.
#[inline(always)]
fn add_row<S: Simd, T: Real, G: Group>(simd: S, generator: &mut [[u32; 16]; 4], scalar: T, total: &mut [T]) {
    let mut state = [simd.u_splat(0); 4];
    for (state, words) in state.iter_mut().zip(&*generator) {
        *state = simd.u_load(words);
    }
    let scalar = T::splat(simd, scalar);
    for group in total.as_chunks_mut::<GROUP>().0 {
        let entries = G::next(simd, &mut state);
        for (entries, total) in entries.into_iter().zip(group.as_chunks_mut::<16>().0) {
            let sum = T::load(simd, total);
            T::store(simd, T::fma(simd, T::widen(simd, entries), scalar, sum), total);
        }
    }
    for (state, words) in state.into_iter().zip(generator) {
        simd.u_store(state, words);
    }
}

/// One step of sixteen generators.
#[inline(always)]
fn next_word<S: Simd>(simd: S, state: &mut [S::U; 4]) -> S::U {
    let [s0, s1, s2, s3] = *state;
    let word = simd.u_add(simd.u_rotl::<7, 25>(simd.u_add(s0, s3)), s0);
    let shifted = simd.u_shl::<9>(s1);
    let (mixed2, mixed3) = (simd.u_xor(s2, s0), simd.u_xor(s3, s1));
    *state =
        [simd.u_xor(s0, mixed3), simd.u_xor(s1, mixed2), simd.u_xor(mixed2, shifted), simd.u_rotl::<11, 21>(mixed3)];
    word
}

/// Four blocks of the key stream are the four words of the sixteen states. (All four being 0 in a lane has probability 2^-128.)
#[inline(always)]
fn seed<S: Simd>(simd: S, stream: &Stream, first: u32, live: usize, tile: usize) -> Generators {
    let counters = std::array::from_fn(|k| (4 * tile + k) as u32);
    let mut generators = [[[0; 16]; 4]; 4];
    for row in 0..live {
        generators[row] = blocks(simd, stream, [first.wrapping_add(row as u32); 4], counters);
    }
    generators
}

/// Lays the generator's words down where the entries will be, in the first `STEPS` quarters of each group. Apart from the arithmetic that
/// follows, so that neither needs more registers than there are.
#[inline(always)]
fn lay_words<S: Simd, const STEPS: usize>(simd: S, generator: &mut [[u32; 16]; 4], row: &mut [f32]) {
    let mut state = generator.map(|word| simd.u_load(&word));
    for group in row.as_chunks_mut::<GROUP>().0 {
        for lanes in &mut group.as_chunks_mut::<16>().0[..STEPS] {
            simd.f_store(simd.f_from_bits(next_word(simd, &mut state)), lanes);
        }
    }
    for (word, state) in generator.iter_mut().zip(state) {
        simd.u_store(state, word);
    }
}

#[inline(always)]
fn quarters(group: &mut [f32; GROUP]) -> [&mut [f32; 16]; 4] {
    let [first, second, third, fourth] = group.as_chunks_mut::<16>().0 else { unreachable!("64 is four times 16") };
    [first, second, third, fourth]
}

/// Minimax polynomials, lowest degree first: ln(1 + z)/z on [sqrt(1/2) - 1, sqrt 2 - 1], sin(pi y/2)/y and cos(pi y/2) in y^2 on [0, 1].
/// Errors of the short ones: 1.7e-6, 6e-7, 7e-6; of the long ones: below 6e-8, the rounding of an f32.
const LN_SHORT: [f32; 6] = [1.000_012, -0.499_855_82, 0.332_280_3, -0.254_643_44, 0.223_146_33, -0.143_374_01];
const LN_LONG: [f32; 8] =
    [0.999_999_8, -0.500_006_3, 0.333_361_15, -0.249_604_94, 0.198_744_31, -0.173_234_08, 0.164_099_43, -0.101_191_89];
const SIN_SHORT: [f32; 4] = [1.570_791_1, -0.645_893_7, 0.079_435_87, -0.004_333_902_6];
const SIN_LONG: [f32; 5] = [std::f32::consts::FRAC_PI_2, -0.645_963_4, 0.079_688_52, -0.004_672_277, 0.000_150_840_96];
const COS_SHORT: [f32; 4] = [0.999_993_3, -1.233_484_5, 0.252_580_23, -0.019_095_734];
const COS_LONG: [f32; 5] = [0.999_999_94, -1.233_698_2, 0.253_650_75, -0.020_810_628, 0.000_858_190_6];

/// The variance of each of two numbers that are then added: 1/2, raised by what 16 bits of radius lack (the mean of -ln u over
/// u = (k + 1/2)/N is 1 - ln 2/(2 N), by Stirling).
const HALF: f64 = 0.5 / (1.0 - LN_2 / 131_072.0);

const LN_16: [f32; 6] = scaled(LN_SHORT, -2.0 * HALF);
const LN_32: [f32; 8] = scaled(LN_LONG, -2.0);

const fn scaled<const N: usize>(mut coefficients: [f32; N], factor: f64) -> [f32; N] {
    let mut k = 0;
    while k < N {
        coefficients[k] = (factor * coefficients[k] as f64) as f32;
        k += 1;
    }
    coefficients
}

/// Bits 31..16 give the radius, bit 15 the sign, bits 14..0 the angle.
#[inline(always)]
fn pair16<S: Simd>(simd: S, word: S::U) -> (S::F, S::F) {
    let odd = simd.u_or(simd.u_shr::<15>(word), simd.u_splat(1));
    let radius = radius(simd, odd, 17, &LN_16, (-2.0 * HALF * LN_2) as f32);
    // The angle is signed; with its top bit flipped it counts from -1 on, and 3 plus it is a float whose mantissa begins with its bits.
    let mantissa = simd.u_and(simd.u_shl::<8>(word), simd.u_splat(0x7f_ff00));
    let above_2 = simd.f_from_bits(simd.u_xor(mantissa, simd.u_splat(2f32.to_bits() | 1 << 22 | 1 << 7)));
    let angle = simd.f_sub(above_2, simd.f_splat(3.0));
    turn(simd, radius, angle, simd.u_shl::<16>(word), &SIN_SHORT, &COS_SHORT)
}

/// Bits 31..2 of the first word give the radius; bit 31 of the second the sign, bits 30..0 the angle.
#[inline(always)]
fn pair32<S: Simd>(simd: S, first: S::U, second: S::U) -> (S::F, S::F) {
    let odd = simd.u_or(simd.u_shr::<1>(first), simd.u_splat(1));
    let angle = simd.u_or(simd.u_shl::<1>(second), simd.u_splat(1));
    let angle = simd.f_mul(simd.f_from_i32(angle), simd.f_splat(1.0 / (1u32 << 31) as f32));
    let radius = radius(simd, odd, 31, &LN_32, (-2.0 * LN_2) as f32);
    turn(simd, radius, angle, second, &SIN_LONG, &COS_LONG)
}

/// sqrt(-2 v ln u) for u = odd / 2^bits in (0, 1]; the polynomial and ln 2 come multiplied by -2 v.
///
/// u is split as 2^e (1 + z) with 1 + z between sqrt(1/2) and sqrt 2, so that nothing cancels where u is close to 1 and the root's
/// argument is never negative.
#[inline(always)]
fn radius<S: Simd, const N: usize>(simd: S, odd: S::U, bits: u32, ln: &[f32; N], ln_2: f32) -> S::F {
    const ROOT: u32 = std::f32::consts::FRAC_1_SQRT_2.to_bits();
    let above_root = simd.u_sub(simd.f_to_bits(simd.f_from_i32(odd)), simd.u_splat((bits << 23) + ROOT));
    let exponent = simd.u_sar::<23>(above_root);
    let mantissa = simd.u_add(simd.u_and(above_root, simd.u_splat((1 << 23) - 1)), simd.u_splat(ROOT));
    let mantissa = simd.f_from_bits(mantissa);
    let z = simd.f_sub(mantissa, simd.f_splat(1.0));
    let ln_z = simd.f_mul(z, polynomial(simd, ln, z));
    simd.f_sqrt(simd.f_fma(simd.f_from_i32(exponent), simd.f_splat(ln_2), ln_z))
}

/// (r cos t, r sin t) for t = (pi/2) y, y in [-1, 1], and the opposite point where the top bit of `sign` is set.
#[inline(always)]
fn turn<S: Simd, const M: usize, const N: usize>(
    simd: S,
    radius: S::F,
    y: S::F,
    sign: S::U,
    sin: &[f32; M],
    cos: &[f32; N],
) -> (S::F, S::F) {
    let radius = simd.f_flip(radius, sign);
    let square = simd.f_mul(y, y);
    let cosine = polynomial(simd, cos, square);
    let sine = simd.f_mul(y, polynomial(simd, sin, square));
    (simd.f_mul(radius, cosine), simd.f_mul(radius, sine))
}

/// Horner's rule with fused multiply-adds.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, coefficients: &[f32; N], x: S::F) -> S::F {
    let mut value = simd.f_splat(coefficients[N - 1]);
    for &coefficient in coefficients[..N - 1].iter().rev() {
        value = simd.f_fma(value, x, simd.f_splat(coefficient));
    }
    value
}

/// Entries of one row from the start of a tile, for whoever wants to see them.
pub(crate) struct Fill<'a, E> {
    pub(crate) entries: E,
    pub(crate) stream: Stream,
    pub(crate) row: u32,
    pub(crate) tile: usize,
    /// A multiple of 64 long.
    pub(crate) out: &'a mut [f32],
}

impl<E: Entries> Operation for Fill<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut state = self.entries.start(simd, &self.stream, self.row, 1, self.tile);
        self.entries.fill(simd, &mut state, &mut [self.out]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coefficients_are_those_that_other_languages_are_told() {
        let file = include_str!("../../known-answers.txt");
        let check = |name: &str, coefficients: &[f32]| {
            let line = coefficients
                .iter()
                .fold(format!("# polynomial name={name} :"), |line, c| format!("{line} {:08x}", c.to_bits()));
            assert!(file.lines().any(|known| known == line), "{line}");
        };
        check("ln-16", &LN_16);
        check("ln2-16", &[(-2.0 * HALF * LN_2) as f32]);
        check("sin-16", &SIN_SHORT);
        check("cos-16", &COS_SHORT);
        check("ln-32", &LN_32);
        check("ln2-32", &[(-2.0 * LN_2) as f32]);
        check("sin-32", &SIN_LONG);
        check("cos-32", &COS_LONG);
    }
}
