//! What docs/theory.md proves, held against the code that quantises.

use corewire_algebra::eigen::{self, Eigen};
use corewire_algebra::vector::{add_scaled, dot, norm_squared};
use corewire_data::shard::Split;
use corewire_sketch::code::SpreadEncoder;
use corewire_sketch::{CommonRandomness, Purpose, Seed};

use super::code::{CodedVector, dithers};
use super::*;
use crate::method::newton::preconditioner::Preconditioner;
use crate::problem::{Model, ModelSpec, Problem};

const ALPHA: f64 = 1e-3;
const MACHINES: usize = 50;

/// P from the rows of curvature that 50 machines send for ridge regression on the bundled digits, and all eigenpairs of H.
fn quantised() -> (Preconditioner, Eigen) {
    let data = corewire_data::digits().parity().unwrap().unit_norm();
    let spec = ModelSpec { model: Model::Ridge, classes: 0, alpha: ALPHA, proximal: Proximal::NONE };
    let randomness = CommonRandomness::new(&Seed::reproducible(1));
    let problem = Problem::rows(data, spec, MACHINES, Split::Random, &randomness);
    let dim = problem.dim();
    let mut rows = Vec::new();
    for rank in 0..MACHINES {
        let mut machine = Newton::new(vec![0.0; dim], Rules::default(), &randomness);
        machine.tau = TAU * ALPHA * (MACHINES as f64).sqrt();
        let factors = machine.factors(MACHINES, problem.objective(rank).curved());
        let (mut head, mut stream) = (Vec::new(), Vec::new());
        let spreads = Link::push_factors_head(&factors, &mut head);
        let mut link = Link::new(rank, dim, 1);
        let mut encoder = SpreadEncoder::new(&mut stream);
        link.encode_factors(&randomness, 0, &factors, &spreads, true, &mut encoder);
        encoder.finish();
        rows.extend(link.rows);
    }
    let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
    let p = Preconditioner::from_rows(&rows, 1.0 / MACHINES as f64, (dim, 1), ALPHA);
    let (mut pooled, mut columns) = (problem.pooled().unwrap(), vec![0.0; dim * dim]);
    for (j, column) in columns.chunks_exact_mut(dim).enumerate() {
        let unit: Vec<f64> = (0..dim).map(|k| f64::from(u8::from(j == k))).collect();
        pooled.hessian_vector(&vec![0.0; dim], &unit, column);
    }
    let hessian = eigen::pairs(columns, dim);
    (p, hessian)
}

/// H v.
fn product(hessian: &Eigen, v: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; v.len()];
    for (value, vector) in hessian.values.iter().zip(&hessian.vectors) {
        add_scaled(value * dot(vector, v), vector, &mut out);
    }
    out
}

/// The least and the largest eigenvalue of P^-1 H.
fn ends(p: &Preconditioner, hessian: &Eigen) -> (f64, f64) {
    let count = hessian.values.len();
    let mut matrix = vec![0.0; count * count];
    for i in 0..count {
        let solved = p.solve(&hessian.vectors[i]);
        for j in 0..=i {
            matrix[i * count + j] = (hessian.values[i] * hessian.values[j]).sqrt() * dot(&hessian.vectors[j], &solved);
        }
    }
    let values = eigen::pairs(matrix, count).values;
    (values[count - 1], values[0])
}

/// The half-width delta of the spectrum of P^-1 H around 1 is what the theorem needs to be below 0.87.
#[test]
fn the_quantised_preconditioner_is_within_the_reach_of_the_theorem() {
    let (p, hessian) = quantised();
    let (least, largest) = ends(&p, &hessian);
    println!("the spectrum of P^-1 H lies between {least:.3} and {largest:.3}");
    let delta = (1.0 - least).max(largest - 1.0);
    assert!((0.1..0.87).contains(&delta), "{delta}");
}

