//! The one primitive: every machine hands in a message, and what is to be done with all of them is a value that an engine can see. How
//! bytes travel belongs to the engines.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::meter::Traffic;
use crate::neighbours::Neighbours;
use crate::numbers::{self, Number, push_count, take_bytes, take_count};

/// What a machine's call can fail with. Every machine of the group gets the same error, or one that names who left.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// A machine ended before the others, by an error or a panic of its own.
    #[error("machine {rank} left the group during exchange {exchange}")]
    Left {
        /// Who.
        rank: usize,
        /// How many exchanges had been completed.
        exchange: u64,
    },
    /// A machine did not come in time.
    #[error(
        "machine {rank} did not arrive at exchange {exchange} within {seconds} s; raise `limits.wait_seconds` if it needs longer"
    )]
    Late {
        /// The first that is missing.
        rank: usize,
        /// Which exchange.
        exchange: u64,
        /// How long the others waited.
        seconds: u64,
    },
    /// A message did not survive the way, or is not one.
    #[error("the message of machine {rank} in exchange {exchange} is damaged: {what}")]
    Damaged {
        /// Whose message.
        rank: usize,
        /// Which exchange.
        exchange: u64,
        /// What was found.
        what: String,
    },
    /// The hub could not combine the messages, or a machine refused to go on.
    #[error("machine {rank}: {what}")]
    Refused {
        /// Who refused, or whose message was refused.
        rank: usize,
        /// Why, and what to do.
        what: String,
    },
    /// A machine's copy of the common state is not what the others have.
    #[error("machine {rank} has drifted: its state after round {round} differs from that of the other machines")]
    Drifted {
        /// Which machine.
        rank: usize,
        /// After which round.
        round: u64,
    },
    /// The engine itself failed.
    #[error("engine on process {process}: {what}")]
    Engine {
        /// Which process saw it.
        process: usize,
        /// What the engine said.
        what: String,
    },
}

/// For those who only want to tell it.
impl From<CommError> for String {
    fn from(error: CommError) -> Self {
        error.to_string()
    }
}

impl CommError {
    /// A refusal of this machine's message.
    pub fn refused(rank: usize, what: impl Into<String>) -> Self {
        Self::Refused { rank, what: what.into() }
    }

    /// As bytes, so that every process ends with the very same error.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, numbers, what) = match self {
            Self::Left { rank, exchange } => (0, [*rank as u64, *exchange, 0], ""),
            Self::Damaged { rank, exchange, what } => (1, [*rank as u64, *exchange, 0], what.as_str()),
            Self::Refused { rank, what } => (2, [*rank as u64, 0, 0], what.as_str()),
            Self::Engine { process, what } => (3, [*process as u64, 0, 0], what.as_str()),
            Self::Late { rank, exchange, seconds } => (4, [*rank as u64, *exchange, *seconds], ""),
            Self::Drifted { rank, round } => (5, [*rank as u64, *round, 0], ""),
        };
        let mut bytes = vec![kind];
        numbers.iter().for_each(|&number| push_count(number, &mut bytes));
        bytes.extend_from_slice(what.as_bytes());
        bytes
    }

    /// From those bytes, if they are such.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rank = usize::try_from(take_count(&mut rest)?).ok()?;
        let (exchange, seconds) = (take_count(&mut rest)?, take_count(&mut rest)?);
        let what = str::from_utf8(rest).ok()?.to_owned();
        match kind {
            0 => Some(Self::Left { rank, exchange }),
            1 => Some(Self::Damaged { rank, exchange, what }),
            2 => Some(Self::Refused { rank, what }),
            3 => Some(Self::Engine { process: rank, what }),
            4 => Some(Self::Late { rank, exchange, seconds }),
            5 => Some(Self::Drifted { rank, round: exchange }),
            _ => None,
        }
    }
}

/// What the hub makes of all messages, in rank order.
pub type Combine<'a> = dyn FnMut(&[&[u8]]) -> Result<Vec<u8>, CommError> + 'a;

/// What is to be done with the messages of all machines. Every machine hands in the same kind.
pub enum Reduction<'a> {
    /// 32-bit integers, added in any order; overflow wraps on every machine alike.
    SumI32,
    /// 64-bit integers, likewise.
    SumI64,
    /// 32-bit floats, added in rank order.
    SumF32,
    /// 64-bit floats, added in rank order.
    SumF64,
    /// Every message, in rank order, to every machine; [`Reply::messages`] takes them apart.
    Gather,
    /// Machine 0 makes one reply of all messages. What the closure captures there is the hub's state; on other machines it is not called.
    Hub(&'a mut Combine<'a>),
}

