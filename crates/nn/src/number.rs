//! What a network computes in: 32-bit numbers for training, 64-bit ones to check them, and numbers with a derivative along.

use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use crate::scratch::Scratch;

/// A 32-bit number, a 64-bit number or a [`Dual`](crate::dual::Dual).
pub trait Number:
    Copy
    + PartialOrd
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + std::iter::Sum
    + private::Kind
    + 'static
{
    /// What long sums, norms and losses are computed in.
    type Wide: Wide;

    /// The nearest one.
    fn narrow(wide: Self::Wide) -> Self;

    /// Exactly.
    fn wide(self) -> Self::Wide;

    /// The nearest constant.
    fn from_f64(value: f64) -> Self {
        Self::narrow(Self::Wide::from(value))
    }
}

/// A 64-bit number, or one with a derivative along.
pub trait Wide: Number<Wide = Self> + From<f64> + Div<Output = Self> {
    /// The number alone: nothing that is computed from it has a derivative.
    fn value(self) -> f64;

    /// Its square root.
    fn sqrt(self) -> Self;

    /// e to it.
    fn exp(self) -> Self;
}

pub(crate) mod private {
    use super::Scratch;

    /// What every kind of number has of its own. Nobody else implements it.
    pub trait Kind: Sized {
        /// out = a b + keep out: rows, inner extent and columns, then each matrix with its strides. `keep` is 0 or 1.
        ///
        /// # Safety
        /// Every entry that extents and strides name lies within its matrix, and `out` is nobody else's.
        #[allow(unsafe_code)] // The library takes pointers.
        unsafe fn multiply(
            extents: (usize, usize, usize),
            a: (*const Self, isize, isize),
            b: (*const Self, isize, isize),
            keep: bool,
            out: (*mut Self, isize, isize),
        );

        /// Calls `use_it` with the buffers of this thread.
        fn with_scratch<R>(use_it: impl FnOnce(&mut Scratch<Self>) -> R) -> R;
    }
}

/// The thread's buffers for one kind of number.
macro_rules! scratch {
    ($type:ty) => {
        fn with_scratch<R>(use_it: impl FnOnce(&mut Scratch<Self>) -> R) -> R {
            thread_local! {
                static KEPT: std::cell::RefCell<Scratch<$type>> = std::cell::RefCell::default();
            }
            KEPT.with_borrow_mut(use_it)
        }
    };
}
pub(crate) use scratch;

macro_rules! number {
    ($type:ty, $multiply:path) => {
        impl Number for $type {
            type Wide = f64;

            fn narrow(wide: f64) -> Self {
                wide as $type
            }

            fn wide(self) -> f64 {
                f64::from(self)
            }
        }

        impl private::Kind for $type {
            #[allow(unsafe_code)]
            unsafe fn multiply(
                (rows, inner, columns): (usize, usize, usize),
                a: (*const Self, isize, isize),
                b: (*const Self, isize, isize),
                keep: bool,
                out: (*mut Self, isize, isize),
            ) {
                let keep = <$type>::from(u8::from(keep));
                // SAFETY: what the caller promises is what the library asks for.
                unsafe {
                    $multiply(rows, inner, columns, 1.0, a.0, a.1, a.2, b.0, b.1, b.2, keep, out.0, out.1, out.2);
                }
            }

            scratch!($type);
        }
    };
}

number!(f32, matrixmultiply::sgemm);
number!(f64, matrixmultiply::dgemm);

impl Wide for f64 {
    fn value(self) -> f64 {
        self
    }

    fn sqrt(self) -> Self {
        self.sqrt()
    }

    fn exp(self) -> Self {
        self.exp()
    }
}
