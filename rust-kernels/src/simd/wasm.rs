//! WebAssembly with relaxed SIMD: eight lanes, in two vectors of four.
//!
//! Relaxed instructions may differ from CPU to CPU where their operands leave what all agree upon. Here they do not: dot products
//! have 7 bits on one side, indices and conversions are in range, selections are by whole bytes. The exception is `fma`, which
//! rounds once on CPUs with such an instruction and twice on others; on one machine it is the same everywhere.
use super::{BIAS, Simd};
use crate::half::f32_to_f16;
use std::arch::wasm32::*;

const N: usize = 8;

#[derive(Clone, Copy)]
pub struct Wasm(pub(super) Constants);

/// Vectors that widen halves. As values that the compiler does not know they stay in registers or on the stack; constants are put
/// together from 64-bit halves in every round, for neither it nor V8 moves them out of loops. Integer kernels have no registers
/// left for theirs.
#[derive(Clone, Copy)]
pub struct Constants {
    /// Of a half that is shifted into a float's place: its bits, and what makes up for the exponents' biases, 2^112.
    half: v128,
    rescale: v128,
    /// The exponent of infinite halves.
    infinite: v128,
}

impl Default for Constants {
    fn default() -> Self {
        std::hint::black_box(Self {
            half: u32x4_splat(0x8fff_ffff),
            rescale: f32x4_splat(f32::from_bits((112 + 127) << 23)),
            infinite: i16x8_splat(0x7c00),
        })
    }
}

type V = [v128; 2];

#[inline(always)]
fn map(a: V, f: impl Fn(v128) -> v128) -> V {
    [f(a[0]), f(a[1])]
}

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(v128, v128) -> v128) -> V {
    [f(a[0], b[0]), f(a[1], b[1])]
}

#[inline(always)]
fn zip3(a: V, b: V, c: V, f: impl Fn(v128, v128, v128) -> v128) -> V {
    [f(a[0], b[0], c[0]), f(a[1], b[1], c[1])]
}

/// Four finite halves, with their signs in the upper halves of lanes, as floats. Subnormals come out right too.
#[inline(always)]
fn widen_finite(c: &Constants, h: v128) -> v128 {
    f32x4_mul(v128_and(i32x4_shl(h, 13), c.half), c.rescale)
}

/// The same of any halves: infinities and NaN are rare, and looked for in all eight at once.
#[inline(always)]
fn widen_f16(c: &Constants, h: v128) -> V {
    let wide = [i32x4_extend_low_i16x8(h), i32x4_extend_high_i16x8(h)];
    if v128_any_true(i16x8_eq(v128_and(h, c.infinite), c.infinite)) {
        return widen_infinite(c, wide);
    }
    map(wide, |h| widen_finite(c, h))
}

#[cold]
#[inline(never)]
fn widen_infinite(c: &Constants, wide: V) -> V {
    map(wide, |h| {
        let infinite = i32x4_eq(v128_and(h, i32x4_splat(0x7c00)), i32x4_splat(0x7c00));
        v128_or(widen_finite(c, h), v128_and(infinite, i32x4_splat(0x7f80_0000)))
    })
}

/// Pairs of the products of codes (7 bits, no sign) and activations, in 16 bits: they fit.
#[inline(always)]
fn pairs(codes: v128, x: v128) -> v128 {
    i16x8_relaxed_dot_i8x16_i7x16(x, codes)
}

/// acc + the sums of pairs of 16-bit numbers, each times its weight.
#[inline(always)]
fn add_pairs(acc: v128, pairs: v128, weights: v128) -> v128 {
    i32x4_add(acc, i32x4_dot_i16x8(pairs, weights))
}

/// Four sums of pairs; they fit in 16 bits up to codes of 5 bits.
#[inline(always)]
fn sum4(p: [v128; 4]) -> v128 {
    i16x8_add(i16x8_add(p[0], p[1]), i16x8_add(p[2], p[3]))
}

