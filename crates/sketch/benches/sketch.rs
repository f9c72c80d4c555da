//! One thread unless the feature `parallel` is on: nanoseconds per entry (row times coordinate), or a coordinate for Hadamard.
//!
//! `cargo bench -p corewire-sketch`; divan shows items a second, and 1/x of it is the figure in the documentation.

use std::num::NonZeroUsize;

use corewire_sketch::{AnySketch, Blocks, CommonRandomness, Family, Hadamard, Seed, Sketch};
use divan::Bencher;
use divan::counter::ItemsCount;

const DENSE: [Family; 3] = [Family::Gaussian, Family::GaussianStrict, Family::Rademacher];

fn main() {
    println!("kernel: {}", corewire_sketch::kernel_name());
    divan::main();
}

fn randomness() -> CommonRandomness {
    CommonRandomness::new(&Seed::reproducible(1))
}

fn vector(dim: usize) -> Vec<f32> {
    (0..dim).map(|c| (c % 1000) as f32 * 1e-3).collect()
}

#[divan::bench(args = DENSE, sample_count = 5, sample_size = 1)]
fn project_d1048576_m256(bencher: Bencher, family: &Family) {
    let (dim, budget) = (1 << 20, 256);
    let sketch = AnySketch::new(*family, &randomness(), dim, budget).unwrap();
    let (a, mut out) = (vector(dim), vec![0.0; budget]);
    bencher.counter(ItemsCount::new(dim * budget)).bench_local(|| sketch.project(0, &a, &mut out));
}

#[divan::bench(args = DENSE, sample_count = 5, sample_size = 1)]
fn reconstruct_d1048576_m256(bencher: Bencher, family: &Family) {
    let (dim, budget) = (1 << 20, 256);
    let sketch = AnySketch::new(*family, &randomness(), dim, budget).unwrap();
    let (p, mut out) = (vec![1.0f32; budget], vec![0.0; dim]);
    bencher.counter(ItemsCount::new(dim * budget)).bench_local(|| sketch.reconstruct(0, &p, &mut out));
}

#[divan::bench(args = DENSE, sample_count = 5, sample_size = 1)]
fn project_many_50_d131072_m64(bencher: Bencher, family: &Family) {
    let (dim, budget) = (1 << 17, 64);
    let sketch = AnySketch::new(*family, &randomness(), dim, budget).unwrap();
    let vectors: Vec<Vec<f32>> = (0..50).map(|_| vector(dim)).collect();
    let vectors: Vec<&[f32]> = vectors.iter().map(|a| &a[..]).collect();
    let mut out = vec![0.0; 50 * budget];
    bencher.counter(ItemsCount::new(50 * dim * budget)).bench_local(|| sketch.project_many(0, &vectors, &mut out));
}

#[divan::bench(args = [10, 13, 18, 20, 24], min_time = 0.3)]
fn hadamard_project_f32_m256(bencher: Bencher, log: u32) {
    let dim = 1 << log;
    let sketch = Hadamard::new(&randomness(), dim, 256).unwrap();
    let (a, mut out) = (vector(dim), vec![0.0; 256]);
    bencher.counter(ItemsCount::new(dim)).bench_local(|| sketch.project(0, &a, &mut out));
}

#[divan::bench(args = [10, 13, 18, 20, 24], min_time = 0.3)]
fn transform_f32(bencher: Bencher, log: u32) {
    let mut values = vector(1 << log);
    bencher.counter(ItemsCount::new(values.len())).bench_local(|| corewire_sketch::hadamard_transform(&mut values));
}

#[divan::bench(args = Family::ALL, min_time = 0.2)]
fn small_f64_d784_m784_project(bencher: Bencher, family: &Family) {
    let sketch = AnySketch::new(*family, &randomness(), 784, 784).unwrap();
    let (a, mut out) = (vec![1.0f64; 784], vec![0.0; 784]);
    bencher.bench_local(|| sketch.project(0, &a, &mut out));
}

#[divan::bench(args = Family::ALL, min_time = 0.2)]
fn small_f64_d784_m784_reconstruct(bencher: Bencher, family: &Family) {
    let sketch = AnySketch::new(*family, &randomness(), 784, 784).unwrap();
    let (p, mut out) = (vec![1.0f64; 784], vec![0.0; 784]);
    bencher.bench_local(|| sketch.reconstruct(0, &p, &mut out));
}

#[divan::bench(args = Family::ALL, min_time = 0.2)]
fn small_f64_d64_m8_project(bencher: Bencher, family: &Family) {
    let sketch = AnySketch::new(*family, &randomness(), 64, 8).unwrap();
    let (a, mut out) = (vec![1.0f64; 64], vec![0.0; 8]);
    let mut rounds = 0..;
    // A round of its own each: so few entries would be kept.
    bencher.bench_local(|| sketch.project(rounds.next().unwrap(), &a, &mut out));
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn hadamard_project_d11173962_at_100x(bencher: Bencher) {
    let (dim, budget) = (11_173_962, 111_739);
    let sketch = Hadamard::new(&randomness(), dim, budget).unwrap();
    let (a, mut out) = (vector(dim), vec![0.0; budget]);
    bencher.counter(ItemsCount::new(dim)).bench_local(|| sketch.project(0, &a, &mut out));
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn hadamard_reconstruct_d11173962_at_100x(bencher: Bencher) {
    let (dim, budget) = (11_173_962, 111_739);
    let sketch = Hadamard::new(&randomness(), dim, budget).unwrap();
    let (p, mut out) = (vec![1.0f32; budget], vec![0.0; dim]);
    bencher.counter(ItemsCount::new(dim)).bench_local(|| sketch.reconstruct(0, &p, &mut out));
}

#[divan::bench(args = Family::ALL, sample_count = 5, sample_size = 1)]
fn blocks_of_4096_d11173962_at_100x(bencher: Bencher, family: &Family) {
    let dim = 11_173_962;
    let sketch = Blocks::uniform(*family, &randomness(), dim, NonZeroUsize::new(4096).unwrap(), 41).unwrap();
    let (a, mut out) = (vector(dim), vec![0.0; sketch.len()]);
    bencher.counter(ItemsCount::new(dim)).bench_local(|| sketch.project(0, &a, &mut out));
}
