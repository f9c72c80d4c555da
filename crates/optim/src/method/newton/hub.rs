//! The hub of CORE-Newton: from the machines' quantised gradients, and rows of their curvature, to one quantised step. All of its state
//! is machine 0's.

use corewire_algebra::vector::{add_scaled, dot, norm_squared};
use corewire_comm::CommError;
use corewire_comm::numbers::Number;
use corewire_sketch::code::{SpreadDecoder, SpreadEncoder};
use corewire_sketch::{CommonRandomness, Purpose};

use super::code::{CodedVector, Energies, dithers, push_short, refused, round_short};
use super::composite::Composite;
use super::link::{Link, read_factors_head};
use super::own::{Found, Own};
use super::preconditioner::{Preconditioner, block_mean};
use super::{MOST_TELLINGS, Reply, Rules, most_rows};
use crate::method::secants::Secants;
use crate::state::{Scope, Visitor};

/// Secant pairs that are kept.
const PAIRS: usize = 20;
/// How often factors are asked for again at most within a few exchanges, and, where progress is slow, how many exchanges apart.
const REFRESHES: f64 = MOST_TELLINGS as f64 - 1.0;
const APART: u64 = 2;
/// Off quadratics the hub's own curvature stands as long as x has moved by less than this share of its length.
const NEAR: f64 = 0.3;
/// With more detail, rows that change with x are told anew as long as x moves by more than this share of its length.
const MOVED: f64 = 0.1;
/// Curvature that nobody told is allowed for where it is more than this share of what was told.
const UNTOLD: f64 = 0.5;
/// The share of added curvature that is forgotten after an accepted step along which P has more than it needs.
const FORGET: f64 = 0.2;

/// The last accepted point and what was measured there.
struct Base {
    x: Vec<f64>,
    gradient: Vec<f64>,
    /// Variance of a coordinate of the gradient.
    noise: f64,
    value: f64,
    energy: f64,
    /// By how much f fell on the way here.
    gain: f64,
}

/// What the hub's own curvature is good for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Standing {
    /// It stands for that of all machines.
    All,
    /// The machines are unlike: it stands for what they leave out of what they tell.
    Rest,
    /// The hub has too few rows.
    Nothing,
}

/// What is known before the first exchange.
pub(super) struct Outset {
    pub machines: usize,
    /// In the active columns.
    pub x: Vec<f64>,
    pub trace: f64,
    /// The hub's own curvature there, scaled.
    pub own: Option<Found>,
    pub scale: f64,
    pub standing: Standing,
}

pub(super) struct Hub {
    rules: Rules,
    /// Coordinates of a block.
    columns: usize,
    /// A bound on the trace of the mean Hessian, and so on its largest eigenvalue.
    trace: f64,
    links: Vec<Link>,
    mean_shift: Vec<f64>,
    preconditioner: Option<Preconditioner>,
    /// The hub's own curvature where it was last taken, until it is used; on quadratics it stays.
    own: Option<Found>,
    /// By how much more rows the mean machine has than the hub: its curvature counts so many times.
    scale: f64,
    standing: Standing,
    /// Where the hub's own curvature was last taken.
    curved_at: Vec<f64>,
    /// Curvature added to the preconditioner where it was found to lack some.
    added: f64,
    secants: Secants,
    base: Option<Base>,
    /// f at the start.
    first_value: f64,
    last_energy: f64,
    rho: f64,
    /// By which energies have fallen of late, per exchange; 0 before the second.
    pace: f64,
    /// How much curvature machines had no room to tell, relative to what they told; no number before it is known.
    untold: f64,
    refreshes: f64,
    /// The exchange in which factors came last.
    factors_at: u64,
    has_factors: bool,
    rejections: f64,
}

/// What the hub is handed beside the messages.
pub(super) struct Here<'a> {
    pub round: u64,
    pub x: &'a [f64],
    /// The last decoded step.
    pub delta: &'a [f64],
    /// The step at which gradients were quantised.
    pub step: f64,
    /// Whether factors were asked for.
    pub asked: bool,
    pub energies: &'a Energies,
    pub randomness: &'a CommonRandomness,
}

