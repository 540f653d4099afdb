//! The vector operations that the kernels are written over, once per instruction set.
//!
//! A vector has `LANES` lanes and every lane is one row of a weight panel: 16 for AVX-512, 8 for AVX2, WebAssembly and
//! scalar, 4 for NEON. `F` and `I` hold one f32 or i32 a lane, `B` holds four bytes a lane (four columns).
//!
//! A value of a type that implements `Simd` is a token: there is one only on a CPU that has the instruction set, so whoever
//! holds it may compute. What is `unsafe` here follows pointers: they must lead to what a function loads or stores.
//! Kernels get their token from `Isa::run`.

#[macro_use]
mod wrappers;

mod ahead;
#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_bytes;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[macro_use]
mod tokens;
mod isa;
#[cfg(target_arch = "aarch64")]
pub mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_bytes;
pub mod scalar;
#[cfg(target_arch = "wasm32")]
pub mod wasm;
#[cfg(target_arch = "wasm32")]
mod wasm_half;
#[cfg(target_arch = "x86_64")]
pub mod x86;

pub use self::ahead::{Ahead, Pace};
pub use self::isa::Isa;

/// Something to be done with the vectors of any instruction set: a kernel with its operands.
pub trait Kernel {
    type Output;
    /// Implementations are `#[inline(always)]`, and so is what they call with an `S`, or it would not be compiled for
    /// the instruction set.
    ///
    /// # Safety
    /// The operands are what the kernel says.
    unsafe fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Repeats an expression for the constants 0..16.
#[macro_export]
macro_rules! unroll16 {
    ($i:ident => $body:expr) => {
        $crate::unroll16!(@ $i, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $i:ident, $body:expr, $($n:literal)*) => {
        $({
            const $i: usize = $n;
            $body
        })*
    };
}

/// 1.5 * 2^23, a float whose last place is 1. A sum of integers that starts from its bits is, taken as a float, BIAS +
/// sum as long as |sum| < 2^22, and needs no conversion where a multiply-add follows.
pub const BIAS: f32 = 12_582_912.0;
pub const BIAS_BITS: i32 = BIAS.to_bits() as i32;

#[allow(clippy::missing_safety_doc)] // pointers lead to what is loaded or stored
pub trait Simd: Copy + 'static {
    const LANES: usize;
    /// Tokens in a register tile of the integer kernels: a power of two.
    const TILE: usize;
    /// Panels of a register tile of the integer kernels for many tokens: more than 1 where their sums are chains of products, or where
    /// one panel would load activations too often.
    const PANELS: usize;
    /// The same of the float kernels: 2, or 4 where 32 registers hold the sums of six tokens too, or 1 where a vector is two of 16.
    const FLOAT_PANELS: usize;
    /// Tokens from which it pays to decode a unit of panels into memory, once for all of them.
    const WIDE_TOKENS: usize;
    /// The same of formats whose codes are slow to decode.
    const WIDE_TOKENS_SLOW: usize;
    /// What `dot16::<8>` adds to each code: 128 where the hardware multiplies unsigned codes (VNNI), else 0.
    const WIDE_BIAS: i32;
    /// Whether `dot16_unit` takes codes of 8 bits as panels have them.
    const BYTES_AS_STORED: bool = true;
    /// Whether both of a lane's 16-bit codes lie together; if not, the first codes of all lanes come before the second ones.
    const PAIRS_TOGETHER: bool;
    /// Rows of a register tile of `dot_pair`, two vectors wide.
    const PAIR_ROWS: usize;
    /// Up to how many rows take vectors of pairs one by one and so read memory in order; more take two, which loads each row's pairs half as often.
    const PAIRS_IN_ORDER: usize = 0;
    /// Whether rows of x lie in pairs, because the set's products of bytes are those of two rows by two (`RowPairs`).
    const ROW_PAIRS: bool = false;

    type F: Copy;
    type I: Copy;
    type B: Copy;

    /// The halves of vectors that take two registers, which kernels of few tokens compute one after the other: both halves' codes
    /// would not stay in registers. Memory lies for them as for the whole. Otherwise (HALVES) `Low` is the whole.
    type Low: Simd;
    type High: Simd;
    const HALVES: bool;
    fn halves(self) -> (Self::Low, Self::High);

    fn splat(self, x: f32) -> Self::F;
    unsafe fn load(self, p: *const f32) -> Self::F;
    unsafe fn store(self, p: *mut f32, v: Self::F);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// c - a * b, rounded once.
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger; b where one is NaN. `min` likewise.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// 2^n for integral n in -126..=127.
    fn pow2(self, n: Self::F) -> Self::F;
    /// y where x >= limit, else 0.
    fn zero_below(self, x: Self::F, limit: Self::F, y: Self::F) -> Self::F;
    fn sum(self, a: Self::F) -> f32;
    fn largest(self, a: Self::F) -> f32;

    /// LANES half floats.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    unsafe fn store_f16(self, p: *mut u16, v: Self::F);
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// LANES bytes as numbers 0..=255.
    unsafe fn load_u8(self, p: *const u8) -> Self::F;
    /// LANES bytes as numbers -128..=127.
    unsafe fn load_i8(self, p: *const i8) -> Self::F;
    /// LANES exponent bytes e as 2^(e - 128), exactly, subnormal results included (E8M0, halved); not 255, which is its NaN.
    unsafe fn load_e8m0_half(self, p: *const u8) -> Self::F;
    /// LANES bytes as half of what E4M3 without a sign says: 4 bits of exponent above 3 of the fraction, of which the
    /// largest is a number too; bytes below 128.
    unsafe fn load_e4m3_half(self, p: *const u8) -> Self::F;
    /// Rounds to the nearest integer (ties to even) and stores LANES signed bytes; |v| <= 127. Returns the integers.
    unsafe fn store_i8(self, p: *mut i8, v: Self::F) -> Self::I;
    /// The same in 16 bits, without returning them; |v| <= 32767.
    unsafe fn store_i16(self, p: *mut i16, v: Self::F);
    /// Both so, a lane's two next to each other.
    #[inline(always)]
    unsafe fn store_pairs(self, p: *mut i16, a: Self::F, b: Self::F) {
        let mut codes = [[0i16; 16]; 2];
        unsafe {
            self.store_i16(codes[0].as_mut_ptr(), a);
            self.store_i16(codes[1].as_mut_ptr(), b);
            for lane in 0..Self::LANES {
                p.add(2 * lane).write_unaligned(codes[0][lane]);
                p.add(2 * lane + 1).write_unaligned(codes[1][lane]);
            }
        }
    }

    fn i_splat(self, x: i32) -> Self::I;
    fn i_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn i_sum(self, a: Self::I) -> i32;
    fn i_to_f(self, a: Self::I) -> Self::F;
    /// The lanes' bits, as floats.
    fn i_as_f(self, a: Self::I) -> Self::F;
    /// scale * n, rounded once, where `sum` is n on top of BIAS's bits and `bias` is -scale * BIAS, exactly.
    #[inline(always)]
    fn scale_biased(self, scale: Self::F, sum: Self::I, bias: Self::F) -> Self::F {
        self.fma(scale, self.i_as_f(sum), bias)
    }
    /// acc + sum over 16 columns of code * x, lane by lane. `w` holds columns 4g..4g+4 in `w[g]`, `x` points
    /// at 16 signed bytes in -127..=127. Codes are unsigned and below 2^BITS. With BITS = 8 a code stands for
    /// code - 128, and WIDE_BIAS times the sum of x is left in the result.
    unsafe fn dot16<const BITS: u32>(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I;

    /// acc + sum over 16 columns of code * x, of signed codes in -127..=127 and x in 0..=127; both lie as `dot16`'s.
    unsafe fn dot16_signed(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I;

    /// `dot16` of N tokens: token i's 16 activations stand at `x + 32 * i`. Asks for `ahead` meanwhile.
    #[inline(always)]
    unsafe fn dot16_rows<const BITS: u32, const N: usize>(
        self,
        acc: &mut [Self::I; N],
        w: [Self::B; 4],
        x: *const i8,
        ahead: Ahead,
    ) {
        ahead.ask::<Self, 1>(self, 0, 1);
        for (i, acc) in acc.iter_mut().enumerate() {
            *acc = unsafe { self.dot16::<BITS>(*acc, w, x.add(32 * i)) };
        }
    }

    /// `dot16` of all 32 columns of a block, in eight vectors.
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
            self.dot16_rows::<BITS, N>(acc, [a, b, c, d], x, ahead.part(0, 2));
            self.dot16_rows::<BITS, N>(acc, [e, f, g, h], x.add(16), ahead.part(1, 2));
        }
    }

    /// `dot16` of P panels and N tokens: panel j's four vectors of codes stand at `w + j * panel`, token i's 16
    /// activations at `x + 32 * i`.
    #[inline(always)]
    unsafe fn dot16_tile<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        for j in 0..P {
            unsafe {
                let vector = |g: usize| self.b_load(w.add(j * panel + g * 4 * Self::LANES));
                let w = [vector(0), vector(1), vector(2), vector(3)];
                for i in 0..N {
                    acc[j][i] = self.dot16::<BITS>(acc[j][i], w, x.add(32 * i));
                }
            }
        }
    }

