//! The lanes on x86-64: pairs of 32-byte registers with AVX2 and FMA, single 64-byte registers with AVX-512.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::simd::lanewise;
use super::{Operation, Simd};

/// The proof that AVX2, FMA and POPCNT are there: made only by [`run_avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The proof that AVX-512F and what [`Avx2`] proves are there: made only by [`run_avx512`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("popcnt")
}

pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && has_avx2()
}

pub(super) fn run_avx2<O: Operation>(operation: O) -> O::Output {
    #[target_feature(enable = "avx2,fma,popcnt")]
    fn inner<O: Operation>(operation: O) -> O::Output {
        operation.run(Avx2(()))
    }
    assert!(has_avx2(), "the kernel `avx2` needs AVX2, FMA and POPCNT");
    // SAFETY: AVX2, FMA and POPCNT were found on this CPU by the line above.
    unsafe { inner(operation) }
}

pub(super) fn run_avx512<O: Operation>(operation: O) -> O::Output {
    #[target_feature(enable = "avx512f,avx2,fma,popcnt")]
    fn inner<O: Operation>(operation: O) -> O::Output {
        operation.run(Avx512(()))
    }
    assert!(has_avx512(), "the kernel `avx512` needs AVX-512F");
    // SAFETY: AVX-512F, AVX2, FMA and POPCNT were found on this CPU by the line above.
    unsafe { inner(operation) }
}

/// Runs intrinsics inside a method of a proof.
macro_rules! proven {
    ($($body:tt)*) => {{
        // SAFETY: `self` exists only inside `run_avx2` or `run_avx512`, which found the instructions on this CPU. Pointers come from
        // references to arrays of sixteen or eight numbers, and loads and stores stay inside them; none need alignment.
        unsafe { $($body)* }
    }};
}

impl Avx2 {
    /// Strides 4, 2, 1 of eight lanes: every lane with its partner, negated in the upper one of each pair. The products are exact, so
    /// they round as sums do.
    #[inline(always)]
    fn hadamard8(self, x: __m256) -> __m256 {
        proven!(
            let signs = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
            let x = _mm256_fmadd_ps(x, signs, _mm256_permute2f128_ps::<1>(x, x));
            let signs = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
            let x = _mm256_fmadd_ps(x, signs, _mm256_permute_ps::<0b01_00_11_10>(x));
            let signs = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
            _mm256_fmadd_ps(x, signs, _mm256_permute_ps::<0b10_11_00_01>(x))
        )
    }

    /// Strides 2 and 1 of four lanes.
    #[inline(always)]
    fn hadamard4(self, x: __m256d) -> __m256d {
        proven!(
            let signs = _mm256_setr_pd(1.0, 1.0, -1.0, -1.0);
            let x = _mm256_fmadd_pd(x, signs, _mm256_permute2f128_pd::<1>(x, x));
            let signs = _mm256_setr_pd(1.0, -1.0, 1.0, -1.0);
            _mm256_fmadd_pd(x, signs, _mm256_permute_pd::<0b0101>(x))
        )
    }
}

impl Avx2 {
    #[inline(always)]
    fn flip4(self, x: __m256d, signs: __m128i) -> __m256d {
        proven!(_mm256_xor_pd(x, _mm256_castsi256_pd(_mm256_slli_epi64::<32>(_mm256_cvtepu32_epi64(signs)))))
    }
}

