//! One block of coordinates under one family: the engine that every sketch is made of. What is checked and documented is the public types' business.

use std::sync::Arc;

use crate::kernel::{
    Element, Entries, Fill, Finish, Gauss16, Gauss32, Kernel, Place, Project, Reconstruct, Signs, Squares, Stream,
    TILE, Transform, aligned, flip,
};
use crate::rows::Rows;
use crate::{CommonRandomness, Family, Purpose, Real, SketchError};

/// A number type with its own compiled copy of everything below. Not generic at this point, so that the kernels are compiled once, in this crate, and not
/// again in every crate that sketches.
pub trait Engine: Element {
    fn project(part: &Part, source: &Source, round: u64, vectors: &[&[Self]], out: &mut [Self], stride: usize);
    fn reconstruct(part: &Part, source: &Source, round: u64, scalars: &[Self], out: &mut [Self], add: Option<Self>);
    fn squares(scalars: &[Self]) -> Self;
    fn transform(values: &mut [Self]);
}

macro_rules! engine {
    ($type:ty) => {
        impl Engine for $type {
            fn project(part: &Part, source: &Source, round: u64, vectors: &[&[Self]], out: &mut [Self], stride: usize) {
                part.project(source, round, vectors, out, stride);
            }

            fn reconstruct(
                part: &Part,
                source: &Source,
                round: u64,
                scalars: &[Self],
                out: &mut [Self],
                add: Option<Self>,
            ) {
                part.reconstruct(source, round, scalars, out, add);
            }

            fn squares(scalars: &[Self]) -> Self {
                Kernel::detect().run(Squares { of: scalars })
            }

            fn transform(values: &mut [Self]) {
                Kernel::detect().run(Transform { values });
            }
        }
    };
}

engine!(f32);
engine!(f64);

/// Where the randomness comes from, and on what it is computed.
#[derive(Clone, Debug)]
pub struct Source {
    randomness: Arc<CommonRandomness>,
    pub(crate) purpose: Purpose,
    pub(crate) kernel: Kernel,
}

impl Source {
    pub(crate) fn new(randomness: &CommonRandomness) -> Self {
        Self { randomness: Arc::new(randomness.clone()), purpose: Purpose::Directions, kernel: Kernel::detect() }
    }

    pub(crate) fn stream(&self, purpose: Purpose, round: u64) -> Stream {
        let mut key = [0; 8];
        for (word, bytes) in key.iter_mut().zip(self.randomness.key(purpose).as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Stream { key, round }
    }
}

/// Blocks are numbered in 28 bits, so that a purpose fits beside them in the address of a choice of rows.
pub(crate) const PARTS: usize = 1 << 28;
/// Coordinates are numbered by 32-bit blocks of 512 signs.
pub(crate) const DIMENSIONS: usize = 1 << 41;

#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(crate) family: Family,
    pub(crate) dim: usize,
    pub(crate) budget: usize,
    /// Which block this is: the address of Hadamard's signs and rows.
    pub(crate) index: u32,
    /// How many directions earlier blocks have: the address of the first direction of the dense families.
    pub(crate) first_row: u32,
}

impl Part {
    pub(crate) fn new(family: Family, dim: usize, budget: usize) -> Result<Self, SketchError> {
        if dim == 0 {
            return Err(SketchError::ZeroDimension);
        }
        if dim > DIMENSIONS {
            return Err(SketchError::DimensionTooLarge { dim, limit: DIMENSIONS });
        }
        if budget == 0 {
            return Err(SketchError::ZeroBudget);
        }
        let limit = match family {
            Family::Hadamard => dim.next_power_of_two(),
            _ => u32::MAX as usize,
        };
        if budget > limit {
            return Err(SketchError::BudgetTooLarge { family, budget, limit, dim });
        }
        Ok(Self { family, dim, budget, index: 0, first_row: 0 })
    }

    /// Writes scalar j of vector i over `out[i * stride + j]`.
    fn project<T: Real>(&self, source: &Source, round: u64, vectors: &[&[T]], out: &mut [T], stride: usize) {
        if vectors.is_empty() {
            return;
        }
        match self.family {
            Family::Gaussian => self.project_dense(source, Gauss16, round, vectors, out, stride),
            Family::GaussianStrict => self.project_dense(source, Gauss32, round, vectors, out, stride),
            Family::Rademacher => self.project_dense(source, Signs, round, vectors, out, stride),
            Family::Hadamard => self.project_hadamard(source, round, vectors, out, stride),
        }
    }

    /// Replaces or adds to each coordinate of `out`, as `finish` says.
    fn reconstruct<T: Real>(&self, source: &Source, round: u64, scalars: &[T], out: &mut [T], add: Option<T>) {
        let finish = Finish { divisor: T::from_f64(self.budget as f64), add };
        match self.family {
            Family::Gaussian => self.reconstruct_dense(source, Gauss16, round, scalars, out, finish),
            Family::GaussianStrict => self.reconstruct_dense(source, Gauss32, round, scalars, out, finish),
            Family::Rademacher => self.reconstruct_dense(source, Signs, round, scalars, out, finish),
            Family::Hadamard => self.reconstruct_hadamard(source, round, scalars, out, finish),
        }
    }

    /// Writes the entries of direction `row` over `out`.
    pub(crate) fn direction(&self, source: &Source, round: u64, row: usize, out: &mut [f32]) {
        match self.family {
            Family::Gaussian => self.direction_dense(source, Gauss16, round, row, out),
            Family::GaussianStrict => self.direction_dense(source, Gauss32, round, row, out),
            Family::Rademacher => self.direction_dense(source, Signs, round, row, out),
            Family::Hadamard => {
                let mut rows = Vec::with_capacity(self.budget);
                self.rows(source, round).for_each(|row| rows.push(row));
                for (c, out) in out.iter_mut().enumerate() {
                    *out = if (rows[row] & c).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                }
                source.kernel.run(flip(source.stream(source.purpose, round), self.index, out));
            }
        }
    }

