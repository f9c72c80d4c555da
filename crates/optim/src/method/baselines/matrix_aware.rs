//! DIANA+, which draws coordinates where each machine's smoothness matrix makes them matter least.

use corewire_algebra::vector::{add_scaled, dot};
use corewire_comm::numbers;
use corewire_comm::{CommError, Reduction};
use corewire_sketch::{CommonRandomness, Purpose};

use super::second_order::{admit, read_vector};
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
    /// A factor on the step.
    pub scale: f64,
    /// Coordinates of a message, on average.
    pub coordinates: f64,
}

/// DIANA+: D_i = R_i C(R_i^-1 (g_i - h_i)) with R_i the root of machine i's smoothness matrix and C a drawing of coordinates by the chances
/// that suit its diagonal; the estimate is h + mean D_i; h_i += a D_i. The matrices travel once, to the hub.
pub struct DianaPlus {
    x: Vec<f64>,
    bounds: Bounds,
    double: bool,
    randomness: CommonRandomness,
    /// The largest rho and the largest 1/p_j - 1 of all machines.
    worst: Vec<f64>,
    shift: Vec<f64>,
    mean_shift: Vec<f64>,
    /// This machine's matrix; at the hub those of all, after how many numbers each has.
    own: Vec<f64>,
    all: Vec<f64>,
    lengths: Vec<f64>,
    /// Follow from the matrices.
    own_chances: Vec<f64>,
    all_chances: Vec<Vec<f64>>,
}

impl DianaPlus {
    /// From shifts of zero.
    pub fn new(start: Vec<f64>, bounds: Bounds, double: bool, randomness: &CommonRandomness) -> Self {
        let dim = start.len();
        Self {
            x: start,
            bounds,
            double,
            randomness: randomness.clone(),
            worst: vec![0.0; 2],
            shift: vec![0.0; dim],
            mean_shift: vec![0.0; dim],
            own: Vec::new(),
            all: Vec::new(),
            lengths: Vec::new(),
            own_chances: Vec::new(),
            all_chances: Vec::new(),
        }
    }

    fn step(&self, machines: usize) -> f64 {
        self.bounds.scale / (self.bounds.smoothness + 6.0 * self.worst[0] / machines as f64)
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

fn refused(rank: usize, what: impl std::fmt::Display) -> CommError {
    CommError::refused(rank, format!("its message of diana-plus: {what}"))
}

impl Stateful for DianaPlus {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "worst", &mut self.worst);
        visitor.vector(Scope::Common, "mean_shift", &mut self.mean_shift);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        visitor.vector(Scope::Local, "own", &mut self.own);
        visitor.vector(Scope::Local, "all", &mut self.all);
        visitor.vector(Scope::Local, "lengths", &mut self.lengths);
    }
}

impl Method for DianaPlus {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        admit(context.objective, "diana-plus")?;
        let (dim, alpha) = (self.x.len(), context.objective.strong_convexity());
        let here = context.comm.rank() < context.comm.size();
        let mut message = Vec::new();
        match context.objective.curved() {
            // At zero the Hessian of logistic regression is as large as it can be, and so is its bound everywhere.
            Some(curved) => {
                let found = curved.eigenpairs(&vec![0.0; dim], 0, dim, 0.0);
                let numbers: Vec<f64> = found.values.iter().chain(found.vectors.iter().flatten()).copied().collect();
                check_finite(context.place(0), "a smoothness matrix", &numbers)?;
                numbers::push_floats(&numbers, false, &mut message);
            }
            None if here => {
                let what = "diana-plus needs ridge or logistic regression: take diana".to_owned();
                return Err(RunError::Unsuited(what));
            }
            None => {}
        }
        self.own = vec![0.0; message.len() / 4];
        read_vector(&message, false, &mut self.own)?;
        let (all, lengths, count) = (&mut self.all, &mut self.lengths, self.bounds.coordinates);
        let mut combine = |messages: &[&[u8]]| {
            let mut worst = [0.0f64; 2];
            for (rank, message) in messages.iter().enumerate() {
                let mut numbers = vec![0.0; message.len() / 4];
                if !numbers.len().is_multiple_of(dim + 1) || !numbers::read_floats(message, false, &mut numbers) {
                    return Err(refused(rank, format!("{} bytes for a smoothness matrix", message.len())));
                }
                let (chances, rho) = chances(&Root::new(alpha, dim, &numbers).diagonal(dim), count);
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

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (dim, rank, machines) = (self.x.len(), context.comm.rank(), context.comm.size());
        let (alpha, count, double) = (context.objective.strong_convexity(), self.bounds.coordinates, self.double);
        let mut difference = vec![0.0; dim];
        context.objective.gradient(&self.x, &mut difference);
        check_finite(context.place(round), "a gradient", &difference)?;
        add_scaled(-1.0, &self.shift, &mut difference);
        let root = Root::new(alpha, dim, &self.own);
        if self.own_chances.is_empty() {
            self.own_chances = chances(&root.diagonal(dim), count).0;
        }
        let (whitened, places) =
            (root.times(true, &difference), drawn(&self.randomness, round, rank, &self.own_chances));
        let mut scalars: Vec<f64> = places.iter().map(|&j| whitened[j] / self.own_chances[j]).collect();
        let mut message = Vec::new();
        numbers::push_floats(&scalars, double, &mut message);
        read_vector(&message, double, &mut scalars)?;
        let kept = 1.0 / (1.0 + self.worst[1]);
        add_scaled(kept, &decoded(root, dim, &places, &scalars), &mut self.shift);

        let Self { all, lengths, all_chances, randomness, .. } = self;
        let mut combine = |messages: &[&[u8]]| {
            let (mut mean, mut rest) = (vec![0.0; dim], &all[..]);
            for (rank, message) in messages.iter().enumerate() {
                let (numbers, after) = rest.split_at(lengths.get(rank).map_or(0, |length| *length as usize));
                rest = after;
                let root = Root::new(alpha, dim, numbers);
                if all_chances.len() == rank {
                    all_chances.push(chances(&root.diagonal(dim), count).0);
                }
                let places = drawn(randomness, round, rank, &all_chances[rank]);
                let mut scalars = vec![0.0; places.len()];
                if !numbers::read_floats(message, double, &mut scalars) {
                    return Err(refused(rank, format!("{} bytes for {} coordinates", message.len(), places.len())));
                }
                add_scaled(1.0 / messages.len() as f64, &decoded(root, dim, &places, &scalars), &mut mean);
            }
            let mut reply = Vec::new();
            numbers::push_floats(&mean, double, &mut reply);
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        let mut mean = vec![0.0; dim];
        read_vector(&reply.message, double, &mut mean)?;
        let step = self.step(machines);
        add_scaled(-step, &self.mean_shift, &mut self.x);
        add_scaled(-step, &mean, &mut self.x);
        add_scaled(kept, &mean, &mut self.mean_shift);
        Ok(Outcome { step: Some(step), ..Outcome::default() })
    }

    fn settings(&self) -> Settings {
        Settings { smoothness: Some(self.bounds.smoothness), ..Settings::default() }
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
