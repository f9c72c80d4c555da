//! The entries of a direction: Gaussian numbers or signs, a chunk of a tile for up to four rows at a time.

use std::f64::consts::LN_2;

use super::chacha::{Stream, blocks};
use super::dense::TILE;
use super::{Operation, Simd};

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
    let [mut s0, mut s1, mut s2, mut s3] = generator.map(|word| simd.u_load(&word));
    for group in row.as_chunks_mut::<GROUP>().0 {
        for lanes in &mut group.as_chunks_mut::<16>().0[..STEPS] {
            let word = simd.u_add(simd.u_rotl::<7, 25>(simd.u_add(s0, s3)), s0);
            let shifted = simd.u_shl::<9>(s1);
            s2 = simd.u_xor(s2, s0);
            s3 = simd.u_xor(s3, s1);
            s1 = simd.u_xor(s1, s2);
            s0 = simd.u_xor(s0, s3);
            s2 = simd.u_xor(s2, shifted);
            s3 = simd.u_rotl::<11, 21>(s3);
            simd.f_store(simd.f_from_bits(word), lanes);
        }
    }
    for (word, state) in generator.iter_mut().zip([s0, s1, s2, s3]) {
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
    let angle = simd.u_or(simd.u_shl::<17>(word), simd.u_splat(1 << 16));
    let radius = radius(simd, odd, 17, &LN_16, (-2.0 * HALF * LN_2) as f32);
    turn(simd, radius, angle, simd.u_shl::<16>(word), &SIN_SHORT, &COS_SHORT)
}

/// Bits 31..2 of the first word give the radius; bit 31 of the second the sign, bits 30..0 the angle.
#[inline(always)]
fn pair32<S: Simd>(simd: S, first: S::U, second: S::U) -> (S::F, S::F) {
    let odd = simd.u_or(simd.u_shr::<1>(first), simd.u_splat(1));
    let angle = simd.u_or(simd.u_shl::<1>(second), simd.u_splat(1));
    let radius = radius(simd, odd, 31, &LN_32, (-2.0 * LN_2) as f32);
    turn(simd, radius, angle, second, &SIN_LONG, &COS_LONG)
}

/// sqrt(-2 v ln u) for u = odd / 2^bits in (0, 1]; the polynomial and ln 2 come multiplied by -2 v.
///
/// u is split as 2^e (1 + z) with 1 + z between sqrt(1/2) and sqrt 2, so that nothing cancels where u is close to 1 and the root's argument is never negative.
#[inline(always)]
fn radius<S: Simd, const N: usize>(simd: S, odd: S::U, bits: u32, ln: &[f32; N], ln_2: f32) -> S::F {
    let u = simd.u_sub(simd.f_to_bits(simd.f_from_i32(odd)), simd.u_splat(bits << 23));
    let exponent = simd.u_sar::<23>(simd.u_sub(u, simd.u_splat(std::f32::consts::FRAC_1_SQRT_2.to_bits())));
    let mantissa = simd.f_from_bits(simd.u_sub(u, simd.u_shl::<23>(exponent)));
    let z = simd.f_sub(mantissa, simd.f_splat(1.0));
    let ln_z = simd.f_mul(z, polynomial(simd, ln, z));
    simd.f_sqrt(simd.f_fma(simd.f_from_i32(exponent), simd.f_splat(ln_2), ln_z))
}

/// (r cos t, r sin t) for t = (pi/2) angle / 2^31 in [-pi/2, pi/2], and the opposite point where the top bit of `sign` is set.
#[inline(always)]
fn turn<S: Simd, const M: usize, const N: usize>(
    simd: S,
    radius: S::F,
    angle: S::U,
    sign: S::U,
    sin: &[f32; M],
    cos: &[f32; N],
) -> (S::F, S::F) {
    let radius = simd.f_flip(radius, sign);
    let y = simd.f_mul(simd.f_from_i32(angle), simd.f_splat(1.0 / (1u32 << 31) as f32));
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
