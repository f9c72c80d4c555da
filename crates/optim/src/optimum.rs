//! f* by a solver that is trusted: Newton's method, each system solved by conjugate gradients, down to the last digits. Never billed.

use crate::objective::Objective;
use corewire_algebra::vector::{add_scaled, dot, norm_squared};

/// The minimiser of a convex, smooth objective with a positive definite Hessian, and its value.
pub fn minimise(objective: &mut dyn Objective, start: &[f64]) -> (Vec<f64>, f64) {
    minimise_while(objective, start, 1e-14, &mut |_| true)
}

/// The same, until `enough` of the gradient's norm is left, or what was best when `go_on` said no. It is asked before every product, with
/// what is left.
pub fn minimise_while(
    objective: &mut dyn Objective,
    start: &[f64],
    enough: f64,
    go_on: &mut dyn FnMut(f64) -> bool,
) -> (Vec<f64>, f64) {
    let dim = start.len();
    let mut x = start.to_vec();
    let mut value = objective.value(&x);
    let mut gradient = vec![0.0; dim];
    objective.gradient(&x, &mut gradient);
    let first = norm_squared(&gradient).sqrt();
    for _ in 0..100 {
        let norm = norm_squared(&gradient).sqrt();
        if norm <= enough * first || !go_on(norm / first) {
            break;
        }
        // Looser far away, where the model is wrong anyway; on a quadratic at once to the end.
        let tolerance = if objective.is_quadratic() {
            f64::max(1e-13, 0.5 * enough)
        } else {
            (norm / first).sqrt().clamp(1e-10, 1e-2)
        };
        let direction = newton_direction(objective, &x, &gradient, tolerance, &mut || go_on(norm / first));
        let slope = dot(&gradient, &direction);
        let mut step = 1.0;
        let mut candidate;
        let improved = loop {
            candidate = x.clone();
            add_scaled(step, &direction, &mut candidate);
            let next = objective.value(&candidate);
            // At the end the value no longer tells; then the gradient must have shrunk.
            if next <= value + 1e-4 * step * slope {
                value = next;
                break true;
            }
            let mut next_gradient = vec![0.0; dim];
            objective.gradient(&candidate, &mut next_gradient);
            if next <= value + 1e-14 * value.abs() && norm_squared(&next_gradient) < 0.25 * norm_squared(&gradient) {
                value = value.min(next);
                break true;
            }
            step *= 0.5;
            if step < 1e-6 {
                break false;
            }
        };
        if !improved {
            break;
        }
        x = candidate;
        objective.gradient(&x, &mut gradient);
    }
    (x, value)
}

/// -H^-1 g with the Hessian at x, until the residual has shrunk to `tolerance` or `go_on` says no.
pub(crate) fn newton_direction(
    objective: &mut dyn Objective,
    x: &[f64],
    gradient: &[f64],
    tolerance: f64,
    go_on: &mut dyn FnMut() -> bool,
) -> Vec<f64> {
    let minus: Vec<f64> = gradient.iter().map(|g| -g).collect();
    conjugate_gradients(minus, tolerance, go_on, |v, out| objective.hessian_vector(x, v, out))
}

/// The solution of A v = `right` for a positive definite A that `multiply` applies, or what was found when `go_on`, which is asked before
/// every product, said no.
pub(crate) fn conjugate_gradients(
    right: Vec<f64>,
    tolerance: f64,
    go_on: &mut dyn FnMut() -> bool,
    mut multiply: impl FnMut(&[f64], &mut [f64]),
) -> Vec<f64> {
    let dim = right.len();
    let mut solution = vec![0.0; dim];
    let mut residual = right;
    let mut direction = residual.clone();
    let mut product = vec![0.0; dim];
    let mut energy = norm_squared(&residual);
    let end = energy * tolerance * tolerance;
    for _ in 0..(20 * dim).max(200) {
        if energy <= end || energy == 0.0 || !go_on() {
            break;
        }
        multiply(&direction, &mut product);
        let curvature = dot(&direction, &product);
        if curvature <= 0.0 {
            break;
        }
        let step = energy / curvature;
        add_scaled(step, &direction, &mut solution);
        add_scaled(-step, &product, &mut residual);
        let next = norm_squared(&residual);
        let beta = next / energy;
        direction.iter_mut().zip(&residual).for_each(|(p, r)| *p = r + beta * *p);
        energy = next;
    }
    solution
}

