//! Methods whose machines use their own Hessians and exchange uncompressed vectors.

use corewire_algebra::vector::{add_scaled, dot, norm_squared};

use crate::error::RunError;
use crate::estimator::Exact;
use crate::method::{Context, Method, Outcome};
use crate::objective::Objective;
use crate::optimum::newton_direction;
use crate::state::{Scope, Stateful, Visitor};

/// Refuses what has no positive definite Hessian.
fn admit(objective: &dyn Objective, id: &str) -> Result<(), RunError> {
    if objective.is_convex() && objective.strong_convexity() > 0.0 {
        return Ok(());
    }
    let what = format!("{id} needs a convex model with `problem.alpha` above 0: take cgd, or core-nonconvex");
    Err(RunError::Unsuited(what))
}

/// GIANT's grid: 4^0, 4^-1, ..
const GRID: usize = 10;
/// The share of what the slope promises that f must fall by.
const ARMIJO: f64 = 0.1;

/// The longest step of the grid along which f falls as Armijo asks, and 0 if there is none; in one exchange of the changes of f.
fn grid_search(
    round: u64,
    context: &mut Context<'_>,
    x: &[f64],
    direction: &[f64],
    slope: f64,
) -> Result<f64, RunError> {
    let lengths: [f64; GRID] = std::array::from_fn(|j| 1.0 / (1u64 << (2 * j)) as f64);
    let here = context.objective.value(x);
    let mut changes = lengths.map(|length| {
        let mut there = x.to_vec();
        add_scaled(length, direction, &mut there);
        context.objective.value(&there) - here
    });
    context.means(round, &mut changes, false)?;
    let falls = |(length, change): &(f64, f64)| *change <= ARMIJO * length * slope;
    Ok(lengths.into_iter().zip(changes).find(falls).map_or(0.0, |(length, _)| length))
}

/// GIANT: the mean gradient, then the mean of the machines' own Newton directions for it, each by conjugate gradients, then a step from a
/// grid. Three exchanges a round.
pub struct Giant {
    x: Vec<f64>,
    inner: usize,
    exact: Exact,
}

impl Giant {
    /// With at most `inner` steps of conjugate gradients per direction.
    pub fn new(start: Vec<f64>, inner: usize, exact: Exact) -> Self {
        Self { x: start, inner, exact }
    }
}

/// Residual at which a machine's own conjugate gradients end before their count is reached.
const INNER_TOLERANCE: f64 = 1e-8;

impl Stateful for Giant {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
    }
}

impl Method for Giant {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        admit(context.objective, "giant")
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let dim = self.x.len();
        let (mut local, mut gradient, mut direction) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(&self.x, &mut local);
        context.estimate(&mut self.exact, round, &local, &mut [], &mut gradient)?;
        let own = newton_direction(context.objective, &self.x, &gradient, INNER_TOLERANCE, self.inner);
        context.estimate(&mut self.exact, round, &own, &mut [], &mut direction)?;
        let step = grid_search(round, context, &self.x, &direction, dot(&gradient, &direction))?;
        add_scaled(step, &direction, &mut self.x);
        let norm = norm_squared(&gradient).sqrt();
        Ok(Outcome { gradient_norm: Some(norm), step: Some(step), rejected: step == 0.0, gap: None })
    }
}
