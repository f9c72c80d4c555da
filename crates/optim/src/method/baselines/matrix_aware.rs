//! DIANA+ and the shifts of ADIANA+, which draw coordinates where each machine's smoothness matrix makes them matter least.

use corewire_algebra::vector::{add_scaled, dot};
use corewire_comm::numbers;
use corewire_comm::{CommError, Reduction};
use corewire_sketch::{CommonRandomness, Purpose};

use super::exactly_curved;
use super::second_order::{admit, read_vector};
use super::two_query::{AdianaConstants, TwoQuery};
use crate::error::RunError;
use crate::estimator::check_finite;
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};

/// A smoothness matrix alpha + sum of l v v', by its eigenvalues and then its eigenvectors, one after the other.
#[derive(Clone, Copy)]
struct Root<'a> {
    alpha: f64,
    values: &'a [f64],
    vectors: &'a [f64],
}

impl<'a> Root<'a> {
    fn new(alpha: f64, dim: usize, numbers: &'a [f64]) -> Self {
        let (values, vectors) = numbers.split_at(numbers.len() / (dim + 1));
        Self { alpha, values, vectors }
    }

    fn pairs(&self, dim: usize) -> impl Iterator<Item = (f64, &'a [f64])> {
        self.values.iter().copied().zip(self.vectors.chunks_exact(dim.max(1)))
    }

    /// The root of the matrix, or its inverse, times a vector.
    fn times(&self, inverse: bool, vector: &[f64]) -> Vec<f64> {
        let power = |value: f64| if inverse { 1.0 / value.sqrt() } else { value.sqrt() };
        let rest = power(self.alpha);
        let mut out: Vec<f64> = vector.iter().map(|v| rest * v).collect();
        for (value, unit) in self.pairs(vector.len()) {
            add_scaled((power(value + self.alpha) - rest) * dot(unit, vector), unit, &mut out);
        }
        out
    }

    fn diagonal(&self, dim: usize) -> Vec<f64> {
        let mut diagonal = vec![self.alpha; dim];
        for (value, unit) in self.pairs(dim) {
            diagonal.iter_mut().zip(unit).for_each(|(entry, v)| *entry += value * v * v);
        }
        diagonal
    }
}

/// The chances p_j = l_j/(l_j + rho) that add up to `count`, and rho: of all such chances they have the least max (1/p_j - 1) l_j, which is
/// rho itself.
fn chances(diagonal: &[f64], count: f64) -> (Vec<f64>, f64) {
    let sum = |rho: f64| diagonal.iter().map(|l| l / (l + rho)).sum::<f64>();
    let most = diagonal.iter().fold(0.0f64, |most, l| most.max(*l));
    let (mut low, mut high) = (0.0, most * diagonal.len() as f64 / count.max(f64::MIN_POSITIVE));
    if count >= diagonal.len() as f64 {
        high = 0.0;
    }
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if sum(middle) > count { low = middle } else { high = middle }
    }
    (diagonal.iter().map(|l| l / (l + high)).collect(), high)
}

/// What the step follows from.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// L of f.
    pub smoothness: f64,
    /// mu of f.
    pub strong_convexity: f64,
    /// n.
    pub machines: usize,
    /// A factor on the step.
    pub scale: f64,
    /// Coordinates of a message, on average.
    pub coordinates: f64,
}

/// The code D_i = R_i C(R_i^-1 v), with R_i the root of machine i's smoothness matrix and C a drawing of coordinates by the chances that
/// suit its diagonal. The matrices travel once, to the hub.
struct Whitening {
    /// What the method is called where something is refused.
    id: &'static str,
    dim: usize,
    coordinates: f64,
    double: bool,
    randomness: CommonRandomness,
    /// The largest rho and the largest 1/p_j - 1 of all machines.
    worst: Vec<f64>,
    /// This machine's matrix; at the hub those of all, after how many numbers each has.
    own: Vec<f64>,
    all: Vec<f64>,
    lengths: Vec<f64>,
    /// Follow from the matrices.
    own_chances: Vec<f64>,
    all_chances: Vec<Vec<f64>>,
}

impl Whitening {
    fn new(id: &'static str, dim: usize, coordinates: f64, double: bool, randomness: &CommonRandomness) -> Self {
        Self {
            id,
            dim,
            coordinates,
            double,
            randomness: randomness.clone(),
            worst: vec![0.0; 2],
            own: Vec::new(),
            all: Vec::new(),
            lengths: Vec::new(),
            own_chances: Vec::new(),
            all_chances: Vec::new(),
        }
    }

