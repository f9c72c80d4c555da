//! The Walsh-Hadamard transform, in place: butterflies (x + y, x - y) at strides n/2, n/4, ..., 1, in this order, which fixes the bits.

use super::chacha::{Stream, blocks};
use super::simd::Element;
use super::{Operation, Simd};
use crate::Real;

/// Numbers that stay in the first cache while all their strides are done.
const RESIDENT: usize = 4096;

/// The transform of `values`, whose length is a power of two.
pub(crate) struct Transform<'a, T> {
    pub(crate) values: &'a mut [T],
}

impl<T: Real> Operation for Transform<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let values = self.values;
        debug_assert!(values.len().is_power_of_two());
        if values.len() < 16 {
            let mut stride = values.len() / 2;
            while stride > 0 {
                for pair in values.chunks_exact_mut(2 * stride) {
                    let (low, high) = pair.split_at_mut(stride);
                    for (low, high) in low.iter_mut().zip(high) {
                        (*low, *high) = (*low + *high, *low - *high);
                    }
                }
                stride /= 2;
            }
            return;
        }
        // Depth first, which is the order of the addresses: a block's large strides are done when the walk enters it, and its quarters follow at once,
        // while they are still in a near cache.
        let resident = if values.len().ilog2() % 2 == RESIDENT.ilog2() % 2 { RESIDENT } else { RESIDENT / 2 };
        let resident = resident.min(values.len());
        for start in (0..values.len()).step_by(resident) {
            let mut size = values.len();
            while size > resident {
                if start.is_multiple_of(size) {
                    pass4(simd, &mut values[start..start + size]);
                }
                size /= 4;
            }
            whole(simd, &mut values[start..start + resident]);
        }
    }
}

/// All strides of a block of n >= 16 that fits in the cache.
#[inline(always)]
fn whole<S: Simd, T: Element>(simd: S, block: &mut [T]) {
    let mut size = block.len();
    while size > 64 {
        for part in block.chunks_exact_mut(size) {
            pass4(simd, part);
        }
        size /= 4;
    }
    match size {
        64 => {
            for part in block.as_chunks_mut::<64>().0 {
                last64(simd, part);
            }
        }
        32 => {
            for part in block.as_chunks_mut::<32>().0 {
                last32(simd, part);
            }
        }
        _ => {
            for lanes in block.as_chunks_mut::<16>().0 {
                T::store(simd, T::hadamard(simd, T::load(simd, lanes)), lanes);
            }
        }
    }
}

/// Strides n/2 and n/4 of a block of n >= 64.
#[inline(always)]
fn pass4<S: Simd, T: Element>(simd: S, block: &mut [T]) {
    let (low, high) = block.split_at_mut(block.len() / 2);
    let (a, b) = low.split_at_mut(low.len() / 2);
    let (c, d) = high.split_at_mut(high.len() / 2);
    let (a, b) = (a.as_chunks_mut::<16>().0, b.as_chunks_mut::<16>().0);
    let (c, d) = (c.as_chunks_mut::<16>().0, d.as_chunks_mut::<16>().0);
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        let (w, x, y, z) = (T::load(simd, a), T::load(simd, b), T::load(simd, c), T::load(simd, d));
        let (w, y) = (T::lanes_add(simd, w, y), T::lanes_sub(simd, w, y));
        let (x, z) = (T::lanes_add(simd, x, z), T::lanes_sub(simd, x, z));
        T::store(simd, T::lanes_add(simd, w, x), a);
        T::store(simd, T::lanes_sub(simd, w, x), b);
        T::store(simd, T::lanes_add(simd, y, z), c);
        T::store(simd, T::lanes_sub(simd, y, z), d);
    }
}

/// All strides of 64 numbers, without going through memory between them.
#[inline(always)]
fn last64<S: Simd, T: Element>(simd: S, block: &mut [T; 64]) {
    let [a, b, c, d] = block.as_chunks_mut::<16>().0 else { unreachable!("64 is four times 16") };
    let (w, x, y, z) = (T::load(simd, a), T::load(simd, b), T::load(simd, c), T::load(simd, d));
    let (w, y) = (T::lanes_add(simd, w, y), T::lanes_sub(simd, w, y));
    let (x, z) = (T::lanes_add(simd, x, z), T::lanes_sub(simd, x, z));
    T::store(simd, T::hadamard(simd, T::lanes_add(simd, w, x)), a);
    T::store(simd, T::hadamard(simd, T::lanes_sub(simd, w, x)), b);
    T::store(simd, T::hadamard(simd, T::lanes_add(simd, y, z)), c);
    T::store(simd, T::hadamard(simd, T::lanes_sub(simd, y, z)), d);
}

/// All strides of 32 numbers.
#[inline(always)]
fn last32<S: Simd, T: Element>(simd: S, block: &mut [T; 32]) {
    let [low, high] = block.as_chunks_mut::<16>().0 else { unreachable!("32 is twice 16") };
    let (x, y) = (T::load(simd, low), T::load(simd, high));
    T::store(simd, T::hadamard(simd, T::lanes_add(simd, x, y)), low);
    T::store(simd, T::hadamard(simd, T::lanes_sub(simd, x, y)), high);
}

/// Multiplies `values` in place by the signs at one address, from coordinate 0 on.
pub(crate) fn flip<T: Element>(stream: Stream, row: u32, values: &mut [T]) -> impl Operation<Output = ()> {
    Flip { stream, row, values }
}

struct Flip<'a, T> {
    stream: Stream,
    row: u32,
    values: &'a mut [T],
}

impl<T: Element> Operation for Flip<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (call, values) in self.values.chunks_mut(4 * 512).enumerate() {
            let counters = std::array::from_fn(|k| (4 * call + k) as u32);
            let words = blocks(simd, &self.stream, [self.row; 4], counters);
            for (values, words) in values.chunks_mut(512).zip(&words) {
                let mut bits = simd.u_load(words);
                let (whole, tail) = values.as_chunks_mut::<16>();
                for lanes in whole {
                    T::store(simd, T::flip(simd, T::load(simd, lanes), bits), lanes);
                    bits = simd.u_shl::<1>(bits);
                }
                if !tail.is_empty() {
                    let mut padded = [T::default(); 16];
                    padded[..tail.len()].copy_from_slice(tail);
                    T::store(simd, T::flip(simd, T::load(simd, &padded), bits), &mut padded);
                    tail.copy_from_slice(&padded[..tail.len()]);
                }
            }
        }
    }
}
