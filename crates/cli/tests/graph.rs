//! Jobs with a `[graph]`: over its spanning tree, and by gossip.

mod tool;

use serde_json::Value;
use tool::*;

const SMALL: [&str; 4] = ["machines.count=8", "problem.model=ridge", "problem.rows=400", "problem.alpha=0.02"];

fn run(keys: &[&str]) -> Value {
    object(&[&["run"], &settings(&[&SMALL[..], keys].concat())[..]].concat())
}

fn refusal(keys: &[&str]) -> String {
    complaint(&[&["run"], &settings(&[&SMALL[..], keys].concat())[..]].concat())
}

#[test]
fn a_tree_has_the_digest_of_the_hub_and_pays_for_what_it_carries() {
    for (method, wire) in [("core-agd", "q"), ("core-agd", "q-sum"), ("core-cg", "q"), ("cg", "f64")] {
        let (method, wire) = (format!("method.name={method}"), format!("method.wire={wire}"));
        let hub = run(&[&method, &wire]);
        for shape in ["graph.shape=ring", "graph.shape=star", "graph.shape=hypercube"] {
            let tree = run(&[&method, &wire, shape]);
            assert_eq!(tree["digest"], hub["digest"], "{method} {wire} {shape}");
            assert_eq!(tree["reached"], true);
            assert!(tree["wire_bytes"].as_f64() > hub["wire_bytes"].as_f64(), "{method} {wire} {shape}");
            // Every hop waits for the one before.
            assert!(tree["exchanges"].as_u64() > hub["exchanges"].as_u64(), "{method} {wire} {shape}");
        }
    }
}

#[test]
fn a_run_over_a_tree_is_kept_resumed_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("run");
    let keys = |rounds| {
        let own = ["method.name=core-agd", "graph.shape=grid", "stop.target=0", rounds];
        settings(&[&SMALL[..], &own].concat())
    };
    object(&[&["run", "--out", text(&kept)], &keys("stop.rounds=15")[..]].concat());
    let resumed = object(&["run", "--resume", text(&kept), "--set", "stop.rounds=40"]);
    let whole = object(&[&["run"], &keys("stop.rounds=40")[..]].concat());
    assert_eq!(resumed["digest"], whole["digest"]);
    assert_eq!(object(&["journal", "verify", text(&kept)])["digest"], whole["digest"]);
}

#[test]
fn machines_gossip_to_the_target_and_cannot_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("run");
    for (method, gossip, wire) in [
        ("core-gd", "plain", "q"),
        ("core-agd", "chebyshev", "q"),
        ("extra", "chebyshev", "f32"),
        ("msda", "chebyshev", "f32"),
    ] {
        let (method, gossip) = (format!("method.name={method}"), format!("graph.gossip={gossip}"));
        let report = run(&[&method, &gossip, "graph.shape=hypercube", "stop.target=1e-4"]);
        assert_eq!((&report["reached"], &report["wire"]), (&true.into(), &wire.into()), "{method} {gossip}: {report}");
        assert!(report["trips"].as_u64() >= report["rounds"].as_u64());
    }
    let found = complaint(
        &[
            &["run"],
            &settings(
                &[&SMALL[..], &["graph.gossip=plain", "graph.shape=ring", "method.name=core-gd", "method.wire=bf16"]]
                    .concat(),
            )[..],
        ]
        .concat(),
    );
    assert!(found.contains("gossip takes `method.wire` = \"q\", \"f32\" or \"f64\""), "{found}");
    let keys = ["method.name=core-agd", "graph.shape=ring", "graph.gossip=chebyshev", "stop.rounds=5", "stop.target=0"];
    object(&[&["run", "--out", text(&kept)], &settings(&[&SMALL[..], &keys].concat())[..]].concat());
    let found = complaint(&["replay", text(&kept), "--out", text(&folder.path().join("m"))]);
    assert!(found.contains("a run by gossip has no common state"), "{found}");
}

#[test]
fn what_has_no_hub_gossips_by_a_method_that_needs_none() {
    for model in ["logistic", "softmax"] {
        let keys = [format!("problem.model={model}"), "graph.shape=ring".to_owned(), "graph.gossip=plain".to_owned()];
        let keys: Vec<&str> = keys.iter().map(|key| &key[..]).chain(["stop.rounds=3", "stop.target=0"]).collect();
        assert_eq!(run(&keys)["method"], "core-agd", "{model}");
    }
}

#[test]
fn a_graph_from_a_file_joins_as_many_machines_as_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let edges = folder.path().join("edges.txt");
    std::fs::write(&edges, (0..8).map(|i| format!("{i} {}\n", (i + 1) % 8)).collect::<String>()).unwrap();
    let file = format!("graph.file={}", edges.display());
    let keys = ["method.name=core-agd", "graph.shape=file", &file];
    assert_eq!(run(&keys)["digest"], run(&["method.name=core-agd", "graph.shape=ring"])["digest"]);
    std::fs::write(&edges, "0 1\n1 2\n").unwrap();
    let found = refusal(&keys);
    assert!(found.contains("the graph joins 3 machines and there are 8"), "{found}");
}

#[test]
fn what_does_not_go_together_is_refused_with_what_to_do() {
    for (keys, expected) in [
        (&["method.name=ef21", "graph.gossip=chebyshev"][..], "with `graph.gossip` = \"tree\" every method runs"),
        (&["method.name=core-agd", "graph.gossip=plain", "problem.l1=0.1"], "no proximal step"),
        (&["method.name=msda"], "runs by gossip only"),
        (&["method.name=core-gd", "graph.gossip=chebyshev", "method.step=line-search"], "has no form for gossip"),
        (&["method.name=core-agd", "graph.shape=hypercube", "machines.count=6"], "power of two"),
        (&["method.name=core-agd", "graph.shape=file"], "`graph.file`"),
    ] {
        let shape: &[&str] = if keys.iter().any(|key| key.contains("shape")) { &[] } else { &["graph.shape=ring"] };
        let found = refusal(&[shape, keys].concat());
        assert!(found.contains(expected), "{keys:?}\n  gives    {found}\n  expected {expected}");
    }
}
