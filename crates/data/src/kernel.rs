//! The inner loops of all training: products of rows with vectors.
//!
//! Written so that the compiler vectorises them, and compiled twice: for every CPU, and for those with AVX2. There is no
//! fused multiply-add and the number of partial sums is fixed, so the instruction set does not change a bit.

/// Partial sums of a dense product: entry j goes to sum j mod LANES.
const LANES: usize = 8;

/// Adds the partial sums in a fixed tree.
#[inline(always)]
fn total(s: [f64; LANES]) -> f64 {
    ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

type Lanes = [f64; LANES];

/// `sums + row * x`, lane by lane: as a value rather than in place, which the compiler keeps in registers.
#[inline(always)]
fn add_product(sums: Lanes, row: &Lanes, x: &Lanes) -> Lanes {
    std::array::from_fn(|lane| sums[lane] + row[lane] * x[lane])
}

#[inline(always)]
fn add_tail(mut sums: Lanes, row: &[f64], x: &[f64]) -> f64 {
    for ((sum, row), x) in sums.iter_mut().zip(row).zip(x) {
        *sum += row * x;
    }
    total(sums)
}

#[inline(always)]
fn dot(row: &[f64], x: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (row, row_tail) = row.as_chunks::<LANES>();
    let (x, x_tail) = x.as_chunks::<LANES>();
    for (row, x) in row.iter().zip(x) {
        sums = add_product(sums, row, x);
    }
    add_tail(sums, row_tail, x_tail)
}

/// The products of four rows, each with the bits of [`dot`]; `x` is loaded once for the four.
#[inline(always)]
fn dot4(rows: [&[f64]; 4], x: &[f64]) -> [f64; 4] {
    let [mut p, mut q, mut r, mut s] = [[0.0; LANES]; 4];
    let [(a, a_tail), (b, b_tail), (c, c_tail), (d, d_tail)] = rows.map(|row| row.as_chunks::<LANES>());
    let (x, x_tail) = x.as_chunks::<LANES>();
    for ((((a, b), c), d), x) in a.iter().zip(b).zip(c).zip(d).zip(x) {
        p = add_product(p, a, x);
        q = add_product(q, b, x);
        r = add_product(r, c, x);
        s = add_product(s, d, x);
    }
    [add_tail(p, a_tail, x_tail), add_tail(q, b_tail, x_tail), add_tail(r, c_tail, x_tail), add_tail(s, d_tail, x_tail)]
}

/// A product of dense rows with a vector. `run` must be `#[inline(always)]`: code that stays out of line is compiled for
/// every CPU.
trait Product {
    fn run(self, values: &[f64], vector: &[f64], out: &mut [f64]);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2(product: impl Product, values: &[f64], vector: &[f64], out: &mut [f64]) {
    product.run(values, vector, out);
}

fn vectorised(product: impl Product, values: &[f64], vector: &[f64], out: &mut [f64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)] // Only this calls a function for a CPU that has to be asked first.
        // SAFETY: this CPU has AVX2, which is all that the function asks for.
        return unsafe { run_avx2(product, values, vector, out) };
    }
    product.run(values, vector, out);
}

pub(crate) fn dense_dot(row: &[f64], x: &[f64]) -> f64 {
    let mut out = [0.0];
    dense_multiply(row, x, &mut out);
    out[0]
}

/// Overwrites `out` with the products of its `out.len()` rows of `x.len()` values with `x`.
pub(crate) fn dense_multiply(values: &[f64], x: &[f64], out: &mut [f64]) {
    vectorised(Multiply, values, x, out);
}

/// Adds the weighted rows to `out`: the bits are those of one row after another.
pub(crate) fn dense_multiply_transposed_add(values: &[f64], weights: &[f64], out: &mut [f64]) {
    vectorised(MultiplyTransposed, values, weights, out);
}

/// Adds X' diag(w) X to `out`, which holds zeros.
pub(crate) fn dense_gram(values: &[f64], dim: usize, weights: &[f64], out: &mut [f64]) {
    vectorised(Gram { dim }, values, weights, out);
    mirror(dim, out);
}

struct Multiply;

impl Product for Multiply {
    #[inline(always)]
    fn run(self, values: &[f64], x: &[f64], out: &mut [f64]) {
        let dim = x.len();
        let blocks = values.chunks_exact(4 * dim);
        let (out_blocks, out_tail) = out.as_chunks_mut::<4>();
        for (row, out) in blocks.remainder().chunks_exact(dim).zip(out_tail) {
            *out = dot(row, x);
        }
        for (block, out) in blocks.zip(out_blocks) {
            *out = dot4(four(block, dim), x);
        }
    }
}

/// Four rows in one pass over `out`.
struct MultiplyTransposed;

