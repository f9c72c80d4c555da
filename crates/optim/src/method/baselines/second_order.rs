//! Methods whose machines use their own Hessians and exchange uncompressed vectors.

use corewire_algebra::vector::{add_scaled, dot, norm_squared};

use corewire_comm::{CommError, Reduction, numbers};

use crate::error::RunError;
use crate::estimator::{Exact, check_finite};
use crate::method::{Context, Method, Outcome};
use crate::objective::Objective;
use crate::objective::tilted::Tilted;
use crate::optimum::{conjugate_gradients, minimise_while, newton_direction};
use crate::state::{Scope, Stateful, Visitor};

/// Refuses what has no positive definite Hessian.
pub(super) fn admit(objective: &dyn Objective, id: &str) -> Result<(), RunError> {
    if objective.is_convex() && objective.strong_convexity() > 0.0 {
        return Ok(());
    }
    let what =
        format!("{id} needs a convex model, with a penalty (`problem.alpha` above 0): take cgd, or core-nonconvex");
    Err(RunError::Unsuited(what))
}

/// Steps of GIANT's grid.
const GRID: usize = 10;
/// The share of what the slope promises that f must fall by.
const ARMIJO: f64 = 0.1;

/// The longest step of the grid 1, 1/shrink, 1/shrink^2, .. along which f falls as Armijo asks, and 0 if there is none; in one exchange
/// of the changes of f.
pub(super) fn grid_search(
    round: u64,
    context: &mut Context<'_>,
    x: &[f64],
    direction: &[f64],
    slope: f64,
    shrink: f64,
) -> Result<f64, RunError> {
    let mut length = shrink;
    let lengths: [f64; GRID] = std::array::from_fn(|_| {
        length /= shrink;
        length
    });
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
/// grid, or a whole one. Three exchanges per round, or two.
pub struct Giant {
    x: Vec<f64>,
    inner: usize,
    shrink: Option<f64>,
    exact: Exact,
}

impl Giant {
    /// With at most `inner` steps of conjugate gradients per direction, and a grid of 1, 1/shrink, 1/shrink^2, .., or none.
    pub fn new(start: Vec<f64>, inner: usize, shrink: Option<f64>, exact: Exact) -> Self {
        Self { x: start, inner, shrink, exact }
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
        let mut steps = 0..self.inner;
        let mut go_on = || steps.next().is_some();
        let own = newton_direction(context.objective, &self.x, &gradient, INNER_TOLERANCE, &mut go_on);
        context.estimate(&mut self.exact, round, &own, &mut [], &mut direction)?;
        let slope = dot(&gradient, &direction);
        let step = match self.shrink {
            Some(shrink) => grid_search(round, context, &self.x, &direction, slope, shrink)?,
            None => 1.0,
        };
        add_scaled(step, &direction, &mut self.x);
        let norm = norm_squared(&gradient).sqrt();
        Ok(Outcome { gradient_norm: Some(norm), step: Some(step), rejected: step == 0.0, gap: None })
    }
}

/// DiSCO: damped Newton steps, each by conjugate gradients over all machines, preconditioned at the hub by machine 0's own Hessian plus
/// mu. A round is one exchange for the gradient and one for every product of the Hessian with a direction; each brings d floats up and d
/// floats down.
pub struct Disco {
    x: Vec<f64>,
    settings: DiscoSettings,
}

/// How DiSCO's steps are found.
#[derive(Clone, Copy, Debug)]
pub struct DiscoSettings {
    /// mu times the root of machine 0's rows.
    pub mu: f64,
    /// Residual, relative to the gradient, at which a Newton step is good enough.
    pub tolerance: f64,
    /// Products per step, at most.
    pub inner: usize,
    /// Whether coordinates travel as 64 bits.
    pub double: bool,
}

impl Disco {
    /// From a start.
    pub fn new(start: Vec<f64>, settings: DiscoSettings) -> Self {
        Self { x: start, settings }
    }
}

/// What the hub keeps of a Newton system H v = g while it is solved.
struct Solve {
    residual: Vec<f64>,
    direction: Vec<f64>,
    step: Vec<f64>,
    /// H times the step.
    image: Vec<f64>,
    /// <residual, P^-1 residual>.
    energy: f64,
    /// Residual at which it ends.
    enough: f64,
    products: usize,
}

impl Solve {
    fn new(gradient: Vec<f64>, tolerance: f64) -> Self {
        let zeros = vec![0.0; gradient.len()];
        let enough = tolerance * norm_squared(&gradient).sqrt();
        let [direction, step, image] = [zeros.clone(), zeros.clone(), zeros];
        Self { residual: gradient, direction, step, image, energy: f64::INFINITY, enough, products: 0 }
    }

    /// Takes in H times the direction; whether the step is good enough.
    fn advance(&mut self, product: &[f64], most: usize) -> bool {
        self.products += 1;
        let curvature = dot(&self.direction, product);
        let curved = curvature > 0.0;
        if curved {
            let length = self.energy / curvature;
            add_scaled(length, &self.direction, &mut self.step);
            add_scaled(length, product, &mut self.image);
            add_scaled(-length, product, &mut self.residual);
        }
        !curved || self.products >= most || norm_squared(&self.residual).sqrt() <= self.enough
    }

    /// The next direction, given P^-1 residual.
    fn turn(&mut self, preconditioned: &[f64]) {
        let energy = dot(&self.residual, preconditioned);
        let keep = energy / self.energy;
        self.direction.iter_mut().zip(preconditioned).for_each(|(p, s)| *p = s + keep * *p);
        self.energy = energy;
    }

    /// The Newton step, shortened as a self-concordant function asks; a quadratic asks for nothing.
    fn damped(&self, quadratic: bool) -> Vec<f64> {
        let decrement = dot(&self.step, &self.image).max(0.0).sqrt();
        let factor = if quadratic { 1.0 } else { 1.0 / (1.0 + decrement) };
        self.step.iter().map(|value| factor * value).collect()
    }
}

impl Stateful for Disco {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
    }
}

