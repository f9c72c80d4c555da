//! Gaussian directions: entries are made from a generator's words, sixty-four at a time, and meet the vector in registers, or by way of
//! a buffer of four rows where several vectors share them or registers are few.

use std::f32::consts::LN_2;
use std::ops::Range;

use super::Simd;
use super::chacha::{Stream, blocks};
use super::dense::{Entries, Fill, Project, Reconstruct, Room, TILE};
use super::simd::Element;
use crate::Real;

/// Coordinates whose products are summed in sixteen lanes before the lanes are summed: part of the definition of `project`'s bits.
const CHUNK: usize = 1024;
/// Coordinates that one step of every generator makes; rows of a chunk are padded to it.
const GROUP: usize = 64;
/// Rows that share one pass over a chunk.
const BATCH: usize = 4;

/// How the words of sixteen generators become 64 entries.
pub(crate) trait Normal: Copy + Send + Sync {
    /// Words that are used.
    const WORDS: usize;

    fn entries<S: Simd>(simd: S, words: [S::U; 4]) -> [S::F; 4];
}

/// Gaussian numbers from 16 random bits each: the inverse distribution function, and four of its values mixed by a Hadamard matrix, which
/// makes the values dense, the law exact and carries the tails past 8 sigma.
#[derive(Clone, Copy)]
pub(crate) struct Gauss16;

/// Gaussian numbers from 64 random bits a pair: Box and Muller with a radius of 30 bits and an angle of 32.
#[derive(Clone, Copy)]
pub(crate) struct Gauss32;

impl Normal for Gauss16 {
    const WORDS: usize = 2;

    #[inline(always)]
    fn entries<S: Simd>(simd: S, [first, second, ..]: [S::U; 4]) -> [S::F; 4] {
        let (a, b) = (quantile(simd, first), quantile(simd, simd.u_shl::<16>(first)));
        let (c, d) = (quantile(simd, second), quantile(simd, simd.u_shl::<16>(second)));
        let (p, q, r, s) = (simd.f_add(a, b), simd.f_sub(a, b), simd.f_add(c, d), simd.f_sub(c, d));
        [simd.f_add(p, r), simd.f_add(q, s), simd.f_sub(p, r), simd.f_sub(q, s)]
    }
}

impl Normal for Gauss32 {
    const WORDS: usize = 4;

    #[inline(always)]
    fn entries<S: Simd>(simd: S, words: [S::U; 4]) -> [S::F; 4] {
        let (x1, y1) = pair32(simd, words[0], words[1]);
        let (x2, y2) = pair32(simd, words[2], words[3]);
        [x1, y1, x2, y2]
    }
}

/// Sixteen generators xoshiro128++ of a row: `[word of the state][lane]`.
type Generator = [[u32; 16]; 4];

impl<G: Normal> Entries for G {
    const ROWS: usize = BATCH;

    fn projection_scratch(dim: usize, _: usize) -> (usize, usize) {
        (BATCH * row_width(dim), 0)
    }

    fn reconstruction_scratch(dim: usize) -> (usize, usize) {
        (BATCH * row_width(dim), TILE.min(dim).next_multiple_of(GROUP))
    }

    fn kept(dim: usize, rows: usize) -> Option<usize> {
        Some((BATCH * row_width(dim)).saturating_mul(dim.div_ceil(CHUNK)).saturating_mul(rows.div_ceil(BATCH)))
    }

    #[inline(always)]
    fn project<S: Simd, T: Real>(self, simd: S, task: Project<'_, Self, T>) {
        let Project { stream, first_row, rows, vectors, start, dim, out, stride, mut room, .. } = task;
        let first_row = first_row.wrapping_add(rows.start as u32);
        let width = row_width(dim);
        let made = room.is_made();
        let in_registers = vectors.len() == 1 && stays_in_registers::<S>(&room);
        for (tile, tile_start) in (0..dim).step_by(TILE).enumerate() {
            let chunks = (tile_start..dim.min(tile_start + TILE)).step_by(CHUNK);
            let chunk = |begin: usize| start + begin..start + dim.min(begin + CHUNK);
            for batch in (0..rows.len()).step_by(BATCH) {
                let live = BATCH.min(rows.len() - batch);
                let seeded = if made { 0 } else { live };
                let mut generators = seed(simd, &stream, first_row.wrapping_add(batch as u32), seeded, tile);
                if in_registers {
                    for (generator, sum) in generators.iter_mut().zip(&mut out[batch..batch + live]) {
                        for begin in chunks.clone() {
                            dot_row::<S, T, Self>(simd, generator, &vectors[0][chunk(begin)], sum);
                        }
                    }
                    continue;
                }
                for begin in chunks.clone() {
                    let chunk = chunk(begin);
                    let buffer = room.next(BATCH * width);
                    if !made {
                        fill_rows::<S, Self>(simd, &mut generators[..live], buffer, width, chunk.len());
                    }
                    let mut sums = Sums { out: &mut *out, stride, batch };
                    multiply(simd, buffer, width, live, vectors, chunk, &mut sums);
                }
            }
        }
    }

