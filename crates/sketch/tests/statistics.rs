//! Means, variances and distributions against their formulas. Every seed is fixed, so that nothing here can fail by chance.

use std::num::NonZeroUsize;

use corewire_sketch::{AnySketch, CommonRandomness, Family, Gaussian, Purpose, Seed, Sketch};
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

const TRIALS: usize = 20_000;
const BUDGET: usize = 8;

fn randomness() -> CommonRandomness {
    CommonRandomness::new(&Seed::reproducible(20))
}

/// Numbers for vectors and matrices that have nothing to do with the sketches under test.
fn uniforms(row: u32, count: usize) -> Vec<f64> {
    let mut words = randomness().words(Purpose::Synthetic, 0, row);
    (0..count).map(|_| 2.0 * words.next_unit() - 1.0).collect()
}

type Matrix = Vec<Vec<f64>>;

/// B B'/d: positive semidefinite, of full rank with a spread spectrum.
fn positive(dim: usize) -> Matrix {
    let b = uniforms(1, dim * dim);
    let entry = |i: usize, j: usize| (0..dim).map(|k| b[i * dim + k] * b[j * dim + k]).sum::<f64>() / dim as f64;
    (0..dim).map(|i| (0..dim).map(|j| entry(i, j)).collect()).collect()
}

fn form(matrix: &Matrix, x: &[f64]) -> f64 {
    matrix.iter().zip(x).map(|(row, xi)| xi * row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>()).sum()
}

/// The covariance of the reconstruction of `a`, all trials alike, by the formulas of the families. Its product with A has the trace E||a~
/// - a||_A^2.
fn covariance(family: Family, a: &[f64], budget: usize) -> Matrix {
    let square: f64 = a.iter().map(|x| x * x).sum();
    let padded = a.len().next_power_of_two();
    let factor = match family {
        Family::Hadamard => (padded - budget) as f64 / (padded - 1) as f64,
        _ => 1.0,
    };
    let kurtosis_less_3 = if matches!(family, Family::Gaussian | Family::GaussianStrict) { 0.0 } else { -2.0 };
    let entry = |i: usize, j: usize| {
        let diagonal = if i == j { square + kurtosis_less_3 * a[i] * a[i] } else { 0.0 };
        factor * (diagonal + a[i] * a[j]) / budget as f64
    };
    (0..a.len()).map(|i| (0..a.len()).map(|j| entry(i, j)).collect()).collect()
}

/// Sketches of dimension `dim`, each with the covariance of its reconstruction.
fn cases(dim: usize, a: &[f64]) -> Vec<(AnySketch, Matrix)> {
    let mut all = Vec::new();
    for family in Family::ALL {
        let whole = AnySketch::new(family, &randomness(), dim, BUDGET).unwrap();
        all.push((whole, covariance(family, a, BUDGET)));
        let (block, budgets) = (16, [4, 8, 2, 3]);
        let budgets = &budgets[..dim.div_ceil(block)];
        let sketch = AnySketch::blocks(family, &randomness(), dim, NonZeroUsize::new(block).unwrap(), budgets).unwrap();
        let mut blocks = vec![vec![0.0; dim]; dim];
        for (b, a) in a.chunks(block).enumerate() {
            for (i, row) in covariance(family, a, budgets[b]).iter().enumerate() {
                blocks[b * block + i][b * block..][..a.len()].copy_from_slice(row);
            }
        }
        all.push((sketch, blocks));
    }
    all
}

fn reconstructions(sketch: &AnySketch, a: &[f64], mut visit: impl FnMut(&[f64])) {
    let (mut scalars, mut rebuilt) = (vec![0.0; sketch.len()], vec![0.0; a.len()]);
    for round in 0..TRIALS {
        sketch.project(round as u64, a, &mut scalars);
        sketch.reconstruct(round as u64, &scalars, &mut rebuilt);
        visit(&rebuilt);
    }
}

#[test]
fn the_variance_is_the_formula() {
    for dim in [64, 40] {
        let (a, matrix) = (uniforms(2, dim), positive(dim));
        for (sketch, covariance) in cases(dim, &a) {
            let expected: f64 =
                matrix.iter().zip(&covariance).map(|(x, y)| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>()).sum();
            let mut total = 0.0;
            reconstructions(&sketch, &a, |rebuilt| {
                let error: Vec<f64> = rebuilt.iter().zip(&a).map(|(x, y)| x - y).collect();
                total += form(&matrix, &error);
            });
            let ratio = total / TRIALS as f64 / expected;
            // One trial varies by about half of its mean, so 3 % is eight standard deviations of the mean.
            assert!((ratio - 1.0).abs() < 0.03, "{} of dimension {dim}: {ratio}", sketch.family());
        }
    }
}

