//! From every machine's vector to one estimate of their mean that all share. This is the seam of the project: what travels, and how it
//! is compressed, is decided here and nowhere else; what is done with the estimate belongs to the methods.

mod dropped_momentum;
mod exact;
mod gathered;
mod low_rank;
mod quantised;
mod shifted;
mod sketched;
mod tables;

pub use dropped_momentum::DroppedMomentum;
pub use exact::Exact;
pub use gathered::{Channel, Coding, Downlink, Gathered};
pub use low_rank::LowRank;
pub use quantised::{Form, Quantised, Quantiser};
pub use shifted::{Dasha, Diana, Marina, ThreePoint};
pub use sketched::{Sketched, Width};
pub use tables::{FetchSgd, SketchedSgd};

use corewire_comm::Collective;

use crate::error::RunError;
use crate::state::Stateful;

/// What is known of an estimate beside the vector itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// An unbiased estimate of ||mean||^2; for an unquantised dense sketch it is exactly <mean, estimate>.
    pub energy: f64,
}

/// Local vectors -> an estimate of their mean that all machines share.
///
/// Law: after `estimate` every machine holds the same bits in `mean`, and its expectation over the common randomness is the mean of the
/// local vectors, unless the estimator's page says otherwise.
pub trait MeanEstimator: Stateful + Send {
    /// Overwrites `mean`. The few numbers in `extra` travel with the message, uncompressed, and come back as their means.
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError>;

    /// The budget m of an unquantised sketch with the same noise; infinite where there is none.
    fn effective_budget(&self) -> f64 {
        f64::INFINITY
    }
}

/// Appends the extra numbers of a message.
fn push_extra(extra: &[f64], message: &mut Vec<u8>) {
    message.extend(extra.iter().flat_map(|value| value.to_le_bytes()));
}

/// Cuts a message into what its code wrote and the extra numbers at its end.
fn split_extra(message: &[u8], count: usize) -> Option<(&[u8], impl Iterator<Item = f64> + '_)> {
    let (body, extra) = message.split_at_checked(message.len().checked_sub(8 * count)?)?;
    let number = |bytes: &[u8]| {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        f64::from_le_bytes(word)
    };
    Some((body, extra.chunks_exact(8).map(number)))
}

/// Replaces `extra` by the means that came back, for estimators whose reply ends with them.
fn pull_extra<'a>(reply: &'a [u8], extra: &mut [f64]) -> &'a [u8] {
    let (body, numbers) = split_extra(reply, extra.len()).expect("the hub answers with as many numbers as it was sent");
    extra.iter_mut().zip(numbers).for_each(|(extra, number)| *extra = number);
    body
}

/// The hub's side of the extra numbers: their means, summed in rank order.
struct ExtraMeans {
    sums: Vec<f64>,
    machines: usize,
}

impl ExtraMeans {
    fn new(count: usize) -> Self {
        Self { sums: vec![0.0; count], machines: 0 }
    }

    fn add(&mut self, extra: impl Iterator<Item = f64>) {
        self.sums.iter_mut().zip(extra).for_each(|(sum, extra)| *sum += extra);
        self.machines += 1;
    }

    fn push(&self, message: &mut Vec<u8>) {
        let means: Vec<f64> = self.sums.iter().map(|sum| sum / self.machines as f64).collect();
        push_extra(&means, message);
    }
}

/// Refuses to send what is not a number, before it reaches anyone.
pub(crate) fn check_finite(rank: usize, round: u64, what: &'static str, numbers: &[f64]) -> Result<(), RunError> {
    if crate::vector::all_finite(numbers) { Ok(()) } else { Err(RunError::NotFinite { rank, round, what }) }
}
