//! Methods: what a machine does in a round. They know estimators, objectives and collectives; never which engine carries the bytes.

pub mod accelerated;
pub mod baselines;
pub mod conjugate;
pub mod core;
pub mod descent;
pub mod gradient;
pub mod newton;
pub mod nonconvex;
pub mod reduced;
mod secants;

use corewire_comm::{Collective, CommError, Reduction, numbers};

use crate::error::RunError;
use crate::estimator::{self, Estimate, MeanEstimator, Place, check_finite};
use crate::objective::Objective;
use crate::state::Stateful;

/// What a method works with on one machine.
pub struct Context<'a> {
    /// The machine's share of the problem.
    pub objective: &'a mut dyn Objective,
    /// Its group.
    pub comm: &'a mut dyn Collective,
    /// Scratch space for messages.
    pub message: &'a mut Vec<u8>,
}

impl Context<'_> {
    /// Where a call of this round stands.
    pub fn place(&self, round: u64) -> Place {
        Place { round, rank: self.comm.rank(), machines: self.comm.size(), stage: 0 }
    }

    /// Brings an estimator's contributions through the group until the mean is there.
    pub fn estimate(
        &mut self,
        estimator: &mut (impl MeanEstimator + ?Sized),
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        mean: &mut Vec<f64>,
    ) -> Result<Estimate, RunError> {
        estimator::estimate(estimator, round, local, extra, self.comm, self.message, mean)
    }

    /// The means over all machines of a few numbers, sent as 32-bit floats, or as 64-bit ones if `double`.
    pub fn means(&mut self, round: u64, numbers: &mut [f64], double: bool) -> Result<(), RunError> {
        check_finite(self.place(round), "a number to send", numbers)?;
        self.message.clear();
        numbers::push_floats(numbers, double, self.message);
        let how = if double { Reduction::SumF64 } else { Reduction::SumF32 };
        let reply = self.comm.exchange(self.message, how)?;
        if !numbers::read_floats(&reply.message, double, numbers) {
            return Err(CommError::refused(0, "its sums are not as many as were sent").into());
        }
        let n = reply.divisor();
        numbers.iter_mut().for_each(|number| *number /= n);
        // Each was finite; together they may still be too large for 32 bits.
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(CommError::refused(0, "the sum of what the machines sent is not finite").into());
        }
        Ok(())
    }

    /// The means over all machines of a few numbers, each sent as the `bytes` (2 to 4) upper bytes of a 32-bit float, rounded to nearest;
    /// and how many bytes to send next time. Numbers of unlike machines may cancel until rounding outweighs what is left of the first of
    /// them: the hub then answers with one byte more per number, which tells everybody.
    pub fn short_means(&mut self, round: u64, numbers: &mut [f64], bytes: usize) -> Result<usize, RunError> {
        check_finite(self.place(round), "a number to send", numbers)?;
        let count = numbers.len();
        let mut combine = |messages: &[&[u8]]| {
            let (means, rounding) = short::means(messages, count, bytes)?;
            let drowned = means.first().is_some_and(|first| rounding > short::TOLERATED * first.abs());
            Ok(short::encode(&means, if drowned { (bytes + 1).min(4) } else { bytes }))
        };
        let reply = self.comm.exchange(&short::encode(numbers, bytes), Reduction::Hub(&mut combine))?;
        let next = reply.message.len() / count.max(1);
        if reply.message.len() != count * next || !(bytes..=(bytes + 1).min(4)).contains(&next) {
            return Err(CommError::refused(0, "its means are not as many as were sent").into());
        }
        numbers
            .iter_mut()
            .zip(reply.message.chunks_exact(next))
            .for_each(|(number, short)| *number = short::decode(short));
        Ok(next)
    }
}

/// Numbers as the upper bytes of 32-bit floats.
mod short {
    use corewire_comm::{CommError, numbers};

