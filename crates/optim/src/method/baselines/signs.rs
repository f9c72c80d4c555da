//! One bit per coordinate both ways: signSGD with majority vote, and 1-bit Adam.

use corewire_comm::{CommError, Reduction};
use corewire_compress::{Address, Codec, Magnitude, Sign};
use corewire_sketch::CommonRandomness;

use crate::error::RunError;
use crate::estimator::{Channel, Coding, Downlink, Exact, channel_mean};
use crate::method::descent::Schedule;
use crate::method::gradient::{Batch, local_gradient};
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// signSGD with majority vote: x -= h_t sign(sum_i sign g_i), h_t = h/sqrt(1 + t); a tie counts as positive.
///
/// A vote has no length, so h must know the gradient's: before the first round one number travels, the mean magnitude of a coordinate at
/// the start, and h is the given step times it.
pub struct MajorityVote {
    x: Vec<f64>,
    /// The step in units of the gradient.
    step: f64,
    magnitude: f64,
}

impl MajorityVote {
    /// From a start; a step of about 1/L.
    pub fn new(start: Vec<f64>, step: f64) -> Self {
        Self { x: start, step, magnitude: 0.0 }
    }
}

impl Stateful for MajorityVote {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.number(Scope::Common, "magnitude", &mut self.magnitude);
    }
}

impl Method for MajorityVote {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let dim = self.x.len();
        let mut gradient = vec![0.0; dim];
        context.objective.gradient(&self.x, &mut gradient);
        let mut magnitude = [gradient.iter().map(|g| g.abs()).sum::<f64>() / dim.max(1) as f64];
        context.means(0, &mut magnitude, false)?;
        self.magnitude = magnitude[0];
        Ok(())
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (dim, rank) = (self.x.len(), context.comm.rank());
        let mut gradient = vec![0.0; dim];
        context.objective.gradient(&self.x, &mut gradient);
        if !vector::all_finite(&gradient) {
            return Err(RunError::NotFinite { rank, round, what: "a gradient" });
        }
        let mut codec = Sign::new(dim, Magnitude::One);
        let address = Address::new(round, 0);
        let mut message = Vec::new();
        codec.encode(address, &gradient, &mut message);
        let mut vote = |messages: &[&[u8]]| {
            let (mut votes, mut signs) = (vec![0.0; dim], vec![0.0; dim]);
            for (rank, message) in messages.iter().enumerate() {
                let refused =
                    |error: corewire_compress::CodecError| CommError::Refused { rank, what: error.to_string() };
                codec.decode(address, message, &mut signs).map_err(refused)?;
                vector::add_scaled(1.0, &signs, &mut votes);
            }
            let mut reply = Vec::new();
            codec.clone().encode(address, &votes, &mut reply);
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut vote))?;
        let damaged = |error: corewire_compress::CodecError| CommError::Refused { rank: 0, what: error.to_string() };
        codec.decode(address, &reply.message, &mut gradient).map_err(damaged)?;
        let step = self.step * self.magnitude / (1.0 + round as f64).sqrt();
        vector::add_scaled(-step, &gradient, &mut self.x);
        Ok(Outcome { gradient_norm: None, step: Some(step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}

/// 1-bit Adam: Adam on the mean gradient for a warm-up; then v is frozen, and the momenta m_i = b1 m + (1 - b1) g_i travel as signs with
/// their mean magnitude, both ways, with an error memory at every machine and at the hub; x -= gamma m/(sqrt(v) + epsilon).
///
/// gamma is the given step times the root mean square of the first mean gradient, so that the step is one in units of the gradient; or, on a
/// network, what its schedule says.
/// Moments are corrected for their start at zero, the frozen v too.
pub struct OneBitAdam {
    x: Vec<f64>,
    momentum: Vec<f64>,
    variance: Vec<f64>,
    error: Vec<f64>,
    /// Rounds done, b1^t, b2^t and the root mean square of the first mean gradient.
    done: f64,
    first_weight: f64,
    second_weight: f64,
    magnitude: f64,
    step: f64,
    warm_up: u64,
    betas: (f64, f64),
    exact: Exact,
    channel: Channel,
    batch: Option<Batch>,
    schedule: Option<Schedule>,
}

impl OneBitAdam {
    /// From a start; a step of about 1/L, a warm-up of at least one round.
    pub fn new(
        start: Vec<f64>,
        step: f64,
        warm_up: u64,
        betas: (f64, f64),
        exact: Exact,
        randomness: &CommonRandomness,
    ) -> Self {
        let dim = start.len();
        let zeros = vec![0.0; dim];
        let coding = || Coding::fixed(Sign::new(dim, Magnitude::Mean));
        let down = Downlink::Coded { coding: coding(), memory: zeros.clone() };
        Self {
            x: start,
            momentum: zeros.clone(),
            variance: zeros.clone(),
            error: zeros,
            done: 0.0,
            first_weight: 1.0,
            second_weight: 1.0,
            magnitude: 0.0,
            step,
            warm_up: warm_up.max(1),
            betas,
            exact,
            channel: Channel::new(coding(), down, randomness),
            batch: None,
            schedule: None,
        }
    }

    /// With gradients of mini-batches.
    pub fn with_batch(mut self, batch: Option<Batch>) -> Self {
        self.batch = batch;
        self
    }

    /// With these steps.
    pub fn with_schedule(mut self, schedule: Option<Schedule>) -> Self {
        self.schedule = schedule;
        self
    }
}

impl Stateful for OneBitAdam {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "momentum", &mut self.momentum);
        visitor.vector(Scope::Common, "variance", &mut self.variance);
        visitor.vector(Scope::Local, "error", &mut self.error);
        visitor.number(Scope::Common, "done", &mut self.done);
        visitor.number(Scope::Common, "first_weight", &mut self.first_weight);
        visitor.number(Scope::Common, "second_weight", &mut self.second_weight);
        visitor.number(Scope::Common, "magnitude", &mut self.magnitude);
        self.channel.visit(visitor);
    }
}