impl Hub {
    pub(super) fn new(rules: Rules, columns: usize, outset: Outset) -> Self {
        let Outset { machines, x, trace, own, scale, standing } = outset;
        let links = (0..machines).map(|rank| Link::new(rank, columns, rules.blocks)).collect();
        Self {
            rules,
            columns,
            trace,
            links,
            mean_shift: vec![0.0; columns * rules.blocks],
            preconditioner: None,
            own,
            scale,
            standing,
            curved_at: x,
            added: 0.0,
            secants: Secants::new(PAIRS),
            base: None,
            first_value: f64::NAN,
            last_energy: f64::NAN,
            rho: 0.15,
            pace: 0.0,
            untold: f64::NAN,
            refreshes: 0.0,
            factors_at: 0,
            has_factors: false,
            rejections: 0.0,
        }
    }

    pub(super) fn machines(&self) -> usize {
        self.links.len()
    }

    /// One exchange: all messages in, the reply out.
    pub(super) fn combine(
        &mut self,
        here: &Here<'_>,
        messages: &[&[u8]],
        own: &mut Own<'_>,
    ) -> Result<Vec<u8>, CommError> {
        let n = messages.len() as f64;
        let Rules { alpha, quadratic, .. } = self.rules;
        let Decoded { residuals, value, noise } = self.decode(here, messages)?;
        if here.asked {
            self.take_factors(here.round, here.x, own);
        }
        // g~ = mean(pr_i + q_i), and the shifts follow.
        let mut gradient = self.mean_shift.clone();
        add_scaled(alpha, here.delta, &mut gradient);
        let mut followed = gradient.clone();
        for (residual, theta) in &residuals {
            add_scaled(1.0 / n, residual, &mut gradient);
            add_scaled(theta / n, residual, &mut followed);
        }
        self.mean_shift = followed;
        self.centre(here.x, &mut gradient);
        let first = self.base.is_none();
        let mut unlike = first && !self.has_factors && self.standing != Standing::All;
        if unlike {
            self.distrust();
        }
        if self.has_factors && self.preconditioner.is_none() {
            // After a resume.
            self.build_from_factors(own);
        } else if !self.has_factors && (self.preconditioner.is_none() || self.is_far(here.x)) {
            // After a resume the curvature is that of where it was taken.
            if self.is_far(here.x) {
                self.look_from(here.x);
            }
            let Found { pairs, rest, .. } = self.own_curvature(own);
            let mut p = Preconditioner::from_pairs(pairs, (self.columns, self.rules.blocks), alpha).with_rest(rest);
            p.set_added(self.added);
            self.preconditioner = Some(p);
        }
        // What the last step was tempered by is no curvature that was found.
        self.add_curvature(0.0);
        let mut energy = self.energy(here.x, &gradient, noise);
        let mut inverse_trace = self.preconditioner.as_ref().expect("it was just made").inverse_trace();
        if first && !self.has_factors && !unlike && n > 1.0 && value > 0.0 && 0.5 * energy > value {
            // No loss is below 0, so f cannot fall by E/2: the hub's rows lack columns that other machines have.
            unlike = true;
            self.distrust();
            energy = self.energy(here.x, &gradient, noise);
            inverse_trace = self.preconditioner.as_ref().expect("it was just made").inverse_trace();
        }
        let gap = self.gap(here.x, &gradient, noise, value, energy);
        self.keep_pair(here.x, &gradient, noise, inverse_trace, here.asked);

        let verdict = self.judge(here.x, &gradient, value, noise, inverse_trace);
        if verdict != Verdict::Accepted {
            self.rejections += 1.0;
        } else {
            self.rejections = 0.0;
            if self.added > 0.0 && self.needs_less(here.x, &gradient) {
                self.add_curvature(-FORGET * self.added);
            }
            let gain = self.base.as_ref().map_or(0.0, |base| (base.value - value).max(0.0));
            self.base = Some(Base { x: here.x.to_vec(), gradient, noise, value, energy, gain });
        }
        let base_energy = self.temper();
        let p = self.preconditioner.as_ref().expect("it was made above");
        inverse_trace = p.inverse_trace();
        let base = self.base.as_ref().expect("the first point is always accepted");
        let mut delta: Vec<f64> = base.x.iter().zip(here.x).map(|(base, x)| base - x).collect();
        if verdict != Verdict::Remeasure {
            // A second refusal in a row halves the step, a third halves it again.
            let shorter = if quadratic { 1.0 } else { libm::pow(0.5, (self.rejections - 1.0).max(0.0)) };
            add_scaled(shorter, &self.newton_step(base), &mut delta);
        }
        let ratio = energy / self.last_energy;
        if !ratio.is_nan() {
            self.rho = (0.5 * self.rho + 0.5 * ratio).clamp(0.03, 0.6);
        }
        // Energies by another P do not compare.
        if !ratio.is_nan() && !here.asked && self.added <= alpha {
            // One exchange that goes well is not to be trusted.
            let weight = if ratio > self.pace { 0.3 } else { 0.1 };
            self.pace = (self.pace + weight * (ratio - self.pace)).min(0.99);
        }
        let mut next = self.rho * energy.min(base_energy);
        if verdict == Verdict::Remeasure {
            // What is measured must be the base, also by the energy that it had when it was accepted.
            next = next.min(base.energy) / 16.0;
        }
        self.last_energy = energy;
        let length: f64 = here.x.iter().zip(&delta).map(|(x, delta)| (x + delta) * (x + delta)).sum();
        let moves = norm_squared(&delta) > MOVED * MOVED * length;
        let reply = Reply {
            step: round_short((12.0 * n * self.rules.eta_up * next / inverse_trace).sqrt()),
            step_down: round_short((12.0 * self.rules.eta_down * next / p.trace()).sqrt()),
            gap: if gap.is_finite() { round_short(gap) } else { gap },
            ask: self.asks(here.round, ratio, unlike || first && self.rules.is_eager(), moves),
        };
        Ok(reply.encode(here, &delta))
    }

