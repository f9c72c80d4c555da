//! Everything in mathematics above the sketch: objectives, mean estimators, methods, and the one round loop.
//!
//! # Layout
//! - [`objective`]: one machine's values, gradients, curvature.
//! - [`layout`]: the named blocks of a model's coordinates.
//! - [`estimator`]: every machine's vector -> an estimate of the mean that all share. What travels is decided here.
//! - [`method`]: what a machine does in a round.
//! - [`catalogue`]: every method by name: parameters, reference, and the way from them to a method.
//! - [`run`]: the one round loop: round -> what is known of it -> decision. [`score`]: held-out rows.
//! - [`replay`]: a run again, from the replies in its journal alone.
//! - [`problem`]: rows or a synthetic quadratic, shared out over machines. [`sites`]: what machines agree on whose rows stay where they
//!   are.
//! - [`probe`]: curvature from what the machines tell. [`spectrum`]: eigenvalues, all of them or by quadrature.
//! - [`tuning`]: budgets, steps and momentum from a spectrum, known or guessed.
//! - [`predict`]: what a trained model says of rows.
//! - [`optimum`]: f* by a solver that is trusted; never billed.
//! - [`decentral`]: methods for machines without a centre.
//! - [`state`]: one walk over a method's fields for digest, snapshot and resume.

pub mod catalogue;
pub mod decentral;
pub mod error;
pub mod estimator;
pub mod layout;
pub mod method;
pub mod objective;
pub mod optimum;
pub mod predict;
pub mod probe;
pub mod problem;
pub mod proximal;
pub mod replay;
pub mod run;
pub mod score;
pub mod sites;
pub mod spectrum;
pub mod state;
pub mod tuning;

pub use error::RunError;
