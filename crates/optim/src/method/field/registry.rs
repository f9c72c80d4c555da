//! What people choose from: every method's id, parameters and reference, and the way from them to a method.

use std::collections::BTreeMap;

use corewire_compress::{
    Aim, Alq, Atomo, CountSketch, Dense, Drive, Dropping, Eden, Indices, Law, Magnitude, Natural, Norm, OneBit, Qsgd,
    RandK, Scaled, Shape, Sign, SketchMl, TernGrad, TopK,
};
use corewire_sketch::CommonRandomness;

use super::coordinates::{Asega, AsegaConstants, Ibcd, Sega};
use super::local::{Dsvrg, FedAvg, FedLin, Scaffold};
use super::model::Ef21P;
use super::signs::{MajorityVote, OneBitAdam};
use super::skip::Scaffnew;
use super::two_query::{Adiana, AdianaConstants, Canita, CanitaConstants};
use super::{largest_eigenvalue, local_smoothness};
use crate::estimator::{
    Channel, Coding, Dasha, Diana, Downlink, DroppedMomentum, Exact, FetchSgd, Gathered, LowRank, Marina,
    MeanEstimator, SketchedSgd, ThreePoint,
};
use crate::method::Method;
use crate::method::accelerated::Accelerated;
use crate::method::conjugate::Conjugate;
use crate::method::descent::{Descent, Step};
use crate::method::gradient::{Batch, GradientMethod};
use crate::problem::Problem;

/// A parameter of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What holds without it; `auto` is worked out from what is known.
    pub default: String,
    /// What it means.
    pub meaning: &'static str,
}

/// A method that can be built.
#[derive(Clone, Debug)]
pub struct Entry {
    /// How people choose it.
    pub id: &'static str,
    /// Its name.
    pub title: &'static str,
    /// What it does.
    pub one_line: &'static str,
    /// Where it comes from.
    pub reference: &'static str,
    /// baseline, quantisation, sparsification, error-feedback, variance-reduced, local, low-rank or sketch.
    pub family: &'static str,
    /// What can be set.
    pub parameters: Vec<Parameter>,
    /// Whether it converges to the optimum, however different the machines are, with its default parameters and full gradients.
    pub exact: bool,
    /// Whether its theory is for convex problems alone.
    pub convex_only: bool,
}

/// What theory's parameters may use. It is given to every method alike, and not billed.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// L of f.
    pub smoothness: f64,
    /// The largest L_i.
    pub max_smoothness: f64,
    /// mu of f; 0 where it is not known, and then methods that need one take L/10,000.
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
    /// Weight of an l1 term. Methods made of an estimator and descent apply its proximal step; others refuse it.
    pub l1: f64,
}

/// Up to this dimension the diagonal of A is worth a product with A a coordinate.
const MOST_DIAGONAL: usize = 2000;

