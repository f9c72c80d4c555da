//! Group norm and batch norm: numbers to mean 0 and deviation 1, over the channels of a sample or over the rows of a batch.

use crate::layer::Statistics;
use crate::scratch::Scratch;

/// Added to every variance, as PyTorch does.
const EPSILON: f64 = 1e-5;
/// Partial sums.
const LANES: usize = 16;

/// What is normalised together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Together {
    /// So many groups of channels within a sample.
    Groups(usize),
    /// A channel of all samples; its mean and variance are kept from this place on, and at the next ones.
    Batch { kept: usize },
}

/// A norm without its scales and shifts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    pub(crate) channels: usize,
    pub(crate) pixels: usize,
    pub(crate) together: Together,
}

/// What the way back needs: the normalised numbers, and one over the deviation of each set.
pub(crate) struct Normalised {
    pub(crate) values: Vec<f32>,
    inverse: Vec<f32>,
}

impl Normalised {
    pub(crate) fn give(self, scratch: &mut Scratch) {
        scratch.give(self.values);
        scratch.give(self.inverse);
    }
}

/// The sum of what `of` makes of all numbers, in an order that never changes.
fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f64 {
    let (chunks, tail) = values.as_chunks::<LANES>();
    let mut total = 0.0;
    // Short runs keep 32-bit sums exact enough.
    for run in chunks.chunks(64) {
        let mut sums = [0.0f32; LANES];
        for chunk in run {
            sums = std::array::from_fn(|lane| sums[lane] + of(chunk[lane]));
        }
        total += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
    }
    total + tail.iter().map(|&value| f64::from(of(value))).sum::<f64>()
}

/// The sum of products.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut total = 0.0;
    for (a, b) in a.chunks(64).zip(b.chunks(64)) {
        let mut sums = [0.0f32; LANES];
        for (a, b) in a.iter().zip(b) {
            sums = std::array::from_fn(|lane| sums[lane] + a[lane] * b[lane]);
        }
        total += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
    }
    total + a_tail.iter().zip(b_tail).map(|(&a, &b)| f64::from(a * b)).sum::<f64>()
}

impl Norm {
    /// How many sets there are in so many samples.
    fn sets(&self, batch: usize) -> usize {
        match self.together {
            Together::Groups(groups) => batch * groups,
            Together::Batch { .. } => self.channels,
        }
    }

    /// The set of a block, which is one channel of one sample.
    fn set_of(&self, block: usize) -> usize {
        match self.together {
            Together::Groups(groups) => block / (self.channels / groups),
            Together::Batch { .. } => block % self.channels,
        }
    }

    /// Mean and variance of every set.
    fn moments(&self, input: &[f32], batch: usize) -> Vec<(f64, f64)> {
        let mut moments = vec![(0.0, 0.0); self.sets(batch)];
        let count = (input.len() / moments.len().max(1)) as f64;
        for (block, values) in input.chunks_exact(self.pixels).enumerate() {
            moments[self.set_of(block)].0 += sum(values, |value| value);
        }
        moments.iter_mut().for_each(|moments| moments.0 /= count);
        for (block, values) in input.chunks_exact(self.pixels).enumerate() {
            let moments = &mut moments[self.set_of(block)];
            let mean = moments.0 as f32;
            moments.1 += sum(values, |value| (value - mean) * (value - mean));
        }
        moments.iter_mut().for_each(|moments| moments.1 /= count);
        moments
    }

    /// Overwrites the input with what is made of it.
    pub(crate) fn forward(
        &self,
        scale: &[f32],
        shift: &[f32],
        batch: usize,
        values: &mut [f32],
        statistics: &mut Statistics<'_>,
        scratch: &mut Scratch,
    ) -> Normalised {
        let moments = match (self.together, &mut *statistics) {
            (Together::Batch { kept }, Statistics::Given(given)) => (0..self.channels)
                .map(|c| (f64::from(given[kept + c]), f64::from(given[kept + self.channels + c])))
                .collect(),
            _ => self.moments(values, batch),
        };
        if let (Together::Batch { kept }, Statistics::Seen(seen)) = (self.together, &mut *statistics) {
            let count = (batch * self.pixels) as f64;
            for (c, (mean, variance)) in moments.iter().enumerate() {
                seen[kept + c] = *mean as f32;
                seen[kept + self.channels + c] = (variance * count / (count - 1.0).max(1.0)) as f32;
            }
        }
        let mut inverse = scratch.take(moments.len());
        for (inverse, (_, variance)) in inverse.iter_mut().zip(&moments) {
            *inverse = (1.0 / (variance + EPSILON).sqrt()) as f32;
        }
        let mut normal = scratch.take(values.len());
        let blocks = values.chunks_exact_mut(self.pixels).zip(normal.chunks_exact_mut(self.pixels));
        for (block, (values, normal)) in blocks.enumerate() {
            let (set, channel) = (self.set_of(block), block % self.channels);
            let (mean, inverse) = (moments[set].0 as f32, inverse[set]);
            let (scale, shift) = (scale[channel], shift[channel]);
            for (value, normal) in values.iter_mut().zip(normal) {
                *normal = (*value - mean) * inverse;
                *value = scale * *normal + shift;
            }
        }
        Normalised { values: normal, inverse }
    }

    /// Overwrites the derivatives by the output with those by the input, and adds those by scale and shift.
    pub(crate) fn backward(
        &self,
        scale: &[f32],
        saved: &Normalised,
        batch: usize,
        back: &mut [f32],
        by_scale: &mut [f32],
        by_shift: &mut [f32],
    ) {
        let mut means = vec![(0.0, 0.0); self.sets(batch)];
        let count = (back.len() / means.len().max(1)) as f64;
        for (block, (back, normal)) in
            back.chunks_exact(self.pixels).zip(saved.values.chunks_exact(self.pixels)).enumerate()
        {
            let channel = block % self.channels;
            let (plain, moved) = (sum(back, |value| value), dot(back, normal));
            by_shift[channel] += plain as f32;
            by_scale[channel] += moved as f32;
            let means = &mut means[self.set_of(block)];
            means.0 += f64::from(scale[channel]) * plain;
            means.1 += f64::from(scale[channel]) * moved;
        }
        for (block, (back, normal)) in
            back.chunks_exact_mut(self.pixels).zip(saved.values.chunks_exact(self.pixels)).enumerate()
        {
            let (set, scale) = (self.set_of(block), scale[block % self.channels]);
            let (plain, moved) = ((means[set].0 / count) as f32, (means[set].1 / count) as f32);
            let inverse = saved.inverse[set];
            for (back, normal) in back.iter_mut().zip(normal) {
                *back = inverse * (scale * *back - plain - normal * moved);
            }
        }
    }
}
