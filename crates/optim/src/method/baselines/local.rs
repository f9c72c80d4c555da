//! Methods with several local steps per round: FedLin, FedAvg, SCAFFOLD and distributed SVRG.

use corewire_comm::{CommError, Reduction, numbers};
use corewire_sketch::{CommonRandomness, Purpose, Words};

use crate::error::RunError;
use crate::estimator::{Channel, Exact, Gathered, channel_mean, channel_means};
use crate::method::{Context, Method, Outcome, Settings};
use crate::objective::Objective;
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// A gradient of all rows, or of a few drawn ones.
pub(super) fn local_gradient(
    objective: &mut dyn Objective,
    x: &[f64],
    batch: usize,
    words: &mut Words,
    out: &mut [f64],
) {
    let rows = objective.rows();
    if batch == 0 || rows == 0 {
        return objective.gradient(x, out);
    }
    let drawn: Vec<usize> = (0..batch).map(|_| words.next_below(rows as u64) as usize).collect();
    objective.batch_gradient(x, &drawn, words, out);
}

/// FedLin: g = mean of C(e_i + grad f_i(x)); tau steps y_i -= eta (grad f_i(y_i) - grad f_i(x) + g); x = mean y_i.
pub struct FedLin {
    x: Vec<f64>,
    estimator: Gathered,
    exact: Exact,
    step: f64,
    local_steps: usize,
}

impl FedLin {
    /// The estimator carries the gradients, `exact` the iterates.
    pub fn new(start: Vec<f64>, estimator: Gathered, exact: Exact, step: f64, local_steps: usize) -> Self {
        Self { x: start, estimator, exact, step, local_steps }
    }
}

impl Stateful for FedLin {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        self.estimator.visit(visitor);
    }
}

