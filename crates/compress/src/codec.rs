//! What every codec is: the trait, the address of its random choices, the law it keeps, and the errors of hostile bytes.
//! How a particular codec does it belongs to the codec's own file.

use std::borrow::Cow;

use corewire_sketch::{CommonRandomness, Purpose, Words};

/// Turns a vector into bytes and bytes into a vector.
///
/// Laws, tested over every implementation:
/// - `decode(encode(v))` is what every receiver sees; it keeps [`Codec::law`].
/// - `encode` is a function of the codec's state, the address and the vector; `decode` of the address and the message alone.
/// - `decode` answers any bytes with a finite vector or an error: it never panics, never allocates more than a multiple of
///   the dimension, and refuses bytes that `encode` would not have written after the last (trailing bytes, padding bits).
///
/// Numbers travel as `f32` unless a codec says otherwise. Entries past the range of `f32` are clamped to its largest number, and the
/// laws hold up to one rounding to `f32`, 2^-24 relative for entries of its normal range (above 1.2e-38).
///
/// # Panics
/// `encode` panics where the vector has another length than `dim` or is not finite, and `decode` where `out` has another length.
pub trait Codec: Send + Sync {
    /// The name by which people choose it, in lower case.
    fn name(&self) -> &'static str;

    /// The dimension of the vectors.
    fn dim(&self) -> usize;

    /// What the decoded vector keeps of the encoded one. A codec that adapts states it for its next message.
    fn law(&self) -> Law;

    /// The length of every message in bytes, where it does not depend on the vector.
    fn fixed_len(&self) -> Option<usize>;

    /// Encodes `vector`; `message` is overwritten.
    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>);

    /// Decodes what `encode` made under the same address; `out` is overwritten, and left in an unspecified state by an error.
    fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError>;
}

impl<C: Codec + ?Sized> Codec for Box<C> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn dim(&self) -> usize {
        (**self).dim()
    }

    fn law(&self) -> Law {
        (**self).law()
    }

    fn fixed_len(&self) -> Option<usize> {
        (**self).fixed_len()
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        (**self).encode(address, vector, message);
    }

    fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        (**self).decode(address, message, out)
    }
}

/// Names the random choices of one message. Messages of different addresses are independent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// The round.
    pub round: u64,
    /// The rank of the machine that encodes, below 2^24.
    pub machine: u32,
    /// Tells apart the messages of one machine in one round: up and down, or a method's first and second vector. The last, 255, is
    /// kept for count sketches.
    pub stream: u8,
}

impl Address {
    /// The first message of this machine in this round.
    pub fn new(round: u64, machine: u32) -> Self {
        Self { round, machine, stream: 0 }
    }

    /// The same machine and round, another message.
    pub fn with_stream(self, stream: u8) -> Self {
        Self { stream, ..self }
    }

    /// The choices of this machine: another machine's are independent.
    pub(crate) fn own_words(self, randomness: &CommonRandomness) -> Words {
        assert!(self.machine < 1 << 24, "a machine's rank is below 2^24");
        randomness.words(Purpose::Compressor, self.round, u32::from(self.stream) << 24 | self.machine)
    }

    /// The choices that all machines make together. No codec draws both kinds: machine 0's own are these.
    pub(crate) fn common_words(self, randomness: &CommonRandomness) -> Words {
        Self { machine: 0, ..self }.own_words(randomness)
    }
}

/// What a decoded vector C(v) keeps of v, for every v; expectations are over the address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// E C(v) = v and E||C(v) - v||^2 <= omega ||v||^2.
    Unbiased {
        /// The variance factor.
        omega: f64,
    },
    /// <C(v), v> = ||v||^2 always; unbiased with this omega in the limit of large dimension and a uniformly random rotation.
    /// A method may take it as unbiased; no bound for small dimensions is promised.
    Nearly {
        /// The variance factor of the limit.
        omega: f64,
    },
    /// E||C(v) - v||^2 <= (1 - delta) ||v||^2; without the E where the codec makes no random choices.
    Contractive {
        /// The share of the energy that arrives at least.
        delta: f64,
    },
    /// Neither holds.
    Neither,
}

impl Law {
    /// The variance factor of an unbiased codec, or of one that may be taken as such.
    pub fn omega(self) -> Option<f64> {
        match self {
            Self::Unbiased { omega } | Self::Nearly { omega } => Some(omega),
            Self::Contractive { .. } | Self::Neither => None,
        }
    }

