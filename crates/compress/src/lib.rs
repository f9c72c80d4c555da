//! The vector compressors of distributed optimisation as byte codecs: vector -> bytes -> vector.
//!
//! A [`Codec`] knows nothing of machines, messages or optimisation: whoever sends the bytes counts them, and whoever averages the
//! decoded vectors reads the [`Law`] to set a method's parameters. Random choices are addressed by round and machine, never
//! consumed, so a message can be made again from the same vector.
//!
//! ```
//! use corewire_compress::{Address, Codec, Law, TopK};
//!
//! let mut codec = TopK::new(4, 1);
//! let (mut message, mut out) = (Vec::new(), [0.0; 4]);
//! codec.encode(Address::new(0, 0), &[1.0, -3.0, 2.0, 0.0], &mut message);
//! codec.decode(Address::new(0, 0), &message, &mut out)?;
//! assert_eq!(out, [0.0, -3.0, 0.0, 0.0]);
//! assert_eq!(message.len(), 5); // 32 bits of value, 2 of index
//! assert_eq!(codec.law(), Law::Contractive { delta: 0.25 });
//! # Ok::<(), corewire_compress::CodecError>(())
//! ```
//!
//! # Layout
//! - `codec`: the trait, addresses, laws and errors.
//! - `bits`: bits in bytes, Elias codes.
//! - `dense`, `narrow`, `sparse`, `qsgd`, `terngrad`, `sign`, `natural`, `eden`, `atomo`, `sketchml`, `alq`: the codecs.
//! - `feedback`: codecs made of codecs.
//! - `power_sgd`, `count_sketch`: linear pieces between which a caller takes sums.
//! - `rotation`, `matrix`: the Hadamard rotation and the decompositions that they stand on.
//! - `catalogue`: one of every codec, for tables and tests.

#![forbid(unsafe_code)]

mod alq;
mod atomo;
mod bits;
mod catalogue;
mod codec;
mod count_sketch;
mod dense;
mod eden;
mod feedback;
mod matrix;
mod narrow;
mod natural;
mod power_sgd;
mod qsgd;
mod rotation;
mod sign;
mod sketchml;
mod sparse;
mod terngrad;

pub use alq::Alq;
pub use atomo::Atomo;
pub use bits::{pack_indices, unpack_indices};
pub use catalogue::{Entry, catalogue};
pub use codec::{Address, Codec, CodecError, Law};
pub use count_sketch::CountSketch;
pub use dense::Dense;
pub use eden::{Aim, Drive, Eden};
pub use feedback::{ErrorFeedback, Scaled};
pub use matrix::{Shape, orthogonalise};
pub use narrow::Narrow;
pub use natural::Natural;
pub use power_sgd::PowerSgd;
pub use qsgd::{Norm, Qsgd};
pub use sign::{Magnitude, OneBit, Sign};
pub use sketchml::SketchMl;
pub use sparse::{Dropping, Indices, RandK, TopK};
pub use terngrad::TernGrad;
