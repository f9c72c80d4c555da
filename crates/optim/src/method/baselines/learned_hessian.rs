//! FedNL: Newton's method at the hub with a Hessian that it learns from compressed differences.

use corewire_algebra::vector::{add_scaled, dot, norm_squared};
use corewire_comm::numbers::{self, Number};
use corewire_comm::{CommError, Reduction};
use corewire_compress::{Address, Codec, TopK};

use super::second_order::{admit, read_vector};
use crate::error::RunError;
use crate::estimator::check_finite;
use crate::method::{Context, Method, Outcome};
use crate::objective::Objective;
use crate::optimum::conjugate_gradients;
use crate::state::{Scope, Stateful, Visitor};

/// A symmetric matrix by the rows of its lower triangle.
#[derive(Clone, Debug)]
struct Symmetric {
    dim: usize,
    entries: Vec<f64>,
}

impl Symmetric {
    fn scaled_identity(dim: usize, value: f64) -> Self {
        let mut matrix = Self { dim, entries: vec![0.0; triangle(dim)] };
        (0..dim).for_each(|i| matrix.entries[triangle(i) + i] = value);
        matrix
    }

    fn hessian(objective: &mut dyn Objective, x: &[f64]) -> Self {
        let dim = x.len();
        let (mut unit, mut column, mut entries) = (vec![0.0; dim], vec![0.0; dim], Vec::with_capacity(triangle(dim)));
        for i in 0..dim {
            unit[i] = 1.0;
            objective.hessian_vector(x, &unit, &mut column);
            unit[i] = 0.0;
            entries.extend_from_slice(&column[..=i]);
        }
        Self { dim, entries }
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        (0..self.dim).map(|i| &self.entries[triangle(i)..triangle(i + 1)])
    }

    fn multiply(&self, v: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        for (i, row) in self.rows().enumerate() {
            let (left, diagonal) = (&row[..i], row[i]);
            out[i] += dot(left, &v[..i]) + diagonal * v[i];
            add_scaled(v[i], left, &mut out[..i]);
        }
    }

    /// Adds weight v v'.
    fn add_square(&mut self, weight: f64, v: &[f64]) {
        for i in 0..self.dim {
            add_scaled(weight * v[i], &v[..=i], &mut self.entries[triangle(i)..triangle(i + 1)]);
        }
    }

    /// The entries, those off the diagonal times `factor`.
    fn weighed(&self, factor: f64) -> Vec<f64> {
        self.rows()
            .enumerate()
            .flat_map(|(i, row)| row.iter().enumerate().map(move |(j, a)| if i == j { *a } else { factor * a }))
            .collect()
    }

    /// The Frobenius norm.
    fn norm(&self) -> f64 {
        norm_squared(&self.weighed(std::f64::consts::SQRT_2)).sqrt()
    }

    /// A unit vector near the eigenvector of the largest magnitude, by power iterations from the longest row, and its <u, M u>.
    fn leading(&self) -> Option<(f64, Vec<f64>)> {
        let mut lengths = vec![0.0; self.dim];
        for (i, row) in self.rows().enumerate() {
            row.iter().enumerate().for_each(|(j, a)| {
                lengths[i] += a * a;
                lengths[j] += a * a;
            });
        }
        let longest = (0..self.dim).reduce(|a, b| if lengths[b] > lengths[a] { b } else { a })?;
        let mut unit = vec![0.0; self.dim];
        unit[longest] = 1.0;
        let mut image = vec![0.0; self.dim];
        for _ in 0..POWER_STEPS {
            self.multiply(&unit, &mut image);
            let norm = norm_squared(&image).sqrt();
            let sound = norm > 0.0 && norm.is_finite();
            if !sound {
                return None;
            }
            unit.iter_mut().zip(&image).for_each(|(u, image)| *u = image / norm);
        }
        self.multiply(&unit, &mut image);
        Some((dot(&unit, &image), unit))
    }
}

/// Power iterations for an eigenvector. Any unit vector is a contraction; a better one contracts more.
const POWER_STEPS: usize = 30;

fn triangle(rows: usize) -> usize {
    rows * (rows + 1) / 2
}

/// What of a difference of Hessians travels.
#[derive(Clone, Copy, Debug)]
pub enum Contraction {
    /// The eigenpairs of the largest magnitude, each as a sign and d floats.
    Rank(usize),
    /// The largest entries of the lower triangle.
    Entries(usize),
}

