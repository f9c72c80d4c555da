//! The other commands: their words, their JSON, their complaints.

mod tool;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use tool::*;

#[test]
fn every_command_explains_itself_with_an_example() {
    for command in [
        &["run"][..],
        &["replay"],
        &["inspect"],
        &["bench"],
        &["data"],
        &["data", "fetch"],
        &["data", "shard"],
        &["data", "convert"],
        &["privacy"],
        &["seed"],
        &["graph"],
        &["journal"],
    ] {
        let out = printed(&[command, &["--help"]].concat());
        assert!(out.contains("Usage: corewire"), "{command:?}");
        assert!(out.contains("Example") || matches!(command, ["data"] | ["journal"]), "{command:?} has no example");
    }
    assert!(printed(&["--version"]).starts_with("corewire "));
    let found = complaint(&["insepct"]);
    assert!(found.contains("inspect'"), "{found}");
}

#[test]
fn data_sets_are_listed() {
    let table = printed(&["data", "list"]);
    assert!(table.contains("digits") && table.contains("mushrooms"));
    let all = objects(&["data", "list"]);
    all.iter().for_each(|set| has_fields(set, &["name", "where"]));
    assert!(all.iter().any(|set| set["name"] == "digits" && set["rows"] == 1797 && set["dim"] == 64));
}

#[test]
fn converted_data_is_the_same_data() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, svm) = (folder.path().join("d.csv"), folder.path().join("d.libsvm"));
    for file in [&csv, &svm] {
        let made = object(&["data", "convert", "digits", text(file)]);
        assert_eq!((&made["rows"], &made["dim"]), (&1797.into(), &64.into()));
    }
    let digest = |data: &str| {
        let data = format!("problem.data={data}");
        object(
            &[
                &["run"],
                &settings(&[
                    &data,
                    "method.name=core-agd",
                    "machines.count=3",
                    "stop.rounds=10",
                    "problem.classes=parity",
                    "problem.normalise=unit",
                    "problem.intercept=false",
                ])[..],
            ]
            .concat(),
        )["digest"]
            .clone()
    };
    assert_eq!(digest(text(&csv)), digest("digits"));
    assert_eq!(digest(text(&svm)), digest("digits"));
    assert!(complaint(&["data", "convert", "nowhere", text(&csv)]).contains("nowhere"));
}

#[test]
fn shards_hold_every_row_once() {
    let folder = tempfile::tempdir().unwrap();
    for split in ["random", "contiguous", "label", "dirichlet:0.3"] {
        let out = folder.path().join(split);
        let made = object(&["data", "shard", "digits", "--machines", "7", "--split", split, "--out", text(&out)]);
        let sizes: Vec<u64> = made["rows"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
        assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (7, 1797), "{split}");
        let mut lines = Vec::new();
        for rank in 0..7 {
            let text = std::fs::read_to_string(out.join(format!("{rank}.libsvm"))).unwrap();
            assert_eq!(text.lines().count() as u64, sizes[rank]);
            lines.extend(text.lines().map(str::to_owned));
        }
        let whole = folder.path().join("whole.libsvm");
        printed(&["data", "convert", "digits", text(&whole)]);
        let mut expected: Vec<String> = std::fs::read_to_string(&whole).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        expected.sort();
        assert_eq!(lines, expected, "{split}");
    }
    assert!(complaint(&["data", "shard", "digits", "--machines", "0"]).contains("at least 1"));
    assert!(complaint(&["data", "shard", "digits", "--split", "fair"]).contains("split"));
}

/// Serves these files over HTTP to so many visitors, and says where.
fn serve(files: Vec<(&'static str, Vec<u8>)>, visitors: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/pub/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(visitors) {
            let Ok(mut stream) = stream else { return };
            let mut request = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
            let wanted = request.split_whitespace().nth(1).unwrap_or("").rsplit('/').next().unwrap_or("").to_owned();
            let answer = match files.iter().find(|(name, _)| *name == wanted) {
                Some((_, content)) => {
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len());
                    [head.as_bytes(), content].concat()
                }
                None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
            };
            let _ = stream.write_all(&answer);
        }
    });
    address
}

#[cfg(feature = "fetch")]
#[test]
fn data_is_fetched_from_a_mirror_and_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..40)
        .map(|i| format!("{} {}:1 {}:{}\n", if i % 3 == 0 { "+1" } else { "-1" }, 1 + i % 5, 7 + i % 3, 1 + i % 2))
        .collect();
    let from = serve(vec![("a9a", rows.clone().into_bytes()), ("a9a.t", rows.into_bytes())], 20);
    let made = object(&["data", "fetch", "a9a", "--from", &from, "--into", text(folder.path())]);
    has_fields(&made, &["name", "file", "bytes"]);
    let data = format!("problem.data={}", made["file"].as_str().unwrap());
    let report = object(&[&["run"], &settings(&[&data, "machines.count=2", "method.name=core-cg"])[..]].concat());
    assert_eq!((&report["dim"], &report["reached"]), (&9.into(), &true.into()));
    // What is there is not fetched again: the mirror may be gone.
    printed(&["data", "fetch", "a9a", "--from", "http://127.0.0.1:9/", "--into", text(folder.path())]);
    let other = tempfile::tempdir().unwrap();
    let missing = complaint(&["data", "fetch", "mushrooms", "--from", &from, "--into", text(other.path())]);
    assert!(missing.contains("404"), "{missing}");
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0, "nothing half-fetched is left");
    assert!(complaint(&["data", "fetch", "a9b"]).contains("did you mean `a9a`?"));
}

