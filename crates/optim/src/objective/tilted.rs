//! An objective with a little added: a pull to 0 and a slope.

use corewire_algebra::vector::{add_scaled, dot, norm_squared};

use super::{Curved, Objective};
use crate::layout::Layout;
use crate::proximal::Proximal;

/// f_i(x) + (pull/2)||x||^2 - <tilt, x>; no tilt at all stands for zeros.
pub(crate) struct Tilted<'a> {
    pub(crate) inner: &'a mut dyn Objective,
    pub(crate) pull: f64,
    pub(crate) tilt: Vec<f64>,
}

impl Objective for Tilted<'_> {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn layout(&self) -> Layout {
        self.inner.layout()
    }

    fn blocks(&self) -> usize {
        self.inner.blocks()
    }

    fn value(&mut self, x: &[f64]) -> f64 {
        let slope = if self.tilt.is_empty() { 0.0 } else { dot(&self.tilt, x) };
        self.inner.value(x) + 0.5 * self.pull * norm_squared(x) - slope
    }

    fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        self.inner.gradient(x, out);
        add_scaled(self.pull, x, out);
        out.iter_mut().zip(&self.tilt).for_each(|(out, tilt)| *out -= tilt);
    }

    fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        self.inner.hessian_vector(x, v, out);
        add_scaled(self.pull, v, out);
    }

    fn bound_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        self.inner.bound_vector(x, v, out);
        add_scaled(self.pull, v, out);
    }

    fn bound_trace(&self) -> Option<f64> {
        self.inner.bound_trace().map(|trace| trace + self.pull * self.dim() as f64)
    }

    fn strong_convexity(&self) -> f64 {
        self.inner.strong_convexity() + self.pull
    }

    fn is_quadratic(&self) -> bool {
        self.inner.is_quadratic()
    }

    fn is_convex(&self) -> bool {
        self.inner.is_convex()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn proximal(&self) -> Proximal {
        self.inner.proximal()
    }

    /// That of the rows does not change.
    fn curved(&mut self) -> Option<&mut dyn Curved> {
        self.inner.curved()
    }
}