impl Method for FedLin {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let (mut anchor, mut gradient, mut mean) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(&self.x, &mut anchor);
        let estimate = context.estimate(&mut self.estimator, round, &anchor, &mut [], &mut mean)?;
        let mut y = self.x.clone();
        for _ in 0..self.local_steps {
            context.objective.gradient(&y, &mut gradient);
            for i in 0..dim {
                y[i] -= self.step * (gradient[i] - anchor[i] + mean[i]);
            }
        }
        context.estimate(&mut self.exact, round, &y, &mut [], &mut self.x)?;
        Ok(Outcome { gradient_norm: Some(estimate.energy.sqrt()), step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}

/// FedAvg: tau local steps, then x += mean of C(y_i - x). With the identity as C this is the mean of the y_i; a mask or a rotation with
/// few bits makes it the "sketched updates" of its sequel.
pub struct FedAvg {
    x: Vec<f64>,
    channel: Channel,
    step: f64,
    local_steps: usize,
    batch: usize,
    randomness: CommonRandomness,
}

impl FedAvg {
    /// The channel carries the updates.
    pub fn new(
        start: Vec<f64>,
        channel: Channel,
        step: f64,
        local_steps: usize,
        batch: usize,
        randomness: &CommonRandomness,
    ) -> Self {
        Self { x: start, channel, step, local_steps, batch, randomness: randomness.clone() }
    }
}

impl Stateful for FedAvg {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        self.channel.visit(visitor);
    }
}

impl Method for FedAvg {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let mut words = self.randomness.words(Purpose::Shuffle, round, context.comm.rank() as u32);
        let (mut gradient, mut mean) = (vec![0.0; dim], vec![0.0; dim]);
        let mut update = vec![0.0; dim];
        let mut y = self.x.clone();
        for _ in 0..self.local_steps {
            local_gradient(context.objective, &y, self.batch, &mut words, &mut gradient);
            for i in 0..dim {
                update[i] -= self.step * gradient[i];
                y[i] = self.x[i] + update[i];
            }
        }
        channel_mean(&mut self.channel, round, &update, context.comm, &mut mean)?;
        vector::add_scaled(1.0, &mean, &mut self.x);
        let norm = vector::norm_squared(&mean).sqrt() / (self.step * self.local_steps as f64);
        Ok(Outcome { gradient_norm: Some(norm), step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}

/// SCAFFOLD: K steps y -= eta (grad f_i(y) - c_i + c); c_i+ = c_i - c + (x - y)/(K eta); x += mean(y - x); c += mean(c_i+ - c_i).
pub struct Scaffold {
    x: Vec<f64>,
    control: Vec<f64>,
    own_control: Vec<f64>,
    step: f64,
    local_steps: usize,
    batch: usize,
    channel: Channel,
    randomness: CommonRandomness,
}

impl Scaffold {
    /// The channel carries both differences in one message.
    pub fn new(
        start: Vec<f64>,
        channel: Channel,
        step: f64,
        local_steps: usize,
        batch: usize,
        randomness: &CommonRandomness,
    ) -> Self {
        let zeros = vec![0.0; start.len()];
        Self {
            x: start,
            control: zeros.clone(),
            own_control: zeros,
            step,
            local_steps,
            batch,
            channel,
            randomness: randomness.clone(),
        }
    }
}

impl Stateful for Scaffold {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "control", &mut self.control);
        visitor.vector(Scope::Local, "own_control", &mut self.own_control);
        self.channel.visit(visitor);
    }
}

impl Method for Scaffold {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let mut words = self.randomness.words(Purpose::Shuffle, round, context.comm.rank() as u32);
        let mut gradient = vec![0.0; dim];
        let mut update = vec![0.0; dim];
        let mut y = self.x.clone();
        for _ in 0..self.local_steps {
            local_gradient(context.objective, &y, self.batch, &mut words, &mut gradient);
            for i in 0..dim {
                update[i] -= self.step * (gradient[i] - self.own_control[i] + self.control[i]);
                y[i] = self.x[i] + update[i];
            }
        }
        let length = self.step * self.local_steps as f64;
        let correction: Vec<f64> = update.iter().zip(&self.control).map(|(update, c)| -c - update / length).collect();
        vector::add_scaled(1.0, &correction, &mut self.own_control);
        let (mut moved, mut turned) = (vec![0.0; dim], vec![0.0; dim]);
        let mut means = [&mut moved[..], &mut turned[..]];
        channel_means(&mut self.channel, round, &[&update, &correction], context.comm, &mut means, &mut |_| {})?;
        vector::add_scaled(1.0, &moved, &mut self.x);
        vector::add_scaled(1.0, &turned, &mut self.control);
        let norm = vector::norm_squared(&moved).sqrt() / length;
        Ok(Outcome { gradient_norm: Some(norm), step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}

/// Distributed SVRG: the gradient of f by a sum; then one machine, each in its turn, takes steps
/// y -= eta (grad of a few rows at y - grad of the same rows at x + grad f(x)) and passes y on.
pub struct Dsvrg {
    x: Vec<f64>,
    exact: Exact,
    step: f64,
    inner: usize,
    batch: usize,
    randomness: CommonRandomness,
}

impl Dsvrg {
    /// With `inner` steps of `batch` rows; 0 steps stand for two passes over the machine's rows, 0 rows for all.
    pub fn new(
        start: Vec<f64>,
        exact: Exact,
        step: f64,
        inner: usize,
        batch: usize,
        randomness: &CommonRandomness,
    ) -> Self {
        Self { x: start, exact, step, inner, batch, randomness: randomness.clone() }
    }
}

impl Stateful for Dsvrg {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
    }
}

impl Method for Dsvrg {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (dim, rank, n) = (self.x.len(), context.comm.rank(), context.comm.size());
        let (mut gradient, mut mean) = (vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(&self.x, &mut gradient);
        let estimate = context.estimate(&mut self.exact, round, &gradient, &mut [], &mut mean)?;
        let turn = (round % n as u64) as usize;
        let double = self.exact.double;
        let mut message = Vec::new();
        if rank == turn {
            let rows = context.objective.rows();
            let inner = if self.inner > 0 { self.inner } else { (2 * rows / self.batch.max(1)).max(1) };
            let mut words = self.randomness.words(Purpose::Shuffle, round, rank as u32);
            let mut again = self.randomness.words(Purpose::Shuffle, round, rank as u32);
            let mut anchor = vec![0.0; dim];
            let mut y = self.x.clone();
            for _ in 0..inner {
                local_gradient(context.objective, &y, self.batch, &mut words, &mut gradient);
                local_gradient(context.objective, &self.x, self.batch, &mut again, &mut anchor);
                for i in 0..dim {
                    y[i] -= self.step * (gradient[i] - anchor[i] + mean[i]);
                }
            }
            if !vector::all_finite(&y) {
                return Err(RunError::NotFinite { rank, round, what: "an iterate" });
            }
            numbers::push_floats(&y, double, &mut message);
        }
        let width = if double { 8 } else { 4 };
        let mut pass_on = |messages: &[&[u8]]| {
            if messages[turn].len() != dim * width {
                let what = format!("it passed on {} bytes for {dim} coordinates", messages[turn].len());
                return Err(CommError::refused(turn, what));
            }
            Ok(messages[turn].to_vec())
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut pass_on))?;
        if !numbers::read_floats(&reply.message, double, &mut self.x) {
            return Err(CommError::refused(turn, "what it passed on is not an iterate").into());
        }
        Ok(Outcome { gradient_norm: Some(estimate.energy.sqrt()), step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}
