//! Conjugate directions: the uncompressed yardstick, and CORE-CG on a sketched gradient.

use super::{Context, Method, Outcome};
use crate::error::RunError;
use crate::estimator::MeanEstimator;
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// Conjugate gradients. On a quadratic a vector travels per iteration, the mean of H p, and the gradient follows from it; it is asked for
/// anew every so many rounds, since rounding on the way makes the recursion drift. Elsewhere the gradient travels, and one float for the
/// curvature, with Polak and Ribiere's rule, restarted where it fails.
pub struct Conjugate {
    x: Vec<f64>,
    gradient: Vec<f64>,
    direction: Vec<f64>,
    /// On a quadratic: rounds since the gradient itself was asked for.
    since: f64,
    /// After how many rounds it is asked for anew.
    replace: f64,
    gradients: Box<dyn MeanEstimator>,
    products: Box<dyn MeanEstimator>,
    local: Vec<f64>,
}

impl Conjugate {
    /// From a start. The estimators carry gradients, and on a quadratic H p; there the gradient itself is asked for anew every `replace`
    /// rounds.
    pub fn new(
        start: Vec<f64>,
        gradients: Box<dyn MeanEstimator>,
        products: Box<dyn MeanEstimator>,
        replace: usize,
    ) -> Self {
        let dim = start.len();
        Self {
            x: start,
            gradient: Vec::new(),
            direction: vec![0.0; dim],
            since: f64::INFINITY,
            replace: replace as f64,
            gradients,
            products,
            local: vec![0.0; dim],
        }
    }

    /// The next direction, given the next gradient.
    fn turn(&mut self, gradient: Vec<f64>) {
        let last = vector::norm_squared(&self.gradient);
        let beta = match last > 0.0 {
            true => ((vector::norm_squared(&gradient) - vector::dot(&gradient, &self.gradient)) / last).max(0.0),
            false => 0.0,
        };
        self.direction.iter_mut().zip(&gradient).for_each(|(p, g)| *p = beta * *p - g);
        if vector::dot(&gradient, &self.direction) >= 0.0 {
            self.direction.iter_mut().zip(&gradient).for_each(|(p, g)| *p = -g);
        }
        self.gradient = gradient;
    }

    /// Puts the gradient itself in the place of what the recursion made of it, in the direction too: that stays conjugate to those before.
    fn correct(&mut self, gradient: Vec<f64>) {
        if self.gradient.is_empty() {
            return self.turn(gradient);
        }
        vector::add_scaled(1.0, &self.gradient, &mut self.direction);
        vector::add_scaled(-1.0, &gradient, &mut self.direction);
        self.gradient = gradient;
    }

    /// A round on a quadratic: H p comes back, or the gradient where it is wanted.
    fn quadratic_round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let mut mean = vec![0.0; self.x.len()];
        if self.since >= self.replace {
            context.objective.gradient(&self.x, &mut self.local);
            context.estimate(&mut self.gradients, round, &self.local, &mut [], &mut mean)?;
            self.since = 0.0;
            self.correct(mean);
            let norm = vector::norm_squared(&self.gradient).sqrt();
            return Ok(Outcome { gradient_norm: Some(norm), step: Some(0.0), rejected: false, gap: None });
        }
        context.objective.hessian_vector(&self.x, &self.direction, &mut self.local);
        context.estimate(&mut self.products, round, &self.local, &mut [], &mut mean)?;
        let curvature = vector::dot(&self.direction, &mean);
        let slope = vector::dot(&self.gradient, &self.direction);
        let step = if curvature > 0.0 { -slope / curvature } else { 0.0 };
        vector::add_scaled(step, &self.direction, &mut self.x);
        let mut gradient = self.gradient.clone();
        vector::add_scaled(step, &mean, &mut gradient);
        self.turn(gradient);
        self.since += 1.0;
        let norm = vector::norm_squared(&self.gradient).sqrt();
        Ok(Outcome { gradient_norm: Some(norm), step: Some(step), rejected: false, gap: None })
    }
}

impl Stateful for Conjugate {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "gradient", &mut self.gradient);
        visitor.vector(Scope::Common, "direction", &mut self.direction);
        visitor.number(Scope::Common, "since", &mut self.since);
        self.gradients.visit(visitor);
        self.products.visit(visitor);
    }
}

