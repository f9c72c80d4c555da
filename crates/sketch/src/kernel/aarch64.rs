//! The lanes on aarch64: four 16-byte registers of NEON, which every such CPU has.

#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::array::from_fn;

use super::simd::lanewise;
use super::{Operation, Simd};

/// NEON is part of the architecture, so that this proves nothing that was not known.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

pub(super) fn run_neon<O: Operation>(operation: O) -> O::Output {
    operation.run(Neon(()))
}

/// Runs intrinsics on NEON.
macro_rules! neon {
    ($($body:tt)*) => {{
        // SAFETY: NEON is part of aarch64. Pointers come from references to arrays of sixteen or eight numbers, and loads and stores at
        // offsets stay inside them; none need more than the alignment of a number.
        #[allow(unused_unsafe)]
        unsafe { $($body)* }
    }};
}

impl Neon {
    /// Strides 2 and 1 of four lanes.
    #[inline(always)]
    fn hadamard4(self, x: float32x4_t) -> float32x4_t {
        neon!(
            // Lane l with lane l + 2: (a, b, c, d) gives (a + c, b + d, a - c, b - d).
            let (low, high) = (vcombine_f32(vget_low_f32(x), vget_low_f32(x)), vcombine_f32(vget_high_f32(x), vget_high_f32(x)));
            let x = vcombine_f32(vget_low_f32(vaddq_f32(low, high)), vget_low_f32(vsubq_f32(low, high)));
            let (even, odd) = (vtrn1q_f32(x, x), vtrn2q_f32(x, x));
            vtrn1q_f32(vaddq_f32(even, odd), vsubq_f32(even, odd))
        )
    }

    /// Stride 1 of two lanes.
    #[inline(always)]
    fn hadamard2(self, x: float64x2_t) -> float64x2_t {
        neon!(
            let (low, high) = (vdupq_laneq_f64::<0>(x), vdupq_laneq_f64::<1>(x));
            vtrn1q_f64(vaddq_f64(low, high), vsubq_f64(low, high))
        )
    }

    /// Where the bytes of four numbers of a table are, whose places are given modulo `LAST` + 1.
    #[inline(always)]
    fn bytes_of_lanes<const LAST: u32>(self, index: uint32x4_t) -> uint8x16_t {
        neon!(
            let first = vmulq_n_u32(vandq_u32(index, vdupq_n_u32(LAST)), 0x0404_0404);
            vreinterpretq_u8_u32(vaddq_u32(first, vdupq_n_u32(0x0302_0100)))
        )
    }

    /// Each of four registers by one function.
    #[inline(always)]
    fn turn(self, x: [uint32x4_t; 4], turned: impl Fn(uint32x4_t) -> uint32x4_t) -> [uint32x4_t; 4] {
        [turned(x[0]), turned(x[1]), turned(x[2]), turned(x[3])]
    }
}

impl Simd for Neon {
    const REGISTERS: usize = 8;

    type U = [uint32x4_t; 4];
    type F = [float32x4_t; 4];
    type D = [float64x2_t; 8];

    lanewise!(neon, 4;
        U: u_add(x, y) = vaddq_u32;
        U: u_sub(x, y) = vsubq_u32;
        U: u_xor(x, y) = veorq_u32;
        U: u_and(x, y) = vandq_u32;
        U: u_or(x, y) = vorrq_u32;
        F: f_add(x, y) = vaddq_f32;
        F: f_sub(x, y) = vsubq_f32;
        F: f_mul(x, y) = vmulq_f32;
        F: f_div(x, y) = vdivq_f32;
        F: f_sqrt(x) = vsqrtq_f32;
    );
    lanewise!(neon, 8;
        D: d_add(x, y) = vaddq_f64;
        D: d_sub(x, y) = vsubq_f64;
        D: d_mul(x, y) = vmulq_f64;
        D: d_div(x, y) = vdivq_f64;
    );