impl Method for Disco {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        admit(context.objective, "disco")
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let DiscoSettings { mu, tolerance, inner, double } = self.settings;
        let (dim, x) = (self.x.len(), &self.x);
        let quadratic = context.objective.is_quadratic();
        let mut local = vec![0.0; dim];
        context.objective.gradient(x, &mut local);
        let mut solve: Option<Solve> = None;
        loop {
            check_finite(context.place(round), "a vector to send", &local)?;
            context.message.clear();
            numbers::push_floats(&local, double, context.message);
            let objective = &mut *context.objective;
            let mut combine = |messages: &[&[u8]]| {
                let mean = mean_of(messages, dim, double)?;
                let done = match &mut solve {
                    None => {
                        solve = Some(Solve::new(mean, tolerance));
                        false
                    }
                    Some(solve) => solve.advance(&mean, inner),
                };
                let solve = solve.as_mut().expect("it was just begun");
                let mut reply = vec![u8::from(done)];
                if done {
                    numbers::push_floats(&solve.damped(quadratic), double, &mut reply);
                } else {
                    let pull = mu / (objective.rows().max(1) as f64).sqrt();
                    let right = solve.residual.clone();
                    solve.turn(&conjugate_gradients(right, INNER_TOLERANCE, &mut || true, |v, out| {
                        objective.hessian_vector(x, v, out);
                        add_scaled(pull, v, out);
                    }));
                    numbers::push_floats(&solve.direction, double, &mut reply);
                    // The hub goes on with what the machines get.
                    read_vector(&reply[1..], double, &mut solve.direction)?;
                }
                Ok(reply)
            };
            let reply = context.comm.exchange(context.message, Reduction::Hub(&mut combine))?;
            let (done, floats) = reply.message.split_first().ok_or_else(|| CommError::refused(0, "it says nothing"))?;
            let mut vector = vec![0.0; dim];
            read_vector(floats, double, &mut vector)?;
            if *done != 0 {
                add_scaled(-1.0, &vector, &mut self.x);
                return Ok(Outcome::default());
            }
            context.objective.hessian_vector(x, &vector, &mut local);
        }
    }
}

