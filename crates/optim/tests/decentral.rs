//! Runs without a centre: the tree's bits are the hub's, gossip converges or says why not, and what every edge carried is counted.

use corewire_comm::{Collective, Metered, Traffic, Tree, group};
use corewire_data::DataSet;
use corewire_data::shard::Split;
use corewire_graph::gossip::Scheme;
use corewire_graph::graph::Graph;
use corewire_optim::RunError;
use corewire_optim::catalogue::{self, Constants, MethodSettings, Request};
use corewire_optim::decentral::{Averaging, GossipCore, GossipMean, GossipWire};
use corewire_optim::estimator::{Form, Quantiser};
use corewire_optim::method::Method;
use corewire_optim::method::core::{Core, CoreAlgorithm, Goal, Plan, Wire};
use corewire_optim::optimum;
use corewire_optim::problem::{Model, ModelSpec, Problem};
use corewire_optim::proximal::Proximal;
use corewire_optim::run::{self, Begin, Ended, Finish, Rules, RunPart, Silent};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Seed};

/// What a decentralised run is asked for.
#[derive(Clone, Copy)]
struct Settings {
    budget: Option<usize>,
    /// Whether the machines are pulled towards each other; without it core-gd alone.
    corrected: bool,
}

const DEFAULTS: Settings = Settings { budget: None, corrected: true };

fn randomness() -> CommonRandomness {
    CommonRandomness::new(&Seed::reproducible(11))
}

fn digits() -> DataSet {
    corewire_data::digits().parity().unwrap().unit_norm()
}

/// The bundled digits, shared out among machines, strongly regularised: a run takes hundreds of rounds and not thousands.
struct Bench {
    problem: Problem,
    constants: Constants,
    optimum: f64,
}

impl Bench {
    fn new(data: DataSet, model: Model, alpha: f64, machines: usize) -> Self {
        let problem = Problem::rows(
            data,
            ModelSpec { model, classes: 0, alpha, proximal: Proximal::NONE },
            machines,
            Split::Random,
            &randomness(),
        );
        let constants = Constants::measure(&problem);
        let optimum = optimum::minimise(&mut *problem.pooled().unwrap(), problem.start()).1;
        Self { problem, constants, optimum }
    }

    fn rules(&self, rounds: u64, target: f64) -> Rules {
        Rules { rounds, target: Some(target), optimum: Some(self.optimum), digest_every: 1, ..Rules::default() }
    }

    /// A decentralised run: how it ended on every machine, and what passed on its edges.
    fn gossip(
        &self,
        id: &str,
        averaging: &Averaging,
        settings: &Settings,
        rules: &Rules,
    ) -> Vec<Result<(Finish, Vec<Traffic>), RunError>> {
        group::run(self.problem.machines(), |machine| {
            let mut objective = self.problem.objective(machine.rank());
            let mut method = self.method(id, averaging, settings).map_err(RunError::Unsuited)?;
            let mut comm = Metered::new(machine, None);
            let finish = run::run(
                &mut comm,
                &mut RunPart::new(&mut *objective, &mut *method, &mut Silent),
                rules,
                Begin::default(),
            )?;
            Ok((finish, comm.edges().values().copied().collect()))
        })
    }

    fn method(&self, id: &str, averaging: &Averaging, settings: &Settings) -> catalogue::Built {
        if let (false, Some(m)) = (settings.corrected, settings.budget) {
            let (budget, c) = (m as f64, &self.constants);
            let sketch = AnySketch::new(Family::Hadamard, &randomness(), self.problem.dim(), m).unwrap();
            let mean = GossipMean::new(averaging.clone(), sketch);
            let step = 1.5 * budget / (c.trace + (budget + 1.0) * c.smoothness);
            return Ok(Box::new(GossipCore::new(self.problem.start().to_vec(), mean, step, 1.0)));
        }
        let request = Request {
            info: catalogue::find(id)?,
            parameters: &Default::default(),
            settings: &MethodSettings { budget: settings.budget, ..MethodSettings::default() },
            start: self.problem.start(),
            constants: &self.constants,
            quadratic: false,
            randomness: &randomness(),
            shipment: None,
        };
        catalogue::build(&request, Some(averaging))
    }

    fn core(&self, conjugate: bool) -> Box<dyn Method> {
        let eta = if conjugate { 0.05 } else { 0.2 };
        let plan = Plan {
            family: Family::Hadamard,
            budget: Some(16),
            block: None,
            wire: Wire::Quantised(Quantiser { eta_up: eta, eta_down: eta, theta: 1.0, keep: 0.7, form: Form::Hub }),
            randomness: randomness(),
            goal: Goal { link: None, target: 1e-6 },
        };
        let algorithm = match conjugate {
            true => CoreAlgorithm::Conjugate { memory: 3, number_bytes: 2 },
            false => CoreAlgorithm::Accelerated { fixed: None },
        };
        Box::new(Core::new(plan, algorithm, self.problem.start().to_vec(), None))
    }

