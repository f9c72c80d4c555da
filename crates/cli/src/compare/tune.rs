//! The best step, codec, k and p of a baseline, which nobody is billed for.

use std::collections::BTreeMap;

use corewire_optim::catalogue;
use corewire_optim::run::{Ended, Finish};

use super::compared::{Compared, attempt};
use crate::interrupt::interrupted;
use crate::session::Session;

/// Tuning goes along a grid from where theory is, up until two in a row are no better, then down while that helps or it fails, and at most so far:
/// theory's steps for error feedback are a hundred times too careful on real data.
const FARTHEST: i32 = 12;
/// What `codec` is tried with beside its default, where a method takes it.
const CODECS: [&str; 5] = ["drive", "eden", "qsgd", "natural", "randk-common"];

/// What came of a change.
enum Tried {
    Better,
    NoBetter,
    /// It could not go on, or ended no better than it began.
    Failed,
    /// There was nothing to try, or no time.
    Nothing,
}

/// A baseline's best parameters so far, and how it does with them.
struct Tuning<'a> {
    session: &'a Session,
    best: Compared,
    /// What the user named stays as it is.
    given: &'a BTreeMap<String, String>,
    /// Bytes that are too many in any case.
    most: Option<f64>,
}

impl<'a> Tuning<'a> {
    /// Begins with these parameters.
    fn new(
        session: &'a Session,
        name: &str,
        parameters: &BTreeMap<String, String>,
        given: &'a BTreeMap<String, String>,
        most: Option<f64>,
    ) -> Self {
        let mut tuning = Self { session, best: attempt(session, name, parameters, most), given, most };
        tuning.climb_step();
        tuning
    }

    /// Tries the best with one parameter changed.
    fn change(&mut self, key: &str, value: String) -> Tried {
        let mut parameters = self.best.parameters.clone();
        parameters.insert(key.to_owned(), value);
        if parameters == self.best.parameters || interrupted() {
            return Tried::Nothing;
        }
        let done = attempt(self.session, &self.best.name, &parameters, self.best.bound().or(self.most));
        let failed = |finish: &Finish| match finish.ended {
            Ended::Diverged => true,
            // Given up, because it costs too much.
            Ended::Bytes => false,
            _ => finish.last.relative.is_some_and(|relative| relative >= 1.0),
        };
        if done.result.as_ref().map_or(true, |done| failed(&done.finish)) {
            return Tried::Failed;
        }
        if !done.is_better_than(&self.best) {
            return Tried::NoBetter;
        }
        self.best = done;
        Tried::Better
    }

    /// Goes along a grid from its middle: up, and down where nothing above was better.
    fn climb(&mut self, key: &str, value: impl Fn(i32) -> String) {
        if self.given.contains_key(key) {
            return;
        }
        let middle = self.best.parameters.get(key).cloned();
        for direction in [1, -1] {
            let mut in_vain = 0;
            for place in (1..=FARTHEST).map(|place| direction * place) {
                // The end of what the parameter may be.
                if value(place) == value(place - direction) {
                    break;
                }
                in_vain = match self.change(key, value(place)) {
                    Tried::Better => 0,
                    Tried::NoBetter => in_vain + 1,
                    // Too long a step fails, and so may several below it.
                    Tried::Failed if direction < 0 => in_vain,
                    Tried::Failed | Tried::Nothing => break,
                };
                if in_vain >= if direction > 0 { 2 } else { 1 } {
                    break;
                }
            }
            if self.best.parameters.get(key) != middle.as_ref() {
                break;
            }
        }
    }

    /// The factor on theory's step, by powers of 2 from where it is, where the method has one.
    fn climb_step(&mut self) {
        if catalogue::find(&self.best.name).is_ok_and(|info| info.has("scale")) {
            let from: f64 = self.best.parameters.get("scale").and_then(|scale| scale.parse().ok()).unwrap_or(1.0);
            self.climb("scale", |place| (from * 2f64.powi(place)).to_string());
        }
    }
}

/// Runs a method; a baseline with the best step, codec, k, p and what else its parameters say is worth trying. Networks are tuned on so many
/// rounds, and then run whole.
pub fn tuned(session: &Session, name: &str, given: BTreeMap<String, String>, short: Option<u64>) -> Compared {
    let network = session.job.problem.model.is_network();
    let info = catalogue::find(name).ok().filter(|info| info.tunes() && (network || !info.is_core()));
    let Some(info) = info else { return attempt(session, name, &given, None) };
    let shorter = short.map(|rounds| session.training_for(rounds));
    let (whole, session) = (session, shorter.as_ref().unwrap_or(session));
    let has = |key: &str| info.has(key) && !given.contains_key(key);
    let mut parameters = given.clone();
    if has("scale") {
        parameters.insert("scale".to_owned(), "1".to_owned());
    }
    let mut tuning = Tuning::new(session, name, &parameters, &given, None);
    if has("codec") {
        for codec in CODECS {
            parameters.insert("codec".to_owned(), codec.to_owned());
            if session.with_method(name, parameters.clone()).check_method().is_ok() {
                // Each codec has a step of its own, which may be far from the best of another.
                let other = Tuning::new(session, name, &parameters, &given, tuning.best.bound());
                if other.best.is_better_than(&tuning.best) {
                    tuning = other;
                }
            }
        }
    }
    let before = tuning.best.parameters.clone();
    let dim = session.problem().map_or(1, |problem| problem.dim());
    if has("k") && !network {
        let middle = dim.div_ceil(50) as f64;
        tuning.climb("k", |place| (middle * 2f64.powi(place)).clamp(1.0, dim as f64).round().to_string());
    }
    if has("p") {
        tuning.climb("p", |place| (0.1 * 2f64.powi(place)).min(1.0).to_string());
    }
    for parameter in info.parameters.iter().filter(|parameter| has(parameter.name) && !network) {
        for value in parameter.tries {
            tuning.change(parameter.name, (*value).to_owned());
        }
    }
    // Another k or p may want another step; without one, the same steps would be tried again.
    if tuning.best.parameters != before {
        tuning.climb_step();
    }
    let chosen = tuning.best.parameters.iter().filter(|(key, _)| !given.contains_key(*key));
    let chosen: Vec<String> = chosen.map(|(key, value)| format!("{key} {value}")).collect();
    let chosen = Some(chosen.join(", ").replace("scale ", "step x "));
    let best = match short {
        Some(_) => attempt(whole, name, &tuning.best.parameters, None),
        None => tuning.best,
    };
    Compared { tuned: chosen, ..best }
}
