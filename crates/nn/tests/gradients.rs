//! Gradients against differences of the loss, along random directions.

use corewire_nn::{Architecture, Network, Shape};

/// Numbers in [0, 1) that are the same on every run.
fn draws(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Every network, with columns and rows that a test has time for.
const ALL: [(Architecture, usize, usize); 4] = [
    (Architecture::Mlp { hidden: 16 }, 30, 9),
    (Architecture::LeNet, 784, 4),
    (Architecture::SmallResNet, 768, 5),
    (Architecture::ResNet18, 192, 6),
];

struct Case {
    network: Network,
    parameters: Vec<f32>,
    pixels: Vec<f32>,
    labels: Vec<usize>,
}

impl Case {
    fn new(architecture: Architecture, columns: usize, batch: usize) -> Self {
        let network = Network::new(architecture, columns, 10).unwrap();
        let mut draw = draws(7);
        let parameters = network.start(&mut draw);
        let pixels = (0..batch * columns).map(|_| 4.0 * draw() as f32 - 2.0).collect();
        Self { network, parameters, pixels, labels: (0..batch).map(|row| (3 * row) % 10).collect() }
    }

    fn loss(&self, parameters: &[f32]) -> f64 {
        self.network.loss(parameters, &self.pixels, &self.labels, 1.0 / self.labels.len() as f64, None)
    }

    fn gradient(&self) -> Vec<f32> {
        let (mut gradient, weight) = (vec![0.0; self.network.dim()], 1.0 / self.labels.len() as f64);
        self.network.loss(&self.parameters, &self.pixels, &self.labels, weight, Some(&mut gradient));
        gradient
    }

    /// The largest error of <gradient, v> against a difference of the loss, over |gradient|, for v of unit length within one tensor.
    fn worst(&self, step: f64) -> f64 {
        let gradient = self.gradient();
        let length = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let (mut draw, mut first, mut worst) = (draws(11), 0, 0.0f64);
        let tensors = self.network.tensors();
        // All of a small network, and some of all kinds of a large one.
        let every = tensors.len().div_ceil(20);
        for (place, tensor) in tensors.iter().enumerate() {
            let range = first..first + tensor.len();
            first = range.end;
            if place % every > 0 {
                continue;
            }
            let mut v: Vec<f64> = range.clone().map(|_| 2.0 * draw() - 1.0).collect();
            let norm = v.iter().map(|v| v * v).sum::<f64>().sqrt();
            v.iter_mut().for_each(|v| *v /= norm);
            let moved = |sign: f64| {
                let mut parameters = self.parameters.clone();
                parameters[range.clone()].iter_mut().zip(&v).for_each(|(p, v)| *p += (sign * step * v) as f32);
                self.loss(&parameters)
            };
            let difference = (moved(1.0) - moved(-1.0)) / (2.0 * step);
            let inner: f64 = gradient[range.clone()].iter().zip(&v).map(|(g, v)| f64::from(*g) * v).sum();
            worst = worst.max((difference - inner).abs() / length);
        }
        worst
    }
}

/// Scores are 32-bit numbers, so that a loss of about 2.5 has an error of some 1e-7 and a difference over 2e-2 one of 1e-5; the third
/// derivative adds a term of order 1e-4, and a unit that changes sides another. A wrong term would show as 0.01 or more.
#[test]
fn gradients_are_the_derivatives_of_the_loss() {
    for (architecture, columns, batch) in ALL {
        let worst = Case::new(architecture, columns, batch).worst(1e-2);
        assert!(worst < 3e-3, "{architecture}: {worst}");
    }
}

/// A step of 1e-8 is so short that no unit changes sides within it, and rounding over it leaves 5e-8 (the MLP) to 4e-6 (ResNet-18) of the
/// product. Other kernels round otherwise; a wrong term would show as 0.01 or more.
#[test]
fn products_with_the_hessian_are_symmetric_and_differences_of_gradients() {
    for (architecture, columns, batch) in ALL {
        let case = Case::new(architecture, columns, batch);
        let (network, weight) = (&case.network, 1.0 / batch as f64);
        let x: Vec<f64> = case.parameters.iter().map(|&x| f64::from(x)).collect();
        let mut draw = draws(13);
        let mut direction = || (0..x.len()).map(|_| draw() - 0.5).collect::<Vec<f64>>();
        let (u, v) = (direction(), direction());
        let product = |v: &[f64]| {
            let mut out = vec![0.0; x.len()];
            network.hessian_vector(&x, v, [(&case.pixels[..], &case.labels[..])], weight, &mut out);
            out
        };
        let (hu, hv) = (product(&u), product(&v));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let scale = (dot(&hu, &hu) * dot(&v, &v)).sqrt();
        assert!((dot(&v, &hu) - dot(&u, &hv)).abs() < 1e-11 * scale, "{architecture}");
        let step = 1e-8 / dot(&u, &u).sqrt();
        let pixels: Vec<f64> = case.pixels.iter().map(|&pixel| f64::from(pixel)).collect();
        let mut gap: Vec<f64> = hu.iter().map(|hu| -hu).collect();
        for sign in [1.0, -1.0] {
            let moved: Vec<f64> = x.iter().zip(&u).map(|(x, u)| x + sign * step * u).collect();
            network.loss(&moved, &pixels, &case.labels, sign * weight / (2.0 * step), Some(&mut gap));
        }
        assert!(dot(&gap, &gap) < 1e-8 * dot(&hu, &hu), "{architecture}: {} of {}", dot(&gap, &gap), dot(&hu, &hu));
    }
}

#[test]
fn parts_of_a_batch_add_up_without_batch_norm() {
    let case = Case::new(Architecture::SmallResNet, 3072, 6);
    let whole = case.gradient();
    let mut parts = vec![0.0; whole.len()];
    for (pixels, labels) in case.pixels.chunks(2 * 3072).zip(case.labels.chunks(2)) {
        case.network.loss(&case.parameters, pixels, labels, 1.0 / 6.0, Some(&mut parts));
    }
    let (mut gap, mut length) = (0.0, 0.0);
    for (a, b) in whole.iter().zip(&parts) {
        gap += f64::from(a - b).powi(2);
        length += f64::from(*a).powi(2);
    }
    // Rounding alone: sums of 32-bit numbers in another order.
    assert!(gap < 1e-10 * length, "{gap} of {length}");
}

#[test]
fn scores_by_given_statistics_are_those_of_the_batch_they_came_from() {
    let case = Case::new(Architecture::ResNet18, 192, 50);
    let statistics = case.network.statistics(&case.parameters, &case.pixels);
    assert_eq!(statistics.len(), 2 * 4800);
    let scores = case.network.scores(&case.parameters, &case.pixels, &statistics);
    let mean_loss = scores
        .chunks_exact(10)
        .zip(&case.labels)
        .map(|(row, &label)| {
            let sum: f64 = row.iter().map(|score| f64::from(score - row[label]).exp()).sum();
            sum.ln()
        })
        .sum::<f64>()
        / 50.0;
    // The kept variance has n - 1 in place of n: 1/50 at the last stage, where a channel has one pixel.
    assert!((mean_loss / case.loss(&case.parameters) - 1.0).abs() < 0.05, "{mean_loss}");
}

#[test]
fn shapes_are_squares_of_one_or_three_channels() {
    assert_eq!(Shape::of_columns(784), Some(Shape { channels: 1, height: 28, width: 28 }));
    assert_eq!(Shape::of_columns(3072), Some(Shape { channels: 3, height: 32, width: 32 }));
    assert_eq!((Shape::of_columns(123), Shape::of_columns(1), Shape::of_columns(0)), (None, None, None));
    let refused = |columns| Network::new(Architecture::LeNet, columns, 10).err().unwrap();
    assert!(refused(64).contains("at least 12 by 12 pixels"), "{}", refused(64));
    assert!(refused(54).contains("take `mlp`"), "{}", refused(54));
}

#[test]
fn sizes_are_those_of_pytorch() {
    let dim = |architecture, columns| Network::new(architecture, columns, 10).unwrap().dim();
    assert_eq!(dim(Architecture::Mlp { hidden: 32 }, 784), 25_450);
    assert_eq!(dim(Architecture::LeNet, 784), 110_578);
    assert_eq!(dim(Architecture::SmallResNet, 3072), 173_986);
    assert_eq!(dim(Architecture::ResNet18, 3072), 11_173_962);
    // CIFAR-100 has ninety classes more, of 512 weights and a bias each.
    assert_eq!(Network::new(Architecture::ResNet18, 3072, 100).unwrap().dim(), 11_173_962 + 90 * 513);
}