    /// Bytes of the codes of 16 columns of LANES rows as `put_codes` leaves them.
    #[inline(always)]
    fn unit_code_bytes<const BITS: u32>() -> usize {
        16 * Self::LANES
    }

    /// Puts columns 4g..4g+4 of 16 where `dot16_unit` reads them; `to` has room for all of them.
    #[inline(always)]
    unsafe fn put_codes<const BITS: u32>(self, to: *mut u8, g: usize, codes: Self::B) {
        unsafe { self.b_store(to.add(4 * Self::LANES * g), codes) }
    }

    /// `dot16_tile` of codes as `put_codes` left them.
    #[inline(always)]
    unsafe fn dot16_unit<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        unsafe { self.dot16_tile::<BITS, P, N>(acc, w, panel, x) }
    }

    /// `dot16_unit` of all 32 columns of a block, in two steps of `next`.
    #[inline(always)]
    unsafe fn dot32_unit<const BITS: u32, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
        next: &mut Pace,
    ) {
        for half in 0..2 {
            next.step::<Self, P>(self);
            unsafe {
                self.dot16_unit::<BITS, P, N>(
                    acc,
                    w.add(Self::unit_code_bytes::<BITS>() * half),
                    panel,
                    x.add(16 * half),
                )
            }
        }
    }

    /// acc + both products of each lane's two codes of 16 bits and the two at `x`; neither has -32768 on both sides.
    unsafe fn dot_pair(self, acc: Self::I, w: Self::B, x: *const i16) -> Self::I;

    /// A faster way, where there is one, to the sums of `columns` columns of f16 weights times N rows of floats: of P panels, the
    /// first at `w`. False where there is none, or where numbers leave its range: `sums` mean nothing then.
    #[inline(always)]
    unsafe fn f16_sums<const P: usize, const N: usize>(
        self,
        _sums: &mut [[Self::F; N]; P],
        _w: *const u8,
        _panel: usize,
        _columns: usize,
        _x: &[*const f32; N],
    ) -> bool {
        false
    }

    unsafe fn b_load(self, p: *const u8) -> Self::B;
    /// Hints that the cache line at `p`, which may lie anywhere, will be read soon.
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}
    /// The same, of a second-level cache, for what is used later.
    #[inline(always)]
    fn prefetch_l2(self, _p: *const u8) {}
    /// The same, of a line that will be written.
    #[inline(always)]
    fn prefetch_write(self, _p: *const u8) {}
    unsafe fn b_store(self, p: *mut u8, v: Self::B);
    fn b_and(self, a: Self::B, mask: u8) -> Self::B;
    fn b_or(self, a: Self::B, b: Self::B) -> Self::B;
    /// Shifts by n bits, 0 <= n < 8; bits that cross into a neighbour byte are the caller's to mask away.
    fn b_shr(self, a: Self::B, n: u32) -> Self::B;
    fn b_shl(self, a: Self::B, n: u32) -> Self::B;
    /// table[index] for bytes index < 16.
    fn b_lookup(self, table: &[u8; 16], index: Self::B) -> Self::B;
    /// c - a in bytes where `signs` has the bit `bit`, a in the others.
    fn b_mirror(self, a: Self::B, signs: Self::B, bit: u8, c: u8) -> Self::B;
    /// 3 a in bytes, less whole 256.
    fn b_triple(self, a: Self::B) -> Self::B;
    /// How many whole 256 that is: 0, 1 or 2.
    fn b_thirds(self, a: Self::B) -> Self::B;
    /// Bytes 0, 0, 1, 1 of each lane, or with HIGH bytes 2, 2, 3, 3.
    fn b_pairs<const HIGH: bool>(self, a: Self::B) -> Self::B;

    /// Each lane's four bytes as one integer, the first byte lowest: its bits that `mask` has.
    fn b_and32(self, a: Self::B, mask: u32) -> Self::B;
    /// The same integer shifted by n bits, 0 <= n < 32; zeros come in.
    fn b_shr32(self, a: Self::B, n: u32) -> Self::B;
    fn b_shl32(self, a: Self::B, n: u32) -> Self::B;
    /// The same integer as a number; below 2^31.
    fn b_to_f(self, a: Self::B) -> Self::F;
    /// table[index] for the two indices of 16 bits in each lane of both vectors; N is a power of two from 128 on.
    #[inline(always)]
    fn b_lookup16<const N: usize>(self, table: &[u16; N], index: [Self::B; 2]) -> [Self::B; 2] {
        // Four words are put together in an integer register: stored one by one, they would hold up the load of the vector.
        let mut words = [[0u64; 8]; 2];
        // SAFETY: a vector has at most 64 bytes.
        unsafe {
            self.b_store(words[0].as_mut_ptr().cast(), index[0]);
            self.b_store(words[1].as_mut_ptr().cast(), index[1]);
        }
        for words in &mut words {
            for four in &mut words[..Self::LANES / 2] {
                let mut found = 0;
                for shift in [0, 16, 32, 48] {
                    found |= u64::from(table[(*four >> shift) as usize & (N - 1)]) << shift;
                }
                *four = found;
            }
        }
        // SAFETY: as above.
        unsafe { [self.b_load(words[0].as_ptr().cast()), self.b_load(words[1].as_ptr().cast())] }
    }
}

