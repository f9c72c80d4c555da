//! Whether machine 0's rows may stand for those of all. Every machine sends a small sketch of its first gradient at set-up: machines whose
//! rows are drawn alike differ by what sampling makes of them, and no more. So the hub knows before the first exchange whether it wants
//! factors with the first gradients.

use corewire_algebra::eigen::Eigen;
use corewire_algebra::vector::{add_scaled, norm_squared};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Purpose, Sketch};

use super::code::{push_short, read_short, round_short};

/// Common directions that the first gradients are looked at along. With one the scatter of machines that differ in a single direction would
/// go unseen where the two are nearly orthogonal; four are so once in a thousand seeds even where it is but a hundred times what sampling
/// makes.
const DIRECTIONS: usize = 4;
/// Where gradients scatter more than this times what sampling explains, machines are unlike.
const SCATTER: f64 = 2.0;
/// What rounding to eight bits errs by, squared, relative to the number squared, at most.
const ROUNDING: f64 = 1.0 / (3.0 * 256.0 * 256.0);
/// The hub's rows tell of a direction where it has so many for each.
const ROWS: f64 = 8.0;

/// What a machine tells of its first gradient: its length, and scalars along the directions.
pub(super) struct Glance {
    norm: f64,
    scalars: Vec<f64>,
}

impl Glance {
    pub(super) fn is_finite(&self) -> bool {
        self.norm.is_finite() && self.scalars.iter().all(|scalar| scalar.is_finite())
    }
}

/// The directions, which all machines share.
pub(super) struct Likeness {
    directions: AnySketch,
    dim: usize,
}

impl Likeness {
    pub(super) fn new(dim: usize, randomness: &CommonRandomness) -> Self {
        let directions = AnySketch::new(Family::Rademacher, randomness, dim, DIRECTIONS.min(dim))
            .expect("a few directions of a vector that has coordinates")
            .with_purpose(Purpose::Probe);
        Self { directions, dim }
    }

    /// Appends the glance of a gradient to a message, two bytes a number.
    pub(super) fn push(&self, gradient: &[f64], message: &mut Vec<u8>) {
        let mut numbers = vec![0.0; self.directions.len()];
        self.directions.project(0, gradient, &mut numbers);
        numbers.push(norm_squared(gradient).sqrt());
        numbers.iter().for_each(|number| push_short(round_short(number.abs()).copysign(*number), message));
    }

    /// Takes it off a message's front.
    pub(super) fn take(&self, message: &mut &[u8]) -> Option<Glance> {
        let (bytes, rest) = message.split_at_checked(2 * (self.directions.len() + 1))?;
        *message = rest;
        let mut scalars: Vec<f64> = bytes.chunks_exact(2).map(|bytes| read_short([bytes[0], bytes[1]])).collect();
        let norm = scalars.pop()?;
        Some(Glance { norm, scalars })
    }

    /// The directions themselves, one after the other.
    pub(super) fn directions(&self) -> Vec<Vec<f64>> {
        let count = self.directions.len();
        let direction = |k: usize| {
            let (mut scalars, mut out) = (vec![0.0; count], vec![0.0; self.dim]);
            scalars[k] = count as f64;
            self.directions.reconstruct(0, &scalars, &mut out);
            out
        };
        (0..count).map(direction).collect()
    }
}

/// Whether gradients so glanced at scatter more over machines than sampling rows, unequal shares and rounding explain. `row_scatter` is the
/// variance of what a row adds along a direction.
pub(super) fn unlike(rows: &[f64], glances: &[Glance], row_scatter: f64) -> bool {
    let n = glances.len() as f64;
    if n < 2.0 {
        return false;
    }
    let total: f64 = rows.iter().sum();
    let mean = mean_scalars(glances);
    let directions = mean.len();
    let energy = mean.iter().map(|mean| mean * mean).sum::<f64>() / directions as f64;
    let (mut expected, mut found) = (0.0, 0.0);
    for (&rows, glance) in rows.iter().zip(glances) {
        let weight = n * rows / total;
        expected += rows * row_scatter + (weight - 1.0) * (weight - 1.0) * energy;
        for (scalar, mean) in glance.scalars.iter().zip(&mean) {
            found += (scalar - mean) * (scalar - mean) / directions as f64;
            expected += ROUNDING * scalar * scalar / directions as f64;
        }
    }
    found * n / (n - 1.0) > SCATTER * expected
}

/// About how long the mean of gradients so glanced at is: as much shorter than they are as it is along the directions, and no less than a
/// twentieth, lest these be nearly orthogonal to it.
pub(super) fn mean_length(glances: &[Glance]) -> f64 {
    let n = glances.len() as f64;
    let own: f64 = glances.iter().map(|glance| norm_squared(&glance.scalars)).sum::<f64>() / n;
    let share = norm_squared(&mean_scalars(glances)) / own.max(f64::MIN_POSITIVE);
    let lengths = glances.iter().map(|glance| glance.norm * glance.norm).sum::<f64>() / n;
    (lengths * share.clamp(1.0 / 400.0, 1.0)).sqrt()
}