/// x' C^-1 x by Cholesky's decomposition.
fn mahalanobis(covariance: &Matrix, x: &[f64]) -> f64 {
    let dim = x.len();
    let mut lower = vec![vec![0.0; dim]; dim];
    let mut total = 0.0;
    let mut solved = vec![0.0; dim];
    for i in 0..dim {
        for j in 0..=i {
            let rest = covariance[i][j] - (0..j).map(|k| lower[i][k] * lower[j][k]).sum::<f64>();
            lower[i][j] = if i == j { rest.sqrt() } else { rest / lower[j][j] };
        }
        solved[i] = (x[i] - (0..i).map(|k| lower[i][k] * solved[k]).sum::<f64>()) / lower[i][i];
        total += solved[i] * solved[i];
    }
    total
}

#[test]
fn the_mean_is_the_vector() {
    for dim in [64, 40] {
        let a = uniforms(2, dim);
        for (sketch, covariance) in cases(dim, &a) {
            let mut mean = vec![0.0; dim];
            reconstructions(&sketch, &a, |rebuilt| {
                for (mean, x) in mean.iter_mut().zip(rebuilt) {
                    *mean += x / TRIALS as f64;
                }
            });
            let error: Vec<f64> = mean.iter().zip(&a).map(|(x, y)| x - y).collect();
            let statistic = mahalanobis(&covariance, &error) * TRIALS as f64;
            let p = ChiSquared::new(dim as f64).unwrap().cdf(statistic);
            // Sixteen tests: the smallest and largest p of so many lie inside with probability 0.97; the seed is fixed.
            assert!((0.001..0.999).contains(&p), "{} of dimension {dim}: p = {p}", sketch.family());
        }
    }
}

#[test]
fn the_energy_is_the_inner_product_with_the_reconstruction() {
    for dim in [1, 3, 40, 64, 1000] {
        let a = uniforms(3, dim);
        for family in Family::ALL {
            let blocks = vec![1; dim.div_ceil(7)];
            let block = NonZeroUsize::new(7).unwrap();
            for sketch in [
                AnySketch::new(family, &randomness(), dim, dim.min(50)).unwrap(),
                AnySketch::blocks(family, &randomness(), dim, block, &blocks).unwrap(),
            ] {
                let (mut scalars, mut rebuilt) = (vec![0.0; sketch.len()], vec![0.0; dim]);
                sketch.project(1, &a, &mut scalars);
                sketch.reconstruct(1, &scalars, &mut rebuilt);
                let product: f64 = a.iter().zip(&rebuilt).map(|(x, y)| x * y).sum();
                let energy = sketch.energy(&scalars);
                assert!((product - energy).abs() <= 1e-12 * energy, "{family} {dim}: {product} {energy}");
            }
        }
    }
}

#[test]
fn sign_families_are_exactly_linear_on_integers() {
    let (dim, budget) = (1000, 100);
    let x: Vec<f64> = (0..dim).map(|c| (c % 17) as f64 - 8.0).collect();
    let y: Vec<f64> = (0..dim).map(|c| (c % 5) as f64).collect();
    let sum: Vec<f64> = x.iter().zip(&y).map(|(x, y)| x + 3.0 * y).collect();
    for family in Family::ALL {
        let sketch = AnySketch::new(family, &randomness(), dim, budget).unwrap();
        let mut out = vec![0.0; 3 * budget];
        sketch.project_many(8, &[&x, &y, &sum], &mut out);
        for j in 0..budget {
            let (found, expected) = (out[2 * budget + j], out[j] + 3.0 * out[budget + j]);
            match family {
                Family::Rademacher | Family::Hadamard => assert_eq!(found, expected),
                // A thousand products of numbers below 20 and 7, each rounded to 53 bits.
                _ => assert!((found - expected).abs() < 1e-10),
            }
        }
    }
}

#[test]
fn all_rows_of_the_hadamard_matrix_give_the_vector_back() {
    for dim in [1usize, 2, 3, 40, 64, 784, 5000] {
        let budget = Family::Hadamard.most(dim);
        assert_eq!(budget, dim.next_power_of_two());
        let sketch = AnySketch::new(Family::Hadamard, &randomness(), dim, budget).unwrap();
        let (mut scalars, mut rebuilt) = (vec![0.0f32; budget], vec![0.0; dim]);
        let integers: Vec<f32> = (0..dim).map(|c| (c % 23) as f32 - 11.0).collect();
        sketch.project(3, &integers, &mut scalars);
        sketch.reconstruct(3, &scalars, &mut rebuilt);
        assert_eq!(rebuilt, integers);
    }
    for dim in [65_537, 90_000, 131_072] {
        let budget = Family::Hadamard.most(dim);
        let sketch = AnySketch::new(Family::Hadamard, &randomness(), dim, budget).unwrap();
        let (mut scalars, mut rebuilt) = (vec![0.0f64; budget], vec![0.0; dim]);
        let integers: Vec<f64> = (0..dim).map(|c| (c % 23) as f64 - 11.0).collect();
        sketch.project(3, &integers, &mut scalars);
        sketch.reconstruct(3, &scalars, &mut rebuilt);
        assert_eq!(rebuilt, integers);
    }
}

