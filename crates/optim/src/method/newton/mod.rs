//! CORE-Newton: curvature once, then one quantised gradient up and one quantised quasi-Newton step down per exchange.
//!
//! Every machine sends the top eigenpairs of its own Hessian once, at about a bit a scalar, where the hub's own Hessian is not enough;
//! the hub keeps the preconditioner, and nothing of it travels down. Gradients are coded relative to a shift that follows them, dithered
//! so that their error is independent of them, and given what both ends know: the span of the machine's own rows, and where earlier
//! gradients were large. All machines add the decoded step, so its error is no bias. docs/core-newton.md has the derivation, and what is
//! measured and not proved.
//!
//! # Layout
//! - `code`: vectors and rows as dithered integers with spreads.
//! - `link`: what machine and hub both know of a machine's messages.
//! - `preconditioner`: P by its eigenpairs.
//! - `composite`: the step with an l1 term or bounds.
//! - `likeness`: whether machine 0's rows stand for those of all.
//! - `own`: machine 0's own curvature.
//! - `hub`: from messages to the reply.

mod code;
mod composite;
mod hub;
mod likeness;
mod link;
mod own;
mod preconditioner;
#[cfg(test)]
mod rate;

use corewire_algebra::eigen::Eigen;
use corewire_comm::numbers::{Number, push_count, take_count};
use corewire_comm::{CommError, Reduction};
use corewire_sketch::code::{SpreadDecoder, SpreadEncoder};
use corewire_sketch::{CommonRandomness, Purpose};

use self::code::{CodedVector, Energies, dithers, push_short, read_short, refused, round_short};
use self::hub::{Here, Hub, Outset, Standing};
use self::likeness::{Likeness, has_rare_columns, mean_length, too_few, unlike};
use self::link::{Factors, Link, factor_step};
use self::own::Own;
use super::{Context, Method, Outcome, Settings};
use crate::error::RunError;
use crate::estimator::check_finite;
use crate::objective::Curved;
use crate::proximal::Proximal;
use crate::state::{Scope, Stateful, Visitor};

/// Rows of curvature that a machine sends at most, and how many times as many with more detail.
const MOST_ROWS: usize = 64;
/// So many may come from all machines together: few machines may send more each.
const MOST_IN_ALL: usize = 50 * MOST_ROWS;
/// But only where a Hessian is no larger than this: of larger ones few eigenpairs are found.
const MOST_COLUMNS: usize = 1600;
const MOST_DETAIL: f64 = 64.0;
/// So many rows are sent also where they are below tau, but not below this share of it.
const FAINT_ROWS: usize = 8;
const FAINT: f64 = 0.1;
/// tau is this times alpha sqrt(n).
const TAU: f64 = 0.7;
/// The first gradient is quantised at this share of what the mean's entries typically are.
const FIRST_STEP: f64 = 0.25;

/// What is the same on all machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// alpha, which every Hessian has on its diagonal.
    alpha: f64,
    /// Whether the Hessian does not depend on x.
    quadratic: bool,
    /// Blocks of coordinates: the classes of softmax, else 1.
    blocks: usize,
    /// An l1 term and bounds.
    proximal: Proximal,
    /// Whether machines may send rows of their curvature.
    pub curvature: bool,
    /// How much more is told than is worth its bytes, to save exchanges: curvature down to eigenvalues smaller by this factor, and asked for
    /// before it turns out to be missing; 1 tells what is worth it.
    pub detail: f64,
    /// Noise of the mean gradient, as a share of what the next exchange is expected to leave.
    pub eta_up: f64,
    /// Noise of the step, likewise.
    pub eta_down: f64,
}

/// How often machines tell their curvature at most on quadratics, where what they told adds up; elsewhere, where it takes the place of what
/// they told before, more tellings may follow after long waits.
pub const MOST_TELLINGS: usize = 4;

