//! Which machine holds which rows.
//!
//! Randomness is handed in as a source of 64-bit words, so that whoever owns the seed decides, and every machine that is
//! handed the same words finds the same shards: nothing here calls the platform's mathematics.

use std::str::FromStr;

/// How the rows of a data set are divided among the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Split {
    /// By rows at random, in shards of equal size (up to one row).
    Random,
    /// The first rows to the first machine, and so on.
    Contiguous,
    /// Sorted by label, then contiguous: machines see few classes each, the hard case.
    Label,
    /// Each class is divided by proportions from a symmetric Dirichlet distribution: the smaller this concentration,
    /// the more unlike the machines (Hsu, Qi and Brown, 2019, <https://arxiv.org/abs/1909.06335>).
    Dirichlet(f64),
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is no split; there is `random`, `contiguous`, `label` and `dirichlet:0.5`");
        match text.split_once(':') {
            None if text == "random" => Ok(Split::Random),
            None if text == "contiguous" => Ok(Split::Contiguous),
            None if text == "label" => Ok(Split::Label),
            Some(("dirichlet", concentration)) => {
                let value: f64 = concentration.parse().map_err(|_| unknown())?;
                if (MIN_CONCENTRATION..=MAX_CONCENTRATION).contains(&value) {
                    return Ok(Split::Dirichlet(value));
                }
                Err(format!(
                    "the concentration `{concentration}` of a Dirichlet split lies outside {MIN_CONCENTRATION} to {MAX_CONCENTRATION:e}"
                ))
            }
            _ => Err(unknown()),
        }
    }
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Split::Random => f.write_str("random"),
            Split::Contiguous => f.write_str("contiguous"),
            Split::Label => f.write_str("label"),
            Split::Dirichlet(concentration) => write!(f, "dirichlet:{concentration}"),
        }
    }
}

/// Below it even the logarithm of a Gamma variable leaves the range of a float.
const MIN_CONCENTRATION: f64 = 1e-3;
/// Above it the shares are equal to all purposes.
const MAX_CONCENTRATION: f64 = 1e6;

/// The rows of each machine, ascending; every row stands in exactly one shard, and a shard may
/// be empty. `words` gives random 64-bit words; only random splits call it.
///
/// # Panics
/// If there are no machines, or the concentration lies outside 0.001 to 10^6.
pub fn shards(labels: &[f64], machines: usize, split: Split, words: impl FnMut() -> u64) -> Vec<Vec<usize>> {
    assert!(machines > 0, "rows are divided among at least one machine");
    match split {
        Split::Random => cut(&permutation(labels.len(), words), machines),
        Split::Contiguous => cut(&(0..labels.len()).collect::<Vec<_>>(), machines),
        Split::Label => cut(&by_label(labels), machines),
        Split::Dirichlet(concentration) => dirichlet(labels, machines, concentration, words),
    }
}

/// The numbers 0 to `count` - 1 in random order (Fisher and Yates).
pub fn permutation(count: usize, mut words: impl FnMut() -> u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, below(last as u64 + 1, &mut words) as usize);
    }
    order
}

/// Cuts an order of rows into pieces whose lengths differ by at most one.
fn cut(order: &[usize], machines: usize) -> Vec<Vec<usize>> {
    let (quotient, remainder) = (order.len() / machines, order.len() % machines);
    let mut rest = order;
    (0..machines)
        .map(|machine| {
            let (shard, after) = rest.split_at(quotient + usize::from(machine < remainder));
            rest = after;
            let mut shard = shard.to_vec();
            shard.sort_unstable();
            shard
        })
        .collect()
}

/// The rows by ascending label, and within a label in their order.
fn by_label(labels: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    // Adding zero turns -0 into 0, so that the two are one label.
    order.sort_by(|&a, &b| (labels[a] + 0.0).total_cmp(&(labels[b] + 0.0)));
    order
}

fn dirichlet(labels: &[f64], machines: usize, concentration: f64, mut words: impl FnMut() -> u64) -> Vec<Vec<usize>> {
    assert!(
        (MIN_CONCENTRATION..=MAX_CONCENTRATION).contains(&concentration),
        "the concentration lies within 0.001 to 10^6"
    );
    let mut shards = vec![Vec::new(); machines];
    for class in by_label(labels).chunk_by(|&a, &b| labels[a] == labels[b]) {
        // Rows within a class are dealt in random order: neighbours in a file are often alike.
        let order: Vec<usize> = permutation(class.len(), &mut words).into_iter().map(|i| class[i]).collect();
        let logarithms: Vec<f64> = (0..machines).map(|_| log_gamma_variable(concentration, &mut words)).collect();
        // Shares from logarithms, relative to the largest: a small concentration underflows otherwise.
        let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = logarithms.iter().map(|l| libm::exp(l - largest)).collect();
        let whole: f64 = shares.iter().sum();
        let (mut sum, mut start) = (0.0, 0);
        for (machine, share) in shares.iter().enumerate() {
            sum += share;
            let end = if machine + 1 == machines {
                order.len()
            } else {
                ((sum / whole * order.len() as f64).round() as usize).clamp(start, order.len())
            };
            shards[machine].extend_from_slice(&order[start..end]);
            start = end;
        }
    }
    shards.iter_mut().for_each(|shard| shard.sort_unstable());
    shards
}

