//! The vector operations that kernels use, implemented once per instruction set.
//!
//! A vector has `LANES` lanes, and every lane is one row of a weight panel: 16 for AVX-512, 8 for AVX2, WebAssembly
//! and scalar, 4 for NEON. `F` and `I` hold one f32 or i32 per lane, `B` holds four bytes per lane (four columns).
//!
//! A value of a type that implements `Simd` is a token. It exists only if the CPU has the instruction set, so its
//! holder may use the instructions. The `unsafe` methods follow pointers, which must lead to the memory that the method
//! loads or stores. Kernels get their token from `Isa::run`.

#[macro_use]
mod wrappers;

mod ahead;
#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_bytes;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2_tile;
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

/// A kernel with its operands, which can run on any instruction set.
pub trait Kernel {
    type Output;
    /// Runs the kernel. Implementations must be `#[inline(always)]`, and so must the functions that they call with an
    /// `S`. Otherwise they are not compiled for the instruction set.
    ///
    /// # Safety
    /// The operands are valid as the kernel requires.
    unsafe fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Expands to an expression for each of the constants 0..16.
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

/// The float 1.5 * 2^23, whose last bit has the value 1. If a sum of integers starts from this float's bits, the result
/// read as a float is BIAS + sum, for |sum| < 2^22. So the sum needs no conversion before a multiply-add.
pub const BIAS: f32 = 12_582_912.0;
pub const BIAS_BITS: i32 = BIAS.to_bits() as i32;

#[allow(clippy::missing_safety_doc)] // pointers lead to the memory that is loaded or stored
pub trait Simd: Copy + 'static {
    const LANES: usize;
    /// Number of tokens in a register tile of the integer kernels: a power of two.
    const TILE: usize;
    /// Number of panels in a register tile of the integer kernels for many tokens. It is above 1 if each product adds
    /// to its own sum, or if one panel would load activations too often.
    const PANELS: usize;
    /// Number of panels in a register tile of the float kernels. It is 2; 4 if 32 registers also hold the sums of six
    /// tokens; 1 if a vector takes two of 16 registers.
    const FLOAT_PANELS: usize;
    /// Number of tokens from which kernels decode a unit of panels into memory once for all tokens.
    const WIDE_TOKENS: usize;
    /// The same number of tokens, for formats whose codes are slow to decode.
    const WIDE_TOKENS_SLOW: usize;
    /// The same number of tokens, for formats that store 8-bit codes.
    const WIDE_TOKENS_BYTES: usize = Self::WIDE_TOKENS;
    /// The number that `dot16::<8>` adds to each code: 128 if the hardware multiplies unsigned codes (VNNI), else 0.
    const WIDE_BIAS: i32;
    /// Whether `dot16_unit` reads 8-bit codes in the form in which panels store them.
    const BYTES_AS_STORED: bool = true;
    /// Whether both 16-bit codes of a lane are adjacent. If not, the first codes of all lanes precede the second
    /// codes.
    const PAIRS_TOGETHER: bool;
    /// Number of rows in a register tile of `dot_pair`, which is two vectors wide.
    const PAIR_ROWS: usize;
    /// Up to this number of rows, kernels take one vector of pairs at a time and read memory in order. With more rows
    /// they take two vectors, and load each row's pairs half as often.
    const PAIRS_IN_ORDER: usize = 0;
    /// Whether the rows of x alternate in pairs, because byte products multiply two rows by two (`RowPairs`).
    const ROW_PAIRS: bool = false;

    type F: Copy;
    type I: Copy;
    type B: Copy;

    /// The halves of a vector that takes two registers. Kernels for few tokens compute them one after the other,
    /// because the codes of both halves do not fit in registers. Both halves use the memory layout of the whole
    /// vector. Without HALVES, `Low` is the whole vector.
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
    /// Computes a * b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Computes c - a * b, rounded once.
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Returns the larger number, or b if one is NaN. `min` likewise returns the smaller number or b.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// Rounds each lane to the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// Computes 2^n for integral n in -126..=127.
    fn pow2(self, n: Self::F) -> Self::F;
    /// Returns y where x >= limit, else 0.
    fn zero_below(self, x: Self::F, limit: Self::F, y: Self::F) -> Self::F;
    fn sum(self, a: Self::F) -> f32;
    fn largest(self, a: Self::F) -> f32;

