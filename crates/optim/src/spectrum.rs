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

/// The spectrum of the dominating matrix by quadrature.
pub fn quadrature(objective: &mut dyn Objective, x: &[f64], randomness: &CommonRandomness) -> Spectrum {
    let density = nodes(objective.dim(), STARTS, STEPS, randomness, |v, out| objective.bound_vector(x, v, out));
    Spectrum::from_levels(density.into_iter().map(|(value, count)| (value.max(0.0), count)).collect())
}

/// Stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017): each random start gives nodes and weights of the spectral density.
fn nodes(
    dim: usize,
    starts: usize,
    steps: usize,
    randomness: &CommonRandomness,
    mut multiply: impl FnMut(&[f64], &mut [f64]),
) -> Vec<(f64, f64)> {
    let mut nodes = Vec::new();
    for start in 0..starts {
        let mut words = randomness.words(Purpose::Probe, u64::MAX, start as u32);
        let scale = 1.0 / (dim as f64).sqrt();
        let v: Vec<f64> = (0..dim).map(|_| if words.next_coin(0.5) { scale } else { -scale }).collect();
        let krylov = eigen::lanczos(&v, steps, &mut multiply);
        let (values, weights) = eigen::quadrature(krylov.diagonal, krylov.side);
        let share = dim as f64 / starts as f64;
        nodes.extend(values.into_iter().zip(weights).map(|(value, weight)| (value, share * weight)));
    }
    nodes
}

/// The eigenvalues of a Hessian with their signs, as nodes and how many eigenvalues each stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Density {
    nodes: Vec<(f64, f64)>,
}

impl Density {
    /// Of the Hessian at x, from so many random starts and products with each.
    pub fn of(
        objective: &mut dyn Objective,
        x: &[f64],
        starts: usize,
        steps: usize,
        randomness: &CommonRandomness,
    ) -> Self {
        Self { nodes: nodes(x.len(), starts, steps, randomness, |v, out| objective.hessian_vector(x, v, out)) }
    }

    /// r_p: the sum of |eigenvalue|^p.
    pub fn absolute_sum(&self, power: f64) -> f64 {
        self.nodes.iter().map(|&(value, count)| count * libm::pow(value.abs(), power)).sum()
    }

    /// The trace.
    pub fn trace(&self) -> f64 {
        self.nodes.iter().map(|&(value, count)| count * value).sum()
    }

    /// The largest eigenvalue by magnitude, which the quadrature finds first.
    pub fn smoothness(&self) -> f64 {
        self.nodes.iter().fold(0.0, |most, node| node.0.abs().max(most))
    }

    /// The smallest and the largest eigenvalue.
    pub fn ends(&self) -> (f64, f64) {
        let values = self.nodes.iter().map(|node| node.0);
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    }

    /// Eigenvalues and how many each stands for.
    pub fn nodes(&self) -> &[(f64, f64)] {
        &self.nodes
    }

    /// The magnitudes of the eigenvalues of one sign, largest first, with their counts.
    pub fn side(&self, negative: bool) -> Spectrum {
        let side = self.nodes.iter().filter(|node| (node.0 < 0.0) == negative);
        Spectrum::from_levels(side.map(|&(value, count)| (value.abs(), count)).collect())
    }
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
    fn a_density_counts_eigenvalues_of_either_sign() {
        let eigenvalues: Vec<f64> = (0..2000).map(|i| if i % 4 == 0 { -0.5 } else { 2.0 / (1.0 + i as f64) }).collect();
        let mut objective = Quadratic::new(eigenvalues.clone(), vec![0.0; 2000]);
        let randomness = CommonRandomness::new(&Seed::reproducible(6));
        let found = Density::of(&mut objective, &vec![0.0; 2000], 4, 40, &randomness);
        let (trace, absolute): (f64, f64) =
            (eigenvalues.iter().sum(), eigenvalues.iter().map(|value| value.abs()).sum());
        // A diagonal matrix and signs for starts: traces are exact, and absolute values but for the quadrature's error.
        assert!((found.trace() / trace - 1.0).abs() < 1e-9, "{} {trace}", found.trace());
        assert!((found.absolute_sum(1.0) / absolute - 1.0).abs() < 0.01, "{} {absolute}", found.absolute_sum(1.0));
        assert!((found.ends().0 + 0.5).abs() < 1e-6 && (found.smoothness() - 1.0).abs() < 1e-6, "{:?}", found.ends());
    }

    #[test]
    fn all_eigenvalues_of_a_small_problem_are_exact() {
        let eigenvalues = Quadratic::power_law(50, 1.0, 1e-2);
        let found = exact(&mut Quadratic::new(eigenvalues.clone(), vec![0.0; 50]), &[0.0; 50]);
        assert!(found.iter().zip(&eigenvalues).all(|(found, expected)| (found - expected).abs() < 1e-12));
    }
}
