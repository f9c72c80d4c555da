//! CORE-Q: the scalars themselves as dithered integers of about one bit, relative to shifts that follow each machine's gradient.
//!
//! Machine i sends z_ij = round(<g_i - c_i, xi_j>/D + u_ij) with D = s sqrt(12 n eta), where s is the common scale of the mean's scalars
//! and u_ij a common dither. (z_ij - u_ij) D is unbiased with variance D^2/12, so their mean has the relative variance eta. The shifts
//! follow: c_i += theta (1/m) sum_j (z_ij - u_ij) D xi_j. See docs/core-q.md for the derivation, and for what is measured and not proved.

use corewire_comm::numbers::{self, Number};
use corewire_comm::{CommError, Reply};
use corewire_sketch::code::{Dither, IntegerCoder, dequantise, quantise};
use corewire_sketch::{AnySketch, CommonRandomness, Purpose, Real, Sketch};

use super::{
    Estimate, ExtraMeans, How, MeanEstimator, Next, Place, check_finite, pull_extra, read_sums, split_extra,
    sum_unless_extra, sum_with_extra,
};
use crate::error::RunError;
use crate::state::{Scope, Stateful, Visitor, visit_reals};

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
    /// How far a shift follows: a factor on m/(m + d + 1); at 0 there are no shifts.
    pub theta: f64,
    /// How much of the scale is kept from round to round. Where gradients fall fast, what is kept is out of date, and makes integers coarse.
    pub keep: f64,
    /// Who knows the mean shift.
    pub form: Form,
}

impl Default for Quantiser {
    fn default() -> Self {
        Self { eta_up: 0.2, eta_down: 0.2, theta: 1.0, keep: 0.7, form: Form::Hub }
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
/// With fewer scalars than this a round alone does not tell the scale well enough: some of the last one is kept, up to [`MOST_KEPT`].
const ENOUGH_SCALARS: f64 = 64.0;
const MOST_KEPT: f64 = 0.7;

/// The mean through m common random directions, about a bit per scalar.
pub struct Quantised<T: Real = f64> {
    sketch: AnySketch,
    randomness: CommonRandomness,
    quantiser: Quantiser,
    /// s^2; 0 before the first round.
    scale_squared: f64,
    /// c_i.
    shift: Vec<T>,
    /// The mean of all c_i: on machine 0 in the hub form, on all in the sum form, else empty.
    mean_shift: Vec<T>,
    coder_up: IntegerCoder,
    coder_down: IntegerCoder,
    /// Machine 0's twins of all the coders, and the one it sends with.
    hub_up: Vec<IntegerCoder>,
    hub_down: IntegerCoder,
    scratch: Scratch<T>,
}

/// Space that is kept from round to round.
struct Scratch<T> {
    residual: Vec<T>,
    scalars: Vec<T>,
    /// What this machine's integers stand for.
    sent: Vec<T>,
    dithers: Vec<Dither>,
    dithers_down: Vec<Dither>,
    integers: Vec<i32>,
    means: Vec<f64>,
}

impl<T: Real> Quantised<T> {
    /// Through this sketch, which all machines must share.
    pub fn new(sketch: AnySketch, randomness: &CommonRandomness, quantiser: Quantiser) -> Self {
        let m = sketch.len();
        let shifted = if quantiser.theta == 0.0 { 0 } else { sketch.dim() };
        let scratch = Scratch {
            residual: vec![T::ZERO; shifted],
            scalars: vec![T::ZERO; m],
            sent: vec![T::ZERO; m],
            dithers: vec![Dither::NONE; m],
            dithers_down: vec![Dither::NONE; m],
            integers: vec![0; m],
            means: vec![0.0; m],
        };
        Self {
            sketch,
            randomness: randomness.clone(),
            quantiser,
            scale_squared: 0.0,
            shift: vec![T::ZERO; shifted],
            mean_shift: Vec::new(),
            coder_up: IntegerCoder::new(),
            coder_down: IntegerCoder::new(),
            hub_up: Vec::new(),
            hub_down: IntegerCoder::new(),
            scratch,
        }
    }

    /// s^2 <- k s^2 + (1 - k) mean_j(decoded_j^2)/(1 + noise): without the division the noise would feed itself.
    fn follow_scale(&mut self) {
        let scalars = &self.scratch.scalars;
        let mean_square = scalars.iter().map(|s| s.to_f64() * s.to_f64()).sum::<f64>() / scalars.len() as f64;
        let fresh = mean_square / self.quantiser.noise();
        let few = (1.0 - scalars.len() as f64 / ENOUGH_SCALARS).min(MOST_KEPT);
        let keep = self.quantiser.keep.max(few);
        self.scale_squared = (keep * self.scale_squared + (1.0 - keep) * fresh).max(f64::MIN_POSITIVE.sqrt());
    }

    /// The follow-up factor theta of the shifts.
    fn theta(&self) -> f64 {
        let (m, d) = (self.sketch.len() as f64, self.sketch.dim() as f64);
        self.quantiser.theta * m / (m + d + 1.0)
    }

    /// D.
    fn step_up(&self, machines: usize) -> f64 {
        (self.scale_squared * (12.0 * machines as f64 * self.quantiser.eta_up)).sqrt()
    }

    fn step_down(&self) -> f64 {
        (self.scale_squared * (12.0 * self.quantiser.eta_down)).sqrt()
    }

    /// Before anything was sent there is no scale: a few scalars travel as floats, once.
    fn is_first(&self) -> bool {
        self.scale_squared == 0.0
    }

    fn first_scale(&mut self, reply: &Reply) -> Result<(), CommError> {
        let count = FIRST_SCALARS.min(self.sketch.len());
        let n = reply.divisor();
        let sums = read_sums::<f32>(&reply.message, count)?;
        let mean_square = sums.map(|sum| (f64::from(sum) / n).powi(2)).sum::<f64>() / count as f64;
        // A start at the optimum has no scale; any positive one will do, and it is followed from there.
        self.scale_squared = if mean_square > 0.0 { mean_square } else { f64::MIN_POSITIVE.sqrt() };
        Ok(())
    }
}

fn fill(randomness: &CommonRandomness, purpose: Purpose, round: u64, rank: usize, out: &mut [Dither]) {
    Dither::fill(&mut randomness.words(purpose, round, rank as u32), out);
}

impl<T: Real> Stateful for Quantised<T> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.number(Scope::Common, "scale_squared", &mut self.scale_squared);
        visit_reals(visitor, Scope::Local, "shift", &mut self.shift);
        let mean_shift_scope = match self.quantiser.form {
            Form::Hub => Scope::Local,
            Form::Sum => Scope::Common,
        };
        visit_reals(visitor, mean_shift_scope, "mean_shift", &mut self.mean_shift);
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
        self.hub_up.resize(count.min(1 << 20) as usize, IntegerCoder::new());
        for hub_up in &mut self.hub_up {
            let mut state = hub_up.state();
            state.iter_mut().for_each(|word| visitor.word(Scope::Local, "hub_up", word));
            *hub_up = IntegerCoder::from_state(state);
        }
    }
}

