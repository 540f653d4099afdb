//! Vectors for the low or the high half of WebAssembly's eight lanes: four lanes in one register. Data in memory has
//! the layout of all eight lanes.
use super::wasm::{Constants, Wasm};
use super::{Ahead, Simd};
use crate::half::f32_to_f16;
use crate::kernels::gemm::opaque;
use std::arch::wasm32::*;

/// Number of lanes of a half.
const N: usize = 4;

/// `dot16_unsigned` does not subtract the offset of 8-bit codes. Its result has this offset for each code.
pub const BIAS_OF_BYTES: i32 = 128;

/// Token for half of WebAssembly's vectors. H: 0 for the low half, 1 for the high half.
#[derive(Clone, Copy)]
pub struct Half<const H: usize>(pub(super) Constants);

/// Converts eight half floats to floats, including infinities and NaN. It joins the upper and the lower bits of each
/// float. The exponent is then too small by the difference of the biases, which a factor corrects. The largest exponent
/// of halves becomes the largest of floats.
#[inline(always)]
fn widen_f16(c: &Constants, h: v128) -> [v128; 2] {
    let infinite = i16x8_eq(v128_and(h, c.infinite), c.infinite);
    let high = v128_or(v128_and(i16x8_shr(h, 3), c.half), v128_and(infinite, c.exponent));
    widen_bits(h, high).map(|w| f32x4_mul(w, c.rescale))
}

/// Joins the bits of eight half floats to floats without correcting the exponent. `high` has the upper 16 bits.
#[inline(always)]
pub fn widen_bits(h: v128, high: v128) -> [v128; 2] {
    let low = i16x8_shl(h, 13);
    [i16x8_shuffle::<0, 8, 1, 9, 2, 10, 3, 11>(low, high), i16x8_shuffle::<4, 12, 5, 13, 6, 14, 7, 15>(low, high)]
}

/// Multiplies codes (7 bits, unsigned) by activations and sums pairs of products, which fit in 16 bits.
#[inline(always)]
fn pairs(codes: v128, x: v128) -> v128 {
    i16x8_relaxed_dot_i8x16_i7x16(x, codes)
}

/// Computes acc + the sums of pairs of 16-bit numbers, each times its weight.
#[inline(always)]
fn add_pairs(acc: v128, pairs: v128, weights: v128) -> v128 {
    i32x4_add(acc, i32x4_dot_i16x8(pairs, weights))
}

/// Adds four pairs of products. The sum fits in 16 bits for codes of up to 5 bits.
#[inline(always)]
fn sum4(p: [v128; 4]) -> v128 {
    i16x8_add(i16x8_add(p[0], p[1]), i16x8_add(p[2], p[3]))
}

/// Returns four vectors: vector g has the four bytes of lane g in all lanes.
#[inline(always)]
fn columns(x: v128) -> [v128; 4] {
    [
        i32x4_shuffle::<0, 0, 0, 0>(x, x),
        i32x4_shuffle::<1, 1, 1, 1>(x, x),
        i32x4_shuffle::<2, 2, 2, 2>(x, x),
        i32x4_shuffle::<3, 3, 3, 3>(x, x),
    ]
}

/// Loads 16 activations: every lane of a vector holds the same four columns. Uses only one load, because loads are slow
/// in runtimes that check addresses.
///
/// # Safety
/// `x` points at 16 bytes.
#[inline(always)]
unsafe fn load_columns(x: *const i8) -> [v128; 4] {
    columns(unsafe { v128_load(x.cast()) })
}

impl<const H: usize> Half<H> {
    /// Computes `dot16` for four lanes. Splits 8-bit codes into two unsigned 4-bit codes, which adds `BIAS_OF_BYTES` to
    /// each code.
    #[inline(always)]
    pub unsafe fn dot16_unsigned<const BITS: u32>(self, acc: v128, w: [v128; 4], x: *const i8) -> v128 {
        if BITS < 8 {
            return unsafe { self.dot16::<BITS>(acc, w, x) };
        }
        let x = unsafe { load_columns(x) };
        let (low, high) = (|w| self.b_and(w, 15), |w| self.b_and(u16x8_shr(w, 4), 15));
        let (mut lows, mut highs) = (pairs(low(w[0]), x[0]), pairs(high(w[0]), x[0]));
        for g in 1..4 {
            lows = i16x8_add(lows, pairs(low(w[g]), x[g]));
            highs = i16x8_add(highs, pairs(high(w[g]), x[g]));
        }
        add_pairs(add_pairs(acc, lows, self.0.ones), highs, self.0.sixteens)
    }

