//! Rows that stay at their sites: every machine reads its own file, and what is common is agreed on.

mod tool;

use std::path::Path;

use serde_json::Value;
use tool::*;

/// Cuts the digits into shards, a folder each, and returns the pattern of their paths.
fn shards(folder: &Path, machines: usize) -> String {
    let flat = folder.join("flat");
    let count = machines.to_string();
    printed(&["data", "shard", "digits", "--machines", &count, "--out", text(&flat)]);
    for rank in 0..machines {
        let site = folder.join(format!("site-{rank}"));
        std::fs::create_dir(&site).unwrap();
        std::fs::rename(flat.join(format!("{rank}.libsvm")), site.join("rows.libsvm")).unwrap();
    }
    format!("problem.data={}", folder.join("site-{machine}/rows.libsvm").display())
}

fn run(data: &str, keys: &[&str]) -> Value {
    object(&[&["run"], &settings(&[&[data, "problem.classes=parity"], keys].concat())[..]].concat())
}

fn refusal(data: &str, keys: &[&str]) -> String {
    complaint(&[&["run"], &settings(&[&[data, "problem.classes=parity"], keys].concat())[..]].concat())
}

const AS_BUNDLED: [&str; 3] = ["machines.count=4", "problem.normalise=unit", "problem.intercept=false"];

#[test]
fn shards_are_trained_on_where_they_are_and_stop_by_the_gradient() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let report = run(&data, &[&AS_BUNDLED[..], &["method.name=core-agd"]].concat());
    assert_eq!((&report["ended"], &report["reached"]), (&"gradient".into(), &true.into()));
    assert_eq!((&report["optimum"], &report["relative"]), (&Value::Null, &Value::Null));
    // Handshake, rows, probe and the first scale; the rest are rounds.
    let (rounds, exchanges) = (report["rounds"].as_u64().unwrap(), report["exchanges"].as_u64().unwrap());
    assert!(exchanges <= rounds + 6, "{exchanges} exchanges in {rounds} rounds");
    // The same rows in one file, the same split: the same problem, and the same f to the accuracy of both.
    let pooled = object(&[&["run"], &settings(&["machines.count=4", "method.name=core-agd"])[..]].concat());
    let (sites, pooled) = (report["value"].as_f64().unwrap(), pooled["optimum"].as_f64().unwrap());
    assert!((sites - pooled) / pooled < 1e-5, "{sites} {pooled}");
    let listed: Vec<String> = (0..4)
        .map(|rank| format!("\"{}\"", folder.path().join(format!("site-{rank}/rows.libsvm")).display()))
        .collect();
    let listed =
        run(&format!("machines.data=[{}]", listed.join(",")), &[&AS_BUNDLED[..], &["method.name=core-agd"]].concat());
    assert_eq!(listed["digest"], report["digest"], "a list of paths says the same");
}

#[test]
fn every_kind_of_method_runs_on_sites() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    for method in ["auto", "core-cg", "cg", "diana", "ef21", "powersgd"] {
        let name = format!("method.name={method}");
        let report = run(&data, &[&AS_BUNDLED[..], &[&name, "stop.rounds=30", "stop.target=0"]].concat());
        assert!(report["value"].as_f64().unwrap() < std::f64::consts::LN_2 - 1e-4, "{method}: {report}");
    }
    let softmax = object(
        &[
            &["run"],
            &settings(&[&data, "machines.count=4", "problem.model=softmax", "stop.rounds=20", "stop.target=0"])[..],
        ]
        .concat(),
    );
    assert_eq!(softmax["dim"], 650, "ten classes of 64 standardised columns and an intercept");
}

#[test]
fn scaling_is_agreed_on_and_a_share_of_the_rows_is_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let keys = ["machines.count=4", "method.name=core-agd", "problem.test=0.25"];
    let sites = run(&data, &keys);
    assert_eq!(sites["dim"], 65);
    let score = sites["score"].as_f64().unwrap();
    assert!(score > 0.85, "{score}");
    let patient = run(&data, &[&keys[..], &["stop.patience=3", "stop.target=0"]].concat());
    assert_eq!(patient["ended"], "patience");
    // Means and deviations of 64 columns travel once, four bytes each, both ways.
    let unscaled = run(&data, &[&keys[..], &["problem.normalise=none"]].concat());
    let setup = |report: &Value| report["setup_bytes"].as_f64().unwrap();
    let more = setup(&sites) - setup(&unscaled);
    assert!((1024.0..1050.0).contains(&more), "{more}");
}

