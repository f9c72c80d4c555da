//! The spectrum of a problem's dominating matrix: exactly where it is small, by stochastic Lanczos quadrature otherwise.

use corewire_algebra::eigen;
use corewire_sketch::{CommonRandomness, Purpose};

use crate::objective::Objective;
use crate::tuning::Spectrum;

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
    let mut matrix = vec![0.0; dim * dim];
    let (mut unit, mut column) = (vec![0.0; dim], vec![0.0; dim]);
    for j in 0..dim {
        unit[j] = 1.0;
        objective.bound_vector(x, &unit, &mut column);
        unit[j] = 0.0;
        matrix[j * dim..(j + 1) * dim].copy_from_slice(&column);
    }
    eigen::values(matrix, dim)
}

/// Stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017): each random start gives nodes and weights of the spectral density.
pub fn quadrature(objective: &mut dyn Objective, x: &[f64], randomness: &CommonRandomness) -> Spectrum {
    let dim = objective.dim();
    let mut levels = Vec::new();
    for start in 0..STARTS {
        let mut words = randomness.words(Purpose::Probe, u64::MAX, start as u32);
        let scale = 1.0 / (dim as f64).sqrt();
        let v: Vec<f64> = (0..dim).map(|_| if words.next_coin(0.5) { scale } else { -scale }).collect();
        let krylov = eigen::lanczos(&v, STEPS, |v, out| objective.bound_vector(x, v, out));
        let (values, weights) = eigen::quadrature(krylov.diagonal, krylov.side);
        let share = dim as f64 / STARTS as f64;
        levels.extend(values.into_iter().zip(weights).map(|(value, weight)| (value.max(0.0), share * weight)));
    }
    Spectrum::from_levels(levels)
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
