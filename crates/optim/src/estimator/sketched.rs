//! CORE's estimate with the scalars as floats (Algorithm 1, with the mean over machines that Algorithms 2 to 4 leave out in print).
//!
//! (1/(n m)) sum_i sum_j <g_i, xi_j> xi_j: m floats up, m floats down.

use corewire_comm::{Collective, CommError};
use corewire_sketch::code::{bf16_to_f32, round_to_bf16};
use corewire_sketch::{AnySketch, CommonRandomness, Purpose, Sketch, Words};

use super::{Estimate, ExtraMeans, MeanEstimator, check_finite, pull_extra, push_extra, split_extra};
use crate::error::RunError;
use crate::state::{Stateful, Visitor};

/// How a scalar travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits.
    F32,
    /// 16 bits, stochastically rounded: unbiased, at a relative deviation of 2^-9.
    Bf16,
}

/// The mean through m common random directions.
pub struct Sketched {
    sketch: AnySketch,
    randomness: CommonRandomness,
    width: Width,
    scalars: Vec<f64>,
}

impl Sketched {
    /// Through this sketch, which all machines must share.
    pub fn new(sketch: AnySketch, randomness: &CommonRandomness, width: Width) -> Self {
        let scalars = vec![0.0; sketch.len()];
        Self { sketch, randomness: randomness.clone(), width, scalars }
    }

    fn encode(&self, purpose: Purpose, round: u64, rank: usize, scalars: &[f64], message: &mut Vec<u8>) {
        match self.width {
            Width::F32 => message.extend(scalars.iter().flat_map(|&scalar| (scalar as f32).to_le_bytes())),
            Width::Bf16 => {
                let mut words = self.randomness.words(purpose, round, rank as u32);
                let uniform = |words: &mut Words| words.next_u64() as u32;
                let round = |&scalar: &f64| round_to_bf16(scalar as f32, uniform(&mut words)).to_le_bytes();
                message.extend(scalars.iter().flat_map(round));
            }
        }
    }

    fn scalar_bytes(&self) -> usize {
        match self.width {
            Width::F32 => 4,
            Width::Bf16 => 2,
        }
    }
}

fn decode(bytes: &[u8]) -> f64 {
    match *bytes {
        [a, b] => f64::from(bf16_to_f32(u16::from_le_bytes([a, b]))),
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        _ => unreachable!("a scalar has two bytes or four"),
    }
}

impl Stateful for Sketched {
    fn visit(&mut self, _: &mut dyn Visitor) {}
}

impl MeanEstimator for Sketched {
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        let mut scalars = std::mem::take(&mut self.scalars);
        self.sketch.project(round, local, &mut scalars);
        check_finite(comm.rank(), round, "a gradient", &scalars)?;
        let (budget, width, extras) = (scalars.len(), self.scalar_bytes(), extra.len());
        let mut message = Vec::with_capacity(budget * width + 8 * extras);
        self.encode(Purpose::Dither, round, comm.rank(), &scalars, &mut message);
        push_extra(extra, &mut message);
        let reply = comm.exchange(&message, &mut |messages| {
            let (mut sums, mut means) = (vec![0.0; budget], ExtraMeans::new(extras));
            for (rank, message) in messages.iter().enumerate() {
                let parts = split_extra(message, extras).filter(|(body, _)| body.len() == budget * width);
                let Some((body, extra)) = parts else {
                    let what = format!("it sent {} bytes for {budget} scalars", message.len());
                    return Err(CommError::Refused { rank, what });
                };
                sums.iter_mut().zip(body.chunks_exact(width)).for_each(|(sum, bytes)| *sum += decode(bytes));
                means.add(extra);
            }
            sums.iter_mut().for_each(|sum| *sum /= messages.len() as f64);
            let mut reply = Vec::with_capacity(message.len());
            self.encode(Purpose::DownlinkDither, round, 0, &sums, &mut reply);
            means.push(&mut reply);
            Ok(reply)
        })?;
        let body = pull_extra(&reply.message, extra);
        scalars.iter_mut().zip(body.chunks_exact(width)).for_each(|(scalar, bytes)| *scalar = decode(bytes));
        self.sketch.reconstruct(round, &scalars, mean);
        let energy = self.sketch.energy(&scalars);
        self.scalars = scalars;
        Ok(Estimate { energy })
    }

    fn effective_budget(&self) -> f64 {
        self.sketch.len() as f64
    }
}
