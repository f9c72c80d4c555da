//! The layers, and the way through them and back. What the way back needs lies on a tape.

use std::ops::Range;

use crate::Number;
use crate::architecture::Shape;
use crate::convolution::{Convolution, add};
use crate::norm::{Norm, Normalised};
use crate::pool;
use crate::product::{View, multiply};
use crate::scratch::Scratch;

/// Where the parameters of a layer lie in the flat vector.
pub(crate) type Place = Range<usize>;

pub(crate) enum Layer {
    Convolution {
        weight: Place,
        bias: Option<Place>,
        form: Convolution,
    },
    Linear {
        weight: Place,
        bias: Place,
        inputs: usize,
        outputs: usize,
    },
    Norm {
        scale: Place,
        shift: Place,
        form: Norm,
    },
    Rectify,
    Largest {
        input: Shape,
    },
    Mean {
        pixels: usize,
    },
    /// The rectified sum of two ways; the short one is the input itself where it has no layer.
    Residual {
        main: Vec<Layer>,
        short: Vec<Layer>,
    },
}

/// What batch norms divide by.
pub(crate) enum Statistics<'a, T> {
    /// The statistics of these rows.
    OfBatch,
    /// Those of other rows.
    Given(&'a [T]),
    /// Those of these rows, which are written here.
    Seen(&'a mut [T]),
}

/// What a layer leaves for the way back.
pub(crate) enum Saved<T> {
    Values(Vec<T>),
    Normalised(Normalised<T>),
    /// Which units were on.
    Units(Vec<bool>),
    Nothing,
}

impl<T: Number> Saved<T> {
    pub(crate) fn give(self, scratch: &mut Scratch<T>) {
        match self {
            Self::Values(values) => scratch.give(values),
            Self::Normalised(normalised) => normalised.give(scratch),
            Self::Units(_) | Self::Nothing => {}
        }
    }

    fn values(self) -> Vec<T> {
        match self {
            Self::Values(values) => values,
            _ => unreachable!("the tape is read as it was written"),
        }
    }
}

/// Through all layers; `values` are given up.
pub(crate) fn forward<T: Number>(
    layers: &[Layer],
    parameters: &[T],
    batch: usize,
    mut values: Vec<T>,
    statistics: &mut Statistics<'_, T>,
    mut tape: Option<&mut Vec<Saved<T>>>,
    scratch: &mut Scratch<T>,
) -> Vec<T> {
    for layer in layers {
        let saved = match layer {
            Layer::Convolution { weight, bias, form } => {
                let bias = bias.clone().map(|bias| &parameters[bias]);
                let output = form.forward(&parameters[weight.clone()], bias, &values, scratch);
                Saved::Values(std::mem::replace(&mut values, output))
            }
            Layer::Linear { weight, bias, inputs, outputs } => {
                let mut output = scratch.take(batch * outputs);
                output.chunks_exact_mut(*outputs).for_each(|row| row.copy_from_slice(&parameters[bias.clone()]));
                let weight = View::new(&parameters[weight.clone()], *outputs, *inputs);
                multiply(View::new(&values, batch, *inputs), weight.transposed(), true, &mut output);
                Saved::Values(std::mem::replace(&mut values, output))
            }
            Layer::Norm { scale, shift, form } => {
                let (scale, shift) = (&parameters[scale.clone()], &parameters[shift.clone()]);
                Saved::Normalised(form.forward(scale, shift, batch, &mut values, statistics, scratch))
            }
            Layer::Rectify => rectify(&mut values, tape.is_some()),
            Layer::Largest { input } => {
                let (output, places) = pool::largest(*input, &values, scratch);
                scratch.give(std::mem::replace(&mut values, output));
                Saved::Values(places)
            }
            Layer::Mean { pixels } => {
                let output = pool::mean(*pixels, &values, scratch);
                scratch.give(std::mem::replace(&mut values, output));
                Saved::Nothing
            }
            Layer::Residual { main, short } => {
                let mut copy = scratch.take(values.len());
                copy.copy_from_slice(&values);
                let long = forward(main, parameters, batch, values, statistics, tape.as_deref_mut(), scratch);
                values = forward(short, parameters, batch, copy, statistics, tape.as_deref_mut(), scratch);
                add(&long, &mut values);
                scratch.give(long);
                rectify(&mut values, tape.is_some())
            }
        };
        match &mut tape {
            Some(tape) => tape.push(saved),
            None => saved.give(scratch),
        }
    }
    values
}

/// What is on stays, the rest becomes zero. Which units are on is kept where it is wanted.
fn rectify<T: Number>(values: &mut [T], wanted: bool) -> Saved<T> {
    let on = |value: &T| *value > T::default();
    let saved = if wanted { Saved::Units(values.iter().map(on).collect()) } else { Saved::Nothing };
    values.iter_mut().for_each(|value| *value = if on(value) { *value } else { T::default() });
    saved
}

/// The way back from the derivatives by the output, which are given up, to those by the input (nothing unless `wanted`); those by the
/// parameters are added to `gradient`.
pub(crate) fn backward<T: Number>(
    layers: &[Layer],
    parameters: &[T],
    batch: usize,
    mut back: Vec<T>,
    wanted: bool,
    tape: &mut Vec<Saved<T>>,
    gradient: &mut [T],
    scratch: &mut Scratch<T>,
) -> Vec<T> {
    for (place, layer) in layers.iter().enumerate().rev() {
        let saved = tape.pop().expect("every layer left something");
        let wanted = wanted || place > 0;
        match layer {
            Layer::Convolution { weight, bias, form } => {
                let input = saved.values();
                let (by_weight, by_bias) = parts(gradient, weight.clone(), bias.clone());
                let weights = &parameters[weight.clone()];
                let by_input = form.backward(weights, &input, &back, wanted, by_weight, by_bias, scratch);
                scratch.give(std::mem::replace(&mut back, by_input));
                scratch.give(input);
            }
            Layer::Linear { weight, bias, inputs, outputs } => {
                let input = saved.values();
                let (by_weight, by_bias) = parts(gradient, weight.clone(), Some(bias.clone()));
                let by_bias = by_bias.expect("a linear layer has a bias");
                back.chunks_exact(*outputs).for_each(|row| add(row, by_bias));
                let seen = View::new(&back, batch, *outputs);
                multiply(seen.transposed(), View::new(&input, batch, *inputs), true, by_weight);
                let mut by_input = scratch.take(if wanted { input.len() } else { 0 });
                if wanted {
                    multiply(seen, View::new(&parameters[weight.clone()], *outputs, *inputs), false, &mut by_input);
                }
                scratch.give(std::mem::replace(&mut back, by_input));
                scratch.give(input);
            }
            Layer::Norm { scale, shift, form } => {
                let Saved::Normalised(normalised) = saved else { unreachable!("the tape is read as it was written") };
                let (by_scale, by_shift) = parts(gradient, scale.clone(), Some(shift.clone()));
                let by_shift = by_shift.expect("a norm has shifts");
                form.backward(&parameters[scale.clone()], &normalised, batch, &mut back, by_scale, by_shift);
                normalised.give(scratch);
            }
            Layer::Rectify => unrectify(saved, &mut back),
            Layer::Largest { input } => {
                let places = saved.values();
                let by_input = pool::to_largest(*input, &places, &back, scratch);
                scratch.give(std::mem::replace(&mut back, by_input));
                scratch.give(places);
            }
            Layer::Mean { pixels } => {
                let by_input = pool::to_all(*pixels, &back, scratch);
                scratch.give(std::mem::replace(&mut back, by_input));
            }
            Layer::Residual { main, short } => {
                unrectify(saved, &mut back);
                let mut copy = scratch.take(back.len());
                copy.copy_from_slice(&back);
                let by_short = backward(short, parameters, batch, copy, wanted, tape, gradient, scratch);
                back = backward(main, parameters, batch, back, wanted, tape, gradient, scratch);
                add(&by_short, &mut back);
                scratch.give(by_short);
            }
        }
    }
    back
}

/// No derivative passes where a unit was off.
fn unrectify<T: Number>(saved: Saved<T>, back: &mut [T]) {
    let Saved::Units(units) = saved else { unreachable!("the tape is read as it was written") };
    back.iter_mut().zip(units).for_each(|(back, on)| *back = if on { *back } else { T::default() });
}

/// Two places of the gradient at once, the first before the second.
fn parts<T: Number>(gradient: &mut [T], first: Place, second: Option<Place>) -> (&mut [T], Option<&mut [T]>) {
    let Some(second) = second else { return (&mut gradient[first], None) };
    let (before, after) = gradient.split_at_mut(second.start);
    (&mut before[first], Some(&mut after[..second.len()]))
}
