//! Sixteen virtual lanes: what an instruction set must offer.

use std::cell::Cell;
use std::thread::LocalKey;

use crate::scratch::Places;

/// Sixteen lanes of `u32`, `f32` and `f64`. A value of an implementing type is the proof that the CPU has the instructions, so that the
/// methods are safe.
///
/// Each method does to every lane what the same operator of Rust does to a number: wrapping for integers, IEEE 754 with one rounding for
/// floats.
pub trait Simd: Copy {
    /// How many times sixteen lanes of `f32` its registers hold.
    const REGISTERS: usize;

    type U: Copy;
    type F: Copy;
    type D: Copy;

    /// Asks for a line of the cache before it is needed.
    #[inline(always)]
    fn prefetch<T>(self, _: &T) {}
    /// The same, into the second cache.
    #[inline(always)]
    fn prefetch_far<T>(self, _: &T) {}

    fn u_splat(self, x: u32) -> Self::U;
    fn u_load(self, from: &[u32; 16]) -> Self::U;
    fn u_store(self, x: Self::U, to: &mut [u32; 16]);
    fn u_add(self, x: Self::U, y: Self::U) -> Self::U;
    fn u_sub(self, x: Self::U, y: Self::U) -> Self::U;
    fn u_xor(self, x: Self::U, y: Self::U) -> Self::U;
    fn u_and(self, x: Self::U, y: Self::U) -> Self::U;
    fn u_or(self, x: Self::U, y: Self::U) -> Self::U;
    fn u_shl<const N: i32>(self, x: Self::U) -> Self::U;
    fn u_shr<const N: i32>(self, x: Self::U) -> Self::U;
    /// Shifts right and keeps the sign.
    fn u_sar<const N: i32>(self, x: Self::U) -> Self::U;
    /// Rotates left; `M` is 32 - `N`.
    fn u_rotl<const N: i32, const M: i32>(self, x: Self::U) -> Self::U;
    /// In each group of four lanes, lane i becomes lane (i + 1) mod 4.
    fn u_turn1(self, x: Self::U) -> Self::U;
    /// In each group of four lanes, lane i becomes lane (i + 2) mod 4.
    fn u_turn2(self, x: Self::U) -> Self::U;
    /// In each group of four lanes, lane i becomes lane (i + 3) mod 4.
    fn u_turn3(self, x: Self::U) -> Self::U;

