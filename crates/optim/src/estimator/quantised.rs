//! CORE-Q: the scalars themselves as dithered integers of about one bit, relative to shifts that follow each machine's gradient.
//!
//! Machine i sends z_ij = round(<g_i - c_i, xi_j>/D + u_ij) with D = s sqrt(12 n eta), where s is the common scale of the mean's scalars and
//! u_ij a common dither. (z_ij - u_ij) D is unbiased with variance D^2/12, so their mean has the relative variance eta. The shifts follow:
//! c_i += theta (1/m) sum_j (z_ij - u_ij) D xi_j. See docs/core-q.md for the derivation, and for what is measured and not proved.

use corewire_comm::{Collective, CommError};
use corewire_sketch::code::{Dither, IntegerCoder, dequantise, quantise};
use corewire_sketch::{AnySketch, CommonRandomness, Purpose, Sketch};

use super::{Estimate, ExtraMeans, MeanEstimator, check_finite, pull_extra, push_extra, split_extra};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor};

/// Who knows the mean shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Machine 0 keeps the mean shift, dithers the means again and sends the fewest bits.
    Hub,
    /// Exact integer sums go down; every machine keeps the mean shift, and whoever sums needs neither seed nor state.
    Sum,
}

/// How coarse the integers are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiser {
    /// Variance that the way up adds to the mean's scalars, relative to their own.
    pub eta_up: f64,
    /// The same for the way down; unused by [`Form::Sum`].
    pub eta_down: f64,
    /// How far a shift follows: a factor on m/(m + d + 1).
    pub theta: f64,
    /// Who knows the mean shift.
    pub form: Form,
}

impl Default for Quantiser {
    fn default() -> Self {
        Self { eta_up: 0.2, eta_down: 0.2, theta: 1.0, form: Form::Hub }
    }
}

impl Quantiser {
    /// The factor by which quantising multiplies the variance of a sketch.
    pub fn noise(&self) -> f64 {
        match self.form {
            Form::Hub => 1.0 + self.eta_up + self.eta_down,
            Form::Sum => 1.0 + self.eta_up,
        }
    }
}

/// How many scalars of the first round set the first scale.
const FIRST_SCALARS: usize = 8;
/// How much of the scale is kept from round to round.
const KEEP: f64 = 0.7;

/// The mean through m common random directions, about a bit a scalar.
pub struct Quantised {
    sketch: AnySketch,
    randomness: CommonRandomness,
    quantiser: Quantiser,
    /// s^2; 0 before the first round.
    scale_squared: f64,
    /// c_i.
    shift: Vec<f64>,
    /// The mean of all c_i: on machine 0 in the hub form, on all in the sum form, else empty.
    mean_shift: Vec<f64>,
    coder_up: IntegerCoder,
    coder_down: IntegerCoder,
    /// Machine 0's twins of all the coders, and the one it sends with.
    hub_up: Vec<IntegerCoder>,
    hub_down: IntegerCoder,
}

impl Quantised {
    /// Through this sketch, which all machines must share.
    pub fn new(sketch: AnySketch, randomness: &CommonRandomness, quantiser: Quantiser) -> Self {
        let shift = vec![0.0; sketch.dim()];
        Self {
            sketch,
            randomness: randomness.clone(),
            quantiser,
            scale_squared: 0.0,
            shift,
            mean_shift: Vec::new(),
            coder_up: IntegerCoder::new(),
            coder_down: IntegerCoder::new(),
            hub_up: Vec::new(),
            hub_down: IntegerCoder::new(),
        }
    }

    /// The scale before anything was sent: a few scalars travel as floats, once.
    fn first_scale(&self, scalars: &[f64], comm: &mut dyn Collective) -> Result<f64, RunError> {
        let count = FIRST_SCALARS.min(scalars.len());
        let mut sample: Vec<f32> = (0..count).map(|k| scalars[k * scalars.len() / count] as f32).collect();
        comm.all_reduce_sum(corewire_comm::Numbers::F32(&mut sample))?;
        let n = comm.size() as f64;
        let mean_square = sample.iter().map(|&sum| (f64::from(sum) / n).powi(2)).sum::<f64>() / count as f64;
        // A start at the optimum has no scale; any positive one will do, and it is followed from there.
        Ok(if mean_square > 0.0 { mean_square } else { f64::MIN_POSITIVE.sqrt() })
    }

    fn dithers(&self, purpose: Purpose, round: u64, rank: usize, out: &mut [Dither]) {
        Dither::fill(&mut self.randomness.words(purpose, round, rank as u32), out);
    }

    /// s^2 <- 0.7 s^2 + 0.3 mean_j(decoded_j^2)/(1 + noise): without the division the noise would feed itself.
    fn follow_scale(&mut self, scalars: &[f64]) {
        let mean_square = scalars.iter().map(|scalar| scalar * scalar).sum::<f64>() / scalars.len() as f64;
        let fresh = mean_square / self.quantiser.noise();
        self.scale_squared = (KEEP * self.scale_squared + (1.0 - KEEP) * fresh).max(f64::MIN_POSITIVE.sqrt());
    }

