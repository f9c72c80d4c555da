//! Networks for pictures: loss, gradient, products with the Hessian and scores of a batch, over one flat vector of parameters with PyTorch's names and order.
//!
//! Nothing here knows of machines, messages or optimisation. A call runs on the thread that makes it and adds in a fixed order, so that it
//! gives the same bits whenever it is repeated on the same kind of CPU.
//!
//! # Layout
//! - [`architecture`]: which networks there are, and the names of their tensors.
//! - `layer`: the layers, forwards and backwards.
//! - `convolution`, `norm`, `pool`: the arithmetic of three of them; `product`: matrix products, by pointers.
//! - `number`: what is computed in. `dual`: numbers with a derivative along. `scratch`: buffers that a thread keeps.
//!
//! ```
//! use corewire_nn::{Architecture, Network};
//! let network = Network::new(Architecture::LeNet, 784, 10)?;
//! assert_eq!(network.dim(), 110_578);
//! assert_eq!(network.tensors()[0].name, "0.weight");
//! # Ok::<(), String>(())
//! ```

pub mod architecture;
mod convolution;
pub mod dual;
mod layer;
mod norm;
mod number;
mod pool;
mod product;
mod scratch;

pub use architecture::{Architecture, Shape, Tensor};
pub use number::Number;

use dual::Dual;
use layer::{Layer, Statistics};
use number::Wide;
use scratch::Scratch;

/// A network with its shapes settled.
pub struct Network {
    input: Shape,
    classes: usize,
    layers: Vec<Layer>,
    tensors: Vec<Tensor>,
    dim: usize,
    /// How many numbers batch norms keep of the rows: means and variances.
    kept: Vec<Tensor>,
}

impl Network {
    /// For rows of so many columns; what is wrong where such rows are no pictures for it.
    pub fn new(architecture: Architecture, columns: usize, classes: usize) -> Result<Self, String> {
        architecture.build(columns, classes)
    }

    /// Number of parameters.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// What a row is.
    pub fn input(&self) -> Shape {
        self.input
    }

    /// How many classes it tells apart.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The tensors of the parameters, in their order in the flat vector.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensors of what batch norms know of the rows, in their order in [`Network::statistics`]; none without batch norms.
    pub fn kept(&self) -> &[Tensor] {
        &self.kept
    }

    /// Where training begins, from numbers drawn evenly from [0, 1).
    pub fn start(&self, mut draw: impl FnMut() -> f64) -> Vec<f32> {
        let values = self.tensors.iter().flat_map(|tensor| {
            let (len, start) = (tensor.len(), tensor.start);
            (0..len).map(move |_| start).collect::<Vec<_>>()
        });
        values.map(|start| start.value(&mut draw)).collect()
    }

    /// The sum over rows of the cross entropy, each times `weight`; its gradient is added to `gradient`, where there is one. Batch norms
    /// take the statistics of these rows.
    ///
    /// # Panics
    /// Unless parameters and gradient have [`Network::dim`] numbers, and every label has its row of pixels.
    pub fn loss<T: Number>(
        &self,
        parameters: &[T],
        pixels: &[T],
        labels: &[usize],
        weight: f64,
        gradient: Option<&mut [T]>,
    ) -> f64 {
        assert_eq!(parameters.len(), self.dim, "every parameter has a value");
        assert_eq!(pixels.len(), labels.len() * self.input.len(), "every label has its pixels");
        if labels.is_empty() {
            return 0.0;
        }
        T::with_scratch(|scratch| {
            let mut tape = Vec::new();
            let kept = gradient.is_some().then_some(&mut tape);
            let scores = self.forward(parameters, pixels, &mut Statistics::OfBatch, kept, scratch);
            let (loss, back) = cross_entropy(&scores, labels, self.classes, weight, scratch);
            scratch.give(scores);
            match gradient {
                Some(gradient) => {
                    assert_eq!(gradient.len(), self.dim, "every parameter has a derivative");
                    let batch = labels.len();
                    let rest =
                        layer::backward(&self.layers, parameters, batch, back, false, &mut tape, gradient, scratch);
                    scratch.give(rest);
                }
                None => scratch.give(back),
            }
            loss
        })
    }

