//! Sketches block by block: the vector is cut into blocks of coordinates, each with its own directions and budget.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::block::{BLOCKS, Block, Directions};
use crate::sketch::{check_reconstruction, check_scalars, check_vectors};
use crate::{CommonRandomness, Family, Kernel, Purpose, Real, Sketch, SketchError};

/// A sketch of every block of `block` coordinates (the last one may be shorter) with its own budget m_b.
///
/// - Formula: the scalars of block 0, then those of block 1, ...; a~_b = (1/m_b) sum_j p_bj xi_bj.
/// - Variance: the sum over blocks of the family's own with A_bb, a_b and m_b: for A = I and equal shares the same as a dense sketch of
///   the same length, up to d/B times worse where the curvature sits in one block.
/// - Cost: O(sum_b m_b B) instead of O(m d) for the dense families, and O(d log B) for Hadamard, whose memory is one block.
/// - `energy` is the sum over blocks of ||p_b||^2/m_b.
///
/// # Addresses
/// A dense family numbers its directions through all blocks: block b begins at row m_0 + ... + m_(b-1). Hadamard takes the signs and the
/// choice of rows of block b from row b.
#[derive(Clone, Debug)]
pub struct Blocks {
    directions: Directions,
    family: Family,
    dim: usize,
    block: usize,
    /// Where the scalars of each block begin, and where the last ones end.
    offsets: Vec<usize>,
}

impl Blocks {
    /// One budget a block.
    pub fn new(
        family: Family,
        randomness: &CommonRandomness,
        dim: usize,
        block: NonZeroUsize,
        budgets: &[usize],
    ) -> Result<Self, SketchError> {
        let block = block.get();
        let blocks = dim.div_ceil(block);
        if dim == 0 {
            return Err(SketchError::ZeroDimension);
        }
        if blocks > BLOCKS {
            return Err(SketchError::TooManyBlocks { blocks, limit: BLOCKS });
        }
        if budgets.len() != blocks {
            return Err(SketchError::BudgetsDoNotMatchBlocks { found: budgets.len(), blocks, dim, block });
        }
        let mut offsets = Vec::with_capacity(blocks + 1);
        offsets.push(0);
        let mut total = 0usize;
        for (b, &budget) in budgets.iter().enumerate() {
            let size = block.min(dim - b * block);
            Block::new(family, size, budget)
                .map_err(|error| SketchError::Block { block: b, error: Box::new(error) })?;
            total = total.saturating_add(budget);
            offsets.push(total);
        }
        let limit = u32::MAX as usize;
        if total > limit {
            return Err(SketchError::BudgetTooLarge { family, budget: total, limit, dim });
        }
        Ok(Self { directions: Directions::new(randomness), family, dim, block, offsets })
    }

    /// The same budget for every block; for the last, shorter one the family's most where that is less.
    pub fn uniform(
        family: Family,
        randomness: &CommonRandomness,
        dim: usize,
        block: NonZeroUsize,
        budget: usize,
    ) -> Result<Self, SketchError> {
        let blocks = dim.div_ceil(block.get());
        let mut budgets = vec![budget; blocks.min(BLOCKS + 1)];
        if let (Family::Hadamard, Some(last), false) = (family, budgets.last_mut(), dim.is_multiple_of(block.get())) {
            *last = budget.min(family.most(dim % block.get()));
        }
        Self::new(family, randomness, dim, block, &budgets)
    }

    /// The same sketch with the directions of another purpose, independent of these.
    pub fn with_purpose(mut self, purpose: Purpose) -> Self {
        self.directions.purpose = purpose;
        self
    }

    /// The same sketch, with the same bits, on another kernel.
    pub fn with_kernel(mut self, kernel: Kernel) -> Self {
        self.directions.kernel = kernel;
        self
    }