impl Method for OneBitAdam {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let (b1, b2) = self.betas;
        let (mut gradient, mut mean) = (vec![0.0; dim], vec![0.0; dim]);
        local_gradient(&mut self.batch, round, &self.x, context, &mut gradient);
        let warm = self.done < self.warm_up as f64;
        if warm {
            let estimate = context.estimate(&mut self.exact, round, &gradient, &mut [], &mut mean)?;
            if self.done == 0.0 {
                self.magnitude = (estimate.energy / dim.max(1) as f64).sqrt();
            }
            for ((m, v), g) in self.momentum.iter_mut().zip(&mut self.variance).zip(&mean) {
                *m = b1 * *m + (1.0 - b1) * g;
                *v = b2 * *v + (1.0 - b2) * g * g;
            }
            self.second_weight *= b2;
        } else {
            for ((e, m), g) in self.error.iter_mut().zip(&self.momentum).zip(&gradient) {
                *e += b1 * m + (1.0 - b1) * g;
            }
            channel_mean(&mut self.channel, round, &self.error, context.comm, &mut mean)?;
            vector::add_scaled(-1.0, self.channel.sent(), &mut self.error);
            self.momentum.copy_from_slice(&mean);
        }
        self.first_weight *= b1;
        self.done += 1.0;
        let step = self.schedule.map_or(self.step * self.magnitude, |schedule| schedule.at(round));
        let gamma = step / (1.0 - self.first_weight);
        let correction = 1.0 / (1.0 - self.second_weight);
        // Far below every coordinate that matters, and far above rounding.
        let epsilon = 1e-3 * self.magnitude + f64::MIN_POSITIVE;
        for ((x, m), v) in self.x.iter_mut().zip(&self.momentum).zip(&self.variance) {
            *x -= gamma * m / ((v * correction).sqrt() + epsilon);
        }
        let norm = vector::norm_squared(&self.momentum).sqrt();
        Ok(Outcome { gradient_norm: Some(norm), step: Some(gamma), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}