impl Method for Conjugate {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        if context.objective.is_quadratic() && self.replace > 0.0 {
            return self.quadratic_round(round, context);
        }
        context.objective.gradient(&self.x, &mut self.local);
        let mut gradient = vec![0.0; self.x.len()];
        let energy = context.estimate(&mut self.gradients, round, &self.local, &mut [], &mut gradient)?.energy;
        self.turn(gradient);
        let slope = vector::dot(&self.gradient, &self.direction);
        context.objective.hessian_vector(&self.x, &self.direction, &mut self.local);
        let mut curvature = [vector::dot(&self.direction, &self.local)];
        context.means(round, &mut curvature, false)?;
        let step = if curvature[0] > 0.0 { -slope / curvature[0] } else { 0.0 };
        vector::add_scaled(step, &self.direction, &mut self.x);
        Ok(Outcome { gradient_norm: Some(energy.sqrt()), step: Some(step), rejected: false, gap: None })
    }
}

/// CORE-CG: flexible conjugate gradients on a sketched gradient, with the true Hessian in a few inner products.
///
/// (1) Everybody gets g~. (2) In the span of -g~ and the last directions q_j the quadratic model with the true gradient and Hessian is
/// minimised; its coefficients are inner products that each machine computes on its share and that are summed in a second, small message.
/// On a quadratic the q_j stay conjugate and orthogonal to the gradient, so that r + 2 numbers are enough; elsewhere all are sent.
pub struct SketchedConjugate<E> {
    x: Vec<f64>,
    /// The last directions, newest first.
    directions: Vec<Vec<f64>>,
    /// q_j' H q_j when q_j was used.
    curvatures: Vec<f64>,
    /// <g, q> before the last step, and the length of that step along q: for the descent check.
    slope: f64,
    length: f64,
    estimator: E,
    memory: usize,
    /// Bytes of each number in the second message.
    number_bytes: f64,
    /// This machine's images of the directions; recomputed when they are missing.
    images: Vec<Vec<f64>>,
    local: Vec<f64>,
    mean: Vec<f64>,
}

impl<E: MeanEstimator> SketchedConjugate<E> {
    /// From a start, remembering `memory` directions.
    pub fn new(start: Vec<f64>, estimator: E, memory: usize, number_bytes: usize) -> Self {
        let dim = start.len();
        Self {
            x: start,
            directions: Vec::new(),
            curvatures: Vec::new(),
            slope: 0.0,
            length: 0.0,
            estimator,
            memory,
            number_bytes: number_bytes as f64,
            images: Vec::new(),
            local: vec![0.0; dim],
            mean: vec![0.0; dim],
        }
    }

    /// The coefficients of -g~ and of each q_j in the next step, from the summed inner products. `None`: nothing sensible comes out.
    fn combine(&self, quadratic: bool, numbers: &[f64]) -> Option<(Vec<f64>, f64, f64)> {
        let count = self.directions.len();
        if quadratic {
            // numbers: <g, p>, <p, Hp>, then <q_j, Hp>. The q_j are conjugate, and g is orthogonal to them.
            let (slope, own, cross) = (numbers[0], numbers[1], &numbers[2..]);
            let beta: Vec<f64> = cross.iter().zip(&self.curvatures).map(|(cross, own)| -cross / own).collect();
            let curvature = own + cross.iter().zip(&beta).map(|(cross, beta)| cross * beta).sum::<f64>();
            // Rounding left nothing of p beside the q_j: conjugacy is lost.
            let sound = curvature > 1e-3 * own && slope < 0.0;
            if !sound {
                return None;
            }
            let step = -slope / curvature;
            let coefficients = std::iter::once(step).chain(beta.iter().map(|beta| beta * step)).collect();
            return Some((coefficients, slope, curvature));
        }
        // numbers: <g, v_a> for v = p, q_1 .., then the lower triangle of v_a' H v_b.
        let size = count + 1;
        let (slopes, gram) = numbers.split_at(size);
        for used in (1..=size).rev() {
            if let Some(solution) = solve(gram, &slopes[..used]) {
                let mut coefficients: Vec<f64> = solution.iter().map(|c| -c).collect();
                coefficients.resize(size, 0.0);
                let slope: f64 = coefficients.iter().zip(slopes).map(|(c, s)| c * s).sum();
                if slope < 0.0 && coefficients[0] > 0.0 {
                    return Some((coefficients, slope, -slope));
                }
            }
        }
        None
    }
}

