//! One block of coordinates under one family: the engine that every sketch is made of. What is checked and documented is the public
//! types' business.

use std::ops::Range;
use std::sync::Arc;

use crate::kernel::{
    Columns, Element, Entries, Fill, Finish, FinishRows, Flip, Gauss16, Gauss32, Inlet, Kernel, Leave, Order, Outlet,
    Project, Reconstruct, Room, STRIP, Sample, Signs, SignsAt, Squares, Stream, TILE, Transform, Write,
};
use crate::rows::Rows;
use crate::scratch::{Place, with_kept, with_numbers, with_rows};
use crate::{CommonRandomness, Family, Purpose, Real, SketchError};

/// A number type with its own compiled copy of everything below. Not generic at this point, so that the kernels are compiled once, in
/// this crate, and not again in every crate that sketches.
pub trait Engine: Element {
    fn project(
        block: &Block,
        directions: &Directions,
        round: u64,
        vectors: &[&[Self]],
        out: &mut [Self],
        stride: usize,
    );
    fn reconstruct(
        block: &Block,
        directions: &Directions,
        round: u64,
        scalars: &[Self],
        out: &mut [Self],
        add: Option<Self>,
    );
    fn squares(kernel: Kernel, scalars: &[Self]) -> Self;
    fn transform(values: &mut [Self]);
}

macro_rules! engine {
    ($type:ty) => {
        impl Engine for $type {
            fn project(
                block: &Block,
                directions: &Directions,
                round: u64,
                vectors: &[&[Self]],
                out: &mut [Self],
                stride: usize,
            ) {
                block.project(directions, round, vectors, out, stride);
            }

            fn reconstruct(
                block: &Block,
                directions: &Directions,
                round: u64,
                scalars: &[Self],
                out: &mut [Self],
                add: Option<Self>,
            ) {
                block.reconstruct(directions, round, scalars, out, add);
            }

            fn squares(kernel: Kernel, scalars: &[Self]) -> Self {
                kernel.run(Squares { of: scalars })
            }

            fn transform(values: &mut [Self]) {
                transform(Kernel::detect(), values);
            }
        }
    };
}

engine!(f32);
engine!(f64);

/// Where the randomness comes from, and on what it is computed.
#[derive(Clone, Debug)]
pub struct Directions {
    randomness: Arc<CommonRandomness>,
    pub(crate) purpose: Purpose,
    pub(crate) kernel: Kernel,
}

impl Directions {
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
pub(crate) const BLOCKS: usize = 1 << 28;
/// Coordinates are numbered by 32-bit blocks of 512 signs.
pub(crate) const DIMENSIONS: usize = 1 << 41;

#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub(crate) family: Family,
    pub(crate) dim: usize,
    pub(crate) budget: usize,
    /// Which block this is: the address of Hadamard's signs and rows.
    pub(crate) index: u32,
    /// How many directions earlier blocks have: the address of the first direction of the dense families.
    pub(crate) first_row: u32,
    /// The first of its coordinates.
    pub(crate) start: usize,
    /// Whether it is all of a sketch.
    pub(crate) whole: bool,
}

/// Entries that a thread keeps for the next call, at most: 2 MB, which is about what a core has for itself.
const MOST_KEPT: usize = 1 << 19;

/// What the entries of directions follow from, and the kernel, so that each is tested with its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    kernel: Kernel,
    family: Family,
    stream: Stream,
    first_row: u32,
    dim: usize,
    budget: usize,
}

