//! WebAssembly with relaxed SIMD: eight lanes in two registers of four (`wasm_half`).
//!
//! Relaxed instructions may differ between CPUs if operands leave a common range. Here they do not differ: one side of
//! a dot product has 7 bits, indices and conversions are in range, and selections are by whole bytes. The exception is
//! `fma`: it rounds once on CPUs with such an instruction and twice on others. On one machine its result is always the
//! same.
use super::wasm_half::{BIAS_OF_BYTES, Half, widen_bits};
use super::{BIAS, Simd};
use std::arch::wasm32::*;

#[derive(Clone, Copy)]
pub struct Wasm(pub(super) Constants);

/// Vector constants of inner loops. Their values are hidden from the compiler, so they stay in registers or on the
/// stack. The compiler would build known constants from 64-bit halves in every iteration, because neither it nor V8
/// moves them out of loops.
#[derive(Clone, Copy)]
pub struct Constants {
    /// Constants for widening half floats, whose upper 16 bits are put into a float. `half` is a mask of the half's
    /// bits, and `rescale` (2^112) corrects the exponent bias. `infinite` is the exponent of infinite halves,
    /// `exponent` that of infinite floats.
    pub half: v128,
    pub rescale: v128,
    pub infinite: v128,
    pub exponent: v128,
    /// Mask of the low four bits of each byte.
    pub nibble: v128,
    /// Ones in 16-bit lanes.
    pub ones: v128,
    pub sixteens: v128,
    /// Mask of the top bit of each byte.
    pub top: v128,
    pub bias: v128,
}

impl Default for Constants {
    fn default() -> Self {
        std::hint::black_box(Self {
            half: u16x8_splat(0x8fff),
            rescale: f32x4_splat(f32::from_bits((112 + 127) << 23)),
            infinite: i16x8_splat(0x7c00),
            exponent: i16x8_splat(0x7f80),
            nibble: u8x16_splat(15),
            ones: i16x8_splat(1),
            sixteens: i16x8_splat(16),
            top: u8x16_splat(0x80),
            bias: f32x4_splat(BIAS),
        })
    }
}

type V = [v128; 2];

/// Defines functions that call the function of the same name for each half. Arguments in brackets are vectors and are
/// split; both halves get the other arguments unchanged.
macro_rules! of_halves {
    () => {};
    (fn $name:ident[$($v:ident),*]($($arg:ident: $type:ty),*); $($rest:tt)*) => {
        #[inline(always)]
        fn $name(self, $($v: V,)* $($arg: $type),*) -> V {
            let (low, high) = self.halves();
            [low.$name($($v[0],)* $($arg),*), high.$name($($v[1],)* $($arg),*)]
        }
        of_halves! { $($rest)* }
    };
    (unsafe fn $name:ident($to:ident: $type:ty)[$v:ident]; $($rest:tt)*) => {
        #[inline(always)]
        unsafe fn $name(self, $to: $type, $v: V) {
            let (low, high) = self.halves();
            unsafe {
                low.$name($to, $v[0]);
                high.$name($to, $v[1]);
            }
        }
        of_halves! { $($rest)* }
    };
    (unsafe fn $name:ident($($arg:ident: $type:ty),*); $($rest:tt)*) => {
        #[inline(always)]
        unsafe fn $name(self, $($arg: $type),*) -> V {
            let (low, high) = self.halves();
            unsafe { [low.$name($($arg),*), high.$name($($arg),*)] }
        }
        of_halves! { $($rest)* }
    };
}

impl Simd for Wasm {
    const LANES: usize = 8;
    const TILE: usize = 4;
    const PANELS: usize = 1;
    const FLOAT_PANELS: usize = 1;
    const WIDE_TOKENS: usize = 17;
    const WIDE_TOKENS_SLOW: usize = 5;
    const WIDE_BIAS: i32 = BIAS_OF_BYTES;
    const PAIRS_TOGETHER: bool = true;
    const PAIR_ROWS: usize = 2;
    type F = V;
    type I = V;
    type B = V;
    type Low = Half<0>;
    type High = Half<1>;
    const HALVES: bool = true;
    #[inline(always)]
    fn halves(self) -> (Half<0>, Half<1>) {
        (Half(self.0), Half(self.0))
    }