    /// The contraction: an unbiased codec contracts too where its omega is below 1.
    pub fn delta(self) -> Option<f64> {
        match self {
            Self::Contractive { delta } => Some(delta),
            Self::Unbiased { omega } if omega < 1.0 => Some(1.0 - omega),
            _ => None,
        }
    }
}

/// Bytes that no encoder made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The message has another length than all messages of this codec.
    #[error("a message of {found} bytes where {expected} were due")]
    Length {
        /// The length of every message of this codec.
        expected: usize,
        /// The length that was found.
        found: usize,
    },
    /// The message ends too early.
    #[error("the message ends too early")]
    Truncated,
    /// Something follows the message's end.
    #[error("the message has trailing bytes or padding that is not zero")]
    Trailing,
    /// A number is infinite or not a number.
    #[error("the message has a number that is not finite")]
    NotFinite,
    /// A number that is out of its range.
    #[error("the message has {what} out of range")]
    Range {
        /// Which number it is.
        what: &'static str,
    },
}

/// The vector as it was given, after the checks that every encoder makes.
pub(crate) fn admit(dim: usize, vector: &[f64]) {
    assert_eq!(vector.len(), dim, "a vector to encode has the codec's dimension");
    assert!(vector.iter().all(|x| x.is_finite()), "a vector to encode is finite");
}

/// The vector with its entries clamped to the range of `f32`, so that squares and sums of `f64` cannot overflow.
pub(crate) fn admit_clamped(dim: usize, vector: &[f64]) -> Cow<'_, [f64]> {
    admit(dim, vector);
    let most = f64::from(f32::MAX);
    if vector.iter().all(|x| x.abs() <= most) {
        Cow::Borrowed(vector)
    } else {
        Cow::Owned(vector.iter().map(|x| x.clamp(-most, most)).collect())
    }
}

/// The checks that every decoder makes first.
pub(crate) fn admit_message(
    expected: Option<usize>,
    message: &[u8],
    dim: usize,
    out: &[f64],
) -> Result<(), CodecError> {
    assert_eq!(out.len(), dim, "a vector to decode into has the codec's dimension");
    match expected {
        Some(expected) if expected != message.len() => Err(CodecError::Length { expected, found: message.len() }),
        _ => Ok(()),
    }
}

/// The nearest `f32`, with its largest number instead of infinity.
pub(crate) fn nearest(x: f64) -> f32 {
    (x as f32).clamp(-f32::MAX, f32::MAX)
}

/// The smallest `f32` that is not below `x`, for scales that must not be exceeded; `x` is not negative.
pub(crate) fn at_least(x: f64) -> f32 {
    let near = nearest(x);
    if f64::from(near) < x && near < f32::MAX { near.next_up() } else { near }
}

/// The lengths of the buckets into which `dim` coordinates fall.
pub(crate) fn bucket_lens(dim: usize, bucket: usize) -> impl Iterator<Item = usize> {
    (0..dim).step_by(bucket).map(move |start| bucket.min(dim - start))
}

/// The dimension, checked to be one whose indices and counts have at most 32 bits.
pub(crate) fn index_dim(dim: usize) -> usize {
    assert!((dim as u64) < 1 << 32, "a dimension is below 2^32");
    dim
}

/// The sum of squares, in order.
pub(crate) fn energy(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_is_never_below_and_at_most_one_step_above() {
        for x in [0.0, 1e-300, 1e-45, 0.1, 1.0, 1.0 + 1e-12, 3.4e38] {
            let up = at_least(x);
            assert!(f64::from(up) >= x);
            assert!(up == 0.0 || f64::from(up.next_down()) < x);
        }
        assert_eq!(at_least(1e300), f32::MAX);
    }

    #[test]
    fn streams_and_machines_have_words_of_their_own() {
        let randomness = CommonRandomness::new(&corewire_sketch::Seed::reproducible(1));
        let first = |address: Address| address.own_words(&randomness).next_u64();
        let a = Address::new(3, 5);
        assert_ne!(first(a), first(a.with_stream(1)));
        assert_ne!(first(a), first(Address::new(3, 6)));
        assert_eq!(a.common_words(&randomness).next_u64(), Address::new(3, 6).common_words(&randomness).next_u64());
    }
}
