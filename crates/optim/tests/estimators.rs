//! Laws of the mean estimators: unbiased, as noisy as stated, the same bits everywhere; and what is refused by name.

mod group;

use std::num::NonZeroUsize;

use corewire_comm::{Collective, CommError, Group, Metered, Reply, Solo};
use corewire_compress::TopK;
use corewire_data::shard::Split;
use corewire_optim::RunError;
use corewire_optim::estimator::{
    Channel, Coding, Downlink, Estimate, Form, Gathered, How, MeanEstimator, Next, Place, Quantised, Quantiser,
    Sketched, Width, estimate,
};
use corewire_optim::method::Method;
use corewire_optim::method::core::CoreAlgorithm;
use corewire_optim::method::descent::{Descent, Step};
use corewire_optim::method::gradient::GradientMethod;
use corewire_optim::objective::Objective;
use corewire_optim::problem::{Model, Problem};
use corewire_optim::run::{Begin, Ended, Rules, RunPart, Silent, run};
use corewire_optim::state::{self, Scope, Stateful, Visitor};
use corewire_sketch::{AnySketch, Family};
use group::*;

const FAMILIES: [Family; 4] = [Family::Gaussian, Family::GaussianStrict, Family::Rademacher, Family::Hadamard];
const FORMS: [Form; 2] = [Form::Hub, Form::Sum];

/// How scalars travel, for loops over all ways.
#[derive(Clone, Copy, Debug)]
enum Way {
    Float(Width),
    Quantised(Form),
}

const WAYS: [Way; 4] =
    [Way::Float(Width::F32), Way::Float(Width::Bf16), Way::Quantised(Form::Hub), Way::Quantised(Form::Sum)];

fn sketch(family: Family, blocks: bool, dim: usize, budget: usize, seed: u64) -> AnySketch {
    match blocks {
        false => AnySketch::new(family, &randomness(seed), dim, budget).unwrap(),
        true => {
            let budgets = [budget / 2, budget - budget / 2];
            AnySketch::blocks(family, &randomness(seed), dim, NonZeroUsize::new(dim.div_ceil(2)).unwrap(), &budgets)
                .unwrap()
        }
    }
}

fn estimator(way: Way, sketch: AnySketch, seed: u64) -> Box<dyn MeanEstimator> {
    match way {
        Way::Float(width) => Box::new(Sketched::new(sketch, &randomness(seed), width)),
        Way::Quantised(form) => {
            let quantiser = Quantiser { form, ..Quantiser::default() };
            Box::new(Quantised::new(sketch, &randomness(seed), quantiser))
        }
    }
}

/// Machine `rank`'s fixed vector: a common part, and one of its own that is three times as large.
fn vector(dim: usize, rank: usize) -> Vec<f64> {
    let draw = |row: u32| {
        let mut words = randomness(77).words(corewire_sketch::Purpose::Synthetic, 1, row);
        (0..dim).map(|_| 2.0 * words.next_unit() - 1.0).collect::<Vec<f64>>()
    };
    draw(0).into_iter().zip(draw(1 + rank as u32)).map(|(common, own)| common + 3.0 * own).collect()
}

fn mean_vector(dim: usize, machines: usize) -> Vec<f64> {
    let mut mean = vec![0.0; dim];
    (0..machines)
        .for_each(|rank| corewire_algebra::vector::add_scaled(1.0 / machines as f64, &vector(dim, rank), &mut mean));
    mean
}

