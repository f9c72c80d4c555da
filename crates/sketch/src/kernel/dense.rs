//! What is asked of dense directions, whatever their entries: inner products, sums of multiples, and the entries themselves.

use std::ops::Range;

use super::chacha::Stream;
use super::{Operation, Simd};
use crate::Real;

/// Coordinates between two seedings of the generators; work is shared out in whole ones.
pub(crate) const TILE: usize = 4096;

/// How the entries of a direction follow from its address, and how one computes with them.
pub(crate) trait Entries: Copy + Send + Sync {
    /// Rows that a projection makes together.
    const ROWS: usize;

    /// Places to work in for a projection: numbers of 32 bits, and of the vector's type.
    fn projection_scratch(dim: usize, vectors: usize) -> (usize, usize);
    /// The same for a reconstruction.
    fn reconstruction_scratch(dim: usize) -> (usize, usize);

    /// Places for all entries of `rows` directions, where they are dearer to make than to read again.
    fn kept(dim: usize, rows: usize) -> Option<usize>;

    /// The sums are 0 at first.
    fn project<S: Simd, T: Real>(self, simd: S, task: Project<'_, Self, T>);
    fn reconstruct<S: Simd, T: Real>(self, simd: S, task: Reconstruct<'_, Self, T>);
    fn fill<S: Simd>(self, simd: S, task: Fill<'_, Self>);
}

/// Where entries are on their way from generator to arithmetic.
pub(crate) enum Room<'a> {
    /// A place for a few, used again and again.
    Few(&'a mut [f32]),
    /// A place for all, see [`Entries::kept`], and whether they are there already.
    All(&'a mut [f32], bool),
}

impl Room<'_> {
    /// Whether all entries are there, so that no generator is needed.
    #[inline(always)]
    pub(super) fn is_made(&self) -> bool {
        matches!(self, Room::All(_, true))
    }

    /// The next `len` places.
    #[inline(always)]
    pub(super) fn next(&mut self, len: usize) -> &mut [f32] {
        match self {
            Room::Few(places) => &mut places[..len],
            Room::All(places, _) => {
                let (next, rest) = std::mem::take(places).split_at_mut(len);
                *places = rest;
                next
            }
        }
    }
}

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
    /// To work in, see [`Entries::projection_scratch`].
    pub(crate) room: Room<'a>,
    pub(crate) numbers: &'a mut [T],
}

impl<E: Entries, T: Real> Operation for Project<'_, E, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for i in 0..self.vectors.len() {
            self.out[i * self.stride..][..self.rows.len()].fill(T::default());
        }
        self.entries.project(simd, self);
    }
}

/// For each coordinate of `out`, the sum over all rows of scalar times entry.
pub(crate) struct Reconstruct<'a, E, T> {
    pub(crate) entries: E,
    pub(crate) stream: Stream,
    pub(crate) first_row: u32,
    pub(crate) scalars: &'a [T],
    /// The number of the tile where `out` begins.
    pub(crate) first_tile: usize,
    pub(crate) out: &'a mut [T],
    pub(crate) finish: Finish<T>,
    /// To work in, see [`Entries::reconstruction_scratch`].
    pub(crate) room: Room<'a>,
    pub(crate) numbers: &'a mut [T],
}

impl<E: Entries, T: Real> Operation for Reconstruct<'_, E, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.entries.reconstruct(simd, self);
    }
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
        self.entries.fill(simd, self);
    }
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
    pub(super) fn all<S: Simd>(&self, simd: S, sums: &[T], out: &mut [T]) {
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
