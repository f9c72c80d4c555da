//! How vectors and rows travel in CORE-Newton: dithered integers, coded with spreads that both ends know or that travel in a byte.

use corewire_comm::CommError;
use corewire_sketch::code::{Dither, SpreadDecoder, SpreadEncoder, quantise};
use corewire_sketch::{CommonRandomness, Purpose};

/// A positive number in two bytes, rounded to eight bits; never 0.
pub(super) fn round_short(value: f64) -> f64 {
    let bits = (value.clamp(1e-30, 1e30) as f32).to_bits();
    f64::from(f32::from_bits(bits.saturating_add(0x8000) & 0xffff_0000))
}

pub(super) fn push_short(value: f64, message: &mut Vec<u8>) {
    message.extend_from_slice(&(value as f32).to_bits().to_le_bytes()[2..]);
}

pub(super) fn read_short(bytes: [u8; 2]) -> f64 {
    f64::from(f32::from_bits(u32::from_le_bytes([0, 0, bytes[0], bytes[1]])))
}

/// A spread as a byte: steps of an eighth of an octave.
pub(super) fn spread_byte(spread: f64) -> u8 {
    (8.0 * libm::log2(spread.max(1e-3)) + 128.0).round().clamp(0.0, 255.0) as u8
}

pub(super) fn byte_spread(byte: u8) -> f64 {
    libm::exp2((f64::from(byte) - 128.0) / 8.0)
}

pub(super) fn root_mean_square(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    (values.map(|value| value * value).sum::<f64>() / count).sqrt()
}

/// The dithers of an address.
pub(super) fn dithers(
    randomness: &CommonRandomness,
    purpose: Purpose,
    round: u64,
    rank: usize,
    count: usize,
) -> Vec<Dither> {
    let mut dithers = vec![Dither::NONE; count];
    Dither::fill(&mut randomness.words(purpose, round, rank as u32), &mut dithers);
    dithers
}

/// What an integer stands for, in units of its step.
pub(super) fn decoded(integer: i32, dither: Dither) -> f64 {
    f64::from(integer) - dither.value()
}

/// The energies that both ends expect of the coordinates, with mean one, learnt from what was decoded.
#[derive(Clone, Debug)]
pub(super) struct Energies(pub Vec<f64>);

/// No coordinate is expected to have less.
const LEAST_ENERGY: f64 = 0.003;

impl Energies {
    pub(super) fn flat(dim: usize) -> Self {
        Self(vec![1.0; dim])
    }

    /// Half of what was expected, half of what was seen; the dither's own energy is taken off.
    pub(super) fn learn(&mut self, decoded: &[f64]) {
        let seen: Vec<f64> = decoded.iter().map(|t| (t * t - 1.0 / 12.0).max(0.0)).collect();
        let mean = seen.iter().sum::<f64>() / seen.len().max(1) as f64;
        if mean > 0.0 {
            for (energy, seen) in self.0.iter_mut().zip(&seen) {
                *energy = (0.5 * *energy + 0.5 * seen / mean).max(LEAST_ENERGY);
            }
        }
        self.normalise();
    }

    fn normalise(&mut self) {
        let mean = self.0.iter().sum::<f64>() / self.0.len().max(1) as f64;
        if mean > 0.0 {
            self.0.iter_mut().for_each(|energy| *energy /= mean);
        }
    }

    /// The coordinates in a few nearly equal groups, those of the largest energy first. A group shares a spread.
    pub(super) fn groups(&self) -> Vec<Vec<usize>> {
        let dim = self.0.len();
        let count = (dim / 64).clamp(1, 8);
        let mut order: Vec<usize> = (0..dim).collect();
        order.sort_by(|&a, &b| self.0[b].total_cmp(&self.0[a]).then(a.cmp(&b)));
        let (each, more) = (dim / count, dim % count);
        let mut rest = &order[..];
        (0..count)
            .map(|group| {
                let (taken, tail) = rest.split_at(each + usize::from(group < more));
                rest = tail;
                taken.to_vec()
            })
            .collect()
    }
}

/// A vector's integers, with the spreads of its groups in front: first all bytes, then, in one stream with whatever else travels, the
/// integers.
pub(super) struct CodedVector {
    pub integers: Vec<i32>,
    pub spreads: Vec<u8>,
}

impl CodedVector {
    pub(super) fn new(vector: &[f64], step: f64, dithers: &[Dither], energies: &Energies) -> Self {
        let integers = vector.iter().zip(dithers).map(|(&value, &dither)| quantise(value, step, dither)).collect();
        let spread = |group: &Vec<usize>| spread_byte(root_mean_square(group.iter().map(|&j| vector[j] / step)));
        Self { integers, spreads: energies.groups().iter().map(spread).collect() }
    }

    pub(super) fn encode(&self, dithers: &[Dither], energies: &Energies, encoder: &mut SpreadEncoder<'_>) {
        for (group, &byte) in energies.groups().iter().zip(&self.spreads) {
            let spread = byte_spread(byte);
            group.iter().for_each(|&j| encoder.push(self.integers[j], dithers[j], spread));
        }
    }

    /// The decoded vector in units of its step.
    pub(super) fn decode(
        spreads: &[u8],
        dithers: &[Dither],
        energies: &Energies,
        decoder: &mut SpreadDecoder<'_>,
    ) -> Result<Vec<f64>, String> {
        let mut vector = vec![0.0; energies.0.len()];
        for (group, &byte) in energies.groups().iter().zip(spreads) {
            let spread = byte_spread(byte);
            for &j in group {
                let integer = decoder.next(dithers[j], spread).map_err(|error| error.to_string())?;
                vector[j] = decoded(integer, dithers[j]);
            }
        }
        Ok(vector)
    }
}

/// The spreads of the entries of rows that follow each other: those before tell which columns are large. A model along the spectrum.
pub(super) struct RowModel {
    sums: Vec<f64>,
    total: f64,
    rows: usize,
    weights: Vec<f64>,
}

impl RowModel {
    pub(super) fn new(dim: usize) -> Self {
        Self { sums: vec![0.0; dim], total: 0.0, rows: 0, weights: vec![1.0; dim] }
    }

    /// The spread of entry j of the next row, given the row's own.
    pub(super) fn spread(&self, row: f64, j: usize) -> f64 {
        row * self.weights[j].sqrt()
    }

    /// Takes in a decoded row, in units of its step.
    pub(super) fn learn(&mut self, row: f64, decoded: &[f64]) {
        self.sums.iter_mut().zip(decoded).for_each(|(sum, t)| *sum += t * t - 1.0 / 12.0);
        self.total += row * row;
        self.rows += 1;
        // A tenth of a mean row, spread evenly.
        let even = 0.1 * self.total / self.rows as f64;
        let whole = self.total + even;
        for (weight, sum) in self.weights.iter_mut().zip(&self.sums) {
            *weight = ((sum + even).max(0.0) / whole).max(LEAST_ENERGY);
        }
        let mut energies = Energies(std::mem::take(&mut self.weights));
        energies.normalise();
        self.weights = energies.0;
    }

    /// What the rows together say of the columns.
    pub(super) fn energies(&self) -> Energies {
        if self.rows == 0 || self.total <= 0.0 {
            return Energies::flat(self.sums.len());
        }
        let mut energies =
            Energies(self.sums.iter().map(|sum| (sum.max(0.0) / self.total).max(LEAST_ENERGY)).collect());
        energies.normalise();
        energies
    }
}

pub(super) fn refused(rank: usize, what: impl std::fmt::Display) -> CommError {
    CommError::refused(rank, format!("its message of core-newton: {what}"))
}
