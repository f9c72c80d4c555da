//! Buffers that a thread keeps from one call to the next: to ask the system for them anew takes longer than much of what is done in them.

use std::cell::RefCell;

/// Free buffers.
#[derive(Default)]
pub(crate) struct Scratch {
    free: Vec<Vec<f32>>,
}

impl Scratch {
    /// A buffer of this length. What it holds means nothing.
    pub(crate) fn take(&mut self, len: usize) -> Vec<f32> {
        let fits = |buffer: &Vec<f32>| buffer.capacity() >= len && buffer.capacity() / 2 <= len;
        let found = self.free.iter().rposition(fits).map(|at| self.free.swap_remove(at));
        let mut buffer = found.unwrap_or_else(|| Vec::with_capacity(len));
        buffer.resize(len, 0.0);
        buffer
    }

    /// A buffer of zeros.
    pub(crate) fn zeros(&mut self, len: usize) -> Vec<f32> {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Vec<f32>) {
        self.free.push(buffer);
    }
}

/// Calls `use_it` with the buffers of this thread.
pub(crate) fn with<R>(use_it: impl FnOnce(&mut Scratch) -> R) -> R {
    thread_local! {
        static KEPT: RefCell<Scratch> = RefCell::default();
    }
    KEPT.with_borrow_mut(use_it)
}
