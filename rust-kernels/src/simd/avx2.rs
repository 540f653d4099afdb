//! Vectors for AVX2 with FMA and F16C: eight lanes. They use `vpdpbusd` if the CPU has AVX-VNNI.
use super::avx2_bytes::{MAGNITUDES, four};
use super::{Ahead, BIAS_BITS, Pace, Simd, x86};
#[cfg(not(miri))]
use super::{RegisterTile, avx2_tile};
use std::arch::x86_64::*;

/// Token for AVX2. VNNI: whether the CPU has AVX-VNNI too.
#[derive(Clone, Copy)]
pub struct Avx2<const VNNI: bool>(pub(super) ());

// CPUs with AVX-512 encode the same instructions differently. `--cfg vnni_evex` lets CPUs without AVX-VNNI run the
// tests.
#[cfg(not(vnni_evex))]
use std::arch::x86_64::{_mm256_dpbusd_avx_epi32 as dpbusd, _mm256_dpwssd_avx_epi32 as dpwssd};
#[cfg(vnni_evex)]
use std::arch::x86_64::{_mm256_dpbusd_epi32 as dpbusd, _mm256_dpwssd_epi32 as dpwssd};

type F = __m256;
type I = __m256i;
type B = __m256i;

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    const LANES: usize = 8;
    const TILE: usize = 4;
    // Two panels, because the four sums of one panel would not hide the latency of `vpdpbusd`. Without VNNI, each panel
    // would load the activations again.
    const PANELS: usize = 2;
    const FLOAT_PANELS: usize = 2;
    const WIDE_TOKENS: usize = if VNNI { 17 } else { 13 };
    const WIDE_TOKENS_SLOW: usize = 5;
    const WIDE_TOKENS_BYTES: usize = if VNNI { Self::WIDE_TOKENS } else { 8 };
    const WIDE_BIAS: i32 = if VNNI { 128 } else { 0 };
    const BYTES_AS_STORED: bool = VNNI;
    const PAIRS_TOGETHER: bool = true;
    const PAIR_ROWS: usize = 4;
    // A cache line is two vectors. If a kernel reads two streams of half lines, a Zen 3 waits for both
    // (docs/lab/2026-11.md, "AVX2 without VNNI").
    const PAIRS_IN_ORDER: usize = 4;
    type F = F;
    type I = I;
    type B = B;
    one_register! {}

    wrappers! {
        fn splat(self, x: f32) -> F = _mm256_set1_ps(x);
        unsafe fn load(self, p: *const f32) -> F = _mm256_loadu_ps(p);
        unsafe fn store(self, p: *mut f32, v: F) = _mm256_storeu_ps(p, v);
        fn add(self, a: F, b: F) -> F = _mm256_add_ps(a, b);
        fn sub(self, a: F, b: F) -> F = _mm256_sub_ps(a, b);
        fn mul(self, a: F, b: F) -> F = _mm256_mul_ps(a, b);
        fn div(self, a: F, b: F) -> F = _mm256_div_ps(a, b);
        fn fma(self, a: F, b: F, c: F) -> F = _mm256_fmadd_ps(a, b, c);
        fn fnma(self, a: F, b: F, c: F) -> F = _mm256_fnmadd_ps(a, b, c);
        fn max(self, a: F, b: F) -> F = _mm256_max_ps(a, b);
        fn min(self, a: F, b: F) -> F = _mm256_min_ps(a, b);
        fn abs(self, a: F) -> F = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        fn round(self, a: F) -> F = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        fn zero_below(self, x: F, limit: F, y: F) -> F = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(x, limit), y);
        unsafe fn load_f16(self, p: *const u16) -> F = _mm256_cvtph_ps(_mm_loadu_si128(p.cast()));
        unsafe fn store_f16(self, p: *mut u16, v: F) =
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        unsafe fn load_bf16(self, p: *const u16) -> F =
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()))));
        unsafe fn load_u8(self, p: *const u8) -> F =
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
        unsafe fn load_i8(self, p: *const i8) -> F =
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
        fn i_splat(self, x: i32) -> I = _mm256_set1_epi32(x);
        fn i_add(self, a: I, b: I) -> I = _mm256_add_epi32(a, b);
        fn i_to_f(self, a: I) -> F = _mm256_cvtepi32_ps(a);
        fn i_as_f(self, a: I) -> F = _mm256_castsi256_ps(a);
        fn prefetch(self, p: *const u8) = x86::prefetch(p);
        fn prefetch_l2(self, p: *const u8) = x86::prefetch_l2(p);
        fn prefetch_write(self, p: *const u8) = x86::prefetch_write(p);
        unsafe fn b_load(self, p: *const u8) -> B = _mm256_loadu_si256(p.cast());
        unsafe fn b_store(self, p: *mut u8, v: B) = _mm256_storeu_si256(p.cast(), v);
        fn b_and(self, a: B, mask: u8) -> B = _mm256_and_si256(a, _mm256_set1_epi8(mask as i8));
        fn b_or(self, a: B, b: B) -> B = _mm256_or_si256(a, b);
        fn b_shr(self, a: B, n: u32) -> B = _mm256_srl_epi16(a, _mm_cvtsi32_si128(n as i32));
        fn b_shl(self, a: B, n: u32) -> B = _mm256_sll_epi16(a, _mm_cvtsi32_si128(n as i32));
        fn b_lookup(self, table: &[u8; 16], index: B) -> B =
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), index);
        fn b_triple(self, a: B) -> B = _mm256_add_epi8(_mm256_add_epi8(a, a), a);
        fn b_and32(self, a: B, mask: u32) -> B = _mm256_and_si256(a, _mm256_set1_epi32(mask as i32));
        fn b_shr32(self, a: B, n: u32) -> B = _mm256_srl_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn b_shl32(self, a: B, n: u32) -> B = _mm256_sll_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn b_to_f(self, a: B) -> F = _mm256_cvtepi32_ps(a);
    }

    #[inline(always)]
    fn pow2(self, n: Self::F) -> Self::F {
        unsafe {
            let e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(e))
        }
    }

    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        unsafe {
            let x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
    }

    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        unsafe {
            let x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        }
    }

    /// Shifts the byte into a float's exponent, which gives twice the result. Byte 0 needs the maximum with 2^-127.
    #[inline(always)]
    unsafe fn load_e8m0_half(self, p: *const u8) -> Self::F {
        unsafe {
            let exponents = _mm256_slli_epi32::<23>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
            let doubled = _mm256_max_epu32(exponents, _mm256_set1_epi32(0x0040_0000)); // 2^-127
            _mm256_mul_ps(_mm256_castsi256_ps(doubled), _mm256_set1_ps(0.5))
        }
    }

    /// Reads E4M3's bits as half floats. They are too small by 2^8, the difference of the exponent biases. So a factor
    /// of 2^7 gives half of the value.
    #[inline(always)]
    unsafe fn load_e4m3_half(self, p: *const u8) -> Self::F {
        unsafe {
            let halves = _mm_slli_epi16::<7>(_mm_cvtepu8_epi16(_mm_loadl_epi64(p.cast())));
            _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(128.0))
        }
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::F) -> Self::I {
        unsafe {
            let q = _mm256_cvtps_epi32(v);
            let words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256::<1>(q));
            _mm_storel_epi64(p.cast(), _mm_packs_epi16(words, words));
            q
        }
    }

    #[inline(always)]
    unsafe fn store_i16(self, p: *mut i16, v: Self::F) {
        unsafe {
            let q = _mm256_cvtps_epi32(v);
            _mm_storeu_si128(p.cast(), _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256::<1>(q)));
        }
    }

    #[inline(always)]
    unsafe fn store_pairs(self, p: *mut i16, a: Self::F, b: Self::F) {
        unsafe {
            let (a, b) = (_mm256_cvtps_epi32(a), _mm256_slli_epi32::<16>(_mm256_cvtps_epi32(b)));
            _mm256_storeu_si256(p.cast(), _mm256_blend_epi16::<0xaa>(a, b));
        }
    }

    #[inline(always)]
    fn i_sum(self, a: Self::I) -> i32 {
        unsafe {
            let x = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b00_00_11_10>(x));
            _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32::<1>(x)))
        }
    }

    /// With VNNI, each group of four columns is multiplied for the whole tile before the next group. Its P * N sums are
    /// independent, which hides latency, and each load serves P or N products. Without VNNI, a panel's codes stay in
    /// registers for all tokens.
    #[inline(always)]
    unsafe fn dot16_tile<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        unsafe {
            if !VNNI {
                for j in 0..P {
                    let vector = |g: usize| self.b_load(w.add(j * panel + 32 * g));
                    let w = [vector(0), vector(1), vector(2), vector(3)];
                    self.rows::<BITS, N>(&mut acc[j], &w, x);
                }
                return;
            }
            for g in 0..4 {
                let mut codes = [_mm256_setzero_si256(); P];
                for j in 0..P {
                    codes[j] = self.b_load(w.add(j * panel + 32 * g));
                }
                for i in 0..N {
                    let x = four(x.add(32 * i + 4 * g));
                    for j in 0..P {
                        acc[j][i] = dpbusd(acc[j][i], codes[j], x);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn unit_code_bytes<const BITS: u32>() -> usize {
        if BITS == 8 && !VNNI { 2 * MAGNITUDES } else { 16 * 8 }
    }

    const FIRST_SUMS: bool = !VNNI;

    #[inline(always)]
    unsafe fn put_first_sums(self, to: *mut f32, codes: [Self::B; 8]) {
        let sums = self.i_add(self.i_splat(BIAS_BITS), Self::negative_magnitudes(codes));
        unsafe { self.store(to, self.i_as_f(sums)) }
    }

    #[inline(always)]
    unsafe fn first_sums(self, from: *const f32) -> Self::I {
        unsafe { self.b_load(from.cast()) }
    }

    /// Without VNNI, stores the magnitudes of 8-bit codes, then their signs.
    #[inline(always)]
    unsafe fn put_codes<const BITS: u32>(self, to: *mut u8, g: usize, codes: Self::B) {
        unsafe {
            if VNNI || BITS < 8 {
                return self.b_store(to.add(32 * g), codes);
            }
            let [magnitudes, signed] = Self::magnitudes(codes);
            self.b_store(to.add(32 * g), magnitudes);
            self.b_store(to.add(MAGNITUDES + 32 * g), _mm256_cmpgt_epi8(_mm256_setzero_si256(), signed));
        }
    }

    #[inline(always)]
    unsafe fn dot16_rows<const BITS: u32, const N: usize>(
        self,
        acc: &mut [Self::I; N],
        w: [Self::B; 4],
        x: *const i8,
        ahead: Ahead,
    ) {
        ahead.prefetch::<Self, 1>(self, 0, 1);
        unsafe {
            if !VNNI {
                return self.rows::<BITS, N>(acc, &w, x);
            }
            for i in 0..N {
                acc[i] = self.dot16::<BITS>(acc[i], w, x.add(32 * i));
            }
        }
    }

    #[inline(always)]
    unsafe fn dot32_rows<const BITS: u32, const N: usize>(
        self,
        acc: &mut [Self::I; N],
        w: [Self::B; 8],
        x: *const i8,
        ahead: Ahead,
    ) {
        let [a, b, c, d, e, f, g, h] = w;
        unsafe {
            if !VNNI {
                ahead.prefetch::<Self, 1>(self, 0, 1);
                return self.rows::<BITS, N>(acc, &w, x);
            }
            self.dot16_rows::<BITS, N>(acc, [a, b, c, d], x, ahead.part(0, 2));
            self.dot16_rows::<BITS, N>(acc, [e, f, g, h], x.add(16), ahead.part(1, 2));
        }
    }

    #[inline(always)]
    unsafe fn dot16_unit<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        unsafe {
            if VNNI {
                self.dot16_tile::<BITS, P, N>(acc, w, panel, x)
            } else {
                self.products::<BITS, P, N>(acc, w, panel, x, 4)
            }
        }
    }

    /// Without VNNI, the products of 4-bit codes of the whole block are summed in 16 bits.
    #[inline(always)]
    unsafe fn dot32_unit<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
        next: &mut Pace,
    ) {
        unsafe {
            next.step::<Self, P>(self);
            #[cfg(not(miri))]
            if !VNNI && BITS <= 4 && P == 2 && N == 4 {
                return self.pairs(acc, w, panel, x);
            }
            if !VNNI && BITS < 8 {
                next.step::<Self, P>(self);
                return self.products::<BITS, P, N>(acc, w, panel, x, 8);
            }
            self.dot16_unit::<BITS, P, N>(acc, w, panel, x);
            next.step::<Self, P>(self);
            self.dot16_unit::<BITS, P, N>(acc, w.add(Self::unit_code_bytes::<BITS>()), panel, x.add(16));
        }
    }

    #[cfg(not(miri))]
    const ADDS_TILES: bool = !VNNI;

    #[cfg(not(miri))]
    #[inline(always)]
    unsafe fn add_tile(self, bits: u32, has_min: bool, tile: RegisterTile, sums: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { avx2_tile::add_tile(bits, has_min, tile, sums) }
    }

    #[cfg(not(miri))]
    #[inline(always)]
    unsafe fn add_row_block(self, codes: [Self::B; 8], tile: RegisterTile, sums: *mut f32) {
        // SAFETY: guaranteed by the caller.
        unsafe { avx2_tile::add_row_block(codes, tile, sums) }
    }

    #[inline(always)]
    unsafe fn dot_pair(self, acc: Self::I, w: Self::B, x: *const i16) -> Self::I {
        unsafe {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            if VNNI { dpwssd(acc, w, x) } else { _mm256_add_epi32(acc, _mm256_madd_epi16(w, x)) }
        }
    }

    /// A pair of products is at most 2 * 127 * 127, which fits in 16 bits.
    #[inline(always)]
    unsafe fn dot16_signed(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        unsafe {
            let (x, mut sum) = (x.cast::<i32>(), acc);
            for (g, codes) in w.into_iter().enumerate() {
                let x = _mm256_set1_epi32(x.add(g).read_unaligned());
                if VNNI {
                    sum = dpbusd(sum, x, codes);
                } else {
                    let pairs = _mm256_maddubs_epi16(x, codes);
                    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
                }
            }
            sum
        }
    }

    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        unsafe {
            if VNNI {
                let acc = dpbusd(acc, w[0], four(x));
                let acc = dpbusd(acc, w[1], four(x.add(4)));
                let acc = dpbusd(acc, w[2], four(x.add(8)));
                return dpbusd(acc, w[3], four(x.add(12)));
            }
            let mut sums = [acc];
            self.rows::<BITS, 1>(&mut sums, &w, x);
            sums[0]
        }
    }

    #[inline(always)]
    fn b_mirror(self, a: Self::B, signs: Self::B, bit: u8, c: u8) -> Self::B {
        unsafe {
            let bit = _mm256_set1_epi8(bit as i8);
            let negative = _mm256_cmpeq_epi8(_mm256_and_si256(signs, bit), bit);
            _mm256_blendv_epi8(a, _mm256_sub_epi8(_mm256_set1_epi8(c as i8), a), negative)
        }
    }

    /// Averaging twice gives 3/4 of a number, rounded up. So it is applied to a - 1.
    #[inline(always)]
    fn b_thirds(self, a: Self::B) -> Self::B {
        unsafe {
            let a = _mm256_subs_epu8(a, _mm256_set1_epi8(1));
            let quarters = _mm256_avg_epu8(a, _mm256_avg_epu8(a, _mm256_setzero_si256()));
            _mm256_and_si256(_mm256_srli_epi16::<6>(quarters), _mm256_set1_epi8(3))
        }
    }

    #[inline(always)]
    fn b_pairs<const HIGH: bool>(self, a: Self::B) -> Self::B {
        unsafe {
            let first = _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13);
            let bytes = _mm_add_epi8(first, _mm_set1_epi8(if HIGH { 2 } else { 0 }));
            _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(bytes))
        }
    }
}
