//! Every kernel against the slow, obvious definition, written from the documentation with the public words alone.

use std::num::NonZeroUsize;

use corewire_sketch::{
    AnySketch, Blocks, CommonRandomness, Family, Gaussian, Hadamard, Kernel, Purpose, Rademacher, Seed, Sketch, Words,
};
use proptest::prelude::*;

fn randomness() -> CommonRandomness {
    CommonRandomness::new(&Seed::reproducible(11))
}

/// Word `word` (32 bits) of block `block` at an address.
fn word(words: &mut Words, block: usize, word: usize) -> u32 {
    words.seek((block * 8 + word / 2) as u64);
    let pair = words.next_u64();
    if word.is_multiple_of(2) { pair as u32 } else { (pair >> 32) as u32 }
}

fn sign(randomness: &CommonRandomness, round: u64, row: u32, c: usize) -> f32 {
    let mut words = randomness.words(Purpose::Directions, round, row);
    let bits = word(&mut words, c / 512, c % 16);
    if bits >> (31 - c % 512 / 16) & 1 == 1 { -1.0 } else { 1.0 }
}

/// The words of generator `lane` in a tile, as Blackman and Vigna print xoshiro128++.
fn generator(randomness: &CommonRandomness, round: u64, row: u32, tile: usize, lane: usize) -> impl FnMut() -> u32 {
    let mut words = randomness.words(Purpose::Directions, round, row);
    let mut s: [u32; 4] = std::array::from_fn(|i| word(&mut words, 4 * tile + i, lane));
    move || {
        let result = s[0].wrapping_add(s[3]).rotate_left(7).wrapping_add(s[0]);
        let t = s[1] << 9;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(11);
        result
    }
}

/// Box and Muller in double precision.
fn pair(u: f64, half_turns: f64, opposite: bool) -> (f64, f64) {
    let radius = (-2.0 * u.ln()).sqrt() * if opposite { -1.0 } else { 1.0 };
    let angle = std::f64::consts::FRAC_PI_2 * half_turns;
    (radius * angle.cos(), radius * angle.sin())
}

/// The coefficients of x^0, x^1, x^2 and x^3 in each range, as the known answers have them.
fn quantile_coefficients() -> Vec<Vec<f64>> {
    let file = include_str!("../known-answers.txt");
    let line =
        |k: usize| file.lines().find_map(|line| line.strip_prefix(&format!("# polynomial name=quantile-{k} : ")));
    let number = |bits: &str| f64::from(f32::from_bits(u32::from_str_radix(bits, 16).unwrap()));
    (0..4).map(|k| line(k).unwrap().split(' ').map(number).collect()).collect()
}

/// Half the inverse distribution function at 16 bits: a sign and k.
fn quantile(coefficients: &[Vec<f64>], half: u32) -> f64 {
    let v = 2 * (half & 0x7fff) + 1;
    let s = v.ilog2() / 2;
    let x = f64::from(2 * v) / f64::from(1u32 << (2 * s));
    let value = coefficients.iter().rev().fold(0.0, |value, row| value * x + row[(s as usize + 7) % 8]);
    if half >> 15 == 1 { -value } else { value }
}

/// The first `len` entries of a Gaussian direction, up to rounding and the error of Box and Muller's polynomials.
fn gaussian(randomness: &CommonRandomness, strict: bool, round: u64, row: u32, len: usize) -> Vec<f64> {
    let coefficients = quantile_coefficients();
    let mut entries = vec![0.0; len.next_multiple_of(4096)];
    for (tile, entries) in entries.chunks_mut(4096).enumerate() {
        for lane in 0..16 {
            let mut next = generator(randomness, round, row, tile, lane);
            for group in entries.chunks_mut(64) {
                if strict {
                    for half in 0..2 {
                        let (first, second) = (next(), next());
                        let u = f64::from(first >> 1 | 1) / 2f64.powi(31);
                        let angle = f64::from((second << 1 | 1) as i32) / 2f64.powi(31);
                        let (x, y) = pair(u, angle, second >> 31 == 1);
                        group[32 * half + lane] = x;
                        group[32 * half + 16 + lane] = y;
                    }
                } else {
                    let words = [next(), next()];
                    let [a, b, c, d] = [words[0] >> 16, words[0] & 0xffff, words[1] >> 16, words[1] & 0xffff]
                        .map(|half| quantile(&coefficients, half));
                    group[lane] = a + b + c + d;
                    group[16 + lane] = a - b + c - d;
                    group[32 + lane] = a + b - c - d;
                    group[48 + lane] = a - b - c + d;
                }
            }
        }
    }
    entries.truncate(len);
    entries
}

