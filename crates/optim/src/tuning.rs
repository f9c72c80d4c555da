//! From a spectrum, known or guessed from three numbers, to budgets, steps and momentum.
//!
//! All machines tune for themselves from the same sums, so nothing here may depend on the machine: no function of the system's
//! mathematical library is called, only the portable ones of `libm`.

/// What is known of the matrix A that dominates the Hessians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curvature {
    /// Number of coordinates.
    pub dim: usize,
    /// tr(A).
    pub trace: f64,
    /// Its largest eigenvalue.
    pub smoothness: f64,
    /// A lower bound on the smallest.
    pub strong_convexity: f64,
}

/// Eigenvalues with multiplicities, largest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    levels: Vec<(f64, f64)>,
}

/// Levels above this count are merged: tuning needs no finer picture.
const MOST_LEVELS: usize = 80;

impl Spectrum {
    /// From all eigenvalues.
    pub fn from_eigenvalues(eigenvalues: &[f64]) -> Self {
        let mut sorted: Vec<f64> = eigenvalues.iter().map(|value| value.max(0.0)).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        Self::group(sorted.len(), |range| sorted[range.clone()].iter().sum::<f64>() / range.len() as f64)
    }

    /// From eigenvalues with weights, as a quadrature gives them.
    pub fn from_levels(mut levels: Vec<(f64, f64)>) -> Self {
        levels.sort_by(|a, b| b.0.total_cmp(&a.0));
        Self { levels }
    }

    /// The power law (L - mu) i^-p + mu with the given trace; flat where no decaying one fits.
    pub fn fitted(curvature: &Curvature) -> Self {
        let &Curvature { dim, trace, smoothness, strong_convexity: mu } = curvature;
        let law = |p: f64| {
            Self::group(dim, |range| {
                // The middle of a range, counted from 1, in the geometric sense.
                let middle = ((range.start + 1) as f64 * range.end as f64).sqrt();
                (smoothness - mu).max(0.0) * libm::pow(middle, -p) + mu
            })
        };
        let (mut low, mut high) = (0.0, 16.0);
        if law(low).trace() <= trace {
            return law(low);
        }
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if law(middle).trace() > trace { low = middle } else { high = middle }
        }
        law(low)
    }

    /// Groups `dim` indices, singly at first and then in geometric ranges, and asks for each group's level.
    fn group(dim: usize, level: impl Fn(std::ops::Range<usize>) -> f64) -> Self {
        let singles = dim.min(MOST_LEVELS / 2);
        let mut levels: Vec<(f64, f64)> = (0..singles).map(|i| (level(i..i + 1), 1.0)).collect();
        let mut start = singles;
        let ratio = libm::pow(dim as f64 / singles.max(1) as f64, 2.0 / MOST_LEVELS as f64);
        while start < dim {
            // The last one stands alone: it is the slowest.
            let end = ((start as f64 * ratio) as usize + 1).min(dim - 1).max(start + 1);
            levels.push((level(start..end), (end - start) as f64));
            start = end;
        }
        Self { levels }
    }

    /// Eigenvalues and multiplicities, largest first.
    pub fn levels(&self) -> &[(f64, f64)] {
        &self.levels
    }

    /// The sum of a function over all eigenvalues.
    pub fn sum(&self, function: impl Fn(f64) -> f64) -> f64 {
        self.levels.iter().map(|&(level, count)| count * function(level)).sum()
    }

    /// r_1.
    pub fn trace(&self) -> f64 {
        self.sum(|l| l)
    }

    /// r_1/2.
    pub fn root_trace(&self) -> f64 {
        self.sum(f64::sqrt)
    }

    /// The largest.
    pub fn smoothness(&self) -> f64 {
        self.levels.first().map_or(0.0, |level| level.0)
    }

    /// d_eff = sum l/(l + sqrt(L mu)).
    pub fn effective_dimension(&self, mu: f64) -> f64 {
        let root = (self.smoothness() * mu).sqrt();
        self.sum(|l| if l > 0.0 { l / (l + root) } else { 0.0 })
    }
}

