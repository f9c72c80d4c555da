//! From a data set, a model and a split to one objective a machine, and the pooled one that only evaluation and f* may use.

use corewire_data::DataSet;
use corewire_data::shard::{self, Split};
use corewire_sketch::{CommonRandomness, Purpose};

use crate::objective::{Linear, Loss, Objective, Quadratic, TwoLayer};

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
}

enum Source {
    Rows { data: DataSet, labels: Vec<f64>, classes: usize, model: Model, alpha: f64, l1: f64, shards: Vec<Vec<usize>> },
    Quadratic { eigenvalues: Vec<f64>, machines: usize, randomness: CommonRandomness },
}

/// A problem, divided among machines.
pub struct Problem {
    source: Source,
    start: Vec<f64>,
}

impl Problem {
    /// A model of the rows of `data`, whose labels must suit it: any number for ridge, +-1 for logistic, class indices for the others.
    ///
    /// # Panics
    /// If there is no row, no machine, or a label does not suit the model.
    pub fn rows(
        data: DataSet,
        model: Model,
        alpha: f64,
        l1: f64,
        machines: usize,
        split: Split,
        randomness: &CommonRandomness,
    ) -> Self {
        assert!(data.rows() > 0, "a problem has rows");
        let labels = data.labels.clone();
        let classes = labels.iter().fold(0.0f64, |most, &label| most.max(label)) as usize + 1;
        let mut words = randomness.words(Purpose::Shuffle, u64::MAX, 0);
        let shards = shard::shards(&labels, machines, split, || words.next_u64());
        let start = match model {
            Model::TwoLayer { hidden } => two_layer_start(data.dim(), hidden, classes, randomness),
            Model::Softmax => vec![0.0; data.dim() * classes],
            _ => vec![0.0; data.dim()],
        };
        Self { source: Source::Rows { data, labels, classes, model, alpha, l1, shards }, start }
    }

    /// The power law: eigenvalues i^-decay + alpha, start at ones, machines whose linear terms differ and cancel.
    pub fn power_law(dim: usize, decay: f64, alpha: f64, machines: usize, randomness: &CommonRandomness) -> Self {
        Self::quadratic(Quadratic::power_law(dim, decay, alpha), machines, randomness)
    }

    /// Any diagonal quadratic, likewise.
    pub fn quadratic(eigenvalues: Vec<f64>, machines: usize, randomness: &CommonRandomness) -> Self {
        let start = vec![1.0; eigenvalues.len()];
        Self { source: Source::Quadratic { eigenvalues, machines, randomness: randomness.clone() }, start }
    }

    /// x0.
    pub fn start(&self) -> &[f64] {
        &self.start
    }

    /// Number of coordinates.
    pub fn dim(&self) -> usize {
        self.start.len()
    }

    /// How many machines share it.
    pub fn machines(&self) -> usize {
        match &self.source {
            Source::Rows { shards, .. } => shards.len(),
            Source::Quadratic { machines, .. } => *machines,
        }
    }

    /// Which machine holds which rows, as a digest: machines compare it before they begin.
    pub fn manifest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.dim() as u64).to_le_bytes());
        match &self.source {
            Source::Rows { shards, .. } => {
                for shard in shards {
                    hasher.update(&(shard.len() as u64).to_le_bytes());
                    shard.iter().for_each(|&row| {
                        hasher.update(&(row as u64).to_le_bytes());
                    });
                }
            }
            Source::Quadratic { machines, .. } => {
                hasher.update(&(*machines as u64).to_le_bytes());
            }
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Rows of data in all.
    pub fn row_count(&self) -> usize {
        match &self.source {
            Source::Rows { labels, .. } => labels.len(),
            Source::Quadratic { machines, .. } => *machines,
        }
    }

    /// f* where it is known by construction.
    pub fn known_optimum(&self) -> Option<f64> {
        match &self.source {
            Source::Quadratic { .. } => Some(0.0),
            Source::Rows { .. } => None,
        }
    }

    /// The eigenvalues where they are known by construction.
    pub fn known_eigenvalues(&self) -> Option<&[f64]> {
        match &self.source {
            Source::Quadratic { eigenvalues, .. } => Some(eigenvalues),
            Source::Rows { .. } => None,
        }
    }

    /// Machine `rank`'s share.
    pub fn objective(&self, rank: usize) -> Box<dyn Objective> {
        match &self.source {
            Source::Rows { shards, .. } => self.on_rows(Some(&shards[rank]), shards.len() as f64),
            Source::Quadratic { eigenvalues, machines, randomness } => {
                let linear = cancelling_term(eigenvalues.len(), rank, *machines, randomness);
                Box::new(Quadratic::new(eigenvalues.clone(), linear))
            }
        }
    }

    /// f itself, for evaluation and for f*.
    pub fn pooled(&self) -> Box<dyn Objective> {
        match &self.source {
            Source::Rows { .. } => self.on_rows(None, 1.0),
            Source::Quadratic { eigenvalues, .. } => {
                Box::new(Quadratic::new(eigenvalues.clone(), vec![0.0; eigenvalues.len()]))
            }
        }
    }

    fn on_rows(&self, rows: Option<&[usize]>, machines: f64) -> Box<dyn Objective> {
        let Source::Rows { data, labels, classes, model, alpha, l1, .. } = &self.source else {
            unreachable!("only problems of rows have rows");
        };
        let matrix = rows.map_or_else(|| data.matrix.clone(), |rows| data.matrix.select(rows));
        let labels: Vec<f64> = rows.map_or_else(|| labels.clone(), |rows| rows.iter().map(|&i| labels[i]).collect());
        let weight = machines / data.rows() as f64;
        let linear = |matrix, labels, loss| Linear::new(matrix, labels, loss, weight, *alpha).with_l1(*l1);
        match *model {
            Model::Ridge => Box::new(linear(matrix, labels, Loss::Ridge)),
            Model::Logistic => Box::new(linear(matrix, labels, Loss::Logistic)),
            Model::Softmax => Box::new(linear(matrix, labels, Loss::Softmax { classes: *classes })),
            Model::LogisticNonconvex { lambda } => {
                Box::new(linear(matrix, labels, Loss::Logistic).with_nonconvex(lambda))
            }
            Model::TwoLayer { hidden } => {
                let labels = labels.into_iter().map(|label| label as usize).collect();
                Box::new(TwoLayer::new(matrix, labels, hidden, *classes, weight, *alpha))
            }
        }
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
