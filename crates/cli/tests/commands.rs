//! The other commands: their words, their JSON, their complaints.

mod tool;

use tool::*;

#[test]
fn words_that_are_not_understood_end_with_1_and_help_with_0() {
    for wrong in [&["run", "--nonsense"][..], &["nonsense"], &["run", "--resume"], &[]] {
        let output = corewire(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{wrong:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{wrong:?}");
    }
    for asked in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = corewire(asked).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{asked:?}");
        assert!(output.stderr.is_empty() && !output.stdout.is_empty(), "{asked:?}");
    }
}

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
        &["compare"],
        &["report"],
        &["evaluate"],
        &["predict"],
        &["export"],
        &["path"],
        &["keys"],
        &["init-job"],
        &["methods"],
        &["privacy"],
        &["seed"],
        &["graph"],
        &["journal"],
    ] {
        let out = printed(&[command, &["--help"]].concat());
        assert!(out.contains("Usage: corewire"), "{command:?}");
        assert!(
            out.contains("Example") || matches!(command, ["data"] | ["journal"] | ["methods"]),
            "{command:?} has no example"
        );
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
    assert!(complaint(&["data", "shard", "digits", "--machines", "0"]).contains("from 1 to 16384"));
    assert!(complaint(&["data", "shard", "digits", "--split", "fair"]).contains("split"));
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
fn a_tolerance_that_gossip_cannot_have_ends_in_words() {
    for tolerance in ["1", "0", "2", "-0.5", "nan"] {
        let found = complaint(&["graph", &format!("--tolerance={tolerance}")]);
        assert!(found.contains("`--tolerance` is between 1e-15 and 1"), "{tolerance}: {found}");
    }
    assert!(object(&["graph", "--tolerance", "0.999"])["chebyshev_rounds"].as_u64().unwrap() >= 1);
}

#[test]
fn an_epsilon_that_not_one_round_keeps_is_told_and_no_product_wraps() {
    let words = printed(&["privacy", "--epsilon", "0.1", "--budget", "1000"]);
    assert!(words.contains("not one round of 1000 scalars stays within epsilon 0.1"), "{words}");
    assert_eq!(object(&["privacy", "--epsilon", "0.1", "--budget", "1000"])["rounds"], 0);
    // 2^32 times 2^32 is 0 where it wraps, and 2^33 times 2^31 + 1 a small number.
    for (budget, rounds) in [
        ("4294967296", "4294967296"),
        ("8589934592", "2147483649"),
        ("18446744073709551615", "2"),
        ("20000000000", "1"),
    ] {
        let found = complaint(&["privacy", "--budget", budget, "--rounds", rounds]);
        assert!(
            found.contains("`--budget` times `--rounds` is at most 10000000000 scalars"),
            "{budget} {rounds}: {found}"
        );
    }
    complaint(&["privacy", "--epsilon=-1"]);
    complaint(&["privacy", "--budget", "0"]);
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
fn inspect_counts_the_memory_of_the_hub() {
    let wide = |model: &str, curvature: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wide.libsvm");
        let line = |i: usize| format!("{} {}:1 {}:{}\n", i % 2 * 2, 1 + i % 300, 301 + i % 100, 1 + i % 7);
        std::fs::write(&path, (0..6000).map(line).collect::<String>()).unwrap();
        let data = format!("problem.data={}", path.display());
        let keys =
            [&data, model, curvature, "problem.task=binary", "problem.intercept=false", "problem.normalise=unit"];
        let report = object(&[&["inspect"], &settings(&[&keys[..], &["machines.count=50"]].concat())[..]].concat());
        let methods = report["methods"].as_array().unwrap();
        let newton = methods.iter().find(|method| method["method"] == "core-newton").expect("it is tried");
        newton["hub_bytes"].as_f64()
    };
    // 8 bytes for each number of 64 rows of 400 columns from 50 machines; on quadratics four tellings of them add up, but a machine has no
    // more rows of curvature than of data.
    let row = 8.0 * 400.0 * 50.0;
    assert_eq!(wide("problem.model=logistic", "method.curvature=true"), Some(64.0 * row));
    assert_eq!(wide("problem.model=ridge", "method.curvature=true"), Some(120.0 * row));
    assert_eq!(wide("problem.model=logistic", "method.curvature=false"), None);
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
        let fields = [
            "method",
            "reached",
            "rounds",
            "exchanges",
            "up_bytes",
            "down_bytes",
            "link_seconds",
            "hub_bytes",
            "observer",
        ];
        has_fields(method, &fields);
        let newton = method["method"].as_str().unwrap().starts_with("core-newton");
        assert_eq!(method["hub_bytes"].is_f64(), newton, "{method}");
        assert_eq!(method["observer"].as_str().unwrap().contains("eigenvectors"), newton, "{method}");
    });
    let names: Vec<&str> = methods.iter().map(|method| method["method"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "cgd",
            "acgd",
            "core-newton",
            "core-newton:detail=10",
            "core-newton:detail=100",
            "core-agd",
            "core-cg",
            "cg",
            "lbfgs",
            "core-gd"
        ]
    );
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