    /// An estimate of f - f* at x. Where untold curvature lies unevenly, P overrates some directions, and the estimate may be some three times
    /// too small. With added curvature E says too little; without it P may be too flat, and E says too much, which is told
    /// only where it is no more than what f has fallen by: whoever stops by the first of these estimates must not find that too large.
    fn gap(&mut self, x: &[f64], gradient: &[f64], noise: f64, value: f64, energy: f64) -> f64 {
        if self.first_value.is_nan() {
            self.first_value = value;
        }
        if self.added == 0.0 {
            return 0.5 * energy * self.underrated();
        }
        let added = self.added;
        self.add_curvature(-added);
        let cautious = 0.5 * self.energy(x, gradient, noise);
        self.add_curvature(added);
        if added <= self.rules.alpha || cautious <= self.first_value - value {
            cautious * self.underrated()
        } else {
            f64::INFINITY
        }
    }

    /// Whether P would have curvature enough along the last step if some of what was added were forgotten.
    fn needs_less(&self, x: &[f64], gradient: &[f64]) -> bool {
        let (Some(base), Some(p)) = (&self.base, &self.preconditioner) else { return false };
        let (s, y) = (minus(x, &base.x), minus(gradient, &base.gradient));
        dot(&s, &y) < dot(&s, &p.multiply(&s)) - FORGET * self.added * norm_squared(&s)
    }

    /// The hub's rows do not stand for all: no direction is trusted to be flatter than the trace allows.
    fn distrust(&mut self) {
        self.added = 0.0;
        self.add_curvature(self.trace);
    }