impl Known {
    /// Measures a problem: power iterations on f and on every machine's share, and the diagonal where there are few coordinates.
    /// Everything is rounded to its first 40 bits or so, so that the same numbers come out on every CPU in all but rare cases; where
    /// machines are apart, measure once and hand the numbers over.
    pub fn measure(problem: &Problem) -> Self {
        let start = problem.start();
        let dim = start.len();
        let mut pooled = problem.pooled();
        let smoothness = local_smoothness(&mut *pooled, start);
        let shares = (0..problem.machines()).map(|rank| local_smoothness(&mut *problem.objective(rank), start));
        let max_smoothness = shares.fold(smoothness, f64::max);
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
                largest_eigenvalue(dim, |v, out| {
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
            strong_convexity: pooled.strong_convexity(),
            trace: rounded(trace),
            machines: problem.machines(),
            dim,
            diagonal,
            coupling: rounded(coupling.max(1.0)),
            l1: pooled.l1(),
        }
    }

    fn mu(&self) -> f64 {
        if self.strong_convexity > 0.0 { self.strong_convexity } else { 1e-4 * self.smoothness }
    }

    /// omega/n where machines err independently, omega where they err alike.
    fn noise(&self, omega: f64, common: bool) -> f64 {
        if common { omega } else { omega / self.machines.max(1) as f64 }
    }

    /// EF21's step 1/(L + Lmax sqrt(beta/theta)) for a contraction delta: sqrt(beta/theta) = sqrt(1 - delta)/(1 - sqrt(1 - delta)).
    fn contracted_step(&self, delta: f64) -> f64 {
        let root = (1.0 - delta.clamp(0.0, 1.0)).sqrt();
        1.0 / (self.smoothness + self.max_smoothness * root / (1.0 - root).max(1e-12))
    }
}

/// The number without its last twelve bits.
fn rounded(x: f64) -> f64 {
    f64::from_bits((x.to_bits() + 0x800) & !0xfff)
}

/// One row of the table below: id, title, one line, reference, family, exact, convex only, parameters beside `scale` and `wire`.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, bool, bool, &'static [&'static str]);

const ROWS: &[Row] = &[
    ("cgd", "Gradient descent", "x -= h mean g_i", "Cauchy 1847", "baseline", true, false, &["batch"]),
    (
        "acgd",
        "Accelerated gradient descent",
        "gradient descent with Nesterov's momentum",
        "Nesterov, Introductory Lectures on Convex Optimization, 2004",
        "baseline",
        true,
        true,
        &["momentum"],
    ),
    (
        "cg",
        "Conjugate gradients",
        "Polak and Ribiere's directions, exact curvature along them",
        "Hestenes and Stiefel 1952; Polak and Ribiere 1969",
        "baseline",
        true,
        true,
        &[],
    ),
    (
        "sgd",
        "Mini-batch SGD",
        "x -= h times the mean of mini-batch gradients",
        "Robbins and Monro 1951",
        "baseline",
        false,
        false,
        &["batch"],
    ),
    (
        "fedlin",
        "FedLin",
        "local steps corrected by the difference of local and mean gradient",
        "Mitra, Jaafar, Pappas, Hassani, Linear Convergence in Federated Learning, 2021",
        "local",
        true,
        false,
        &["k", "local"],
    ),
    (
        "scaffnew",
        "Scaffnew (ProxSkip)",
        "local steps with control variates, communication by a common coin",
        "Mishchenko, Malinovsky, Stich, Richtarik, ProxSkip, 2022",
        "local",
        true,
        true,
        &["p"],
    ),
    (
        "gradskip",
        "GradSkip",
        "Scaffnew whose well-conditioned machines skip gradients",
        "Maranjyan, Safaryan, Richtarik, GradSkip, 2022",
        "local",
        true,
        true,
        &["p"],
    ),
    (
        "diana",
        "DIANA",
        "compressed differences to shifts that learn the gradients",
        "Mishchenko, Gorbunov, Takac, Richtarik, Distributed Learning with Compressed Gradient Differences, 2019",
        "variance-reduced",
        true,
        false,
        &["codec", "k", "levels", "bits"],
    ),
    (
        "adiana",
        "ADIANA",
        "DIANA with momentum",
        "Li, Kovalev, Qian, Richtarik, Acceleration for Compressed Gradient Descent, 2020",
        "variance-reduced",
        true,
        true,
        &["codec", "k", "levels", "bits"],
    ),
    (
        "sega",
        "SEGA",
        "an estimate of the gradient learned coordinate by coordinate",
        "Hanzely, Mishchenko, Richtarik, SEGA, 2018",
        "variance-reduced",
        true,
        true,
        &["k"],
    ),
    (
        "asega",
        "ASEGA",
        "SEGA with momentum and importance sampling",
        "Hanzely, Mishchenko, Richtarik, SEGA, 2018",
        "variance-reduced",
        true,
        true,
        &["k"],
    ),
    (
        "onebit-sgd",
        "1-bit SGD",
        "signs decoded by two means, with error feedback",
        "Seide, Fu, Droppo, Li, Yu, 1-Bit Stochastic Gradient Descent, 2014",
        "error-feedback",
        false,
        false,
        &["column", "batch"],
    ),
    (
        "qsgd",
        "QSGD",
        "stochastic rounding to levels of the norm",
        "Alistarh, Grubic, Li, Tomioka, Vojnovic, QSGD, 2017",
        "quantisation",
        false,
        false,
        &["levels", "bucket", "batch"],
    ),
    (
        "terngrad",
        "TernGrad",
        "minus one, zero or one times a scale",
        "Wen and others, TernGrad, 2017",
        "quantisation",
        false,
        false,
        &["clip", "batch"],
    ),
    (
        "dropping",
        "Gradient dropping",
        "entries above a quantile, with error feedback",
        "Aji and Heafield, Sparse Communication for Distributed Gradient Descent, 2017",
        "error-feedback",
        false,
        false,
        &["drop", "sample", "batch"],
    ),
    (
        "dgc",
        "Deep gradient compression",
        "momentum before Top-K, with masked memories",
        "Lin, Han, Mao, Wang, Dally, Deep Gradient Compression, 2018",
        "error-feedback",
        false,
        false,
        &["k", "momentum", "clip", "warmup", "batch"],
    ),
    (
        "powersgd",
        "PowerSGD",
        "a matrix of low rank by a power iteration, with error feedback",
        "Vogels, Karimireddy, Jaggi, PowerSGD, 2019",
        "low-rank",
        true,
        false,
        &["rank", "batch"],
    ),
    (
        "drive",
        "DRIVE",
        "signs of a random rotation",
        "Vargaftik and others, DRIVE, 2021",
        "quantisation",
        false,
        false,
        &["batch"],
    ),
    (
        "eden",
        "EDEN",
        "a few bits of a random rotation",
        "Vargaftik and others, EDEN, 2022",
        "quantisation",
        false,
        false,
        &["bits", "batch"],
    ),
    (
        "topk",
        "Top-K",
        "the largest entries, no memory",
        "Alistarh and others, The Convergence of Sparsified Gradient Methods, 2018",
        "sparsification",
        false,
        false,
        &["k", "batch"],
    ),
    (
        "topk-ef",
        "Top-K with error feedback",
        "the largest entries; the rest waits",
        "Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, 2018",
        "error-feedback",
        false,
        false,
        &["k", "batch"],
    ),
    (
        "randk",
        "Rand-K",
        "random entries, scaled up; indices private or common",
        "Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, 2018",
        "sparsification",
        false,
        false,
        &["k", "indices", "batch"],
    ),
    (
        "signsgd",
        "signSGD, majority vote",
        "the sign of the sum of signs",
        "Bernstein, Wang, Azizzadenesheli, Anandkumar, signSGD, 2018",
        "quantisation",
        false,
        false,
        &[],
    ),
    (
        "ef-signsgd",
        "EF-signSGD",
        "signs times their mean magnitude, with error feedback",
        "Karimireddy, Rebjock, Stich, Jaggi, Error Feedback Fixes SignSGD, 2019",
        "error-feedback",
        false,
        false,
        &["batch"],
    ),
    (
        "natural",
        "Natural compression",
        "magnitudes to powers of two",
        "Horvath and others, Natural Compression, 2019",
        "quantisation",
        false,
        false,
        &["batch"],
    ),
    (
        "ef21",
        "EF21",
        "compressed differences to what was sent before",
        "Richtarik, Sokolov, Fatkhullin, EF21, 2021",
        "error-feedback",
        true,
        false,
        &["codec", "k", "bits"],
    ),
    (
        "ef21-p",
        "EF21-P",
        "a compressed model comes down, with error feedback",
        "Gruntkowska, Tyurin, Richtarik, EF21-P and Friends, 2022",
        "error-feedback",
        true,
        true,
        &["codec", "k", "up", "k_up"],
    ),
    (
        "marina",
        "MARINA",
        "compressed differences of gradients, full ones by a common coin",
        "Gorbunov, Burlachenko, Li, Richtarik, MARINA, 2021",
        "variance-reduced",
        true,
        false,
        &["codec", "k", "levels", "bits", "p"],
    ),
    (
        "dasha",
        "DASHA",
        "MARINA without full gradients",
        "Tyurin and Richtarik, DASHA, 2022",
        "variance-reduced",
        true,
        false,
        &["codec", "k", "levels", "bits"],
    ),
    (
        "canita",
        "CANITA",
        "ADIANA for problems that are not strongly convex",
        "Li and Richtarik, CANITA, 2021",
        "variance-reduced",
        true,
        true,
        &["codec", "k", "levels", "bits"],
    ),
    (
        "lag",
        "LAG",
        "gradients travel only where they have changed",
        "Chen, Giannakis, Sun, Yin, LAG, 2018",
        "error-feedback",
        true,
        false,
        &["zeta"],
    ),
    (
        "doublesqueeze",
        "DoubleSqueeze",
        "error feedback at the machines and at the hub",
        "Tang, Yu, Lian, Zhang, Liu, DoubleSqueeze, 2019",
        "error-feedback",
        false,
        false,
        &["codec", "k", "bits", "batch"],
    ),
    (
        "3pc",
        "3PC (CLAG)",
        "EF21 whose machines keep silent where little has changed",
        "Richtarik and others, 3PC, 2022",
        "error-feedback",
        true,
        false,
        &["codec", "k", "bits", "zeta"],
    ),
    (
        "sketchml",
        "SketchML",
        "quantile buckets of the values, gaps of the keys",
        "Jiang, Fu, Yang, Cui, SketchML, 2018",
        "quantisation",
        false,
        false,
        &["buckets", "batch"],
    ),
    (
        "sketched-sgd",
        "Sketched-SGD",
        "count sketches name the large entries, a second message brings them",
        "Ivkin and others, Communication-efficient Distributed SGD with Sketching, 2019",
        "sketch",
        true,
        false,
        &["k", "candidates", "rows", "columns", "batch"],
    ),
    (
        "fetchsgd",
        "FetchSGD",
        "momentum and error feedback inside count sketches",
        "Rothchild and others, FetchSGD, 2020",
        "sketch",
        false,
        false,
        &["k", "rows", "columns", "momentum", "batch"],
    ),
    (
        "fedavg",
        "FedAvg",
        "local steps, then the mean; updates may be masked or quantised",
        "McMahan and others, 2017; Konecny and others, 2016",
        "local",
        false,
        false,
        &["local", "batch", "k", "bits"],
    ),
    (
        "scaffold",
        "SCAFFOLD",
        "local steps with control variates of both sides",
        "Karimireddy and others, SCAFFOLD, 2020",
        "local",
        true,
        false,
        &["local", "batch"],
    ),
    (
        "ibcd",
        "IBCD",
        "every machine moves its own random block",
        "Mishchenko, Hanzely, Richtarik, 99% of Worker-Master Communication in Distributed Optimization Is Not Needed, 2020",
        "sparsification",
        false,
        false,
        &["k"],
    ),
    (
        "ecq-sgd",
        "ECQ-SGD",
        "QSGD with a damped memory of its errors",
        "Wu, Huang, Huang, Zhang, Error Compensated Quantized SGD, 2018",
        "error-feedback",
        false,
        false,
        &["levels", "bucket", "gain", "decay", "batch"],
    ),
    (
        "alq",
        "ALQ",
        "QSGD with levels fitted to the coordinates",
        "Faghri and others, Adaptive Gradient Quantization, 2020",
        "quantisation",
        false,
        false,
        &["bits", "bucket", "batch"],
    ),
    (
        "atomo",
        "ATOMO",
        "random singular vectors",
        "Wang and others, ATOMO, 2018",
        "low-rank",
        false,
        false,
        &["rank", "batch"],
    ),
    (
        "onebit-adam",
        "1-bit Adam",
        "Adam's momentum as signs, after a warm-up",
        "Tang and others, 1-bit Adam, 2021",
        "error-feedback",
        false,
        false,
        &["warmup", "beta1", "beta2"],
    ),
    (
        "dsvrg",
        "Distributed SVRG",
        "one machine at a time runs SVRG's inner loop",
        "Lee, Lin, Ma, Yang, Distributed Stochastic Variance Reduced Gradient Methods, 2017",
        "variance-reduced",
        true,
        true,
        &["inner", "batch"],
    ),
];

/// The default and the meaning of a parameter of a method.
fn parameter(id: &str, name: &'static str) -> Parameter {
    let (default, meaning) = match (id, name) {
        (_, "scale") => ("1", "factor on theory's step"),
        (_, "wire") => ("f32", "how numbers travel that no codec has encoded: f32 or f64"),
        ("sgd", "batch") => ("16", "rows of a mini-batch a machine; 0 takes all"),
        ("dsvrg", "batch") => ("1", "rows of an inner step; 0 takes all"),
        (_, "batch") => ("0", "rows of a mini-batch a machine; 0 takes all"),
        ("acgd", "momentum") => ("auto", "weight of the last move; auto is (1 - sqrt(mu h))/(1 + sqrt(mu h))"),
        (_, "momentum") => ("0.9", "weight of the last velocity"),
        ("fedlin" | "fedavg", "k") => ("auto", "coordinates of a compressed vector; auto sends all"),
        ("ef21-p", "k") => ("auto", "coordinates that come down; auto is d/50, rounded up"),
        (_, "k") => ("auto", "coordinates a message; auto is d/50, rounded up"),
        ("ef21-p", "k_up") => ("auto", "coordinates that go up where `up` is randk; auto is d/50, rounded up"),
        ("ef21-p", "up") => ("dense", "how gradients go up: dense, or randk through DIANA"),
        (_, "local") => ("5", "local steps a round"),
        (_, "p") => ("auto", "probability of communication, or of full gradients"),
        ("ef21" | "ef21-p" | "3pc" | "doublesqueeze", "codec") => {
            ("topk", "contraction: topk, randk, sign, onebit, drive or eden")
        }
        (_, "codec") => ("randk", "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden"),
        (_, "levels") => ("auto", "levels of QSGD; auto is sqrt(d)"),
        ("fedavg", "bits") => ("0", "bits of a rotated coordinate of the update; 0 sends it as it is"),
        ("alq", "bits") => ("3", "bits of a coordinate, 2 to 8"),
        (_, "bits") => ("2", "bits of a coordinate, above 0 and up to 4"),
        (_, "bucket") => ("auto", "coordinates that share a norm; auto is all"),
        (_, "column") => ("auto", "coordinates that share two means; auto is all"),
        ("terngrad", "clip") => ("2.5", "root mean squares at which entries are clipped; 0 leaves them"),
        (_, "clip") => ("0", "norm times sqrt(n) at which gradients are clipped; 0 leaves them"),
        (_, "drop") => ("0.98", "share of the entries that is dropped"),
        (_, "sample") => ("0", "entries from which the quantile is estimated; 0 takes all"),
        ("onebit-adam", "warmup") => ("20", "rounds of uncompressed Adam"),
        (_, "warmup") => ("0", "rounds in which more than k coordinates travel, falling from a quarter"),
        (_, "rank") => ("2", "rank of the matrix, or expected atoms"),
        (_, "indices") => ("private", "private: each machine draws and sends its own; common: all draw the same"),
        ("lag", "zeta") => ("1", "how far a gradient must be from what was sent last, in squared moves, to be sent"),
        (_, "zeta") => {
            ("auto", "as LAG's; auto is the largest that leaves EF21's step, (1 - delta)/(1 - sqrt(1 - delta))")
        }
        (_, "buckets") => ("256", "quantile buckets, an even number"),
        (_, "candidates") => ("4", "exact values that travel, as a multiple of k"),
        (_, "rows") => ("5", "rows of the table"),
        (_, "columns") => ("auto", "columns of the table; auto is d/10 or 10 k, whichever is more, and d at most"),
        ("ecq-sgd", "gain") => ("0.2", "weight of the memory in what is sent"),
        ("ecq-sgd", "decay") => ("0.9", "weight of the memory in the next one"),
        (_, "beta1") => ("0.9", "decay of the momentum"),
        (_, "beta2") => ("0.95", "decay of the variance"),
        (_, "inner") => ("0", "inner steps; 0 takes two passes over the machine's rows"),
        _ => unreachable!("every parameter of the table has a meaning"),
    };
    Parameter { name, default: default.to_owned(), meaning }
}

/// All methods of the field other than CORE.
pub fn catalogue() -> Vec<Entry> {
    let entry = |&(id, title, one_line, reference, family, exact, convex_only, names): &Row| Entry {
        id,
        title,
        one_line,
        reference,
        family,
        exact,
        convex_only,
        parameters: ["scale", "wire"].iter().chain(names).map(|name| parameter(id, name)).collect(),
    };
    ROWS.iter().map(entry).collect()
}

/// How many single-character changes lead from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let next = (before + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            before = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> &'a str {
    known.min_by_key(|known| distance(word, known)).unwrap_or("")
}