/// `Simd::dot16` of four lanes.
#[inline(always)]
fn dot<const BITS: u32>(acc: v128, w: [v128; 4], x: [v128; 4]) -> v128 {
    let of = |w: [v128; 4]| [pairs(w[0], x[0]), pairs(w[1], x[1]), pairs(w[2], x[2]), pairs(w[3], x[3])];
    if BITS == 8 {
        // As two codes of 4 bits: the sum has the codes as they are, without a sign.
        let low = w.map(|w| v128_and(w, u8x16_splat(15)));
        let high = w.map(|w| v128_and(u16x8_shr(w, 4), u8x16_splat(15)));
        return add_pairs(add_pairs(acc, sum4(of(low)), i16x8_splat(1)), sum4(of(high)), i16x8_splat(16));
    }
    let p = of(w);
    if BITS <= 5 {
        return add_pairs(acc, sum4(p), i16x8_splat(1));
    }
    if BITS == 6 {
        return add_pairs(add_pairs(acc, i16x8_add(p[0], p[1]), i16x8_splat(1)), i16x8_add(p[2], p[3]), i16x8_splat(1));
    }
    p.into_iter().fold(acc, |acc, p| add_pairs(acc, p, i16x8_splat(1)))
}

/// 16 activations, four columns in every lane of a vector.
///
/// # Safety
/// `x` points at 16 bytes.
#[inline(always)]
unsafe fn columns(x: *const i8) -> [v128; 4] {
    let x = x.cast::<u32>();
    unsafe {
        [v128_load32_splat(x), v128_load32_splat(x.add(1)), v128_load32_splat(x.add(2)), v128_load32_splat(x.add(3))]
    }
}

