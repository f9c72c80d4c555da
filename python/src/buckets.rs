//! Between torch's buckets and the order of the model, one pass over memory each way: gradients into the momentum, which also finds out
//! whether they are finite, and the estimate back.

use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::{contiguous, contiguous_mut, expect_length};

/// Numbers that a thread takes at a time.
const PIECE: usize = 1 << 16;
/// The exponent of what is not finite.
const NOT_FINITE: u32 = 0x7f80_0000;

/// Where a parameter's numbers are: offset in the model, start in the bucket, and how many.
type Place = (usize, usize, usize);

/// Parts of `numbers` that begin at some starts in rising order. None where one is outside, or two overlap.
fn cut(numbers: &mut [f32], spans: impl Iterator<Item = (usize, usize)>) -> Option<Vec<&mut [f32]>> {
    let (mut rest, mut done) = (numbers, 0);
    let part = |(start, count): (usize, usize)| {
        let (_, after) = std::mem::take(&mut rest).split_at_mut_checked(start.checked_sub(done)?)?;
        let (part, after) = after.split_at_mut_checked(count)?;
        (rest, done) = (after, start + count);
        Some(part)
    };
    spans.map(part).collect()
}

fn part(numbers: &[f32], start: usize, count: usize) -> Option<&[f32]> {
    numbers.get(start..)?.get(..count)
}

fn misplaced() -> PyErr {
    PyValueError::new_err("places: one is outside, or two overlap")
}

/// Overwrites `out` with beta times `momentum` plus scale times the gradients of a bucket, and says whether all of these are finite.
///
/// `places` has an offset in the model, a start in the bucket and a count for each parameter; what it does not name stays as it is.
///
/// >>> import numpy as np
/// >>> from corewire._native import fold_momentum
/// >>> out = np.zeros(3, np.float32)
/// >>> fold_momentum(np.float32([4, 5]), [(1, 0, 2)], np.ones(3, np.float32), 0.5, 1.0, out)
/// True
/// >>> out
/// array([0. , 4.5, 5.5], dtype=float32)
#[pyfunction]
pub fn fold_momentum(
    py: Python<'_>,
    bucket: PyReadonlyArray1<'_, f32>,
    mut places: Vec<Place>,
    momentum: PyReadonlyArray1<'_, f32>,
    beta: f32,
    scale: f32,
    mut out: PyReadwriteArray1<'_, f32>,
) -> PyResult<bool> {
    let (bucket, momentum) = (contiguous("bucket", &bucket)?, contiguous("momentum", &momentum)?);
    let out = contiguous_mut("out", &mut out)?;
    expect_length("out", out.len(), momentum.len())?;
    places.sort_unstable();
    let outs = cut(out, places.iter().map(|&(offset, _, count)| (offset, count))).ok_or_else(misplaced)?;
    let mut pieces = Vec::new();
    for (out, &(offset, start, count)) in outs.into_iter().zip(&places) {
        let (momentum, gradient) =
            part(momentum, offset, count).zip(part(bucket, start, count)).ok_or_else(misplaced)?;
        pieces.extend(out.chunks_mut(PIECE).zip(momentum.chunks(PIECE)).zip(gradient.chunks(PIECE)));
    }
    let fold = |((out, momentum), gradient): ((&mut [f32], &[f32]), &[f32])| {
        let mut strange = 0;
        for ((out, &momentum), &gradient) in out.iter_mut().zip(momentum).zip(gradient) {
            *out = beta * momentum + scale * gradient;
            strange |= u32::from(gradient.to_bits() & NOT_FINITE == NOT_FINITE);
        }
        strange == 0
    };
    Ok(py.detach(|| pieces.into_par_iter().map(fold).reduce(|| true, |all, one| all & one)))
}

/// Copies the parameters of a bucket into it from a vector in the order of the model; `places` are those of `fold_momentum`.
#[pyfunction]
pub fn fill_bucket(
    py: Python<'_>,
    vector: PyReadonlyArray1<'_, f32>,
    mut places: Vec<Place>,
    mut bucket: PyReadwriteArray1<'_, f32>,
) -> PyResult<()> {
    let (vector, bucket) = (contiguous("vector", &vector)?, contiguous_mut("bucket", &mut bucket)?);
    places.sort_unstable_by_key(|&(_, start, _)| start);
    let outs = cut(bucket, places.iter().map(|&(_, start, count)| (start, count))).ok_or_else(misplaced)?;
    let mut pieces = Vec::new();
    for (out, &(offset, _, count)) in outs.into_iter().zip(&places) {
        let from = part(vector, offset, count).ok_or_else(misplaced)?;
        pieces.extend(out.chunks_mut(PIECE).zip(from.chunks(PIECE)));
    }
    py.detach(|| pieces.into_par_iter().for_each(|(out, from)| out.copy_from_slice(from)));
    Ok(())
}
