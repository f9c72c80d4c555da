//! Columns of people's own files: words, missing cells, labels and weights by name; at one place and at sites.

mod tool;

use std::path::{Path, PathBuf};

use serde_json::Value;
use tool::*;

/// Rows of a made-up telephone company: age and months with gaps, a plan, an id; who leaves is mostly a matter of both.
fn churn(rows: usize) -> Vec<String> {
    let row = |i: usize| {
        let (age, months) = (18 + (i * 37) % 60, (i * i + 3 * i) % 48);
        let plan = ["basic", "gold, with roaming", "family"][(i * 7 + i / 5) % 3];
        let leaves = (age as f64) * 0.05 - (months as f64) * 0.1 + if plan == "basic" { 2.0 } else { 0.0 } > 2.0;
        let age = if i.is_multiple_of(11) { String::new() } else { age.to_string() };
        let plan = if i.is_multiple_of(13) { "NA".to_owned() } else { format!("\"{plan}\"") };
        // One row in seventeen is not as the others are.
        let churn = if leaves != i.is_multiple_of(17) { "yes" } else { "no" };
        format!("{churn},c{i},{age},{months},{plan}")
    };
    (0..rows).map(row).collect()
}

const HEADER: &str = "churn,id,age,months,plan";
const KEYS: [&str; 4] =
    ["problem.label=churn", "problem.drop=[\"id\"]", "problem.missing=indicator", "method.name=core-newton"];

fn file(path: &Path, rows: &[String]) -> String {
    std::fs::write(path, format!("{HEADER}\n{}\n", rows.join("\n"))).unwrap();
    path.display().to_string()
}

fn trained(folder: &Path, name: &str, data: &str, keys: &[&str]) -> (Value, PathBuf) {
    let run = folder.join(name);
    let data = format!("problem.data={data}");
    let keys = settings(&[&[data.as_str(), "machines.count=4"], keys].concat()).join("\n");
    let keys: Vec<&str> = keys.split('\n').collect();
    let report = object(&[&["run", "--out", text(&run)], &keys[..]].concat());
    (report, run.join("model.safetensors"))
}

fn probabilities(model: &Path, data: &str) -> Vec<f64> {
    let said = objects(&["predict", "--model", text(model), data]);
    said.iter().map(|row| row["probabilities"]["yes"].as_f64().unwrap()).collect()
}

#[test]
fn words_and_gaps_are_agreed_on_by_sites_and_make_the_model_of_the_pooled_rows() {
    let folder = tempfile::tempdir().unwrap();
    let rows = churn(600);
    let whole = file(&folder.path().join("churn.csv"), &rows);
    for (rank, rows) in rows.chunks(150).enumerate() {
        file(&folder.path().join(format!("{rank}.csv")), rows);
    }
    let sites = format!("{}/{{machine}}.csv", folder.path().display());
    let (pooled, model) = trained(folder.path(), "pooled", &whole, &[&KEYS[..], &["stop.target=1e-10"]].concat());
    // Age, whether it is missing, months, three plans and none, and the intercept.
    assert_eq!(pooled["dim"], 8);
    let (apart, other) = trained(folder.path(), "sites", &sites, &[&KEYS[..], &["stop.gap=1e-9"]].concat());
    assert_eq!((&apart["dim"], &apart["reached"]), (&8.into(), &true.into()));
    let unlabelled = folder.path().join("new.csv");
    std::fs::write(&unlabelled, "plan,months,age\nfamily,3,\nbasic,40,70\nsilver,1,20\n").unwrap();
    let said = (probabilities(&model, text(&unlabelled)), probabilities(&other, text(&unlabelled)));
    assert_eq!(said.0.len(), 3);
    for (pooled, apart) in said.0.iter().zip(&said.1) {
        // Means of 32 bits and gaps of 1e-9 or less leave the square root of that, times a large coordinate.
        assert!((pooled - apart).abs() < 5e-4, "{said:?}");
    }
    let score = object(&["evaluate", "--model", text(&model), &whole]);
    assert!(score["auc"].as_f64().unwrap() > 0.9 && score["accuracy"].as_f64().unwrap() > 0.8, "{score}");
    has_fields(&score, &["balanced_accuracy", "log_loss", "majority", "rmse", "mae"]);
    let words = corewire(&["predict", "--model", text(&model), text(&unlabelled)]).output().unwrap();
    let note = String::from_utf8(words.stderr).unwrap();
    assert!(
        note.contains("1 cells of the rows have words that no row of training had, as `silver` in `plan`"),
        "{note}"
    );
    let said = printed(
        &[&["run"], &settings(&[&format!("problem.data={whole}"), "machines.count=4"])[..], &settings(&KEYS)[..]]
            .concat(),
    );
    let line = "columns: 2 of numbers; 1 of words: plan (4); missing cells get the mean and are marked: age; dropped: id; label churn, \
                no against yes; features standardised; with an intercept";
    assert!(said.contains(line), "{said}");
    assert!(said.contains("is LogisticRegression(C=1.6666666666666667) of scikit-learn"), "{said}");
}

