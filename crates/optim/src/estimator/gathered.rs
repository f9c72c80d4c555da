//! The mean of encoded vectors: every machine's codec up, the hub's mean down. What is encoded (gradients, differences, memories) belongs
//! to the estimators and methods that hold a [`Channel`].

use corewire_comm::{Collective, CommError, Reduction, Reply, numbers};
use corewire_compress::{Address, Alq, Codec, CodecError, Dense, Dropping, Indices, Law, RandK};
use corewire_sketch::CommonRandomness;

use corewire_algebra::vector;

use super::{Estimate, ExtraMeans, How, MeanEstimator, Next, Place, check_finite, pull_extra, split_extra};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};

/// A codec whose state, where it has one, can be visited.
pub enum Coding {
    /// A codec that remembers nothing.
    Fixed(Box<dyn Codec>),
    /// ALQ, which remembers its levels.
    Alq(Box<Alq>),
}

impl Coding {
    /// A codec that remembers nothing. One that does, such as [`corewire_compress::ErrorFeedback`], would not survive a resume.
    pub fn fixed(codec: impl Codec + 'static) -> Self {
        Self::Fixed(Box::new(codec))
    }

    /// What the codec keeps.
    pub fn law(&self) -> Law {
        match self {
            Self::Fixed(codec) => codec.law(),
            Self::Alq(codec) => codec.law(),
        }
    }

    fn fixed_len(&self) -> Option<usize> {
        match self {
            Self::Fixed(codec) => codec.fixed_len(),
            Self::Alq(codec) => codec.fixed_len(),
        }
    }

    /// Overwrites `message` with the code of a vector.
    pub(crate) fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        match self {
            Self::Fixed(codec) => codec.encode(address, vector, message),
            Self::Alq(codec) => codec.encode(address, vector, message),
        }
    }

    /// Overwrites `out` with what a code says.
    pub(crate) fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        match self {
            Self::Fixed(codec) => codec.decode(address, message, out),
            Self::Alq(codec) => codec.decode(address, message, out),
        }
    }
}

impl Stateful for Coding {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        if let Self::Alq(codec) = self {
            let before = codec.levels().to_vec();
            let mut levels = before.clone();
            visitor.vector(Scope::Local, "levels", &mut levels);
            if levels != before {
                codec.set_levels(levels);
            }
        }
    }
}

/// How the mean comes down.
pub enum Downlink {
    /// Every coordinate, as 32 or 64 bits.
    Dense {
        /// Whether coordinates have 64 bits.
        double: bool,
    },
    /// As 32-bit floats without loss: the coordinates that are not zero with their indices, or all, whichever is shorter.
    Sparse,
    /// The values at the coordinates that all machines drew together.
    Support(Box<RandK>),
    /// Encoded again, with loss; the hub remembers what was lost if `memory` is not empty.
    Coded {
        /// The codec.
        coding: Coding,
        /// The hub's error memory, or nothing.
        memory: Vec<f64>,
    },
}

impl Downlink {
    fn encode(&mut self, address: Address, mean: &[f64], randomness: &CommonRandomness, message: &mut Vec<u8>) {
        let dim = mean.len();
        match self {
            Self::Dense { double: true } => Dense::double(dim).encode(address, mean, message),
            Self::Dense { double: false } => Dense::single(dim).encode(address, mean, message),
            Self::Sparse => {
                Dropping::new(dim, 0.0, randomness).encode(address, mean, message);
                // The length tells the two forms apart.
                if message.len() >= 4 * dim {
                    Dense::single(dim).encode(address, mean, message);
                }
            }
            Self::Support(codec) => {
                // The decoder scales up again.
                let factor = 1.0 + codec.law().omega().unwrap_or(0.0);
                let scaled: Vec<f64> = mean.iter().map(|x| x / factor).collect();
                codec.encode(address, &scaled, message);
            }
            Self::Coded { coding, memory } => {
                if memory.is_empty() {
                    coding.encode(address, mean, message);
                } else {
                    memory.iter_mut().zip(mean).for_each(|(memory, mean)| *memory += mean);
                    coding.encode(address, memory, message);
                    let mut decoded = vec![0.0; dim];
                    coding.decode(address, message, &mut decoded).expect("a codec decodes its own message");
                    vector::add_scaled(-1.0, &decoded, memory);
                }
            }
        }
    }

