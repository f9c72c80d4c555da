//! `corewire run`: what it prints, what it refuses, what it keeps.

mod tool;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tool::*;

const FIELDS: [&str; 30] = [
    "method",
    "model",
    "data",
    "machines",
    "dim",
    "budget",
    "family",
    "wire",
    "rounds",
    "reached",
    "relative",
    "value",
    "up_bytes",
    "down_bytes",
    "seconds",
    "digest",
    "initial",
    "optimum",
    "trace",
    "smoothness",
    "strong_convexity",
    "seed",
    "trips",
    "frame_bytes",
    "ended",
    "exchanges",
    "wire_bytes",
    "control_bytes",
    "setup_bytes",
    "score",
];

#[test]
fn without_arguments_it_trains_the_bundled_model_and_says_how_it_went() {
    let out = printed(&["run"]);
    for words in [
        "on digits (logistic, d = 64), 50 machines",
        "reached 1e-6",
        "on the wire per machine",
        "digest",
        "times as much",
    ] {
        assert!(out.contains(words), "{words:?} is not in\n{out}");
    }
}

#[test]
fn json_has_every_promised_field_and_a_repeated_run_the_same_digest() {
    for name in ["core-agd", "core-cg", "core-gd", "cg"] {
        let method = format!("method.name={name}");
        let arguments = [&["run"], &settings(&[&method, "machines.count=5"])[..]].concat();
        let first = object(&arguments);
        has_fields(&first, &FIELDS);
        assert_eq!(first["reached"], true, "{first}");
        assert!(first["relative"].as_f64().unwrap() <= 1e-6);
        assert_eq!((&first["machines"], &first["dim"], &first["method"]), (&5.into(), &64.into(), &name.into()));
        let again = object(&arguments);
        for field in FIELDS.iter().filter(|field| **field != "seconds") {
            assert_eq!(first[field], again[field], "{name}: {field}");
        }
        assert_eq!(first["digest"].as_str().unwrap().len(), 16);
    }
}

#[test]
fn the_digest_depends_on_the_seed_and_not_on_threads() {
    let run = |seed: &str| {
        object(
            &[&["run"], &settings(&["method.name=core-agd", "machines.count=3", "stop.rounds=20", seed])[..]].concat(),
        )
    };
    let (one, two) = (run("method.seed=1"), run("method.seed=2"));
    assert_ne!(one["digest"], two["digest"]);
    let arguments = [
        &["run", "--json"],
        &settings(&["method.name=core-agd", "machines.count=3", "stop.rounds=20", "method.seed=1"])[..],
    ]
    .concat();
    let output = corewire(&arguments).env("RAYON_NUM_THREADS", "1").output().unwrap();
    let alone: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(alone["digest"], one["digest"]);
}

#[test]
fn any_number_of_machines_works() {
    for count in ["1", "2", "50", "1000"] {
        let machines = format!("machines.count={count}");
        for wire in ["method.wire=q", "method.wire=q-sum", "method.wire=f32"] {
            let keys = ["method.name=core-agd", "stop.rounds=4", "stop.target=0", wire, &machines];
            let report = object(&[&["run"], &settings(&keys)[..]].concat());
            assert_eq!(report["rounds"], 4, "{count} {wire}");
            assert!(report["value"].as_f64().unwrap().is_finite());
        }
    }
}

#[test]
fn mistakes_are_named_and_nothing_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.toml");
    let path = text(&file).to_owned();
    for (content, expected) in [
        ("[method]\nbugdet = 3", "unknown key `method.bugdet`; the nearest known one is `method.budget`"),
        ("[problem]\ndata = \"digits\"\nmodel = 3.5", "`problem.model` is one of"),
        ("[problem\n", "line 1"),
        ("[problem]\ndata = digits", "line 2"),
        ("[problem]\n[problem]\n", "line 2"),
        ("data = \"digits\"", "`data` is outside any section; did you mean `problem.data`?"),
        ("[mashines]\ncount = 3", "the nearest known one is `machines.count`"),
        ("[problem]\nclasses = [[0], [0]]", "class"),
        ("[problem]\nclasses = [\"a\", \"b\"]", "digits has no class `a`; there is 0, 1, 2, 3"),
        ("[problem]\nclasses = [true, false]", "two classes, [3, 8]"),
        ("[stop]\nrounds = -1", "`stop.rounds` is a whole number of at least 0; found -1"),
        ("[stop]\nbytes = 0.5", "`stop.bytes`"),
        ("\u{feff}\u{0}", "line"),
    ] {
        std::fs::write(&file, content).unwrap();
        let found = complaint(&["run", &path]);
        assert!(found.starts_with("corewire: "), "{content:?}: {found}");
        assert!(found.contains(expected), "{content:?}\n  gives    {found}\n  expected {expected}");
    }
    for (assignment, expected) in [
        ("budget=3", "`--set` takes SECTION.KEY=VALUE"),
        ("method.budget", "`--set` takes SECTION.KEY=VALUE"),
        ("method.budget=0", "`method.budget` is a whole number of at least 1; found 0"),
        ("method.budget=65", "budget of 65"),
        ("method.name=core-add", "there is no method `core-add`"),
        ("method.name=core-agd:k=3", "method `core-agd` has no parameter `k`"),
        ("method.name=core-agd:k", "KEY=VALUE"),
        ("method.family=sobol", "there is no family `sobol`"),
        ("method.wire=q8", "did you mean \"q\"?"),
        ("method.step=0", "`method.step` is auto"),
        ("method.damping=2", "`method.damping` is a number above 0 and at most 1"),
        ("problem.alpha=-1e-3", "`problem.alpha` is a number, 0 or more"),
        ("problem.split=dirichlet:-1", "`problem.split`"),
        ("problem.data=nowhere.csv", "there is no data set `nowhere.csv`"),
        ("machines.count=0", "`machines.count` is a whole number of at least 1"),
        ("machines.engine=nats", "`machines.engine` is one of"),
        ("link.mbit_s=0", "`link.mbit_s` is a positive number"),
        ("method.seed_file=nowhere.seed", "`corewire seed FILE` makes one"),
    ] {
        let name = if assignment.contains("method.name") { "method.goal=auto" } else { "method.name=core-agd" };
        let found = complaint(&[&["run"], &settings(&[name, "machines.count=2", assignment])[..]].concat());
        assert!(
            found.starts_with("corewire: ") && found.contains(expected),
            "{assignment}\n  gives    {found}\n  expected {expected}"
        );
    }
}

