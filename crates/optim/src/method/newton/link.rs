//! What a machine and the hub both know of the machine's messages: the rows of curvature that it has sent, the space that they span, and
//! where its gradients are expected to be large.

use corewire_algebra::vector::{add_scaled, dot, norm_squared};
use corewire_sketch::code::{Dither, SpreadDecoder, SpreadEncoder, quantise};
use corewire_sketch::{CommonRandomness, Purpose};

use super::code::{
    CodedVector, Energies, RowModel, byte_spread, decoded, dithers, push_short, read_short, root_mean_square,
    round_short, spread_byte,
};
use crate::state::{Scope, Visitor};

/// Both ends' view of one machine.
pub(super) struct Link {
    /// Whose; set anew by who goes on after a resume.
    pub rank: usize,
    /// Blocks of coordinates that the rows are told of alike.
    blocks: usize,
    /// The rows sqrt(lambda) v as they were decoded.
    pub rows: Vec<Vec<f64>>,
    /// An orthonormal basis of their span; empty where that is all of space.
    basis: Vec<Vec<f64>>,
    energies: Energies,
}

/// A gradient's residual as the hub decodes it.
pub(super) struct Residual {
    /// q_i.
    pub vector: Vec<f64>,
    /// How far the shift follows.
    pub theta: f64,
}

/// Rows that are about to be sent: values and unit vectors.
pub(super) struct Factors {
    pub values: Vec<f64>,
    pub vectors: Vec<Vec<f64>>,
    /// The step of all of them.
    pub step: f64,
}

impl Link {
    pub(super) fn new(rank: usize, columns: usize, blocks: usize) -> Self {
        Self { rank, blocks, rows: Vec::new(), basis: Vec::new(), energies: Energies::flat(columns * blocks) }
    }

    fn dim(&self) -> usize {
        self.energies.0.len()
    }

    /// Coordinates of a block, and so of a row.
    fn columns(&self) -> usize {
        self.dim() / self.blocks
    }

    /// Whether residuals are coded in two bands: inside the span of the rows, and the rest.
    fn has_band(&self) -> bool {
        !self.rows.is_empty() && self.rows.len() < self.columns()
    }

    /// Appends the head of a message with factors, and returns the bytes of their spreads.
    pub(super) fn push_factors_head(factors: &Factors, message: &mut Vec<u8>) -> Vec<u8> {
        let dim = factors.vectors.first().map_or(1, Vec::len) as f64;
        message.extend_from_slice(&(factors.values.len() as u16).to_le_bytes());
        push_short(factors.step, message);
        let spreads: Vec<u8> =
            factors.values.iter().map(|value| spread_byte((value / dim).sqrt() / factors.step)).collect();
        message.extend_from_slice(&spreads);
        spreads
    }

    /// Writes factors into the stream and takes them in, as the hub will.
    pub(super) fn encode_factors(
        &mut self,
        randomness: &CommonRandomness,
        round: u64,
        factors: &Factors,
        spreads: &[u8],
        replace: bool,
        encoder: &mut SpreadEncoder<'_>,
    ) {
        let dim = self.columns();
        let all = dithers(randomness, Purpose::Factors, round, self.rank, dim * factors.values.len());
        let mut model = RowModel::new(dim);
        let mut rows = Vec::with_capacity(spreads.len());
        for (k, (value, vector)) in factors.values.iter().zip(&factors.vectors).enumerate() {
            let (spread, own) = (byte_spread(spreads[k]), &all[k * dim..(k + 1) * dim]);
            let mut row = vec![0.0; dim];
            for j in 0..dim {
                let integer = quantise(value.sqrt() * vector[j], factors.step, own[j]);
                encoder.push(integer, own[j], model.spread(spread, j));
                row[j] = decoded(integer, own[j]);
            }
            model.learn(spread, &row);
            rows.push(row);
        }
        self.take_in(rows, &model, factors.step, replace);
    }