    of_halves! {
        fn splat[](x: f32);
        fn add[a, b]();
        fn sub[a, b]();
        fn mul[a, b]();
        fn div[a, b]();
        fn fma[a, b, c]();
        fn fnma[a, b, c]();
        fn max[a, b]();
        fn min[a, b]();
        fn abs[a]();
        fn round[a]();
        fn pow2[n]();
        fn zero_below[x, limit, y]();
        fn i_splat[](x: i32);
        fn i_add[a, b]();
        fn i_to_f[a]();
        fn i_as_f[a]();
        fn scale_biased[scale, sum, bias]();
        fn b_and[a](mask: u8);
        fn b_or[a, b]();
        fn b_shr[a](n: u32);
        fn b_shl[a](n: u32);
        fn b_triple[a]();
        fn b_thirds[a]();
        fn b_and32[a](mask: u32);
        fn b_shr32[a](n: u32);
        fn b_shl32[a](n: u32);
        fn b_to_f[a]();
        unsafe fn load(p: *const f32);
        unsafe fn load_f16(p: *const u16);
        unsafe fn load_bf16(p: *const u16);
        unsafe fn load_u8(p: *const u8);
        unsafe fn load_i8(p: *const i8);
        unsafe fn load_e8m0_half(p: *const u8);
        unsafe fn load_e4m3_half(p: *const u8);
        unsafe fn b_load(p: *const u8);
        unsafe fn store(p: *mut f32)[v];
        unsafe fn store_f16(p: *mut u16)[v];
        unsafe fn store_i16(p: *mut i16)[v];
        unsafe fn b_store(p: *mut u8)[v];
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: V) -> V {
        let (low, high) = self.halves();
        unsafe { [low.store_i8(p, v[0]), high.store_i8(p, v[1])] }
    }
    #[inline(always)]
    fn sum(self, a: V) -> f32 {
        let (low, _) = self.halves();
        low.sum(low.add(a[0], a[1]))
    }
    #[inline(always)]
    fn largest(self, a: V) -> f32 {
        let (low, _) = self.halves();
        low.largest(f32x4_pmax(a[0], a[1]))
    }
    #[inline(always)]
    fn i_sum(self, a: V) -> i32 {
        let (low, _) = self.halves();
        low.i_sum(low.i_add(a[0], a[1]))
    }
    #[inline(always)]
    unsafe fn dot_pair(self, acc: V, w: V, x: *const i16) -> V {
        let (low, high) = self.halves();
        unsafe { [low.dot_pair(acc[0], w[0], x), high.dot_pair(acc[1], w[1], x)] }
    }
    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: V, w: [V; 4], x: *const i8) -> V {
        let (low, high) = self.halves();
        unsafe {
            [
                low.dot16_unsigned::<BITS>(acc[0], w.map(|w| w[0]), x),
                high.dot16_unsigned::<BITS>(acc[1], w.map(|w| w[1]), x),
            ]
        }
    }
    /// Computes one half after the other, so that a half's codes stay in registers for all tokens.
    #[inline(always)]
    unsafe fn dot16_tile<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[V; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        let (low, high) = self.halves();
        unsafe {
            for j in 0..P {
                let vector = |g: usize| w.add(j * panel + g * 4 * Self::LANES);
                let codes = [0, 1, 2, 3].map(|g| low.b_load(vector(g)));
                for i in 0..N {
                    acc[j][i][0] = low.dot16_unsigned::<BITS>(acc[j][i][0], codes, x.add(32 * i));
                }
                let codes = [0, 1, 2, 3].map(|g| high.b_load(vector(g)));
                for i in 0..N {
                    acc[j][i][1] = high.dot16_unsigned::<BITS>(acc[j][i][1], codes, x.add(32 * i));
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot16_signed(self, acc: V, w: [V; 4], x: *const i8) -> V {
        let (low, high) = self.halves();
        unsafe { [low.dot16_signed(acc[0], w.map(|w| w[0]), x), high.dot16_signed(acc[1], w.map(|w| w[1]), x)] }
    }
    /// The weights stay too small by the factor 2^-112 (the exponent biases differ), and x is scaled up instead.
    /// Products are exact for |x| < 2^16. With larger x a sum is not finite. The weights' largest exponent shows
    /// whether a weight is infinite. In both cases the function returns false.
    #[inline(always)]
    unsafe fn f16_sums<const P: usize, const N: usize>(
        self,
        sums: &mut [[V; N]; P],
        w: *const u8,
        panel: usize,
        columns: usize,
        x: &[*const f32; N],
    ) -> bool {
        let c = &self.0;
        let mut acc = [[self.splat(0.0); N]; P];
        let mut largest = i16x8_splat(0);
        for k in 0..columns {
            let x = x.map(|x| f32x4_mul(unsafe { v128_load32_splat(x.add(k).cast()) }, c.rescale));
            for j in 0..P {
                let h = unsafe { v128_load(w.add(j * panel + 2 * Self::LANES * k).cast()) };
                largest = u16x8_max(largest, i16x8_add(h, h));
                let wide = widen_bits(h, v128_and(i16x8_shr(h, 3), c.half));
                for i in 0..N {
                    acc[j][i] = self.fma(wide, [x[i]; 2], acc[j][i]);
                }
            }
        }
        let mut finite = !v128_any_true(u16x8_ge(largest, u16x8_splat(2 * 0x7c00)));
        for sum in acc.as_flattened().as_flattened() {
            finite &= i32x4_all_true(f32x4_lt(f32x4_abs(*sum), f32x4_splat(f32::INFINITY)));
        }
        *sums = acc;
        finite
    }
    #[inline(always)]
    fn b_lookup(self, table: &[u8; 16], index: V) -> V {
        let (low, high) = self.halves();
        [low.b_lookup(table, index[0]), high.b_lookup(table, index[1])]
    }
    #[inline(always)]
    fn b_mirror(self, a: V, signs: V, bit: u8, c: u8) -> V {
        let (low, high) = self.halves();
        [low.b_mirror(a[0], signs[0], bit, c), high.b_mirror(a[1], signs[1], bit, c)]
    }
    #[inline(always)]
    fn b_pairs<const HIGH: bool>(self, a: V) -> V {
        let (low, high) = self.halves();
        [low.b_pairs::<HIGH>(a[0]), high.b_pairs::<HIGH>(a[1])]
    }
    #[inline(always)]
    fn b_lookup16<const N: usize>(self, table: &[u16; N], index: [V; 2]) -> [V; 2] {
        let (half, _) = self.halves();
        let low = half.b_lookup16(table, index.map(|v| v[0]));
        let high = half.b_lookup16(table, index.map(|v| v[1]));
        [[low[0], high[0]], [low[1], high[1]]]
    }
}
