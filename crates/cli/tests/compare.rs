//! `corewire compare`, `report` and `methods`.

mod tool;

use serde_json::Value;
use tool::*;

/// A comparison of a few quick methods, kept in this folder.
fn arguments<'a>(methods: &'a str, folder: &'a str) -> Vec<&'a str> {
    let keys = settings(&["machines.count=4", "problem.rows=300"]);
    [&["compare", "--methods", methods, "--target", "1e-4", "--out", folder], &keys[..]].concat()
}

#[test]
fn methods_are_compared_by_what_they_sent_and_the_first_is_the_cheapest() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let rows = objects(&arguments("core-agd,cg,acgd,ef21:k=15", text(&out)));
    assert_eq!(rows.len(), 4);
    for row in &rows {
        has_fields(
            row,
            &["method", "reached", "rounds", "exchanges", "up_bytes", "down_bytes", "wire_bytes", "digest"],
        );
    }
    let reached: Vec<&Value> = rows.iter().take_while(|row| row["reached"] == true).collect();
    assert!(reached.len() >= 3, "CORE-AGD, CG and ACGD reach 1e-4");
    assert!(reached.iter().all(|row| row["relative"].as_f64().unwrap() <= 1e-4));
    let bytes: Vec<f64> = reached.iter().map(|row| row["wire_bytes"].as_f64().unwrap()).collect();
    assert!(bytes.is_sorted(), "{bytes:?}");
    assert_eq!(reached[0]["method"], "core-agd");
    let ef21 = |row: &Value| {
        let name = row["method"].as_str().unwrap();
        name.starts_with("ef21:") && name.contains("k=15") && name.contains("scale=")
    };
    assert!(rows.iter().any(ef21), "a method keeps its parameters in its name, and what tuning chose");
    let plain = objects(&[&arguments("cg,ef21:k=15", text(&out))[..], &["--no-tune"]].concat());
    assert!(plain.iter().any(|row| row["method"] == "ef21:k=15"), "without tuning it has the step of theory");
    let best = rows.iter().find(|row| ef21(row)).unwrap();
    let theory = plain.iter().find(|row| row["method"] == "ef21:k=15").unwrap();
    let cost = |row: &Value| (row["reached"] != true, row["wire_bytes"].as_f64().unwrap());
    assert!(cost(best) <= cost(theory), "tuning does not make it worse");
    let rows = objects(&arguments("core-agd,cg,acgd,ef21:k=15", text(&out)));
    // The same method by itself does the same.
    let alone = object(
        &[
            &["run"],
            &settings(&["machines.count=4", "problem.rows=300", "stop.target=1e-4", "method.name=core-agd"])[..],
        ]
        .concat(),
    );
    assert_eq!((&alone["digest"], &alone["wire_bytes"]), (&reached[0]["digest"], &reached[0]["wire_bytes"]));

    let csv = std::fs::read_to_string(out.join("compare.csv")).unwrap();
    assert!(csv.starts_with("method,round,relative,"));
    for row in &rows {
        let name = format!("\"{}\",", row["method"].as_str().unwrap());
        assert!(csv.lines().any(|line| line.starts_with(&name)), "{name} has no curve");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("core-agd") && page.contains("ef21:"));
    assert!(page.contains("the best step, codec, k and p of a grid"));
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "the page asks nothing of the network");
}

#[test]
fn a_comparison_is_a_table_and_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let words = printed(&arguments("core-cg,cg,cgd:scale=1000", text(&out)));
    for expected in ["core-cg", "exchanges", "x best", "diverged", "the report is in"] {
        assert!(words.contains(expected), "{expected:?} is not in\n{words}");
    }
}