fn mean_scalars(glances: &[Glance]) -> Vec<f64> {
    let mut mean = vec![0.0; glances[0].scalars.len()];
    glances.iter().for_each(|glance| add_scaled(1.0 / glances.len() as f64, &glance.scalars, &mut mean));
    mean
}

/// Fewer than eight rows for each of the directions that they have to tell.
pub(super) fn too_few(rows: f64, directions: f64) -> bool {
    rows == 0.0 || rows < ROWS * directions
}

/// Whether some column has more curvature than alpha from fewer than eight rows: other machines then have such columns too, and other ones.
/// Rare columns with less do not count, however many: on a9a and MNIST factors at once would cost bytes there and save no exchange.
pub(super) fn has_rare_columns(column_rows: &[f64], own: &Eigen, alpha: f64) -> bool {
    let curvature = |j: usize| -> f64 {
        own.values.iter().zip(&own.vectors).map(|(value, vector)| value * vector[j] * vector[j]).sum()
    };
    (0..column_rows.len()).any(|j| column_rows[j] < ROWS && curvature(j) > alpha)
}

#[cfg(test)]
mod tests {
    use corewire_sketch::Seed;

    use super::*;

    /// Machines whose gradients are normal around ones, with this variance along the first direction alone or along all.
    fn glances(machines: usize, variance: f64, seed: u64, only_first: bool) -> Vec<Glance> {
        let randomness = CommonRandomness::new(&Seed::reproducible(seed));
        let likeness = Likeness::new(30, &randomness);
        let mut words = randomness.words(Purpose::Synthetic, 0, 0);
        let mut normal = move || (0..12).map(|_| words.next_unit()).sum::<f64>() - 6.0;
        let machine = |_| {
            let gradient: Vec<f64> =
                (0..30).map(|j| 1.0 + if only_first && j > 0 { 0.0 } else { variance.sqrt() * normal() }).collect();
            let mut message = Vec::new();
            likeness.push(&gradient, &mut message);
            assert_eq!(message.len(), 10);
            let mut rest = &message[..];
            let glance = likeness.take(&mut rest).unwrap();
            assert!(rest.is_empty() && likeness.take(&mut rest).is_none());
            glance
        };
        (0..machines).map(machine).collect()
    }

    #[test]
    fn machines_that_differ_by_sampling_are_alike_and_those_that_differ_by_more_are_not() {
        // 100 rows each, which add a hundredth of a gradient whose variance is 1 a coordinate.
        let rows = vec![100.0; 50];
        for seed in 0..200 {
            assert!(!unlike(&rows, &glances(50, 0.01, seed, false), 30e-4), "{seed}");
            assert!(!unlike(&rows, &glances(50, 0.01, seed, true), 1e-4), "{seed}");
            assert!(unlike(&rows, &glances(50, 0.05, seed, false), 30e-4), "{seed}");
            assert!(unlike(&rows, &glances(50, 0.05, seed, true), 1e-4), "{seed}");
        }
    }

    #[test]
    fn rounding_is_not_taken_for_a_difference() {
        // A million rows each: sampling makes less than rounding does, or as much.
        let rows = vec![1e6; 50];
        for seed in 0..100 {
            assert!(!unlike(&rows, &glances(50, 1e-9, seed, false), 30e-15), "{seed}");
            assert!(!unlike(&rows, &glances(50, 1e-6, seed, false), 30e-12), "{seed}");
        }
        assert!(unlike(&rows, &glances(50, 1e-3, 0, false), 30e-12));
    }

    #[test]
    fn one_machine_is_like_itself_and_shares_may_differ() {
        assert!(!unlike(&[5.0], &glances(1, 1.0, 0, false), 0.0));
        // A machine with no rows has no gradient, and the others have all of it.
        let mut some = glances(10, 0.0, 0, false);
        some[3].scalars.fill(0.0);
        let mut rows = vec![10.0; 10];
        rows[3] = 0.0;
        assert!(!unlike(&rows, &some, 0.0));
    }

    #[test]
    fn a_rare_column_counts_where_it_has_more_curvature_than_alpha() {
        let own = |value: f64| Eigen { values: vec![1.0, value], vectors: vec![vec![1.0, 0.0], vec![0.0, 1.0]] };
        assert!(has_rare_columns(&[100.0, 7.0], &own(2e-3), 1e-3));
        assert!(!has_rare_columns(&[100.0, 7.0], &own(5e-4), 1e-3), "faint");
        assert!(!has_rare_columns(&[100.0, 8.0], &own(2e-3), 1e-3), "not rare");
        assert!(!has_rare_columns(&[], &own(2e-3), 1e-3), "nothing is known of columns");
    }
}
