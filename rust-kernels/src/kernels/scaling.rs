//! Turns sums of integer products into floats, with the scales of W and of x that the columns of a part share.
use super::gemm::opaque;
use super::quant_rows::QuantRows;
use crate::formats::{BLOCK, BlockFormat};
use crate::simd::{BIAS, BIAS_BITS, RegisterTile, RowPairs, Simd};

/// Maximum vectors of a part's `Factors`.
pub(super) const FACTORS: usize = 3;

/// Parts of a block. The columns of a part share a scale.
pub(super) const fn parts<F: BlockFormat>() -> usize {
    BLOCK / F::SUB
}

/// Factors of a part's sums, and the terms added to the products, for LANES rows.
pub(super) struct Factors<S: Simd> {
    scale: S::F,
    /// -scale * BIAS. Exact, because scales have at most 19 significant bits and BIAS two. Infinite for scales from
    /// 2^104 on.
    bias: S::F,
    min: S::F,
}

impl<S: Simd> Factors<S> {
    /// # Safety
    /// As `BlockFormat::scales`.
    #[inline(always)]
    pub unsafe fn new<F: BlockFormat>(s: S, unit: *const u8, blocks: usize, b: usize, part: usize) -> Self {
        unsafe {
            let (scale, min) = (F::scales(s, unit, blocks, b)[part], F::mins(s, unit, blocks, b)[part]);
            Self { scale, bias: s.mul(scale, s.splat(-BIAS)), min }
        }
    }

    /// Stores FACTORS vectors.
    ///
    /// # Safety
    /// `to` has room.
    #[inline(always)]
    pub unsafe fn store<F: BlockFormat>(&self, s: S, to: *mut f32) {
        unsafe {
            s.store(to, self.scale);
            s.store(to.add(S::LANES), self.bias);
            if F::HAS_MIN {
                s.store(to.add(2 * S::LANES), self.min);
            }
        }
    }

    /// # Safety
    /// `store` wrote to `from`.
    #[inline(always)]
    pub unsafe fn load<F: BlockFormat>(s: S, from: *const f32) -> Self {
        unsafe {
            let min = if F::HAS_MIN { s.load(from.add(2 * S::LANES)) } else { s.splat(0.0) };
            Self { scale: s.load(from), bias: s.load(from.add(S::LANES)), min }
        }
    }

    /// acc + a part of dot products. `sum` is the sum of the part's products, starting from `Tokens::first`. `x` and
    /// `correction` belong to the tokens.
    #[inline(always)]
    pub fn add<F: BlockFormat>(&self, s: S, sum: S::I, x: S::F, correction: S::F, acc: S::F) -> S::F {
        let product = s.scale_biased(self.scale, sum, self.bias);
        let acc = s.fma(product, x, acc);
        if F::HAS_MIN { s.fnma(self.min, correction, acc) } else { acc }
    }
}

impl<S: RowPairs> Factors<S> {
    /// The factors of both pairs of rows of W.
    #[inline(always)]
    pub fn in_pairs(&self, s: S) -> [Self; 2] {
        let ([scale, scale_high], [bias, bias_high]) = (s.repeat_rows(self.scale), s.repeat_rows(self.bias));
        let [min, min_high] = s.repeat_rows(self.min);
        [Self { scale, bias, min }, Self { scale: scale_high, bias: bias_high, min: min_high }]
    }
}

/// A block of a tile's tokens. Token i's codes are at `codes + 32 i`, its scale at `scales + i`, and so on.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    pub codes: *const i8,
    scales: *const f32,
    corrections: *const f32,
    /// Rows of x's tile.
    width: usize,
    /// Corrections per token and block.
    parts: usize,
}

