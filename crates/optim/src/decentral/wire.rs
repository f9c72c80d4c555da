//! How a block of numbers travels to a neighbour: as floats, or as what is new since the last message, in dithered integers.

use std::ops::Range;

use corewire_comm::numbers;
use corewire_sketch::code::{Dither, IntegerCoder, dequantise, quantise};
use corewire_sketch::{CommonRandomness, Purpose, Words};

/// A step of the integers, in units of what gossip has left of the largest block's size. Coarser steps save hardly a bit, because the noise
/// that they leave has to be sent as well; finer ones cost their logarithm.
const STEP: f64 = 0.1;
/// The exponent of a step of 0, for parts in which nobody has said anything yet.
const NOTHING: i8 = i8::MIN;

/// How numbers travel between neighbours.
#[derive(Clone, Debug)]
pub enum GossipWire {
    /// As 64-bit floats.
    F64,
    /// As 32-bit floats.
    F32,
    /// As dithered integers of what is new since the last message, about seven bits a number.
    Quantised(Box<CommonRandomness>),
}

/// One direction of an edge within one averaging: what its sender has made known of its block. The receiver keeps a twin.
///
/// Sender and receiver go on from what is known, and not from what is true, so that both ends of an edge compute with the same numbers: the
/// mean over all machines stays where it is, however coarse the integers are.
pub(super) struct Line {
    known: Vec<f64>,
    code: Code,
}

enum Code {
    Floats { double: bool },
    Integers { words: Box<Words>, coder: IntegerCoder },
}

impl Line {
    /// Nothing is known yet of `sender`'s block.
    pub(super) fn new(wire: &GossipWire, round: u64, sender: usize, length: usize) -> Self {
        let code = match wire {
            GossipWire::F64 => Code::Floats { double: true },
            GossipWire::F32 => Code::Floats { double: false },
            GossipWire::Quantised(randomness) => Code::Integers {
                words: Box::new(randomness.words(Purpose::Dither, round, sender as u32)),
                coder: IntegerCoder::new(),
            },
        };
        Self { known: vec![0.0; length], code }
    }

    /// What the receiver knows.
    pub(super) fn known(&self) -> &[f64] {
        &self.known
    }

    /// The message that makes `block` known, as nearly as the wire can, with each part's step if it is in integers.
    pub(super) fn say(&mut self, block: &[f64], sizes: &Sizes) -> Vec<u8> {
        let (known, mut message) = (&mut self.known, Vec::new());
        match &mut self.code {
            Code::Floats { double } => {
                numbers::push_floats(block, *double, &mut message);
                let whole = numbers::read_floats(&message, *double, known);
                debug_assert!(whole, "what was written is read");
            }
            Code::Integers { words, coder } => {
                let exponents = sizes.exponents();
                message.extend(exponents.iter().map(|exponent| exponent.to_le_bytes()[0]));
                let dithers = dithers(words, block.len());
                let mut integers = vec![0; block.len()];
                for (part, &exponent) in sizes.parts.iter().zip(&exponents) {
                    for at in part.clone() {
                        integers[at] = quantise(block[at] - known[at], step(exponent), dithers[at]);
                        known[at] += dequantise(integers[at], step(exponent), dithers[at]);
                    }
                }
                coder.encode(&integers, &dithers, &mut message);
            }
        }
        message
    }

    /// Takes in a message; the reason, where it is none that a sender of such blocks writes.
    pub(super) fn hear(&mut self, message: &[u8], sizes: &mut Sizes) -> Result<(), String> {
        let known = &mut self.known;
        match &mut self.code {
            Code::Floats { double } => match numbers::read_floats(message, *double, known) {
                true => Ok(()),
                false => Err(format!("it sent {} bytes for {} numbers", message.len(), known.len())),
            },
            Code::Integers { words, coder } => {
                let Some((exponents, message)) = message.split_at_checked(sizes.parts.len()) else {
                    return Err("its message is too short".to_owned());
                };
                let exponents: Vec<i8> = exponents.iter().map(|&byte| i8::from_le_bytes([byte])).collect();
                let dithers = dithers(words, known.len());
                let mut integers = vec![0; known.len()];
                coder.decode(message, &dithers, &mut integers).map_err(|error| format!("in its message {error}"))?;
                for (part, &exponent) in sizes.parts.iter().zip(&exponents) {
                    for at in part.clone() {
                        known[at] += dequantise(integers[at], step(exponent), dithers[at]);
                    }
                }
                sizes.raise(&exponents);
                Ok(())
            }
        }
    }
}