    /// out = the Hessian of [`Network::loss`] times a direction, summed over parts of the rows: pixels and labels. It is that of the pieces
    /// on which every unit stays on its side: a jump of the gradient between two pieces has no part in it.
    ///
    /// # Panics
    /// Unless parameters, direction and product have [`Network::dim`] numbers, and every label has its row of pixels.
    pub fn hessian_vector<'a>(
        &self,
        parameters: &[f64],
        direction: &[f64],
        parts: impl IntoIterator<Item = (&'a [f32], &'a [usize])>,
        weight: f64,
        out: &mut [f64],
    ) {
        assert_eq!(parameters.len(), self.dim, "every parameter has a value");
        assert_eq!(direction.len(), self.dim, "every parameter has a direction");
        assert_eq!(out.len(), self.dim, "every parameter has a product");
        let moving = |(&value, &slope)| Dual { value, slope };
        let parameters: Vec<Dual> = parameters.iter().zip(direction).map(moving).collect();
        let mut gradient = vec![Dual::default(); self.dim];
        for (pixels, labels) in parts {
            let pixels: Vec<Dual> = pixels.iter().map(|&pixel| Dual::from(f64::from(pixel))).collect();
            self.loss(&parameters, &pixels, labels, weight, Some(&mut gradient));
        }
        out.iter_mut().zip(&gradient).for_each(|(out, derivative)| *out = derivative.slope);
    }

    /// A score for every row and class, with statistics from [`Network::statistics`].
    pub fn scores<T: Number>(&self, parameters: &[T], pixels: &[T], statistics: &[T]) -> Vec<T> {
        assert_eq!(parameters.len(), self.dim, "every parameter has a value");
        T::with_scratch(|scratch| {
            let scores = self.forward(parameters, pixels, &mut Statistics::Given(statistics), None, scratch);
            let own = scores.clone();
            scratch.give(scores);
            own
        })
    }

    /// What batch norms see of these rows, as PyTorch keeps it: means, and variances with n - 1. Empty without batch norms.
    pub fn statistics<T: Number>(&self, parameters: &[T], pixels: &[T]) -> Vec<T> {
        let mut seen = vec![T::default(); self.kept.iter().map(Tensor::len).sum()];
        if !seen.is_empty() && !pixels.is_empty() {
            T::with_scratch(|scratch| {
                let scores = self.forward(parameters, pixels, &mut Statistics::Seen(&mut seen), None, scratch);
                scratch.give(scores);
            });
        }
        seen
    }

    fn forward<T: Number>(
        &self,
        parameters: &[T],
        pixels: &[T],
        statistics: &mut Statistics<'_, T>,
        tape: Option<&mut Vec<layer::Saved<T>>>,
        scratch: &mut Scratch<T>,
    ) -> Vec<T> {
        let mut input = scratch.take(pixels.len());
        input.copy_from_slice(pixels);
        let batch = pixels.len() / self.input.len();
        layer::forward(&self.layers, parameters, batch, input, statistics, tape, scratch)
    }
}

/// The loss, each row times `weight`, and its derivatives by the scores.
fn cross_entropy<T: Number>(
    scores: &[T],
    labels: &[usize],
    classes: usize,
    weight: f64,
    scratch: &mut Scratch<T>,
) -> (f64, Vec<T>) {
    let mut back = scratch.take(scores.len());
    let mut loss = 0.0;
    for ((scores, back), &label) in scores.chunks_exact(classes).zip(back.chunks_exact_mut(classes)).zip(labels) {
        let top = scores.iter().map(|score| score.wide().value()).fold(f64::NEG_INFINITY, f64::max);
        let power = |score: &T| (score.wide() - T::Wide::from(top)).exp();
        let sum: T::Wide = scores.iter().map(power).sum();
        loss += top + sum.value().ln() - scores[label].wide().value();
        for (class, (back, score)) in back.iter_mut().zip(scores).enumerate() {
            let hit = T::Wide::from(f64::from(u8::from(class == label)));
            *back = T::narrow(T::Wide::from(weight) * (power(score) / sum - hit));
        }
    }
    (weight * loss, back)
}