#[test]
fn more_machines_than_fit_are_refused_in_words() {
    let found = complaint(&[&["run"], &settings(&["machines.count=20000"])[..]].concat());
    assert!(found.contains("`machines.count` is at most 16384; found 20000"), "{found}");
    let listed: Vec<String> = (0..20_000).map(|i| format!("\"{i}\"")).collect();
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.toml");
    std::fs::write(&job, format!("[problem]\ndata = [{}]\n", listed.join(","))).unwrap();
    let found = complaint(&["run", text(&job)]);
    assert!(found.contains("`machines.count` is at most 16384; found 20000"), "{found}");
}

#[test]
fn methods_without_a_proximal_step_refuse_l1_by_name() {
    let run = |method: &str| {
        let name = format!("method.name={method}");
        let keys = ["machines.count=2", "problem.rows=100", "problem.l1=0.01", "stop.rounds=3", "stop.target=0", &name];
        [&["run"], &settings(&keys)[..]].concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    for method in ["core-cg", "core-nonconvex", "lbfgs"] {
        let found = complaint(&run(method).iter().map(String::as_str).collect::<Vec<_>>());
        let expected = format!("method `{method}` has no proximal step for `problem.l1`; take core-newton, core-agd");
        assert!(found.contains(&expected), "{found}");
    }
    for method in ["core-newton", "core-agd", "core-gd", "core-sgd", "acgd"] {
        object(&run(method).iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn core_sgd_has_momentum() {
    let run = |keys: &[&str]| {
        let common =
            ["method.name=core-sgd", "machines.count=2", "problem.rows=200", "stop.rounds=10", "stop.target=0"];
        object(&[&["run"], &settings(&[&common[..], keys].concat())[..]].concat())
    };
    let (default, given, none) = (run(&[]), run(&["method.momentum=0.9"]), run(&["method.momentum=0"]));
    assert_eq!(default["digest"], given["digest"], "0.9 is the default");
    assert_ne!(default["digest"], none["digest"]);
    let found = complaint(&[&["run"], &settings(&["method.name=core-sgd", "method.momentum=1"])[..]].concat());
    assert!(found.contains("`method.momentum` is a number from 0 to below 1"), "{found}");
}

#[test]
fn paths_are_meant_from_where_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let sub = folder.path().join("jobs");
    std::fs::create_dir(&sub).unwrap();
    let rows = |sign: i32| {
        (0..20).map(|i| format!("{} 1:{i} 2:{}\n", if i % 2 == 0 { 1 } else { -1 }, sign * i % 7)).collect::<String>()
    };
    std::fs::write(sub.join("rows.libsvm"), rows(1)).unwrap();
    std::fs::write(folder.path().join("rows.libsvm"), rows(-3)).unwrap();
    std::fs::write(
        sub.join("job.toml"),
        "machines.count = 2\nstop.rounds = 3\nmethod.name = \"cgd\"\nproblem.data = \"rows.libsvm\"\n",
    )
    .unwrap();
    let digest = |job: &str, at: &Path, more: &[&str]| {
        let output = corewire(&[&["run", job, "--json", "--quiet"], more].concat()).current_dir(at).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["digest"].clone()
    };
    let (in_file, given) = (digest("jobs/job.toml", folder.path(), &[]), ["--set", "problem.data=rows.libsvm"]);
    assert_eq!(in_file, digest("job.toml", &sub, &given));
    assert_ne!(in_file, digest("jobs/job.toml", folder.path(), &given));
}

#[test]
fn a_key_that_the_method_would_ignore_is_refused() {
    for (method, key, readers) in [
        ("core-agd", "method.momentum=0.5", "core-sgd"),
        ("core-gd", "method.batch=8", "core-sgd"),
        ("core-newton", "method.budget=8", "core-agd or core-cg or core-gd or core-sgd or core-nonconvex"),
        ("core-newton", "method.step=0.5", "core-agd or core-gd or core-sgd or core-nonconvex"),
        ("cg", "method.family=gaussian", "core-agd or core-cg or core-gd or core-sgd or core-nonconvex"),
        ("cgd", "method.memory=8", "core-cg"),
        ("core-cg", "method.curvature=false", "core-newton"),
    ] {
        let found = complaint(&[&["run"], &settings(&[&format!("method.name={method}"), key])[..]].concat());
        let name = key.split('=').next().unwrap();
        assert!(
            found.contains(&format!("`{method}` does not read `{name}`: leave it out, or take {readers}")),
            "{found}"
        );
    }
    // Auto may or may not take a method that reads it.
    object(&[&["run"], &settings(&["method.budget=8", "stop.rounds=2", "problem.rows=100"])[..]].concat());
}

#[test]
fn without_a_penalty_core_newton_adds_what_it_needs_says_so_and_stops_by_its_own_estimate() {
    let keys = settings(&["problem.alpha=0", "method.name=core-newton", "machines.count=4", "problem.rows=400"]);
    let said = printed(&[&["run"], &keys[..]].concat());
    assert!(said.contains("`problem.alpha` = 0 leaves f without strong convexity"), "{said}");
    assert!(said.contains("||x||^2 was added") && said.contains("the estimated gap is small enough"), "{said}");
}

#[test]
fn without_a_penalty_inspect_weighs_what_auto_takes() {
    let keys = ["problem.alpha=0", "problem.rows=300", "machines.count=4"];
    let found = object(&[&["inspect"], &settings(&keys)[..]].concat());
    assert_eq!(found["recommendation"], "core-newton", "{found}");
    assert_eq!(object(&[&["run"], &settings(&keys)[..]].concat())["method"], "core-newton");
}

#[test]
fn core_newton_that_does_not_end_says_what_may_help() {
    let keys = ["problem.rows=200", "machines.count=4", "method.name=core-newton", "stop.target=0"];
    let advises = |more: &[&str]| {
        printed(&[&["run"], &settings(&[&keys[..], more].concat())[..]].concat()).contains("a larger `problem.alpha`")
    };
    // Nothing ends so near to the optimum.
    assert!(advises(&["stop.rounds=120", "stop.gap=1e-300"]));
    assert!(!advises(&["stop.rounds=20", "stop.gap=1e-300"]));
    assert!(!advises(&["stop.rounds=120"]), "all rounds were wanted");
}

#[test]
fn a_curvature_whose_trace_is_below_zero_ends_in_numbers_and_not_in_a_panic() {
    // A regulariser this strong and not convex makes the Hessian's trace negative away from the start.
    let keys = [
        "problem.model=logistic-nonconvex",
        "problem.nonconvex=100",
        "problem.alpha=0",
        "problem.rows=200",
        "machines.count=3",
        "stop.rounds=20",
        "stop.target=0",
    ];
    for method in ["method.name=core-nonconvex", "method.name=core-gd"] {
        let output = corewire(&[&["run", "--json", "--set", method], &settings(&keys)[..]].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("panicked"), "{method}: {said}");
    }
}

/// Every job of the experiments is read, and starts where its data is.
#[test]
fn the_jobs_of_the_experiments_start() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut jobs = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        jobs += 1;
        // Without its data a job that is read ends with the name of what is missing, and not with a key.
        let found = complaint(&["run", text(&path), "--set", "problem.data=nowhere.csv"]);
        assert!(found.contains("there is no data set") && found.contains("nowhere.csv"), "{}: {found}", path.display());
        if text(&path).contains("figure-3") {
            check_network_job(&path);
            continue;
        }
        let Some(data) = std::env::var_os("COREWIRE_DATA") else {
            println!("skipped: COREWIRE_DATA names no folder with the data of {}", path.display());
            continue;
        };
        let job = std::fs::read_to_string(&path).unwrap();
        let name =
            job.lines().find_map(|line| line.strip_prefix("data = \"data/")).unwrap().trim_end_matches('"').to_owned();
        let data = format!("problem.data={}", std::path::PathBuf::from(data).join(name).display());
        let keys = [&data, "problem.rows=3000", "method.name=core-agd", "stop.rounds=2", "stop.target=0"];
        let report = object(&[&["run", text(&path)], &settings(&keys)[..]].concat());
        assert_eq!((&report["rounds"], &report["machines"]), (&2.into(), &50.into()));
        assert!([784, 54].contains(&report["dim"].as_u64().unwrap()), "no intercept: {report}");
    }
    assert!(jobs >= 3);
}

/// A job on pictures takes an epoch of a few random ones, where that is a matter of seconds.
fn check_network_job(path: &std::path::Path) {
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("few.bin");
    let bytes: Vec<u8> =
        (0..64 * 3073u32).map(|at| if at % 3073 == 0 { (at / 3073 % 4) as u8 } else { (at * 7) as u8 }).collect();
    std::fs::write(&pictures, bytes).unwrap();
    let (data, test) = (format!("problem.data={}", pictures.display()), format!("problem.test={}", pictures.display()));
    let few = ["machines.count=2", "method.batch=8", "stop.epochs=1"];
    let large = std::fs::read_to_string(path).unwrap().contains("resnet18");
    if !large {
        let report =
            object(&[&["run", text(path)], &settings(&[&[data.as_str(), &test], &few[..]].concat())[..]].concat());
        assert_eq!(
            (&report["rounds"], &report["dim"]),
            (&4.into(), &173_404.into()),
            "six classes fewer are 582 parameters fewer"
        );
    }
}

#[test]
fn rows_that_are_not_numbers_are_refused_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("nan.csv", "1,2,1\n0.5,nan,-1\n1,1,1\n"),
        ("infinite.csv", "1,2,1\n0.5,inf,-1\n1,1,1\n"),
        ("nan.libsvm", "1 1:2\n-1 1:nan 2:3\n"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let data = format!("problem.data={}", path.display());
        let found = complaint(&[&["run"], &settings(&[&data, "machines.count=2"])[..]].concat());
        assert!(found.contains(name) && found.contains('2'), "{found}");
    }
}

