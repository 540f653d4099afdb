//! Plain Rust over arrays of eight lanes: the reference in tests, and the fallback for CPUs without another
//! instruction set.
//!
//! Long functions are never inlined. If every kernel had its own copy, they would take longer to compile than a whole
//! instruction set.
use super::{BIAS, Simd};
use crate::half::{bf16_to_f32, f16_to_f32, f32_to_f16};

const N: usize = 8;

#[derive(Clone, Copy)]
pub struct Scalar(pub(super) ());

#[inline(always)]
fn map(f: impl Fn(usize) -> f32) -> [f32; N] {
    std::array::from_fn(f)
}

/// Applies f to each lane's four bytes as one little-endian integer.
#[inline(always)]
fn integers(a: [u8; 4 * N], f: impl Fn(u32) -> u32) -> [u8; 4 * N] {
    let (lanes, _) = a.as_chunks::<4>();
    std::array::from_fn(|i| f(u32::from_le_bytes(lanes[i / 4])).to_le_bytes()[i % 4])
}

/// Computes acc + the sum over 16 columns of (code - bias) * x.
#[inline(never)]
unsafe fn products(mut acc: [i32; N], w: &[[u8; 4 * N]; 4], bias: i32, x: *const i8) -> [i32; N] {
    for (g, codes) in w.iter().enumerate() {
        for c in 0..4 {
            let x = i32::from(unsafe { *x.add(4 * g + c) });
            for lane in 0..N {
                acc[lane] += (i32::from(codes[4 * lane + c]) - bias) * x;
            }
        }
    }
    acc
}