impl Reduction<'_> {
    /// The reply's bytes, for an engine that brings all messages to one place.
    pub(crate) fn combine(&mut self, messages: &[&[u8]]) -> Result<Vec<u8>, CommError> {
        match self {
            Self::SumI32 => numbers::sum::<i32>(messages),
            Self::SumI64 => numbers::sum::<i64>(messages),
            Self::SumF32 => numbers::sum::<f32>(messages),
            Self::SumF64 => numbers::sum::<f64>(messages),
            Self::Gather => {
                let mut all = Vec::with_capacity(messages.iter().map(|message| 3 + message.len()).sum());
                for message in messages {
                    push_count(message.len() as u64, &mut all);
                    all.extend_from_slice(message);
                }
                Ok(all)
            }
            Self::Hub(combine) => combine(messages),
        }
    }

    /// Bytes of an integer, where integers are summed.
    pub(crate) fn integer_bytes(&self) -> Option<usize> {
        match self {
            Self::SumI32 => Some(4),
            Self::SumI64 => Some(8),
            _ => None,
        }
    }

    /// Its name, for those who come with different ones.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::SumI32 | Self::SumI64 => "to sum integers",
            Self::SumF32 | Self::SumF64 => "to sum floats",
            Self::Gather => "to gather",
            Self::Hub(_) => "to the hub",
        }
    }
}

/// Who took part in an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roster {
    /// So many machines, from 0 on: all there are.
    All(usize),
    /// These, ascending.
    Some(Arc<[usize]>),
}

impl Roster {
    /// How many: what a sum is to be divided by for the mean.
    pub fn len(&self) -> usize {
        match self {
            Self::All(count) => *count,
            Self::Some(ranks) => ranks.len(),
        }
    }

    /// Nobody.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their ranks, ascending.
    pub fn ranks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map(|at| match self {
            Self::All(_) => at,
            Self::Some(ranks) => ranks[at],
        })
    }
}

/// What an exchange cost one machine, counted by the engine where the bytes passed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cost {
    /// Payload that this machine handed in.
    pub up_bytes: u64,
    /// Payload that came back to it.
    pub down_bytes: u64,
    /// Control words that rode along, both ways.
    pub control_bytes: u64,
    /// Envelopes, both ways.
    pub frame_bytes: u64,
    /// Messages that had to wait for each other: two for a star, up and down.
    pub hops: u64,
    /// Bytes of the longest message of each hop, added up: what a modelled link waits for. Known where the hub is.
    pub path_bytes: u64,
    /// What passed on each edge of a machine that talks to several neighbours, by the neighbour's rank.
    pub edges: BTreeMap<usize, Traffic>,
}

/// What comes back to every machine.
#[derive(Debug, Clone)]
pub struct Reply {
    /// What was made of the messages.
    pub message: Arc<[u8]>,
    /// Whose messages.
    pub roster: Roster,
    /// What it cost this machine.
    pub cost: Cost,
}

impl Reply {
    /// By what a sum is to be divided for the mean.
    pub fn divisor(&self) -> f64 {
        self.roster.len() as f64
    }

    /// The messages of a [`Reduction::Gather`], in the roster's order.
    pub fn messages(&self) -> Option<Vec<&[u8]>> {
        let mut rest = &self.message[..];
        let mut messages = Vec::with_capacity(self.roster.len());
        while !rest.is_empty() {
            let length = take_count(&mut rest)?;
            messages.push(take_bytes(&mut rest, length)?);
        }
        (messages.len() == self.roster.len()).then_some(messages)
    }

    /// The numbers of a sum.
    pub fn numbers<T: Number>(&self) -> impl ExactSizeIterator<Item = T> {
        numbers::read(&self.message)
    }
}

/// One machine's view of its group.
///
/// Law: every machine makes the same calls in the same order with the same kind of reduction, and each call leaves the same bits with all
/// of them.
pub trait Collective {
    /// This machine's number, from 0.
    fn rank(&self) -> usize;

    /// How many machines there are.
    fn size(&self) -> usize;

    /// Hands in `message`; what `how` makes of all messages comes back to every machine. The words of `control`, of which every machine
    /// brings as many, ride along and come back as their sums, which wrap; words that are zero cost nothing on most engines.
    fn reduce(&mut self, message: &[u8], control: &mut [i32], how: Reduction<'_>) -> Result<Reply, CommError>;

    /// Like a hub's exchange, but beside the protocol: within the one process that holds all machines, and never billed. `None` where there
    /// are several processes, so that it would have to travel.
    fn beside(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Option<Result<Arc<[u8]>, CommError>> {
        let _ = (message, combine);
        None
    }

    /// The machine's neighbours, where it can talk to them without the hub.
    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        None
    }

    /// [`Collective::reduce`] without control words.
    fn exchange(&mut self, message: &[u8], how: Reduction<'_>) -> Result<Reply, CommError> {
        self.reduce(message, &mut [], how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_and_nothing_else_is_one() {
        let what = || "it sent `ü`".to_owned();
        let errors = [
            CommError::Left { rank: 3, exchange: u64::MAX },
            CommError::Damaged { rank: usize::MAX, exchange: 7, what: what() },
            CommError::Refused { rank: 0, what: String::new() },
            CommError::Engine { process: 2, what: what() },
            CommError::Late { rank: 1, exchange: 2, seconds: 30 },
            CommError::Drifted { rank: 1, round: 20 },
        ];
        for error in errors {
            let bytes = error.to_bytes();
            assert_eq!(CommError::from_bytes(&bytes), Some(error));
            assert_eq!(CommError::from_bytes(&bytes[..3]), None);
        }
        assert_eq!(CommError::from_bytes(&[6; 17]), None);
        assert_eq!(CommError::from_bytes(&[2, 0, 0, 0, 0xff]), None);
    }
}
