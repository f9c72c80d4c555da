//! One machine's share of the problem: values, gradients, curvature. Nothing here knows of other machines.

pub mod layered;
pub mod linear;
pub mod network;
pub mod quadratic;
pub(crate) mod tilted;

pub use layered::Layered;
pub use linear::{Linear, Loss};
pub use network::TwoLayer;
pub use quadratic::Quadratic;

use corewire_algebra::eigen::Eigen;
use corewire_sketch::Words;

use crate::layout::Layout;
use crate::proximal::Proximal;

/// One machine's f_i, scaled so that f is the mean of all f_i.
///
/// The `&mut self` is for scratch space; no call changes what another returns.
pub trait Objective: Send {
    /// Number of coordinates.
    fn dim(&self) -> usize;

    /// The named blocks of the coordinates.
    fn layout(&self) -> Layout {
        Layout::vector(self.dim())
    }

    /// Blocks of coordinates that meet the same columns of the rows: the classes of softmax, whose rows' gradients sum to nothing over the
    /// blocks; else 1.
    fn blocks(&self) -> usize {
        1
    }

    /// f_i(x).
    fn value(&mut self, x: &[f64]) -> f64;

    /// Overwrites `out` with the gradient of f_i at x.
    fn gradient(&mut self, x: &[f64], out: &mut [f64]);

    /// Overwrites `out` with the Hessian of f_i at x times v.
    fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]);

    /// What this machine keeps of a direction so that [`Objective::gram`] is cheap later: B v for a linear model.
    fn image(&mut self, v: &[f64]) -> Vec<f64> {
        let _ = v;
        Vec::new()
    }

    /// The inner products v_a' H v_b for b <= a, row by row, with the Hessian of f_i at x, given the images of the directions.
    fn gram(&mut self, x: &[f64], directions: &[&[f64]], images: &[&[f64]]) -> Vec<f64> {
        let _ = images;
        let mut product = vec![0.0; self.dim()];
        let mut gram = Vec::with_capacity(directions.len() * (directions.len() + 1) / 2);
        for a in 0..directions.len() {
            self.hessian_vector(x, directions[a], &mut product);
            gram.extend(directions[..=a].iter().map(|b| corewire_algebra::vector::dot(b, &product)));
        }
        gram
    }

    /// Overwrites `out` with A_i v for a matrix A_i whose mean dominates every Hessian that matters; the Hessian at `x` where none is
    /// known.
    fn bound_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        self.hessian_vector(x, v, out);
    }

    /// The trace of that A_i, where it is known without communication.
    fn bound_trace(&self) -> Option<f64> {
        None
    }

    /// A lower bound on the eigenvalues of all Hessians that all machines know: alpha for a regularised convex model, else 0.
    fn strong_convexity(&self) -> f64;

    /// Whether the Hessian does not depend on x.
    fn is_quadratic(&self) -> bool {
        false
    }

    /// Whether f is convex.
    fn is_convex(&self) -> bool {
        true
    }

    /// How many rows of data this machine has.
    fn rows(&self) -> usize;

    /// Overwrites `out` with an unbiased estimate of the gradient from these rows alone. Pictures that are moved about for training are
    /// moved by these random words.
    fn batch_gradient(&mut self, x: &[f64], rows: &[usize], words: &mut Words, out: &mut [f64]) {
        let _ = (rows, words);
        self.gradient(x, out);
    }

    /// What belongs to the problem but not to the gradient: methods apply its proximal step.
    fn proximal(&self) -> Proximal {
        Proximal::NONE
    }

    /// What is known of the Hessian beyond products, where it is.
    fn curved(&mut self) -> Option<&mut dyn Curved> {
        None
    }
}

/// An objective whose Hessian is that of its rows plus alpha times the identity.
///
/// Where there are several blocks, it is about the same in each, coupled only by the blocks' mean, along which the rows have no curvature:
/// (I - 11'/k) times A, and alpha. What follows is then told of A.
pub trait Curved {
    /// The largest eigenpairs of the Hessian at x less alpha, at most `most` of them, each above `least` where there are more than
    /// `always`; the sign of a vector is that of its largest entry, so that every machine finds the same.
    fn eigenpairs(&mut self, x: &[f64], always: usize, most: usize, least: f64) -> Eigen;

    /// The trace of the Hessian less alpha.
    fn trace(&mut self, x: &[f64]) -> f64;

    /// Rows of a root A of the Hessian less alpha, A'A.
    fn root_rows(&self) -> usize;

    /// A'c with that root at x, for every c, which has an entry for each row of A.
    fn combine_root(&mut self, x: &[f64], coefficients: &[Vec<f64>]) -> Vec<Vec<f64>>;

    /// Which columns any of the rows has.
    fn touched(&self) -> Vec<bool>;

    /// From how many rows each column has its curvature: (sum b^2)^2/sum b^4.
    fn column_rows(&self) -> Vec<f64>;

    /// The variance of what a single row adds to the gradient at x along a direction, in the mean over these: what sampling alone makes of
    /// machines.
    fn row_scatter(&mut self, x: &[f64], directions: &[Vec<f64>]) -> f64;
}

/// Keeps what is wanted of eigenpairs: those above `least`, but `always` of them at least and `most` at most; none that is rounding.
pub(crate) fn wanted(mut eigen: Eigen, always: usize, most: usize, least: f64) -> Eigen {
    let floor = 1e-10 * eigen.values.first().copied().unwrap_or(0.0).max(0.0);
    let real = eigen.values.iter().take_while(|&&value| value > floor).count();
    let above = eigen.values.iter().take_while(|&&value| value > least).count();
    let keep = above.max(always).min(most).min(real);
    eigen.values.truncate(keep);
    eigen.vectors.truncate(keep);
    for vector in &mut eigen.vectors {
        let largest = vector.iter().fold(0.0f64, |most, value| if value.abs() > most.abs() { *value } else { most });
        if largest < 0.0 {
            vector.iter_mut().for_each(|value| *value = -*value);
        }
    }
    eigen
}