impl Simd for Scalar {
    const LANES: usize = N;
    const TILE: usize = 4;
    const PANELS: usize = 1;
    const FLOAT_PANELS: usize = 2;
    const WIDE_TOKENS: usize = 17;
    const WIDE_TOKENS_SLOW: usize = 17;
    const WIDE_BIAS: i32 = 0;
    const PAIRS_TOGETHER: bool = true;
    const PAIR_ROWS: usize = 4;
    type F = [f32; N];
    type I = [i32; N];
    type B = [u8; 4 * N];
    one_register! {}

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; N]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        unsafe { p.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F) {
        unsafe { p.cast::<Self::F>().write_unaligned(v) }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        map(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        map(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        map(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        map(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // This rounds twice, because without FMA hardware `mul_add` is a library call per lane.
        map(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        map(|i| c[i] - a[i] * b[i])
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        map(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        map(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        map(|i| a[i].abs())
    }
    #[inline(never)]
    fn round(self, a: Self::F) -> Self::F {
        map(|i| a[i].round_ties_even())
    }
    #[inline(always)]
    fn pow2(self, n: Self::F) -> Self::F {
        map(|i| f32::from_bits(((n[i] as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    fn zero_below(self, x: Self::F, limit: Self::F, y: Self::F) -> Self::F {
        map(|i| if x[i] >= limit[i] { y[i] } else { 0.0 })
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        a.iter().sum()
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        a.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(never)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        map(|i| f16_to_f32(unsafe { p.add(i).read_unaligned() }))
    }
    #[inline(never)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        for (i, x) in v.into_iter().enumerate() {
            unsafe { p.add(i).write_unaligned(f32_to_f16(x)) }
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        map(|i| bf16_to_f32(unsafe { p.add(i).read_unaligned() }))
    }
    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> Self::F {
        map(|i| f32::from(unsafe { *p.add(i) }))
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        map(|i| f32::from(unsafe { *p.add(i) }))
    }
    #[inline(never)]
    unsafe fn load_e8m0_half(self, p: *const u8) -> Self::F {
        map(|i| crate::half::e8m0_half(unsafe { *p.add(i) }))
    }
    #[inline(never)]
    unsafe fn load_e4m3_half(self, p: *const u8) -> Self::F {
        map(|i| crate::half::e4m3_half(unsafe { *p.add(i) }))
    }
    #[inline(never)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::F) -> Self::I {
        std::array::from_fn(|i| {
            let q = v[i].round_ties_even() as i32;
            unsafe { *p.add(i) = q as i8 };
            q
        })
    }

    #[inline(never)]
    unsafe fn store_i16(self, p: *mut i16, v: Self::F) {
        for (i, v) in v.iter().enumerate() {
            unsafe { p.add(i).write_unaligned(v.round_ties_even() as i16) };
        }
    }

    #[inline(always)]
    fn i_splat(self, x: i32) -> Self::I {
        [x; N]
    }
    #[inline(always)]
    fn i_add(self, a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn i_sum(self, a: Self::I) -> i32 {
        a.iter().sum()
    }
    #[inline(always)]
    fn i_to_f(self, a: Self::I) -> Self::F {
        map(|i| a[i] as f32)
    }
    #[inline(always)]
    fn i_as_f(self, a: Self::I) -> Self::F {
        map(|i| f32::from_bits(a[i] as u32))
    }
    /// Not by `fma`, which rounds twice in this set.
    #[inline(always)]
    fn scale_biased(self, scale: Self::F, sum: Self::I, _bias: Self::F) -> Self::F {
        map(|i| scale[i] * (f32::from_bits(sum[i] as u32) - BIAS))
    }
    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        unsafe { products(acc, &w, if BITS == 8 { 128 } else { 0 }, x) }
    }

    #[inline(never)]
    unsafe fn dot_pair(self, acc: Self::I, w: Self::B, x: *const i16) -> Self::I {
        let x = unsafe { [x.read_unaligned(), x.add(1).read_unaligned()] };
        std::array::from_fn(|lane| {
            let code = |c: usize| i32::from(i16::from_ne_bytes([w[4 * lane + 2 * c], w[4 * lane + 2 * c + 1]]));
            // Wraps around, because memory that was never written may contain any codes.
            let sum = (code(0) * i32::from(x[0])).wrapping_add(code(1) * i32::from(x[1]));
            acc[lane].wrapping_add(sum)
        })
    }

    #[inline(always)]
    unsafe fn dot16_signed(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        let flipped = w.map(|codes| codes.map(|code| code ^ 128));
        unsafe { products(acc, &flipped, 128, x) }
    }

    #[inline(always)]
    unsafe fn b_load(self, p: *const u8) -> Self::B {
        unsafe { p.cast::<Self::B>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn b_store(self, p: *mut u8, v: Self::B) {
        unsafe { p.cast::<Self::B>().write_unaligned(v) }
    }
    #[inline(always)]
    fn b_and(self, a: Self::B, mask: u8) -> Self::B {
        a.map(|x| x & mask)
    }
    #[inline(always)]
    fn b_or(self, a: Self::B, b: Self::B) -> Self::B {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn b_shr(self, a: Self::B, n: u32) -> Self::B {
        a.map(|x| x >> n)
    }
    #[inline(always)]
    fn b_shl(self, a: Self::B, n: u32) -> Self::B {
        a.map(|x| x << n)
    }
    #[inline(never)]
    fn b_lookup(self, table: &[u8; 16], index: Self::B) -> Self::B {
        index.map(|i| table[usize::from(i & 15)])
    }
    #[inline(never)]
    fn b_mirror(self, a: Self::B, signs: Self::B, bit: u8, c: u8) -> Self::B {
        std::array::from_fn(|i| if signs[i] & bit != 0 { c.wrapping_sub(a[i]) } else { a[i] })
    }
    #[inline(always)]
    fn b_triple(self, a: Self::B) -> Self::B {
        a.map(|x| x.wrapping_mul(3))
    }
    #[inline(never)]
    fn b_thirds(self, a: Self::B) -> Self::B {
        a.map(|x| ((u16::from(x) * 3) >> 8) as u8)
    }
    #[inline(never)]
    fn b_pairs<const HIGH: bool>(self, a: Self::B) -> Self::B {
        std::array::from_fn(|i| a[i / 4 * 4 + i % 4 / 2 + if HIGH { 2 } else { 0 }])
    }
    #[inline(always)]
    fn b_and32(self, a: Self::B, mask: u32) -> Self::B {
        integers(a, |x| x & mask)
    }
    #[inline(always)]
    fn b_shr32(self, a: Self::B, n: u32) -> Self::B {
        integers(a, |x| x >> n)
    }
    #[inline(always)]
    fn b_shl32(self, a: Self::B, n: u32) -> Self::B {
        integers(a, |x| x << n)
    }
    #[inline(always)]
    fn b_to_f(self, a: Self::B) -> Self::F {
        let (lanes, _) = a.as_chunks::<4>();
        map(|i| i32::from_le_bytes(lanes[i]) as f32)
    }
}
