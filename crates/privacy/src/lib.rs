//! What the released scalars of a sketch betray: the exact account of the Gaussian sketch, the paper's claim beside it, and,
//! apart, the account of a real differentially private mechanism (clip and noise).
//! It draws no noise and sees no data: it only keeps the account. `docs/privacy.md` says in words what is protected and what is not.
//!
//! The setting of the exact account: an observer sees the scalars p = Ξ x of ONE vector per round, has neither the seed nor the
//! iterates, and knows that the vector was either x or its neighbour y with ‖x - y‖ <= Δ‖x‖. Then p ~ N(0, ‖x‖² I), so that
//! only the norm shows, and the privacy loss of M scalars at the ratio r = ‖y‖/‖x‖ is
//! `L = M ln r + (r⁻² - 1) S / 2` with S ~ chi-square with M degrees. Hence, with F its distribution and Q its survival,
//!
//! - r < 1: `t = 2 (ε - M ln r) / (r⁻² - 1)`, `δ = Q(t) - e^ε Q(t/r²)`;
//! - r > 1: `t = 2 (M ln r - ε) / (1 - r⁻²)`, `δ = F(t) - e^ε F(t/r²)`, and 0 where t <= 0.

use statrs::function::gamma::ln_gamma;

/// Why an account cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PrivacyError {
    /// Neighbours so far apart that one of them may be 0, or not apart at all.
    #[error(
        "`adjacency` is {0}, and must lie between 0 and 1: at 1 a neighbour may be the zero vector, and no epsilon holds"
    )]
    Adjacency(f64),
    /// Not a probability that can be allowed.
    #[error("`delta` is {0}, and must lie between 0 and 1, well below one over the number of records")]
    Delta(f64),
    /// Not a privacy loss.
    #[error("`epsilon` is {0}, and must be a finite number of at least 0")]
    Epsilon(f64),
    /// No scalar at all, or too many to count.
    #[error("`scalars` is {0}, and must lie between 1 and {MOST_SCALARS}")]
    Scalars(u64),
    /// Two vectors of which one is 0.
    #[error("`ratio` is {0}, and must be a finite number above 0")]
    Ratio(f64),
    /// A clipping norm that clips all or nothing.
    #[error("`clip` is {0}, and must be a finite number above 0")]
    Clip(f64),
    /// Noise that is none.
    #[error("`noise` is {0}, and must be a finite number above 0")]
    Noise(f64),
    /// A run without rounds.
    #[error("`rounds` is 0, and must be at least 1")]
    Rounds,
}

/// The largest number of scalars that the account is kept for. The evaluation takes time in proportion to its square root.
pub const MOST_SCALARS: u64 = 10_000_000_000;

/// The privacy account of a Gaussian sketch at a fixed adjacency and δ.
///
/// It is exact for M scalars whose rounds all have the same ratio ‖y‖/‖x‖, maximised over the ratios which the adjacency allows,
/// with either of the two neighbours as the truth. It holds for the Gaussian family, unquantised scalars and no shifts, for an
/// observer of one machine's scalars or of the sums, who has neither the seed nor an iterate. Where the ratio changes from round
/// to round, [`Accountant::renyi_epsilon`] and [`RenyiLedger`] give an upper bound.
///
/// ```
/// use corewire_privacy::Accountant;
/// let accountant = Accountant::new(0.01, 1e-5)?;
/// assert!((accountant.epsilon(1000)? - 1.888).abs() < 2e-3);
/// assert!(!accountant.paper_holds(10_000)?);
/// # Ok::<(), corewire_privacy::PrivacyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accountant {
    adjacency: f64,
    delta: f64,
}

impl Accountant {
    /// An account for neighbours with ‖x - y‖ <= `adjacency` ‖x‖, at this δ.
    pub fn new(adjacency: f64, delta: f64) -> Result<Self, PrivacyError> {
        if !(adjacency > 0.0 && adjacency < 1.0) {
            return Err(PrivacyError::Adjacency(adjacency));
        }
        Ok(Self { adjacency, delta: checked_delta(delta)? })
    }

    /// The relative distance of neighbours.
    pub fn adjacency(&self) -> f64 {
        self.adjacency
    }

    /// The δ at which ε is reported.
    pub fn delta(&self) -> f64 {
        self.delta
    }

    /// The δ at which M = `scalars` released scalars are ε-private.
    pub fn delta_at(&self, epsilon: f64, scalars: u64) -> Result<f64, PrivacyError> {
        Ok(self.worst_delta(checked_epsilon(epsilon)?, checked_scalars(scalars)?))
    }

    /// The ε at which M = `scalars` released scalars are private at the account's δ (0 where δ alone covers them).
    pub fn epsilon(&self, scalars: u64) -> Result<f64, PrivacyError> {
        let scalars = checked_scalars(scalars)?;
        Ok(smallest_epsilon(|epsilon| self.worst_delta(epsilon, scalars) <= self.delta))
    }

    /// The largest number of rounds, of `budget` scalars each, which stay (ε, δ)-private: 0 where even one does not. It stops at
    /// [`MOST_SCALARS`] scalars.
    pub fn rounds_within(&self, epsilon: f64, budget: u64) -> Result<u64, PrivacyError> {
        let (epsilon, budget) = (checked_epsilon(epsilon)?, checked_scalars(budget)?);
        let most = MOST_SCALARS / budget;
        Ok(largest_count(most, |rounds| self.worst_delta(epsilon, budget * rounds) <= self.delta))
    }

    /// An upper bound on ε that also holds where the ratio changes from round to round, within the adjacency.
    pub fn renyi_epsilon(&self, scalars: u64) -> Result<f64, PrivacyError> {
        let scalars = checked_scalars(scalars)? as f64;
        // The divergences are monotone in |ln r| like δ itself, so the ends of the interval are the worst in every round; which of
        // the two ends is worse depends on the order only, so a run may mix them.
        let divergence = |order: f64| {
            self.ratios().map(|ratio| scalars * renyi_per_scalar(order, ratio)).into_iter().fold(0.0, f64::max)
        };
        Ok(best_conversion(self.delta, divergence))
    }