impl Avx2 {
    /// Eight of sixteen numbers: a permutation takes three bits of the index, a blend the fourth.
    #[inline(always)]
    fn pick8(self, [low, high]: [__m256; 2], index: __m256i) -> __m256 {
        proven!(
            let (low, high) = (_mm256_permutevar8x32_ps(low, index), _mm256_permutevar8x32_ps(high, index));
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)))
        )
    }

    /// Four of sixteen numbers, each permuted as two halves.
    #[inline(always)]
    fn pick4(self, table: [__m256d; 4], index: __m128i) -> __m256d {
        proven!(
            let index = _mm256_cvtepu32_epi64(index);
            let even = _mm256_add_epi64(index, index);
            let odd = _mm256_add_epi64(even, _mm256_set1_epi64x(1));
            let halves = _mm256_or_si256(even, _mm256_slli_epi64::<32>(odd));
            let mut parts = [_mm256_setzero_pd(); 4];
            for k in 0..4 {
                parts[k] = _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(table[k]), halves));
            }
            let bit2 = _mm256_castsi256_pd(_mm256_slli_epi64::<61>(index));
            let low = _mm256_blendv_pd(parts[0], parts[1], bit2);
            let high = _mm256_blendv_pd(parts[2], parts[3], bit2);
            _mm256_blendv_pd(low, high, _mm256_castsi256_pd(_mm256_slli_epi64::<60>(index)))
        )
    }
}

impl Avx512 {
    /// Adds `x`, negated in the given lanes, to `y`. The product is exact, so this rounds as the sum does.
    #[inline(always)]
    fn add_negated16(self, x: __m512, lanes: u16, y: __m512) -> __m512 {
        proven!(_mm512_fmadd_ps(x, _mm512_mask_blend_ps(lanes, _mm512_set1_ps(1.0), _mm512_set1_ps(-1.0)), y))
    }

    #[inline(always)]
    fn add_negated8(self, x: __m512d, lanes: u8, y: __m512d) -> __m512d {
        proven!(_mm512_fmadd_pd(x, _mm512_mask_blend_pd(lanes, _mm512_set1_pd(1.0), _mm512_set1_pd(-1.0)), y))
    }

    /// Strides 4, 2, 1 of eight lanes.
    #[inline(always)]
    fn hadamard8(self, x: __m512d) -> __m512d {
        proven!(
            let x = self.add_negated8(x, 0xf0, _mm512_shuffle_f64x2::<0b01_00_11_10>(x, x));
            let x = self.add_negated8(x, 0xcc, _mm512_shuffle_f64x2::<0b10_11_00_01>(x, x));
            self.add_negated8(x, 0xaa, _mm512_permute_pd::<0b0101_0101>(x))
        )
    }

    #[inline(always)]
    fn flip8(self, x: __m512d, signs: __m256i) -> __m512d {
        proven!(
            let wide = _mm512_sllv_epi64(_mm512_cvtepu32_epi64(signs), _mm512_set1_epi64(32));
            _mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(x), wide))
        )
    }
}

impl Simd for Avx2 {
    const REGISTERS: usize = 8;

    type U = [__m256i; 2];
    type F = [__m256; 2];
    type D = [__m256d; 4];

    lanewise!(proven, 2;
        U: u_add(x, y) = _mm256_add_epi32;
        U: u_sub(x, y) = _mm256_sub_epi32;
        U: u_xor(x, y) = _mm256_xor_si256;
        U: u_and(x, y) = _mm256_and_si256;
        U: u_or(x, y) = _mm256_or_si256;
        F: f_add(x, y) = _mm256_add_ps;
        F: f_sub(x, y) = _mm256_sub_ps;
        F: f_mul(x, y) = _mm256_mul_ps;
        F: f_div(x, y) = _mm256_div_ps;
        F: f_fma(x, y, z) = _mm256_fmadd_ps;
        F: f_sqrt(x) = _mm256_sqrt_ps;
    );
    lanewise!(proven, 4;
        D: d_add(x, y) = _mm256_add_pd;
        D: d_sub(x, y) = _mm256_sub_pd;
        D: d_mul(x, y) = _mm256_mul_pd;
        D: d_div(x, y) = _mm256_div_pd;
        D: d_fma(x, y, z) = _mm256_fmadd_pd;
    );

