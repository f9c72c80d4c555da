//! The hub's step where the problem has an l1 term or bounds: its quadratic model of the smooth part, minimised together with them.

use corewire_algebra::eigen;
use corewire_algebra::vector::{add_scaled, dot, norm_squared};

use super::preconditioner::Preconditioner;
use crate::method::secants::Secants;
use crate::proximal::Proximal;

/// Proximal gradient steps at most.
const MOST_STEPS: usize = 3000;
/// The share of the model's fall that may be left to gain.
const LEFT: f64 = 1e-3;
/// A power iteration errs downwards, and so does Lanczos' recursion.
const MARGIN: f64 = 1.1;

/// g'(z - x) + (z - x)'B(z - x)/2 + h(z), where h is the l1 term and the bounds, and B is P/sigma corrected by secant pairs.
pub(super) struct Composite<'a> {
    p: &'a Preconditioner,
    sigma: f64,
    /// B = P/sigma + sum of u u' - sum of w w', in the order in which the pairs came.
    corrections: Vec<(Vec<f64>, Vec<f64>)>,
    proximal: Proximal,
}

impl<'a> Composite<'a> {
    /// With the curvature of P alone.
    pub(super) fn new(p: &'a Preconditioner, proximal: Proximal) -> Self {
        Self { p, sigma: 1.0, corrections: Vec::new(), proximal }
    }

    /// Corrected by the pairs, as BFGS does: the inverse of what the two-loop recursion applies.
    pub(super) fn with_pairs(mut self, secants: &Secants, sigma: f64) -> Self {
        self.sigma = sigma;
        for (s, y) in secants.steps.iter().zip(&secants.changes) {
            let mut image = self.multiply(s);
            let (curvature, along) = (dot(s, &image), dot(s, y));
            image.iter_mut().for_each(|value| *value /= curvature.sqrt());
            self.corrections.push((y.iter().map(|value| value / along.sqrt()).collect(), image));
        }
        self
    }

    /// B v.
    fn multiply(&self, v: &[f64]) -> Vec<f64> {
        let mut out = self.p.multiply(v);
        out.iter_mut().for_each(|value| *value /= self.sigma);
        for (plus, minus) in &self.corrections {
            add_scaled(dot(plus, v), plus, &mut out);
            add_scaled(-dot(minus, v), minus, &mut out);
        }
        out
    }

    fn penalty(&self, x: &[f64]) -> f64 {
        self.proximal.l1 * x.iter().map(|x| x.abs()).sum::<f64>()
    }

    /// By how much the model falls from x to z.
    fn fall(&self, x: &[f64], g: &[f64], z: &[f64]) -> f64 {
        let delta: Vec<f64> = z.iter().zip(x).map(|(z, x)| z - x).collect();
        self.penalty(x) - self.penalty(z) - dot(g, &delta) - 0.5 * dot(&delta, &self.multiply(&delta))
    }

    /// The minimiser, by accelerated proximal gradients with restarts, and by how much the model falls to it.
    pub(super) fn minimise(&self, x: &[f64], g: &[f64]) -> (Vec<f64>, f64) {
        let dim = x.len();
        let smoothness = match self.corrections[..] {
            [] => MARGIN * self.p.largest() / self.sigma,
            _ => MARGIN * eigen::largest(dim, |v, out| out.copy_from_slice(&self.multiply(v))),
        };
        let step = 1.0 / smoothness;
        let (mut z, mut y, mut momentum) = (x.to_vec(), x.to_vec(), 1.0f64);
        for turn in 0..MOST_STEPS {
            let away: Vec<f64> = y.iter().zip(x).map(|(y, x)| y - x).collect();
            let mut gradient = self.multiply(&away);
            add_scaled(1.0, g, &mut gradient);
            let next: Vec<f64> = y.iter().zip(&gradient).map(|(y, g)| self.proximal.step(y - step * g, step)).collect();
            let change: Vec<f64> = next.iter().zip(&y).map(|(next, y)| next - y).collect();
            let uphill = -(0..dim).map(|i| change[i] * (next[i] - z[i])).sum::<f64>() > 0.0;
            let following = 0.5 * (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt());
            let weight = if uphill { 0.0 } else { (momentum - 1.0) / following };
            momentum = if uphill { 1.0 } else { following };
            y = next.iter().zip(&z).map(|(next, z)| next + weight * (next - z)).collect();
            z = next;
            // What is left to gain is at most ||G||^2/(2 alpha), with G the change over the step. The fall is looked at now and then: it
            // costs a product.
            if turn % 16 == 15 {
                let left = norm_squared(&change) * smoothness * smoothness / (2.0 * self.p.least());
                if left <= LEFT * self.fall(x, g, &z) {
                    break;
                }
            }
        }
        let fall = self.fall(x, g, &z);
        // Rounding may leave less than nothing where x is the minimiser.
        if fall > 0.0 { (z, fall) } else { (x.to_vec(), 0.0) }
    }
}

