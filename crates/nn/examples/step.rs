//! What the gradient of one batch takes on one thread: `cargo run --release -p corewire-nn --example step -- resnet18 32`.

use std::time::Instant;

use corewire_nn::{Architecture, Network};

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "resnet18".to_owned());
    let batch: usize = arguments.next().and_then(|batch| batch.parse().ok()).unwrap_or(32);
    let architecture = Architecture::named(&name, 32).ok_or(format!("there is no network `{name}`"))?;
    let columns = if matches!(name.as_str(), "lenet" | "mlp") { 784 } else { 3072 };
    let network = Network::new(architecture, columns, 10)?;
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let parameters = network.start(&mut draw);
    let pixels: Vec<f32> = (0..batch * columns).map(|_| draw() as f32 - 0.5).collect();
    let labels: Vec<usize> = (0..batch).map(|row| row % 10).collect();
    let mut gradient = vec![0.0; network.dim()];
    let mut best = f64::INFINITY;
    for _ in 0..6 {
        gradient.fill(0.0);
        let begun = Instant::now();
        network.loss(&parameters, &pixels, &labels, 1.0 / batch as f64, Some(&mut gradient));
        best = best.min(begun.elapsed().as_secs_f64());
    }
    println!("{name}: {} parameters, batch {batch}, {:.1} ms on one thread", network.dim(), 1e3 * best);
    Ok(())
}
