//! What can end a run before its time.

use corewire_comm::CommError;

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The group failed, or a machine left it.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A machine computed something that is not a number.
    #[error(
        "machine {rank} has {what} that is not finite in round {round}; look at its rows for NaN, or take a smaller step"
    )]
    NotFinite {
        /// Which machine.
        rank: usize,
        /// Which round.
        round: u64,
        /// What was not finite.
        what: &'static str,
    },
    /// Gossip ended too far from agreement.
    #[error(
        "machine {rank} and its neighbours differ by {achieved:.0e} of their numbers after {iterations} iterations of gossip \
         in round {round}, far from the tolerance {tolerance:.0e}: {advice}"
    )]
    Disagree {
        /// Who saw it.
        rank: usize,
        /// In which round.
        round: u64,
        /// After how many iterations.
        iterations: usize,
        /// The largest difference to a neighbour over the largest number at the start.
        achieved: f64,
        /// What was asked.
        tolerance: f64,
        /// What to do.
        advice: String,
    },
    /// The method cannot be used on this problem.
    #[error("{0}")]
    Unsuited(String),
    /// The journal could not be written or read.
    #[error(transparent)]
    Journal(#[from] corewire_journal::JournalError),
}

impl RunError {
    /// Whether this machine only saw another one fail.
    pub fn is_consequence(&self) -> bool {
        matches!(self, RunError::Comm(CommError::Left { .. }))
    }
}