impl<T: Real> MeanEstimator<T> for Quantised<T> {
    fn contribute(&mut self, at: Place, local: &[T], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        let first = self.is_first();
        let Scratch { residual, scalars, sent, dithers, integers, .. } = &mut self.scratch;
        if first || at.stage == 0 {
            let local = if self.quantiser.theta == 0.0 {
                local
            } else {
                for ((residual, local), shift) in residual.iter_mut().zip(local).zip(&self.shift) {
                    *residual = *local - *shift;
                }
                residual
            };
            self.sketch.project(at.round, local, scalars);
            check_finite(at, "a gradient", scalars)?;
        }
        if first {
            let count = FIRST_SCALARS.min(scalars.len());
            let sample = (0..count).map(|k| scalars[k * scalars.len() / count].to_f64());
            sample.for_each(|scalar| numbers::narrow(scalar).push(message));
            return Ok(How::SumF32);
        }
        let step = (self.scale_squared * (12.0 * at.machines as f64 * self.quantiser.eta_up)).sqrt();
        // Sums of all machines' integers must fit into 32 bits.
        let most = match self.quantiser.form {
            Form::Hub => i32::MAX,
            Form::Sum => i32::MAX / i32::try_from(at.machines.max(1)).unwrap_or(i32::MAX),
        };
        fill(&self.randomness, Purpose::Dither, at.round, at.rank, dithers);
        for (((integer, sent), scalar), &dither) in integers.iter_mut().zip(sent).zip(&*scalars).zip(&*dithers) {
            *integer = quantise(scalar.to_f64(), step, dither).clamp(-most, most);
            *sent = T::from_f64(dequantise(*integer, step, dither));
        }
        let how = match self.quantiser.form {
            Form::Hub => {
                self.coder_up.encode(integers, dithers, message);
                if at.rank == 0 && self.hub_up.is_empty() {
                    self.mean_shift = vec![T::ZERO; self.shift.len()];
                    self.hub_up = vec![IntegerCoder::new(); at.machines];
                }
                How::Hub
            }
            Form::Sum => {
                numbers::push(integers, message);
                sum_unless_extra(How::SumI32, extra)
            }
        };
        numbers::push(extra, message);
        Ok(how)
    }

