//! The lanes as plain arrays: the reference, and what runs where no other instance exists.

use std::array::from_fn;

use super::Simd;

#[derive(Clone, Copy)]
pub(super) struct Portable;

/// x y + z, rounded once, as `mul_add` has it. Where the compiler may not assume the instruction, `mul_add` is a call for every number;
/// here it is arithmetic in `f64` that the compiler can put into registers.
#[inline(always)]
fn fused(x: f32, y: f32, z: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        return x.mul_add(y, z);
    }
    let (product, z) = (f64::from(x) * f64::from(y), f64::from(z));
    let sum = product + z;
    // What the sum lost (Knuth's two-sum; the product is exact). Where it lost anything, its last bit is made odd, so that the second
    // rounding, to 24 bits, never sees a tie that is none (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    let back = sum - product;
    let lost = (product - (sum - back)) + (z - back);
    let bits = sum.to_bits();
    let away = (lost > 0.0) == (sum > 0.0);
    let odd = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    let inexact = lost != 0.0 && sum.is_finite() && bits & 1 == 0;
    f64::from_bits(if inexact { odd } else { bits }) as f32
}

// What is a load of instructions stays out of line: this instance is for being right, and inlined it was a fifth of the crate's build.
impl Simd for Portable {
    const REGISTERS: usize = 4;

    type U = [u32; 16];
    type F = [f32; 16];
    type D = [f64; 16];

