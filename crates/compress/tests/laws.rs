//! The laws of `Codec`, by one function each over one of every codec.

use corewire_compress::{Address, Codec, Law, catalogue};
use corewire_sketch::{CommonRandomness, Purpose, Seed, Words};

fn randomness() -> CommonRandomness {
    CommonRandomness::new(&Seed::reproducible(2024))
}

fn words(round: u64) -> Words {
    randomness().words(Purpose::Synthetic, round, 0)
}

/// A fresh codec of the catalogue by its place, with a name for messages.
fn fresh(dim: usize, place: usize) -> (Box<dyn Codec>, String) {
    let entry = catalogue(dim, &randomness()).swap_remove(place);
    let name = format!("{} ({}) in dimension {dim}", entry.codec.name(), entry.parameters);
    (entry.codec, name)
}

fn places() -> std::ops::Range<usize> {
    0..catalogue(1, &randomness()).len()
}

/// Ordinary vectors and those that are worst for one codec or another.
fn vectors(dim: usize) -> Vec<(&'static str, Vec<f64>)> {
    let mut words = words(dim as u64);
    let d = dim as f64;
    let mut normal = || (0..12).map(|_| words.next_dither()).sum::<f64>();
    let from = |f: &mut dyn FnMut(usize) -> f64| (0..dim).map(f).collect::<Vec<f64>>();
    // The worst vector of ternary rounding: one large entry, the others equal.
    let angle = (d - 1.0).sqrt().atan() / 2.0;
    let other = angle.sin() / (d - 1.0).max(1.0).sqrt();
    vec![
        ("zero", from(&mut |_| 0.0)),
        ("normal", from(&mut |_| normal())),
        ("heavy tails", from(&mut |_| normal().powi(5))),
        ("equal", from(&mut |_| 1.0)),
        ("alternating", from(&mut |i| if i % 2 == 0 { 4.0 / 3.0 } else { -4.0 / 3.0 })),
        ("one entry", from(&mut |i| if i == dim / 2 { -7.0 } else { 0.0 })),
        ("two entries", from(&mut |i| [1.0, 0.5].get(i).copied().unwrap_or(0.0))),
        ("geometric", from(&mut |i| 0.7f64.powi(i as i32))),
        ("one large", from(&mut |i| if i == 0 { angle.cos() } else { other })),
        ("small", from(&mut |_| 1e-30 * normal())),
        ("large", from(&mut |_| 1e30 * normal())),
    ]
}

fn energy(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum()
}

/// Encodes and decodes under one address with a fresh state: what the state does is tested apart.
fn errors(place: usize, vector: &[f64], trials: u64) -> (Law, Vec<f64>, Vec<f64>, String) {
    let (first, name) = fresh(vector.len(), place);
    let law = first.law();
    let fixed = first.fixed_len();
    let mut mean = vec![0.0; vector.len()];
    let mut relative = Vec::new();
    let (mut message, mut out) = (Vec::new(), vec![f64::NAN; vector.len()]);
    let mut codec = first;
    let stateful = name.contains("alq") || name.contains("feedback");
    for round in 0..trials {
        if stateful {
            codec = fresh(vector.len(), place).0;
        }
        let address = Address::new(round, 5);
        codec.encode(address, vector, &mut message);
        assert!(fixed.is_none_or(|len| len == message.len()), "{name}: {} bytes", message.len());
        codec.decode(address, &message, &mut out).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(out.iter().all(|x| x.is_finite()), "{name}");
        let error: Vec<f64> = out.iter().zip(vector).map(|(a, b)| a - b).collect();
        mean.iter_mut().zip(&error).for_each(|(m, e)| *m += e / trials as f64);
        relative.push(energy(&error) / energy(vector).max(f64::MIN_POSITIVE));
    }
    (law, mean, relative, name)
}

fn mean_and_standard_error(sample: &[f64]) -> (f64, f64) {
    let n = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / n;
    let variance = sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    (mean, (variance / n).sqrt())
}