    /// Takes the messages apart.
    fn decode(&mut self, here: &Here<'_>, messages: &[&[u8]]) -> Result<Decoded, CommError> {
        let mut all = Decoded { residuals: Vec::new(), value: 0.0, noise: 0.0 };
        let n = messages.len() as f64;
        for (rank, message) in messages.iter().enumerate() {
            let short = || refused(rank, "it is too short");
            let mut rest = *message;
            let factors = if here.asked { Some(read_factors_head(&mut rest).ok_or_else(short)?) } else { None };
            let (value, tail) = rest.split_first_chunk::<4>().ok_or_else(short)?;
            let value = f64::from(f32::read(value));
            let link = &mut self.links[rank];
            if !value.is_finite() {
                return Err(refused(rank, "its value is no number"));
            }
            let replace = !self.rules.quadratic;
            let more = factors.as_ref().map_or(0, |(_, spreads)| spreads.len());
            let count = link.spread_count_with(more, replace && factors.is_some());
            let (spreads, stream) = tail.split_at_checked(count).ok_or_else(short)?;
            let mut decoder = SpreadDecoder::new(stream);
            if let Some((step, bytes)) = &factors {
                link.decode_factors(here.randomness, here.round, (*step, bytes), replace, &mut decoder)
                    .map_err(|error| refused(rank, error))?;
            }
            let residual = link
                .decode_residual(here.randomness, here.round, spreads, here.step, &mut decoder)
                .map_err(|error| refused(rank, error))?;
            decoder.finish().map_err(|error| refused(rank, error))?;
            all.value += value / n;
            all.noise += here.step * here.step / (12.0 * n * n);
            all.residuals.push((residual.vector, residual.theta));
        }
        Ok(all)
    }

    /// Whether x has moved so far from where the hub's own curvature was taken that it is worth taking anew.
    fn is_far(&self, x: &[f64]) -> bool {
        !self.rules.quadratic && norm_squared(&minus(x, &self.curved_at)) > NEAR * NEAR * norm_squared(x)
    }

    /// Puts the blocks' mean of a gradient where it is known to be: the rows' gradients sum to nothing over the blocks.
    fn centre(&self, x: &[f64], gradient: &mut [f64]) {
        if self.rules.blocks > 1 {
            let mut off = block_mean(gradient, self.columns);
            add_scaled(-self.rules.alpha, &block_mean(x, self.columns), &mut off);
            gradient.chunks_exact_mut(self.columns.max(1)).for_each(|block| add_scaled(-1.0, &off, block));
        }
    }

    /// By how much E may be too small where P only stands for the Hessian, as in several blocks. Where P overrates the curvature of a
    /// direction c times, E says a c-th of the gap there, and falls by (1 - 1/c)^2 per exchange: so the pace tells c.
    fn underrated(&self) -> f64 {
        1.0 / (1.0 - self.pace.sqrt())
    }

    /// P = (1/n) sum F'F + alpha; and of what machines leave out for its little curvature, where the hub has rows enough, what it is at the hub,
    /// which costs nobody a byte.
    fn build_from_factors(&mut self, own: &mut Own<'_>) {
        let n = self.links.len() as f64;
        let mut left_out = Vec::new();
        if self.standing != Standing::Nothing {
            let pairs = self.own_curvature(own).pairs;
            for (value, vector) in pairs.values.iter().zip(pairs.vectors).skip(self.links[0].rows.len()) {
                let scale = (n * value).sqrt();
                left_out.push(vector.iter().map(|entry| scale * entry).collect::<Vec<f64>>());
            }
        }
        let energies = self.links.iter().flat_map(|link| &link.rows).chain(&left_out).map(|row| norm_squared(row));
        let told = energies.sum::<f64>() / n;
        let alpha = self.rules.alpha + self.untold(told, own);
        let rows: Vec<&[f64]> =
            self.links.iter().flat_map(|link| &link.rows).chain(&left_out).map(Vec::as_slice).collect();
        let mut p = Preconditioner::from_rows(&rows, 1.0 / n, (self.columns, self.rules.blocks), alpha);
        p.set_added(self.added);
        self.preconditioner = Some(p);
    }