    #[inline(always)]
    fn u_splat(self, x: u32) -> [u32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn u_load(self, from: &[u32; 16]) -> [u32; 16] {
        *from
    }
    #[inline(always)]
    fn u_store(self, x: [u32; 16], to: &mut [u32; 16]) {
        *to = x;
    }
    #[inline(never)]
    fn u_add(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l].wrapping_add(y[l]))
    }
    #[inline(never)]
    fn u_sub(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l].wrapping_sub(y[l]))
    }
    #[inline(never)]
    fn u_xor(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] ^ y[l])
    }
    #[inline(never)]
    fn u_and(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] & y[l])
    }
    #[inline(never)]
    fn u_or(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] | y[l])
    }
    #[inline(never)]
    fn u_shl<const N: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] << N)
    }
    #[inline(never)]
    fn u_shr<const N: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] >> N)
    }
    #[inline(never)]
    fn u_sar<const N: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| (x[l] as i32 >> N) as u32)
    }
    #[inline(never)]
    fn u_rotl<const N: i32, const M: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l].rotate_left(N as u32))
    }
    #[inline(never)]
    fn u_turn1(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l / 4 * 4 + (l + 1) % 4])
    }
    #[inline(never)]
    fn u_turn2(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l / 4 * 4 + (l + 2) % 4])
    }
    #[inline(never)]
    fn u_turn3(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l / 4 * 4 + (l + 3) % 4])
    }

    #[inline(always)]
    fn f_splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn f_load(self, from: &[f32; 16]) -> [f32; 16] {
        *from
    }
    #[inline(always)]
    fn f_store(self, x: [f32; 16], to: &mut [f32; 16]) {
        *to = x;
    }
    #[inline(always)]
    fn f_add(self, x: [f32; 16], y: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l] + y[l])
    }
    #[inline(always)]
    fn f_sub(self, x: [f32; 16], y: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l] - y[l])
    }
    #[inline(always)]
    fn f_mul(self, x: [f32; 16], y: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l] * y[l])
    }
    #[inline(never)]
    fn f_div(self, x: [f32; 16], y: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l] / y[l])
    }
    #[inline(never)]
    fn f_fma(self, x: [f32; 16], y: [f32; 16], z: [f32; 16]) -> [f32; 16] {
        from_fn(|l| fused(x[l], y[l], z[l]))
    }
    #[inline(never)]
    fn f_sqrt(self, x: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l].sqrt())
    }
    #[inline(never)]
    fn f_from_i32(self, x: [u32; 16]) -> [f32; 16] {
        from_fn(|l| x[l] as i32 as f32)
    }
    #[inline(always)]
    fn f_from_bits(self, x: [u32; 16]) -> [f32; 16] {
        from_fn(|l| f32::from_bits(x[l]))
    }
    #[inline(always)]
    fn f_to_bits(self, x: [f32; 16]) -> [u32; 16] {
        from_fn(|l| x[l].to_bits())
    }
    #[inline(never)]
    fn f_flip(self, x: [f32; 16], signs: [u32; 16]) -> [f32; 16] {
        from_fn(|l| f32::from_bits(x[l].to_bits() ^ (signs[l] & 1 << 31)))
    }
    #[inline(never)]
    fn f_pick8(self, table: &[f32; 8], index: [u32; 16]) -> [f32; 16] {
        from_fn(|l| table[index[l] as usize % 8])
    }
    #[inline(never)]
    fn f_pick(self, table: [f32; 16], index: [u32; 16]) -> [f32; 16] {
        from_fn(|l| table[index[l] as usize % 16])
    }
    #[inline(never)]
    fn f_sum(self, mut x: [f32; 16]) -> f32 {
        for stride in [8, 4, 2, 1] {
            for l in 0..stride {
                x[l] += x[l + stride];
            }
        }
        x[0]
    }
    #[inline(never)]
    fn f_hadamard(self, mut x: [f32; 16]) -> [f32; 16] {
        for stride in [8, 4, 2, 1] {
            x = from_fn(|l| if l & stride == 0 { x[l] + x[l + stride] } else { x[l - stride] - x[l] });
        }
        x
    }

    #[inline(always)]
    fn d_splat(self, x: f64) -> [f64; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn d_load(self, from: &[f64; 16]) -> [f64; 16] {
        *from
    }
    #[inline(always)]
    fn d_store(self, x: [f64; 16], to: &mut [f64; 16]) {
        *to = x;
    }
    #[inline(always)]
    fn d_add(self, x: [f64; 16], y: [f64; 16]) -> [f64; 16] {
        from_fn(|l| x[l] + y[l])
    }
    #[inline(always)]
    fn d_sub(self, x: [f64; 16], y: [f64; 16]) -> [f64; 16] {
        from_fn(|l| x[l] - y[l])
    }
    #[inline(always)]
    fn d_mul(self, x: [f64; 16], y: [f64; 16]) -> [f64; 16] {
        from_fn(|l| x[l] * y[l])
    }
    #[inline(never)]
    fn d_div(self, x: [f64; 16], y: [f64; 16]) -> [f64; 16] {
        from_fn(|l| x[l] / y[l])
    }
    #[inline(never)]
    fn d_fma(self, x: [f64; 16], y: [f64; 16], z: [f64; 16]) -> [f64; 16] {
        from_fn(|l| x[l].mul_add(y[l], z[l]))
    }
    #[inline(never)]
    fn d_flip(self, x: [f64; 16], signs: [u32; 16]) -> [f64; 16] {
        from_fn(|l| f64::from_bits(x[l].to_bits() ^ (u64::from(signs[l] >> 31) << 63)))
    }
    #[inline(never)]
    fn d_pick(self, table: [f64; 16], index: [u32; 16]) -> [f64; 16] {
        from_fn(|l| table[index[l] as usize % 16])
    }
    #[inline(never)]
    fn d_sum(self, mut x: [f64; 16]) -> f64 {
        for stride in [8, 4, 2, 1] {
            for l in 0..stride {
                x[l] += x[l + stride];
            }
        }
        x[0]
    }
    #[inline(never)]
    fn d_hadamard(self, mut x: [f64; 16]) -> [f64; 16] {
        for stride in [8, 4, 2, 1] {
            x = from_fn(|l| if l & stride == 0 { x[l] + x[l + stride] } else { x[l - stride] - x[l] });
        }
        x
    }
    #[inline(always)]
    fn d_widen(self, x: [f32; 16]) -> [f64; 16] {
        from_fn(|l| f64::from(x[l]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_is_the_fused_multiply_add() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        for turn in 0..2_000_000 {
            // Any bits at all, then numbers near to each other, where sums cancel and ties are common.
            let near =
                |bits: u32| f32::from_bits((bits % (1 << 12)) << 11 | (120 + (bits >> 29)) << 23 | (bits >> 31) << 31);
            let [x, y, z] =
                [next(), next(), next()].map(|bits| if turn % 2 == 0 { f32::from_bits(bits) } else { near(bits) });
            let (found, expected) = (fused(x, y, z), x.mul_add(y, z));
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{x:e} {y:e} {z:e}");
        }
        for x in [0.0, -0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, 1e-45, -1.0] {
            for y in [0.0, -0.0, f32::MAX, f32::NEG_INFINITY, 1e-45, 1.0] {
                for z in [0.0, -0.0, f32::MAX, f32::INFINITY, f32::NAN, -1e-45, 1.0] {
                    let (found, expected) = (fused(x, y, z), x.mul_add(y, z));
                    assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
                }
            }
        }
    }
}