    #[inline(always)]
    fn reconstruct<S: Simd, T: Real>(self, simd: S, task: Reconstruct<'_, Self, T>) {
        let Reconstruct { stream, first_row, scalars, first_tile, out, finish, mut room, numbers, .. } = task;
        let width = row_width(out.len());
        let made = room.is_made();
        let in_registers = stays_in_registers::<S>(&room);
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let total = &mut numbers[..out.len().next_multiple_of(GROUP)];
            total.fill(T::default());
            for (batch, scalars) in scalars.chunks(BATCH).enumerate() {
                let first = first_row.wrapping_add((batch * BATCH) as u32);
                let seeded = if made { 0 } else { scalars.len() };
                let mut generators = seed(simd, &stream, first, seeded, first_tile + tile);
                if in_registers {
                    for (generator, &scalar) in generators.iter_mut().zip(scalars) {
                        add_row::<S, T, Self>(simd, generator, scalar, total);
                    }
                    continue;
                }
                for total in total.chunks_mut(CHUNK) {
                    let buffer = room.next(BATCH * width);
                    if !made {
                        fill_rows::<S, Self>(simd, &mut generators[..scalars.len()], buffer, width, total.len());
                    }
                    match *scalars {
                        [a, b, c, d] => add_rows(simd, buffer, width, [a, b, c, d], total),
                        [a, b, c] => add_rows(simd, buffer, width, [a, b, c], total),
                        [a, b] => add_rows(simd, buffer, width, [a, b], total),
                        [a] => add_rows(simd, buffer, width, [a], total),
                        _ => unreachable!("a batch has one to four rows"),
                    }
                }
            }
            finish.all(simd, total, out);
        }
    }

    #[inline(always)]
    fn fill<S: Simd>(self, simd: S, task: Fill<'_, Self>) {
        let [mut generator, ..] = seed(simd, &task.stream, task.row, 1, task.tile);
        fill_row::<S, Self>(simd, &mut generator, task.out);
    }
}

/// Places of a row of a chunk: sixteen more than its entries, so that the rows of a batch do not compete for the same lines of the cache.
#[inline(always)]
fn row_width(dim: usize) -> usize {
    CHUNK.min(dim).next_multiple_of(GROUP) + 16
}

/// Whether entries need no place: nobody wants them again, and there are registers enough for generator, entries and sums at once.
#[inline(always)]
fn stays_in_registers<S: Simd>(room: &Room<'_>) -> bool {
    matches!(room, Room::Few(_)) && S::REGISTERS >= 16
}

/// The next `len` entries of every row.
#[inline(always)]
fn fill_rows<S: Simd, G: Normal>(simd: S, generators: &mut [Generator], rows: &mut [f32], width: usize, len: usize) {
    for (generator, row) in generators.iter_mut().zip(rows.chunks_exact_mut(width)) {
        fill_row::<S, G>(simd, generator, &mut row[..len.next_multiple_of(GROUP)]);
    }
}

/// The next entries of a row, a multiple of 64. First words are laid down where the entries will be: apart from the arithmetic that
/// follows, so that neither needs more registers than there are.
#[inline(always)]
fn fill_row<S: Simd, G: Normal>(simd: S, generator: &mut Generator, row: &mut [f32]) {
    let mut state = load(simd, generator);
    for group in row.as_chunks_mut::<GROUP>().0 {
        for lanes in &mut group.as_chunks_mut::<16>().0[..G::WORDS] {
            simd.f_store(simd.f_from_bits(next_word(simd, &mut state)), lanes);
        }
    }
    store(simd, state, generator);
    for group in row.as_chunks_mut::<GROUP>().0 {
        let quarters = group.as_chunks_mut::<16>().0;
        let mut words = [simd.u_splat(0); 4];
        for k in 0..G::WORDS {
            words[k] = simd.f_to_bits(simd.f_load(&quarters[k]));
        }
        for (entries, quarter) in G::entries(simd, words).into_iter().zip(quarters) {
            simd.f_store(entries, quarter);
        }
    }
}