#[test]
fn gaussian_entries_are_quantiles_or_box_and_muller_of_the_words() {
    println!("kernels: {:?}", Kernel::available());
    let randomness = randomness();
    for kernel in Kernel::available() {
        // Rounding of numbers up to 9 in half a dozen steps; the polynomials' errors times the longest radius, see the kernel.
        for (strict, bound) in [(false, 3e-6), (true, 4e-6)] {
            for (round, row, dim) in [(0, 0, 5000), (3, 2, 64), (u64::MAX, 6, 70)] {
                let sketch = if strict { Gaussian::strict } else { Gaussian::new };
                let sketch = sketch(&randomness, dim, 7).unwrap().with_kernel(kernel);
                let mut direction = vec![0.0; dim];
                sketch.direction(round, row, &mut direction);
                let expected = gaussian(&randomness, strict, round, row as u32, dim);
                for (found, expected) in direction.iter().zip(expected) {
                    assert!(
                        (f64::from(*found) - expected).abs() < bound,
                        "{found} {expected} {kernel} strict {strict}"
                    );
                }
            }
        }
    }
}

#[test]
fn rademacher_entries_are_bits_of_the_words() {
    let randomness = randomness();
    for kernel in Kernel::available() {
        let sketch = Rademacher::new(&randomness, 5000, 6).unwrap().with_kernel(kernel);
        for row in 0..6 {
            let mut direction = vec![0.0; 5000];
            sketch.direction(9, row, &mut direction);
            for c in (0..5000).step_by(7) {
                assert_eq!(direction[c], sign(&randomness, 9, row as u32, c));
            }
        }
    }
}

#[test]
fn hadamard_directions_are_signed_rows_of_sylvesters_matrix() {
    let randomness = randomness();
    for kernel in Kernel::available() {
        for (dim, budget) in [(1, 1), (2, 2), (40, 8), (64, 64), (1000, 700)] {
            let sketch = Hadamard::new(&randomness, dim, budget).unwrap().with_kernel(kernel);
            let mut seen = std::collections::HashSet::new();
            for row in 0..budget {
                let mut direction = vec![0.0; dim];
                sketch.direction(2, row, &mut direction);
                let unsigned: Vec<f32> = (0..dim).map(|c| direction[c] * sign(&randomness, 2, 0, c)).collect();
                let index = (0..dim.next_power_of_two())
                    .find(|index| (0..dim).all(|c| unsigned[c] == [1.0, -1.0][(index & c).count_ones() as usize % 2]));
                assert!(index.is_some(), "direction {row} is no row of the matrix");
                if dim.is_power_of_two() {
                    assert!(seen.insert(index), "row {index:?} came twice");
                }
            }
        }
    }
}

/// The order of the matrix and of Paley's factor in it, as documented.
fn order(dim: usize) -> (usize, usize) {
    let power = dim.next_power_of_two();
    match dim {
        _ if dim <= 65_536 => (power, 1),
        _ if 8 * dim <= 5 * power => (power / 8 * 5, 20),
        _ if 8 * dim <= 6 * power => (power / 8 * 6, 12),
        _ => (power, 1),
    }
}

/// An entry of the matrix.
fn entry(order: usize, base: usize, row: usize, column: usize) -> f64 {
    let rest = order / base;
    let (i, k) = (row / rest, column / rest);
    let squares: Vec<usize> = (1..base.max(2) - 1).map(|x| x * x % (base - 1)).collect();
    let negative = match (i, k) {
        _ if i == k || i == 0 => false,
        (_, 0) => true,
        _ => !squares.contains(&((i + base - 1 - k) % (base - 1))),
    };
    let common = ((row % rest) & (column % rest)).count_ones() as usize + usize::from(negative);
    [1.0, -1.0][common % 2]
}

