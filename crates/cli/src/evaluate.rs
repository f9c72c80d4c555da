//! `corewire evaluate` and `predict`: what a trained model says of rows, and how often it is right.

use std::path::PathBuf;

use anyhow::{Result, bail};
use corewire_optim::predict::{self, HeldOutRows};
use corewire_optim::score::{HeldOut, Score};

use crate::model::Trained;
use crate::out;

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
    let set = trained.preparation.apply(trained.rows(&arguments.data)?)?;
    let (model, classes, sides) = (trained.model, trained.classes().len(), trained.has_sides());
    let mut rows = HeldOutRows { set, model, classes, sides };
    let Some(score) = Score::from_sums(&rows.sums(&trained.x)) else {
        bail!("{} has no row of the model's classes", arguments.data);
    };
    let accuracy = score.is_accuracy.then_some(score.score);
    let r2 = (!score.is_accuracy).then_some(score.score);
    if arguments.json {
        return out::json(
            &serde_json::json!({ "rows": score.rows as u64, "accuracy": accuracy, "r2": r2, "loss": score.loss }),
        );
    }
    let words = match accuracy {
        Some(accuracy) => format!("{:.2} % right", 100.0 * accuracy),
        None => format!("R2 {:.4}", score.score),
    };
    out::line(&format!("{} rows: {words}, mean loss {:.6}", score.rows, score.loss))
}

/// `corewire predict`.
pub fn predict(arguments: &Arguments) -> Result<()> {
    let trained = Trained::read(&arguments.model)?;
    let set = trained.preparation.features(trained.rows(&arguments.data)?);
    let classes = trained.classes();
    let mut text = String::new();
    for row in 0..set.rows() {
        let scores = predict::scores(trained.model, classes.len(), &trained.x, &set, row);
        let said = classes.get(predict::largest(&scores)).copied().unwrap_or(scores[0]);
        text += &match arguments.json {
            true => format!("{}\n", serde_json::json!({ "prediction": said })),
            false => format!("{said}\n"),
        };
    }
    out::line(text.trim_end())
}