    /// The ε of the paper's theorem on privacy, `20 Δ ln(1/δ)`, which depends neither on m nor on the number of rounds.
    pub fn paper_epsilon(&self) -> f64 {
        -20.0 * self.adjacency * self.delta.ln()
    }

    /// Whether M = `scalars` released scalars really are (paper_epsilon, δ)-private, by the exact account. The theorem supposes
    /// an adjacency below 0.1.
    pub fn paper_holds(&self, scalars: u64) -> Result<bool, PrivacyError> {
        Ok(self.worst_delta(self.paper_epsilon(), checked_scalars(scalars)?) <= self.delta)
    }

    /// The largest number of scalars for which the paper's claim holds, 0 where it never does. It stops at [`MOST_SCALARS`].
    pub fn paper_holds_up_to(&self) -> u64 {
        let epsilon = self.paper_epsilon();
        largest_count(MOST_SCALARS, |scalars| self.worst_delta(epsilon, scalars) <= self.delta)
    }

    fn worst_delta(&self, epsilon: f64, scalars: u64) -> f64 {
        self.ratios().map(|ratio| delta_of(epsilon, ratio, scalars)).into_iter().fold(0.0, f64::max)
    }

    /// The two ratios that are worst. The adjacency allows [1 - Δ, 1 + Δ], and [1/(1 + Δ), 1/(1 - Δ)] where y is the truth.
    /// The best test is a threshold on S, and for a fixed threshold `F(t) - e^ε F(t/r²)` grows with r above 1 and
    /// `Q(t) - e^ε Q(t/r²)` as r falls below 1; so the outermost ratio on either side is the worst.
    fn ratios(&self) -> [f64; 2] {
        [1.0 - self.adjacency, 1.0 / (1.0 - self.adjacency)]
    }
}

/// The exact δ at which M = `scalars` scalars of a Gaussian sketch hide, at this ε, whether they came from x or from y,
/// with ‖y‖ = `ratio` ‖x‖ and x the truth.
pub fn delta(epsilon: f64, ratio: f64, scalars: u64) -> Result<f64, PrivacyError> {
    if !(ratio > 0.0 && ratio.is_finite()) {
        return Err(PrivacyError::Ratio(ratio));
    }
    Ok(delta_of(checked_epsilon(epsilon)?, ratio, checked_scalars(scalars)?))
}

/// The Rényi divergence of `order` > 1 between one Gaussian scalar of x and one of y, ‖y‖ = `ratio` ‖x‖:
/// `ln r + ln(r² / (a r² + 1 - a)) / (2 (a - 1))`, infinite where `a r² + 1 - a <= 0`. M scalars have M times that.
///
/// # Panics
/// If the order is not above 1, or the ratio not above 0.
pub fn renyi_per_scalar(order: f64, ratio: f64) -> f64 {
    assert!(order > 1.0 && ratio > 0.0, "a divergence needs an order above 1 and a ratio above 0");
    // a r² + 1 - a = r² (1 + (a - 1)(1 - r⁻²)): the form which keeps its digits near r = 1.
    let excess = (order - 1.0) * ((ratio - 1.0) * (ratio + 1.0) / (ratio * ratio));
    if excess <= -1.0 {
        return f64::INFINITY;
    }
    (ratio.ln() - excess.ln_1p() / (2.0 * (order - 1.0))).max(0.0)
}

/// The account of a run whose ratio ‖y‖/‖x‖ changes from round to round: an upper bound through Rényi divergences.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenyiLedger {
    entries: Vec<(f64, u64)>,
}

impl RenyiLedger {
    /// An account with nothing released.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a round: `scalars` scalars of a vector whose neighbour's norm is `ratio` times its own.
    pub fn release(&mut self, ratio: f64, scalars: u64) -> Result<(), PrivacyError> {
        if !(ratio > 0.0 && ratio.is_finite()) {
            return Err(PrivacyError::Ratio(ratio));
        }
        self.entries.push((ratio, checked_scalars(scalars)?));
        Ok(())
    }

    /// The Rényi divergence of all that was released, the larger of the two directions.
    ///
    /// # Panics
    /// If the order is not above 1.
    pub fn divergence(&self, order: f64) -> f64 {
        let sum = |direction: fn(f64) -> f64| -> f64 {
            self.entries
                .iter()
                .map(|&(ratio, scalars)| scalars as f64 * renyi_per_scalar(order, direction(ratio)))
                .sum()
        };
        sum(|ratio| ratio).max(sum(f64::recip))
    }

    /// An ε for which the run is (ε, δ)-private, optimised over the order.
    pub fn epsilon(&self, delta: f64) -> Result<f64, PrivacyError> {
        let delta = checked_delta(delta)?;
        Ok(best_conversion(delta, |order| self.divergence(order)))
    }
}

/// Real differential privacy, apart from the sketch: machine i clips its gradient to norm `clip`, projects it on orthonormal rows
/// (which cannot lengthen it) and adds independent Gaussian noise of standard deviation `noise` to each of the m scalars.
///
/// It protects a machine's whole gradient, and so every record that went into it, from everybody who sees its noisy scalars, the
/// holders of the seed included. The noise must come from the machine's own system generator: noise from the common seed
/// is no noise. Neighbours differ by one machine's clipped gradient replaced by another, so the sensitivity is 2 `clip`. Each round
/// is μ-Gaussian-private with μ = 2 clip/noise, and K rounds, however each depends on the ones before, exactly √K μ
/// (Dong, Roth, Su: Gaussian differential privacy).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianMechanism {
    clip: f64,
    noise: f64,
}

