//! The spectrum of a problem's dominating matrix: exactly where it is small, by stochastic Lanczos quadrature otherwise.

use corewire_sketch::{CommonRandomness, Purpose};
use faer::{Mat, Side};

use crate::objective::Objective;
use crate::tuning::{Spectrum, small_eigenvalues_and_weights};
use crate::vector::{add_scaled, dot, norm_squared};

/// Up to this many coordinates all eigenvalues are computed.
pub const EXACT_UP_TO: usize = 1200;
/// Random starts of the quadrature, and steps of each.
const STARTS: usize = 10;
const STEPS: usize = 64;

/// What is known of a spectrum.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Levels with multiplicities.
    pub spectrum: Spectrum,
    /// All eigenvalues, largest first, where they were computed.
    pub eigenvalues: Option<Vec<f64>>,
}

/// Measures the dominating matrix of an objective at x.
pub fn measure(objective: &mut dyn Objective, x: &[f64], randomness: &CommonRandomness) -> Measured {
    if objective.dim() <= EXACT_UP_TO {
        let eigenvalues = exact(objective, x);
        return Measured { spectrum: Spectrum::from_eigenvalues(&eigenvalues), eigenvalues: Some(eigenvalues) };
    }
    Measured { spectrum: quadrature(objective, x, randomness), eigenvalues: None }
}

/// All eigenvalues, largest first.
pub fn exact(objective: &mut dyn Objective, x: &[f64]) -> Vec<f64> {
    let dim = objective.dim();
    let mut matrix = Mat::<f64>::zeros(dim, dim);
    let (mut unit, mut column) = (vec![0.0; dim], vec![0.0; dim]);
    for j in 0..dim {
        unit[j] = 1.0;
        objective.bound_vector(x, &unit, &mut column);
        unit[j] = 0.0;
        column.iter().enumerate().for_each(|(i, &value)| matrix[(i, j)] = value);
    }
    let mut eigenvalues = matrix.self_adjoint_eigenvalues(Side::Lower).expect("a symmetric matrix of finite numbers");
    eigenvalues.sort_by(|a, b| b.total_cmp(a));
    eigenvalues
}

/// Stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017): each random start gives nodes and weights of the spectral density.
pub fn quadrature(objective: &mut dyn Objective, x: &[f64], randomness: &CommonRandomness) -> Spectrum {
    let dim = objective.dim();
    let mut levels = Vec::new();
    for start in 0..STARTS {
        let mut words = randomness.words(Purpose::Probe, u64::MAX, start as u32);
        let scale = 1.0 / (dim as f64).sqrt();
        let v: Vec<f64> = (0..dim).map(|_| if words.next_coin(0.5) { scale } else { -scale }).collect();
        let (mut tridiagonal, size) = lanczos(objective, x, v);
        let (values, weights) = small_eigenvalues_and_weights(&mut tridiagonal, size);
        let share = dim as f64 / STARTS as f64;
        levels.extend(values.into_iter().zip(weights).map(|(value, weight)| (value.max(0.0), share * weight)));
    }
    Spectrum::from_levels(levels)
}

/// The tridiagonal matrix of Lanczos' recursion from a unit vector, kept orthogonal to all earlier vectors.
fn lanczos(objective: &mut dyn Objective, x: &[f64], start: Vec<f64>) -> (Vec<f64>, usize) {
    let dim = start.len();
    let mut basis = vec![start];
    let (mut diagonal, mut side) = (Vec::new(), Vec::new());
    let mut next = vec![0.0; dim];
    for _ in 0..STEPS.min(dim) {
        let last = basis.last().expect("there is a start");
        objective.bound_vector(x, last, &mut next);
        diagonal.push(dot(last, &next));
        for earlier in &basis {
            let overlap = dot(earlier, &next);
            add_scaled(-overlap, earlier, &mut next);
        }
        let norm = norm_squared(&next).sqrt();
        if norm < 1e-12 * diagonal[0].abs().max(1e-300) {
            break;
        }
        side.push(norm);
        basis.push(next.iter().map(|value| value / norm).collect());
    }
    let size = diagonal.len();
    let mut matrix = vec![0.0; size * size];
    for i in 0..size {
        matrix[i * size + i] = diagonal[i];
        if i + 1 < size {
            matrix[i * size + i + 1] = side[i];
            matrix[(i + 1) * size + i] = side[i];
        }
    }
    (matrix, size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::Quadratic;
    use corewire_sketch::Seed;

    #[test]
    fn the_quadrature_finds_trace_and_ends_of_a_known_spectrum() {
        let eigenvalues = Quadratic::power_law(3000, 1.5, 1e-3);
        let mut objective = Quadratic::new(eigenvalues.clone(), vec![0.0; 3000]);
        let randomness = CommonRandomness::new(&Seed::reproducible(5));
        let found = quadrature(&mut objective, &vec![0.0; 3000], &randomness);
        let (trace, root): (f64, f64) = (eigenvalues.iter().sum(), eigenvalues.iter().map(|l| l.sqrt()).sum());
        // Hutchinson's deviation on a diagonal matrix is 0 for r_1; for r_1/2 the quadrature error is what is left.
        assert!((found.trace() / trace - 1.0).abs() < 1e-9);
        assert!((found.root_trace() / root - 1.0).abs() < 0.02, "{} {root}", found.root_trace());
        assert!((found.smoothness() / eigenvalues[0] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn all_eigenvalues_of_a_small_problem_are_exact() {
        let eigenvalues = Quadratic::power_law(50, 1.0, 1e-2);
        let found = exact(&mut Quadratic::new(eigenvalues.clone(), vec![0.0; 50]), &[0.0; 50]);
        assert!(found.iter().zip(&eigenvalues).all(|(found, expected)| (found - expected).abs() < 1e-12));
    }
}