#[test]
fn whoever_does_not_fit_is_refused_before_the_first_round_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let keys = ["machines.count=4", "method.name=core-agd"];
    let site = |rank: usize| folder.path().join(format!("site-{rank}/rows.libsvm"));
    let whole = std::fs::read_to_string(site(2)).unwrap();

    std::fs::remove_file(site(2)).unwrap();
    let found = refusal(&data, &keys);
    assert!(found.contains("machine 2: ") && found.contains("site-2"), "{found}");

    std::fs::copy(site(1), site(2)).unwrap();
    let found = refusal(&data, &keys);
    assert!(found.contains("machine 2: its rows are those of machine 1"), "{found}");

    std::fs::write(site(2), "3 1:nan\n").unwrap();
    let found = refusal(&data, &keys);
    assert!(found.contains("machine 2: ") && found.contains("nan"), "{found}");

    std::fs::write(site(2), format!("{whole}2.5 1:1\n")).unwrap();
    let found = refusal(&data, &keys);
    assert!(found.contains("2.5 has no parity"), "{found}");

    // CSV says how many columns there are.
    let csv = |rank: usize| folder.path().join(format!("{rank}.csv"));
    let pattern = format!("problem.data={}", folder.path().join("{machine}.csv").display());
    for rank in 0..4 {
        let rows: String = (0..6).map(|i| format!("{},{},{}\n", i * (rank + 1), i * i + rank, i % 2)).collect();
        std::fs::write(csv(rank), rows).unwrap();
    }
    let keys = settings(&[&pattern, "machines.count=4", "method.name=core-agd"]);
    let binary = [&["run"], &keys[..]].concat();
    object(&binary);
    std::fs::write(csv(3), "1,2,3,0\n4,5,6,1\n").unwrap();
    let found = complaint(&binary);
    assert!(found.contains("machine 3: its rows have 3 columns, those of machine 0 have 2"), "{found}");
    std::fs::write(csv(3), "1,2,0\n4,5,7\n").unwrap();
    let found = complaint(&binary);
    assert!(found.contains("machine 3: its label 7 is a third class beside 0 and 1"), "{found}");
}

#[test]
fn an_empty_shard_is_a_machine_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    std::fs::write(folder.path().join("site-3/rows.libsvm"), "").unwrap();
    let report = run(&data, &[&AS_BUNDLED[..], &["method.name=core-agd"]].concat());
    assert_eq!(report["reached"], true, "{report}");
}

#[test]
fn a_run_on_sites_is_kept_resumed_and_refuses_other_rows() {
    let folder = tempfile::tempdir().unwrap();
    let data = shards(folder.path(), 4);
    let kept = folder.path().join("run");
    let keys =
        [&[data.as_str(), "problem.classes=parity", "stop.target=0", "method.name=core-agd"], &AS_BUNDLED[..]].concat();
    let whole = object(&[&["run"], &settings(&[&keys[..], &["stop.rounds=50"]].concat())[..]].concat());
    object(&[&["run", "--out", text(&kept)], &settings(&[&keys[..], &["stop.rounds=20"]].concat())[..]].concat());
    let resumed = object(&["run", "--resume", text(&kept), "--set", "stop.rounds=50"]);
    assert_eq!(resumed["digest"], whole["digest"]);
    let verified = object(&["journal", "verify", text(&kept)]);
    assert_eq!(verified["digest"], whole["digest"]);
    let file = folder.path().join("site-1/rows.libsvm");
    let rows = std::fs::read_to_string(&file).unwrap();
    let (first, rest) = rows.split_once('\n').unwrap();
    std::fs::write(&file, format!("{}{}\n{rest}", if first.starts_with('3') { '4' } else { '3' }, &first[1..]))
        .unwrap();
    let found = complaint(&["run", "--resume", text(&kept), "--set", "stop.rounds=60"]);
    assert!(found.contains("the rows of machine 1 are not those of this run"), "{found}");
}