    /// Reads factors from the stream and takes them in.
    pub(super) fn decode_factors(
        &mut self,
        randomness: &CommonRandomness,
        round: u64,
        (step, spreads): (f64, &[u8]),
        replace: bool,
        decoder: &mut SpreadDecoder<'_>,
    ) -> Result<(), String> {
        let dim = self.columns();
        let all = dithers(randomness, Purpose::Factors, round, self.rank, dim * spreads.len());
        let mut model = RowModel::new(dim);
        let mut rows = Vec::with_capacity(spreads.len());
        for (k, &byte) in spreads.iter().enumerate() {
            let (spread, own) = (byte_spread(byte), &all[k * dim..(k + 1) * dim]);
            let mut row = vec![0.0; dim];
            for j in 0..dim {
                let integer = decoder.next(own[j], model.spread(spread, j)).map_err(|error| error.to_string())?;
                row[j] = decoded(integer, own[j]);
            }
            model.learn(spread, &row);
            rows.push(row);
        }
        self.take_in(rows, &model, step, replace);
        Ok(())
    }

    fn take_in(&mut self, rows: Vec<Vec<f64>>, model: &RowModel, step: f64, replace: bool) {
        if replace {
            self.rows.clear();
            self.basis.clear();
        }
        let before = self.rows.len();
        if !rows.is_empty() {
            self.energies = Energies(model.energies().0.repeat(self.blocks));
        }
        let scaled = |row: Vec<f64>| row.into_iter().map(|t| t * step).collect();
        self.rows.extend(rows.into_iter().map(scaled));
        self.extend_basis(before);
    }

    /// Gram and Schmidt twice, in the order of the rows from this one on; a row that loses all but a millionth is left out.
    fn extend_basis(&mut self, from: usize) {
        if !self.has_band() {
            self.basis.clear();
            return;
        }
        for row in &self.rows[from..] {
            let mut left = row.clone();
            for _ in 0..2 {
                for direction in &self.basis {
                    let overlap = dot(direction, &left);
                    add_scaled(-overlap, direction, &mut left);
                }
            }
            let (before, after) = (norm_squared(row).sqrt(), norm_squared(&left).sqrt());
            if after > 1e-6 * before {
                left.iter_mut().for_each(|value| *value /= after);
                self.basis.push(left);
            }
        }
    }