/// The parameters of one method, as they were given or by default.
struct Values<'a> {
    entry: Entry,
    given: &'a BTreeMap<String, String>,
}

impl<'a> Values<'a> {
    fn new(id: &str, given: &'a BTreeMap<String, String>) -> Result<Self, String> {
        let Some(entry) = catalogue().into_iter().find(|entry| entry.id == id) else {
            let near = nearest(id, ROWS.iter().map(|row| row.0));
            return Err(format!("there is no method `{id}`; the nearest is `{near}`"));
        };
        let names = || entry.parameters.iter().map(|parameter| parameter.name);
        for name in given.keys() {
            if !names().any(|known| known == name) {
                let near = nearest(name, names());
                return Err(format!("method `{id}` has no parameter `{name}`; the nearest is `{near}`"));
            }
        }
        Ok(Self { entry, given })
    }

    fn text(&self, name: &str) -> &str {
        let default = self.entry.parameters.iter().find(|parameter| parameter.name == name);
        let default = default.map_or("", |parameter| parameter.default.as_str());
        self.given.get(name).map_or(default, String::as_str)
    }

    fn refuse(&self, name: &str, wanted: &str) -> String {
        format!("parameter `{name}` of method `{}` is `{}`; it must be {wanted}", self.entry.id, self.text(name))
    }