    /// A run through the hub, or over a graph's spanning tree.
    fn collective(&self, conjugate: bool, graph: Option<&Graph>, rules: &Rules) -> Vec<(Finish, Vec<Traffic>)> {
        let results = group::run(self.problem.machines(), |machine| {
            let mut objective = self.problem.objective(machine.rank());
            let mut method = self.core(conjugate);
            match graph {
                None => {
                    let mut comm = Metered::new(machine, None);
                    run::run(
                        &mut comm,
                        &mut RunPart::new(&mut *objective, &mut *method, &mut Silent),
                        rules,
                        Begin::default(),
                    )
                    .map(|finish| (finish, Vec::new()))
                }
                Some(graph) => {
                    let tree = graph.spanning_tree(0);
                    let parents: Vec<_> = (0..tree.machines()).map(|machine| tree.parent(machine)).collect();
                    let mut tree = Tree::new(machine, &parents);
                    let mut comm = Metered::new(&mut tree, None);
                    run::run(
                        &mut comm,
                        &mut RunPart::new(&mut *objective, &mut *method, &mut Silent),
                        rules,
                        Begin::default(),
                    )
                    .map(|finish| (finish, comm.edges().values().copied().collect()))
                }
            }
        });
        results.into_iter().map(Result::unwrap).collect()
    }
}

fn chebyshev(graph: Graph, wire: GossipWire) -> Averaging {
    Averaging::new(graph, Scheme::Chebyshev, None, 1e-8, wire).unwrap()
}

#[test]
fn a_spanning_tree_gives_the_digest_of_the_run_through_a_hub() {
    let bench = Bench::new(digits().first_rows(600), Model::Logistic, 0.01, 9);
    let rules = bench.rules(60, 1e-12);
    for conjugate in [false, true] {
        let hub = bench.collective(conjugate, None, &rules);
        for graph in [Graph::ring(9), Graph::grid(3, 3), Graph::star(9)] {
            let tree = bench.collective(conjugate, Some(&graph.unwrap()), &rules);
            for (hub, tree) in hub.iter().zip(&tree) {
                assert_eq!((tree.0.digest, &tree.0.iterate), (hub.0.digest, &hub.0.iterate));
                assert_eq!(tree.0.last.value, hub.0.last.value);
                assert!(!tree.1.is_empty() && tree.0.last.traffic.up_bytes > hub.0.last.traffic.up_bytes);
            }
        }
    }
}

#[test]
fn core_gd_by_chebyshev_gossip_reaches_the_optimum_of_the_digits() {
    for (name, graph) in [("ring of 16", Graph::ring(16)), ("grid of 64", Graph::grid(8, 8))] {
        let graph = graph.unwrap();
        for (model, alpha) in [(Model::Ridge, 0.1), (Model::Logistic, 0.03)] {
            let bench = Bench::new(digits(), model, alpha, graph.machines());
            let rules = Rules { evaluate_every: Some(5), ..bench.rules(400, 1e-6) };
            let wanted = Settings { budget: Some(16), ..DEFAULTS };
            for result in bench.gossip("core-gd", &chebyshev(graph.clone(), GossipWire::F32), &wanted, &rules) {
                let (finish, _) = result.unwrap();
                assert_eq!(finish.ended, Ended::Target, "{name} {model:?}: {:?}", finish.last);
                // Each machine's own point, and not that of the farthest only.
                let own = bench.problem.pooled().unwrap().value(&finish.iterate) - bench.optimum;
                assert!(own <= 1.01e-6 * (finish.initial.unwrap() - bench.optimum), "{name} {model:?}: {own:e}");
            }
        }
    }
}

#[test]
fn core_agd_by_gossip_takes_fewer_rounds_than_core_gd() {
    let bench = Bench::new(digits(), Model::Ridge, 0.02, 16);
    let averaging = chebyshev(Graph::ring(16).unwrap(), GossipWire::F64);
    let wanted = Settings { budget: Some(16), ..DEFAULTS };
    let rounds = ["core-gd", "core-agd"].map(|id| {
        let (finish, _) = bench.gossip(id, &averaging, &wanted, &bench.rules(3000, 1e-6)).remove(0).unwrap();
        assert_eq!(finish.ended, Ended::Target, "{id}: {:?}", finish.last);
        finish.last.round
    });
    assert!(rounds[1] < rounds[0], "{rounds:?}");
}

