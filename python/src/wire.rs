//! The mean of all machines' scalars through a sharded hub: machine k is the hub of shard k, so that nobody carries more than others.
//!
//! Every machine cuts its m scalars into n shards and sends each to its hub (an all-to-all); the hub decodes, averages, quantises again and
//! sends the result to all (an all-gather). Three codes: `q`, dithered integers at their entropy; `4bit`, dithered integers in four bits
//! with a step of its own in every message, so that nothing is ever clipped; and `1bit`, the signs of a random rotation of the scalars with
//! the scale that makes their inner product right (Vargaftik and others, *EDEN*, 2022). The rotation is needed on the way down above all: a
//! mean of signs is no longer random, and its signs would follow the machine with the largest scale.

use std::ops::Range;

use corewire_sketch::code::{Dither, decode_many, dequantise, encode_many, quantise};
use corewire_sketch::{CommonRandomness, Family, Hadamard, Purpose, Sketch};
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::prelude::*;

use crate::{contiguous, contiguous_mut, expect_length, read_seed};

/// Scalars that are coded together; pieces are coded in parallel. Even, because dithers come in pairs.
const PIECE: usize = 1 << 15;
/// The largest magnitude in four bits that leaves the dither room.
const MOST: f64 = 7.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    Entropy,
    FourBits,
    OneBit,
}

/// The code of scalars between machines that average through a sharded hub.
#[pyclass(module = "corewire", frozen)]
pub struct MeanWire {
    randomness: CommonRandomness,
    code: Code,
    scalars: usize,
    machines: usize,
}

/// One stream of dithers: a machine's own, or a hub's.
#[derive(Clone, Copy)]
struct Dithers<'a> {
    randomness: &'a CommonRandomness,
    purpose: Purpose,
    round: u64,
    row: u32,
}

impl Dithers<'_> {
    /// Those of a range that begins at an even place.
    fn of(&self, range: &Range<usize>) -> Vec<Dither> {
        let mut words = self.randomness.words(self.purpose, self.round, self.row);
        words.seek(range.start as u64 / 2);
        let mut dithers = vec![Dither::NONE; range.len()];
        Dither::fill(&mut words, &mut dithers);
        dithers
    }
}

impl Dithers<'_> {
    /// All rows of Hadamard matrices under this stream's signs, one for each power of two in the length, so that little is padded.
    fn rotations(&self, len: usize) -> Vec<Hadamard> {
        let (mut rotations, mut left) = (Vec::new(), len);
        while left > 0 {
            let block = if left < 64 { left } else { 1 << left.ilog2() };
            let rotation = Hadamard::new(self.randomness, block, Family::Hadamard.most(block));
            rotations.push(rotation.expect("all rows of a few numbers").with_purpose(self.purpose));
            left -= block;
        }
        rotations
    }
}

impl Code {
    /// The code of a piece's scalars, the first of which is number `start` of all.
    fn write(self, stream: Dithers<'_>, start: usize, piece: &[f32], step: f64) -> Vec<u8> {
        let drawn = || stream.of(&(start..start + piece.len()));
        let mut body = Vec::new();
        match self {
            Code::Entropy => {
                let dithers = drawn();
                let integers: Vec<i32> =
                    piece.iter().zip(&dithers).map(|(&s, &dither)| quantise(s.into(), step, dither)).collect();
                encode_many(&integers, &dithers, &mut body);
            }
            Code::FourBits => {
                let largest = piece.iter().fold(0.0f32, |largest, s| largest.max(s.abs()));
                let step = (step as f32).max(largest / MOST as f32);
                body.extend_from_slice(&step.to_le_bytes());
                let nibble = |(&s, &dither): (&f32, &Dither)| quantise(s.into(), step.into(), dither) as u8 & 15;
                let nibbles: Vec<u8> = piece.iter().zip(&drawn()).map(nibble).collect();
                body.extend(nibbles.chunks(2).map(|pair| pair[0] | pair.get(1).copied().unwrap_or(0) << 4));
            }
            Code::OneBit => {
                let (mut turned, mut left) = (Vec::new(), piece);
                for rotation in stream.rotations(piece.len()) {
                    let (block, rest) = left.split_at(rotation.dim());
                    let done = turned.len();
                    turned.resize(done + rotation.len(), 0.0);
                    rotation.project(stream.round, block, &mut turned[done..]);
                    // Rows of length 1, so that one scale fits all blocks.
                    let length = (rotation.len() as f32).sqrt();
                    turned[done..].iter_mut().for_each(|scalar| *scalar /= length);
                    left = rest;
                }
                let squares: f64 = turned.iter().map(|&s| f64::from(s) * f64::from(s)).sum();
                let lengths: f64 = turned.iter().map(|&s| f64::from(s).abs()).sum();
                let scale = if lengths > 0.0 { (squares / lengths) as f32 } else { 0.0 };
                body.extend_from_slice(&scale.to_le_bytes());
                let byte = |eight: &[f32]| {
                    (0..8).fold(0, |byte, k| byte | u8::from(eight.get(k).is_some_and(|&s| s < 0.0)) << k)
                };
                body.extend(turned.chunks(8).map(byte));
            }
        }
        body
    }

