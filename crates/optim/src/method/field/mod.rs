//! The methods of the field other than CORE, and their registry: ids, parameters, theory's steps. docs/methods.md has a section for each.
//!
//! # Layout
//! - [`skip`]: Scaffnew, GradSkip.
//! - [`local`]: FedLin, FedAvg, SCAFFOLD, distributed SVRG.
//! - [`two_query`]: ADIANA, CANITA.
//! - [`coordinates`]: SEGA, ASEGA, IBCD.
//! - [`signs`]: signSGD with majority vote, 1-bit Adam.
//! - [`mod@model`]: EF21-P, whose model comes down compressed.
//! - `registry`: what people choose from.
//!
//! All others are an estimator of [`crate::estimator`] with [`crate::method::descent::Descent`].

pub mod coordinates;
pub mod local;
pub mod model;
mod registry;
pub mod signs;
pub mod skip;
pub mod two_query;

pub use registry::{Entry, Known, Parameter, build, catalogue};

use crate::objective::Objective;
use crate::vector;

/// The smoothness of one machine's share, by a power iteration on its bound. It costs no communication, and errs by a few per cent at most,
/// downwards.
pub fn local_smoothness(objective: &mut dyn Objective, x: &[f64]) -> f64 {
    largest_eigenvalue(x.len(), |v, out| objective.bound_vector(x, v, out))
}

/// The largest magnitude of an eigenvalue of a symmetric matrix, by a power iteration.
pub(crate) fn largest_eigenvalue(dim: usize, mut multiply: impl FnMut(&[f64], &mut [f64])) -> f64 {
    // Any start will do that no eigenvector is orthogonal to by accident: irregular signs and lengths.
    let mut direction: Vec<f64> = (0..dim).map(|i| ((i * i % 7) as f64 - 3.25) / (1.0 + (i % 5) as f64)).collect();
    let mut image = vec![0.0; dim];
    let mut value = 0.0f64;
    for _ in 0..300 {
        let norm = vector::norm_squared(&direction).sqrt();
        if norm == 0.0 || !norm.is_finite() {
            break;
        }
        direction.iter_mut().for_each(|v| *v /= norm);
        multiply(&direction, &mut image);
        let last = value;
        value = vector::dot(&direction, &image).abs();
        if (value - last).abs() <= 1e-6 * value {
            break;
        }
        std::mem::swap(&mut direction, &mut image);
    }
    value
}