/// What the machines' estimator gives in rounds `0..rounds` for vectors that `local(round, rank)` makes: per round the estimate and its
/// energy.
fn estimates(
    machines: usize,
    rounds: u64,
    make: impl Fn() -> Box<dyn MeanEstimator> + Sync,
    local: impl Fn(u64, usize) -> Vec<f64> + Sync,
) -> Vec<(Vec<f64>, f64)> {
    let results = Group::new(Solo::new(machines)).run(|machine| {
        let mut estimator = make();
        let mut all = Vec::new();
        for round in 0..rounds {
            let local = local(round, machine.rank());
            let mut mean = vec![0.0; local.len()];
            let mut extra = [machine.rank() as f64];
            let Estimate { energy } =
                estimate(&mut estimator, round, &local, &mut extra, machine, &mut Vec::new(), &mut mean)?;
            assert_eq!(extra[0], (machine.size() - 1) as f64 / 2.0, "extra numbers come back as their means");
            all.push((mean, energy));
        }
        Ok::<_, RunError>(all)
    });
    let mut results: Vec<_> = results.into_iter().map(|result| result.unwrap()).collect();
    for other in &results[1..] {
        for ((a, _), (b, _)) in other.iter().zip(&results[0]) {
            assert!(a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits()), "all machines hold the same bits");
        }
    }
    results.swap_remove(0)
}

#[test]
fn gtopk_loses_nothing_of_a_gradient() {
    let (dim, machines, keep, rounds) = (40, 5, 4, 2000);
    let make = || {
        let coding = || Coding::fixed(TopK::new(dim, keep));
        let down = Downlink::Coded { coding: coding(), memory: Vec::new() };
        let gathered = Gathered::new(Channel::new(coding(), down, &randomness(1))).with_memory(dim, 1.0, 1.0);
        Box::new(gathered.returning()) as Box<dyn MeanEstimator>
    };
    let found = estimates(machines, rounds, make, |_, rank| vector(dim, rank));
    let mut mean = vec![0.0; dim];
    found
        .iter()
        .for_each(|(estimate, _)| corewire_algebra::vector::add_scaled(1.0 / rounds as f64, estimate, &mut mean));
    // What is not yet said lies in the memories, which stay bounded: the mean of all rounds is off by a share that falls as 1/rounds.
    for (found, true_mean) in mean.iter().zip(mean_vector(dim, machines)) {
        assert!((found - true_mean).abs() < 0.03, "{found} is not {true_mean}");
    }
    assert!(found.iter().all(|(estimate, _)| estimate.iter().filter(|x| **x != 0.0).count() <= keep));
}

#[test]
fn every_estimator_is_unbiased_in_every_family_and_in_blocks() {
    let (dim, budget, rounds) = (24, 8, 4000);
    for way in WAYS {
        for (family, blocks) in FAMILIES
            .map(|family| (family, false))
            .into_iter()
            .chain([(Family::Gaussian, true), (Family::Hadamard, true)])
        {
            let machines = 3;
            let expected = mean_vector(dim, machines);
            let found = estimates(
                machines,
                rounds,
                || estimator(way, sketch(family, blocks, dim, budget, 8), 8),
                |_, rank| vector(dim, rank),
            );
            // The first rounds of a quantiser, in which its scale settles, are as unbiased as the others.
            let count = found.len() as f64;
            let mut chi_square = 0.0;
            for i in 0..dim {
                let mean = found.iter().map(|(estimate, _)| estimate[i]).sum::<f64>() / count;
                let variance = found.iter().map(|(estimate, _)| (estimate[i] - mean).powi(2)).sum::<f64>() / count;
                chi_square += (mean - expected[i]).powi(2) / (variance / count);
            }
            // Chi-square with about 24 degrees: mean 24, deviation 6.9; 55 is its 0.9997 quantile, and the seed is fixed.
            assert!(chi_square < 55.0, "{way:?} {family} blocks {blocks}: {chi_square}");
            let energy = found.iter().skip(20).map(|(_, energy)| energy).sum::<f64>() / (count - 20.0);
            let exact = corewire_algebra::vector::norm_squared(&expected);
            // A round's energy spreads by sqrt(2/m) = 0.5 relatively, 4000 rounds by 0.008; four of these.
            assert!(
                (energy / exact - 1.0).abs() < 0.032,
                "{way:?} {family} blocks {blocks}: energy {energy} of {exact}"
            );
        }
    }
}

