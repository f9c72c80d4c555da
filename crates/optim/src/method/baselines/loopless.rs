//! VR-DIANA: DIANA on mini-batches whose noise a full gradient at an earlier point removes.

use corewire_algebra::vector;
use corewire_sketch::{CommonRandomness, Purpose};

use super::local::local_gradient;
use crate::error::RunError;
use crate::estimator::Diana;
use crate::method::{Context, Method, Outcome, Settings};
use crate::proximal::Proximal;
use crate::state::{Scope, Stateful, Visitor};

/// VR-DIANA in its loopless form: machine i hands DIANA the gradient of a few rows at x, less that of the same rows at w, plus that of
/// all its rows at w. With probability p, by a common coin, w becomes x.
pub struct VrDiana {
    x: Vec<f64>,
    w: Vec<f64>,
    /// grad f_i(w); empty until it is needed.
    anchor: Vec<f64>,
    estimator: Diana,
    settings: VrDianaSettings,
    randomness: CommonRandomness,
}

/// What VR-DIANA goes by.
#[derive(Clone, Copy, Debug)]
pub struct VrDianaSettings {
    /// gamma.
    pub step: f64,
    /// Rows of a mini-batch.
    pub batch: usize,
    /// How often w moves.
    pub probability: f64,
    /// The problem's proximal step.
    pub proximal: Proximal,
}

impl VrDiana {
    /// From a start.
    pub fn new(start: Vec<f64>, estimator: Diana, settings: VrDianaSettings, randomness: &CommonRandomness) -> Self {
        Self { w: start.clone(), x: start, anchor: Vec::new(), estimator, settings, randomness: randomness.clone() }
    }
}

impl Stateful for VrDiana {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "w", &mut self.w);
        visitor.vector(Scope::Local, "anchor", &mut self.anchor);
        self.estimator.visit(visitor);
    }
}

impl Method for VrDiana {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let VrDianaSettings { step, batch, probability, proximal } = self.settings;
        let dim = self.x.len();
        let (mut here, mut there, mut mean) = (vec![0.0; dim], vec![0.0; dim], vec![0.0; dim]);
        if self.anchor.is_empty() {
            self.anchor = vec![0.0; dim];
            context.objective.gradient(&self.w, &mut self.anchor);
        }
        let rows = || self.randomness.words(Purpose::Shuffle, round, context.comm.rank() as u32);
        let (mut first, mut again) = (rows(), rows());
        local_gradient(context.objective, &self.x, batch, &mut first, &mut here);
        local_gradient(context.objective, &self.w, batch, &mut again, &mut there);
        vector::add_scaled(-1.0, &there, &mut here);
        vector::add_scaled(1.0, &self.anchor, &mut here);
        let estimate = context.estimate(&mut self.estimator, round, &here, &mut [], &mut mean)?;
        if self.randomness.words(Purpose::Coin, round, 0).next_coin(probability) {
            self.w.copy_from_slice(&self.x);
            self.anchor.clear();
        }
        self.x.iter_mut().zip(&mean).for_each(|(x, g)| *x = proximal.step(*x - step * g, step));
        Ok(Outcome { gradient_norm: Some(estimate.energy.sqrt()), step: Some(step), ..Outcome::default() })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.settings.step), ..Settings::default() }
    }
}
