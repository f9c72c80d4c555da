//! 2Direction: momentum, with compressed differences on the way up and on the way down.

use corewire_algebra::vector::add_scaled;
use corewire_comm::numbers;
use corewire_comm::{CommError, Reduction};
use corewire_compress::{Address, Codec, RandK};
use corewire_sketch::{CommonRandomness, Purpose};

use super::second_order::read_vector;
use crate::error::RunError;
use crate::estimator::{Coding, check_finite};
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};

/// Beyond this the sum of all steps only matters by its ratio to the next one, and must not overflow.
const LONGEST: f64 = 1e200;

/// The constants of 2Direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoDirectionConstants {
    /// L-bar, the smoothness that the steps are made for.
    pub smoothness: f64,
    /// mu.
    pub strong_convexity: f64,
    /// p: how often the anchor z moves and comes down whole.
    pub probability: f64,
    /// tau: how far v follows.
    pub follow: f64,
    /// beta: how far the shifts follow.
    pub shift: f64,
    /// alpha: what the code on the way down keeps.
    pub kept: f64,
}

impl TwoDirectionConstants {
    /// Theory's but for its constant of hundreds of thousands, which is 1 here: L-bar is the largest of the six terms of the publication.
    pub fn theory(
        omega: f64,
        kept: f64,
        smoothness: f64,
        largest: f64,
        strong_convexity: f64,
        machines: usize,
    ) -> Self {
        let (n, shift) = (machines.max(1) as f64, 1.0 / (1.0 + omega));
        let probability = shift;
        let follow = libm::cbrt(probability * shift * shift);
        let (p, mixed) = (probability, (smoothness * largest * omega * follow / n).sqrt());
        let terms = [
            smoothness / kept,
            smoothness * p / (kept * follow),
            mixed * p / (kept * shift),
            mixed * (p / shift).sqrt() / kept,
            largest * omega * p * p / (shift * shift * n),
            largest * omega / n,
        ];
        let smoothness = terms.into_iter().fold(0.0, f64::max);
        Self { smoothness, strong_convexity, probability, follow, shift, kept }
    }

    /// theta and gamma for a sum of steps so far: L-bar theta gamma = L-bar + sum mu, and theta no larger than a quarter of what the
    /// coin and the shifts bear.
    fn rates(&self, sum: f64) -> (f64, f64) {
        let Self { smoothness, strong_convexity: mu, probability: p, follow, shift, kept } = *self;
        let total = smoothness + sum * mu;
        let (a, b) = (p * smoothness * sum, p * total);
        let root = 2.0 * total / (b + (b * b + 4.0 * a * total).sqrt());
        let most = 0.25 * (kept / p).min(follow / p).min(shift / p).min(1.0);
        let theta = root.min(most);
        (theta, p * theta * sum / (1.0 - p * theta))
    }
}

/// 2Direction. Gradients are taken at y = theta w + (1 - theta) z. The hub's u follows the estimate g = h + mean C(grad f_i(y) - h_i), and
/// w follows u by what C' says of u less where w would go by the old estimate k alone. By a common coin z and k come down whole: the
/// hub's theta u + (1 - theta) z, and v, a running mean of gradients at z.
///
/// The code at z of a round travels with the next round's code at y: one exchange per round.
pub struct TwoDirection {
    w: Vec<f64>,
    z: Vec<f64>,
    k: Vec<f64>,
    /// Where gradients are taken.
    y: Vec<f64>,
    /// Gamma: the sum of all steps so far, from 1.
    sum: f64,
    /// The hub's; as they were at the start elsewhere.
    u: Vec<f64>,
    v: Vec<f64>,
    mean_shift: Vec<f64>,
    shift: Vec<f64>,
    constants: TwoDirectionConstants,
    up: RandK,
    down: Coding,
    double: bool,
    randomness: CommonRandomness,
}

impl TwoDirection {
    /// From a start, with an unbiased code up and a contraction down.
    pub fn new(
        start: Vec<f64>,
        up: RandK,
        down: Coding,
        constants: TwoDirectionConstants,
        double: bool,
        randomness: &CommonRandomness,
    ) -> Self {
        let zeros = vec![0.0; start.len()];
        Self {
            w: start.clone(),
            z: start.clone(),
            y: start.clone(),
            u: start,
            k: zeros.clone(),
            v: zeros.clone(),
            mean_shift: zeros.clone(),
            shift: zeros,
            sum: 1.0,
            constants,
            up,
            down,
            double,
            randomness: randomness.clone(),
        }
    }
}

impl Stateful for TwoDirection {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "w", &mut self.w);
        visitor.vector(Scope::Common, "z", &mut self.z);
        visitor.vector(Scope::Common, "k", &mut self.k);
        visitor.vector(Scope::Common, "y", &mut self.y);
        visitor.number(Scope::Common, "sum", &mut self.sum);
        visitor.vector(Scope::Local, "u", &mut self.u);
        visitor.vector(Scope::Local, "v", &mut self.v);
        visitor.vector(Scope::Local, "mean_shift", &mut self.mean_shift);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        self.down.visit(visitor);
    }
}

impl Method for TwoDirection {
    fn iterate(&self) -> &[f64] {
        &self.y
    }

