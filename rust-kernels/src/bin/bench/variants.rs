//! The kernels without a technique, compiled for the same instruction sets. Only benchmarks call them.
use compy::formats::{BlockFormat, Q4_0, Q4K, Q8_0};
use compy::half::f16_to_f32;
use compy::kernels::gemm::{BlockGemm, Gemm};
#[cfg(target_arch = "aarch64")]
use compy::kernels::pair_gemm::PairGemm;
use compy::kernels::quant_rows::QuantRows;
#[cfg(target_arch = "aarch64")]
use compy::simd::RowPairs;
use compy::simd::{Ahead, Isa, Kernel, Pace, Simd};
use std::marker::PhantomData;

pub type GemmFn = unsafe fn(Isa, &Gemm, &QuantRows, *const f32);
type PlainFn = unsafe fn(Isa, &[u8], &QuantRows, usize) -> f32;
type WidenFn = unsafe fn(Isa, &[u8], &mut [f32]);

/// Safety of the functions: as for the kernels that they replace.
pub struct Variants {
    /// The kernels without prefetch for Q8_0, Q4_0 and Q4_K.
    pub unprefetched: [GemmFn; 3],
    /// A GGUF row times a row of x in tiles of one row, in plain loops that the compiler may vectorize. For Q8_0 and
    /// Q4_0.
    pub plain: [PlainFn; 2],
    /// A GGUF row as floats, for Q8_0 and Q4_0.
    pub widen: [WidenFn; 2],
    /// Half floats as floats.
    pub widen_f16: unsafe fn(Isa, *const u16, &mut [f32]),
}

/// An instruction set without prefetch: the trait's default does nothing.
#[derive(Clone, Copy)]
struct Unprefetched<S>(S);

macro_rules! as_the_original {
    () => {};
    (fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?; $($rest:tt)*) => {
        #[inline(always)]
        fn $name(self, $($arg: $type),*) $(-> $result)? {
            self.0.$name($($arg),*)
        }
        as_the_original! { $($rest)* }
    };
    (unsafe fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?; $($rest:tt)*) => {
        #[inline(always)]
        unsafe fn $name(self, $($arg: $type),*) $(-> $result)? {
            unsafe { self.0.$name($($arg),*) }
        }
        as_the_original! { $($rest)* }
    };
}

impl<S: Simd> Simd for Unprefetched<S> {
    const LANES: usize = S::LANES;
    const TILE: usize = S::TILE;
    const PANELS: usize = S::PANELS;
    const FLOAT_PANELS: usize = S::FLOAT_PANELS;
    const WIDE_TOKENS: usize = S::WIDE_TOKENS;
    const WIDE_TOKENS_SLOW: usize = S::WIDE_TOKENS_SLOW;
    const WIDE_BIAS: i32 = S::WIDE_BIAS;
    const BYTES_AS_STORED: bool = S::BYTES_AS_STORED;
    const PAIRS_TOGETHER: bool = S::PAIRS_TOGETHER;
    const PAIR_ROWS: usize = S::PAIR_ROWS;
    const ROW_PAIRS: bool = S::ROW_PAIRS;
    type F = S::F;
    type I = S::I;
    type B = S::B;
    type Low = Self;
    type High = Self;
    const HALVES: bool = false;
    #[inline(always)]
    fn halves(self) -> (Self, Self) {
        (self, self)
    }

