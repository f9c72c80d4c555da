//! Two builds of the sketch in turns: nanoseconds of each, the least of many, and their ratios. Called by `run.sh`.

use std::hint::black_box;
use std::time::Instant;

/// One build: a sketch, its vector and what comes out.
macro_rules! build {
    ($name:ident) => {
        mod $name {
            use $name::{AnySketch, CommonRandomness, Kernel, Seed, Sketch};

            pub struct Build {
                sketch: AnySketch,
                pub scalars: Vec<f32>,
                pub rebuilt: Vec<f32>,
            }

            impl Build {
                pub fn new(family: &str, dim: usize, budget: usize, kernel: &str) -> Self {
                    let family = family.parse().expect("a family");
                    let kernel =
                        Kernel::available().into_iter().find(|k| k.name() == kernel).expect("a kernel of this CPU");
                    let randomness = CommonRandomness::new(&Seed::reproducible(1));
                    let sketch =
                        AnySketch::new(family, &randomness, dim, budget).expect("a sketch").with_kernel(kernel);
                    Self { sketch, scalars: vec![0.0; budget], rebuilt: vec![0.0; dim] }
                }

                pub fn project(&mut self, round: u64, vector: &[f32]) {
                    self.sketch.project(round, vector, &mut self.scalars);
                }

                pub fn rebuild(&mut self, round: u64) {
                    self.sketch.reconstruct(round, &self.scalars, &mut self.rebuilt);
                }

                /// A round of [`MACHINES`](super::MACHINES) that one thread simulates: each projects, follows its shift and rebuilds.
                pub fn round(&mut self, round: u64, vector: &[f32]) {
                    for _ in 0..super::MACHINES {
                        self.project(round, vector);
                        self.sketch.reconstruct_add(round, &self.scalars, 0.1, &mut self.rebuilt);
                        self.rebuild(round);
                    }
                }
            }
        }
    };
}

/// Machines that a thread simulates in a whole round: the half of fifty.
const MACHINES: usize = 25;

build!(before);
build!(now);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let family = arguments.first().expect("a family");
    let (dim, budget, threads, turns) = (number(1, 1 << 20), number(2, 256), number(3, 1), number(4, 20));
    let kernel = arguments.get(5).map_or(::now::kernel_name(), |name| name);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| measure(family, dim, budget, kernel, turns, threads));
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

/// Where the numbers of whole rounds begin, which single calls never reach.
const ROUNDS: u64 = 1 << 32;

fn measure(family: &str, dim: usize, budget: usize, kernel: &str, turns: usize, threads: usize) {
    let vector: Vec<f32> = (0..dim).map(|c| ((c * 7919) % 1009) as f32 / 1009.0 - 0.5).collect();
    let mut before = before::Build::new(family, dim, budget, kernel);
    let mut now = now::Build::new(family, dim, budget, kernel);
    let (mut bare, mut copy) = (vec![0f32; dim.next_power_of_two()], vector.clone());
    let mut least = [f64::INFINITY; 8];
    for turn in 0..turns as u64 {
        let times = [
            seconds(|| before.project(2 * turn, black_box(&vector))),
            seconds(|| now.project(2 * turn, black_box(&vector))),
            seconds(|| before.rebuild(2 * turn + 1)),
            seconds(|| now.rebuild(2 * turn + 1)),
            seconds(|| before.round(ROUNDS + turn, black_box(&vector))),
            seconds(|| now.round(ROUNDS + turn, black_box(&vector))),
            seconds(|| ::now::hadamard_transform(black_box(&mut bare))),
            seconds(|| copy.copy_from_slice(black_box(&vector))),
        ];
        least.iter_mut().zip(times).for_each(|(least, time)| *least = least.min(time));
    }
    let [project_before, project, rebuild_before, rebuild, round_before, round, bare, copy] = least;
    let each = 1e9 / if family == "hadamard" { dim as f64 } else { (dim * budget) as f64 };
    let same = before.scalars == now.scalars && before.rebuilt == now.rebuilt;
    println!(
        "{family}, {kernel}, d = {dim}, m = {budget}, {threads} threads, least of {turns}; the same values: {same}"
    );
    let passes = 3.0 * MACHINES as f64;
    let round = ("a pass of a round", round_before / passes, round / passes);
    for (name, before, now) in [("project", project_before, project), ("rebuild", rebuild_before, rebuild), round] {
        let (old, new, ratio) = (before * each, now * each, before / now);
        print!("  {name}: {old:.4} ns before, {new:.4} now, {ratio:.2} times as fast; {:.2} copies", now / copy);
        println!(
            "{}",
            if family == "hadamard" { format!(", {:.2} bare transforms", now / bare) } else { String::new() }
        );
    }
}