#[test]
fn quantising_adds_the_variance_that_was_asked_for() {
    let (dim, budget, rounds) = (24, 8, 3000);
    for (machines, form) in [1, 2, 50].into_iter().flat_map(|n| FORMS.map(|form| (n, form))) {
        let quantiser = Quantiser { form, ..Quantiser::default() };
        let make = || {
            Box::new(Quantised::new(sketch(Family::Hadamard, false, dim, budget, 8), &randomness(8), quantiser))
                as Box<dyn MeanEstimator>
        };
        let quantised = estimates(machines, rounds, make, |_, rank| vector(dim, rank));
        let expected = mean_vector(dim, machines);
        let plain = estimates(
            1,
            rounds,
            || estimator(Way::Float(Width::F32), sketch(Family::Hadamard, false, dim, budget, 8), 8),
            |_, _| expected.clone(),
        );
        // The estimates differ by what the wire adds: m scalars of relative variance eta, rebuilt by directions of squared length d.
        let skip = 50;
        let added = quantised[skip..]
            .iter()
            .zip(&plain[skip..])
            .map(|((a, _), (b, _))| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>());
        let count = (rounds as usize - skip) as f64;
        let added = added.sum::<f64>() / count;
        // E s^2 = ||mean||^2, so that each scalar's error has variance eta s^2 and the estimate's d eta s^2/m.
        let eta = quantiser.noise() - 1.0;
        let stated = eta * corewire_algebra::vector::norm_squared(&expected) * dim as f64 / budget as f64;
        println!("{form:?}, {machines} machines: added {:.3} of what is stated", added / stated);
        // s^2 itself follows the last few rounds and spreads; over thousands of rounds its mean is right within a few per cent.
        assert!((added / stated - 1.0).abs() < 0.06, "{form:?} {machines}: {}", added / stated);
    }
}

/// A field of a state, by name.
fn field(state: &mut (impl Stateful + ?Sized), name: &str) -> Vec<f64> {
    let saved = [Scope::Common, Scope::Local].map(|scope| state::save(state, scope));
    saved.into_iter().flat_map(|saved| saved.fields).find(|(field, _)| field == name).unwrap().1.to_wide()
}

#[test]
fn shifts_come_to_the_vectors_of_the_machines_where_these_stand_still() {
    let (dim, budget) = (24, 8);
    for (machines, form) in [1, 2, 50, 200].into_iter().flat_map(|n| FORMS.map(|form| (n, form))) {
        let results = Group::new(Solo::new(machines)).run(|machine| {
            let quantiser = Quantiser { form, ..Quantiser::default() };
            let mut estimator =
                Quantised::new(sketch(Family::Hadamard, false, dim, budget, 3), &randomness(3), quantiser);
            let local = vector(dim, machine.rank());
            let mut mean = vec![0.0; dim];
            let mut distance = Vec::new();
            for round in 0..300 {
                estimate(&mut estimator, round, &local, &mut [], machine, &mut Vec::new(), &mut mean)?;
                let shift = field(&mut estimator, "shift");
                distance.push(shift.iter().zip(&local).map(|(shift, local)| (shift - local).powi(2)).sum::<f64>());
            }
            Ok::<_, RunError>((distance, field(&mut estimator, "shift"), field(&mut estimator, "mean_shift")))
        });
        let results: Vec<_> = results.into_iter().map(|result| result.unwrap()).collect();
        let squares: f64 = (0..machines).map(|rank| corewire_algebra::vector::norm_squared(&vector(dim, rank))).sum();
        let left = results.iter().flat_map(|(distance, ..)| &distance[200..]).sum::<f64>() / 100.0;
        // A shift forgets 1 - theta/(1 + ..) of its distance a round; what is left is the quantiser's own noise, whose square is
        // theta d/m D^2/12 = theta d/m n eta s^2 a machine at most, s^2 = ||mean||^2.
        let theta = budget as f64 / (budget + dim + 1) as f64;
        let scale = corewire_algebra::vector::norm_squared(&mean_vector(dim, machines));
        let noise = (machines * machines) as f64 * theta * dim as f64 / budget as f64 * 0.2 * scale;
        assert!(
            left < 1.5 * noise + 1e-9 * squares,
            "{form:?} {machines}: {left} where {noise} is the noise, of {squares}"
        );
        // The hub's mean shift, or everybody's, is the mean of all shifts.
        let mut mean = vec![0.0; dim];
        results
            .iter()
            .for_each(|(_, shift, _)| corewire_algebra::vector::add_scaled(1.0 / machines as f64, shift, &mut mean));
        for (rank, (.., kept)) in results.iter().enumerate() {
            match form {
                Form::Hub if rank > 0 => assert!(kept.is_empty(), "only the hub keeps the mean shift"),
                _ => assert!(
                    kept.iter().zip(&mean).all(|(a, b)| (a - b).abs() < 1e-9),
                    "{form:?} machine {rank} of {machines}"
                ),
            }
        }
    }
}