/// Floyd's choice, sorted.
fn rows(randomness: &CommonRandomness, round: u64, of: usize, count: usize) -> Vec<usize> {
    let mut words = randomness.words(Purpose::Rows, round, 0);
    let mut chosen = std::collections::BTreeSet::new();
    for last in of - count..of {
        let row = words.next_below(last as u64 + 1) as usize;
        chosen.insert(if chosen.contains(&row) { last } else { row });
    }
    chosen.into_iter().collect()
}

#[test]
fn large_hadamard_sketches_are_products_with_the_documented_matrix() {
    let randomness = randomness();
    let kernel = *Kernel::available().last().unwrap();
    for dim in [65_536, 65_537, 81_920, 90_000, 100_000, 131_073, 200_000] {
        let (budget, (order, base)) = (3, order(dim));
        assert_eq!(Family::Hadamard.most(dim), order);
        let sketch = Hadamard::new(&randomness, dim, budget).unwrap().with_kernel(kernel);
        let signs: Vec<f64> = {
            let rademacher = Rademacher::new(&randomness, dim, 1).unwrap();
            let mut signs = vec![0.0; dim];
            rademacher.direction(6, 0, &mut signs);
            signs.into_iter().map(f64::from).collect()
        };
        // Whole numbers, so that every order of summation gives the same.
        let vector: Vec<f64> = (0..dim).map(|c| (c % 29) as f64 - 14.0).collect();
        let (mut scalars, mut rebuilt) = (vec![0.0; budget], vec![0.0; dim]);
        sketch.project(6, &vector, &mut scalars);
        sketch.reconstruct(6, &[4.0, -5.0, 9.0], &mut rebuilt);
        let mut sums = vec![0.0; dim];
        for (j, row) in rows(&randomness, 6, order, budget).into_iter().enumerate() {
            let xi: Vec<f64> = (0..dim).map(|c| signs[c] * entry(order, base, row, c)).collect();
            assert_eq!(scalars[j], xi.iter().zip(&vector).map(|(x, y)| x * y).sum::<f64>());
            sums.iter_mut().zip(&xi).for_each(|(sum, xi)| *sum += [4.0, -5.0, 9.0][j] * xi);
            let mut direction = vec![0.0; dim];
            sketch.direction(6, j, &mut direction);
            assert!(direction.iter().zip(&xi).all(|(&found, &xi)| f64::from(found) == xi));
        }
        assert!(rebuilt.iter().zip(&sums).all(|(&found, &sum)| found == sum / 3.0));
    }
}

/// The lanes l and l + 8, then l + 4, l + 2, l + 1.
fn sum_of_lanes(mut lanes: [f64; 16]) -> f64 {
    for stride in [8, 4, 2, 1] {
        for l in 0..stride {
            lanes[l] += lanes[l + stride];
        }
    }
    lanes[0]
}

/// The inner product of Gaussian entries in the documented order: sixteen lanes, chunks of 1024.
fn project(direction: &[f32], vector: &[f64]) -> f64 {
    let mut total = 0.0;
    for (direction, vector) in direction.chunks(1024).zip(vector.chunks(1024)) {
        let mut lanes = [0f64; 16];
        for (c, (&xi, &a)) in direction.iter().zip(vector).enumerate() {
            lanes[c % 16] = f64::from(xi).mul_add(a, lanes[c % 16]);
        }
        total += sum_of_lanes(lanes);
    }
    total
}

/// The inner product of signs in the documented order: four of a lane, eight of these, the lanes, the blocks of 512.
fn project_signs(direction: &[f32], vector: &[f64]) -> f64 {
    let mut total = 0.0;
    for block in (0..vector.len()).step_by(512) {
        let product = |c: usize| if c < vector.len() { f64::from(direction[c]) * vector[c] } else { 0.0 };
        let mut lanes = [0.0; 16];
        for group in (block..block + 512).step_by(64) {
            for (l, lane) in lanes.iter_mut().enumerate() {
                let c = group + l;
                *lane += (product(c) + product(c + 16)) + (product(c + 32) + product(c + 48));
            }
        }
        total += sum_of_lanes(lanes);
    }
    total
}

