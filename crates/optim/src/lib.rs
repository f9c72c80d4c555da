//! Everything in mathematics above the sketch: objectives, mean estimators, methods, and the one round loop.
//!
//! # Layout
//! - [`problem`]: data, model and split become one [`objective`] a machine.
//! - [`objective`]: one machine's values, gradients, curvature.
//! - [`estimator`]: every machine's vector -> an estimate of the mean that all share. What travels is decided here.
//! - [`method`]: what a machine does in a round.
//! - [`run`]: the one round loop: round -> evaluation, digest, decision.
//! - [`journal`]: the replies of a run, snapshots, replay and resume.
//! - [`spectrum`]: eigenvalues, all of them or by quadrature.
//! - [`tuning`]: budgets, steps and momentum from a spectrum, known or guessed.
//! - [`optimum`]: f* by a solver that is trusted; never billed.
//! - [`graph`], [`gossip`], [`decentral`]: machines without a centre.
//! - [`privacy`]: what an observer of the messages learns.
//! - [`state`]: one walk over a method's fields for digest, snapshot and resume.

pub mod decentral;
pub mod error;
pub mod estimator;
pub mod gossip;
pub mod graph;
pub mod journal;
pub mod method;
pub mod objective;
pub mod optimum;
pub mod privacy;
pub mod problem;
pub mod run;
pub mod spectrum;
pub mod state;
pub mod tuning;
pub mod vector;

pub use error::RunError;
