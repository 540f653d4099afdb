//! Keys and values in 8 bits: every SCALED values of a head share a scale, as in GGUF's Q8_0. Both products of
//! attention are integer dot products. Queries are quantized like activations. Attention weights are multiplied by the
//! values' scales, then split into two planes of 7 bits. So the rounding of the weights is negligible beside the
//! rounding of the values.
//!
//! # Layout
//! A block has codes, then scales. Codes have the layout of `dot16`.
//! - Key codes stand for code - 128, with positions in the lanes: [KV_BLOCK / LANES][head_dim / 4][LANES][4
//!   dimensions].
//! - Value codes are signed, with dimensions in the lanes: [head_dim / LANES][KV_BLOCK / 4][LANES][4 positions].
//! - Scales are half floats: [head_dim / SCALED, rounded up][KV_BLOCK]. The last scale covers 16 values if head_dim is
//!   not a multiple of SCALED.
use super::{Block, FloatMatrix, HALF_MAX, KV_BLOCK, KvFormat, MAX_ROWS, Queries, weights};
use crate::formats::BLOCK;
use crate::kernels::quant_rows::{QuantRows, quantize_block, row_bytes};
use crate::simd::Simd;
use std::ops::Range;

/// Number of values of a head that share a scale.
pub const SCALED: usize = BLOCK;

type Weights = weights::Weights<false>;

/// Returns the byte index of code d of the key in `slot` of its block.
#[inline(always)]
pub const fn key_index(lanes: usize, head_dim: usize, d: usize, slot: usize) -> usize {
    (slot / lanes * head_dim + d / 4 * 4) * lanes + slot % lanes * 4 + d % 4
}

/// Returns the byte index of code d of the value in `slot` of its block.
#[inline(always)]
pub const fn value_index(lanes: usize, d: usize, slot: usize) -> usize {
    (d / lanes * KV_BLOCK + slot / 4 * 4) * lanes + d % lanes * 4 + slot % 4
}

/// Returns the byte index of the scale of code d of the key or value in `slot`.
#[inline(always)]
pub const fn scale_index(head_dim: usize, d: usize, slot: usize) -> usize {
    KV_BLOCK * head_dim + 2 * (d / SCALED * KV_BLOCK + slot)
}

pub struct Q8_0;

impl KvFormat for Q8_0 {
    fn scratch_len(head_dim: usize) -> usize {
        Weights::LEN + MAX_ROWS * row_bytes(padded(head_dim)) / 4
    }

