//! Values in 4 bits and keys in 6 bits. Each SCALED numbers of a head share a scale, as in GGUF's Q4_0. Heads are
//! rotated before they are quantized (rotation.rs), so an outlier does not reduce the precision of its neighbours.
//! Queries are rotated in the same way, and the result of attention is rotated back. Heads are padded with zeros to a
//! multiple of SCALED. With 4-bit keys, the keys would cause nine tenths of the loss (docs/design/memory.md).
//!
//! Both products of attention are integer dot products, as in q8_0.rs. Scales may be negative, so the planes of
//! attention weights are signed.
//!
//! # Layout
//! A block has codes, then scales. Codes that share a byte belong to the same position, so threads that append
//! different positions never write the same byte. Unpacked codes have the layout of `dot32_rows`.
//! - Keys have positions in the lanes (keys.rs).
//! - Values have dimensions in the lanes: [head_dim / 2 / LANES][KV_BLOCK / 4][LANES][4 positions]. If a byte's lower
//!   half has dimension d, its upper half has dimension d + LANES.
//! - Scales are half floats: [head_dim / SCALED][KV_BLOCK].
pub mod keys;
mod quantize;
mod rotation;

use self::keys::{KEY_BITS, KeyTile};
use self::quantize::quantize;
use self::rotation::{MOST, piece, rotate, rotate_piece};
use super::{Block, FloatMatrix, HALF_MAX, KV_BLOCK, KvFormat, MAX_ROWS, PADDED, Queries, weights};
use crate::formats::BLOCK;
use crate::kernels::quant_rows::{QuantRows, quantize_block, row_bytes};
use crate::simd::{Ahead, Simd};
use std::ops::Range;

/// Number of dimensions of a head that share a scale.
pub const SCALED: usize = BLOCK;
const _: () = assert!(PADDED.is_multiple_of(SCALED) && KV_BLOCK == BLOCK);
/// Bits of a value's code. The code stands for the number code - OFFSET.
pub const VALUE_BITS: u32 = 4;
const OFFSET: i32 = 1 << (VALUE_BITS - 1);
/// Scratch floats for the sums of the attention weights' codes, which correct for OFFSET: two planes per row.
const SUMS: usize = 2 * MAX_ROWS;

type Weights = weights::Weights<true>;

/// Returns the byte index of code d of the value in `slot` of its block. The upper half of the byte has code d if `d`
/// modulo 2 * lanes is at least `lanes`.
#[inline(always)]
pub const fn value_index(lanes: usize, d: usize, slot: usize) -> usize {
    (d / (2 * lanes) * KV_BLOCK + slot / 4 * 4) * lanes + d % lanes * 4 + slot % 4
}

/// Returns the byte index of the scale for dimension d of the key or value in `slot`. Codes have `bits` bits.
#[inline(always)]
pub const fn scale_index(bits: u32, head_dim: usize, d: usize, slot: usize) -> usize {
    KV_BLOCK * padded(head_dim) * bits as usize / 8 + 2 * (d / SCALED * KV_BLOCK + slot)
}

/// Returns the number of dimensions of a stored head.
pub const fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(SCALED)
}

pub struct Q4_0;

impl KvFormat for Q4_0 {
    fn scratch_len(head_dim: usize) -> usize {
        Weights::LEN + SUMS + MAX_ROWS * row_bytes(padded(head_dim)) / 4
    }