#[test]
fn projections_and_reconstructions_have_the_documented_bits() {
    let randomness = randomness();
    for kernel in Kernel::available() {
        for (dim, budget) in [(1, 1), (15, 3), (784, 17), (4097, 6), (9001, 5)] {
            let sketch = Gaussian::new(&randomness, dim, budget).unwrap().with_kernel(kernel);
            let direction = |row: usize, out: &mut [f32]| sketch.direction(4, row, out);
            documented_bits(&sketch, direction, project, |entries, scalars| {
                entries.iter().zip(scalars).fold(0.0, |sum, (&xi, &scalar)| f64::from(xi).mul_add(scalar, sum))
            });
            let sketch = Rademacher::new(&randomness, dim, budget).unwrap().with_kernel(kernel);
            let direction = |row: usize, out: &mut [f32]| sketch.direction(4, row, out);
            documented_bits(&sketch, direction, project_signs, |entries, scalars| {
                entries.chunks(4).zip(scalars.chunks(4)).fold(0.0, |sum, (entries, scalars)| {
                    let product = |j: usize| if j < scalars.len() { f64::from(entries[j]) * scalars[j] } else { 0.0 };
                    sum + ((product(0) + product(1)) + (product(2) + product(3)))
                })
            });
        }
    }
}

/// Compares a sketch in round 4 with inner products and, for each coordinate, sums over the rows.
fn documented_bits(
    sketch: &impl Sketch,
    direction: impl Fn(usize, &mut [f32]),
    project: impl Fn(&[f32], &[f64]) -> f64,
    rebuild: impl Fn(&[f32], &[f64]) -> f64,
) {
    let (dim, budget) = (sketch.dim(), sketch.len());
    let vector: Vec<f64> = (0..dim).map(|c| (c as f64 * 0.37).sin()).collect();
    let (mut scalars, mut rebuilt) = (vec![0.0; budget], vec![0.0; dim]);
    sketch.project(4, &vector, &mut scalars);
    sketch.reconstruct(4, &scalars, &mut rebuilt);
    let mut directions = vec![vec![0.0; dim]; budget];
    for (row, out) in directions.iter_mut().enumerate() {
        direction(row, out);
        assert_eq!(scalars[row].to_bits(), project(out, &vector).to_bits());
    }
    for (c, found) in rebuilt.iter().enumerate() {
        let entries: Vec<f32> = directions.iter().map(|direction| direction[c]).collect();
        assert_eq!(found.to_bits(), (rebuild(&entries, &scalars) / budget as f64).to_bits());
    }
}

fn bits<T: corewire_sketch::Real>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

/// Everything that a sketch computes from one vector, as bits.
fn outcome<T: corewire_sketch::Real>(sketch: &impl Sketch, round: u64, vector: &[T]) -> Vec<u64> {
    let mut scalars = vec![T::ONE; sketch.len()];
    sketch.project(round, vector, &mut scalars);
    let mut all = bits(&scalars);
    let mut rebuilt = vec![T::ONE; sketch.dim()];
    sketch.reconstruct(round, &scalars, &mut rebuilt);
    all.extend(bits(&rebuilt));
    sketch.reconstruct_add(round, &scalars, T::from_f64(0.3), &mut rebuilt);
    all.extend(bits(&rebuilt));
    let doubled: Vec<T> = vector.iter().map(|&x| x + x).collect();
    let mut many = vec![T::ONE; 3 * sketch.len()];
    sketch.project_many(round, &[vector, &doubled, vector], &mut many);
    assert_eq!(bits(&many[..sketch.len()]), bits(&scalars), "project_many differs from project");
    assert_eq!(bits(&many[2 * sketch.len()..]), bits(&scalars), "project_many differs from project");
    sketch.project(round, &doubled, &mut scalars);
    assert_eq!(bits(&many[sketch.len()..2 * sketch.len()]), bits(&scalars), "project_many differs from project");
    all
}

fn pools() -> Vec<rayon::ThreadPool> {
    [1, 2, 8].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()).into()
}