#[test]
fn the_variance_is_the_formula_for_every_order_of_matrix() {
    for (dim, order) in [(65_536, 65_536), (70_000, 81_920), (90_000, 98_304), (120_000, 131_072)] {
        assert_eq!(Family::Hadamard.most(dim), order);
        let a: Vec<f64> = uniforms(4, dim).iter().map(|x| x * x).collect();
        let square: f64 = a.iter().map(|x| x * x).sum();
        let budget = 20_000;
        let sketch = AnySketch::new(Family::Hadamard, &randomness(), dim, budget).unwrap();
        let (mut scalars, mut rebuilt) = (vec![0.0; budget], vec![0.0; dim]);
        let (mut error, mut product) = (0.0, 0.0);
        let rounds = 4;
        for round in 0..rounds {
            sketch.project(round, &a, &mut scalars);
            sketch.reconstruct(round, &scalars, &mut rebuilt);
            error += rebuilt.iter().zip(&a).map(|(x, y)| (x - y) * (x - y)).sum::<f64>() / rounds as f64;
            product += rebuilt.iter().zip(&a).map(|(x, y)| x * y).sum::<f64>() / rounds as f64;
        }
        let (d, m, n) = (dim as f64, budget as f64, order as f64);
        let expected = (n - m) / (n - 1.0) * (d - 1.0) * square / m;
        // Both are means over 80,000 squares of nearly normal numbers, each of which varies by 1.4 times its mean: 2.5 % is five standard
        // deviations.
        assert!((error / expected - 1.0).abs() < 0.025, "{dim}: {}", error / expected);
        assert!((product / square - 1.0).abs() < 0.025, "{dim}: {}", product / square);
    }
}

/// The entries of many directions in a row, each of 4096 coordinates.
fn samples(strict: bool, rows: usize, mut visit: impl FnMut(&[f32])) {
    let family = if strict { Gaussian::strict } else { Gaussian::new };
    let sketch = family(&randomness(), 4096, rows).unwrap();
    let mut direction = vec![0.0; 4096];
    for row in 0..rows {
        sketch.direction(77, row, &mut direction);
        visit(&direction);
    }
}

/// 2^22 numbers, or 2^28 where COREWIRE_SOAK is set.
fn rows_of_samples() -> usize {
    let log = if std::env::var_os("COREWIRE_SOAK").is_some() { 28 } else { 22 };
    (1 << log) / 4096
}

#[test]
fn gaussian_moments_are_those_of_the_normal_distribution() {
    for strict in [false, true] {
        let rows = rows_of_samples();
        let mut sums = [0.0; 9];
        samples(strict, rows, |direction| {
            let mut part = [0.0; 9];
            for &x in direction {
                let mut power = 1.0;
                for sum in &mut part {
                    *sum += power;
                    power *= f64::from(x);
                }
            }
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        });
        let moment = |k: usize| if k.is_multiple_of(2) { (1..k).step_by(2).product::<usize>() as f64 } else { 0.0 };
        for k in 1..=8 {
            let deviation = ((moment(2 * k) - moment(k).powi(2)) / sums[0]).sqrt();
            let z = (sums[k] / sums[0] - moment(k)) / deviation;
            println!("strict {strict}, moment {k}: z = {z:.2}");
            assert!(z.abs() < 4.0, "strict {strict}, moment {k}: z = {z}");
        }
    }
}