    fn decode(
        &self,
        address: Address,
        message: &[u8],
        randomness: &CommonRandomness,
        out: &mut [f64],
    ) -> Result<(), CodecError> {
        let dim = out.len();
        match self {
            Self::Dense { double: true } => Dense::double(dim).decode(address, message, out),
            Self::Dense { double: false } => Dense::single(dim).decode(address, message, out),
            Self::Sparse if message.len() == 4 * dim => Dense::single(dim).decode(address, message, out),
            Self::Sparse => Dropping::new(dim, 0.0, randomness).decode(address, message, out),
            Self::Support(codec) => codec.decode(address, message, out),
            Self::Coded { coding, .. } => coding.decode(address, message, out),
        }
    }
}

impl Downlink {
    fn fixed_len(&self, dim: usize) -> Option<usize> {
        match self {
            Self::Dense { double } => Some(dim * if *double { 8 } else { 4 }),
            Self::Sparse => None,
            Self::Support(codec) => codec.fixed_len(),
            Self::Coded { coding, .. } => coding.fixed_len(),
        }
    }

    /// The message that brings this vector down, for a hub that combines by itself.
    pub fn pack(&mut self, round: u64, mean: &[f64], randomness: &CommonRandomness) -> Vec<u8> {
        let mut message = Vec::new();
        self.encode(down_address(self, round, 0), mean, randomness, &mut message);
        message
    }

    /// What [`Downlink::pack`] packed; `out` is overwritten.
    pub fn unpack(
        &self,
        round: u64,
        message: &[u8],
        randomness: &CommonRandomness,
        out: &mut [f64],
    ) -> Result<(), CommError> {
        let damaged =
            |error: CodecError| CommError::Refused { rank: 0, what: format!("its reply of round {round}: {error}") };
        self.decode(down_address(self, round, 0), message, randomness, out).map_err(damaged)
    }
}

impl Stateful for Downlink {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        if let Self::Coded { coding, memory } = self {
            coding.visit(visitor);
            // Only the hub's is used.
            visitor.vector(Scope::Local, "hub_memory", memory);
        }
    }
}

/// The way up and the way down of vectors between machines and hub.
pub struct Channel {
    up: Coding,
    down: Downlink,
    randomness: CommonRandomness,
    /// What the others will decode of the vectors that this machine sent last.
    sent: Vec<Vec<f64>>,
}

impl Channel {
    /// Encoded up, and down as `down` says.
    pub fn new(up: Coding, down: Downlink, randomness: &CommonRandomness) -> Self {
        Self { up, down, randomness: randomness.clone(), sent: Vec::new() }
    }

    /// The same way up, another way down.
    pub fn with_down(self, down: Downlink) -> Self {
        Self { down, ..self }
    }

    /// All machines draw the same `keep` coordinates; only values travel, both ways.
    pub fn common(dim: usize, keep: usize, randomness: &CommonRandomness) -> Self {
        let codec = RandK::new(dim, keep, Indices::Common, randomness);
        Self::new(Coding::fixed(codec.clone()), Downlink::Support(Box::new(codec)), randomness)
    }

    /// What the codec on the way up keeps.
    pub fn law(&self) -> Law {
        self.up.law()
    }

    /// What the others have decoded of the last vector.
    pub fn sent(&self) -> &[f64] {
        self.sent_at(0)
    }

    /// What the others have decoded of the last message's vector with this number.
    pub fn sent_at(&self, number: usize) -> &[f64] {
        &self.sent[number]
    }

    /// Writes the message of these vectors: their codes one after the other, each but the last behind a length of four bytes where the
    /// code's is not fixed, then the extra numbers. No vector at all stands for zeros and costs nothing.
    pub fn contribute(
        &mut self,
        at: Place,
        locals: &[&[f64]],
        dim: usize,
        extra: &[f64],
        message: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        let Self { up, sent, .. } = self;
        sent.resize(locals.len().max(1), Vec::new());
        sent.iter_mut().for_each(|sent| {
            sent.clear();
            sent.resize(dim, 0.0);
        });
        let mut parts = Vec::with_capacity(locals.len());
        for (stream, (local, sent)) in locals.iter().zip(sent.iter_mut()).enumerate() {
            check_finite(at, "a vector to send", local)?;
            let address = Address::new(at.round, at.rank as u32).with_stream(2 * stream as u8);
            let mut part = Vec::new();
            up.encode(address, local, &mut part);
            up.decode(address, &part, sent).expect("a codec decodes its own message");
            parts.push(part);
        }
        *message = join(&parts, up.fixed_len());
        numbers::push(extra, message);
        Ok(())
    }