fn kernels_agree<T: corewire_sketch::Real>(sketch: &AnySketch, round: u64, vector: &[T], pools: &[rayon::ThreadPool]) {
    let expected = outcome(&sketch.clone().with_kernel(Kernel::REFERENCE), round, vector);
    let kernels = Kernel::available();
    // The reference is slow, and how work is split does not depend on the kernel: it is run on threads only where there is no other.
    for &kernel in &kernels[usize::from(kernels.len() > 1)..] {
        let found = outcome(&sketch.clone().with_kernel(kernel), round, vector);
        assert!(found == expected, "`{kernel}` differs from the reference");
        for pool in pools {
            let threads = pool.current_num_threads();
            let found = pool.install(|| outcome(&sketch.clone().with_kernel(kernel), round, vector));
            assert!(found == expected, "`{kernel}` on {threads} threads differs from the reference");
        }
    }
}

fn sketches(dim: usize, budget: usize, block: usize) -> Vec<AnySketch> {
    let randomness = randomness();
    let mut all = Vec::new();
    for family in Family::ALL {
        let limit = if family == Family::Hadamard { dim.next_power_of_two() } else { budget };
        all.push(AnySketch::new(family, &randomness, dim, budget.min(limit)).unwrap());
        let block = NonZeroUsize::new(block).unwrap();
        let limit = if family == Family::Hadamard { block.get().next_power_of_two() } else { budget };
        all.push(AnySketch::Blocks(Blocks::uniform(family, &randomness, dim, block, budget.min(limit)).unwrap()));
    }
    all
}

#[test]
fn many_vectors_at_once_are_as_one_by_one() {
    let (dim, budget) = (1500, 19);
    let vectors: Vec<Vec<f32>> =
        (0..9).map(|i| (0..dim).map(|c| ((c * (i + 3)) as f32 * 0.37).sin()).collect()).collect();
    let slices: Vec<&[f32]> = vectors.iter().map(Vec::as_slice).collect();
    for kernel in Kernel::available() {
        for family in Family::ALL {
            let sketch = AnySketch::new(family, &randomness(), dim, budget).unwrap().with_kernel(kernel);
            let (mut many, mut one) = (vec![0.0; 9 * budget], vec![0.0; budget]);
            sketch.project_many(3, &slices, &mut many);
            for (i, vector) in slices.iter().enumerate() {
                sketch.project(3, vector, &mut one);
                assert_eq!(bits(&many[i * budget..(i + 1) * budget]), bits(&one), "{family}, vector {i}, {kernel}");
            }
        }
    }
}

/// A thread keeps the entries of the last round; whoever differs in seed, purpose, round, family or size must not be given them.
#[test]
fn directions_that_a_thread_keeps_are_nobody_elses() {
    let other = CommonRandomness::new(&Seed::reproducible(12));
    let new = |family, randomness: &CommonRandomness, dim, budget| {
        AnySketch::new(family, randomness, dim, budget).unwrap().with_kernel(Kernel::detect())
    };
    let mut sketches = Vec::new();
    for family in [Family::Gaussian, Family::GaussianStrict] {
        for (dim, budget) in [(1500, 19), (1500, 20), (1501, 19), (784, 74)] {
            sketches.extend([new(family, &randomness(), dim, budget), new(family, &other, dim, budget)]);
        }
        sketches.push(new(family, &randomness(), 1500, 19).with_purpose(Purpose::Probe));
    }
    let calls: Vec<(usize, u64)> = (0..sketches.len()).flat_map(|k| [(k, 3), (k, 4), (k, 3)]).collect();
    let call = |&(k, round): &(usize, u64)| {
        let vector: Vec<f32> = (0..sketches[k].dim()).map(|c| (c as f32 * 0.37).sin()).collect();
        outcome(&sketches[k], round, &vector)
    };
    // A new thread has kept nothing.
    let alone = |at| std::thread::scope(|scope| scope.spawn(|| call(at)).join().unwrap());
    let together: Vec<Vec<u64>> = calls.iter().map(call).collect();
    for (at, found) in calls.iter().zip(&together) {
        assert!(*found == alone(at), "sketch {} of round {}", at.0, at.1);
    }
}

