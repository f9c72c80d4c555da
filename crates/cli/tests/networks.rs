//! Networks: trained by every method that can, cheaper by CORE-M, and read by other programs.

mod tool;

use serde_json::Value;
use tool::*;

/// The bundled digits under a network of one hidden layer.
const DIGITS: [&str; 4] = ["problem.model=mlp", "machines.count=8", "method.batch=16", "problem.test=0.2"];

fn run(keys: &[&str]) -> Value {
    object(&[&["run"], &settings(&[&DIGITS, keys].concat())[..]].concat())
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} of {report}"))
}

#[test]
fn core_m_reaches_sgds_loss_at_a_hundred_and_fifty_times_fewer_bytes() {
    let trained = |method: &str| run(&["stop.epochs=30", "method.step=0.05", method]);
    let (sgd, core) = (trained("method.name=sgd"), trained("method.name=core-sgd"));
    let times = number(&sgd, "wire_bytes") / number(&core, "wire_bytes");
    assert!(times > 150.0, "{times} times fewer bytes");
    let (sgd, core) =
        ((number(&sgd, "value"), number(&sgd, "score")), (number(&core, "value"), number(&core, "score")));
    // One seed on 1438 rows: the loss within a tenth, as on larger sets, and the accuracy within two of 359 rows and their chance.
    assert!(core.0 < 1.1 * sgd.0, "a loss of {} against {}", core.0, sgd.0);
    assert!(core.1 > sgd.1 - 0.02 && sgd.1 > 0.93, "{core:?} {sgd:?}");
}

#[test]
fn a_sketch_of_the_gradient_costs_as_much_and_learns_less() {
    let keys = ["stop.epochs=30", "method.step=0.05", "method.ratio=37", "method.name=core-sgd"];
    let trained = |send| run(&[&keys[..], &[send]].concat());
    let (momentum, gradient) = (trained("method.send=momentum"), trained("method.send=gradient"));
    let bytes = number(&gradient, "wire_bytes") / number(&momentum, "wire_bytes");
    assert!((0.8..1.25).contains(&bytes), "{bytes}");
    let loss = number(&gradient, "value") / number(&momentum, "value");
    // 0.04 and 7: the noise of a gradient is ten times as long once the momentum has summed it.
    assert!(loss > 10.0, "a gradient's noise is worth {loss} times the loss");
}

#[test]
fn every_method_that_trains_networks_does_and_the_others_say_which_do() {
    let ids = objects(&["methods"]).into_iter().map(|method| method["id"].as_str().unwrap().to_owned());
    let mut trained = Vec::new();
    for id in ids {
        let name = format!("method.name={id}");
        // Which passes over all rows has no mini-batches.
        let keys = if id == "core-nonconvex" { &["problem.model=mlp", "machines.count=8"][..] } else { &DIGITS };
        let keys = settings(&[keys, &["stop.rounds=40", &name]].concat());
        let output = corewire(&[&["run", "--json"], &keys[..]].concat()).output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        if output.status.success() {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let fallen = number(&report, "value") / number(&report, "initial");
            assert!(fallen < 0.95, "{id}: f is {fallen} of what it was");
            trained.push(id);
        } else {
            assert!(words.contains("does not train networks") && words.contains("core-sgd"), "{id}: {words}");
        }
    }
    let wanted = ["core-sgd", "sgd", "qsgd", "terngrad", "ef-signsgd", "topk-ef", "dgc", "powersgd", "drive", "eden"];
    assert!(wanted.iter().all(|id| trained.iter().any(|known| known == id)), "{trained:?}");
}

#[test]
fn a_network_goes_to_pytorch_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    let (kept, tensors) = (path("run"), path("net.safetensors"));
    let keys = settings(&[&DIGITS[..], &["stop.epochs=10", "method.name=core-sgd"]].concat());
    let trained = object(&[&["run", "--out", &kept], &keys[..]].concat());
    let model = format!("{kept}/model.safetensors");
    object(&["export", &model, "--pytorch", &tensors]);
    // No step from there: f is that of the trained network, but for the rounding to 32 bits.
    let start = format!("problem.start={tensors}");
    let again = object(
        &[&["run"], &settings(&[&DIGITS[..], &["stop.rounds=0", "method.name=core-sgd", &start]].concat())[..]]
            .concat(),
    );
    let (first, last) = (number(&again, "initial"), number(&trained, "value"));
    assert!((first / last - 1.0).abs() < 1e-5, "{first} {last}");
    let evaluated = object(&["evaluate", "digits", "--model", &model]);
    assert!(number(&evaluated, "accuracy") > 0.8, "{evaluated}");
    assert_eq!(printed(&["predict", "digits", "--model", &model]).lines().count(), 1 + 1797);
    let refused = complaint(&["export", &model, "--onnx", &path("net.onnx")]);
    assert!(refused.contains("write linear models"), "{refused}");
    let other = complaint(&[&["run"], &settings(&[&DIGITS[..], &["problem.hidden=5", &start]].concat())[..]].concat());
    assert!(other.contains("`0.weight` has the shape [32, 64], and the network wants [5, 64]"), "{other}");
}