impl Tokens {
    /// Tokens from row t of x, from block b on.
    ///
    /// # Safety
    /// They are within x.
    #[inline(always)]
    pub unsafe fn new<F: BlockFormat>(x: &QuantRows, corrections: *const f32, t: usize, b: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::of_width::<F>(x.tile, x, corrections, t, b) }
    }

    /// `new` with a tile width that the compiler knows.
    ///
    /// # Safety
    /// As `new`.
    #[inline(always)]
    pub unsafe fn of_width<F: BlockFormat>(
        width: usize,
        x: &QuantRows,
        corrections: *const f32,
        t: usize,
        b: usize,
    ) -> Self {
        let parts = parts::<F>();
        // A shift instead of a division, which would take a tenth of a tile's time.
        let (tile, slot) = (t >> width.trailing_zeros(), t & (width - 1));
        unsafe {
            Self {
                codes: x.codes(tile, b, slot),
                scales: x.meta(tile, b, slot),
                corrections: corrections.add((tile * (x.columns / BLOCK) + b) * parts * width + slot),
                width,
                parts,
            }
        }
    }

    /// Moves to the same tokens' next block.
    ///
    /// # Safety
    /// As `new`, or at the end of x.
    #[inline(always)]
    pub unsafe fn next(&mut self) {
        unsafe {
            self.codes = opaque(self.codes.add(self.width * BLOCK));
            self.scales = self.scales.add(3 * self.width);
            self.corrections = self.corrections.add(self.parts * self.width);
        }
    }

    /// Returns the operands of `Simd::add_tile` for these tokens and decoded panels. `next` is the distance in bytes to
    /// the tokens of the next tile.
    #[inline(always)]
    pub fn times(&self, blocks: usize, codes: *const u8, factors: *const f32, next: usize) -> RegisterTile {
        let Self { codes: x, scales, corrections, width, .. } = *self;
        RegisterTile { blocks, codes, factors, x, scales, corrections, width, next }
    }

    /// Initial sum of a part's products with token i: BIAS minus the correction for the codes' offset. Sums of 32
    /// products stay within BIAS's range, because a product is at most 128 * 127.
    ///
    /// # Safety
    /// Token i is within the tile.
    #[inline(always)]
    pub unsafe fn first<S: Simd, F: BlockFormat>(&self, s: S, part: usize, i: usize) -> S::I {
        if F::HAS_MIN || F::BITS == 8 && S::WIDE_BIAS == 0 {
            return s.i_splat(BIAS_BITS);
        }
        unsafe { s.i_splat(*self.corrections.add(part * self.width + i).cast()) }
    }

    /// acc + a part of the dot products with token i. `sum` is the sum of the part's products, starting from `first`.
    ///
    /// # Safety
    /// As `first`.
    #[inline(always)]
    pub unsafe fn add<S: Simd, F: BlockFormat>(
        &self,
        s: S,
        w: &Factors<S>,
        sum: S::I,
        part: usize,
        i: usize,
        acc: S::F,
    ) -> S::F {
        unsafe {
            let correction = if F::HAS_MIN { *self.corrections.add(part * self.width + i) } else { 0.0 };
            w.add::<F>(s, sum, s.splat(*self.scales.add(i)), s.splat(correction), acc)
        }
    }

    /// `first` for tokens i and i + 1.
    ///
    /// # Safety
    /// As `first`.
    #[inline(always)]
    pub unsafe fn first_pair<S: RowPairs, F: BlockFormat>(&self, s: S, part: usize, i: usize) -> S::I {
        if F::HAS_MIN {
            return s.i_splat(BIAS_BITS);
        }
        unsafe { s.load_pair_i(self.corrections.add(part * self.width + i).cast()) }
    }

    /// `add` for tokens i and i + 1 and both pairs of rows of W.
    ///
    /// # Safety
    /// As `first`.
    #[inline(always)]
    pub unsafe fn add_pair<S: RowPairs, F: BlockFormat>(
        &self,
        s: S,
        w: &[Factors<S>; 2],
        sums: [S::I; 2],
        part: usize,
        i: usize,
        acc: [S::F; 2],
    ) -> [S::F; 2] {
        unsafe {
            let x = s.load_pair(self.scales.add(i));
            let correction =
                if F::HAS_MIN { s.load_pair(self.corrections.add(part * self.width + i)) } else { s.splat(0.0) };
            [w[0].add::<F>(s, sums[0], x, correction, acc[0]), w[1].add::<F>(s, sums[1], x, correction, acc[1])]
        }
    }
}
