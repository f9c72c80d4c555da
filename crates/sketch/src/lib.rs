//! Common random directions: project a vector on m of them, rebuild it from the m scalars, with the same bits everywhere.

pub mod code;
mod randomness;
mod seed;

pub use randomness::{CommonRandomness, Purpose, Words};
pub use seed::{Commitment, Seed, SeedError};
