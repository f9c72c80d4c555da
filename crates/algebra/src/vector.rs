//! Sums over coordinates in a fixed order, so that all machines get the same bits.

/// The inner product, in eight interleaved sums whose order never changes.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    debug_assert_eq!(a.len(), b.len());
    let mut sums = [0.0; 8];
    let (a_chunks, b_chunks) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f64 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sums;
    ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7)) + tail
}

/// The squared norm.
pub fn norm_squared(a: &[f64]) -> f64 {
    dot(a, a)
}

/// `out += scale * a`.
pub fn add_scaled(scale: f64, a: &[f64], out: &mut [f64]) {
    for (out, a) in out.iter_mut().zip(a) {
        *out += scale * a;
    }
}

/// Whether all are finite.
pub fn all_finite(a: &[f64]) -> bool {
    a.iter().all(|value| value.is_finite())
}