    /// The hub's part: means of `vectors` decoded vectors, which `hub` may change, and shorten to what the machines need.
    pub fn combine(
        &mut self,
        at: Place,
        messages: &[&[u8]],
        (vectors, dim, extras): (usize, usize, usize),
        hub: &mut dyn FnMut(&mut Vec<Vec<f64>>),
    ) -> Result<Vec<u8>, CommError> {
        let (Self { up, down, randomness, .. }, round) = (self, at.round);
        let (mut sums, mut extra_means) = (vec![vec![0.0; dim]; vectors], ExtraMeans::new(extras));
        let mut decoded = vec![0.0; dim];
        for (rank, message) in messages.iter().enumerate() {
            let refused = |what: String| CommError::refused(rank, what);
            let (body, extra) =
                split_extra(message, extras).ok_or_else(|| refused("its message is too short".to_owned()))?;
            extra_means.add(extra);
            // A machine that keeps silent sends nothing at all.
            if body.is_empty() && dim > 0 {
                continue;
            }
            let parts = split(body, vectors, up.fixed_len())
                .ok_or_else(|| refused(format!("it sent {} bytes for {vectors} vectors", body.len())))?;
            for (stream, (part, sum)) in parts.into_iter().zip(&mut sums).enumerate() {
                let address = Address::new(round, rank as u32).with_stream(2 * stream as u8);
                up.decode(address, part, &mut decoded).map_err(|error| refused(error.to_string()))?;
                vector::add_scaled(1.0, &decoded, sum);
            }
        }
        for sum in &mut sums {
            sum.iter_mut().for_each(|sum| *sum /= messages.len() as f64);
        }
        hub(&mut sums);
        if !sums.iter().all(|sum| vector::all_finite(sum)) {
            let what = format!("its mean of round {round} is not finite; take a smaller step");
            return Err(CommError::refused(0, what));
        }
        let mut parts = Vec::with_capacity(sums.len());
        for (stream, sum) in sums.iter().enumerate() {
            let mut part = Vec::new();
            down.encode(down_address(down, round, stream), sum, randomness, &mut part);
            parts.push(part);
        }
        let mut reply = join(&parts, down.fixed_len(dim));
        extra_means.push(&mut reply);
        Ok(reply)
    }

    /// Takes the means out of the reply.
    pub fn absorb(
        &mut self,
        at: Place,
        reply: &Reply,
        extra: &mut [f64],
        means: &mut [&mut [f64]],
    ) -> Result<(), RunError> {
        let (Self { down, randomness, .. }, round) = (self, at.round);
        let body = pull_extra(reply, extra)?;
        let damaged = |what: String| CommError::refused(0, format!("its reply of round {round}: {what}"));
        let parts = split(body, means.len(), down.fixed_len(means[0].len()))
            .ok_or_else(|| damaged("it is too short".to_owned()))?;
        for (stream, (part, mean)) in parts.into_iter().zip(means).enumerate() {
            down.decode(down_address(down, round, stream), part, randomness, mean)
                .map_err(|error| damaged(error.to_string()))?;
        }
        Ok(())
    }
}

/// The driver of a channel: the mean of what is decoded of every machine's vector. `mean` is overwritten.
pub fn channel_mean(
    channel: &mut Channel,
    round: u64,
    local: &[f64],
    comm: &mut dyn Collective,
    mean: &mut [f64],
) -> Result<(), RunError> {
    channel_means(channel, round, &[local], comm, &mut [mean], &mut |_| {})
}

/// As many vectors as the caller likes in one message; `hub` may change the means, and shorten their list to what the machines need.
pub fn channel_means(
    channel: &mut Channel,
    round: u64,
    locals: &[&[f64]],
    comm: &mut dyn Collective,
    means: &mut [&mut [f64]],
    hub: &mut dyn FnMut(&mut Vec<Vec<f64>>),
) -> Result<(), RunError> {
    let at = Place { round, rank: comm.rank(), machines: comm.size(), stage: 0 };
    let sizes = (locals.len(), means[0].len(), 0);
    let mut message = Vec::new();
    channel.contribute(at, locals, sizes.1, &[], &mut message)?;
    let reply =
        comm.exchange(&message, Reduction::Hub(&mut |messages| channel.combine(at, messages, sizes, &mut *hub)))?;
    channel.absorb(at, &reply, &mut [], means)
}

/// Common coordinates are those of the way up; everything else has choices of its own.
fn down_address(down: &Downlink, round: u64, stream: usize) -> Address {
    let own = u8::from(!matches!(down, Downlink::Support(_)));
    Address::new(round, 0).with_stream(2 * stream as u8 + own)
}

