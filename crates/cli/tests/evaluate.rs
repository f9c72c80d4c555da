//! `corewire evaluate` and `predict`: a model that a run wrote, on rows of data.

mod tool;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corewire_journal::{read_model, write_model};
use serde_json::Value;
use tool::*;

/// Trains for a few rounds and returns the run's model.
fn trained(folder: &Path, keys: &[&str]) -> PathBuf {
    let run = folder.join("run");
    let common = ["machines.count=3", "method.name=core-agd", "stop.target=0", "stop.rounds=60"];
    object(&[&["run", "--out", text(&run)], &settings(&[&common[..], keys].concat())[..]].concat());
    run.join("model.safetensors")
}

fn evaluated(model: &Path, data: &str) -> Value {
    let report = object(&["evaluate", "--model", text(model), data]);
    has_fields(&report, &["rows", "accuracy", "r2", "loss"]);
    report
}

/// The first column of what `predict` says, without its name.
fn predictions(model: &Path, data: &str) -> Vec<String> {
    let table = printed(&["predict", "--model", text(model), data]);
    let mut lines = table.lines().map(|line| line.split(',').next().unwrap().to_owned());
    assert_eq!(lines.next().unwrap(), "prediction");
    lines.collect()
}

#[test]
fn evaluate_respects_the_rows_of_the_same_file_and_takes_all_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("digits.csv");
    printed(&["data", "convert", "digits", text(&csv)]);
    let data = format!("problem.data={}", csv.display());
    let keys = [&data, "problem.rows=300", "problem.classes=parity"];
    let model = trained(folder.path(), &keys);
    assert_eq!(evaluated(&model, text(&csv))["rows"], 300, "the rows that the model was trained on");
    assert_eq!(predictions(&model, text(&csv)).len(), 300);
    let other = folder.path().join("other.csv");
    std::fs::copy(&csv, &other).unwrap();
    assert_eq!(evaluated(&model, text(&other))["rows"], 1797);
    let bundled = tempfile::tempdir().unwrap();
    assert_eq!(evaluated(&trained(bundled.path(), &["problem.rows=200"]), "digits")["rows"], 200);
}

#[test]
fn the_accuracy_is_that_of_the_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let model = trained(folder.path(), &[]);
    let report = evaluated(&model, "digits");
    assert_eq!((&report["rows"], &report["r2"]), (&1797.into(), &Value::Null));
    let csv = folder.path().join("digits.csv");
    printed(&["data", "convert", "digits", text(&csv)]);
    let table = std::fs::read_to_string(&csv).unwrap();
    let labels: Vec<f64> =
        table.lines().filter_map(|line| line.rsplit(',').next().and_then(|label| label.parse().ok())).collect();
    let said = predictions(&model, "digits");
    assert_eq!((said.len(), labels.len()), (1797, 1797));
    // `parity` has the even digits on the positive side.
    let right = said.iter().zip(&labels).filter(|(said, label)| (*said == "even") == (**label % 2.0 == 0.0)).count();
    let accuracy = report["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.85, "{accuracy}");
    assert!((right as f64 / 1797.0 - accuracy).abs() < 1e-12, "{right} of 1797, evaluate says {accuracy}");
    let json = objects(&["predict", "--model", text(&model), "digits"]);
    assert_eq!(json[0]["prediction"], said[0].as_str());
    let p = |side: &str| json[0]["probabilities"][side].as_f64().unwrap();
    assert!((p("even") + p("odd") - 1.0).abs() < 1e-12);
    assert!(printed(&["evaluate", "--model", text(&model), "digits"]).contains("% right"));
}

#[test]
fn a_model_of_classes_predicts_labels_and_a_regression_has_r2() {
    let folder = tempfile::tempdir().unwrap();
    let softmax = trained(folder.path(), &["problem.model=softmax", "problem.rows=500"]);
    assert!(predictions(&softmax, "digits").iter().all(|label| (0..10).any(|digit| *label == digit.to_string())));
    assert!(evaluated(&softmax, "digits")["accuracy"].as_f64().unwrap() > 0.7);
    let other = tempfile::tempdir().unwrap();
    let csv = other.path().join("line.csv");
    let rows: String = (0..50).map(|i| format!("{},{},{}\n", i, i % 7, 3 * i - 2 * (i % 7) + 5)).collect();
    std::fs::write(&csv, rows).unwrap();
    let data = format!("problem.data={}", csv.display());
    let ridge = trained(other.path(), &[&data, "problem.model=ridge"]);
    let report = evaluated(&ridge, text(&csv));
    assert_eq!(report["accuracy"], Value::Null);
    assert!(report["r2"].as_f64().unwrap() > 0.99, "{report}");
}