    /// The follow-up factor theta of the shifts.
    fn theta(&self) -> f64 {
        let (m, d) = (self.sketch.len() as f64, self.sketch.dim() as f64);
        self.quantiser.theta * m / (m + d + 1.0)
    }
}

impl Stateful for Quantised {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.number(Scope::Common, "scale_squared", &mut self.scale_squared);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        let mean_shift_scope = match self.quantiser.form {
            Form::Hub => Scope::Local,
            Form::Sum => Scope::Common,
        };
        visitor.vector(mean_shift_scope, "mean_shift", &mut self.mean_shift);
        let mut coder = |scope, field, coder: &mut IntegerCoder| {
            let mut state = coder.state();
            state.iter_mut().for_each(|word| visitor.word(scope, field, word));
            *coder = IntegerCoder::from_state(state);
        };
        coder(Scope::Local, "coder_up", &mut self.coder_up);
        coder(Scope::Common, "coder_down", &mut self.coder_down);
        coder(Scope::Local, "hub_down", &mut self.hub_down);
        let mut count = self.hub_up.len() as u64;
        visitor.word(Scope::Local, "hub_up", &mut count);
        self.hub_up.resize(count as usize, IntegerCoder::new());
        for hub_up in &mut self.hub_up {
            let mut state = hub_up.state();
            state.iter_mut().for_each(|word| visitor.word(Scope::Local, "hub_up", word));
            *hub_up = IntegerCoder::from_state(state);
        }
    }
}

impl MeanEstimator for Quantised {
    fn estimate(
        &mut self,
        round: u64,
        local: &[f64],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        mean: &mut [f64],
    ) -> Result<Estimate, RunError> {
        let (rank, n, m) = (comm.rank(), comm.size(), self.sketch.len());
        let mut scalars = vec![0.0; m];
        let residual: Vec<f64> = local.iter().zip(&self.shift).map(|(local, shift)| local - shift).collect();
        self.sketch.project(round, &residual, &mut scalars);
        check_finite(rank, round, "a gradient", &scalars)?;
        if self.scale_squared == 0.0 {
            self.scale_squared = self.first_scale(&scalars, comm)?;
        }
        let step = (self.scale_squared * (12.0 * n as f64 * self.quantiser.eta_up)).sqrt();
        let mut dithers = vec![Dither::NONE; m];
        self.dithers(Purpose::Dither, round, rank, &mut dithers);
        let integers: Vec<i32> =
            scalars.iter().zip(&dithers).map(|(&scalar, &dither)| quantise(scalar, step, dither)).collect();

        match self.quantiser.form {
            Form::Hub => self.through_hub(round, step, &integers, &dithers, extra, comm, &mut scalars)?,
            Form::Sum => self.through_sum(round, step, &integers, extra, comm, &mut scalars)?,
        }

        // The own part of what was sent moves the own shift.
        let sent: Vec<f64> =
            integers.iter().zip(&dithers).map(|(&integer, &dither)| dequantise(integer, step, dither)).collect();
        let theta = self.theta();
        self.sketch.reconstruct_add(round, &sent, theta, &mut self.shift);

        self.sketch.reconstruct(round, &scalars, mean);
        self.follow_scale(&scalars);
        Ok(Estimate { energy: self.sketch.energy(&scalars) / self.quantiser.noise() })
    }

    fn effective_budget(&self) -> f64 {
        self.sketch.len() as f64 / self.quantiser.noise()
    }
}

