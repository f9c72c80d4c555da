//! The part of a problem that has no gradient: an l1 term, and bounds on every coordinate. Methods apply its proximal step.

/// `l1` ||x||_1, and `lower` <= x_j <= `upper` for all j.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proximal {
    /// Weight of the l1 term.
    pub l1: f64,
    /// What no coordinate falls below; minus infinity where there is no such bound.
    pub lower: f64,
    /// What no coordinate rises above; infinity where there is no such bound.
    pub upper: f64,
}

impl Proximal {
    /// Neither an l1 term nor bounds: the step changes nothing.
    pub const NONE: Self = Self { l1: 0.0, lower: f64::NEG_INFINITY, upper: f64::INFINITY };

    /// An l1 term alone.
    pub const fn l1(l1: f64) -> Self {
        Self { l1, ..Self::NONE }
    }

    /// Whether the problem is smooth and free.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether there are bounds.
    pub fn is_bounded(&self) -> bool {
        self.lower > f64::NEG_INFINITY || self.upper < f64::INFINITY
    }

    /// The minimiser z of l1 |z| + (z - x)^2/(2 step) within the bounds. On an interval the minimiser of a convex function of one
    /// variable is the nearest point to its free minimiser, so that the two steps follow each other.
    pub fn step(&self, x: f64, step: f64) -> f64 {
        self.clamp(shrink(x, step * self.l1))
    }

    /// The nearest point within the bounds.
    pub fn clamp(&self, x: f64) -> f64 {
        x.clamp(self.lower, self.upper)
    }
}

/// The proximal step of `threshold` ||x||_1.
fn shrink(x: f64, threshold: f64) -> f64 {
    if x > threshold {
        x - threshold
    } else if x < -threshold {
        x + threshold
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_best_point_of_a_fine_grid() {
        for (l1, lower, upper) in
            [(0.3, -1.0, 1.0), (0.0, 0.0, f64::INFINITY), (0.5, 0.25, 2.0), (0.2, f64::NEG_INFINITY, -0.5)]
        {
            let proximal = Proximal { l1, lower, upper };
            for x in (-30..=30).map(|tenth| f64::from(tenth) / 10.0) {
                let cost = |z: f64| l1 * z.abs() + (z - x).powi(2) / (2.0 * 0.7);
                let grid = (-4000..=4000).map(|i| f64::from(i) / 1000.0).filter(|z| (lower..=upper).contains(z));
                let best = grid.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap();
                // The grid's points lie 1e-3 apart.
                assert!((proximal.step(x, 0.7) - best).abs() <= 1e-3, "{proximal:?} at {x}");
            }
        }
        assert!(Proximal::NONE.is_none() && Proximal::NONE.step(0.3, 9.0) == 0.3);
        assert!(!Proximal::l1(0.1).is_bounded() && !Proximal::l1(0.1).is_none());
    }
}