    #[inline(always)]
    unsafe fn append_key<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            append(s, x, head_dim, block, slot, |d, codes| {
                for (i, four) in codes.as_chunks::<4>().0.iter().enumerate() {
                    let at = block.add(key_index(S::LANES, head_dim, d + 4 * i, slot)).cast::<u32>();
                    at.write_unaligned(u32::from_ne_bytes(four.map(i8::cast_unsigned)) ^ 0x8080_8080);
                }
            });
        }
    }

    #[inline(always)]
    unsafe fn append_value<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            append(s, x, head_dim, block, slot, |d, codes| {
                for (i, code) in codes.iter().enumerate() {
                    *block.cast::<i8>().add(value_index(S::LANES, d + i, slot)) = *code;
                }
            });
        }
    }

    #[inline(always)]
    unsafe fn prepare<S: Simd>(s: S, queries: &Queries) {
        unsafe {
            let rows = quantised(queries);
            for (r, q) in queries.q.iter().enumerate() {
                for b in 0..rows.columns / SCALED {
                    let n = SCALED.min(queries.head_dim - b * SCALED);
                    let mut padded = [0f32; SCALED];
                    std::ptr::copy_nonoverlapping(q.add(b * SCALED), padded.as_mut_ptr(), n);
                    quantize_block(s, padded.as_ptr(), &rows, r, b);
                    // Key codes have an offset of 128. The correction for it replaces the sums of the query's codes.
                    let sums = rows.meta(0, b, r).cast::<i32>();
                    let sum = *sums.add(rows.tile) + *sums.add(2 * rows.tile);
                    *sums.add(rows.tile) = -S::WIDE_BIAS * sum;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix) {
        unsafe {
            if const { S::PANELS >= 2 } {
                scores_by::<S, 2>(s, queries, rows, keys, out);
            } else {
                scores_by::<S, 1>(s, queries, rows, keys, out);
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
        // The scratch memory may hold old weights beyond `depth`.
        for r in rows.clone() {
            std::slice::from_raw_parts_mut(weights.row(r).add(depth), KV_BLOCK - depth).fill(0.0);
        }
        for d in (0..queries.head_dim).step_by(SCALED) {
            let scales = values.at.add(scale_index(queries.head_dim, d, 0));
            s.prefetch_l2(scales.wrapping_offset(values.ahead()));
            let mut wide = [0f32; KV_BLOCK];
            for i in (0..KV_BLOCK).step_by(S::LANES) {
                s.store(wide.as_mut_ptr().add(i), s.load_f16(scales.cast::<u16>().add(i)));
            }
            wide[depth..].fill(0.0);
            for (i, r) in rows.clone().enumerate() {
                x.quantize(s, i, weights.row(r), &wide);
            }
            let end = queries.head_dim.min(d + SCALED);
            let mut from = d;
            while from < end {
                let tile = ValueTile { x, codes: values.at.add(value_index(S::LANES, from, 0)), depth };
                let out = FloatMatrix { at: out.row(rows.start).add(from), ..out };
                from += S::LANES
                    * if S::PANELS >= 2 && end - from >= 2 * S::LANES {
                        tile.rows::<S, 2>(s, rows.len(), values.ahead(), out)
                    } else {
                        tile.rows::<S, 1>(s, rows.len(), values.ahead(), out)
                    };
            }
        }
    }
}

/// Quantizes a key or a value, clamped to the range of half floats. Writes the scales to the block and passes each
/// scale's codes and first dimension to `put`.
///
/// # Safety
/// As `KvFormat`.
#[inline(always)]
unsafe fn append<S: Simd>(
    s: S,
    x: *const f32,
    head_dim: usize,
    block: *mut u8,
    slot: usize,
    put: impl Fn(usize, &[i8]),
) {
    unsafe {
        let mut room = [0f32; row_bytes(SCALED) / 4];
        let out = QuantRows { base: room.as_mut_ptr().cast(), columns: SCALED, tile: 1, paired: false };
        for d in (0..head_dim).step_by(SCALED) {
            let n = SCALED.min(head_dim - d);
            let mut clamped = [0f32; SCALED];
            for i in (0..n).step_by(S::LANES) {
                let finite = s.max(s.min(s.load(x.add(d + i)), s.splat(HALF_MAX)), s.splat(-HALF_MAX));
                s.store(clamped.as_mut_ptr().add(i), finite);
            }
            quantize_block(s, clamped.as_ptr(), &out, 0, 0);
            let mut halves = [0u16; 16];
            s.store_f16(halves.as_mut_ptr(), s.splat(*out.meta(0, 0, 0)));
            block.add(scale_index(head_dim, d, slot)).cast::<u16>().write_unaligned(halves[0]);
            put(d, std::slice::from_raw_parts(out.codes(0, 0, 0), n));
        }
    }
}

const fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(SCALED)
}

/// Returns the quantized queries. All rows are in one tile, so the rows of any range are adjacent.
fn quantised(queries: &Queries) -> QuantRows {
    let base = queries.scratch.wrapping_add(Weights::LEN).cast();
    QuantRows { base, columns: padded(queries.head_dim), tile: queries.q.len(), paired: false }
}

/// Computes `scores`, P groups of LANES positions at a time.
///
/// # Safety
/// As `scores`; P * LANES divides KV_BLOCK.
#[inline(always)]
unsafe fn scores_by<S: Simd, const P: usize>(
    s: S,
    queries: &Queries,
    rows: Range<usize>,
    keys: Block,
    out: FloatMatrix,
) {
    unsafe {
        let x = quantised(queries);
        for slot in (0..KV_BLOCK).step_by(P * S::LANES) {
            let mut row = rows.start;
            while row < rows.end {
                let ahead = (row == rows.start).then(|| keys.ahead());
                let tile = KeyTile { x, row, keys: keys.at, slot, head_dim: queries.head_dim, ahead };
                let at = FloatMatrix { at: out.row(row).add(slot), ..out };
                row += match rows.end - row {
                    4.. => tile.products::<S, P, 4>(s, at),
                    2.. => tile.products::<S, P, 2>(s, at),
                    _ => tile.products::<S, P, 1>(s, at),
                };
            }
        }
    }
}

/// The operands of the products of some query rows with a block's keys, from position `slot` on.
struct KeyTile {
    x: QuantRows,
    row: usize,
    keys: *const u8,
    slot: usize,
    head_dim: usize,
    /// Distance in bytes to the data that is read next; None if another tile prefetches that data.
    ahead: Option<isize>,
}

impl KeyTile {
    /// Computes the products of N queries with the keys of P groups of LANES positions; returns N.
    ///
    /// # Safety
    /// The rows and positions exist.
    #[inline(always)]
    unsafe fn products<S: Simd, const P: usize, const N: usize>(&self, s: S, out: FloatMatrix) -> usize {
        unsafe {
            let panel = self.head_dim * S::LANES;
            let mut sums = [[s.splat(0.0); N]; P];
            for (b, d) in (0..self.head_dim).step_by(SCALED).enumerate() {
                let mut acc = [[s.i_splat(0); N]; P];
                let meta = self.x.meta(0, b, self.row);
                for i in 0..N {
                    let unbias = s.i_splat(*meta.add(self.x.tile + i).cast::<i32>());
                    for acc in &mut acc {
                        acc[i] = unbias;
                    }
                }
                let x = self.x.codes(0, b, self.row);
                for c in (0..SCALED.min(self.head_dim - d)).step_by(16) {
                    let codes = self.keys.add(key_index(S::LANES, self.head_dim, d + c, self.slot));
                    self.prefetch_next::<S, P>(s, codes, panel);
                    s.dot16_tile::<8, P, N>(&mut acc, codes, panel, x.add(c));
                }
                let scales = self.keys.add(scale_index(self.head_dim, d, self.slot));
                for j in 0..P {
                    let scale = s.load_f16(scales.cast::<u16>().add(j * S::LANES));
                    for i in 0..N {
                        let product = s.mul(s.i_to_f(acc[j][i]), scale);
                        sums[j][i] = s.fma(product, s.splat(*meta.add(i)), sums[j][i]);
                    }
                }
            }
            for (j, sums) in sums.iter().enumerate() {
                for (i, sum) in sums.iter().enumerate() {
                    s.store(out.row(i).add(j * S::LANES), *sum);
                }
            }
            N
        }
    }

    /// Prefetches for P groups the lines that are `ahead` bytes behind the current 16 columns.
    #[inline(always)]
    fn prefetch_next<S: Simd, const P: usize>(&self, s: S, codes: *const u8, panel: usize) {
        let Some(ahead) = self.ahead else { return };
        for line in (0..P * 16 * S::LANES).step_by(64) {
            let (group, line) = (line / (16 * S::LANES), line % (16 * S::LANES));
            s.prefetch_l2(codes.wrapping_add(group * panel + line).wrapping_offset(ahead));
        }
    }
}

/// The operands of the products of attention weights with some dimensions of a block's values.
struct ValueTile {
    x: Weights,
    /// The values' codes, from the first of these dimensions on.
    codes: *const u8,
    depth: usize,
}

impl ValueTile {
    /// Adds the weighted values of P groups of LANES dimensions to each row; returns P.
    ///
    /// # Safety
    /// As `KvFormat::mix`; `out` is the first row's first dimension.
    #[inline(always)]
    unsafe fn rows<S: Simd, const P: usize>(&self, s: S, rows: usize, ahead: isize, out: FloatMatrix) -> usize {
        unsafe {
            for line in (0..P * KV_BLOCK * S::LANES).step_by(64) {
                s.prefetch_l2(self.codes.wrapping_add(line).wrapping_offset(ahead));
            }
            let mut r = 0;
            while r < rows {
                r += if rows - r >= 2 {
                    self.products::<S, P, 2, 4>(s, r, out)
                } else {
                    self.products::<S, P, 1, 2>(s, r, out)
                };
            }
            P
        }
    }

    /// Adds the weighted values to N rows, which have XS = 2 * N planes of weights; returns N.
    #[inline(always)]
    unsafe fn products<S: Simd, const P: usize, const N: usize, const XS: usize>(
        &self,
        s: S,
        row: usize,
        out: FloatMatrix,
    ) -> usize {
        unsafe {
            let mut acc = [[s.i_splat(0); XS]; P];
            let x = self.x.row(row);
            for slot in (0..self.depth).step_by(16) {
                for (j, acc) in acc.iter_mut().enumerate() {
                    let codes = self.codes.add((j * KV_BLOCK + slot) * S::LANES);
                    let four = 4 * S::LANES;
                    let w = [
                        s.b_load(codes),
                        s.b_load(codes.add(four)),
                        s.b_load(codes.add(2 * four)),
                        s.b_load(codes.add(3 * four)),
                    ];
                    for (i, acc) in acc.iter_mut().enumerate() {
                        *acc = s.dot16_signed(*acc, w, x.add(i * KV_BLOCK + slot));
                    }
                }
            }
            for (j, acc) in acc.iter().enumerate() {
                for i in 0..N {
                    let at = out.row(row + i).add(j * S::LANES);
                    let sum = s.fma(s.i_to_f(acc[2 * i]), s.splat(Weights::STEPS), s.i_to_f(acc[2 * i + 1]));
                    s.store(at, s.fma(sum, s.splat(*self.x.scales.add(row + i)), s.load(at)));
                }
            }
            N
        }
    }
}