    /// Machine 0 decodes all, adds the mean shift, dithers again.
    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        if self.quantiser.form == Form::Sum {
            return sum_with_extra::<i32>(messages, extras);
        }
        let (theta, step, step_down) = (self.theta(), self.step_up(at.machines), self.step_down());
        let Scratch { dithers, dithers_down, integers, means, .. } = &mut self.scratch;
        let mut extra_means = ExtraMeans::new(extras);
        means.fill(0.0);
        for (rank, message) in messages.iter().enumerate() {
            let refused = |what: String| CommError::refused(rank, what);
            let (body, extra) =
                split_extra(message, extras).ok_or_else(|| refused("its message is too short".to_owned()))?;
            fill(&self.randomness, Purpose::Dither, at.round, rank, dithers);
            self.hub_up[rank]
                .decode(body, dithers, integers)
                .map_err(|error| refused(format!("in its message {error}")))?;
            for ((mean, &integer), &dither) in means.iter_mut().zip(&*integers).zip(&*dithers) {
                *mean += dequantise(integer, step, dither);
            }
            extra_means.add(extra);
        }
        let n = messages.len() as f64;
        means.iter_mut().for_each(|mean| *mean /= n);
        let mut shifted = vec![T::ZERO; means.len()];
        if theta != 0.0 {
            self.sketch.project(at.round, &self.mean_shift, &mut shifted);
            let narrow: Vec<T> = means.iter().map(|&mean| T::from_f64(mean)).collect();
            self.sketch.reconstruct_add(at.round, &narrow, T::from_f64(theta), &mut self.mean_shift);
        }
        fill(&self.randomness, Purpose::DownlinkDither, at.round, 0, dithers_down);
        for ((integer, mean), (shifted, &dither)) in
            integers.iter_mut().zip(&*means).zip(shifted.iter().zip(&*dithers_down))
        {
            *integer = quantise(mean + shifted.to_f64(), step_down, dither);
        }
        let mut reply = Vec::new();
        self.hub_down.encode(integers, dithers_down, &mut reply);
        extra_means.push(&mut reply);
        Ok(reply)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [T]) -> Result<Next, RunError> {
        if self.is_first() {
            self.first_scale(reply)?;
            return Ok(Next::Again);
        }
        let theta = self.theta();
        match self.quantiser.form {
            Form::Hub => self.absorb_hub(at, reply, extra)?,
            Form::Sum => self.absorb_sum(at, reply, extra)?,
        }
        if theta != 0.0 {
            // The own part of what was sent moves the own shift.
            self.sketch.reconstruct_add(at.round, &self.scratch.sent, T::from_f64(theta), &mut self.shift);
        }
        self.sketch.reconstruct(at.round, &self.scratch.scalars, mean);
        self.follow_scale();
        let energy = self.sketch.energy(&self.scratch.scalars).to_f64() / self.quantiser.noise();
        Ok(Next::Done(Estimate { energy }))
    }

    fn effective_budget(&self) -> f64 {
        self.sketch.len() as f64 / self.quantiser.noise()
    }
}

impl<T: Real> Quantised<T> {
    /// Leaves the decoded means in `scalars`.
    fn absorb_hub(&mut self, at: Place, reply: &Reply, extra: &mut [f64]) -> Result<(), CommError> {
        let step_down = self.step_down();
        let body = pull_extra(reply, extra)?;
        let Scratch { scalars, dithers_down, integers, .. } = &mut self.scratch;
        fill(&self.randomness, Purpose::DownlinkDither, at.round, 0, dithers_down);
        let damaged = |error| CommError::refused(0, format!("in its answer of round {} {error}", at.round));
        self.coder_down.decode(body, dithers_down, integers).map_err(damaged)?;
        for ((scalar, &integer), &dither) in scalars.iter_mut().zip(&*integers).zip(&*dithers_down) {
            *scalar = T::from_f64(dequantise(integer, step_down, dither));
        }
        Ok(())
    }

    /// Every machine follows the mean shift from the exact sums. Leaves the decoded means in `scalars`.
    fn absorb_sum(&mut self, at: Place, reply: &Reply, extra: &mut [f64]) -> Result<(), CommError> {
        let (theta, step, n) = (self.theta(), self.step_up(at.machines), reply.divisor());
        let body = pull_extra(reply, extra)?;
        if self.mean_shift.is_empty() {
            self.mean_shift = vec![T::ZERO; self.shift.len()];
        }
        let Scratch { scalars, dithers, means, .. } = &mut self.scratch;
        means.fill(0.0);
        // The dithers of all who took part.
        for rank in reply.roster.ranks() {
            fill(&self.randomness, Purpose::Dither, at.round, rank, dithers);
            means.iter_mut().zip(&*dithers).for_each(|(sum, dither)| *sum += dither.value());
        }
        let sums = read_sums::<i32>(body, means.len())?;
        means.iter_mut().zip(sums).for_each(|(mean, sum)| *mean = (f64::from(sum) - *mean) * (step / n));
        let narrow: Vec<T> = means.iter().map(|&mean| T::from_f64(mean)).collect();
        if theta == 0.0 {
            scalars.copy_from_slice(&narrow);
            return Ok(());
        }
        self.sketch.project(at.round, &self.mean_shift, scalars);
        self.sketch.reconstruct_add(at.round, &narrow, T::from_f64(theta), &mut self.mean_shift);
        scalars.iter_mut().zip(&narrow).for_each(|(scalar, mean)| *scalar += *mean);
        Ok(())
    }
}