/// The size that the parts of a block had at the start, the largest that one has heard of, and what gossip has left of it: how coarse the
/// integers may be follows from these and not from the integers themselves, whose noise would feed itself.
pub(super) struct Sizes<'a> {
    parts: &'a [Range<usize>],
    sizes: Vec<f64>,
    left: f64,
}

impl<'a> Sizes<'a> {
    /// Before the first iteration.
    pub(super) fn new(block: &[f64], parts: &'a [Range<usize>]) -> Self {
        let size = |part: &Range<usize>| {
            let squares: f64 = block[part.clone()].iter().map(|number| number * number).sum();
            (squares / part.len() as f64).sqrt()
        };
        Self { parts, sizes: parts.iter().map(size).collect(), left: 1.0 }
    }

    /// After an iteration, which left this much.
    pub(super) fn shrink(&mut self, left: f64) {
        self.left = left;
    }

    fn exponents(&self) -> Vec<i8> {
        // Rounded down, so that a size which goes round among neighbours does not grow on its way.
        let exponent = |size: &f64| match STEP * self.left * size {
            step if step > 0.0 => libm::floor(libm::log2(step)).clamp(-127.0, 127.0) as i8,
            _ => NOTHING,
        };
        self.sizes.iter().map(exponent).collect()
    }

    fn raise(&mut self, exponents: &[i8]) {
        let heard = exponents.iter().map(|&exponent| step(exponent) / (STEP * self.left));
        self.sizes.iter_mut().zip(heard).for_each(|(size, heard)| *size = size.max(heard));
    }
}

fn step(exponent: i8) -> f64 {
    if exponent == NOTHING { 0.0 } else { f64::powi(2.0, exponent.into()) }
}

fn dithers(words: &mut Words, length: usize) -> Vec<Dither> {
    let mut dithers = vec![Dither::NONE; length];
    Dither::fill(words, &mut dithers);
    dithers
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewire_sketch::Seed;

    #[test]
    fn a_twin_knows_what_its_sender_thinks_it_knows_and_gets_nearer() {
        let wire = GossipWire::Quantised(Box::new(CommonRandomness::new(&Seed::reproducible(4))));
        // A part of another size, and one in which there is nothing at all.
        let (parts, block) = ([0..2, 2..4, 4..6], [3.0, -1.0, 2e-9, 1e-9, 0.0, 0.0]);
        let (mut here, mut there) = (Line::new(&wire, 7, 2, 6), Line::new(&wire, 7, 2, 6));
        let (mut mine, mut theirs) = (Sizes::new(&block, &parts), Sizes::new(&[0.0; 6], &parts));
        for left in [1.0, 0.1, 1e-3, 1e-6] {
            mine.shrink(left);
            theirs.shrink(left);
            there.hear(&here.say(&block, &mine), &mut theirs).unwrap();
            assert_eq!(here.known(), there.known());
            for (part, size) in parts.iter().zip(&mine.sizes) {
                // Half a step, and one power of two is lost in rounding it down at most.
                let far = part.clone().map(|at| (here.known()[at] - block[at]).abs()).fold(0.0, f64::max);
                assert!(far <= 0.5 * STEP * left * size, "{far:e} of {size} at {left}");
            }
            // Whoever had nothing hears how large the others' numbers are, to a power of two, and never larger than they are.
            for (heard, size) in theirs.sizes.iter().zip(&mine.sizes) {
                assert!(*heard <= *size * (1.0 + 1e-12) && 2.0 * heard >= *size, "{heard} {size}");
            }
        }
    }

    #[test]
    fn what_no_sender_writes_is_refused() {
        let wire = GossipWire::Quantised(Box::new(CommonRandomness::new(&Seed::reproducible(4))));
        let parts = [0..3, 3..6];
        let hear = |wire: &GossipWire, message: &[u8]| {
            Line::new(wire, 0, 0, 6).hear(message, &mut Sizes::new(&[1.0; 6], &parts)).unwrap_err()
        };
        assert_eq!(hear(&GossipWire::F32, &[0; 23]), "it sent 23 bytes for 6 numbers");
        assert_eq!(hear(&wire, &[0]), "its message is too short");
        assert!(hear(&wire, &[255; 60]).starts_with("in its message "));
    }
}