    /// Rounded to nearest.
    pub(super) fn encode(numbers: &[f64], bytes: usize) -> Vec<u8> {
        assert!((2..=4).contains(&bytes), "a short float has two to four bytes");
        let drop = 8 * (4 - bytes as u32);
        // The largest short float: rounding up from a greater one would end at infinity.
        let most = f32::from_bits((f32::MAX.to_bits() >> drop) << drop);
        let shorten = |&number: &f64| {
            let bits = numbers::narrow(number).clamp(-most, most).to_bits();
            let half = if drop == 0 { 0 } else { 1 << (drop - 1) };
            // A carry goes into the exponent, as it should.
            ((bits + half) >> drop).to_le_bytes().into_iter().take(bytes)
        };
        numbers.iter().flat_map(shorten).collect()
    }

    /// One number from its bytes.
    pub(super) fn decode(short: &[u8]) -> f64 {
        let bits = short.iter().rev().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
        f64::from(f32::from_bits(bits << (8 * (4 - short.len() as u32))))
    }

    /// The share of a number that rounding may be.
    pub(super) const TOLERATED: f64 = 0.3;

    /// The means of all machines' numbers, summed in rank order, and the standard deviation that rounding gives the first.
    pub(super) fn means(messages: &[&[u8]], count: usize, bytes: usize) -> Result<(Vec<f64>, f64), CommError> {
        let (mut sums, mut squares) = (vec![0.0; count], 0.0);
        for (rank, message) in messages.iter().enumerate() {
            if message.len() != count * bytes {
                return Err(CommError::refused(rank, format!("it sent {} bytes for {count} numbers", message.len())));
            }
            sums.iter_mut().zip(message.chunks_exact(bytes)).for_each(|(sum, short)| *sum += decode(short));
            squares += message.chunks_exact(bytes).next().map_or(0.0, |first| decode(first) * decode(first));
        }
        let n = messages.len() as f64;
        sums.iter_mut().for_each(|sum| *sum /= n);
        // A float of so many bytes has 8 bytes - 9 bits behind its leading one, and errs by up to half of the last: evenly.
        let last = 1.0 / (1u32 << (8 * bytes - 9)) as f64;
        Ok((sums, last * squares.sqrt() / (12f64.sqrt() * n)))
    }
}

/// What a round did, as far as all machines know it.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Outcome {
    /// An estimate of the gradient's norm where it was queried, if the method has one for free.
    pub gradient_norm: Option<f64>,
    /// The step that was taken.
    pub step: Option<f64>,
    /// Whether the step was refused and undone.
    pub rejected: bool,
    /// An estimate of f - f* where the gradient was queried, if the method has one.
    pub gap: Option<f64>,
}

/// What a method settled on, for people.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Settings {
    /// The budget m.
    pub budget: Option<usize>,
    /// The step h.
    pub step: Option<f64>,
    /// 1 - momentum.
    pub damping: Option<f64>,
    /// The smoothness it believes in.
    pub smoothness: Option<f64>,
    /// The trace it believes in.
    pub trace: Option<f64>,
    /// Weight of the l2 term that was added because f is not strongly convex.
    pub added: Option<f64>,
}

/// A distributed method, seen from one machine.
///
/// Law: the iterate, and every field visited as common, is a function of the start, the seed and the replies of the collective alone.
/// So a run can be replayed from the replies without any data.
pub trait Method: Stateful + Send {
    /// The point that the method would hand over now.
    fn iterate(&self) -> &[f64];

    /// Whether all machines have the same iterate. Where they have not, f is evaluated at that of the machine farthest from their mean.
    fn iterates_agree(&self) -> bool {
        true
    }