    /// Computes acc + the products of 16 8-bit codes with x. For negative x, code * x = (-1 - code) * |x| + |x|. The
    /// first factor is the code with all bits flipped. The sum of the terms |x| is the same for all lanes.
    ///
    /// # Safety
    /// As `dot16`.
    #[inline(always)]
    unsafe fn dot_bytes(self, acc: v128, w: [v128; 4], x: *const i8) -> v128 {
        let x = unsafe { v128_load(x.cast()) };
        let (size, sign) = (i8x16_abs(x), i8x16_lt(x, i8x16_splat(0)));
        let negative = i32x4_dot_i16x8(pairs(size, sign), self.0.ones);
        let negative = i32x4_add(negative, i32x4_shuffle::<2, 3, 0, 1>(negative, negative));
        let negative = i32x4_add(negative, i32x4_shuffle::<1, 0, 3, 2>(negative, negative));
        let mut sum = i32x4_sub(acc, negative);
        let (sizes, flips) = (columns(size), columns(v128_xor(sign, self.0.top)));
        for g in 0..4 {
            sum = add_pairs(sum, pairs(sizes[g], v128_xor(w[g], flips[g])), self.0.ones);
        }
        sum
    }
}

impl<const H: usize> Simd for Half<H> {
    const LANES: usize = Wasm::LANES;
    const TILE: usize = Wasm::TILE;
    const PANELS: usize = Wasm::PANELS;
    const FLOAT_PANELS: usize = Wasm::FLOAT_PANELS;
    const WIDE_TOKENS: usize = Wasm::WIDE_TOKENS;
    const WIDE_TOKENS_SLOW: usize = Wasm::WIDE_TOKENS_SLOW;
    const WIDE_BIAS: i32 = 0;
    const PAIRS_TOGETHER: bool = Wasm::PAIRS_TOGETHER;
    const PAIR_ROWS: usize = Wasm::PAIR_ROWS;
    type F = v128;
    type I = v128;
    type B = v128;
    one_register! {}

    wrappers! {
        fn splat(self, x: f32) -> v128 = f32x4_splat(x);
        unsafe fn load(self, p: *const f32) -> v128 = v128_load(p.add(N * H).cast());
        unsafe fn store(self, p: *mut f32, v: v128) = v128_store(p.add(N * H).cast(), v);
        fn add(self, a: v128, b: v128) -> v128 = f32x4_add(a, b);
        fn sub(self, a: v128, b: v128) -> v128 = f32x4_sub(a, b);
        fn mul(self, a: v128, b: v128) -> v128 = f32x4_mul(a, b);
        fn div(self, a: v128, b: v128) -> v128 = f32x4_div(a, b);
        fn fma(self, a: v128, b: v128, c: v128) -> v128 = f32x4_relaxed_madd(a, b, c);
        fn fnma(self, a: v128, b: v128, c: v128) -> v128 = f32x4_relaxed_nmadd(a, b, c);
        // `max` must return b if a comparison involves NaN. `pmax` and `pmin` return their first operand, so the
        // operands are swapped.
        fn max(self, a: v128, b: v128) -> v128 = f32x4_pmax(b, a);
        fn min(self, a: v128, b: v128) -> v128 = f32x4_pmin(b, a);
        fn abs(self, a: v128) -> v128 = f32x4_abs(a);
        fn round(self, a: v128) -> v128 = f32x4_nearest(a);
        fn pow2(self, n: v128) -> v128 = i32x4_shl(i32x4_add(i32x4_relaxed_trunc_f32x4(n), i32x4_splat(127)), 23);
        fn zero_below(self, x: v128, limit: v128, y: v128) -> v128 = v128_and(f32x4_ge(x, limit), y);
        /// Also widens the other half. So a caller that needs both halves gets the second one almost for free.
        unsafe fn load_f16(self, p: *const u16) -> v128 = widen_f16(&self.0, v128_load(p.cast()))[H];
        unsafe fn load_bf16(self, p: *const u16) -> v128 = i32x4_shl(u32x4_load_extend_u16x4(p.add(N * H)), 16);
        unsafe fn load_u8(self, p: *const u8) -> v128 = f32x4_convert_i32x4(load_bytes::<H>(p));
        fn i_splat(self, x: i32) -> v128 = i32x4_splat(x);
        fn i_add(self, a: v128, b: v128) -> v128 = i32x4_add(a, b);
        fn i_to_f(self, a: v128) -> v128 = f32x4_convert_i32x4(a);
        fn i_as_f(self, a: v128) -> v128 = a;
        /// Not by `fma`, which may round twice.
        fn scale_biased(self, scale: v128, sum: v128, _bias: v128) -> v128 =
            f32x4_mul(scale, f32x4_sub(sum, self.0.bias));
        unsafe fn dot_pair(self, acc: v128, w: v128, x: *const i16) -> v128 =
            i32x4_add(acc, i32x4_dot_i16x8(w, v128_load32_splat(x.cast())));
        unsafe fn b_load(self, p: *const u8) -> v128 = v128_load(p.add(4 * N * H).cast());
        unsafe fn b_store(self, p: *mut u8, v: v128) = v128_store(p.add(4 * N * H).cast(), v);
        fn b_and(self, a: v128, mask: u8) -> v128 =
            v128_and(a, if mask == 15 { self.0.nibble } else { u8x16_splat(mask) });
        fn b_or(self, a: v128, b: v128) -> v128 = v128_or(a, b);
        fn b_shr(self, a: v128, n: u32) -> v128 = u16x8_shr(a, n);
        fn b_shl(self, a: v128, n: u32) -> v128 = u16x8_shl(a, n);
        fn b_triple(self, a: v128) -> v128 = i8x16_add(i8x16_add(a, a), a);
        fn b_and32(self, a: v128, mask: u32) -> v128 = v128_and(a, u32x4_splat(mask));
        fn b_shr32(self, a: v128, n: u32) -> v128 = u32x4_shr(a, n);
        fn b_shl32(self, a: v128, n: u32) -> v128 = u32x4_shl(a, n);
        fn b_to_f(self, a: v128) -> v128 = f32x4_convert_i32x4(a);
    }

