//! EF21-P: the model comes down compressed, with error feedback on the way down.

use corewire_sketch::CommonRandomness;

use crate::error::RunError;
use crate::estimator::{Channel, Coding, Downlink, channel_means};
use crate::method::{Context, Method, Outcome, Settings};
use crate::state::{Scope, Stateful, Visitor};
use corewire_algebra::vector;

/// EF21-P with DIANA on the way up: gradients at w; the hub takes x+ = x - gamma (h + mean C(grad f_i(w) - h_i)) and sends C'(x+ - w);
/// w moves by what was sent. C' contractive; C unbiased, or the identity.
///
/// x is known to the hub alone, so w is what the method hands over.
pub struct Ef21P {
    w: Vec<f64>,
    /// The hub's x and mean shift; as they were at the start elsewhere.
    x: Vec<f64>,
    mean_shift: Vec<f64>,
    shift: Vec<f64>,
    alpha: f64,
    step: f64,
    channel: Channel,
}

impl Ef21P {
    /// Codecs up and down; `alpha` is how far DIANA's shifts follow, 0 for none.
    pub fn new(
        start: Vec<f64>,
        up: Coding,
        down: Coding,
        alpha: f64,
        step: f64,
        randomness: &CommonRandomness,
    ) -> Self {
        let zeros = vec![0.0; start.len()];
        let channel = Channel::new(up, Downlink::Coded { coding: down, memory: Vec::new() }, randomness);
        Self { w: start.clone(), x: start, mean_shift: zeros.clone(), shift: zeros, alpha, step, channel }
    }
}

impl Stateful for Ef21P {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "w", &mut self.w);
        visitor.vector(Scope::Local, "x", &mut self.x);
        visitor.vector(Scope::Local, "mean_shift", &mut self.mean_shift);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        self.channel.visit(visitor);
    }
}

impl Method for Ef21P {
    fn iterate(&self) -> &[f64] {
        &self.w
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let Self { w, x, mean_shift, shift, alpha, step, channel } = self;
        let dim = w.len();
        let (mut gradient, mut moved) = (vec![0.0; dim], vec![0.0; dim]);
        context.objective.gradient(w, &mut gradient);
        let difference: Vec<f64> = gradient.iter().zip(&*shift).map(|(g, h)| g - h).collect();
        channel_means(channel, round, &[&difference], context.comm, &mut [&mut moved[..]], &mut |means| {
            for mean in means {
                for i in 0..dim {
                    let difference = mean[i];
                    x[i] -= *step * (mean_shift[i] + difference);
                    mean_shift[i] += *alpha * difference;
                    mean[i] = x[i] - w[i];
                }
            }
        })?;
        vector::add_scaled(*alpha, channel.sent(), shift);
        vector::add_scaled(1.0, &moved, w);
        Ok(Outcome { gradient_norm: None, step: Some(*step), rejected: false, gap: None })
    }

    fn settings(&self) -> Settings {
        Settings { step: Some(self.step), ..Settings::default() }
    }
}