/// Rows of curvature, of so many columns, that one of so many machines sends at most at a time.
pub fn most_rows(detail: f64, machines: usize, columns: usize) -> usize {
    let own = (MOST_ROWS as f64 * detail.min(MOST_DETAIL)) as usize;
    if columns <= MOST_COLUMNS { own.max(MOST_IN_ALL / machines.max(1)) } else { own }
}

impl Default for Rules {
    fn default() -> Self {
        let proximal = Proximal::NONE;
        let (alpha, quadratic, blocks, detail) = (0.0, false, 1, 1.0);
        Self { alpha, quadratic, blocks, proximal, curvature: true, detail, eta_up: 0.007, eta_down: 0.1 }
    }
}

impl Rules {
    /// With so much detail: noise falls by its square, as the gap does that an exchange is to leave.
    pub fn with_detail(self, detail: f64) -> Self {
        let less = 1.0 / (detail * detail);
        Self { detail, eta_up: less * self.eta_up, eta_down: less * self.eta_down, ..self }
    }

    /// Eigenvalues below this are not worth their bytes. A row that is told of k blocks at once is worth more: the root is of n/k then.
    fn tau(&self, machines: usize) -> f64 {
        TAU / self.detail * self.alpha * (machines as f64 / self.blocks as f64).sqrt()
    }

    /// Whether curvature is asked for before it turns out to be missing.
    fn is_eager(&self) -> bool {
        self.curvature && self.detail > 1.0
    }

    /// Where a coordinate ends that a step quantised at `step` has brought to x: on zero where there is an l1 term, or on a bound, if the
    /// dither may have kept it from there.
    fn settled(&self, x: f64, step: f64) -> f64 {
        let Proximal { l1, lower, upper } = self.proximal;
        // A little more than half a step, for rounding.
        let reach = 0.500_001 * step;
        let marks = [(0.0, l1 > 0.0), (lower, true), (upper, true)];
        let near = marks.into_iter().find(|&(mark, counts)| counts && (x - mark).abs() <= reach);
        self.proximal.clamp(near.map_or(x, |(mark, _)| mark))
    }
}

/// The numbers of a reply.
struct Reply {
    /// At which the next gradients are quantised.
    step: f64,
    /// At which the step was quantised.
    step_down: f64,
    /// An estimate of f - f* where the gradients were taken; infinite where there is none.
    gap: f64,
    /// Whether factors are wanted with the next gradients.
    ask: bool,
}

/// One machine's part of CORE-Newton.
pub struct Newton {
    rules: Rules,
    randomness: CommonRandomness,
    x: Vec<f64>,
    /// Columns that some machine has; the others stay where they are.
    active: Vec<f64>,
    /// The last decoded step, in the active columns.
    delta: Vec<f64>,
    /// At which the next gradient is quantised.
    step: f64,
    /// Whether factors are wanted with the next gradient.
    asked: bool,
    /// Where steps are expected to be large.
    energies: Energies,
    shift: Vec<f64>,
    link: Link,
    tau: f64,
    /// Eigenpairs sent, and how often factors were.
    sent: f64,
    turns: f64,
    hub: Option<Hub>,
}

impl Newton {
    /// From a start.
    pub fn new(start: Vec<f64>, rules: Rules, randomness: &CommonRandomness) -> Self {
        let dim = start.len();
        Self {
            rules,
            randomness: randomness.clone(),
            x: start,
            active: (0..dim).map(|j| j as f64).collect(),
            delta: vec![0.0; dim],
            step: 0.0,
            asked: false,
            energies: Energies::flat(dim),
            shift: vec![0.0; dim],
            link: Link::new(0, dim, 1),
            tau: 0.0,
            sent: 0.0,
            turns: 0.0,
            hub: None,
        }
    }

    /// The active columns of every block of a vector.
    fn gather(&self, full: &[f64]) -> Vec<f64> {
        places(&self.active, self.rules.blocks, self.x.len()).map(|j| full[j]).collect()
    }