#[test]
fn keys_of_networks_are_refused_elsewhere_and_wrong_ones_are_named() {
    let refused = |keys: &[&str]| complaint(&[&["run"], &settings(keys)[..]].concat());
    for (keys, words) in [
        (&["method.weight_decay=1e-3"][..], "`method.weight_decay` is for networks"),
        (&["problem.augment=true"], "are for networks"),
        (&["problem.model=lenet"], "at least 12 by 12 pixels, not 8 by 8"),
        (&["problem.model=mlp", "method.step=safe"], "is its rate: a positive number"),
        (&["problem.model=mlp", "stop.epochs=2", "stop.rounds=5"], "keep one"),
        (&["problem.model=mlp", "method.name=core-newton"], "does not train networks; take one of core-sgd"),
        (&["problem.model=mlp", "method.ratio=0.5"], "at least 1"),
        (&["problem.model=mlp", "graph.shape=ring", "graph.gossip=chebyshev"], "not trained by gossip"),
    ] {
        let told = refused(keys);
        assert!(told.contains(words), "{keys:?}: {told}");
    }
}

#[test]
fn networks_are_trained_where_their_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    printed(&["data", "shard", "digits", "--machines", "4", "--out", text(folder.path())]);
    let data = format!("problem.data={}", folder.path().join("{machine}.libsvm").display());
    let keys =
        ["machines.count=4", "problem.model=mlp", "stop.rounds=120", "stop.evaluate_every=60", "method.step=0.05"];
    let report = object(&[&["run"], &settings(&[&[data.as_str()], &keys[..]].concat())[..]].concat());
    let fallen = number(&report, "value") / number(&report, "initial");
    assert!(report["method"] == "core-sgd" && fallen < 0.5, "{report}");
}

#[test]
fn networks_may_be_tuned_on_shorter_runs() {
    let folder = tempfile::tempdir().unwrap();
    let keys = settings(&[&DIGITS[..], &["stop.epochs=4", "method.step=0.001", "problem.test=0.2"]].concat());
    let tuned = |more: &[&str]| {
        let arguments = [&["compare", "--methods", "sgd", "--out", text(folder.path())], more, &keys[..]].concat();
        objects(&arguments).remove(0)
    };
    let (short, plain) = (tuned(&["--tune-epochs", "1"]), tuned(&["--no-tune"]));
    assert_eq!(short["rounds"], plain["rounds"], "the run that counts is whole");
    assert!(number(&short, "score") > number(&plain, "score"), "and scored: {short} {plain}");
    assert!(number(&short, "value") < 0.8 * number(&plain, "value"), "a rate far too small is left: {short}");
    let refused = complaint(&["compare", "--tune-epochs", "1", "--out", text(folder.path())]);
    assert!(refused.contains("`--tune-epochs` is for networks"), "{refused}");
}

#[test]
fn rates_that_fail_are_lowered_until_they_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let keys = settings(&[&DIGITS[..], &["stop.epochs=3", "method.step=3"]].concat());
    let compared = ["compare", "--methods", "onebit-adam", "--out", text(folder.path())];
    let run = objects(&[&compared, &keys[..]].concat()).remove(0);
    assert!(number(&run, "score") > 0.85, "{run}");
}

#[test]
fn networks_are_compared_by_their_loss() {
    let folder = tempfile::tempdir().unwrap();
    let keys = settings(&[&DIGITS[..], &["stop.epochs=4", "method.step=0.05"]].concat());
    let compared = objects(
        &[&["compare", "--methods", "core-sgd,sgd,powersgd", "--no-tune", "--out", text(folder.path())], &keys[..]]
            .concat(),
    );
    assert_eq!(compared.len(), 3);
    assert!(compared.iter().all(|run| number(run, "relative") < 0.6), "{compared:?}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    for words in ["mlp on digits", "How far does each method bring the loss down", "Against epochs", "score_rounds"] {
        assert!(page.contains(words), "{words}");
    }
    // f is looked at once per epoch, and the last round is the end of one: nothing in between is drawn.
    let curves = std::fs::read_to_string(folder.path().join("compare.csv")).unwrap();
    assert_eq!(curves.lines().filter(|line| line.starts_with("\"sgd\"")).count(), 4, "{curves}");
}

