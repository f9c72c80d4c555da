//! `corewire export`: a model for other programs: a linear one as JSON with the names of scikit-learn and as ONNX, a network as the
//! tensors of PyTorch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use corewire_data::{Normalise, Role, Scaling};
use corewire_journal::Tensor;
use corewire_nn::Network;
use corewire_optim::problem::Model;
use serde_json::{Value, json};

use crate::model::{Scores, Trained};
use crate::onnx::{Attribute, Graph, Kind};
use crate::out;

/// Arguments of `corewire export`.
#[derive(clap::Args)]
pub struct Arguments {
    /// A model that `run` or `replay` wrote.
    model: PathBuf,
    /// Writes JSON: coef_, intercept_, classes_, and what becomes of every column.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["onnx", "pytorch"])]
    sklearn: Option<PathBuf>,
    /// Writes ONNX: one input per column of CSV, or one for all features.
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,
    /// Writes the tensors of a network under PyTorch's names, as safetensors.
    #[arg(long, value_name = "FILE")]
    pytorch: Option<PathBuf>,
    /// One JSON object at the end.
    #[arg(long)]
    json: bool,
}

/// `corewire export`.
pub fn run(arguments: &Arguments) -> Result<()> {
    let trained = Trained::read(&arguments.model)?;
    let linear = !trained.model.is_network() && !matches!(trained.model, Model::TwoLayer { .. });
    if !linear && (arguments.sklearn.is_some() || arguments.onnx.is_some()) {
        bail!("`--sklearn` and `--onnx` write linear models, and {} holds a network", arguments.model.display());
    }
    if !trained.model.is_network() && arguments.pytorch.is_some() {
        bail!("`--pytorch` writes networks, and {} holds none of them", arguments.model.display());
    }
    let mut written = Vec::new();
    let mut write = |path: &Path, bytes: Vec<u8>| -> Result<()> {
        std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path.display().to_string());
        Ok(())
    };
    if let Some(path) = &arguments.sklearn {
        write(path, format!("{:#}\n", as_json(&trained)).into_bytes())?;
    }
    if let Some(path) = &arguments.onnx {
        write(path, as_onnx(&trained))?;
    }
    if let Some(path) = &arguments.pytorch {
        write_pytorch(&trained, path)?;
        written.push(path.display().to_string());
    }
    match arguments.json {
        true => out::json(&json!({ "features": trained.columns, "files": written })),
        false => out::line(&format!("the model is in {}", written.join(" and "))),
    }
}

/// Parameters, statistics of batch norms, and the counts that PyTorch keeps beside them.
fn write_pytorch(trained: &Trained, path: &Path) -> Result<()> {
    let Model::Network { architecture, .. } = trained.model else { bail!("the model is no network") };
    let network = Network::new(architecture, trained.columns, trained.classes()).map_err(|error| anyhow!(error))?;
    let mut tensors = BTreeMap::new();
    for (named, numbers) in [(network.tensors(), &trained.x), (network.kept(), &trained.statistics)] {
        let mut rest = numbers.iter().map(|&number| number as f32);
        for tensor in named {
            let values = rest.by_ref().take(tensor.len()).collect();
            tensors.insert(tensor.name.clone(), Tensor { shape: tensor.shape.clone(), values });
        }
    }
    let norms = network.kept().iter().filter_map(|tensor| tensor.name.strip_suffix("running_mean"));
    let counts: Vec<String> = norms.map(|norm| format!("{norm}num_batches_tracked")).collect();
    Ok(corewire_journal::write_tensors(path, &tensors, &counts)?)
}

fn as_json(trained: &Trained) -> Value {
    let preparation = &trained.preparation;
    let linear = Scores::of(preparation, &trained.x).in_own_units(preparation);
    let names = preparation.class_names();
    let column = |(name, role): &(String, Role)| match role {
        Role::Number { fill, indicator } => {
            Some(json!({ "name": name, "kind": "number", "fill": fill, "indicator": indicator }))
        }
        Role::Category(words) => Some(json!({ "name": name, "kind": "category", "words": words })),
        Role::Dropped | Role::Weight | Role::Label(_) => None,
    };
    json!({
        "coef_": linear.coefficients,
        "intercept_": linear.intercepts,
        "classes_": (!names.is_empty()).then_some(names),
        "feature_names_in_": preparation.schema.as_ref().map(|schema| schema.feature_names()),
        "columns": preparation.schema.as_ref().map(|schema| schema.columns.iter().filter_map(column).collect::<Vec<_>>()),
        "rows_of_unit_norm": preparation.normalise == Normalise::Unit,
        "probabilities": match trained.model {
            Model::Ridge => "none",
            Model::Softmax => "softmax",
            _ => "logistic",
        },
    })
}