    /// A number in a range, ends included.
    fn number(&self, name: &str, auto: f64, least: f64, most: f64) -> Result<f64, String> {
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

    fn count(&self, name: &str, auto: usize, least: usize, most: usize) -> Result<usize, String> {
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

    fn choice<'b>(&self, name: &str, choices: &[&'b str]) -> Result<&'b str, String> {
        let text = self.text(name);
        let found = choices.iter().find(|choice| **choice == text);
        found.copied().ok_or_else(|| {
            let near = nearest(text, choices.iter().copied());
            self.refuse(name, &format!("one of {}; the nearest is `{near}`", choices.join(", ")))
        })
    }
}

/// Everything that building needs.
struct Builder<'a> {
    values: Values<'a>,
    known: &'a Known,
    randomness: &'a CommonRandomness,
    dim: usize,
    scale: f64,
    double: bool,
}

/// A channel, and what theory needs of it.
struct Compressed {
    channel: Channel,
    omega: f64,
    /// Whether machines err alike.
    common: bool,
    /// Whether the mean of all is still sparse.
    sparse: bool,
}

impl Builder<'_> {
    fn exact(&self) -> Exact {
        Exact { double: self.double }
    }

    fn dense(&self) -> Coding {
        match self.double {
            true => Coding::fixed(Dense::double(self.dim)),
            false => Coding::fixed(Dense::single(self.dim)),
        }
    }

    fn dense_down(&self) -> Downlink {
        Downlink::Dense { double: self.double }
    }

    /// Sparse vectors come down as what they are, unless 64 bits are wanted.
    fn sparse_down(&self) -> Downlink {
        if self.double { self.dense_down() } else { Downlink::Sparse }
    }

    fn keep(&self, name: &str) -> Result<usize, String> {
        self.values.count(name, self.dim.div_ceil(50), 1, self.dim.max(1))
    }

    fn levels(&self) -> Result<u32, String> {
        let root = ((self.dim as f64).sqrt() as usize).max(1);
        Ok(self.values.count("levels", root, 1, (1 << 31) - 1)? as u32)
    }

    fn bits(&self) -> Result<f64, String> {
        let bits = self.values.number("bits", 2.0, 0.0, 4.0)?;
        if bits > 0.0 { Ok(bits) } else { Err(self.values.refuse("bits", "above 0 and up to 4")) }
    }

    /// The unbiased codec that `codec` names.
    fn unbiased(&self) -> Result<Compressed, String> {
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
            let pairs = (self.keep("k")? * self.known.machines) as f64 * (32.0 + index_bits);
            !self.double && pairs < 32.0 * dim as f64
        };
        let channel = Channel::new(coding, self.sparse_down(), randomness);
        Ok(Compressed { channel, omega, common: false, sparse })
    }

    /// As [`Builder::unbiased`], for two vectors up and one dense one down, where that is shorter.
    fn unbiased_pair(&self) -> Result<(Compressed, bool), String> {
        let compressed = self.unbiased()?;
        let at_hub = !compressed.sparse;
        let channel = if at_hub { compressed.channel.with_down(self.dense_down()) } else { compressed.channel };
        Ok((Compressed { channel, ..compressed }, at_hub))
    }

    /// The contraction that `codec` names, and the delta that its step is for: the law's, or that of normal vectors for signs and
    /// rotations, whose worst case never happens.
    fn contraction(&self) -> Result<(Coding, f64), String> {
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

    fn batch(&self) -> Result<Option<Batch>, String> {
        let rows = self.values.count("batch", 0, 0, usize::MAX)?;
        Ok((rows > 0).then(|| Batch { rows, randomness: self.randomness.clone() }))
    }

    /// L of f, or the smoothness that mini-batches have in the mean square: tr(A)/(n b) more.
    fn smoothness(&self, batch: &Option<Batch>) -> f64 {
        let rows = batch.as_ref().map_or(f64::INFINITY, |batch| (batch.rows * self.known.machines) as f64);
        self.known.smoothness + self.known.trace / rows
    }

    /// An estimator with descent.
    fn descent(
        &self,
        start: Vec<f64>,
        estimator: impl MeanEstimator + 'static,
        step: f64,
        batch: Option<Batch>,
    ) -> Box<dyn Method> {
        let descent = Descent::new(start, Step::Fixed(self.scale * step)).with_l1(self.known.l1);
        Box::new(GradientMethod::new(estimator, descent).with_batch(batch))
    }

    /// Plain averaging of an unbiased codec: 1/(L + 2 omega Lmax/n), since E||ghat||^2 <= ||grad f||^2 + (omega/n) mean ||g_i||^2.
    fn plain(&self, start: Vec<f64>, coding: Coding, down: Downlink, omega: f64) -> Result<Box<dyn Method>, String> {
        let batch = self.batch()?;
        let noise = 2.0 * self.known.noise(omega, false) * self.known.max_smoothness;
        let step = 1.0 / (self.smoothness(&batch) + noise);
        let estimator = Gathered::new(Channel::new(coding, down, self.randomness));
        Ok(self.descent(start, estimator, step, batch))
    }

    /// Error feedback with the step of a contraction delta.
    fn feedback(&self, start: Vec<f64>, coding: Coding, down: Downlink, delta: f64) -> Result<Box<dyn Method>, String> {
        let estimator = Gathered::new(Channel::new(coding, down, self.randomness)).with_memory(self.dim, 1.0, 1.0);
        self.remembering(start, estimator, delta, 1.0)
    }

    /// Any estimator with an error memory; `gain` is how often a gradient counts over all rounds.
    fn remembering(
        &self,
        start: Vec<f64>,
        estimator: impl MeanEstimator + 'static,
        delta: f64,
        gain: f64,
    ) -> Result<Box<dyn Method>, String> {
        let batch = self.batch()?;
        let more = self.known.smoothness / self.smoothness(&batch);
        let step = self.known.contracted_step(delta) * more / gain;
        Ok(self.descent(start, estimator, step, batch))
    }

    fn sketch(&self, keep: usize) -> Result<CountSketch, String> {
        let rows = self.values.count("rows", 5, 1, 99)?;
        let auto = self.dim.div_ceil(10).max(10 * keep).min(self.dim);
        let columns = self.values.count("columns", auto, 1, 1 << 24)?;
        Ok(CountSketch::new(self.dim, rows, columns, 0, self.randomness))
    }

    /// The diagonal of A with no entry below mu; L everywhere where it is not known.
    fn diagonal(&self) -> Vec<f64> {
        let mu = self.known.mu();
        match &self.known.diagonal {
            Some(diagonal) => diagonal.iter().map(|entry| entry.max(mu)).collect(),
            None => vec![self.known.smoothness; self.dim],
        }
    }
}

