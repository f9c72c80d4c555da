//! Means through count sketches: the tables of all machines add up, and the large coordinates are read from the sum.

use corewire_comm::{Collective, CommError};
use corewire_compress::{Address, Codec, CountSketch, Dropping};
use corewire_sketch::CommonRandomness;

use super::{Estimate, ExtraMeans, MeanEstimator, check_finite, pull_extra, push_extra, split_extra};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};
use crate::vector;

/// Sketched-SGD: the sum of the tables of g_i + e_i names P k candidates; their exact values travel in a second message; the k largest of
/// the mean are the estimate, and every machine's memory keeps the rest.
pub struct SketchedSgd {
    sketch: CountSketch,
    keep: usize,
    candidates: usize,
    randomness: CommonRandomness,
    error: Vec<f64>,
}

impl SketchedSgd {
    /// Keeps the `keep` largest of `candidates` coordinates.
    pub fn new(sketch: CountSketch, keep: usize, candidates: usize, randomness: &CommonRandomness) -> Self {
        let dim = sketch.dim();
        let (keep, candidates) = (keep.min(dim), candidates.max(keep).min(dim));
        Self { sketch, keep, candidates, randomness: randomness.clone(), error: vec![0.0; dim] }
    }
}

/// Bits of an index below `dim`.
fn index_bits(dim: usize) -> u32 {
    usize::BITS - dim.saturating_sub(1).leading_zeros()
}

/// Indices below `dim`, ceil(log2 dim) bits each.
fn pack(indices: &[u32], dim: usize) -> Vec<u8> {
    let bits = index_bits(dim) as usize;
    let mut message = vec![0; (indices.len() * bits).div_ceil(8)];
    for (k, &index) in indices.iter().enumerate() {
        for bit in (0..bits).filter(|bit| index >> bit & 1 == 1) {
            message[(k * bits + bit) / 8] |= 1 << ((k * bits + bit) % 8);
        }
    }
    message
}

fn unpack(message: &[u8], count: usize, dim: usize) -> Option<Vec<u32>> {
    let bits = index_bits(dim) as usize;
    if message.len() != (count * bits).div_ceil(8) {
        return None;
    }
    let bit = |at: usize| u32::from(message[at / 8] >> (at % 8) & 1);
    let index = |k: usize| (0..bits).fold(0, |index, b| index | bit(k * bits + b) << b);
    (0..count).map(index).map(|index| ((index as usize) < dim).then_some(index)).collect()
}

fn narrow(values: impl Iterator<Item = f64>) -> Vec<u8> {
    values.flat_map(|value| (value as f32).clamp(f32::MIN, f32::MAX).to_le_bytes()).collect()
}

