//! Vectors for AVX-512 (F, BW, VL, DQ): sixteen lanes. They use `vpdpbusd` if the CPU has VNNI.
use super::{Ahead, Simd, x86};
use std::arch::x86_64::*;

/// Token for AVX-512. VNNI: whether the CPU has VNNI too.
#[derive(Clone, Copy)]
pub struct Avx512<const VNNI: bool>(pub(super) ());

/// Unsigned codes of four columns per lane for `vpmaddubsw`, and which of them are negative. The activations take over
/// the signs.
#[derive(Clone, Copy)]
struct Codes {
    magnitudes: __m512i,
    negative: __mmask64,
}

type F = __m512;
type I = __m512i;
type B = __m512i;

impl<const VNNI: bool> Avx512<VNNI> {
    /// Splits codes into magnitudes and signs. An 8-bit code stands for code - 128; narrower codes are unsigned.
    ///
    /// # Safety
    /// As `Simd`; the same holds for the functions below.
    #[inline(always)]
    unsafe fn codes<const BITS: u32>(w: __m512i) -> Codes {
        unsafe {
            if BITS < 8 {
                return Codes { magnitudes: w, negative: 0 };
            }
            let signed = _mm512_xor_si512(w, _mm512_set1_epi8(-128));
            Codes { magnitudes: _mm512_abs_epi8(signed), negative: _mm512_movepi8_mask(signed) }
        }
    }