    /// The rows that are sent now: all at the current x, or on a quadratic only further ones.
    fn factors(&mut self, machines: usize, curved: Option<&mut (dyn Curved + '_)>) -> Factors {
        let most = most_rows(self.rules.detail, machines, self.active.len());
        let further = self.rules.quadratic && self.turns > 0.0;
        let from = if further { self.sent as usize } else { 0 };
        let (always, most) = match further {
            true => (0, most * (1 + self.turns as usize)),
            false => (FAINT_ROWS, most),
        };
        if further {
            self.tau *= 0.5;
        }
        let found = curved.map(|curved| curved.eigenpairs(&self.x, always, most, self.tau));
        let Eigen { mut values, vectors } =
            restricted(found.unwrap_or(Eigen { values: Vec::new(), vectors: Vec::new() }), &self.active);
        values.retain(|&value| value >= FAINT * self.tau);
        // Where the minimum of rows binds, the last of them is below tau.
        let least = if further { self.tau } else { values.last().map_or(self.tau, |last| last.min(self.tau)) };
        let from = from.min(values.len());
        let vectors = vectors[from..values.len()].to_vec();
        self.sent = values.len().max(from) as f64;
        self.turns += 1.0;
        values.drain(..from);
        Factors { values, vectors, step: factor_step(least, self.active.len()) }
    }

    /// This machine's message: factors where they were asked for, f, and the gradient relative to the shift.
    fn contribute(&mut self, round: u64, context: &mut Context<'_>) -> Result<Vec<u8>, RunError> {
        let mut full = vec![0.0; self.x.len()];
        self.link.rank = context.comm.rank();
        context.objective.gradient(&self.x, &mut full);
        let value = context.objective.value(&self.x);
        let gradient = self.gather(&full);
        check_finite(context.place(round), "a gradient", &gradient)?;
        check_finite(context.place(round), "a value", &[value])?;
        let (mut head, mut stream) = (Vec::new(), Vec::new());
        let mut encoder = SpreadEncoder::new(&mut stream);
        if self.asked {
            let factors = self.factors(context.comm.size(), context.objective.curved());
            let spreads = Link::push_factors_head(&factors, &mut head);
            let replace = !self.rules.quadratic;
            self.link.encode_factors(&self.randomness, round, &factors, &spreads, replace, &mut encoder);
        }
        // pr_i = c_i + alpha delta.
        let mut predicted = self.shift.clone();
        corewire_algebra::vector::add_scaled(self.rules.alpha, &self.delta, &mut predicted);
        let residual: Vec<f64> = gradient.iter().zip(&predicted).map(|(g, p)| g - p).collect();
        corewire_comm::numbers::narrow(value).push(&mut head);
        let coded = self.link.code_residual(&self.randomness, round, &residual, self.step);
        head.extend_from_slice(&coded.spreads);
        let decoded = self.link.encode_residual(&coded, self.step, &mut encoder);
        encoder.finish();
        corewire_algebra::vector::add_scaled(decoded.theta, &decoded.vector, &mut predicted);
        self.shift = predicted;
        head.extend_from_slice(&stream);
        Ok(head)
    }

    /// Adds the decoded step.
    fn absorb(&mut self, round: u64, message: &[u8]) -> Result<f64, CommError> {
        let short = || refused(0, "its reply is too short");
        let groups = self.energies.groups().len();
        let (head, stream) = message.split_at_checked(7 + groups).ok_or_else(short)?;
        let number = |at: usize| read_short([head[at], head[at + 1]]);
        let (step, step_down, gap, asked) = (number(0), number(2), number(4), head[6] != 0);
        let sound = step.is_finite() && step > 0.0 && step_down.is_finite() && step_down > 0.0;
        if !sound {
            return Err(refused(0, "its steps are no numbers"));
        }
        let own = dithers(&self.randomness, Purpose::DownlinkDither, round, 0, self.delta.len());
        let mut decoder = SpreadDecoder::new(stream);
        let decoded = CodedVector::decode(&head[7..], &own, &self.energies, &mut decoder);
        let decoded = decoded.map_err(|error| refused(0, error))?;
        decoder.finish().map_err(|error| refused(0, error))?;
        self.energies.learn(&decoded);
        let smooth = self.rules.proximal.is_none();
        let places = places(&self.active, self.rules.blocks, self.x.len());
        for ((delta, t), j) in self.delta.iter_mut().zip(&decoded).zip(places) {
            let x = &mut self.x[j];
            *delta = t * step_down;
            if !smooth {
                *delta = self.rules.settled(*x + *delta, step_down) - *x;
            }
            *x += *delta;
        }
        (self.step, self.asked) = (step, asked);
        Ok(gap)
    }
}

impl Stateful for Newton {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector(Scope::Common, "x", &mut self.x);
        visitor.vector(Scope::Common, "active", &mut self.active);
        visitor.vector(Scope::Common, "delta", &mut self.delta);
        visitor.vector(Scope::Common, "energies", &mut self.energies.0);
        let mut asked = f64::from(u8::from(self.asked));
        visitor.number(Scope::Common, "asked", &mut asked);
        self.asked = asked > 0.0;
        visitor.number(Scope::Common, "step", &mut self.step);
        visitor.vector(Scope::Local, "shift", &mut self.shift);
        visitor.number(Scope::Local, "tau", &mut self.tau);
        visitor.number(Scope::Local, "sent", &mut self.sent);
        visitor.number(Scope::Local, "turns", &mut self.turns);
        self.link.visit(visitor);
        let mut machines = self.hub.as_ref().map_or(0, Hub::machines) as u64;
        visitor.word(Scope::Local, "hub", &mut machines);
        if machines > 0 && self.hub.is_none() {
            let (x, machines) = (self.gather(&self.x), machines.min(1 << 20) as usize);
            let outset = Outset { machines, x, trace: 0.0, own: None, scale: 1.0, standing: Standing::Nothing };
            self.hub = Some(Hub::new(self.rules, self.active.len(), outset));
        }
        if let Some(hub) = &mut self.hub {
            hub.visit(visitor);
        }
    }
}

