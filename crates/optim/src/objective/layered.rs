//! A network of `corewire-nn` as an objective: parameters and gradients are 64-bit numbers here and 32-bit ones there.

use std::sync::Arc;

use corewire_algebra::vector;
use corewire_data::Matrix;
use corewire_nn::{Network, Shape};
use corewire_sketch::Words;

use super::Objective;
use crate::layout::Layout;

/// Rows that pass through a network together. With batch norm it is part of what f means: every such part is normalised by its own
/// statistics.
const TOGETHER: usize = 64;
/// How far a cut-out may lie from the picture's own place: pictures are padded by so many pixels.
const PADDING: usize = 4;

/// One machine's pictures under a network.
pub struct Layered {
    network: Arc<Network>,
    pixels: Vec<f32>,
    labels: Vec<usize>,
    weight: f64,
    alpha: f64,
    augment: bool,
}

impl Layered {
    /// A network on these rows, each of weight `weight` (n/N). With `augment` mini-batches are cut out at random places, and mirrored.
    ///
    /// # Panics
    /// If there is not one label per row, below the number of classes.
    pub fn new(
        network: Arc<Network>,
        matrix: &Matrix,
        labels: Vec<usize>,
        weight: f64,
        alpha: f64,
        augment: bool,
    ) -> Self {
        assert_eq!(matrix.rows(), labels.len(), "every row has its label");
        assert!(labels.iter().all(|&label| label < network.classes()), "a label is the index of a class");
        Self { network, pixels: pixels(matrix), labels, weight, alpha, augment }
    }

    /// Rows as pictures, also where the network does not look at them as such; none where they are not square.
    fn picture(&self) -> Option<Shape> {
        let input = self.network.input();
        if input.pixels() > 1 { Some(input) } else { Shape::of_columns(input.len()) }
    }

    fn row(&self, row: usize) -> &[f32] {
        let len = self.network.input().len();
        &self.pixels[row * len..(row + 1) * len]
    }

    /// All rows, as they pass through the network.
    fn parts(&self) -> impl Iterator<Item = (&[f32], &[usize])> {
        self.pixels.chunks(TOGETHER * self.network.input().len()).zip(self.labels.chunks(TOGETHER))
    }

    /// The loss of all rows, part by part, and its gradient, where there is one.
    fn whole(&self, x: &[f64], mut gradient: Option<&mut [f32]>) -> f64 {
        let parameters = narrow(x);
        let loss = |(pixels, labels): (&[f32], &[usize])| {
            self.network.loss(&parameters, pixels, labels, self.weight, gradient.as_deref_mut())
        };
        self.parts().map(loss).sum()
    }
}

/// The entries of a matrix as 32-bit numbers, row after row.
pub(crate) fn pixels(matrix: &Matrix) -> Vec<f32> {
    let mut pixels = vec![0.0; matrix.rows() * matrix.dim()];
    for (row, pixels) in matrix.iter().zip(pixels.chunks_exact_mut(matrix.dim())) {
        row.entries().for_each(|(column, value)| pixels[column] = value as f32);
    }
    pixels
}

/// As 32-bit numbers.
pub(crate) fn narrow(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&x| x as f32).collect()
}

/// Appends a picture as it looks from `down` and `right` pixels within its padded self, mirrored or not.
fn cut_out(shape: Shape, picture: &[f32], down: usize, right: usize, mirrored: bool, out: &mut Vec<f32>) {
    let Shape { height, width, .. } = shape;
    for plane in picture.chunks_exact(shape.pixels()) {
        for y in 0..height {
            let row = (y + down).checked_sub(PADDING).filter(|&row| row < height);
            for x in 0..width {
                let x = if mirrored { width - 1 - x } else { x };
                let column = (x + right).checked_sub(PADDING).filter(|&column| column < width);
                out.push(row.zip(column).map_or(0.0, |(row, column)| plane[row * width + column]));
            }
        }
    }
}

impl Objective for Layered {
    fn dim(&self) -> usize {
        self.network.dim()
    }

    fn layout(&self) -> Layout {
        layout(&self.network)
    }

    fn value(&mut self, x: &[f64]) -> f64 {
        self.whole(x, None) + 0.5 * self.alpha * vector::norm_squared(x)
    }

    fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        let mut gradient = vec![0.0; x.len()];
        self.whole(x, Some(&mut gradient));
        widen(&gradient, self.alpha, x, out);
    }

    fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        self.network.hessian_vector(x, v, self.parts(), self.weight, out);
        vector::add_scaled(self.alpha, v, out);
    }

    fn strong_convexity(&self) -> f64 {
        0.0
    }

    fn is_convex(&self) -> bool {
        false
    }

    fn rows(&self) -> usize {
        self.labels.len()
    }

    fn batch_gradient(&mut self, x: &[f64], rows: &[usize], words: &mut Words, out: &mut [f64]) {
        let mut gradient = vec![0.0; x.len()];
        if !rows.is_empty() {
            let parameters = narrow(x);
            let weight = self.weight * self.labels.len() as f64 / rows.len() as f64;
            // Batch norm wants the batch as a whole.
            let together = if self.network.kept().is_empty() { TOGETHER } else { rows.len() };
            let picture = self.picture().filter(|_| self.augment);
            let mut pixels = Vec::with_capacity(together.min(rows.len()) * self.network.input().len());
            for rows in rows.chunks(together) {
                pixels.clear();
                for &row in rows {
                    match picture {
                        None => pixels.extend_from_slice(self.row(row)),
                        Some(shape) => {
                            let mut place = || words.next_below(2 * PADDING as u64 + 1) as usize;
                            let (down, right) = (place(), place());
                            let mirrored = words.next_coin(0.5);
                            cut_out(shape, self.row(row), down, right, mirrored, &mut pixels);
                        }
                    }
                }
                let labels: Vec<usize> = rows.iter().map(|&row| self.labels[row]).collect();
                self.network.loss(&parameters, &pixels, &labels, weight, Some(&mut gradient));
            }
        }
        widen(&gradient, self.alpha, x, out);
    }
}

/// The tensors of a network.
pub(crate) fn layout(network: &Network) -> Layout {
    Layout::new(network.tensors().iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())))
}

/// out = gradient + alpha x.
fn widen(gradient: &[f32], alpha: f64, x: &[f64], out: &mut [f64]) {
    for ((out, gradient), x) in out.iter_mut().zip(gradient).zip(x) {
        *out = f64::from(*gradient) + alpha * x;
    }
}

#[cfg(test)]
mod tests {
    use corewire_nn::Architecture;
    use corewire_sketch::{CommonRandomness, Purpose, Seed};

    use super::*;

    /// A network that looks at rows as columns gets pictures that were moved, and not rows whose every column was moved out of sight.
    #[test]
    fn an_mlp_is_trained_on_moved_pictures_too() {
        let side = 12;
        let network = Arc::new(Network::new(Architecture::Mlp { hidden: 4 }, side * side, 2).unwrap());
        let pixels: Vec<f64> = (0..side * side).map(|at| if at / side % 2 == 0 { 1.0 } else { 0.5 }).collect();
        let x: Vec<f64> = (0..network.dim()).map(|j| ((j * 37 % 11) as f64 - 5.0) / 50.0).collect();
        let gradient = |augment| {
            let matrix = Matrix::dense(pixels.clone(), side * side);
            let mut layered = Layered::new(Arc::clone(&network), &matrix, vec![1], 1.0, 0.0, augment);
            let mut words = CommonRandomness::new(&Seed::reproducible(1)).words(Purpose::Synthetic, 0, 0);
            let mut out = vec![0.0; x.len()];
            layered.batch_gradient(&x, &[0; 20], &mut words, &mut out);
            out
        };
        // The first layer's gradient is a sum of the rows, of which no more than borders are moved out of sight.
        let (whole, moved) = (gradient(false), gradient(true));
        let first = |gradient: &[f64]| gradient[..4 * side * side].iter().map(|entry| entry.abs()).sum::<f64>();
        assert!((0.5..1.5).contains(&(first(&moved) / first(&whole))), "{} of {}", first(&moved), first(&whole));
        assert_ne!(whole, moved);
    }

    #[test]
    fn a_cut_out_from_the_middle_is_the_picture_and_elsewhere_it_is_moved() {
        let shape = Shape { channels: 1, height: 2, width: 3 };
        let picture = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let cut = |down, right, mirrored| {
            let mut out = Vec::new();
            cut_out(shape, &picture, down, right, mirrored, &mut out);
            out
        };
        assert_eq!(cut(PADDING, PADDING, false), picture);
        assert_eq!(cut(PADDING, PADDING, true), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
        assert_eq!(cut(PADDING + 1, PADDING - 1, false), [0.0, 4.0, 5.0, 0.0, 0.0, 0.0]);
        assert_eq!(cut(0, 0, false), [0.0; 6]);
    }
}
