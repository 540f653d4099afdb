//! Attention weights in two planes of 7 bits.
use super::MOST;
use crate::kernels::kv::{KV_BLOCK, MAX_ROWS};
use crate::simd::Simd;

/// Attention weights of a tile's rows for a block's positions, in two planes: weight = (first * MOST + second) * scale.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// Codes of the weights: [row][plane][KV_BLOCK].
    pub codes: *mut i8,
    /// The scales of the weights' codes, one per row.
    pub scales: *mut f32,
}

impl Weights {
    pub fn new(scratch: *mut f32) -> Self {
        Self { codes: scratch.cast(), scales: scratch.wrapping_add(MAX_ROWS * 2 * KV_BLOCK / 4) }
    }

    /// Quantizes row r: each weight times its position's factor `by`. No product is negative. Weights of 0 have codes
    /// of 0, so a row's result does not depend on the reach of other rows.
    ///
    /// # Safety
    /// `weights` holds KV_BLOCK floats.
    #[inline(always)]
    pub unsafe fn quantize<S: Simd>(&self, s: S, r: usize, weights: *const f32, by: &[f32; KV_BLOCK]) {
        unsafe {
            let mut products = [0f32; KV_BLOCK];
            let mut top = s.splat(0.0);
            for i in (0..KV_BLOCK).step_by(S::LANES) {
                let product = s.mul(s.load(weights.add(i)), s.load(by.as_ptr().add(i)));
                s.store(products.as_mut_ptr().add(i), product);
                top = s.max(top, product);
            }
            let top = s.largest(top);
            let inverse = if top > f32::MIN_POSITIVE * MOST { MOST / top } else { 0.0 };
            *self.scales.add(r) = top / (MOST * MOST);
            let codes = self.codes.add(r * 2 * KV_BLOCK);
            for i in (0..KV_BLOCK).step_by(S::LANES) {
                let x = s.mul(s.load(products.as_ptr().add(i)), s.splat(inverse));
                // The first plane is approximately rounded down. The rest is between 0 and 1; the second plane stores
                // it times MOST.
                let first = s.round(s.sub(x, s.splat(0.5)));
                s.store_i8(codes.add(i), first);
                s.store_i8(codes.add(KV_BLOCK + i), s.mul(s.sub(x, first), s.splat(MOST)));
            }
        }
    }
}
