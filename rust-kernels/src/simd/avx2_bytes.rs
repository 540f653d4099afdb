//! Byte products for CPUs with AVX2 but without a byte dot product. `maddubs` multiplies bytes and adds pairs of
//! products in 16 bits, with saturation. If codes are narrow, more products are summed in 16 bits before the sums in 32
//! bits. A tile of two panels by four tokens fits in sixteen registers.
use super::Simd;
use super::avx2::Avx2;
#[cfg(not(miri))]
use super::avx2_tile::pair_sums;
#[cfg(not(miri))]
use std::arch::asm;
use std::arch::x86_64::*;

/// Size in bytes of the magnitudes of 16 columns of 8-bit codes. Their signs follow: -1 for negative codes, else 0.
pub(super) const MAGNITUDES: usize = 16 * 8;

impl<const VNNI: bool> Avx2<VNNI> {
    /// Returns the number of column groups (four columns each) whose pairs of products may be summed in 16 bits. A pair
    /// is at most 2 * (2^BITS - 1) * 127, and 16-bit sums must not overflow.
    const fn groups(bits: u32) -> usize {
        match bits {
            0..=4 => 8,
            5 => 4,
            6 => 2,
            _ => 1,
        }
    }

    /// Multiplies groups of four columns by N tokens and adds the products to `acc`. The codes are in registers.
    ///
    /// # Safety
    /// As `dot16_rows`, for `w.len()` groups.
    #[inline(always)]
    pub(super) unsafe fn rows<const BITS: u32, const N: usize>(
        self,
        acc: &mut [__m256i; N],
        w: &[__m256i],
        x: *const i8,
    ) {
        unsafe {
            let ones = _mm256_set1_epi16(1);
            for (run, w) in w.chunks(Self::groups(BITS)).enumerate() {
                let mut sums = [_mm256_setzero_si256(); N];
                for (g, codes) in w.iter().enumerate() {
                    let x = x.add(4 * (run * Self::groups(BITS) + g));
                    let [codes, signed] = if BITS < 8 { [*codes; 2] } else { Self::magnitudes(*codes) };
                    for i in 0..N {
                        let x = four(x.add(32 * i));
                        // The products of 8-bit codes are the magnitudes times x with the codes' signs. A pair is at
                        // most 128 * 127 * 2 and fits.
                        let x = if BITS < 8 { x } else { _mm256_sign_epi8(x, signed) };
                        let pairs = _mm256_maddubs_epi16(codes, x);
                        sums[i] = if g == 0 { pairs } else { in_order(_mm256_add_epi16(sums[i], pairs)) };
                    }
                }
                for i in 0..N {
                    acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(sums[i], ones));
                }
            }
        }
    }

    /// Returns the magnitudes of 8-bit codes, and the signed codes.
    #[inline(always)]
    pub(super) fn magnitudes(codes: __m256i) -> [__m256i; 2] {
        unsafe {
            let signed = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
            [_mm256_abs_epi8(signed), signed]
        }
    }

    /// Returns the sum of the magnitudes of a block's negative codes, per lane.
    #[inline(always)]
    pub(super) fn negative_magnitudes(codes: [__m256i; 8]) -> __m256i {
        unsafe {
            let mut pairs = _mm256_setzero_si256();
            for codes in codes {
                let magnitudes = _mm256_subs_epu8(_mm256_set1_epi8(-128), codes); // 0 for codes from 128 on
                pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(magnitudes, _mm256_set1_epi8(1)));
            }
            _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
        }
    }

    /// Multiplies `groups` groups of four columns of P panels by N tokens, one group after the other, and adds the
    /// products to `acc`. Codes are loaded once for all tokens, activations once for all panels.
    ///
    /// 8-bit codes are magnitudes. Where the code is negative, x is not negated, but its bits are inverted, which gives
    /// -x - 1 and runs on more of the core's units. So the sums lack the magnitudes of negative codes (`first_sums`).
    ///
    /// # Safety
    /// As `dot16_unit`, for `groups` groups.
    #[inline(always)]
    pub(super) unsafe fn products<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[__m256i; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
        groups: usize,
    ) {
        let run = groups.min(Self::groups(BITS));
        unsafe {
            let ones = _mm256_set1_epi16(1);
            for first in (0..groups).step_by(run) {
                let mut sums = [[_mm256_setzero_si256(); N]; P];
                for g in first..first + run {
                    let (mut codes, mut signs) = ([_mm256_setzero_si256(); P], [_mm256_setzero_si256(); P]);
                    for j in 0..P {
                        codes[j] = self.b_load(w.add(j * panel + 32 * g));
                        if BITS == 8 {
                            signs[j] = self.b_load(w.add(j * panel + MAGNITUDES + 32 * g));
                        }
                    }
                    for i in 0..N {
                        let x = four(x.add(32 * i + 4 * g));
                        for j in 0..P {
                            let x = if BITS < 8 { x } else { _mm256_xor_si256(x, signs[j]) };
                            let pairs = _mm256_maddubs_epi16(codes[j], x);
                            sums[j][i] = in_order(_mm256_add_epi16(sums[j][i], pairs));
                        }
                    }
                }
                for i in 0..N {
                    for j in 0..P {
                        acc[j][i] = _mm256_add_epi32(acc[j][i], _mm256_madd_epi16(sums[j][i], ones));
                    }
                }
            }
        }
    }

    /// Like `products`, for a whole block of two panels and four tokens. Sums the products in 16 bits.
    ///
    /// # Safety
    /// As `products`.
    #[cfg(not(miri))]
    #[inline(always)]
    pub(super) unsafe fn pairs<const P: usize, const N: usize>(
        self,
        acc: &mut [[__m256i; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        unsafe {
            let sums = pair_sums([w, w.add(panel)], x);
            for j in 0..P {
                for i in 0..N {
                    acc[j][i] = _mm256_add_epi32(acc[j][i], _mm256_madd_epi16(sums[j][i], _mm256_set1_epi16(1)));
                }
            }
        }
    }
}

/// Broadcasts four activations to all lanes.
///
/// # Safety
/// `x` points at four readable bytes.
#[inline(always)]
pub(super) unsafe fn four(x: *const i8) -> __m256i {
    unsafe { _mm256_set1_epi32(x.cast::<i32>().read_unaligned()) }
}

/// Returns `v`, and keeps the compiler from moving its computation. Otherwise the compiler reorders products and sums
/// and needs more vectors at once than there are registers.
#[target_feature(enable = "avx")]
#[inline]
#[cfg_attr(miri, allow(unused_mut))]
fn in_order(mut v: __m256i) -> __m256i {
    // Miri does not support assembly.
    #[cfg(not(miri))]
    // SAFETY: the assembly has no instruction.
    unsafe {
        asm!("/* {0} */", inout(ymm_reg) v, options(nomem, nostack, preserves_flags))
    }
    v
}