/// The means of 32-bit floats in rank order, and of the extra numbers.
fn float_means(messages: &[&[u8]], count: usize, extras: usize) -> Result<(Vec<f64>, ExtraMeans), CommError> {
    let (mut sums, mut extra_means) = (vec![0.0; count], ExtraMeans::new(extras));
    for (rank, message) in messages.iter().enumerate() {
        let Some((body, extra)) = split_extra(message, extras).filter(|(body, _)| body.len() == 4 * count) else {
            return Err(CommError::Refused {
                rank,
                what: format!("it sent {} bytes for {count} numbers", message.len()),
            });
        };
        extra_means.add(extra);
        for (sum, bytes) in sums.iter_mut().zip(body.as_chunks().0) {
            *sum += f64::from(f32::from_le_bytes(*bytes));
        }
    }
    sums.iter_mut().for_each(|sum| *sum /= messages.len() as f64);
    Ok((sums, extra_means))
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
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        let Self { sketch, keep, candidates, randomness, error } = self;
        let (dim, extras) = (sketch.dim(), extra.len());
        check_finite(comm.rank(), round, "a gradient", local)?;
        vector::add_scaled(1.0, local, error);
        let mut table = sketch.new_table();
        sketch.add(error, 1.0, &mut table);
        let mut message = narrow(table.iter().copied());
        push_extra(extra, &mut message);
        let reply = comm.exchange(&message, &mut |messages| {
            let (table, extra_means) = float_means(messages, sketch.table_len(), extras)?;
            let heavy: Vec<u32> = sketch.heavy(&table, *candidates).into_iter().map(|(index, _)| index).collect();
            let mut reply = pack(&heavy, dim);
            extra_means.push(&mut reply);
            Ok(reply)
        })?;
        let damaged = |what: &str| CommError::Refused { rank: 0, what: format!("its reply of round {round}: {what}") };
        let heavy = unpack(pull_extra(&reply.message, extra), *candidates, dim)
            .ok_or_else(|| damaged("these are no indices"))?;
        let codec = Dropping::new(dim, 0.0, randomness);
        let address = Address::new(round, 0);
        let reply = comm.exchange(&narrow(heavy.iter().map(|&i| error[i as usize])), &mut |messages| {
            let (means, _) = float_means(messages, heavy.len(), 0)?;
            let mut sparse = vec![0.0; dim];
            largest(&means, *keep).into_iter().for_each(|k| sparse[heavy[k] as usize] = means[k]);
            let mut reply = Vec::new();
            codec.clone().encode(address, &sparse, &mut reply);
            Ok(reply)
        })?;
        codec.decode(address, &reply.message, mean).map_err(|error| damaged(&error.to_string()))?;
        // The exact values of the kept coordinates were sent; what rounding to 32 bits lost stays.
        for (error, mean) in error.iter_mut().zip(&*mean) {
            if *mean != 0.0 {
                *error -= f64::from(*error as f32);
            }
        }
        Ok(Estimate { energy: vector::norm_squared(mean) })
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
    randomness: CommonRandomness,
    /// The hub's tables; zero elsewhere.
    velocity: Vec<f64>,
    memory: Vec<f64>,
}

impl FetchSgd {
    /// Keeps the `keep` largest coordinates.
    pub fn new(sketch: CountSketch, keep: usize, momentum: f64, randomness: &CommonRandomness) -> Self {
        let table = sketch.new_table();
        Self { sketch, keep, momentum, randomness: randomness.clone(), velocity: table.clone(), memory: table }
    }
}

impl Stateful for FetchSgd {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Local, "velocity", &mut self.velocity);
        visitor.vector(Scope::Local, "memory", &mut self.memory);
    }
}

impl MeanEstimator for FetchSgd {
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        let Self { sketch, keep, momentum, randomness, velocity, memory } = self;
        let extras = extra.len();
        check_finite(comm.rank(), round, "a gradient", local)?;
        let mut table = sketch.new_table();
        sketch.add(local, 1.0, &mut table);
        let mut message = narrow(table.iter().copied());
        push_extra(extra, &mut message);
        let codec = Dropping::new(sketch.dim(), 0.0, randomness);
        let address = Address::new(round, 0);
        let reply = comm.exchange(&message, &mut |messages| {
            let (table, extra_means) = float_means(messages, sketch.table_len(), extras)?;
            for ((u, e), table) in velocity.iter_mut().zip(memory.iter_mut()).zip(&table) {
                *u = *momentum * *u + table;
                *e += *u;
            }
            let mut sparse = vec![0.0; sketch.dim()];
            for (index, value) in sketch.heavy(memory, *keep) {
                // As it will be decoded, so that the memory keeps what rounding loses.
                let value = f64::from((value as f32).clamp(f32::MIN, f32::MAX));
                sparse[index as usize] = value;
                sketch.add_one(index as usize, -value, memory);
            }
            let mut reply = Vec::new();
            codec.clone().encode(address, &sparse, &mut reply);
            extra_means.push(&mut reply);
            Ok(reply)
        })?;
        let damaged =
            |what: String| CommError::Refused { rank: 0, what: format!("its reply of round {round}: {what}") };
        let body = pull_extra(&reply.message, extra);
        codec.decode(address, body, mean).map_err(|error| damaged(error.to_string()))?;
        Ok(Estimate { energy: vector::norm_squared(mean) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_indices_come_back() {
        for dim in [1, 2, 5, 64, 1000] {
            let indices: Vec<u32> = (0..dim as u32).step_by(3).collect();
            let message = pack(&indices, dim);
            assert_eq!(unpack(&message, indices.len(), dim).unwrap(), indices);
        }
        assert!(unpack(&[0xff], 1, 5).is_none());
        assert!(unpack(&[0, 0], 1, 5).is_none());
    }
}
