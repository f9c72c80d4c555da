//! Products of matrices, by rows.

/// A matrix that lies in a slice.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// From one row to the next, and from one column to the next.
    strides: (usize, usize),
}

impl<'a> View<'a> {
    /// Row after row.
    ///
    /// # Panics
    /// Unless the slice has as many values.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix fills its slice");
        Self { values, rows, columns, strides: (columns, 1) }
    }

    /// Rows as columns.
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, strides: (self.strides.1, self.strides.0), ..self }
    }
}

/// out = a b + keep out, row after row.
///
/// # Panics
/// Unless the shapes fit.
#[allow(unsafe_code)] // The library takes pointers; the shapes are checked here.
pub(crate) fn multiply(a: View<'_>, b: View<'_>, keep: f32, out: &mut [f32]) {
    assert_eq!(a.columns, b.rows, "inner extents agree");
    assert_eq!(out.len(), a.rows * b.columns, "a matrix fills its slice");
    let stride = |stride: usize| stride as isize;
    // SAFETY: `View` has all its entries within its slice, by construction, and `out` has rows of b.columns numbers; `out` is borrowed
    // alone.
    unsafe {
        matrixmultiply::sgemm(
            a.rows,
            a.columns,
            b.columns,
            1.0,
            a.values.as_ptr(),
            stride(a.strides.0),
            stride(a.strides.1),
            b.values.as_ptr(),
            stride(b.strides.0),
            stride(b.strides.1),
            keep,
            out.as_mut_ptr(),
            stride(b.columns),
            1,
        );
    }
}