    #[inline(always)]
    fn u_splat(self, x: u32) -> Self::U {
        neon!([vdupq_n_u32(x); 4])
    }
    #[inline(always)]
    fn u_load(self, from: &[u32; 16]) -> Self::U {
        let p = from.as_ptr();
        neon!(from_fn(|k| vld1q_u32(p.add(4 * k))))
    }
    #[inline(always)]
    fn u_store(self, x: Self::U, to: &mut [u32; 16]) {
        let p = to.as_mut_ptr();
        neon!(for k in 0..4 {
            vst1q_u32(p.add(4 * k), x[k]);
        })
    }
    #[inline(always)]
    fn u_shl<const N: i32>(self, x: Self::U) -> Self::U {
        neon!(from_fn(|k| vshlq_n_u32::<N>(x[k])))
    }
    #[inline(always)]
    fn u_shr<const N: i32>(self, x: Self::U) -> Self::U {
        neon!(from_fn(|k| vshrq_n_u32::<N>(x[k])))
    }
    #[inline(always)]
    fn u_sar<const N: i32>(self, x: Self::U) -> Self::U {
        neon!(from_fn(|k| vreinterpretq_u32_s32(vshrq_n_s32::<N>(vreinterpretq_s32_u32(x[k])))))
    }
    #[inline(always)]
    fn u_rotl<const N: i32, const M: i32>(self, x: Self::U) -> Self::U {
        neon!(from_fn(|k| vsliq_n_u32::<N>(vshrq_n_u32::<M>(x[k]), x[k])))
    }
    #[inline(always)]
    fn u_turn1(self, x: Self::U) -> Self::U {
        self.turn(x, |x| neon!(vextq_u32::<1>(x, x)))
    }
    #[inline(always)]
    fn u_turn2(self, x: Self::U) -> Self::U {
        self.turn(x, |x| neon!(vextq_u32::<2>(x, x)))
    }
    #[inline(always)]
    fn u_turn3(self, x: Self::U) -> Self::U {
        self.turn(x, |x| neon!(vextq_u32::<3>(x, x)))
    }

