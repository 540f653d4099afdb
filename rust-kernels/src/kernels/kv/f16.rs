//! Keys and values as halves. Keys lie transposed ([KV_BLOCK / KEY_GROUP][head_dim][KEY_GROUP]), values straight
//! ([KV_BLOCK][head_dim]), so that both products of attention are the same outer product with positions or dimensions in
//! the lanes.
use super::{Block, FloatMatrix, HALF_MAX, KV_BLOCK, KvFormat, MAX_BLOCKS, Queries, WIDEN_ROWS, row_pointers};
use crate::kernels::outer_product::{Rhs, outer_product};
use crate::simd::Simd;
use std::ops::Range;

/// Tokens that lie side by side in a key block, so that a vector of positions is one load, and one token's append
/// touches a cache line for two dimensions.
pub const KEY_GROUP: usize = 16;

/// Where element d of the key in `slot` stands in its block.
#[inline(always)]
pub const fn key_index(head_dim: usize, d: usize, slot: usize) -> usize {
    (slot / KEY_GROUP * head_dim + d) * KEY_GROUP + slot % KEY_GROUP
}

pub struct F16;

impl KvFormat for F16 {
    fn scratch_len(head_dim: usize) -> usize {
        MAX_BLOCKS * KV_BLOCK * head_dim.next_multiple_of(2 * KEY_GROUP)
    }

    #[inline(always)]
    unsafe fn append_key<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        let (mut halves, block) = ([0u16; 16], block.cast::<u16>());
        for d in (0..head_dim).step_by(S::LANES) {
            unsafe {
                store_halves(s, x.add(d), halves.as_mut_ptr());
                for (i, half) in halves.iter().enumerate().take(S::LANES) {
                    *block.add(key_index(head_dim, d + i, slot)) = *half;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn append_value<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        for d in (0..head_dim).step_by(S::LANES) {
            unsafe { store_halves(s, x.add(d), block.cast::<u16>().add(slot * head_dim + d)) }
        }
    }

    #[inline(always)]
    unsafe fn prepare<S: Simd>(_: S, _queries: &Queries) {}

    #[inline(always)]
    unsafe fn scores<S: Simd>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix) {
        unsafe {
            let (dim, lhs) = (queries.head_dim, &queries.q[rows.clone()]);
            let rhs = Rhs {
                base: keys.at.cast::<u16>(),
                row: KEY_GROUP,
                group: KEY_GROUP,
                next_group: dim * KEY_GROUP,
                ahead: keys.ahead(),
            };
            let out = FloatMatrix { at: out.row(rows.start), ..out };
            if lhs.len() >= WIDEN_ROWS {
                let rhs = rhs.widen(s, KV_BLOCK * dim, queries.scratch);
                outer_product::<S, _>(s, lhs, dim, &rhs, KV_BLOCK, out, false);
            } else {
                outer_product::<S, _>(s, lhs, dim, &rhs, KV_BLOCK, out, false);
            }
        }
    }

    #[inline(always)]
    unsafe fn mix<S: Simd>(
        s: S,
        queries: &Queries,
        rows: Range<usize>,
        weights: FloatMatrix,
        depth: usize,
        values: &[Block],
        out: FloatMatrix,
    ) {
        unsafe {
            let (dim, lhs) = (queries.head_dim, row_pointers(weights, &rows));
            let out = FloatMatrix { at: out.row(rows.start), ..out };
            if rows.len() >= WIDEN_ROWS {
                let rhs = widen_values(s, values, depth, dim, queries.scratch);
                return outer_product::<S, _>(s, &lhs[..rows.len()], depth, &rhs, dim, out, true);
            }
            for (i, block) in values.iter().enumerate() {
                let rhs =
                    Rhs { base: block.at.cast::<u16>(), row: dim, group: dim, next_group: 0, ahead: block.ahead() };
                let lhs = lhs.map(|row| row.wrapping_add(i * KV_BLOCK));
                let depth = (depth - i * KV_BLOCK).min(KV_BLOCK);
                outer_product::<S, _>(s, &lhs[..rows.len()], depth, &rhs, dim, out, true);
            }
        }
    }
}

/// The first `depth` values of blocks as floats: [dim / two vectors][depth][two vectors], so that the two columns of a
/// register tile are one stream that stays in a first-level cache for all rows.
///
/// # Safety
/// As `KvFormat::mix`; `wide` has room for whole pairs of vectors.
#[inline(always)]
unsafe fn widen_values<S: Simd>(s: S, values: &[Block], depth: usize, dim: usize, wide: *mut f32) -> Rhs<f32> {
    let pair = 2 * S::LANES;
    for position in 0..depth {
        let (block, slot) = (values[position / KV_BLOCK], position % KV_BLOCK);
        for d in (0..dim).step_by(S::LANES) {
            unsafe {
                let value = s.load_f16(block.at.cast::<u16>().add(slot * dim + d));
                s.store(wide.add((d / pair * depth + position) * pair + d % pair), value);
            }
        }
    }
    Rhs { base: wide, row: pair, group: pair, next_group: depth * pair, ahead: 0 }
}

/// Stores LANES floats as halves, clamped to the finite range.
#[inline(always)]
unsafe fn store_halves<S: Simd>(s: S, x: *const f32, halves: *mut u16) {
    unsafe { s.store_f16(halves, s.max(s.min(s.load(x), s.splat(HALF_MAX)), s.splat(-HALF_MAX))) }
}