impl Contraction {
    /// The largest entries, where those off the diagonal count twice.
    fn codec(count: usize, dim: usize) -> TopK {
        TopK::new(triangle(dim), count.min(triangle(dim)))
    }

    /// The code of what travels of a matrix; nothing for zeros.
    fn encode(self, matrix: &Symmetric, message: &mut Vec<u8>) {
        match self {
            Self::Rank(rank) => {
                let mut left = matrix.clone();
                for (value, mut unit) in (0..rank).map_while(|_| {
                    let pair = left.leading()?;
                    left.add_square(-pair.0, &pair.1);
                    Some(pair)
                }) {
                    unit.iter_mut().for_each(|u| *u *= value.abs().sqrt());
                    message.push(u8::from(value < 0.0));
                    numbers::push_floats(&unit, false, message);
                }
            }
            Self::Entries(count) => {
                let mut code = Vec::new();
                let weighed = matrix.weighed(std::f64::consts::SQRT_2);
                Self::codec(count, matrix.dim).encode(Address::default(), &weighed, &mut code);
                message.extend_from_slice(&code);
            }
        }
    }

    /// Adds `weight` times what was encoded.
    fn add(self, code: &[u8], weight: f64, matrix: &mut Symmetric) -> Result<(), String> {
        let dim = matrix.dim;
        match self {
            Self::Rank(rank) => {
                let length = 1 + 4 * dim;
                if !code.len().is_multiple_of(length) || code.len() > rank * length {
                    return Err(format!("{} bytes for at most {rank} eigenvectors", code.len()));
                }
                let mut vector = vec![0.0; dim];
                for pair in code.chunks_exact(length) {
                    if !numbers::read_floats(&pair[1..], false, &mut vector) {
                        return Err("an eigenvector is no vector".to_owned());
                    }
                    matrix.add_square(if pair[0] == 0 { weight } else { -weight }, &vector);
                }
            }
            Self::Entries(count) => {
                let mut entries = vec![0.0; triangle(dim)];
                let codec = Self::codec(count, dim);
                codec.decode(Address::default(), code, &mut entries).map_err(|error| error.to_string())?;
                let decoded = Symmetric { dim, entries }.weighed(std::f64::consts::FRAC_1_SQRT_2);
                add_scaled(weight, &decoded, &mut matrix.entries);
            }
        }
        Ok(())
    }
}

/// FedNL with Option 2: machine i sends g_i, C(H_i(x) - L_i) and l_i = ||H_i(x) - L_i||; L_i moves by what was sent; the hub steps by
/// (mean L_i + mean l_i)^-1 g, with the L_i from before, and sends the step.
pub struct FedNl {
    x: Vec<f64>,
    contraction: Contraction,
    /// Whether L_i starts as the Hessian at the start, which then travels once.
    whole: bool,
    /// L_i.
    learned: Vec<f64>,
    /// The hub's mean of them; nothing elsewhere.
    mean: Vec<f64>,
    /// The Hessian of a quadratic, so that it is computed once.
    constant: Option<Symmetric>,
}

impl FedNl {
    /// From a start; with `whole` the Hessians travel once before the first round.
    pub fn new(start: Vec<f64>, contraction: Contraction, whole: bool) -> Self {
        Self { x: start, contraction, whole, learned: Vec::new(), mean: Vec::new(), constant: None }
    }

    fn hessian(&mut self, objective: &mut dyn Objective) -> Symmetric {
        if !objective.is_quadratic() {
            return Symmetric::hessian(objective, &self.x);
        }
        self.constant.get_or_insert_with(|| Symmetric::hessian(objective, &self.x)).clone()
    }
}

fn refused(rank: usize, what: impl std::fmt::Display) -> CommError {
    CommError::refused(rank, format!("its message of fednl: {what}"))
}

impl Stateful for FedNl {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Local, "learned", &mut self.learned);
        visitor.vector(Scope::Local, "mean", &mut self.mean);
    }
}

