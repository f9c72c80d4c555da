//! What the tests of this folder share: small problems, and whole runs on machines of this process.
#![allow(dead_code)]

use std::path::PathBuf;

use corewire_comm::{Collective, Group, Metered, Solo};
use corewire_data::shard::Split;
use corewire_data::{DataSet, ReadOptions};
use corewire_optim::RunError;
use corewire_optim::estimator::{Form, Quantiser, Width};
use corewire_optim::method::Method;
use corewire_optim::method::core::{Core, CoreAlgorithm, Goal, Plan, Wire};
use corewire_optim::optimum;
use corewire_optim::problem::{Model, ModelSpec, Problem};
use corewire_optim::proximal::Proximal;
use corewire_optim::run::{Begin, Finish, Observer, Rules, RunPart, Silent, run};
use corewire_optim::tuning::Curvature;
use corewire_sketch::{CommonRandomness, Family, Seed};

pub fn randomness(seed: u64) -> CommonRandomness {
    CommonRandomness::new(&Seed::reproducible(seed))
}

pub const F32: Wire = Wire::Float(Width::F32);
pub const BF16: Wire = Wire::Float(Width::Bf16);

pub fn quantised(form: Form, eta: f64) -> Wire {
    Wire::Quantised(Quantiser { eta_up: eta, eta_down: eta, theta: 1.0, keep: 0.7, form })
}

/// A plan for the usual target, with an automatic budget where none is given.
pub fn plan(family: Family, budget: Option<usize>, wire: Wire, seed: u64) -> Plan {
    let goal = Goal { link: None, target: 1e-6 };
    Plan { family, budget, block: None, wire, randomness: randomness(seed), goal }
}

/// What makes a machine's method.
pub type Make<'a> = &'a (dyn Fn() -> Box<dyn Method> + Sync);

pub fn core(plan: &Plan, algorithm: CoreAlgorithm, problem: &Problem, known: Option<Curvature>) -> Box<dyn Method> {
    Box::new(Core::new(plan.clone(), algorithm, problem.start().to_vec(), known))
}

/// Runs a method on all machines of a problem; `observer` is machine 0's. Returns what every machine returns.
pub fn run_all<O: Observer + Send>(
    problem: &Problem,
    rules: &Rules,
    make: Make<'_>,
    observer: O,
) -> (Vec<Result<Finish, RunError>>, O) {
    let place = std::sync::Mutex::new(observer);
    let results = Group::new(Solo::new(problem.machines())).run(|machine| {
        let mut objective = problem.objective(machine.rank());
        let mut method = make();
        let first = machine.rank() == 0;
        let mut comm = Metered::new(machine, None);
        let (objective, method) = (&mut *objective, &mut *method);
        match first {
            true => {
                let mut observer = place.lock().unwrap();
                let mut part = RunPart { objective, method, held_out: None, observer: &mut *observer };
                run(&mut comm, &mut part, rules, Begin::default())
            }
            false => {
                let mut part = RunPart { objective, method, held_out: None, observer: &mut Silent };
                run(&mut comm, &mut part, rules, Begin::default())
            }
        }
    });
    (results, place.into_inner().unwrap())
}

/// Runs a method on all machines of a problem and returns how machine 0 saw it end.
pub fn solve(problem: &Problem, rules: &Rules, make: Make<'_>) -> Finish {
    let (results, _) = run_all(problem, rules, make, Silent);
    let mut finishes: Vec<Finish> = results.into_iter().map(|result| result.unwrap()).collect();
    assert!(finishes.iter().all(|finish| finish.digest == finishes[0].digest), "all machines end with the same bits");
    finishes.swap_remove(0)
}

/// Rules for so many rounds, with f at the start and at the end alone.
pub fn rounds(rounds: u64) -> Rules {
    Rules { rounds, digest_every: rounds, evaluate_every: Some(rounds), ..Rules::default() }
}

/// Rules for a target, looked at after every round.
pub fn until(target: f64, most: u64, problem: &Problem) -> Rules {
    let optimum = problem.known_optimum().unwrap_or_else(|| {
        let (mut pooled, start) = (problem.pooled().unwrap(), problem.start());
        match problem.spec().proximal.is_none() {
            true => optimum::minimise(&mut *pooled, start).1,
            false => optimum::minimise_proximal(&mut *pooled, start, 1.02 * smoothness(problem), &mut |_| true).1,
        }
    });
    Rules { rounds: most, target: Some(target), optimum: Some(optimum), digest_every: 50, ..Rules::default() }
}

/// The bundled digits, even against odd, rows of unit norm.
pub fn digits() -> DataSet {
    corewire_data::digits().parity().unwrap().unit_norm()
}

pub fn rows(data: DataSet, model: Model, alpha: f64, machines: usize, split: Split) -> Problem {
    let spec = ModelSpec { model, classes: classes(&data, model), alpha, proximal: Proximal::NONE };
    Problem::rows(data, spec, machines, split, &randomness(0))
}

/// How many classes the labels of these rows are indices of.
pub fn classes(data: &DataSet, model: Model) -> usize {
    if model.has_classes() { data.classes().len() } else { 0 }
}

/// A file of the folder that COREWIRE_DATA names, if it is set; rows of unit norm, labels +-1.
pub fn real(name: &str, count: usize) -> Option<DataSet> {
    let Some(folder) = std::env::var_os("COREWIRE_DATA") else {
        println!("skipped: COREWIRE_DATA names no folder with {name}");
        return None;
    };
    let path = PathBuf::from(folder).join(name);
    // Where the folder is named, a file that is not in it is a failure.
    let set = corewire_data::load(&path, &ReadOptions::default());
    let set = set.unwrap_or_else(|error| panic!("COREWIRE_DATA is set, and {error}")).first_rows(count);
    let set = if set.classes().len() == 2 { set.binary() } else { set.parity() };
    Some(set.unwrap().unit_norm())
}

/// The first 2000 rows of MNIST, even against odd.
pub fn mnist() -> Option<DataSet> {
    real("train-images-idx3-ubyte.gz", 2000)
}

/// Whether the long versions are wanted.
pub fn soak() -> bool {
    std::env::var_os("COREWIRE_SOAK").is_some_and(|value| value == "1")
}

/// The largest eigenvalue of the dominating matrix, by power iteration.
pub fn smoothness(problem: &Problem) -> f64 {
    let mut pooled = problem.pooled().unwrap();
    let mut v: Vec<f64> = (0..problem.dim()).map(|i| 1.0 + (i % 7) as f64).collect();
    let mut product = v.clone();
    let mut value = 0.0;
    for _ in 0..150 {
        let norm = corewire_algebra::vector::norm_squared(&v).sqrt();
        v.iter_mut().for_each(|v| *v /= norm);
        pooled.bound_vector(problem.start(), &v, &mut product);
        value = corewire_algebra::vector::dot(&v, &product);
        std::mem::swap(&mut v, &mut product);
    }
    value
}
