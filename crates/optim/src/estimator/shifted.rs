//! Estimators that send differences to what was sent before, so that their noise vanishes where the method ends: DIANA, EF21 and its lazy
//! relatives, MARINA, DASHA.

use corewire_algebra::vector;
use corewire_comm::{CommError, Reply};
use corewire_sketch::{CommonRandomness, Purpose};

use super::{Channel, Estimate, Exact, How, MeanEstimator, Next, Place};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// DIANA: D_i = C(g_i - h_i); the estimate is h + mean D_i; h_i += alpha D_i, h += alpha mean D_i. C unbiased.
pub struct Diana {
    channel: Channel,
    alpha: f64,
    shift: Vec<f64>,
    mean_shift: Vec<f64>,
}

impl Diana {
    /// From shifts of zero; theory wants alpha <= 1/(1 + omega).
    pub fn new(channel: Channel, dim: usize, alpha: f64) -> Self {
        Self { channel, alpha, shift: vec![0.0; dim], mean_shift: vec![0.0; dim] }
    }
}

impl Stateful for Diana {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.channel.visit(visitor);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        visitor.vector(Scope::Common, "mean_shift", &mut self.mean_shift);
    }
}

impl MeanEstimator for Diana {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        self.channel.contribute(at, &[&minus(local, &self.shift)], local.len(), extra, message)?;
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        let dim = self.channel.sent().len();
        self.channel.combine(at, messages, (1, dim, extras), &mut |_| {})
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        self.channel.absorb(at, reply, extra, &mut [&mut *mean])?;
        vector::add_scaled(self.alpha, self.channel.sent(), &mut self.shift);
        for (mean, shift) in mean.iter_mut().zip(&mut self.mean_shift) {
            let difference = *mean;
            *mean += *shift;
            *shift += self.alpha * difference;
        }
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}

/// Three-point compression: g_i moves by C(grad - g_i) if ||grad - g_i||^2 > zeta ||grad - last grad||^2, else it stays and nothing is
/// sent.
///
/// The estimate is the mean of the g_i. zeta = 0 is EF21; the identity as C is LAG; both together CLAG.
pub struct ThreePoint {
    channel: Channel,
    zeta: f64,
    own: Vec<f64>,
    mean: Vec<f64>,
    /// The last gradient; empty before the first round, which always sends.
    last: Vec<f64>,
}

impl ThreePoint {
    /// From zeros.
    pub fn new(channel: Channel, dim: usize, zeta: f64) -> Self {
        Self { channel, zeta, own: vec![0.0; dim], mean: vec![0.0; dim], last: Vec::new() }
    }
}

impl Stateful for ThreePoint {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.channel.visit(visitor);
        visitor.vector(Scope::Local, "own", &mut self.own);
        visitor.vector(Scope::Common, "mean", &mut self.mean);
        visitor.vector(Scope::Local, "last", &mut self.last);
    }
}

impl MeanEstimator for ThreePoint {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        let difference = minus(local, &self.own);
        let moved: f64 = local.iter().zip(&self.last).map(|(g, last)| (g - last) * (g - last)).sum();
        // Not a number counts as far, so that it is found before it is sent.
        let near = vector::norm_squared(&difference) <= self.zeta * moved;
        let sends = self.zeta == 0.0 || self.last.is_empty() || !near;
        let sent: &[&[f64]] = if sends { &[&difference] } else { &[] };
        self.channel.contribute(at, sent, local.len(), extra, message)?;
        if self.zeta != 0.0 {
            self.last = local.to_vec();
        }
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        let dim = self.channel.sent().len();
        self.channel.combine(at, messages, (1, dim, extras), &mut |_| {})
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        self.channel.absorb(at, reply, extra, &mut [&mut *mean])?;
        vector::add_scaled(1.0, self.channel.sent(), &mut self.own);
        vector::add_scaled(1.0, mean, &mut self.mean);
        mean.copy_from_slice(&self.mean);
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}

/// MARINA: with probability p all send their gradients; else the estimate moves by the mean of C(grad at the new point - at the last). C
/// unbiased.
pub struct Marina {
    channel: Channel,
    exact: Exact,
    probability: f64,
    randomness: CommonRandomness,
    last: Vec<f64>,
    mean: Vec<f64>,
    begun: u64,
}

