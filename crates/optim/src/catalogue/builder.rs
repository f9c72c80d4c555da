//! From a method's parameters, as they were given or by default, to its parts: channels, codecs and the steps of their theory.

use std::collections::BTreeMap;
use std::sync::Arc;

use corewire_compress::{
    Aim, CountSketch, Dense, Drive, Eden, Indices, Law, Magnitude, Natural, Norm, OneBit, Qsgd, RandK, Scaled, Sign,
    TernGrad, TopK,
};
use corewire_sketch::{CommonRandomness, Real};

use super::{Constants, MethodInfo, MethodSettings, Sent, Training, nearest};
use crate::estimator::{Channel, Coding, Downlink, Exact, Gathered, MeanEstimator, Momentum};
use crate::method::Method;
use crate::method::baselines::shipped::Shipment;
use crate::method::descent::{Descent, Step};
use crate::method::gradient::{Batch, GradientMethod};

/// A method, or what is wrong with its parameters.
pub type Built = Result<Box<dyn Method>, String>;

/// In a box that can be any method.
pub(super) fn boxed(method: impl Method + 'static) -> Box<dyn Method> {
    Box::new(method)
}

/// The parameters of one method, as they were given or by default.
pub struct Values<'a> {
    /// Whose.
    pub info: &'static MethodInfo,
    given: &'a BTreeMap<String, String>,
}

impl<'a> Values<'a> {
    /// Refuses what the method does not have.
    pub(super) fn new(info: &'static MethodInfo, given: &'a BTreeMap<String, String>) -> Result<Self, String> {
        let names = || info.parameters.iter().map(|parameter| parameter.name);
        for name in given.keys() {
            if !names().any(|known| known == name) {
                let id = info.id;
                return Err(match nearest(name, names()) {
                    "" => format!("method `{id}` has no parameter `{name}`; its settings are keys of [method]"),
                    near => format!("method `{id}` has no parameter `{name}`; the nearest is `{near}`"),
                });
            }
        }
        Ok(Self { info, given })
    }

    pub(super) fn text(&self, name: &str) -> &str {
        let default = self.info.parameters.iter().find(|parameter| parameter.name == name);
        let default = default.map_or("", |parameter| parameter.default);
        self.given.get(name).map_or(default, String::as_str)
    }

    pub(super) fn refuse(&self, name: &str, wanted: &str) -> String {
        format!("parameter `{name}` of method `{}` is `{}`; it must be {wanted}", self.info.id, self.text(name))
    }

    /// A number in a range, ends included.
    pub(super) fn number(&self, name: &str, auto: f64, least: f64, most: f64) -> Result<f64, String> {
        if self.text(name) == "auto" {
            return Ok(auto.clamp(least, most));
        }
        let value: Option<f64> = self.text(name).parse().ok();
        let wanted = || match (least, most) {
            (_, f64::INFINITY) => format!("a number of at least {least}"),
            _ => format!("a number between {least} and {most}"),
        };
        value.filter(|value| (least..=most).contains(value)).ok_or_else(|| self.refuse(name, &wanted()))
    }

    pub(super) fn count(&self, name: &str, auto: usize, least: usize, most: usize) -> Result<usize, String> {
        if self.text(name) == "auto" {
            return Ok(auto.clamp(least, most));
        }
        let value: Option<usize> = self.text(name).parse().ok();
        let wanted = || match most {
            usize::MAX => format!("a whole number of at least {least}"),
            _ => format!("a whole number between {least} and {most}"),
        };
        value.filter(|value| (least..=most).contains(value)).ok_or_else(|| self.refuse(name, &wanted()))
    }

    pub(super) fn choice<'b>(&self, name: &str, choices: &[&'b str]) -> Result<&'b str, String> {
        let text = self.text(name);
        let found = choices.iter().find(|choice| **choice == text);
        found.copied().ok_or_else(|| {
            let near = nearest(text, choices.iter().copied());
            self.refuse(name, &format!("one of {}; the nearest is `{near}`", choices.join(", ")))
        })
    }
}