impl Method for FedNl {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    /// What L_i starts from: the Hessian, or the curvature that all machines know.
    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        admit(context.objective, "fednl")?;
        let dim = self.x.len();
        self.learned = Symmetric::scaled_identity(dim, context.objective.strong_convexity()).entries;
        if !self.whole {
            if context.comm.rank() == 0 {
                self.mean = self.learned.clone();
            }
            return Ok(());
        }
        let hessian = self.hessian(context.objective).entries;
        check_finite(context.place(0), "a Hessian", &hessian)?;
        let mut message = Vec::new();
        numbers::push_floats(&hessian, false, &mut message);
        read_vector(&message, false, &mut self.learned)?;
        let (mean, count) = (&mut self.mean, self.learned.len());
        let mut combine = |messages: &[&[u8]]| {
            let mut own = vec![0.0; count];
            *mean = vec![0.0; count];
            for (rank, message) in messages.iter().enumerate() {
                if !numbers::read_floats(message, false, &mut own) {
                    return Err(refused(rank, format!("{} bytes for a Hessian", message.len())));
                }
                add_scaled(1.0 / messages.len() as f64, &own, mean);
            }
            Ok(Vec::new())
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        if !reply.message.is_empty() {
            return Err(refused(0, "the hub has nothing to say to a Hessian").into());
        }
        Ok(())
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (dim, contraction) = (self.x.len(), self.contraction);
        let mut gradient = vec![0.0; dim];
        context.objective.gradient(&self.x, &mut gradient);
        check_finite(context.place(round), "a gradient", &gradient)?;
        let mut difference = self.hessian(context.objective);
        add_scaled(-1.0, &self.learned, &mut difference.entries);
        let error = difference.norm();
        check_finite(context.place(round), "a Hessian", &[error])?;
        let mut message = Vec::new();
        numbers::push_floats(&gradient, false, &mut message);
        // Rounded up: the hub's matrix must not be less curved than f.
        numbers::narrow(error).next_up().push(&mut message);
        let head = message.len();
        contraction.encode(&difference, &mut message);
        let mut learned = Symmetric { dim, entries: std::mem::take(&mut self.learned) };
        contraction.add(&message[head..], 1.0, &mut learned).expect("a machine decodes its own message");
        self.learned = learned.entries;
        let mean = &mut self.mean;
        let mut combine = |messages: &[&[u8]]| {
            let before = Symmetric { dim, entries: std::mem::take(mean) };
            let (mut after, mut error) = (before.clone(), 0.0);
            let (mut gradient, mut own) = (vec![0.0; dim], vec![0.0; dim]);
            let share = 1.0 / messages.len() as f64;
            for (rank, message) in messages.iter().enumerate() {
                let (floats, code) = message.split_at_checked(head).ok_or_else(|| refused(rank, "it is too short"))?;
                let (floats, norm) = floats.split_at(4 * dim);
                if !numbers::read_floats(floats, false, &mut own) {
                    return Err(refused(rank, "its gradient is no vector"));
                }
                add_scaled(share, &own, &mut gradient);
                error += share * f64::from(f32::read(norm));
                contraction.add(code, share, &mut after).map_err(|what| refused(rank, what))?;
            }
            *mean = after.entries;
            let step = conjugate_gradients(gradient, 1e-10, &mut || true, |v, out| {
                before.multiply(v, out);
                add_scaled(error, v, out);
            });
            let mut reply = Vec::new();
            numbers::push_floats(&step, false, &mut reply);
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        let mut step = vec![0.0; dim];
        read_vector(&reply.message, false, &mut step)?;
        add_scaled(-1.0, &step, &mut self.x);
        Ok(Outcome::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Symmetric {
        Symmetric { dim: 3, entries: vec![2.0, -1.0, 0.5, 0.25, 3.0, -4.0] }
    }

    #[test]
    fn what_travels_is_a_contraction() {
        let matrix = some();
        for contraction in
            [Contraction::Rank(1), Contraction::Rank(2), Contraction::Entries(2), Contraction::Entries(9)]
        {
            let (mut code, mut left) = (Vec::new(), matrix.clone());
            contraction.encode(&matrix, &mut code);
            contraction.add(&code, -1.0, &mut left).unwrap();
            let share = match contraction {
                Contraction::Rank(rank) => rank as f64 / 3.0,
                Contraction::Entries(count) => count.min(6) as f64 / 9.0,
            };
            // The best of d eigenpairs, or of d^2 entries, has at least its share of the energy.
            assert!(left.norm() <= (1.0 - share).sqrt() * matrix.norm() + 1e-6, "{contraction:?}: {}", left.norm());
        }
    }

    #[test]
    fn the_triangle_multiplies_as_the_matrix_does() {
        let mut out = [0.0; 3];
        some().multiply(&[1.0, 2.0, -1.0], &mut out);
        assert_eq!(out, [2.0 - 2.0 - 0.25, -1.0 + 1.0 - 3.0, 0.25 + 6.0 + 4.0]);
        assert!((some().norm() - (4.0 + 0.25 + 16.0 + 2.0 * (1.0 + 0.0625 + 9.0f64)).sqrt()).abs() < 1e-12);
    }
}