#[test]
fn a_run_is_kept_resumed_replayed_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let keys = settings(&["method.name=core-agd", "machines.count=4", "stop.target=0", "stop.rounds=40"]);
    let first = object(&[&["run", "--out", text(&run)], &keys[..]].concat());
    for file in ["journal.bin", "rounds.csv", "model.safetensors", "start.safetensors", "job.toml"] {
        assert!(run.join(file).exists(), "{file}");
    }
    let csv = std::fs::read_to_string(run.join("rounds.csv")).unwrap();
    assert_eq!(csv.lines().count(), 41);
    // The folder is not overwritten.
    assert!(complaint(&[&["run", "--out", text(&run)], &keys[..]].concat()).contains("already holds a run"));
    // Further rounds: the same as if they had been run at once.
    let longer = object(&["run", "--resume", text(&run), "--set", "stop.rounds=90"]);
    let whole = object(
        &[&["run"], &settings(&["method.name=core-agd", "machines.count=4", "stop.target=0", "stop.rounds=90"])[..]]
            .concat(),
    );
    for field in ["digest", "value", "up_bytes", "down_bytes", "trips", "initial"] {
        assert_eq!(longer[field], whole[field], "{field}");
    }
    let csv = std::fs::read_to_string(run.join("rounds.csv")).unwrap();
    let rounds: Vec<u64> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(rounds, (1..=90).collect::<Vec<u64>>());
    let other = complaint(&["run", "--resume", text(&run), "--set", "method.budget=3"]);
    assert!(other.contains("only `stop.*` and `limits.*` can be set"), "{other}");

    let model = folder.path().join("m.safetensors");
    let replayed = object(&["replay", text(&run), "--to", "40", "--out", text(&model)]);
    assert_eq!(replayed["digest"], first["digest"]);
    assert_eq!(object(&["replay", text(&run), "--out", text(&model)])["digest"], longer["digest"]);
    assert!(std::fs::read(&model).unwrap().len() > 512);
    assert!(complaint(&["replay", text(&run), "--to", "91", "--out", text(&model)]).contains("round 91 is not in it"));
    let verified = object(&["journal", "verify", text(&run)]);
    has_fields(&verified, &["rounds", "bytes", "torn_bytes", "digest", "snapshot"]);
    assert_eq!((&verified["rounds"], &verified["digest"]), (&90.into(), &longer["digest"]));

    let mut bytes = std::fs::read(run.join("journal.bin")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(run.join("journal.bin"), &bytes).unwrap();
    for command in [
        &["journal", "verify", text(&run)][..],
        &["run", "--resume", text(&run)],
        &["replay", text(&run), "--out", text(&model)],
    ] {
        assert!(complaint(command).contains("damaged at byte"), "{command:?}");
    }
    assert!(complaint(&["run", "--resume", text(folder.path())]).contains("holds no run"));
}

