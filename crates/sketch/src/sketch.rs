//! What a sketch is: the trait, its laws, and why a constructor may refuse. The families say how the directions look.

use crate::{Family, Real};

#[allow(clippy::len_without_is_empty)] // A sketch has at least one scalar.
/// A random linear map from R^dim to R^len, the same for all holders of a seed, and its transpose.
///
/// In every round there are `len` directions xi_j with E[xi_j xi_j'] = I. `project` gives p_j = <a, xi_j>, and `reconstruct` gives (1/m)
/// sum_j p_j xi_j (block by block for [`Blocks`](crate::Blocks)), so that the mean of `reconstruct(project(a))` over rounds is a.
///
/// Laws:
/// - `project` is linear up to rounding, so the sum of sketches is the sketch of the sum.
/// - What comes out depends on the seed, the purpose, the round and the input alone: not on the kernel, the number of threads, or earlier
///   calls. Every bit, that is, but for those of a NaN.
/// - `project_many` gives the bits of `project`, and `reconstruct_add` adds the bits of `reconstruct`.
///
/// A NaN or an infinity in the vector flows into the scalars, and from non-finite scalars follow non-finite coordinates: nothing panics,
/// and nothing is hidden. Whoever sends scalars checks them.
pub trait Sketch {
    /// The length of the vectors, d.
    fn dim(&self) -> usize;

    /// The number of scalars, the budget m. Never 0.
    fn len(&self) -> usize;

    /// Writes the scalars of `vector` over `out`.
    ///
    /// # Panics
    /// If `vector` has not `dim` numbers or `out` has not `len`.
    fn project<T: Real>(&self, round: u64, vector: &[T], out: &mut [T]) {
        self.project_many(round, &[vector], out);
    }

    /// Writes the scalars of each vector over `out`, those of the first vector first. The directions are made once for all vectors.
    ///
    /// # Panics
    /// If a vector has not `dim` numbers or `out` has not `len` for each vector.
    fn project_many<T: Real>(&self, round: u64, vectors: &[&[T]], out: &mut [T]);

    /// Writes the reconstruction, the factor 1/m included, over `out`.
    ///
    /// # Panics
    /// If `scalars` has not `len` numbers or `out` has not `dim`.
    fn reconstruct<T: Real>(&self, round: u64, scalars: &[T], out: &mut [T]);

    /// Adds `scale` times the reconstruction to `out`, with one rounding a coordinate.
    ///
    /// # Panics
    /// If `scalars` has not `len` numbers or `out` has not `dim`.
    fn reconstruct_add<T: Real>(&self, round: u64, scalars: &[T], scale: T, out: &mut [T]);

    /// <a, reconstruct(p)> for p = project(a), from the scalars alone: ||p||^2/m, and for blocks the sum of ||p_b||^2/m_b.
    ///
    /// # Panics
    /// If `scalars` has not `len` numbers.
    fn energy<T: Real>(&self, scalars: &[T]) -> T;
}

pub(crate) fn check_vectors<T>(dim: usize, len: usize, vectors: &[&[T]], out: &[T]) {
    for vector in vectors {
        assert!(vector.len() == dim, "the vector has {} numbers, the sketch is for {dim}", vector.len());
    }
    let want = len * vectors.len();
    assert!(out.len() == want, "the scalars' buffer has {} places, the sketch gives {want}", out.len());
}

pub(crate) fn check_scalars(len: usize, scalars: usize) {
    assert!(scalars == len, "{scalars} scalars were given, the sketch has {len}");
}

pub(crate) fn check_reconstruction<T>(dim: usize, len: usize, scalars: &[T], out: &[T]) {
    check_scalars(len, scalars.len());
    assert!(out.len() == dim, "the vector's buffer has {} places, the sketch is for {dim}", out.len());
}

/// Why there is no such sketch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SketchError {
    /// There is no vector.
    #[error("the dimension is 0: there is nothing to sketch")]
    ZeroDimension,
    /// There are no scalars.
    #[error("the budget is 0: a sketch needs at least one scalar")]
    ZeroBudget,
    /// More coordinates than there are addresses.
    #[error("the dimension {dim} is above {limit}, the last address")]
    DimensionTooLarge {
        /// What was asked.
        dim: usize,
        /// What there is.
        limit: usize,
    },
    /// More scalars than the family has directions.
    #[error("a budget of {budget} is above {limit}, the most that `{family}` allows at dimension {dim}")]
    BudgetTooLarge {
        /// Whose limit it is.
        family: Family,
        /// What was asked.
        budget: usize,
        /// What is allowed.
        limit: usize,
        /// Of the vector, or of the block.
        dim: usize,
    },
    /// As many budgets as blocks are needed.
    #[error("{found} budgets for {blocks} blocks ({dim} coordinates in blocks of {block})")]
    BudgetsDoNotMatchBlocks {
        /// How many were given.
        found: usize,
        /// How many are needed.
        blocks: usize,
        /// The dimension.
        dim: usize,
        /// The size of a block.
        block: usize,
    },
    /// One block of many is wrong.
    #[error("block {block}: {error}")]
    Block {
        /// Which, from 0.
        block: usize,
        /// What is wrong with it.
        error: Box<SketchError>,
    },
    /// More blocks than there are addresses.
    #[error("{blocks} blocks are above {limit}, the last address; make the blocks larger")]
    TooManyBlocks {
        /// How many there would be.
        blocks: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// A name that no family has.
    #[error("there is no family `{name}`; there are `gaussian`, `gaussian-strict`, `rademacher` and `hadamard`")]
    UnknownFamily {
        /// The name.
        name: String,
    },
}