    /// What lies, in the mean, along a direction of the curvature that machines had no room to tell, where they told rows that sum to this: 0
    /// where they left out little, or what is not worth its bytes.
    fn untold(&mut self, told: f64, own: &mut Own<'_>) -> f64 {
        let Rules { alpha, blocks, quadratic, .. } = self.rules;
        let columns = self.columns.max(1) as f64;
        if quadratic || self.untold.is_nan() {
            // The trace of ridge regression, and of logistic regression at 0; elsewhere a bound, of which the hub's rows say what is left.
            let bound = (self.trace - alpha * own.x.len() as f64) / blocks as f64;
            let left = own.share_of_bound(&self.curved_at) * bound - told;
            let room = most_rows(self.rules.detail, self.links.len(), self.columns);
            let is_short = self.links.iter().any(|link| link.rows.len() >= room);
            let counts = is_short && left > UNTOLD * told && left > self.rules.tau(self.links.len()) * columns;
            self.untold = if counts && told > 0.0 { left / told } else { 0.0 };
        }
        // Off quadratics as much of it is told at every x as at first. (In several blocks their mean gets as much, where nothing is to be
        // allowed for: it only follows more slowly.)
        self.untold * told / columns
    }

    /// The hub's own curvature is that at x from now on.
    fn look_from(&mut self, x: &[f64]) {
        self.curved_at = x.to_vec();
        self.own = None;
    }

    fn own_curvature(&mut self, own: &mut Own<'_>) -> Found {
        let found = self.own.take().unwrap_or_else(|| own.curvature(&self.curved_at).scaled(self.scale));
        if self.rules.quadratic {
            self.own = Some(found.clone());
        }
        found
    }

    fn take_factors(&mut self, round: u64, x: &[f64], own: &mut Own<'_>) {
        self.has_factors = true;
        if !self.rules.quadratic && x != self.curved_at {
            self.look_from(x);
        }
        self.factors_at = round;
        self.added = 0.0;
        if !self.rules.quadratic {
            self.secants.clear();
        }
        self.build_from_factors(own);
    }

    /// The secant pair between the base point and x, where it says more than noise.
    fn keep_pair(&mut self, x: &[f64], gradient: &[f64], noise: f64, inverse_trace: f64, fresh: bool) {
        let (Some(base), Some(p)) = (&self.base, &self.preconditioner) else { return };
        if fresh && !self.rules.quadratic {
            return;
        }
        let (s, y) = (minus(x, &base.x), minus(gradient, &base.gradient));
        let clear = (noise + base.noise) * inverse_trace < 0.5 * dot(&y, &p.solve(&y));
        if clear && dot(&s, &y) > 1e-3 * dot(&s, &p.multiply(&s)) {
            self.secants.push(s, y);
        }
    }

    /// Whether the last step is kept. Where f rose by more than the last gain it is taken back; where the base's own gradient was mostly
    /// noise it is measured again. A quadratic with factors needs no such care.
    fn judge(&mut self, x: &[f64], gradient: &[f64], value: f64, noise: f64, inverse_trace: f64) -> Verdict {
        // With an l1 term or bounds f is no quadratic, even where its smooth part is one.
        let quadratic = self.rules.quadratic && self.rules.proximal.is_none();
        let Some(base) = &mut self.base else { return Verdict::Accepted };
        if quadratic && self.has_factors && value <= self.first_value {
            return Verdict::Accepted;
        }
        let slack = if quadratic { base.gain } else { (0.1 * base.energy).min(0.5 * base.gain) };
        if value <= base.value + (1e-6 * base.value.abs()).max(slack) {
            return Verdict::Accepted;
        }
        if base.noise * inverse_trace >= 0.5 * base.energy {
            return Verdict::Remeasure;
        }
        let (s, y) = (minus(x, &base.x), minus(gradient, &base.gradient));
        let along = dot(&s, &y);
        let p = self.preconditioner.as_ref().expect("a base has a preconditioner");
        let missing = (along - dot(&s, &p.multiply(&s))) / norm_squared(&s).max(1e-300);
        if quadratic && along > 0.0 {
            // A quadratic's gradient is affine: the exact minimiser of the segment.
            let t = (-dot(&base.gradient, &s) / along).clamp(0.0, 1.0);
            add_scaled(t, &s, &mut base.x);
            add_scaled(t, &y, &mut base.gradient);
            base.noise = (1.0 - t) * (1.0 - t) * base.noise + t * t * noise;
        }
        if missing > 0.0 {
            self.add_curvature(missing);
        }
        let (Some(base), Some(p)) = (&mut self.base, &self.preconditioner) else { return Verdict::Refused };
        if quadratic && along > 0.0 {
            base.energy = base.energy.max(p.energy(&p.shrink(&base.gradient, base.noise), base.noise));
        }
        Verdict::Refused
    }