/// Solves the leading part of a system whose matrix is given by its lower triangle, by Cholesky; `None` unless safely positive.
fn solve(triangle: &[f64], right: &[f64]) -> Option<Vec<f64>> {
    let size = right.len();
    let at = |i: usize, j: usize| i * (i + 1) / 2 + j;
    let mut factor = triangle[..at(size, 0)].to_vec();
    for i in 0..size {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| factor[at(i, k)] * factor[at(j, k)]).sum();
            let rest = factor[at(i, j)] - sum;
            if i == j {
                let safe = rest > 1e-3 * triangle[at(i, i)];
                if !safe {
                    return None;
                }
                factor[at(i, i)] = rest.sqrt();
            } else {
                factor[at(i, j)] = rest / factor[at(j, j)];
            }
        }
    }
    let mut solution = right.to_vec();
    for i in 0..size {
        let sum: f64 = (0..i).map(|k| factor[at(i, k)] * solution[k]).sum();
        solution[i] = (solution[i] - sum) / factor[at(i, i)];
    }
    for i in (0..size).rev() {
        let sum: f64 = (i + 1..size).map(|k| factor[at(k, i)] * solution[k]).sum();
        solution[i] = (solution[i] - sum) / factor[at(i, i)];
    }
    Some(solution)
}

impl<E: MeanEstimator> Stateful for SketchedConjugate<E> {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vectors(Scope::Common, "directions", &mut self.directions);
        visitor.vector(Scope::Common, "curvatures", &mut self.curvatures);
        visitor.number(Scope::Common, "slope", &mut self.slope);
        visitor.number(Scope::Common, "length", &mut self.length);
        visitor.number(Scope::Common, "number_bytes", &mut self.number_bytes);
        self.estimator.visit(visitor);
    }
}

impl<E: MeanEstimator> Method for SketchedConjugate<E> {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        context.objective.gradient(&self.x, &mut self.local);
        let estimate = context.estimate(&mut self.estimator, round, &self.local, &mut [], &mut self.mean)?;
        let quadratic = context.objective.is_quadratic();

        let start: Vec<f64> = self.mean.iter().map(|g| -g).collect();
        let image = context.objective.image(&start);
        while self.images.len() < self.directions.len() {
            let direction = &self.directions[self.images.len()];
            self.images.push(context.objective.image(direction));
        }
        let mut directions: Vec<&[f64]> = vec![&start];
        directions.extend(self.directions.iter().map(Vec::as_slice));
        let mut images: Vec<&[f64]> = vec![&image];
        images.extend(self.images.iter().map(Vec::as_slice));

        let mut numbers = Vec::new();
        if quadratic {
            numbers.push(vector::dot(&self.local, &start));
            // v_0' H v_0 and v_j' H v_0 alone, each from a pair.
            numbers.push(context.objective.gram(&self.x, &directions[..1], &images[..1])[0]);
            for j in 1..directions.len() {
                let pair = context.objective.gram(&self.x, &[directions[0], directions[j]], &[images[0], images[j]]);
                numbers.push(pair[1]);
            }
        } else {
            numbers.extend(directions.iter().map(|direction| vector::dot(&self.local, direction)));
            numbers.extend(context.objective.gram(&self.x, &directions, &images));
        }
        self.number_bytes = context.short_means(round, &mut numbers, self.number_bytes as usize)? as f64;

        // The descent check: f is convex, so a slope that turned and grew means that the last step went too far.
        if !quadratic && !self.directions.is_empty() && numbers[1] > -self.slope && self.slope < 0.0 {
            let keep = self.slope / (self.slope - numbers[1]);
            let back = (1.0 - keep) * self.length;
            vector::add_scaled(-back, &self.directions[0], &mut self.x);
            self.length -= back;
            return Ok(Outcome {
                gradient_norm: Some(estimate.energy.max(0.0).sqrt()),
                step: Some(0.0),
                rejected: true,
                gap: None,
            });
        }

        let Some((coefficients, slope, curvature)) = self.combine(quadratic, &numbers) else {
            // Start anew from the next gradient.
            self.directions.clear();
            self.curvatures.clear();
            self.images.clear();
            return Ok(Outcome {
                gradient_norm: Some(estimate.energy.max(0.0).sqrt()),
                step: Some(0.0),
                rejected: true,
                gap: None,
            });
        };
        // The new direction, scaled so that -g~ has the coefficient one.
        let mut direction = start;
        let mut image = image;
        for (j, c) in coefficients[1..].iter().enumerate() {
            vector::add_scaled(c / coefficients[0], &self.directions[j], &mut direction);
            vector::add_scaled(c / coefficients[0], &self.images[j], &mut image);
        }
        let length = coefficients[0];
        vector::add_scaled(length, &direction, &mut self.x);
        self.slope = if quadratic { slope } else { slope / length };
        self.length = length;
        self.directions.insert(0, direction);
        self.images.insert(0, image);
        self.curvatures.insert(0, curvature);
        self.directions.truncate(self.memory);
        self.images.truncate(self.memory);
        self.curvatures.truncate(self.memory);
        Ok(Outcome {
            gradient_norm: Some(estimate.energy.max(0.0).sqrt()),
            step: Some(length),
            rejected: false,
            gap: None,
        })
    }
}