    fn direction_dense<E: Entries>(&self, source: &Source, entries: E, round: u64, row: usize, out: &mut [f32]) {
        let stream = source.stream(source.purpose, round);
        let row = self.first_row.wrapping_add(row as u32);
        let mut buffer = vec![0.0; TILE];
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let buffer = &mut buffer[..out.len().next_multiple_of(64)];
            source.kernel.run(Fill { entries, stream, row, tile, out: buffer });
            out.copy_from_slice(&buffer[..out.len()]);
        }
    }

    fn project_dense<E: Entries, T: Real>(
        &self,
        source: &Source,
        entries: E,
        round: u64,
        vectors: &[&[T]],
        out: &mut [T],
        stride: usize,
    ) {
        let stream = source.stream(source.purpose, round);
        let first_row = self.first_row;
        #[cfg(feature = "parallel")]
        if let Some(threads) = threads(self.dim.saturating_mul(self.budget).saturating_mul(vectors.len())) {
            use rayon::prelude::*;
            // Each thread makes its own rows for all vectors; a row is summed by one thread, so the bits do not depend on how many there are.
            let share = self.budget.div_ceil(threads).next_multiple_of(4);
            let shares: Vec<Vec<T>> = (0..self.budget.div_ceil(share))
                .into_par_iter()
                .map(|index| {
                    let rows = index * share..self.budget.min((index + 1) * share);
                    let stride = rows.len();
                    let mut part = vec![T::ZERO; stride * vectors.len()];
                    source.kernel.run(Project { entries, stream, first_row, rows, vectors, out: &mut part, stride });
                    part
                })
                .collect();
            for (index, part) in shares.iter().enumerate() {
                let rows = part.len() / vectors.len();
                for (i, scalars) in part.chunks(rows).enumerate() {
                    out[i * stride + index * share..][..rows].copy_from_slice(scalars);
                }
            }
            return;
        }
        source.kernel.run(Project { entries, stream, first_row, rows: 0..self.budget, vectors, out, stride });
    }

    fn reconstruct_dense<E: Entries, T: Real>(
        &self,
        source: &Source,
        entries: E,
        round: u64,
        scalars: &[T],
        out: &mut [T],
        finish: Finish<T>,
    ) {
        let stream = source.stream(source.purpose, round);
        let first_row = self.first_row;
        #[cfg(feature = "parallel")]
        if let Some(threads) = threads(self.dim.saturating_mul(self.budget)) {
            use rayon::prelude::*;
            let share = self.dim.div_ceil(TILE).div_ceil(threads);
            out.par_chunks_mut(share * TILE).enumerate().for_each(|(index, out)| {
                let first_tile = index * share;
                source.kernel.run(Reconstruct { entries, stream, first_row, scalars, first_tile, out, finish });
            });
            return;
        }
        source.kernel.run(Reconstruct { entries, stream, first_row, scalars, first_tile: 0, out, finish });
    }

    fn project_hadamard<T: Real>(&self, source: &Source, round: u64, vectors: &[&[T]], out: &mut [T], stride: usize) {
        let rows = self.rows(source, round);
        let stream = source.stream(source.purpose, round);
        let mut store = Vec::new();
        let values = aligned(&mut store, self.dim.next_power_of_two());
        for (vector, out) in vectors.iter().zip(out.chunks_mut(stride)) {
            let (head, tail) = values.split_at_mut(self.dim);
            head.copy_from_slice(vector);
            tail.fill(T::ZERO);
            source.kernel.run(flip(stream, self.index, head));
            source.kernel.run(Transform { values: &mut *values });
            let mut next = out.iter_mut();
            rows.for_each(|row| {
                if let Some(scalar) = next.next() {
                    *scalar = values[row];
                }
            });
        }
    }

    fn reconstruct_hadamard<T: Real>(
        &self,
        source: &Source,
        round: u64,
        scalars: &[T],
        out: &mut [T],
        finish: Finish<T>,
    ) {
        let rows = self.rows(source, round);
        let stream = source.stream(source.purpose, round);
        let mut store = Vec::new();
        let values = aligned(&mut store, self.dim.next_power_of_two());
        let mut next = scalars.iter();
        rows.for_each(|row| {
            if let Some(&scalar) = next.next() {
                values[row] = scalar;
            }
        });
        source.kernel.run(Transform { values: &mut *values });
        let values = &mut values[..self.dim];
        source.kernel.run(flip(stream, self.index, &mut *values));
        source.kernel.run(Place { sums: values, out, finish });
    }

    fn rows(&self, source: &Source, round: u64) -> Rows {
        let stream = source.stream(Purpose::Rows, round);
        let address = self.index | (source.purpose as u32) << 28;
        Rows::choose(source.kernel, stream, address, self.dim.next_power_of_two(), self.budget)
    }
}

/// How many threads this much work deserves, where that is more than one.
#[cfg(feature = "parallel")]
fn threads(entries: usize) -> Option<usize> {
    /// Entries (rows times coordinates times vectors) below which a thread costs more than it brings: about 0.1 ms.
    const WORTH_A_THREAD: usize = 1 << 18;
    let threads = rayon::current_num_threads().min(entries / WORTH_A_THREAD);
    (threads > 1).then_some(threads)
}