impl Block {
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
        let limit = family.most(dim);
        if budget > limit {
            return Err(SketchError::BudgetTooLarge { family, budget, limit, dim });
        }
        Ok(Self { family, dim, budget, index: 0, first_row: 0, start: 0, whole: true })
    }

    /// Writes scalar j of vector i over `out[i * stride + j]`.
    fn project<T: Real>(&self, directions: &Directions, round: u64, vectors: &[&[T]], out: &mut [T], stride: usize) {
        if vectors.is_empty() {
            return;
        }
        match self.family {
            Family::Gaussian => self.project_dense(directions, Gauss16, round, vectors, out, stride),
            Family::GaussianStrict => self.project_dense(directions, Gauss32, round, vectors, out, stride),
            Family::Rademacher => self.project_dense(directions, Signs, round, vectors, out, stride),
            Family::Hadamard => self.project_hadamard(directions, round, vectors, out, stride),
        }
    }

    /// Replaces or adds to each coordinate of `out`, as `finish` says.
    fn reconstruct<T: Real>(&self, directions: &Directions, round: u64, scalars: &[T], out: &mut [T], add: Option<T>) {
        let finish = Finish::new(self.budget, add);
        match self.family {
            Family::Gaussian => self.reconstruct_dense(directions, Gauss16, round, scalars, out, finish),
            Family::GaussianStrict => self.reconstruct_dense(directions, Gauss32, round, scalars, out, finish),
            Family::Rademacher => self.reconstruct_dense(directions, Signs, round, scalars, out, finish),
            Family::Hadamard => self.reconstruct_hadamard(directions, round, scalars, out, finish),
        }
    }

    /// Writes the entries of direction `row` over `out`.
    pub(crate) fn direction(&self, directions: &Directions, round: u64, row: usize, out: &mut [f32]) {
        match self.family {
            Family::Gaussian => self.direction_dense(directions, Gauss16, round, row, out),
            Family::GaussianStrict => self.direction_dense(directions, Gauss32, round, row, out),
            Family::Rademacher => self.direction_dense(directions, Signs, round, row, out),
            Family::Hadamard => {
                let (mut rows, order) = (Rows::new(), Order::covering(self.dim));
                self.choose(directions, round, &mut rows);
                let mut chosen = Vec::with_capacity(self.budget);
                rows.for_each(|row| chosen.push(row));
                let unsigned: Vec<f32> =
                    (0..self.dim).map(|c| if order.is_negative(chosen[row], c) { -1.0 } else { 1.0 }).collect();
                directions.kernel.run(Flip { signs: self.signs(directions, round), from: &unsigned, to: out });
            }
        }
    }

    fn direction_dense<E: Entries>(
        &self,
        directions: &Directions,
        entries: E,
        round: u64,
        row: usize,
        out: &mut [f32],
    ) {
        let stream = directions.stream(directions.purpose, round);
        let row = self.first_row.wrapping_add(row as u32);
        let mut buffer = vec![0.0; TILE];
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let buffer = &mut buffer[..out.len().next_multiple_of(64)];
            directions.kernel.run(Fill { entries, stream, row, tile, out: buffer });
            out.copy_from_slice(&buffer[..out.len()]);
        }
    }

    fn project_dense<E: Entries, T: Real>(
        &self,
        directions: &Directions,
        entries: E,
        round: u64,
        vectors: &[&[T]],
        out: &mut [T],
        stride: usize,
    ) {
        let stream = directions.stream(directions.purpose, round);
        let (first_row, start, dim) = (self.first_row, self.start, self.dim);
        let project = |rows: Range<usize>, out: &mut [T], stride: usize, room: Room<'_>, numbers: &mut [T]| {
            let task = Project { entries, stream, first_row, rows, vectors, start, dim, out, stride, room, numbers };
            directions.kernel.run(task);
        };
        let lens = E::projection_scratch(dim, vectors.len());
        let shares =
            shares(self.budget.div_ceil(E::ROWS), self.dim.saturating_mul(self.budget).saturating_mul(vectors.len()));
        if shares == 1 {
            return self.with_room::<E, T>(directions.kernel, stream, lens, |room, numbers| {
                project(0..self.budget, out, stride, room, numbers);
            });
        }
        let project = |rows: Range<usize>, out: &mut [T], stride: usize| {
            with_scratch(lens, |floats, numbers| project(rows, out, stride, Room::Few(floats), numbers));
        };
        // Each share is of whole rows for all vectors; a row is summed by one thread, so the bits do not depend on how many there are.
        let share = self.budget.div_ceil(shares).next_multiple_of(E::ROWS);
        let rows = |k: usize| self.budget.min(k * share);
        let shares = 0..self.budget.div_ceil(share);
        if vectors.len() == 1 {
            let out = &mut out[..self.budget];
            return each_share(shares, out, &rows, &|k, out| project(rows(k)..rows(k + 1), out, 0));
        }
        with_numbers(Place::Whole, self.budget * vectors.len(), |parts| {
            each_share(shares.clone(), parts, &|k| rows(k) * vectors.len(), &|k, part| {
                project(rows(k)..rows(k + 1), part, rows(k + 1) - rows(k));
            });
            for k in shares {
                let (from, count) = (rows(k), rows(k + 1) - rows(k));
                let part = &parts[from * vectors.len()..][..count * vectors.len()];
                for (i, scalars) in part.chunks(count).enumerate() {
                    out[i * stride + from..][..count].copy_from_slice(scalars);
                }
            }
        });
    }

    fn reconstruct_dense<E: Entries, T: Real>(
        &self,
        directions: &Directions,
        entries: E,
        round: u64,
        scalars: &[T],
        out: &mut [T],
        finish: Finish<T>,
    ) {
        let stream = directions.stream(directions.purpose, round);
        let first_row = self.first_row;
        let reconstruct = |first_tile: usize, out: &mut [T], room: Room<'_>, numbers: &mut [T]| {
            let task = Reconstruct { entries, stream, first_row, scalars, first_tile, out, finish, room, numbers };
            directions.kernel.run(task);
        };
        let tiles = self.dim.div_ceil(TILE);
        let shares = shares(tiles, self.dim.saturating_mul(self.budget));
        if shares == 1 {
            let lens = E::reconstruction_scratch(self.dim);
            return self.with_room::<E, T>(directions.kernel, stream, lens, |room, numbers| {
                reconstruct(0, out, room, numbers);
            });
        }
        let share = tiles.div_ceil(shares);
        let bound = |k: usize| self.dim.min(k * share * TILE);
        each_share(0..tiles.div_ceil(share), out, &bound, &|k, out| {
            with_scratch(E::reconstruction_scratch(out.len()), |floats, numbers| {
                reconstruct(k * share, out, Room::Few(floats), numbers);
            });
        });
    }

    /// Room for all entries of a round where they are few and dear, so that what follows on this thread need not make them again: the
    /// round's reconstruction, and the other machines that this thread simulates. Else, room to work in.
    fn with_room<E: Entries, T: Real>(
        &self,
        kernel: Kernel,
        stream: Stream,
        lens: (usize, usize),
        work: impl FnOnce(Room<'_>, &mut [T]),
    ) {
        let Self { family, dim, budget, first_row, .. } = *self;
        let kept = E::kept(dim, budget).filter(|&kept| self.whole && kept <= MOST_KEPT);
        let Some(kept) = kept else {
            return with_scratch(lens, |floats, numbers| work(Room::Few(floats), numbers));
        };
        with_kept(Address { kernel, family, stream, first_row, dim, budget }, kept, |floats, made| {
            with_numbers(Place::Row, lens.1, |numbers| work(Room::All(floats, made), numbers));
        });
    }

    fn project_hadamard<T: Real>(
        &self,
        directions: &Directions,
        round: u64,
        vectors: &[&[T]],
        out: &mut [T],
        stride: usize,
    ) {
        let (order, signs, kernel) = (Order::covering(self.dim), self.signs(directions, round), directions.kernel);
        let coordinates = self.start..self.start + self.dim;
        with_rows(|rows| {
            self.choose(directions, round, rows);
            let rows = &*rows;
            if order.rows() == 1 {
                let shares = shares(vectors.len(), ENTRIES_PER_COORDINATE * order.len().saturating_mul(vectors.len()));
                let share = vectors.len().div_ceil(shares);
                let len = out.len();
                let bound = |k: usize| len.min(k * share * stride);
                each_share(0..vectors.len().div_ceil(share), out, &bound, &|k, out| {
                    with_numbers(Place::Row, order.len(), |values| {
                        for (vector, out) in vectors[k * share..].iter().zip(out.chunks_mut(stride)) {
                            kernel.run(Flip { signs, from: &vector[coordinates.clone()], to: values });
                            kernel.run(Transform { values, out: Sample { rows, out, taken: 0 } });
                        }
                    });
                });
                return;
            }
            with_numbers(Place::Whole, order.len(), |strips| {
                for (vector, out) in vectors.iter().zip(out.chunks_mut(stride)) {
                    let vector = &vector[coordinates.clone()];
                    make_strips(kernel, order, Inlet::Vector(vector, Some(signs)), strips);
                    let bound = |row: usize| rows.rank(row * order.columns() / STRIP);
                    finish_rows(kernel, order, strips, &[], &mut out[..self.budget], &bound, &|_, out| Sample {
                        rows,
                        out,
                        taken: 0,
                    });
                }
            });
        });
    }

    fn reconstruct_hadamard<T: Real>(
        &self,
        directions: &Directions,
        round: u64,
        scalars: &[T],
        out: &mut [T],
        finish: Finish<T>,
    ) {
        let (order, signs, kernel) =
            (Order::covering(self.dim), Some(self.signs(directions, round)), directions.kernel);
        with_rows(|rows| {
            self.choose(directions, round, rows);
            if order.rows() == 1 {
                with_numbers(Place::Row, order.len(), |values| {
                    values.fill(T::ZERO);
                    let mut next = scalars.iter();
                    rows.for_each(|row| {
                        if let Some(&scalar) = next.next() {
                            values[row] = scalar;
                        }
                    });
                    kernel.run(Transform { values, out: Write { signs, first: 0, out, finish } });
                });
                return;
            }
            rows.mark_lines(order);
            let rows = &*rows;
            with_numbers(Place::Whole, order.len(), |strips| {
                make_strips(kernel, order, Inlet::Scalars(scalars, rows), strips);
                let bound = |row: usize| self.dim.min(row * order.columns());
                finish_rows(kernel, order, strips, rows.all_lines(), out, &bound, &|first, out| Write {
                    signs,
                    first,
                    out,
                    finish,
                });
            });
        });
    }

    /// The rows of the Hadamard matrix in this round.
    fn choose(&self, directions: &Directions, round: u64, rows: &mut Rows) {
        let stream = directions.stream(Purpose::Rows, round);
        let address = self.index | (directions.purpose as u32) << 28;
        rows.choose(directions.kernel, stream, address, Order::covering(self.dim).len(), self.budget);
    }

    /// The signs of the Hadamard family in this round.
    fn signs(&self, directions: &Directions, round: u64) -> SignsAt {
        SignsAt { stream: directions.stream(directions.purpose, round), row: self.index }
    }
}

