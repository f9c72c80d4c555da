//! The two widths that a network computes in: 32 bits for training, 64 for differences of gradients.

use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Sub};

use crate::scratch::Scratch;

/// A 32-bit or a 64-bit number.
pub trait Number:
    Copy
    + PartialOrd
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
    + std::iter::Sum
    + private::Wide
    + 'static
{
    /// The nearest one.
    fn from_f64(value: f64) -> Self;

    /// Exactly.
    fn to_f64(self) -> f64;
}

pub(crate) mod private {
    use super::Scratch;

    /// What the two widths have of their own. Nobody else implements it.
    pub trait Wide: Sized {
        /// out = a b + keep out: rows, inner extent and columns, then each matrix with its strides.
        ///
        /// # Safety
        /// Every entry that extents and strides name lies within its matrix, and `out` is nobody else's.
        #[allow(unsafe_code)] // The library takes pointers.
        unsafe fn multiply(
            extents: (usize, usize, usize),
            a: (*const Self, isize, isize),
            b: (*const Self, isize, isize),
            keep: Self,
            out: (*mut Self, isize, isize),
        );

        /// Calls `use_it` with the buffers of this thread.
        fn with_scratch<R>(use_it: impl FnOnce(&mut Scratch<Self>) -> R) -> R;
    }
}

macro_rules! number {
    ($type:ty, $multiply:path) => {
        impl Number for $type {
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }

        impl private::Wide for $type {
            #[allow(unsafe_code)]
            unsafe fn multiply(
                (rows, inner, columns): (usize, usize, usize),
                a: (*const Self, isize, isize),
                b: (*const Self, isize, isize),
                keep: Self,
                out: (*mut Self, isize, isize),
            ) {
                // SAFETY: what the caller promises is what the library asks for.
                unsafe {
                    $multiply(rows, inner, columns, 1.0, a.0, a.1, a.2, b.0, b.1, b.2, keep, out.0, out.1, out.2);
                }
            }

            fn with_scratch<R>(use_it: impl FnOnce(&mut Scratch<Self>) -> R) -> R {
                thread_local! {
                    static KEPT: std::cell::RefCell<Scratch<$type>> = std::cell::RefCell::default();
                }
                KEPT.with_borrow_mut(use_it)
            }
        }
    };
}

number!(f32, matrixmultiply::sgemm);
number!(f64, matrixmultiply::dgemm);
