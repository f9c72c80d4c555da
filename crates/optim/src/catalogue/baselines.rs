//! The baselines, one row each: what it is called, where it comes from, what can be set, and how it is built with the steps of its theory.

use corewire_compress::{
    Aim, Alq, Atomo, Drive, Dropping, Eden, Indices, Magnitude, Narrow, Natural, Norm, OneBit, Qsgd, RandK, Shape,
    Sign, SketchMl, TernGrad, TopK,
};

use super::builder::{Builder, Built, Compressed, boxed, law_delta};
use super::{BATCH, MethodInfo, PLAIN, SCALE, WIRE, parameter};
use crate::estimator::{
    Channel, Coding, Dasha, Diana, Downlink, DroppedMomentum, FetchSgd, Gathered, LowRank, Marina, SketchedSgd,
    ThreePoint,
};
use crate::method::accelerated::Accelerated;
use crate::method::baselines::coordinates::{Asega, AsegaConstants, Ibcd, Sega};
use crate::method::baselines::learned_hessian::{Contraction, FedNl};
use crate::method::baselines::local::{Dsvrg, FedAvg, FedLin, Scaffold};
use crate::method::baselines::loopless::{VrDiana, VrDianaSettings};
use crate::method::baselines::matrix_aware::{Bounds, DianaPlus, WhitenedShifts};
use crate::method::baselines::model::Ef21P;
use crate::method::baselines::quasi_newton::Lbfgs;
use crate::method::baselines::second_order::{Dane, Disco, DiscoSettings, Giant, OneShot};
use crate::method::baselines::shipped::ShipRows;
use crate::method::baselines::signs::{MajorityVote, OneBitAdam};
use crate::method::baselines::sketched_hessian::NewtonSketch;
use crate::method::baselines::skip::{LoCoDl, LoCoDlConstants, Scaffnew};
use crate::method::baselines::two_direction::{TwoDirection, TwoDirectionConstants};
use crate::method::baselines::two_query::{Adiana, AdianaConstants, AdianaShifts, Canita, CanitaConstants};
use crate::method::conjugate::Conjugate;
use crate::method::gradient::{Batch, GradientMethod};

/// Up to this dimension a Hessian is kept whole.
const MOST_LEARNED: usize = 4096;