/// Calls `work` with places for entries and for sums.
fn with_scratch<T: Real, R>(lens: (usize, usize), work: impl FnOnce(&mut [f32], &mut [T]) -> R) -> R {
    with_numbers(Place::Entries, lens.0, |floats| with_numbers(Place::Row, lens.1, |numbers| work(floats, numbers)))
}

/// The Hadamard transform in place, without a factor.
fn transform<T: Real>(kernel: Kernel, values: &mut [T]) {
    let order = Order::power(values.len());
    // Alone, a thread is as fast in place.
    if order.rows() == 1 || shares(order.rows(), ENTRIES_PER_COORDINATE * order.len()) == 1 {
        return kernel.run(Transform { values, out: Leave });
    }
    with_numbers(Place::Whole, values.len(), |strips| {
        make_strips(kernel, order, Inlet::Vector(values, None), strips);
        let finish = Finish::new(1, None);
        let bound = |row: usize| row * order.columns();
        finish_rows(kernel, order, strips, &[], values, &bound, &|first, out| Write {
            signs: None,
            first,
            out,
            finish,
        });
    });
}

/// The first half of a large transform, on all threads.
fn make_strips<T: Real>(kernel: Kernel, order: Order, inlet: Inlet<'_, T>, strips: &mut [T]) {
    let (count, size) = (order.columns() / STRIP, order.rows() * STRIP);
    let shares = shares(count, ENTRIES_PER_COORDINATE * order.len());
    let share = count.div_ceil(shares);
    let bound = |k: usize| count.min(k * share) * size;
    each_share(0..count.div_ceil(share), strips, &bound, &|k, out| {
        kernel.run(Columns { order, inlet, first: k * share, out });
    });
}