#[test]
fn every_method_and_wire_resumes_to_the_same_bits() {
    for (method, wire, model) in [
        ("core-gd", "bf16", "ridge"),
        ("core-agd", "q-sum", "logistic"),
        ("core-cg", "q", "softmax"),
        ("core-cg", "f32", "ridge"),
        ("core-nonconvex", "q", "two-layer"),
        ("core-sgd", "q", "logistic"),
        ("core-newton", "q", "logistic"),
        ("core-newton", "q", "ridge"),
        ("core-newton:detail=10", "q", "logistic"),
        ("lbfgs", "f32", "logistic"),
        ("cg", "f64", "logistic"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let (method, wire, model) =
            (format!("method.name={method}"), format!("method.wire={wire}"), format!("problem.model={model}"));
        let keys = |rounds| {
            settings(&[&method, &wire, &model, "machines.count=3", "problem.rows=300", "stop.target=0", rounds])
        };
        object(&[&["run", "--out", text(&run)], &keys("stop.rounds=12")[..]].concat());
        let resumed = object(&["run", "--resume", text(&run), "--set", "stop.rounds=25"]);
        let whole = object(&[&["run"], &keys("stop.rounds=25")[..]].concat());
        assert_eq!(resumed["digest"], whole["digest"], "{method} {wire} {model}");
        assert_eq!(object(&["journal", "verify", text(&run)])["digest"], whole["digest"], "{method} {wire} {model}");
    }
}

#[test]
fn where_round_trips_are_long_auto_sends_more_in_fewer_exchanges() {
    let folder = tempfile::tempdir().unwrap();
    let on = |mbit_s: &str, rtt_ms: &str| {
        let keys = [format!("link.mbit_s={mbit_s}"), format!("link.rtt_ms={rtt_ms}")];
        let keys = settings(&keys.each_ref().map(String::as_str));
        let run = folder.path().join(mbit_s);
        let report = object(&[&["run", "--out", text(&run)], &keys[..]].concat());
        assert_eq!(object(&[&["inspect"], &keys[..]].concat())["recommendation"], report["method"]);
        // What was chosen is kept with its parameters: a run that is ended early goes on to the same bits.
        let early = folder.path().join(format!("early-{mbit_s}"));
        let fewer = [&["run", "--out", text(&early), "--set", "stop.rounds=2"], &keys[..]].concat();
        object(&fewer);
        let resumed = object(&["run", "--resume", text(&early), "--set", "stop.rounds=100"]);
        assert_eq!((&resumed["digest"], &resumed["method"]), (&report["digest"], &report["method"]));
        report
    };
    let (slow, far) = (on("0.1", "0"), on("10", "100"));
    assert_eq!((slow["method"].as_str(), far["method"].as_str()), (Some("core-newton"), Some("core-newton:detail=10")));
    assert!(far["exchanges"].as_u64() < slow["exchanges"].as_u64(), "{far} {slow}");
    assert!(far["wire_bytes"].as_f64() > slow["wire_bytes"].as_f64(), "{far} {slow}");
    let refused = complaint(&["run", "--set", "method.name=auto:detail=10"]);
    assert!(refused.contains("they belong to one method"), "{refused}");
    let refused = complaint(&["run", "--set", "method.name=core-newton:detail=0.5"]);
    assert!(refused.contains("must be a number between 1 and 1000000"), "{refused}");
}

#[test]
fn a_synthetic_problem_with_any_decay_can_be_resumed() {
    // The smallest eigenvalue is a number with all its digits: it must survive the journal's header.
    for decay in ["0.7", "1.3", "1.5", "2.1"] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let decay = format!("problem.decay={decay}");
        let keys = [
            "problem.data=power-law",
            "problem.dim=77",
            &decay,
            "problem.alpha=1.1e-3",
            "machines.count=3",
            "method.name=core-agd",
            "stop.target=0",
            "stop.rounds=5",
        ];
        object(&[&["run", "--out", text(&run)], &settings(&keys)[..]].concat());
        assert_eq!(object(&["run", "--resume", text(&run), "--set", "stop.rounds=9"])["rounds"], 9);
    }
}