    /// A residual's coefficients in the span of the rows, and what is left of it.
    fn split(&self, residual: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut inside, mut outside) = (Vec::with_capacity(self.blocks * self.basis.len()), residual.to_vec());
        for block in outside.chunks_exact_mut(self.columns().max(1)) {
            let weights: Vec<f64> = self.basis.iter().map(|direction| dot(direction, block)).collect();
            weights.iter().zip(&self.basis).for_each(|(weight, direction)| add_scaled(-weight, direction, block));
            inside.extend(weights);
        }
        (inside, outside)
    }

    fn dithers(&self, randomness: &CommonRandomness, round: u64) -> Vec<Dither> {
        dithers(randomness, Purpose::Dither, round, self.rank, self.dim() + self.blocks * self.basis.len())
    }

    /// Spread bytes in front of the stream, once so many rows more have come, in place of those before or beside them: one for the band,
    /// if there is one, and one for each group of the rest.
    pub(super) fn spread_count_with(&self, more: usize, replace: bool) -> usize {
        let rows = more + if replace { 0 } else { self.rows.len() };
        usize::from(rows > 0 && rows < self.columns()) + self.energies.groups().len()
    }

    /// Codes a residual at this step: the bytes of its spreads, and what the stream will hold.
    pub(super) fn code_residual(
        &self,
        randomness: &CommonRandomness,
        round: u64,
        residual: &[f64],
        step: f64,
    ) -> CodedResidual {
        let all = self.dithers(randomness, round);
        let (inside, outside) = self.split(residual);
        let (first, rest) = all.split_at(self.dim());
        let outside = CodedVector::new(&outside, step, first, &self.energies);
        let spread = spread_byte(root_mean_square(inside.iter().map(|value| value / step)));
        let inside = inside.iter().zip(rest).map(|(&value, &dither)| quantise(value, step, dither)).collect();
        let mut spreads = if self.has_band() { vec![spread] } else { Vec::new() };
        spreads.extend_from_slice(&outside.spreads);
        CodedResidual { inside, outside, spreads, dithers: all }
    }

    /// Writes a coded residual into the stream, and takes it in as the hub will.
    pub(super) fn encode_residual(
        &mut self,
        coded: &CodedResidual,
        step: f64,
        encoder: &mut SpreadEncoder<'_>,
    ) -> Residual {
        let (first, rest) = coded.dithers.split_at(self.dim());
        if let Some(&byte) = coded.spreads.first().filter(|_| self.has_band()) {
            let spread = byte_spread(byte);
            coded.inside.iter().zip(rest).for_each(|(&integer, &dither)| encoder.push(integer, dither, spread));
        }
        coded.outside.encode(first, &self.energies, encoder);
        let inside: Vec<f64> = coded.inside.iter().zip(rest).map(|(&z, &u)| decoded(z, u)).collect();
        let outside: Vec<f64> = coded.outside.integers.iter().zip(first).map(|(&z, &u)| decoded(z, u)).collect();
        self.assemble(&inside, &outside, step)
    }

    /// Reads a residual from the stream.
    pub(super) fn decode_residual(
        &mut self,
        randomness: &CommonRandomness,
        round: u64,
        spreads: &[u8],
        step: f64,
        decoder: &mut SpreadDecoder<'_>,
    ) -> Result<Residual, String> {
        let all = self.dithers(randomness, round);
        let (first, rest) = all.split_at(self.dim());
        let (band, groups) = spreads.split_at(usize::from(self.has_band()));
        let mut inside = Vec::with_capacity(rest.len());
        for &dither in rest {
            let integer = decoder.next(dither, byte_spread(band[0])).map_err(|error| error.to_string())?;
            inside.push(decoded(integer, dither));
        }
        let outside = CodedVector::decode(groups, first, &self.energies, decoder)?;
        Ok(self.assemble(&inside, &outside, step))
    }

    /// q_i from both bands, each in units of the step; the noise stays white.
    fn assemble(&mut self, inside: &[f64], outside: &[f64], step: f64) -> Residual {
        let mut vector: Vec<f64> = outside.iter().map(|t| t * step).collect();
        let (columns, count) = (self.columns().max(1), self.basis.len());
        for (at, block) in vector.chunks_exact_mut(columns).enumerate() {
            for (weight, direction) in inside[at * count..(at + 1) * count].iter().zip(&self.basis) {
                let overlap = dot(direction, block);
                add_scaled(weight * step - overlap, direction, block);
            }
        }
        self.energies.learn(outside);
        let mean = norm_squared(&vector) / (step * step) / vector.len().max(1) as f64;
        let theta = (1.0 - 1.0 / (12.0 * mean.max(1e-300))).max(0.0);
        Residual { vector, theta }
    }

    pub(super) fn visit(&mut self, visitor: &mut dyn Visitor) {
        visitor.vectors(Scope::Local, "link_rows", &mut self.rows);
        visitor.vector(Scope::Local, "link_energies", &mut self.energies.0);
        // Made anew after a resume only: a digest walks here too.
        if self.basis.is_empty() {
            self.extend_basis(0);
        }
    }
}

/// A residual on its way.
pub(super) struct CodedResidual {
    inside: Vec<i32>,
    outside: CodedVector,
    pub spreads: Vec<u8>,
    dithers: Vec<Dither>,
}

/// The head of a message with factors: their step and spreads.
pub(super) fn read_factors_head(rest: &mut &[u8]) -> Option<(f64, Vec<u8>)> {
    let (count, tail) = rest.split_first_chunk::<2>()?;
    let (step, tail) = tail.split_first_chunk::<2>()?;
    let (spreads, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*count)))?;
    *rest = tail;
    Some((read_short(*step), spreads.to_vec()))
}

/// The step of factors whose smallest eigenvalue counts as `least`.
pub(super) fn factor_step(least: f64, dim: usize) -> f64 {
    round_short((least / dim as f64).sqrt() / 0.35)
}