/// A small call of every command.
fn every_command(folder: &std::path::Path) -> Vec<Vec<String>> {
    let at = |name: &str| text(&folder.join(name)).to_owned();
    let run = at("run");
    object(&[
        "run",
        "--out",
        &run,
        "--set",
        "machines.count=2",
        "--set",
        "method.name=core-agd",
        "--set",
        "stop.rounds=3",
    ]);
    let model = at("run/model.safetensors");
    let small = ["--set", "machines.count=2", "--set", "problem.rows=100", "--set", "stop.rounds=3"];
    let compared = at("compared");
    printed(&[&["compare", "--methods", "core-agd,cg", "--out", &compared][..], &small].concat());
    let calls: [&[&str]; 16] = [
        &["run", "--set", "machines.count=2", "--set", "method.name=core-agd", "--set", "stop.rounds=3"],
        &["replay", &run, "--out", &at("replayed")],
        &["journal", "verify", &run],
        &["evaluate", "--model", &model, "digits"],
        &["predict", "--model", &model, "digits"],
        &["inspect", "--set", "machines.count=2", "--set", "problem.rows=100"],
        &["compare", "--methods", "core-agd,cg", "--out", &compared, small[1], small[0], small[3]],
        &["report", &compared],
        &["methods"],
        &["bench", "--dim", "64", "--budget", "4", "--family", "hadamard", "--threads", "1"],
        &["data", "list"],
        &["data", "shard", "digits", "--machines", "2", "--out", &at("shards")],
        &["data", "convert", "digits", &at("digits.csv")],
        &["privacy", "--adjacency", "0.01"],
        &["graph", "ring"],
        &["seed", &at("seed")],
    ];
    let mut calls: Vec<Vec<String>> =
        calls.iter().map(|call| call.iter().map(|&word| word.to_owned()).collect()).collect();
    calls[6] = ["compare", "--methods", "core-agd,cg", "--out", &compared]
        .iter()
        .chain(&small)
        .map(|&w| w.to_owned())
        .collect();
    calls
}

#[test]
fn no_command_panics_where_its_output_is_closed_or_full() {
    let folder = tempfile::tempdir().unwrap();
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");
    for call in every_command(folder.path()) {
        for json in [false, true] {
            let mut call = call.clone();
            if json {
                call.push("--json".to_owned());
            }
            let run = |redirected: &str| {
                let _ = std::fs::remove_file(folder.path().join("seed"));
                let script = format!("exec timeout 60 \"$0\" \"$@\" {redirected}");
                let mut command = std::process::Command::new("bash");
                command.args(["-c", &script, BINARY]).args(&call).env("XDG_CACHE_HOME", cache);
                let output = command.output().unwrap();
                let words = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(!words.contains("panicked"), "{call:?} {redirected}: {words}");
                (output.status.code(), words)
            };
            let (code, words) = run(">/dev/full");
            assert!(code == Some(1) && words.contains("cannot write to standard output"), "{call:?}: {code:?} {words}");
            // A reader that has gone has seen enough.
            let (code, words) = run("> >(exec true)");
            assert!(matches!(code, Some(0 | 2)), "{call:?}: {code:?} {words}");
            let (code, words) = run(">&-");
            assert!(code.is_some_and(|code| code < 3), "{call:?}: {code:?} {words}");
            let (code, _) = run("2>/dev/full");
            assert!(matches!(code, Some(0 | 2)), "{call:?}: {code:?}");
        }
    }
}