    fn f_splat(self, x: f32) -> Self::F;
    fn f_load(self, from: &[f32; 16]) -> Self::F;
    fn f_store(self, x: Self::F, to: &mut [f32; 16]);
    fn f_add(self, x: Self::F, y: Self::F) -> Self::F;
    fn f_sub(self, x: Self::F, y: Self::F) -> Self::F;
    fn f_mul(self, x: Self::F, y: Self::F) -> Self::F;
    fn f_div(self, x: Self::F, y: Self::F) -> Self::F;
    /// x y + z, rounded once.
    fn f_fma(self, x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    fn f_sqrt(self, x: Self::F) -> Self::F;
    /// The nearest float to each lane read as an `i32`.
    fn f_from_i32(self, x: Self::U) -> Self::F;
    fn f_from_bits(self, x: Self::U) -> Self::F;
    fn f_to_bits(self, x: Self::F) -> Self::U;
    /// Negates the lanes whose top bit is set in `signs`.
    fn f_flip(self, x: Self::F, signs: Self::U) -> Self::F;
    /// In each lane, the number of `table` that its index says, modulo eight.
    fn f_pick8(self, table: &[f32; 8], index: Self::U) -> Self::F;
    /// In each lane, the lane of `table` that its index says, modulo sixteen.
    fn f_pick(self, table: Self::F, index: Self::U) -> Self::F;
    /// The sum of the lanes: l with l + 8, then l + 4, l + 2, l + 1.
    fn f_sum(self, x: Self::F) -> f32;
    /// The Hadamard transform of the sixteen lanes, strides 8, 4, 2, 1.
    fn f_hadamard(self, x: Self::F) -> Self::F;

    fn d_splat(self, x: f64) -> Self::D;
    fn d_load(self, from: &[f64; 16]) -> Self::D;
    fn d_store(self, x: Self::D, to: &mut [f64; 16]);
    fn d_add(self, x: Self::D, y: Self::D) -> Self::D;
    fn d_sub(self, x: Self::D, y: Self::D) -> Self::D;
    fn d_mul(self, x: Self::D, y: Self::D) -> Self::D;
    fn d_div(self, x: Self::D, y: Self::D) -> Self::D;
    fn d_fma(self, x: Self::D, y: Self::D, z: Self::D) -> Self::D;
    /// Negates the lanes whose top bit is set in `signs`.
    fn d_flip(self, x: Self::D, signs: Self::U) -> Self::D;
    fn d_pick(self, table: Self::D, index: Self::U) -> Self::D;
    fn d_sum(self, x: Self::D) -> f64;
    fn d_hadamard(self, x: Self::D) -> Self::D;
    /// The same numbers as `f64`.
    fn d_widen(self, x: Self::F) -> Self::D;
}

/// Methods of [`Simd`] that do the same intrinsic to every register: `lanewise!(guard, registers; Lanes: method(x, y) = intrinsic; ...)`.
/// The guard is the macro that says why the intrinsics may be called.
macro_rules! lanewise {
    ($guard:ident, $registers:tt; $($lanes:ident: $method:ident($($x:ident),+) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $method(self, $($x: Self::$lanes),+) -> Self::$lanes {
            $guard!(lanewise!(@ $registers $intrinsic($($x),+)))
        }
    )*};
    (@ 1 $f:ident($($x:ident),+)) => { $f($($x),+) };
    (@ 2 $f:ident($($x:ident),+)) => { [$f($($x[0]),+), $f($($x[1]),+)] };
    (@ 4 $f:ident($($x:ident),+)) => { [$f($($x[0]),+), $f($($x[1]),+), $f($($x[2]),+), $f($($x[3]),+)] };
    (@ 8 $f:ident($($x:ident),+)) => {
        [
            $f($($x[0]),+), $f($($x[1]),+), $f($($x[2]),+), $f($($x[3]),+),
            $f($($x[4]),+), $f($($x[5]),+), $f($($x[6]),+), $f($($x[7]),+),
        ]
    };
}
pub(super) use lanewise;

/// A number type that the kernels compute in: `f32` on the lanes `F`, `f64` on the lanes `D`.
pub trait Element: Copy + Default + Send + Sync + 'static {
    type Lanes<S: Simd>: Copy;

    fn splat<S: Simd>(simd: S, x: Self) -> Self::Lanes<S>;
    fn load<S: Simd>(simd: S, from: &[Self; 16]) -> Self::Lanes<S>;
    fn store<S: Simd>(simd: S, x: Self::Lanes<S>, to: &mut [Self; 16]);
    fn lanes_add<S: Simd>(simd: S, x: Self::Lanes<S>, y: Self::Lanes<S>) -> Self::Lanes<S>;
    fn lanes_sub<S: Simd>(simd: S, x: Self::Lanes<S>, y: Self::Lanes<S>) -> Self::Lanes<S>;
    fn lanes_mul<S: Simd>(simd: S, x: Self::Lanes<S>, y: Self::Lanes<S>) -> Self::Lanes<S>;
    fn lanes_div<S: Simd>(simd: S, x: Self::Lanes<S>, y: Self::Lanes<S>) -> Self::Lanes<S>;
    fn fma<S: Simd>(simd: S, x: Self::Lanes<S>, y: Self::Lanes<S>, z: Self::Lanes<S>) -> Self::Lanes<S>;
    fn flip<S: Simd>(simd: S, x: Self::Lanes<S>, signs: S::U) -> Self::Lanes<S>;
    fn pick<S: Simd>(simd: S, table: Self::Lanes<S>, index: S::U) -> Self::Lanes<S>;
    fn lanes_sum<S: Simd>(simd: S, x: Self::Lanes<S>) -> Self;
    fn hadamard<S: Simd>(simd: S, x: Self::Lanes<S>) -> Self::Lanes<S>;
    fn widen<S: Simd>(simd: S, x: S::F) -> Self::Lanes<S>;