    /// Loads LANES half floats and converts them to f32.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    unsafe fn store_f16(self, p: *mut u16, v: Self::F);
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// Loads LANES bytes as floats 0..=255.
    unsafe fn load_u8(self, p: *const u8) -> Self::F;
    /// Loads LANES bytes as floats -128..=127.
    unsafe fn load_i8(self, p: *const i8) -> Self::F;
    /// Loads LANES exponent bytes e as 2^(e - 128), half of their E8M0 value. This is exact, including subnormal
    /// results. Byte 255, E8M0's NaN, is not allowed.
    unsafe fn load_e8m0_half(self, p: *const u8) -> Self::F;
    /// Loads LANES bytes below 128 as half of their unsigned E4M3 value. E4M3 has 4 exponent bits above 3 fraction
    /// bits, and bytes with the largest exponent are numbers too.
    unsafe fn load_e4m3_half(self, p: *const u8) -> Self::F;
    /// Rounds to the nearest integer (ties to even) and stores LANES signed bytes; |v| <= 127. Returns the integers.
    unsafe fn store_i8(self, p: *mut i8, v: Self::F) -> Self::I;
    /// Rounds to the nearest integer (ties to even) and stores LANES signed 16-bit integers; |v| <= 32767.
    unsafe fn store_i16(self, p: *mut i16, v: Self::F);
    /// Rounds `a` and `b` and stores them as 16-bit integers. The two integers of a lane are adjacent.
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
    /// Reads the lanes' bits as floats.
    fn i_as_f(self, a: Self::I) -> Self::F;
    /// Computes scale * n, rounded once. `sum` is n plus BIAS's bits, and `bias` is exactly -scale * BIAS.
    #[inline(always)]
    fn scale_biased(self, scale: Self::F, sum: Self::I, bias: Self::F) -> Self::F {
        self.fma(scale, self.i_as_f(sum), bias)
    }
    /// Computes acc + the sum over 16 columns of code * x, per lane. `w[g]` holds columns 4g..4g+4, and `x` points at
    /// 16 signed bytes in -127..=127. Codes are unsigned and below 2^BITS. With BITS = 8 a code stands for code - 128,
    /// and the result still contains WIDE_BIAS times the sum of x.
    unsafe fn dot16<const BITS: u32>(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I;

    /// Computes acc + the sum over 16 columns of code * x, for signed codes in -127..=127 and x in 0..=127. Operands
    /// have the layout of `dot16`.
    unsafe fn dot16_signed(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I;

    /// Computes `dot16` for N tokens. The 16 activations of token i are at `x + 32 * i`. Prefetches `ahead` meanwhile.
    #[inline(always)]
    unsafe fn dot16_rows<const BITS: u32, const N: usize>(
        self,
        acc: &mut [Self::I; N],
        w: [Self::B; 4],
        x: *const i8,
        ahead: Ahead,
    ) {
        ahead.prefetch::<Self, 1>(self, 0, 1);
        for (i, acc) in acc.iter_mut().enumerate() {
            *acc = unsafe { self.dot16::<BITS>(*acc, w, x.add(32 * i)) };
        }
    }

    /// Computes `dot16_rows` for all 32 columns of a block, whose codes are in eight vectors.
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

    /// Computes `dot16` for P panels and N tokens. Panel j's four vectors of codes are at `w + j * panel`, token i's 16
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

    /// Returns how many bytes `put_codes` stores for 16 columns and LANES rows.
    #[inline(always)]
    fn unit_code_bytes<const BITS: u32>() -> usize {
        16 * Self::LANES
    }

    /// Stores the codes of columns 4g..4g+4 (of 16) where `dot16_unit` reads them. `to` has room for all 16 columns.
    #[inline(always)]
    unsafe fn put_codes<const BITS: u32>(self, to: *mut u8, g: usize, codes: Self::B) {
        unsafe { self.b_store(to.add(4 * Self::LANES * g), codes) }
    }

    /// Whether the sums of `dot16_unit::<8>` start from `first_sums`.
    const FIRST_SUMS: bool = false;

    /// Stores the numbers from which the sums of a block of 8-bit codes start, with FIRST_SUMS.
    #[inline(always)]
    unsafe fn put_first_sums(self, _to: *mut f32, _codes: [Self::B; 8]) {}

    /// Loads what `put_first_sums` stored.
    #[inline(always)]
    unsafe fn first_sums(self, _from: *const f32) -> Self::I {
        self.i_splat(BIAS_BITS)
    }

    /// Computes `dot16_tile` for codes that `put_codes` stored.
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

    /// Computes `dot16_unit` for all 32 columns of a block. Prefetches in two steps of `next` meanwhile.
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

    /// Whether the instruction set has `add_tile` and `add_row_block`.
    const ADDS_TILES: bool = false;

    /// Adds the scaled products of PANELS panels and four tokens to `sums`: [token][panel] vectors in memory. A block has
    /// one scale, and `bits` is 2 to 5, 7 or 8.
    unsafe fn add_tile(self, _bits: u32, _has_min: bool, _tile: RegisterTile, _sums: *mut f32) {
        unreachable!("ADDS_TILES is false")
    }

    /// Like `add_tile`, for one block of one panel. The block's 8-bit codes are in registers.
    unsafe fn add_row_block(self, _codes: [Self::B; 8], _tile: RegisterTile, _sums: *mut f32) {
        unreachable!("ADDS_TILES is false")
    }

    /// Computes acc + both products of each lane's two 16-bit codes with the two numbers at `x`. The factors of a
    /// product must not both be -32768.
    unsafe fn dot_pair(self, acc: Self::I, w: Self::B, x: *const i16) -> Self::I;

    /// Sums `columns` columns of f16 weights times N rows of floats, for P panels from `w` on, if the set has a faster
    /// way than `load_f16`. Returns false if it has none or numbers leave its range. Then `sums` is invalid.
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
    /// Hints that the cache line at `p` will be read soon. Any address is allowed.
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}
    /// Hints that the cache line at `p` will be read later. It should go to the second-level cache only.
    #[inline(always)]
    fn prefetch_l2(self, _p: *const u8) {}
    /// Hints that the cache line at `p` will be written soon.
    #[inline(always)]
    fn prefetch_write(self, _p: *const u8) {}
    unsafe fn b_store(self, p: *mut u8, v: Self::B);
    fn b_and(self, a: Self::B, mask: u8) -> Self::B;
    fn b_or(self, a: Self::B, b: Self::B) -> Self::B;
    /// Shifts each byte right by n bits, 0 <= n < 8. Bits may cross into a neighbouring byte; the caller masks them
    /// off.
    fn b_shr(self, a: Self::B, n: u32) -> Self::B;
    fn b_shl(self, a: Self::B, n: u32) -> Self::B;
    /// Looks up table[index] for each byte; index < 16.
    fn b_lookup(self, table: &[u8; 16], index: Self::B) -> Self::B;
    /// Returns c - a in bytes whose `signs` byte has the bit `bit`, and a in the other bytes.
    fn b_mirror(self, a: Self::B, signs: Self::B, bit: u8, c: u8) -> Self::B;
    /// Computes 3 a in each byte, modulo 256.
    fn b_triple(self, a: Self::B) -> Self::B;
    /// Computes 3 a / 256 in each byte, rounded down: 0, 1 or 2.
    fn b_thirds(self, a: Self::B) -> Self::B;
    /// Returns bytes 0, 0, 1, 1 of each lane, or bytes 2, 2, 3, 3 with HIGH.
    fn b_pairs<const HIGH: bool>(self, a: Self::B) -> Self::B;

    /// ANDs each lane with `mask`. The lane's four bytes count as one little-endian integer.
    fn b_and32(self, a: Self::B, mask: u32) -> Self::B;
    /// Shifts each lane's four bytes, as one little-endian integer, right by n bits, 0 <= n < 32. Zeros come in.
    fn b_shr32(self, a: Self::B, n: u32) -> Self::B;
    fn b_shl32(self, a: Self::B, n: u32) -> Self::B;
    /// Converts each lane's four bytes, as one little-endian integer below 2^31, to a float.
    fn b_to_f(self, a: Self::B) -> Self::F;
    /// Looks up table[index] for the two 16-bit indices in each lane of both vectors. N is a power of two, at least
    /// 128.
    #[inline(always)]
    fn b_lookup16<const N: usize>(self, table: &[u16; N], index: [Self::B; 2]) -> [Self::B; 2] {
        // Collects four words in an integer register before each store. Single stores would delay the load of the
        // vector.
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
        // SAFETY: a vector has at most 64 bytes, the size of `words[i]`.
        unsafe { [self.b_load(words[0].as_ptr().cast()), self.b_load(words[1].as_ptr().cast())] }
    }
}

/// Distance in bytes from a decoded block's codes to those of the next block, and to those of the same block in the
/// next panel.
pub const UNIT_BLOCK_CODES: usize = 512;
pub const UNIT_PANEL_CODES: usize = 8 * UNIT_BLOCK_CODES;
/// Distance in floats from a decoded block's factors to those of the next block, and to those of the same block in the
/// next panel.
pub const UNIT_BLOCK_FACTORS: usize = 96;
pub const UNIT_PANEL_FACTORS: usize = 8 * UNIT_BLOCK_FACTORS;

/// Operands of a register tile: some blocks of panels, and four tokens.
#[derive(Clone, Copy)]
pub struct RegisterTile {
    pub blocks: usize,
    /// The first block's codes, as `put_codes` stored them.
    pub codes: *const u8,
    /// The first block's scales, biases, and mins or first sums: one vector of each.
    pub factors: *const f32,
    /// The first token's codes. The next token's codes follow 32 bytes later.
    pub x: *const i8,
    /// The tokens' scales, and the corrections of their sums.
    pub scales: *const f32,
    pub corrections: *const f32,
    /// Number of rows in x's tile, and distance in bytes to the next tile.
    pub width: usize,
    pub next: usize,
}

/// Instruction sets that multiply two rows of W by two rows of x. A vector of codes holds eight columns of two rows.
/// The vector of their sums holds the first row of W with both rows of x, then the second row of W.
#[allow(clippy::missing_safety_doc)] // pointers lead to the memory that is loaded
pub trait RowPairs: Simd {
    /// Rearranges codes for `dot_pairs`. `a` has columns 4g..4g+4 of four rows of W, `b` the next four columns. Returns
    /// two pairs of rows.
    fn pair_codes(self, a: Self::B, b: Self::B) -> [Self::B; 2];
    /// Takes one number per row of W and repeats each, in the layout of the sums of both pairs of rows.
    fn repeat_rows(self, a: Self::F) -> [Self::F; 2];
    /// Loads two numbers at `p`, one for each row of x, into the layout of the sums.
    unsafe fn load_pair(self, p: *const f32) -> Self::F;
    unsafe fn load_pair_i(self, p: *const i32) -> Self::I;
    /// Rearranges the sums of both pairs of rows of W: one vector for each row of x, in which each lane is a row of W.
    fn rows_of_x(self, sums: [Self::F; 2]) -> [Self::F; 2];
    /// Computes acc + the sums over eight columns of code * x, for codes as in `dot16`.
    fn dot_pairs(self, acc: Self::I, w: Self::B, x: Self::B) -> Self::I;
}

/// Computes e^x within 2 units in the last place. Returns 0 below -87.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let limit = s.splat(-87.0);
    let clamped = s.min(s.max(x, limit), s.splat(88.0));
    let n = s.round(s.mul(clamped, s.splat(std::f32::consts::LOG2_E)));
    // ln 2 is split in two parts, so that n times the first part is exact.
    let r = s.fnma(n, s.splat(0.693_359_4), clamped);
    let r = s.fnma(n, s.splat(-2.121_944_4e-4), r);
    // p becomes the Taylor series of e^r up to r^7. For |r| <= ln(2) / 2 its remainder is below 6e-9.
    let mut p = s.splat(1.0 / 5040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    s.zero_below(x, limit, s.mul(p, s.pow2(n)))
}