    /// E at the base. No loss is below 0, so f cannot fall by E/2 where that is more than f: then P lacks curvature, or the gradient is
    /// mostly noise, and for this step P gets as much more as that takes.
    fn temper(&mut self) -> f64 {
        let base = self.base.as_ref().expect("the first point is always accepted");
        let mut more = self.rules.alpha;
        loop {
            let energy = self.energy(&base.x, &base.gradient, base.noise);
            if base.value <= 0.0 || !energy.is_finite() || 0.5 * energy <= base.value {
                return energy;
            }
            self.preconditioner.as_mut().expect("an energy has a preconditioner").set_added(self.added + more);
            more *= 2.0;
        }
    }

    fn add_curvature(&mut self, more: f64) {
        self.added += more;
        if let Some(p) = &mut self.preconditioner {
            p.set_added(self.added);
        }
    }

    /// E of a gradient at x: of its shrunk form, without an l1 term or bounds; with them, twice what the model of P can fall by.
    fn energy(&self, x: &[f64], gradient: &[f64], noise: f64) -> f64 {
        let p = self.preconditioner.as_ref().expect("an energy has a preconditioner");
        if self.rules.proximal.is_none() {
            return p.energy(&p.shrink(gradient, noise), noise);
        }
        let (_, fall) = Composite::new(p, self.rules.proximal).minimise(x, gradient);
        (2.0 * fall).max(p.least_energy(noise))
    }

    /// The step from the base: -H g, where pairs correct sigma P^-1 and the latest says what sigma is; with an l1 term or bounds, to where
    /// the same model has its minimum together with them.
    fn newton_step(&self, base: &Base) -> Vec<f64> {
        let p = self.preconditioner.as_ref().expect("a step has a preconditioner");
        let sigma = |(s, y): (&[f64], &[f64])| (dot(s, y) / dot(y, &p.solve(y))).min(1.0);
        if !self.rules.proximal.is_none() {
            let latest = self.secants.steps.last().zip(self.secants.changes.last());
            let sigma = latest.map_or(1.0, |(s, y)| sigma((s, y)));
            let model = Composite::new(p, self.rules.proximal).with_pairs(&self.secants, sigma);
            return minus(&model.minimise(&base.x, &base.gradient).0, &base.x);
        }
        let mut step = self.secants.inverse(&p.shrink(&base.gradient, base.noise), |q, latest| {
            let sigma = latest.map_or(1.0, sigma);
            let mut z = p.solve(&q);
            z.iter_mut().for_each(|value| *value *= sigma);
            z
        });
        step.iter_mut().for_each(|value| *value = -*value);
        step
    }

