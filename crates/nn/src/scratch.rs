//! Buffers that a thread keeps from one call to the next: to ask the system for them anew takes longer than much of what is done in them.

use crate::Number;

/// Free buffers.
#[derive(Default)]
pub struct Scratch<T> {
    free: Vec<Vec<T>>,
}

impl<T: Number> Scratch<T> {
    /// A buffer of this length. What it holds means nothing.
    pub(crate) fn take(&mut self, len: usize) -> Vec<T> {
        let fits = |buffer: &Vec<T>| buffer.capacity() >= len && buffer.capacity() / 2 <= len;
        let found = self.free.iter().rposition(fits).map(|at| self.free.swap_remove(at));
        let mut buffer = found.unwrap_or_else(|| Vec::with_capacity(len));
        buffer.resize(len, T::default());
        buffer
    }

    /// A buffer of zeros.
    pub(crate) fn zeros(&mut self, len: usize) -> Vec<T> {
        let mut buffer = self.take(len);
        buffer.fill(T::default());
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Vec<T>) {
        self.free.push(buffer);
    }
}