    #[inline(always)]
    fn prefetch<T>(self, from: &T) {
        proven!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()))
    }
    #[inline(always)]
    fn prefetch_far<T>(self, from: &T) {
        proven!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(from).cast()))
    }
    #[inline(always)]
    fn u_splat(self, x: u32) -> Self::U {
        proven!([_mm256_set1_epi32(x as i32); 2])
    }
    #[inline(always)]
    fn u_load(self, from: &[u32; 16]) -> Self::U {
        let p = from.as_ptr();
        proven!([_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(8).cast())])
    }
    #[inline(always)]
    fn u_store(self, x: Self::U, to: &mut [u32; 16]) {
        let p = to.as_mut_ptr();
        proven!(
            _mm256_storeu_si256(p.cast(), x[0]);
            _mm256_storeu_si256(p.add(8).cast(), x[1])
        )
    }
    #[inline(always)]
    fn u_shl<const N: i32>(self, x: Self::U) -> Self::U {
        proven!([_mm256_slli_epi32::<N>(x[0]), _mm256_slli_epi32::<N>(x[1])])
    }
    #[inline(always)]
    fn u_shr<const N: i32>(self, x: Self::U) -> Self::U {
        proven!([_mm256_srli_epi32::<N>(x[0]), _mm256_srli_epi32::<N>(x[1])])
    }
    #[inline(always)]
    fn u_sar<const N: i32>(self, x: Self::U) -> Self::U {
        proven!([_mm256_srai_epi32::<N>(x[0]), _mm256_srai_epi32::<N>(x[1])])
    }
    #[inline(always)]
    fn u_rotl<const N: i32, const M: i32>(self, x: Self::U) -> Self::U {
        if N % 8 == 0 {
            // Byte k of a lane becomes byte k + N / 8.
            return proven!(
                let first = (0x0302_0100u32).rotate_left(N as u32) as i32;
                let bytes = _mm256_add_epi32(
                    _mm256_set1_epi32(first),
                    _mm256_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c, 0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c),
                );
                [_mm256_shuffle_epi8(x[0], bytes), _mm256_shuffle_epi8(x[1], bytes)]
            );
        }
        self.u_or(self.u_shl::<N>(x), self.u_shr::<M>(x))
    }
    #[inline(always)]
    fn u_turn1(self, x: Self::U) -> Self::U {
        proven!([_mm256_shuffle_epi32::<0b00_11_10_01>(x[0]), _mm256_shuffle_epi32::<0b00_11_10_01>(x[1])])
    }
    #[inline(always)]
    fn u_turn2(self, x: Self::U) -> Self::U {
        proven!([_mm256_shuffle_epi32::<0b01_00_11_10>(x[0]), _mm256_shuffle_epi32::<0b01_00_11_10>(x[1])])
    }
    #[inline(always)]
    fn u_turn3(self, x: Self::U) -> Self::U {
        proven!([_mm256_shuffle_epi32::<0b10_01_00_11>(x[0]), _mm256_shuffle_epi32::<0b10_01_00_11>(x[1])])
    }

    #[inline(always)]
    fn f_splat(self, x: f32) -> Self::F {
        proven!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn f_load(self, from: &[f32; 16]) -> Self::F {
        let p = from.as_ptr();
        proven!([_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))])
    }
    #[inline(always)]
    fn f_store(self, x: Self::F, to: &mut [f32; 16]) {
        let p = to.as_mut_ptr();
        proven!(
            _mm256_storeu_ps(p, x[0]);
            _mm256_storeu_ps(p.add(8), x[1])
        )
    }
    #[inline(always)]
    fn f_from_i32(self, x: Self::U) -> Self::F {
        proven!([_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])])
    }
    #[inline(always)]
    fn f_from_bits(self, x: Self::U) -> Self::F {
        proven!([_mm256_castsi256_ps(x[0]), _mm256_castsi256_ps(x[1])])
    }
    #[inline(always)]
    fn f_to_bits(self, x: Self::F) -> Self::U {
        proven!([_mm256_castps_si256(x[0]), _mm256_castps_si256(x[1])])
    }
    #[inline(always)]
    fn f_flip(self, x: Self::F, signs: Self::U) -> Self::F {
        let top = self.u_and(signs, self.u_splat(1 << 31));
        self.f_from_bits(self.u_xor(self.f_to_bits(x), top))
    }
    #[inline(always)]
    fn f_pick8(self, table: &[f32; 8], index: Self::U) -> Self::F {
        proven!(
            let table = _mm256_loadu_ps(table.as_ptr());
            [_mm256_permutevar8x32_ps(table, index[0]), _mm256_permutevar8x32_ps(table, index[1])]
        )
    }
    #[inline(always)]
    fn f_pick(self, table: Self::F, index: Self::U) -> Self::F {
        [self.pick8(table, index[0]), self.pick8(table, index[1])]
    }
    #[inline(always)]
    fn f_sum(self, x: Self::F) -> f32 {
        proven!(
            let eight = _mm256_add_ps(x[0], x[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        )
    }
    #[inline(always)]
    fn f_hadamard(self, x: Self::F) -> Self::F {
        let halves = proven!([_mm256_add_ps(x[0], x[1]), _mm256_sub_ps(x[0], x[1])]);
        [self.hadamard8(halves[0]), self.hadamard8(halves[1])]
    }

    #[inline(always)]
    fn d_splat(self, x: f64) -> Self::D {
        proven!([_mm256_set1_pd(x); 4])
    }
    #[inline(always)]
    fn d_load(self, from: &[f64; 16]) -> Self::D {
        let p = from.as_ptr();
        proven!([_mm256_loadu_pd(p), _mm256_loadu_pd(p.add(4)), _mm256_loadu_pd(p.add(8)), _mm256_loadu_pd(p.add(12))])
    }
    #[inline(always)]
    fn d_store(self, x: Self::D, to: &mut [f64; 16]) {
        let p = to.as_mut_ptr();
        proven!(
            _mm256_storeu_pd(p, x[0]);
            _mm256_storeu_pd(p.add(4), x[1]);
            _mm256_storeu_pd(p.add(8), x[2]);
            _mm256_storeu_pd(p.add(12), x[3])
        )
    }
    #[inline(always)]
    fn d_flip(self, x: Self::D, signs: Self::U) -> Self::D {
        let top = self.u_and(signs, self.u_splat(1 << 31));
        proven!([
            self.flip4(x[0], _mm256_castsi256_si128(top[0])),
            self.flip4(x[1], _mm256_extracti128_si256::<1>(top[0])),
            self.flip4(x[2], _mm256_castsi256_si128(top[1])),
            self.flip4(x[3], _mm256_extracti128_si256::<1>(top[1])),
        ])
    }
    #[inline(always)]
    fn d_pick(self, table: Self::D, index: Self::U) -> Self::D {
        proven!([
            self.pick4(table, _mm256_castsi256_si128(index[0])),
            self.pick4(table, _mm256_extracti128_si256::<1>(index[0])),
            self.pick4(table, _mm256_castsi256_si128(index[1])),
            self.pick4(table, _mm256_extracti128_si256::<1>(index[1])),
        ])
    }
    #[inline(always)]
    fn d_sum(self, x: Self::D) -> f64 {
        proven!(
            let four = _mm256_add_pd(_mm256_add_pd(x[0], x[2]), _mm256_add_pd(x[1], x[3]));
            let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
            _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
        )
    }
    #[inline(always)]
    fn d_hadamard(self, [a, b, c, d]: Self::D) -> Self::D {
        let (a, b, c, d) =
            proven!((_mm256_add_pd(a, c), _mm256_add_pd(b, d), _mm256_sub_pd(a, c), _mm256_sub_pd(b, d)));
        let quarters = proven!([_mm256_add_pd(a, b), _mm256_sub_pd(a, b), _mm256_add_pd(c, d), _mm256_sub_pd(c, d)]);
        let [a, b, c, d] = quarters;
        [self.hadamard4(a), self.hadamard4(b), self.hadamard4(c), self.hadamard4(d)]
    }
    #[inline(always)]
    fn d_widen(self, x: Self::F) -> Self::D {
        proven!([
            _mm256_cvtps_pd(_mm256_castps256_ps128(x[0])),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[0])),
            _mm256_cvtps_pd(_mm256_castps256_ps128(x[1])),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[1]))
        ])
    }
}

