//! CORE's estimate with the scalars as floats (Algorithm 1, with the mean over machines that Algorithms 2 to 4 leave out in print).
//!
//! (1/(n m)) sum_i sum_j <g_i, xi_j> xi_j: m floats up, m floats down.

use corewire_comm::numbers::{self, Number};
use corewire_comm::{CommError, Reply};
use corewire_sketch::code::{bf16_to_f32, round_to_bf16};
use corewire_sketch::{AnySketch, CommonRandomness, Purpose, Real, Sketch};

use super::{
    Estimate, ExtraMeans, How, MeanEstimator, Next, Place, check_finite, pull_extra, read_sums, split_extra,
    sum_unless_extra, sum_with_extra,
};
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
pub struct Sketched<T: Real = f64> {
    sketch: AnySketch,
    randomness: CommonRandomness,
    width: Width,
    scalars: Vec<T>,
}

impl<T: Real> Sketched<T> {
    /// Through this sketch, which all machines must share.
    pub fn new(sketch: AnySketch, randomness: &CommonRandomness, width: Width) -> Self {
        let scalars = vec![T::ZERO; sketch.len()];
        Self { sketch, randomness: randomness.clone(), width, scalars }
    }

    /// Appends scalars as 16 bits, rounded by the dice of an address.
    fn push_short(
        &self,
        purpose: Purpose,
        round: u64,
        rank: usize,
        scalars: impl Iterator<Item = f64>,
        out: &mut Vec<u8>,
    ) {
        let mut words = self.randomness.words(purpose, round, rank as u32);
        for scalar in scalars {
            let short = round_to_bf16(numbers::narrow(scalar), words.next_u64() as u32);
            out.extend_from_slice(&short.to_le_bytes());
        }
    }
}

fn read_short(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    bytes.chunks_exact(2).map(|pair| f64::from(bf16_to_f32(u16::from_le_bytes([pair[0], pair[1]]))))
}

impl<T: Real> Stateful for Sketched<T> {
    fn visit(&mut self, _: &mut dyn Visitor) {}
}

impl<T: Real> MeanEstimator<T> for Sketched<T> {
    fn contribute(&mut self, at: Place, local: &[T], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        self.sketch.project(at.round, local, &mut self.scalars);
        check_finite(at, "a gradient", &self.scalars)?;
        let how = match self.width {
            Width::F32 => {
                self.scalars.iter().for_each(|scalar| numbers::narrow(scalar.to_f64()).push(message));
                sum_unless_extra(How::SumF32, extra)
            }
            Width::Bf16 => {
                let scalars = self.scalars.iter().map(|scalar| scalar.to_f64());
                self.push_short(Purpose::Dither, at.round, at.rank, scalars, message);
                How::Hub
            }
        };
        numbers::push(extra, message);
        Ok(how)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        if self.width == Width::F32 {
            return sum_with_extra::<f32>(messages, extras);
        }
        let budget = self.scalars.len();
        let (mut sums, mut means) = (vec![0.0; budget], ExtraMeans::new(extras));
        for (rank, message) in messages.iter().enumerate() {
            let parts = split_extra(message, extras).filter(|(body, _)| body.len() == 2 * budget);
            let Some((body, extra)) = parts else {
                let what = format!("it sent {} bytes for {budget} scalars", message.len());
                return Err(CommError::refused(rank, what));
            };
            sums.iter_mut().zip(read_short(body)).for_each(|(sum, scalar)| *sum += scalar);
            means.add(extra);
        }
        let n = messages.len() as f64;
        let mut reply = Vec::new();
        self.push_short(Purpose::DownlinkDither, at.round, 0, sums.into_iter().map(|sum| sum / n), &mut reply);
        means.push(&mut reply);
        Ok(reply)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [T]) -> Result<Next, RunError> {
        let (n, body, budget) = (reply.divisor(), pull_extra(reply, extra)?, self.scalars.len());
        match self.width {
            Width::F32 => {
                let sums = read_sums::<f32>(body, budget)?;
                self.scalars.iter_mut().zip(sums).for_each(|(s, sum)| *s = T::from_f64(f64::from(sum) / n));
            }
            Width::Bf16 if body.len() == 2 * budget => {
                self.scalars.iter_mut().zip(read_short(body)).for_each(|(s, mean)| *s = T::from_f64(mean));
            }
            Width::Bf16 => {
                let what = format!("its reply has {} bytes for {budget} scalars", body.len());
                return Err(CommError::refused(0, what).into());
            }
        }
        self.sketch.reconstruct(at.round, &self.scalars, mean);
        Ok(Next::Done(Estimate { energy: self.sketch.energy(&self.scalars).to_f64() }))
    }

    fn effective_budget(&self) -> f64 {
        self.sketch.len() as f64
    }
}