    /// Whether factors are asked for with the next gradient. `at_first` is whether the first gradients say so, `moves` whether x moves far
    /// until then.
    fn asks(&mut self, round: u64, ratio: f64, at_first: bool, moves: bool) -> bool {
        let Rules { curvature, quadratic, blocks, .. } = self.rules;
        if !curvature {
            return false;
        }
        if !self.has_factors {
            return at_first || ratio > 0.5;
        }
        // Rows that change with x are worth telling anew sooner; those of several blocks are told so roughly that they gain less by it.
        let fixed = quadratic || blocks > 1;
        let slow = ratio > if fixed { 0.5 } else { 0.3 } && round >= self.factors_at + APART;
        // Few come early; where rows replace what was told before, more follow after ever longer waits. In several blocks the secant pairs,
        // which a telling clears, correct more than fresh rows do.
        let early = (slow || moves && !fixed && self.rules.is_eager()) && self.refreshes < REFRESHES;
        let late = slow && !fixed && round as f64 >= self.factors_at as f64 + libm::exp2(self.refreshes + 1.0);
        let ask = early || late;
        if ask {
            self.refreshes += 1.0;
        }
        ask
    }

    pub(super) fn visit(&mut self, visitor: &mut dyn Visitor) {
        let mut numbers = [self.added, self.last_energy, self.rho, self.refreshes, self.rejections].to_vec();
        numbers.extend([
            self.scale,
            f64::from(self.standing as u8),
            f64::from(u8::from(self.has_factors)),
            self.factors_at as f64,
            self.trace,
            self.pace,
            self.untold,
            self.first_value,
        ]);
        visitor.vector(Scope::Local, "hub_numbers", &mut numbers);
        if let &[
            added,
            last_energy,
            rho,
            refreshes,
            rejections,
            scale,
            standing,
            has_factors,
            factors_at,
            trace,
            pace,
            untold,
            first_value,
        ] = &numbers[..]
        {
            self.scale = scale;
            self.standing = [Standing::All, Standing::Rest, Standing::Nothing][(standing as usize).min(2)];
            (self.added, self.last_energy, self.rho) = (added, last_energy, rho);
            (self.refreshes, self.rejections) = (refreshes, rejections);
            (self.has_factors, self.factors_at) = (has_factors > 0.0, factors_at as u64);
            (self.trace, self.pace, self.untold, self.first_value) = (trace, pace, untold, first_value);
        }
        visitor.vector(Scope::Local, "hub_curved_at", &mut self.curved_at);
        visitor.vector(Scope::Local, "hub_shift", &mut self.mean_shift);
        visitor.vectors(Scope::Local, "hub_steps", &mut self.secants.steps);
        visitor.vectors(Scope::Local, "hub_changes", &mut self.secants.changes);
        let mut base = self.base.as_ref().map_or(Vec::new(), |base| {
            vec![base.x.clone(), base.gradient.clone(), vec![base.noise, base.value, base.energy, base.gain]]
        });
        visitor.vectors(Scope::Local, "hub_base", &mut base);
        self.base = match &base[..] {
            [x, gradient, numbers] if numbers.len() == 4 => Some(Base {
                x: x.clone(),
                gradient: gradient.clone(),
                noise: numbers[0],
                value: numbers[1],
                energy: numbers[2],
                gain: numbers[3],
            }),
            _ => None,
        };
        self.links.iter_mut().for_each(|link| link.visit(visitor));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Accepted,
    Refused,
    Remeasure,
}

struct Decoded {
    /// q_i and theta_i.
    residuals: Vec<(Vec<f64>, f64)>,
    value: f64,
    /// Variance of a coordinate of the mean.
    noise: f64,
}

impl Reply {
    /// Three short numbers, a flag, the spreads and the integers of the step.
    fn encode(&self, here: &Here<'_>, delta: &[f64]) -> Vec<u8> {
        let own = dithers(here.randomness, Purpose::DownlinkDither, here.round, 0, delta.len());
        let coded = CodedVector::new(delta, self.step_down, &own, here.energies);
        let mut message = Vec::new();
        push_short(self.step, &mut message);
        push_short(self.step_down, &mut message);
        push_short(self.gap, &mut message);
        message.push(u8::from(self.ask));
        message.extend_from_slice(&coded.spreads);
        let mut encoder = SpreadEncoder::new(&mut message);
        coded.encode(&own, here.energies, &mut encoder);
        encoder.finish();
        message
    }
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}