    #[inline(always)]
    fn f_splat(self, x: f32) -> Self::F {
        neon!([vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn f_load(self, from: &[f32; 16]) -> Self::F {
        let p = from.as_ptr();
        neon!(from_fn(|k| vld1q_f32(p.add(4 * k))))
    }
    #[inline(always)]
    fn f_store(self, x: Self::F, to: &mut [f32; 16]) {
        let p = to.as_mut_ptr();
        neon!(for k in 0..4 {
            vst1q_f32(p.add(4 * k), x[k]);
        })
    }
    #[inline(always)]
    fn f_fma(self, x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        neon!(from_fn(|k| vfmaq_f32(z[k], x[k], y[k])))
    }
    #[inline(always)]
    fn f_from_i32(self, x: Self::U) -> Self::F {
        neon!(from_fn(|k| vcvtq_f32_s32(vreinterpretq_s32_u32(x[k]))))
    }
    #[inline(always)]
    fn f_from_bits(self, x: Self::U) -> Self::F {
        neon!(from_fn(|k| vreinterpretq_f32_u32(x[k])))
    }
    #[inline(always)]
    fn f_to_bits(self, x: Self::F) -> Self::U {
        neon!(from_fn(|k| vreinterpretq_u32_f32(x[k])))
    }
    #[inline(always)]
    fn f_flip(self, x: Self::F, signs: Self::U) -> Self::F {
        let top = self.u_and(signs, self.u_splat(1 << 31));
        self.f_from_bits(self.u_xor(self.f_to_bits(x), top))
    }
    #[inline(always)]
    fn f_pick8(self, table: &[f32; 8], index: Self::U) -> Self::F {
        let p = table.as_ptr();
        neon!(
            let bytes = uint8x16x2_t(vreinterpretq_u8_f32(vld1q_f32(p)), vreinterpretq_u8_f32(vld1q_f32(p.add(4))));
            from_fn(|k| vreinterpretq_f32_u8(vqtbl2q_u8(bytes, self.bytes_of_lanes::<7>(index[k]))))
        )
    }
    #[inline(always)]
    fn f_pick(self, table: Self::F, index: Self::U) -> Self::F {
        neon!(
            let [a, b, c, d] = table.map(|part| vreinterpretq_u8_f32(part));
            let bytes = uint8x16x4_t(a, b, c, d);
            from_fn(|k| vreinterpretq_f32_u8(vqtbl4q_u8(bytes, self.bytes_of_lanes::<15>(index[k]))))
        )
    }
    #[inline(always)]
    fn f_sum(self, x: Self::F) -> f32 {
        neon!(
            let four = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        )
    }
    #[inline(always)]
    fn f_hadamard(self, [a, b, c, d]: Self::F) -> Self::F {
        let (a, b, c, d) = neon!((vaddq_f32(a, c), vaddq_f32(b, d), vsubq_f32(a, c), vsubq_f32(b, d)));
        let [a, b, c, d] = neon!([vaddq_f32(a, b), vsubq_f32(a, b), vaddq_f32(c, d), vsubq_f32(c, d)]);
        [self.hadamard4(a), self.hadamard4(b), self.hadamard4(c), self.hadamard4(d)]
    }

    #[inline(always)]
    fn d_splat(self, x: f64) -> Self::D {
        neon!([vdupq_n_f64(x); 8])
    }
    #[inline(always)]
    fn d_load(self, from: &[f64; 16]) -> Self::D {
        let p = from.as_ptr();
        neon!(from_fn(|k| vld1q_f64(p.add(2 * k))))
    }
    #[inline(always)]
    fn d_store(self, x: Self::D, to: &mut [f64; 16]) {
        let p = to.as_mut_ptr();
        neon!(for k in 0..8 {
            vst1q_f64(p.add(2 * k), x[k]);
        })
    }
    #[inline(always)]
    fn d_fma(self, x: Self::D, y: Self::D, z: Self::D) -> Self::D {
        neon!(from_fn(|k| vfmaq_f64(z[k], x[k], y[k])))
    }
    #[inline(always)]
    fn d_flip(self, x: Self::D, signs: Self::U) -> Self::D {
        let top = self.u_and(signs, self.u_splat(1 << 31));
        neon!(from_fn(|k| {
            let half = if k % 2 == 0 { vget_low_u32(top[k / 2]) } else { vget_high_u32(top[k / 2]) };
            vreinterpretq_f64_u64(veorq_u64(vreinterpretq_u64_f64(x[k]), vshll_n_u32::<32>(half)))
        }))
    }
    #[inline(always)]
    fn d_pick(self, table: Self::D, index: Self::U) -> Self::D {
        let (mut from, mut lanes, mut to) = ([0.0; 16], [0; 16], [0.0; 16]);
        self.d_store(table, &mut from);
        self.u_store(index, &mut lanes);
        for (to, lane) in to.iter_mut().zip(lanes) {
            *to = from[lane as usize % 16];
        }
        self.d_load(&to)
    }
    #[inline(always)]
    fn d_sum(self, x: Self::D) -> f64 {
        neon!(
            let eight: [float64x2_t; 4] = from_fn(|k| vaddq_f64(x[k], x[k + 4]));
            let four = [vaddq_f64(eight[0], eight[2]), vaddq_f64(eight[1], eight[3])];
            let two = vaddq_f64(four[0], four[1]);
            vgetq_lane_f64::<0>(two) + vgetq_lane_f64::<1>(two)
        )
    }
    #[inline(always)]
    fn d_hadamard(self, mut x: Self::D) -> Self::D {
        for stride in [4, 2, 1] {
            x = neon!(from_fn(|k| {
                if k & stride == 0 { vaddq_f64(x[k], x[k + stride]) } else { vsubq_f64(x[k - stride], x[k]) }
            }));
        }
        from_fn(|k| self.hadamard2(x[k]))
    }
    #[inline(always)]
    fn d_widen(self, x: Self::F) -> Self::D {
        neon!(from_fn(|k| { vcvt_f64_f32(if k % 2 == 0 { vget_low_f32(x[k / 2]) } else { vget_high_f32(x[k / 2]) }) }))
    }
}
