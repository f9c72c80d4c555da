//! From rows and a model to one objective a machine: all rows in one place and shared out, or one machine's own, or a synthetic quadratic.

use std::sync::Arc;

use corewire_data::shard::{self, Split};
use corewire_data::{DataSet, Matrix};
use corewire_nn::{Architecture, Network};
use corewire_sketch::{CommonRandomness, Purpose};

use crate::layout::Layout;
use crate::objective::{Layered, Linear, Loss, Objective, Quadratic, TwoLayer};
use crate::proximal::Proximal;

/// What is fitted to the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Model {
    /// Squared loss.
    Ridge,
    /// Logistic loss on labels +-1.
    Logistic,
    /// Cross entropy over all classes.
    Softmax,
    /// Logistic loss with the non-convex regulariser lambda sum x^2/(1 + x^2).
    LogisticNonconvex {
        /// lambda.
        lambda: f64,
    },
    /// A two-layer network.
    TwoLayer {
        /// Hidden units.
        hidden: usize,
    },
    /// A network of `corewire-nn`.
    Network {
        /// Which.
        architecture: Architecture,
        /// Whether pictures of mini-batches are cut out at random places, and mirrored.
        augment: bool,
    },
}

impl Model {
    /// Whether labels are indices of classes.
    pub fn has_classes(self) -> bool {
        matches!(self, Self::Softmax | Self::TwoLayer { .. } | Self::Network { .. })
    }

    /// How many coordinates it has for so many columns and classes; more than can be counted are the most that can.
    pub fn coordinates(self, columns: usize, classes: usize) -> usize {
        match self {
            Self::Softmax => columns.saturating_mul(classes),
            Self::TwoLayer { hidden } => TwoLayer::parameters(columns, hidden, classes),
            Self::Network { architecture, .. } => {
                Network::new(architecture, columns, classes).map_or(0, |network| network.dim())
            }
            _ => columns,
        }
    }

    /// How many numbers its batch norms keep of rows of so many columns.
    pub fn statistics(self, columns: usize, classes: usize) -> usize {
        let Self::Network { architecture, .. } = self else { return 0 };
        let network = Network::new(architecture, columns, classes);
        network.map_or(0, |network| network.kept().iter().map(|tensor| tensor.len()).sum())
    }

    /// Whether it is trained by mini-batches and rates, and not by the steps of a theory.
    pub fn is_network(self) -> bool {
        matches!(self, Self::Network { .. })
    }

    /// The network of such rows.
    ///
    /// # Panics
    /// If it is none, or no rows for it: whoever reads them asks before.
    pub(crate) fn network(self, columns: usize, classes: usize) -> Network {
        let Self::Network { architecture, .. } = self else { panic!("a linear model has no layers") };
        Network::new(architecture, columns, classes).expect("rows were checked when they were read")
    }
}

/// A model and its regularisers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelSpec {
    /// What is fitted.
    pub model: Model,
    /// How many classes there are, where labels are classes.
    pub classes: usize,
    /// l2.
    pub alpha: f64,
    /// An l1 term and bounds.
    pub proximal: Proximal,
}

enum Shares {
    /// All rows, and which machine has which of them.
    Pooled { data: Arc<DataSet>, shards: Vec<Vec<usize>> },
    /// The rows of this machine alone.
    Site { rank: usize, data: DataSet },
    /// The same diagonal for all machines, and linear terms that cancel.
    Quadratic { eigenvalues: Vec<f64>, randomness: Box<CommonRandomness> },
}

/// A problem, divided among machines.
pub struct Problem {
    shares: Shares,
    spec: ModelSpec,
    machines: usize,
    /// Rows of all machines.
    rows: usize,
    /// What they weigh together: as much as there are, unless rows have weights.
    weight: f64,
    start: Vec<f64>,
}

impl Problem {
    /// A model of the rows of `data`, whose labels must suit it: any number for ridge, +-1 for logistic, class indices for the others.
    ///
    /// # Panics
    /// If there is no row, no machine, or a label does not suit the model.
    pub fn rows(
        data: impl Into<Arc<DataSet>>,
        spec: ModelSpec,
        machines: usize,
        split: Split,
        randomness: &CommonRandomness,
    ) -> Self {
        let data = data.into();
        assert!(data.rows() > 0, "a problem has rows");
        let mut words = randomness.words(Purpose::Shuffle, u64::MAX, 0);
        let shards = shard::shards(&data.labels, machines, split, || words.next_u64());
        let (rows, start) = (data.rows(), start(&spec, data.dim(), randomness));
        let weight = total_weight(&data);
        Self { shares: Shares::Pooled { data, shards }, spec, machines, rows, weight, start }
    }

    /// Machine `rank`'s rows of a problem with `rows` rows on all machines, which weigh `weight` together.
    ///
    /// # Panics
    /// If a label does not suit the model.
    pub fn site(
        data: DataSet,
        spec: ModelSpec,
        rank: usize,
        machines: usize,
        rows: usize,
        weight: f64,
        randomness: &CommonRandomness,
    ) -> Self {
        let start = start(&spec, data.dim(), randomness);
        Self { shares: Shares::Site { rank, data }, spec, machines, rows, weight, start }
    }