#[test]
fn a_network_that_is_killed_again_and_again_ends_with_the_digest_of_an_undisturbed_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("run")).to_owned();
    let keys = settings(&[&DIGITS[..], &["problem.hidden=64", "stop.rounds=600", "method.name=core-sgd"]].concat());
    let whole = object(&[&["run"], &keys[..]].concat());
    let journal = folder.path().join("run/journal.bin");
    let length = || std::fs::metadata(&journal).map_or(0, |about| about.len());
    let mut arguments: Vec<&str> = [&["run", "--json", "--out", &path], &keys[..]].concat();
    for _ in 0..5 {
        let before = length();
        let mut child = start(&arguments);
        while length() < before + 20_000 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ = child.kill();
        child.wait().unwrap();
        arguments = vec!["run", "--json", "--resume", &path];
    }
    let last = object(&["run", "--resume", &path]);
    assert_eq!((&last["digest"], &last["value"]), (&whole["digest"], &whole["value"]));
    assert_eq!(object(&["journal", "verify", &path])["digest"], whole["digest"]);
}

/// A journal and a job of a few kilobytes are all of a fine-tune, for whoever has what it began from.
#[test]
fn a_fine_tune_is_its_journal_and_what_it_began_from() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (base, tuned, tensors) = (at("base"), at("tuned"), at("base.safetensors"));
    let keys = [&DIGITS[..], &["method.name=core-sgd", "stop.rounds=30"]].concat();
    object(&[&["run", "--out", text(&base)], &settings(&keys)[..]].concat());
    let model = base.join("model.safetensors");
    printed(&["export", text(&model), "--pytorch", text(&tensors)]);
    let start = format!("problem.start={}", tensors.display());
    let keys = [&keys[..], &[&start, "method.ratio=200", "method.step=0.01", "method.seed=4"]].concat();
    let whole = object(&[&["run", "--out", text(&tuned)], &settings(&keys)[..]].concat());
    for entry in std::fs::read_dir(&tuned).unwrap().map(|entry| entry.unwrap()) {
        if !["journal.bin", "job.toml"].map(Into::into).contains(&entry.file_name()) {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let kept = |name: &str| std::fs::metadata(tuned.join(name)).unwrap().len();
    assert!(kept("journal.bin") + kept("job.toml") < std::fs::metadata(&tensors).unwrap().len() / 4);
    // The job says where it began.
    let replayed = object(&["replay", text(&tuned), "--out", text(&at("again.safetensors"))]);
    assert_eq!(replayed["digest"], whole["digest"]);
    // Elsewhere the user does.
    let moved = at("moved.safetensors");
    std::fs::rename(&tensors, &moved).unwrap();
    let told = complaint(&["replay", text(&tuned), "--out", text(&at("none.safetensors"))]);
    assert!(told.contains("start.safetensors is not there") && told.contains("--start FILE"), "{told}");
    let again = object(&["replay", text(&tuned), "--start", text(&moved), "--out", text(&at("again.safetensors"))]);
    assert_eq!(again["digest"], whole["digest"]);
    // Another start, the base before it was narrowed to 32 bits, is none.
    let told = complaint(&["replay", text(&tuned), "--start", text(&model), "--out", text(&at("none.safetensors"))]);
    assert!(told.contains("is not the point where journal.bin began"), "{told}");
}

#[test]
fn all_methods_that_train_networks_are_compared_by_one_word() {
    let folder = tempfile::tempdir().unwrap();
    let keys = [&DIGITS[..], &["problem.rows=300", "problem.hidden=4", "stop.rounds=3"]].concat();
    let arguments = ["compare", "--methods", "all", "--no-tune", "--out", text(folder.path())];
    let runs = objects(&[&arguments[..], &settings(&keys)[..]].concat());
    let ids: Vec<&str> = runs.iter().map(|run| run["method"].as_str().unwrap()).collect();
    assert!(["core-sgd", "sgd", "eden", "powersgd", "onebit-adam"].iter().all(|id| ids.contains(id)), "{ids:?}");
    assert!(runs.iter().all(|run| run["error"].is_null()), "{runs:?}");
    // What has a momentum of its own is left out where all are to send theirs, and refused where it was named.
    let sent = [&keys[..], &["method.send=momentum"]].concat();
    let runs = objects(&[&arguments[..], &settings(&sent)[..]].concat());
    assert!(runs.len() > 5 && runs.iter().all(|run| run["method"] != "dgc"), "{runs:?}");
    let named = ["compare", "--methods", "sgd,dgc", "--out", text(folder.path())];
    assert!(complaint(&[&named[..], &settings(&sent)[..]].concat()).contains("keeps a momentum of its own"));
}

/// Pictures in the binary format of CIFAR-100: each of a hundred classes has a colour and a place that is lighter.
fn cifar_100(pictures: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for picture in 0..pictures {
        let (class, shade) = (picture % 100, picture / 100 % 3);
        bytes.extend([(class / 5) as u8, class as u8]);
        let (row, column) = (class / 10, class % 10);
        let pixel = |at: usize| (at / 32 % 32).abs_diff(3 * row + 2) < 3 && (at % 32).abs_diff(3 * column + 2) < 3;
        bytes.extend((0..3072).map(|at| if pixel(at) { 200 + 20 * shade as u8 } else { 40 + 10 * (at / 1024) as u8 }));
    }
    bytes
}

#[test]
fn a_hundred_classes_of_cifar_100_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test) = (folder.path().join("train.bin"), folder.path().join("test.bin"));
    std::fs::write(&train, cifar_100(600)).unwrap();
    std::fs::write(&test, cifar_100(100)).unwrap();
    let data = [format!("problem.data={}", train.display()), format!("problem.test={}", test.display())];
    let keys = ["machines.count=2", "problem.model=lenet", "method.batch=20", "method.step=0.03", "stop.epochs=20"];
    let lenet = object(&[&["run"], &settings(&[&[data[0].as_str(), &data[1]], &keys[..]].concat())[..]].concat());
    // By the fine label: with the coarse one there would be twenty classes, and by chance one picture in a hundred is right.
    assert!(number(&lenet, "score") > 0.9, "{lenet}");
}