fn join(parts: &[Vec<u8>], fixed: Option<usize>) -> Vec<u8> {
    let mut message = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for (i, part) in parts.iter().enumerate() {
        if fixed.is_none() && i + 1 < parts.len() {
            message.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        message.extend_from_slice(part);
    }
    message
}

fn split(mut message: &[u8], count: usize, fixed: Option<usize>) -> Option<Vec<&[u8]>> {
    let mut parts = Vec::with_capacity(count);
    for i in 0..count {
        let length = match fixed {
            _ if i + 1 == count => message.len(),
            Some(length) => length,
            None => {
                let (length, rest) = message.split_first_chunk::<4>()?;
                message = rest;
                u32::from_le_bytes(*length) as usize
            }
        };
        let (part, rest) = message.split_at_checked(length)?;
        parts.push(part);
        message = rest;
    }
    Some(parts)
}

impl Stateful for Channel {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.up.visit(visitor);
        self.down.visit(visitor);
    }
}

/// The mean of every machine's encoded vector, with or without a memory of what the codec lost.
///
/// Encodes v + a e, then e = b e + v - decoded; a = b = 1 is error feedback, no memory is plain compression. Unbiased if the codec is and
/// there is no memory.
pub struct Gathered {
    channel: Channel,
    memory: Option<Memory>,
}

struct Memory {
    error: Vec<f64>,
    gain: f64,
    decay: f64,
    /// Whether what was sent and did not come back goes into the memory too.
    returns: bool,
    compensated: Vec<f64>,
}

impl Gathered {
    /// Without a memory.
    pub fn new(channel: Channel) -> Self {
        Self { channel, memory: None }
    }

    /// With a memory of `dim` coordinates: `gain` a, `decay` b.
    pub fn with_memory(self, dim: usize, gain: f64, decay: f64) -> Self {
        let zeros = vec![0.0; dim];
        Self { memory: Some(Memory { error: zeros.clone(), gain, decay, returns: false, compensated: zeros }), ..self }
    }

    /// The memory also keeps what this machine sent at coordinates where nothing came back: for a hub that thins the mean out.
    pub fn returning(mut self) -> Self {
        if let Some(memory) = &mut self.memory {
            memory.returns = true;
        }
        self
    }
}

impl Stateful for Gathered {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.channel.visit(visitor);
        if let Some(memory) = &mut self.memory {
            visitor.vector(Scope::Local, "error", &mut memory.error);
        }
    }
}

impl MeanEstimator for Gathered {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        let sent = match &mut self.memory {
            None => local,
            Some(Memory { error, gain, compensated, .. }) => {
                for ((sum, v), e) in compensated.iter_mut().zip(local).zip(&*error) {
                    *sum = v + *gain * e;
                }
                compensated
            }
        };
        self.channel.contribute(at, &[sent], local.len(), extra, message)?;
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        let dim = self.channel.sent().len();
        self.channel.combine(at, messages, (1, dim, extras), &mut |_| {})
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        self.channel.absorb(at, reply, extra, &mut [mean])?;
        if let Some(Memory { error, gain, decay, returns, compensated }) = &mut self.memory {
            // e = b e + v - decoded, with v = compensated - a e.
            for (((e, sum), sent), mean) in error.iter_mut().zip(&*compensated).zip(self.channel.sent()).zip(&*mean) {
                let taken = if *returns && *mean == 0.0 { 0.0 } else { *sent };
                *e = (*decay - *gain) * *e + (sum - taken);
            }
        }
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_parts_come_apart_again() {
        let parts = vec![vec![1, 2, 3], vec![], vec![4]];
        let message = join(&parts, None);
        assert_eq!(message.len(), 4 + 3 + 4 + 1);
        assert_eq!(split(&message, 3, None).unwrap(), [&[1, 2, 3][..], &[], &[4]]);
        assert_eq!(split(&[1, 2, 3, 4], 2, Some(2)).unwrap(), [[1, 2], [3, 4]]);
        assert!(split(&[9, 0, 0, 0, 1], 2, None).is_none());
    }

    #[test]
    fn a_sparse_mean_comes_down_in_the_shorter_form_without_loss() {
        let randomness = CommonRandomness::new(&corewire_sketch::Seed::reproducible(1));
        for (nonzero, longest) in [(2, 2 * 38 / 8 + 2), (60, 4 * 64), (0, 1)] {
            let mean: Vec<f64> = (0..64).map(|i| if i < nonzero { 0.5 + f64::from(i) } else { 0.0 }).collect();
            let (mut message, mut out) = (Vec::new(), vec![1.0; 64]);
            Downlink::Sparse.encode(Address::default(), &mean, &randomness, &mut message);
            Downlink::Sparse.decode(Address::default(), &message, &randomness, &mut out).unwrap();
            assert_eq!(out, mean);
            assert!(message.len() <= longest, "{} bytes", message.len());
        }
    }
}
