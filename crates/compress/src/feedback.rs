//! Codecs made of codecs: error feedback, and the scaling that makes an unbiased codec a contraction.

use crate::codec::{Address, Codec, CodecError, Law, admit};

/// Remembers what a codec lost and adds it to the next vector.
///
/// - Rule: encode v + a e, then e = b e + v - decoded. With a = b = 1 this is error feedback, e = (v + e) - decoded; other factors are
///   ECQ-SGD's.
/// - Law: neither, as a map of one vector; over rounds nothing is lost: the decoded vectors sum to the vectors less the memory
///   (with a = b = 1), and a contractive codec keeps the memory bounded.
/// - Bytes: the inner codec's.
/// - Checked: the sum over rounds.
/// - Reference: 1-Bit Stochastic Gradient Descent, F. Seide and others, 2014; Error Feedback Fixes SignSGD and other Gradient Compression
///   Schemes, S. P. Karimireddy, Q. Rebjock, S. Stich, M. Jaggi, 2019; Error Compensated Quantized SGD and its Applications to
///   Large-scale Distributed Optimization, J. Wu, W. Huang, J. Huang, T. Zhang, 2018.
#[derive(Clone, Debug)]
pub struct ErrorFeedback<C> {
    inner: C,
    memory: Vec<f64>,
    gain: f64,
    decay: f64,
    /// v + a e, and what was decoded of it.
    compensated: Vec<f64>,
    decoded: Vec<f64>,
}

impl<C: Codec> ErrorFeedback<C> {
    /// Full feedback, from an empty memory.
    pub fn new(inner: C) -> Self {
        let zeros = vec![0.0; inner.dim()];
        Self { inner, memory: zeros.clone(), gain: 1.0, decay: 1.0, compensated: zeros.clone(), decoded: zeros }
    }

    /// The factor `gain` (a) of the memory in what is encoded, and `decay` (b) of the memory in the next one.
    ///
    /// # Panics
    /// If a factor is not finite.
    pub fn with_factors(self, gain: f64, decay: f64) -> Self {
        assert!(gain.is_finite() && decay.is_finite(), "the factors of error feedback are finite");
        Self { gain, decay, ..self }
    }

    /// What the codec has lost so far and will add.
    pub fn memory(&self) -> &[f64] {
        &self.memory
    }

    /// The memory, for methods that change it (a new step size, a momentum mask).
    pub fn memory_mut(&mut self) -> &mut [f64] {
        &mut self.memory
    }

    /// What the last message was decoded to, without decoding it again.
    pub fn decoded(&self) -> &[f64] {
        &self.decoded
    }

    /// The codec inside.
    pub fn inner(&self) -> &C {
        &self.inner
    }
}

impl<C: Codec> Codec for ErrorFeedback<C> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn law(&self) -> Law {
        Law::Neither
    }

    fn fixed_len(&self) -> Option<usize> {
        self.inner.fixed_len()
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        admit(self.dim(), vector);
        for ((sum, v), e) in self.compensated.iter_mut().zip(vector).zip(&self.memory) {
            *sum = saturated(v + saturated(self.gain * e));
        }
        self.inner.encode(address, &self.compensated, message);
        self.inner.decode(address, message, &mut self.decoded).expect("a codec decodes its own message");
        for ((e, v), decoded) in self.memory.iter_mut().zip(vector).zip(&self.decoded) {
            *e = saturated(saturated(self.decay * *e) + saturated(v - decoded));
        }
    }

    fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        self.inner.decode(address, message, out)
    }
}

/// Infinities become the largest number: a memory that has grown past all bounds stays a number, and the vectors stay encodable.
fn saturated(x: f64) -> f64 {
    x.clamp(f64::MIN, f64::MAX)
}

/// Multiplies what is decoded by 1/(1 + omega), which makes an unbiased codec a contraction.
///
/// - Rule: C(v)/(1 + omega). The factor is that of the codec as it was given: not for one that changes its law, as ALQ does.
/// - Law: contractive in expectation with delta = 1/(1 + omega), from E||C(v)||^2 <= (1 + omega) ||v||^2.
/// - Bytes: the inner codec's.
/// - Checked: by the laws of all codecs.
/// - Reference: On Biased Compression for Distributed Learning, A. Beznosikov, S. Horváth, P. Richtárik, M. Safaryan, 2020.
#[derive(Clone, Debug)]
pub struct Scaled<C> {
    inner: C,
    factor: f64,
}

impl<C: Codec> Scaled<C> {
    /// The contraction of this codec.
    ///
    /// # Panics
    /// If the codec is not unbiased.
    pub fn new(inner: C) -> Self {
        let Law::Unbiased { omega } = inner.law() else { panic!("only an unbiased codec is scaled to a contraction") };
        Self { inner, factor: 1.0 / (1.0 + omega) }
    }
}

impl<C: Codec> Codec for Scaled<C> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn law(&self) -> Law {
        Law::Contractive { delta: self.factor }
    }

    fn fixed_len(&self) -> Option<usize> {
        self.inner.fixed_len()
    }

    fn encode(&mut self, address: Address, vector: &[f64], message: &mut Vec<u8>) {
        self.inner.encode(address, vector, message);
    }

    fn decode(&self, address: Address, message: &[u8], out: &mut [f64]) -> Result<(), CodecError> {
        self.inner.decode(address, message, out)?;
        out.iter_mut().for_each(|x| *x *= self.factor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopK;

    #[test]
    fn decoded_vectors_sum_to_the_vectors_less_the_memory() {
        let mut codec = ErrorFeedback::new(TopK::new(6, 1));
        let (mut message, mut out) = (Vec::new(), [0.0; 6]);
        let (mut sent, mut given) = ([0.0; 6], [0.0; 6]);
        for round in 0..50 {
            let vector: Vec<f64> = (0..6).map(|i| ((7 * i + 3 * round) % 11) as f64 - 5.0).collect();
            codec.encode(Address::new(round, 0), &vector, &mut message);
            codec.decode(Address::new(round, 0), &message, &mut out).unwrap();
            assert_eq!(out, codec.decoded());
            for i in 0..6 {
                sent[i] += out[i];
                given[i] += vector[i];
            }
        }
        // Small whole numbers: exact in f32 and f64.
        for i in 0..6 {
            assert_eq!(sent[i], given[i] - codec.memory()[i]);
        }
        assert!(codec.memory().iter().any(|&e| e != 0.0));
    }

    #[test]
    fn factors_weigh_the_memory() {
        let mut codec = ErrorFeedback::new(TopK::new(2, 1)).with_factors(0.5, 0.25);
        let mut message = Vec::new();
        codec.encode(Address::default(), &[4.0, 2.0], &mut message);
        assert_eq!(codec.memory(), [0.0, 2.0]);
        codec.encode(Address::default(), &[0.0, 2.0], &mut message);
        assert_eq!(codec.decoded(), [0.0, 3.0]);
        assert_eq!(codec.memory(), [0.0, 0.25 * 2.0 + (2.0 - 3.0)]);
    }
}