#[test]
fn what_travels_is_a_parameter_of_every_method_that_trains_networks() {
    let trained = |keys: &[&str]| run(&[&["stop.rounds=60", "method.step=0.05"], keys].concat())["digest"].clone();
    let named = trained(&["method.name=eden:send=momentum"]);
    assert_eq!(named, trained(&["method.name=eden", "method.send=momentum"]));
    assert_ne!(named, trained(&["method.name=eden"]));
    // Every method reads it, or has a momentum of its own and says so.
    let trains = complaint(&["run", "--set", "problem.model=mlp", "--set", "method.name=ef21"]);
    let those = trains.split("take one of ").nth(1).unwrap().split(';').next().unwrap();
    let mut own = Vec::new();
    for id in those.split(", ").map(str::trim).filter(|id| *id != "core-nonconvex") {
        let digest = |send: &str| {
            let keys = ["stop.rounds=8", "method.step=0.01", "problem.rows=400", "problem.hidden=8"].map(str::to_owned);
            let keys = [&keys[..], &[format!("method.name={id}:send={send}")]].concat();
            let keys: Vec<&str> = DIGITS.into_iter().chain(keys.iter().map(String::as_str)).collect();
            let output = corewire(&[&["run", "--json"], &settings(&keys)[..]].concat()).output().unwrap();
            match output.status.code() {
                Some(1) => Err(String::from_utf8(output.stderr).unwrap()),
                _ => Ok(serde_json::from_slice::<Value>(&output.stdout).unwrap()["digest"].clone()),
            }
        };
        match (digest("gradient"), digest("momentum")) {
            (Err(told), _) => {
                assert!(told.contains("keeps a momentum of its own by its rule"), "{id}: {told}");
                own.push(id);
            }
            // Without a codec the two are one.
            (Ok(gradient), Ok(momentum)) => assert!(gradient != momentum || ["sgd", "cgd"].contains(&id), "{id}"),
            other => panic!("{id}: {other:?}"),
        }
    }
    assert_eq!(own, ["dgc", "fetchsgd", "onebit-adam"]);
    let refused = |keys: &[&str]| complaint(&[&["run"], &settings(keys)[..]].concat());
    let told = refused(&["problem.model=mlp", "method.name=eden:send=news"]);
    assert!(told.contains("it must be momentum, gradient or auto"), "{told}");
    // A linear model has no momentum to send.
    assert!(refused(&["method.name=eden:send=momentum"]).contains("has no parameter `send`"));
}

/// A network small enough for Hessians and full passes.
const SMALL: [&str; 4] = ["problem.model=mlp", "problem.hidden=4", "problem.rows=300", "machines.count=4"];