impl Marina {
    /// The first round sends the gradients.
    pub fn new(channel: Channel, exact: Exact, dim: usize, probability: f64, randomness: &CommonRandomness) -> Self {
        let (last, mean) = (vec![0.0; dim], vec![0.0; dim]);
        Self { channel, exact, probability, randomness: randomness.clone(), last, mean, begun: 0 }
    }

    /// Whether this round sends the gradients.
    fn is_full(&self, at: Place) -> bool {
        self.begun == 0 || self.randomness.words(Purpose::Coin, at.round, 0).next_coin(self.probability)
    }
}

impl Stateful for Marina {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.channel.visit(visitor);
        visitor.vector(Scope::Local, "last", &mut self.last);
        visitor.vector(Scope::Common, "mean", &mut self.mean);
        visitor.word(Scope::Common, "begun", &mut self.begun);
    }
}

impl MeanEstimator for Marina {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        let full = self.is_full(at);
        let difference = minus(local, &self.last);
        self.last.copy_from_slice(local);
        if full {
            return self.exact.contribute(at, local, extra, message);
        }
        self.channel.contribute(at, &[&difference], local.len(), extra, message)?;
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        if self.is_full(at) {
            return MeanEstimator::<f64>::combine(&mut self.exact, at, messages, extras);
        }
        let dim = self.channel.sent().len();
        self.channel.combine(at, messages, (1, dim, extras), &mut |_| {})
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        if self.is_full(at) {
            self.exact.absorb(at, reply, extra, mean)?;
            self.begun = 1;
        } else {
            self.channel.absorb(at, reply, extra, &mut [&mut *mean])?;
            vector::add_scaled(1.0, &self.mean, mean);
        }
        self.mean.copy_from_slice(mean);
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}

/// DASHA: m_i = C(new grad - last grad - a (g_i - last grad)); g_i += m_i, and the estimate is the mean of the g_i. C unbiased.
pub struct Dasha {
    channel: Channel,
    exact: Exact,
    momentum: f64,
    last: Vec<f64>,
    own: Vec<f64>,
    mean: Vec<f64>,
    begun: u64,
}

impl Dasha {
    /// The first round sends the gradients; theory wants a = 1/(2 omega + 1).
    pub fn new(channel: Channel, exact: Exact, dim: usize, momentum: f64) -> Self {
        let zeros = vec![0.0; dim];
        Self { channel, exact, momentum, last: zeros.clone(), own: zeros.clone(), mean: zeros, begun: 0 }
    }
}

impl Stateful for Dasha {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.channel.visit(visitor);
        visitor.vector(Scope::Local, "last", &mut self.last);
        visitor.vector(Scope::Local, "own", &mut self.own);
        visitor.vector(Scope::Common, "mean", &mut self.mean);
        visitor.word(Scope::Common, "begun", &mut self.begun);
    }
}

impl MeanEstimator for Dasha {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        if self.begun == 0 {
            self.last.copy_from_slice(local);
            return self.exact.contribute(at, local, extra, message);
        }
        let terms = local.iter().zip(&self.last).zip(&self.own);
        let difference: Vec<f64> = terms.map(|((new, last), own)| new - last - self.momentum * (own - last)).collect();
        self.last.copy_from_slice(local);
        self.channel.contribute(at, &[&difference], local.len(), extra, message)?;
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        if self.begun == 0 {
            return MeanEstimator::<f64>::combine(&mut self.exact, at, messages, extras);
        }
        let dim = self.channel.sent().len();
        self.channel.combine(at, messages, (1, dim, extras), &mut |_| {})
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        if self.begun == 0 {
            self.exact.absorb(at, reply, extra, mean)?;
            self.own.copy_from_slice(&self.last);
            self.mean.copy_from_slice(mean);
            self.begun = 1;
        } else {
            self.channel.absorb(at, reply, extra, &mut [&mut *mean])?;
            vector::add_scaled(1.0, self.channel.sent(), &mut self.own);
            vector::add_scaled(1.0, mean, &mut self.mean);
            mean.copy_from_slice(&self.mean);
        }
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}
