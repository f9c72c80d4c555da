//! Projection on dense directions and reconstruction from them, tile by tile, never storing more than a chunk of four rows.

use std::ops::Range;

use super::chacha::Stream;
use super::entries::{Entries, GROUP};
use super::simd::Element;
use super::{Operation, Simd};
use crate::Real;

/// Coordinates between two seedings of the generators.
pub(crate) const TILE: usize = 4096;
/// Coordinates whose products are summed in sixteen lanes before the lanes are summed: part of the definition of `project`'s bits.
pub(super) const CHUNK: usize = 1024;
/// Rows that share one pass over a chunk.
const BATCH: usize = 4;

/// Inner products of `vectors` with the rows `rows`.
pub(crate) struct Project<'a, E, T> {
    pub(crate) entries: E,
    pub(crate) stream: Stream,
    /// The address of row 0.
    pub(crate) first_row: u32,
    pub(crate) rows: Range<usize>,
    /// Of each, the `dim` coordinates from `start` on.
    pub(crate) vectors: &'a [&'a [T]],
    pub(crate) start: usize,
    pub(crate) dim: usize,
    /// Overwritten: row j of vector i is at `i * stride + j - rows.start`.
    pub(crate) out: &'a mut [T],
    pub(crate) stride: usize,
    /// To work in: [`buffer_len`] numbers.
    pub(crate) buffer: &'a mut [f32],
}

impl<E: Entries, T: Real> Operation for Project<'_, E, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { entries, stream, first_row, rows, vectors, start, dim, out, stride, buffer } = self;
        for i in 0..vectors.len() {
            out[i * stride..][..rows.len()].fill(T::default());
        }
        if let ([vector], 1..) = (vectors, entries.at_once::<S>()) {
            let vector = &vector[start..start + dim];
            for (tile, vector) in vector.chunks(TILE).enumerate() {
                for (batch, sums) in out[..rows.len()].chunks_mut(entries.at_once::<S>()).enumerate() {
                    let first = first_row.wrapping_add((rows.start + batch * entries.at_once::<S>()) as u32);
                    let mut state = entries.start(simd, &stream, first, sums.len(), tile);
                    for chunk in vector.chunks(CHUNK) {
                        entries.dot(simd, &mut state, chunk, sums);
                    }
                }
            }
            return;
        }
        let width = buffer.len() / BATCH;
        for (tile, tile_start) in (0..dim).step_by(TILE).enumerate() {
            let tile_end = dim.min(tile_start + TILE);
            for batch in (0..rows.len()).step_by(BATCH) {
                let live = BATCH.min(rows.len() - batch);
                let first = first_row.wrapping_add((rows.start + batch) as u32);
                let mut state = entries.start(simd, &stream, first, live, tile);
                for chunk in (tile_start..tile_end).step_by(CHUNK) {
                    let len = CHUNK.min(tile_end - chunk);
                    fill(simd, entries, &mut state, buffer, width, len.next_multiple_of(GROUP), live);
                    let mut sums = Sums { out: &mut *out, stride, batch };
                    let chunk = start + chunk..start + chunk + len;
                    multiply(simd, buffer, width, live, vectors, chunk, &mut sums);
                }
            }
        }
    }
}

/// Fills the first `len` entries of each live row of the buffer.
#[inline(always)]
fn fill<S: Simd, E: Entries>(
    simd: S,
    entries: E,
    state: &mut E::State,
    buffer: &mut [f32],
    width: usize,
    len: usize,
    live: usize,
) {
    let (a, rest) = buffer.split_at_mut(width);
    let (b, rest) = rest.split_at_mut(width);
    let (c, d) = rest.split_at_mut(width);
    let mut rows = [&mut a[..len], &mut b[..len], &mut c[..len], &mut d[..len]];
    entries.fill(simd, state, &mut rows[..live]);
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

/// Places for a chunk of four rows, and sixteen more a row so that the rows of a batch do not compete for the same lines of the cache.
pub(crate) fn buffer_len(dim: usize) -> usize {
    BATCH * (CHUNK.min(dim).next_multiple_of(GROUP) + 16)
}

/// Places for a tile.
pub(crate) fn total_len(dim: usize) -> usize {
    TILE.min(dim).next_multiple_of(GROUP)
}

/// For each coordinate of `tiles`, the sum over all rows of scalar times entry, row by row.
pub(crate) struct Reconstruct<'a, E, T> {
    pub(crate) entries: E,
    pub(crate) stream: Stream,
    pub(crate) first_row: u32,
    pub(crate) scalars: &'a [T],
    /// The number of the tile where `out` begins.
    pub(crate) first_tile: usize,
    pub(crate) out: &'a mut [T],
    pub(crate) finish: Finish<T>,
    /// To work in: [`buffer_len`] numbers, and [`total_len`].
    pub(crate) buffer: &'a mut [f32],
    pub(crate) total: &'a mut [T],
}

