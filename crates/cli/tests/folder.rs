//! The folder of a run: every file in it belongs to it, and what does not is refused by its name and by the field.

mod tool;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corewire_journal::{self as journal, Journal, Snapshot, Stored, Values};
use tool::*;

/// A folder with runs that differ from `base` in one thing each, and the files of every one of them.
struct Runs {
    folder: tempfile::TempDir,
}

const ROUNDS: &str = "stop.rounds=30";
const SNAPSHOT: &str = "snapshot-000000000030.safetensors";
const FILES: [&str; 6] = ["journal.bin", "start.safetensors", "job.toml", "rounds.csv", "model.safetensors", SNAPSHOT];

impl Runs {
    fn path(&self, run: &str) -> PathBuf {
        self.folder.path().join(run)
    }

    /// Runs the job of the matrix with some keys of its own, and keeps it.
    fn make(&self, run: &str, own: &[&str]) {
        let data = format!("problem.data={}", self.folder.path().join("rows.libsvm").display());
        let keys = ["problem.classes=parity", "machines.count=3", "stop.target=0", ROUNDS, &data];
        let method =
            if own.iter().any(|key| key.starts_with("method.name")) { None } else { Some("method.name=core-agd") };
        let keys: Vec<&str> = keys
            .into_iter()
            .filter(|key| own.iter().all(|own| own.split('=').next() != key.split('=').next()))
            .collect();
        let keys = [&keys[..], own, &method.into_iter().collect::<Vec<_>>()].concat();
        object(&[&["run", "--out", text(&self.path(run))], &settings(&keys)[..]].concat());
    }

    fn new() -> Self {
        let runs = Self { folder: tempfile::tempdir().unwrap() };
        let rows = runs.folder.path().join("rows.libsvm");
        printed(&["data", "convert", "digits", text(&rows)]);
        runs.make("base", &[]);
        runs.make("seed", &["method.seed=9"]);
        runs.make("alpha", &["problem.alpha=2e-3"]);
        runs.make("machines", &["machines.count=4"]);
        runs.make("method", &["method.name=core-gd"]);
        // The same run before it went on.
        let short = ["stop.rounds=20"];
        runs.make("round", &short);
        copy(&runs.path("round"), &runs.path("longer"));
        object(&["run", "--resume", text(&runs.path("longer")), "--set", "stop.rounds=30"]);
        // The same job on other rows: the labels of the first third are changed.
        let truth = std::fs::read_to_string(&rows).unwrap();
        let flip = |(i, line): (usize, &str)| match i < 600 {
            true => format!("{}{}\n", (line.as_bytes()[0] - b'0' + 1) % 10, &line[1..]),
            false => format!("{line}\n"),
        };
        std::fs::write(&rows, truth.lines().enumerate().map(flip).collect::<String>()).unwrap();
        runs.make("data", &[]);
        std::fs::write(&rows, truth).unwrap();
        runs.as_another_version("version");
        runs
    }

