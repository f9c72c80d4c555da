//! Methods that send a few coordinates drawn by all machines together, or by each for itself: SEGA, ASEGA, IBCD.

use corewire_comm::{CommError, Reduction, numbers};
use corewire_sketch::{CommonRandomness, Purpose, Words};

use crate::error::RunError;
use crate::estimator::Downlink;
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// `count` of `dim` coordinates, every set equally likely, ascending.
fn draw(words: &mut Words, dim: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..dim).collect();
    for i in 0..count.min(dim) {
        let j = i + words.next_below((dim - i) as u64) as usize;
        order.swap(i, j);
    }
    order.truncate(count);
    order.sort_unstable();
    order
}

/// Sketches by coordinates: h learns the gradient one coordinate at a time, and h + (1/p_j)(g_j - h_j) e_j is unbiased.
struct Learned {
    h: Vec<f64>,
    /// The probability of each coordinate; empty for `count` coordinates drawn alike.
    probabilities: Vec<f64>,
    count: usize,
    double: bool,
    randomness: CommonRandomness,
}

impl Learned {
    /// The estimate of the gradient.
    fn estimate(&mut self, round: u64, gradient: &[f64], context: &mut Context<'_>) -> Result<Vec<f64>, RunError> {
        let dim = gradient.len();
        let mut words = self.randomness.words(Purpose::Compressor, round, 0);
        let drawn = if self.probabilities.is_empty() {
            draw(&mut words, dim, self.count)
        } else {
            (0..dim).filter(|&j| words.next_coin(self.probabilities[j])).collect()
        };
        // Four bytes each, or eight, both ways.
        let mut means: Vec<f64> = drawn.iter().map(|&j| gradient[j]).collect();
        context.means(round, &mut means, self.double)?;
        let mut estimate = self.h.clone();
        for (j, mean) in drawn.into_iter().zip(means) {
            let p = self.probabilities.get(j).copied().unwrap_or(self.count as f64 / dim as f64);
            estimate[j] += (mean - self.h[j]) / p;
            self.h[j] = mean;
        }
        Ok(estimate)
    }
}

impl Stateful for Learned {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "h", &mut self.h);
    }
}

/// SEGA with coordinate sketches: x+ = x - a ghat.
pub struct Sega {
    x: Vec<f64>,
    learned: Learned,
    step: f64,
}

impl Sega {
    /// `count` coordinates per round, of 64 bits if `double`.
    pub fn new(start: Vec<f64>, count: usize, step: f64, double: bool, randomness: &CommonRandomness) -> Self {
        let h = vec![0.0; start.len()];
        let learned = Learned { h, probabilities: Vec::new(), count, double, randomness: randomness.clone() };
        Self { x: start, learned, step }
    }
}

impl Stateful for Sega {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        self.learned.visit(visitor);
    }
}

impl Method for Sega {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let mut gradient = vec![0.0; self.x.len()];
        context.objective.gradient(&self.x, &mut gradient);
        let estimate = self.learned.estimate(round, &gradient, context)?;
        vector::add_scaled(-self.step, &estimate, &mut self.x);
        Ok(Outcome { gradient_norm: None, step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}

/// The constants of ASEGA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsegaConstants {
    /// a: the step of y is a/p_j.
    pub alpha: f64,
    /// b: the step of z.
    pub beta: f64,
    /// t: the weight of z in x.
    pub tau: f64,
    /// mu.
    pub strong_convexity: f64,
}

/// ASEGA: x = (1 - t) y + t z; y+ = x - a ghat/p (coordinate by coordinate); z+ = (z + b mu x - b ghat)/(1 + b mu).
pub struct Asega {
    y: Vec<f64>,
    z: Vec<f64>,
    learned: Learned,
    constants: AsegaConstants,
}

impl Asega {
    /// Coordinate j is drawn with probability `probabilities[j]`, on its own; it has 64 bits if `double`.
    pub fn new(
        start: Vec<f64>,
        probabilities: Vec<f64>,
        constants: AsegaConstants,
        double: bool,
        randomness: &CommonRandomness,
    ) -> Self {
        assert_eq!(probabilities.len(), start.len(), "every coordinate has a probability");
        assert!(probabilities.iter().all(|p| *p > 0.0 && *p <= 1.0), "probabilities are in (0, 1]");
        let h = vec![0.0; start.len()];
        let learned = Learned { h, probabilities, count: 0, double, randomness: randomness.clone() };
        Self { z: start.clone(), y: start, learned, constants }
    }
}

impl Stateful for Asega {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "y", &mut self.y);
        visitor.vector(Scope::Common, "z", &mut self.z);
        self.learned.visit(visitor);
    }
}

