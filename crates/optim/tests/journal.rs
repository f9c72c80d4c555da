//! The journal under damage, and the law that a run is its start, its seed and its replies.

mod group;

use std::path::Path;
use std::sync::Arc;

use corewire_comm::{Collective, Group, Metered, Solo};
use corewire_data::shard::Split;
use corewire_journal::{
    self as journal, About, Contents, Journal, JournalError, PREPARATION, Snapshot, Stored, Values,
};
use corewire_optim::RunError;
use corewire_optim::estimator::Form;
use corewire_optim::method::core::{CoreAlgorithm, Plan, StepRule, Wire};
use corewire_optim::method::{Context, Method, Settings};
use corewire_optim::problem::{Model, Problem};
use corewire_optim::replay::{self, Facts};
use corewire_optim::run::{Begin, Observer, Record, Rules, RunPart, Silent, run};
use corewire_optim::state::{self, Scope};
use corewire_sketch::Family;
use group::*;

/// Writes a journal of `count` rounds with replies of many lengths, and returns what it holds.
fn write(path: &Path, count: u64) -> Contents {
    let mut words = randomness(3).words(corewire_sketch::Purpose::Synthetic, 0, 0);
    let mut reply = |most: u64| -> Arc<[u8]> {
        let length = words.next_below(most);
        (0..length).map(|_| words.next_u64() as u8).collect::<Vec<u8>>().into()
    };
    let mut journal = Journal::create(path, "{\"any\": \"text\"}").unwrap();
    journal.append(PREPARATION, &[reply(40)]).unwrap();
    for round in 0..count {
        let replies: Vec<Arc<[u8]>> = (0..round % 3).map(|_| reply(30)).collect();
        journal.append(round, &replies).unwrap();
    }
    journal.sync().unwrap();
    journal::read(path).unwrap()
}

/// Whether what was read is the beginning of the truth.
fn is_prefix(found: &Contents, truth: &Contents) -> bool {
    found.header == truth.header
        && (found.preparation == truth.preparation || (found.preparation.is_none() && found.rounds.is_empty()))
        && truth.rounds.starts_with(&found.rounds)
}

#[test]
fn every_truncation_leaves_the_rounds_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.bin");
    let truth = write(&path, 40);
    let bytes = std::fs::read(&path).unwrap();
    let mut seen = 0;
    for length in 0..=bytes.len() {
        match journal::parse(&path, &bytes[..length]) {
            Ok(found) => {
                assert!(is_prefix(&found, &truth), "cut at {length}");
                assert_eq!(found.whole_bytes + found.torn_bytes, length as u64);
                assert!(found.rounds.len() >= seen, "a longer file never holds fewer rounds");
                seen = found.rounds.len();
            }
            // Before the header is whole nothing has happened.
            Err(JournalError::NoJournal { .. }) => assert_eq!(seen, 0, "cut at {length}"),
            Err(error) => panic!("cut at {length}: {error}"),
        }
    }
    assert_eq!(seen, 40);
}

#[test]
fn zeros_that_a_file_system_left_at_the_end_are_a_torn_tail() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.bin");
    let truth = write(&path, 5);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(&[0; 4096]);
    let found = journal::parse(&path, &bytes).unwrap();
    assert_eq!((found.rounds, found.torn_bytes), (truth.rounds, 4096));
}

#[test]
fn no_flipped_bit_is_misread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.bin");
    let truth = write(&path, 40);
    let bytes = std::fs::read(&path).unwrap();
    let mut words = randomness(4).words(corewire_sketch::Purpose::Synthetic, 0, 0);
    let (mut refused, mut cut) = (0, 0);
    for _ in 0..2000 {
        let bit = words.next_below(8 * bytes.len() as u64) as usize;
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match journal::parse(&path, &damaged) {
            // Only what is wrong within the last record can be taken for a torn tail.
            Ok(found) => {
                assert!(is_prefix(&found, &truth), "bit {bit}");
                assert_eq!(found.rounds.len(), 39, "bit {bit}: a damaged middle is refused, not cut");
                assert!(found.torn_bytes > 0);
                cut += 1;
            }
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.contains("damaged at byte") || text.contains("not a corewire journal"), "{text}");
            }
        }
    }
    println!("{refused} refused, {cut} cut as a torn tail");
    assert!(refused > 1800);
}

#[test]
fn records_that_were_moved_or_left_out_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("journal.bin"), folder.path().join("other.bin"));
    write(&path, 6);
    let mut journal = Journal::create(&other, "{\"any\": \"text\"}").unwrap();
    journal.append(0, &[]).unwrap();
    journal.append(2, &[]).unwrap();
    journal.append(3, &[]).unwrap();
    assert!(journal::read(&other).unwrap_err().to_string().contains("a round is missing"), "rounds are counted");
    // The tail of one journal behind the head of another does not continue its chain.
    let (head, tail) = (std::fs::read(&other).unwrap(), std::fs::read(&path).unwrap());
    let mut spliced = head[..head.len() / 2].to_vec();
    spliced.extend_from_slice(&tail[tail.len() / 2..]);
    assert!(journal::parse(&path, &spliced).is_err());
}