#[test]
fn a_job_names_its_files_from_where_it_lies_and_so_does_its_resume() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = folder.path().join("jobs");
    std::fs::create_dir(&jobs).unwrap();
    printed(&["data", "convert", "digits", text(&jobs.join("rows.csv"))]);
    printed(&["seed", text(&jobs.join("secret"))]);
    let job = "[problem]\ndata = \"rows.csv\"\nrows = 200\nclasses = \"parity\"\n[method]\nname = \"core-agd\"\nseed_file = \"secret\"\n[machines]\ncount = 2\n[stop]\nrounds = 5\ntarget = 0\n";
    std::fs::write(jobs.join("job.toml"), job).unwrap();
    let run = folder.path().join("runs/first");
    object(&["run", text(&jobs.join("job.toml")), "--out", text(&run)]);
    assert_eq!(object(&["run", "--resume", text(&run), "--set", "stop.rounds=9"])["rounds"], 9);
    assert_eq!(object(&["journal", "verify", text(&run)])["rounds"], 9);
    // From the command line they are meant from the working folder.
    let second = folder.path().join("runs/second");
    let keys = settings(&[
        "problem.data=rows.csv",
        "problem.classes=parity",
        "problem.rows=200",
        "method.name=core-agd",
        "stop.rounds=5",
        "stop.target=0",
        "machines.count=2",
    ]);
    corewire(&[&["run", "--quiet", "--out", text(&second)], &keys[..]].concat()).current_dir(&jobs).assert().success();
    assert_eq!(object(&["run", "--resume", text(&second), "--set", "stop.rounds=9"])["rounds"], 9);
}

