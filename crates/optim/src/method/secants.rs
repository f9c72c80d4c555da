//! Secant pairs: what moves did to the gradient, and the inverse Hessian they speak of.

use corewire_algebra::vector::{add_scaled, dot};

/// Moves s and the changes y of the gradient along them, oldest first; the latest few are kept.
pub(crate) struct Secants {
    pub(crate) steps: Vec<Vec<f64>>,
    pub(crate) changes: Vec<Vec<f64>>,
    most: usize,
}

impl Secants {
    /// None yet, and at most `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { steps: Vec::new(), changes: Vec::new(), most }
    }

    pub(crate) fn clear(&mut self) {
        self.steps.clear();
        self.changes.clear();
    }

    /// Keeps a pair; s'y must be above 0.
    pub(crate) fn push(&mut self, step: Vec<f64>, change: Vec<f64>) {
        self.steps.push(step);
        self.changes.push(change);
        if self.steps.len() > self.most {
            self.steps.remove(0);
            self.changes.remove(0);
        }
    }

    /// H g by the two-loop recursion of L-BFGS. `first` applies the inverse that the pairs correct; it gets the latest pair too, to scale
    /// by.
    pub(crate) fn inverse(
        &self,
        gradient: &[f64],
        first: impl FnOnce(Vec<f64>, Option<(&[f64], &[f64])>) -> Vec<f64>,
    ) -> Vec<f64> {
        let pairs: Vec<(&[f64], &[f64])> =
            self.steps.iter().zip(&self.changes).map(|(s, y)| (s.as_slice(), y.as_slice())).collect();
        let mut q = gradient.to_vec();
        let mut weights = Vec::with_capacity(pairs.len());
        for (s, y) in pairs.iter().rev() {
            let weight = dot(s, &q) / dot(s, y);
            add_scaled(-weight, y, &mut q);
            weights.push(weight);
        }
        let mut z = first(q, pairs.last().copied());
        for ((s, y), weight) in pairs.iter().zip(weights.into_iter().rev()) {
            let back = dot(y, &z) / dot(s, y);
            add_scaled(weight - back, s, &mut z);
        }
        z
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_pair_is_met_exactly() {
        let mut secants = Secants::new(2);
        secants.push(vec![9.0, 9.0, 9.0], vec![1.0, 0.0, 0.0]);
        secants.push(vec![1.0, 0.0, 2.0], vec![3.0, 1.0, 1.0]);
        secants.push(vec![0.5, 1.0, 0.0], vec![1.0, 4.0, -1.0]);
        assert_eq!(secants.steps.len(), 2, "the oldest goes");
        let back = secants.inverse(&[1.0, 4.0, -1.0], |q, _| q);
        // H y = s holds for the latest pair whatever came before; what is left is rounding.
        for (got, want) in back.iter().zip([0.5, 1.0, 0.0]) {
            assert!((got - want).abs() < 1e-14, "{got} is not {want}");
        }
    }
}
