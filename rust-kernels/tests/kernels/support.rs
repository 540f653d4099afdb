//! Helpers of all kernel tests: random numbers, buffers that end at a guard page, case counts.
use compy::simd::Isa;
use std::ops::{Add, Mul, Sub};

/// Random numbers by SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number in 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 11) as usize % n
    }

    /// Returns a number in low..=high.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns a number in -1..1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Memory whose last byte precedes a guard page: an access past the end kills the test. Miri has no guard pages and
/// detects such accesses itself.
pub struct Guarded {
    base: *mut u8,
    /// Number of bytes before the guard page.
    size: usize,
    page: usize,
}

impl Guarded {
    #[cfg(miri)]
    pub fn new(capacity: usize) -> Self {
        let size = capacity.next_multiple_of(16).max(16);
        Self { base: Box::into_raw(vec![0u128; size / 16].into_boxed_slice()).cast(), size, page: 0 }
    }

    #[cfg(not(miri))]
    pub fn new(capacity: usize) -> Self {
        // SAFETY: the mapping is new and private. Its last page is protected before it is used.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let size = capacity.next_multiple_of(page).max(page);
            let (open, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
            let base = libc::mmap(std::ptr::null_mut(), size + page, open, private, -1, 0);
            assert_ne!(base, libc::MAP_FAILED, "mmap of {size} bytes failed");
            assert_eq!(libc::mprotect(base.add(size), page, libc::PROT_NONE), 0, "mprotect failed");
            Self { base: base.cast(), size, page }
        }
    }

    /// Returns the last `len` elements before the guard page. Every byte is 0xff: NaN as a float, -1 as an integer.
    pub fn tail<T: Copy>(&mut self, len: usize) -> &mut [T] {
        let bytes = len * size_of::<T>();
        if bytes > self.size {
            *self = Self::new(2 * bytes);
        }
        // SAFETY: the range is within the mapping and aligned, because pages are. T is a plain number.
        unsafe {
            let start = self.base.add(self.size - bytes);
            start.write_bytes(0xff, bytes);
            std::slice::from_raw_parts_mut(start.cast(), len)
        }
    }

    /// Copies `values` to memory that ends at the guard page.
    pub fn copy<T: Copy>(&mut self, values: &[T]) -> &mut [T] {
        let to = self.tail(values.len());
        to.copy_from_slice(values);
        to
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let all = self.size + self.page;
        // SAFETY: `new` made the mapping, and only this buffer uses it.
        unsafe {
            #[cfg(not(miri))]
            libc::munmap(self.base.cast(), all);
            #[cfg(miri)]
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.base.cast::<u128>(), all / 16)));
        }
    }
}

/// Returns the number of cases that this run makes: a percentage of `n`.
pub fn share(n: usize) -> usize {
    let wanted = std::env::var("KERNEL_CASES").ok().and_then(|percent| percent.parse().ok());
    let percent: usize = wanted.unwrap_or(if cfg!(debug_assertions) { 2 } else { 25 });
    (n * percent / 100).max(1)
}

/// Runs a test for every instruction set and prints the numbers of its cases.
pub fn on_every_isa(suite: &str, run: impl Fn(Isa) -> usize) {
    for isa in Isa::available() {
        println!("cases of {suite} on {}: {}", isa.name(), run(isa));
    }
}

/// The relative error of one rounded f32 operation: 2^-24.
pub const ROUNDING: f64 = 1.0 / (1 << 24) as f64;

/// Checks that |got - want| <= limit.
#[track_caller]
pub fn assert_near(got: f32, want: f64, limit: f64, what: impl Fn() -> String) {
    let off = (f64::from(got) - want).abs();
    assert!(off <= limit, "{}: got {got:e}, want {want:e}, off by {off:e}, allowed {limit:e}", what());
}

/// Checks that both slices have the same bits.
#[track_caller]
pub fn assert_same_bits(got: &[f32], want: &[f32], what: impl Fn() -> String) {
    assert_eq!(got.len(), want.len());
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{} at {i}: got {a:e}, want {b:e}", what());
    }
}

/// Rotates the pieces of a head as the 4-bit KV cache does, with the same roundings: the largest powers of two, at most
/// 512.
pub fn hadamard<T: Copy + From<f32> + Add<Output = T> + Sub<Output = T> + Mul<Output = T>>(mut x: &mut [T]) {
    while !x.is_empty() {
        let (piece, rest) = x.split_at_mut((1 << x.len().ilog2()).min(512));
        for stride in (0..piece.len().ilog2()).map(|stage| 1 << stage) {
            for i in (0..piece.len()).filter(|i| i & stride == 0) {
                let (a, b) = (piece[i], piece[i + stride]);
                (piece[i], piece[i + stride]) = (a + b, a - b);
            }
        }
        let length = T::from(1.0 / (piece.len() as f32).sqrt());
        piece.iter_mut().for_each(|x| *x = *x * length);
        x = rest;
    }
}