#[test]
fn a_secret_seed_is_for_its_owner_and_shown_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (seed, other, run) = (folder.path().join("seed"), folder.path().join("other"), folder.path().join("run"));
    let words = printed(&["seed", text(&seed)]);
    let made = object(&["seed", text(&other)]);
    let secret = std::fs::read_to_string(&seed).unwrap().trim().to_owned();
    assert_eq!(std::fs::metadata(&seed).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(secret.len(), 64);
    assert!(complaint(&["seed", text(&seed)]).contains("never overwritten"));
    let file = format!("method.seed_file={}", seed.display());
    let keys = settings(&[&file, "method.name=core-agd", "machines.count=2", "stop.rounds=5", "stop.target=0"]);
    let report = object(&[&["run", "--out", text(&run)], &keys[..]].concat());
    assert_eq!(report["seed"], serde_json::Value::Null);
    assert_eq!(report["commitment"].as_str().unwrap().len(), 32);
    has_fields(&made, &["file", "commitment"]);
    let out = printed(&["run", "--resume", text(&run), "--set", "stop.rounds=7"]);
    for (what, shown) in [("seed", &words), ("run", &report.to_string()), ("resume", &out)] {
        assert!(!shown.contains(&secret) && !shown.contains(&secret[..32]), "{what} shows the seed");
    }
    for entry in std::fs::read_dir(&run).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            !bytes.windows(32).any(|window| window == &secret.as_bytes()[..32]),
            "{} holds the seed",
            path.display()
        );
    }
    // Another seed in the same file is refused, by resume and by replay.
    std::fs::copy(&other, &seed).unwrap();
    for command in [
        &["run", "--resume", text(&run)][..],
        &["replay", text(&run), "--out", text(&folder.path().join("m"))],
        &["journal", "verify", text(&run)],
    ] {
        assert!(complaint(command).contains("the seed is not the one of this run"), "{command:?}");
    }
    std::fs::write(&seed, "not a seed").unwrap();
    assert!(complaint(&["run", "--resume", text(&run)]).contains("64 hexadecimal digits"));
}

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_run_with_a_secret_seed_is_its_owners_alone_and_leaves_no_core() {
    let folder = tempfile::tempdir().unwrap();
    let (seed, run, there) = (folder.path().join("seed"), folder.path().join("run"), folder.path().join("there"));
    printed(&["seed", text(&seed)]);
    std::fs::create_dir(&there).unwrap();
    std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = format!("method.seed_file={}", seed.display());
    let keys = settings(&[&file, "method.name=core-agd", "machines.count=2", "stop.rounds=5", "stop.target=0"]);
    for run in [&run, &there] {
        object(&[&["run", "--out", text(run)], &keys[..]].concat());
        assert_eq!(mode(run), 0o700);
        for entry in std::fs::read_dir(run).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
    for open in [0o640, 0o604, 0o620, 0o602, 0o644, 0o666] {
        std::fs::set_permissions(&seed, std::fs::Permissions::from_mode(open)).unwrap();
        let found = complaint(&[&["run"], &keys[..]].concat());
        assert!(found.contains("too open") && found.contains(&format!("{open:04o}")), "{found}");
    }
    std::fs::set_permissions(&seed, std::fs::Permissions::from_mode(0o400)).unwrap();
    let long = settings(&[&file, "method.name=core-agd", "machines.count=2", "stop.rounds=100000000", "stop.target=0"]);
    let mut child = start(&[&["run", "--quiet"], &long[..]].concat());
    let limits = || std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap_or_default();
    let begun = std::time::Instant::now();
    let core = loop {
        let core = limits().lines().find(|line| line.starts_with("Max core file size")).map(str::to_owned);
        let none = core.as_ref().is_some_and(|line| line.split_whitespace().skip(4).take(2).eq(["0", "0"]));
        if none || begun.elapsed().as_secs() > 30 {
            break core.unwrap_or_default();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
}

#[test]
fn a_seed_in_a_wrong_place_is_never_echoed() {
    let folder = tempfile::tempdir().unwrap();
    let seed = folder.path().join("seed");
    printed(&["seed", text(&seed)]);
    let secret = std::fs::read_to_string(&seed).unwrap().trim().to_owned();
    let set = |key: &str| format!("{key}={secret}");
    let job = folder.path().join("job.toml");
    for key in [
        "method.seed",
        "method.seed_file",
        "method.name",
        "method.wire",
        "problem.data",
        "problem.split",
        "stop.rounds",
        "x.y",
    ] {
        let found = complaint(&["run", "--set", &set(key)]);
        assert!(!found.contains(&secret[..24]), "{key}: {found}");
        let (section, name) = key.split_once('.').unwrap();
        std::fs::write(&job, format!("[{section}]\n{name} = \"{secret}\"\n")).unwrap();
        let found = complaint(&["run", text(&job)]);
        assert!(!found.contains(&secret[..24]), "{key}: {found}");
    }
    std::fs::write(&job, format!("[method]\nseed = {secret}\n")).unwrap();
    let data = format!("problem.data={}", seed.display());
    for arguments in
        [vec!["run", text(&job)], vec!["run", &secret], vec!["run", "--set", &secret], vec!["run", "--set", &data]]
    {
        let found = complaint(&arguments);
        assert!(!found.contains(&secret[..24]), "{arguments:?}: {found}");
    }
}

#[test]
fn bytes_seconds_and_gradients_end_a_run_too() {
    let ended = |key: &str| {
        let keys = settings(&["method.name=core-agd", "machines.count=2", "stop.target=0", key]);
        let report = object(&[&["run"], &keys[..]].concat());
        (report["ended"].as_str().unwrap().to_owned(), report["wire_bytes"].as_f64().unwrap())
    };
    let (why, bytes) = ended("stop.bytes=2000");
    assert!(why == "bytes" && (2000.0..2200.0).contains(&bytes), "{why} {bytes}");
    assert_eq!(ended("stop.gradient=1e-3").0, "gradient");
    assert_eq!(ended("stop.rounds=0").0, "rounds");
}

#[test]
fn a_run_without_time_for_the_optimum_ends_by_estimates_and_says_so() {
    for method in ["auto", "core-newton", "core-agd"] {
        let name = format!("method.name={method}");
        let known = object(&["run", "--set", &name]);
        let call = ["run", "--set", &name, "--set", "limits.optimum_seconds=0"];
        let report = object(&call);
        assert!(report["optimum"].is_null() && report["relative"].is_null(), "{report}");
        assert!(report["reached"] == true && report["ended"] != "target", "{report}");
        // What the estimates ended at is what the target asks for.
        let number = |field: &str| known[field].as_f64().unwrap();
        let gap = report["value"].as_f64().unwrap() - number("optimum");
        assert!(gap <= 1e-6 * (number("initial") - number("optimum")), "{method}: {gap:e}");
        let looser = object(&[&call[..], &["--set", "stop.target=1e-3"]].concat());
        assert!(looser["rounds"].as_u64() < report["rounds"].as_u64(), "{method}: {looser}");
        let words = String::from_utf8(corewire(&call).output().unwrap().stderr).unwrap();
        assert!(words.contains("f* was not computed (`limits.optimum_seconds`)"), "{words}");
        assert_eq!(words.contains("tried on a sample of 1797 of 1797 rows"), method == "auto", "{words}");
    }
    let refused = complaint(&["compare", "--set", "limits.optimum_seconds=0"]);
    assert!(refused.contains("remove that key"), "{refused}");
}

#[test]
fn an_estimated_gap_ends_a_run_as_it_is_or_relative_to_the_first() {
    let known = object(&["run", "--set", "method.name=core-newton"]);
    let run = |keys: &[&str]| {
        let keys = settings(&[&["method.name=core-newton", "limits.optimum_seconds=0"], keys].concat());
        object(&[&["run"], &keys[..]].concat())
    };
    let gap = |report: &serde_json::Value| report["value"].as_f64().unwrap() - known["optimum"].as_f64().unwrap();
    // The estimate is within two and a half of the truth where the gradient was taken, and a step further on there is less.
    for bound in [1e-3, 1e-6, 1e-9] {
        let report = run(&[&format!("stop.gap_absolute={bound}")]);
        assert!(report["ended"] == "gap" && gap(&report) < 2.5 * bound, "{bound}: {} {report}", gap(&report));
    }
    let [coarse, fine] = ["stop.gap=1e-2", "stop.gap=1e-8"].map(|key| run(&[key]));
    assert!(coarse["ended"] == "gap" && coarse["rounds"].as_u64() < fine["rounds"].as_u64(), "{coarse} {fine}");
    // auto then chooses from those that estimate it.
    let chosen = object(&["run", "--set", "stop.gap_absolute=1e-3", "--set", "stop.target=1e-9"]);
    assert!(chosen["method"] == "core-newton" && chosen["ended"] == "gap", "{chosen}");
    let both = ["run", "--set", "stop.gap=1e-3", "--set", "stop.gap_absolute=1e-3"];
    assert!(complaint(&both).contains("keep one"), "{}", complaint(&both));
    let other = complaint(&["run", "--set", "method.name=core-agd", "--set", "stop.gap_absolute=1e-3"]);
    assert!(other.contains("`stop.gap_absolute` needs a method that estimates the gap"), "{other}");
}

#[test]
fn rows_that_would_be_cheaper_to_send_are_told_of() {
    let said =
        |keys: &[&str]| printed(&[&["run"], &settings(keys)[..]].concat()).contains("sending the rows themselves");
    // Two rows of small numbers are fewer bytes than any run, and thirty-six are more; on a link where only exchanges count they win.
    assert!(said(&["problem.rows=100"]));
    assert!(!said(&[]));
    assert!(said(&["link.mbit_s=1000", "link.rtt_ms=100"]));
}

#[test]
fn the_rows_themselves_take_one_exchange_and_end_at_the_optimum() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.csv");
    // Words, a missing cell, weights and unequal classes; more machines than some classes have rows.
    let line = |i: usize| format!("{},{},{},{}\n", ["red", "blue", ""][i % 3], i * i % 17, 1 + i % 2, i % 5 < 2);
    let lines: String = (0..60).map(line).collect();
    std::fs::write(&path, format!("colour,size,weight,label\n{lines}")).unwrap();
    let words = format!("problem.data={}", path.display());
    let cases: [&[&str]; 5] = [
        &[],
        &["problem.model=softmax", "problem.split=label"],
        &["problem.model=ridge", "problem.l1=1e-3", "problem.test=0.25"],
        &[
            &words,
            "problem.missing=mean",
            "problem.weights=weight",
            "problem.class_weights=balanced",
            "machines.count=7",
        ],
        &["machines.count=2000", "problem.rows=500"],
    ];
    for keys in cases {
        let report = object(&[&["run", "--set", "method.name=ship-rows"], &settings(keys)[..]].concat());
        // One exchange for the handshake, one for the rows; 32 bits of x are 1e-7 of it, and that squared of f.
        assert_eq!((&report["rounds"], &report["exchanges"]), (&1.into(), &2.into()), "{keys:?}");
        assert!(report["reached"] == true && report["relative"].as_f64().unwrap() < 1e-10, "{keys:?}: {report}");
        assert_eq!(report["down_bytes"].as_f64(), report["dim"].as_f64().map(|dim| 4.0 * dim), "{keys:?}");
    }
    // Bounds hold to the last bit.
    let bounded = folder.path().join("bounded");
    let keys = settings(&["method.name=ship-rows", "problem.upper=0.1", "problem.lower=-0.3"]);
    object(&[&["run", "--out", text(&bounded)], &keys[..]].concat());
    let x = corewire_journal::read_model(&bounded.join("model.safetensors")).unwrap().0.remove("x").unwrap();
    assert!(x.contains(&0.1) && x.iter().all(|x| (-0.3..=0.1).contains(x)), "{x:?}");
    let refused =
        |keys: &[&str]| complaint(&[&["run", "--set", "method.name=ship-rows"], &settings(keys)[..]].concat());
    let flat = refused(&["problem.alpha=0"]);
    assert!(flat.contains("set `problem.alpha` above 0"), "{flat}");
    let power = refused(&["problem.data=power-law", "problem.model=quadratic", "problem.dim=10"]);
    assert!(power.contains("are no file"), "{power}");
    let shards = folder.path().join("shards");
    printed(&["data", "shard", "digits", "--machines", "2", "--out", text(&shards)]);
    let sites = format!("problem.data={}", shards.join("{machine}.libsvm").display());
    let sites = refused(&[&sites, "machines.count=2", "problem.classes=parity"]);
    assert!(sites.contains("stay at their sites"), "{sites}");
    // It stands in a comparison, and so do conjugate gradients in 16 and 8 bits under short names.
    let out = folder.path().join("compared");
    let call = ["compare", "--methods", "cg,cg-bf16,cg-int8;replace=0,ship-rows", "--no-tune", "--out", text(&out)];
    let methods: Vec<_> = objects(&call).iter().map(|report| report["method"].as_str().unwrap().to_owned()).collect();
    assert!(
        ["cg:codec=bf16", "cg:codec=int8,replace=0", "ship-rows"].iter().all(|id| methods.iter().any(|m| m == id)),
        "{methods:?}"
    );
}

#[test]
fn events_for_tensorboard_are_written_beside_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let keys = settings(&["method.name=core-agd", "machines.count=2", "stop.rounds=5", "stop.target=0"]);
    printed(&[&["run", "--tensorboard", "--out", text(&run)], &keys[..]].concat());
    let events = std::fs::read_dir(&run)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("tfevents"));
    assert_eq!(events.count(), 1);
}