    /// This thread's places to work in.
    fn places() -> &'static LocalKey<Places<Self>>;
}

macro_rules! element {
    ($type:ty, $lanes:ident, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $div:ident,
     $fma:ident, $flip:ident, $pick:ident, $sum:ident, $hadamard:ident, $widen:expr) => {
        impl Element for $type {
            type Lanes<S: Simd> = S::$lanes;

            #[inline(always)]
            fn splat<S: Simd>(simd: S, x: Self) -> S::$lanes {
                simd.$splat(x)
            }
            #[inline(always)]
            fn load<S: Simd>(simd: S, from: &[Self; 16]) -> S::$lanes {
                simd.$load(from)
            }
            #[inline(always)]
            fn store<S: Simd>(simd: S, x: S::$lanes, to: &mut [Self; 16]) {
                simd.$store(x, to)
            }
            #[inline(always)]
            fn lanes_add<S: Simd>(simd: S, x: S::$lanes, y: S::$lanes) -> S::$lanes {
                simd.$add(x, y)
            }
            #[inline(always)]
            fn lanes_sub<S: Simd>(simd: S, x: S::$lanes, y: S::$lanes) -> S::$lanes {
                simd.$sub(x, y)
            }
            #[inline(always)]
            fn lanes_mul<S: Simd>(simd: S, x: S::$lanes, y: S::$lanes) -> S::$lanes {
                simd.$mul(x, y)
            }
            #[inline(always)]
            fn lanes_div<S: Simd>(simd: S, x: S::$lanes, y: S::$lanes) -> S::$lanes {
                simd.$div(x, y)
            }
            #[inline(always)]
            fn fma<S: Simd>(simd: S, x: S::$lanes, y: S::$lanes, z: S::$lanes) -> S::$lanes {
                simd.$fma(x, y, z)
            }
            #[inline(always)]
            fn flip<S: Simd>(simd: S, x: S::$lanes, signs: S::U) -> S::$lanes {
                simd.$flip(x, signs)
            }
            #[inline(always)]
            fn pick<S: Simd>(simd: S, table: S::$lanes, index: S::U) -> S::$lanes {
                simd.$pick(table, index)
            }
            #[inline(always)]
            fn lanes_sum<S: Simd>(simd: S, x: S::$lanes) -> Self {
                simd.$sum(x)
            }
            #[inline(always)]
            fn hadamard<S: Simd>(simd: S, x: S::$lanes) -> S::$lanes {
                simd.$hadamard(x)
            }
            #[inline(always)]
            fn widen<S: Simd>(simd: S, x: S::F) -> S::$lanes {
                $widen(simd, x)
            }
            fn places() -> &'static LocalKey<Places<Self>> {
                thread_local!(static PLACES: Places<$type> = const { [const { Cell::new(Vec::new()) }; 4] });
                &PLACES
            }
        }
    };
}

element!(
    f32,
    F,
    f_splat,
    f_load,
    f_store,
    f_add,
    f_sub,
    f_mul,
    f_div,
    f_fma,
    f_flip,
    f_pick,
    f_sum,
    f_hadamard,
    |_: S, x| x
);
element!(
    f64,
    D,
    d_splat,
    d_load,
    d_store,
    d_add,
    d_sub,
    d_mul,
    d_div,
    d_fma,
    d_flip,
    d_pick,
    d_sum,
    d_hadamard,
    |simd: S, x| simd.d_widen(x)
);
