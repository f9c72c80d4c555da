//! Placeholder docs are replaced by the crate's own.

pub mod gossip;
pub mod graph;
pub mod privacy;