/// The next 64 entries of a row.
#[inline(always)]
fn next_entries<S: Simd, G: Normal>(simd: S, state: &mut [S::U; 4]) -> [S::F; 4] {
    let mut words = [simd.u_splat(0); 4];
    for k in 0..G::WORDS {
        words[k] = next_word(simd, state);
    }
    G::entries(simd, words)
}

#[inline(always)]
fn load<S: Simd>(simd: S, generator: &Generator) -> [S::U; 4] {
    let [a, b, c, d] = generator;
    [simd.u_load(a), simd.u_load(b), simd.u_load(c), simd.u_load(d)]
}

#[inline(always)]
fn store<S: Simd>(simd: S, state: [S::U; 4], generator: &mut Generator) {
    for (state, words) in state.into_iter().zip(generator) {
        simd.u_store(state, words);
    }
}

/// The inner product of a row with a chunk.
#[inline(always)]
fn dot_row<S: Simd, T: Real, G: Normal>(simd: S, generator: &mut Generator, chunk: &[T], sum: &mut T) {
    let mut state = load(simd, generator);
    let mut lanes = T::splat(simd, T::default());
    let (whole, tail) = chunk.as_chunks::<GROUP>();
    for group in whole {
        let entries = next_entries::<S, G>(simd, &mut state);
        for (entries, values) in entries.into_iter().zip(group.as_chunks::<16>().0) {
            lanes = T::fma(simd, T::widen(simd, entries), T::load(simd, values), lanes);
        }
    }
    if !tail.is_empty() {
        let entries = next_entries::<S, G>(simd, &mut state);
        for (k, entries) in entries.into_iter().enumerate().take(tail.len().div_ceil(16)) {
            lanes = T::fma(simd, T::widen(simd, entries), lanes_at(simd, tail, k), lanes);
        }
    }
    *sum += T::lanes_sum(simd, lanes);
    store(simd, state, generator);
}

