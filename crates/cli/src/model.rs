//! A model's file: the coordinates, and everything that is needed to use them on other rows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use corewire_data::{DataSet, Labels, Normalise, Preparation, ReadOptions, Scaling, Schema};
use corewire_journal::{self as journal, About};
use corewire_optim::problem::Model;
use corewire_optim::run::Finish;

use crate::job::{self, DataSource, ProblemSpec};
use crate::memory;
use crate::rows;
use crate::session::Prepared;

/// Writes the model of a finished run; `run` says which it is.
pub fn write(path: &Path, run: &About, prepared: &Prepared, finish: &Finish) -> Result<()> {
    let preparation = &prepared.preparation;
    let Preparation { schema, labels, normalise, scaling, intercept } = preparation;
    let mut vectors = BTreeMap::from([("x".to_owned(), finish.iterate.clone())]);
    let mut keep = |name: &str, values: &[f64]| {
        vectors.insert(name.to_owned(), values.to_vec());
    };
    let coding = match labels {
        Labels::Numbers { centre } => {
            keep("centre", &[*centre]);
            "numbers"
        }
        Labels::Parity => "parity",
        Labels::Sides { negative, positive } => {
            keep("negative", negative);
            keep("positive", positive);
            "sides"
        }
        Labels::Classes(classes) => {
            keep("classes", classes);
            "classes"
        }
    };
    if let Some(Scaling { shifts, scales }) = scaling {
        keep("shifts", shifts);
        keep("scales", scales);
    }
    let mut about = run.clone();
    about.extend(
        [
            ("labels", coding.to_owned()),
            ("normalise", normalise.name().to_owned()),
            ("intercept", intercept.to_string()),
            ("rounds", finish.last.round.to_string()),
            ("digest", format!("{:016x}", finish.digest)),
            ("class_names", serde_json::to_string(&preparation.class_names())?),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    // The scale of a row of unit norm is its own, and a network has no coefficients.
    let network = prepared.model.is_network() || matches!(prepared.model, Model::TwoLayer { .. });
    if prepared.model.is_network() {
        keep("statistics", &prepared.statistics(&finish.iterate));
    }
    if !network && *normalise != Normalise::Unit {
        let own = Scores::of(preparation, &finish.iterate).in_own_units(preparation);
        keep("coefficients", &own.coefficients.concat());
        keep("intercepts", &own.intercepts);
    }
    if let Some(schema) = schema {
        about.insert("columns".to_owned(), serde_json::to_string(&**schema)?);
        about.insert("features".to_owned(), serde_json::to_string(&schema.feature_names())?);
    }
    Ok(journal::write_model(path, &(vectors, about))?)
}

/// A linear model: a score is an intercept and the sum of coefficients times features.
pub struct Scores {
    /// For every class that has a score.
    pub coefficients: Vec<Vec<f64>>,
    /// Likewise.
    pub intercepts: Vec<f64>,
}

impl Scores {
    /// Of a linear model, for features as it was trained on them.
    pub fn of(preparation: &Preparation, x: &[f64]) -> Self {
        let blocks = if let Labels::Classes(classes) = &preparation.labels { classes.len().max(1) } else { 1 };
        let centre = if let Labels::Numbers { centre } = preparation.labels { centre } else { 0.0 };
        let split = |block: &[f64]| match (preparation.intercept, block.split_last()) {
            (true, Some((own, weights))) => (weights.to_vec(), own + centre),
            _ => (block.to_vec(), centre),
        };
        let (coefficients, intercepts) = x.chunks_exact(x.len() / blocks).map(split).unzip();
        Self { coefficients, intercepts }
    }

    /// The same for features as they are in the file; rows of unit norm still have to be made such.
    pub fn in_own_units(mut self, preparation: &Preparation) -> Self {
        if let Some(Scaling { shifts, scales }) = &preparation.scaling {
            for (weights, intercept) in self.coefficients.iter_mut().zip(&mut self.intercepts) {
                for (j, weight) in weights.iter_mut().enumerate() {
                    *weight /= scales[j];
                    *intercept -= *weight * shifts[j];
                }
            }
        }
        self
    }
}

/// A model with what is needed to use it.
pub struct Trained {
    /// The coordinates.
    pub x: Vec<f64>,
    /// What was fitted.
    pub model: Model,
    /// What was done to its rows.
    pub preparation: Preparation,
    /// How many columns its rows had.
    pub columns: usize,
    /// What batch norms know of the rows of training.
    pub statistics: Vec<f64>,
    spec: ProblemSpec,
}

impl Trained {
    /// Reads a model.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        memory::plain_file(path, memory::share() / 8).with_context(|| format!("cannot read the model {shown}"))?;
        let (mut vectors, about) = journal::read_model(path)?;
        let word = |key: &str| {
            about
                .get(key)
                .ok_or_else(|| anyhow!("{shown} does not say its `{key}`; it was not written by `corewire run`"))
        };
        let spec = job::from_text(word("job")?, path.parent().unwrap_or(Path::new("")), &[])?.problem;
        if let Some((name, _)) = vectors.iter().find(|(_, vector)| !vector.iter().all(|value| value.is_finite())) {
            bail!("{shown}: the numbers of its `{name}` are not all finite");
        }
        let mut vector = |name: &str| vectors.remove(name).ok_or_else(|| anyhow!("{shown} has no `{name}`"));
        let x = vector("x")?;
        let schema = match about.get("columns") {
            None => None,
            Some(text) => {
                let schema: Schema =
                    serde_json::from_str(text).with_context(|| format!("{shown}: its columns are not understood"))?;
                Some(Arc::new(schema))
            }
        };
        let labels = match word("labels")?.as_str() {
            "numbers" => {
                let centre = vector("centre")?.first().copied().filter(|centre| centre.is_finite());
                Labels::Numbers { centre: centre.ok_or_else(|| anyhow!("{shown}: its `centre` is not a number"))? }
            }
            "parity" => Labels::Parity,
            "sides" => Labels::Sides { negative: vector("negative")?, positive: vector("positive")? },
            "classes" => Labels::Classes(vector("classes")?),
            other => bail!("{shown}: labels are coded as `{other}`, which this version does not know"),
        };
        let normalise = match word("normalise")?.as_str() {
            "standard" => Normalise::Standard,
            "channels" => Normalise::Channels,
            "unit" => Normalise::Unit,
            _ => Normalise::None,
        };
        let scaling = match normalise {
            Normalise::Standard | Normalise::Channels => {
                Some(Scaling { shifts: vector("shifts")?, scales: vector("scales")? })
            }
            _ => None,
        };
        let intercept = word("intercept")? == "true";
        let model = spec.model();
        // The job says how the rows were prepared, and so does the rest: they must say the same.
        let coded = matches!(labels, Labels::Classes(_));
        for (field, fits) in [
            ("normalise", *word("normalise")? == spec.normalise.name()),
            ("intercept", *word("intercept")? == spec.intercept.to_string()),
            (
                "labels",
                coded == model.has_classes() && (matches!(labels, Labels::Numbers { .. }) != spec.binary || coded),
            ),
        ] {
            if !fits {
                bail!("{shown}: its `{field}` is {}, which its `job` contradicts", word(field)?);
            }
        }
        if let Some(scaling) = scaling.as_ref().filter(|scaling| scaling.scales.contains(&0.0)) {
            bail!("{shown}: {} of its `scales` are 0", scaling.scales.iter().filter(|scale| **scale == 0.0).count());
        }
        let classes = if let Labels::Classes(classes) = &labels { classes.len() } else { 0 };
        let statistics = if model.is_network() { vector("statistics")? } else { Vec::new() };
        let columns = match model {
            // Pictures of any size may have as many coordinates: the scaling tells the columns.
            Model::Network { .. } => scaling.as_ref().map(|scaling| scaling.shifts.len()).filter(|&columns| {
                statistics.len() == model.statistics(columns, classes) && model.coordinates(columns, classes) == x.len()
            }),
            _ => columns(model, classes, x.len(), intercept),
        };
        let columns = columns.filter(|&columns| {
            scaling.as_ref().is_none_or(|scaling| scaling.shifts.len() == columns && scaling.scales.len() == columns)
                && schema.as_ref().is_none_or(|schema| schema.dim() == columns)
        });
        let columns = columns.ok_or_else(|| anyhow!("{shown}: {} coordinates do not fit its model", x.len()))?;
        let preparation = Preparation { schema, labels, normalise, scaling, intercept };
        Ok(Self { x, model, preparation, columns, statistics, spec })
    }

    /// How many classes it tells apart, where it has a score per class.
    pub fn classes(&self) -> usize {
        if let Labels::Classes(classes) = &self.preparation.labels { classes.len() } else { 0 }
    }

    /// Rows of a file as numbers; the labels are the file's. With `unlabelled` there may be none.
    pub fn rows(&self, data: &str, unlabelled: bool) -> Result<DataSet> {
        let source = if data == "digits" { DataSource::Digits } else { DataSource::File(data.into()) };
        let schema = self.preparation.schema.clone();
        let dim = schema.is_none().then_some(self.columns);
        let options = ReadOptions { dim, schema, unlabelled, ..memory::read_options(&self.spec.read, memory::share()) };
        let (set, unknown) = self.preparation.encode(rows::read_rows(&source, &options)?)?;
        rows::tell_unknown(&unknown, "rows");
        // The same file with the same limit is the rows of training.
        let set = match self.spec.rows.filter(|_| is_same(&source, &self.spec.data)) {
            Some(rows) => set.first_rows(rows),
            None => set,
        };
        if set.dim() != self.columns {
            bail!("the model has {} columns and {data} has {}", self.columns, set.dim());
        }
        Ok(set)
    }
}

/// Whether two names mean the same rows.
fn is_same(one: &DataSource, other: &DataSource) -> bool {
    match (one, other) {
        (DataSource::File(one), DataSource::File(other)) => {
            one.canonicalize().ok().is_some_and(|one| other.canonicalize().is_ok_and(|other| one == other))
        }
        (one, other) => one == other,
    }
}

fn columns(model: Model, classes: usize, coordinates: usize, intercept: bool) -> Option<usize> {
    let columns = match model {
        Model::Softmax => coordinates.checked_div(classes)?,
        Model::TwoLayer { hidden } => coordinates
            .checked_sub(classes.checked_mul(hidden.checked_add(1)?)?)?
            .checked_div(hidden)?
            .checked_sub(1)?,
        _ => coordinates,
    };
    let columns = columns.checked_sub(usize::from(intercept))?;
    (columns > 0 && model.coordinates(columns + usize::from(intercept), classes) == coordinates).then_some(columns)
}