impl Method for Newton {
    fn iterate(&self) -> &[f64] {
        &self.x
    }

    /// Every machine tells how many rows it has, in which columns, and a glance of its first gradient; the hub answers with the columns of
    /// all, and whether it wants factors at once.
    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let rank = context.comm.rank();
        self.rules.alpha = context.objective.strong_convexity();
        self.rules.quadratic = context.objective.is_quadratic();
        self.rules.proximal = context.objective.proximal();
        self.rules.blocks = context.objective.blocks();
        // The hub's own Hessian is all there is.
        self.rules.curvature &= context.comm.size() > 1;
        let dim = self.x.len() / self.rules.blocks;
        let here = rank < context.comm.size();
        let rows = context.objective.rows() as u64;
        let touched = context.objective.curved().map(|curved| curved.touched());
        if here && (touched.is_none() || self.rules.alpha <= 0.0) {
            let what = "core-newton needs ridge, logistic or softmax regression: take core-agd, or lbfgs";
            return Err(RunError::Unsuited(what.to_owned()));
        }
        let likeness = Likeness::new(self.x.len(), &self.randomness);
        let mut gradient = vec![0.0; self.x.len()];
        context.objective.gradient(&self.x, &mut gradient);
        check_finite(context.place(0), "a gradient", &gradient)?;
        let mut message = Vec::new();
        push_count(rows, &mut message);
        corewire_comm::numbers::narrow(context.objective.bound_trace().unwrap_or(0.0)).push(&mut message);
        likeness.push(&gradient, &mut message);
        message.extend(to_bits(&touched.unwrap_or_else(|| vec![true; dim])));
        let (mut trace, mut own, mut scale, mut standing, rules) = (0.0, None, 1.0, Standing::Nothing, self.rules);
        let (objective, x) = (&mut *context.objective, &self.x);
        let mut decide = |messages: &[&[u8]]| {
            let (mut counts, mut glances, mut union) = (Vec::new(), Vec::new(), vec![0u8; dim.div_ceil(8)]);
            for (rank, message) in messages.iter().enumerate() {
                let mut rest = *message;
                let short = || refused(rank, "it does not tell its rows");
                counts.push(take_count(&mut rest).ok_or_else(short)? as f64);
                let (bound, mut rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
                let bound = f64::from(f32::read(bound));
                trace += bound / messages.len() as f64;
                let glance = likeness.take(&mut rest).ok_or_else(short)?;
                if !bound.is_finite() || !glance.is_finite() {
                    return Err(refused(rank, "its curvature or its gradient is no number"));
                }
                glances.push(glance);
                if rest.len() != union.len() {
                    return Err(short());
                }
                union.iter_mut().zip(rest).for_each(|(union, bits)| *union |= bits);
            }
            let active: Vec<f64> = (0..dim).map(|j| j as f64).collect();
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            scale = if counts[0] > 0.0 { mean / counts[0] } else { 1.0 };
            let found = Own { objective: &mut *objective, x, active: &active, rules }.curvature(x).scaled(scale);
            let (row_scatter, column_rows) = objective.curved().map_or((0.0, Vec::new()), |curved| {
                (curved.row_scatter(x, &likeness.directions()), curved.column_rows())
            });
            standing = if counts.len() == 1 {
                Standing::All
            } else if too_few(counts[0], found.directions(rules.alpha)) {
                Standing::Nothing
            } else if unlike(&counts, &glances, row_scatter)
                || has_rare_columns(&column_rows, &found.pairs, rules.alpha)
            {
                Standing::Rest
            } else {
                Standing::All
            };
            own = Some(found);
            // A Hessian that does not depend on x may as well be told at once.
            let ask = rules.curvature && standing != Standing::All || rules.quadratic && rules.is_eager();
            let columns = union.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
            let count = rules.blocks * if columns > 0 { columns } else { dim };
            let typical = mean_length(&glances) / (count as f64).sqrt();
            let mut reply = vec![u8::from(ask)];
            push_short(round_short(FIRST_STEP / rules.detail * typical), &mut reply);
            // Columns that no machine has are left out; where all have some, nothing more is said.
            if columns > 0 && columns < dim {
                reply.extend_from_slice(&union);
            }
            Ok(reply)
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut decide))?;
        let (&[ask, ref step @ ..], union) =
            reply.message.split_first_chunk::<3>().ok_or_else(|| refused(0, "its reply is too short"))?;
        self.step = read_short(*step);
        if !(self.step.is_finite() && self.step > 0.0) {
            return Err(refused(0, "its step is no number").into());
        }
        self.active = (0..dim).map(|j| j as f64).collect();
        if union.len() == dim.div_ceil(8) && ask <= 1 {
            self.active.retain(|&j| union[j as usize / 8] >> (j as usize % 8) & 1 == 1);
        } else if !union.is_empty() || ask > 1 {
            return Err(refused(0, "its reply is not a list of columns").into());
        }
        let (columns, blocks) = (self.active.len(), self.rules.blocks);
        let count = columns * blocks;
        self.asked = ask != 0;
        (self.delta, self.shift, self.energies) = (vec![0.0; count], vec![0.0; count], Energies::flat(count));
        self.link = Link::new(rank, columns, blocks);
        self.tau = self.rules.tau(context.comm.size());
        if rank == 0 {
            let (own, x) = (own.map(|own| own.restricted(&self.active)), self.gather(&self.x));
            let outset = Outset { machines: context.comm.size(), x, trace, own, scale, standing };
            self.hub = Some(Hub::new(self.rules, columns, outset));
        }
        Ok(())
    }

    fn round(&mut self, round: u64, context: &mut Context<'_>) -> Result<Outcome, RunError> {
        let (step, asked) = (self.step, self.asked);
        let message = self.contribute(round, context)?;
        let x = self.gather(&self.x);
        let Self { hub, delta, energies, randomness, active, rules, x: full, .. } = self;
        let (objective, rules) = (&mut *context.objective, *rules);
        let mut combine = |messages: &[&[u8]]| {
            let hub = hub.as_mut().ok_or_else(|| refused(0, "it has no hub"))?;
            let here = Here { round, x: &x, delta, step, asked, energies, randomness };
            hub.combine(&here, messages, &mut Own { objective: &mut *objective, x: full, active, rules })
        };
        let reply = context.comm.exchange(&message, Reduction::Hub(&mut combine))?;
        let gap = self.absorb(round, &reply.message)?;
        Ok(Outcome { gradient_norm: None, step: None, rejected: false, gap: Some(gap) })
    }

    fn settings(&self) -> Settings {
        Settings { budget: Some(self.delta.len()), ..Settings::default() }
    }
}

