//! Large zeroed memory that becomes resident as it is touched.
use crate::error::{Error, Result};

/// What a region is made of, where the system has a choice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// For what is read from end to end in every step, or as rows that are pages apart.
    Huge,
    /// For what is touched here and there: a huge page would become resident as a whole.
    Small,
}

/// Lets the system have what the allocator keeps of memory that was freed. What a model leaves behind in pieces would else stay
/// resident: the next one seldom fits into it.
pub fn trim() {
    // SAFETY: the allocator may be asked for it at any time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Blocks of more than this are mapped one by one: larger than what loading reads a piece into, which comes and goes all the time,
/// and smaller than the tables of a large vocabulary.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: i32 = (1 << 20) + (1 << 16);

/// From now on large blocks, JavaScript's too, go back to the system as they are freed. By itself glibc maps them only until the
/// first of their size is freed, then takes them from its heaps; and V8 frees what a closed model had long after `trim`.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: plain settings, which the allocator takes at any time.
        ONCE.call_once(|| unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
            // Fixed by the first as well, at so little that a piece at a heap's end would be mapped anew each time.
            libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * MAPPED_BYTES);
        });
    }
}

pub struct Region {
    base: *mut u8,
    len: usize,
}

// SAFETY: plain memory; who writes where is settled by the executor's barriers.
unsafe impl Send for Region {}
unsafe impl Sync for Region {}

/// Bytes of a page of WebAssembly's memory.
#[cfg(target_arch = "wasm32")]
const PAGE: usize = 1 << 16;

#[cfg(target_arch = "wasm32")]
impl Region {
    /// Fresh pages, which are zero; they go back with the whole memory, which lives as long as its one model.
    ///
    /// # Errors
    /// Where the memory may not grow as far.
    pub fn new(len: usize, _: Pages, what: &str) -> Result<Self> {
        let before = std::arch::wasm32::memory_grow::<0>(len.div_ceil(PAGE));
        if before == usize::MAX {
            return Err(Error::new(format!("Cannot reserve {len} bytes for {what}: the memory may not grow as far")));
        }
        Ok(Self { base: (before * PAGE) as *mut u8, len })
    }
}

#[cfg(unix)]
impl Region {
    /// # Errors
    /// Where the system has no such amount of address space.
    pub fn new(len: usize, pages: Pages, what: &str) -> Result<Self> {
        if len == 0 {
            return Ok(Self { base: std::ptr::dangling_mut::<u128>().cast(), len });
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh private mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            let why = std::io::Error::last_os_error();
            return Err(Error::new(format!("Cannot reserve {len} bytes for {what}: {why}")));
        }
        #[cfg(target_os = "linux")]
        if pages == Pages::Huge {
            // SAFETY: the mapping is ours; the call is advice.
            unsafe { libc::madvise(base, len, libc::MADV_HUGEPAGE) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = pages;
        Ok(Self { base: base.cast(), len })
    }
}

impl Region {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// # Panics
    /// Where `offset` is past the end.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        // SAFETY: within the region or one past it.
        unsafe { self.base.add(offset) }
    }
}

#[cfg(unix)]
impl Drop for Region {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping was made in `new` and nothing borrows from it any more.
            unsafe { libc::munmap(self.base.cast(), self.len) };
        }
    }
}