impl Method for Asega {
    fn iterate(&self) -> &[f64] {
        &self.y
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.y.len();
        let AsegaConstants { alpha, beta, tau, strong_convexity: mu } = self.constants;
        let x: Vec<f64> = self.y.iter().zip(&self.z).map(|(y, z)| (1.0 - tau) * y + tau * z).collect();
        let mut gradient = vec![0.0; dim];
        context.objective.gradient(&x, &mut gradient);
        let estimate = self.learned.estimate(round, &gradient, context)?;
        for j in 0..dim {
            self.y[j] = x[j] - alpha / self.learned.probabilities[j] * estimate[j];
            self.z[j] = (self.z[j] + beta * mu * x[j] - beta * estimate[j]) / (1.0 + beta * mu);
        }
        Ok(Outcome { gradient_norm: None, step: Some(alpha), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.constants.alpha), ..Settings::default() }
    }
}

/// Independent block coordinate descent: machine i moves its own random block S_i of k coordinates, and the mean of all is taken:
/// x+ = x - gamma mean_i (g_i on S_i). The hub draws the blocks too, so only values travel up.
pub struct Ibcd {
    x: Vec<f64>,
    count: usize,
    step: f64,
    down: Downlink,
    randomness: CommonRandomness,
}

impl Ibcd {
    /// Blocks of `count` coordinates; the mean comes down as `down` says.
    pub fn new(start: Vec<f64>, count: usize, step: f64, down: Downlink, randomness: &CommonRandomness) -> Self {
        Self { x: start, count, step, down, randomness: randomness.clone() }
    }
}

impl Stateful for Ibcd {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        self.down.visit(visitor);
    }
}

impl Method for Ibcd {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let Self { x, count, step, down, randomness } = self;
        let (dim, rank) = (x.len(), context.comm.rank());
        let block = |rank: usize| draw(&mut randomness.words(Purpose::Compressor, round, rank as u32), dim, *count);
        let mut gradient = vec![0.0; dim];
        context.objective.gradient(x, &mut gradient);
        if !vector::all_finite(&gradient) {
            return Err(RunError::NotFinite { rank, round, what: "a gradient" });
        }
        let mut message = Vec::new();
        numbers::push_floats(&block(rank).into_iter().map(|j| gradient[j]).collect::<Vec<_>>(), false, &mut message);
        let mut combine = |messages: &[&[u8]]| {
            let mut mean = vec![0.0; dim];
            for (rank, message) in messages.iter().enumerate() {
                let block = block(rank);
                if message.len() != 4 * block.len() {
                    let what = format!("it sent {} bytes for {} coordinates", message.len(), block.len());
                    return Err(CommError::Refused { rank, what });
                }
                for (j, value) in block.into_iter().zip(numbers::read::<f32>(message)) {
                    mean[j] += f64::from(value) / messages.len() as f64;
                }
            }
            Ok(down.pack(round, &mean, randomness))
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        let mut mean = vec![0.0; dim];
        down.unpack(round, &reply.message, randomness, &mut mean)?;
        vector::add_scaled(-*step, &mean, x);
        let norm = vector::norm_squared(&mean).sqrt() * dim as f64 / *count as f64;
        Ok(Outcome { gradient_norm: Some(norm), step: Some(*step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}