impl GaussianMechanism {
    /// A mechanism that clips to this norm and adds noise of this standard deviation to each scalar.
    pub fn new(clip: f64, noise: f64) -> Result<Self, PrivacyError> {
        if !(clip > 0.0 && clip.is_finite()) {
            return Err(PrivacyError::Clip(clip));
        }
        if !(noise > 0.0 && noise.is_finite()) {
            return Err(PrivacyError::Noise(noise));
        }
        Ok(Self { clip, noise })
    }

    /// The mechanism with the least noise that keeps this many rounds (ε, δ)-private.
    pub fn for_rounds(clip: f64, rounds: u64, epsilon: f64, delta: f64) -> Result<Self, PrivacyError> {
        let unit = Self::new(clip, clip)?;
        if rounds == 0 {
            return Err(PrivacyError::Rounds);
        }
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return Err(PrivacyError::Epsilon(epsilon));
        }
        let delta = checked_delta(delta)?;
        let private = |noise: f64| gaussian_delta(epsilon, Self { noise, ..unit }.mu(rounds)) <= delta;
        let mut high = clip;
        while !private(high) {
            high *= 2.0;
        }
        let mut low = high;
        while private(low) {
            low /= 2.0;
        }
        Ok(Self { noise: bisect(low, high, private), ..unit })
    }

    /// The norm to which a gradient is clipped.
    pub fn clip(&self) -> f64 {
        self.clip
    }

    /// The standard deviation of the noise on each scalar.
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// The parameter μ of Gaussian differential privacy after this many rounds.
    pub fn mu(&self, rounds: u64) -> f64 {
        2.0 * self.clip / self.noise * (rounds as f64).sqrt()
    }

    /// The exact δ at this ε after this many rounds.
    pub fn delta(&self, rounds: u64, epsilon: f64) -> Result<f64, PrivacyError> {
        Ok(gaussian_delta(checked_epsilon(epsilon)?, self.mu(rounds)))
    }

    /// The exact ε at this δ after this many rounds.
    pub fn epsilon(&self, rounds: u64, delta: f64) -> Result<f64, PrivacyError> {
        let delta = checked_delta(delta)?;
        let mu = self.mu(rounds);
        Ok(smallest_epsilon(|epsilon| gaussian_delta(epsilon, mu) <= delta))
    }

    /// The largest number of rounds that stay (ε, δ)-private. It stops at [`MOST_SCALARS`].
    pub fn rounds_within(&self, epsilon: f64, delta: f64) -> Result<u64, PrivacyError> {
        let (epsilon, delta) = (checked_epsilon(epsilon)?, checked_delta(delta)?);
        Ok(largest_count(MOST_SCALARS, |rounds| gaussian_delta(epsilon, self.mu(rounds)) <= delta))
    }

    /// The Rényi divergence of this order after this many rounds: `order μ² / 2`.
    pub fn renyi(&self, order: f64, rounds: u64) -> f64 {
        order * self.mu(rounds).powi(2) / 2.0
    }

    /// Clips the vector to the mechanism's norm, in place.
    pub fn clip_vector(&self, vector: &mut [f64]) {
        let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        if norm > self.clip {
            // A last part in 2^50 is given away, so that rounding cannot leave the norm above the bound the account rests on.
            let factor = self.clip / norm * (1.0 - f64::EPSILON * 4.0);
            vector.iter_mut().for_each(|v| *v *= factor);
        }
    }
}

/// What the sketch protects and what it does not, a sentence each, for people.
pub fn threat_model() -> &'static [&'static str] {
    &[
        "The sketch protects only against someone who has neither the seed nor any iterate or model of the run.",
        "Every machine has the seed: towards the other machines of the run, and whoever reads one of them, nothing is hidden.",
        "Whoever has the seed rebuilds from a machine's m scalars the projection of its gradient on m known directions.",
        "Whoever lacks the seed learns the norm of the gradient, to a relative error of about 1/sqrt(2 m K) \
         after K rounds, and not its direction.",
        "The epsilon reported is for an observer of one stream: one machine's scalars, or the sums.",
        "An observer of two machines' scalars sees the inner product of their gradients too, and no epsilon is reported against that.",
        "Neighbours are two gradients that differ by a fraction of their norm; this is not differential privacy \
         of a record, a person or a machine.",
        "The norms are taken as given: what the iterates betray through how the norms change from round to round is not in the account.",
        "It holds for the Gaussian family with unquantised scalars and no shifts; for other families and for \
         wire q there is no epsilon to report.",
        "The account is in real numbers: what finite precision and timing betray is not in it.",
        "A model that is published tells about the data whatever was sent; only noise (the Gaussian mechanism) bounds that.",
        "A seed serves one run: two runs over changed data with the same seed and rounds show the difference of their gradients.",
        "The scalars are not authenticated by the sketch: whoever can change messages can steer the model. Use TLS or a trusted network.",
    ]
}

fn checked_delta(delta: f64) -> Result<f64, PrivacyError> {
    if delta > 0.0 && delta < 1.0 { Ok(delta) } else { Err(PrivacyError::Delta(delta)) }
}

fn checked_epsilon(epsilon: f64) -> Result<f64, PrivacyError> {
    if epsilon >= 0.0 && epsilon.is_finite() { Ok(epsilon) } else { Err(PrivacyError::Epsilon(epsilon)) }
}

fn checked_scalars(scalars: u64) -> Result<u64, PrivacyError> {
    if (1..=MOST_SCALARS).contains(&scalars) { Ok(scalars) } else { Err(PrivacyError::Scalars(scalars)) }
}