    /// Sends the matrices; all learn the worst rho and omega.
    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let Self { id, dim, coordinates, .. } = *self;
        admit(context.objective, id)?;
        let alpha = context.objective.strong_convexity();
        let here = context.comm.rank() < context.comm.size();
        let mut message = Vec::new();
        match exactly_curved(context.objective) {
            // At zero the Hessian of logistic regression is as large as it can be, and so is its bound everywhere.
            Some(curved) => {
                let found = curved.eigenpairs(&vec![0.0; dim], 0, dim, 0.0);
                let numbers: Vec<f64> = found.values.iter().chain(found.vectors.iter().flatten()).copied().collect();
                check_finite(context.place(0), "a smoothness matrix", &numbers)?;
                numbers::push_floats(&numbers, false, &mut message);
            }
            None if here => {
                let what = format!("{id} needs ridge or logistic regression: take diana");
                return Err(RunError::Unsuited(what));
            }
            None => {}
        }
        self.own = vec![0.0; message.len() / 4];
        read_vector(&message, false, &mut self.own)?;
        let (all, lengths) = (&mut self.all, &mut self.lengths);
        let mut combine = |messages: &[&[u8]]| {
            let mut worst = [0.0f64; 2];
            for (rank, message) in messages.iter().enumerate() {
                let mut numbers = vec![0.0; message.len() / 4];
                if !numbers.len().is_multiple_of(dim + 1) || !numbers::read_floats(message, false, &mut numbers) {
                    return Err(refused(id, rank, format!("{} bytes for a smoothness matrix", message.len())));
                }
                let (chances, rho) = chances(&Root::new(alpha, dim, &numbers).diagonal(dim), coordinates);
                let omega = chances.iter().fold(0.0f64, |most, p| most.max(1.0 / p - 1.0));
                worst = [worst[0].max(rho), worst[1].max(omega)];
                lengths.push(numbers.len() as f64);
                all.extend(numbers);
            }
            let mut reply = Vec::new();
            numbers::push_floats(&worst, false, &mut reply);
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        Ok(read_vector(&reply.message, false, &mut self.worst)?)
    }

    /// What bounds the noise: E||D_i - v||^2 <= rho ||R_i^-1 v||^2.
    fn rho(&self) -> f64 {
        self.worst[0]
    }

    /// The share of a difference that a shift may follow: 1/(1 + omega).
    fn kept(&self) -> f64 {
        1.0 / (1.0 + self.worst[1])
    }

    /// Sends codes of vectors, each drawn apart, in one message, and gives what they decode to; in `reply` comes what `at_hub` makes of the
    /// means of all machines'.
    fn exchange(
        &mut self,
        round: u64,
        vectors: &[&[f64]],
        context: &mut Context<'_>,
        at_hub: &mut dyn FnMut(Vec<Vec<f64>>) -> Vec<f64>,
        reply: &mut [f64],
    ) -> Result<Vec<Vec<f64>>, RunError> {
        let (rank, alpha) = (context.comm.rank(), context.objective.strong_convexity());
        let Self { id, dim, coordinates, double, ref randomness, .. } = *self;
        let drawing = |rank: usize, k: usize, chances: &[f64]| {
            drawn(randomness, round * vectors.len() as u64 + k as u64, rank, chances)
        };
        let root = Root::new(alpha, dim, &self.own);
        if self.own_chances.is_empty() {
            self.own_chances = chances(&root.diagonal(dim), coordinates).0;
        }
        let (mut message, mut sent) = (Vec::new(), Vec::new());
        for (k, vector) in vectors.iter().enumerate() {
            let (whitened, places) = (root.times(true, vector), drawing(rank, k, &self.own_chances));
            let mut scalars: Vec<f64> = places.iter().map(|&j| whitened[j] / self.own_chances[j]).collect();
            let begun = message.len();
            numbers::push_floats(&scalars, double, &mut message);
            read_vector(&message[begun..], double, &mut scalars)?;
            sent.push(decoded(root, dim, &places, &scalars));
        }
        let (all, lengths, all_chances) = (&self.all, &self.lengths, &mut self.all_chances);
        let width = if double { 8 } else { 4 };
        let mut combine = |messages: &[&[u8]]| {
            let (mut means, mut rest) = (vec![vec![0.0; dim]; vectors.len()], &all[..]);
            for (rank, message) in messages.iter().enumerate() {
                let (numbers, after) = rest.split_at(lengths.get(rank).map_or(0, |length| *length as usize));
                rest = after;
                let root = Root::new(alpha, dim, numbers);
                if all_chances.len() == rank {
                    all_chances.push(chances(&root.diagonal(dim), coordinates).0);
                }
                let mut unread = *message;
                for (k, mean) in means.iter_mut().enumerate() {
                    let places = drawing(rank, k, &all_chances[rank]);
                    let (part, after) = unread.split_at((width * places.len()).min(unread.len()));
                    unread = after;
                    let mut scalars = vec![0.0; places.len()];
                    if !numbers::read_floats(part, double, &mut scalars) {
                        return Err(refused(id, rank, format!("{} bytes are too few", message.len())));
                    }
                    add_scaled(1.0 / messages.len() as f64, &decoded(root, dim, &places, &scalars), mean);
                }
                if !unread.is_empty() {
                    return Err(refused(id, rank, format!("{} bytes are too many", message.len())));
                }
            }
            let mut reply = Vec::new();
            numbers::push_floats(&at_hub(means), double, &mut reply);
            Ok(reply)
        };
        let answer = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        read_vector(&answer.message, double, reply)?;
        Ok(sent)
    }
}

