//! The inner loops of all training: products of rows with vectors.
//!
//! Written so that the compiler vectorises them, and compiled once for each instruction set that `pulp` knows; there is
//! no fused multiply-add and the number of partial sums is fixed, so the instruction set does not change a bit.

use pulp::Arch;

/// Partial sums of a dense product: entry j goes to sum j mod LANES.
const LANES: usize = 8;

/// Adds the partial sums in a fixed tree.
#[inline(always)]
fn total(s: [f64; LANES]) -> f64 {
    ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

#[inline(always)]
fn dot(row: &[f64], x: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (row, row_tail) = row.as_chunks::<LANES>();
    let (x, x_tail) = x.as_chunks::<LANES>();
    for (row, x) in row.iter().zip(x) {
        for lane in 0..LANES {
            sums[lane] += row[lane] * x[lane];
        }
    }
    for ((sum, row), x) in sums.iter_mut().zip(row_tail).zip(x_tail) {
        *sum += row * x;
    }
    total(sums)
}

/// The products of four rows, each with the bits of [`dot`]; `x` is loaded once for the four.
#[inline(always)]
fn dot4(rows: [&[f64]; 4], x: &[f64]) -> [f64; 4] {
    let mut sums = [[0.0; LANES]; 4];
    let [(a, a_tail), (b, b_tail), (c, c_tail), (d, d_tail)] = rows.map(|row| row.as_chunks::<LANES>());
    let (x, x_tail) = x.as_chunks::<LANES>();
    for ((((a, b), c), d), x) in a.iter().zip(b).zip(c).zip(d).zip(x) {
        for lane in 0..LANES {
            sums[0][lane] += a[lane] * x[lane];
            sums[1][lane] += b[lane] * x[lane];
            sums[2][lane] += c[lane] * x[lane];
            sums[3][lane] += d[lane] * x[lane];
        }
    }
    for (sums, tail) in sums.iter_mut().zip([a_tail, b_tail, c_tail, d_tail]) {
        for ((sum, value), x) in sums.iter_mut().zip(tail).zip(x_tail) {
            *sum += value * x;
        }
    }
    sums.map(total)
}

pub(crate) fn dense_dot(row: &[f64], x: &[f64]) -> f64 {
    Arch::new().dispatch(|| dot(row, x))
}

/// `values` holds `out.len()` rows of `x.len()` values.
pub(crate) fn dense_multiply(values: &[f64], x: &[f64], out: &mut [f64]) {
    let dim = x.len();
    Arch::new().dispatch(|| {
        let blocks = values.chunks_exact(4 * dim);
        let (out_blocks, out_tail) = out.as_chunks_mut::<4>();
        for (row, out) in blocks.remainder().chunks_exact(dim).zip(out_tail) {
            *out = dot(row, x);
        }
        for (block, out) in blocks.zip(out_blocks) {
            *out = dot4(four(block, dim), x);
        }
    });
}

/// Adds the rows to `out` in order, four rows in one pass over `out`: the bits are those of one row after another.
pub(crate) fn dense_multiply_transposed_add(values: &[f64], weights: &[f64], out: &mut [f64]) {
    let dim = out.len();
    Arch::new().dispatch(|| {
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
    });
}

#[inline(always)]
fn four(block: &[f64], dim: usize) -> [&[f64]; 4] {
    let (a, rest) = block.split_at(dim);
    let (b, rest) = rest.split_at(dim);
    let (c, d) = rest.split_at(dim);
    [a, b, c, &d[..dim]]
}

/// Adds X' diag(w) X to `out`, which holds zeros.
pub(crate) fn dense_gram(values: &[f64], dim: usize, weights: &[f64], out: &mut [f64]) {
    Arch::new().dispatch(|| {
        for (row, &weight) in values.chunks_exact(dim).zip(weights) {
            for (i, out) in out.chunks_exact_mut(dim).enumerate() {
                let scale = weight * row[i];
                for (out, value) in out[i..].iter_mut().zip(&row[i..]) {
                    *out += scale * value;
                }
            }
        }
    });
    mirror(dim, out);
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
