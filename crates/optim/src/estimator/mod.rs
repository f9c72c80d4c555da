//! From every machine's vector to one estimate of their mean that all share. This is the seam of the project: what travels, and how it
//! is compressed, is decided here and nowhere else; what is done with the estimate belongs to the methods, and who carries it to a driver.
//!
//! An estimator does no input or output. It hands out a message with the name of a reduction, and takes in the reply; [`estimate`] connects
//! it to a collective, and a hook of another framework may do so in its own way.

mod anchored;
mod dropped_momentum;
mod exact;
mod gathered;
mod low_rank;
mod momentum;
mod quantised;
mod shifted;
mod sketched;
mod tables;

pub use anchored::Anchored;
pub use dropped_momentum::DroppedMomentum;
pub use exact::Exact;
pub use gathered::{Channel, Coding, Downlink, Gathered, channel_mean, channel_means};
pub use low_rank::LowRank;
pub use momentum::Momentum;
pub use quantised::{Form, Quantised, Quantiser};
pub use shifted::{Dasha, Diana, Marina, ThreePoint};
pub use sketched::{Sketched, Width};
pub use tables::{FetchSgd, SketchedSgd};

use corewire_comm::numbers::{self, Number};
use corewire_comm::{Collective, CommError, Reduction, Reply};
use corewire_sketch::Real;

use crate::error::RunError;
use crate::state::Stateful;

/// What is known of an estimate beside the vector itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// An unbiased estimate of ||mean||^2; for an unquantised dense sketch it is exactly <mean, estimate>.
    pub energy: f64,
}

/// What is to be made of the machines' messages; with [`Reduction`] it is the same list, but the hub's state stays with the estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// See [`Reduction::SumI32`].
    SumI32,
    /// See [`Reduction::SumF32`].
    SumF32,
    /// See [`Reduction::SumF64`].
    SumF64,
    /// Machine 0's estimator combines them, by [`MeanEstimator::combine`].
    Hub,
}

/// Where in a run a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The round.
    pub round: u64,
    /// This machine.
    pub rank: usize,
    /// How many machines there are.
    pub machines: usize,
    /// Contributions of this round that were answered.
    pub stage: u32,
}

/// What a reply led to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// One more contribution is wanted.
    Again,
    /// The mean is there.
    Done(Estimate),
}

/// Local vectors -> an estimate of their mean that all machines share.
///
/// Law: after the last `absorb` of a round every machine holds the same bits in `mean`, and its expectation over the common randomness is
/// the mean of the local vectors, unless the estimator's page says otherwise.
pub trait MeanEstimator<T: Real = f64>: Stateful + Send {
    /// Writes this machine's message over `message`, and says what is to be made of all of them. The few numbers of `extra` travel along,
    /// uncompressed.
    fn contribute(&mut self, at: Place, local: &[T], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError>;

    /// Machine 0's part, where the messages go to the hub: one reply of all of them, in rank order, each with `extras` extra numbers at its
    /// end.
    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError>;

    /// Takes in what came back. With [`Next::Done`], `mean` was overwritten, and so was `extra`, with means.
    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [T]) -> Result<Next, RunError>;

    /// The budget m of an unquantised sketch with the same noise; infinite where there is none.
    fn effective_budget(&self) -> f64 {
        f64::INFINITY
    }
}

impl<T: Real, E: MeanEstimator<T> + ?Sized> MeanEstimator<T> for Box<E> {
    fn contribute(&mut self, at: Place, local: &[T], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        (**self).contribute(at, local, extra, message)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        (**self).combine(at, messages, extras)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [T]) -> Result<Next, RunError> {
        (**self).absorb(at, reply, extra, mean)
    }

    fn effective_budget(&self) -> f64 {
        (**self).effective_budget()
    }
}