impl Stateful for Whitening {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "worst", &mut self.worst);
        visitor.vector(Scope::Local, "own", &mut self.own);
        visitor.vector(Scope::Local, "all", &mut self.all);
        visitor.vector(Scope::Local, "lengths", &mut self.lengths);
    }
}

/// The coordinates that machine `rank` draws in a round.
fn drawn(randomness: &CommonRandomness, round: u64, rank: usize, chances: &[f64]) -> Vec<usize> {
    let mut words = randomness.words(Purpose::Compressor, round, rank as u32);
    (0..chances.len()).filter(|&j| words.next_unit() < chances[j]).collect()
}

/// The difference that some scalars stand for.
fn decoded(root: Root<'_>, dim: usize, places: &[usize], scalars: &[f64]) -> Vec<f64> {
    let mut sparse = vec![0.0; dim];
    places.iter().zip(scalars).for_each(|(&j, scalar)| sparse[j] = *scalar);
    root.times(false, &sparse)
}

fn refused(id: &str, rank: usize, what: impl std::fmt::Display) -> CommError {
    CommError::refused(rank, format!("its message of {id}: {what}"))
}

/// DIANA+: DIANA with the code above. The estimate is h + mean D_i; h_i += a D_i.
pub struct DianaPlus {
    x: Vec<f64>,
    bounds: Bounds,
    whitening: Whitening,
    shift: Vec<f64>,
    mean_shift: Vec<f64>,
}

impl DianaPlus {
    /// From shifts of zero.
    pub fn new(start: Vec<f64>, bounds: Bounds, double: bool, randomness: &CommonRandomness) -> Self {
        let dim = start.len();
        let whitening = Whitening::new("diana-plus", dim, bounds.coordinates, double, randomness);
        Self { x: start, bounds, whitening, shift: vec![0.0; dim], mean_shift: vec![0.0; dim] }
    }
}

impl Stateful for DianaPlus {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "mean_shift", &mut self.mean_shift);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        self.whitening.visit(visitor);
    }
}

impl Method for DianaPlus {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        self.whitening.prepare(context)
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (dim, kept) = (self.x.len(), self.whitening.kept());
        let mut difference = vec![0.0; dim];
        context.objective.gradient(&self.x, &mut difference);
        check_finite(context.place(round), "a gradient", &difference)?;
        add_scaled(-1.0, &self.shift, &mut difference);
        let mut mean = vec![0.0; dim];
        let sent =
            self.whitening.exchange(round, &[&difference], context, &mut |mut means| means.remove(0), &mut mean)?;
        add_scaled(kept, &sent[0], &mut self.shift);
        let Bounds { smoothness, machines, scale, .. } = self.bounds;
        let step = scale / (smoothness + 6.0 * self.whitening.rho() / machines as f64);
        add_scaled(-step, &self.mean_shift, &mut self.x);
        add_scaled(-step, &mean, &mut self.x);
        add_scaled(kept, &mean, &mut self.mean_shift);
        Ok(Outcome { step: Some(step), ..Outcome::default() })
    }

    fn settings(&self) -> Settings {
        Settings { smoothness: Some(self.bounds.smoothness), ..Settings::default() }
    }
}

/// The shifts of ADIANA+: codes of grad f_i(x) - h_i and of grad f_i(w) - h_i go up, the estimate comes down, the mean shift stays at the
/// hub.
pub struct WhitenedShifts {
    whitening: Whitening,
    bounds: Bounds,
    own: Vec<f64>,
    mean: Vec<f64>,
}

