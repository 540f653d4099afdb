//! Large zeroed memory that becomes resident on first use.
use crate::error::{Error, Result};

/// The page size of a region, if the system offers a choice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// For memory read from end to end in every step, or in rows that are pages apart.
    Huge,
    /// For memory used in places: a huge page would become resident as a whole.
    Small,
}

/// Returns the allocator's free memory to the system. Otherwise the fragments of a freed model stay resident, because
/// the next model seldom fits into them.
pub fn trim() {
    // SAFETY: the allocator accepts this call at any time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Blocks above this size are mapped one by one. It is above the size of read buffers, which are allocated and freed
/// constantly, and below the tables of a large vocabulary.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: i32 = (1 << 20) + (1 << 16);

/// Makes freed large blocks, JavaScript's included, go back to the system. By default glibc stops mapping blocks of a
/// size once the first is freed, and takes them from its heaps. V8 frees the memory of a closed model long after
/// `trim`.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // SAFETY: plain settings, which the allocator accepts at any time.
        ONCE.call_once(|| unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
            // The first setting also fixes this one. Its value is so low that a read buffer at a heap's end would be
            // mapped anew each time.
            libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * MAPPED_BYTES);
        });
    }
}

pub struct Region {
    base: *mut u8,
    len: usize,
}

// SAFETY: plain memory; the executor's barriers order all accesses.
unsafe impl Send for Region {}
unsafe impl Sync for Region {}

/// Bytes of a WebAssembly page.
#[cfg(target_arch = "wasm32")]
const PAGE: usize = 1 << 16;

#[cfg(target_arch = "wasm32")]
impl Region {
    /// Allocates fresh pages, which are zero. They are freed with the whole memory, which lives as long as its one
    /// model.
    ///
    /// # Errors
    /// The memory may not grow that far.
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
    /// The system cannot reserve that much address space.
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
    /// If `offset` is past the end.
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
            // SAFETY: `new` made the mapping, and nothing borrows from it any more.
            unsafe { libc::munmap(self.base.cast(), self.len) };
        }
    }
}