impl Product for MultiplyTransposed {
    #[inline(always)]
    fn run(self, values: &[f64], weights: &[f64], out: &mut [f64]) {
        let dim = out.len();
        let blocks = values.chunks_exact(4 * dim);
        let (weight_blocks, weight_tail) = weights.as_chunks::<4>();
        let tail = blocks.remainder();
        for (block, w) in blocks.zip(weight_blocks) {
            let [a, b, c, d] = four(block, dim);
            for ((((out, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *out = (((*out + w[0] * a) + w[1] * b) + w[2] * c) + w[3] * d;
            }
        }
        for (row, weight) in tail.chunks_exact(dim).zip(weight_tail) {
            for (out, value) in out.iter_mut().zip(row) {
                *out += weight * value;
            }
        }
    }
}

#[inline(always)]
fn four(block: &[f64], dim: usize) -> [&[f64]; 4] {
    let (a, rest) = block.split_at(dim);
    let (b, rest) = rest.split_at(dim);
    let (c, d) = rest.split_at(dim);
    [a, b, c, &d[..dim]]
}

/// X' diag(w) X added to the upper triangle of `out`, four rows in one pass over it.
struct Gram {
    dim: usize,
}

impl Product for Gram {
    #[inline(always)]
    fn run(self, values: &[f64], weights: &[f64], out: &mut [f64]) {
        let dim = self.dim;
        let blocks = values.chunks_exact(4 * dim);
        let (weight_blocks, weight_tail) = weights.as_chunks::<4>();
        let tail = blocks.remainder();
        for (block, w) in blocks.zip(weight_blocks) {
            let [a, b, c, d] = four(block, dim);
            for (i, out) in out.chunks_exact_mut(dim).enumerate() {
                let [p, q, r, s] = [w[0] * a[i], w[1] * b[i], w[2] * c[i], w[3] * d[i]];
                let columns = a[i..].iter().zip(&b[i..]).zip(&c[i..]).zip(&d[i..]);
                for (out, (((a, b), c), d)) in out[i..].iter_mut().zip(columns) {
                    *out = (((*out + p * a) + q * b) + r * c) + s * d;
                }
            }
        }
        for (row, &weight) in tail.chunks_exact(dim).zip(weight_tail) {
            for (i, out) in out.chunks_exact_mut(dim).enumerate() {
                let scale = weight * row[i];
                for (out, value) in out[i..].iter_mut().zip(&row[i..]) {
                    *out += scale * value;
                }
            }
        }
    }
}

/// Copies the upper triangle to the lower.
fn mirror(dim: usize, out: &mut [f64]) {
    for i in 1..dim {
        for j in 0..i {
            out[i * dim + j] = out[j * dim + i];
        }
    }
}

#[inline(always)]
fn gather_dot(indices: &[u32], values: &[f64], x: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (indices, index_tail) = indices.as_chunks::<4>();
    let (values, value_tail) = values.as_chunks::<4>();
    for (index, value) in indices.iter().zip(values) {
        for lane in 0..4 {
            sums[lane] += value[lane] * x[index[lane] as usize];
        }
    }
    for ((sum, &index), value) in sums.iter_mut().zip(index_tail).zip(value_tail) {
        *sum += value * x[index as usize];
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

pub(crate) fn sparse_dot(indices: &[u32], values: &[f64], x: &[f64]) -> f64 {
    gather_dot(indices, values, x)
}

pub(crate) fn sparse_multiply(offsets: &[usize], indices: &[u32], values: &[f64], x: &[f64], out: &mut [f64]) {
    for (span, out) in offsets.windows(2).zip(out) {
        *out = gather_dot(&indices[span[0]..span[1]], &values[span[0]..span[1]], x);
    }
}

pub(crate) fn sparse_multiply_transposed_add(
    offsets: &[usize],
    indices: &[u32],
    values: &[f64],
    weights: &[f64],
    out: &mut [f64],
) {
    for (span, weight) in offsets.windows(2).zip(weights) {
        for (&index, value) in indices[span[0]..span[1]].iter().zip(&values[span[0]..span[1]]) {
            out[index as usize] += weight * value;
        }
    }
}

/// Adds X' diag(w) X to `out`, which holds zeros.
pub(crate) fn sparse_gram(
    offsets: &[usize],
    indices: &[u32],
    values: &[f64],
    dim: usize,
    weights: &[f64],
    out: &mut [f64],
) {
    for (span, weight) in offsets.windows(2).zip(weights) {
        let (indices, values) = (&indices[span[0]..span[1]], &values[span[0]..span[1]]);
        for (k, (&i, value)) in indices.iter().zip(values).enumerate() {
            let scale = weight * value;
            let out = &mut out[i as usize * dim..(i as usize + 1) * dim];
            for (&j, value) in indices[k..].iter().zip(&values[k..]) {
                out[j as usize] += scale * value;
            }
        }
    }
    mirror(dim, out);
}
