//! Methods: what a machine does in a round. They know estimators, objectives and collectives; never which engine carries the bytes.

pub mod accelerated;
pub mod conjugate;
pub mod core;
pub mod descent;
pub mod field;
pub mod gradient;
pub mod nonconvex;

use corewire_comm::Collective;

use crate::error::RunError;
use crate::objective::Objective;
use crate::state::Stateful;

/// What a method works with on one machine.
pub struct Machine<'a> {
    /// The machine's share of the problem.
    pub objective: &'a mut dyn Objective,
    /// Its group.
    pub comm: &'a mut dyn Collective,
}

impl Machine<'_> {
    /// The means over all machines of a few numbers, sent as 32-bit floats.
    pub fn means(&mut self, numbers: &mut [f64]) -> Result<(), RunError> {
        let mut narrow: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
        self.comm.all_reduce_sum(corewire_comm::Numbers::F32(&mut narrow))?;
        let n = self.comm.size() as f64;
        numbers.iter_mut().zip(narrow).for_each(|(number, sum)| *number = f64::from(sum) / n);
        Ok(())
    }
}

impl Machine<'_> {
    /// The means over all machines of a few numbers, each sent as the `bytes` (2 to 4) upper bytes of a 32-bit float, rounded to nearest.
    pub fn short_means(&mut self, numbers: &mut [f64], bytes: usize) -> Result<(), RunError> {
        let count = numbers.len();
        let reply = self.comm.exchange(&short::encode(numbers, bytes), &mut |messages| {
            Ok(short::encode(&short::means(messages, count, bytes)?, bytes))
        })?;
        numbers
            .iter_mut()
            .zip(reply.message.chunks_exact(bytes))
            .for_each(|(number, short)| *number = short::decode(short));
        Ok(())
    }
}

/// Numbers as the upper bytes of 32-bit floats.
mod short {
    use corewire_comm::CommError;

    /// Rounded to nearest.
    pub(super) fn encode(numbers: &[f64], bytes: usize) -> Vec<u8> {
        assert!((2..=4).contains(&bytes), "a short float has two to four bytes");
        let drop = 8 * (4 - bytes as u32);
        let shorten = |&number: &f64| {
            let bits = (number as f32).to_bits();
            let half = if drop == 0 { 0 } else { 1 << (drop - 1) };
            // A carry goes into the exponent, as it should; infinities stay what they are.
            let rounded = if bits & 0x7f80_0000 == 0x7f80_0000 { bits } else { bits + half };
            (rounded >> drop).to_le_bytes().into_iter().take(bytes)
        };
        numbers.iter().flat_map(shorten).collect()
    }

    /// One number from its bytes.
    pub(super) fn decode(short: &[u8]) -> f64 {
        let bits = short.iter().rev().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
        f64::from(f32::from_bits(bits << (8 * (4 - short.len() as u32))))
    }

    /// The means of all machines' numbers, summed in rank order.
    pub(super) fn means(messages: &[&[u8]], count: usize, bytes: usize) -> Result<Vec<f64>, CommError> {
        let mut sums = vec![0.0; count];
        for (rank, message) in messages.iter().enumerate() {
            if message.len() != count * bytes {
                let what = format!("it sent {} bytes for {count} numbers", message.len());
                return Err(CommError::Refused { rank, what });
            }
            sums.iter_mut().zip(message.chunks_exact(bytes)).for_each(|(sum, short)| *sum += decode(short));
        }
        sums.iter_mut().for_each(|sum| *sum /= messages.len() as f64);
        Ok(sums)
    }
}

/// What a round did, as far as all machines know it.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Outcome {
    /// An estimate of the gradient's norm where it was queried, if the method has one for nothing.
    pub gradient_norm: Option<f64>,
    /// The step that was taken.
    pub step: Option<f64>,
    /// Whether the step was refused and undone.
    pub rejected: bool,
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
    fn prepare(&mut self, machine: &mut Machine<'_>) -> Result<(), RunError> {
        let _ = machine;
        Ok(())
    }

    /// One round.
    fn round(&mut self, round: u64, machine: &mut Machine<'_>) -> Result<Outcome, RunError>;

    /// What it settled on.
    fn settings(&self) -> Settings {
        Settings::default()
    }
}
