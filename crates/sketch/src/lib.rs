//! Common random directions: project a vector on m of them, rebuild it from the m scalars, with the same bits everywhere.
//!
//! ```
//! use corewire_sketch::{CommonRandomness, Hadamard, Seed, Sketch};
//!
//! let randomness = CommonRandomness::new(&Seed::reproducible(1));
//! let sketch = Hadamard::new(&randomness, 1000, 64)?;
//! let gradient: Vec<f64> = (0..1000).map(|c| 1.0 / (1 + c) as f64).collect();
//! let (mut scalars, mut estimate) = (vec![0.0; 64], vec![0.0; 1000]);
//! sketch.project(0, &gradient, &mut scalars); // 64 numbers travel instead of 1000
//! sketch.reconstruct(0, &scalars, &mut estimate); // its mean over rounds is the gradient
//! let product: f64 = gradient.iter().zip(&estimate).map(|(g, e)| g * e).sum();
//! assert!((product - sketch.energy(&scalars)).abs() < 1e-12);
//! # Ok::<(), corewire_sketch::SketchError>(())
//! ```
//!
//! # Layout
//! - `seed`: the secret that all machines share, shown only as a commitment.
//! - `randomness`: random words by address (purpose, round, row, position); nothing is consumed.
//! - `sketch`: the trait [`Sketch`], its laws, and [`SketchError`].
//! - `families`: [`Gaussian`], [`Rademacher`], [`Hadamard`], with their variances and addresses.
//! - `blocks`: [`Blocks`], a sketch of each block of coordinates with its own budget.
//! - `any`: [`AnySketch`], the family chosen at run time.
//! - [`code`]: codes of the m scalars: dithered integers, 16-bit floats.
//! - `real`: [`Real`], that is `f32` and `f64`.
//! - `block`, `rows`, `scratch`: one block under one family, the choice of Hadamard rows, and places to work in.
//! - `kernel`: the arithmetic, once over sixteen lanes, and one thin instance for each instruction set; the only `unsafe` code.
//!
//! # Features
//! `parallel` splits projections by rows and reconstructions by tiles over the current rayon pool. No bit depends on it.

mod any;
mod block;
mod blocks;
pub mod code;
mod families;
mod kernel;
mod randomness;
mod real;
mod rows;
mod scratch;
mod seed;
mod sketch;

pub use any::AnySketch;
pub use blocks::Blocks;
pub use families::{Family, Gaussian, Hadamard, Rademacher};
pub use kernel::Kernel;
pub use randomness::{CommonRandomness, Purpose, Words};
pub use real::Real;
pub use seed::{Commitment, Seed, SeedError};
pub use sketch::{Sketch, SketchError};

/// The name of the fastest kernel that this CPU has: `avx512`, `avx2`, `neon` or `reference`.
pub fn kernel_name() -> &'static str {
    Kernel::detect().name()
}

/// Multiplies `values` in place by Sylvester's Hadamard matrix, without a factor, on the fastest kernel that this CPU has.
///
/// Butterflies (x + y, x - y) at strides n/2, n/4, ..., 1 in this order, so the bits are the same on every kernel and for any number of
/// threads; twice applied it multiplies by n.
///
/// # Panics
/// If the length is not a power of two.
pub fn hadamard_transform<T: Real>(values: &mut [T]) {
    assert!(values.len().is_power_of_two(), "a transform of {} numbers: it needs a power of two", values.len());
    T::transform(values);
}

/// Does about `count` multiply-adds of `f32` that need nothing but registers, on the fastest kernel that this CPU has. Returns how many
/// it did, and a number that depends on them all. Whoever takes the time of it knows what this CPU could do at most.
pub fn multiply_adds(count: usize) -> (usize, f32) {
    let turns = count.div_ceil(kernel::Peak::TURN);
    (turns * kernel::Peak::TURN, Kernel::detect().run(kernel::Peak { turns }))
}