    /// The power law: eigenvalues i^-decay + alpha, start at ones, machines whose linear terms differ and cancel.
    pub fn power_law(dim: usize, decay: f64, alpha: f64, machines: usize, randomness: &CommonRandomness) -> Self {
        Self::quadratic(Quadratic::power_law(dim, decay, alpha), machines, randomness)
    }

    /// Any diagonal quadratic, likewise.
    pub fn quadratic(eigenvalues: Vec<f64>, machines: usize, randomness: &CommonRandomness) -> Self {
        let start = vec![1.0; eigenvalues.len()];
        let spec = ModelSpec { model: Model::Ridge, classes: 0, alpha: 0.0, proximal: Proximal::NONE };
        let shares = Shares::Quadratic { eigenvalues, randomness: Box::new(randomness.clone()) };
        Self { shares, spec, machines, rows: machines, weight: machines as f64, start }
    }

    /// x0.
    pub fn start(&self) -> &[f64] {
        &self.start
    }

    /// The most rows that a machine has, where they are known here.
    pub fn largest_share(&self) -> Option<usize> {
        match &self.shares {
            Shares::Pooled { shards, .. } => shards.iter().map(Vec::len).max(),
            Shares::Site { .. } | Shares::Quadratic { .. } => None,
        }
    }

    /// Number of coordinates.
    pub fn dim(&self) -> usize {
        self.start.len()
    }

    /// How many machines share it.
    pub fn machines(&self) -> usize {
        self.machines
    }

    /// Rows of data on all machines.
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Model and regularisers.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// A digest of machine `rank`'s rows, where they are known here.
    pub fn share_digest(&self, rank: usize) -> Option<String> {
        match &self.shares {
            Shares::Pooled { data, shards } => Some(rows_digest(data, shards[rank].iter().copied())),
            Shares::Site { rank: own, data } => (*own == rank).then(|| rows_digest(data, 0..data.rows())),
            Shares::Quadratic { eigenvalues, .. } => {
                let mut hasher = blake3::Hasher::new();
                hasher.update(&corewire_comm::numbers::to_bytes(eigenvalues)).update(&(rank as u64).to_le_bytes());
                Some(short(&hasher))
            }
        }
    }

    /// Which of the rows of [`Self::data`] a machine has, where they are here.
    pub fn share(&self, rank: usize) -> Option<&[usize]> {
        match &self.shares {
            Shares::Pooled { shards, .. } => Some(&shards[rank]),
            _ => None,
        }
    }

    /// The first rows of a machine, at most so many.
    ///
    /// # Panics
    /// If this is another machine's problem.
    pub fn examples(&self, rank: usize, most: usize) -> DataSet {
        match &self.shares {
            Shares::Pooled { data, shards } => data.select(&shards[rank][..shards[rank].len().min(most)]),
            Shares::Site { rank: own, data } => {
                assert_eq!(*own, rank, "a site has its own rows only");
                data.select(&(0..data.rows().min(most)).collect::<Vec<_>>())
            }
            Shares::Quadratic { .. } => DataSet::new("quadratic", Matrix::dense(Vec::new(), 1), Vec::new()),
        }
    }

    /// What all rows weigh together.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The rows of all machines, where they are here.
    pub fn data(&self) -> Option<&Arc<DataSet>> {
        match &self.shares {
            Shares::Pooled { data, .. } => Some(data),
            _ => None,
        }
    }

    /// f* where it is known by construction.
    pub fn known_optimum(&self) -> Option<f64> {
        matches!(self.shares, Shares::Quadratic { .. }).then_some(0.0)
    }

    /// The eigenvalues where they are known by construction.
    pub fn known_eigenvalues(&self) -> Option<&[f64]> {
        match &self.shares {
            Shares::Quadratic { eigenvalues, .. } => Some(eigenvalues),
            _ => None,
        }
    }

    /// Machine `rank`'s share.
    ///
    /// # Panics
    /// If this is another machine's problem.
    pub fn objective(&self, rank: usize) -> Box<dyn Objective> {
        let n = self.machines as f64;
        match &self.shares {
            Shares::Pooled { data, shards } => self.on_rows(data.select(&shards[rank]), n),
            Shares::Site { rank: own, data } => {
                assert_eq!(*own, rank, "a site has its own rows only");
                self.on_rows(data.clone(), n)
            }
            Shares::Quadratic { eigenvalues, randomness } => {
                let linear = cancelling_term(eigenvalues.len(), rank, self.machines, randomness);
                Box::new(Quadratic::new(eigenvalues.clone(), linear))
            }
        }
    }

    /// f itself, for evaluation and for f*, where all rows are here.
    pub fn pooled(&self) -> Option<Box<dyn Objective>> {
        match &self.shares {
            Shares::Pooled { data, .. } => Some(self.on_rows(DataSet::clone(data), 1.0)),
            Shares::Site { .. } => None,
            Shares::Quadratic { eigenvalues, .. } => {
                Some(Box::new(Quadratic::new(eigenvalues.clone(), vec![0.0; eigenvalues.len()])))
            }
        }
    }

