//! `corewire bench`: what the sketch costs on this machine, and below which bandwidth it pays.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, bail};
use corewire_sketch::{AnySketch, CommonRandomness, Family, Real, Seed, Sketch, kernel_name, multiply_adds};
use serde::Serialize;

use crate::memory;

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
    /// One JSON object per line.
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
    project_seconds: f64,
    reconstruct_seconds: f64,
    /// Gigabytes of the vector per second in a projection.
    project_gb_s: f64,
    /// The same for a copy of the vector by one thread.
    memcpy_gb_s: f64,
    /// Multiply-adds of a projection (additions for Hadamard's transform) against what these threads could do at most.
    fma_share: f64,
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

/// Seconds of a copy of the vector, and multiply-adds per second of one thread that needs nothing but registers.
fn limits(vector: &[f32]) -> (f64, f64) {
    let mut copy = vector.to_vec();
    let copy_seconds = least_seconds(|| black_box(&mut copy).copy_from_slice(black_box(vector)));
    let mut count = 0;
    let seconds = least_seconds(|| count = black_box(multiply_adds(10_000_000)).0);
    (copy_seconds, count as f64 / seconds)
}

/// Multiply-adds, or additions, of one projection.
fn operations(family: Family, dim: usize, budget: usize) -> f64 {
    match family {
        Family::Hadamard => dim as f64 * (family.most(dim) as f64).log2(),
        _ => dim as f64 * budget as f64,
    }
}

/// What the table means to somebody who trains.
fn sentence(row: &Row) -> String {
    let (dim, scalars) = (short(row.dim as f64), short(row.budget as f64));
    format!(
        "a vector of {dim} numbers sent as {scalars} ({:.0}x fewer) takes {} to sketch and {} to rebuild here with `{}` on {} thread{}: \
         worth it below {}",
        row.dim as f64 / row.budget as f64,
        crate::units::seconds(row.project_seconds),
        crate::units::seconds(row.reconstruct_seconds),
        row.family,
        row.threads,
        if row.threads == 1 { "" } else { "s" },
        rate(row.break_even_mbit_s),
    )
}

/// 784, 65.5 k, 11.2 M.
fn short(count: f64) -> String {
    match count {
        1e6.. => format!("{:.1} M", count / 1e6),
        1e4.. => format!("{:.1} k", count / 1e3),
        _ => format!("{count:.0}"),
    }
}

fn rate(mbit_s: f64) -> String {
    if mbit_s >= 1000.0 {
        format!("{:.1} Gbit/s", mbit_s / 1000.0)
    } else {
        format!("{:.*} Mbit/s", usize::from(mbit_s < 10.0), mbit_s)
    }
}

/// `corewire bench`.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.dim == 0 || arguments.budget == 0 {
        bail!("`--dim` and `--budget` are at least 1");
    }
    // The vector, a copy, what is rebuilt, and what a Hadamard sketch pads.
    let bytes = 20.0 * arguments.dim as f64 + 8.0 * arguments.budget as f64;
    memory::check_bytes(&format!("vectors of {} numbers", arguments.dim), bytes, memory::share())?;
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
    let (copy_seconds, peak) = limits(&vector);
    let memcpy_gb_s = 4.0 * arguments.dim as f64 / copy_seconds / 1e9;
    if !arguments.json {
        println!(
            "kernel {}, {cores} cores; one thread copies this vector at {memcpy_gb_s:.1} GB/s and does {:.0} multiply-adds per nanosecond",
            kernel_name(),
            peak / 1e9
        );
    }
    let mut best: Option<Row> = None;
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "family",
        "threads",
        "project ns",
        "rebuild ns",
        "per",
        "project",
        "rebuild",
        "GB/s",
        "copies",
        "FMA peak",
        "pays below",
    ]);
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
                project_seconds: timing.project_seconds,
                reconstruct_seconds: timing.reconstruct_seconds,
                project_gb_s: 4.0 * d / timing.project_seconds / 1e9,
                memcpy_gb_s,
                fma_share: operations(family, arguments.dim, arguments.budget)
                    / timing.project_seconds
                    / (peak * threads as f64),
            };
            if arguments.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                table.add_row([
                    row.family.clone(),
                    threads.to_string(),
                    format!("{:.3}", row.project_ns),
                    format!("{:.3}", row.reconstruct_ns),
                    if family == Family::Hadamard { "coordinate" } else { "entry" }.to_owned(),
                    crate::units::seconds(timing.project_seconds),
                    crate::units::seconds(timing.reconstruct_seconds),
                    format!("{:.2}", row.project_gb_s),
                    format!("{:.1}", seconds / copy_seconds),
                    format!("{:.0} %", 100.0 * row.fma_share),
                    rate(row.break_even_mbit_s),
                ]);
            }
            if best.as_ref().is_none_or(|best| best.project_seconds + best.reconstruct_seconds > seconds) {
                best = Some(row);
            }
        }
    }
    if !arguments.json {
        println!(
            "d = {}, m = {}, f32; nanoseconds for each entry (row and coordinate) or coordinate",
            arguments.dim, arguments.budget
        );
        println!("{table}");
        println!("copies: how often one thread copies the vector while it is projected and rebuilt");
        if let Some(best) = best {
            println!("{}", sentence(&best));
        }
    }
    Ok(())
}
