//! `corewire evaluate` and `predict`: what a trained model says of rows, and how often it is right.

use std::path::PathBuf;

use anyhow::{Result, bail};
use corewire_data::Labels;
use corewire_optim::predict::{self, HeldOutRows, Known, Metrics};
use corewire_optim::score::{HeldOut, Score};
use serde_json::{Map, Value, json};

use crate::model::Trained;
use crate::out;
use crate::worth::Worth;

/// Arguments of both.
#[derive(clap::Args)]
pub struct Arguments {
    /// A model that `run` or `replay` wrote.
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// `digits` or a file of rows.
    data: String,
    /// JSON instead of words.
    #[arg(long)]
    json: bool,
}

/// `corewire evaluate`.
pub fn evaluate(arguments: &Arguments) -> Result<()> {
    let trained = Trained::read(&arguments.model)?;
    let set = trained.preparation.apply(trained.rows(&arguments.data, false)?)?;
    let (model, classes, sides) = (trained.model, trained.classes(), trained.preparation.has_sides());
    let known = Known::Statistics(trained.statistics.clone());
    let mut rows = HeldOutRows { set, model, classes, sides, known };
    let Some(Score { rows: count, loss, .. }) = Score::from_sums(&rows.sums(&trained.x)) else {
        bail!("{} has no row of the model's classes", arguments.data);
    };
    let metrics = rows.metrics(&trained.x);
    if arguments.json {
        let (classes, values) = match &metrics {
            Metrics::Classes(classes) => (Some(classes), None),
            Metrics::Values(values) => (None, Some(values)),
        };
        return out::json(&json!({
            "rows": count as u64,
            "loss": loss,
            "accuracy": classes.map(|m| m.accuracy),
            "balanced_accuracy": classes.map(|m| m.balanced_accuracy),
            "log_loss": classes.map(|m| m.log_loss),
            "auc": classes.map(|m| m.auc),
            "majority": classes.map(|m| m.majority),
            "r2": values.map(|m| m.r2),
            "rmse": values.map(|m| m.rmse),
            "mae": values.map(|m| m.mae),
        }));
    }
    Worth::of_metrics(count, &metrics).print("rows")
}

/// `corewire predict`.
pub fn predict(arguments: &Arguments) -> Result<()> {
    let trained = Trained::read(&arguments.model)?;
    let set = trained.preparation.features(trained.rows(&arguments.data, true)?);
    let names = trained.preparation.class_names();
    let mut text = String::new();
    if !arguments.json {
        // A regression says a value; ridge on two sides a score; other models a probability of each class.
        let more: Vec<String> = match trained.model {
            _ if names.is_empty() => Vec::new(),
            corewire_optim::problem::Model::Ridge => vec!["score".to_owned()],
            _ => names.iter().map(|name| quoted(&format!("p({name})"))).collect(),
        };
        text += &[vec!["prediction".to_owned()], more].concat().join(",");
        text.push('\n');
    }
    for scores in predict::scores(trained.model, trained.classes(), &trained.x, &trained.statistics, &set) {
        let probabilities = predict::probabilities(trained.model, &scores);
        let said = match &trained.preparation.labels {
            Labels::Numbers { centre } => {
                text += &match arguments.json {
                    true => format!("{}\n", json!({ "prediction": scores[0] + centre })),
                    false => format!("{}\n", scores[0] + centre),
                };
                continue;
            }
            Labels::Classes(_) => &names[predict::largest(&scores)],
            _ => &names[usize::from(scores[0] >= 0.0)],
        };
        text += &match (arguments.json, probabilities) {
            (true, Some(p)) => {
                let p: Map<String, Value> = names.iter().cloned().zip(p.into_iter().map(Value::from)).collect();
                format!("{}\n", json!({ "prediction": said, "probabilities": p }))
            }
            (true, None) => format!("{}\n", json!({ "prediction": said, "score": scores[0] })),
            (false, p) => {
                let numbers = p.unwrap_or_else(|| vec![scores[0]]);
                let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
                format!("{},{}\n", quoted(said), numbers.join(","))
            }
        };
    }
    out::line(text.trim_end())
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