/// The δ of the module's formula. At t the densities satisfy `f(t) = e^ε f(t/r²)/r²`, so that e^ε, which overflows, drops out:
/// `δ = f(t) (G(t) - r² G(t/r²))` with G the survival (r < 1) or the distribution (r > 1) over the density.
fn delta_of(epsilon: f64, ratio: f64, scalars: u64) -> f64 {
    if ratio == 1.0 {
        return 0.0;
    }
    let chi = ChiSquare::new(scalars);
    // r⁻² - 1 without cancellation.
    let curvature = (1.0 - ratio) * (1.0 + ratio) / (ratio * ratio);
    let threshold = 2.0 * (epsilon - chi.degrees * ratio.ln()) / curvature;
    if threshold <= 0.0 {
        return 0.0;
    }
    let tail = if ratio < 1.0 { Tail::Upper } else { Tail::Lower };
    let near = chi.ln_tail_over_density(threshold, tail);
    let far = chi.ln_tail_over_density(threshold / (ratio * ratio), tail);
    let ln_share = 2.0 * ratio.ln() + far - near;
    (chi.ln_density(threshold) + near).exp().min(1.0) * -ln_share.min(0.0).exp_m1()
}

/// The δ of μ-Gaussian privacy at ε, `Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)`, by the same cancellation of e^ε.
fn gaussian_delta(epsilon: f64, mu: f64) -> f64 {
    if mu == 0.0 {
        return 0.0;
    }
    let (near, far) = (epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0);
    let ln_density = -0.5 * near * near - 0.5 * (2.0 * std::f64::consts::PI).ln();
    let (near, far) = (ln_normal_tail_over_density(near), ln_normal_tail_over_density(far));
    (ln_density + near).exp().min(1.0) * -(far - near).min(0.0).exp_m1()
}

/// ln((1 - Φ(x))/φ(x)), from the chi-square distribution with one degree: P(|Z| > |x|) is its survival at x².
fn ln_normal_tail_over_density(x: f64) -> f64 {
    let ln_density = -0.5 * x * x - 0.5 * (2.0 * std::f64::consts::PI).ln();
    if x == 0.0 {
        return -std::f64::consts::LN_2 - ln_density;
    }
    let chi = ChiSquare::new(1);
    let ln_half_tail = chi.ln_density(x * x) + chi.ln_tail_over_density(x * x, Tail::Upper) - std::f64::consts::LN_2;
    if x > 0.0 { ln_half_tail - ln_density } else { (-ln_half_tail.exp()).ln_1p() - ln_density }
}

#[derive(Clone, Copy, PartialEq)]
enum Tail {
    Lower,
    Upper,
}

/// The chi-square distribution in logarithms. `statrs` gives the tails themselves, from `a ln x - x - ln_gamma(a)`: that loses
/// eight digits at 10^7 degrees and underflows far out; here the large terms are cancelled on paper.
struct ChiSquare {
    degrees: f64,
    /// ln Γ(a) less Stirling's `(a - 1/2) ln a - a + ln(2π)/2`, a = degrees/2.
    stirling_error: f64,
}

impl ChiSquare {
    fn new(degrees: u64) -> Self {
        let degrees = degrees as f64;
        let a = degrees / 2.0;
        let stirling_error = if a < 16.0 {
            ln_gamma(a) - ((a - 0.5) * a.ln() - a + 0.5 * (2.0 * std::f64::consts::PI).ln())
        } else {
            // The next term is 1/(1188 a^9), below 1e-13 from a = 16 on.
            let s = 1.0 / (a * a);
            (1.0 / 12.0 - s * (1.0 / 360.0 - s * (1.0 / 1260.0 - s / 1680.0))) / a
        };
        Self { degrees, stirling_error }
    }

    fn ln_density(&self, x: f64) -> f64 {
        let (a, y) = (self.degrees / 2.0, x / 2.0);
        let u = (x - self.degrees) / self.degrees;
        // u - ln(1 + u) is a cancellation on purpose: what is lost is a |u| 1e-16, 1e-11 in the worst case of 10^10 degrees.
        let exponent = if u > -0.9 { a * (u - u.ln_1p()) } else { a * (u - (y / a).ln()) };
        -exponent + 0.5 * (a / (2.0 * std::f64::consts::PI)).ln()
            - y.ln()
            - self.stirling_error
            - std::f64::consts::LN_2
    }

    /// ln of the tail's probability at x > 0, over the density there.
    fn ln_tail_over_density(&self, x: f64, tail: Tail) -> f64 {
        let (a, y) = (self.degrees / 2.0, x / 2.0);
        let direct = if y > a { Tail::Upper } else { Tail::Lower };
        let ratio = match direct {
            Tail::Upper => 2.0 * y * upper_fraction(a, y),
            Tail::Lower => 2.0 * y / a * lower_series(a, y),
        };
        if direct == tail {
            return ratio.ln();
        }
        let ln_density = self.ln_density(x);
        // The other tail is the smaller one, or nearly: one minus it loses nothing.
        (-(ln_density + ratio.ln()).exp()).ln_1p() - ln_density
    }
}

/// Legendre's continued fraction of Γ(a, y) e^y y^-a for y > a, by the modified Lentz algorithm; about √a terms near y = a.
fn upper_fraction(a: f64, y: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = y + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / if b.abs() < TINY { TINY } else { b };
    let mut fraction = d;
    let mut i = 1.0;
    loop {
        let term = -i * (i - a);
        b += 2.0;
        d = term * d + b;
        d = 1.0 / if d.abs() < TINY { TINY } else { d };
        c = b + term / c;
        c = if c.abs() < TINY { TINY } else { c };
        let factor = d * c;
        fraction *= factor;
        if (factor - 1.0).abs() <= f64::EPSILON || i > 1e8 {
            return fraction;
        }
        i += 1.0;
    }
}

