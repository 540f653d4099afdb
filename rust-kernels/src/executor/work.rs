//! A thread's share of an op.
use crate::pool::Items;
use std::sync::atomic::AtomicUsize;

/// Items per thread and op. Enough of them that a thread that loses its core for a while does not delay the others.
const ITEMS_PER_THREAD: usize = 6;

/// A thread's source of items for an op, and its scratch memory.
pub struct Work<'a> {
    /// The op's counter, which hands out items.
    pub(super) next: &'a AtomicUsize,
    pub threads: usize,
    /// Room for as many floats as the op's `scratch` says, aligned to a cache line. Its contents are undefined.
    pub scratch: *mut f32,
}

impl<'a> Work<'a> {
    /// Items of similar size, several at a time.
    pub fn items(&self, total: usize) -> Items<'a> {
        Items::new(self.next, total, total / (self.threads * ITEMS_PER_THREAD))
    }

    /// Large items, one at a time.
    pub fn single_items(&self, total: usize) -> Items<'a> {
        Items::new(self.next, total, 1)
    }

    /// As `Items::tapering`.
    pub fn tapering(&self, total: usize, run: [usize; 2]) -> Items<'a> {
        Items::tapering(self.next, total, run, self.threads)
    }
}