/// A step and a momentum for the accelerated method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// h.
    pub step: f64,
    /// b: the momentum is 1 - b. With b = 1 the method is plain descent.
    pub damping: f64,
    /// The factor per round of E(f - f*): below 1 it converges.
    pub decay: f64,
}

/// What noise put into a mode adds up to in the squared gradient later on, each round's share divided by `decay` once more for every
/// round that passed; infinite where the mode itself dies slower than that. At `decay` = 1 it is the stationary gain.
///
/// The mode obeys x(k+1) = f1 x(k) + f2 x(k-1) + noise, with f1 = (1 + t)(1 - q), f2 = -t (1 - q), t = 1 - b, and the gradient is taken at
/// y = (1 + t) x(k) - t x(k-1). Scaling time by sqrt(decay) turns the weighted sums into those of a stationary recursion.
fn noise_gain(q: f64, damping: f64, decay: f64) -> f64 {
    let t = 1.0 - damping;
    let (f1, f2) = ((1.0 + t) * (1.0 - q) / decay.sqrt(), -t * (1.0 - q) / decay);
    // Stable if and only if |f2| < 1 and |f1| < 1 - f2.
    if f2.abs() >= 1.0 || f1.abs() >= 1.0 - f2 {
        return f64::INFINITY;
    }
    let g0 = (1.0 - f2) / ((1.0 + f2) * ((1.0 - f2) * (1.0 - f2) - f1 * f1));
    let g1 = f1 * g0 / (1.0 - f2);
    ((1.0 + t) * (1.0 + t) / decay + t * t / (decay * decay)) * g0 - 2.0 * t * (1.0 + t) * g1 / (decay * decay.sqrt())
}

/// (1/m) sum q^2 v: at `decay` = 1 the second moments stay bounded if and only if it is below 1.
pub fn total_gain(spectrum: &Spectrum, step: f64, damping: f64, budget: f64, decay: f64) -> f64 {
    spectrum.sum(|l| {
        let q = step * l;
        if q > 0.0 { q * q * noise_gain(q, damping, decay) } else { 0.0 }
    }) / budget
}

/// The factor per round of the second moments: where the gain is just 1. At least 1 where they grow.
///
/// E||g||^2 obeys a renewal equation: what is there now is what is left of the start, plus the echo of all earlier noise, which is
/// proportional to E||g||^2 then. Its growth is the solution of gain(decay) = 1.
pub fn decay(spectrum: &Spectrum, step: f64, damping: f64, budget: f64) -> f64 {
    let gain = |decay| total_gain(spectrum, step, damping, budget, decay);
    let converges = gain(1.0) < 1.0;
    if !converges {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    // To a thousandth of 1 - decay: rounds follow from the logarithm of decay.
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if gain(middle) < 1.0 {
            high = middle
        } else {
            low = middle
        }
        if high - low < 1e-3 * (1.0 - high) {
            break;
        }
    }
    high
}

