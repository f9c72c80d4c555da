//! Numbers with their derivative along a direction: a gradient computed in them has its product with the Hessian along, exactly.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use crate::number::{Number, Wide, private, scratch};
use crate::scratch::Scratch;

/// A number, and its derivative along a direction. Two are compared by their numbers: a unit is on one side or on the other.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Dual {
    /// The number.
    pub value: f64,
    /// Its derivative.
    pub slope: f64,
}

impl From<f64> for Dual {
    fn from(value: f64) -> Self {
        Self { value, slope: 0.0 }
    }
}

impl PartialEq for Dual {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialOrd for Dual {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl Add for Dual {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, slope: self.slope + other.slope }
    }
}

impl Sub for Dual {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { value: self.value - other.value, slope: self.slope - other.slope }
    }
}

impl Mul for Dual {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self { value: self.value * other.value, slope: self.value * other.slope + self.slope * other.value }
    }
}

impl Div for Dual {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        Self { value, slope: (self.slope - value * other.slope) / other.value }
    }
}

impl Neg for Dual {
    type Output = Self;

    fn neg(self) -> Self {
        Self { value: -self.value, slope: -self.slope }
    }
}

impl AddAssign for Dual {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Dual {
    fn sum<I: Iterator<Item = Self>>(terms: I) -> Self {
        terms.fold(Self::default(), Add::add)
    }
}

impl Number for Dual {
    type Wide = Self;

    fn narrow(wide: Self) -> Self {
        wide
    }

    fn wide(self) -> Self {
        self
    }
}

impl Wide for Dual {
    fn value(self) -> f64 {
        self.value
    }

    fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        Self { value, slope: 0.5 * self.slope / value }
    }

    fn exp(self) -> Self {
        let value = self.value.exp();
        Self { value, slope: value * self.slope }
    }
}

impl private::Kind for Dual {
    /// Numbers and slopes lie in turns, so that either of them is a matrix with twice the strides.
    #[allow(unsafe_code)]
    unsafe fn multiply(
        (rows, inner, columns): (usize, usize, usize),
        a: (*const Self, isize, isize),
        b: (*const Self, isize, isize),
        keep: bool,
        out: (*mut Self, isize, isize),
    ) {
        const VALUE: usize = 0;
        const SLOPE: usize = 1;
        let keep = f64::from(u8::from(keep));
        for (part, of_a, of_b, keep) in
            [(VALUE, VALUE, VALUE, keep), (SLOPE, VALUE, SLOPE, keep), (SLOPE, SLOPE, VALUE, 1.0)]
        {
            // SAFETY: a dual is two 64-bit numbers one after the other, so the entries of either kind lie where those of the duals do, as
            // the caller promises; only one part of `out` is written at a time, and nothing else refers to it.
            unsafe {
                matrixmultiply::dgemm(
                    rows,
                    inner,
                    columns,
                    1.0,
                    a.0.cast::<f64>().add(of_a),
                    2 * a.1,
                    2 * a.2,
                    b.0.cast::<f64>().add(of_b),
                    2 * b.1,
                    2 * b.2,
                    keep,
                    out.0.cast::<f64>().add(part),
                    2 * out.1,
                    2 * out.2,
                );
            }
        }
    }

    scratch!(Dual);
}