#[test]
fn a_path_of_penalties_begins_where_the_last_ended_and_is_chosen_by_held_out_rows() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("best");
    let keys = settings(&["machines.count=5", "method.name=core-newton", "stop.target=1e-8"]);
    let steps = objects(&[&["path", "--alphas", "1e-4,1,1e-2", "--out", text(&out)], &keys[..]].concat());
    steps.iter().for_each(|step| has_fields(step, &["alpha", "test_loss", "score", "wire_bytes", "scikit_learn"]));
    let number = |step: &serde_json::Value, field: &str| step[field].as_f64().unwrap();
    let best = steps.last().unwrap();
    assert_eq!((best["chosen"].as_bool(), steps.len()), (Some(true), 3));
    assert!(steps.iter().all(|step| number(step, "test_loss") >= number(best, "test_loss")), "{steps:?}");
    assert!(steps.iter().all(|step| step["reached"] == true), "{steps:?}");
    // The model is the one that was chosen: a run of its own with that penalty ends there too.
    let alpha = format!("problem.alpha={}", number(best, "alpha"));
    let alone = object(&[&["run", "--set", &alpha, "--set", "problem.test=0.2"], &keys[..]].concat());
    let (there, here) = (number(best, "test_loss"), alone["test_loss"].as_f64().unwrap());
    // To 1e-8 of f0 - f* both, whose square root is what coordinates may differ by.
    assert!((there - here).abs() < 1e-4, "{there} {here}");
    let score = object(&["evaluate", "--model", text(&out.join("model.safetensors")), "digits"]);
    assert!(score["accuracy"].as_f64().unwrap() > 0.85, "{score}");
    let refused = complaint(&["run", "--set", "problem.alpha=[1, 0.1]"]);
    assert!(refused.contains("`corewire path --alphas 1,0.1,0.01` tries several"), "{refused}");
    let refused = complaint(&["path", "--set", "machines.engine=mpi"]);
    assert!(refused.contains("`path` runs on threads; run the chosen alpha under mpirun"), "{refused}");
}

#[test]
fn keys_are_listed_and_a_commented_job_runs() {
    let all = objects(&["keys"]);
    all.iter().for_each(|key| has_fields(key, &["key", "meaning", "default", "range"]));
    assert!(printed(&["keys", "stop.gap"]).starts_with("stop.gap: "));
    assert!(complaint(&["keys", "colour"]).contains("no key contains `colour`"));
    let folder = tempfile::tempdir().unwrap();
    let (job, csv) = (folder.path().join("job.toml"), folder.path().join("rows.csv"));
    std::fs::write(&csv, (0..30).map(|i| format!("{},{}\n", i % 7, i % 2)).collect::<String>()).unwrap();
    printed(&["init-job", text(&job), "--data", "rows.csv"]);
    let report = object(&["run", text(&job), "--set", "machines.count=3"]);
    assert_eq!((&report["dim"], &report["data"]), (&2.into(), &"rows.csv".into()));
    assert!(complaint(&["init-job", text(&job)]).contains("exists: name another file"));
}

#[test]
fn very_many_rows_and_columns_are_tried_on_a_sample_and_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.libsvm");
    // 100,000 rows and columns with 20 entries a row, which are scattered.
    let row = |i: usize| {
        let entries: String = (0..20).map(|k| format!(" {}:1", 1 + k * 5000 + (i * (k + 7)) % 5000)).collect();
        format!("{}{entries}\n", if (i * 7) % 11 < 5 { 1 } else { -1 })
    };
    std::fs::write(&path, (0..100_000).map(row).collect::<String>()).unwrap();
    let data = format!("problem.data={}", path.display());
    let sample = "of 100000 rows with their 512 commonest columns";
    let begun = std::time::Instant::now();
    let report = object(&["inspect", "--set", &data]);
    assert!(report["sample"].as_str().unwrap().contains(sample), "{report}");
    let keys = settings(&[&data, "limits.optimum_seconds=0", "stop.seconds=1"]);
    let words = String::from_utf8(corewire(&[&["run"], &keys[..]].concat()).output().unwrap().stderr).unwrap();
    assert!(words.contains("tried on a sample") && words.contains(sample), "{words}");
    let chosen = format!("{} costs the fewest bytes", report["recommendation"].as_str().unwrap());
    assert!(words.contains(&chosen), "{words} but {chosen}");
    // 20 s each on a machine of one's own; others may share it.
    assert!(begun.elapsed().as_secs() < 240);
}