/// The minimiser with the objective's l1 term and bounds, by accelerated proximal gradients with restarts: slower, but right. `go_on` is asked before
/// every step, with what is left of the first step's length.
pub fn minimise_proximal(
    objective: &mut dyn Objective,
    start: &[f64],
    smoothness: f64,
    go_on: &mut dyn FnMut(f64) -> bool,
) -> (Vec<f64>, f64) {
    let proximal = objective.proximal();
    let step = 1.0 / smoothness;
    let (mut x, mut y) = (start.to_vec(), start.to_vec());
    let mut gradient = vec![0.0; x.len()];
    let (mut momentum, mut first, mut left) = (1.0f64, None, 1.0);
    // F(x) - F* is at most about ||G||^2/(2 mu), where G is the step over its length: then the last digits are there.
    let enough = 2.0 * objective.strong_convexity() * 1e-15 * objective.value(start).abs() * step * step;
    for _ in 0..200_000 {
        if !go_on(left) {
            break;
        }
        objective.gradient(&y, &mut gradient);
        let next: Vec<f64> = y.iter().zip(&gradient).map(|(y, g)| proximal.step(y - step * g, step)).collect();
        // Restart where the momentum points uphill (O'Donoghue and Candes 2015).
        let uphill: f64 = (0..x.len()).map(|i| (y[i] - next[i]) * (next[i] - x[i])).sum();
        let moved: f64 = (0..x.len()).map(|i| (next[i] - y[i]).powi(2)).sum();
        let following = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
        let weight = if uphill > 0.0 { 0.0 } else { (momentum - 1.0) / following };
        momentum = if uphill > 0.0 { 1.0 } else { following };
        for i in 0..x.len() {
            y[i] = next[i] + weight * (next[i] - x[i]);
        }
        x = next;
        if moved <= enough {
            break;
        }
        left = (moved / *first.get_or_insert(moved)).sqrt();
    }
    let value = objective.value(&x);
    (x, value)
}

/// Whether f* may be this: not above f(x0), and not lower than strong convexity allows, ||g||^2/(2 mu) below it.
pub fn is_plausible(objective: &mut dyn Objective, start: &[f64], value: f64) -> bool {
    let initial = objective.value(start);
    let mut gradient = vec![0.0; start.len()];
    objective.gradient(start, &mut gradient);
    let most = norm_squared(&gradient) / (2.0 * objective.strong_convexity());
    // With an l1 term f lies above its smooth part, and bounds leave fewer points, so that this still holds.
    value.is_finite() && value <= initial && value >= initial - most * (1.0 + 1e-9) - 1e-12 * initial.abs()
}

/// Rounds of gradient descent with step 1/L, or of Nesterov's method, to a relative suboptimality; `None` after `most`, or where there is
/// a proximal step.
pub fn rounds_of_descent(
    objective: &mut dyn Objective,
    start: &[f64],
    optimum: f64,
    target: f64,
    momentum: bool,
    most: u64,
) -> Option<u64> {
    let (mut x, mut y) = (start.to_vec(), start.to_vec());
    let smoothness = crate::method::baselines::local_smoothness(objective, &x);
    let root = (objective.strong_convexity() / smoothness).sqrt();
    let weight = if momentum { (1.0 - root) / (1.0 + root) } else { 0.0 };
    let gap = objective.value(&x) - optimum;
    let mut gradient = vec![0.0; x.len()];
    (1..=most).find(|_| {
        objective.gradient(&y, &mut gradient);
        for i in 0..x.len() {
            let next = y[i] - gradient[i] / smoothness;
            y[i] = next + weight * (next - x[i]);
            x[i] = next;
        }
        objective.value(&x) - optimum <= target * gap
    })
}