#[test]
fn a_run_without_a_snapshot_begins_anew_and_is_held_against_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let keys = settings(&["method.name=core-agd", "machines.count=3", "stop.target=0", "stop.rounds=15"]);
    let whole = object(&[&["run", "--out", text(&run)], &keys[..]].concat());
    std::fs::remove_file(run.join("snapshot-000000000015.safetensors")).unwrap();
    let before = std::fs::read(run.join("journal.bin")).unwrap();
    assert_eq!(object(&["run", "--resume", text(&run)])["digest"], whole["digest"]);
    assert_eq!(std::fs::read(run.join("journal.bin")).unwrap(), before, "a journal is never written anew");
}

#[test]
fn one_process_writes_a_folder_and_others_are_told_who() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let job = long_job("1000000");
    let mut child =
        start(&[vec!["run", "--json", "--out", text(&run)], job.iter().map(String::as_str).collect()].concat());
    let begun = std::time::Instant::now();
    while std::fs::metadata(run.join("journal.bin")).map_or(0, |about| about.len()) < 5000 {
        assert!(begun.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let found = complaint(&["run", "--resume", text(&run)]);
    assert!(found.contains(&format!("is being written by process {}", child.id())), "{found}");
    child.kill().unwrap();
    child.wait().unwrap();
    // The lock died with its process.
    assert!(object(&["run", "--resume", text(&run), "--set", "stop.rounds=300"])["rounds"].as_u64().unwrap() >= 300);
}

#[test]
fn a_cached_optimum_is_believed_only_where_it_is_whole_and_plausible() {
    let folder = tempfile::tempdir().unwrap();
    let keys = settings(&["method.name=core-agd", "machines.count=2", "problem.rows=200", "problem.alpha=0.02"]);
    let run = |cache: &str| {
        let mut command = corewire(&[&["run", "--json"], &keys[..]].concat());
        let output = command
            .env("XDG_CACHE_HOME", cache)
            .env("HOME", folder.path())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (report["rounds"].clone(), report["optimum"].clone(), report["ended"].clone())
    };
    let cache = folder.path().join("cache");
    let truth = run(text(&cache));
    let file = std::fs::read_dir(cache.join("corewire")).unwrap().next().unwrap().unwrap().path();
    let line = std::fs::read_to_string(&file).unwrap();
    let with = |value: f64| {
        let bits = format!("{:016x}", value.to_bits());
        format!("{bits} {:08x}\n", crc32c::crc32c(bits.as_bytes()))
    };
    assert_eq!(with(truth.1.as_f64().unwrap()), line);
    for (what, text_of) in [
        ("not a number", with(f64::NAN)),
        ("infinite", with(f64::INFINITY)),
        ("minus infinity", with(f64::NEG_INFINITY)),
        ("above f(x0)", with(2.0)),
        ("below what strong convexity allows", with(-1e9)),
        ("cut off", line[..9].to_owned()),
        ("without its end", line.trim_end().to_owned()),
        ("of other digits", line.replace(' ', "0 ")),
        ("empty", String::new()),
    ] {
        std::fs::write(&file, text_of).unwrap();
        assert_eq!(run(text(&cache)), truth, "{what}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), line, "{what}: it is made again");
    }
    // A link is replaced and not written through.
    let elsewhere = folder.path().join("elsewhere");
    std::fs::write(&elsewhere, "precious").unwrap();
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert_eq!(run(text(&cache)), truth);
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "precious");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), line);
    // Without a cache's name it is in the home folder, and never in the working folder.
    assert_eq!(run(""), truth);
    assert!(folder.path().join(".cache/corewire").exists() && !folder.path().join("corewire").exists());
}
