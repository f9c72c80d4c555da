//! Invented reports for the tests: the shapes a comparison can have, with numbers that nobody measured.

use super::{LinkInfo, Point, ProblemInfo, Report, RunInfo};

/// What an invented method is like: id, label, family, rounds to 1e-6 (0: it stalls), floor, bytes up and down a round, trips a round.
type Invented = (&'static str, &'static str, &'static str, u64, f64, f64, f64, u64);

const METHODS: [Invented; 16] = [
    ("core-cg", "CORE-CG", "core", 64, 0.0, 148.0, 260.0, 2),
    ("core-agd", "CORE-AGD", "core", 410, 0.0, 34.0, 64.0, 1),
    ("core-gd", "CORE-GD", "core", 2900, 0.0, 22.0, 44.0, 1),
    ("cg", "CG", "baseline", 33, 0.0, 3136.0, 3136.0, 2),
    ("acgd", "ACGD", "baseline", 96, 0.0, 3136.0, 3136.0, 1),
    ("cgd", "CGD", "baseline", 640, 0.0, 3136.0, 3136.0, 1),
    ("ef21:k=15", "EF21, k = 15", "compression", 1450, 0.0, 79.0, 3136.0, 1),
    ("diana", "DIANA", "compression", 820, 0.0, 196.0, 3136.0, 1),
    ("adiana", "ADIANA", "compression", 300, 0.0, 392.0, 3136.0, 1),
    ("marina", "MARINA", "compression", 990, 0.0, 160.0, 3136.0, 1),
    ("scaffnew", "Scaffnew", "local", 118, 0.0, 3136.0, 3136.0, 1),
    ("topk-ef:k=15", "Top-k with feedback, k = 15", "compression", 2600, 0.0, 79.0, 1900.0, 1),
    ("qsgd", "QSGD", "compression", 0, 4e-4, 260.0, 3136.0, 1),
    ("signsgd", "signSGD", "compression", 0, 2e-2, 98.0, 98.0, 1),
    ("fedavg", "FedAvg", "local", 0, 3e-5, 3136.0, 3136.0, 1),
    ("randk:k=15", "Rand-k, k = 15", "compression", 0, 9e-6, 60.0, 3136.0, 1),
];

const LIMIT: u64 = 5000;

/// A comparison of sixteen methods over a link, the way it usually ends.
pub(crate) fn sample() -> Report {
    let mut runs: Vec<RunInfo> = METHODS.iter().enumerate().map(|(i, method)| invent(i, method)).collect();
    runs[6].tuned = Some("step 0.82, k 15".into());
    runs[7].note = Some("needs no tuning".into());
    runs.push(RunInfo {
        reached: false,
        error: Some("machine 7: the iterate is not finite in round 12".into()),
        relative: f64::NAN,
        value: f64::INFINITY,
        best: 0.4,
        trace: (0..12).map(|round| point(round, 1.5f64.powi(round as i32), 98.0, 98.0, 0.04)).collect(),
        method: "onebit-sgd".into(),
        label: "1-bit SGD".into(),
        family: "compression".into(),
        rounds: 12,
        trips: 12,
        ..runs[0].clone()
    });
    Report {
        title: "Handwritten digits, 50 machines".into(),
        command: "corewire compare digits.toml --target 1e-6 --out results/digits".into(),
        tuning: "each baseline's step is the best of a grid".into(),
        version: "0.1.0".into(),
        created: "16 November 2026, 03:40 UTC".into(),
        system: "Linux x86_64, 2 cores, AVX2".into(),
        problem: ProblemInfo {
            data: "digits".into(),
            model: "logistic".into(),
            rows: 1797,
            dim: 784,
            machines: 50,
            alpha: 1e-3,
            split: "random".into(),
            initial: std::f64::consts::LN_2,
            optimum: Some(0.298_713_224_1),
            trace: 0.3135,
            smoothness: 0.1402,
            strong_convexity: 1e-3,
            effective_dimension: 9.84,
            seed: "20261116".into(),
            rounds_per_epoch: None,
        },
        target: 1e-6,
        link: Some(LinkInfo { mbit_s: 10.0, rtt_ms: 40.0, overhead_bytes: 66.0 }),
        eigenvalues: (1..=784).map(|rank| 0.14 * f64::from(rank).powf(-1.45) + 1e-3).collect(),
        runs,
    }
}

/// Forty-five methods with names and costs that differ.
pub(crate) fn many() -> Report {
    let mut report = sample();
    report.title = "Forty-five methods".into();
    let mut variants = Vec::new();
    for i in 0..45 - report.runs.len() {
        let (id, label, family, rounds, floor, up, down, trips) = METHODS[(i * 5 + 3) % METHODS.len()];
        let grown = 1.2 + i as f64 / 6.0;
        let method = (
            id,
            label,
            family,
            (rounds as f64 * grown) as u64,
            floor * grown,
            up * (0.4 + i as f64 / 9.0),
            down,
            trips,
        );
        let mut run = invent(i + 17, &method);
        run.method = format!("{}:variant={i}", id.split(':').next().unwrap());
        run.label = format!("{label} ({i})");
        variants.push(run);
    }
    report.runs.extend(variants);
    report
}

/// One method and nothing to compare it with.
pub(crate) fn single() -> Report {
    let mut report = sample();
    report.runs.truncate(1);
    report
}

/// As little as can be known: no link, no spectrum, no optimum, an error without a trace, and numbers that are not.
pub(crate) fn bare() -> Report {
    let mut report = sample();
    report.link = None;
    report.eigenvalues.clear();
    report.problem.optimum = None;
    report.problem.trace = f64::NAN;
    report.problem.smoothness = f64::INFINITY;
    report.problem.effective_dimension = f64::NAN;
    for run in &mut report.runs {
        (run.link_seconds, run.score) = (None, None);
        run.trace.iter_mut().for_each(|point| (point.link_seconds, point.score) = (f64::NAN, None));
    }
    report.runs[1].trace.iter_mut().for_each(|point| point.relative = f64::NAN);
    report.runs[2].trace.truncate(1);
    report.runs[3].trace[20].relative = -1e-18;
    report.runs[4].trace[9].relative = 1e12;
    report.runs[16].trace.clear();
    report.runs[5].reached = false;
    report.runs[5].best = f64::NAN;
    report.runs[5].up_bytes = f64::NAN;
    report
}

/// Nobody reached the target.
pub(crate) fn nobody() -> Report {
    let mut report = sample();
    report.target = 1e-12;
    report.runs.iter_mut().for_each(|run| run.reached = false);
    report
}

/// All rounds were asked for.
pub(crate) fn no_target() -> Report {
    let mut report = nobody();
    report.target = 0.0;
    report
}

/// Every text of the report is `text`.
pub(crate) fn hostile(text: &str) -> Report {
    let mut report = sample();
    let problem = &mut report.problem;
    for field in [&mut problem.data, &mut problem.model, &mut problem.split, &mut problem.seed] {
        *field = text.into();
    }
    for field in [&mut report.title, &mut report.command, &mut report.version, &mut report.created, &mut report.system]
    {
        *field = text.into();
    }
    for run in &mut report.runs {
        (run.method, run.label) = (text.into(), text.into());
        (run.tuned, run.note, run.error) = (Some(text.into()), Some(text.into()), Some(text.into()));
    }
    report
}

fn invent(i: usize, &(id, label, family, rounds, floor, up, down, trips): &Invented) -> RunInfo {
    let end = if rounds == 0 || rounds > LIMIT { LIMIT } else { rounds };
    let rate = if rounds == 0 { 0.004 + 0.0007 * i as f64 } else { 6.0 * std::f64::consts::LN_10 / rounds as f64 };
    let latency = 0.04 * trips as f64;
    let course = |round: u64| {
        let t = round as f64 / end as f64;
        // Fast at first, then at its rate, with a ripple of its own that is gone at the end.
        let start = 1.0 / (1.0 + 30.0 * t).powf(0.7);
        let ripple = 1.0 + 0.25 * (t * 40.0 + i as f64).sin() * t * (1.0 - t);
        let relative = start * (-(rate * end as f64 - 31f64.ln() * 0.7 + 0.04) * t).exp() * ripple + floor;
        relative.min(1.0)
    };
    let step = (end / 300).max(1);
    let mut marks: Vec<u64> = (0..=end).step_by(step as usize).collect();
    if marks.last() != Some(&end) {
        marks.push(end);
    }
    let trace: Vec<Point> = marks.into_iter().map(|round| point(round, course(round), up, down, latency)).collect();
    let last = trace.last().unwrap().clone();
    RunInfo {
        method: id.into(),
        label: label.into(),
        family: family.into(),
        reached: rounds == end,
        rounds: end,
        trips: end * trips,
        relative: last.relative,
        best: trace.iter().map(|point| point.relative).fold(f64::INFINITY, f64::min),
        value: 0.2987 + 0.39 * last.relative,
        up_bytes: last.up_bytes,
        down_bytes: last.down_bytes,
        wire_bytes: last.wire_bytes,
        seconds: last.seconds,
        link_seconds: Some(last.link_seconds),
        score: last.score,
        tuned: None,
        note: None,
        error: None,
        trace,
    }
}

fn point(round: u64, relative: f64, up: f64, down: f64, latency: f64) -> Point {
    let t = round as f64;
    let seconds = latency + (up + down + 132.0) * 8.0 / 1e7;
    let (up_bytes, down_bytes, wire_bytes) = (up * t, down * t, (up + down + 2.0) * t);
    let score = Some(0.95 - 0.45 * relative);
    Point { round, relative, up_bytes, down_bytes, wire_bytes, seconds: 7e-4 * t, link_seconds: seconds * t, score }
}