#[test]
fn kernels_and_threads_agree_on_odd_sizes() {
    let pools = pools();
    for dim in [1, 15, 16, 17, 63, 65, 1023, 1025, 4095, 4096, 4097, 8191, 8209] {
        for budget in [1, 3, 4, 17] {
            let vector: Vec<f64> = (0..dim).map(|c| (c as f64 * 1.7).cos()).collect();
            let short: Vec<f32> = vector.iter().map(|&x| x as f32).collect();
            for sketch in sketches(dim, budget, 1000) {
                kernels_agree(&sketch, 5, &vector, &pools);
                kernels_agree(&sketch, 5, &short, &pools);
            }
        }
    }
}

#[test]
fn kernels_and_threads_agree_where_threads_are_used() {
    let pools = pools();
    let vector: Vec<f32> = (0..70_000).map(|c| (c as f32 * 1.7).cos()).collect();
    for sketch in sketches(vector.len(), 32, 5000) {
        kernels_agree(&sketch, 5, &vector, &pools);
    }
}

#[test]
fn kernels_and_threads_agree_on_large_transforms() {
    let pools = pools();
    for dim in [65_537, 90_001, 131_072, 270_000] {
        let vector: Vec<f64> = (0..dim).map(|c| (c as f64 * 1.7).cos()).collect();
        let short: Vec<f32> = vector.iter().map(|&x| x as f32).collect();
        for budget in [1, 1000, 50_000] {
            let sketch = AnySketch::new(Family::Hadamard, &randomness(), dim, budget).unwrap();
            kernels_agree(&sketch, 5, &short, &pools);
        }
        let sketch = AnySketch::new(Family::Hadamard, &randomness(), dim, 5).unwrap();
        kernels_agree(&sketch, 5, &vector, &pools);
    }
}

#[test]
fn the_public_transform_has_the_same_bits_on_any_number_of_threads() {
    for log in [0, 1, 3, 5, 9, 13, 16, 17, 18, 20] {
        let values: Vec<f32> = (0..1 << log).map(|c| (c as f32 * 1.7).cos()).collect();
        let mut expected = values.clone();
        let mut stride = expected.len() / 2;
        while stride > 0 {
            for pair in expected.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                low.iter_mut().zip(high).for_each(|(x, y)| (*x, *y) = (*x + *y, *x - *y));
            }
            stride /= 2;
        }
        for pool in pools() {
            let mut found = values.clone();
            pool.install(|| corewire_sketch::hadamard_transform(&mut found));
            assert!(bits(&found) == bits(&expected), "2^{log} on {} threads", pool.current_num_threads());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn kernels_agree_on_any_size(dim in 1usize..5000, budget in 1usize..24, block in 1usize..700, round: u64, scale in -30i32..30) {
        let vector: Vec<f64> = (0..dim).map(|c| (c as f64 * 0.9).sin() * 2f64.powi(scale)).collect();
        for sketch in sketches(dim, budget, block) {
            let expected = outcome(&sketch.clone().with_kernel(Kernel::REFERENCE), round, &vector);
            for kernel in Kernel::available() {
                prop_assert!(outcome(&sketch.clone().with_kernel(kernel), round, &vector) == expected);
            }
        }
    }
}

#[test]
fn the_energy_has_the_same_bits_on_every_kernel() {
    let randomness = randomness();
    for budget in [1, 7, 16, 100] {
        let scalars: Vec<f32> = (0..budget).map(|j| 1.0 / (j as f32 - 3.3)).collect();
        let block = std::num::NonZeroUsize::new(64).unwrap();
        let dense = Gaussian::new(&randomness, 128, budget).unwrap();
        let blocks = Blocks::uniform(Family::Gaussian, &randomness, 128, block, budget).unwrap();
        let twice = [&scalars[..], &scalars].concat();
        for kernel in Kernel::available() {
            let (dense, blocks) = (dense.clone().with_kernel(kernel), blocks.clone().with_kernel(kernel));
            let reference = Kernel::available()[0];
            let expected = dense.clone().with_kernel(reference).energy(&scalars);
            assert_eq!(dense.energy(&scalars).to_bits(), expected.to_bits(), "{kernel} {budget}");
            assert_eq!(blocks.energy(&twice).to_bits(), (expected + expected).to_bits(), "{kernel} {budget}");
        }
    }
}