#[test]
fn a_sudden_change_of_scale_costs_no_accuracy_upwards_and_is_forgotten_downwards() {
    let (dim, budget, machines) = (24, 8, 5);
    for form in FORMS {
        for factor in [1e6, 1e-6] {
            let local = |round: u64, rank: usize| {
                let scale = if round < 60 { 1.0 } else { factor };
                vector(dim, rank).into_iter().map(|value| value * scale).collect::<Vec<f64>>()
            };
            let found = estimates(
                machines,
                400,
                || estimator(Way::Quantised(form), sketch(Family::Hadamard, false, dim, budget, 5), 5),
                local,
            );
            let expected: Vec<f64> = mean_vector(dim, machines).into_iter().map(|value| value * factor).collect();
            let size = corewire_algebra::vector::norm_squared(&expected);
            let error =
                |round: usize| found[round].0.iter().zip(&expected).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / size;
            // The sketch's own relative variance is about (d - 1)/m = 3, a round's error rarely more than three times that.
            let settled = (60..400).find(|&round| (round..400).all(|later| error(later) < 15.0)).unwrap_or(400) - 60;
            println!("{form:?}, scale times {factor:e}: settled after {settled} rounds");
            match factor > 1.0 {
                // Larger integers are sent at once, exact to a step that is now far too fine.
                true => assert_eq!(settled, 0, "{form:?}"),
                // s^2 falls by 0.7 + 0.3 eta/(1 + eta) a round, 0.79 in the hub's form: 1e-12 takes 116 rounds.
                false => assert!(settled < 140, "{form:?}: {settled}"),
            }
            let late = (300..400).map(error).sum::<f64>() / 100.0;
            // (d - 1)/m of Hadamard's rows without replacement is 23/8 (32 - 8)/31, and quantising adds 1.4 d/m at most.
            assert!(late < 5.0, "{form:?} {factor:e}: {late}");
        }
    }
}

#[test]
fn sums_of_integers_do_not_wrap_when_every_machine_saturates() {
    let (dim, budget, machines) = (24, 8, 6);
    // From round 1 on every machine is 1e15 times as large as the scale: each integer saturates, and so do their sums.
    let local = |round: u64, _: usize| {
        let factor = if round == 0 { 1.0 } else { 1e15 };
        vector(dim, 0).into_iter().map(|value| value * factor).collect::<Vec<f64>>()
    };
    for form in FORMS {
        let make = || estimator(Way::Quantised(form), sketch(Family::Hadamard, false, dim, budget, 5), 5);
        let found = estimates(machines, 2, make, local);
        let mean = &found[1].0;
        assert!(mean.iter().all(|value| value.is_finite()));
        // A sum that wrapped would point the other way: <g, g~> is positive with certainty, even where all scalars have one size.
        let product = corewire_algebra::vector::dot(mean, &vector(dim, 0));
        assert!(product > 0.0, "{form:?}: {product}");
    }
}

