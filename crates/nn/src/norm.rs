//! Group norm and batch norm: numbers to mean 0 and deviation 1, over the channels of a sample or over the rows of a batch.

use crate::Number;
use crate::layer::Statistics;
use crate::number::Wide;
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
pub(crate) struct Normalised<T> {
    pub(crate) values: Vec<T>,
    inverse: Vec<T>,
}

impl<T: Number> Normalised<T> {
    pub(crate) fn give(self, scratch: &mut Scratch<T>) {
        scratch.give(self.values);
        scratch.give(self.inverse);
    }
}

/// The sum of what `of` makes of all numbers, in an order that never changes.
fn sum<T: Number>(values: &[T], of: impl Fn(T) -> T) -> T::Wide {
    let (chunks, tail) = values.as_chunks::<LANES>();
    let mut total = T::Wide::default();
    // Short runs keep 32-bit sums exact enough.
    for run in chunks.chunks(64) {
        let mut sums = [T::default(); LANES];
        for chunk in run {
            sums = std::array::from_fn(|lane| sums[lane] + of(chunk[lane]));
        }
        total += sums.iter().map(|sum| sum.wide()).sum();
    }
    total + tail.iter().map(|&value| of(value).wide()).sum()
}

/// The sum of products.
fn dot<T: Number>(a: &[T], b: &[T]) -> T::Wide {
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut total = T::Wide::default();
    for (a, b) in a.chunks(64).zip(b.chunks(64)) {
        let mut sums = [T::default(); LANES];
        for (a, b) in a.iter().zip(b) {
            sums = std::array::from_fn(|lane| sums[lane] + a[lane] * b[lane]);
        }
        total += sums.iter().map(|sum| sum.wide()).sum();
    }
    total + a_tail.iter().zip(b_tail).map(|(&a, &b)| (a * b).wide()).sum()
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
    fn moments<T: Number>(&self, input: &[T], batch: usize) -> Vec<(T::Wide, T::Wide)> {
        let mut moments = vec![<(T::Wide, T::Wide)>::default(); self.sets(batch)];
        let count = T::Wide::from((input.len() / moments.len().max(1)) as f64);
        for (block, values) in input.chunks_exact(self.pixels).enumerate() {
            moments[self.set_of(block)].0 += sum(values, |value| value);
        }
        moments.iter_mut().for_each(|moments| moments.0 = moments.0 / count);
        for (block, values) in input.chunks_exact(self.pixels).enumerate() {
            let moments = &mut moments[self.set_of(block)];
            let mean = T::narrow(moments.0);
            moments.1 += sum(values, |value| (value - mean) * (value - mean));
        }
        moments.iter_mut().for_each(|moments| moments.1 = moments.1 / count);
        moments
    }

    /// Overwrites the input with what is made of it.
    pub(crate) fn forward<T: Number>(
        &self,
        scale: &[T],
        shift: &[T],
        batch: usize,
        values: &mut [T],
        statistics: &mut Statistics<'_, T>,
        scratch: &mut Scratch<T>,
    ) -> Normalised<T> {
        let moments = match (self.together, &mut *statistics) {
            (Together::Batch { kept }, Statistics::Given(given)) => {
                (0..self.channels).map(|c| (given[kept + c].wide(), given[kept + self.channels + c].wide())).collect()
            }
            _ => self.moments(values, batch),
        };
        if let (Together::Batch { kept }, Statistics::Seen(seen)) = (self.together, &mut *statistics) {
            let count = (batch * self.pixels) as f64;
            let (all, but_one) = (T::Wide::from(count), T::Wide::from((count - 1.0).max(1.0)));
            for (c, &(mean, variance)) in moments.iter().enumerate() {
                seen[kept + c] = T::narrow(mean);
                seen[kept + self.channels + c] = T::narrow(variance * all / but_one);
            }
        }
        let mut inverse = scratch.take(moments.len());
        for (inverse, &(_, variance)) in inverse.iter_mut().zip(&moments) {
            *inverse = T::narrow(T::Wide::from(1.0) / (variance + T::Wide::from(EPSILON)).sqrt());
        }
        let mut normal = scratch.take(values.len());
        let blocks = values.chunks_exact_mut(self.pixels).zip(normal.chunks_exact_mut(self.pixels));
        for (block, (values, normal)) in blocks.enumerate() {
            let (set, channel) = (self.set_of(block), block % self.channels);
            let (mean, inverse) = (T::narrow(moments[set].0), inverse[set]);
            let (scale, shift) = (scale[channel], shift[channel]);
            for (value, normal) in values.iter_mut().zip(normal) {
                *normal = (*value - mean) * inverse;
                *value = scale * *normal + shift;
            }
        }
        Normalised { values: normal, inverse }
    }

    /// Overwrites the derivatives by the output with those by the input, and adds those by scale and shift.
    pub(crate) fn backward<T: Number>(
        &self,
        scale: &[T],
        saved: &Normalised<T>,
        batch: usize,
        back: &mut [T],
        by_scale: &mut [T],
        by_shift: &mut [T],
    ) {
        let mut means = vec![<(T::Wide, T::Wide)>::default(); self.sets(batch)];
        let count = T::Wide::from((back.len() / means.len().max(1)) as f64);
        for (block, (back, normal)) in
            back.chunks_exact(self.pixels).zip(saved.values.chunks_exact(self.pixels)).enumerate()
        {
            let channel = block % self.channels;
            let (plain, moved) = (sum(back, |value| value), dot(back, normal));
            by_shift[channel] += T::narrow(plain);
            by_scale[channel] += T::narrow(moved);
            let means = &mut means[self.set_of(block)];
            means.0 += scale[channel].wide() * plain;
            means.1 += scale[channel].wide() * moved;
        }
        for (block, (back, normal)) in
            back.chunks_exact_mut(self.pixels).zip(saved.values.chunks_exact(self.pixels)).enumerate()
        {
            let (set, scale) = (self.set_of(block), scale[block % self.channels]);
            let (plain, moved) = (T::narrow(means[set].0 / count), T::narrow(means[set].1 / count));
            let inverse = saved.inverse[set];
            for (back, normal) in back.iter_mut().zip(normal) {
                *back = inverse * (scale * *back - plain - *normal * moved);
            }
        }
    }
}