#[test]
fn gaussian_cells_and_tails_are_filled_as_they_should() {
    let normal = Normal::new(0.0, 1.0).unwrap();
    let edges: Vec<f32> = (1..1024).map(|k| normal.inverse_cdf(f64::from(k) / 1024.0) as f32).collect();
    // Where the search begins, for each sixty-fourth from -4 to 4.
    let starts: Vec<usize> = (-256..=256).map(|k| edges.partition_point(|&edge| edge < k as f32 / 64.0)).collect();
    let limits = [3.0, 4.0, 4.5, 5.0f32];
    for strict in [false, true] {
        let rows = rows_of_samples();
        let count = (rows * 4096) as f64;
        let mut cells = vec![0u64; 1024];
        let mut beyond = [[0u64; 2]; 4];
        samples(strict, rows, |direction| {
            for &x in direction {
                let mut cell = starts[((x * 64.0).floor() as i32 + 256).clamp(0, 512) as usize];
                while cell < 1023 && edges[cell] < x {
                    cell += 1;
                }
                while cell > 0 && edges[cell - 1] >= x {
                    cell -= 1;
                }
                cells[cell] += 1;
                if x.abs() > 3.0 {
                    for (limit, beyond) in limits.iter().zip(&mut beyond) {
                        beyond[usize::from(x > 0.0)] += u64::from(x.abs() > *limit);
                    }
                }
            }
        });
        let expected = count / 1024.0;
        let statistic: f64 = cells.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
        let z = (statistic - 1023.0) / (2.0f64 * 1023.0).sqrt();
        println!("strict {strict}: chi-square {statistic:.1} on 1023 degrees, z = {z:.2}");
        assert!(z.abs() < 3.5, "strict {strict}: chi-square z = {z}");
        for (limit, beyond) in limits.iter().zip(beyond) {
            for found in beyond {
                let expected = count * normal.sf(f64::from(*limit));
                println!("strict {strict}: {found} beyond {limit} on one side, {expected:.1} expected");
                // Four standard deviations of a Poisson number, and two more where it is small.
                assert!((found as f64 - expected).abs() < 4.0 * expected.sqrt() + 2.0);
            }
        }
    }
}

#[test]
fn where_the_mix_is_undone_a_projection_is_a_quantile() {
    let normal = Normal::new(0.0, 1.0).unwrap();
    let mut found = Vec::new();
    samples(false, 1024, |direction| {
        for group in direction.chunks(64) {
            found.extend((0..16).map(|l| f64::from(group[l] + group[16 + l] + group[32 + l] + group[48 + l]) / 2.0));
        }
    });
    found.sort_by(f64::total_cmp);
    let count = found.len() as f64;
    let distance =
        found.iter().enumerate().map(|(k, &x)| (normal.cdf(x) - (k as f64 + 0.5) / count).abs()).fold(0.0, f64::max);
    println!(
        "largest distance {distance:.2e} of {count} numbers from {:.3} to {:.3}",
        found[0],
        found[found.len() - 1]
    );
    // What is documented, and 2/sqrt(n), which chance exceeds with probability 7e-4; the seed is fixed.
    assert!(distance < 1.4e-3 + 2.0 / count.sqrt());
    assert!(found.iter().all(|x| x.abs() < 4.42));
}

fn correlation(x: &[f32], y: &[f32], map: impl Fn(f32) -> f64) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| map(x) * map(y)).sum::<f64>() / (x.len() as f64).sqrt()
}

#[test]
fn rows_rounds_tiles_and_lags_are_uncorrelated() {
    let dim = 1 << 18;
    for family in Family::ALL {
        let direction = |round, row, purpose| {
            let mut out = vec![0.0; dim];
            match AnySketch::new(family, &randomness(), dim, 5).unwrap().with_purpose(purpose) {
                AnySketch::Gaussian(sketch) => sketch.direction(round, row, &mut out),
                AnySketch::Rademacher(sketch) => sketch.direction(round, row, &mut out),
                AnySketch::Hadamard(sketch) => sketch.direction(round, row, &mut out),
                AnySketch::Blocks(_) => unreachable!(),
            }
            out
        };
        let base = direction(0, 0, Purpose::Directions);
        let mut pairs = vec![
            ("the next row", base.clone(), direction(0, 1, Purpose::Directions)),
            ("a row of the next batch", base.clone(), direction(0, 4, Purpose::Directions)),
            ("the next round", base.clone(), direction(1, 0, Purpose::Directions)),
            ("another purpose", base.clone(), direction(0, 0, Purpose::Probe)),
        ];
        for (name, lag) in [("the next block of signs", 512), ("the next tile", 4096), ("the last tile but one", 8192)]
        {
            pairs.push((name, base[..dim - lag].to_vec(), base[lag..].to_vec()));
        }
        for lag in 1..=128 {
            pairs.push(("a near coordinate", base[..dim - lag].to_vec(), base[lag..].to_vec()));
        }
        for (name, x, y) in pairs {
            let linear = correlation(&x, &y, f64::from);
            // The square less its mean has variance 2 for a normal number; signs have none.
            let squares = correlation(&x, &y, |x| (f64::from(x) * f64::from(x) - 1.0) / 2f64.sqrt());
            // 600 standard normal numbers, or nearly: beyond 4.8 with probability 0.001; the seed is fixed.
            assert!(linear.abs() < 4.8 && squares.abs() < 4.8, "{family}, {name}: {linear} {squares}");
        }
    }
}