#[test]
fn two_hundred_machines_hold_the_same_bits_in_every_way() {
    for way in WAYS {
        for machines in [1, 2, 200] {
            // `estimates` compares all machines' bits.
            let found = estimates(
                machines,
                12,
                || estimator(way, sketch(Family::Rademacher, false, 10, 4, 1), 1),
                |_, rank| vector(10, rank),
            );
            assert!(found.iter().all(|(estimate, _)| estimate.iter().all(|value| value.is_finite())));
        }
    }
}

/// A share of a problem whose gradient is not a number from some round on.
struct Broken(Box<dyn Objective>, u32);

impl Objective for Broken {
    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn value(&mut self, x: &[f64]) -> f64 {
        self.0.value(x)
    }
    fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        self.0.gradient(x, out);
        if self.1 == 0 {
            out[1] = f64::NAN;
        }
        self.1 = self.1.saturating_sub(1);
    }
    fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        self.0.hessian_vector(x, v, out);
    }
    fn strong_convexity(&self) -> f64 {
        self.0.strong_convexity()
    }
    fn rows(&self) -> usize {
        self.0.rows()
    }
}

#[test]
fn a_machine_whose_vector_is_not_finite_is_named() {
    let problem = Problem::power_law(20, 1.0, 1e-2, 4, &randomness(0));
    for way in WAYS {
        let results = Group::new(Solo::new(4)).run(|machine| {
            let rank = machine.rank();
            let mut objective = problem.objective(rank);
            if rank == 2 {
                objective = Box::new(Broken(objective, 3));
            }
            let start = Descent::new(problem.start().to_vec(), Step::Fixed(0.1));
            let mut method = GradientMethod::new(estimator(way, sketch(Family::Gaussian, false, 20, 4, 1), 1), start);
            run(
                &mut Metered::new(machine, None),
                &mut RunPart::new(&mut *objective, &mut method, &mut Silent),
                &rounds(10),
                Begin::default(),
            )
        });
        for (rank, result) in results.into_iter().enumerate() {
            match result.unwrap_err() {
                RunError::NotFinite { rank: who, round, .. } if rank == 2 => assert_eq!((who, round), (2, 3)),
                error => {
                    assert!(
                        matches!(error, RunError::Comm(CommError::Left { rank: 2, .. })),
                        "machine {rank}: {error}"
                    );
                    assert!(error.is_consequence());
                }
            }
        }
    }
}

/// An estimator that alters a bit of the estimate on one machine in one round.
struct Altered(Box<dyn MeanEstimator>, usize, u64);

impl Stateful for Altered {
    fn visit(&mut self, visitor: &mut dyn Visitor) {
        self.0.visit(visitor);
    }
}

impl MeanEstimator for Altered {
    fn contribute(&mut self, at: Place, local: &[f64], extra: &[f64], message: &mut Vec<u8>) -> Result<How, RunError> {
        self.0.contribute(at, local, extra, message)
    }

    fn combine(&mut self, at: Place, messages: &[&[u8]], extras: usize) -> Result<Vec<u8>, CommError> {
        self.0.combine(at, messages, extras)
    }

    fn absorb(&mut self, at: Place, reply: &Reply, extra: &mut [f64], mean: &mut [f64]) -> Result<Next, RunError> {
        let next = self.0.absorb(at, reply, extra, mean)?;
        if at.rank == self.1 && at.round == self.2 {
            mean[0] = f64::from_bits(mean[0].to_bits() ^ (1 << 40));
        }
        Ok(next)
    }
}

#[test]
fn a_machine_that_rebuilds_other_bits_is_named_by_the_round_loop() {
    let problem = Problem::power_law(20, 1.0, 1e-2, 5, &randomness(0));
    let rules = Rules { rounds: 20, digest_every: 4, ..Rules::default() };
    for way in WAYS {
        for odd in [0, 3] {
            let make = || {
                let estimator = Altered(estimator(way, sketch(Family::Gaussian, false, 20, 4, 1), 1), odd, 5);
                let start = Descent::new(problem.start().to_vec(), Step::Fixed(0.1));
                Box::new(GradientMethod::new(estimator, start)) as Box<dyn Method>
            };
            let (results, _) = run_all(&problem, &rules, &make, Silent);
            for result in results {
                let error = result.unwrap_err();
                // Digests ride with every fourth round: the drift of round 5 is seen with round 8.
                let drifted = CommError::Drifted { rank: odd, round: 8 };
                assert!(matches!(&error, RunError::Comm(found) if *found == drifted), "{way:?}: {error}");
            }
        }
    }
}

