//! The scratch memory of a tile of attention over 16-bit keys and values.
use super::{CHUNK, GROUP, scales};
use crate::kernels::kv::{Block, KV_BLOCK, MAX_ROWS, Queries};
use crate::kernels::pairs::{MOST, MOST_WEIGHTS, SUMMED, inverse, larger};
use crate::simd::Simd;

/// The scratch memory of a tile of query rows.
pub(super) struct Scratch {
    /// Codes of the queries, [MAX_ROWS / GROUP][head_dim / 2][GROUP][2], and one scale per row.
    pub queries: *mut i16,
    pub query_scales: *mut f32,
    /// Codes of the attention weights, [MAX_ROWS][CHUNK], and one scale per row.
    pub weights: *mut i16,
    pub weight_scales: *mut f32,
    /// The scales of a chunk's values, one per position.
    pub value_scales: *mut f32,
    /// The sums of weighted values in a chunk, [MAX_ROWS][head_dim].
    pub sums: *mut f32,
}

impl Scratch {
    pub fn new(queries: &Queries) -> Self {
        let query_scales = queries.scratch.wrapping_add(MAX_ROWS * queries.head_dim / 2);
        let weights = query_scales.wrapping_add(MAX_ROWS);
        let weight_scales = weights.wrapping_add(MAX_ROWS * CHUNK / 2);
        let value_scales = weight_scales.wrapping_add(MAX_ROWS);
        Self {
            queries: queries.scratch.cast(),
            query_scales,
            weights: weights.cast(),
            weight_scales,
            value_scales,
            sums: value_scales.wrapping_add(CHUNK),
        }
    }

    /// Returns the address of the first two codes of row r. Each next two codes are GROUP pairs further on.
    pub fn query(&self, queries: &Queries, r: usize) -> *mut i16 {
        self.queries.wrapping_add(r / GROUP * GROUP * queries.head_dim + r % GROUP * 2)
    }

    /// Converts the scales of the blocks' first `depth` values to floats, and fills the rest of CHUNK with zeros.
    ///
    /// # Safety
    /// As `KvFormat::mix`.
    #[inline(always)]
    pub unsafe fn widen_scales<S: Simd>(&self, s: S, values: &[Block], dim: usize, depth: usize) {
        unsafe {
            for (i, block) in values.iter().enumerate() {
                let (from, to) = (scales(block.at, dim), self.value_scales.add(i * KV_BLOCK));
                s.prefetch_l2(from.wrapping_byte_offset(block.ahead()).cast());
                for slot in (0..KV_BLOCK).step_by(S::LANES) {
                    s.store(to.add(slot), s.load_bf16(from.add(slot)));
                }
            }
            std::slice::from_raw_parts_mut(self.value_scales, CHUNK)[depth..].fill(0.0);
        }
    }

    /// Multiplies each weight of row r by its position's scale and stores it as a code, for whole vectors of positions.
    ///
    /// # Safety
    /// There are `depth` weights, none below 0, padded with zeros to a whole vector.
    #[inline(always)]
    pub unsafe fn round_weights<S: Simd>(&self, s: S, r: usize, weights: *mut f32, depth: usize) {
        unsafe {
            let (mut top, mut sum) = (s.splat(0.0), 0f32);
            for start in (0..depth).step_by(SUMMED) {
                let mut part = s.splat(0.0);
                for i in (start..depth.min(start + SUMMED)).step_by(S::LANES) {
                    let product = s.mul(s.load(weights.add(i)), s.load(self.value_scales.add(i)));
                    s.store(weights.add(i), product);
                    top = s.max(product, top);
                    part = s.add(part, product);
                }
                let part = s.sum(part);
                sum = larger(sum, part);
            }
            let top = s.largest(top);
            let scale = larger(sum / MOST_WEIGHTS, top / MOST);
            let inverse = inverse(scale);
            *self.weight_scales.add(r) = scale;
            let to = self.weights.add(r * CHUNK);
            for i in (0..depth).step_by(S::LANES) {
                s.store_i16(to.add(i), s.mul(s.load(weights.add(i)), s.splat(inverse)));
            }
        }
    }
}