#[test]
fn a_site_whose_columns_are_others_is_refused_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let rows = churn(80);
    let sites = format!("problem.data={}/{{machine}}.csv", folder.path().display());
    let refusal = |changed: &str| {
        for (rank, rows) in rows.chunks(20).enumerate() {
            file(&folder.path().join(format!("{rank}.csv")), rows);
        }
        std::fs::write(folder.path().join("2.csv"), changed).unwrap();
        complaint(&[&["run"], &settings(&[&sites, "machines.count=4"])[..], &settings(&KEYS)[..]].concat())
    };
    for (changed, expected) in [
        (
            "churn,id,months,age,plan\nno,c1,3,30,basic\n",
            "machine 2: its column 3 is called `months`, and elsewhere `age`",
        ),
        (&format!("{HEADER}\nno,c1,old,3,basic\n"), "machine 2: its column `age` has words where others have numbers"),
        (&format!("{HEADER}\nmaybe,c1,3,3,basic\n"), "there are the classes maybe, no, yes: name two sides"),
        (
            &format!("{HEADER},more\nno,c1,3,3,basic,1\n"),
            "machine 2: its rows have 4 columns, those of machine 0 have 3",
        ),
        (&format!("{HEADER}\n?,c1,3,3,basic\n"), "machine 2: "),
    ] {
        let found = refusal(changed);
        assert!(found.contains(expected), "{changed}\n  {found}\n  {expected}");
    }
}

#[test]
fn the_positive_side_is_named_and_every_other_class_is_the_negative() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kinds.csv");
    let rows: String = (0..90).map(|i| format!("{},{},{}\n", i % 3, i % 7, ["a", "b", "c"][i % 3])).collect();
    std::fs::write(&path, rows).unwrap();
    let data = path.display().to_string();
    let (_, model) = trained(folder.path(), "b", &data, &["problem.positive=b", "method.name=core-newton"]);
    let said = printed(&["predict", "--model", text(&model), &data]);
    assert_eq!(said.lines().next(), Some("prediction,p(a|c),p(b)"));
    let refused =
        |keys: &[&str]| complaint(&[&["run", "--set", &format!("problem.data={data}")], &settings(keys)[..]].concat());
    let open = refused(&[]);
    assert!(
        open.contains("has 3 classes and `logistic` needs two sides: set `problem.positive` to one of them"),
        "{open}"
    );
    let absent = refused(&["problem.positive=d"]);
    assert!(absent.contains("has no class `d`; there is a, b, c"), "{absent}");
    let ridge = refused(&["problem.model=ridge"]);
    assert!(ridge.contains("the labels of kinds.csv are words, as `a`, and ridge fits numbers"), "{ridge}");
    let parity = refused(&["problem.classes=parity"]);
    assert!(parity.contains("neither even nor odd"), "{parity}");
}

