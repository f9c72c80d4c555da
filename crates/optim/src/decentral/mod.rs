//! Methods for machines that talk to their neighbours only, by gossip. Runs over a spanning tree need none of this: there any method works,
//! see [`corewire_comm::Tree`].
//!
//! After gossip the machines agree to a tolerance and not to the bit, so every machine has an iterate of its own: all state is local.
//!
//! # Layout
//! - [`averaging`]: blocks of numbers, averaged with neighbours, and what is left of their differences.
//! - [`mean`]: CORE's estimate by gossip of its scalars, with or without a pull towards the others.
//! - [`core`]: CORE-GD and CORE-AGD on it (Algorithm 5).
//! - [`extra`], [`msda`]: baselines without compression.
//! - [`wire`]: how a block travels to a neighbour.

pub mod averaging;
pub mod core;
pub mod extra;
pub mod mean;
pub mod msda;
pub mod wire;

pub use averaging::Averaging;
pub use core::GossipCore;
pub use extra::Extra;
pub use mean::GossipMean;
pub use msda::Msda;
pub use wire::GossipWire;
