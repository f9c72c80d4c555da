//! What the theory of the baselines rests on: L, mu and their kin. It is given to every method alike.

use corewire_algebra::eigen;
use corewire_comm::numbers;

use crate::layout::Layout;
use crate::method::baselines::local_smoothness;
use crate::problem::Problem;
use crate::proximal::Proximal;

/// What theory's parameters may use. It is given to every method alike, and not billed.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    /// L of f.
    pub smoothness: f64,
    /// The largest L_i.
    pub max_smoothness: f64,
    /// The quadratic mean of the L_i, and L at least.
    pub mean_smoothness: f64,
    /// Whether L was measured on all rows, a few per cent too small at most, and not guessed from a probe.
    pub measured: bool,
    /// Whether f is convex.
    pub convex: bool,
    /// mu of f; 0 where there is none. Of a convex f methods that need one then get that of a term which is added; else they take L/10,000.
    pub strong_convexity: f64,
    /// tr(A).
    pub trace: f64,
    /// n.
    pub machines: usize,
    /// d.
    pub dim: usize,
    /// The diagonal of A, where it is cheap: SEGA and ASEGA sample by it.
    pub diagonal: Option<Vec<f64>>,
    /// The largest eigenvalue of D^(-1/2) A D^(-1/2) with the diagonal D of A: 1 for a diagonal A, d at most, and d where it is not known.
    pub coupling: f64,
    /// An l1 term and bounds. Methods made of an estimator and descent apply their proximal step; others refuse them.
    pub proximal: Proximal,
    /// The blocks of the coordinates.
    pub layout: Layout,
}

/// Up to this dimension the diagonal of A is worth a product with A a coordinate.
const MOST_DIAGONAL: usize = 2000;

impl Constants {
    /// Measures a problem: power iterations on f and on every machine's share, and the diagonal where there are few coordinates.
    /// Everything is rounded to its first 40 bits or so, so that the same numbers come out on every CPU in all but rare cases; where
    /// machines are apart, measure once and hand the numbers over.
    pub fn measure(problem: &Problem) -> Self {
        let start = problem.start();
        let dim = start.len();
        let mut pooled = problem.pooled().expect("one process holds all rows");
        // A flat problem has no step of its own; any positive one will do.
        let smoothness = local_smoothness(&mut *pooled, start).max(1e-12);
        let machines = problem.machines();
        let shares = (0..machines).map(|rank| local_smoothness(&mut *problem.objective(rank), start));
        let (max_smoothness, squares) =
            shares.fold((smoothness, 0.0), |(most, squares), own| (f64::max(most, own), squares + own * own));
        let mean_smoothness = (squares / machines.max(1) as f64).sqrt().max(smoothness);
        let mut unit = vec![0.0; dim];
        let mut image = vec![0.0; dim];
        let diagonal = (dim <= MOST_DIAGONAL).then(|| -> Vec<f64> {
            let entry = |j: usize| {
                unit[j] = 1.0;
                pooled.bound_vector(start, &unit, &mut image);
                unit[j] = 0.0;
                image[j]
            };
            (0..dim).map(entry).map(rounded).collect()
        });
        let coupling = match &diagonal {
            Some(diagonal) if diagonal.iter().all(|entry| *entry > 0.0) => {
                let mut scaled = vec![0.0; dim];
                eigen::largest(dim, |v, out| {
                    (0..dim).for_each(|j| scaled[j] = v[j] / diagonal[j].sqrt());
                    pooled.bound_vector(start, &scaled, out);
                    (0..dim).for_each(|j| out[j] /= diagonal[j].sqrt());
                })
            }
            _ => dim as f64,
        };
        let trace = pooled.bound_trace().unwrap_or_else(|| match &diagonal {
            Some(diagonal) => diagonal.iter().sum(),
            None => smoothness * dim as f64,
        });
        Self {
            smoothness: rounded(smoothness),
            max_smoothness: rounded(max_smoothness),
            mean_smoothness: rounded(mean_smoothness),
            measured: true,
            convex: pooled.is_convex(),
            strong_convexity: pooled.strong_convexity(),
            trace: rounded(trace.max(smoothness)),
            machines,
            dim,
            diagonal,
            coupling: rounded(coupling.max(1.0)),
            proximal: pooled.proximal(),
            layout: pooled.layout(),
        }
    }