#[cfg(test)]
mod tests {
    use corewire_algebra::eigen::Eigen;

    use super::*;

    fn preconditioner() -> Preconditioner {
        let vectors = vec![vec![0.6, 0.8, 0.0, 0.0], vec![0.0, 0.0, 0.8, -0.6]];
        Preconditioner::from_pairs(Eigen { values: vec![3.0, 0.5], vectors }, (4, 1), 0.1)
    }

    #[test]
    fn without_a_term_the_model_falls_by_half_of_the_energy() {
        let (p, x, g) = (preconditioner(), [0.3, -1.0, 2.0, 0.0], [1.0, -0.5, 0.25, 0.1]);
        let (z, fall) = Composite::new(&p, Proximal::NONE).minimise(&x, &g);
        let step = p.solve(&g);
        assert!((2.0 * fall / dot(&g, &step) - 1.0).abs() < 1e-3);
        // Within a thousandth of the fall, and so within about its root in the norm of P.
        for i in 0..4 {
            assert!((z[i] - x[i] + step[i]).abs() < 0.05 * norm_squared(&step).sqrt(), "{z:?}");
        }
    }

    #[test]
    fn pairs_are_met() {
        let p = preconditioner();
        let mut secants = Secants::new(3);
        secants.push(vec![1.0, 0.0, 2.0, 1.0], vec![3.0, 1.0, 1.0, 0.5]);
        secants.push(vec![0.5, 1.0, 0.0, 0.0], vec![1.0, 4.0, -1.0, 0.2]);
        let model = Composite::new(&p, Proximal::NONE).with_pairs(&secants, 0.5);
        let image = model.multiply(&secants.steps[1]);
        for (found, wanted) in image.iter().zip(&secants.changes[1]) {
            assert!((found - wanted).abs() < 1e-12, "B s = y for the latest pair: {found} {wanted}");
        }
        // B is what the two-loop recursion inverts.
        let back = secants.inverse(&model.multiply(&[1.0, 2.0, -1.0, 0.5]), |q, _| {
            p.solve(&q).iter().map(|value| 0.5 * value).collect()
        });
        for (found, wanted) in back.iter().zip([1.0, 2.0, -1.0, 0.5]) {
            assert!((found - wanted).abs() < 1e-10, "{found} {wanted}");
        }
    }

    #[test]
    fn the_minimiser_meets_the_conditions_of_optimality() {
        let p = preconditioner();
        let proximal = Proximal { l1: 0.4, lower: -0.5, upper: 1.5 };
        let (x, g) = ([0.3, -0.5, 1.0, 0.0], [1.0, -0.5, 0.25, 0.1]);
        let model = Composite::new(&p, proximal);
        let (z, fall) = model.minimise(&x, &g);
        assert!(fall > 0.0 && z.iter().all(|z| (-0.5..=1.5).contains(z)));
        // No small move of one coordinate within the bounds gains more than was left.
        for i in 0..4 {
            for move_by in [-1e-2, 1e-2] {
                let mut other = z.clone();
                other[i] = proximal.clamp(other[i] + move_by);
                assert!(model.fall(&x, &g, &other) <= fall * (1.0 + 2.0 * LEFT), "{i} {move_by}");
            }
        }
    }
}
