//! A sketch whose family is chosen at run time.

use std::num::NonZeroUsize;

use crate::{
    Blocks, CommonRandomness, Family, Gaussian, Hadamard, Kernel, Purpose, Rademacher, Real, Sketch, SketchError,
};

/// Any of the sketches of this crate. The choice costs one branch a call.
#[derive(Clone, Debug)]
pub enum AnySketch {
    /// Gaussian, in either form.
    Gaussian(Gaussian),
    /// Random signs.
    Rademacher(Rademacher),
    /// Hadamard rows under random signs.
    Hadamard(Hadamard),
    /// Block by block.
    Blocks(Blocks),
}

macro_rules! each {
    ($value:expr, $name:ident => $result:expr) => {
        match $value {
            AnySketch::Gaussian($name) => $result,
            AnySketch::Rademacher($name) => $result,
            AnySketch::Hadamard($name) => $result,
            AnySketch::Blocks($name) => $result,
        }
    };
}

impl AnySketch {
    /// A sketch of the whole vector.
    pub fn new(family: Family, randomness: &CommonRandomness, dim: usize, budget: usize) -> Result<Self, SketchError> {
        Ok(match family {
            Family::Gaussian => Self::Gaussian(Gaussian::new(randomness, dim, budget)?),
            Family::GaussianStrict => Self::Gaussian(Gaussian::strict(randomness, dim, budget)?),
            Family::Rademacher => Self::Rademacher(Rademacher::new(randomness, dim, budget)?),
            Family::Hadamard => Self::Hadamard(Hadamard::new(randomness, dim, budget)?),
        })
    }

    /// A sketch of every block of `block` coordinates, with one budget a block.
    pub fn blocks(
        family: Family,
        randomness: &CommonRandomness,
        dim: usize,
        block: NonZeroUsize,
        budgets: &[usize],
    ) -> Result<Self, SketchError> {
        Ok(Self::Blocks(Blocks::new(family, randomness, dim, block, budgets)?))
    }

    /// The same sketch with the directions of another purpose, independent of these.
    pub fn with_purpose(self, purpose: Purpose) -> Self {
        match self {
            Self::Gaussian(sketch) => Self::Gaussian(sketch.with_purpose(purpose)),
            Self::Rademacher(sketch) => Self::Rademacher(sketch.with_purpose(purpose)),
            Self::Hadamard(sketch) => Self::Hadamard(sketch.with_purpose(purpose)),
            Self::Blocks(sketch) => Self::Blocks(sketch.with_purpose(purpose)),
        }
    }

    /// The same sketch, with the same bits, on another kernel.
    pub fn with_kernel(self, kernel: Kernel) -> Self {
        match self {
            Self::Gaussian(sketch) => Self::Gaussian(sketch.with_kernel(kernel)),
            Self::Rademacher(sketch) => Self::Rademacher(sketch.with_kernel(kernel)),
            Self::Hadamard(sketch) => Self::Hadamard(sketch.with_kernel(kernel)),
            Self::Blocks(sketch) => Self::Blocks(sketch.with_kernel(kernel)),
        }
    }

    /// Its family.
    pub fn family(&self) -> Family {
        each!(self, sketch => sketch.family())
    }
}

impl Sketch for AnySketch {
    fn dim(&self) -> usize {
        each!(self, sketch => sketch.dim())
    }

    fn len(&self) -> usize {
        each!(self, sketch => sketch.len())
    }

    fn project_many<T: Real>(&self, round: u64, vectors: &[&[T]], out: &mut [T]) {
        each!(self, sketch => sketch.project_many(round, vectors, out))
    }

    fn reconstruct<T: Real>(&self, round: u64, scalars: &[T], out: &mut [T]) {
        each!(self, sketch => sketch.reconstruct(round, scalars, out))
    }

    fn reconstruct_add<T: Real>(&self, round: u64, scalars: &[T], scale: T, out: &mut [T]) {
        each!(self, sketch => sketch.reconstruct_add(round, scalars, scale, out))
    }

    fn energy<T: Real>(&self, scalars: &[T]) -> T {
        each!(self, sketch => sketch.energy(scalars))
    }
}