#[test]
fn a_malformed_model_and_rows_that_do_not_fit_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let model = trained(folder.path(), &["problem.model=softmax", "problem.rows=100"]);
    let (vectors, about) = read_model(&model).unwrap();
    let bent = folder.path().join("bent.safetensors");
    let with = |name: &str, vector: Vec<f64>| {
        let mut vectors = vectors.clone();
        vectors.insert(name.to_owned(), vector);
        (vectors, about.clone())
    };
    let said = |key: &str, value: &str| {
        let mut about = about.clone();
        about.insert(key.to_owned(), value.to_owned());
        (vectors.clone(), about)
    };
    for (what, changed) in [
        ("no coordinates", with("x", Vec::new())),
        ("one coordinate", with("x", vec![1.0])),
        ("a coordinate too few", with("x", vec![0.0; 639])),
        ("not a number", with("x", vec![f64::NAN; 640])),
        ("no classes", with("classes", Vec::new())),
        ("more classes than coordinates", with("classes", vec![0.0; 641])),
        ("labels", said("labels", "colours")),
        ("an intercept that is not there", said("intercept", "true")),
        ("a scaling that is not there", said("normalise", "standard")),
        ("a job that is none", said("job", "[problem")),
        ("nothing at all", (BTreeMap::new(), BTreeMap::new())),
        ("a class that is no number", with("classes", vec![f64::NAN; 10])),
        ("infinite coordinates", with("x", vec![f64::INFINITY; 640])),
        ("another scaling than the job's", said("normalise", "none")),
        ("no scaling at all", said("normalise", "perhaps")),
        ("an intercept that is a word", said("intercept", "maybe")),
        ("labels that softmax does not have", said("labels", "numbers")),
        ("labels of a binary model", said("labels", "parity")),
        ("another model", said("job", "[problem]\nmodel = \"two-layer\"\nhidden = 8999999999999999\n")),
        ("a binary model", said("job", "[problem]\nmodel = \"logistic\"\n")),
    ] {
        write_model(&bent, &changed).unwrap();
        for command in ["evaluate", "predict"] {
            let found = complaint(&[command, "--model", text(&bent), "digits"]);
            assert!(found.starts_with("corewire: "), "{what}: {found}");
        }
    }
    std::fs::write(&bent, b"no model").unwrap();
    complaint(&["evaluate", "--model", text(&bent), "digits"]);
    complaint(&["evaluate", "--model", "nowhere.safetensors", "digits"]);
    let narrow = folder.path().join("narrow.csv");
    std::fs::write(&narrow, "1,2,3\n4,5,6\n").unwrap();
    let found = complaint(&["evaluate", "--model", text(&model), text(&narrow)]);
    assert!(found.contains("2 columns besides the label, but 64 were asked for"), "{found}");
    assert!(complaint(&["predict", "--model", text(&model), "nowhere.csv"]).contains("nowhere.csv"));
}

#[test]
fn a_linear_model_is_exported_with_names_and_a_network_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("rows.csv");
    let rows: String = (0..40).map(|i| format!("{},{},{}\n", i % 9, ["red", "blue"][i % 2], i % 4 / 2)).collect();
    std::fs::write(&csv, format!("size,colour,sold\n{rows}")).unwrap();
    let model = trained(folder.path(), &[&format!("problem.data={}", csv.display())]);
    let (json, onnx) = (folder.path().join("m.json"), folder.path().join("m.onnx"));
    object(&["export", text(&model), "--sklearn", text(&json), "--onnx", text(&onnx)]);
    let exported: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(exported["feature_names_in_"], serde_json::json!(["size", "colour=blue", "colour=red"]));
    assert_eq!(exported["classes_"], serde_json::json!(["0", "1"]));
    // By hand, for the first row: size 0, red.
    let number = |value: &Value| value.as_f64().unwrap();
    let score = number(&exported["intercept_"][0]) + number(&exported["coef_"][0][2]);
    let said = objects(&["predict", "--model", text(&model), text(&csv)]);
    assert!((number(&said[0]["probabilities"]["1"]) - 1.0 / (1.0 + (-score).exp())).abs() < 1e-12);
    assert!(std::fs::read(&onnx).unwrap().windows(16).any(|part| part == b"LinearClassifier"));
    let (vectors, about) = read_model(&model).unwrap();
    assert_eq!(vectors["coefficients"].len(), 3);
    assert_eq!(about["features"], "[\"size\",\"colour=blue\",\"colour=red\"]");
    let other = tempfile::tempdir().unwrap();
    let keys = ["problem.model=two-layer", "problem.rows=50", "method.name=cgd"];
    let run = other.path().join("run");
    let rest = ["machines.count=2", "stop.target=0", "stop.rounds=2"];
    object(&[&["run", "--out", text(&run)], &settings(&[&keys[..], &rest].concat())[..]].concat());
    let refused = complaint(&["export", text(&run.join("model.safetensors")), "--onnx", text(&onnx)]);
    assert!(refused.contains("write linear models"), "{refused}");
}
