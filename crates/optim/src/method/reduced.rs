//! The reduction for functions that are convex but not strongly: a small l2 term, tied to the target.

use super::baselines::local_smoothness;
use super::{Context, Method, Outcome, Settings};
use crate::error::RunError;
use crate::objective::tilted::Tilted;
use crate::state::{Stateful, Visitor};

/// A method that needs strong convexity, on f + (w/2)||x||^2 where f has none: w = target x the mean of the machines' smoothness.
///
/// With x* a minimiser of f, what the term costs is f(x_w) - f(x*) <= (w/2)||x*||^2, which is the target times L||x*||^2/2 or less: and
/// that is the bound on f(0) - f(x*) that smoothness gives. Where f is strongly convex, nothing is added.
pub struct Reduced {
    inner: Box<dyn Method>,
    target: f64,
    /// Follows from what the machines said before the first round, so a resume that prepares again finds it.
    weight: f64,
}

impl Reduced {
    /// For this relative target.
    pub fn new(inner: Box<dyn Method>, target: f64) -> Self {
        Self { inner, target, weight: 0.0 }
    }

    /// What the inner method does, on the function it gets.
    fn within<T>(
        &mut self,
        context: &mut Context<'_>,
        act: impl FnOnce(&mut dyn Method, &mut Context<'_>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        if self.weight == 0.0 {
            return act(&mut *self.inner, context);
        }
        let mut objective = Tilted { inner: &mut *context.objective, pull: self.weight, tilt: Vec::new() };
        let Context { comm, message, .. } = context;
        act(&mut *self.inner, &mut Context { objective: &mut objective, comm: &mut **comm, message })
    }
}

impl Stateful for Reduced {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.inner.visit(visitor);
    }
}

impl Method for Reduced {
    fn iterate(&self) -> &[f64] {
        self.inner.iterate()
    }

    fn iterates_agree(&self) -> bool {
        self.inner.iterates_agree()
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        if context.objective.is_convex() && context.objective.strong_convexity() == 0.0 {
            let mut smoothness = [local_smoothness(context.objective, self.inner.iterate())];
            context.means(0, &mut smoothness, false)?;
            self.weight = self.target * smoothness[0];
        }
        self.within(context, |inner, context| inner.prepare(context))
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        self.within(context, |inner, context| inner.round(round, context))
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn settings(&self) -> Settings {
        let added = (self.weight > 0.0).then_some(self.weight);
        Settings { added, ..self.inner.settings() }
    }
}