    #[inline(always)]
    fn sum(self, a: v128) -> f32 {
        let x = f32x4_add(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        f32x4_extract_lane::<0>(x) + f32x4_extract_lane::<1>(x)
    }

    #[inline(always)]
    fn largest(self, a: v128) -> f32 {
        let x = f32x4_pmax(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        f32x4_extract_lane::<0>(x).max(f32x4_extract_lane::<1>(x))
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: v128) {
        let mut floats = [0f32; N];
        unsafe {
            v128_store(floats.as_mut_ptr().cast(), v);
            for (i, x) in floats.into_iter().enumerate() {
                p.add(N * H + i).write_unaligned(f32_to_f16(x));
            }
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> v128 {
        let bytes = unsafe { v128_load32_zero(p.add(N * H).cast()) };
        f32x4_convert_i32x4(i32x4_extend_low_i16x8(i16x8_extend_low_i8x16(bytes)))
    }

    #[inline(always)]
    unsafe fn load_e8m0_half(self, p: *const u8) -> v128 {
        let e = unsafe { load_bytes::<H>(p) };
        let normal = i32x4_shl(i32x4_sub(e, i32x4_splat(1)), 23);
        // Bytes 0 and 1 stand for 2^-128 and 2^-127, which are subnormal.
        let subnormal = i32x4_shl(i32x4_add(e, i32x4_splat(1)), 21);
        v128_bitselect(normal, subnormal, i32x4_gt(e, i32x4_splat(1)))
    }

    /// The bits of E4M3 in a float's place have an exponent that is too small by the difference of the biases. The
    /// factor corrects this and halves the number.
    #[inline(always)]
    unsafe fn load_e4m3_half(self, p: *const u8) -> v128 {
        let e = unsafe { load_bytes::<H>(p) };
        f32x4_mul(i32x4_shl(e, 20), f32x4_splat(f32::from_bits((119 + 127) << 23)))
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: v128) -> v128 {
        let q = i32x4_relaxed_trunc_f32x4(f32x4_nearest(v));
        let words = i16x8_narrow_i32x4(q, q);
        unsafe { v128_store32_lane::<0>(i8x16_narrow_i16x8(words, words), p.add(N * H).cast()) };
        q
    }

    #[inline(always)]
    unsafe fn store_i16(self, p: *mut i16, v: v128) {
        let q = i32x4_relaxed_trunc_f32x4(f32x4_nearest(v));
        unsafe { v128_store64_lane::<0>(i16x8_narrow_i32x4(q, q), p.add(N * H).cast()) }
    }

    #[inline(always)]
    fn i_sum(self, a: v128) -> i32 {
        let x = i32x4_add(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        i32x4_extract_lane::<0>(x).wrapping_add(i32x4_extract_lane::<1>(x))
    }

    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: v128, w: [v128; 4], x: *const i8) -> v128 {
        if BITS == 8 {
            return unsafe { self.dot_bytes(acc, w, x) };
        }
        let x = unsafe { load_columns(x) };
        let ones = self.0.ones;
        let p = [pairs(w[0], x[0]), pairs(w[1], x[1]), pairs(w[2], x[2]), pairs(w[3], x[3])];
        if BITS <= 5 {
            return add_pairs(acc, sum4(p), ones);
        }
        if BITS == 6 {
            return add_pairs(add_pairs(acc, i16x8_add(p[0], p[1]), ones), i16x8_add(p[2], p[3]), ones);
        }
        p.into_iter().fold(acc, |acc, p| add_pairs(acc, p, ones))
    }

    /// Sums pairs of products of 4-bit codes in 16 bits. Each half loads the activations again, because the activations
    /// of both halves do not fit in registers.
    #[inline(always)]
    unsafe fn dot32_rows<const BITS: u32, const M: usize>(
        self,
        acc: &mut [v128; M],
        w: [v128; 8],
        x: *const i8,
        _: Ahead,
    ) {
        let x = opaque(x);
        let (first, last) = ([w[0], w[1], w[2], w[3]], [w[4], w[5], w[6], w[7]]);
        for (i, acc) in acc.iter_mut().enumerate() {
            unsafe {
                let x = x.add(32 * i);
                if BITS > 4 {
                    *acc = self.dot16::<BITS>(*acc, first, x);
                    *acc = self.dot16::<BITS>(*acc, last, x.add(16));
                    continue;
                }
                let (a, b) = (load_columns(x), load_columns(x.add(16)));
                let p = [0, 1, 2, 3].map(|g| i16x8_add(pairs(first[g], a[g]), pairs(last[g], b[g])));
                *acc = add_pairs(*acc, sum4(p), self.0.ones);
            }
        }
    }

    #[inline(always)]
    unsafe fn dot16_signed(self, acc: v128, w: [v128; 4], x: *const i8) -> v128 {
        let x = unsafe { load_columns(x) };
        w.into_iter().zip(x).fold(acc, |acc, (w, x)| add_pairs(acc, pairs(x, w), self.0.ones))
    }

    #[inline(always)]
    fn b_lookup(self, table: &[u8; 16], index: v128) -> v128 {
        // SAFETY: the table has 16 bytes.
        i8x16_relaxed_swizzle(unsafe { v128_load(table.as_ptr().cast()) }, index)
    }

    #[inline(always)]
    fn b_mirror(self, a: v128, signs: v128, bit: u8, c: u8) -> v128 {
        let negative = i8x16_eq(v128_and(signs, u8x16_splat(bit)), u8x16_splat(bit));
        i8x16_relaxed_laneselect(i8x16_sub(u8x16_splat(c), a), a, negative)
    }

    /// Averaging twice gives 3/4 of a number, rounded up. So it is applied to a - 1.
    #[inline(always)]
    fn b_thirds(self, a: v128) -> v128 {
        let a = u8x16_sub_sat(a, u8x16_splat(1));
        let quarters = u8x16_avgr(a, u8x16_avgr(a, u8x16_splat(0)));
        v128_and(u16x8_shr(quarters, 6), u8x16_splat(3))
    }

    #[inline(always)]
    fn b_pairs<const HIGH: bool>(self, a: v128) -> v128 {
        if HIGH {
            i8x16_shuffle::<2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15>(a, a)
        } else {
            i8x16_shuffle::<0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13>(a, a)
        }
    }

    /// Extracts 64-bit lanes one by one, because the indices in memory have the layout of all eight lanes.
    #[inline(always)]
    fn b_lookup16<const M: usize>(self, table: &[u16; M], index: [v128; 2]) -> [v128; 2] {
        let four = |four: u64| {
            [0, 16, 32, 48]
                .iter()
                .fold(0, |found, shift| found | u64::from(table[(four >> shift) as usize & (M - 1)]) << shift)
        };
        index.map(|v| u64x2(four(u64x2_extract_lane::<0>(v)), four(u64x2_extract_lane::<1>(v))))
    }
}

/// Loads this half's four of eight bytes at `p` as unsigned 32-bit integers.
///
/// # Safety
/// `p` points at eight bytes.
#[inline(always)]
unsafe fn load_bytes<const H: usize>(p: *const u8) -> v128 {
    let bytes = unsafe { v128_load32_zero(p.add(N * H).cast()) };
    u32x4_extend_low_u16x8(u16x8_extend_low_u8x16(bytes))
}