fn law_delta(coding: Coding) -> (Coding, f64) {
    let delta = match coding.law() {
        Law::Contractive { delta } => delta,
        _ => 1.0,
    };
    (coding, delta)
}

/// Builds a method from its id and parameters. Every machine builds its own from the same arguments.
pub fn build(
    id: &str,
    parameters: &BTreeMap<String, String>,
    start: Vec<f64>,
    known: &Known,
    randomness: &CommonRandomness,
) -> Result<Box<dyn Method>, String> {
    assert_eq!(known.dim, start.len(), "the start has the problem's dimension");
    let values = Values::new(id, parameters)?;
    let scale = values.number("scale", 1.0, f64::MIN_POSITIVE, f64::INFINITY)?;
    let double = values.choice("wire", &["f32", "f64"])? == "f64";
    let b = Builder { dim: known.dim, values, known, randomness, scale, double };
    let (v, dim, n) = (&b.values, b.dim, known.machines as f64);
    let (big, most, mu) = (known.smoothness, known.max_smoothness, known.mu());
    const DIRECT: &[&str] = &[
        "acgd",
        "cg",
        "fedlin",
        "scaffnew",
        "gradskip",
        "adiana",
        "sega",
        "asega",
        "signsgd",
        "ef21-p",
        "canita",
        "fedavg",
        "scaffold",
        "ibcd",
        "onebit-adam",
        "dsvrg",
    ];
    if known.l1 != 0.0 && DIRECT.contains(&id) {
        return Err(format!("method `{id}` has no proximal step for an l1 term; take `diana`, `ef21` or `cgd`"));
    }
    Ok(match id {
        "cgd" | "sgd" => {
            let batch = b.batch()?;
            let step = 1.0 / b.smoothness(&batch);
            b.descent(start, b.exact(), step, batch)
        }
        "acgd" => {
            let step = scale / big;
            let root = (mu * step).sqrt().min(1.0);
            let momentum = v.number("momentum", (1.0 - root) / (1.0 + root), 0.0, 1.0)?;
            Box::new(GradientMethod::new(b.exact(), Accelerated::new(start, step, 1.0 - momentum)))
        }
        "cg" => Box::new(Conjugate::new(start, double)),
        "fedlin" => {
            let (keep, local) = (v.count("k", dim, 1, dim.max(1))?, v.count("local", 5, 1, 1_000_000)?);
            let estimator = if keep == dim {
                Gathered::new(Channel::new(b.dense(), b.dense_down(), randomness))
            } else {
                let channel = Channel::new(Coding::fixed(TopK::new(dim, keep)), b.sparse_down(), randomness);
                Gathered::new(channel).with_memory(dim, 1.0, 1.0)
            };
            let step = scale / (local as f64 * most);
            Box::new(FedLin::new(start, estimator, b.exact(), step, local))
        }
        "scaffnew" | "gradskip" => {
            let step = scale / most;
            let p = v.number("p", (step * mu).sqrt(), 1e-6, 1.0)?;
            let method = Scaffnew::new(start, step, p, b.exact(), randomness);
            Box::new(if id == "gradskip" { method.skipping(mu, most) } else { method })
        }
        "diana" => {
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let step = 1.0 / (big + 6.0 * known.noise(omega, common) * if common { big } else { most });
            b.descent(start, Diana::new(channel, dim, 1.0 / (1.0 + omega)), step, None)
        }
        "adiana" => {
            let (Compressed { channel, omega, common, .. }, at_hub) = b.unbiased_pair()?;
            let mut constants =
                AdianaConstants::theory(omega, known.noise(omega, common), if common { big } else { most }, mu);
            constants.eta *= scale;
            Box::new(Adiana::new(start, channel, constants, at_hub, randomness))
        }
        "canita" => {
            let (Compressed { channel, omega, common, .. }, at_hub) = b.unbiased_pair()?;
            let smoothness = if common { big } else { most };
            let constants = CanitaConstants::theory(omega, known.noise(omega, common), smoothness, scale);
            Box::new(Canita::new(start, channel, constants, at_hub, randomness))
        }
        "sega" => {
            let keep = b.keep("k")?;
            let omega = dim as f64 / keep as f64 - 1.0;
            let largest = b.diagonal().into_iter().fold(0.0, f64::max);
            let step = scale / (2.0 * big + 4.27 * omega * largest);
            Box::new(Sega::new(start, keep, step, double, randomness))
        }
        "asega" => {
            let keep = b.keep("k")? as f64;
            let roots: Vec<f64> = b.diagonal().into_iter().map(f64::sqrt).collect();
            let sum: f64 = roots.iter().sum();
            let probabilities: Vec<f64> = roots.iter().map(|root| (keep * root / sum).min(1.0)).collect();
            let constants = asega_constants(&b, &probabilities);
            Box::new(Asega::new(start, probabilities, constants, double, randomness))
        }
        "onebit-sgd" => {
            let column = v.count("column", dim, 1, usize::MAX)?.max(1);
            b.feedback(start, Coding::fixed(OneBit::new(dim, column)), b.dense_down(), std::f64::consts::FRAC_2_PI)?
        }
        "qsgd" => {
            let bucket = v.count("bucket", dim, 1, usize::MAX)?.max(1);
            let coding = Coding::fixed(Qsgd::new(dim, b.levels()?, bucket, Norm::Euclidean, randomness));
            let omega = coding.law().omega().unwrap_or(0.0);
            b.plain(start, coding, b.dense_down(), omega)?
        }
        "terngrad" => {
            let clip = v.number("clip", 2.5, 0.0, f64::INFINITY)?;
            let codec = TernGrad::new(dim, dim.max(1), (clip > 0.0).then_some(clip), randomness);
            let omega = ((dim as f64).sqrt() - 1.0) / 2.0;
            b.plain(start, Coding::fixed(codec), b.dense_down(), omega.max(0.0))?
        }
        "natural" => b.plain(start, Coding::fixed(Natural::new(dim, randomness)), b.dense_down(), 0.125)?,
        "drive" | "eden" => {
            let coding = match id {
                "drive" => Coding::fixed(Drive::new(dim, Aim::Unbiased, randomness)),
                _ => Coding::fixed(Eden::new(dim, b.bits()?, Aim::Unbiased, randomness)),
            };
            let omega = coding.law().omega().unwrap_or(0.0);
            b.plain(start, coding, b.dense_down(), omega)?
        }
        "alq" => {
            let bits = v.count("bits", 3, 2, 8)? as u32;
            let bucket = v.count("bucket", dim, 1, usize::MAX)?.max(1);
            let coding = Coding::Alq(Box::new(Alq::new(dim, bits, bucket, randomness)));
            let omega = coding.law().omega().unwrap_or(0.0);
            b.plain(start, coding, b.dense_down(), omega)?
        }
        "atomo" => {
            let rank = v.count("rank", 2, 1, usize::MAX)?;
            let coding = Coding::fixed(Atomo::new(dim, Shape::square(dim), rank, randomness));
            let omega = coding.law().omega().unwrap_or(0.0);
            b.plain(start, coding, b.dense_down(), omega)?
        }
        "sketchml" => {
            let buckets = v.count("buckets", 256, 2, 1 << 16)?;
            if buckets % 2 == 1 {
                return Err(v.refuse("buckets", "an even number"));
            }
            b.plain(start, Coding::fixed(SketchMl::new(dim, buckets)), b.dense_down(), 0.0)?
        }
        "topk" => b.plain(start, Coding::fixed(TopK::new(dim, b.keep("k")?)), b.sparse_down(), 0.0)?,
        "randk" => {
            let keep = b.keep("k")?;
            let omega = dim as f64 / keep as f64 - 1.0;
            if v.choice("indices", &["private", "common"])? == "private" {
                let codec = RandK::new(dim, keep, Indices::Private, randomness);
                b.plain(start, Coding::fixed(codec), b.sparse_down(), omega)?
            } else {
                let batch = b.batch()?;
                let step = 1.0 / (b.smoothness(&batch) * (1.0 + omega));
                b.descent(start, Gathered::new(Channel::common(dim, keep, randomness)), step, batch)
            }
        }
        "topk-ef" => {
            let (coding, delta) = law_delta(Coding::fixed(TopK::new(dim, b.keep("k")?)));
            b.feedback(start, coding, b.sparse_down(), delta)?
        }
        "dropping" => {
            let drop = v.number("drop", 0.98, 0.0, 1.0 - 1e-9)?;
            let sample = v.count("sample", 0, 0, usize::MAX)?;
            let codec = Dropping::new(dim, drop, randomness);
            let codec = if sample > 0 { codec.with_sample(sample) } else { codec };
            b.feedback(start, Coding::fixed(codec), b.sparse_down(), 1.0 - drop)?
        }
        "ef-signsgd" => {
            let coding = Coding::fixed(Sign::new(dim, Magnitude::Mean));
            b.feedback(start, coding, b.dense_down(), std::f64::consts::FRAC_2_PI)?
        }
        "ecq-sgd" => {
            let bucket = v.count("bucket", dim, 1, usize::MAX)?.max(1);
            let (gain, decay) = (v.number("gain", 0.2, 0.0, 1.0)?, v.number("decay", 0.9, 0.0, 1.0)?);
            let coding = Coding::fixed(Qsgd::new(dim, b.levels()?, bucket, Norm::Euclidean, randomness));
            let omega = coding.law().omega().unwrap_or(0.0);
            let estimator =
                Gathered::new(Channel::new(coding, b.dense_down(), randomness)).with_memory(dim, gain, decay);
            let batch = b.batch()?;
            let step = 1.0 / (b.smoothness(&batch) + 2.0 * known.noise(omega, false) * most);
            b.descent(start, estimator, step, batch)
        }
        "doublesqueeze" => {
            let ((up, delta), (down, _)) = (b.contraction()?, b.contraction()?);
            let down = Downlink::Coded { coding: down, memory: vec![0.0; dim] };
            // Both ways lose, so the contraction is that of the two together.
            b.feedback(start, up, down, delta / 2.0)?
        }
        "dgc" => {
            let keep = b.keep("k")?;
            let momentum = v.number("momentum", 0.9, 0.0, 0.999)?;
            let clip = v.number("clip", 0.0, 0.0, f64::INFINITY)?;
            let warm_up = v.count("warmup", 0, 0, usize::MAX)? as u64;
            let estimator = DroppedMomentum::new(dim, keep, momentum, clip, warm_up, randomness);
            b.remembering(start, estimator, keep as f64 / dim.max(1) as f64, 1.0 / (1.0 - momentum))?
        }
        "powersgd" => {
            let rank = v.count("rank", 2, 1, usize::MAX)?;
            let delta = (rank as f64 / Shape::square(dim).most_rank() as f64).min(1.0);
            b.remembering(start, LowRank::new(dim, rank, double, randomness), delta, 1.0)?
        }
        "sketched-sgd" => {
            let keep = b.keep("k")?;
            let candidates = keep.saturating_mul(v.count("candidates", 4, 1, 1 << 20)?);
            let estimator = SketchedSgd::new(b.sketch(keep)?, keep, candidates, randomness);
            b.remembering(start, estimator, keep as f64 / dim.max(1) as f64, 1.0)?
        }
        "fetchsgd" => {
            let keep = b.keep("k")?;
            let momentum = v.number("momentum", 0.9, 0.0, 0.999)?;
            let estimator = FetchSgd::new(b.sketch(keep)?, keep, momentum, randomness);
            b.remembering(start, estimator, keep as f64 / dim.max(1) as f64, 1.0 / (1.0 - momentum))?
        }
        "ef21" | "3pc" => {
            let (coding, delta) = b.contraction()?;
            let root = (1.0 - delta).max(0.0).sqrt();
            // A = 1 - sqrt(1 - delta), B = max((1 - delta)/A, zeta).
            let a = (1.0 - root).max(1e-12);
            let zeta = if id == "3pc" { v.number("zeta", root * root / a, 0.0, f64::INFINITY)? } else { 0.0 };
            let step = 1.0 / (big + most * ((root * root / a).max(zeta) / a).sqrt());
            let channel = Channel::new(coding, b.sparse_down(), randomness);
            b.descent(start, ThreePoint::new(channel, dim, zeta), step, None)
        }
        "lag" => {
            let zeta = v.number("zeta", 1.0, 0.0, f64::INFINITY)?;
            let channel = Channel::new(b.dense(), b.dense_down(), randomness);
            b.descent(start, ThreePoint::new(channel, dim, zeta), 1.0 / (big + most * zeta.sqrt()), None)
        }
        "ef21-p" => {
            let (down, delta) = b.contraction()?;
            let (up, omega) = match v.choice("up", &["dense", "randk"])? {
                "dense" => (b.dense(), 0.0),
                _ => {
                    let keep = b.keep("k_up")?;
                    let codec = RandK::new(dim, keep, Indices::Private, randomness);
                    (Coding::fixed(codec), dim as f64 / keep as f64 - 1.0)
                }
            };
            let alpha = if omega > 0.0 { 1.0 / (1.0 + omega) } else { 0.0 };
            let step = 1.0 / (1.0 / known.contracted_step(delta) + 6.0 * known.noise(omega, false) * most);
            Box::new(Ef21P::new(start, up, down, alpha, scale * step, randomness))
        }
        "marina" => {
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let p = v.number("p", 1.0 / (1.0 + omega), 1e-6, 1.0)?;
            let spread = ((1.0 - p) * known.noise(omega, common) / p).sqrt();
            let step = 1.0 / (big + spread * if common { big } else { most });
            b.descent(start, Marina::new(channel, b.exact(), dim, p, randomness), step, None)
        }
        "dasha" => {
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let spread = (16.0 * known.noise(omega, common) * (2.0 * omega + 1.0)).sqrt();
            let step = 1.0 / (big + spread * if common { big } else { most });
            b.descent(start, Dasha::new(channel, b.exact(), dim, 1.0 / (2.0 * omega + 1.0)), step, None)
        }
        "fedavg" => {
            let local = v.count("local", 5, 1, 1_000_000)?;
            let batch = v.count("batch", 0, 0, usize::MAX)?;
            let keep = v.count("k", dim, 1, dim.max(1))?;
            let bits = v.number("bits", 0.0, 0.0, 4.0)?;
            let channel = if bits > 0.0 {
                Channel::new(Coding::fixed(Eden::new(dim, bits, Aim::Unbiased, randomness)), b.dense_down(), randomness)
            } else if keep < dim {
                let codec = RandK::new(dim, keep, Indices::Private, randomness);
                Channel::new(Coding::fixed(codec), b.sparse_down(), randomness)
            } else {
                Channel::new(b.dense(), b.dense_down(), randomness)
            };
            let rows = if batch == 0 { f64::INFINITY } else { batch as f64 };
            let step = scale / (most + known.trace / rows);
            Box::new(FedAvg::new(start, channel, step, local, batch, randomness))
        }
        "scaffold" => {
            let local = v.count("local", 5, 1, 1_000_000)?;
            let batch = v.count("batch", 0, 0, usize::MAX)?;
            let rows = if batch == 0 { f64::INFINITY } else { batch as f64 };
            let step = scale / (local as f64 * (most + known.trace / rows));
            let channel = Channel::new(b.dense(), b.dense_down(), randomness);
            Box::new(Scaffold::new(start, channel, step, local, batch, randomness))
        }
        "ibcd" => {
            let keep = b.keep("k")?;
            let share = keep as f64 / dim.max(1) as f64;
            let step = scale / (share * big + 2.0 * (1.0 - share) * most / n);
            Box::new(Ibcd::new(start, keep, step, b.sparse_down(), randomness))
        }
        "signsgd" => Box::new(MajorityVote::new(start, scale / big)),
        "onebit-adam" => {
            let warm_up = v.count("warmup", 20, 1, usize::MAX)? as u64;
            let betas = (v.number("beta1", 0.9, 0.0, 0.9999)?, v.number("beta2", 0.95, 0.0, 0.99999)?);
            Box::new(OneBitAdam::new(start, scale / big, warm_up, betas, b.exact(), randomness))
        }
        "dsvrg" => {
            let (inner, batch) = (v.count("inner", 0, 0, usize::MAX)?, v.count("batch", 1, 0, usize::MAX)?);
            let rows = if batch == 0 { f64::INFINITY } else { batch as f64 };
            let step = 0.1 * scale / (most + known.trace / rows);
            Box::new(Dsvrg::new(start, b.exact(), step, inner, batch, randomness))
        }
        _ => unreachable!("every id of the table is built"),
    })
}

