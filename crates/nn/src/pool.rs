//! Pools: the largest of two by two pixels, and the mean of all.

use crate::Number;
use crate::architecture::Shape;
use crate::number::Wide;
use crate::scratch::Scratch;

/// The largest of every two by two pixels; an odd last row or column is left out. Also the place of each, as a number.
pub(crate) fn largest<T: Number>(input: Shape, values: &[T], scratch: &mut Scratch<T>) -> (Vec<T>, Vec<T>) {
    let (height, width) = (input.height / 2, input.width / 2);
    let planes = values.len() / input.pixels();
    let (mut output, mut places) = (scratch.take(planes * height * width), scratch.take(planes * height * width));
    let mut at = 0;
    for plane in values.chunks_exact(input.pixels()) {
        for y in 0..height {
            let (upper, lower) = (&plane[2 * y * input.width..], &plane[(2 * y + 1) * input.width..]);
            for x in 0..width {
                let four = [upper[2 * x], upper[2 * x + 1], lower[2 * x], lower[2 * x + 1]];
                let place = (1..4).fold(0, |best, k| if four[k] > four[best] { k } else { best });
                (output[at], places[at]) = (four[place], T::from_f64(place as f64));
                at += 1;
            }
        }
    }
    (output, places)
}

/// The way back: every derivative goes to the pixel that was largest.
pub(crate) fn to_largest<T: Number>(input: Shape, places: &[T], back: &[T], scratch: &mut Scratch<T>) -> Vec<T> {
    let (height, width) = (input.height / 2, input.width / 2);
    let planes = back.len() / (height * width);
    let mut by_input = scratch.zeros(planes * input.pixels());
    for (at, (back, place)) in back.iter().zip(places).enumerate() {
        let (plane, y, x) = (at / (height * width), at / width % height, at % width);
        let place = place.wide().value() as usize;
        by_input[plane * input.pixels() + (2 * y + place / 2) * input.width + 2 * x + place % 2] = *back;
    }
    by_input
}

/// The mean of every plane.
pub(crate) fn mean<T: Number>(pixels: usize, values: &[T], scratch: &mut Scratch<T>) -> Vec<T> {
    let mut output = scratch.take(values.len() / pixels);
    for (mean, plane) in output.iter_mut().zip(values.chunks_exact(pixels)) {
        *mean = plane.iter().copied().sum::<T>() * T::from_f64(1.0 / pixels as f64);
    }
    output
}

/// The way back.
pub(crate) fn to_all<T: Number>(pixels: usize, back: &[T], scratch: &mut Scratch<T>) -> Vec<T> {
    let mut by_input = scratch.take(back.len() * pixels);
    for (plane, back) in by_input.chunks_exact_mut(pixels).zip(back) {
        plane.fill(*back * T::from_f64(1.0 / pixels as f64));
    }
    by_input
}