    /// Those of f + (w/2)||x||^2 with the w that [`Reduced`](crate::method::reduced::Reduced) takes for this target, where f is convex and not
    /// strongly: the target times the mean of the L_i, which lies between L and their quadratic mean.
    pub(super) fn with_term(&self, target: f64) -> Self {
        if !self.convex || self.strong_convexity > 0.0 || self.smoothness == 0.0 {
            return self.clone();
        }
        let most = target * self.mean_smoothness;
        Self {
            smoothness: self.smoothness + most,
            max_smoothness: self.max_smoothness + most,
            mean_smoothness: self.mean_smoothness + most,
            strong_convexity: target * self.smoothness,
            trace: self.trace + most * self.dim as f64,
            diagonal: self.diagonal.as_ref().map(|diagonal| diagonal.iter().map(|entry| entry + most).collect()),
            ..self.clone()
        }
    }

    /// mu, or what stands for it.
    pub(super) fn mu(&self) -> f64 {
        if self.strong_convexity > 0.0 { self.strong_convexity } else { 1e-4 * self.smoothness }
    }

    /// omega/n where machines err independently, omega where they err alike.
    pub(super) fn noise(&self, omega: f64, common: bool) -> f64 {
        if common { omega } else { omega / self.machines.max(1) as f64 }
    }

    /// 1/L, or 2/(L + mu) where L was measured and mu is known: with the error that L may have, it is no longer than that.
    pub(super) fn descent_step(&self) -> f64 {
        let known = self.measured && self.strong_convexity > 0.0;
        if known { 2.0 / (1.05 * self.smoothness + self.strong_convexity) } else { 1.0 / self.smoothness }
    }

    /// EF21's step 1/(L + Lq sqrt(beta/theta)) for a contraction delta, Lq the quadratic mean of the L_i:
    /// sqrt(beta/theta) = sqrt(1 - delta)/(1 - sqrt(1 - delta)).
    pub(super) fn contracted_step(&self, delta: f64) -> f64 {
        let root = (1.0 - delta.clamp(0.0, 1.0)).sqrt();
        1.0 / (self.smoothness + self.mean_smoothness * root / (1.0 - root).max(1e-12))
    }
}

/// The number without its last twelve bits.
fn rounded(x: f64) -> f64 {
    f64::from_bits((x.to_bits() + 0x800) & !0xfff)
}

impl Constants {
    /// All zero, for methods that need none.
    pub fn none(dim: usize, machines: usize, proximal: Proximal) -> Self {
        Self {
            smoothness: 0.0,
            max_smoothness: 0.0,
            mean_smoothness: 0.0,
            measured: false,
            convex: true,
            strong_convexity: 0.0,
            trace: 0.0,
            machines,
            dim,
            diagonal: None,
            coupling: dim as f64,
            proximal,
            layout: Layout::vector(dim),
        }
    }

    /// For a network, which is trained by rates: what theory's steps would be is of no account.
    pub fn of_network(machines: usize, layout: Layout) -> Self {
        let none = Self::none(layout.dim(), machines, Proximal::NONE);
        let one = 1.0;
        Self { smoothness: one, max_smoothness: one, mean_smoothness: one, convex: false, trace: one, layout, ..none }
    }

    /// The numbers as bytes, so that every process works with those of machine 0; layout and proximal step are known to all.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { smoothness, max_smoothness, mean_smoothness, strong_convexity, trace, coupling, .. } = *self;
        let flags = f64::from(u8::from(self.measured) + 2 * u8::from(!self.convex));
        let numbers = [smoothness, max_smoothness, mean_smoothness, flags, strong_convexity, trace, coupling];
        let mut bytes = numbers::to_bytes(&numbers);
        numbers::push(self.diagonal.as_deref().unwrap_or(&[]), &mut bytes);
        bytes
    }

    /// Undoes [`Constants::to_bytes`].
    pub fn from_bytes(bytes: &[u8], machines: usize, layout: Layout, proximal: Proximal) -> Option<Self> {
        let numbers: Vec<f64> = numbers::read(bytes).collect();
        let (&[smoothness, max_smoothness, mean_smoothness, flags, strong_convexity, trace, coupling], diagonal) =
            numbers.split_first_chunk::<7>()?;
        let flags = flags as u8;
        let dim = layout.dim();
        let diagonal = (diagonal.len() == dim && dim > 0).then(|| diagonal.to_vec());
        Some(Self {
            smoothness,
            max_smoothness,
            mean_smoothness,
            measured: flags & 1 == 1,
            convex: flags & 2 == 0,
            strong_convexity,
            trace,
            machines,
            dim,
            diagonal,
            coupling,
            proximal,
            layout,
        })
    }
}
