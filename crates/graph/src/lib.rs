//! Graphs of machines without a centre, and what gossip on them costs. It knows neither gradients nor engines.
//!
//! # Layout
//! - [`graph`]: graphs, their spectra, spanning trees and pictures.
//! - [`gossip`]: averaging with neighbours, as pure state machines.

pub mod gossip;
pub mod graph;
