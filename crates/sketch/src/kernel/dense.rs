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
    /// All of the same length.
    pub(crate) vectors: &'a [&'a [T]],
    /// Overwritten: row j of vector i is at `i * stride + j - rows.start`.
    pub(crate) out: &'a mut [T],
    pub(crate) stride: usize,
}

impl<E: Entries, T: Real> Operation for Project<'_, E, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { entries, stream, first_row, rows, vectors, out, stride } = self;
        let dim = vectors[0].len();
        for i in 0..vectors.len() {
            out[i * stride..][..rows.len()].fill(T::default());
        }
        let width = CHUNK.min(dim).next_multiple_of(GROUP);
        let mut buffer = vec![0.0; BATCH * width];
        for (tile, tile_start) in (0..dim).step_by(TILE).enumerate() {
            let tile_end = dim.min(tile_start + TILE);
            for batch in (0..rows.len()).step_by(BATCH) {
                let live = BATCH.min(rows.len() - batch);
                let first = first_row.wrapping_add((rows.start + batch) as u32);
                let mut state = entries.start(simd, &stream, first, live, tile);
                for start in (tile_start..tile_end).step_by(CHUNK) {
                    let end = tile_end.min(start + CHUNK);
                    fill(simd, entries, &mut state, &mut buffer, width, (end - start).next_multiple_of(GROUP), live);
                    for (i, vector) in vectors.iter().enumerate() {
                        let sums = &mut out[i * stride + batch..][..live];
                        dots(simd, &buffer, width, &vector[start..end], sums);
                    }
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

/// Adds the inner product of each buffered row with the vector to its sum.
#[inline(always)]
fn dots<S: Simd, T: Real>(simd: S, buffer: &[f32], width: usize, vector: &[T], sums: &mut [T]) {
    let mut row = 0;
    while row < sums.len() {
        let rows = &buffer[row * width..];
        let left = sums.len() - row;
        if left >= 4 && T::ROWS >= 4 {
            dot::<S, T, 4>(simd, rows, width, vector, &mut sums[row..]);
            row += 4;
        } else if left >= 2 {
            dot::<S, T, 2>(simd, rows, width, vector, &mut sums[row..]);
            row += 2;
        } else {
            dot::<S, T, 1>(simd, rows, width, vector, &mut sums[row..]);
            row += 1;
        }
    }
}

#[inline(always)]
fn dot<S: Simd, T: Real, const R: usize>(simd: S, rows: &[f32], width: usize, vector: &[T], sums: &mut [T]) {
    let (whole, tail) = vector.as_chunks::<16>();
    let rows: [&[[f32; 16]]; R] =
        std::array::from_fn(|r| &rows[r * width..].as_chunks::<16>().0[..vector.len().div_ceil(16)]);
    let mut sum = [T::splat(simd, T::default()); R];
    for (k, lanes) in whole.iter().enumerate() {
        let lanes = T::load(simd, lanes);
        for r in 0..R {
            sum[r] = T::fma(simd, T::widen(simd, simd.f_load(&rows[r][k])), lanes, sum[r]);
        }
    }
    if !tail.is_empty() {
        let mut padded = [T::default(); 16];
        padded[..tail.len()].copy_from_slice(tail);
        let lanes = T::load(simd, &padded);
        for r in 0..R {
            sum[r] = T::fma(simd, T::widen(simd, simd.f_load(&rows[r][whole.len()])), lanes, sum[r]);
        }
    }
    for r in 0..R {
        sums[r] += T::lanes_sum(simd, sum[r]);
    }
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
}

/// How the sum of a coordinate is put into its place: divided, then written or, multiplied, added.
#[derive(Clone, Copy)]
pub(crate) struct Finish<T> {
    pub(crate) divisor: T,
    pub(crate) add: Option<T>,
}

impl<T: Real> Finish<T> {
    #[inline(always)]
    pub(crate) fn write(&self, out: &mut T, sum: T) {
        let value = sum / self.divisor;
        *out = match self.add {
            None => value,
            Some(scale) => scale.mul_add(value, *out),
        };
    }
}

impl<E: Entries, T: Real> Operation for Reconstruct<'_, E, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { entries, stream, first_row, scalars, first_tile, out, finish } = self;
        let width = CHUNK.min(out.len()).next_multiple_of(GROUP);
        let mut buffer = vec![0.0; BATCH * width];
        let mut total = vec![T::default(); TILE.min(out.len()).next_multiple_of(GROUP)];
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let total = &mut total[..out.len().next_multiple_of(GROUP)];
            total.fill(T::default());
            for (batch, scalars) in scalars.chunks(BATCH).enumerate() {
                let first = first_row.wrapping_add((batch * BATCH) as u32);
                let mut state = entries.start(simd, &stream, first, scalars.len(), first_tile + tile);
                for total in total.chunks_mut(CHUNK) {
                    fill(simd, entries, &mut state, &mut buffer, width, total.len(), scalars.len());
                    match *scalars {
                        [a, b, c, d] => add_rows(simd, &buffer, width, [a, b, c, d], total),
                        [a, b, c] => add_rows(simd, &buffer, width, [a, b, c], total),
                        [a, b] => add_rows(simd, &buffer, width, [a, b], total),
                        [a] => add_rows(simd, &buffer, width, [a], total),
                        _ => unreachable!("a batch has one to four rows"),
                    }
                }
            }
            for (out, total) in out.iter_mut().zip(&*total) {
                finish.write(out, *total);
            }
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