    /// What has to be said before the first round: traces, probes.
    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let _ = context;
        Ok(())
    }

    /// One round.
    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError>;

    /// Whether further rounds would change nothing; the same on every machine.
    fn is_done(&self) -> bool {
        false
    }

    /// What it settled on.
    fn settings(&self) -> Settings {
        Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use corewire_comm::group;
    use corewire_data::shard::Split;
    use corewire_sketch::{CommonRandomness, Seed};

    use super::*;
    use crate::problem::{Model, ModelSpec, Problem};
    use crate::proximal::Proximal;

    /// What every machine gets of the means, or why it gets none.
    fn means(machines: usize, of: impl Fn(usize) -> f64 + Sync, short: Option<usize>) -> Vec<Result<f64, RunError>> {
        let spec = ModelSpec { model: Model::Ridge, classes: 0, alpha: 1e-3, proximal: Proximal::NONE };
        let randomness = CommonRandomness::new(&Seed::reproducible(1));
        let problem = Problem::rows(corewire_data::digits().first_rows(20), spec, machines, Split::Random, &randomness);
        group::run(machines, |machine| {
            let rank = machine.rank();
            let (mut objective, mut message) = (problem.objective(rank), Vec::new());
            let mut context = Context { objective: &mut *objective, comm: machine, message: &mut message };
            let mut numbers = [of(rank), 1.0];
            match short {
                None => context.means(3, &mut numbers, false)?,
                Some(bytes) => {
                    context.short_means(3, &mut numbers, bytes)?;
                }
            }
            assert_eq!(numbers[1], 1.0);
            Ok(numbers[0])
        })
    }

    const WAYS: [Option<usize>; 4] = [None, Some(2), Some(3), Some(4)];

    #[test]
    fn what_is_not_finite_is_refused_where_it_is() {
        for short in WAYS {
            for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let results = means(3, |rank| if rank == 1 { wrong } else { 1.0 }, short);
                let [first, second, _] = &results[..] else { panic!("three machines") };
                assert!(matches!(second, Err(RunError::NotFinite { rank: 1, round: 3, .. })), "{short:?}");
                assert!(matches!(first, Err(RunError::Comm(CommError::Left { rank: 1, .. }))), "{short:?}");
            }
        }
    }

    #[test]
    fn numbers_that_cancel_are_sent_with_more_bytes_until_rounding_is_small() {
        let (spec, randomness) = (
            ModelSpec { model: Model::Ridge, classes: 0, alpha: 1e-3, proximal: Proximal::NONE },
            CommonRandomness::new(&Seed::reproducible(1)),
        );
        let problem = Problem::rows(corewire_data::digits().first_rows(20), spec, 2, Split::Random, &randomness);
        let found: Vec<Result<_, RunError>> = group::run(2, |machine| {
            let rank = machine.rank();
            let (mut objective, mut message) = (problem.objective(rank), Vec::new());
            let mut context = Context { objective: &mut *objective, comm: machine, message: &mut message };
            let mut bytes = 2;
            let mut calls = Vec::new();
            for _ in 0..4 {
                let mut numbers = [if rank == 0 { 1000.7 } else { -999.7 }, 1.0];
                bytes = context.short_means(3, &mut numbers, bytes)?;
                calls.push((bytes, numbers[0]));
            }
            Ok(calls)
        });
        let found: Vec<Vec<(usize, f64)>> = found.into_iter().map(Result::unwrap).collect();
        assert_eq!(found[0], found[1], "all machines know how many bytes come next");
        let [first, second, third, fourth] = found[0][..] else { panic!("four calls") };
        // The mean is 0.5. Two bytes err by up to 2 for numbers near 1000; three by 0.008, which is little enough.
        assert!(first.0 == 3 && (first.1 - 0.5).abs() > 0.01, "{first:?}");
        for call in [second, third, fourth] {
            assert!(call.0 == 3 && (call.1 - 0.5).abs() < 0.01, "{call:?}");
        }
    }

    #[test]
    fn a_number_too_large_for_32_bits_stays_finite_on_the_way() {
        for short in WAYS {
            for (large, most) in [(1e300, f64::from(f32::MAX)), (-1e300, f64::from(f32::MIN))] {
                let found = means(1, |_| large, short).remove(0).unwrap();
                assert!(found.is_finite() && (found / most - 1.0).abs() < 0.01, "{short:?}: {found}");
            }
        }
        // The sum of two such numbers is refused in words where it travels as 32 bits; short floats are summed in 64.
        let words = means(2, |_| 1e300, None).remove(0).unwrap_err().to_string();
        assert!(words.contains("the sum of what the machines sent is not finite"), "{words}");
        assert!(means(2, |_| 1e300, Some(3)).remove(0).unwrap().is_finite());
    }
}
