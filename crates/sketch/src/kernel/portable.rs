//! The lanes as plain arrays: the reference, and what runs where no other instance exists.

use std::array::from_fn;

use super::Simd;

#[derive(Clone, Copy)]
pub(super) struct Portable;

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
    #[inline(always)]
    fn u_add(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l].wrapping_add(y[l]))
    }
    #[inline(always)]
    fn u_sub(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l].wrapping_sub(y[l]))
    }
    #[inline(always)]
    fn u_xor(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] ^ y[l])
    }
    #[inline(always)]
    fn u_and(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] & y[l])
    }
    #[inline(always)]
    fn u_or(self, x: [u32; 16], y: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] | y[l])
    }
    #[inline(always)]
    fn u_shl<const N: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] << N)
    }
    #[inline(always)]
    fn u_shr<const N: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l] >> N)
    }
    #[inline(always)]
    fn u_sar<const N: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| (x[l] as i32 >> N) as u32)
    }
    #[inline(always)]
    fn u_rotl<const N: i32, const M: i32>(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l].rotate_left(N as u32))
    }
    #[inline(always)]
    fn u_turn1(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l / 4 * 4 + (l + 1) % 4])
    }
    #[inline(always)]
    fn u_turn2(self, x: [u32; 16]) -> [u32; 16] {
        from_fn(|l| x[l / 4 * 4 + (l + 2) % 4])
    }
    #[inline(always)]
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
    #[inline(always)]
    fn f_div(self, x: [f32; 16], y: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l] / y[l])
    }
    #[inline(always)]
    fn f_fma(self, x: [f32; 16], y: [f32; 16], z: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l].mul_add(y[l], z[l]))
    }
    #[inline(always)]
    fn f_sqrt(self, x: [f32; 16]) -> [f32; 16] {
        from_fn(|l| x[l].sqrt())
    }
    #[inline(always)]
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
    #[inline(always)]
    fn f_flip(self, x: [f32; 16], signs: [u32; 16]) -> [f32; 16] {
        from_fn(|l| f32::from_bits(x[l].to_bits() ^ (signs[l] & 1 << 31)))
    }
    #[inline(always)]
    fn f_sum(self, mut x: [f32; 16]) -> f32 {
        for stride in [8, 4, 2, 1] {
            for l in 0..stride {
                x[l] += x[l + stride];
            }
        }
        x[0]
    }
    #[inline(always)]
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
    #[inline(always)]
    fn d_div(self, x: [f64; 16], y: [f64; 16]) -> [f64; 16] {
        from_fn(|l| x[l] / y[l])
    }
    #[inline(always)]
    fn d_fma(self, x: [f64; 16], y: [f64; 16], z: [f64; 16]) -> [f64; 16] {
        from_fn(|l| x[l].mul_add(y[l], z[l]))
    }
    #[inline(always)]
    fn d_flip(self, x: [f64; 16], signs: [u32; 16]) -> [f64; 16] {
        from_fn(|l| f64::from_bits(x[l].to_bits() ^ (u64::from(signs[l] >> 31) << 63)))
    }
    #[inline(always)]
    fn d_sum(self, mut x: [f64; 16]) -> f64 {
        for stride in [8, 4, 2, 1] {
            for l in 0..stride {
                x[l] += x[l + stride];
            }
        }
        x[0]
    }
    #[inline(always)]
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
