//! The families of directions: what they are called, and one type for each. How their entries are made is the kernels' business.

use std::fmt;
use std::str::FromStr;

use crate::block::{Block, Directions};
use crate::kernel::Order;
use crate::sketch::{check_reconstruction, check_scalars, check_vectors};
use crate::{CommonRandomness, Kernel, Purpose, Real, Sketch, SketchError};

/// How directions are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// [`Gaussian::new`].
    Gaussian,
    /// [`Gaussian::strict`].
    GaussianStrict,
    /// [`Rademacher`].
    Rademacher,
    /// [`Hadamard`].
    Hadamard,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 4] = [Family::Gaussian, Family::GaussianStrict, Family::Rademacher, Family::Hadamard];

    /// The name in job files: `gaussian`, `gaussian-strict`, `rademacher` or `hadamard`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gaussian => "gaussian",
            Family::GaussianStrict => "gaussian-strict",
            Family::Rademacher => "rademacher",
            Family::Hadamard => "hadamard",
        }
    }

    /// The largest budget at this dimension. For [`Hadamard`] it is the order D of its matrix, and with so many scalars nothing is lost.
    pub fn most(self, dim: usize) -> usize {
        match self {
            Family::Hadamard => Order::covering(dim).len(),
            _ => u32::MAX as usize,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Family {
    type Err = SketchError;

    fn from_str(name: &str) -> Result<Self, SketchError> {
        let found = Self::ALL.into_iter().find(|family| family.name() == name);
        found.ok_or_else(|| SketchError::UnknownFamily { name: name.to_owned() })
    }
}

/// Directions with independent standard normal entries: the paper's own, and the one whose scalars have a known distribution.
///
/// - Formula: p_j = <a, xi_j> is N(0, ||a||^2), independent over j.
/// - Variance: E||a~ - a||_A^2 = (tr(A) ||a||^2 + ||a||_A^2)/m.
/// - Cost: O(m d); no memory beyond a tile.
/// - Reference: Yue et al., *CORE: Common Random Reconstruction for Distributed Optimization with Provable Low Communication Complexity*,
///   Algorithm 1; the entries are quantiles, or Box and Muller's (1958), of xoshiro128++ (Blackman and Vigna, 2021), seeded from
///   ChaCha12.
///
/// # Addresses
/// Row j in tile t (coordinates 4096 t to 4096 t + 4095) is made by sixteen generators xoshiro128++. Word i of the state of generator l
/// is word l of block 4 t + i of the ChaCha12 key stream at (purpose, round, row j), the same that [`CommonRandomness::words`] reads.
/// `known-answers.txt` beside this crate pins the words, the entries, the projections and the reconstructions.
#[derive(Clone, Debug)]
pub struct Gaussian {
    directions: Directions,
    block: Block,
}

impl Gaussian {
    /// The fast form: the inverse distribution function of 16 random bits, and four of its values mixed by a Hadamard matrix. An entry
    /// reaches 8.8 standard deviations, and 2^28 of them pass the tests of moments, cells and tails. But the mix can be undone: an `a`
    /// of equal numbers at coordinates c, c + 16, c + 32 and c + 48 (c mod 64 < 16) and 0 elsewhere has for p_j one of the 65,536 values
    /// alone, at most 4.4 standard deviations, whose distribution is off by 1.4e-3. What needs p_j normal for *every* `a` takes the
    /// strict form.
    pub fn new(randomness: &CommonRandomness, dim: usize, budget: usize) -> Result<Self, SketchError> {
        Ok(Self { directions: Directions::new(randomness), block: Block::new(Family::Gaussian, dim, budget)? })
    }

    /// The strict form: 32 random bits per entry, polynomials as exact as an `f32`, values to 6.5 standard deviations.
    pub fn strict(randomness: &CommonRandomness, dim: usize, budget: usize) -> Result<Self, SketchError> {
        Ok(Self { directions: Directions::new(randomness), block: Block::new(Family::GaussianStrict, dim, budget)? })
    }
}

/// Directions with independent random signs.
///
/// - Formula: p_j = sum_c s_jc a_c with s_jc = +1 or -1.
/// - Variance: E||a~ - a||_A^2 = (tr(A) ||a||^2 + ||a||_A^2 - 2 sum_c A_cc a_c^2)/m: never above the Gaussian one.
/// - Cost: O(m d), about a tenth of Gaussian's; no memory beyond a tile. Integers stay integers.
/// - Reference: Achlioptas, *Database-friendly random projections*, 2003.
///
/// # Addresses
/// Entry c of row j is -1 where bit 31 - (c mod 512)/16 of word c mod 16 of block c/512 is set, in the ChaCha12 key stream at (purpose,
/// round, row j). Sums are made of four signed numbers each, so that sixteen of them can be looked up; `known-answers.txt` has the order.
#[derive(Clone, Debug)]
pub struct Rademacher {
    directions: Directions,
    block: Block,
}

impl Rademacher {
    /// A sketch of `budget` directions.
    pub fn new(randomness: &CommonRandomness, dim: usize, budget: usize) -> Result<Self, SketchError> {
        Ok(Self { directions: Directions::new(randomness), block: Block::new(Family::Rademacher, dim, budget)? })
    }
}

/// Random rows of a Hadamard matrix under random signs: Rademacher's guarantee, and better, for O(d log d).
///
/// - Formula: xi_j = S h_r(j), where h_0, h_1, ... are the rows of a D x D matrix H of signs with H H' = D I, r(1) < r(2) < ... is a
///   uniformly random set of m of the D rows and S are random signs, all fresh in every round. The vector is padded with zeros to D
///   coordinates and the reconstruction cut back to d: the sketch of the padded vector, so it stays unbiased, and what holds for D
///   coordinates holds for d.
/// - The matrix: up to d = 65536 it is Sylvester's, and D the power of two not below d. Above that D is 5/8 or 6/8 of this power where it
///   is still not below d, so that padding adds a third at most; see *Orders*. [`Family::most`] gives D.
/// - Variance: (D - m)/(D - 1) times Rademacher's, with the padding counted in D alone; 0 for m = D, where the reconstruction is the
///   vector.
/// - Cost: O(D log D), whatever m is, and D numbers of memory, which the calling thread keeps for the next call. At 100 million `f32`
///   coordinates they take 403 MB beside the 400 MB vector; [`Blocks`](crate::Blocks) of this family need no such copy.
/// - Reference: Ailon and Chazelle, *The fast Johnson-Lindenstrauss transform*, 2009.
///
/// # Orders
/// With D = B 2^k, entry (r, c) of H is P(r >> k, c >> k) times the sign of the parity of the bits that r and c have in common below bit
/// k: -1 where they are odd in number. For D a power of two, B = 1 and P = 1. For 5/8 of one, B = 20, and for 6/8, B = 12; then P is
/// Paley's matrix of order B = q + 1: P(i, i) = P(0, i) = 1, P(i, 0) = -1 for i > 0, and else P(i, k) is 1 where i - k is a square modulo
/// q and -1 where it is none.
///
/// A transform sums P first, in the order of its columns (for a reconstruction, of its rows), then the strides 2^(k-1), ..., 2, 1.
///
/// # Addresses
/// The signs are those of Rademacher's row b, b = 0 or the number of the block. The rows are drawn from the words of [`Purpose::Rows`],
/// row b + 2^28 times the number of the sketch's purpose, by Floyd's algorithm: for k = D - m, ..., D - 1 draw r below k + 1 and take r,
/// or k where r is taken already. For m > D/2 the D - m rows that are left out are drawn so.
#[derive(Clone, Debug)]
pub struct Hadamard {
    directions: Directions,
    block: Block,
}

impl Hadamard {
    /// A sketch of `budget` directions, at most D.
    pub fn new(randomness: &CommonRandomness, dim: usize, budget: usize) -> Result<Self, SketchError> {
        Ok(Self { directions: Directions::new(randomness), block: Block::new(Family::Hadamard, dim, budget)? })
    }
}

macro_rules! sketch {
    ($type:ty) => {
        impl $type {
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

            /// Its family.
            pub fn family(&self) -> Family {
                self.block.family
            }

            /// Writes the entries of direction `row` over `out`: what `project` multiplies with, for whoever wants to see or check it.
            ///
            /// # Panics
            /// If there is no such row or `out` has not `dim` places.
            pub fn direction(&self, round: u64, row: usize, out: &mut [f32]) {
                assert!(row < self.block.budget, "there is no direction {row} of {}", self.block.budget);
                assert!(out.len() == self.block.dim, "{} places for {} entries", out.len(), self.block.dim);
                self.block.direction(&self.directions, round, row, out);
            }
        }

        impl Sketch for $type {
            fn dim(&self) -> usize {
                self.block.dim
            }

            fn len(&self) -> usize {
                self.block.budget
            }

            fn project_many<T: Real>(&self, round: u64, vectors: &[&[T]], out: &mut [T]) {
                check_vectors(self.dim(), self.len(), vectors, out);
                T::project(&self.block, &self.directions, round, vectors, out, self.len());
            }

            fn reconstruct<T: Real>(&self, round: u64, scalars: &[T], out: &mut [T]) {
                check_reconstruction(self.dim(), self.len(), scalars, out);
                T::reconstruct(&self.block, &self.directions, round, scalars, out, None);
            }

            fn reconstruct_add<T: Real>(&self, round: u64, scalars: &[T], scale: T, out: &mut [T]) {
                check_reconstruction(self.dim(), self.len(), scalars, out);
                T::reconstruct(&self.block, &self.directions, round, scalars, out, Some(scale));
            }

            fn energy<T: Real>(&self, scalars: &[T]) -> T {
                check_scalars(self.len(), scalars.len());
                T::squares(self.directions.kernel, scalars) / T::from_f64(self.len() as f64)
            }
        }
    };
}

sketch!(Gaussian);
sketch!(Rademacher);
sketch!(Hadamard);
