//! Scratch.
use corewire_comm::{Collective, Metered, group};
use corewire_data::shard::Split;
use corewire_data::{ReadOptions, load};
use corewire_optim::estimator::*;
use corewire_optim::method::core::*;
use corewire_optim::method::*;
use corewire_optim::problem::*;
use corewire_optim::run::*;
use corewire_optim::*;
use corewire_sketch::*;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let get = |key: &str, default: &str| -> String {
        args.iter().find_map(|a| a.strip_prefix(&format!("{key}=")).map(str::to_owned)).unwrap_or(default.to_owned())
    };
    let data = get("data", "mnist");
    let model = get("model", "ridge");
    let n: usize = get("n", "50").parse().unwrap();
    let alpha: f64 = get("alpha", "1e-3").parse().unwrap();
    let seeds: u64 = get("seeds", "1").parse().unwrap();
    let dir = std::env::var("COREWIRE_DATA").unwrap();
    let split: Split = get("split", "random").parse().unwrap();
    let rows: usize = get("rows", "2000").parse().unwrap();
    for seed in 0..seeds {
        let randomness = CommonRandomness::new(&Seed::reproducible(seed));
        let problem = if data == "power" {
            Problem::power_law(get("dim", "10000").parse().unwrap(), 1.5, alpha, n, &randomness)
        } else {
            let set = match data.as_str() {
                "digits" => corewire_data::digits(),
                "mnist" => load(&format!("{dir}/train-images-idx3-ubyte.gz").as_ref(), &ReadOptions::default()).unwrap().first_rows(rows),
                "covtype" => load(&format!("{dir}/covtype.csv.xz").as_ref(), &ReadOptions::default()).unwrap().first_rows(rows),
                other => load(&format!("{dir}/{other}.gz").as_ref(), &ReadOptions::default()).unwrap().first_rows(rows),
            };
            let set = if data == "digits" || data == "mnist" || data == "covtype" { set.parity().unwrap() } else { set.binary().unwrap() };
            let set = set.unit_norm();
            let model = match model.as_str() { "ridge" => Model::Ridge, "logistic" => Model::Logistic, _ => panic!() };
            Problem::rows(set, model, alpha, 0.0, n, split, &randomness)
        };
        let mut pooled = problem.pooled();
        let optimum = problem.known_optimum().unwrap_or_else(|| optimum::minimise(&mut *pooled, problem.start()).1);
        let wire = match get("wire", "q").as_str() {
            "f32" => Wire::Float(Width::F32),
            "bf16" => Wire::Float(Width::Bf16),
            w => Wire::Quantised(Quantiser {
                eta_up: get("eta", "0.2").parse().unwrap(),
                eta_down: get("etad", "0.2").parse().unwrap(),
                theta: get("theta", "1").parse().unwrap(),
                form: if w == "sum" { Form::Sum } else { Form::Hub },
            }),
        };
        let plan = Plan {
            family: get("family", "hadamard").parse().unwrap(),
            budget: get("m", "").parse().ok(),
            block: None,
            wire,
            randomness: randomness.clone(),
        };
        let start = std::time::Instant::now();
        let results = group::run(n, |machine| {
            let mut objective = problem.objective(machine.rank());
            let mut method: Box<dyn Method> = match get("method", "agd").as_str() {
                "agd" => Box::new(Core::new(plan.clone(), Flavour::Accelerated { fixed: None }, problem.start().to_vec(), None)),
                "gd" => Box::new(Core::new(plan.clone(), Flavour::Descent { step: StepRule::Auto, batch: None }, problem.start().to_vec(), None)),
                "ccg" => Box::new(Core::new(plan.clone(), Flavour::Conjugate { memory: get("r", "5").parse().unwrap(), number_bytes: get("nb", "4").parse().unwrap() }, problem.start().to_vec(), None)),
                "cg" => Box::new(conjugate::Conjugate::new(problem.start().to_vec(), false)),
                _ => panic!(),
            };
            let rules = Rules { rounds: get("rounds", "5000").parse().unwrap(), target: Some(1e-6), optimum: Some(optimum), digest_every: 50, ..Rules::default() };
            let mut comm = Metered::new(machine, None);
            run::run(&mut comm, &mut *objective, &mut *method, &rules, Begin::default(), &mut Silent)
        });
        let mut first = None;
        for r in results {
            match r { Ok(f) => first = first.or(Some(f)), Err(e) => if !e.is_consequence() { println!("error {e}"); } }
        }
        if let Some(f) = first {
            println!("{data} {model} seed {seed} d {} {:?} rounds {} rel {:.2e} up {:.0} down {:.0} m {:?} h {:?} b {:?} L {:?} tr {:?} {:.2}s", problem.dim(), f.ended, f.last.round, f.last.relative.unwrap(), f.last.up_bytes, f.last.down_bytes, f.settings.budget, f.settings.step.map(|x| (x*1e4).round()/1e4), f.settings.damping.map(|x| (x*1e4).round()/1e4), f.settings.smoothness.map(|x| (x*1e4).round()/1e4), f.settings.trace, start.elapsed().as_secs_f64());
        }
    }
}