/// Everything that building needs.
pub struct Builder<'a> {
    pub(super) values: Values<'a>,
    /// L, mu and their kin; zeros for methods that ask the machines themselves.
    pub(super) constants: &'a Constants,
    /// Keys of the job's section for CORE methods.
    pub(super) settings: &'a MethodSettings,
    /// Whether the Hessian does not depend on x.
    pub(super) quadratic: bool,
    pub(super) start: &'a [f64],
    pub(super) randomness: &'a CommonRandomness,
    /// The rows, for a method that sends them.
    pub(super) shipment: Option<&'a Arc<dyn Shipment>>,
    pub(super) dim: usize,
    /// Factor on theory's step.
    pub(super) scale: f64,
    /// Whether numbers that no codec has encoded travel as 64 bits.
    pub(super) double: bool,
}

/// A channel, and what theory needs of it.
pub(super) struct Compressed {
    pub(super) channel: Channel,
    pub(super) omega: f64,
    /// Whether machines err alike.
    pub(super) common: bool,
    /// Whether the mean of all is still sparse.
    pub(super) sparse: bool,
}

impl Builder<'_> {
    /// x0.
    pub(super) fn start(&self) -> Vec<f64> {
        self.start.to_vec()
    }

    pub(super) fn exact(&self) -> Exact {
        Exact { double: self.double }
    }

    pub(super) fn dense(&self) -> Coding {
        match self.double {
            true => Coding::fixed(Dense::double(self.dim)),
            false => Coding::fixed(Dense::single(self.dim)),
        }
    }

    pub(super) fn dense_down(&self) -> Downlink {
        Downlink::Dense { double: self.double }
    }

    /// Sparse vectors come down as what they are, unless 64 bits are wanted.
    pub(super) fn sparse_down(&self) -> Downlink {
        if self.double { self.dense_down() } else { Downlink::Sparse }
    }

    pub(super) fn keep(&self, name: &str) -> Result<usize, String> {
        self.values.count(name, self.dim.div_ceil(50), 1, self.dim.max(1))
    }

    pub(super) fn levels(&self) -> Result<u32, String> {
        let root = ((self.dim as f64).sqrt() as usize).max(1);
        Ok(self.values.count("levels", root, 1, (1 << 31) - 1)? as u32)
    }

    pub(super) fn bits(&self) -> Result<f64, String> {
        let bits = self.values.number("bits", 2.0, 0.0, 4.0)?;
        if bits > 0.0 { Ok(bits) } else { Err(self.values.refuse("bits", "above 0 and up to 4")) }
    }

    /// The unbiased codec that `codec` names.
    pub(super) fn unbiased(&self) -> Result<Compressed, String> {
        let choices = ["randk", "randk-common", "qsgd", "natural", "terngrad", "drive", "eden"];
        let codec = self.values.choice("codec", &choices)?;
        let (dim, randomness) = (self.dim, self.randomness);
        if codec == "randk-common" {
            let channel = Channel::common(dim, self.keep("k")?, randomness);
            let omega = channel.law().omega().unwrap_or(0.0);
            return Ok(Compressed { channel, omega, common: true, sparse: true });
        }
        let coding = match codec {
            "randk" => Coding::fixed(RandK::new(dim, self.keep("k")?, Indices::Private, randomness)),
            "qsgd" => Coding::fixed(Qsgd::new(dim, self.levels()?, dim.max(1), Norm::Euclidean, randomness)),
            "natural" => Coding::fixed(Natural::new(dim, randomness)),
            "terngrad" => Coding::fixed(TernGrad::new(dim, dim.max(1), None, randomness)),
            "drive" => Coding::fixed(Drive::new(dim, Aim::Unbiased, randomness)),
            _ => Coding::fixed(Eden::new(dim, self.bits()?, Aim::Unbiased, randomness)),
        };
        let omega = coding.law().omega().unwrap_or(0.0);
        let index_bits = f64::from(usize::BITS - dim.saturating_sub(1).leading_zeros());
        let sparse = codec == "randk" && {
            let pairs = (self.keep("k")? * self.constants.machines) as f64 * (32.0 + index_bits);
            !self.double && pairs < 32.0 * dim as f64
        };
        let channel = Channel::new(coding, self.sparse_down(), randomness);
        Ok(Compressed { channel, omega, common: false, sparse })
    }

    /// As [`Builder::unbiased`], for two vectors up and one dense one down, where that is shorter.
    pub(super) fn unbiased_pair(&self) -> Result<(Compressed, bool), String> {
        let compressed = self.unbiased()?;
        let at_hub = !compressed.sparse;
        let channel = if at_hub { compressed.channel.with_down(self.dense_down()) } else { compressed.channel };
        Ok((Compressed { channel, ..compressed }, at_hub))
    }

    /// The contraction that `codec` names, and the delta that its step is for: the law's, or that of normal vectors for signs and
    /// rotations, whose worst case never happens.
    pub(super) fn contraction(&self) -> Result<(Coding, f64), String> {
        let codec = self.values.choice("codec", &["topk", "randk", "sign", "onebit", "drive", "eden"])?;
        let (dim, randomness) = (self.dim, self.randomness);
        Ok(match codec {
            "topk" => law_delta(Coding::fixed(TopK::new(dim, self.keep("k")?))),
            "randk" => {
                law_delta(Coding::fixed(Scaled::new(RandK::new(dim, self.keep("k")?, Indices::Private, randomness))))
            }
            "sign" => (Coding::fixed(Sign::new(dim, Magnitude::Mean)), std::f64::consts::FRAC_2_PI),
            "onebit" => (Coding::fixed(OneBit::new(dim, dim.max(1))), std::f64::consts::FRAC_2_PI),
            "drive" => (Coding::fixed(Drive::new(dim, Aim::LeastError, randomness)), std::f64::consts::FRAC_2_PI),
            _ => law_delta(Coding::fixed(Eden::new(dim, self.bits()?, Aim::LeastError, randomness))),
        })
    }

    pub(super) fn batch(&self) -> Result<Option<Batch>, String> {
        let rows = self.values.count("batch", 0, 0, usize::MAX)?;
        Ok((rows > 0).then(|| Batch::new(rows, self.randomness)))
    }

    /// L of f, or the smoothness that mini-batches have in the mean square: tr(A)/(n b) more.
    pub(super) fn smoothness(&self, batch: &Option<Batch>) -> f64 {
        let rows = batch.as_ref().map_or(f64::INFINITY, |batch| (batch.rows * self.constants.machines) as f64);
        self.constants.smoothness + self.constants.trace / rows
    }

    /// An estimator with descent: by theory's step, or as a network is trained.
    pub(super) fn descent(
        &self,
        estimator: impl MeanEstimator + 'static,
        step: f64,
        batch: Option<Batch>,
    ) -> Box<dyn Method> {
        match &self.settings.training {
            Some(training) => Box::new(self.trained(training, estimator, Sent::Gradient)),
            None => Box::new(GradientMethod::new(estimator, self.descending(step)).with_batch(batch)),
        }
    }

    /// A network's training, with the momentum on the machines or in the step, where nothing else is asked for.
    pub(super) fn trained<T: Real>(
        &self,
        training: &Training,
        estimator: impl MeanEstimator<T> + 'static,
        usual: Sent,
    ) -> GradientMethod<Momentum<T, Box<dyn MeanEstimator<T>>>, Descent>
    where
        Momentum<T, Box<dyn MeanEstimator<T>>>: MeanEstimator,
    {
        let (kept, gain) = (training.momentum, 1.0 / (1.0 - training.momentum));
        let (on_machines, in_step) = match training.sent.unwrap_or(usual) {
            Sent::Momentum => (kept, 0.0),
            Sent::Gradient => (0.0, kept),
        };
        let inner: Box<dyn MeanEstimator<T>> = Box::new(estimator);
        let estimator = Momentum::new(inner, self.dim, on_machines);
        let batch = Batch::new(training.batch, self.randomness);
        GradientMethod::new(estimator, training.descent(self.start(), in_step, self.scale * gain))
            .with_batch(Some(batch))
    }

    /// Descent by this step of theory.
    pub(super) fn descending(&self, step: f64) -> Descent {
        Descent::new(self.start(), Step::Fixed(self.scale * step)).with_proximal(self.constants.proximal)
    }

    /// Plain averaging of an unbiased codec: 1/(L + 2 omega Lmax/n), since E||ghat||^2 <= ||grad f||^2 + (omega/n) mean ||g_i||^2.
    pub(super) fn plain(&self, coding: Coding, down: Downlink, omega: f64) -> Built {
        let batch = self.batch()?;
        let noise = 2.0 * self.constants.noise(omega, false) * self.constants.max_smoothness;
        let step = 1.0 / (self.smoothness(&batch) + noise);
        let estimator = Gathered::new(Channel::new(coding, down, self.randomness));
        Ok(self.descent(estimator, step, batch))
    }

    /// Error feedback with the step of a contraction delta.
    pub(super) fn feedback(&self, coding: Coding, down: Downlink, delta: f64) -> Built {
        let estimator = Gathered::new(Channel::new(coding, down, self.randomness)).with_memory(self.dim, 1.0, 1.0);
        self.remembering(estimator, delta, 1.0)
    }

    /// Refuses a word on what travels where a method's rule has a momentum of its own.
    pub(super) fn keeps_its_own_momentum(&self) -> Result<(), String> {
        let id = self.values.info.id;
        match &self.settings.training {
            Some(training) if training.sent.is_some() => {
                Err(format!("`{id}` keeps a momentum of its own by its rule: remove `send`"))
            }
            _ => Ok(()),
        }
    }

    /// Any estimator with an error memory; `gain` is how often a gradient counts over all rounds.
    pub(super) fn remembering(&self, estimator: impl MeanEstimator + 'static, delta: f64, gain: f64) -> Built {
        let (step, batch) = self.remembered_step(delta, gain)?;
        match &self.settings.training {
            // It has a momentum of its own, which sums.
            Some(training) if gain > 1.0 => {
                self.keeps_its_own_momentum()?;
                let batch = Some(Batch::new(training.batch, self.randomness));
                Ok(boxed(
                    GradientMethod::new(estimator, training.descent(self.start(), 0.0, self.scale)).with_batch(batch),
                ))
            }
            _ => Ok(self.descent(estimator, step, batch)),
        }
    }

    /// The step with an error memory, and the mini-batches it is for.
    pub(super) fn remembered_step(&self, delta: f64, gain: f64) -> Result<(f64, Option<Batch>), String> {
        let batch = self.batch()?;
        let more = self.constants.smoothness / self.smoothness(&batch);
        Ok((self.constants.contracted_step(delta) * more / gain, batch))
    }

    pub(super) fn sketch(&self, keep: usize) -> Result<CountSketch, String> {
        let rows = self.values.count("rows", 5, 1, 99)?;
        let auto = self.dim.div_ceil(10).max(10 * keep).min(self.dim);
        let columns = self.values.count("columns", auto, 1, 1 << 24)?;
        Ok(CountSketch::new(self.dim, rows, columns, 0, self.randomness))
    }

    /// The diagonal of A with no entry below mu; L everywhere where it is not known.
    pub(super) fn diagonal(&self) -> Vec<f64> {
        let mu = self.constants.mu();
        match &self.constants.diagonal {
            Some(diagonal) => diagonal.iter().map(|entry| entry.max(mu)).collect(),
            None => vec![self.constants.smoothness; self.dim],
        }
    }
}

pub(super) fn law_delta(coding: Coding) -> (Coding, f64) {
    let delta = match coding.law() {
        Law::Contractive { delta } => delta,
        _ => 1.0,
    };
    (coding, delta)
}
