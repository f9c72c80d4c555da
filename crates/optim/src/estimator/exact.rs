//! The mean itself: d floats up, d floats down.

use corewire_comm::{Collective, CommError};

use super::{Estimate, ExtraMeans, MeanEstimator, check_finite, pull_extra, push_extra, split_extra};
use crate::error::RunError;
use crate::state::{Stateful, Visitor};
use crate::vector;

/// Sends every coordinate, as 32 or 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    /// Whether coordinates travel as 64 bits.
    pub double: bool,
}

impl Stateful for Exact {
    fn visit(&mut self, _: &mut dyn Visitor) {}
}

impl MeanEstimator for Exact {
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        check_finite(comm.rank(), round, "a gradient", local)?;
        let width = if self.double { 8 } else { 4 };
        let encode = |values: &[f64]| -> Vec<u8> {
            match self.double {
                true => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
                false => values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
            }
        };
        let decode = |bytes: &[u8]| match bytes {
            &[a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
            _ => f64::from_le_bytes(bytes.try_into().expect("a coordinate has four bytes or eight")),
        };
        let (dim, extras) = (local.len(), extra.len());
        let mut message = encode(local);
        push_extra(extra, &mut message);
        let reply = comm.exchange(&message, &mut |messages| {
            let (mut sums, mut means) = (vec![0.0; dim], ExtraMeans::new(extras));
            for (rank, message) in messages.iter().enumerate() {
                let parts = split_extra(message, extras).filter(|(body, _)| body.len() == dim * width);
                let Some((body, extra)) = parts else {
                    let what = format!("it sent {} bytes for {dim} coordinates", message.len());
                    return Err(CommError::Refused { rank, what });
                };
                sums.iter_mut().zip(body.chunks_exact(width)).for_each(|(sum, bytes)| *sum += decode(bytes));
                means.add(extra);
            }
            sums.iter_mut().for_each(|sum| *sum /= messages.len() as f64);
            let mut reply = encode(&sums);
            means.push(&mut reply);
            Ok(reply)
        })?;
        let body = pull_extra(&reply.message, extra);
        mean.iter_mut().zip(body.chunks_exact(width)).for_each(|(mean, bytes)| *mean = decode(bytes));
        Ok(Estimate { energy: vector::norm_squared(mean) })
    }
}