    #[inline(always)]
    unsafe fn append_key<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            append::<S, KEY_BITS>(s, x, head_dim, block, slot, |d, codes| {
                keys::put(S::LANES, block.add(keys::part(S::LANES, head_dim, d, slot)), slot, &codes);
            });
        }
    }

    #[inline(always)]
    unsafe fn append_value<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            append::<S, VALUE_BITS>(s, x, head_dim, block, slot, |d, codes| {
                for i in (0..SCALED).step_by(2 * S::LANES) {
                    for lane in i..i + S::LANES {
                        let two = codes[lane] | codes[lane + S::LANES] << 4;
                        *block.add(value_index(S::LANES, d + lane, slot)) = two;
                    }
                }
            });
        }
    }

    #[inline(always)]
    unsafe fn prepare<S: Simd>(s: S, queries: &Queries) {
        unsafe {
            let rows = quantised(queries);
            for (r, q) in queries.q.iter().enumerate() {
                each_block(
                    s,
                    queries.head_dim,
                    |d| s.load(q.add(d)),
                    |d, x| {
                        let b = d / SCALED;
                        quantize_block(s, x, &rows, r, b);
                        // The correction for the keys' offset replaces the sums of the query's codes.
                        let sums = rows.meta(0, b, r).cast::<i32>();
                        let sum = *sums.add(rows.tile) + *sums.add(2 * rows.tile);
                        *sums.add(rows.tile) = -keys::OFFSET * sum;
                    },
                );
            }
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix) {
        let x = quantised(queries);
        for slot in (0..KV_BLOCK).step_by(S::LANES) {
            let mut row = rows.start;
            while row < rows.end {
                let ahead = (row == rows.start).then(|| keys.ahead());
                let tile = KeyTile { x, row, keys: keys.at, slot, head_dim: queries.head_dim, ahead };
                // SAFETY: guaranteed by the caller.
                row += unsafe {
                    let at = FloatMatrix { at: out.row(row).add(slot), ..out };
                    match rows.end - row {
                        8.. if const { S::PAIR_ROWS >= 8 } => tile.products::<S, 8>(s, at),
                        4.. => tile.products::<S, 4>(s, at),
                        2.. => tile.products::<S, 2>(s, at),
                        _ => tile.products::<S, 1>(s, at),
                    }
                };
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
        for (i, block) in values.iter().enumerate() {
            let depth = (depth - i * KV_BLOCK).min(KV_BLOCK);
            let weights = FloatMatrix { at: weights.at.wrapping_add(i * KV_BLOCK), ..weights };
            unsafe { mix_block(s, queries, rows.clone(), weights, depth, *block, out) }
        }
    }

    #[inline(always)]
    unsafe fn finish<S: Simd>(s: S, row: *mut f32, head_dim: usize) {
        unsafe { rotate(s, row, padded(head_dim)) }
    }
}

/// Rotates a head whose dimensions `load` loads, LANES at a time. Passes the first dimension and the address of each
/// SCALED rotated floats to `put`.
///
/// # Safety
/// `head_dim` is a multiple of 16.
#[inline(always)]
unsafe fn each_block<S: Simd>(
    s: S,
    head_dim: usize,
    load: impl Fn(usize) -> S::F,
    mut put: impl FnMut(usize, *const f32),
) {
    let mut rotated = [0f32; MOST];
    let mut start = 0;
    while start < padded(head_dim) {
        let n = piece(padded(head_dim) - start);
        for d in (0..n).step_by(S::LANES) {
            let x = if start + d < head_dim { load(start + d) } else { s.splat(0.0) };
            // SAFETY: n is at most MOST.
            unsafe { s.store(rotated.as_mut_ptr().add(d), x) }
        }
        // SAFETY: n is a power of two, at least SCALED and at most MOST.
        unsafe { rotate_piece(s, rotated.as_mut_ptr(), n) }
        for d in (0..n).step_by(SCALED) {
            put(start + d, rotated[d..].as_ptr());
        }
        start += n;
    }
}

/// Clamps a key or value to the range of half floats, rotates it, and quantizes it to BITS bits. Writes the scales to
/// the block. Calls `put` for each scale, with the first dimension and the codes.
///
/// # Safety
/// As `KvFormat`.
#[inline(always)]
unsafe fn append<S: Simd, const BITS: u32>(
    s: S,
    x: *const f32,
    head_dim: usize,
    block: *mut u8,
    slot: usize,
    put: impl Fn(usize, [u8; SCALED]),
) {
    let finite = |x: S::F| s.max(s.min(x, s.splat(HALF_MAX)), s.splat(-HALF_MAX));
    unsafe {
        each_block(
            s,
            head_dim,
            |d| finite(s.load(x.add(d))),
            |d, x| {
                let (codes, scale) = quantize::<S, BITS>(s, x);
                block.add(scale_index(BITS, head_dim, d, slot)).cast::<u16>().write_unaligned(scale);
                put(d, codes);
            },
        );
    }
}

/// Returns the quantized queries. All rows are in one tile, so the rows of any range are adjacent.
fn quantised(queries: &Queries) -> QuantRows {
    let base = queries.scratch.wrapping_add(Weights::LEN + SUMS).cast();
    QuantRows { base, columns: padded(queries.head_dim), tile: queries.q.len(), paired: false }
}

/// Loads the values' codes of LANES dimensions and 32 positions from eight vectors: the lower half of each byte, or
/// with HIGH the upper half.
///
/// # Safety
/// `codes` holds eight vectors.
#[inline(always)]
unsafe fn halves<S: Simd, const HIGH: bool>(s: S, codes: *const u8) -> [S::B; 8] {
    std::array::from_fn(|i| {
        let two = unsafe { s.b_load(codes.add(4 * S::LANES * i)) };
        s.b_and(if HIGH { s.b_shr(two, 4) } else { two }, 15)
    })
}

/// Adds the weighted values of one block, as `mix` does.
///
/// # Safety
/// As `KvFormat::mix`.
#[inline(always)]
unsafe fn mix_block<S: Simd>(
    s: S,
    queries: &Queries,
    rows: Range<usize>,
    weights: FloatMatrix,
    depth: usize,
    values: Block,
    out: FloatMatrix,
) {
    unsafe {
        let x = Weights::new(queries.scratch);
        let sums = queries.scratch.add(Weights::LEN).cast::<[i32; 2]>();
        // The scratch memory may hold old weights beyond `depth`.
        for r in rows.clone() {
            std::slice::from_raw_parts_mut(weights.row(r).add(depth), KV_BLOCK - depth).fill(0.0);
        }
        for d in (0..padded(queries.head_dim)).step_by(SCALED) {
            let scales = values.at.add(scale_index(VALUE_BITS, queries.head_dim, d, 0));
            s.prefetch_l2(scales.wrapping_offset(values.ahead()));
            let mut wide = [0f32; KV_BLOCK];
            for i in (0..KV_BLOCK).step_by(S::LANES) {
                s.store(wide.as_mut_ptr().add(i), s.load_f16(scales.cast::<u16>().add(i)));
            }
            wide[depth..].fill(0.0);
            for (i, r) in rows.clone().enumerate() {
                let planes = x.quantize(s, i, weights.row(r), &wide);
                *sums.add(i) = planes.map(|plane| -OFFSET * s.i_sum(plane));
            }
            for from in (d..d + SCALED).step_by(2 * S::LANES) {
                let tile = ValueTile { x, sums, codes: values.at.add(value_index(S::LANES, from, 0)) };
                tile.prefetch_next(s, values.ahead());
                let out = FloatMatrix { at: out.row(rows.start).add(from), ..out };
                tile.rows::<S, false>(s, rows.len(), out);
                tile.rows::<S, true>(s, rows.len(), FloatMatrix { at: out.at.add(S::LANES), ..out });
            }
        }
    }
}

/// The operands of the products of attention weights with two vectors of dimensions of a block's values.
struct ValueTile {
    x: Weights,
    /// For each row and plane: -OFFSET times the sum of the weights' codes.
    sums: *const [i32; 2],
    /// The values' codes, from the first of these dimensions on.
    codes: *const u8,
}

impl ValueTile {
    /// Adds the weighted values of LANES dimensions to each row; those of the upper halves with HIGH.
    ///
    /// # Safety
    /// As `KvFormat::mix`; `out` is the first row's first dimension.
    #[inline(always)]
    unsafe fn rows<S: Simd, const HIGH: bool>(&self, s: S, rows: usize, out: FloatMatrix) {
        let mut r = 0;
        while r < rows {
            r += unsafe {
                match rows - r {
                    4.. if const { S::PAIR_ROWS >= 8 } => self.products::<S, HIGH, 4, 8>(s, r, out),
                    2.. => self.products::<S, HIGH, 2, 4>(s, r, out),
                    _ => self.products::<S, HIGH, 1, 2>(s, r, out),
                }
            };
        }
    }

    /// Adds the weighted values to N rows, which have XS = 2 * N planes of weights; returns N.
    #[inline(always)]
    unsafe fn products<S: Simd, const HIGH: bool, const N: usize, const XS: usize>(
        &self,
        s: S,
        row: usize,
        out: FloatMatrix,
    ) -> usize {
        unsafe {
            let mut acc = std::array::from_fn(|i| s.i_splat((*self.sums.add(row + i / 2))[i % 2]));
            s.dot32_rows::<VALUE_BITS, XS>(&mut acc, halves::<S, HIGH>(s, self.codes), self.x.row(row), Ahead::NOTHING);
            for i in 0..N {
                let at = out.row(row + i);
                let sum = s.fma(s.i_to_f(acc[2 * i]), s.splat(Weights::STEPS), s.i_to_f(acc[2 * i + 1]));
                s.store(at, s.fma(sum, s.splat(*self.x.scales.add(row + i)), s.load(at)));
            }
            N
        }
    }

    /// Prefetches the codes that are `ahead` bytes behind these.
    #[inline(always)]
    fn prefetch_next<S: Simd>(&self, s: S, ahead: isize) {
        for line in (0..KV_BLOCK * S::LANES).step_by(64) {
            s.prefetch_l2(self.codes.wrapping_add(line).wrapping_offset(ahead));
        }
    }
}