/// One rounding to f32 of each entry, or of factors of it: relative 2^-24, and a few of them.
const ROUNDING: f64 = 1.0 / (1u64 << 21) as f64;

#[test]
fn every_codec_keeps_its_law() {
    const TRIALS: u64 = 600;
    for dim in [1, 2, 60, 257] {
        for (kind, vector) in vectors(dim) {
            for place in places() {
                let (law, mean, relative, name) = errors(place, &vector, TRIALS);
                let (error, standard) = mean_and_standard_error(&relative);
                let bias = (energy(&mean) / energy(&vector).max(f64::MIN_POSITIVE)).sqrt();
                match law {
                    Law::Unbiased { omega } => {
                        // The squared norm of the mean of N independent errors has the expectation error/N; even where all errors lie
                        // on one line it passes sixteen times that with a probability of 6e-5 only (chi-square of one degree).
                        let noise = 4.0 * (error / TRIALS as f64).sqrt();
                        assert!(bias <= noise + ROUNDING, "{name}, {kind}: bias {bias}, noise {noise}");
                        // Four standard errors of the measured mean; the seed is fixed.
                        let bound = omega * (1.0 + ROUNDING) + 4.0 * standard + ROUNDING * ROUNDING;
                        assert!(error <= bound, "{name}, {kind}: {error} above omega {omega} + 4 * {standard}");
                    }
                    Law::Contractive { delta } => {
                        // Without random choices the standard error is 0, and the law holds as it stands.
                        let bound = 1.0 - delta + 4.0 * standard + ROUNDING;
                        assert!(error <= bound, "{name}, {kind}: {error} above 1 - {delta} + 4 * {standard}");
                    }
                    Law::Nearly { .. } | Law::Neither => {}
                }
            }
        }
    }
}

#[test]
fn nearly_unbiased_codecs_come_near_in_a_large_dimension() {
    const TRIALS: u64 = 200;
    for (kind, vector) in vectors(1024).into_iter().filter(|(kind, _)| *kind != "zero") {
        for place in places() {
            let Law::Nearly { omega } = fresh(1024, place).0.law() else { continue };
            let (_, mean, relative, name) = errors(place, &vector, TRIALS);
            let (error, standard) = mean_and_standard_error(&relative);
            let bias = (energy(&mean) / energy(&vector)).sqrt();
            let noise = 4.0 * (error / TRIALS as f64).sqrt();
            assert!(bias <= noise + ROUNDING, "{name}, {kind}: bias {bias}, noise {noise}");
            // The limit's correction falls as 1/sqrt(d) = 1/32.
            assert!(error <= omega * (1.0 + 1.0 / 32.0) + 4.0 * standard, "{name}, {kind}: {error} against {omega}");
        }
    }
}

#[test]
fn encoding_is_a_function_of_the_address_and_the_vector() {
    for (_, vector) in vectors(100) {
        for place in places() {
            let (mut once, mut again) = (Vec::new(), Vec::new());
            let (mut a, name) = fresh(100, place);
            let (mut b, _) = fresh(100, place);
            for round in 0..3 {
                a.encode(Address::new(round, 1), &vector, &mut once);
                b.encode(Address::new(round, 1), &vector, &mut again);
                assert_eq!(once, again, "{name}");
                // A receiver that never encoded sees the same.
                let (mut out, mut seen) = (vec![0.0; 100], vec![1.0; 100]);
                a.decode(Address::new(round, 1), &once, &mut out).unwrap();
                fresh(100, place).0.decode(Address::new(round, 1), &once, &mut seen).unwrap();
                assert_eq!(out, seen, "{name}");
            }
        }
    }
}