    /// Adds what a piece's code stands for to `sums`, the first of which is number `start` of all.
    fn add(self, stream: Dithers<'_>, start: usize, body: &[u8], step: f64, sums: &mut [f64]) -> Result<(), String> {
        let drawn = || stream.of(&(start..start + sums.len()));
        match self {
            Code::Entropy => {
                let dithers = drawn();
                let mut integers = vec![0; sums.len()];
                decode_many(body, &dithers, &mut integers).map_err(|error| error.to_string())?;
                for ((sum, integer), dither) in sums.iter_mut().zip(integers).zip(dithers) {
                    *sum += dequantise(integer, step, dither);
                }
            }
            Code::FourBits => {
                let (step, nibbles) = body.split_first_chunk::<4>().ok_or("a piece without a step")?;
                let step = f64::from(f32::from_le_bytes(*step));
                if nibbles.len() != sums.len().div_ceil(2) || !step.is_finite() {
                    return Err("a piece of the wrong length".to_owned());
                }
                let dithers = drawn();
                for (at, (sum, dither)) in sums.iter_mut().zip(dithers).enumerate() {
                    let nibble = nibbles[at / 2] >> (4 * (at % 2)) & 15;
                    *sum += dequantise(i32::from((nibble << 4) as i8 >> 4), step, dither);
                }
            }
            Code::OneBit => {
                let (scale, signs) = body.split_first_chunk::<4>().ok_or("a piece without a scale")?;
                let scale = f64::from(f32::from_le_bytes(*scale));
                let rotations = stream.rotations(sums.len());
                let count: usize = rotations.iter().map(Sketch::len).sum();
                if signs.len() != count.div_ceil(8) || !scale.is_finite() {
                    return Err("a piece of the wrong length".to_owned());
                }
                let sign = |at: usize| if signs[at / 8] >> (at % 8) & 1 == 0 { scale } else { -scale };
                let (mut turned, mut left) = ((0..count).map(sign), &mut sums[..]);
                for rotation in rotations {
                    let (block, rest) = left.split_at_mut(rotation.dim());
                    let length = (rotation.len() as f64).sqrt();
                    let scalars: Vec<f64> = turned.by_ref().take(rotation.len()).map(|s| s * length).collect();
                    rotation.reconstruct_add(stream.round, &scalars, 1.0, block);
                    left = rest;
                }
            }
        }
        Ok(())
    }
}

/// Pieces of a message, each after its length.
fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
    bodies.iter().flat_map(|body| [&(body.len() as u32).to_le_bytes()[..], body].concat()).collect()
}

/// The pieces of a message for so many scalars.
fn unframed(message: &[u8], scalars: usize) -> Result<Vec<&[u8]>, String> {
    let (mut rest, mut bodies) = (message, Vec::new());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (body, after) = after.split_at_checked(length).ok_or("it ends too early")?;
        bodies.push(body);
        rest = after;
    }
    if !rest.is_empty() || bodies.len() != scalars.div_ceil(PIECE) {
        return Err(format!("it has {} pieces where {} are due", bodies.len(), scalars.div_ceil(PIECE)));
    }
    Ok(bodies)
}

/// The pieces of a shard, in its order.
fn pieces(shard: Range<usize>) -> Vec<Range<usize>> {
    shard.clone().step_by(PIECE).map(|start| start..shard.end.min(start + PIECE)).collect()
}

impl MeanWire {
    fn shard(&self, machine: usize) -> Range<usize> {
        // Even bounds.
        let bound = |k: usize| (self.scalars * k / self.machines).next_multiple_of(2).min(self.scalars);
        bound(machine)..if machine + 1 == self.machines { self.scalars } else { bound(machine + 1) }
    }