#[test]
fn a_row_of_weight_two_is_as_two_rows_and_balanced_classes_weigh_alike() {
    let folder = tempfile::tempdir().unwrap();
    let row =
        |i: usize| format!("{},{},{}", (i * 5) % 13, (i * i) % 7, if (i * 5) % 13 + i % 4 > 9 { "yes" } else { "no" });
    let weight = |i: usize| 1 + i % 3;
    let write = |name: &str, rows: Vec<String>| {
        let path = folder.path().join(name);
        std::fs::write(&path, rows.join("\n")).unwrap();
        path.display().to_string()
    };
    let once = write("once.csv", (0..120).map(|i| format!("{},{}", row(i), weight(i))).collect());
    let often = write("often.csv", (0..120).flat_map(|i| vec![format!("{},1", row(i)); weight(i)]).collect());
    let plain = ["problem.label=3", "problem.normalise=none", "method.name=core-newton", "stop.target=1e-10"];
    let keys = [&plain[..], &["problem.weights=4"]].concat();
    let value = |report: &Value| report["optimum"].as_f64().unwrap();
    let (weighted, _) = trained(folder.path(), "w", &once, &keys);
    let (repeated, _) = trained(folder.path(), "r", &often, &keys);
    assert!((value(&weighted) - value(&repeated)).abs() < 1e-9, "{weighted} {repeated}");
    // Weights by class that are those of balanced classes, by hand.
    let yes = (0..120).filter(|&i| row(i).ends_with("yes")).count();
    let share = |count: usize| 120.0 / (2.0 * count as f64);
    let by_hand = format!("problem.class_weights={{ yes = {}, no = {} }}", share(yes), share(120 - yes));
    let keys = [&plain[..], &["problem.drop=4"]].concat();
    let (named, _) = trained(folder.path(), "n", &once, &[&keys[..], &[&by_hand]].concat());
    let (balanced, _) = trained(folder.path(), "b", &once, &[&keys[..], &["problem.class_weights=balanced"]].concat());
    assert!((value(&named) - value(&balanced)).abs() < 1e-9);
    // At x = 0 every row's loss is ln 2, whatever rows weigh.
    assert!((balanced["initial"].as_f64().unwrap() - std::f64::consts::LN_2).abs() < 1e-12);
    assert!(value(&balanced) > value(&trained(folder.path(), "p", &once, &keys).0), "rare rows cost more now");
}

#[test]
fn a_target_far_from_zero_is_centred_and_ten_ratings_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far.csv");
    let rows: String =
        (0..200).map(|i| format!("{},{},{}\n", i % 23, i % 5, 1e5 + 2.0 * (i % 23) as f64 - (i % 5) as f64)).collect();
    std::fs::write(&path, rows).unwrap();
    let data = path.display().to_string();
    let (_, model) = trained(folder.path(), "far", &data, &["problem.model=ridge", "method.name=core-newton"]);
    let report = object(&["evaluate", "--model", text(&model), &data]);
    assert!(report["r2"].as_f64().unwrap() > 0.999, "{report}");
    let said = objects(&["predict", "--model", text(&model), &data]);
    assert!((said[0]["prediction"].as_f64().unwrap() - 1e5).abs() < 1.0, "{}", said[0]);
    // One row alone, without a label, gets the same answer.
    let one = folder.path().join("one.csv");
    std::fs::write(&one, "0,0\n").unwrap();
    assert_eq!(objects(&["predict", "--model", text(&model), text(&one)])[0], said[0]);
    let path = folder.path().join("ratings.csv");
    let rows: String =
        (0..300).map(|i| format!("{},{},{}\n", i % 10, (i * 7) % 11, (i % 10 + (i / 10) % 2) % 10)).collect();
    std::fs::write(&path, rows).unwrap();
    let data = path.display().to_string();
    let (report, model) = trained(folder.path(), "ratings", &data, &["problem.model=ridge", "method.name=core-newton"]);
    assert!(report["training_score"].as_f64().unwrap() > 0.3, "{report}");
    let said = objects(&["predict", "--model", text(&model), &data]);
    assert!(said.iter().any(|row| row["prediction"].as_f64().unwrap() > 6.0), "a rating, and not a side");
}

#[test]
fn csv_is_cut_into_shards_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let whole = file(&folder.path().join("churn.csv"), &churn(40));
    let shards = folder.path().join("shards");
    let said = printed(&[
        "data",
        "shard",
        &whole,
        "--machines",
        "4",
        "--label",
        "churn",
        "--split",
        "label",
        "--out",
        text(&shards),
    ]);
    assert!(said.contains("{machine}.csv"), "{said}");
    let mut lines: Vec<String> = Vec::new();
    for rank in 0..4 {
        let shard = std::fs::read_to_string(shards.join(format!("{rank}.csv"))).unwrap();
        let mut rows = shard.lines().map(str::to_owned);
        assert_eq!(rows.next().unwrap(), HEADER);
        lines.extend(rows);
    }
    let mut expected = churn(40);
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
    let refused = complaint(&["data", "convert", &whole, "rows.parquet"]);
    assert!(refused.contains("`.parquet` cannot be written: name the output FILE.csv or FILE.libsvm"), "{refused}");
}
