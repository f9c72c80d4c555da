//! Newton's method at the hub with random sketches of the machines' Hessians.

use corewire_algebra::vector::{add_scaled, dot};
use corewire_comm::numbers::{self, Number};
use corewire_comm::{CommError, Reduction};
use corewire_sketch::{CommonRandomness, Purpose};

use super::exactly_curved;
use super::second_order::{admit, grid_search, read_vector};
use crate::error::RunError;
use crate::estimator::check_finite;
use crate::method::{Context, Method, Outcome};
use crate::objective::Curved;
use crate::optimum::conjugate_gradients;
use crate::state::{Scope, Stateful, Visitor};

/// Distributed Newton sketch: machine i sends g_i and S_i A_i, where A_i'A_i is its Hessian less alpha and S_i has m rows of random signs
/// over sqrt(m); the hub solves with the mean of the sketches' squares plus alpha, sends the step, and its length is searched on a grid.
/// Two exchanges a round.
pub struct NewtonSketch {
    x: Vec<f64>,
    rows: usize,
    randomness: CommonRandomness,
}

/// The grid of lengths is 1, 1/2, 1/4, ..
const SHRINK: f64 = 2.0;

impl NewtonSketch {
    /// With sketches of this many rows. A machine that has no more sends A_i itself.
    pub fn new(start: Vec<f64>, rows: usize, randomness: &CommonRandomness) -> Self {
        Self { x: start, rows, randomness: randomness.clone() }
    }

    fn sketch(&self, round: u64, rank: usize, curved: &mut dyn Curved) -> Vec<Vec<f64>> {
        let own = curved.root_rows();
        if own <= self.rows {
            let unit = |k: usize| (0..own).map(|j| f64::from(u8::from(j == k))).collect();
            return curved.combine_root(&self.x, &(0..own).map(unit).collect::<Vec<_>>());
        }
        let mut words = self.randomness.words(Purpose::Compressor, round, rank as u32);
        let entry = 1.0 / (self.rows as f64).sqrt();
        let signs: Vec<Vec<f64>> = (0..self.rows)
            .map(|_| (0..own).map(|_| if words.next_coin(0.5) { entry } else { -entry }).collect())
            .collect();
        curved.combine_root(&self.x, &signs)
    }
}

impl Stateful for NewtonSketch {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
    }
}

impl Method for NewtonSketch {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        admit(context.objective, "newton-sketch")?;
        let here = context.comm.rank() < context.comm.size();
        if here && exactly_curved(context.objective).is_none() {
            return Err(RunError::Unsuited("newton-sketch needs ridge or logistic regression: take giant".to_owned()));
        }
        Ok(())
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (dim, rank) = (self.x.len(), context.comm.rank());
        let alpha = context.objective.strong_convexity();
        let mut gradient = vec![0.0; dim];
        context.objective.gradient(&self.x, &mut gradient);
        let mut message = Vec::new();
        let sketch =
            exactly_curved(context.objective).map(|curved| self.sketch(round, rank, curved)).unwrap_or_default();
        for vector in std::iter::once(&gradient).chain(&sketch) {
            check_finite(context.place(round), "a vector to send", vector)?;
            numbers::push_floats(vector, false, &mut message);
        }
        let mut combine = |messages: &[&[u8]]| {
            let share = 1.0 / messages.len() as f64;
            let (mut gradient, mut sketches) = (vec![0.0; dim], Vec::new());
            for (rank, message) in messages.iter().enumerate() {
                let mut own = vec![0.0; message.len() / 4];
                let whole = !own.is_empty() && own.len().is_multiple_of(dim.max(1));
                if !whole || !numbers::read_floats(message, false, &mut own) {
                    return Err(CommError::refused(rank, format!("it sent {} bytes for a sketch", message.len())));
                }
                add_scaled(share, &own[..dim], &mut gradient);
                sketches.extend(own[dim..].chunks_exact(dim).map(<[f64]>::to_vec));
            }
            let mut direction = conjugate_gradients(gradient.clone(), 1e-8, &mut || true, |v, out| {
                out.iter_mut().zip(v).for_each(|(out, v)| *out = alpha * v);
                sketches.iter().for_each(|row| add_scaled(share * dot(row, v), row, out));
            });
            direction.iter_mut().for_each(|value| *value = -*value);
            let mut reply = Vec::new();
            dot(&gradient, &direction).push(&mut reply);
            numbers::push_floats(&direction, false, &mut reply);
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        let short = || CommError::refused(0, "its reply has no slope");
        let (slope, floats) = reply.message.split_first_chunk::<8>().ok_or_else(short)?;
        let mut direction = vec![0.0; dim];
        read_vector(floats, false, &mut direction)?;
        let step = grid_search(round, context, &self.x, &direction, f64::read(slope), SHRINK)?;
        add_scaled(step, &direction, &mut self.x);
        Ok(Outcome { step: Some(step), rejected: step == 0.0, ..Outcome::default() })
    }
}
