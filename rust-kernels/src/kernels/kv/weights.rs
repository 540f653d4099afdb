//! Attention weights in two planes of 8-bit codes, for cached values that are codes too.
use super::{KV_BLOCK, MAX_ROWS};
use crate::simd::Simd;

/// The largest code in each plane.
const MOST: f32 = 127.0;

/// Attention weights of a tile's rows for a block's positions, in two planes: weight = (first * STEPS + second) * scale.
/// Each weight is first multiplied by its value's scale. SIGNED says whether these scales may be negative. If not, no
/// code is negative.
#[derive(Clone, Copy)]
pub(super) struct Weights<const SIGNED: bool> {
    /// Codes of the weights: [row][plane][KV_BLOCK].
    pub codes: *mut i8,
    /// The scales of the weights' codes, one per row.
    pub scales: *mut f32,
}

impl<const SIGNED: bool> Weights<SIGNED> {
    /// Number of scratch floats.
    pub const LEN: usize = MAX_ROWS * (2 * KV_BLOCK / 4 + 1);
    /// Number of steps of the second plane in a step of the first plane.
    pub const STEPS: f32 = if SIGNED { 2.0 * MOST } else { MOST };

    pub fn new(scratch: *mut f32) -> Self {
        Self { codes: scratch.cast(), scales: scratch.wrapping_add(MAX_ROWS * 2 * KV_BLOCK / 4) }
    }

    /// Returns the address of a row's codes in the first plane. The second plane and the next rows follow.
    pub fn row(&self, r: usize) -> *mut i8 {
        self.codes.wrapping_add(r * 2 * KV_BLOCK)
    }

    /// Quantizes row r: each weight times its position's factor `by`. Weights of 0 have codes of 0, so a row's result
    /// does not depend on the reach of other rows. Returns the sums of both planes' codes in some lanes.
    ///
    /// # Safety
    /// `weights` holds KV_BLOCK floats.
    #[inline(always)]
    pub unsafe fn quantize<S: Simd>(&self, s: S, r: usize, weights: *const f32, by: &[f32; KV_BLOCK]) -> [S::I; 2] {
        unsafe {
            let mut products = [0f32; KV_BLOCK];
            let mut top = s.splat(0.0);
            for i in (0..KV_BLOCK).step_by(S::LANES) {
                let product = s.mul(s.load(weights.add(i)), s.load(by.as_ptr().add(i)));
                s.store(products.as_mut_ptr().add(i), product);
                top = s.max(top, if SIGNED { s.abs(product) } else { product });
            }
            let top = s.largest(top);
            let inverse = if top > f32::MIN_POSITIVE * MOST { MOST / top } else { 0.0 };
            *self.scales.add(r) = top / (MOST * Self::STEPS);
            let codes = self.row(r);
            let mut sums = [s.i_splat(0); 2];
            for i in (0..KV_BLOCK).step_by(S::LANES) {
                let x = s.mul(s.load(products.as_ptr().add(i)), s.splat(inverse));
                // The second plane stores the rest times STEPS. Without signs the first plane is approximately rounded
                // down, and the rest is between 0 and 1. With signs the rest is between -1/2 and 1/2.
                let first = s.round(if SIGNED { x } else { s.sub(x, s.splat(0.5)) });
                let second = s.mul(s.sub(x, first), s.splat(Self::STEPS));
                sums[0] = s.i_add(sums[0], s.store_i8(codes.add(i), first));
                sums[1] = s.i_add(sums[1], s.store_i8(codes.add(KV_BLOCK + i), second));
            }
            sums
        }
    }
}