#[test]
fn too_few_iterations_are_told_with_what_to_raise() {
    let bench = Bench::new(digits().first_rows(600), Model::Ridge, 0.1, 16);
    let wanted = Settings { budget: Some(16), corrected: false };
    let run = |iterations: Option<usize>, tolerance: f64| {
        let graph = Graph::ring(16).unwrap();
        let averaging = Averaging::new(graph, Scheme::Chebyshev, iterations, tolerance, GossipWire::F64).unwrap();
        bench.gossip("core-gd", &averaging, &wanted, &bench.rules(200, 1e-6))
    };
    for iterations in [1, 5, 10, 20] {
        let results = run(Some(iterations), 1e-8);
        assert!(results.iter().all(Result::is_err), "{iterations}");
        let told = results.iter().filter_map(|result| match result {
            Err(error @ RunError::Disagree { .. }) => Some(error.to_string()),
            _ => None,
        });
        let told: Vec<String> = told.collect();
        // The plan for 1e-8 on this ring is 49 iterations.
        assert!(told.iter().all(|error| error.contains("raise `graph.iterations` to 49")), "{told:?}");
        assert!(!told.is_empty(), "{iterations}");
    }
    for result in run(Some(49), 1e-8).into_iter().chain(run(None, 1e-8)) {
        assert_eq!(result.unwrap().0.ended, Ended::Target);
    }
    // Whoever asks for little is content with little: nothing is told, and the state breaks before everybody's eyes.
    assert!(run(Some(5), 0.5).into_iter().all(|result| result.is_ok_and(|(finish, _)| finish.ended != Ended::Target)));
}

#[test]
fn extra_and_msda_reach_the_optimum_of_a_small_ridge_problem() {
    let bench = Bench::new(digits().first_rows(400), Model::Ridge, 0.1, 8);
    for graph in [Graph::ring(8), Graph::grid(2, 4), Graph::star(8)] {
        let averaging = chebyshev(graph.unwrap(), GossipWire::F64);
        for (id, rounds) in [("extra", 600), ("msda", 300)] {
            for result in bench.gossip(id, &averaging, &DEFAULTS, &bench.rules(rounds, 1e-6)) {
                let (finish, _) = result.unwrap();
                assert_eq!(finish.ended, Ended::Target, "{id}: {:?}", finish.last);
            }
        }
    }
}

#[test]
fn msda_solves_its_local_problems_on_logistic_rows_too() {
    let bench = Bench::new(digits().first_rows(400), Model::Logistic, 0.02, 8);
    let averaging = chebyshev(Graph::ring(8).unwrap(), GossipWire::F64);
    for result in bench.gossip("msda", &averaging, &DEFAULTS, &bench.rules(300, 1e-6)) {
        let (finish, _) = result.unwrap();
        assert_eq!(finish.ended, Ended::Target, "{:?}", finish.last);
    }
}

#[test]
fn methods_without_a_form_for_gossip_are_refused_with_what_to_do() {
    let bench = Bench::new(digits().first_rows(100), Model::Ridge, 0.1, 4);
    let averaging = chebyshev(Graph::ring(4).unwrap(), GossipWire::F64);
    let error = bench.method("core-cg", &averaging, &DEFAULTS).err().unwrap();
    assert!(error.contains("with `graph.gossip` = \"tree\" every method runs"), "{error}");
}

#[test]
fn the_bytes_of_every_edge_are_known_for_tree_gossip_extra_and_msda() {
    println!("| graph | method | rounds | bytes, all edges | bytes, busiest edge | hops |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, graph) in [("ring of 16", Graph::ring(16).unwrap()), ("grid 4 x 4", Graph::grid(4, 4).unwrap())] {
        let bench = Bench::new(digits(), Model::Ridge, 0.02, 16);
        let rules = bench.rules(6000, 1e-6);
        let report = |method: &str, results: &[(Finish, Vec<Traffic>)]| {
            let (first, _) = &results[0];
            assert_eq!(first.ended, Ended::Target, "{method}: {:?}", first.last);
            let edges = || results.iter().flat_map(|(_, edges)| edges);
            // Both ends count an edge: what is sent there is received here.
            let all: u64 = edges().map(|edge| edge.up_bytes).sum();
            let busiest = edges().map(|edge| edge.up_bytes + edge.down_bytes).max().unwrap();
            assert_eq!(all, edges().map(|edge| edge.down_bytes).sum::<u64>());
            println!("| {name} | {method} | {} | {all} | {busiest} | {} |", first.last.round, first.last.traffic.trips);
            all
        };
        let gossip = |id: &str, averaging: &Averaging, wanted: &Settings| -> Vec<(Finish, Vec<Traffic>)> {
            bench.gossip(id, averaging, wanted, &rules).into_iter().map(Result::unwrap).collect()
        };
        let single = chebyshev(graph.clone(), GossipWire::F32);
        let wanted = Settings { budget: Some(16), ..DEFAULTS };
        let cg = report("core-cg, tree, wire q", &bench.collective(true, Some(&graph), &rules));
        report("core-agd, tree, wire q", &bench.collective(false, Some(&graph), &rules));
        let floats = report("core-agd, Chebyshev, f32, corrected", &gossip("core-agd", &single, &wanted));
        let quantised = chebyshev(graph.clone(), GossipWire::Quantised(Box::new(randomness())));
        let integers = report("core-agd, Chebyshev, q, corrected", &gossip("core-agd", &quantised, &wanted));
        let extra = report("extra, f32", &gossip("extra", &single, &wanted));
        let msda = report("msda, f32", &gossip("msda", &single, &wanted));
        // About seven bits where floats have 32, exponents and the ends of messages included.
        assert!(7 * integers < 2 * floats);
        // The tree is what a user should take: by more than an order here.
        assert!(10 * cg < extra.min(msda));
    }
}