#[test]
fn a_message_of_another_length_is_refused_with_its_machine() {
    for way in WAYS {
        let results = Group::new(Solo::new(3)).run(|machine| {
            let budget = if machine.rank() == 1 { 5 } else { 4 };
            let mut estimator = estimator(way, sketch(Family::Gaussian, false, 20, budget, 1), 1);
            let mut mean = vec![0.0; 20];
            (0..3).try_for_each(|round| {
                let local = vector(20, machine.rank());
                estimate(&mut estimator, round, &local, &mut [], machine, &mut Vec::new(), &mut mean).map(drop)
            })
        });
        // Codes without a length of their own may take the fifth scalar for padding; what must not happen is that nobody notices within a
        // few rounds.
        let refused = results.iter().filter(|result| result.is_err()).count();
        assert!(refused == 3, "{way:?}: {refused} of 3 machines were told");
    }
}

#[test]
fn core_cg_converges_on_every_wire_and_family() {
    let softmax = corewire_data::digits().unit_norm();
    let problems = [
        ("ridge", rows(digits(), Model::Ridge, 1e-3, 4, Split::Random)),
        ("logistic", rows(digits(), Model::Logistic, 1e-3, 4, Split::Random)),
        ("softmax", rows(softmax, Model::Softmax, 1e-3, 4, Split::Random)),
    ];
    let wires =
        [("q", quantised(Form::Hub, 0.05)), ("q-sum", quantised(Form::Sum, 0.05)), ("bf16", BF16), ("f32", F32)];
    for (name, problem) in &problems {
        let rules = until(1e-6, 400, problem);
        let quadratic = *name == "ridge";
        let flavour = CoreAlgorithm::Conjugate {
            memory: if quadratic { 5 } else { 3 },
            number_bytes: if quadratic { 3 } else { 2 },
        };
        for (wire_name, wire) in wires {
            let families: &[Family] = if *name == "softmax" { &[Family::Hadamard] } else { &FAMILIES };
            for &family in families {
                // Dense directions are not orthogonal: as many as coordinates still leave noise, and convergence.
                let budget = problem.dim();
                let seeds = if family == Family::Hadamard && *name != "softmax" { 0..3 } else { 0..1 };
                let found: Vec<u64> = seeds
                    .map(|seed| {
                        let plan = plan(family, Some(budget), wire, seed);
                        let finish = solve(problem, &rules, &|| core(&plan, flavour.clone(), problem, None));
                        assert_eq!(
                            finish.ended,
                            Ended::Target,
                            "{name} {wire_name} {family} {seed}: {:?}",
                            finish.last
                        );
                        finish.last.round
                    })
                    .collect();
                println!("core-cg on {name}, wire {wire_name}, {family}: {found:?} rounds");
            }
        }
    }
}

#[test]
fn a_machine_alone_gives_its_own_message_back() {
    // Without company and with all Hadamard rows the sketch is a rotation: floats give the vector back to their last bits.
    let results = Group::new(Solo::new(1)).run(|machine| {
        let mut estimator = Sketched::new(sketch(Family::Hadamard, false, 32, 32, 1), &randomness(1), Width::F32);
        let mut mean = vec![0.0; 32];
        estimate(&mut estimator, 0, &vector(32, 0), &mut [], machine, &mut Vec::new(), &mut mean)?;
        Ok::<_, RunError>(mean)
    });
    assert!(results[0].as_ref().unwrap().iter().zip(&vector(32, 0)).all(|(a, b)| (a - b).abs() < 1e-5));
}