/// 1 + y/(a+1) + y²/((a+1)(a+2)) + ..., all terms positive; for y <= a about 9 √a terms.
fn lower_series(a: f64, y: f64) -> f64 {
    let (mut term, mut sum, mut n) = (1.0, 1.0, 1.0);
    loop {
        term *= y / (a + n);
        sum += term;
        if term < sum * 1e-17 {
            return sum;
        }
        n += 1.0;
    }
}

/// The smallest ε >= 0 that `private` accepts, to twelve digits and from above; `private` holds from some ε on.
fn smallest_epsilon(private: impl Fn(f64) -> bool) -> f64 {
    if private(0.0) {
        return 0.0;
    }
    let mut high = 1.0;
    while !private(high) {
        high *= 2.0;
    }
    bisect(0.0, high, private)
}

/// Halves [low, high], of which `accepts` holds at the upper end only, and returns the upper end.
fn bisect(mut low: f64, mut high: f64, accepts: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if high - low <= 1e-13 * high || middle <= low || middle >= high {
            break;
        }
        if accepts(middle) { high = middle } else { low = middle }
    }
    high
}

/// The largest count up to `most` that `accepts`, 0 where 1 is refused; `accepts` holds up to some count.
fn largest_count(most: u64, accepts: impl Fn(u64) -> bool) -> u64 {
    let (mut accepted, mut refused) = (0, 1);
    while refused <= most && accepts(refused) {
        accepted = refused;
        refused *= 2;
    }
    refused = refused.min(most + 1);
    while refused - accepted > 1 {
        let middle = accepted + (refused - accepted) / 2;
        if accepts(middle) { accepted = middle } else { refused = middle }
    }
    accepted
}

