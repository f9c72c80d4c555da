//! Directions of random signs, four at a time: the sixteen sums of four numbers under all their signs are a table, and four bits of the
//! key stream say which of them is meant (Arlazarov, Dinic, Kronrod and Faradzhev, *On economical construction of the transitive closure
//! of a directed graph*, 1970). No entry is ever made.

use super::Simd;
use super::chacha::{Stream, blocks, blocks_at, blocks_of_rows};
use super::dense::{Entries, Fill, Project, Reconstruct, TILE};
use crate::Real;

/// Random signs: entry c is -1 where bit 31 - (c mod 512) / 16 of word c mod 16 of block c / 512 is set.
#[derive(Clone, Copy)]
pub(crate) struct Signs;

/// Coordinates that one block of the key stream has signs for.
const BLOCK: usize = 512;
/// Sums of the coordinates l, 16 + l, 32 + l and 48 + l of every 64: `[l][64]`.
const TABLES: usize = BLOCK / 4;
/// Vectors whose tables are kept at a time.
const VECTORS: usize = 4;

impl Entries for Signs {
    const ROWS: usize = 16;

    fn projection_scratch(_: usize, vectors: usize) -> (usize, usize) {
        (0, 16 * TABLES * vectors.min(VECTORS))
    }

    fn reconstruction_scratch(_: usize) -> (usize, usize) {
        (0, 0)
    }

    fn kept(_: usize, _: usize) -> Option<usize> {
        None
    }

