//! The mean itself: d floats up, d floats down.

use corewire_comm::{CommError, Reply, numbers};
use corewire_sketch::Real;

use super::{
    Estimate, How, MeanEstimator, Next, Place, check_finite, pull_extra, read_sums, sum_unless_extra, sum_with_extra,
};
use crate::error::RunError;
use crate::state::{Stateful, Visitor};

/// Sends every coordinate, as 32 or 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    /// Whether coordinates travel as 64 bits.
    pub double: bool,
}

impl Stateful for Exact {
    fn visit(&mut self, _: &mut dyn Visitor) {}
}

impl<T: Real> MeanEstimator<T> for Exact {
    fn contribute(&mut self, at: Place, local: &[T], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        check_finite(at, "a gradient", local)?;
        match self.double {
            true => local.iter().for_each(|value| numbers::Number::push(value.to_f64(), message)),
            false => local.iter().for_each(|value| numbers::Number::push(numbers::narrow(value.to_f64()), message)),
        }
        numbers::push(extra, message);
        Ok(sum_unless_extra(if self.double { How::SumF64 } else { How::SumF32 }, extra))
    }

    fn combine(&mut self, _: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        match self.double {
            true => sum_with_extra::<f64>(messages, extras),
            false => sum_with_extra::<f32>(messages, extras),
        }
    }

    fn absorb(&mut self, _: Place, reply: &Reply, extra: &mut [f64], mean: &mut [T]) -> Result<Next, RunError> {
        let (n, body, count) = (reply.divisor(), pull_extra(reply, extra)?, mean.len());
        match self.double {
            true => mean.iter_mut().zip(read_sums::<f64>(body, count)?).for_each(|(m, sum)| *m = T::from_f64(sum / n)),
            false => mean
                .iter_mut()
                .zip(read_sums::<f32>(body, count)?)
                .for_each(|(m, sum)| *m = T::from_f64(f64::from(sum) / n)),
        }
        Ok(Next::Done(Estimate { energy: mean.iter().map(|m| m.to_f64() * m.to_f64()).sum() }))
    }
}