/// The logarithm of a Gamma(shape, 1) variable by Marsaglia and Tsang (2000), <https://doi.org/10.1145/358407.358414>.
fn log_gamma_variable(shape: f64, words: &mut impl FnMut() -> u64) -> f64 {
    if shape < 1.0 {
        // Gamma(a) = Gamma(a + 1) * U^(1/a).
        let boost = libm::log(uniform(words)) / shape;
        return log_gamma_variable(shape + 1.0, words) + boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(words);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let log_v = 3.0 * libm::log(v);
        if libm::log(uniform(words)) < 0.5 * x * x + d - d * libm::exp(log_v) + d * log_v {
            return libm::log(d) + log_v;
        }
    }
}

/// A standard normal variable by Box and Muller.
fn normal(words: &mut impl FnMut() -> u64) -> f64 {
    let radius = (-2.0 * libm::log(uniform(words))).sqrt();
    radius * libm::cos(std::f64::consts::TAU * uniform(words))
}

/// Uniform on the odd multiples of 2^-54 within (0, 1).
fn uniform(words: &mut impl FnMut() -> u64) -> f64 {
    (2 * (words() >> 11) + 1) as f64 / (1u64 << 54) as f64
}

/// Uniform on 0 to `bound` - 1 without bias (Lemire 2019, <https://doi.org/10.1145/3230636>).
fn below(bound: u64, words: &mut impl FnMut() -> u64) -> u64 {
    let threshold = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(words()) * u128::from(bound);
        if product as u64 >= threshold {
            return (product >> 64) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// splitmix64: enough to drive a split in a test.
    fn source(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }
    }

    proptest! {
        #![proptest_config(crate::fixed_cases())]

        #[test]
        fn every_row_stands_in_exactly_one_shard(
            labels in prop::collection::vec(-2i8..3, 0..200),
            machines in 1usize..40,
            kind in 0usize..4,
            concentration in prop::sample::select(vec![MIN_CONCENTRATION, 0.05, 0.5, 1.0, 30.0, MAX_CONCENTRATION]),
            seed: u64,
        ) {
            let labels: Vec<f64> = labels.into_iter().map(f64::from).collect();
            let split =
                [Split::Random, Split::Contiguous, Split::Label, Split::Dirichlet(concentration)][kind];
            let shards = shards(&labels, machines, split, source(seed));
            prop_assert_eq!(shards.len(), machines);
            let mut all: Vec<usize> = shards.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len()).collect::<Vec<_>>());
            if !matches!(split, Split::Dirichlet(_)) {
                let lengths: Vec<usize> = shards.iter().map(Vec::len).collect();
                prop_assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn a_split_by_label_gives_each_machine_few_classes() {
        let labels: Vec<f64> = (0..100).map(|i| f64::from(i % 10)).collect();
        for shard in shards(&labels, 10, Split::Label, || unreachable!("no randomness is used")) {
            assert!(shard.iter().all(|&i| labels[i] == labels[shard[0]]));
        }
    }

    #[test]
    fn permutations_are_uniform() {
        let mut words = source(1);
        let mut counts = std::collections::HashMap::new();
        for _ in 0..24000 {
            *counts.entry(permutation(4, &mut words)).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        let chi: f64 = counts.values().map(|&c| (f64::from(c) - 1000.0).powi(2) / 1000.0).sum();
        // The 99.9 % point of chi-square with 23 degrees of freedom is 49.7; the seed is fixed, so this cannot flake.
        assert!(chi < 49.7, "{chi}");
    }

    #[test]
    fn a_dirichlet_split_has_the_variance_of_the_distribution() {
        // A share of Dirichlet(a, ..., a) over k machines has mean 1/k and variance (1/k)(1 - 1/k)/(ka + 1).
        let (machines, rows) = (4, 2000);
        for concentration in [0.1, 1.0, 10.0] {
            let mut words = source(7);
            let labels = vec![1.0; rows];
            let shares: Vec<f64> = (0..2000)
                .map(|_| {
                    let shards = shards(&labels, machines, Split::Dirichlet(concentration), &mut words);
                    shards[0].len() as f64 / rows as f64
                })
                .collect();
            let mean = shares.iter().sum::<f64>() / 2000.0;
            let variance = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 2000.0;
            let expected = 0.25 * 0.75 / (4.0 * concentration + 1.0);
            // The mean of 2000 draws lies within five standard errors; the variance's own relative error is at most
            // sqrt(kurtosis / 2000) < 5 %, times three. The seed is fixed, so this cannot flake.
            assert!((mean - 0.25).abs() < 5.0 * (expected / 2000.0).sqrt(), "{concentration}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.15, "{concentration}: variance {variance}, not {expected}");
        }
    }

    #[test]
    fn the_same_words_give_the_same_shards_for_ever() {
        // Value stability: machines of different versions must agree on who holds what.
        let labels: Vec<f64> = (0..12).map(|i| f64::from(i % 2)).collect();
        let random = shards(&labels, 3, Split::Random, source(42));
        let dirichlet = shards(&labels, 3, Split::Dirichlet(0.5), source(42));
        assert_eq!(random, [[5, 7, 9, 11], [0, 4, 6, 10], [1, 2, 3, 8]]);
        assert_eq!(dirichlet, [vec![0, 2, 3, 4, 6, 9, 10], vec![1, 7, 11], vec![5, 8]]);
    }

    #[test]
    fn a_split_is_read_as_it_is_shown() {
        for split in [Split::Random, Split::Contiguous, Split::Label, Split::Dirichlet(0.25)] {
            assert_eq!(split.to_string().parse(), Ok(split));
        }
        for text in ["", "rows", "dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:nan", "dirichlet:-1", "label:1"] {
            assert!(text.parse::<Split>().is_err(), "{text}");
        }
    }
}
