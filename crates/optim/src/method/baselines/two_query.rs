//! ADIANA, ADIANA+ and CANITA: momentum over compressed differences, with a second gradient at a point that moves seldom.

use corewire_sketch::{CommonRandomness, Purpose};

use crate::error::RunError;
use crate::estimator::{Channel, channel_means};
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// Shifts h_i: C(grad f_i(x) - h_i) gives the estimate, C(grad f_i(w) - h_i) moves the shift. Both codes travel in one message.
pub trait TwoQuery: Stateful + Send {
    /// What has to travel before the first round.
    fn prepare(&mut self, _context: &mut Context<'_>) -> Result<(), RunError> {
        Ok(())
    }

    /// ADIANA's constants for this code.
    fn constants(&self) -> AdianaConstants;

    /// The estimate of the gradient at x from those at x and at w, the anchor.
    fn estimate(
        &mut self,
        round: u64,
        gradient: &[f64],
        anchor: &[f64],
        context: &mut Context<'_>,
        out: &mut [f64],
    ) -> Result<(), RunError>;
}

/// Shifts with any unbiased codec. Where the mean shift stays at the hub one dense vector comes back, the estimate; else both means.
struct Shifts {
    channel: Channel,
    alpha: f64,
    at_hub: bool,
    own: Vec<f64>,
    mean: Vec<f64>,
}

impl Shifts {
    fn new(channel: Channel, dim: usize, alpha: f64, at_hub: bool) -> Self {
        Self { channel, alpha, at_hub, own: vec![0.0; dim], mean: vec![0.0; dim] }
    }

    fn estimate(
        &mut self,
        round: u64,
        gradient: &[f64],
        anchor: &[f64],
        context: &mut Context<'_>,
        out: &mut [f64],
    ) -> Result<(), RunError> {
        let comm = &mut *context.comm;
        let Self { channel, alpha, at_hub, own, mean } = self;
        let less = |g: &[f64]| -> Vec<f64> { g.iter().zip(&*own).map(|(g, h)| g - h).collect() };
        let (first, second) = (less(gradient), less(anchor));
        if *at_hub {
            channel_means(channel, round, &[&first, &second], comm, &mut [out], &mut |means| {
                let moved = means.pop().unwrap_or_default();
                means.iter_mut().for_each(|estimate| vector::add_scaled(1.0, mean, estimate));
                vector::add_scaled(*alpha, &moved, mean);
            })?;
        } else {
            let mut moved = vec![0.0; own.len()];
            channel_means(channel, round, &[&first, &second], comm, &mut [out, &mut moved], &mut |_| {})?;
            vector::add_scaled(1.0, mean, out);
            vector::add_scaled(*alpha, &moved, mean);
        }
        vector::add_scaled(*alpha, channel.sent_at(1), own);
        Ok(())
    }
}

impl Stateful for Shifts {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.channel.visit(visitor);
        visitor.vector(Scope::Local, "shift", &mut self.own);
        visitor.vector(if self.at_hub { Scope::Local } else { Scope::Common }, "mean_shift", &mut self.mean);
    }
}

/// The constants of ADIANA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdianaConstants {
    /// alpha: how far the shifts follow.
    pub alpha: f64,
    /// eta: the step of y.
    pub eta: f64,
    /// p: how often w moves.
    pub probability: f64,
    /// mu.
    pub strong_convexity: f64,
}

impl AdianaConstants {
    /// The same with another step.
    pub fn times(self, scale: f64) -> Self {
        Self { eta: scale * self.eta, ..self }
    }

    /// Theory's, with `noise` = omega/n for independent compressors, or omega for common ones.
    pub fn theory(omega: f64, noise: f64, smoothness: f64, strong_convexity: f64) -> Self {
        let p = ((1.0 / (32.0 * noise)).sqrt() - 1.0).max(1.0) / (2.0 * (1.0 + omega));
        let p = p.min(1.0);
        let shape = 2.0 * p * (omega + 1.0) + 1.0;
        let eta = (0.5 / smoothness).min(1.0 / (64.0 * noise * shape * shape * smoothness));
        Self { alpha: 1.0 / (1.0 + omega), eta, probability: p, strong_convexity }
    }
}

/// ADIANA's own shifts.
pub struct AdianaShifts {
    shifts: Shifts,
    constants: AdianaConstants,
}

impl AdianaShifts {
    /// Shifts of zero. With `at_hub` one dense vector comes down, else two compressed ones.
    pub fn new(dim: usize, channel: Channel, constants: AdianaConstants, at_hub: bool) -> Self {
        Self { shifts: Shifts::new(channel, dim, constants.alpha, at_hub), constants }
    }
}

impl Stateful for AdianaShifts {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.shifts.visit(visitor);
    }
}

impl TwoQuery for AdianaShifts {
    fn constants(&self) -> AdianaConstants {
        self.constants
    }

    fn estimate(
        &mut self,
        round: u64,
        gradient: &[f64],
        anchor: &[f64],
        context: &mut Context<'_>,
        out: &mut [f64],
    ) -> Result<(), RunError> {
        self.shifts.estimate(round, gradient, anchor, context, out)
    }
}

/// ADIANA: x = t1 z + t2 w + (1 - t1 - t2) y; y+ = x - eta ghat(x); z+ = b z + (1 - b) x + (gamma/eta)(y+ - x); w+ = y with probability p.
pub struct Adiana<S> {
    y: Vec<f64>,
    z: Vec<f64>,
    w: Vec<f64>,
    shifts: S,
    randomness: CommonRandomness,
}

