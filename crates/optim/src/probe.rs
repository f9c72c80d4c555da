//! Curvature from what the machines tell: every machine's trace, its own L_i and a small Gram matrix of common directions, and what machine
//! 0 makes of all of them. It needs no machine that has all rows.

use corewire_algebra::eigen;
use corewire_comm::CommError;
use corewire_comm::numbers::{self, Number};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Purpose, Sketch};

use crate::error::RunError;
use crate::estimator::check_finite;
use crate::method::Context;
use crate::tuning::Curvature;

/// How many common directions are used.
const PROBES: usize = 16;
/// The guess of L spreads by about a third: this much is added.
const CAUTION: f64 = 1.2;

/// The directions of a probe.
pub struct Probe {
    directions: AnySketch,
    dim: usize,
}

impl Probe {
    /// For vectors of this length.
    ///
    /// # Panics
    /// If there are no coordinates.
    pub fn new(dim: usize, randomness: &CommonRandomness) -> Self {
        let directions = AnySketch::new(Family::Rademacher, randomness, dim, PROBES.min(dim))
            .expect("a few directions of a vector that has coordinates")
            .with_purpose(Purpose::Probe);
        Self { directions, dim }
    }

    /// This machine's message: its trace where it knows it (else a zero that nobody reads), and the lower triangle of Xi A_i Xi', as short
    /// floats.
    pub fn message(&self, context: &mut Context<'_>, x: &[f64]) -> Result<Vec<u8>, RunError> {
        let count = self.directions.len();
        let known_trace = context.objective.bound_trace();
        let mut numbers = vec![known_trace.unwrap_or(f64::NAN)];
        let (mut direction, mut product, mut row) = (vec![0.0; self.dim], vec![0.0; self.dim], vec![0.0; count]);
        for k in 0..count {
            let mut unit = vec![0.0; count];
            unit[k] = count as f64;
            self.directions.reconstruct(0, &unit, &mut direction);
            context.objective.bound_vector(x, &direction, &mut product);
            self.directions.project(0, &product, &mut row);
            numbers.extend_from_slice(&row[..=k]);
        }
        check_finite(context.place(0), "a curvature", &numbers[1..])?;
        // Upper halves of 32-bit floats, rounded to nearest.
        let mut message = Vec::with_capacity(2 * numbers.len());
        for number in numbers {
            let bits = numbers::narrow(number).to_bits();
            let rounded = if number.is_nan() { bits } else { bits.saturating_add(0x8000) };
            message.extend_from_slice(&rounded.to_le_bytes()[2..]);
        }
        Ok(message)
    }

    /// Machine 0: the trace, and L from the largest eigenvalue of the Gram matrix, with caution.
    pub fn guess(&self, messages: &[&[u8]], strong_convexity: f64) -> Result<Curvature, CommError> {
        let count = self.directions.len();
        let length = 1 + count * (count + 1) / 2;
        let mut sums = vec![0.0; length];
        for (rank, message) in messages.iter().enumerate() {
            if message.len() != 2 * length {
                return Err(CommError::refused(rank, format!("it sent {} bytes to the probe", message.len())));
            }
            for (sum, half) in sums.iter_mut().zip(message.chunks_exact(2)) {
                *sum += f64::from(f32::read(&[0, 0, half[0], half[1]]));
            }
        }
        sums.iter_mut().for_each(|sum| *sum /= messages.len() as f64);
        let mut matrix = vec![0.0; count * count];
        let mut entries = sums[1..].iter();
        for k in 0..count {
            for l in 0..=k {
                let entry = *entries.next().expect("one entry a pair");
                matrix[k * count + l] = entry;
                matrix[l * count + k] = entry;
            }
        }
        let diagonal = (0..count).map(|k| matrix[k * count + k]).sum::<f64>() / count as f64;
        // An indefinite Hessian may have any trace; what steps rest on is positive.
        let trace = if sums[0].is_nan() { diagonal } else { sums[0] };
        let trace = trace.max(self.dim as f64 * strong_convexity).max(f64::MIN_POSITIVE.sqrt());
        let largest = eigen::values(matrix, count).first().copied().unwrap_or(0.0).max(0.0);
        let guess = if count > 1 { (largest - diagonal) / (count as f64 - 1.0) } else { diagonal };
        let smoothness = (CAUTION * guess).clamp(trace / self.dim as f64, trace);
        Ok(Curvature { dim: self.dim, trace, smoothness, strong_convexity })
    }
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    fn halves(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
        numbers.into_iter().flat_map(|number| [number.to_le_bytes()[2], number.to_le_bytes()[3]]).collect()
    }

    #[test]
    fn a_trace_below_zero_leaves_a_curvature_that_steps_can_rest_on() {
        for dim in [1, 2, 16, 40] {
            let probe = Probe::new(dim, &CommonRandomness::new(&Seed::reproducible(1)));
            let entries = probe.directions.len() * (probe.directions.len() + 1) / 2;
            for trace in [-1e30, -1.0, 0.0, 1.0, f32::NAN] {
                for entry in [-1e30, -3.0, 0.0, 2.0] {
                    let message = halves(std::iter::once(trace).chain(std::iter::repeat_n(entry, entries)));
                    for strong_convexity in [0.0, 1e-3] {
                        let found = probe.guess(&[&message, &message], strong_convexity).unwrap();
                        let case = format!("d = {dim}, trace {trace}, entries {entry}");
                        assert!(found.trace > 0.0 && found.trace.is_finite(), "{case}: {found:?}");
                        assert!(found.smoothness > 0.0 && found.smoothness <= found.trace, "{case}: {found:?}");
                    }
                }
            }
            let short = halves([1.0]);
            assert!(probe.guess(&[&short], 0.0).is_err() || entries == 0);
        }
    }
}