#[test]
fn every_step_of_algorithm_3_trains_a_network_by_passes_over_all_rows() {
    for step in ["auto", "option-1", "option-2", "theory", "theory-2"] {
        let step = format!("method.step={step}");
        let keys = ["method.name=core-nonconvex", "stop.epochs=12", "method.budget=60", &step];
        let report = object(&[&["run"], &settings(&[&SMALL[..], &keys].concat())[..]].concat());
        // A pass over all rows is a round, and none of them raises f.
        assert_eq!(number(&report, "rounds"), 12.0, "{step}");
        assert!(number(&report, "value") < number(&report, "initial"), "{step}: {report}");
        // What Options I and II rest on was learned from the machines.
        let (smoothness, trace) = (number(&report, "smoothness"), number(&report, "trace"));
        assert!(smoothness > 0.0 && trace > smoothness && trace < number(&report, "dim") * smoothness, "{report}");
    }
    let refused = |keys: &[&str]| complaint(&[&["run"], &settings(&[&SMALL[..], keys].concat())[..]].concat());
    let told = refused(&["method.name=core-nonconvex", "method.step=option-1", "method.budget=3"]);
    assert!(told.contains("3.2 ln(N/delta)"), "{told}");
    let told = refused(&["method.name=core-nonconvex", "method.weight_decay=1e-3"]);
    assert!(told.contains("`method.weight_decay` is for mini-batches"), "{told}");
    let told = refused(&["method.name=core-sgd", "method.step=option-1"]);
    assert!(told.contains("a positive number, or auto"), "{told}");
}

#[test]
fn inspect_tells_a_networks_spectrum_before_and_after_training() {
    let folder = tempfile::tempdir().unwrap();
    let (out, plot) = (folder.path().join("run"), folder.path().join("spectrum.svg"));
    let small = settings(&[&SMALL[..], &["method.name=core-sgd", "stop.epochs=20"]].concat());
    corewire(&[&["run", "--quiet", "--out", text(&out)], &small[..]].concat()).assert().success();
    let model = out.join("model.safetensors");
    let looked = ["--model", text(&model), "--plot", text(&plot), "--products", "60", "--rows", "100"];
    let report = object(&[&["inspect"], &small[..], &looked].concat());
    assert_eq!((&report["rows"], &report["steps"]), (&Value::from(100), &Value::from(60)));
    for spectrum in report["spectra"].as_array().unwrap() {
        let density = spectrum["density"].as_array().unwrap();
        let sum = |of: fn(f64, f64) -> f64| -> f64 {
            density.iter().map(|node| of(node[0].as_f64().unwrap(), node[1].as_f64().unwrap())).sum()
        };
        // The nodes stand for all d eigenvalues, and everything else follows from them.
        let close = |found: f64, field: &str| (found / number(spectrum, field) - 1.0).abs() < 1e-9;
        assert!((sum(|_, count| count) / number(&report, "dim") - 1.0).abs() < 1e-9);
        assert!(close(sum(|value, count| value.abs() * count), "r1") && close(sum(|v, count| v * count), "trace"));
        assert!(close(sum(|value, count| value.abs().sqrt() * count), "r_half"));
        assert!(number(spectrum, "smallest") < 0.0, "a network is not convex");
    }
    let drawn = std::fs::read_to_string(&plot).unwrap();
    assert!(drawn.contains("the model, negative") && drawn.contains("stroke-dasharray"), "{drawn}");
    for (arguments, path) in [(["--model", "/no/such"], "/no/such"), (["--plot", "/no/such.svg"], "/no/such.svg")] {
        let told = complaint(&[&["inspect"], &small[..], &["--products", "2", "--starts", "1"], &arguments].concat());
        assert!(told.contains(path), "{told}");
    }
}

#[test]
fn a_network_goes_on_from_a_model_of_an_earlier_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let small = settings(&[&SMALL[..], &["method.name=core-sgd", "stop.epochs=20"]].concat());
    let first = object(&[&["run", "--out", text(&out)], &small[..]].concat());
    let start = format!("problem.start={}", text(&out.join("model.safetensors")));
    let second = object(&[&["run", "--set", &start], &small[..]].concat());
    assert_eq!(second["initial"], first["value"]);
    let wider =
        [&["run", "--set", &start, "--set", "problem.hidden=5"], &settings(&["problem.model=mlp"])[..]].concat();
    assert!(complaint(&wider).contains("parameters, and the network wants"));
}

#[test]
fn a_network_tells_how_many_scalars_travel() {
    let keys = settings(&[&SMALL[..], &["method.name=core-sgd", "stop.rounds=2", "method.budget=50"]].concat());
    assert_eq!(object(&[&["run"], &keys[..]].concat())["budget"], 50);
}
