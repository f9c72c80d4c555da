//! Deep gradient compression: momentum before sparsification, with a memory of both.

use corewire_algebra::vector;
use corewire_comm::{CommError, Reply};
use corewire_compress::TopK;
use corewire_sketch::CommonRandomness;

use super::{Channel, Coding, Downlink, Estimate, How, MeanEstimator, Next, Place};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};

/// u = a u + g; v += u; the largest entries of v travel, and u and v are zero there afterwards.
///
/// Over rounds a gradient counts 1/(1 - a) times: the step has to allow for it. In a warm-up of w rounds the share that travels falls
/// geometrically from one quarter to k/d.
pub struct DroppedMomentum {
    dim: usize,
    keep: usize,
    momentum: f64,
    /// Gradients longer than this times n^(-1/2) are shortened; 0 leaves them.
    clip: f64,
    warm_up: u64,
    randomness: CommonRandomness,
    velocity: Vec<f64>,
    memory: Vec<f64>,
    /// Of this round: how many coordinates travel changes in the warm-up.
    channel: Channel,
}

impl DroppedMomentum {
    /// Keeps `keep` coordinates after the warm-up.
    pub fn new(dim: usize, keep: usize, momentum: f64, clip: f64, warm_up: u64, randomness: &CommonRandomness) -> Self {
        let zeros = vec![0.0; dim];
        let (velocity, memory) = (zeros.clone(), zeros);
        let channel = Channel::new(Coding::fixed(TopK::new(dim, keep)), Downlink::Sparse, randomness);
        Self { dim, keep, momentum, clip, warm_up, randomness: randomness.clone(), velocity, memory, channel }
    }

    fn keep_in(&self, round: u64) -> usize {
        let last = self.keep as f64 / self.dim.max(1) as f64;
        if round >= self.warm_up || last >= 0.25 {
            return self.keep;
        }
        let share = 0.25 * libm::pow(last / 0.25, round as f64 / self.warm_up as f64);
        ((share * self.dim as f64) as usize).max(self.keep)
    }
}

impl Stateful for DroppedMomentum {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Local, "velocity", &mut self.velocity);
        visitor.vector(Scope::Local, "memory", &mut self.memory);
    }
}

impl MeanEstimator for DroppedMomentum {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        let most = self.clip / (at.machines as f64).sqrt();
        let norm = vector::norm_squared(local).sqrt();
        let factor = if self.clip > 0.0 && norm > most { most / norm } else { 1.0 };
        for ((u, v), g) in self.velocity.iter_mut().zip(&mut self.memory).zip(local) {
            *u = self.momentum * *u + factor * g;
            *v += *u;
        }
        let coding = Coding::fixed(TopK::new(self.dim, self.keep_in(at.round)));
        self.channel = Channel::new(coding, Downlink::Sparse, &self.randomness);
        self.channel.contribute(at, &[&self.memory], self.dim, extra, message)?;
        Ok(How::Hub)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        self.channel.combine(at, messages, (1, self.dim, extras), &mut |_| {})
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        self.channel.absorb(at, reply, extra, &mut [mean])?;
        for ((u, v), sent) in self.velocity.iter_mut().zip(&mut self.memory).zip(self.channel.sent()) {
            if *sent != 0.0 {
                *u = 0.0;
                // What rounding to 32 bits lost stays.
                *v -= sent;
            }
        }
        Ok(Next::Done(Estimate { energy: vector::norm_squared(mean) }))
    }
}
