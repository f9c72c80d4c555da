//! Convolutions as products of matrices: every place of the kernel becomes a column of the pixels under it.

use std::ops::Range;

use crate::Number;
use crate::architecture::Shape;
use crate::product::{View, multiply};
use crate::scratch::Scratch;

/// Places of the kernel that are multiplied at once, at least where there are so many: fewer keep the processor waiting.
const PLACES: usize = 256;

/// A convolution without its weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    pub(crate) input: Shape,
    pub(crate) output: Shape,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
}

impl Convolution {
    pub(crate) fn new(input: Shape, channels: usize, kernel: usize, stride: usize, padding: usize) -> Self {
        let side = |side: usize| (side + 2 * padding - kernel) / stride + 1;
        let output = Shape { channels, height: side(input.height), width: side(input.width) };
        Self { input, output, kernel, stride, padding }
    }

    /// Weights of one output channel.
    fn fan_in(&self) -> usize {
        self.input.channels * self.kernel * self.kernel
    }

    /// How many rows of the batch are done together.
    fn together(&self, batch: usize) -> usize {
        PLACES.div_ceil(self.output.pixels()).min(batch).max(1)
    }

    /// For each kernel column `k` the places of an output row that see pixels of the input and not the padding.
    fn inside(&self, k: usize, side: usize, places: usize) -> Range<usize> {
        let first = self.padding.saturating_sub(k).div_ceil(self.stride);
        let last = (side + self.padding).saturating_sub(k).div_ceil(self.stride).min(places);
        first.min(last)..last
    }

    /// Calls `visit` with a range of one row of the columns' matrix, and the index of the pixel that its first place sees: places
    /// that follow see pixels `stride` apart. What is not visited sees the padding.
    fn visit(&self, sample: usize, together: usize, mut visit: impl FnMut(Range<usize>, usize)) {
        let (input, output) = (self.input, self.output);
        let width = together * output.pixels();
        for row in 0..self.fan_in() {
            let (channel, within) = (row / (self.kernel * self.kernel), row % (self.kernel * self.kernel));
            let (ky, kx) = (within / self.kernel, within % self.kernel);
            let columns = self.inside(kx, input.width, output.width);
            for y in self.inside(ky, input.height, output.height) {
                let at = row * width + sample * output.pixels() + y * output.width;
                let pixel_row = channel * input.height + y * self.stride + ky - self.padding;
                let pixel = pixel_row * input.width + columns.start * self.stride + kx - self.padding;
                visit(at + columns.start..at + columns.end, pixel);
            }
        }
    }

    /// The pixels under every place of the kernel, for some samples side by side.
    fn unfold<T: Number>(&self, samples: &[T], together: usize, columns: &mut [T]) {
        if self.padding > 0 {
            columns.fill(T::default());
        }
        for (k, sample) in samples.chunks_exact(self.input.len()).enumerate() {
            self.visit(k, together, |range, pixel| {
                let pixels = sample[pixel..].iter().step_by(self.stride);
                match self.stride {
                    1 => {
                        let len = range.len();
                        columns[range].copy_from_slice(&sample[pixel..pixel + len]);
                    }
                    _ => columns[range].iter_mut().zip(pixels).for_each(|(column, pixel)| *column = *pixel),
                }
            });
        }
    }

    /// Adds every column's numbers to the pixels that it saw.
    fn fold<T: Number>(&self, columns: &[T], together: usize, samples: &mut [T]) {
        samples.fill(T::default());
        for (k, sample) in samples.chunks_exact_mut(self.input.len()).enumerate() {
            self.visit(k, together, |range, pixel| match self.stride {
                1 => add(&columns[range.clone()], &mut sample[pixel..pixel + range.len()]),
                stride => {
                    let pixels = sample[pixel..].iter_mut().step_by(stride);
                    pixels.zip(&columns[range]).for_each(|(pixel, column)| *pixel += *column);
                }
            });
        }
    }