pub(super) fn read_vector(bytes: &[u8], double: bool, out: &mut [f64]) -> Result<(), CommError> {
    match numbers::read_floats(bytes, double, out) {
        true => Ok(()),
        false => Err(CommError::refused(0, format!("it sent {} bytes for {} coordinates", bytes.len(), out.len()))),
    }
}

/// The mean of the machines' vectors, summed in rank order.
fn mean_of(messages: &[&[u8]], dim: usize, double: bool) -> Result<Vec<f64>, CommError> {
    let (mut mean, mut own) = (vec![0.0; dim], vec![0.0; dim]);
    for (rank, message) in messages.iter().enumerate() {
        if !numbers::read_floats(message, double, &mut own) {
            return Err(CommError::refused(rank, format!("it sent {} bytes for {dim} coordinates", message.len())));
        }
        add_scaled(1.0 / messages.len() as f64, &own, &mut mean);
    }
    Ok(mean)
}

/// By how much a machine's own gradient shrinks before it counts as minimised.
const OWN_TOLERANCE: f64 = 1e-11;

/// DANE: machine i minimises f_i(y) - <g_i - g, y> + (mu/2)||y - x||^2, and x becomes the mean of the minimisers. Two exchanges a round.
pub struct Dane {
    x: Vec<f64>,
    mu: f64,
    exact: Exact,
}

impl Dane {
    /// With the weight `mu` of the pull to x.
    pub fn new(start: Vec<f64>, mu: f64, exact: Exact) -> Self {
        Self { x: start, mu, exact }
    }
}

impl Stateful for Dane {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
    }
}

impl Method for Dane {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        admit(context.objective, "dane")
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let Self { x, mu, exact } = self;
        let dim = x.len();
        let (mut tilt, mut gradient, mut moved) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(x, &mut tilt);
        context.estimate(exact, round, &tilt, &mut [], &mut gradient)?;
        add_scaled(-1.0, &gradient, &mut tilt);
        add_scaled(*mu, x, &mut tilt);
        let mut tilted = Tilted { inner: &mut *context.objective, pull: *mu, tilt };
        let (mut own, _) = minimise_while(&mut tilted, x, OWN_TOLERANCE, &mut |_| true);
        add_scaled(-1.0, x, &mut own);
        context.estimate(exact, round, &own, &mut [], &mut moved)?;
        add_scaled(1.0, &moved, x);
        Ok(Outcome { gradient_norm: Some(norm_squared(&gradient).sqrt()), ..Outcome::default() })
    }
}

/// One-shot averaging: x is the mean of the machines' own minimisers. One exchange, and there is no second round.
pub struct OneShot {
    start: Vec<f64>,
    x: Vec<f64>,
    /// Rounds that were run.
    rounds: f64,
    exact: Exact,
}

impl OneShot {
    /// From a start, which the mean does not depend on.
    pub fn new(start: Vec<f64>, exact: Exact) -> Self {
        Self { x: start.clone(), start, rounds: 0.0, exact }
    }
}

impl Stateful for OneShot {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.number(Scope::Common, "rounds", &mut self.rounds);
    }
}

impl Method for OneShot {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        admit(context.objective, "one-shot")
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (own, _) = minimise_while(context.objective, &self.start, OWN_TOLERANCE, &mut |_| true);
        context.estimate(&mut self.exact, round, &own, &mut [], &mut self.x)?;
        self.rounds += 1.0;
        Ok(Outcome::default())
    }

    fn is_done(&self) -> bool {
        self.rounds > 0.0
    }
}