#[test]
fn with_a_link_the_quickest_is_first_and_the_bytes_of_all_seeds_are_a_mean() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let link = settings(&["link.mbit_s=10", "link.rtt_ms=40", "problem.test=0.2"]);
    let all = [&arguments("core-agd,cg,lbfgs", text(&out))[..], &link[..], &["--seeds", "3"]].concat();
    let rows = objects(&all);
    let means: Vec<f64> = rows.iter().map(|row| row["mean"].as_f64().unwrap()).collect();
    assert!(means.is_sorted() && rows[2]["method"] == "core-agd", "the most exchanges take the longest: {rows:?}");
    for row in &rows {
        let seeds: Vec<f64> = row["seeds"].as_array().unwrap().iter().map(|cost| cost.as_f64().unwrap()).collect();
        assert_eq!((seeds.len(), seeds[0]), (3, row["link_seconds"].as_f64().unwrap()));
        assert!((seeds.iter().sum::<f64>() / 3.0 - row["mean"].as_f64().unwrap()).abs() < 1e-9);
        // Directions are drawn anew; methods without them have the same rows on other machines, and differ by rounding alone.
        let apart = seeds.iter().any(|cost| (cost / seeds[0] - 1.0).abs() > 1e-3);
        assert_eq!(apart, row["method"] == "core-agd", "{row}");
    }
    let words = printed(&all);
    for expected in [" on the link; ", "over seeds", "held-out score", " times as long ("] {
        assert!(words.contains(expected), "{expected:?} is not in\n{words}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    for expected in ["data-plot=\"score\"", "3 seeds: ", "Held-out score", "in the least time on the link?"] {
        assert!(page.contains(expected), "{expected:?} is not in the page");
    }
    assert!(page.find("data-plot=\"link\"") < page.find("data-plot=\"bytes\""), "seconds come first");
    let refused = complaint(&["compare", "--seeds", "0"]);
    assert!(refused.contains("--seeds"), "{refused}");
}

#[test]
fn a_report_is_rebuilt_from_its_results_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    printed(&arguments("core-cg,cg", text(&out)));
    let page = out.join("report.html");
    let first = std::fs::read(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    std::fs::remove_file(out.join("compare.csv")).unwrap();
    let made = object(&["report", text(&out)]);
    assert_eq!(made["runs"], 2);
    assert!(std::fs::read(&page).unwrap() == first, "the same page, byte for byte");
    assert!(printed(&["report", text(&out)]).contains("report.html"));

    let found = complaint(&["report", text(folder.path())]);
    assert!(found.contains("results.json") && found.contains("corewire compare --out"), "{found}");
    std::fs::write(out.join("results.json"), "{\"runs\": 3}").unwrap();
    let found = complaint(&["report", text(&out)]);
    assert!(found.contains("was not written by `corewire compare`"), "{found}");
}

#[test]
fn mistakes_in_a_comparison_are_told_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    for (methods, expected) in [
        ("cg,core-adg", "there is no method `core-adg`; the nearest is `core-agd`"),
        ("ef21:k=0", "`k` of method `ef21` is `0`"),
        ("core-agd:k=3", "has no parameter `k`"),
        (",", "names no method"),
        ("extra", "runs by gossip only"),
    ] {
        let found = complaint(&arguments(methods, text(&out)));
        assert!(found.contains(expected), "{methods}\n  gives    {found}\n  expected {expected}");
        assert!(!out.exists(), "{methods}: nothing was written");
    }
}

#[test]
fn every_method_is_listed_with_its_parameters_and_can_be_chosen() {
    let all = objects(&["methods"]);
    let table = printed(&["methods"]);
    for info in &all {
        has_fields(info, &["id", "title", "line", "family", "exact", "proximal", "gossip", "reference", "parameters"]);
        let id = info["id"].as_str().unwrap();
        assert!(table.contains(id), "{id} is not in the table");
        for parameter in info["parameters"].as_array().unwrap() {
            has_fields(parameter, &["name", "default", "meaning"]);
        }
    }
    let named =
        |name: &str| all.iter().find(|info| info["id"] == name).unwrap_or_else(|| panic!("{name} is not listed"));
    assert_eq!((&named("core-agd")["family"], &named("core-agd")["gossip"]), (&"core".into(), &true.into()));
    assert_eq!(named("msda")["family"], "decentralised");
    assert!(named("ef21")["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == "k"));
    // Every method but those that need a graph runs for two rounds, or for the one that it has.
    for info in all.iter().filter(|info| info["family"] != "decentralised") {
        let name = format!("method.name={}", info["id"].as_str().unwrap());
        let keys = ["machines.count=2", "problem.rows=100", "stop.target=0", "stop.rounds=2", &name];
        let report = object(&[&["run"], &settings(&keys)[..]].concat());
        assert_eq!(
            report["rounds"],
            if info["id"] == "one-shot" || info["id"] == "ship-rows" { 1 } else { 2 },
            "{name}"
        );
    }
}