impl Simd for Avx512 {
    const REGISTERS: usize = 32;

    type U = __m512i;
    type F = __m512;
    type D = [__m512d; 2];

    lanewise!(proven, 1;
        U: u_add(x, y) = _mm512_add_epi32;
        U: u_sub(x, y) = _mm512_sub_epi32;
        U: u_xor(x, y) = _mm512_xor_si512;
        U: u_and(x, y) = _mm512_and_si512;
        U: u_or(x, y) = _mm512_or_si512;
        F: f_add(x, y) = _mm512_add_ps;
        F: f_sub(x, y) = _mm512_sub_ps;
        F: f_mul(x, y) = _mm512_mul_ps;
        F: f_div(x, y) = _mm512_div_ps;
        F: f_fma(x, y, z) = _mm512_fmadd_ps;
        F: f_sqrt(x) = _mm512_sqrt_ps;
    );
    lanewise!(proven, 2;
        D: d_add(x, y) = _mm512_add_pd;
        D: d_sub(x, y) = _mm512_sub_pd;
        D: d_mul(x, y) = _mm512_mul_pd;
        D: d_div(x, y) = _mm512_div_pd;
        D: d_fma(x, y, z) = _mm512_fmadd_pd;
    );

    #[inline(always)]
    fn prefetch<T>(self, from: &T) {
        proven!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()))
    }
    #[inline(always)]
    fn prefetch_far<T>(self, from: &T) {
        proven!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(from).cast()))
    }
    #[inline(always)]
    fn u_splat(self, x: u32) -> Self::U {
        proven!(_mm512_set1_epi32(x as i32))
    }
    #[inline(always)]
    fn u_load(self, from: &[u32; 16]) -> Self::U {
        proven!(_mm512_loadu_si512(from.as_ptr().cast()))
    }
    #[inline(always)]
    fn u_store(self, x: Self::U, to: &mut [u32; 16]) {
        proven!(_mm512_storeu_si512(to.as_mut_ptr().cast(), x))
    }
    #[inline(always)]
    fn u_shl<const N: i32>(self, x: Self::U) -> Self::U {
        proven!(_mm512_sllv_epi32(x, _mm512_set1_epi32(N)))
    }
    #[inline(always)]
    fn u_shr<const N: i32>(self, x: Self::U) -> Self::U {
        proven!(_mm512_srlv_epi32(x, _mm512_set1_epi32(N)))
    }
    #[inline(always)]
    fn u_sar<const N: i32>(self, x: Self::U) -> Self::U {
        proven!(_mm512_srav_epi32(x, _mm512_set1_epi32(N)))
    }
    #[inline(always)]
    fn u_rotl<const N: i32, const M: i32>(self, x: Self::U) -> Self::U {
        proven!(_mm512_rol_epi32::<N>(x))
    }
    #[inline(always)]
    fn u_turn1(self, x: Self::U) -> Self::U {
        proven!(_mm512_shuffle_epi32::<0b00_11_10_01>(x))
    }
    #[inline(always)]
    fn u_turn2(self, x: Self::U) -> Self::U {
        proven!(_mm512_shuffle_epi32::<0b01_00_11_10>(x))
    }
    #[inline(always)]
    fn u_turn3(self, x: Self::U) -> Self::U {
        proven!(_mm512_shuffle_epi32::<0b10_01_00_11>(x))
    }

    #[inline(always)]
    fn f_splat(self, x: f32) -> Self::F {
        proven!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn f_load(self, from: &[f32; 16]) -> Self::F {
        proven!(_mm512_loadu_ps(from.as_ptr()))
    }
    #[inline(always)]
    fn f_store(self, x: Self::F, to: &mut [f32; 16]) {
        proven!(_mm512_storeu_ps(to.as_mut_ptr(), x))
    }
    #[inline(always)]
    fn f_from_i32(self, x: Self::U) -> Self::F {
        proven!(_mm512_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn f_from_bits(self, x: Self::U) -> Self::F {
        proven!(_mm512_castsi512_ps(x))
    }
    #[inline(always)]
    fn f_to_bits(self, x: Self::F) -> Self::U {
        proven!(_mm512_castps_si512(x))
    }
    #[inline(always)]
    fn f_flip(self, x: Self::F, signs: Self::U) -> Self::F {
        let top = self.u_and(signs, self.u_splat(1 << 31));
        self.f_from_bits(self.u_xor(self.f_to_bits(x), top))
    }
    #[inline(always)]
    fn f_pick8(self, table: &[f32; 8], index: Self::U) -> Self::F {
        proven!(
            let twice = _mm512_broadcast_f64x4(_mm256_loadu_pd(table.as_ptr().cast()));
            _mm512_permutexvar_ps(index, _mm512_castpd_ps(twice))
        )
    }
    #[inline(always)]
    fn f_pick(self, table: Self::F, index: Self::U) -> Self::F {
        proven!(_mm512_permutexvar_ps(index, table))
    }
    #[inline(always)]
    fn f_sum(self, x: Self::F) -> f32 {
        proven!(
            let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(x)));
            let eight = _mm256_add_ps(_mm512_castps512_ps256(x), high);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        )
    }
    #[inline(always)]
    fn f_hadamard(self, x: Self::F) -> Self::F {
        proven!(
            let x = self.add_negated16(x, 0xff00, _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x));
            let x = self.add_negated16(x, 0xf0f0, _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x));
            let x = self.add_negated16(x, 0xcccc, _mm512_permute_ps::<0b01_00_11_10>(x));
            self.add_negated16(x, 0xaaaa, _mm512_permute_ps::<0b10_11_00_01>(x))
        )
    }

    #[inline(always)]
    fn d_splat(self, x: f64) -> Self::D {
        proven!([_mm512_set1_pd(x); 2])
    }
    #[inline(always)]
    fn d_load(self, from: &[f64; 16]) -> Self::D {
        let p = from.as_ptr();
        proven!([_mm512_loadu_pd(p), _mm512_loadu_pd(p.add(8))])
    }
    #[inline(always)]
    fn d_store(self, x: Self::D, to: &mut [f64; 16]) {
        let p = to.as_mut_ptr();
        proven!(
            _mm512_storeu_pd(p, x[0]);
            _mm512_storeu_pd(p.add(8), x[1])
        )
    }
    #[inline(always)]
    fn d_flip(self, x: Self::D, signs: Self::U) -> Self::D {
        let top = self.u_and(signs, self.u_splat(1 << 31));
        proven!([self.flip8(x[0], _mm512_castsi512_si256(top)), self.flip8(x[1], _mm512_extracti64x4_epi64::<1>(top))])
    }
    #[inline(always)]
    fn d_pick(self, [low, high]: Self::D, index: Self::U) -> Self::D {
        proven!([
            _mm512_permutex2var_pd(low, _mm512_cvtepu32_epi64(_mm512_castsi512_si256(index)), high),
            _mm512_permutex2var_pd(low, _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(index)), high),
        ])
    }
    #[inline(always)]
    fn d_sum(self, x: Self::D) -> f64 {
        proven!(
            let eight = _mm512_add_pd(x[0], x[1]);
            let four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd::<1>(eight));
            let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
            _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
        )
    }
    #[inline(always)]
    fn d_hadamard(self, x: Self::D) -> Self::D {
        let halves = proven!([_mm512_add_pd(x[0], x[1]), _mm512_sub_pd(x[0], x[1])]);
        [self.hadamard8(halves[0]), self.hadamard8(halves[1])]
    }
    #[inline(always)]
    fn d_widen(self, x: Self::F) -> Self::D {
        proven!(
            let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(x)));
            [_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(high)]
        )
    }
}
