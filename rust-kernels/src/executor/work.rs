//! A thread's share of the work of an op.
use crate::pool::Items;
use std::sync::atomic::AtomicUsize;

/// Number of runs of items into which an op's work is split per thread. With several runs, a thread that loses its core
/// for a while does not delay the others.
const ITEMS_PER_THREAD: usize = 6;

/// Hands out the items of an op to a thread, and has the thread's scratch memory.
pub struct Work<'a> {
    /// The op's shared counter of items that threads have taken.
    pub(super) next: &'a AtomicUsize,
    /// Whether the op pauses. Threads then take no more items, and the op runs again later for the rest.
    pub(super) halt: Option<&'a (dyn Fn() -> bool + Sync)>,
    pub threads: usize,
    /// Number of the op's earlier passes in this step.
    pub pass: usize,
    /// Scratch memory, aligned to a cache line. It has the number of floats that the op's `scratch` returns. Its
    /// contents are undefined.
    pub scratch: *mut f32,
}

impl<'a> Work<'a> {
    /// For items of similar size: a thread takes several at a time.
    pub fn items(&self, total: usize) -> Items<'a> {
        Items::new(self.next, total, total / (self.threads * ITEMS_PER_THREAD)).until(self.halt)
    }

    /// For large items: a thread takes one at a time.
    pub fn single_items(&self, total: usize) -> Items<'a> {
        Items::new(self.next, total, 1).until(self.halt)
    }

    /// For items that a thread takes in runs that get shorter, as `Items::tapering` describes.
    pub fn tapering(&self, total: usize, run: [usize; 2]) -> Items<'a> {
        Items::tapering(self.next, total, run, self.threads).until(self.halt)
    }
}
