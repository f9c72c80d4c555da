//! Placeholder docs are replaced by the crate's own.
