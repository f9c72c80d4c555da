//! `corewire evaluate` and `predict`: what a trained model says of rows, and how often it is right.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use corewire_data::DataSet;
use corewire_optim::journal;
use corewire_optim::objective::{Linear, Loss, Objective, TwoLayer};
use corewire_optim::run::Finish;

use crate::assemble;
use crate::job::{self, ProblemSpec};
use crate::run::Assembled;

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

/// The classes of a job's training rows, as text for a model's file; empty where the model does not need them.
pub fn classes(spec: &ProblemSpec) -> Result<String> {
    if !matches!(spec.model.as_str(), "softmax" | "two-layer") {
        return Ok(String::new());
    }
    let classes = assemble::raw_data_set(&spec.data, None)?.classes();
    Ok(classes.iter().map(f64::to_string).collect::<Vec<_>>().join(" "))
}

/// A model with what is needed to use it.
struct Trained {
    x: Vec<f64>,
    spec: ProblemSpec,
    classes: Vec<f64>,
}

impl Trained {
    fn read(path: &std::path::Path) -> Result<Self> {
        let (x, about) = journal::read_model(path)?;
        let text = about.get("job").ok_or_else(|| anyhow!("{} does not say which job made it", path.display()))?;
        let spec = job::from_text(text, &[])?.problem;
        let listed = match about.get("classes").filter(|listed| !listed.is_empty()) {
            Some(listed) => listed.clone(),
            None => classes(&spec)?,
        };
        let classes = listed.split_whitespace().map(|class| class.parse()).collect::<Result<Vec<f64>, _>>()?;
        Ok(Self { x, spec, classes })
    }

    /// How many columns the model wants.
    fn columns(&self) -> usize {
        let classes = self.classes.len().max(1);
        let bias = usize::from(self.spec.bias);
        match self.spec.model.as_str() {
            "softmax" => self.x.len() / classes - bias,
            "two-layer" => (self.x.len() - classes * (self.spec.hidden + 1)) / self.spec.hidden - 1 - bias,
            _ => self.x.len() - bias,
        }
    }

    /// Rows labelled as the model's were.
    fn rows(&self, data: &str) -> Result<DataSet> {
        let set = assemble::raw_data_set(data, Some(self.columns()))?;
        let set = assemble::label(set, &self.spec, (!self.classes.is_empty()).then_some(&self.classes))?;
        if set.dim() != self.columns() + usize::from(self.spec.bias) {
            return Err(anyhow!("the model has {} columns and {data} has {}", self.columns(), set.dim()));
        }
        Ok(set)
    }

    /// A score a class for each row; one score for binary models.
    fn predictions(&self, set: &DataSet) -> Vec<f64> {
        let dim = set.dim();
        let most = |scores: Vec<f64>| {
            let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0);
            best as f64
        };
        (0..set.rows())
            .map(|i| match self.spec.model.as_str() {
                "softmax" => most(self.x.chunks_exact(dim).map(|x| set.matrix.dot(i, x)).collect()),
                "two-layer" => {
                    let (hidden, classes) = (self.spec.hidden, self.classes.len());
                    let (w1, rest) = self.x.split_at(hidden * dim);
                    let (b1, rest) = rest.split_at(hidden);
                    let (w2, b2) = rest.split_at(classes * hidden);
                    let units: Vec<f64> =
                        (0..hidden).map(|k| (set.matrix.dot(i, &w1[k * dim..(k + 1) * dim]) + b1[k]).tanh()).collect();
                    let score =
                        |c: usize| corewire_optim::vector::dot(&w2[c * hidden..(c + 1) * hidden], &units) + b2[c];
                    most((0..classes).map(score).collect())
                }
                _ => set.matrix.dot(i, &self.x),
            })
            .collect()
    }

    /// The share of rows that are right: the class, or the sign.
    fn accuracy(&self, set: &DataSet) -> f64 {
        let binary = self.classes.is_empty();
        let right = |(prediction, label): (&f64, &f64)| {
            if binary { (*prediction >= 0.0) == (*label >= 0.0) } else { prediction == label }
        };
        let predictions = self.predictions(set);
        let count = predictions.iter().zip(&set.labels).filter(|&pair| right(pair)).count();
        count as f64 / set.rows().max(1) as f64
    }

    /// The mean loss of the rows, without regulariser.
    fn loss(&self, set: &DataSet) -> f64 {
        let weight = 1.0 / set.rows().max(1) as f64;
        let linear = |loss| Linear::new(set.matrix.clone(), set.labels.clone(), loss, weight, 0.0).value(&self.x);
        match self.spec.model.as_str() {
            "ridge" => linear(Loss::Ridge),
            "softmax" => linear(Loss::Softmax { classes: self.classes.len() }),
            "two-layer" => {
                let labels = set.labels.iter().map(|&label| label as usize).collect();
                TwoLayer::new(set.matrix.clone(), labels, self.spec.hidden, self.classes.len(), weight, 0.0)
                    .value(&self.x)
            }
            _ => linear(Loss::Logistic),
        }
    }
}

/// The accuracy on the job's held-out rows, if it names some.
pub fn held_out(assembled: &Assembled, finish: &Finish) -> Result<Option<f64>> {
    let spec = &assembled.job.problem;
    let Some(path) = &spec.test else { return Ok(None) };
    let classes = classes(spec)?.split_whitespace().map(|class| class.parse()).collect::<Result<Vec<f64>, _>>()?;
    let trained = Trained { x: finish.iterate.clone(), spec: spec.clone(), classes };
    let set = trained.rows(path)?;
    Ok(Some(trained.accuracy(&set)))
}

/// `corewire evaluate`.
pub fn evaluate(arguments: &Arguments) -> Result<()> {
    let trained = Trained::read(&arguments.model)?;
    let set = trained.rows(&arguments.data)?;
    let (accuracy, loss) = (trained.accuracy(&set), trained.loss(&set));
    match arguments.json {
        true => println!("{}", serde_json::json!({ "rows": set.rows(), "accuracy": accuracy, "loss": loss })),
        false => println!("{} rows: {:.2} % right, mean loss {loss:.6}", set.rows(), 100.0 * accuracy),
    }
    Ok(())
}

/// `corewire predict`.
pub fn predict(arguments: &Arguments) -> Result<()> {
    let trained = Trained::read(&arguments.model)?;
    let set = trained.rows(&arguments.data)?;
    let mut text = String::new();
    for prediction in trained.predictions(&set) {
        let said = trained.classes.get(prediction as usize).filter(|_| !trained.classes.is_empty());
        let said = said.copied().unwrap_or(prediction);
        match arguments.json {
            true => text += &format!("{}\n", serde_json::json!({ "prediction": said })),
            false => text += &format!("{said}\n"),
        }
    }
    print!("{text}");
    Ok(())
}
