//! `corewire bench`: what the sketch costs on this machine, and below which bandwidth it pays.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, bail};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Real, Seed, Sketch, kernel_name};
use serde::Serialize;

/// Arguments of `corewire bench`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this family: gaussian, gaussian-strict, rademacher, hadamard.
    #[arg(long)]
    family: Option<Family>,
    /// Coordinates d.
    #[arg(long, default_value_t = 1 << 20)]
    dim: usize,
    /// Budget m.
    #[arg(long, default_value_t = 256)]
    budget: usize,
    /// Threads; from 1 to all cores by default.
    #[arg(long)]
    threads: Option<usize>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    family: String,
    dim: usize,
    budget: usize,
    threads: usize,
    kernel: &'static str,
    /// Nanoseconds an entry: m d of them for dense families, d for Hadamard's.
    project_ns: f64,
    reconstruct_ns: f64,
    break_even_mbit_s: f64,
}

/// What a sketch of one vector takes.
pub struct Timing {
    /// Seconds of a projection.
    pub project_seconds: f64,
    /// Seconds of a reconstruction.
    pub reconstruct_seconds: f64,
}

/// The least of several timings: what the machine can do when nobody else asks for it.
fn least_seconds(mut work: impl FnMut()) -> f64 {
    work();
    let begun = Instant::now();
    let mut least = f64::INFINITY;
    let mut turns = 0;
    while turns < 3 || (begun.elapsed().as_secs_f64() < 0.3 && turns < 1000) {
        let turn = Instant::now();
        work();
        least = least.min(turn.elapsed().as_secs_f64());
        turns += 1;
    }
    least
}

/// Times a sketch of this vector.
pub fn time_sketch<T: Real>(family: Family, vector: &[T], budget: usize) -> Timing {
    let randomness = CommonRandomness::new(&Seed::reproducible(1));
    let sketch = AnySketch::new(family, &randomness, vector.len(), budget).expect("a valid budget");
    let (mut scalars, mut out) = (vec![vector[0]; budget], vector.to_vec());
    let mut round = 0;
    let project_seconds = least_seconds(|| {
        round += 1;
        sketch.project(round, black_box(vector), &mut scalars);
    });
    let reconstruct_seconds = least_seconds(|| {
        round += 1;
        sketch.reconstruct(round, black_box(&scalars), &mut out);
    });
    black_box(&out);
    Timing { project_seconds, reconstruct_seconds }
}

/// Gigabytes a second that a thread reads, and multiply-adds a second, for scale.
fn limits() -> (f64, f64) {
    let big = vec![1.0f32; 64 << 20];
    let sum = |values: &[f32]| {
        let mut sums = [0.0f32; 32];
        for chunk in values.chunks_exact(32) {
            sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value);
        }
        sums.iter().sum::<f32>()
    };
    let seconds = least_seconds(|| {
        black_box(sum(black_box(&big)));
    });
    let gigabytes = 4.0 * big.len() as f64 / seconds / 1e9;
    let small = vec![1.0f32; 4096];
    let seconds = least_seconds(|| {
        for _ in 0..256 {
            black_box(sum(black_box(&small)));
        }
    });
    (gigabytes, 256.0 * 4096.0 / seconds)
}

/// `corewire bench`.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.dim == 0 || arguments.budget == 0 {
        bail!("`--dim` and `--budget` are at least 1");
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads: Vec<usize> = match arguments.threads {
        Some(0) => bail!("`--threads` is at least 1"),
        Some(threads) => vec![threads],
        None => (1..=cores).collect(),
    };
    let families: Vec<Family> = match arguments.family {
        Some(family) => vec![family],
        None => vec![Family::Gaussian, Family::GaussianStrict, Family::Rademacher, Family::Hadamard],
    };
    let vector: Vec<f32> = (0..arguments.dim).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect();
    let randomness = CommonRandomness::new(&Seed::reproducible(1));
    for &family in &families {
        AnySketch::new(family, &randomness, arguments.dim, arguments.budget)?;
    }
    if !arguments.json {
        let (gigabytes, additions) = limits();
        println!(
            "kernel {}, {cores} cores; one thread reads {gigabytes:.1} GB/s from memory and does {:.1} additions a nanosecond in cache",
            kernel_name(),
            additions / 1e9
        );
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["family", "threads", "project ns", "rebuild ns", "entries", "one way", "pays below"]);
    for &family in &families {
        for &threads in &threads {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
            let timing = pool.install(|| time_sketch(family, &vector, arguments.budget));
            let (d, m) = (arguments.dim as f64, arguments.budget as f64);
            let entries = if family == Family::Hadamard { d } else { d * m };
            let saved_bits = 32.0 * (d - m).max(0.0);
            let seconds = timing.project_seconds + timing.reconstruct_seconds;
            let row = Row {
                family: family.to_string(),
                dim: arguments.dim,
                budget: arguments.budget,
                threads,
                kernel: kernel_name(),
                project_ns: timing.project_seconds * 1e9 / entries,
                reconstruct_ns: timing.reconstruct_seconds * 1e9 / entries,
                break_even_mbit_s: saved_bits / seconds / 1e6,
            };
            if arguments.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                table.add_row([
                    row.family,
                    threads.to_string(),
                    format!("{:.3}", row.project_ns),
                    format!("{:.3}", row.reconstruct_ns),
                    if family == Family::Hadamard { "d" } else { "m d" }.to_owned(),
                    crate::units::seconds(timing.project_seconds),
                    format!("{:.0} Mbit/s", row.break_even_mbit_s),
                ]);
            }
        }
    }
    if !arguments.json {
        println!("d = {}, m = {}, f32; nanoseconds an entry", arguments.dim, arguments.budget);
        println!("{table}");
        println!("below the last column's bandwidth, sending m floats and computing is faster than sending d floats");
    }
    Ok(())
}
