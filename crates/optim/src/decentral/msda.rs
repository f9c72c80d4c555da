//! MSDA (Scaman, Bach, Bubeck, Lee, Massoulie 2017): Nesterov's method on the dual problem, with Chebyshev gossip as its matrix.

use super::Averaging;
use crate::error::RunError;
use crate::method::{Context, Method, Outcome, Settings};
use crate::objective::Objective;
use crate::optimum;
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;
use corewire_graph::gossip::GossipPlan;

/// t = grad f_i*(z), y+ = z - eta P t, z+ = y+ + beta (y+ - y), where P = I - T_K: what K iterations of gossip take away. K d numbers to
/// each neighbour a round.
///
/// P has its eigenvalues off the constants in [1 - c, 1 + c], c being the contraction of K iterations, so that the dual's condition number
/// is (L/mu)(1 + c)/(1 - c), and eta = mu/(1 + c). The conjugate's gradient is the minimiser of f_i(t) - <z, t>: on every machine a whole
/// problem a round, solved from the last one by Newton's method with conjugate gradients, to rounding (on a quadratic, one Newton step and
/// a check).
pub struct Msda {
    /// The primal point, grad f_i*(z).
    point: Vec<f64>,
    y: Vec<f64>,
    z: Vec<f64>,
    step: f64,
    momentum: f64,
    plan: GossipPlan,
    averaging: Averaging,
}

impl Msda {
    /// From a start, which the first local solution begins from, and mu and L of every f_i.
    pub fn new(start: Vec<f64>, averaging: &Averaging, strong_convexity: f64, smoothness: f64) -> Self {
        let plan = averaging.balanced_plan();
        let c = plan.contraction();
        let root = (smoothness / strong_convexity * (1.0 + c) / (1.0 - c)).sqrt();
        let zeros = vec![0.0; start.len()];
        Self {
            point: start,
            y: zeros.clone(),
            z: zeros,
            step: strong_convexity / (1.0 + c),
            momentum: (root - 1.0) / (root + 1.0),
            plan,
            averaging: averaging.with_floats(),
        }
    }
}

impl Stateful for Msda {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Local, "point", &mut self.point);
        visitor.vector(Scope::Local, "y", &mut self.y);
        visitor.vector(Scope::Local, "z", &mut self.z);
    }
}

impl Method for Msda {
    fn iterate(&self) -> &[f64] {
        &self.point
    }

    fn iterates_agree(&self) -> bool {
        false
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let mut tilted = Tilted { objective: context.objective, slope: &self.z };
        self.point = optimum::minimise(&mut tilted, &self.point).0;
        let mut averaged = self.point.clone();
        let whole = 0..averaged.len();
        self.averaging.gossip(self.plan, round, context.comm, &mut averaged, &[whole], |_, _, _| ())?;
        for i in 0..self.point.len() {
            let next = self.z[i] - self.step * (self.point[i] - averaged[i]);
            self.z[i] = next + self.momentum * (next - self.y[i]);
            self.y[i] = next;
        }
        Ok(Outcome { gradient_norm: None, step: Some(self.step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), damping: Some(1.0 - self.momentum), ..Settings::default() }
    }
}

/// f_i(x) - <slope, x>.
struct Tilted<'a> {
    objective: &'a mut dyn Objective,
    slope: &'a [f64],
}

impl Objective for Tilted<'_> {
    fn dim(&self) -> usize {
        self.objective.dim()
    }

    fn value(&mut self, x: &[f64]) -> f64 {
        self.objective.value(x) - vector::dot(self.slope, x)
    }

    fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        self.objective.gradient(x, out);
        vector::add_scaled(-1.0, self.slope, out);
    }

    fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        self.objective.hessian_vector(x, v, out);
    }

    fn strong_convexity(&self) -> f64 {
        self.objective.strong_convexity()
    }

    fn is_quadratic(&self) -> bool {
        self.objective.is_quadratic()
    }

    fn rows(&self) -> usize {
        self.objective.rows()
    }
}