    /// The layout of the coordinates.
    pub fn layout(&self) -> Layout {
        match &self.shares {
            Shares::Pooled { data, .. } => self.on_rows(data.select(&[]), 1.0).layout(),
            Shares::Site { data, .. } => self.on_rows(data.select(&[]), 1.0).layout(),
            Shares::Quadratic { eigenvalues, .. } => Layout::vector(eigenvalues.len()),
        }
    }

    fn on_rows(&self, data: DataSet, machines: f64) -> Box<dyn Objective> {
        let ModelSpec { model, classes, alpha, proximal } = self.spec;
        let weight = machines / self.weight;
        let linear = |data: DataSet, loss| {
            Linear::new(data.matrix, data.labels, loss, weight, alpha).with_proximal(proximal).with_counts(data.weights)
        };
        match model {
            Model::Ridge => Box::new(linear(data, Loss::Ridge)),
            Model::Logistic => Box::new(linear(data, Loss::Logistic)),
            Model::Softmax => Box::new(linear(data, Loss::Softmax { classes })),
            Model::LogisticNonconvex { lambda } => Box::new(linear(data, Loss::Logistic).with_nonconvex(lambda)),
            Model::TwoLayer { hidden } => {
                assert!(data.weights.is_empty(), "a network takes all rows alike");
                let labels = data.labels.into_iter().map(|label| label as usize).collect();
                Box::new(TwoLayer::new(data.matrix, labels, hidden, classes, weight, alpha))
            }
            Model::Network { augment, .. } => {
                assert!(data.weights.is_empty(), "a network takes all rows alike");
                let network = Arc::new(model.network(data.dim(), classes));
                let labels = data.labels.into_iter().map(|label| label as usize).collect();
                Box::new(Layered::new(network, &data.matrix, labels, weight, alpha, augment))
            }
        }
    }
}

/// What rows weigh together.
pub fn total_weight(data: &DataSet) -> f64 {
    if data.weights.is_empty() { data.rows() as f64 } else { data.weights.iter().sum() }
}

/// A digest of rows, labels and weights, whatever file they came from.
pub fn rows_digest(data: &DataSet, rows: impl Iterator<Item = usize>) -> String {
    let mut hasher = blake3::Hasher::new();
    rows.for_each(|row| add_row(data, row, &mut hasher));
    short(&hasher)
}

fn add_row(data: &DataSet, row: usize, hasher: &mut blake3::Hasher) {
    hasher.update(&data.labels[row].to_le_bytes());
    // Zeros are left out: dense and sparse rows with the same entries are the same.
    for (column, value) in data.matrix.row(row).entries().filter(|entry| entry.1 != 0.0) {
        hasher.update(&(column as u32).to_le_bytes()).update(&value.to_le_bytes());
    }
    if let Some(weight) = data.weights.get(row) {
        hasher.update(&[0xfe; 4]).update(&weight.to_le_bytes());
    }
    hasher.update(&[0xff; 4]);
}

fn short(hasher: &blake3::Hasher) -> String {
    hasher.finalize().to_hex()[..16].to_owned()
}

fn start(spec: &ModelSpec, columns: usize, randomness: &CommonRandomness) -> Vec<f64> {
    match spec.model {
        Model::TwoLayer { hidden } => two_layer_start(columns, hidden, spec.classes, randomness),
        Model::Network { .. } => {
            let mut words = randomness.words(Purpose::Start, 0, 0);
            let start = spec.model.network(columns, spec.classes).start(|| words.next_unit());
            start.into_iter().map(f64::from).collect()
        }
        model => vec![spec.proximal.clamp(0.0); model.coordinates(columns, spec.classes)],
    }
}

/// Machine `rank`'s linear term: a random vector less the next machine's, so that all of them cancel exactly in the mean.
fn cancelling_term(dim: usize, rank: usize, machines: usize, randomness: &CommonRandomness) -> Vec<f64> {
    let draw = |rank: usize| {
        let mut words = randomness.words(Purpose::Synthetic, 0, rank as u32);
        (0..dim).map(|_| 2.0 * words.next_unit() - 1.0).collect::<Vec<f64>>()
    };
    if machines == 1 {
        return vec![0.0; dim];
    }
    let (mine, next) = (draw(rank), draw((rank + 1) % machines));
    mine.into_iter().zip(next).map(|(mine, next)| mine - next).collect()
}

/// Weights of variance 1/fan-in, biases zero.
fn two_layer_start(inputs: usize, hidden: usize, classes: usize, randomness: &CommonRandomness) -> Vec<f64> {
    let mut words = randomness.words(Purpose::Start, 0, 0);
    let mut start = Vec::with_capacity(TwoLayer::parameters(inputs, hidden, classes));
    let mut layer = |rows: usize, columns: usize| {
        let spread = (3.0 / columns as f64).sqrt();
        start.extend((0..rows * columns).map(|_| spread * (2.0 * words.next_unit() - 1.0)));
        start.extend(std::iter::repeat_n(0.0, rows));
    };
    layer(hidden, inputs);
    layer(classes, hidden);
    start
}