/// Adds a scalar times a row.
#[inline(always)]
fn add_row<S: Simd, T: Real, G: Normal>(simd: S, generator: &mut Generator, scalar: T, total: &mut [T]) {
    let mut state = load(simd, generator);
    let scalar = T::splat(simd, scalar);
    for group in total.as_chunks_mut::<GROUP>().0 {
        let entries = next_entries::<S, G>(simd, &mut state);
        for (entries, total) in entries.into_iter().zip(group.as_chunks_mut::<16>().0) {
            let sum = T::load(simd, total);
            T::store(simd, T::fma(simd, T::widen(simd, entries), scalar, sum), total);
        }
    }
    store(simd, state, generator);
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
fn seed<S: Simd>(simd: S, stream: &Stream, first: u32, live: usize, tile: usize) -> [Generator; BATCH] {
    let counters = std::array::from_fn(|k| (4 * tile + k) as u32);
    let mut generators = [[[0; 16]; 4]; 4];
    for row in 0..live {
        generators[row] = blocks(simd, stream, [first.wrapping_add(row as u32); 4], counters);
    }
    generators
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

/// Where the inner product of row r of a batch with vector i is added.
struct Sums<'a, T> {
    out: &'a mut [T],
    stride: usize,
    batch: usize,
}

/// Adds the inner products of the buffered rows with a chunk of every vector to their sums.
///
/// The same as one `dot` for each row and vector; several at once share the loads, as many as have their sums in the registers of AVX2.
#[inline(always)]
fn multiply<S: Simd, T: Real>(
    simd: S,
    buffer: &[f32],
    width: usize,
    live: usize,
    vectors: &[&[T]],
    chunk: Range<usize>,
    sums: &mut Sums<'_, T>,
) {
    let wide = size_of::<T>() == 8;
    let mut i = 0;
    while i < vectors.len() {
        let mut row = 0;
        if vectors.len() - i >= 3 {
            let chunks = [&vectors[i][chunk.clone()], &vectors[i + 1][chunk.clone()], &vectors[i + 2][chunk.clone()]];
            while row < live {
                if !wide && live - row >= 2 {
                    dot::<S, T, 2, 3>(simd, &buffer[row * width..], width, chunks, sums, row, i);
                    row += 2;
                } else {
                    dot::<S, T, 1, 3>(simd, &buffer[row * width..], width, chunks, sums, row, i);
                    row += 1;
                }
            }
            i += 3;
        } else {
            let chunks = [&vectors[i][chunk.clone()]];
            while row < live {
                if !wide && live - row >= 4 {
                    dot::<S, T, 4, 1>(simd, &buffer[row * width..], width, chunks, sums, row, i);
                    row += 4;
                } else if live - row >= 2 {
                    dot::<S, T, 2, 1>(simd, &buffer[row * width..], width, chunks, sums, row, i);
                    row += 2;
                } else {
                    dot::<S, T, 1, 1>(simd, &buffer[row * width..], width, chunks, sums, row, i);
                    row += 1;
                }
            }
            i += 1;
        }
    }
}

/// `R` rows times `V` vectors.
#[inline(always)]
fn dot<S: Simd, T: Real, const R: usize, const V: usize>(
    simd: S,
    rows: &[f32],
    width: usize,
    vectors: [&[T]; V],
    sums: &mut Sums<'_, T>,
    row: usize,
    vector: usize,
) {
    let len = vectors[0].len();
    let whole = len / 16;
    let mut lines = [&[] as &[[f32; 16]]; R];
    for r in 0..R {
        lines[r] = &rows[r * width..].as_chunks::<16>().0[..whole];
    }
    let mut columns = [&[] as &[[T; 16]]; V];
    for v in 0..V {
        columns[v] = &vectors[v].as_chunks::<16>().0[..whole];
    }
    let mut sum = [[T::splat(simd, T::default()); V]; R];
    for k in 0..whole {
        let mut lanes = [T::splat(simd, T::default()); V];
        for v in 0..V {
            lanes[v] = T::load(simd, &columns[v][k]);
        }
        for r in 0..R {
            let xi = T::widen(simd, simd.f_load(&lines[r][k]));
            for v in 0..V {
                sum[r][v] = T::fma(simd, xi, lanes[v], sum[r][v]);
            }
        }
    }
    if 16 * whole < len {
        for v in 0..V {
            let mut padded = [T::default(); 16];
            padded[..len - 16 * whole].copy_from_slice(&vectors[v][16 * whole..]);
            let lanes = T::load(simd, &padded);
            for r in 0..R {
                let xi = T::widen(simd, simd.f_load(&rows[r * width..].as_chunks::<16>().0[whole]));
                sum[r][v] = T::fma(simd, xi, lanes, sum[r][v]);
            }
        }
    }
    for r in 0..R {
        for v in 0..V {
            sums.out[(vector + v) * sums.stride + sums.batch + row + r] += T::lanes_sum(simd, sum[r][v]);
        }
    }
}

#[inline(always)]
fn add_rows<S: Simd, T: Element, const R: usize>(
    simd: S,
    rows: &[f32],
    width: usize,
    scalars: [T; R],
    total: &mut [T],
) {
    let (total, _) = total.as_chunks_mut::<16>();
    let rows: [&[[f32; 16]]; R] = std::array::from_fn(|r| &rows[r * width..].as_chunks::<16>().0[..total.len()]);
    let scalars = scalars.map(|scalar| T::splat(simd, scalar));
    for (k, lanes) in total.iter_mut().enumerate() {
        let mut sum = T::load(simd, lanes);
        for r in 0..R {
            sum = T::fma(simd, T::widen(simd, simd.f_load(&rows[r][k])), scalars[r], sum);
        }
        T::store(simd, sum, lanes);
    }
}

/// Minimax polynomials, lowest degree first: -2 ln(1 + z)/z on [sqrt(1/2) - 1, sqrt 2 - 1], sin(pi y/2)/y and cos(pi y/2) in y^2 on [0, 1].
/// Errors below 6e-8, the rounding of an f32.
const LN: [f32; 8] =
    [-1.999_999_6, 1.000_012_6, -0.666_722_3, 0.499_209_88, -0.397_488_62, 0.346_468_15, -0.328_198_85, 0.202_383_79];
const SIN: [f32; 5] = [std::f32::consts::FRAC_PI_2, -0.645_963_4, 0.079_688_52, -0.004_672_277, 0.000_150_840_96];
const COS: [f32; 5] = [0.999_999_94, -1.233_698_2, 0.253_650_75, -0.020_810_628, 0.000_858_190_6];

/// Half the number that is exceeded with probability u/2, as a cubic of x for each of eight ranges of u that shrink by four: row k has the
/// coefficients of x^k. Within 1.4e-3 of the normal law, and its moments to the sixth within 1.3e-5: four such numbers are as normal as
/// 10^10 samples could tell.
const QUANTILE: [[f32; 8]; 4] = [
    [2.141_559_4, 1.978_109_5, 1.804_408_1, 1.616_898_7, 1.410_090_4, 1.176_362_4, 0.905_828_9, 3.431_501_2],
    [
        -0.083_470_46,
        -0.089_794_554,
        -0.097_668_506,
        -0.108_802_81,
        -0.125_049_2,
        -0.150_644_44,
        -0.198_484_05,
        -0.884_590_1,
    ],
    [
        0.008_827_306,
        0.009_522_894,
        0.010_266_678,
        0.011_295_201,
        0.012_725_48,
        0.014_722_008,
        0.017_501_833,
        0.149_741_72,
    ],
    [
        -0.000_400_003_5,
        -0.000_433_286_16,
        -0.000_466_145_37,
        -0.000_511_416_1,
        -0.000_574_303_85,
        -0.000_663_593_64,
        -0.000_858_954_44,
        -0.006_802_541,
    ],
];

/// Bit 31 is the sign; with the 15 bits k below it, u = (2 k + 1)/2^16.
#[inline(always)]
fn quantile<S: Simd>(simd: S, word: S::U) -> S::F {
    let odd = simd.u_or(simd.u_and(word, simd.u_splat(0x7fff_0000)), simd.u_splat(0x8000));
    let bits = simd.f_to_bits(simd.f_from_i32(odd));
    let range = simd.u_shr::<24>(bits);
    // u times a power of four, between 2 and 8.
    let x = simd.f_from_bits(simd.u_or(simd.u_and(bits, simd.u_splat(0xff_ffff)), simd.u_splat(2f32.to_bits())));
    let mut value = simd.f_pick8(&QUANTILE[3], range);
    for coefficients in QUANTILE[..3].iter().rev() {
        value = simd.f_fma(value, x, simd.f_pick8(coefficients, range));
    }
    simd.f_flip(value, word)
}

/// Bits 31..2 of the first word give the radius; bit 31 of the second the sign, bits 30..0 the angle.
#[inline(always)]
fn pair32<S: Simd>(simd: S, first: S::U, second: S::U) -> (S::F, S::F) {
    let odd = simd.u_or(simd.u_shr::<1>(first), simd.u_splat(1));
    let angle = simd.u_or(simd.u_shl::<1>(second), simd.u_splat(1));
    let angle = simd.f_mul(simd.f_from_i32(angle), simd.f_splat(1.0 / (1u32 << 31) as f32));
    let radius = radius(simd, odd);
    turn(simd, radius, angle, second)
}

/// sqrt(-2 ln u) for u = odd / 2^31 in (0, 1].
///
/// u is split as 2^e (1 + z) with 1 + z between sqrt(1/2) and sqrt 2, so that nothing cancels where u is close to 1 and the root's
/// argument is never negative.
#[inline(always)]
fn radius<S: Simd>(simd: S, odd: S::U) -> S::F {
    const ROOT: u32 = std::f32::consts::FRAC_1_SQRT_2.to_bits();
    let above_root = simd.u_sub(simd.f_to_bits(simd.f_from_i32(odd)), simd.u_splat((31 << 23) + ROOT));
    let exponent = simd.u_sar::<23>(above_root);
    let mantissa = simd.u_add(simd.u_and(above_root, simd.u_splat((1 << 23) - 1)), simd.u_splat(ROOT));
    let z = simd.f_sub(simd.f_from_bits(mantissa), simd.f_splat(1.0));
    let ln_z = simd.f_mul(z, polynomial(simd, &LN, z));
    simd.f_sqrt(simd.f_fma(simd.f_from_i32(exponent), simd.f_splat(-2.0 * LN_2), ln_z))
}

/// (r cos t, r sin t) for t = (pi/2) y, y in [-1, 1], and the opposite point where the top bit of `sign` is set.
#[inline(always)]
fn turn<S: Simd>(simd: S, radius: S::F, y: S::F, sign: S::U) -> (S::F, S::F) {
    let radius = simd.f_flip(radius, sign);
    let square = simd.f_mul(y, y);
    let cosine = polynomial(simd, &COS, square);
    let sine = simd.f_mul(y, polynomial(simd, &SIN, square));
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
        for (k, coefficients) in QUANTILE.iter().enumerate() {
            check(&format!("quantile-{k}"), coefficients);
        }
        check("ln", &LN);
        check("ln2", &[-2.0 * LN_2]);
        check("sin", &SIN);
        check("cos", &COS);
    }
}