/// The second half, on all threads: the rows from `r` on begin at `bound(r)` of `out`, and `outlet` says what to do with them.
fn finish_rows<'a, T: Real, O: Outlet<T>>(
    kernel: Kernel,
    order: Order,
    strips: &[T],
    lines: &[u32],
    out: &'a mut [T],
    bound: &(impl Fn(usize) -> usize + Sync),
    outlet: &(impl Fn(usize, &'a mut [T]) -> O + Sync),
) {
    let shares = shares(order.rows(), ENTRIES_PER_COORDINATE * order.len());
    let share = order.rows().div_ceil(shares);
    let first = |k: usize| order.rows().min(k * share);
    each_share(0..order.rows().div_ceil(share), out, &|k| bound(first(k)), &|k, out: &'a mut [T]| {
        with_numbers(Place::Row, order.columns(), |row| {
            let rows = first(k)..first(k + 1);
            let out = outlet(rows.start * order.columns(), out);
            kernel.run(FinishRows { order, strips, lines, rows, row, out });
        });
    });
}

/// How much more a coordinate of a Hadamard transform takes than an entry of a dense direction.
const ENTRIES_PER_COORDINATE: usize = 4;

/// Into how many shares this much work (in entries of directions) is divided: one where a thread would cost more than it brings, and
/// otherwise a few for each thread, so that they end together.
fn shares(most: usize, entries: usize) -> usize {
    #[cfg(feature = "parallel")]
    {
        /// About 0.05 ms.
        const WORTH_A_THREAD: usize = 1 << 18;
        let threads = rayon::current_num_threads();
        if threads > 1 && entries >= 2 * WORTH_A_THREAD {
            return most.min(4 * threads).min(entries / WORTH_A_THREAD).max(1);
        }
    }
    let _ = (most, entries);
    1
}

/// Calls `visit` with the number of each share and its part of `out`, which begins where `bound` says; on all threads where there is more
/// than one share.
fn each_share<'a, T: Send>(
    shares: Range<usize>,
    out: &'a mut [T],
    bound: &(impl Fn(usize) -> usize + Sync),
    visit: &(impl Fn(usize, &'a mut [T]) + Sync),
) {
    if shares.len() <= 1 {
        return visit(shares.start, out);
    }
    let middle = shares.start + shares.len() / 2;
    let (left, right) = out.split_at_mut(bound(middle) - bound(shares.start));
    #[cfg(feature = "parallel")]
    rayon::join(
        || each_share(shares.start..middle, left, bound, visit),
        || each_share(middle..shares.end, right, bound, visit),
    );
    #[cfg(not(feature = "parallel"))]
    {
        each_share(shares.start..middle, left, bound, visit);
        each_share(middle..shares.end, right, bound, visit);
    }
}
