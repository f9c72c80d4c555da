//! Measures the row products that all training spends its time in: `cargo run --release -p corewire-data --example products`.

use std::time::Instant;

use corewire_data::Matrix;

fn main() {
    println!("{:>8} {:>6} {:>7} {:>10} {:>12} {:>8}", "rows", "dim", "form", "X x", "X' w", "gram s");
    for (rows, dim, nonzero) in
        [(40, 784, 1.0), (2000, 784, 1.0), (36, 64, 1.0), (11620, 54, 1.0), (2000, 784, 0.19), (60000, 784, 0.19)]
    {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let values = (0..rows * dim).map(|_| if next() < nonzero { next() - 0.5 } else { 0.0 }).collect();
        let matrix = Matrix::dense(values, dim).compact();
        let flops = 2.0 * matrix.nonzeros() as f64;
        let repeats = (2e9 / flops) as usize + 1;
        let (mut x, mut products) = (vec![1e-3; dim], vec![0.0; rows]);
        let start = Instant::now();
        for _ in 0..repeats {
            matrix.multiply(0..rows, std::hint::black_box(&x), &mut products);
        }
        let multiply = flops * repeats as f64 / start.elapsed().as_secs_f64() / 1e9;
        let start = Instant::now();
        for _ in 0..repeats {
            matrix.multiply_transposed_add(0..rows, std::hint::black_box(&products), &mut x);
        }
        let transposed = flops * repeats as f64 / start.elapsed().as_secs_f64() / 1e9;
        let mut gram = vec![0.0; dim * dim];
        let start = Instant::now();
        matrix.gram(&products, &mut gram);
        let seconds = start.elapsed().as_secs_f64();
        let form = if nonzero < 0.5 { "sparse" } else { "dense" };
        println!("{rows:>8} {dim:>6} {form:>7} {multiply:>5.1} GF/s {transposed:>7.1} GF/s {seconds:>8.3}");
    }
}