#[test]
fn empty_vectors_and_extreme_values_work() {
    for place in places() {
        for vector in
            [vec![], vec![1e300], vec![1e300; 50], vec![-1e-300; 50], vec![5e-324, f64::MAX, f64::MIN, 0.0, 1e-45]]
        {
            let (mut codec, name) = fresh(vector.len(), place);
            let (mut message, mut out) = (Vec::new(), vec![f64::NAN; vector.len()]);
            for round in 0..3 {
                let address = Address::new(round, 0);
                codec.encode(address, &vector, &mut message);
                codec.decode(address, &message, &mut out).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(out.iter().all(|x| x.is_finite()), "{name}");
            }
            if vector.is_empty() {
                assert!(codec.law().omega().is_none_or(|omega| omega >= 0.0), "{name}: {:?}", codec.law());
            }
        }
    }
}

#[test]
fn vectors_that_are_not_finite_are_refused() {
    for place in places() {
        for x in [f64::NAN, f64::INFINITY] {
            let refused = std::panic::catch_unwind(|| {
                fresh(3, place).0.encode(Address::default(), &[1.0, x, 2.0], &mut Vec::new());
            });
            assert!(refused.is_err(), "{}", fresh(3, place).1);
        }
    }
}

#[test]
fn hostile_bytes_give_a_finite_vector_or_an_error() {
    let mut words = words(99);
    for dim in [0, 1, 7, 60] {
        for (_, vector) in vectors(dim) {
            for place in places() {
                let (mut codec, name) = fresh(dim, place);
                let address = Address::new(1, 2);
                let mut message = Vec::new();
                let mut out = vec![0.0; dim];
                codec.encode(address, &vector, &mut message);
                let mut decode = |bytes: &[u8]| {
                    let result = codec.decode(address, bytes, &mut out);
                    assert!(result.is_err() || out.iter().all(|x| x.is_finite()), "{name}");
                    result
                };
                for len in 0..message.len() {
                    assert!(decode(&message[..len]).is_err(), "{name}: truncated to {len} of {}", message.len());
                }
                let mut longer = message.clone();
                longer.push(0);
                assert!(decode(&longer).is_err(), "{name}: a trailing byte");
                for bit in 0..(8 * message.len()).min(400) {
                    let mut flipped = message.clone();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    let _ = decode(&flipped);
                }
                for _ in 0..40 {
                    let len = if words.next_coin(0.5) { message.len() } else { words.next_below(300) as usize };
                    let noise: Vec<u8> = (0..len).map(|_| words.next_u64() as u8).collect();
                    let _ = decode(&noise);
                }
            }
        }
    }
}

#[test]
fn errors_of_machines_average_out_unless_their_choices_are_common() {
    const MACHINES: u32 = 32;
    const ROUNDS: u64 = 60;
    let dim = 256;
    let (_, vector) = vectors(dim).swap_remove(1);
    for place in places() {
        let (mut codec, name) = fresh(dim, place);
        if codec.law().omega().is_none_or(|omega| omega == 0.0) {
            continue;
        }
        let (mut message, mut out) = (Vec::new(), vec![0.0; dim]);
        let (mut single, mut together) = (0.0, Vec::new());
        for round in 0..ROUNDS {
            let mut mean = vec![0.0; dim];
            for machine in 0..MACHINES {
                let address = Address::new(round, machine);
                codec.encode(address, &vector, &mut message);
                codec.decode(address, &message, &mut out).unwrap();
                let error: Vec<f64> = out.iter().zip(&vector).map(|(a, b)| a - b).collect();
                single += energy(&error) / (f64::from(MACHINES) * ROUNDS as f64);
                mean.iter_mut().zip(&error).for_each(|(m, e)| *m += e / f64::from(MACHINES));
            }
            together.push(energy(&mean));
        }
        let (found, standard) = mean_and_standard_error(&together);
        if name.starts_with("randk-common") {
            assert!((found / single - 1.0).abs() < 1e-6, "{name}: {found} against {single}");
        } else {
            // Independent errors without bias: the mean of n has a variance of one n-th. Four standard errors; the seed is fixed.
            let expected = single / f64::from(MACHINES);
            assert!((found - expected).abs() < 4.0 * standard, "{name}: {found} against {expected} +- {standard}");
        }
    }
}