impl<S> Adiana<S> {
    /// From a start.
    pub fn new(start: Vec<f64>, shifts: S, randomness: &CommonRandomness) -> Self {
        Self { z: start.clone(), w: start.clone(), y: start, shifts, randomness: randomness.clone() }
    }
}

impl<S: TwoQuery> Stateful for Adiana<S> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "y", &mut self.y);
        visitor.vector(Scope::Common, "z", &mut self.z);
        visitor.vector(Scope::Common, "w", &mut self.w);
        self.shifts.visit(visitor);
    }
}

impl<S: TwoQuery> Method for Adiana<S> {
    fn iterate(&self) -> &[f64] {
        &self.y
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        self.shifts.prepare(context)
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.y.len();
        let AdianaConstants { eta, probability, strong_convexity: mu, .. } = self.shifts.constants();
        let t1 = (eta * mu / probability).sqrt().min(0.25);
        let t2 = 0.5;
        let gamma = eta / (2.0 * (t1 + eta * mu));
        let b = 1.0 - gamma * mu;
        let x: Vec<f64> = (0..dim).map(|i| t1 * self.z[i] + t2 * self.w[i] + (1.0 - t1 - t2) * self.y[i]).collect();
        let (mut gradient, mut anchor, mut estimate) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(&x, &mut gradient);
        context.objective.gradient(&self.w, &mut anchor);
        self.shifts.estimate(round, &gradient, &anchor, context, &mut estimate)?;
        if self.randomness.words(Purpose::Coin, round, 0).next_coin(probability) {
            self.w.copy_from_slice(&self.y);
        }
        for i in 0..dim {
            self.y[i] = x[i] - eta * estimate[i];
            self.z[i] = b * self.z[i] + (1.0 - b) * x[i] + (gamma / eta) * (self.y[i] - x[i]);
        }
        let norm = vector::norm_squared(&estimate).sqrt();
        Ok(Outcome { gradient_norm: Some(norm), step: Some(eta), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.shifts.constants().eta), ..Settings::default() }
    }
}

/// The constants of CANITA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanitaConstants {
    /// omega.
    pub omega: f64,
    /// b = min(omega, sqrt(omega (1 + omega)^2/n)).
    pub b: f64,
    /// The first step eta_0; later ones grow with it up to `most`.
    pub first: f64,
    /// The largest step.
    pub most: f64,
}

impl CanitaConstants {
    /// Theory's, with `noise` = omega/n for independent compressors, or omega for common ones; steps times `scale`.
    pub fn theory(omega: f64, noise: f64, smoothness: f64, scale: f64) -> Self {
        let b = omega.min((noise * (1.0 + omega) * (1.0 + omega)).sqrt());
        let beta = 48.0 * noise * (1.0 + omega) * (1.0 + b + 2.0 * (1.0 + omega)) / ((1.0 + b) * (1.0 + b));
        let first = 9.0 * (1.0 + b + omega) * (1.0 + b + omega) / (2.0 * (1.0 + b));
        let step = |beta: f64| scale / (smoothness * (beta + 1.5));
        Self { omega, b, first: step(first.max(beta)), most: step(beta) }
    }
}

/// CANITA: y = t x + (1 - t) w; x+ = x - (eta/t) ghat(y); z = t x+ + (1 - t) w; w+ = z with probability p; t falls as 1/round.
pub struct Canita {
    x: Vec<f64>,
    w: Vec<f64>,
    eta: f64,
    shifts: Shifts,
    constants: CanitaConstants,
    randomness: CommonRandomness,
}

impl Canita {
    /// From a start. With `at_hub` one dense vector comes down, else two compressed ones.
    pub fn new(
        start: Vec<f64>,
        channel: Channel,
        constants: CanitaConstants,
        at_hub: bool,
        randomness: &CommonRandomness,
    ) -> Self {
        let shifts = Shifts::new(channel, start.len(), 1.0 / (1.0 + constants.omega), at_hub);
        Self { w: start.clone(), x: start, eta: constants.first, shifts, constants, randomness: randomness.clone() }
    }
}

impl Stateful for Canita {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "w", &mut self.w);
        visitor.number(Scope::Common, "eta", &mut self.eta);
        self.shifts.visit(visitor);
    }
}

impl Method for Canita {
    fn iterate(&self) -> &[f64] {
        &self.w
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let CanitaConstants { omega, b, most, .. } = self.constants;
        let late = round as f64 + 9.0 * (1.0 + b + omega);
        let t = 3.0 * (1.0 + b) / late;
        let y: Vec<f64> = self.x.iter().zip(&self.w).map(|(x, w)| t * x + (1.0 - t) * w).collect();
        let (mut gradient, mut anchor, mut estimate) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(&y, &mut gradient);
        context.objective.gradient(&self.w, &mut anchor);
        self.shifts.estimate(round, &gradient, &anchor, context, &mut estimate)?;
        let step = self.eta;
        vector::add_scaled(-step / t, &estimate, &mut self.x);
        if self.randomness.words(Purpose::Coin, round, 0).next_coin(1.0 / (1.0 + b)) {
            for (w, x) in self.w.iter_mut().zip(&self.x) {
                *w = t * x + (1.0 - t) * *w;
            }
        }
        self.eta = ((1.0 + 1.0 / late) * self.eta).min(most);
        let norm = vector::norm_squared(&estimate).sqrt();
        Ok(Outcome { gradient_norm: Some(norm), step: Some(step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.constants.most), ..Settings::default() }
    }
}
