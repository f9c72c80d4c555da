//! Products of matrices, by rows.

use crate::Number;

/// A matrix that lies in a slice.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    /// From one row to the next, and from one column to the next.
    strides: (usize, usize),
}

impl<'a, T> View<'a, T> {
    /// Row after row.
    ///
    /// # Panics
    /// Unless the slice has as many values.
    pub(crate) fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix fills its slice");
        Self { values, rows, columns, strides: (columns, 1) }
    }

    /// Rows as columns.
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, strides: (self.strides.1, self.strides.0), ..self }
    }
}

/// out = a b, row after row, or with `keep` out = a b + out.
///
/// # Panics
/// Unless the shapes fit.
#[allow(unsafe_code)] // The library takes pointers; the shapes are checked here.
pub(crate) fn multiply<T: Number>(a: View<'_, T>, b: View<'_, T>, keep: bool, out: &mut [T]) {
    assert_eq!(a.columns, b.rows, "inner extents agree");
    assert_eq!(out.len(), a.rows * b.columns, "a matrix fills its slice");
    let at = |view: View<'_, T>| (view.values.as_ptr(), view.strides.0 as isize, view.strides.1 as isize);
    let extents = (a.rows, a.columns, b.columns);
    // SAFETY: `View` has all its entries within its slice, by construction, and `out` has rows of b.columns numbers; `out` is borrowed
    // alone.
    unsafe {
        T::multiply(extents, at(a), at(b), keep, (out.as_mut_ptr(), b.columns as isize, 1));
    }
}
