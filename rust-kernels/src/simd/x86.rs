//! Functions that all x86 instruction sets share: cache hints and a CPU check.
use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Whether the core has a first-level cache of 48 KB. Cores with AVX-VNNI beside AVX-512 have one: Zen 5, and servers
/// with AMX.
pub fn has_large_l1() -> bool {
    is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avxvnni")
}

/// Implements `Simd::prefetch`.
#[inline(always)]
pub fn prefetch(p: *const u8) {
    // SAFETY: this is only a hint, and its address may be invalid.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
}

/// Implements `Simd::prefetch_l2`.
#[inline(always)]
pub fn prefetch_l2(p: *const u8) {
    // SAFETY: this is only a hint, and its address may be invalid.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
}

/// Implements `Simd::prefetch_write`.
#[inline(always)]
pub fn prefetch_write(p: *const u8) {
    // SAFETY: this is only a hint, and its address may be invalid. The intrinsic would prefetch for reading, unless a
    // feature that few CPUs report is enabled.
    unsafe { asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags)) }
}