impl WhitenedShifts {
    /// Shifts of zero.
    pub fn new(dim: usize, bounds: Bounds, double: bool, randomness: &CommonRandomness) -> Self {
        let whitening = Whitening::new("adiana-plus", dim, bounds.coordinates, double, randomness);
        Self { whitening, bounds, own: vec![0.0; dim], mean: vec![0.0; dim] }
    }
}

impl Stateful for WhitenedShifts {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.whitening.visit(visitor);
        visitor.vector(Scope::Local, "shift", &mut self.own);
        visitor.vector(Scope::Local, "mean_shift", &mut self.mean);
    }
}

impl TwoQuery for WhitenedShifts {
    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        self.whitening.prepare(context)
    }

    fn constants(&self) -> AdianaConstants {
        let Bounds { smoothness, strong_convexity, machines, scale, .. } = self.bounds;
        let noise = self.whitening.rho() / (machines as f64 * smoothness);
        AdianaConstants::theory(1.0 / self.whitening.kept() - 1.0, noise, smoothness, strong_convexity).times(scale)
    }

    fn estimate(
        &mut self,
        round: u64,
        gradient: &[f64],
        anchor: &[f64],
        context: &mut Context<'_>,
        out: &mut [f64],
    ) -> Result<(), RunError> {
        check_finite(context.place(round), "a gradient", gradient)?;
        let Self { whitening, own, mean, .. } = self;
        let less = |g: &[f64]| -> Vec<f64> { g.iter().zip(&*own).map(|(g, h)| g - h).collect() };
        let (first, second, kept) = (less(gradient), less(anchor), whitening.kept());
        let mut at_hub = |mut means: Vec<Vec<f64>>| {
            let moved = means.remove(1);
            let mut estimate = means.remove(0);
            add_scaled(1.0, mean, &mut estimate);
            add_scaled(kept, &moved, mean);
            estimate
        };
        let sent = whitening.exchange(round, &[&first, &second], context, &mut at_hub, out)?;
        add_scaled(kept, &sent[1], own);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    /// Two eigenpairs of four dimensions over alpha = 0.5.
    const PAIRS: [f64; 10] = [3.0, 1.0, 0.6, 0.8, 0.0, 0.0, 0.0, 0.0, -0.8, 0.6];

    #[test]
    fn the_root_squares_to_the_matrix_and_its_inverse_undoes_it() {
        let root = Root::new(0.5, 4, &PAIRS);
        let v = [1.0, -2.0, 0.5, 3.0];
        let twice = root.times(false, &root.times(false, &v));
        let mut image: Vec<f64> = v.iter().map(|v| 0.5 * v).collect();
        root.pairs(4).for_each(|(value, unit)| add_scaled(value * dot(unit, &v), unit, &mut image));
        let back = root.times(true, &root.times(false, &v));
        for j in 0..4 {
            assert!((twice[j] - image[j]).abs() < 1e-12 && (back[j] - v[j]).abs() < 1e-12);
        }
        assert!((root.diagonal(4)[1] - (0.5 + 3.0 * 0.64)).abs() < 1e-12);
    }

    #[test]
    fn chances_add_up_and_make_all_coordinates_equally_noisy() {
        let diagonal = [4.0, 1.0, 0.5, 0.1];
        let (chances_of_two, rho) = chances(&diagonal, 2.0);
        assert!((chances_of_two.iter().sum::<f64>() - 2.0).abs() < 1e-9);
        for (p, l) in chances_of_two.iter().zip(diagonal) {
            assert!(((1.0 / p - 1.0) * l - rho).abs() < 1e-9);
        }
        assert_eq!(chances(&diagonal, 4.0), (vec![1.0; 4], 0.0));
    }

    #[test]
    fn the_decoded_difference_is_unbiased() {
        let (root, difference) = (Root::new(0.5, 4, &PAIRS), [1.0, -2.0, 0.5, 3.0]);
        let (chances, _) = chances(&root.diagonal(4), 1.5);
        let randomness = CommonRandomness::new(&Seed::reproducible(5));
        let whitened = root.times(true, &difference);
        let (mut sum, rounds) = (vec![0.0; 4], 40_000);
        for round in 0..rounds {
            let places = drawn(&randomness, round, 0, &chances);
            let scalars: Vec<f64> = places.iter().map(|&j| whitened[j] / chances[j]).collect();
            add_scaled(1.0 / rounds as f64, &decoded(root, 4, &places, &scalars), &mut sum);
        }
        // Standard deviations of a round are below 12; five of those of the mean are 0.3.
        for (sum, exact) in sum.iter().zip(difference) {
            assert!((sum - exact).abs() < 0.3, "{sum} {exact}");
        }
    }
}