/// All of them.
pub(super) const BASELINES: &[MethodInfo] = &[
    MethodInfo {
        id: "cgd",
        title: "Gradient descent",
        line: "x -= h mean g_i",
        reference: "Cauchy 1847",
        family: "baseline",
        exact: true,
        proximal: true,
        parameters: &[SCALE, WIRE, BATCH],
        build: cgd_or_sgd,
        ..PLAIN
    },
    MethodInfo {
        id: "acgd",
        title: "Accelerated gradient descent",
        line: "gradient descent with Nesterov's momentum",
        reference: "Nesterov, Introductory Lectures on Convex Optimization, 2004",
        family: "baseline",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("momentum", "auto", "weight of the last move; auto is (1 - sqrt(mu h))/(1 + sqrt(mu h))"),
        ],
        build: |b| {
            let v = &b.values;
            let big = b.constants.smoothness;
            let mu = b.constants.mu();
            let scale = b.scale;
            let start = b.start();
            let step = scale / big;
            let root = (mu * step).sqrt().min(1.0);
            let momentum = v.number("momentum", (1.0 - root) / (1.0 + root), 0.0, 1.0)?;
            Ok(boxed(GradientMethod::new(
                b.exact(),
                Accelerated::new(start, step, 1.0 - momentum).with_proximal(b.constants.proximal),
            )))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "cg",
        title: "Conjugate gradients",
        line: "Polak and Ribiere's directions, exact curvature along them",
        reference: "Hestenes and Stiefel 1952; Polak and Ribiere 1969",
        family: "baseline",
        exact: true,
        convex_only: true,
        parameters: &[
            WIRE,
            parameter("codec", "float", "how vectors travel: float, as `wire` says, or bf16 or int8, both ways"),
            parameter(
                "replace",
                "auto",
                "rounds of H p after which the gradient of a quadratic is asked for anew; 0 sends gradients alone; \
                 auto is 25, 4 with bf16, 6 with int8",
            )
            .trying(&["0", "12"]),
        ],
        build: |b| {
            let v = &b.values;
            let replace = |auto: usize| v.count("replace", auto, 0, usize::MAX);
            let (codec, replace) = match v.choice("codec", &["float", "bf16", "int8"])? {
                "bf16" => (Narrow::bf16(b.dim), replace(4)?),
                "int8" => (Narrow::int8(b.dim), replace(6)?),
                _ => {
                    let exact = || Box::new(b.exact());
                    return Ok(boxed(Conjugate::new(b.start(), exact(), exact(), replace(25)?)));
                }
            };
            let channel = |memory: Vec<f64>| {
                let down = Downlink::Coded { coding: Coding::fixed(codec.clone()), memory };
                Channel::new(Coding::fixed(codec.clone()), down, b.randomness)
            };
            // Products vanish with the directions; gradients of unlike machines do not, so differences of them travel.
            let gradients = ThreePoint::new(channel(vec![0.0; b.dim]), b.dim, 0.0);
            let products = Gathered::new(channel(Vec::new()));
            Ok(boxed(Conjugate::new(b.start(), Box::new(gradients), Box::new(products), replace)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "lbfgs",
        title: "L-BFGS",
        line: "quasi-Newton steps from the last few gradients; every evaluation is an exchange",
        reference: "Liu and Nocedal, On the Limited Memory BFGS Method for Large Scale Optimization, 1989",
        family: "baseline",
        exact: true,
        convex_only: true,
        parameters: &[SCALE, WIRE, parameter("memory", "10", "pairs that are remembered").trying(&["20", "40"])],
        build: |b| {
            let memory = b.values.count("memory", 10, 1, 1000)?;
            Ok(boxed(Lbfgs::new(b.start(), memory, b.scale / b.constants.smoothness, b.exact())))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "giant",
        title: "GIANT",
        line: "the mean of the machines' own Newton directions for the mean gradient, and a step from a grid",
        reference: "Wang, Roosta-Khorasani, Xu, Mahoney, GIANT: Globally Improved Approximate Newton Method for \
            Distributed Optimization, 2018",
        family: "second-order",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            WIRE,
            parameter("inner", "100", "conjugate gradient steps per direction, at most"),
            parameter("search", "grid", "how long a step is: grid, or none, which takes 1 and spares an exchange")
                .trying(&["none"]),
            parameter("shrink", "4", "the steps of the grid are 1, 1/shrink, .. 1/shrink^9"),
        ],
        build: |b| {
            let inner = b.values.count("inner", 100, 1, 1_000_000)?;
            let shrink = b.values.number("shrink", 4.0, 1.01, 16.0)?;
            let shrink = (b.values.choice("search", &["grid", "none"])? == "grid").then_some(shrink);
            Ok(boxed(Giant::new(b.start(), inner, shrink, b.exact())))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "disco",
        title: "DiSCO",
        line: "damped Newton steps by conjugate gradients, preconditioned by machine 0's Hessian; every product is an exchange",
        reference: "Zhang and Xiao, DiSCO: Distributed Optimization for Self-Concordant Empirical Loss, 2015",
        family: "second-order",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            parameter("scale", "1", "factor on 1/mu: how far machine 0's Hessian is trusted"),
            WIRE,
            parameter("mu", "auto", "added to machine 0's Hessian, times the root of its rows; auto is L/10"),
            parameter("tolerance", "auto", "residual of a Newton step; auto is sqrt(alpha/L)/20"),
            parameter("inner", "100", "products per Newton step, at most"),
        ],
        build: |b| {
            let (big, v) = (b.constants.smoothness, &b.values);
            let settings = DiscoSettings {
                mu: v.number("mu", 0.1 * big, 0.0, f64::INFINITY)? / b.scale,
                tolerance: v.number("tolerance", 0.05 * (b.constants.mu() / big).sqrt(), 1e-12, 1.0)?,
                inner: v.count("inner", 100, 1, 1_000_000)?,
                double: b.double,
            };
            Ok(boxed(Disco::new(b.start(), settings)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "dane",
        title: "DANE",
        line: "every machine minimises its own f_i, corrected to the mean gradient and pulled to x; then the mean",
        reference: "Shamir, Srebro, Zhang, Communication-Efficient Distributed Optimization using an Approximate Newton-type Method, 2014",
        family: "second-order",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            parameter("scale", "1", "factor on 1/mu"),
            WIRE,
            parameter("mu", "auto", "weight of the pull to x; auto is L/2, and the paper tries 0 and 3 alpha"),
        ],
        build: |b| {
            let mu = b.values.number("mu", 0.5 * b.constants.smoothness, 0.0, f64::INFINITY)?;
            Ok(boxed(Dane::new(b.start(), mu / b.scale, b.exact())))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "newton-sketch",
        title: "Newton sketch",
        line: "Newton's method at the hub with random sketches of the machines' Hessians",
        reference: "Pilanci and Wainwright, Newton Sketch, 2017; Li and others, FedNS, 2024",
        family: "second-order",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            parameter("rows", "32", "rows of a machine's sketch, of d floats each").trying(&["8", "16", "64", "128"])
        ],
        build: |b| {
            let rows = b.values.count("rows", 32, 1, 1 << 20)?;
            Ok(boxed(NewtonSketch::new(b.start(), rows, b.randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "one-shot",
        title: "One-shot averaging",
        line: "the mean of the machines' own optima, in one exchange; not the optimum",
        reference: "Zhang, Duchi, Wainwright, Communication-Efficient Algorithms for Statistical Optimization, 2013",
        family: "second-order",
        convex_only: true,
        strongly_convex: true,
        parameters: &[WIRE],
        build: |b| Ok(boxed(OneShot::new(b.start(), b.exact()))),
        ..PLAIN
    },
    MethodInfo {
        id: "ship-rows",
        title: "The rows themselves",
        line: "every machine sends its rows, packed by xz; machine 0 finds the optimum and sends it to all, in one exchange",
        reference: "no paper: what anybody would do who may move the rows",
        family: "baseline",
        exact: true,
        convex_only: true,
        proximal: true,
        build: |b| Ok(boxed(ShipRows::new(b.start(), b.shipment.cloned()))),
        ..PLAIN
    },
    MethodInfo {
        id: "fednl",
        title: "FedNL",
        line: "Newton's method with a Hessian that the hub learns from compressed differences",
        reference: "Safaryan, Islamov, Qian, Richtarik, FedNL: Making Newton-Type Methods Applicable to Federated Learning, 2022",
        family: "second-order",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            parameter("codec", "rank", "what travels of a difference: rank (eigenpairs) or topk (entries)"),
            parameter("rank", "1", "eigenpairs per message"),
            parameter("k", "auto", "entries per message; auto is d"),
            parameter(
                "first",
                "hessian",
                "what is learned from: hessian sends d(d+1)/2 floats once, none begins at alpha",
            ),
        ],
        build: |b| {
            let v = &b.values;
            if b.dim > MOST_LEARNED {
                return Err(format!(
                    "fednl keeps d^2/2 numbers per machine, and d = {} is above {MOST_LEARNED}: take core-newton",
                    b.dim
                ));
            }
            let contraction = match v.choice("codec", &["rank", "topk"])? {
                "rank" => Contraction::Rank(v.count("rank", 1, 1, b.dim.max(1))?),
                _ => Contraction::Entries(v.count("k", b.dim, 1, usize::MAX)?),
            };
            Ok(boxed(FedNl::new(b.start(), contraction, v.choice("first", &["hessian", "none"])? == "hessian")))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "sgd",
        title: "Mini-batch SGD",
        line: "x -= h times the mean of mini-batch gradients",
        reference: "Robbins and Monro 1951",
        family: "baseline",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("batch", "16", "rows of a mini-batch per machine; 0 takes all")],
        build: cgd_or_sgd,
        ..PLAIN
    },
    MethodInfo {
        id: "fedlin",
        title: "FedLin",
        line: "local steps corrected by the difference of local and mean gradient",
        reference: "Mitra, Jaafar, Pappas, Hassani, Linear Convergence in Federated Learning, 2021",
        family: "local",
        exact: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("k", "auto", "coordinates of a compressed vector; auto sends all"),
            parameter("local", "5", "local steps per round"),
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let most = b.constants.max_smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let start = b.start();
            let (keep, local) = (v.count("k", dim, 1, dim.max(1))?, v.count("local", 5, 1, 1_000_000)?);
            let estimator = if keep == dim {
                Gathered::new(Channel::new(b.dense(), b.dense_down(), randomness))
            } else {
                let channel = Channel::new(Coding::fixed(TopK::new(dim, keep)), b.sparse_down(), randomness);
                Gathered::new(channel).with_memory(dim, 1.0, 1.0)
            };
            let step = scale / (local as f64 * most);
            Ok(boxed(FedLin::new(start, estimator, b.exact(), step, local)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "scaffnew",
        title: "Scaffnew (ProxSkip)",
        line: "local steps with control variates, communication by a common coin",
        reference: "Mishchenko, Malinovsky, Stich, Richtarik, ProxSkip, 2022",
        family: "local",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[SCALE, WIRE, parameter("p", "auto", "probability of communication, or of full gradients")],
        build: scaffnew_or_gradskip,
        ..PLAIN
    },
    MethodInfo {
        id: "gradskip",
        title: "GradSkip",
        line: "Scaffnew whose well-conditioned machines skip gradients",
        reference: "Maranjyan, Safaryan, Richtarik, GradSkip, 2022",
        family: "local",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[SCALE, WIRE, parameter("p", "auto", "probability of communication, or of full gradients")],
        build: scaffnew_or_gradskip,
        ..PLAIN
    },
    MethodInfo {
        id: "locodl",
        title: "LoCoDL",
        line: "local steps, and compressed differences to a common model by a common coin",
        reference: "Condat, Maranjyan, Richtarik, LoCoDL: Communication-Efficient Distributed Learning with \
            Local Training and Compression, 2024",
        family: "local",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter(
                "codec",
                "natural",
                "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden",
            ),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
        ],
        build: |b| {
            let known = b.constants;
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let step = b.scale / known.max_smoothness;
            let constants = LoCoDlConstants::theory(step, known.mu(), omega, known.noise(omega, common));
            Ok(boxed(LoCoDl::new(b.start(), channel, constants, b.randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "diana",
        title: "DIANA",
        line: "compressed differences to shifts that learn the gradients",
        reference: "Mishchenko, Gorbunov, Takac, Richtarik, Distributed Learning with Compressed Gradient Differences, 2019",
        family: "variance-reduced",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "randk", "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
        ],
        build: |b| {
            let dim = b.dim;
            let big = b.constants.smoothness;
            let most = b.constants.max_smoothness;
            let known = b.constants;
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let step = 1.0 / (big + 6.0 * known.noise(omega, common) * if common { big } else { most });
            Ok(b.descent(Diana::new(channel, dim, 1.0 / (1.0 + omega)), step, None))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "diana-plus",
        title: "DIANA+",
        line: "DIANA on differences whitened by each machine's smoothness matrix, which travels once",
        reference: "Safaryan, Hanzely, Richtarik, Smoothness Matrices Beat Smoothness Constants, 2021",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("k", "auto", "coordinates per message, on average; auto is d/50, rounded up"),
        ],
        build: |b| {
            let bounds = matrix_aware(b)?;
            Ok(boxed(DianaPlus::new(b.start(), bounds, b.double, b.randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "vr-diana",
        title: "VR-DIANA",
        line: "DIANA on mini-batches whose noise a full gradient at an earlier point removes",
        reference: "Horvath, Kovalev, Mishchenko, Stich, Richtarik, Stochastic Distributed Learning with \
            Gradient Quantization and Variance Reduction, 2019",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "randk", "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
            parameter("batch", "1", "rows of a mini-batch per machine; 0 takes all"),
            parameter("p", "0.05", "probability of a full gradient; the paper takes 1 over a machine's rows"),
        ],
        build: |b| {
            let (known, v) = (b.constants, &b.values);
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let batch = v.count("batch", 1, 0, usize::MAX)?;
            let rows = if batch == 0 { f64::INFINITY } else { batch as f64 };
            let own = if common { known.smoothness } else { known.max_smoothness } + known.trace / rows;
            let sampled = known.trace / (rows * known.machines as f64);
            let settings = VrDianaSettings {
                step: b.scale / (known.smoothness + 6.0 * known.noise(omega, common) * own + 6.0 * sampled),
                batch,
                probability: v.number("p", 0.05, 1e-6, 1.0)?,
                proximal: known.proximal,
            };
            let estimator = Diana::new(channel, b.dim, 1.0 / (1.0 + omega));
            Ok(boxed(VrDiana::new(b.start(), estimator, settings, b.randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "adiana",
        title: "ADIANA",
        line: "DIANA with momentum",
        reference: "Li, Kovalev, Qian, Richtarik, Acceleration for Compressed Gradient Descent, 2020",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "randk", "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
        ],
        build: |b| {
            let big = b.constants.smoothness;
            let most = b.constants.max_smoothness;
            let mu = b.constants.mu();
            let scale = b.scale;
            let randomness = b.randomness;
            let known = b.constants;
            let start = b.start();
            let (Compressed { channel, omega, common, .. }, at_hub) = b.unbiased_pair()?;
            let constants =
                AdianaConstants::theory(omega, known.noise(omega, common), if common { big } else { most }, mu);
            let shifts = AdianaShifts::new(start.len(), channel, constants.times(scale), at_hub);
            Ok(boxed(Adiana::new(start, shifts, randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "adiana-plus",
        title: "ADIANA+",
        line: "ADIANA on differences whitened by each machine's smoothness matrix, which travels once",
        reference: "Safaryan, Hanzely, Richtarik, Smoothness Matrices Beat Smoothness Constants, 2021",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("k", "auto", "coordinates per code, on average; auto is d/50, rounded up"),
        ],
        build: |b| {
            let bounds = matrix_aware(b)?;
            let shifts = WhitenedShifts::new(b.dim, bounds, b.double, b.randomness);
            Ok(boxed(Adiana::new(b.start(), shifts, b.randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "sega",
        title: "SEGA",
        line: "an estimate of the gradient learned coordinate by coordinate",
        reference: "Hanzely, Mishchenko, Richtarik, SEGA, 2018",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        parameters: &[SCALE, WIRE, parameter("k", "auto", "coordinates per message; auto is d/50, rounded up")],
        build: |b| {
            let dim = b.dim;
            let big = b.constants.smoothness;
            let scale = b.scale;
            let double = b.double;
            let randomness = b.randomness;
            let start = b.start();
            let keep = b.keep("k")?;
            let omega = dim as f64 / keep as f64 - 1.0;
            let largest = b.diagonal().into_iter().fold(0.0, f64::max);
            let step = scale / (2.0 * big + 4.27 * omega * largest);
            Ok(boxed(Sega::new(start, keep, step, double, randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "asega",
        title: "ASEGA",
        line: "SEGA with momentum and importance sampling",
        reference: "Hanzely, Mishchenko, Richtarik, SEGA, 2018",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[SCALE, WIRE, parameter("k", "auto", "coordinates per message; auto is d/50, rounded up")],
        build: |b| {
            let double = b.double;
            let randomness = b.randomness;
            let start = b.start();
            let keep = b.keep("k")? as f64;
            let roots: Vec<f64> = b.diagonal().into_iter().map(f64::sqrt).collect();
            let sum: f64 = roots.iter().sum();
            let probabilities: Vec<f64> = roots.iter().map(|root| (keep * root / sum).min(1.0)).collect();
            let constants = asega_constants(b, &probabilities);
            Ok(boxed(Asega::new(start, probabilities, constants, double, randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "onebit-sgd",
        title: "1-bit SGD",
        line: "signs decoded by two means, with error feedback",
        reference: "Seide, Fu, Droppo, Li, Yu, 1-Bit Stochastic Gradient Descent, 2014",
        family: "error-feedback",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("column", "auto", "coordinates that share two means; auto is all"), BATCH],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let column = v.count("column", dim, 1, usize::MAX)?.max(1);
            b.feedback(Coding::fixed(OneBit::new(dim, column)), b.dense_down(), std::f64::consts::FRAC_2_PI)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "qsgd",
        title: "QSGD",
        line: "stochastic rounding to levels of the norm",
        reference: "Alistarh, Grubic, Li, Tomioka, Vojnovic, QSGD, 2017",
        family: "quantisation",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bucket", "auto", "coordinates that share a norm; auto is all"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let bucket = v.count("bucket", dim, 1, usize::MAX)?.max(1);
            let coding = Coding::fixed(Qsgd::new(dim, b.levels()?, bucket, Norm::Euclidean, randomness));
            let omega = coding.law().omega().unwrap_or(0.0);
            b.plain(coding, b.dense_down(), omega)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "terngrad",
        title: "TernGrad",
        line: "minus one, zero or one times a scale",
        reference: "Wen and others, TernGrad, 2017",
        family: "quantisation",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("clip", "2.5", "root mean squares at which entries are clipped; 0 leaves them"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let clip = v.number("clip", 2.5, 0.0, f64::INFINITY)?;
            let codec = TernGrad::new(dim, dim.max(1), (clip > 0.0).then_some(clip), randomness);
            let omega = ((dim as f64).sqrt() - 1.0) / 2.0;
            b.plain(Coding::fixed(codec), b.dense_down(), omega.max(0.0))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "dropping",
        title: "Gradient dropping",
        line: "entries above a quantile, with error feedback",
        reference: "Aji and Heafield, Sparse Communication for Distributed Gradient Descent, 2017",
        family: "error-feedback",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("drop", "0.98", "share of the entries that is dropped"),
            parameter("sample", "0", "entries from which the quantile is estimated; 0 takes all"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let drop = v.number("drop", 0.98, 0.0, 1.0 - 1e-9)?;
            let sample = v.count("sample", 0, 0, usize::MAX)?;
            let codec = Dropping::new(dim, drop, randomness);
            let codec = if sample > 0 { codec.with_sample(sample) } else { codec };
            b.feedback(Coding::fixed(codec), b.sparse_down(), 1.0 - drop)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "dgc",
        title: "Deep gradient compression",
        line: "momentum before Top-K, with masked memories",
        reference: "Lin, Han, Mao, Wang, Dally, Deep Gradient Compression, 2018",
        family: "error-feedback",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("momentum", "0.9", "weight of the last velocity"),
            parameter("clip", "0", "norm times sqrt(n) at which gradients are clipped; 0 leaves them"),
            parameter("warmup", "0", "rounds in which more than k coordinates travel, falling from a quarter"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let keep = b.keep("k")?;
            let momentum = v.number("momentum", 0.9, 0.0, 0.999)?;
            let clip = v.number("clip", 0.0, 0.0, f64::INFINITY)?;
            let warm_up = v.count("warmup", 0, 0, usize::MAX)? as u64;
            let estimator = DroppedMomentum::new(dim, keep, momentum, clip, warm_up, randomness);
            b.remembering(estimator, keep as f64 / dim.max(1) as f64, 1.0 / (1.0 - momentum))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "powersgd",
        title: "PowerSGD",
        line: "a matrix of low rank by a power iteration, with error feedback",
        reference: "Vogels, Karimireddy, Jaggi, PowerSGD, 2019",
        family: "low-rank",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("rank", "2", "rank of the matrix, or expected atoms"),
            parameter("momentum", "0", "share of the velocity that is kept; the paper's networks have 0.9"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let rank = v.count("rank", 2, 1, usize::MAX)?;
            let momentum = v.number("momentum", 0.0, 0.0, 0.999)?;
            let delta = (rank as f64 / Shape::square(b.dim).most_rank() as f64).min(1.0);
            let estimator = LowRank::new(&b.constants.layout, rank, b.double, b.randomness);
            if b.settings.training.is_some() || momentum == 0.0 {
                return b.remembering(estimator, delta, 1.0);
            }
            let (step, batch) = b.remembered_step(delta, 1.0)?;
            Ok(boxed(GradientMethod::new(estimator, b.descending(step).with_momentum(momentum)).with_batch(batch)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "drive",
        title: "DRIVE",
        line: "signs of a random rotation",
        reference: "Vargaftik and others, DRIVE, 2021",
        family: "quantisation",
        proximal: true,
        parameters: &[SCALE, WIRE, BATCH],
        build: drive_or_eden,
        ..PLAIN
    },
    MethodInfo {
        id: "eden",
        title: "EDEN",
        line: "a few bits of a random rotation",
        reference: "Vargaftik and others, EDEN, 2022",
        family: "quantisation",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"), BATCH],
        build: drive_or_eden,
        ..PLAIN
    },
    MethodInfo {
        id: "topk",
        title: "Top-K",
        line: "the largest entries, no memory",
        reference: "Alistarh and others, The Convergence of Sparsified Gradient Methods, 2018",
        family: "sparsification",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"), BATCH],
        build: |b| {
            let dim = b.dim;
            b.plain(Coding::fixed(TopK::new(dim, b.keep("k")?)), b.sparse_down(), 0.0)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "topk-ef",
        title: "Top-K with error feedback",
        line: "the largest entries; the rest waits",
        reference: "Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, 2018",
        family: "error-feedback",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"), BATCH],
        build: |b| {
            let dim = b.dim;
            let (coding, delta) = law_delta(Coding::fixed(TopK::new(dim, b.keep("k")?)));
            b.feedback(coding, b.sparse_down(), delta)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "randk",
        title: "Rand-K",
        line: "random entries, scaled up; indices private or common",
        reference: "Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, 2018",
        family: "sparsification",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("indices", "private", "private: each machine draws and sends its own; common: all draw the same"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let keep = b.keep("k")?;
            let omega = dim as f64 / keep as f64 - 1.0;
            Ok(if v.choice("indices", &["private", "common"])? == "private" {
                let codec = RandK::new(dim, keep, Indices::Private, randomness);
                b.plain(Coding::fixed(codec), b.sparse_down(), omega)?
            } else {
                let batch = b.batch()?;
                let step = 1.0 / (b.smoothness(&batch) * (1.0 + omega));
                b.descent(Gathered::new(Channel::common(dim, keep, randomness)), step, batch)
            })
        },
        ..PLAIN
    },
    MethodInfo {
        id: "signsgd",
        title: "signSGD, majority vote",
        line: "the sign of the sum of signs",
        reference: "Bernstein, Wang, Azizzadenesheli, Anandkumar, signSGD, 2018",
        family: "quantisation",
        parameters: &[SCALE, WIRE],
        build: |b| {
            let big = b.constants.smoothness;
            let scale = b.scale;
            let start = b.start();
            Ok(boxed(MajorityVote::new(start, scale / big)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "gtopk",
        title: "gTop-k",
        line: "the largest entries of the sum of the machines' largest; the rest waits",
        reference: "Shi, Wang, Zhao, Tang, Wang, Huang, Chu, A Distributed Synchronous SGD Algorithm with Global \
            Top-k Sparsification for Low Bandwidth Networks, 2019",
        family: "error-feedback",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"), BATCH],
        build: |b| {
            let keep = b.keep("k")?;
            let coding = || Coding::fixed(TopK::new(b.dim, keep));
            let down = Downlink::Coded { coding: coding(), memory: Vec::new() };
            let gathered = Gathered::new(Channel::new(coding(), down, b.randomness)).with_memory(b.dim, 1.0, 1.0);
            b.remembering(gathered.returning(), keep as f64 / b.dim.max(1) as f64, 1.0)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "ef-signsgd",
        title: "EF-signSGD",
        line: "signs times their mean magnitude, with error feedback",
        reference: "Karimireddy, Rebjock, Stich, Jaggi, Error Feedback Fixes SignSGD, 2019",
        family: "error-feedback",
        proximal: true,
        parameters: &[SCALE, WIRE, BATCH],
        build: |b| {
            let dim = b.dim;
            let coding = Coding::fixed(Sign::new(dim, Magnitude::Mean));
            b.feedback(coding, b.dense_down(), std::f64::consts::FRAC_2_PI)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "natural",
        title: "Natural compression",
        line: "magnitudes to powers of two",
        reference: "Horvath and others, Natural Compression, 2019",
        family: "quantisation",
        proximal: true,
        parameters: &[SCALE, WIRE, BATCH],
        build: |b| {
            let dim = b.dim;
            let randomness = b.randomness;
            b.plain(Coding::fixed(Natural::new(dim, randomness)), b.dense_down(), 0.125)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "ef21",
        title: "EF21",
        line: "compressed differences to what was sent before",
        reference: "Richtarik, Sokolov, Fatkhullin, EF21, 2021",
        family: "error-feedback",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "topk", "contraction: topk, randk, sign, onebit, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
        ],
        build: ef21_or_three_point,
        ..PLAIN
    },
    MethodInfo {
        id: "ef21-p",
        title: "EF21-P",
        line: "a compressed model comes down, with error feedback",
        reference: "Gruntkowska, Tyurin, Richtarik, EF21-P and Friends, 2022",
        family: "error-feedback",
        exact: true,
        convex_only: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "topk", "contraction: topk, randk, sign, onebit, drive or eden"),
            parameter("k", "auto", "coordinates that come down; auto is d/50, rounded up"),
            parameter("up", "dense", "how gradients go up: dense, or randk through DIANA"),
            parameter("k_up", "auto", "coordinates that go up where `up` is randk; auto is d/50, rounded up"),
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let most = b.constants.max_smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let known = b.constants;
            let start = b.start();
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
            Ok(boxed(Ef21P::new(start, up, down, alpha, scale * step, randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "2direction",
        title: "2Direction",
        line: "momentum, with compressed differences up and down",
        reference: "Tyurin, Richtarik, 2Direction, 2023",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        strongly_convex: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "topk", "contraction on the way down: topk, randk, sign, onebit, drive or eden"),
            parameter("k", "auto", "coordinates of each code, up and down; auto is d/50, rounded up"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
        ],
        build: |b| {
            let keep = b.keep("k")?;
            let (down, kept) = b.contraction()?;
            let up = RandK::new(b.dim, keep, Indices::Private, b.randomness);
            let (known, omega) = (b.constants, b.dim as f64 / keep as f64 - 1.0);
            let constants = TwoDirectionConstants::theory(
                omega,
                kept,
                known.smoothness,
                known.max_smoothness,
                known.mu(),
                known.machines,
            );
            let constants = TwoDirectionConstants { smoothness: constants.smoothness / b.scale, ..constants };
            Ok(boxed(TwoDirection::new(b.start(), up, down, constants, b.double, b.randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "marina",
        title: "MARINA",
        line: "compressed differences of gradients, full ones by a common coin",
        reference: "Gorbunov, Burlachenko, Li, Richtarik, MARINA, 2021",
        family: "variance-reduced",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "randk", "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
            parameter("p", "auto", "probability of communication, or of full gradients"),
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let big = b.constants.smoothness;
            let mean = b.constants.mean_smoothness;
            let randomness = b.randomness;
            let known = b.constants;
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let p = v.number("p", 1.0 / (1.0 + omega), 1e-6, 1.0)?;
            let spread = ((1.0 - p) * known.noise(omega, common) / p).sqrt();
            let step = 1.0 / (big + spread * if common { big } else { mean });
            Ok(b.descent(Marina::new(channel, b.exact(), dim, p, randomness), step, None))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "dasha",
        title: "DASHA",
        line: "MARINA without full gradients",
        reference: "Tyurin and Richtarik, DASHA, 2022",
        family: "variance-reduced",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "randk", "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
        ],
        build: |b| {
            let dim = b.dim;
            let big = b.constants.smoothness;
            let mean = b.constants.mean_smoothness;
            let known = b.constants;
            let Compressed { channel, omega, common, .. } = b.unbiased()?;
            let spread = (16.0 * known.noise(omega, common) * (2.0 * omega + 1.0)).sqrt();
            let step = 1.0 / (big + spread * if common { big } else { mean });
            Ok(b.descent(Dasha::new(channel, b.exact(), dim, 1.0 / (2.0 * omega + 1.0)), step, None))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "canita",
        title: "CANITA",
        line: "ADIANA for problems that are not strongly convex",
        reference: "Li and Richtarik, CANITA, 2021",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "randk", "unbiased codec: randk, randk-common, qsgd, natural, terngrad, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
        ],
        build: |b| {
            let big = b.constants.smoothness;
            let most = b.constants.max_smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let known = b.constants;
            let start = b.start();
            let (Compressed { channel, omega, common, .. }, at_hub) = b.unbiased_pair()?;
            let smoothness = if common { big } else { most };
            let constants = CanitaConstants::theory(omega, known.noise(omega, common), smoothness, scale);
            Ok(boxed(Canita::new(start, channel, constants, at_hub, randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "lag",
        title: "LAG",
        line: "gradients travel only where they have changed",
        reference: "Chen, Giannakis, Sun, Yin, LAG, 2018",
        family: "error-feedback",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("zeta", "1", "how far a gradient must be from what was sent last, in squared moves, to be sent"),
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let big = b.constants.smoothness;
            let mean = b.constants.mean_smoothness;
            let randomness = b.randomness;
            let zeta = v.number("zeta", 1.0, 0.0, f64::INFINITY)?;
            let channel = Channel::new(b.dense(), b.dense_down(), randomness);
            Ok(b.descent(ThreePoint::new(channel, dim, zeta), 1.0 / (big + mean * zeta.sqrt()), None))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "doublesqueeze",
        title: "DoubleSqueeze",
        line: "error feedback at the machines and at the hub",
        reference: "Tang, Yu, Lian, Zhang, Liu, DoubleSqueeze, 2019",
        family: "error-feedback",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "topk", "contraction: topk, randk, sign, onebit, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
            BATCH,
        ],
        build: |b| {
            let dim = b.dim;
            let ((up, delta), (down, _)) = (b.contraction()?, b.contraction()?);
            let down = Downlink::Coded { coding: down, memory: vec![0.0; dim] };
            // Both ways lose, so the contraction is that of the two together.
            b.feedback(up, down, delta / 2.0)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "3pc",
        title: "3PC (CLAG)",
        line: "EF21 whose machines keep silent where little has changed",
        reference: "Richtarik and others, 3PC, 2022",
        family: "error-feedback",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("codec", "topk", "contraction: topk, randk, sign, onebit, drive or eden"),
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("bits", "2", "bits of a coordinate, above 0 and up to 4"),
            parameter(
                "zeta",
                "auto",
                "as LAG's; auto is what leaves EF21's step, (1 - delta)/(1 - sqrt(1 - delta)), and 16 at most",
            ),
        ],
        build: ef21_or_three_point,
        ..PLAIN
    },
    MethodInfo {
        id: "sketchml",
        title: "SketchML",
        line: "quantile buckets of the values, gaps of the keys",
        reference: "Jiang, Fu, Yang, Cui, SketchML, 2018",
        family: "quantisation",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("buckets", "256", "quantile buckets, an even number"), BATCH],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let buckets = v.count("buckets", 256, 2, 1 << 16)?;
            if buckets % 2 == 1 {
                return Err(v.refuse("buckets", "an even number"));
            }
            b.plain(Coding::fixed(SketchMl::new(dim, buckets)), b.dense_down(), 0.0)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "sketched-sgd",
        title: "Sketched-SGD",
        line: "count sketches name the large entries, a second message brings them",
        reference: "Ivkin and others, Communication-efficient Distributed SGD with Sketching, 2019",
        family: "sketch",
        exact: true,
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("candidates", "4", "exact values that travel, as a multiple of k"),
            parameter("rows", "5", "rows of the table"),
            parameter(
                "columns",
                "auto",
                "columns of the table; auto is d/10 or 10 k, whichever is more, and d at most",
            ),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let keep = b.keep("k")?;
            let candidates = keep.saturating_mul(v.count("candidates", 4, 1, 1 << 20)?);
            let estimator = SketchedSgd::new(b.sketch(keep)?, keep, candidates, randomness);
            b.remembering(estimator, keep as f64 / dim.max(1) as f64, 1.0)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "fetchsgd",
        title: "FetchSGD",
        line: "momentum and error feedback inside count sketches",
        reference: "Rothchild and others, FetchSGD, 2020",
        family: "sketch",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("k", "auto", "coordinates per message; auto is d/50, rounded up"),
            parameter("rows", "5", "rows of the table"),
            parameter(
                "columns",
                "auto",
                "columns of the table; auto is d/10 or 10 k, whichever is more, and d at most",
            ),
            parameter("momentum", "0.9", "weight of the last velocity"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let keep = b.keep("k")?;
            let momentum = v.number("momentum", 0.9, 0.0, 0.999)?;
            let estimator = FetchSgd::new(b.sketch(keep)?, keep, momentum, randomness);
            b.remembering(estimator, keep as f64 / dim.max(1) as f64, 1.0 / (1.0 - momentum))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "fedavg",
        title: "FedAvg",
        line: "local steps, then the mean; updates may be masked or quantised",
        reference: "McMahan and others, 2017; Konecny and others, 2016",
        family: "local",
        parameters: &[
            SCALE,
            WIRE,
            parameter("local", "5", "local steps per round"),
            BATCH,
            parameter("k", "auto", "coordinates of a compressed vector; auto sends all"),
            parameter("bits", "0", "bits of a rotated coordinate of the update; 0 sends it as it is"),
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let most = b.constants.max_smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let known = b.constants;
            let start = b.start();
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
            Ok(boxed(FedAvg::new(start, channel, step, local, batch, randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "scaffold",
        title: "SCAFFOLD",
        line: "local steps with control variates of both sides",
        reference: "Karimireddy and others, SCAFFOLD, 2020",
        family: "local",
        exact: true,
        parameters: &[SCALE, WIRE, parameter("local", "5", "local steps per round"), BATCH],
        build: |b| {
            let v = &b.values;
            let most = b.constants.max_smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let known = b.constants;
            let start = b.start();
            let local = v.count("local", 5, 1, 1_000_000)?;
            let batch = v.count("batch", 0, 0, usize::MAX)?;
            let rows = if batch == 0 { f64::INFINITY } else { batch as f64 };
            let step = scale / (local as f64 * (most + known.trace / rows));
            let channel = Channel::new(b.dense(), b.dense_down(), randomness);
            Ok(boxed(Scaffold::new(start, channel, step, local, batch, randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "ibcd",
        title: "IBCD",
        line: "every machine moves its own random block",
        reference: "Mishchenko, Hanzely, Richtarik, 99% of Worker-Master Communication in Distributed Optimization Is Not Needed, 2020",
        family: "sparsification",
        parameters: &[SCALE, WIRE, parameter("k", "auto", "coordinates per message; auto is d/50, rounded up")],
        build: |b| {
            let dim = b.dim;
            let n = b.constants.machines as f64;
            let big = b.constants.smoothness;
            let most = b.constants.max_smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let start = b.start();
            let keep = b.keep("k")?;
            let share = keep as f64 / dim.max(1) as f64;
            let step = scale / (share * big + 2.0 * (1.0 - share) * most / n);
            Ok(boxed(Ibcd::new(start, keep, step, b.sparse_down(), randomness)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "ecq-sgd",
        title: "ECQ-SGD",
        line: "QSGD with a damped memory of its errors",
        reference: "Wu, Huang, Huang, Zhang, Error Compensated Quantized SGD, 2018",
        family: "error-feedback",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("levels", "auto", "levels of QSGD; auto is sqrt(d)"),
            parameter("bucket", "auto", "coordinates that share a norm; auto is all"),
            parameter("gain", "0.2", "weight of the memory in what is sent"),
            parameter("decay", "0.9", "weight of the memory in the next one"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let most = b.constants.max_smoothness;
            let randomness = b.randomness;
            let known = b.constants;
            let bucket = v.count("bucket", dim, 1, usize::MAX)?.max(1);
            let (gain, decay) = (v.number("gain", 0.2, 0.0, 1.0)?, v.number("decay", 0.9, 0.0, 1.0)?);
            let coding = Coding::fixed(Qsgd::new(dim, b.levels()?, bucket, Norm::Euclidean, randomness));
            let omega = coding.law().omega().unwrap_or(0.0);
            let estimator =
                Gathered::new(Channel::new(coding, b.dense_down(), randomness)).with_memory(dim, gain, decay);
            let batch = b.batch()?;
            let step = 1.0 / (b.smoothness(&batch) + 2.0 * known.noise(omega, false) * most);
            Ok(b.descent(estimator, step, batch))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "alq",
        title: "ALQ",
        line: "QSGD with levels fitted to the coordinates",
        reference: "Faghri and others, Adaptive Gradient Quantization, 2020",
        family: "quantisation",
        proximal: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("bits", "3", "bits of a coordinate, 2 to 8"),
            parameter("bucket", "auto", "coordinates that share a norm; auto is all"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let bits = v.count("bits", 3, 2, 8)? as u32;
            let bucket = v.count("bucket", dim, 1, usize::MAX)?.max(1);
            let coding = Coding::Alq(Box::new(Alq::new(dim, bits, bucket, randomness)));
            let omega = coding.law().omega().unwrap_or(0.0);
            b.plain(coding, b.dense_down(), omega)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "atomo",
        title: "ATOMO",
        line: "random singular vectors",
        reference: "Wang and others, ATOMO, 2018",
        family: "low-rank",
        proximal: true,
        parameters: &[SCALE, WIRE, parameter("rank", "2", "rank of the matrix, or expected atoms"), BATCH],
        build: |b| {
            let v = &b.values;
            let dim = b.dim;
            let randomness = b.randomness;
            let rank = v.count("rank", 2, 1, usize::MAX)?;
            let coding = Coding::fixed(Atomo::new(dim, Shape::square(dim), rank, randomness));
            let omega = coding.law().omega().unwrap_or(0.0);
            b.plain(coding, b.dense_down(), omega)
        },
        ..PLAIN
    },
    MethodInfo {
        id: "onebit-adam",
        title: "1-bit Adam",
        line: "Adam's momentum as signs, after a warm-up",
        reference: "Tang and others, 1-bit Adam, 2021",
        family: "error-feedback",
        parameters: &[
            SCALE,
            WIRE,
            parameter("warmup", "20", "rounds of uncompressed Adam"),
            parameter("beta1", "0.9", "decay of the momentum"),
            parameter("beta2", "0.95", "decay of the variance"),
            BATCH,
        ],
        build: |b| {
            let v = &b.values;
            let big = b.constants.smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let start = b.start();
            let warm_up = v.count("warmup", 20, 1, usize::MAX)? as u64;
            let betas = (v.number("beta1", 0.9, 0.0, 0.9999)?, v.number("beta2", 0.95, 0.0, 0.99999)?);
            b.keeps_its_own_momentum()?;
            let training = b.settings.training.as_ref();
            let batch =
                training.map_or_else(|| b.batch(), |training| Ok(Some(Batch::new(training.batch, randomness))))?;
            let method = OneBitAdam::new(start, scale / big, warm_up, betas, b.exact(), randomness);
            let schedule = training.map(|training| training.schedule(scale));
            Ok(boxed(method.with_batch(batch).with_schedule(schedule)))
        },
        ..PLAIN
    },
    MethodInfo {
        id: "dsvrg",
        title: "Distributed SVRG",
        line: "one machine at a time runs SVRG's inner loop",
        reference: "Lee, Lin, Ma, Yang, Distributed Stochastic Variance Reduced Gradient Methods, 2017",
        family: "variance-reduced",
        exact: true,
        convex_only: true,
        parameters: &[
            SCALE,
            WIRE,
            parameter("inner", "0", "inner steps; 0 takes two passes over the machine's rows"),
            parameter("batch", "1", "rows of an inner step; 0 takes all"),
        ],
        build: |b| {
            let v = &b.values;
            let most = b.constants.max_smoothness;
            let scale = b.scale;
            let randomness = b.randomness;
            let known = b.constants;
            let start = b.start();
            let (inner, batch) = (v.count("inner", 0, 0, usize::MAX)?, v.count("batch", 1, 0, usize::MAX)?);
            let rows = if batch == 0 { f64::INFINITY } else { batch as f64 };
            let step = 0.1 * scale / (most + known.trace / rows);
            Ok(boxed(Dsvrg::new(start, b.exact(), step, inner, batch, randomness)))
        },
        ..PLAIN
    },
];

fn cgd_or_sgd(b: &Builder<'_>) -> Built {
    let batch = b.batch()?;
    let step = if batch.is_some() { 1.0 / b.smoothness(&batch) } else { b.constants.descent_step() };
    Ok(b.descent(b.exact(), step, batch))
}

fn scaffnew_or_gradskip(b: &Builder<'_>) -> Built {
    let v = &b.values;
    let most = b.constants.max_smoothness;
    let mu = b.constants.mu();
    let scale = b.scale;
    let randomness = b.randomness;
    let id = b.values.info.id;
    let start = b.start();
    let step = scale / most;
    let p = v.number("p", (step * mu).sqrt(), 1e-6, 1.0)?;
    let method = Scaffnew::new(start, step, p, b.exact(), randomness);
    Ok(boxed(if id == "gradskip" { method.skipping(mu, most) } else { method }))
}

/// The bounds of a method that keeps a smoothness matrix per machine.
fn matrix_aware(b: &Builder<'_>) -> Result<Bounds, String> {
    if b.dim > MOST_LEARNED {
        return Err(format!(
            "{} keeps a smoothness matrix per machine, and d = {} is above {MOST_LEARNED}: take diana",
            b.values.info.id, b.dim
        ));
    }
    Ok(Bounds {
        smoothness: b.constants.smoothness,
        strong_convexity: b.constants.mu(),
        machines: b.constants.machines.max(1),
        scale: b.scale,
        coordinates: b.values.count("k", b.dim.div_ceil(50), 1, b.dim.max(1))? as f64,
    })
}

fn drive_or_eden(b: &Builder<'_>) -> Built {
    let dim = b.dim;
    let randomness = b.randomness;
    let id = b.values.info.id;
    let coding = match id {
        "drive" => Coding::fixed(Drive::new(dim, Aim::Unbiased, randomness)),
        _ => Coding::fixed(Eden::new(dim, b.bits()?, Aim::Unbiased, randomness)),
    };
    let omega = coding.law().omega().unwrap_or(0.0);
    b.plain(coding, b.dense_down(), omega)
}

fn ef21_or_three_point(b: &Builder<'_>) -> Built {
    let v = &b.values;
    let dim = b.dim;
    let big = b.constants.smoothness;
    let mean = b.constants.mean_smoothness;
    let randomness = b.randomness;
    let id = b.values.info.id;
    let (coding, delta) = b.contraction()?;
    let root = (1.0 - delta).max(0.0).sqrt();
    // A = 1 - sqrt(1 - delta), B = max((1 - delta)/A, zeta).
    let a = (1.0 - root).max(1e-12);
    let zeta = if id == "3pc" { v.number("zeta", (root * root / a).min(16.0), 0.0, f64::INFINITY)? } else { 0.0 };
    let step = 1.0 / (big + mean * ((root * root / a).max(zeta) / a).sqrt());
    let channel = Channel::new(coding, b.sparse_down(), randomness);
    Ok(b.descent(ThreePoint::new(channel, dim, zeta), step, None))
}

/// The constants of ASEGA for these probabilities.
///
/// The step of y moves f by about -a sum g_j^2/p_j and ghat has the energy sum g_j^2/p_j, so E||ghat||^2 <= (2/a)(f(x) - E f(y)): linear
/// coupling then wants b = a/t and t = sqrt(a mu). For coordinates drawn independently the moved f is bounded by
/// v_j = A_jj (1 + p_j (c - 1)), c being the coupling, hence a <= p_j^2/v_j. The noise of h costs a constant that the paper has too; a
/// quarter is measured to be enough.
fn asega_constants(b: &Builder<'_>, probabilities: &[f64]) -> AsegaConstants {
    let mu = b.constants.mu();
    let likeliest = probabilities.iter().copied().fold(0.0, f64::max);
    let together = 1.0 + likeliest * (b.constants.coupling - 1.0);
    let least = probabilities.iter().zip(&b.diagonal()).map(|(p, a)| p * p / a).fold(f64::INFINITY, f64::min);
    let alpha = 0.25 * b.scale * least / together;
    let tau = (alpha * mu).sqrt().min(1.0);
    AsegaConstants { alpha, beta: 0.5 * alpha / tau, tau: 0.5 * tau, strong_convexity: mu }
}