#[test]
fn a_torn_tail_is_cut_off_before_the_journal_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.bin");
    let truth = write(&path, 10);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let contents = journal::read(&path).unwrap();
    assert_eq!(contents.rounds.len(), 9);
    let mut journal = Journal::reopen(&path, &contents).unwrap();
    journal.append(9, &truth.rounds[9].replies).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "the same bytes as without the interruption");
}

fn about() -> About {
    About::from([("run".to_owned(), "this run".to_owned())])
}

/// Keeps a run as a journal and snapshots.
struct Keeper {
    journal: Journal,
    folder: std::path::PathBuf,
    snapshot_at: Vec<u64>,
}

impl Observer for Keeper {
    fn prepared(&mut self, replies: &[Arc<[u8]>], _: Settings) -> Result<(), RunError> {
        Ok(self.journal.append(PREPARATION, replies)?)
    }

    fn round(&mut self, record: &Record, replies: &[Arc<[u8]>]) -> Result<(), RunError> {
        Ok(self.journal.append(record.round - 1, replies)?)
    }

    fn wants_snapshot(&mut self, round: u64) -> bool {
        self.snapshot_at.contains(&round)
    }

    fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), RunError> {
        Ok(snapshot.write(&self.folder, &about(), self.journal.chain())?)
    }
}

fn keeper(folder: &Path, snapshot_at: &[u64]) -> Keeper {
    let journal = Journal::create(&folder.join("journal.bin"), "{}").unwrap();
    Keeper { journal, folder: folder.to_owned(), snapshot_at: snapshot_at.to_vec() }
}

/// So many rounds, with snapshots where the keeper wants them; there is one at the end too.
fn kept(count: u64) -> Rules {
    Rules { snapshots: true, ..rounds(count) }
}

const WIRES: [(&str, Wire); 4] = [
    (
        "q",
        Wire::Quantised(corewire_optim::estimator::Quantiser {
            eta_up: 0.2,
            eta_down: 0.2,
            theta: 1.0,
            keep: 0.7,
            form: Form::Hub,
        }),
    ),
    (
        "q-sum",
        Wire::Quantised(corewire_optim::estimator::Quantiser {
            eta_up: 0.2,
            eta_down: 0.2,
            theta: 1.0,
            keep: 0.7,
            form: Form::Sum,
        }),
    ),
    ("f32", F32),
    ("bf16", BF16),
];