    /// Multiplies four codes by four activations per lane and sums pairs of products in 16 bits: at most 128 * 127 * 2.
    #[inline(always)]
    unsafe fn pairs<const BITS: u32>(w: Codes, x: __m512i) -> __m512i {
        unsafe {
            if BITS < 8 {
                return _mm512_maddubs_epi16(w.magnitudes, x);
            }
            let x = _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x);
            _mm512_maddubs_epi16(w.magnitudes, x)
        }
    }

    /// Adds the products of 16 columns to `acc`. A pair of products is at most 2 * (2^BITS - 1) * 127, and 16-bit sums
    /// must not overflow. So it sums four pairs in 16 bits for codes of up to 5 bits, two pairs for 6 bits, and one
    /// pair for more bits.
    #[inline(always)]
    unsafe fn add_pairs<const BITS: u32>(acc: __m512i, w: [Codes; 4], x: [__m512i; 4]) -> __m512i {
        unsafe {
            let [a, b, c, d] = [
                Self::pairs::<BITS>(w[0], x[0]),
                Self::pairs::<BITS>(w[1], x[1]),
                Self::pairs::<BITS>(w[2], x[2]),
                Self::pairs::<BITS>(w[3], x[3]),
            ];
            let ones = _mm512_set1_epi16(1);
            if BITS <= 5 {
                let all = _mm512_add_epi16(_mm512_add_epi16(a, b), _mm512_add_epi16(c, d));
                return _mm512_add_epi32(acc, _mm512_madd_epi16(all, ones));
            }
            if BITS == 6 {
                let low = _mm512_madd_epi16(_mm512_add_epi16(a, b), ones);
                let high = _mm512_madd_epi16(_mm512_add_epi16(c, d), ones);
                return _mm512_add_epi32(acc, _mm512_add_epi32(low, high));
            }
            let low = _mm512_add_epi32(_mm512_madd_epi16(a, ones), _mm512_madd_epi16(b, ones));
            let high = _mm512_add_epi32(_mm512_madd_epi16(c, ones), _mm512_madd_epi16(d, ones));
            _mm512_add_epi32(acc, _mm512_add_epi32(low, high))
        }
    }

    /// Loads 16 activations. Vector g has activations 4g..4g+4 in every lane.
    #[inline(always)]
    unsafe fn activations(x: *const i8) -> [__m512i; 4] {
        unsafe {
            let x = x.cast::<i32>();
            [
                _mm512_set1_epi32(x.read_unaligned()),
                _mm512_set1_epi32(x.add(1).read_unaligned()),
                _mm512_set1_epi32(x.add(2).read_unaligned()),
                _mm512_set1_epi32(x.add(3).read_unaligned()),
            ]
        }
    }
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    const LANES: usize = 16;
    const TILE: usize = 16;
    const PANELS: usize = 3;
    const FLOAT_PANELS: usize = 4;
    // Without VNNI a product takes many registers. A tile of several panels would not fit in them.
    const WIDE_TOKENS: usize = if VNNI { 33 } else { usize::MAX };
    const WIDE_TOKENS_SLOW: usize = 17;
    const WIDE_BIAS: i32 = if VNNI { 128 } else { 0 };
    const PAIRS_TOGETHER: bool = true;
    const PAIR_ROWS: usize = 8;
    type F = F;
    type I = I;
    type B = B;
    one_register! {}

    wrappers! {
        fn splat(self, x: f32) -> F = _mm512_set1_ps(x);
        unsafe fn load(self, p: *const f32) -> F = _mm512_loadu_ps(p);
        unsafe fn store(self, p: *mut f32, v: F) = _mm512_storeu_ps(p, v);
        fn add(self, a: F, b: F) -> F = _mm512_add_ps(a, b);
        fn sub(self, a: F, b: F) -> F = _mm512_sub_ps(a, b);
        fn mul(self, a: F, b: F) -> F = _mm512_mul_ps(a, b);
        fn div(self, a: F, b: F) -> F = _mm512_div_ps(a, b);
        fn fma(self, a: F, b: F, c: F) -> F = _mm512_fmadd_ps(a, b, c);
        fn fnma(self, a: F, b: F, c: F) -> F = _mm512_fnmadd_ps(a, b, c);
        fn max(self, a: F, b: F) -> F = _mm512_max_ps(a, b);
        fn min(self, a: F, b: F) -> F = _mm512_min_ps(a, b);
        fn abs(self, a: F) -> F = _mm512_abs_ps(a);
        fn round(self, a: F) -> F = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        fn pow2(self, n: F) -> F = _mm512_scalef_ps(_mm512_set1_ps(1.0), n);
        fn zero_below(self, x: F, limit: F, y: F) -> F =
            _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, limit), y);
        fn sum(self, a: F) -> f32 = _mm512_reduce_add_ps(a);
        fn largest(self, a: F) -> f32 = _mm512_reduce_max_ps(a);
        unsafe fn load_f16(self, p: *const u16) -> F = _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()));
        unsafe fn store_f16(self, p: *mut u16, v: F) =
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v));
        unsafe fn load_bf16(self, p: *const u16) -> F =
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))));
        unsafe fn load_u8(self, p: *const u8) -> F =
            _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())));
        unsafe fn load_i8(self, p: *const i8) -> F =
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())));
        unsafe fn store_i16(self, p: *mut i16, v: F) =
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v)));
        fn i_splat(self, x: i32) -> I = _mm512_set1_epi32(x);
        fn i_add(self, a: I, b: I) -> I = _mm512_add_epi32(a, b);
        fn i_sum(self, a: I) -> i32 = _mm512_reduce_add_epi32(a);
        fn i_to_f(self, a: I) -> F = _mm512_cvtepi32_ps(a);
        fn i_as_f(self, a: I) -> F = _mm512_castsi512_ps(a);
        fn prefetch(self, p: *const u8) = x86::prefetch(p);
        fn prefetch_l2(self, p: *const u8) = x86::prefetch_l2(p);
        fn prefetch_write(self, p: *const u8) = x86::prefetch_write(p);
        unsafe fn b_load(self, p: *const u8) -> B = _mm512_loadu_si512(p.cast());
        unsafe fn b_store(self, p: *mut u8, v: B) = _mm512_storeu_si512(p.cast(), v);
        fn b_and(self, a: B, mask: u8) -> B = _mm512_and_si512(a, _mm512_set1_epi8(mask as i8));
        fn b_or(self, a: B, b: B) -> B = _mm512_or_si512(a, b);
        fn b_shr(self, a: B, n: u32) -> B = _mm512_srl_epi16(a, _mm_cvtsi32_si128(n as i32));
        fn b_shl(self, a: B, n: u32) -> B = _mm512_sll_epi16(a, _mm_cvtsi32_si128(n as i32));
        fn b_lookup(self, table: &[u8; 16], index: B) -> B =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), index);
        fn b_triple(self, a: B) -> B = _mm512_add_epi8(_mm512_add_epi8(a, a), a);
        fn b_and32(self, a: B, mask: u32) -> B = _mm512_and_si512(a, _mm512_set1_epi32(mask as i32));
        fn b_shr32(self, a: B, n: u32) -> B = _mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn b_shl32(self, a: B, n: u32) -> B = _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn b_to_f(self, a: B) -> F = _mm512_cvtepi32_ps(a);
    }

    #[inline(always)]
    unsafe fn load_e8m0_half(self, p: *const u8) -> Self::F {
        unsafe {
            let e = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
            let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
            let subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
            let small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
            _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, subnormal))
        }
    }

    /// Reads E4M3's bits as half floats. They are too small by 2^8, the difference of the exponent biases. So a factor
    /// of 2^7 gives half of the value.
    #[inline(always)]
    unsafe fn load_e4m3_half(self, p: *const u8) -> Self::F {
        unsafe {
            let halves = _mm256_slli_epi16::<7>(_mm256_cvtepu8_epi16(_mm_loadu_si128(p.cast())));
            _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(128.0))
        }
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::F) -> Self::I {
        unsafe {
            let q = _mm512_cvtps_epi32(v);
            _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(q));
            q
        }
    }

    #[inline(always)]
    unsafe fn store_pairs(self, p: *mut i16, a: Self::F, b: Self::F) {
        unsafe {
            let (a, b) = (_mm512_cvtps_epi32(a), _mm512_slli_epi32::<16>(_mm512_cvtps_epi32(b)));
            _mm512_storeu_si512(p.cast(), _mm512_mask_blend_epi16(0xaaaa_aaaa, a, b));
        }
    }

    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        unsafe {
            let x = Self::activations(x);
            if VNNI {
                let acc = _mm512_dpbusd_epi32(acc, w[0], x[0]);
                let acc = _mm512_dpbusd_epi32(acc, w[1], x[1]);
                let acc = _mm512_dpbusd_epi32(acc, w[2], x[2]);
                return _mm512_dpbusd_epi32(acc, w[3], x[3]);
            }
            let [a, b, c, d] = w;
            let w = [Self::codes::<BITS>(a), Self::codes::<BITS>(b), Self::codes::<BITS>(c), Self::codes::<BITS>(d)];
            Self::add_pairs::<BITS>(acc, w, x)
        }
    }

    #[inline(always)]
    unsafe fn dot16_signed(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        unsafe {
            let x = Self::activations(x);
            if VNNI {
                let acc = _mm512_dpbusd_epi32(acc, x[0], w[0]);
                let acc = _mm512_dpbusd_epi32(acc, x[1], w[1]);
                let acc = _mm512_dpbusd_epi32(acc, x[2], w[2]);
                return _mm512_dpbusd_epi32(acc, x[3], w[3]);
            }
            // A pair of products is at most 2 * 127 * 127, which fits in 16 bits.
            let ones = _mm512_set1_epi16(1);
            let mut sum = acc;
            for (x, w) in x.into_iter().zip(w) {
                sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(x, w), ones));
            }
            sum
        }
    }

    #[inline(always)]
    unsafe fn dot_pair(self, acc: Self::I, w: Self::B, x: *const i16) -> Self::I {
        unsafe {
            let x = _mm512_set1_epi32(x.cast::<i32>().read_unaligned());
            if VNNI { _mm512_dpwssd_epi32(acc, w, x) } else { _mm512_add_epi32(acc, _mm512_madd_epi16(w, x)) }
        }
    }

    /// With VNNI, each group of four columns is multiplied for all tokens before the next group. The tokens' sums are
    /// independent, which hides latency.
    #[inline(always)]
    unsafe fn dot16_rows<const BITS: u32, const N: usize>(
        self,
        acc: &mut [Self::I; N],
        w: [Self::B; 4],
        x: *const i8,
        ahead: Ahead,
    ) {
        unsafe {
            if !VNNI {
                ahead.prefetch::<Self, 1>(self, 0, 1);
                let [a, b, c, d] = w;
                let w =
                    [Self::codes::<BITS>(a), Self::codes::<BITS>(b), Self::codes::<BITS>(c), Self::codes::<BITS>(d)];
                for (i, acc) in acc.iter_mut().enumerate() {
                    *acc = Self::add_pairs::<BITS>(*acc, w, Self::activations(x.add(32 * i)));
                }
                return;
            }
            for (g, w) in w.into_iter().enumerate() {
                for (i, acc) in acc.iter_mut().enumerate() {
                    let x = x.add(32 * i + 4 * g).cast::<i32>().read_unaligned();
                    *acc = _mm512_dpbusd_epi32(*acc, w, _mm512_set1_epi32(x));
                }
                ahead.prefetch::<Self, 1>(self, g, 4);
            }
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
                    let vector = |g: usize| self.b_load(w.add(j * panel + 64 * g));
                    let w = [vector(0), vector(1), vector(2), vector(3)];
                    self.dot16_rows::<BITS, N>(&mut acc[j], w, x, Ahead::NOTHING);
                }
                return;
            }
            for g in 0..4 {
                let mut codes = [_mm512_setzero_si512(); P];
                for j in 0..P {
                    codes[j] = self.b_load(w.add(j * panel + 64 * g));
                }
                for i in 0..N {
                    let x = _mm512_set1_epi32(x.add(32 * i + 4 * g).cast::<i32>().read_unaligned());
                    for j in 0..P {
                        acc[j][i] = _mm512_dpbusd_epi32(acc[j][i], codes[j], x);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn b_mirror(self, a: Self::B, signs: Self::B, bit: u8, c: u8) -> Self::B {
        unsafe {
            let negative = _mm512_test_epi8_mask(signs, _mm512_set1_epi8(bit as i8));
            _mm512_mask_sub_epi8(a, negative, _mm512_set1_epi8(c as i8), a)
        }
    }

    /// Averaging twice gives 3/4 of a number, rounded up. So it is applied to a - 1.
    #[inline(always)]
    fn b_thirds(self, a: Self::B) -> Self::B {
        unsafe {
            let a = _mm512_subs_epu8(a, _mm512_set1_epi8(1));
            let quarters = _mm512_avg_epu8(a, _mm512_avg_epu8(a, _mm512_setzero_si512()));
            _mm512_and_si512(_mm512_srli_epi16::<6>(quarters), _mm512_set1_epi8(3))
        }
    }

    #[inline(always)]
    fn b_pairs<const HIGH: bool>(self, a: Self::B) -> Self::B {
        unsafe {
            let first = _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13);
            let bytes = _mm_add_epi8(first, _mm_set1_epi8(if HIGH { 2 } else { 0 }));
            _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(bytes))
        }
    }

    /// Looks up the low bits of each index in 128 entries of the table at a time. The higher bits of the index select
    /// which result to keep.
    #[inline(always)]
    fn b_lookup16<const N: usize>(self, table: &[u16; N], index: [Self::B; 2]) -> [Self::B; 2] {
        const { assert!(N >= 128 && N.is_power_of_two()) };
        unsafe {
            let half = _mm512_set1_epi16(64);
            let [x, y] = index;
            let (x_half, y_half) = (_mm512_test_epi16_mask(x, half), _mm512_test_epi16_mask(y, half));
            let (x_part, y_part) = (_mm512_srli_epi16::<7>(x), _mm512_srli_epi16::<7>(y));
            let (mut x_found, mut y_found) = (_mm512_setzero_si512(), _mm512_setzero_si512());
            for part in 0..N / 128 {
                let t: *const __m512i = table.as_ptr().add(128 * part).cast();
                let (a, b) = (_mm512_loadu_si512(t), _mm512_loadu_si512(t.add(1)));
                let (c, d) = (_mm512_loadu_si512(t.add(2)), _mm512_loadu_si512(t.add(3)));
                let (low, high) = (_mm512_permutex2var_epi16(a, x, b), _mm512_permutex2var_epi16(c, x, d));
                let x_here = _mm512_mask_blend_epi16(x_half, low, high);
                let (low, high) = (_mm512_permutex2var_epi16(a, y, b), _mm512_permutex2var_epi16(c, y, d));
                let y_here = _mm512_mask_blend_epi16(y_half, low, high);
                let number = _mm512_set1_epi16(part as i16);
                x_found = _mm512_mask_mov_epi16(x_found, _mm512_cmpeq_epi16_mask(x_part, number), x_here);
                y_found = _mm512_mask_mov_epi16(y_found, _mm512_cmpeq_epi16_mask(y_part, number), y_here);
            }
            [x_found, y_found]
        }
    }
}