    /// The base run as another version would have written it: valid in itself, to the last checksum.
    fn as_another_version(&self, run: &str) {
        let (from, to) = (self.path("base"), self.path(run));
        std::fs::create_dir(&to).unwrap();
        let contents = journal::read(&from.join("journal.bin")).unwrap();
        let header = contents.header.replace("\"version\":\"0.1.0\"", "\"version\":\"0.0.9\"");
        assert_ne!(header, contents.header);
        let mut copy = Journal::create(&to.join("journal.bin"), &header).unwrap();
        contents
            .preparation
            .iter()
            .chain(&contents.rounds)
            .for_each(|entry| copy.append(entry.round, &entry.replies).unwrap());
        let contents = journal::read(&to.join("journal.bin")).unwrap();
        let id = journal::run_id(&header);
        let changed = |about: &BTreeMap<String, String>| {
            let own =
                [("version", "0.0.9".to_owned()), ("run", id.clone())].map(|(key, value)| (key.to_owned(), value));
            about.clone().into_iter().chain(own).collect::<BTreeMap<_, _>>()
        };
        for file in ["start.safetensors", "model.safetensors"] {
            let (vectors, about) = journal::read_model(&from.join(file)).unwrap();
            journal::write_model(&to.join(file), &(vectors, changed(&about))).unwrap();
        }
        let Stored { snapshot, about, .. } = Stored::read(&from, 30).unwrap();
        snapshot.write(&to, &changed(&about), contents.link_at(30).unwrap()).unwrap();
        std::fs::copy(from.join("job.toml"), to.join("job.toml")).unwrap();
        let own = journal::run_id(&journal::read(&from.join("journal.bin")).unwrap().header);
        let table = std::fs::read_to_string(from.join("rounds.csv")).unwrap();
        std::fs::write(to.join("rounds.csv"), table.replace(&own, &id)).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// What resume and verify say of a folder that both refuse.
fn refusals(folder: &Path) -> [String; 2] {
    [&["run", "--resume", text(folder)][..], &["journal", "verify", text(folder)]].map(complaint)
}

#[test]
fn every_file_of_a_run_that_is_swapped_with_anothers_is_refused_by_its_name_and_by_the_field() {
    let runs = Runs::new();
    // What differs, by file; `job.toml` says nothing of rows and versions, so there it may be the same bytes.
    let fields = |other: &str, file: &str| match (other, file) {
        (_, "rounds.csv") => "`run`",
        ("seed", "job.toml") => "`method.seed`",
        ("machines", "job.toml") => "`machines.count`",
        ("method", "job.toml") => "`method.name`",
        ("seed", _) => "`seed`",
        ("alpha", _) => "`problem.alpha`",
        ("data", _) => "`rows`",
        ("version", _) => "`version`",
        ("machines", _) => "`machines`",
        ("method", _) => "`method`",
        other => panic!("{other:?}"),
    };
    let mut swaps = 0;
    for other in ["seed", "alpha", "data", "version", "machines", "method"] {
        for file in FILES {
            let run = runs.path("victim");
            copy(&runs.path("base"), &run);
            if std::fs::read(runs.path(other).join(file)).unwrap() == std::fs::read(run.join(file)).unwrap() {
                assert!(file == "job.toml" && ["data", "version"].contains(&other), "{other} has the same {file}");
            } else {
                let kept = std::fs::read(runs.path(other).join(file)).unwrap();
                std::fs::write(run.join(file), &kept).unwrap();
                for found in refusals(&run) {
                    assert!(found.contains(file) && found.contains(fields(other, file)), "{other}, {file}: {found}");
                }
                assert_eq!(std::fs::read(run.join(file)).unwrap(), kept, "nothing is written");
                swaps += 1;
            }
            std::fs::remove_dir_all(run).unwrap();
        }
    }
    println!("{swaps} swaps were refused");
    assert_eq!(swaps, 34);
}

#[test]
fn files_of_the_same_run_at_another_round_are_refused_or_told() {
    let runs = Runs::new();
    let victim = || {
        let run = runs.path("victim");
        let _ = std::fs::remove_dir_all(&run);
        copy(&runs.path("longer"), &run);
        run
    };
    let short = |file: &str| runs.path("round").join(file);
    let early = "snapshot-000000000020.safetensors";

    let run = victim();
    std::fs::copy(short("journal.bin"), run.join("journal.bin")).unwrap();
    for found in refusals(&run) {
        assert!(
            found.contains(SNAPSHOT) && found.contains("its `round` is 30, and journal.bin ends with 20"),
            "{found}"
        );
    }
    // Zeros from a record's boundary on look like a torn tail; the snapshot knows better.
    let run = victim();
    let (bytes, length) =
        (std::fs::read(run.join("journal.bin")).unwrap(), std::fs::metadata(short("journal.bin")).unwrap().len());
    let zeroed: Vec<u8> =
        bytes.iter().enumerate().map(|(i, &byte)| if i < length as usize { byte } else { 0 }).collect();
    std::fs::write(run.join("journal.bin"), zeroed).unwrap();
    for found in refusals(&run) {
        assert!(found.contains(SNAPSHOT) && found.contains("rounds were lost"), "{found}");
    }
    let run = victim();
    std::fs::copy(short(early), run.join(SNAPSHOT)).unwrap();
    for found in refusals(&run) {
        assert!(found.contains(SNAPSHOT) && found.contains("its `round` is 20, and its name says 30"), "{found}");
    }
    let run = victim();
    std::fs::copy(short("rounds.csv"), run.join("rounds.csv")).unwrap();
    let found = complaint(&["run", "--resume", text(&run)]);
    assert!(found.contains("rounds.csv") && found.contains("its `round` 21 is missing"), "{found}");
    // An older model of the run is no mistake: a resumed run that is killed leaves one. It is told which it is.
    let run = victim();
    std::fs::copy(short("model.safetensors"), run.join("model.safetensors")).unwrap();
    let told = object(&["journal", "verify", text(&run)])["checked"].to_string();
    assert!(told.contains("the model after round 20 of 30"), "{told}");
    for same in ["start.safetensors", "job.toml"] {
        assert_eq!(std::fs::read(short(same)).unwrap(), std::fs::read(runs.path("longer").join(same)).unwrap());
    }
}

#[test]
fn a_snapshot_whose_state_is_not_where_the_journal_leads_is_refused() {
    let runs = Runs::new();
    let run = runs.path("base");
    let Stored { mut snapshot, about, .. } = Stored::read(&run, 30).unwrap();
    let link = journal::read(&run.join("journal.bin")).unwrap().link_at(30).unwrap();
    // Whole, of this run, of this round and chain; only a number of the common state is another.
    let mut state = snapshot.common.fields[0].1.to_wide();
    state[3] += 1e-9;
    snapshot.common.fields[0].1 = Values::from(&state[..]);
    snapshot.write(&run, &about, link).unwrap();
    for found in refusals(&run) {
        assert!(
            found.contains(SNAPSHOT) && found.contains("its common `state` is not where journal.bin leads"),
            "{found}"
        );
    }
    // Of another dimension.
    state.push(0.0);
    snapshot.common.fields[0].1 = Values::from(&state[..]);
    snapshot.write(&run, &about, link).unwrap();
    for found in refusals(&run) {
        assert!(found.contains("numbers, not "), "{found}");
    }
    std::fs::rename(run.join(SNAPSHOT), Snapshot::path(&run, 29)).unwrap();
    for found in refusals(&run) {
        assert!(found.contains("its `round` is 30, and its name says 29"), "{found}");
    }
}

#[test]
fn damaged_snapshots_are_told_and_the_user_decides_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let (run, new) = (folder.path().join("run"), |name: &str| folder.path().join(name));
    let job = long_job("600");
    let whole = object(&[vec!["run", "--out", text(&run)], job.iter().map(String::as_str).collect()].concat());
    let snapshots = Snapshot::list(&run).unwrap();
    assert_eq!(snapshots, [512, 600]);
    let before = std::fs::read(run.join("journal.bin")).unwrap();
    let bend = |round: u64| {
        let path = Snapshot::path(&run, round);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() - 40;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    };
    bend(600);
    // Verify fails, resume says so and goes on from the older one.
    assert!(complaint(&["journal", "verify", text(&run)]).contains("snapshot-000000000600.safetensors: it is damaged"));
    let told = corewire(&["run", "--resume", text(&run)]).output().unwrap();
    let words = String::from_utf8(told.stderr).unwrap();
    assert!(told.status.success() && words.contains("it is damaged") && words.contains("an older one"), "{words}");
    assert_eq!(object(&["journal", "verify", text(&run)])["digest"], whole["digest"], "the snapshot was made again");
    bend(512);
    bend(600);
    let found = complaint(&["run", "--resume", text(&run)]);
    assert!(found.contains("no snapshot of this run is whole") && found.contains("--restart --out NEW"), "{found}");
    assert_eq!(std::fs::read(run.join("journal.bin")).unwrap(), before, "a journal is never written anew");
    // From its start, against the first 500 rounds, in a new folder; then anew.
    let branched = object(&["run", "--resume", text(&run), "--before", "500", "--out", text(&new("before"))]);
    let restarted = object(&["run", "--resume", text(&run), "--restart", "--out", text(&new("restarted"))]);
    for (name, report) in [("before", branched), ("restarted", restarted)] {
        assert_eq!((&report["digest"], &report["rounds"]), (&whole["digest"], &600.into()));
        assert_eq!(object(&["journal", "verify", text(&new(name))])["digest"], whole["digest"], "{name}");
    }
    assert_eq!(std::fs::read(run.join("journal.bin")).unwrap(), before);
}

#[test]
fn a_journal_with_a_damaged_middle_goes_on_from_before_it_in_a_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (run, new) = (folder.path().join("run"), folder.path().join("elsewhere/new"));
    let job = long_job("300");
    let whole = object(&[vec!["run", "--out", text(&run)], job.iter().map(String::as_str).collect()].concat());
    let path = run.join("journal.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let found = complaint(&["run", "--resume", text(&run)]);
    let round = found.split("--before ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap().to_owned();
    assert!(found.contains("damaged at byte") && round.parse::<u64>().unwrap() > 256, "{found}");
    let branched = object(&["run", "--resume", text(&run), "--before", &round, "--out", text(&new)]);
    assert_eq!(branched["digest"], whole["digest"]);
    assert_eq!(object(&["journal", "verify", text(&new)])["rounds"], 300);
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "the damaged file is kept as it is");
    assert!(complaint(&["run", "--resume", text(&run), "--out", text(&new)]).contains("in its own folder"));
    assert!(
        complaint(&["run", "--resume", text(&run), "--before", "3", "--out", text(&new)])
            .contains("already holds a run")
    );
}

#[test]
fn the_same_run_writes_the_same_bytes_and_no_path_of_this_computer() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("data/rows.csv");
    std::fs::create_dir(folder.path().join("data")).unwrap();
    printed(&["data", "convert", "digits", text(&rows)]);
    let data = format!("problem.data={}", rows.display());
    let keys = settings(&[
        &data,
        "problem.classes=parity",
        "method.name=core-agd",
        "machines.count=3",
        "stop.rounds=12",
        "stop.target=0",
    ]);
    let run = |name: &str| folder.path().join("runs").join(name);
    for name in ["one", "two"] {
        object(&[&["run", "--out", text(&run(name))], &keys[..]].concat());
    }
    let snapshot = "snapshot-000000000012.safetensors";
    for file in ["journal.bin", "start.safetensors", "job.toml", "model.safetensors", snapshot] {
        let bytes = std::fs::read(run("one").join(file)).unwrap();
        assert_eq!(bytes, std::fs::read(run("two").join(file)).unwrap(), "{file}");
        let own = folder.path().to_str().unwrap().as_bytes();
        assert!(!bytes.windows(own.len()).any(|window| window == own), "{file} names {}", folder.path().display());
    }
    let job = std::fs::read_to_string(run("one").join("job.toml")).unwrap();
    assert!(job.contains("data = \"../../data/rows.csv\""), "{job}");
    // All of it together can be moved.
    let moved = folder.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    for part in ["data", "runs"] {
        std::fs::rename(folder.path().join(part), moved.join(part)).unwrap();
    }
    let one = moved.join("runs/one");
    assert_eq!(object(&["run", "--resume", text(&one), "--set", "stop.rounds=15"])["rounds"], 15);
    let model = one.join("model.safetensors");
    assert_eq!(object(&["evaluate", "--model", text(&model), text(&moved.join("data/rows.csv"))])["rows"], 1797);
}

