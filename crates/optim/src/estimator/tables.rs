//! Means through count sketches: the tables of all machines add up, and the large coordinates are read from the sum.

use corewire_algebra::vector;
use corewire_comm::numbers::{self, Number};
use corewire_comm::{CommError, Reply};
use corewire_compress::{Address, Codec, CountSketch, Dropping, pack_indices, unpack_indices};
use corewire_sketch::CommonRandomness;

use super::{Estimate, ExtraMeans, How, MeanEstimator, Next, Place, check_finite, pull_extra, split_extra};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};

/// Sketched-SGD: the sum of the tables of g_i + e_i names P k candidates; their exact values travel in a second message; the k largest of
/// the mean are the estimate, and every machine's memory keeps the rest.
pub struct SketchedSgd {
    sketch: CountSketch,
    keep: usize,
    candidates: usize,
    codec: Dropping,
    error: Vec<f64>,
    /// The candidates of this round.
    heavy: Vec<u32>,
}

impl SketchedSgd {
    /// Keeps the `keep` largest of `candidates` coordinates.
    pub fn new(sketch: CountSketch, keep: usize, candidates: usize, randomness: &CommonRandomness) -> Self {
        let dim = sketch.dim();
        let (keep, candidates) = (keep.min(dim), candidates.max(keep).min(dim));
        let codec = Dropping::new(dim, 0.0, randomness);
        Self { sketch, keep, candidates, codec, error: vec![0.0; dim], heavy: Vec::new() }
    }
}

/// The means of 32-bit floats in rank order, and of the extra numbers.
fn float_means(messages: &[&[u8]], count: usize, extras: usize) -> Result<(Vec<f64>, ExtraMeans), CommError> {
    let (mut sums, mut extra_means) = (vec![0.0; count], ExtraMeans::new(extras));
    for (rank, message) in messages.iter().enumerate() {
        let Some((body, extra)) = split_extra(message, extras).filter(|(body, _)| body.len() == 4 * count) else {
            return Err(CommError::refused(rank, format!("it sent {} bytes for {count} numbers", message.len())));
        };
        extra_means.add(extra);
        sums.iter_mut().zip(numbers::read::<f32>(body)).for_each(|(sum, number)| *sum += f64::from(number));
    }
    sums.iter_mut().for_each(|sum| *sum /= messages.len() as f64);
    Ok((sums, extra_means))
}

fn push_table(sketch: &CountSketch, vector: &[f64], message: &mut Vec<u8>) {
    let mut table = sketch.new_table();
    sketch.add(vector, 1.0, &mut table);
    numbers::push_floats(&table, false, message);
}

fn damaged(at: Place, what: impl std::fmt::Display) -> CommError {
    CommError::refused(0, format!("its reply of round {}: {what}", at.round))
}

/// The positions of the `keep` largest magnitudes, ascending; of equal ones the first.
fn largest(values: &[f64], keep: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].abs().total_cmp(&values[a].abs()).then(a.cmp(&b)));
    order.truncate(keep);
    order.sort_unstable();
    order
}

impl Stateful for SketchedSgd {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Local, "error", &mut self.error);
    }
}

impl MeanEstimator for SketchedSgd {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        if at.stage == 0 {
            check_finite(at, "a gradient", local)?;
            vector::add_scaled(1.0, local, &mut self.error);
            push_table(&self.sketch, &self.error, message);
            numbers::push(extra, message);
        } else {
            self.heavy.iter().for_each(|&i| numbers::narrow(self.error[i as usize]).push(message));
        }
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        let Self { sketch, keep, candidates, codec, heavy, .. } = self;
        let dim = sketch.dim();
        if at.stage == 0 {
            let (table, extra_means) = float_means(messages, sketch.table_len(), extras)?;
            let heavy: Vec<u32> = sketch.heavy(&table, *candidates).into_iter().map(|(index, _)| index).collect();
            let mut reply = pack_indices(&heavy, dim);
            extra_means.push(&mut reply);
            return Ok(reply);
        }
        let (means, _) = float_means(messages, heavy.len(), 0)?;
        let mut sparse = vec![0.0; dim];
        largest(&means, *keep).into_iter().for_each(|k| sparse[heavy[k] as usize] = means[k]);
        let mut reply = Vec::new();
        codec.encode(Address::new(at.round, 0), &sparse, &mut reply);
        Ok(reply)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        if at.stage == 0 {
            let body = pull_extra(reply, extra)?;
            let heavy = unpack_indices(body, self.candidates, self.sketch.dim());
            self.heavy = heavy.map_err(|error| damaged(at, error))?;
            return Ok(Next::Again);
        }
        let decoded = self.codec.decode(Address::new(at.round, 0), &reply.message, mean);
        decoded.map_err(|error| damaged(at, error))?;
        // The exact values of the kept coordinates were sent; what rounding to 32 bits lost stays.
        for (error, mean) in self.error.iter_mut().zip(&*mean) {
            if *mean != 0.0 {
                *error -= f64::from(*error as f32);
            }
        }
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}

/// FetchSGD: momentum and error memory in tables at the hub. S_u = rho S_u + mean S(g_i); S_e += S_u; the k largest read from S_e are the
/// estimate D; S_e -= S(D).
///
/// Over rounds a gradient counts 1/(1 - rho) times: the step has to allow for it.
pub struct FetchSgd {
    sketch: CountSketch,
    keep: usize,
    momentum: f64,
    codec: Dropping,
    /// The hub's tables; zero elsewhere.
    velocity: Vec<f64>,
    memory: Vec<f64>,
}

impl FetchSgd {
    /// Keeps the `keep` largest coordinates.
    pub fn new(sketch: CountSketch, keep: usize, momentum: f64, randomness: &CommonRandomness) -> Self {
        let table = sketch.new_table();
        let codec = Dropping::new(sketch.dim(), 0.0, randomness);
        Self { sketch, keep, momentum, codec, velocity: table.clone(), memory: table }
    }
}

impl Stateful for FetchSgd {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Local, "velocity", &mut self.velocity);
        visitor.vector(Scope::Local, "memory", &mut self.memory);
    }
}

impl MeanEstimator for FetchSgd {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        check_finite(at, "a gradient", local)?;
        push_table(&self.sketch, local, message);
        numbers::push(extra, message);
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        let Self { sketch, keep, momentum, codec, velocity, memory } = self;
        let (table, extra_means) = float_means(messages, sketch.table_len(), extras)?;
        for ((u, e), table) in velocity.iter_mut().zip(memory.iter_mut()).zip(&table) {
            *u = *momentum * *u + table;
            *e += *u;
        }
        let mut sparse = vec![0.0; sketch.dim()];
        for (index, value) in sketch.heavy(memory, *keep) {
            // As it will be decoded, so that the memory keeps what rounding loses.
            let value = f64::from(numbers::narrow(value));
            sparse[index as usize] = value;
            sketch.add_one(index as usize, -value, memory);
        }
        let mut reply = Vec::new();
        codec.encode(Address::new(at.round, 0), &sparse, &mut reply);
        extra_means.push(&mut reply);
        Ok(reply)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        let body = pull_extra(reply, extra)?;
        let decoded = self.codec.decode(Address::new(at.round, 0), body, mean);
        decoded.map_err(|error| damaged(at, error))?;
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}