/// The pair with the fastest decay, for steps up to 1/L.
pub fn accelerate(spectrum: &Spectrum, smoothness: f64, budget: f64) -> Pair {
    let mut best = Pair { step: 0.0, damping: 1.0, decay: 1.0 };
    let try_pair = |step: f64, damping: f64| Pair { step, damping, decay: decay(spectrum, step, damping, budget) };
    for k in 0..24 {
        let step = libm::pow(0.75, f64::from(k)) / smoothness;
        // Golden section in the logarithm of the damping: too little lets the noise ring, too much is slow.
        let at = |u: f64| try_pair(step, libm::exp(-9.0 * u));
        let golden = 0.618_033_988_749_894_9;
        let (mut low, mut high) = (0.0, 1.0);
        let (mut left, mut right) = (high - golden * (high - low), low + golden * (high - low));
        let (mut at_left, mut at_right) = (at(left), at(right));
        for _ in 0..12 {
            // Where both diverge, more damping is the way.
            if at_left.decay <= at_right.decay {
                (high, right, at_right) = (right, left, at_left);
                left = high - golden * (high - low);
                at_left = at(left);
            } else {
                (low, left, at_left) = (left, right, at_right);
                right = low + golden * (high - low);
                at_right = at(right);
            }
        }
        for pair in [at_left, at_right, try_pair(step, 1.0)] {
            if pair.decay < best.decay {
                best = pair;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second moments themselves, mode by mode: (E x^2, E x x', E x'^2) and the noise that all modes share.
    fn moments_after(eigenvalues: &[f64], step: f64, damping: f64, budget: f64, rounds: usize) -> f64 {
        let t = 1.0 - damping;
        let mut modes = vec![(1.0, 1.0, 1.0); eigenvalues.len()];
        let mut energy = 0.0;
        for _ in 0..rounds {
            energy = 0.0;
            for (&l, &(a, c, b)) in eigenvalues.iter().zip(&modes) {
                let y = (1.0 + t) * (1.0 + t) * a - 2.0 * t * (1.0 + t) * c + t * t * b;
                energy += l * l * y;
            }
            for (&l, mode) in eigenvalues.iter().zip(&mut modes) {
                let q = step * l;
                let (f1, f2) = ((1.0 + t) * (1.0 - q), -t * (1.0 - q));
                let (a, c, b) = *mode;
                let next = f1 * f1 * a + 2.0 * f1 * f2 * c + f2 * f2 * b + step * step * energy / budget;
                *mode = (next, f1 * a + f2 * c, a);
            }
        }
        energy
    }

    #[test]
    fn the_decay_is_that_of_the_moments() {
        let eigenvalues: Vec<f64> = (1..=60).map(|i| f64::from(i).powf(-1.2) + 1e-3).collect();
        let spectrum = Spectrum::from_levels(eigenvalues.iter().map(|&l| (l, 1.0)).collect());
        for (step, damping, budget) in [(0.5, 0.1, 20.0), (0.3, 1.0, 4.0), (0.9, 0.05, 40.0)] {
            let predicted = decay(&spectrum, step, damping, budget);
            // Late enough for neighbouring modes to part, early enough to stay above the smallest float.
            let (early, late) = ((180.0 / (1.0 - predicted)) as usize, (200.0 / (1.0 - predicted)) as usize);
            let moments = |rounds| moments_after(&eigenvalues, step, damping, budget, rounds);
            let measured = (moments(late) / moments(early)).powf(1.0 / (late - early) as f64);
            // The bisection stops at a thousandth of 1 - decay.
            assert!(((1.0 - measured) / (1.0 - predicted) - 1.0).abs() < 0.02, "{measured} {predicted}");
        }
    }

    #[test]
    fn too_large_a_step_is_seen_to_diverge() {
        let spectrum = Spectrum::from_eigenvalues(&[1.0; 50]);
        // h < 2m/(tr + (m + 1)L) = 8/55 is the limit of plain descent with 1.5 % to spare on either side (no 1/m self-term here: 2m/(tr +
        // mL)).
        assert!(decay(&spectrum, 0.14, 1.0, 4.0) < 1.0);
        assert_eq!(decay(&spectrum, 0.15, 1.0, 4.0), 1.0);
    }

    #[test]
    fn a_fitted_spectrum_has_the_trace_it_was_fitted_to() {
        let curvature = Curvature { dim: 784, trace: 1.784, smoothness: 0.4, strong_convexity: 1e-3 };
        let fitted = Spectrum::fitted(&curvature);
        assert!((fitted.trace() / 1.784 - 1.0).abs() < 1e-3);
        assert!((fitted.smoothness() - 0.4).abs() < 1e-12);
    }
}