#[test]
fn verify_lists_what_it_checked_and_a_run_without_preparation_is_no_mistake() {
    let runs = Runs::new();
    let run = runs.path("base");
    let verified = object(&["journal", "verify", text(&run)]);
    let list = |field: &str| {
        verified[field].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let checked = list("checked");
    for file in FILES {
        assert!(checked.iter().any(|line| line.starts_with(file)), "{file} is not in {checked:?}");
    }
    assert!(list("not_checked").iter().any(|line| line.starts_with("rows:")), "{verified}");
    let words = printed(&["journal", "verify", text(&run)]);
    assert!(words.contains("\nchecked:\n") && words.contains("\nnot checked:\n"), "{words}");
    // Killed after the header was written.
    let header = journal::read(&run.join("journal.bin")).unwrap().header;
    for file in ["journal.bin", "rounds.csv", "model.safetensors", SNAPSHOT] {
        std::fs::remove_file(run.join(file)).unwrap();
    }
    Journal::create(&run.join("journal.bin"), &header).unwrap();
    let verified = object(&["journal", "verify", text(&run)]);
    assert_eq!((&verified["rounds"], &verified["digest"]), (&0.into(), &serde_json::Value::Null));
    assert!(verified["not_checked"].to_string().contains("stopped before its preparation"), "{verified}");
    assert_eq!(object(&["run", "--resume", text(&run)])["rounds"], 30);
    // A start that is empty, as a power cut may leave it where nobody synced, is refused by name.
    std::fs::write(run.join("start.safetensors"), b"").unwrap();
    for found in refusals(&run) {
        assert!(found.contains("start.safetensors"), "{found}");
    }
}

/// Every method of the table on a small problem that it suits, with the keys to run it by.
fn every_method() -> Vec<(String, Vec<String>)> {
    let ids = objects(&["methods"]).into_iter().map(|method| method["id"].as_str().unwrap().to_owned());
    let keys = |id: &str| -> Vec<String> {
        let gossips = ["extra", "msda"].contains(&id);
        let own = if gossips { vec!["graph.shape=ring", "graph.gossip=chebyshev"] } else { Vec::new() };
        let base = ["machines.count=3", "problem.rows=60", "stop.target=0", "stop.rounds=4"];
        base.into_iter().chain(own).map(str::to_owned).chain([format!("method.name={id}")]).collect()
    };
    ids.map(|id| (id.clone(), keys(&id))).collect()
}

#[test]
fn replies_of_another_length_are_refused_in_words_by_every_method() {
    let folder = tempfile::tempdir().unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (id, keys) in every_method() {
        let run = folder.path().join(&id);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        object(&[&["run", "--out", text(&run)], &settings(&keys)[..]].concat());
        if keys.iter().any(|key| key.starts_with("graph.gossip")) {
            continue;
        }
        let path = run.join("journal.bin");
        let truth = journal::read(&path).unwrap();
        // Its chain would refuse whatever is changed. The model stays, as the witness of codes: they read zeros beyond their end, so that a
        // shorter one may be another message.
        let rounds = truth.rounds.len();
        assert!(rounds == 4 || id == "one-shot" || id == "ship-rows", "{id} ended after {rounds} rounds");
        std::fs::remove_file(run.join(format!("snapshot-{rounds:012}.safetensors"))).unwrap();
        assert_eq!(object(&["journal", "verify", text(&run)])["rounds"], rounds, "{id}");
        let entries: Vec<_> = truth.preparation.iter().chain(&truth.rounds).collect();
        for at in [0, 1, entries.len() - 1] {
            for index in 0..entries[at].replies.len().min(2) {
                type Bend = fn(&[u8]) -> Vec<u8>;
                let bends: [(&str, Bend); 4] = [
                    ("empty", |_| Vec::new()),
                    ("a byte shorter", |reply| reply[..reply.len().saturating_sub(1)].to_vec()),
                    ("a byte longer", |reply| [reply, &[0]].concat()),
                    ("of 0xff", |reply| vec![0xff; reply.len() + 8]),
                ];
                for (what, bend) in bends {
                    let reply = &entries[at].replies[index];
                    let bent: std::sync::Arc<[u8]> = bend(reply).into();
                    if bent == *reply {
                        continue;
                    }
                    std::fs::remove_file(&path).unwrap();
                    let mut copy = Journal::create(&path, &truth.header).unwrap();
                    for (place, entry) in entries.iter().enumerate() {
                        let mut replies = entry.replies.clone();
                        if place == at {
                            replies[index] = bent.clone();
                        }
                        copy.append(entry.round, &replies).unwrap();
                    }
                    tried += 1;
                    let output = corewire(&["journal", "verify", text(&run)]).output().unwrap();
                    let words = String::from_utf8_lossy(&output.stderr).into_owned();
                    if output.status.code() != Some(1) || words.contains("panicked") {
                        wrong.push(format!(
                            "{id}, entry {at}, reply {index} {what}: {:?} {}",
                            output.status.code(),
                            words.lines().take(3).collect::<String>()
                        ));
                    }
                }
            }
        }
    }
    println!("{tried} replies");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}
