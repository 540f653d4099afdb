//! A thread's share of an op.
use crate::pool::Items;
use std::sync::atomic::AtomicUsize;

/// Items a thread and op: enough that a thread which lost its core for a while does not hold up the rest.
const ITEMS_PER_THREAD: usize = 6;

/// Where a thread gets an op's items from, and the memory that it works in.
pub struct Work<'a> {
    /// The counter of the op, which hands out its items.
    pub(super) next: &'a AtomicUsize,
    pub threads: usize,
    /// As many floats as the op's `scratch` says, at a cache line's begin; what is in them is anybody's.
    pub scratch: *mut f32,
}

impl<'a> Work<'a> {
    /// Items of like size, several at a time.
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