fn algorithms() -> [(&'static str, CoreAlgorithm, Model); 6] {
    [
        ("core-gd", CoreAlgorithm::Descent { momentum: 0.0, step: StepRule::Auto, batch: None }, Model::Ridge),
        (
            "core-gd line search",
            CoreAlgorithm::Descent { momentum: 0.0, step: StepRule::LineSearch, batch: None },
            Model::Logistic,
        ),
        ("core-agd", CoreAlgorithm::Accelerated { fixed: None }, Model::Logistic),
        ("core-cg", CoreAlgorithm::Conjugate { memory: 5, number_bytes: 3 }, Model::Ridge),
        ("core-cg off quadratics", CoreAlgorithm::Conjugate { memory: 3, number_bytes: 2 }, Model::Logistic),
        ("core-nonconvex", CoreAlgorithm::Comparing { rule: None }, Model::LogisticNonconvex { lambda: 0.01 }),
    ]
}

const ROUNDS: u64 = 30;

fn problem(model: Model) -> Problem {
    rows(digits().first_rows(200), model, 1e-3, 4, Split::Random)
}

fn a_plan(algorithm: &CoreAlgorithm, wire: Wire) -> Plan {
    // Automatic budgets travel in the preparation's reply; with line search there is none.
    let fixed = matches!(algorithm, CoreAlgorithm::Descent { momentum: 0.0, step: StepRule::LineSearch, .. });
    plan(Family::Hadamard, fixed.then_some(16), wire, 6)
}

#[test]
fn a_replay_without_data_ends_where_the_run_stopped() {
    for (name, algorithm, model) in algorithms() {
        for (wire_name, wire) in WIRES {
            let folder = tempfile::tempdir().unwrap();
            let problem = problem(model);
            let plan = a_plan(&algorithm, wire);
            let make = || core(&plan, algorithm.clone(), &problem, None);
            let (results, _) = run_all(&problem, &rounds(ROUNDS), &make, keeper(folder.path(), &[]));
            let finish = results.into_iter().next().unwrap().unwrap();
            let contents = journal::read(&folder.path().join("journal.bin")).unwrap();
            let facts = Facts::of(&*problem.objective(0), 4);
            for to in [1, 7, ROUNDS] {
                let mut method = make();
                replay::replay(&mut *method, &contents, facts, to).unwrap();
                // A run that was stopped there has the same digest.
                let stopped = if to == ROUNDS { finish.digest } else { solve(&problem, &rounds(to), &make).digest };
                assert_eq!(state::digest(&mut *method), stopped, "{name} {wire_name} to {to}");
            }
            let beyond = replay::replay(&mut *make(), &contents, facts, ROUNDS + 1).unwrap_err();
            assert!(beyond.to_string().contains("ends with round 30"), "{beyond}");
        }
    }
}

#[test]
fn a_restored_snapshot_goes_on_to_the_same_bits() {
    for (name, algorithm, model) in algorithms() {
        for (wire_name, wire) in WIRES {
            let folder = tempfile::tempdir().unwrap();
            let problem = problem(model);
            let plan = a_plan(&algorithm, wire);
            let make = || core(&plan, algorithm.clone(), &problem, None);
            let (results, _) = run_all(&problem, &kept(ROUNDS), &make, keeper(folder.path(), &[11]));
            let whole = results.into_iter().next().unwrap().unwrap();
            let contents = journal::read(&folder.path().join("journal.bin")).unwrap();
            let snapshot = Stored::read(folder.path(), 11).unwrap().snapshot;
            assert_eq!((snapshot.round, snapshot.machines.len()), (11, 4));
            let facts = Facts::of(&*problem.objective(0), 4);
            let results = Group::new(Solo::new(4)).run(|machine| {
                let rank = machine.rank();
                let mut method = make();
                replay::prepare(&mut *method, &contents, facts)?;
                let own = &snapshot.machines[rank];
                state::restore(&mut *method, &snapshot.common, &own.saved).map_err(RunError::Unsuited)?;
                let begin = Begin { round: 11, traffic: own.traffic, initial: snapshot.initial, ..Begin::default() };
                let mut objective = problem.objective(rank);
                run(
                    &mut Metered::new(machine, None),
                    &mut RunPart::new(&mut *objective, &mut *method, &mut Silent),
                    &rounds(ROUNDS),
                    begin,
                )
            });
            for result in results {
                let finish = result.unwrap();
                assert_eq!(finish.digest, whole.digest, "{name} {wire_name}");
                assert_eq!(finish.last.value, whole.last.value, "{name} {wire_name}");
                assert_eq!(
                    finish.last.traffic.up_bytes, whole.last.traffic.up_bytes,
                    "{name} {wire_name}: bytes are counted through"
                );
            }
        }
    }
}

#[test]
fn a_damaged_snapshot_is_refused_and_a_whole_one_belongs_to_its_round_and_chain() {
    let folder = tempfile::tempdir().unwrap();
    let (_, algorithm, model) = algorithms()[2].clone();
    let problem = problem(model);
    let plan = a_plan(&algorithm, WIRES[0].1);
    let make = || core(&plan, algorithm.clone(), &problem, None);
    run_all(&problem, &kept(ROUNDS), &make, keeper(folder.path(), &[5, 11, 20]));
    // Only the two newest are kept.
    assert_eq!(Snapshot::list(folder.path()).unwrap(), [20, ROUNDS]);
    let path = Snapshot::path(folder.path(), ROUNDS);
    let truth = Stored::read(folder.path(), ROUNDS).unwrap();
    assert_eq!(truth.about, about());
    let bytes = std::fs::read(&path).unwrap();
    let mut words = randomness(9).words(corewire_sketch::Purpose::Synthetic, 0, 0);
    let mut harmless = 0;
    // Random bits, and every bit of the header, where the names and the few numbers stand.
    let header = 8 * (8 + u64::from_le_bytes(bytes[..8].try_into().unwrap())).min(500) as usize;
    let random: Vec<usize> = (0..200).map(|_| words.next_below(8 * bytes.len() as u64) as usize).collect();
    for bit in (0..header).chain(random) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // A bit of the JSON's blanks may change nothing; then what is read must be the truth.
        if let Ok(found) = Stored::parse(&damaged) {
            harmless += 1;
            assert!(found == truth, "bit {bit} was misread");
        }
    }
    println!("{harmless} flips changed nothing");
    for length in [0, 7, 8, 9, 100, bytes.len() / 2, bytes.len() - 1] {
        Stored::parse(&bytes[..length]).unwrap_err();
    }
    let contents = journal::read(&folder.path().join("journal.bin")).unwrap();
    truth.check(folder.path(), ROUNDS, &contents).unwrap();
    let renamed = truth.check(folder.path(), ROUNDS + 1, &contents).unwrap_err().to_string();
    assert!(renamed.contains("its `round` is 30, and its name says 31"), "{renamed}");
    let mut shorter = contents.clone();
    shorter.rounds.pop();
    let beyond = truth.check(folder.path(), ROUNDS, &shorter).unwrap_err().to_string();
    assert!(beyond.contains("its `round` is 30, and journal.bin ends with 29: rounds were lost"), "{beyond}");
    let mut other = contents;
    other.rounds[ROUNDS as usize - 1].link = [7; 8];
    let foreign = truth.check(folder.path(), ROUNDS, &other).unwrap_err().to_string();
    assert!(foreign.contains("its `chain` is ") && foreign.contains("journal.bin has 0707070707070707"), "{foreign}");
    // The same contents are the same bytes.
    truth.snapshot.write(folder.path(), &about(), [1; 8]).unwrap();
    let first = std::fs::read(&path).unwrap();
    truth.snapshot.write(folder.path(), &about(), [1; 8]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
}

#[test]
fn a_snapshot_of_another_method_is_refused_by_the_field() {
    let problem = problem(Model::Logistic);
    let plans = plan(Family::Hadamard, Some(8), F32, 1);
    let prepared = |algorithm: CoreAlgorithm| {
        let results = Group::new(Solo::new(1)).run(|machine| {
            let mut method = core(&plans, algorithm.clone(), &problem, None);
            let mut objective = problem.pooled().unwrap();
            let mut message = Vec::new();
            method.prepare(&mut Context { objective: &mut *objective, comm: machine, message: &mut message })?;
            Ok::<_, RunError>(method)
        });
        results.into_iter().next().unwrap().unwrap()
    };
    let mut descent = prepared(CoreAlgorithm::Descent { momentum: 0.0, step: StepRule::Fixed(0.1), batch: None });
    let mut accelerated = prepared(CoreAlgorithm::Accelerated { fixed: Some((0.1, 0.5)) });
    let both = |method: &mut dyn Method| [Scope::Common, Scope::Local].map(|scope| state::save(method, scope));
    let (few, many) = (both(&mut *descent), both(&mut *accelerated));
    assert!(state::restore(&mut *accelerated, &few[0], &few[1]).unwrap_err().contains("`previous`"));
    assert!(state::restore(&mut *descent, &many[0], &many[1]).unwrap_err().contains("`velocity`"));
    for scope in 0..2 {
        let mut longer = few.clone();
        longer[scope].fields.push(("more".to_owned(), Values::from(&[0.0][..])));
        assert!(state::restore(&mut *descent, &longer[0], &longer[1]).unwrap_err().contains("too many"));
    }
}

/// Wants a snapshot after some rounds, and remembers which it got.
struct Wanting {
    due: Vec<u64>,
    taken: Vec<u64>,
}

impl Observer for Wanting {
    fn wants_snapshot(&mut self, round: u64) -> bool {
        self.due.contains(&round)
    }

    fn snapshot(&mut self, snapshot: Snapshot) -> Result<(), RunError> {
        assert_eq!(snapshot.machines.len(), 4);
        self.taken.push(snapshot.round);
        Ok(())
    }
}

#[test]
fn every_snapshot_that_is_due_is_taken_also_at_once_after_a_resume() {
    let problem = problem(Model::Ridge);
    // Nothing has to be prepared, so that the run can begin anywhere.
    let algorithm = CoreAlgorithm::Descent { momentum: 0.0, step: StepRule::LineSearch, batch: None };
    let plan = a_plan(&algorithm, F32);
    for (begin, due, expected) in [
        (0, vec![0, 1, 3], vec![1, 3, 16]),
        (11, vec![11], vec![11, 16]),
        (11, vec![11, 12, 15], vec![11, 12, 15, 16]),
        (16, vec![], vec![16]),
    ] {
        let place = std::sync::Mutex::new(Wanting { due, taken: Vec::new() });
        let results = Group::new(Solo::new(4)).run(|machine| {
            let rank = machine.rank();
            let (mut objective, mut method) = (problem.objective(rank), core(&plan, algorithm.clone(), &problem, None));
            let mut comm = Metered::new(machine, None);
            if begin > 0 {
                let (objective, message) = (&mut *objective, &mut Vec::new());
                method.prepare(&mut Context { objective, comm: &mut comm, message })?;
            }
            let begin = Begin { round: begin, ..Begin::default() };
            let (mut silent, mut observer) = (Silent, (rank == 0).then(|| place.lock().unwrap()));
            let observer: &mut dyn Observer = match &mut observer {
                Some(observer) => &mut **observer,
                None => &mut silent,
            };
            run(&mut comm, &mut RunPart::new(&mut *objective, &mut *method, observer), &kept(16), begin)
        });
        assert!(results.into_iter().all(|result| result.is_ok()));
        assert_eq!(place.into_inner().unwrap().taken, expected, "from round {begin}");
    }
}