    as_the_original! {
        fn splat(x: f32) -> S::F;
        fn add(a: S::F, b: S::F) -> S::F;
        fn sub(a: S::F, b: S::F) -> S::F;
        fn mul(a: S::F, b: S::F) -> S::F;
        fn div(a: S::F, b: S::F) -> S::F;
        fn fma(a: S::F, b: S::F, c: S::F) -> S::F;
        fn fnma(a: S::F, b: S::F, c: S::F) -> S::F;
        fn max(a: S::F, b: S::F) -> S::F;
        fn min(a: S::F, b: S::F) -> S::F;
        fn abs(a: S::F) -> S::F;
        fn round(a: S::F) -> S::F;
        fn pow2(n: S::F) -> S::F;
        fn zero_below(x: S::F, limit: S::F, y: S::F) -> S::F;
        fn sum(a: S::F) -> f32;
        fn largest(a: S::F) -> f32;
        fn i_splat(x: i32) -> S::I;
        fn i_add(a: S::I, b: S::I) -> S::I;
        fn i_sum(a: S::I) -> i32;
        fn i_to_f(a: S::I) -> S::F;
        fn i_as_f(a: S::I) -> S::F;
        fn b_and(a: S::B, mask: u8) -> S::B;
        fn b_or(a: S::B, b: S::B) -> S::B;
        fn b_shr(a: S::B, n: u32) -> S::B;
        fn b_shl(a: S::B, n: u32) -> S::B;
        fn b_lookup(table: &[u8; 16], index: S::B) -> S::B;
        fn b_mirror(a: S::B, signs: S::B, bit: u8, c: u8) -> S::B;
        fn b_triple(a: S::B) -> S::B;
        fn b_thirds(a: S::B) -> S::B;
        fn b_and32(a: S::B, mask: u32) -> S::B;
        fn b_shr32(a: S::B, n: u32) -> S::B;
        fn b_shl32(a: S::B, n: u32) -> S::B;
        fn b_to_f(a: S::B) -> S::F;
        unsafe fn load(p: *const f32) -> S::F;
        unsafe fn store(p: *mut f32, v: S::F);
        unsafe fn load_f16(p: *const u16) -> S::F;
        unsafe fn store_f16(p: *mut u16, v: S::F);
        unsafe fn load_bf16(p: *const u16) -> S::F;
        unsafe fn load_u8(p: *const u8) -> S::F;
        unsafe fn load_i8(p: *const i8) -> S::F;
        unsafe fn load_e8m0_half(p: *const u8) -> S::F;
        unsafe fn load_e4m3_half(p: *const u8) -> S::F;
        unsafe fn store_i8(p: *mut i8, v: S::F) -> S::I;
        unsafe fn store_i16(p: *mut i16, v: S::F);
        unsafe fn store_pairs(p: *mut i16, a: S::F, b: S::F);
        unsafe fn dot_pair(acc: S::I, w: S::B, x: *const i16) -> S::I;
        unsafe fn dot16_signed(acc: S::I, w: [S::B; 4], x: *const i8) -> S::I;
        unsafe fn b_load(p: *const u8) -> S::B;
        unsafe fn b_store(p: *mut u8, v: S::B);
    }

    #[inline(always)]
    fn b_pairs<const HIGH: bool>(self, a: S::B) -> S::B {
        self.0.b_pairs::<HIGH>(a)
    }

    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: S::I, w: [S::B; 4], x: *const i8) -> S::I {
        unsafe { self.0.dot16::<BITS>(acc, w, x) }
    }

    #[inline(always)]
    unsafe fn dot16_rows<const BITS: u32, const N: usize>(
        self,
        acc: &mut [S::I; N],
        w: [S::B; 4],
        x: *const i8,
        _: Ahead,
    ) {
        unsafe { self.0.dot16_rows::<BITS, N>(acc, w, x, Ahead::NOTHING) }
    }

    #[inline(always)]
    unsafe fn dot16_tile<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[S::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        unsafe { self.0.dot16_tile::<BITS, P, N>(acc, w, panel, x) }
    }

    #[inline(always)]
    fn unit_code_bytes<const BITS: u32>() -> usize {
        S::unit_code_bytes::<BITS>()
    }

    #[inline(always)]
    unsafe fn put_codes<const BITS: u32>(self, to: *mut u8, g: usize, codes: S::B) {
        unsafe { self.0.put_codes::<BITS>(to, g, codes) }
    }

    #[inline(always)]
    unsafe fn dot16_unit<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[S::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        unsafe { self.0.dot16_unit::<BITS, P, N>(acc, w, panel, x) }
    }

    #[inline(always)]
    unsafe fn dot32_unit<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[S::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
        _: &mut Pace,
    ) {
        unsafe { self.0.dot32_unit::<BITS, P, N>(acc, w, panel, x, &mut Ahead::NOTHING.over(1)) }
    }
}

#[cfg(target_arch = "aarch64")]
impl<S: RowPairs> RowPairs for Unprefetched<S> {
    as_the_original! {
        fn pair_codes(a: S::B, b: S::B) -> [S::B; 2];
        fn repeat_rows(a: S::F) -> [S::F; 2];
        fn rows_of_x(sums: [S::F; 2]) -> [S::F; 2];
        fn dot_pairs(acc: S::I, w: S::B, x: S::B) -> S::I;
        unsafe fn load_pair(p: *const f32) -> S::F;
        unsafe fn load_pair_i(p: *const i32) -> S::I;
    }
}

#[inline(always)]
fn widen_q8_0(row: &[u8], out: &mut [f32]) {
    for (block, y) in row.chunks_exact(34).zip(out.chunks_exact_mut(32)) {
        let d = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
        for (y, q) in y.iter_mut().zip(&block[2..]) {
            *y = d * f32::from(*q as i8);
        }
    }
}

