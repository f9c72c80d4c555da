//! The little linear algebra that the project needs, in orders of summation that never change: the same bits on every machine. It knows
//! neither machines nor problems.
//!
//! # Layout
//! - [`vector`]: inner products and their kin.
//! - [`eigen`]: eigenvalues and eigenvectors of symmetric matrices, dense ones and those that are only known by their products.

pub mod eigen;
pub mod vector;