/// Columns are doubles until they are scaled: 32 bits, which is what the linear operators have, would lose a mean's last digits.
fn as_onnx(trained: &Trained) -> Vec<u8> {
    let preparation = &trained.preparation;
    let mut graph = Graph::default();
    let mut features = match &preparation.schema {
        None => graph.input("features", Kind::Double, trained.columns),
        Some(schema) => {
            let mut parts = Vec::new();
            for (name, role) in &schema.columns {
                add_column(&mut graph, name, role, &mut parts);
            }
            graph.node("Concat", "", &parts, "features", vec![("axis", Attribute::Int(1))])
        }
    };
    if let Some(Scaling { shifts, scales }) = &preparation.scaling {
        let (shifts, scales) = (graph.constant("shifts", shifts), graph.constant("scales", scales));
        let centred = graph.node("Sub", "", &[features, shifts], "centred features", Vec::new());
        features = graph.node("Div", "", &[centred, scales], "scaled features", Vec::new());
    }
    features = cast(&mut graph, features, Kind::Float, "features of 32 bits");
    if preparation.normalise == Normalise::Unit {
        let norm = vec![("norm", Attribute::Text("L2".to_owned()))];
        features = graph.node("Normalizer", ML, &[features], "unit rows", norm);
    }
    let Scores { mut coefficients, mut intercepts } = Scores::of(preparation, &trained.x);
    let names = preparation.class_names();
    if names.is_empty() {
        let attributes = vec![
            ("coefficients", floats(&coefficients.concat())),
            ("intercepts", floats(&intercepts)),
            ("targets", Attribute::Int(1)),
        ];
        let value = graph.node("LinearRegressor", ML, &[features], "value", attributes);
        graph.output(&value, Kind::Float, 1);
        return graph.to_bytes();
    }
    if coefficients.len() == 1 {
        // A score per side: the negative side's is the other's opposite.
        coefficients.insert(0, coefficients[0].iter().map(|weight| -weight).collect());
        intercepts.insert(0, -intercepts[0]);
    }
    let transform = match trained.model {
        Model::Ridge => "NONE",
        Model::Softmax => "SOFTMAX",
        _ => "LOGISTIC",
    };
    let attributes = vec![
        ("classlabels_strings", Attribute::Texts(names.clone())),
        ("coefficients", floats(&coefficients.concat())),
        ("intercepts", floats(&intercepts)),
        ("multi_class", Attribute::Int(i64::from(trained.model == Model::Softmax))),
        ("post_transform", Attribute::Text(transform.to_owned())),
    ];
    graph.node_with_outputs("LinearClassifier", ML, &[features], &["label", "probabilities"], attributes);
    graph.output("label", Kind::Text, 0);
    graph.output("probabilities", Kind::Float, names.len());
    graph.to_bytes()
}

/// The operators of classical machine learning.
const ML: &str = "ai.onnx.ml";

fn floats(values: &[f64]) -> Attribute {
    Attribute::Floats(values.iter().map(|&value| value as f32).collect())
}

fn cast(graph: &mut Graph, value: String, kind: Kind, name: &str) -> String {
    graph.node("Cast", "", &[value], name, vec![("to", Attribute::Int(kind as i64))])
}

/// What becomes of one column; `parts` gets the names of its features.
fn add_column(graph: &mut Graph, name: &str, role: &Role, parts: &mut Vec<String>) {
    match role {
        Role::Dropped | Role::Weight | Role::Label(_) => {}
        Role::Number { fill, indicator } => {
            let cells = graph.input(name, Kind::Double, 1);
            let Some(fill) = fill else { return parts.push(cells) };
            let gaps = graph.node("IsNaN", "", std::slice::from_ref(&cells), &format!("{name} has gaps"), Vec::new());
            let fill = graph.constant(&format!("mean of {name}"), &[*fill]);
            parts.push(graph.node("Where", "", &[gaps.clone(), fill, cells], &format!("{name} filled"), Vec::new()));
            if *indicator {
                parts.push(cast(graph, gaps, Kind::Double, &format!("{name} is missing")));
            }
        }
        Role::Category(words) => {
            let cells = graph.input(name, Kind::Text, 1);
            let attributes = vec![("cats_strings", Attribute::Texts(words.clone())), ("zeros", Attribute::Int(1))];
            let cube = graph.node("OneHotEncoder", ML, &[cells], &format!("{name} by word, deep"), attributes);
            let axis = vec![("axis", Attribute::Int(1))];
            let flat = graph.node("Flatten", "", &[cube], &format!("{name} by word, flat"), axis);
            parts.push(cast(graph, flat, Kind::Double, &format!("{name} by word")));
        }
    }
}