    fn dithers(&self, purpose: Purpose, round: u64, row: usize) -> Dithers<'_> {
        Dithers { randomness: &self.randomness, purpose, round, row: row as u32 }
    }

    /// The pieces of every machine's message, whose scalars are so many.
    fn unframed<'m>(
        &self,
        messages: &'m [Vec<u8>],
        scalars: impl Fn(usize) -> usize,
    ) -> Result<Vec<Vec<&'m [u8]>>, Unreadable> {
        let one =
            |(sender, message): (usize, &'m Vec<u8>)| unframed(message, scalars(sender)).map_err(|what| (sender, what));
        messages.iter().enumerate().map(one).collect()
    }

    fn check_machine(&self, name: &str, machine: usize) -> PyResult<()> {
        if machine < self.machines {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("{name}: machine {machine} of {}", self.machines)))
    }
}

/// A machine whose message cannot be read, and why.
type Unreadable = (usize, String);

fn refused((sender, what): Unreadable) -> PyErr {
    PyValueError::new_err(format!("the message of machine {sender} cannot be read: {what}"))
}

/// Eight sums in a fixed order: the scale that follows from it must have the same bits everywhere.
fn mean_square(numbers: &[f32]) -> f64 {
    let mut sums = [0.0; 8];
    for eight in numbers.chunks(8) {
        sums.iter_mut().zip(eight).for_each(|(sum, &p)| *sum += f64::from(p) * f64::from(p));
    }
    sums.iter().sum::<f64>() / numbers.len() as f64
}

#[pymethods]
impl MeanWire {
    #[new]
    fn new(seed: &Bound<'_, PyAny>, scalars: usize, machines: usize, code: &str) -> PyResult<Self> {
        let code = match code {
            "q" => Code::Entropy,
            "4bit" => Code::FourBits,
            "1bit" => Code::OneBit,
            _ => return Err(PyValueError::new_err(format!("code: '{code}' is none of 'q', '4bit' and '1bit'"))),
        };
        if machines == 0 || machines > u32::MAX as usize {
            return Err(PyValueError::new_err(format!("machines: {machines}")));
        }
        Ok(Self { randomness: CommonRandomness::new(&read_seed(seed)?), code, scalars, machines })
    }

