//! Times corewire's kernels and the peers that are Rust crates: one JSON object per line, nanoseconds per entry (row times coordinate) or
//! a coordinate.
//!
//! Best of several short measurements each, one thread, `f32`. Called by `run.py`, which times the other peers in the same run.

use std::hint::black_box;
use std::time::Instant;

use corewire_sketch::{AnySketch, CommonRandomness, Family, Seed, Sketch, hadamard_transform, kernel_name};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const DIM: usize = 1 << 20;
const REPEATS: usize = 7;

fn best(mut work: impl FnMut()) -> f64 {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e9
    };
    (0..REPEATS).map(|_| time(&mut work)).fold(f64::INFINITY, f64::min)
}

fn report(group: &str, name: &str, nanoseconds: f64) {
    println!(r#"{{"group": "{group}", "name": "{name}", "ns": {nanoseconds:.4}}}"#);
}

fn main() {
    let budget: usize = std::env::args().nth(1).map_or(256, |text| text.parse().expect("the budget is a whole number"));
    let a: Vec<f32> = (0..DIM).map(|c| (c % 1000) as f32 * 1e-3).collect();
    let randomness = CommonRandomness::new(&Seed::reproducible(1));
    let entries = (DIM * budget) as f64;
    for family in [Family::Gaussian, Family::GaussianStrict, Family::Rademacher] {
        let sketch = AnySketch::new(family, &randomness, DIM, budget).expect("a valid sketch");
        let (mut scalars, mut rebuilt) = (vec![0.0; budget], vec![0.0; DIM]);
        let name = format!("corewire {family} ({})", kernel_name());
        report("project", &name, best(|| sketch.project(0, &a, &mut scalars)) / entries);
        report("reconstruct", &name, best(|| sketch.reconstruct(0, &scalars, &mut rebuilt)) / entries);
        let (dim, budget) = (1 << 14, 32);
        let vectors = vec![&a[..dim]; 50];
        let sketch = AnySketch::new(family, &randomness, dim, budget).expect("a valid sketch");
        let mut scalars = vec![0.0; 50 * budget];
        let many = best(|| sketch.project_many(0, &vectors, &mut scalars)) / (50 * dim * budget) as f64;
        report("project, 50 vectors at once, each", &name, many);
    }
    crate_normals("rand_distr SmallRng", SmallRng::seed_from_u64(1), &a);
    crate_normals("rand_distr ChaCha8", ChaCha8Rng::seed_from_u64(1), &a);
    for (dim, budget) in [(1 << 20, 256), (1 << 24, 256), (11_173_962, 111_739)] {
        hadamard(&randomness, dim, budget);
    }
    for log in [10, 13, 18, 20, 24] {
        let count = (1usize << 20 >> log).max(1);
        let mut values = vec![0.0f32; 1 << log];
        for (name, transform) in
            [("corewire", hadamard_transform::<f32> as fn(&mut [f32])), ("plain radix 4", plain_transform)]
        {
            let time = best(|| {
                for _ in 0..count {
                    transform(black_box(&mut values));
                }
            });
            report(&format!("transform of 2^{log}"), name, time / (count << log) as f64);
        }
    }
}

/// A Hadamard sketch beside the transform alone and a copy of the vector, nanoseconds per coordinate.
fn hadamard(randomness: &CommonRandomness, dim: usize, budget: usize) {
    let group = format!("hadamard sketch of {dim} as {budget}");
    let sketch = AnySketch::new(Family::Hadamard, randomness, dim, budget).expect("a valid sketch");
    let vector: Vec<f32> = (0..dim).map(|c| (c % 1000) as f32 * 1e-3).collect();
    let (mut scalars, mut rebuilt) = (vec![0.0; budget], vec![0.0; dim]);
    let mut whole = vec![0.0f32; dim.next_power_of_two()];
    let each = dim as f64;
    report(&group, "memcpy", best(|| rebuilt.copy_from_slice(black_box(&vector))) / each);
    report(&group, "project", best(|| sketch.project(0, black_box(&vector), &mut scalars)) / each);
    report(&group, "reconstruct", best(|| sketch.reconstruct(0, black_box(&scalars), &mut rebuilt)) / each);
    let name = format!("transform alone, of {}", whole.len());
    report(&group, &name, best(|| hadamard_transform(black_box(&mut whole))) / each);
}

/// Two rows of normal numbers from a crate, made and multiplied at once.
fn crate_normals(name: &str, mut generator: impl Rng, a: &[f32]) {
    let rows = 2;
    let time = best(|| {
        for _ in 0..rows {
            let product: f32 = a.iter().map(|x| x * <StandardNormal as Distribution<f32>>::sample(&StandardNormal, &mut generator)).sum();
            black_box(product);
        }
    });
    report("project", name, time / (rows * a.len()) as f64);
}

/// The textbook transform: iterative, two strides a pass, vectors made by the compiler for this CPU (`-C target-cpu=native`).
fn plain_transform(values: &mut [f32]) {
    let mut size = values.len();
    while size >= 4 {
        for block in values.chunks_exact_mut(size) {
            let (low, high) = block.split_at_mut(size / 2);
            let (a, b) = low.split_at_mut(size / 4);
            let (c, d) = high.split_at_mut(size / 4);
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let (w, x, y, z) = (*a + *c, *b + *d, *a - *c, *b - *d);
                (*a, *b, *c, *d) = (w + x, w - x, y + z, y - z);
            }
        }
        size /= 4;
    }
    if size == 2 {
        for pair in values.chunks_exact_mut(2) {
            (pair[0], pair[1]) = (pair[0] + pair[1], pair[0] - pair[1]);
        }
    }
}