/// How the sum of a coordinate is put into its place: divided, then written or, multiplied, added.
#[derive(Clone, Copy)]
pub(crate) struct Finish<T> {
    divisor: T,
    /// Of a power of two: to multiply with it gives the same bits and takes less time.
    inverse: Option<T>,
    add: Option<T>,
}

impl<T: Real> Finish<T> {
    pub(crate) fn new(divisor: usize, add: Option<T>) -> Self {
        let number = T::from_f64(divisor as f64);
        Self { divisor: number, inverse: divisor.is_power_of_two().then(|| T::ONE / number), add }
    }

    /// Sixteen sums.
    #[inline(always)]
    pub(super) fn lanes<S: Simd>(&self, simd: S, sums: T::Lanes<S>, out: &mut [T; 16]) {
        let value = match self.inverse {
            Some(inverse) => T::lanes_mul(simd, sums, T::splat(simd, inverse)),
            None => T::lanes_div(simd, sums, T::splat(simd, self.divisor)),
        };
        let value = match self.add {
            None => value,
            Some(scale) => T::fma(simd, T::splat(simd, scale), value, T::load(simd, out)),
        };
        T::store(simd, value, out);
    }

    /// The sums of `out`, as many or more.
    #[inline(always)]
    fn all<S: Simd>(&self, simd: S, sums: &[T], out: &mut [T]) {
        let sums = &sums[..out.len()];
        let ((whole, tail), (sums, rest)) = (out.as_chunks_mut::<16>(), sums.as_chunks::<16>());
        for (out, sums) in whole.iter_mut().zip(sums) {
            self.lanes(simd, T::load(simd, sums), out);
        }
        if !tail.is_empty() {
            let (mut sums, mut padded) = ([T::default(); 16], [T::default(); 16]);
            sums[..rest.len()].copy_from_slice(rest);
            padded[..tail.len()].copy_from_slice(tail);
            self.lanes(simd, T::load(simd, &sums), &mut padded);
            tail.copy_from_slice(&padded[..tail.len()]);
        }
    }
}

/// The sum of squares, in sixteen lanes.
pub(crate) struct Squares<'a, T> {
    pub(crate) of: &'a [T],
}

impl<T: Real> Operation for Squares<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> T {
        let (whole, tail) = self.of.as_chunks::<16>();
        let mut sum = T::splat(simd, T::default());
        for lanes in whole {
            let lanes = T::load(simd, lanes);
            sum = T::fma(simd, lanes, lanes, sum);
        }
        let mut padded = [T::default(); 16];
        padded[..tail.len()].copy_from_slice(tail);
        let lanes = T::load(simd, &padded);
        T::lanes_sum(simd, T::fma(simd, lanes, lanes, sum))
    }
}

/// Multiply-adds that need nothing but registers: what the CPU could do at most.
pub(crate) struct Peak {
    pub(crate) turns: usize,
}

impl Peak {
    /// Chains of multiply-adds that do not wait for each other.
    const CHAINS: usize = 8;
    /// Multiply-adds in a turn.
    pub(crate) const TURN: usize = 16 * Self::CHAINS;
}

impl Operation for Peak {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        // Hidden from the compiler, which would see that the sums come to rest.
        let [start, factor, addend] = std::hint::black_box([1.0, 0.999, 0.5]).map(|x| simd.f_splat(x));
        let mut sums = [start; Self::CHAINS];
        for _ in 0..self.turns {
            for sum in &mut sums {
                *sum = simd.f_fma(*sum, factor, addend);
            }
        }
        sums.into_iter().map(|sum| simd.f_sum(sum)).sum()
    }
}

impl<E: Entries, T: Real> Operation for Reconstruct<'_, E, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { entries, stream, first_row, scalars, first_tile, out, finish, buffer, total } = self;
        let width = buffer.len() / BATCH;
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let total = &mut total[..out.len().next_multiple_of(GROUP)];
            total.fill(T::default());
            if entries.at_once::<S>() > 0 {
                for (batch, scalars) in scalars.chunks(entries.at_once::<S>()).enumerate() {
                    let first = first_row.wrapping_add((batch * entries.at_once::<S>()) as u32);
                    let mut state = entries.start(simd, &stream, first, scalars.len(), first_tile + tile);
                    for total in total.chunks_mut(CHUNK) {
                        entries.add(simd, &mut state, scalars, total);
                    }
                }
                finish.all(simd, total, out);
                continue;
            }
            for (batch, scalars) in scalars.chunks(BATCH).enumerate() {
                let first = first_row.wrapping_add((batch * BATCH) as u32);
                let mut state = entries.start(simd, &stream, first, scalars.len(), first_tile + tile);
                for total in total.chunks_mut(CHUNK) {
                    fill(simd, entries, &mut state, buffer, width, total.len(), scalars.len());
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