    /// This machine's messages to the hubs of all shards, in their order.
    fn split<'py>(
        &self,
        py: Python<'py>,
        round: u64,
        rank: usize,
        scalars: PyReadonlyArray1<'py, f32>,
        step: f64,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        self.check_machine("rank", rank)?;
        let scalars = contiguous("scalars", &scalars)?;
        expect_length("scalars", scalars.len(), self.scalars)?;
        let dithers = self.dithers(Purpose::Dither, round, rank);
        let messages: Vec<Vec<u8>> = py.detach(|| {
            let written = |piece: Range<usize>| self.code.write(dithers, piece.start, &scalars[piece], step);
            let bodies = |shard| pieces(shard).into_par_iter().map(written).collect::<Vec<_>>();
            (0..self.machines).map(|machine| framed(&bodies(self.shard(machine)))).collect()
        });
        Ok(messages.iter().map(|message| PyBytes::new(py, message)).collect())
    }

    /// What the hub of a shard sends to all, from the messages of all machines in their order.
    fn combine<'py>(
        &self,
        py: Python<'py>,
        round: u64,
        rank: usize,
        messages: Vec<Vec<u8>>,
        step: f64,
        step_down: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.check_machine("rank", rank)?;
        expect_length("messages", messages.len(), self.machines)?;
        let shard = self.shard(rank);
        let message = py.detach(|| {
            let bodies = self.unframed(&messages, |_| shard.len())?;
            let down = self.dithers(Purpose::DownlinkDither, round, 0);
            let replies = pieces(shard).into_par_iter().enumerate().map(|(index, piece)| {
                let mut sums = vec![0.0; piece.len()];
                for (sender, bodies) in bodies.iter().enumerate() {
                    let up = self.dithers(Purpose::Dither, round, sender);
                    let added = self.code.add(up, piece.start, bodies[index], step, &mut sums);
                    added.map_err(|what| (sender, what))?;
                }
                let means: Vec<f32> = sums.iter().map(|sum| (sum / self.machines as f64) as f32).collect();
                Ok(self.code.write(down, piece.start, &means, step_down))
            });
            Ok(framed(&replies.collect::<Result<Vec<_>, _>>()?))
        });
        let message = message.map_err(refused)?;
        Ok(PyBytes::new(py, &message))
    }

    /// Overwrites `out` with the mean, from the messages of all hubs in their order, and returns its mean square.
    fn join(
        &self,
        py: Python<'_>,
        round: u64,
        messages: Vec<Vec<u8>>,
        step_down: f64,
        mut out: PyReadwriteArray1<'_, f32>,
    ) -> PyResult<f64> {
        expect_length("messages", messages.len(), self.machines)?;
        let out = contiguous_mut("out", &mut out)?;
        expect_length("out", out.len(), self.scalars)?;
        let joined = py.detach(|| {
            let bodies = self.unframed(&messages, |hub| self.shard(hub).len())?;
            let down = self.dithers(Purpose::DownlinkDither, round, 0);
            let (mut rest, mut work) = (&mut *out, Vec::new());
            for (hub, bodies) in bodies.into_iter().enumerate() {
                for (piece, body) in pieces(self.shard(hub)).into_iter().zip(bodies) {
                    let (means, after) = rest.split_at_mut(piece.len());
                    work.push((hub, piece.start, body, means));
                    rest = after;
                }
            }
            work.into_par_iter().try_for_each(|(hub, start, body, out)| {
                let mut means = vec![0.0; out.len()];
                self.code.add(down, start, body, step_down, &mut means).map_err(|what| (hub, what))?;
                out.iter_mut().zip(means).for_each(|(out, mean)| *out = mean as f32);
                Ok(())
            })?;
            Ok(mean_square(out))
        });
        joined.map_err(refused)
    }

    /// This machine's integers for a sum that somebody else adds up. A scalar beyond 127 steps is refused: a byte cannot hold it.
    fn integers<'py>(
        &self,
        py: Python<'py>,
        round: u64,
        rank: usize,
        scalars: PyReadonlyArray1<'py, f32>,
        step: f64,
        mut out: PyReadwriteArray1<'py, i8>,
    ) -> PyResult<()> {
        let scalars = contiguous("scalars", &scalars)?;
        let out = contiguous_mut("out", &mut out)?;
        expect_length("scalars", scalars.len(), self.scalars)?;
        expect_length("out", out.len(), self.scalars)?;
        let dithers = self.dithers(Purpose::Dither, round, rank);
        let fit = py.detach(|| {
            scalars.par_chunks(PIECE).zip(out.par_chunks_mut(PIECE)).enumerate().all(|(index, (scalars, out))| {
                let start = index * PIECE;
                let dithers = dithers.of(&(start..start + scalars.len()));
                out.iter_mut().zip(scalars).zip(dithers).all(|((out, &scalar), dither)| {
                    i8::try_from(quantise(scalar.into(), step, dither)).map(|integer| *out = integer).is_ok()
                })
            })
        });
        if fit { Ok(()) } else { Err(PyValueError::new_err(format!("step: a scalar is beyond 127 steps of {step}"))) }
    }

    /// Overwrites `out` with the mean that the sums of all machines' integers stand for, and returns its mean square.
    fn mean_of_sums(
        &self,
        py: Python<'_>,
        round: u64,
        sums: PyReadonlyArray1<'_, i8>,
        step: f64,
        mut out: PyReadwriteArray1<'_, f32>,
    ) -> PyResult<f64> {
        let sums = contiguous("sums", &sums)?;
        let out = contiguous_mut("out", &mut out)?;
        expect_length("sums", sums.len(), self.scalars)?;
        expect_length("out", out.len(), self.scalars)?;
        py.detach(|| {
            sums.par_chunks(PIECE).zip(out.par_chunks_mut(PIECE)).enumerate().for_each(|(index, (sums, out))| {
                let range = index * PIECE..index * PIECE + sums.len();
                let mut all = vec![0.0; sums.len()];
                for machine in 0..self.machines {
                    let dithers = self.dithers(Purpose::Dither, round, machine).of(&range);
                    all.iter_mut().zip(dithers).for_each(|(all, dither)| *all += dither.value());
                }
                let unit = step / self.machines as f64;
                for ((out, &sum), dither) in out.iter_mut().zip(sums).zip(all) {
                    *out = ((f64::from(sum) - dither) * unit) as f32;
                }
            });
        });
        Ok(mean_square(out))
    }
}