impl Simd for Wasm {
    const LANES: usize = N;
    const TILE: usize = 4;
    const PANELS: usize = 1;
    const FLOAT_PANELS: usize = 2;
    const WIDE_TOKENS: usize = 17;
    const WIDE_TOKENS_SLOW: usize = 5;
    const WIDE_BIAS: i32 = 128;
    const PAIRS_TOGETHER: bool = true;
    const PAIR_ROWS: usize = 2;
    type F = V;
    type I = V;
    type B = V;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [f32x4_splat(x); 2]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        unsafe { [v128_load(p.cast()), v128_load(p.add(4).cast())] }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F) {
        unsafe {
            v128_store(p.cast(), v[0]);
            v128_store(p.add(4).cast(), v[1]);
        }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| f32x4_add(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| f32x4_sub(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| f32x4_mul(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| f32x4_div(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        zip3(a, b, c, |a, b, c| f32x4_relaxed_madd(a, b, c))
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        zip3(a, b, c, |a, b, c| f32x4_relaxed_nmadd(a, b, c))
    }
    // Of a comparison with NaN, pmax and pmin take the first.
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        zip(b, a, |a, b| f32x4_pmax(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        zip(b, a, |a, b| f32x4_pmin(a, b))
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        map(a, |a| f32x4_abs(a))
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        map(a, |a| f32x4_nearest(a))
    }
    #[inline(always)]
    fn pow2(self, n: Self::F) -> Self::F {
        map(n, |n| i32x4_shl(i32x4_add(i32x4_relaxed_trunc_f32x4(n), i32x4_splat(127)), 23))
    }
    #[inline(always)]
    fn zero_below(self, x: Self::F, limit: Self::F, y: Self::F) -> Self::F {
        zip3(x, limit, y, |x, limit, y| v128_and(f32x4_ge(x, limit), y))
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        let x = f32x4_add(a[0], a[1]);
        let x = f32x4_add(x, i32x4_shuffle::<2, 3, 0, 1>(x, x));
        f32x4_extract_lane::<0>(x) + f32x4_extract_lane::<1>(x)
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        let x = f32x4_pmax(a[0], a[1]);
        let x = f32x4_pmax(x, i32x4_shuffle::<2, 3, 0, 1>(x, x));
        f32x4_extract_lane::<0>(x).max(f32x4_extract_lane::<1>(x))
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        unsafe { widen_f16(&self.0, v128_load(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        let mut floats = [0f32; N];
        unsafe {
            self.store(floats.as_mut_ptr(), v);
            for (i, x) in floats.into_iter().enumerate() {
                p.add(i).write_unaligned(f32_to_f16(x));
            }
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        unsafe { map([u32x4_load_extend_u16x4(p), u32x4_load_extend_u16x4(p.add(4))], |h| i32x4_shl(h, 16)) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::F {
        map(unsafe { load_bytes(p) }, |n| f32x4_convert_i32x4(n))
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        let words = unsafe { i16x8_load_extend_i8x8(p) };
        map([i32x4_extend_low_i16x8(words), i32x4_extend_high_i16x8(words)], |n| f32x4_convert_i32x4(n))
    }
    #[inline(always)]
    unsafe fn load_e8m0_half(self, p: *const u8) -> Self::F {
        map(unsafe { load_bytes(p) }, |e| {
            let normal = i32x4_shl(i32x4_sub(e, i32x4_splat(1)), 23);
            // 0 and 1 stand for 2^-128 and 2^-127, which are subnormal.
            let subnormal = i32x4_shl(i32x4_add(e, i32x4_splat(1)), 21);
            v128_bitselect(normal, subnormal, i32x4_gt(e, i32x4_splat(1)))
        })
    }
    /// As a half float, an E4M3 is too small by the difference of the exponents' biases, 2^8.
    #[inline(always)]
    unsafe fn load_e4m3_half(self, p: *const u8) -> Self::F {
        map(unsafe { load_bytes(p) }, |e| f32x4_mul(widen_finite(&self.0, i32x4_shl(e, 7)), f32x4_splat(128.0)))
    }
    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::F) -> Self::I {
        let q = map(v, |v| i32x4_relaxed_trunc_f32x4(f32x4_nearest(v)));
        let words = i16x8_narrow_i32x4(q[0], q[1]);
        unsafe { v128_store64_lane::<0>(i8x16_narrow_i16x8(words, words), p.cast()) };
        q
    }

    #[inline(always)]
    unsafe fn store_i16(self, p: *mut i16, v: Self::F) {
        let q = map(v, |v| i32x4_relaxed_trunc_f32x4(f32x4_nearest(v)));
        unsafe { v128_store(p.cast(), i16x8_narrow_i32x4(q[0], q[1])) }
    }

    #[inline(always)]
    fn i_splat(self, x: i32) -> Self::I {
        [i32x4_splat(x); 2]
    }
    #[inline(always)]
    fn i_add(self, a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| i32x4_add(a, b))
    }
    #[inline(always)]
    fn i_sum(self, a: Self::I) -> i32 {
        let x = i32x4_add(a[0], a[1]);
        let x = i32x4_add(x, i32x4_shuffle::<2, 3, 0, 1>(x, x));
        i32x4_extract_lane::<0>(x).wrapping_add(i32x4_extract_lane::<1>(x))
    }
    #[inline(always)]
    fn i_to_f(self, a: Self::I) -> Self::F {
        map(a, |a| f32x4_convert_i32x4(a))
    }
    #[inline(always)]
    fn i_as_f(self, a: Self::I) -> Self::F {
        a
    }
    /// `fma` may round twice.
    #[inline(always)]
    fn scale_biased(self, scale: Self::F, sum: Self::I, _bias: Self::F) -> Self::F {
        zip(scale, sum, |scale, sum| f32x4_mul(scale, f32x4_sub(sum, f32x4_splat(BIAS))))
    }
    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        let x = unsafe { columns(x) };
        [dot::<BITS>(acc[0], w.map(|w| w[0]), x), dot::<BITS>(acc[1], w.map(|w| w[1]), x)]
    }
    #[inline(always)]
    unsafe fn dot_pair(self, acc: Self::I, w: Self::B, x: *const i16) -> Self::I {
        let x = unsafe { v128_load32_splat(x.cast()) };
        zip(acc, w, |acc, w| i32x4_add(acc, i32x4_dot_i16x8(w, x)))
    }

    #[inline(always)]
    unsafe fn dot16_signed(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        let x = unsafe { columns(x) };
        let mut sum = acc;
        for (w, x) in w.into_iter().zip(x) {
            sum = zip(sum, w, |sum, w| add_pairs(sum, pairs(x, w), i16x8_splat(1)));
        }
        sum
    }

    #[inline(always)]
    unsafe fn b_load(self, p: *const u8) -> Self::B {
        unsafe { [v128_load(p.cast()), v128_load(p.add(16).cast())] }
    }
    #[inline(always)]
    unsafe fn b_store(self, p: *mut u8, v: Self::B) {
        unsafe {
            v128_store(p.cast(), v[0]);
            v128_store(p.add(16).cast(), v[1]);
        }
    }
    #[inline(always)]
    fn b_and(self, a: Self::B, mask: u8) -> Self::B {
        map(a, |a| v128_and(a, u8x16_splat(mask)))
    }
    #[inline(always)]
    fn b_or(self, a: Self::B, b: Self::B) -> Self::B {
        zip(a, b, |a, b| v128_or(a, b))
    }
    #[inline(always)]
    fn b_shr(self, a: Self::B, n: u32) -> Self::B {
        map(a, |a| u16x8_shr(a, n))
    }
    #[inline(always)]
    fn b_shl(self, a: Self::B, n: u32) -> Self::B {
        map(a, |a| u16x8_shl(a, n))
    }
    #[inline(always)]
    fn b_lookup(self, table: &[u8; 16], index: Self::B) -> Self::B {
        // SAFETY: a table has 16 bytes.
        let table = unsafe { v128_load(table.as_ptr().cast()) };
        map(index, |index| i8x16_relaxed_swizzle(table, index))
    }
    #[inline(always)]
    fn b_mirror(self, a: Self::B, signs: Self::B, bit: u8, c: u8) -> Self::B {
        zip(a, signs, |a, signs| {
            let negative = i8x16_eq(v128_and(signs, u8x16_splat(bit)), u8x16_splat(bit));
            i8x16_relaxed_laneselect(i8x16_sub(u8x16_splat(c), a), a, negative)
        })
    }
    #[inline(always)]
    fn b_triple(self, a: Self::B) -> Self::B {
        map(a, |a| i8x16_add(i8x16_add(a, a), a))
    }
    /// Two averages make 3/4 of a number, rounded up, hence of a - 1.
    #[inline(always)]
    fn b_thirds(self, a: Self::B) -> Self::B {
        map(a, |a| {
            let a = u8x16_sub_sat(a, u8x16_splat(1));
            let quarters = u8x16_avgr(a, u8x16_avgr(a, u8x16_splat(0)));
            v128_and(u16x8_shr(quarters, 6), u8x16_splat(3))
        })
    }
    #[inline(always)]
    fn b_pairs<const HIGH: bool>(self, a: Self::B) -> Self::B {
        map(a, |a| {
            if HIGH {
                i8x16_shuffle::<2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15>(a, a)
            } else {
                i8x16_shuffle::<0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13>(a, a)
            }
        })
    }
    #[inline(always)]
    fn b_and32(self, a: Self::B, mask: u32) -> Self::B {
        map(a, |a| v128_and(a, u32x4_splat(mask)))
    }
    #[inline(always)]
    fn b_shr32(self, a: Self::B, n: u32) -> Self::B {
        map(a, |a| u32x4_shr(a, n))
    }
    #[inline(always)]
    fn b_shl32(self, a: Self::B, n: u32) -> Self::B {
        map(a, |a| u32x4_shl(a, n))
    }
    #[inline(always)]
    fn b_to_f(self, a: Self::B) -> Self::F {
        map(a, |a| f32x4_convert_i32x4(a))
    }
}

/// Eight bytes as integers without a sign.
///
/// # Safety
/// `p` points at eight bytes.
#[inline(always)]
unsafe fn load_bytes(p: *const u8) -> V {
    let words = unsafe { u16x8_load_extend_u8x8(p) };
    [u32x4_extend_low_u16x8(words), u32x4_extend_high_u16x8(words)]
}