    /// The family of every block.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Coordinates in a block; the last may have fewer.
    pub fn block(&self) -> usize {
        self.block
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The coordinates and the scalars of a block, as ranges.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn ranges(&self, block: usize) -> (Range<usize>, Range<usize>) {
        let start = block * self.block;
        (start..self.dim.min(start + self.block), self.offsets[block]..self.offsets[block + 1])
    }

    fn nth(&self, block: usize) -> Block {
        let (coordinates, scalars) = self.ranges(block);
        let (index, first_row) = (block as u32, scalars.start as u32);
        let (start, dim) = (coordinates.start, coordinates.len());
        Block { family: self.family, dim, budget: scalars.len(), index, first_row, start, whole: false }
    }

    /// Projects some blocks; `out` begins with the first vector's scalars of the first of them.
    fn project_blocks<T: Real>(&self, round: u64, vectors: &[&[T]], blocks: Range<usize>, out: &mut [T]) {
        #[cfg(feature = "parallel")]
        if vectors.len() == 1
            && blocks.len() > 1
            && blocks.len() * self.block > WORTH_A_THREAD
            && rayon::current_num_threads() > 1
        {
            // The scalars of one vector lie block after block, so they can be shared out.
            let middle = blocks.start + blocks.len() / 2;
            let (left, right) = out.split_at_mut(self.offsets[middle] - self.offsets[blocks.start]);
            rayon::join(
                || self.project_blocks(round, vectors, blocks.start..middle, left),
                || self.project_blocks(round, vectors, middle..blocks.end, right),
            );
            return;
        }
        let first = self.offsets[blocks.start];
        for block in blocks {
            let (_, scalars) = self.ranges(block);
            let out = out.get_mut(scalars.start - first..).unwrap_or_default();
            T::project(&self.nth(block), &self.directions, round, vectors, out, self.len());
        }
    }

    fn rebuild<T: Real>(&self, round: u64, scalars: &[T], out: &mut [T], add: Option<T>) {
        check_reconstruction(self.dim, self.len(), scalars, out);
        for_each_block(out, self.block, |block, out| {
            let (_, range) = self.ranges(block);
            T::reconstruct(&self.nth(block), &self.directions, round, &scalars[range], out, add);
        });
    }
}

/// Coordinates below which a second thread costs more than it brings.
#[cfg(feature = "parallel")]
const WORTH_A_THREAD: usize = 1 << 16;

/// Calls `visit` for each block, on all threads where they are more than one.
fn for_each_block<T: Real>(out: &mut [T], block: usize, visit: impl Fn(usize, &mut [T]) + Send + Sync) {
    #[cfg(feature = "parallel")]
    if out.len() > WORTH_A_THREAD && rayon::current_num_threads() > 1 {
        use rayon::prelude::*;
        out.par_chunks_mut(block).enumerate().for_each(|(index, out)| visit(index, out));
        return;
    }
    for (index, out) in out.chunks_mut(block).enumerate() {
        visit(index, out);
    }
}

impl Sketch for Blocks {
    fn dim(&self) -> usize {
        self.dim
    }

    fn len(&self) -> usize {
        self.offsets[self.blocks()]
    }

    fn project_many<T: Real>(&self, round: u64, vectors: &[&[T]], out: &mut [T]) {
        check_vectors(self.dim, self.len(), vectors, out);
        self.project_blocks(round, vectors, 0..self.blocks(), out);
    }

    fn reconstruct<T: Real>(&self, round: u64, scalars: &[T], out: &mut [T]) {
        self.rebuild(round, scalars, out, None);
    }

    fn reconstruct_add<T: Real>(&self, round: u64, scalars: &[T], scale: T, out: &mut [T]) {
        self.rebuild(round, scalars, out, Some(scale));
    }

    fn energy<T: Real>(&self, scalars: &[T]) -> T {
        check_scalars(self.len(), scalars.len());
        (0..self.blocks()).map(|block| &scalars[self.ranges(block).1]).fold(T::ZERO, |sum, scalars| {
            sum + T::squares(self.directions.kernel, scalars) / T::from_f64(scalars.len() as f64)
        })
    }
}