    /// Swaps samples and channels: [sample][channel] <-> [channel][sample].
    fn interleave<T: Number>(&self, from: &[T], to: &mut [T], outer: usize, inner: usize) {
        let pixels = self.output.pixels();
        for (at, block) in from.chunks_exact(pixels).enumerate() {
            let there = (at % inner) * outer + at / inner;
            to[there * pixels..(there + 1) * pixels].copy_from_slice(block);
        }
    }

    pub(crate) fn forward<T: Number>(
        &self,
        weights: &[T],
        bias: Option<&[T]>,
        input: &[T],
        scratch: &mut Scratch<T>,
    ) -> Vec<T> {
        let batch = input.len() / self.input.len();
        let (channels, pixels) = (self.output.channels, self.output.pixels());
        let mut output = scratch.take(batch * self.output.len());
        let together = self.together(batch);
        let mut columns = scratch.take(self.fan_in() * together * pixels);
        let mut product = scratch.take(channels * together * pixels);
        let parts = input.chunks(together * self.input.len()).zip(output.chunks_mut(together * self.output.len()));
        for (input, output) in parts {
            let together = input.len() / self.input.len();
            let columns = &mut columns[..self.fan_in() * together * pixels];
            self.unfold(input, together, columns);
            let columns = View::new(columns, self.fan_in(), together * pixels);
            let weights = View::new(weights, channels, self.fan_in());
            if together == 1 {
                multiply(weights, columns, false, output);
            } else {
                let product = &mut product[..output.len()];
                multiply(weights, columns, false, product);
                self.interleave(product, output, channels, together);
            }
        }
        if let Some(bias) = bias {
            for (block, bias) in output.chunks_exact_mut(pixels).zip(bias.iter().cycle()) {
                block.iter_mut().for_each(|value| *value += *bias);
            }
        }
        scratch.give(columns);
        scratch.give(product);
        output
    }

    /// Adds the derivatives by weights and bias; those by the input, where they are wanted.
    pub(crate) fn backward<T: Number>(
        &self,
        weights: &[T],
        input: &[T],
        back: &[T],
        wanted: bool,
        by_weights: &mut [T],
        by_bias: Option<&mut [T]>,
        scratch: &mut Scratch<T>,
    ) -> Vec<T> {
        let batch = input.len() / self.input.len();
        let (channels, pixels) = (self.output.channels, self.output.pixels());
        if let Some(by_bias) = by_bias {
            for (at, block) in back.chunks_exact(pixels).enumerate() {
                by_bias[at % channels] += block.iter().copied().sum::<T>();
            }
        }
        let mut by_input = scratch.take(if wanted { input.len() } else { 0 });
        let together = self.together(batch);
        let mut columns = scratch.take(self.fan_in() * together * pixels);
        let mut regrouped = scratch.take(channels * together * pixels);
        for (part, (input, back)) in
            input.chunks(together * self.input.len()).zip(back.chunks(together * self.output.len())).enumerate()
        {
            let first = part * together * self.input.len();
            let together = input.len() / self.input.len();
            let columns = &mut columns[..self.fan_in() * together * pixels];
            self.unfold(input, together, columns);
            let back = if together == 1 {
                back
            } else {
                let regrouped = &mut regrouped[..back.len()];
                self.interleave(back, regrouped, together, channels);
                regrouped
            };
            let back = View::new(back, channels, together * pixels);
            let seen = View::new(columns, self.fan_in(), together * pixels);
            multiply(back, seen.transposed(), true, by_weights);
            if wanted {
                multiply(View::new(weights, channels, self.fan_in()).transposed(), back, false, columns);
                self.fold(columns, together, &mut by_input[first..first + input.len()]);
            }
        }
        scratch.give(columns);
        scratch.give(regrouped);
        by_input
    }
}

/// to += from.
pub(crate) fn add<T: Number>(from: &[T], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
}