/// Products of bytes of two rows of W by two of x. A vector of codes holds eight columns of two rows; the vector of their sums has
/// those of the first row of W with both rows of x, then those of the second.
#[allow(clippy::missing_safety_doc)] // pointers lead to what is loaded
pub trait RowPairs: Simd {
    /// Columns 4g..4g+4 of four rows of W, and the four columns after them, as two pairs of rows.
    fn pair_codes(self, a: Self::B, b: Self::B) -> [Self::B; 2];
    /// A number of each row of W as the sums of both pairs of rows lie.
    fn repeat_rows(self, a: Self::F) -> [Self::F; 2];
    /// A number of each of two rows of x as sums lie: those at `p`.
    unsafe fn load_pair(self, p: *const f32) -> Self::F;
    unsafe fn load_pair_i(self, p: *const i32) -> Self::I;
    /// The sums of both pairs of rows of W, as those of the first row of x and of the second, every lane a row of W.
    fn rows_of_x(self, sums: [Self::F; 2]) -> [Self::F; 2];
    /// acc + sums over eight columns of code * x; codes as `dot16`'s.
    fn dot_pairs(self, acc: Self::I, w: Self::B, x: Self::B) -> Self::I;
}

/// e^x, off by at most 2 units in the last place; 0 below -87.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let limit = s.splat(-87.0);
    let clamped = s.min(s.max(x, limit), s.splat(88.0));
    let n = s.round(s.mul(clamped, s.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts, so that n * LN2_HIGH is exact.
    let r = s.fnma(n, s.splat(0.693_359_4), clamped);
    let r = s.fnma(n, s.splat(-2.121_944_4e-4), r);
    // Taylor's series of e^r to r^7 on |r| <= ln(2) / 2, where its remainder is below 6e-9.
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    s.zero_below(x, limit, s.mul(p, s.pow2(n)))
}
