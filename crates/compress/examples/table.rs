//! Prints the table of all codecs: law, bytes of one message, and measured error, on vectors of independent normal numbers.
//!
//! ```text
//! cargo run -p corewire-compress --example table
//! ```

use corewire_compress::{Address, CountSketch, Law, PowerSgd, Shape, catalogue};
use corewire_sketch::{CommonRandomness, Purpose, Seed};

const SMALL: usize = 784;
const LARGE: usize = 100_000;
const ROUNDS: u64 = 50;

fn main() {
    print!("{}", table());
}

/// The table in Markdown.
pub(crate) fn table() -> String {
    let randomness = CommonRandomness::new(&Seed::reproducible(1));
    let (small, large) = (normal(&randomness, SMALL), normal(&randomness, LARGE));
    let mut table = format!(
        "| codec | parameters | law at d = {SMALL} | bytes, d = {SMALL} | bytes, d = {LARGE} | error, d = {SMALL} |\n\
         | --- | --- | --- | ---: | ---: | ---: |\n"
    );
    for (mut entry, mut larger) in catalogue(SMALL, &randomness).into_iter().zip(catalogue(LARGE, &randomness)) {
        let (mut message, mut out) = (Vec::new(), vec![0.0; SMALL]);
        let law = entry.codec.law();
        let (mut bytes, mut error) = (0, 0.0);
        for round in 0..ROUNDS {
            let address = Address::new(round, 0);
            entry.codec.encode(address, &small, &mut message);
            entry.codec.decode(address, &message, &mut out).expect("a codec decodes its own message");
            bytes += message.len();
            error += distance(&out, &small) / ROUNDS as f64;
        }
        larger.codec.encode(Address::new(0, 0), &large, &mut message);
        let mean = (bytes as f64 / ROUNDS as f64).round();
        // With feedback more than the vector is encoded, so the distance from the vector is no error.
        let error = if entry.parameters.contains("feedback") { String::new() } else { format!("{error:.4}") };
        table += &format!(
            "| {} | {} | {} | {mean} | {} | {error} |\n",
            entry.codec.name(),
            both(&entry.parameters, &larger.parameters),
            shown(law),
            message.len()
        );
    }
    table + &pieces(&randomness, &small)
}

/// The two that are not codecs: their numbers are summed over the machines, as `f32`.
fn pieces(randomness: &CommonRandomness, small: &[f64]) -> String {
    let rank = 2;
    let power = PowerSgd::new(SMALL, Shape::square(SMALL), rank);
    let (mut p, mut q) = (power.new_p(), power.start(Address::default(), randomness));
    let mut out = vec![0.0; SMALL];
    let mut error = 0.0;
    for _ in 0..ROUNDS {
        power.project_left(small, &q, &mut p);
        power.orthogonalise(&mut p);
        power.project_right(small, &p, &mut q);
        power.decode(&p, &q, &mut out);
        error += distance(&out, small) / ROUNDS as f64;
    }
    let larger = PowerSgd::new(LARGE, Shape::square(LARGE), rank);
    let bytes = |power: &PowerSgd| 4 * (power.p_len() + power.q_len());
    let sketch = |dim: usize| 4 * CountSketch::new(dim, 5, dim / 50, 0, randomness).table_len();
    format!(
        "| powersgd (two sums) | rank = {rank} | projection | {} | {} | {error:.4} |\n\
         | count sketch (one sum) | 5 rows, d/50 columns | linear | {} | {} | |\n",
        bytes(&power),
        bytes(&larger),
        sketch(SMALL),
        sketch(LARGE)
    )
}

/// Sums of twelve uniform numbers, close to normal.
fn normal(randomness: &CommonRandomness, dim: usize) -> Vec<f64> {
    let mut words = randomness.words(Purpose::Synthetic, 0, 0);
    (0..dim).map(|_| (0..12).map(|_| words.next_dither()).sum()).collect()
}

fn distance(out: &[f64], vector: &[f64]) -> f64 {
    let error: f64 = out.iter().zip(vector).map(|(a, b)| (a - b) * (a - b)).sum();
    error / vector.iter().map(|x| x * x).sum::<f64>()
}

fn both(small: &str, large: &str) -> String {
    if small == large { small.to_owned() } else { format!("{small}; {large}") }
}

fn shown(law: Law) -> String {
    match law {
        Law::Unbiased { omega } => format!("unbiased, omega = {omega:.4}"),
        Law::Nearly { omega } => format!("nearly unbiased, omega -> {omega:.4}"),
        Law::Contractive { delta } => format!("contractive, delta = {delta:.4}"),
        Law::Neither => "neither".to_owned(),
    }
}