#[test]
fn graphs_are_measured() {
    for shape in ["ring", "path", "grid", "torus", "star", "complete", "hypercube", "regular", "erdos-renyi"] {
        let report = object(&["graph", shape, "--machines", "16", "--probability", "0.4"]);
        has_fields(&report, &["gamma", "diameter", "chebyshev_rounds", "plain_rounds", "tree_messages"]);
        assert_eq!(report["tree_messages"], 30, "{shape}");
        assert!(report["chebyshev_rounds"].as_u64() <= report["plain_rounds"].as_u64(), "{shape}");
    }
    // lambda_2/lambda_max of a ring of 16: (1 - cos(pi/8))/2.
    let gamma = object(&["graph"])["gamma"].as_f64().unwrap();
    assert!((gamma - (1.0 - (std::f64::consts::PI / 8.0).cos()) / 2.0).abs() < 1e-12, "{gamma}");
    let folder = tempfile::tempdir().unwrap();
    let (edges, plot) = (folder.path().join("edges.txt"), folder.path().join("graph.svg"));
    std::fs::write(&edges, "0 1\n1 2\n2 0\n").unwrap();
    assert_eq!(object(&["graph", "file", "--file", text(&edges), "--plot", text(&plot)])["diameter"], 1);
    assert!(std::fs::read_to_string(&plot).unwrap().contains("<svg"));
    std::fs::write(&edges, "0 1\n2 3\n").unwrap();
    complaint(&["graph", "file", "--file", text(&edges)]);
    assert!(complaint(&["graph", "file"]).contains("--file"));
    assert!(complaint(&["graph", "hypercube", "--machines", "12"]).contains("power of two"));
    complaint(&["graph", "rnig"]);
}

#[test]
fn privacy_gives_the_exact_figures() {
    // D1 = 0.01, delta = 1e-5, by the exact chi-square formula.
    for (scalars, expected) in [("10", 0.225), ("100", 0.595), ("1000", 1.888), ("10000", 6.787)] {
        let report = object(&["privacy", "--budget", scalars, "--rounds", "1"]);
        has_fields(&report, &["epsilon", "delta", "scalars", "paper_epsilon", "paper_holds"]);
        let epsilon = report["epsilon"].as_f64().unwrap();
        assert!((epsilon - expected).abs() < 1e-3, "{scalars}: {epsilon}");
    }
    assert_eq!(object(&["privacy", "--wire", "q"])["epsilon"], serde_json::Value::Null);
    assert_eq!(object(&["privacy", "--family", "hadamard"])["epsilon"], serde_json::Value::Null);
    let within = object(&["privacy", "--epsilon", "1.888", "--budget", "10"]);
    assert!((98..=101).contains(&within["rounds"].as_u64().unwrap()), "{within}");
    assert!(printed(&["privacy"]).contains("what this means"));
    complaint(&["privacy", "--delta", "2"]);
    complaint(&["privacy", "--adjacency", "-1"]);
}

#[test]
fn the_sketch_is_timed() {
    let rows = objects(&["bench", "--dim", "4096", "--budget", "16", "--threads", "1"]);
    assert_eq!(rows.len(), 4);
    for row in &rows {
        has_fields(
            row,
            &["family", "dim", "budget", "threads", "kernel", "project_ns", "reconstruct_ns", "break_even_mbit_s"],
        );
        assert!(row["project_ns"].as_f64().unwrap() > 0.0);
    }
    complaint(&["bench", "--dim", "0"]);
    complaint(&["bench", "--dim", "16", "--budget", "64", "--family", "hadamard", "--threads", "1"]);
    complaint(&["bench", "--threads", "0"]);
}

#[test]
fn inspect_measures_and_advises() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("eigenvalues.svg");
    let report =
        object(&["inspect", "--set", "machines.count=5", "--mbit-s", "10", "--rtt-ms", "40", "--plot", text(&plot)]);
    has_fields(
        &report,
        &[
            "dim",
            "rows",
            "machines",
            "trace",
            "smoothness",
            "strong_convexity",
            "r1",
            "r_half",
            "effective_dimension",
            "exact",
            "budget",
            "methods",
            "recommendation",
            "advice",
            "break_even_mbit_s",
        ],
    );
    let methods = report["methods"].as_array().unwrap();
    methods.iter().for_each(|method| {
        has_fields(method, &["method", "reached", "rounds", "exchanges", "up_bytes", "down_bytes", "link_seconds"])
    });
    let names: Vec<&str> = methods.iter().map(|method| method["method"].as_str().unwrap()).collect();
    assert_eq!(names, ["cgd", "acgd", "core-agd", "core-cg", "cg", "core-gd"]);
    // Logistic with unit rows: trace = 1/4 + d alpha.
    assert!((report["trace"].as_f64().unwrap() - 0.314).abs() < 1e-6);
    assert!(std::fs::read_to_string(&plot).unwrap().contains("<svg"));
    // The forecast of a method is what its run then takes.
    let agd = methods.iter().find(|method| method["method"] == "core-agd").unwrap();
    let run = object(
        &[&["run"], &settings(&["machines.count=5", "method.name=core-agd", "link.mbit_s=10", "link.rtt_ms=40"])[..]]
            .concat(),
    );
    let (told, took) = (agd["rounds"].as_f64().unwrap(), run["rounds"].as_f64().unwrap());
    // Another division of the rows has other dithers: the rounds agree as two seeds do.
    assert!((told / took - 1.0).abs() < 0.25, "{told} {took}");
}