#[inline(always)]
fn widen_q4_0(row: &[u8], out: &mut [f32]) {
    for (block, y) in row.chunks_exact(18).zip(out.chunks_exact_mut(32)) {
        let d = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
        let (low, high) = y.split_at_mut(16);
        for ((low, high), q) in low.iter_mut().zip(high).zip(&block[2..]) {
            *low = d * (f32::from(q & 15) - 8.0);
            *high = d * (f32::from(q >> 4) - 8.0);
        }
    }
}

/// The codes and the scale of a block of a row of x, in tiles of one row.
#[inline(always)]
unsafe fn block_of(x: &QuantRows, token: usize, b: usize) -> (&[i8; 32], f32) {
    unsafe { (&*x.codes(token, b, 0).cast(), *x.meta(token, b, 0)) }
}

#[inline(always)]
unsafe fn plain_q8_0(row: &[u8], x: &QuantRows, token: usize) -> f32 {
    let mut sum = 0.0;
    for (b, block) in row.chunks_exact(34).enumerate() {
        let (codes, scale) = unsafe { block_of(x, token, b) };
        let d = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
        let products = codes.iter().zip(&block[2..]).map(|(x, q)| i32::from(*x) * i32::from(*q as i8));
        sum += d * scale * products.sum::<i32>() as f32;
    }
    sum
}

#[inline(always)]
unsafe fn plain_q4_0(row: &[u8], x: &QuantRows, token: usize) -> f32 {
    let mut sum = 0.0;
    for (b, block) in row.chunks_exact(18).enumerate() {
        let (codes, scale) = unsafe { block_of(x, token, b) };
        let d = f16_to_f32(u16::from_le_bytes([block[0], block[1]]));
        let (low, high) = codes.split_at(16);
        let products = low.iter().zip(high).zip(&block[2..]).map(|((low, high), q)| {
            i32::from(*low) * (i32::from(q & 15) - 8) + i32::from(*high) * (i32::from(q >> 4) - 8)
        });
        sum += d * scale * products.sum::<i32>() as f32;
    }
    sum
}

/// A product without prefetch.
struct UnprefetchedGemm<'a, F>(BlockGemm<'a, F>);

impl<F: BlockFormat> Kernel for UnprefetchedGemm<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        unsafe { self.0.run(Unprefetched(s)) }
    }
}

unsafe fn unprefetched<F: BlockFormat>(isa: Isa, args: &Gemm, x: &QuantRows, corrections: *const f32) {
    let gemm = BlockGemm { args, x, corrections, format: PhantomData::<F> };
    #[cfg(target_arch = "aarch64")]
    if let Isa::NeonI8mm(neon) = isa
        && x.in_pairs()
    {
        return unsafe { neon.run(PairGemm(Unprefetched(neon), gemm)) };
    }
    unsafe { isa.run(UnprefetchedGemm(gemm)) }
}

/// A row of Q8_0 or Q4_0 in plain loops.
struct PlainRow<'a, const BITS: u32> {
    row: &'a [u8],
    x: &'a QuantRows,
    token: usize,
}

impl<const BITS: u32> Kernel for PlainRow<'_, BITS> {
    type Output = f32;
    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) -> f32 {
        let Self { row, x, token } = self;
        unsafe { if BITS == 8 { plain_q8_0(row, x, token) } else { plain_q4_0(row, x, token) } }
    }
}

/// A row of Q8_0 or Q4_0 as floats.
struct WidenRow<'a, const BITS: u32> {
    row: &'a [u8],
    out: &'a mut [f32],
}

impl<const BITS: u32> Kernel for WidenRow<'_, BITS> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) {
        if BITS == 8 { widen_q8_0(self.row, self.out) } else { widen_q4_0(self.row, self.out) }
    }
}

struct WidenF16<'a> {
    halves: *const u16,
    out: &'a mut [f32],
}

impl Kernel for WidenF16<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        for (i, y) in self.out.chunks_exact_mut(S::LANES).enumerate() {
            unsafe { s.store(y.as_mut_ptr(), s.load_f16(self.halves.add(i * S::LANES))) }
        }
    }
}

pub static VARIANTS: Variants = Variants {
    unprefetched: [unprefetched::<Q8_0>, unprefetched::<Q4_0>, unprefetched::<Q4K>],
    plain: [
        |isa, row, x, token| unsafe { isa.run(PlainRow::<8> { row, x, token }) },
        |isa, row, x, token| unsafe { isa.run(PlainRow::<4> { row, x, token }) },
    ],
    widen: [
        |isa, row, out| unsafe { isa.run(WidenRow::<8> { row, out }) },
        |isa, row, out| unsafe { isa.run(WidenRow::<4> { row, out }) },
    ],
    widen_f16: |isa, halves, out| unsafe { isa.run(WidenF16 { halves, out }) },
};
