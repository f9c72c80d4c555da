//! The baselines: methods of the literature other than CORE. docs/methods.md has a section for each.
//!
//! # Layout
//! - [`skip`]: Scaffnew, GradSkip, LoCoDL.
//! - [`local`]: FedLin, FedAvg, SCAFFOLD, distributed SVRG.
//! - [`loopless`]: VR-DIANA, on mini-batches.
//! - [`two_query`]: ADIANA, CANITA.
//! - [`two_direction`]: 2Direction, compressed both ways.
//! - [`coordinates`]: SEGA, ASEGA, IBCD.
//! - [`signs`]: signSGD with majority vote, 1-bit Adam.
//! - [`mod@model`]: EF21-P, whose model comes down compressed.
//! - [`mod@quasi_newton`]: limited-memory BFGS.
//! - [`learned_hessian`]: FedNL, whose hub learns the Hessian.
//! - [`sketched_hessian`]: Newton sketch, whose hub gets random combinations of rows.
//! - [`matrix_aware`]: DIANA+ and what makes ADIANA+ of ADIANA: each machine's smoothness matrix is known.
//! - [`second_order`]: GIANT, DiSCO, DANE, one-shot averaging.
//! - [`shipped`]: the rows themselves.
//!
//! All others are an estimator of [`crate::estimator`] with [`crate::method::descent::Descent`].

pub mod coordinates;
pub mod learned_hessian;
pub mod local;
pub mod loopless;
pub mod matrix_aware;
pub mod model;
pub mod quasi_newton;
pub mod second_order;
pub mod shipped;
pub mod signs;
pub mod sketched_hessian;
pub mod skip;
pub mod two_direction;
pub mod two_query;

use corewire_algebra::eigen;

use crate::objective::{Curved, Objective};

/// What is known of a Hessian that is exactly that of its rows plus alpha: of ridge and logistic regression, not of softmax.
fn exactly_curved(objective: &mut dyn Objective) -> Option<&mut dyn Curved> {
    if objective.blocks() == 1 { objective.curved() } else { None }
}

/// The smoothness of one machine's share, by a power iteration on its bound. It costs no communication, and errs by a few per cent at most,
/// downwards.
pub fn local_smoothness(objective: &mut dyn Objective, x: &[f64]) -> f64 {
    eigen::largest(x.len(), |v, out| objective.bound_vector(x, v, out))
}