/// The places of the active columns in a vector of so many blocks, block by block.
fn places(active: &[f64], blocks: usize, dim: usize) -> impl Iterator<Item = usize> + '_ {
    (0..blocks).flat_map(move |block| active.iter().map(move |&j| block * (dim / blocks) + j as usize))
}

/// Eigenpairs of a block in the active columns.
fn restricted(Eigen { values, vectors }: Eigen, active: &[f64]) -> Eigen {
    let gather = |vector: &Vec<f64>| active.iter().map(|&j| vector[j as usize]).collect();
    Eigen { values, vectors: vectors.iter().map(gather).collect() }
}

fn to_bits(flags: &[bool]) -> Vec<u8> {
    let mut bytes = vec![0; flags.len().div_ceil(8)];
    flags.iter().enumerate().filter(|(_, flag)| **flag).for_each(|(j, _)| bytes[j / 8] |= 1 << (j % 8));
    bytes
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    /// A diagonal Hessian with these eigenvalues.
    struct Diagonal(Vec<f64>);

    impl Curved for Diagonal {
        fn eigenpairs(&mut self, _: &[f64], always: usize, most: usize, least: f64) -> Eigen {
            let unit = |j: usize| (0..self.0.len()).map(|k| f64::from(u8::from(j == k))).collect();
            let vectors = (0..self.0.len()).map(unit).collect();
            crate::objective::wanted(Eigen { values: self.0.clone(), vectors }, always, most, least)
        }

        fn trace(&mut self, _: &[f64]) -> f64 {
            self.0.iter().sum()
        }

        fn root_rows(&self) -> usize {
            self.0.len()
        }

        fn combine_root(&mut self, _: &[f64], _: &[Vec<f64>]) -> Vec<Vec<f64>> {
            unreachable!("nobody asks for the root")
        }

        fn touched(&self) -> Vec<bool> {
            vec![true; self.0.len()]
        }

        fn column_rows(&self) -> Vec<f64> {
            vec![f64::INFINITY; self.0.len()]
        }

        fn row_scatter(&mut self, _: &[f64], _: &[Vec<f64>]) -> f64 {
            0.0
        }
    }

    fn sent(eigenvalues: &[f64]) -> Factors {
        let randomness = CommonRandomness::new(&Seed::reproducible(1));
        let mut newton = Newton::new(vec![0.0; eigenvalues.len()], Rules::default(), &randomness);
        newton.tau = 1.0;
        newton.factors(50, Some(&mut Diagonal(eigenvalues.to_vec())))
    }

    #[test]
    fn faint_curvature_is_sent_up_to_eight_rows_but_not_below_a_tenth_of_tau() {
        let mut many: Vec<f64> = (0..12).map(|k| 0.9 - 0.05 * f64::from(k)).collect();
        assert_eq!(sent(&many).values.len(), 8);
        many[3..].fill(0.05);
        let few = sent(&many);
        assert_eq!((few.values.len(), few.vectors.len()), (3, 3));
        // The step suits the last row that is sent.
        assert_eq!(few.step, factor_step(0.8, 12));
        assert_eq!(sent(&[0.01; 12]).values.len(), 0);
        assert_eq!(sent(&[2.0; 12]).values.len(), 12);
    }
}