impl Quantised {
    /// Machine 0 decodes all, adds the mean shift, dithers again. Leaves the decoded means in `scalars`.
    fn through_hub(
        &mut self,
        round: u64,
        step: f64,
        integers: &[i32],
        dithers: &[Dither],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        scalars: &mut [f64],
    ) -> Result<(), RunError> {
        let (n, m, extras, theta) = (comm.size(), scalars.len(), extra.len(), self.theta());
        let step_down = (self.scale_squared * (12.0 * self.quantiser.eta_down)).sqrt();
        let mut dithers_down = vec![Dither::NONE; m];
        self.dithers(Purpose::DownlinkDither, round, 0, &mut dithers_down);
        let mut message = Vec::new();
        self.coder_up.encode(integers, dithers, &mut message);
        push_extra(extra, &mut message);

        if comm.rank() == 0 && self.mean_shift.is_empty() {
            self.mean_shift = vec![0.0; self.sketch.dim()];
            self.hub_up = vec![IntegerCoder::new(); n];
        }
        let reply = comm.exchange(&message, &mut |messages| {
            let (mut means, mut extra_means) = (vec![0.0; m], ExtraMeans::new(extras));
            let (mut dithers, mut integers) = (vec![Dither::NONE; m], vec![0; m]);
            for (rank, message) in messages.iter().enumerate() {
                let refused = |what: String| CommError::Refused { rank, what };
                let (body, extra) =
                    split_extra(message, extras).ok_or_else(|| refused("its message is too short".to_owned()))?;
                self.dithers(Purpose::Dither, round, rank, &mut dithers);
                self.hub_up[rank]
                    .decode(body, &dithers, &mut integers)
                    .map_err(|error| refused(format!("in its message {error}")))?;
                for ((mean, &integer), &dither) in means.iter_mut().zip(&integers).zip(&dithers) {
                    *mean += dequantise(integer, step, dither);
                }
                extra_means.add(extra);
            }
            means.iter_mut().for_each(|mean| *mean /= n as f64);
            let mut shifted = vec![0.0; m];
            self.sketch.project(round, &self.mean_shift, &mut shifted);
            self.sketch.reconstruct_add(round, &means, theta, &mut self.mean_shift);
            for ((integer, mean), (shifted, &dither)) in
                integers.iter_mut().zip(&means).zip(shifted.iter().zip(&dithers_down))
            {
                *integer = quantise(mean + shifted, step_down, dither);
            }
            let mut reply = Vec::new();
            self.hub_down.encode(&integers, &dithers_down, &mut reply);
            extra_means.push(&mut reply);
            Ok(reply)
        })?;

        let body = pull_extra(&reply.message, extra);
        let mut integers = vec![0; m];
        self.coder_down
            .decode(body, &dithers_down, &mut integers)
            .map_err(|error| CommError::Refused { rank: 0, what: format!("in its answer of round {round} {error}") })?;
        for ((scalar, &integer), &dither) in scalars.iter_mut().zip(&integers).zip(&dithers_down) {
            *scalar = dequantise(integer, step_down, dither);
        }
        Ok(())
    }

    /// The integers are summed by whoever can add; every machine follows the mean shift. Leaves the decoded means in `scalars`.
    fn through_sum(
        &mut self,
        round: u64,
        step: f64,
        integers: &[i32],
        extra: &mut [f64],
        comm: &mut dyn Collective,
        scalars: &mut [f64],
    ) -> Result<(), RunError> {
        let (n, m, extras, theta) = (comm.size(), scalars.len(), extra.len(), self.theta());
        if self.mean_shift.is_empty() {
            self.mean_shift = vec![0.0; self.sketch.dim()];
        }
        let mut message = encode_stateless(integers);
        push_extra(extra, &mut message);
        let reply = comm.exchange(&message, &mut |messages| {
            let (mut sums, mut extra_means) = (vec![0i32; m], ExtraMeans::new(extras));
            let mut integers = vec![0; m];
            for (rank, message) in messages.iter().enumerate() {
                let refused = |what: &str| CommError::Refused { rank, what: what.to_owned() };
                let (body, extra) = split_extra(message, extras).ok_or_else(|| refused("its message is too short"))?;
                decode_stateless(body, &mut integers).ok_or_else(|| refused("its message is no code of integers"))?;
                sums.iter_mut().zip(&integers).for_each(|(sum, integer)| *sum = sum.saturating_add(*integer));
                extra_means.add(extra);
            }
            let mut reply = encode_stateless(&sums);
            extra_means.push(&mut reply);
            Ok(reply)
        })?;
        let body = pull_extra(&reply.message, extra);
        let mut sums = vec![0; m];
        let damaged =
            || CommError::Refused { rank: 0, what: format!("its sums of round {round} are no code of integers") };
        decode_stateless(body, &mut sums).ok_or_else(damaged)?;

        let mut dither_sums = vec![0.0; m];
        let mut dithers = vec![Dither::NONE; m];
        for rank in 0..n {
            self.dithers(Purpose::Dither, round, rank, &mut dithers);
            dither_sums.iter_mut().zip(&dithers).for_each(|(sum, dither)| *sum += dither.value());
        }
        let means: Vec<f64> = sums
            .iter()
            .zip(&dither_sums)
            .map(|(&sum, dithers)| (f64::from(sum) - dithers) * (step / n as f64))
            .collect();
        self.sketch.project(round, &self.mean_shift, scalars);
        self.sketch.reconstruct_add(round, &means, theta, &mut self.mean_shift);
        scalars.iter_mut().zip(&means).for_each(|(scalar, mean)| *scalar += mean);
        Ok(())
    }
}

/// A code that needs no state: a byte for the magnitude, then the integers.
fn encode_stateless(integers: &[i32]) -> Vec<u8> {
    let squares: u64 =
        integers.iter().map(|&z| (i64::from(z) * i64::from(z)).unsigned_abs()).fold(0, u64::saturating_add);
    let mean_square = squares / integers.len().max(1) as u64;
    let log_energy = (64 - mean_square.leading_zeros()).min(24) as u8;
    let mut message = vec![log_energy];
    let dithers = vec![Dither::NONE; integers.len()];
    IntegerCoder::stateless(log_energy).encode(integers, &dithers, &mut message);
    message
}

fn decode_stateless(message: &[u8], integers: &mut [i32]) -> Option<()> {
    let (&log_energy, body) = message.split_first()?;
    let dithers = vec![Dither::NONE; integers.len()];
    IntegerCoder::stateless(log_energy).decode(body, &dithers, integers).ok()
}
