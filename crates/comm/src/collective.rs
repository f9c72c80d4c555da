//! The one primitive, an exchange through a hub, and what follows from it. How bytes travel belongs to the engines.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::meter::Traffic;
use crate::neighbours::Neighbours;

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
    /// The engine itself failed.
    #[error("engine on process {process}: {what}")]
    Engine {
        /// Which process saw it.
        process: usize,
        /// What the engine said.
        what: String,
    },
}

/// What the hub makes of all messages, in rank order.
pub type Combine<'a> = dyn FnMut(&[&[u8]]) -> Result<Vec<u8>, CommError> + 'a;

/// What comes back to every machine.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The combined message.
    pub message: Arc<[u8]>,
    /// The length in bytes of the longest message that went up: a modelled link waits for it.
    pub longest_up: usize,
}

/// What an exchange cost a machine that had to carry the messages of others, or talked to several neighbours.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Carried {
    /// What passed on each of its edges, by the neighbour's rank.
    pub edges: BTreeMap<usize, Traffic>,
    /// Messages that had to wait for each other.
    pub hops: u64,
    /// Payload bytes of the longest message of each hop, added up: what a modelled link waits for.
    pub path_bytes: u64,
}

/// Numbers to be summed in place.
#[derive(Debug)]
pub enum Numbers<'a> {
    /// Summed in rank order.
    F32(&'a mut [f32]),
    /// Summed in rank order.
    F64(&'a mut [f64]),
    /// Exact under any order; overflow wraps on every machine alike.
    I64(&'a mut [i64]),
}

/// One machine's view of its group.
///
/// Law: every machine makes the same calls in the same order, and each call leaves the same bits with all of them.
pub trait Collective {
    /// This machine's number, from 0.
    fn rank(&self) -> usize;

    /// How many machines there are.
    fn size(&self) -> usize;

    /// Sends `message` to machine 0, where `combine` turns all messages (in rank order) into the one that comes back to all.
    /// Only machine 0's `combine` is called; what it captures there is the hub's state.
    fn exchange(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Result<Reply, CommError>;

    /// The machine's neighbours, where it can talk to them without the hub.
    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        None
    }

    /// What the last exchange cost this machine, where that is more than its own message up and the reply down.
    fn carried(&self) -> Option<&Carried> {
        None
    }

    /// Replaces the numbers by their sums over all machines.
    fn all_reduce_sum(&mut self, numbers: Numbers<'_>) -> Result<(), CommError> {
        match numbers {
            Numbers::F32(values) => sum_in_rank_order(self, values, f32::to_le_bytes, f32::from_le_bytes, |a, b| a + b),
            Numbers::F64(values) => sum_in_rank_order(self, values, f64::to_le_bytes, f64::from_le_bytes, |a, b| a + b),
            Numbers::I64(values) => {
                sum_in_rank_order(self, values, i64::to_le_bytes, i64::from_le_bytes, i64::wrapping_add)
            }
        }
    }

    /// Every machine's message, in rank order, on every machine.
    fn all_gather(&mut self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let reply = self.exchange(message, &mut |messages| {
            let mut all = Vec::with_capacity(messages.iter().map(|message| 4 + message.len()).sum());
            for message in messages {
                all.extend_from_slice(&(message.len() as u32).to_le_bytes());
                all.extend_from_slice(message);
            }
            Ok(all)
        })?;
        let mut rest = &reply.message[..];
        let mut messages = Vec::with_capacity(self.size());
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let (message, tail) = tail.split_at(u32::from_le_bytes(*length) as usize);
            messages.push(message.to_vec());
            rest = tail;
        }
        Ok(messages)
    }
}

fn sum_in_rank_order<C: Collective + ?Sized, T: Copy, const W: usize>(
    comm: &mut C,
    values: &mut [T],
    to_bytes: fn(T) -> [u8; W],
    from_bytes: fn([u8; W]) -> T,
    add: fn(T, T) -> T,
) -> Result<(), CommError> {
    let message: Vec<u8> = values.iter().flat_map(|&value| to_bytes(value)).collect();
    let read = |bytes: &[u8], i: usize| {
        let mut word = [0; W];
        word.copy_from_slice(&bytes[i * W..(i + 1) * W]);
        from_bytes(word)
    };
    let reply = comm.exchange(&message, &mut |messages| {
        let length = messages[0].len();
        if let Some(rank) = messages.iter().position(|message| message.len() != length) {
            let what = format!("it sums {} bytes where machine 0 sums {length}", messages[rank].len());
            return Err(CommError::Refused { rank, what });
        }
        // In rank order: every engine and every run must end with the same bits.
        let sum = |i| messages[1..].iter().fold(read(messages[0], i), |sum, message| add(sum, read(message, i)));
        Ok((0..length / W).flat_map(|i| to_bytes(sum(i))).collect())
    })?;
    for (i, value) in values.iter_mut().enumerate() {
        *value = read(&reply.message, i);
    }
    Ok(())
}