    /// Shifts begin at the gradients of the start, whose mean all learn.
    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        context.objective.gradient(&self.w, &mut self.shift);
        // What the others add up is what was sent.
        let mut message = Vec::new();
        numbers::push_floats(&self.shift, self.double, &mut message);
        read_vector(&message, self.double, &mut self.shift)?;
        self.k.copy_from_slice(&self.shift);
        context.means(0, &mut self.k, self.double)?;
        self.v.copy_from_slice(&self.k);
        self.mean_shift.copy_from_slice(&self.k);
        Ok(())
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (dim, rank) = (self.w.len(), context.comm.rank());
        let TwoDirectionConstants { smoothness, strong_convexity: mu, probability, follow, shift: beta, .. } =
            self.constants;
        let (theta, gamma) = self.constants.rates(self.sum);
        let before = smoothness + self.sum * mu;
        let after = before + gamma * mu;
        // argmin <g, x> + before/(2 gamma) |x - from|^2 + mu/2 |x - y|^2.
        let stepped = |from: f64, y: f64, g: f64| (before * from + mu * gamma * y - gamma * g) / after;
        let whole = self.randomness.words(Purpose::Coin, round, 0).next_coin(probability);
        let between = |a: &[f64], b: &[f64]| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| theta * a + (1.0 - theta) * b).collect()
        };
        self.y = between(&self.w, &self.z);

        let (mut message, mut decoded) = (Vec::new(), vec![0.0; dim]);
        let address = |rank: usize, stream: u8| Address::new(round, rank as u32).with_stream(stream);
        for (stream, point) in [(0, &self.z), (2, &self.y)] {
            let mut difference = vec![0.0; dim];
            context.objective.gradient(point, &mut difference);
            add_scaled(-1.0, &self.shift, &mut difference);
            check_finite(context.place(round), "a vector to send", &difference)?;
            let mut code = Vec::new();
            self.up.encode(address(rank, stream), &difference, &mut code);
            if stream == 0 {
                self.up.decode(address(rank, 0), &code, &mut decoded).expect("a codec decodes its own code");
                add_scaled(beta, &decoded, &mut self.shift);
            }
            message.extend(code);
        }

        let Self { u, v, mean_shift, up, down, double, w, z, k, y, .. } = &mut *self;
        let mut combine = |messages: &[&[u8]]| {
            let mut means = [vec![0.0; dim], vec![0.0; dim]];
            for (rank, message) in messages.iter().enumerate() {
                let refused = |what: String| CommError::refused(rank, format!("its message of 2direction: {what}"));
                let (at_z, at_y) = message.split_at(message.len() / 2);
                for ((part, stream), mean) in [(at_z, 0), (at_y, 2)].into_iter().zip(&mut means) {
                    up.decode(address(rank, stream), part, &mut decoded).map_err(|error| refused(error.to_string()))?;
                    add_scaled(1.0 / messages.len() as f64, &decoded, mean);
                }
            }
            for i in 0..dim {
                v[i] += follow * (mean_shift[i] + means[0][i] - v[i]);
                mean_shift[i] += beta * means[0][i];
                u[i] = stepped(u[i], y[i], mean_shift[i] + means[1][i]);
            }
            let (mut reply, mut code) = (Vec::new(), Vec::new());
            if whole {
                numbers::push_floats(&between(u, z), *double, &mut reply);
                numbers::push_floats(v, *double, &mut reply);
            }
            let left: Vec<f64> = (0..dim).map(|i| u[i] - stepped(w[i], y[i], k[i])).collect();
            down.encode(address(0, 1), &left, &mut code);
            reply.extend(code);
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;

        let refused = |what: String| RunError::from(CommError::refused(0, format!("its reply of 2direction: {what}")));
        let length = if whole { dim * if self.double { 8 } else { 4 } } else { 0 };
        let parts = reply.message.split_at_checked(2 * length);
        let (dense, code) = parts.ok_or_else(|| refused(format!("{} bytes are too few", reply.message.len())))?;
        let mut moved = vec![0.0; dim];
        self.down.decode(address(0, 1), code, &mut moved).map_err(|error| refused(error.to_string()))?;
        for i in 0..dim {
            self.w[i] = stepped(self.w[i], self.y[i], self.k[i]) + moved[i];
        }
        if whole {
            read_vector(&dense[..length], self.double, &mut self.z)?;
            read_vector(&dense[length..], self.double, &mut self.k)?;
        }
        self.sum = (self.sum + gamma).min(LONGEST);
        Ok(Outcome { step: Some(gamma / after), ..Outcome::default() })
    }

    fn settings(&self) -> Settings {
        Settings { smoothness: Some(self.constants.smoothness), ..Settings::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_solve_their_equation_and_keep_below_what_coin_and_shifts_bear() {
        let constants = TwoDirectionConstants::theory(0.0, 1.0, 4.0, 4.0, 0.01, 3);
        assert_eq!((constants.smoothness, constants.probability, constants.follow), (4.0, 1.0, 1.0));
        for sum in [10.0, 1e3, 1e6] {
            let (theta, gamma) = constants.rates(sum);
            // With p = 1 the quarter binds while the sum is small.
            if theta < 0.25 {
                assert!((4.0 * theta * gamma / (4.0 + sum * 0.01) - 1.0).abs() < 1e-9, "{theta} {gamma}");
            }
            assert!(theta <= 0.25);
        }
        let (theta, _) = TwoDirectionConstants { kept: 0.01, ..constants }.rates(1.0);
        assert_eq!(theta, 0.0025);
    }
}