/// The smallest ε over all orders of `D(a) + ln((a-1)/a) - (ln δ + ln a)/(a-1)` (Canonne, Kamath, Steinke: The discrete Gaussian,
/// proposition 12). Every order gives a valid ε, so the search need not be exact to be right.
fn best_conversion(delta: f64, divergence: impl Fn(f64) -> f64) -> f64 {
    let at = |log: f64| {
        let above = log.exp();
        let order = 1.0 + above;
        let divergence = divergence(order);
        if divergence.is_finite() {
            divergence + (above / order).ln() - (delta.ln() + order.ln()) / above
        } else {
            f64::INFINITY
        }
    };
    let (mut centre, mut width) = (0.0, 30.0);
    let mut best = f64::INFINITY;
    while width > 1e-9 {
        const POINTS: i32 = 64;
        let grid = (-POINTS..=POINTS).map(|i| centre + width * f64::from(i) / f64::from(POINTS));
        let (log, value) =
            grid.map(|log| (log, at(log))).fold((centre, f64::INFINITY), |a, b| if b.1 < a.1 { b } else { a });
        best = best.min(value);
        (centre, width) = (log, width / 16.0);
    }
    best.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewire_sketch::{CommonRandomness, Purpose, Seed, Words};

    fn accountant() -> Accountant {
        Accountant::new(0.01, 1e-5).unwrap()
    }

    /// Two independent standard Gaussians, by Box and Muller.
    fn gaussians(words: &mut Words) -> [f64; 2] {
        let radius = (-2.0 * (1.0 - words.next_unit()).ln()).sqrt();
        let angle = 2.0 * std::f64::consts::PI * words.next_unit();
        [radius * angle.cos(), radius * angle.sin()]
    }

    #[test]
    fn epsilon_has_the_known_values() {
        for (scalars, known) in [(10, 0.225), (100, 0.595), (1000, 1.888), (10_000, 6.787)] {
            let epsilon = accountant().epsilon(scalars).unwrap();
            // The known values are rounded to three decimals.
            assert!((epsilon - known).abs() <= 6e-4, "{scalars}: {epsilon}");
        }
    }

    #[test]
    fn the_paper_claim_holds_up_to_1451_scalars_and_not_from_1452_on() {
        let accountant = accountant();
        // 20 * 0.01 * ln(10^5) = ln 10.
        assert!((accountant.paper_epsilon() - std::f64::consts::LN_10).abs() < 1e-12);
        assert_eq!(accountant.paper_holds_up_to(), 1451);
        for scalars in [1, 10, 100, 1000, 1451] {
            assert!(accountant.paper_holds(scalars).unwrap(), "{scalars}");
        }
        for scalars in [1452, 2000, 10_000, 1_000_000, 10_000_000] {
            assert!(!accountant.paper_holds(scalars).unwrap(), "{scalars}");
        }
    }

    #[test]
    fn the_true_privacy_loss_has_the_exact_delta_in_both_directions() {
        // Vectors x and y are projected on real Gaussian directions; L is the log ratio of the two densities at what came out. The
        // estimate of δ is the mean of max(0, 1 - e^(ε - L)); the bound is five of its standard errors, and the seed is fixed.
        let settings = [(0.7, 4, 0.5), (0.9, 20, 0.3), (0.97, 60, 0.1), (1.2, 10, 0.2), (1.05, 40, 0.1), (1.5, 3, 0.4)];
        let randomness = CommonRandomness::new(&Seed::reproducible(11));
        for (setting, &(ratio, scalars, epsilon)) in settings.iter().enumerate() {
            let mut words = randomness.words(Purpose::Synthetic, 0, setting as u32);
            let (x, y) = ([1.2, -1.6], [-2.0 * ratio, 0.0]);
            let (variance_x, variance_y): (f64, f64) = (4.0, 4.0 * ratio * ratio);
            const RUNS: usize = 100_000;
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..RUNS {
                let mut loss = 0.0;
                for _ in 0..scalars {
                    let xi = gaussians(&mut words);
                    let p = xi[0] * x[0] + xi[1] * x[1];
                    loss += 0.5 * (variance_y / variance_x).ln() + 0.5 * p * p * (1.0 / variance_y - 1.0 / variance_x);
                }
                let term = (1.0 - (epsilon - loss).exp()).max(0.0);
                sum += term;
                squares += term * term;
            }
            assert!((y[0] * y[0] + y[1] * y[1] - variance_y).abs() < 1e-12);
            let mean = sum / RUNS as f64;
            let error = ((squares / RUNS as f64 - mean * mean) / RUNS as f64).sqrt();
            let exact = delta(epsilon, ratio, scalars).unwrap();
            assert!(exact > 1e-3, "the setting {setting} would show nothing");
            assert!((mean - exact).abs() < 5.0 * error, "{setting}: {mean} +- {error} against {exact}");
        }
    }

    #[test]
    fn delta_has_the_digits_of_a_multiprecision_evaluation() {
        // The module's formula with 50 digits by mpmath's gammainc; the rows of 10^7 scalars by its quadrature with 30.
        let known = [
            (0.125, 0.99, 1, 4.981_403_698_098_652e-6),
            (0.5, 0.99, 100, 6.320_689_643_857_782e-5),
            (1.75, 0.990234375, 1000, 2.073_097_813_797_951_4e-5),
            (0.25, 1.015625, 50, 2.012_644_617_064_929_6e-3),
            (1.0, 1.015625, 1000, 3.329_576_149_741_686_7e-2),
            (0.001, 0.9999990463256836, 1, 5.738_942_075_463_142e-236),
            (8.0, 0.9921875, 20_000, 3.175_447_563_867_763_8e-6),
            (7.0, 1.0078125, 20_000, 1.932_359_244_762_307e-5),
            (20.0, 0.9990234375, 10_000_000, 5.132_741_053_346_181e-3),
            (18.0, 1.0009765625, 10_000_000, 1.657_788_174_429_432e-2),
            (50.0, 0.998046875, 10_000_000, 7.436_818_250_693_983e-2),
        ];
        for (epsilon, ratio, scalars, known) in known {
            let delta = delta(epsilon, ratio, scalars).unwrap();
            // Rounding of t is worth some 1e-11 in the exponent at 10^7 scalars, and 1e-13/(1 - r) is lost in the difference.
            assert!((delta / known - 1.0).abs() < 1e-9, "{epsilon} {ratio} {scalars}: {delta} {known}");
        }
    }

    #[test]
    fn the_outermost_ratios_are_the_worst() {
        for adjacency in [0.001, 0.01, 0.09, 0.4] {
            let accountant = Accountant::new(adjacency, 1e-5).unwrap();
            for scalars in [1, 7, 100, 10_000] {
                for epsilon in [0.0, 0.01, 0.3, 2.0] {
                    let worst = accountant.delta_at(epsilon, scalars).unwrap();
                    for ratio in [
                        1.0 + adjacency,
                        1.0 - adjacency,
                        1.0 / (1.0 + adjacency),
                        1.0 / (1.0 - adjacency),
                        1.0 - adjacency / 3.0,
                    ] {
                        assert!(delta(epsilon, ratio, scalars).unwrap() <= worst);
                    }
                }
            }
        }
    }

    #[test]
    fn delta_falls_with_epsilon_and_grows_with_the_scalars_and_the_adjacency() {
        let scalars = [1, 2, 5, 30, 33, 100, 1000, 31_000, 1_000_000, 10_000_000];
        for pair in scalars.windows(2) {
            for epsilon in [0.0, 0.1, 1.0, 8.0] {
                let [few, many] = [pair[0], pair[1]].map(|scalars| accountant().delta_at(epsilon, scalars).unwrap());
                assert!(few <= many && (0.0..=1.0).contains(&many), "{pair:?} {epsilon}: {few} {many}");
                assert!(accountant().delta_at(epsilon + 0.01, pair[0]).unwrap() <= few);
                assert!(Accountant::new(0.02, 1e-5).unwrap().delta_at(epsilon, pair[0]).unwrap() >= few);
            }
        }
    }

    #[test]
    fn epsilon_is_finite_and_tight_from_one_scalar_to_ten_million_and_down_to_a_delta_of_1e_12() {
        for adjacency in [1e-4, 0.01, 0.1, 0.5] {
            for delta in [1e-12, 1e-5, 1e-2] {
                let accountant = Accountant::new(adjacency, delta).unwrap();
                let mut last = 0.0;
                for scalars in [1, 3, 31, 32, 1000, 100_000, 10_000_000] {
                    let epsilon = accountant.epsilon(scalars).unwrap();
                    assert!(epsilon.is_finite() && epsilon >= last);
                    if epsilon > 0.0 {
                        let back = accountant.delta_at(epsilon, scalars).unwrap();
                        // ε is known to 1e-13 of itself; δ changes by a factor of at most e^(ε slope), slope <= ln(1/δ)/(Δ M) and 1/Δ.
                        assert!(back <= delta && back >= delta * (1.0 - 1e-6), "{adjacency} {delta} {scalars}: {back}");
                    }
                    last = epsilon;
                }
            }
        }
    }

    #[test]
    fn many_scalars_agree_with_the_central_limit() {
        // L is nearly normal with mean ν and variance 2ν for M large and Δ small, so the scalars are μ-Gaussian-private with μ = Δ sqrt(2
        // M).
        let (adjacency, scalars) = (1e-4, 10_000_000);
        let accountant = Accountant::new(adjacency, 1e-6).unwrap();
        let mu = adjacency * (2.0 * scalars as f64).sqrt();
        let normal = smallest_epsilon(|epsilon| gaussian_delta(epsilon, mu) <= 1e-6);
        let exact = accountant.epsilon(scalars).unwrap();
        // The skewness of L is sqrt(8/M) = 9e-4, which moves a quantile 5 deviations out by (25 - 1)/6 skewness, 1e-3 of it.
        assert!((exact / normal - 1.0).abs() < 3e-3, "{exact} {normal}");
    }

    #[test]
    fn the_tails_agree_with_statrs_where_statrs_is_exact() {
        for degrees in [1, 2, 9, 31, 32, 33, 200] {
            let chi = ChiSquare::new(degrees);
            for factor in [0.2, 0.8, 1.0, 1.1, 2.5] {
                let x = degrees as f64 * factor;
                let lower = (chi.ln_density(x) + chi.ln_tail_over_density(x, Tail::Lower)).exp();
                let upper = (chi.ln_density(x) + chi.ln_tail_over_density(x, Tail::Upper)).exp();
                let reference = statrs::function::gamma::gamma_lr(degrees as f64 / 2.0, x / 2.0);
                let reference_upper = statrs::function::gamma::gamma_ur(degrees as f64 / 2.0, x / 2.0);
                assert!((lower / reference - 1.0).abs() < 1e-11, "{degrees} {x}: {lower} {reference}");
                assert!((upper / reference_upper - 1.0).abs() < 1e-11, "{degrees} {x}: {upper} {reference_upper}");
                assert!((lower + upper - 1.0).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn the_tails_of_two_degrees_are_exponentials_however_far_out() {
        let chi = ChiSquare::new(2);
        for x in [1e-8, 1e-3, 1.0, 50.0, 1e3, 1e6] {
            let ln_upper = chi.ln_density(x) + chi.ln_tail_over_density(x, Tail::Upper);
            assert!((ln_upper + x / 2.0).abs() <= 1e-14 * x.max(1.0), "{x}: {ln_upper}");
            let lower = chi.ln_density(x) + chi.ln_tail_over_density(x, Tail::Lower);
            assert!((lower - (-(-x / 2.0).exp_m1()).ln()).abs() < 1e-12, "{x}: {lower}");
        }
    }

    #[test]
    fn the_rounds_within_an_epsilon_are_the_last_that_fit() {
        for (epsilon, budget) in [(0.3, 1), (0.5, 10), (1.0, 7), (3.0, 50), (10.0, 64)] {
            let rounds = accountant().rounds_within(epsilon, budget).unwrap();
            assert!(rounds > 0);
            assert!(accountant().epsilon(rounds * budget).unwrap() <= epsilon + 1e-9);
            assert!(accountant().epsilon((rounds + 1) * budget).unwrap() > epsilon);
        }
        assert_eq!(accountant().rounds_within(0.1, 1000).unwrap(), 0);
        let exact = accountant().epsilon(5000).unwrap();
        assert_eq!(accountant().rounds_within(exact, 50).unwrap(), 100);
    }

    #[test]
    fn the_renyi_form_bounds_the_exact_epsilon_closely() {
        for scalars in [1, 10, 100, 1000, 10_000, 1_000_000] {
            let exact = accountant().epsilon(scalars).unwrap();
            let bound = accountant().renyi_epsilon(scalars).unwrap();
            assert!(bound >= exact, "{scalars}: {bound} below {exact}");
            if scalars >= 100 {
                // Rényi's is Chernoff's bound, which misses the factor z sqrt(2π), about 11 at the z of 1e-5: 2.4 of ln(1/δ) = 11.5,
                // and ε grows with the square root of that: by 12 per cent.
                assert!(bound <= 1.15 * exact, "{scalars}: {bound} against {exact}");
            }
        }
    }

    #[test]
    fn a_ledger_of_equal_rounds_is_the_renyi_form_and_one_of_milder_rounds_is_less() {
        let delta = 1e-5;
        let (mut equal, mut mild) = (RenyiLedger::new(), RenyiLedger::new());
        for round in 0..100 {
            equal.release(0.99, 10).unwrap();
            mild.release(if round % 2 == 0 { 0.995 } else { 1.003 }, 10).unwrap();
        }
        let bound = Accountant::new(0.01, delta).unwrap().renyi_epsilon(1000).unwrap();
        assert!((equal.epsilon(delta).unwrap() - bound).abs() < 1e-6 * bound);
        assert!(mild.epsilon(delta).unwrap() < bound);
        assert_eq!(RenyiLedger::new().epsilon(delta).unwrap(), 0.0);
    }

    #[test]
    fn the_renyi_divergence_is_the_integral_it_stands_for() {
        // D_a = ln(∫ p^a q^(1-a))/(a-1), by the trapezoid rule, which converges geometrically on such integrands.
        for (order, ratio) in [(2.0, 0.8), (3.0, 1.3), (1.5, 0.95), (10.0, 1.02)] {
            let variance: f64 = ratio * ratio;
            let ln_normal = |z: f64, v: f64| -0.5 * z * z / v - 0.5 * (2.0 * std::f64::consts::PI * v).ln();
            let step = 1e-3;
            let integral: f64 = (-40_000..=40_000)
                .map(|i| f64::from(i) * step)
                .map(|z| (order * ln_normal(z, 1.0) + (1.0 - order) * ln_normal(z, variance)).exp() * step)
                .sum();
            let reference = integral.ln() / (order - 1.0);
            assert!((renyi_per_scalar(order, ratio) - reference).abs() < 1e-10, "{order} {ratio}");
        }
        assert_eq!(renyi_per_scalar(10.0, 0.5), f64::INFINITY);
    }

    #[test]
    fn two_machines_together_betray_what_one_alone_hides() {
        // g_1 = g_2 = e_1, or g_1 = e_1 + Δ e_2: alone the ratio is sqrt(1 + Δ²), and the loss slight. Together the observer subtracts
        // the two streams: the difference is 0 in the first case and Δ <xi, e_2> in the second, never 0. So no ε is finite.
        let adjacency: f64 = 0.01;
        assert!(delta(0.01, (1.0 + adjacency * adjacency).sqrt(), 10).unwrap() < 1e-6);
        let mut words = CommonRandomness::new(&Seed::reproducible(5)).words(Purpose::Synthetic, 0, 0);
        for _ in 0..1000 {
            let xi = gaussians(&mut words);
            let (second, first, neighbour) = (xi[0], xi[0], xi[0] + adjacency * xi[1]);
            assert!(first - second == 0.0 && neighbour - second != 0.0);
        }
    }

    #[test]
    fn the_gaussian_mechanism_has_the_known_curve() {
        // Dong, Roth, Su, corollary 2.13: δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2), evaluated with 50 digits by mpmath.
        let known = [
            (0.5, 1.0, 0.006_829_594_983_114_575),
            (3.0, 4.0, 0.440_429_762_786_311_9),
            (0.1, 0.2, 0.000_937_445_959_328_599_1),
            (0.1, 1.0, 1.230_835_983_642_704_2e-25),
        ];
        for (mu, epsilon, delta) in known {
            assert!((gaussian_delta(epsilon, mu) / delta - 1.0).abs() < 1e-11, "{mu} {epsilon}");
        }
        // μ = 1 is (0, 2Φ(1/2) - 1)-private, and large ε neither overflow nor go negative.
        assert!((gaussian_delta(0.0, 1.0) - 0.382_924_922_548_026).abs() < 1e-12);
        assert!((0.0..=1.0).contains(&gaussian_delta(1e5, 300.0)));
    }

    #[test]
    fn noise_rounds_and_epsilon_of_the_gaussian_mechanism_are_inverse() {
        for (rounds, epsilon, delta) in [(1, 1.0, 1e-5), (100, 2.0, 1e-6), (10_000, 0.5, 1e-12)] {
            let mechanism = GaussianMechanism::for_rounds(3.0, rounds, epsilon, delta).unwrap();
            let back = mechanism.epsilon(rounds, delta).unwrap();
            assert!((back - epsilon).abs() < 1e-9 * epsilon.max(1.0), "{back}");
            // The noise was found to thirteen digits from above, so that all the rounds fit, and not one more.
            assert_eq!(mechanism.rounds_within(epsilon, delta).unwrap(), rounds);
            // The Rényi bound is above the exact value.
            assert!(best_conversion(delta, |order| mechanism.renyi(order, rounds)) >= epsilon - 1e-9);
        }
    }

    #[test]
    fn clipping_leaves_short_vectors_alone_and_shortens_long_ones() {
        let mechanism = GaussianMechanism::new(1.0, 2.0).unwrap();
        let (mut short, mut long) = ([0.3, -0.4], [3.0, -4.0]);
        mechanism.clip_vector(&mut short);
        mechanism.clip_vector(&mut long);
        assert_eq!(short, [0.3, -0.4]);
        let norm = (long[0] * long[0] + long[1] * long[1]).sqrt();
        assert!(norm <= 1.0 && norm > 1.0 - 1e-14);
    }

    #[test]
    fn what_cannot_be_accounted_is_refused_by_name() {
        for bad in [0.0, 1.0, -0.1, f64::NAN] {
            assert!(Accountant::new(bad, 1e-5).unwrap_err().to_string().contains("`adjacency`"));
            assert!(Accountant::new(0.01, bad).unwrap_err().to_string().contains("`delta`"));
        }
        assert!(accountant().epsilon(0).unwrap_err().to_string().contains("`scalars`"));
        assert!(accountant().delta_at(f64::INFINITY, 5).unwrap_err().to_string().contains("`epsilon`"));
        assert!(delta(1.0, 0.0, 5).unwrap_err().to_string().contains("`ratio`"));
        assert!(GaussianMechanism::new(0.0, 1.0).unwrap_err().to_string().contains("`clip`"));
        assert!(GaussianMechanism::new(1.0, 0.0).unwrap_err().to_string().contains("`noise`"));
        assert!(GaussianMechanism::for_rounds(1.0, 0, 1.0, 1e-5).is_err());
    }

    #[test]
    fn the_threat_model_names_the_seed_and_the_records() {
        let text = threat_model().join(" ");
        assert!(text.contains("seed") && text.contains("record") && text.contains("Gaussian family"));
    }

    #[test]
    fn the_tables_of_the_privacy_page_are_true() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/privacy.md")).unwrap();
        for scalars in [10, 100, 1000, 1451, 1452, 10_000, 100_000, 1_000_000] {
            let epsilon = accountant().epsilon(scalars).unwrap();
            let bound = accountant().renyi_epsilon(scalars).unwrap();
            let at_paper = accountant().delta_at(accountant().paper_epsilon(), scalars).unwrap();
            let holds = if accountant().paper_holds(scalars).unwrap() { "yes" } else { "no" };
            let row = format!("| {scalars} | {epsilon:.3} | {bound:.3} | 2.303 | {at_paper:.2e} | {holds} |");
            assert!(page.contains(&row), "the page lacks the row {row}");
        }
        for (adjacency, delta) in [(0.001, 1e-5), (0.01, 1e-5), (0.01, 1e-8), (0.05, 1e-5), (0.09, 1e-5)] {
            let accountant = Accountant::new(adjacency, delta).unwrap();
            let (claim, most) = (accountant.paper_epsilon(), accountant.paper_holds_up_to());
            let row = format!("| {adjacency} | {delta:e} | {claim:.3} | {most} |");
            assert!(page.contains(&row), "the page lacks the row {row}");
        }
        for (rounds, epsilon) in [(1, 1.0), (100, 1.0), (1000, 1.0), (1000, 8.0)] {
            let mechanism = GaussianMechanism::for_rounds(1.0, rounds, epsilon, 1e-5).unwrap();
            let row = format!("| {rounds} | {epsilon} | {:.2} |", mechanism.noise());
            assert!(page.contains(&row), "the page lacks the row {row}");
        }
        for sentence in threat_model() {
            assert!(page.contains(sentence), "the page lacks the sentence: {sentence}");
        }
    }
}
