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
const MOST_LEVELS: usize = 160;

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
            let end = ((start as f64 * ratio) as usize + 1).clamp(start + 1, dim);
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
    /// b: the momentum is 1 - b.
    pub damping: f64,
    /// The factor a round of the slowest mode's distance.
    pub rate: f64,
}

/// The noise that a mode with q = h l passes on, per unit of noise put in: the stationary second moment of the second-order recursion.
fn noise_gain(q: f64, damping: f64) -> f64 {
    let t = 1.0 - damping;
    let (f1, f2) = ((1.0 + t) * (1.0 - q), -t * (1.0 - q));
    let g0 = (1.0 - f2) / ((1.0 + f2) * ((1.0 - f2) * (1.0 - f2) - f1 * f1));
    let g1 = f1 * g0 / (1.0 - f2);
    ((1.0 + t) * (1.0 + t) + t * t) * g0 - 2.0 * t * (1.0 + t) * g1
}

/// (1/m) sum q^2 v: below 1 the second moments stay bounded.
pub fn total_gain(spectrum: &Spectrum, step: f64, damping: f64, budget: f64) -> f64 {
    spectrum.sum(|l| {
        let q = step * l;
        if q > 0.0 { q * q * noise_gain(q, damping) } else { 0.0 }
    }) / budget
}

/// The best pair whose noise gain is at most `gain`: on a grid of steps up to 1/L the least damping that keeps it.
pub fn accelerate(spectrum: &Spectrum, smoothness: f64, mu: f64, budget: f64, gain: f64) -> Pair {
    let mut best = Pair { step: 0.0, damping: 1.0, rate: 1.0 };
    for k in 0..48 {
        let step = libm::pow(0.8, f64::from(k)) / smoothness;
        let root = (step * mu).sqrt();
        let floor = (2.0 * root / (1.0 + root)).max(1e-9);
        if total_gain(spectrum, step, 1.0, budget) > gain {
            continue;
        }
        let (mut low, mut high) = (floor, 1.0);
        if total_gain(spectrum, step, floor, budget) <= gain {
            high = floor;
        } else {
            for _ in 0..40 {
                let middle = (low * high).sqrt();
                if total_gain(spectrum, step, middle, budget) > gain { low = middle } else { high = middle }
            }
        }
        let rate = slow_rate(step, high, mu);
        if rate < best.rate {
            best = Pair { step, damping: high, rate };
        }
    }
    best
}

/// The larger root of z^2 - (2 - b)(1 - h mu) z + (1 - b)(1 - h mu), in absolute value.
fn slow_rate(step: f64, damping: f64, mu: f64) -> f64 {
    let contraction = 1.0 - step * mu;
    let (sum, product) = ((2.0 - damping) * contraction, (1.0 - damping) * contraction);
    let discriminant = sum * sum - 4.0 * product;
    if discriminant >= 0.0 { 0.5 * (sum + discriminant.sqrt()) } else { product.sqrt() }
}

/// The eigenvalues of a small symmetric matrix, by Jacobi's rotations: few enough to be the same on every machine.
pub fn small_eigenvalues(matrix: &mut [f64], size: usize) -> Vec<f64> {
    assert_eq!(matrix.len(), size * size, "a square matrix");
    for _ in 0..30 {
        let off: f64 = (0..size).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| matrix[i * size + j].powi(2)).sum();
        if off < 1e-300 {
            break;
        }
        for p in 0..size {
            for q in p + 1..size {
                let (app, aqq, apq) = (matrix[p * size + p], matrix[q * size + q], matrix[p * size + q]);
                if apq == 0.0 {
                    continue;
                }
                let theta = (aqq - app) / (2.0 * apq);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                for k in 0..size {
                    let (akp, akq) = (matrix[k * size + p], matrix[k * size + q]);
                    matrix[k * size + p] = c * akp - s * akq;
                    matrix[k * size + q] = s * akp + c * akq;
                }
                for k in 0..size {
                    let (apk, aqk) = (matrix[p * size + k], matrix[q * size + k]);
                    matrix[p * size + k] = c * apk - s * aqk;
                    matrix[q * size + k] = s * apk + c * aqk;
                }
            }
        }
    }
    (0..size).map(|i| matrix[i * size + i]).collect()
}
