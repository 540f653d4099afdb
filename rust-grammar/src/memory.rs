//! The system's allocator, which counts for each thread what it has taken and not given back, and keeps a few blocks at hand on
//! threads that take tokens: whenever llguidance's parser is asked something, it takes two blocks of a size that glibc searches for.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// None where nothing is kept. Without a destructor, which no allocator may have here: threads that take tokens stay.
    static KEPT: Cell<Option<[Block; BLOCKS]>> = const { Cell::new(None) };
}

/// Blocks that a thread keeps, and which: smaller ones glibc keeps itself.
const BLOCKS: usize = 4;
const SIZES: std::ops::RangeInclusive<usize> = 1025..=4096;

/// Of `size` bytes; null where there is none.
#[derive(Clone, Copy)]
struct Block {
    size: usize,
    pointer: *mut u8,
}

const NONE: Block = Block { size: 0, pointer: std::ptr::null_mut() };

/// From now on this thread keeps blocks that it frees.
pub fn keep_blocks() {
    if KEPT.get().is_none() {
        KEPT.set(Some([NONE; BLOCKS]));
    }
}

/// Changes the first place that `find` finds, on a thread that keeps blocks like this; false where there is none.
fn kept(layout: Layout, find: impl Fn(&Block) -> bool, change: impl FnOnce(&mut Block)) -> bool {
    if !SIZES.contains(&layout.size()) || layout.align() > align_of::<usize>() {
        return false;
    }
    let found = KEPT.try_with(|kept| {
        let mut blocks = kept.get()?;
        change(blocks.iter_mut().find(|block| find(block))?);
        kept.set(Some(blocks));
        Some(())
    });
    matches!(found, Ok(Some(())))
}

/// Bytes that this thread has allocated, less those that it has freed.
pub fn held() -> isize {
    HELD.get()
}

fn count(bytes: isize) {
    // A thread that is ending has no counter any more.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: everything is handed on to the system's allocator as it is, but for blocks that are kept, each of which has one owner: it is
// handed out for the layout's size that it was freed with, at the alignment of every block of the system's. Nothing here allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        let mut pointer = std::ptr::null_mut();
        let fits = |block: &Block| block.size == layout.size();
        if kept(layout, fits, |block| pointer = std::mem::replace(block, NONE).pointer) {
            return pointer;
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        if kept(layout, |block| block.size == 0, |block| *block = Block { size: layout.size(), pointer }) {
            return;
        }
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_kept_by_threads_that_ask_for_it_and_handed_out_for_their_size() {
        std::thread::spawn(|| {
            let layout = |size| Layout::from_size_align(size, 8).unwrap();
            let (take, give) = (
                |size| unsafe { ALLOCATOR.alloc(layout(size)) },
                |pointer, size| unsafe { ALLOCATOR.dealloc(pointer, layout(size)) },
            );
            keep_blocks();
            let before = held();
            let all: Vec<_> = (0..2 * BLOCKS).map(|_| take(1792)).collect();
            all.iter().for_each(|&pointer| give(pointer, 1792));
            let other = take(1800);
            assert!(!all[..BLOCKS].contains(&other));
            let again: Vec<_> = (0..BLOCKS).map(|_| take(1792)).collect();
            for (i, pointer) in again.iter().enumerate() {
                assert!(all[..BLOCKS].contains(pointer) && !again[..i].contains(pointer));
            }
            let fresh = take(1792); // none is left
            assert!(!again.contains(&fresh));
            again.into_iter().chain([fresh]).for_each(|pointer| give(pointer, 1792));
            give(other, 1800);
            assert_eq!(held() - before, (all.capacity() * size_of::<*mut u8>()) as isize);
        })
        .join()
        .unwrap();
    }
}