/// The driver: brings an estimator's contributions through a collective until the mean is there. `message` is scratch space. `mean` grows
/// to its length once the others have answered, not while they are waited for: machines of one process would all hold theirs.
pub fn estimate<T: Real>(
    estimator: &mut (impl MeanEstimator<T> + ?Sized),
    round: u64,
    local: &[T],
    extra: &mut [f64],
    comm: &mut dyn Collective,
    message: &mut Vec<u8>,
    mean: &mut Vec<T>,
) -> Result<Estimate, RunError> {
    let mut at = Place { round, rank: comm.rank(), machines: comm.size(), stage: 0 };
    loop {
        message.clear();
        let how = estimator.contribute(at, local, extra, message)?;
        let reply = match how {
            How::SumI32 => comm.exchange(message, Reduction::SumI32)?,
            How::SumF32 => comm.exchange(message, Reduction::SumF32)?,
            How::SumF64 => comm.exchange(message, Reduction::SumF64)?,
            How::Hub => {
                let extras = extra.len();
                comm.exchange(message, Reduction::Hub(&mut |messages| estimator.combine(at, messages, extras)))?
            }
        };
        mean.resize(local.len(), T::ZERO);
        match estimator.absorb(at, &reply, extra, mean)? {
            Next::Again => {
                // Nor while the next answer is waited for.
                *mean = Vec::new();
                at.stage += 1;
            }
            Next::Done(estimate) => return Ok(estimate),
        }
    }
}

/// Sums that need no hub go the way of sums, unless extra numbers come along.
fn sum_unless_extra(how: How, extra: &[f64]) -> How {
    if extra.is_empty() { how } else { How::Hub }
}

/// Cuts a message into what its code wrote and the extra numbers at its end.
fn split_extra(message: &[u8], count: usize) -> Option<(&[u8], impl Iterator<Item = f64> + '_)> {
    let (body, extra) = message.split_at_checked(message.len().checked_sub(8 * count)?)?;
    Some((body, numbers::read::<f64>(extra)))
}

/// Replaces `extra` by the means that came back, for estimators whose reply ends with them.
fn pull_extra<'a>(reply: &'a Reply, extra: &mut [f64]) -> Result<&'a [u8], CommError> {
    let short = || CommError::refused(0, "its reply is too short");
    let (body, numbers) = split_extra(&reply.message, extra.len()).ok_or_else(short)?;
    extra.iter_mut().zip(numbers).for_each(|(extra, number)| *extra = number);
    Ok(body)
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
        self.sums.iter().for_each(|sum| (sum / self.machines as f64).push(message));
    }
}

/// The hub's side of sums that extra numbers come along with.
fn sum_with_extra<N: Number>(messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
    let mut means = ExtraMeans::new(extras);
    let mut bodies = Vec::with_capacity(messages.len());
    for (rank, message) in messages.iter().enumerate() {
        let (body, extra) =
            split_extra(message, extras).ok_or_else(|| CommError::refused(rank, "its message is too short"))?;
        means.add(extra);
        bodies.push(body);
    }
    let mut reply = numbers::sum::<N>(&bodies)?;
    means.push(&mut reply);
    Ok(reply)
}

/// The numbers of a sum over machines; refused unless there are as many as there should be.
fn read_sums<'a, N: Number + 'a>(body: &'a [u8], count: usize) -> Result<impl Iterator<Item = N> + 'a, CommError> {
    if body.len() != count * N::WIDTH {
        return Err(CommError::refused(0, format!("its reply has {} bytes for {count} numbers", body.len())));
    }
    Ok(numbers::read::<N>(body))
}

/// Refuses to send what is not a number, before it reaches anyone.
pub(crate) fn check_finite<T: Real>(at: Place, what: &'static str, numbers: &[T]) -> Result<(), RunError> {
    let Place { rank, round, .. } = at;
    if numbers.iter().all(|number| number.is_finite()) {
        Ok(())
    } else {
        Err(RunError::NotFinite { rank, round, what })
    }
}