    #[inline(always)]
    fn project<S: Simd, T: Real>(self, simd: S, task: Project<'_, Self, T>) {
        let Project { stream, first_row, rows, vectors, start, dim, out, stride, numbers, .. } = task;
        let first_row = first_row.wrapping_add(rows.start as u32);
        let tables = numbers.as_chunks_mut::<16>().0;
        for (batch, vectors) in vectors.chunks(VECTORS).enumerate() {
            let first = batch * VECTORS;
            for (block, begin) in (0..dim).step_by(BLOCK).enumerate() {
                let coordinates = start + begin..start + dim.min(begin + BLOCK);
                for (vector, tables) in vectors.iter().zip(tables.chunks_exact_mut(TABLES)) {
                    lay_tables(simd, &vector[coordinates.clone()], tables);
                }
                for row in (0..rows.len()).step_by(16) {
                    let words = blocks_of_rows(simd, &stream, first_row.wrapping_add(row as u32), block as u32);
                    for (i, tables) in tables.chunks_exact(TABLES).take(vectors.len()).enumerate() {
                        let sums = &mut out[(first + i) * stride..][row..rows.len().min(row + 16)];
                        add_sums(simd, look_up(simd, &words, tables), sums);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn reconstruct<S: Simd, T: Real>(self, simd: S, task: Reconstruct<'_, Self, T>) {
        let Reconstruct { stream, first_row, scalars, first_tile, out, finish, .. } = task;
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            let block = (first_tile * (TILE / BLOCK) + block) as u32;
            let mut total = [[T::default(); 16]; BLOCK / 16];
            let mut left = scalars;
            let mut row = first_row;
            while !left.is_empty() {
                let taken = match left.len() {
                    9.. if S::REGISTERS >= 32 => add_rows::<S, T, 4>(simd, &stream, row, block, left, &mut total),
                    5.. => add_rows::<S, T, 2>(simd, &stream, row, block, left, &mut total),
                    _ => add_rows::<S, T, 1>(simd, &stream, row, block, left, &mut total),
                };
                left = &left[taken..];
                row = row.wrapping_add(taken as u32);
            }
            finish.all(simd, total.as_flattened(), out);
        }
    }

    #[inline(always)]
    fn fill<S: Simd>(self, simd: S, task: Fill<'_, Self>) {
        let first = (task.tile * (TILE / BLOCK)) as u32;
        for (block, out) in task.out.chunks_mut(BLOCK).enumerate() {
            let words = blocks(simd, &task.stream, [task.row; 4], [first.wrapping_add(block as u32); 4]);
            let mut bits = simd.u_load(&words[0]);
            for lanes in out.as_chunks_mut::<16>().0 {
                simd.f_store(simd.f_flip(simd.f_splat(1.0), bits), lanes);
                bits = simd.u_shl::<1>(bits);
            }
        }
    }
}

/// At [i][k], -1 where bit 3 - i of k is set.
const SIGNS: [[f32; 16]; 4] = {
    let mut signs = [[1.0; 16]; 4];
    let mut at = 0;
    while at < 64 {
        if ((at % 16) >> (3 - at / 16)) & 1 == 1 {
            signs[at / 16][at % 16] = -1.0;
        }
        at += 1;
    }
    signs
};

/// (s0 x0 + s1 x1) + (s2 x2 + s3 x3) for all signs s: at k, those are -1 that bits 3, 2, 1 and 0 of k say.
#[inline(always)]
fn signed_sums<S: Simd, T: Real>(simd: S, x: [T; 4]) -> T::Lanes<S> {
    let mut signs = [T::splat(simd, T::default()); 4];
    for i in 0..4 {
        signs[i] = T::widen(simd, simd.f_load(&SIGNS[i]));
    }
    let [s0, s1, s2, s3] = signs;
    let [x0, x1, x2, x3] = [T::splat(simd, x[0]), T::splat(simd, x[1]), T::splat(simd, x[2]), T::splat(simd, x[3])];
    // Products with 1 and -1 are exact, so these round as sums do.
    let first = T::fma(simd, s1, x1, T::lanes_mul(simd, s0, x0));
    T::lanes_add(simd, first, T::fma(simd, s3, x3, T::lanes_mul(simd, s2, x2)))
}

/// The tables of up to 512 coordinates; beyond them the vector is 0.
#[inline(always)]
fn lay_tables<S: Simd, T: Real>(simd: S, values: &[T], tables: &mut [[T; 16]]) {
    let mut padded = [T::default(); BLOCK];
    padded[..values.len()].copy_from_slice(values);
    for (group, values) in padded.as_chunks::<64>().0.iter().enumerate() {
        for l in 0..16 {
            let sums = signed_sums(simd, [values[l], values[16 + l], values[32 + l], values[48 + l]]);
            T::store(simd, sums, &mut tables[l * (BLOCK / 64) + group]);
        }
    }
}

/// The words, shifted so that each four of their bits are the lowest, the highest first.
#[inline(always)]
fn by_fours<S: Simd>(simd: S, words: S::U) -> [S::U; 8] {
    [
        simd.u_shr::<28>(words),
        simd.u_shr::<24>(words),
        simd.u_shr::<20>(words),
        simd.u_shr::<16>(words),
        simd.u_shr::<12>(words),
        simd.u_shr::<8>(words),
        simd.u_shr::<4>(words),
        words,
    ]
}

/// The inner products of sixteen rows with a block. The order: the sums of each lane from the first to the last of eight, then the lanes
/// l and l + 8, l + 4, l + 2, l + 1.
#[inline(always)]
fn look_up<S: Simd, T: Real>(simd: S, words: &[S::U; 16], tables: &[[T; 16]]) -> T::Lanes<S> {
    let mut sums = [T::splat(simd, T::default()); 16];
    for ((sum, &words), tables) in sums.iter_mut().zip(words).zip(tables.as_chunks::<{ BLOCK / 64 }>().0) {
        for (index, table) in by_fours(simd, words).into_iter().zip(tables) {
            *sum = T::lanes_add(simd, *sum, T::pick(simd, T::load(simd, table), index));
        }
    }
    for stride in [8, 4, 2, 1] {
        for l in 0..stride {
            sums[l] = T::lanes_add(simd, sums[l], sums[l + stride]);
        }
    }
    sums[0]
}

/// Adds a lane to each of up to sixteen sums.
#[inline(always)]
fn add_sums<S: Simd, T: Real>(simd: S, lanes: T::Lanes<S>, sums: &mut [T]) {
    if let Some(sums) = sums.first_chunk_mut() {
        return T::store(simd, T::lanes_add(simd, T::load(simd, sums), lanes), sums);
    }
    let mut each = [T::default(); 16];
    T::store(simd, lanes, &mut each);
    sums.iter_mut().zip(each).for_each(|(sum, each)| *sum += each);
}

/// Adds scalar times sign for up to 4 `N` rows to the total of a block, four rows at a time; says how many rows there were.
#[inline(always)]
fn add_rows<S: Simd, T: Real, const N: usize>(
    simd: S,
    stream: &Stream,
    first: u32,
    block: u32,
    scalars: &[T],
    total: &mut [[T; 16]; BLOCK / 16],
) -> usize {
    let scalars = &scalars[..scalars.len().min(4 * N)];
    let mut rows = [[0; 4]; N];
    let mut padded = [[T::default(); 4]; N];
    padded.as_flattened_mut()[..scalars.len()].copy_from_slice(scalars);
    for (k, row) in rows.as_flattened_mut().iter_mut().enumerate() {
        *row = first.wrapping_add(k as u32);
    }
    let mut words = [[[0; 16]; 4]; N];
    blocks_at::<S, N>(simd, stream, &rows, &[[block; 4]; N], words.as_flattened_mut());
    let mut tables = [T::splat(simd, T::default()); N];
    let mut indices = [[simd.u_splat(0); N]; 4];
    for n in 0..N {
        tables[n] = signed_sums(simd, padded[n]);
        let [a, b, c, d] = &words[n];
        let words = [simd.u_load(a), simd.u_load(b), simd.u_load(c), simd.u_load(d)];
        let [w, x, y, z] = across(simd, words);
        [indices[0][n], indices[1][n], indices[2][n], indices[3][n]] = [w, x, y, z];
    }
    for (line, indices) in indices.into_iter().enumerate() {
        let mut by_group = [[simd.u_splat(0); 8]; N];
        for n in 0..N {
            by_group[n] = by_fours(simd, indices[n]);
        }
        for group in 0..8 {
            let total = &mut total[4 * group + line];
            let mut sum = T::load(simd, total);
            for n in 0..N {
                sum = T::lanes_add(simd, sum, T::pick(simd, tables[n], by_group[n][group]));
            }
            T::store(simd, sum, total);
        }
    }
    scalars.len()
}

/// From the words of four rows, words whose fours are of one bit of each: word i has bits 31 - i, 27 - i, ... of the rows, row 0 first.
#[inline(always)]
fn across<S: Simd>(simd: S, [a, b, c, d]: [S::U; 4]) -> [S::U; 4] {
    let (ac, bd) = (cross2(simd, a, c), cross2(simd, b, d));
    let (low, high) = (cross1(simd, ac.0, bd.0), cross1(simd, ac.1, bd.1));
    [low.0, low.1, high.0, high.1]
}

#[inline(always)]
fn cross2<S: Simd>(simd: S, x: S::U, y: S::U) -> (S::U, S::U) {
    const MASK: u32 = 0xcccc_cccc;
    (select(simd, MASK, x, simd.u_shr::<2>(y)), select(simd, MASK, simd.u_shl::<2>(x), y))
}

#[inline(always)]
fn cross1<S: Simd>(simd: S, x: S::U, y: S::U) -> (S::U, S::U) {
    const MASK: u32 = 0xaaaa_aaaa;
    (select(simd, MASK, x, simd.u_shr::<1>(y)), select(simd, MASK, simd.u_shl::<1>(x), y))
}

/// The bits of `x` where the mask has ones, the bits of `y` elsewhere.
#[inline(always)]
fn select<S: Simd>(simd: S, mask: u32, x: S::U, y: S::U) -> S::U {
    simd.u_or(simd.u_and(x, simd.u_splat(mask)), simd.u_and(y, simd.u_splat(!mask)))
}