/// E(f - f*) after a step is at most delta^2 (f - f*) + (1 + delta)/2 (v tr P^-1 + s tr P), and the noise is the larger part of what is
/// left: the bound is no more than a few times what is found.
#[test]
fn a_step_leaves_what_the_theorem_says() {
    let (p, hessian) = quantised();
    let (least, largest) = ends(&p, &hessian);
    let delta = (1.0 - least).max(largest - 1.0);
    let dim = hessian.vectors[0].len();
    let randomness = CommonRandomness::new(&Seed::reproducible(2));
    // x - x*, and E+ a hundredth of the energy there.
    let mut words = randomness.words(Purpose::Synthetic, 0, 0);
    let mut x = vec![0.0; dim];
    hessian.vectors.iter().for_each(|vector| add_scaled(words.next_unit() - 0.5, vector, &mut x));
    let gradient = product(&hessian, &x);
    let gap = 0.5 * dot(&x, &gradient);
    let aim = 0.01 * p.energy(&gradient, 0.0);
    let Rules { eta_up, eta_down, .. } = Rules::default();
    let up = (12.0 * MACHINES as f64 * eta_up * aim / p.inverse_trace()).sqrt();
    let down = (12.0 * eta_down * aim / p.trace()).sqrt();
    let (noise, scatter) = (up * up / (12.0 * MACHINES as f64), down * down / 12.0);
    let bound = delta * delta * gap + 0.5 * (1.0 + delta) * (noise * p.inverse_trace() + scatter * p.trace());
    // Every machine sends its gradient, which is not the mean: the noise does not depend on what is sent.
    let machines: Vec<Vec<f64>> = (0..MACHINES)
        .map(|rank| gradient.iter().enumerate().map(|(j, g)| g + ((rank * 31 + j * 7) % 50) as f64 - 24.5).collect())
        .collect();
    let mut offset = gradient.iter().map(|g| -g).collect::<Vec<f64>>();
    machines.iter().for_each(|machine| add_scaled(1.0 / MACHINES as f64, machine, &mut offset));
    let sent = |vector: &[f64], step: f64, purpose: Purpose, round: u64, rank: usize| -> Vec<f64> {
        let dithers = dithers(&randomness, purpose, round, rank, dim);
        let coded = CodedVector::new(vector, step, &dithers, &Energies::flat(dim));
        coded.integers.iter().zip(&dithers).map(|(&z, &u)| step * code::decoded(z, u)).collect()
    };
    let (draws, mut total, mut mean_step, mut exact) = (300, 0.0, vec![0.0; dim], p.solve(&gradient));
    exact.iter_mut().for_each(|entry| *entry = -*entry);
    for round in 0..draws {
        let mut estimate: Vec<f64> = offset.iter().map(|entry| -entry).collect();
        for (rank, machine) in machines.iter().enumerate() {
            add_scaled(1.0 / MACHINES as f64, &sent(machine, up, Purpose::Dither, round, rank), &mut estimate);
        }
        let step: Vec<f64> = p.solve(&estimate).iter().map(|entry| -entry).collect();
        let told = sent(&step, down, Purpose::DownlinkDither, round, 0);
        add_scaled(1.0 / draws as f64, &told, &mut mean_step);
        let next: Vec<f64> = x.iter().zip(&told).map(|(x, step)| x + step).collect();
        total += 0.5 * dot(&next, &product(&hessian, &next)) / draws as f64;
    }
    println!("gap {gap:.3e}, after a step {total:.3e}, the bound {bound:.3e}");
    assert!(total <= bound, "{total} {bound}");
    assert!(total >= 0.05 * bound, "{total} {bound}");
    // The decoded step is -P^-1 g in the mean, and what is left of the noise in a mean of 300 is what it should be.
    let unit = |j: usize| (0..dim).map(|k| f64::from(u8::from(j == k))).collect::<Vec<f64>>();
    let squares: f64 = (0..dim).map(|j| norm_squared(&p.solve(&unit(j)))).sum();
    let expected = (noise * squares + scatter * dim as f64) / draws as f64;
    let off: Vec<f64> = mean_step.iter().zip(&exact).map(|(mean, exact)| mean - exact).collect();
    let share = norm_squared(&off) / expected;
    println!(
        "{share:.2} of the variance of an unbiased mean, {:.1e} of the step",
        norm_squared(&off) / norm_squared(&exact)
    );
    // 64 coordinates: one standard deviation is a fifth or so.
    assert!((0.4..1.6).contains(&share), "{share}");
}

/// The two numbers of the recursion, the gap and the noise of the next gradient, shrink together for every delta up to 0.87.
#[test]
fn the_recursion_contracts() {
    let Rules { eta_up, eta_down, .. } = Rules::default();
    // rho is no more than 0.6, and E no less than a hundredth of what noise gives.
    let rho = 0.6;
    let radius = |delta: f64| {
        let wide = 1.0 + delta;
        let [a, b] = [delta * delta + wide * wide * eta_down * rho, 0.5 * wide * (1.0 + 1.01 * eta_down * rho)];
        let [c, d] = [2.0 * wide * eta_up * rho, 1.01 * eta_up * rho];
        let (half, product) = (0.5 * (a + d), a * d - b * c);
        half + (half * half - product).sqrt()
    };
    for (delta, expected) in [(0.0, 0.11), (0.5, 0.41), (0.7, 0.69), (0.87, 1.0)] {
        println!("delta {delta}: a rate of {:.3} per exchange", radius(delta));
        assert!((radius(delta) - expected).abs() < 0.02, "{delta}: {}", radius(delta));
    }
    assert!(radius(0.87) < 1.0 && radius(0.9) > 1.0);
}