/// The constants of ASEGA for these probabilities.
///
/// The step of y moves f by about -a sum g_j^2/p_j and ghat has the energy sum g_j^2/p_j, so E||ghat||^2 <= (2/a)(f(x) - E f(y)): linear
/// coupling then wants b = a/t and t = sqrt(a mu). For coordinates drawn independently the moved f is bounded by
/// v_j = A_jj (1 + p_j (c - 1)), c being the coupling, hence a <= p_j^2/v_j. The noise of h costs a constant that the paper has too; a quarter
/// is measured to be enough.
fn asega_constants(b: &Builder<'_>, probabilities: &[f64]) -> AsegaConstants {
    let mu = b.known.mu();
    let likeliest = probabilities.iter().copied().fold(0.0, f64::max);
    let together = 1.0 + likeliest * (b.known.coupling - 1.0);
    let least = probabilities.iter().zip(&b.diagonal()).map(|(p, a)| p * p / a).fold(f64::INFINITY, f64::min);
    let alpha = 0.25 * b.scale * least / together;
    let tau = (alpha * mu).sqrt().min(1.0);
    AsegaConstants { alpha, beta: 0.5 * alpha / tau, tau: 0.5 * tau, strong_convexity: mu }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_every_parameter_has_a_meaning() {
        let entries = catalogue();
        for (i, entry) in entries.iter().enumerate() {
            assert!(entries[..i].iter().all(|other| other.id != entry.id), "{}", entry.id);
            assert!(entry.parameters.iter().all(|parameter| !parameter.meaning.is_empty()));
        }
    }

    #[test]
    fn distances_count_changes() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
