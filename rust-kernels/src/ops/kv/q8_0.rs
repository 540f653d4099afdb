//! Keys and values in 8 bits: every SCALED values of a head share a scale, as in GGUF's Q8_0. Queries are quantised
//! likewise, so that scores are integer dot products; values are widened and meet weights that took the scales on.
//!
//! # Layout
//! A block is codes, then scales. A key's codes stand for code - 128 and lie as `dot16` wants them, positions in the
//! lanes: [KV_BLOCK / LANES][head_dim / 4][LANES][4]. A value's codes are signed and lie straight: [KV_BLOCK][head_dim].
//! Scales are halves: [head_dim / SCALED, rounded up][KV_BLOCK]. The last of them counts for 16 values where head_dim is
//! no multiple of SCALED.
use super::{Block, FloatMatrix, HALF_MAX, KV_BLOCK, KvFormat, MAX_ROWS, Queries, WIDEN_ROWS, row_pointers};
use crate::formats::BLOCK;
use crate::ops::outer_product::{Rhs, outer_product};
use crate::ops::quantize::{QuantRows, quantize_block, row_bytes};
use crate::simd::Simd;
use std::ops::Range;

/// Values of a head under one scale.
pub const SCALED: usize = BLOCK;
/// Floats that the scaled weights of a tile take.
const WEIGHTS: usize = MAX_ROWS * KV_BLOCK;

/// Where code d of the key in `slot` stands in its block, in bytes.
#[inline(always)]
pub const fn key_index(lanes: usize, head_dim: usize, d: usize, slot: usize) -> usize {
    (slot / lanes * head_dim + d / 4 * 4) * lanes + slot % lanes * 4 + d % 4
}

/// Where the scale of code d in `slot`, of a key or a value, stands in its block, in bytes.
#[inline(always)]
pub const fn scale_index(head_dim: usize, d: usize, slot: usize) -> usize {
    KV_BLOCK * head_dim + 2 * (d / SCALED * KV_BLOCK + slot)
}

pub struct Q8_0;

impl KvFormat for Q8_0 {
    fn scratch_len(head_dim: usize) -> usize {
        WEIGHTS + KV_BLOCK * head_dim + MAX_ROWS * row_bytes(padded(head_dim)) / 4
    }

    #[inline(always)]
    unsafe fn append_key<S: Simd>(x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            append::<S>(x, head_dim, block, slot, |d, codes| {
                for (i, four) in codes.as_chunks::<4>().0.iter().enumerate() {
                    let at = block.add(key_index(S::LANES, head_dim, d + 4 * i, slot)).cast::<u32>();
                    at.write_unaligned(u32::from_ne_bytes(four.map(i8::cast_unsigned)) ^ 0x8080_8080);
                }
            });
        }
    }

    #[inline(always)]
    unsafe fn append_value<S: Simd>(x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            append::<S>(x, head_dim, block, slot, |d, codes| {
                std::ptr::copy_nonoverlapping(codes.as_ptr(), block.cast::<i8>().add(slot * head_dim + d), codes.len());
            });
        }
    }

    #[inline(always)]
    unsafe fn prepare<S: Simd>(queries: &Queries) {
        unsafe {
            let rows = quantised(queries);
            for (r, q) in queries.q.iter().enumerate() {
                for b in 0..rows.columns / SCALED {
                    let n = SCALED.min(queries.head_dim - b * SCALED);
                    let mut padded = [0f32; SCALED];
                    std::ptr::copy_nonoverlapping(q.add(b * SCALED), padded.as_mut_ptr(), n);
                    quantize_block::<S>(padded.as_ptr(), &rows, r, b);
                    // What takes the codes' 128 out again, in place of the sums.
                    let sums = rows.meta(0, b, r).cast::<i32>();
                    let sum = *sums.add(rows.tile) + *sums.add(2 * rows.tile);
                    *sums.add(rows.tile) = -S::WIDE_BIAS * sum;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd>(queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix) {
        unsafe {
            if S::PANELS >= 2 {
                scores_by::<S, 2>(queries, rows, keys, out);
            } else {
                scores_by::<S, 1>(queries, rows, keys, out);
            }
        }
    }

    #[inline(always)]
    unsafe fn mix<S: Simd>(
        queries: &Queries,
        rows: Range<usize>,
        weights: FloatMatrix,
        depth: usize,
        values: Block,
        out: FloatMatrix,
    ) {
        unsafe {
            let (dim, ahead) = (queries.head_dim, values.ahead());
            let codes = Rhs { base: values.at.cast::<i8>(), row: dim, group: dim, next_group: 0, ahead };
            let scaled = FloatMatrix { at: queries.scratch, stride: KV_BLOCK };
            let lhs = &row_pointers(scaled, &(0..rows.len()))[..rows.len()];
            let wide = queries.scratch.add(WEIGHTS);
            let widened = if rows.len() >= WIDEN_ROWS { Some(codes.widen::<S>(depth * dim, wide)) } else { None };
            for d in (0..dim).step_by(SCALED) {
                let scales = values.at.add(scale_index(dim, d, 0));
                S::prefetch(scales.wrapping_offset(ahead));
                for r in 0..rows.len() {
                    for i in (0..KV_BLOCK).step_by(S::LANES) {
                        let weight = S::load(weights.row(rows.start + r).add(i));
                        S::store(scaled.row(r).add(i), S::mul(weight, S::load_f16(scales.cast::<u16>().add(i))));
                    }
                }
                let (n, out) = (SCALED.min(dim - d), FloatMatrix { at: out.row(rows.start).add(d), ..out });
                match &widened {
                    Some(floats) => outer_product::<S, _>(lhs, depth, &floats.from(d), n, out, true),
                    None => outer_product::<S, _>(lhs, depth, &codes.from(d), n, out, true),
                }
            }
        }
    }
}

/// Quantises a key or a value, clamped to what halves hold: `put` gets the codes of a scale and the dimension of the
/// first, the block the scale.
///
/// # Safety
/// As `KvFormat`.
#[inline(always)]
unsafe fn append<S: Simd>(x: *const f32, head_dim: usize, block: *mut u8, slot: usize, put: impl Fn(usize, &[i8])) {
    unsafe {
        let mut room = [0f32; row_bytes(SCALED) / 4];
        let out = QuantRows { base: room.as_mut_ptr().cast(), columns: SCALED, tile: 1 };
        for d in (0..head_dim).step_by(SCALED) {
            let n = SCALED.min(head_dim - d);
            let mut clamped = [0f32; SCALED];
            for i in (0..n).step_by(S::LANES) {
                let finite = S::max(S::min(S::load(x.add(d + i)), S::splat(HALF_MAX)), S::splat(-HALF_MAX));
                S::store(clamped.as_mut_ptr().add(i), finite);
            }
            quantize_block::<S>(clamped.as_ptr(), &out, 0, 0);
            let mut halves = [0u16; 16];
            S::store_f16(halves.as_mut_ptr(), S::splat(*out.meta(0, 0, 0)));
            block.add(scale_index(head_dim, d, slot)).cast::<u16>().write_unaligned(halves[0]);
            put(d, std::slice::from_raw_parts(out.codes(0, 0, 0), n));
        }
    }
}

const fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(SCALED)
}

/// Where the quantised queries lie: all rows in one tile, so that those of any range follow each other.
fn quantised(queries: &Queries) -> QuantRows {
    let base = queries.scratch.wrapping_add(WEIGHTS + KV_BLOCK * queries.head_dim).cast();
    QuantRows { base, columns: padded(queries.head_dim), tile: queries.q.len() }
}

/// `scores`, P groups of LANES positions at a time.
///
/// # Safety
/// As `scores`; P * LANES divides KV_BLOCK.
#[inline(always)]
unsafe fn scores_by<S: Simd, const P: usize>(queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix) {
    unsafe {
        let x = quantised(queries);
        for slot in (0..KV_BLOCK).step_by(P * S::LANES) {
            let mut row = rows.start;
            while row < rows.end {
                let ahead = (row == rows.start).then(|| keys.ahead());
                let tile = Tile { x, row, keys: keys.at, slot, head_dim: queries.head_dim, ahead };
                let at = FloatMatrix { at: out.row(row).add(slot), ..out };
                row += match rows.end - row {
                    4.. => tile.products::<S, P, 4>(at),
                    2.. => tile.products::<S, P, 2>(at),
                    _ => tile.products::<S, P, 1>(at),
                };
            }
        }
    }
}

/// Some query rows and groups of positions of a block.
struct Tile {
    x: QuantRows,
    row: usize,
    keys: *const u8,
    slot: usize,
    head_dim: usize,
    /// Bytes to what will be read next, where this tile is the one to ask for it.
    ahead: Option<isize>,
}

impl Tile {
    /// Products of N queries with the keys of P groups of LANES positions; returns N.
    ///
    /// # Safety
    /// The rows and positions are there; S as simd says.
    #[inline(always)]
    unsafe fn products<S: Simd, const P: usize, const N: usize>(&self, out: FloatMatrix) -> usize {
        unsafe {
            let panel = self.head_dim * S::LANES;
            let mut sums = [[S::splat(0.0); N]; P];
            for (b, d) in (0..self.head_dim).step_by(SCALED).enumerate() {
                let mut acc = [[S::i_splat(0); N]; P];
                let meta = self.x.meta(0, b, self.row);
                for i in 0..N {
                    let unbias = S::i_splat(*meta.add(self.x.tile + i).cast::<i32>());
                    for acc in &mut acc {
                        acc[i] = unbias;
                    }
                }
                let x = self.x.codes(0, b, self.row);
                for c in (0..SCALED.min(self.head_dim - d)).step_by(16) {
                    let codes = self.keys.add(key_index(S::LANES, self.head_dim, d + c, self.slot));
                    self.ask_for_next::<S, P>(codes, panel);
                    S::dot16_tile::<8, P, N>(&mut acc, codes, panel, x.add(c));
                }
                let scales = self.keys.add(scale_index(self.head_dim, d, self.slot));
                for j in 0..P {
                    let scale = S::load_f16(scales.cast::<u16>().add(j * S::LANES));
                    for i in 0..N {
                        let product = S::mul(S::i_to_f(acc[j][i]), scale);
                        sums[j][i] = S::fma(product, S::splat(*meta.add(i)), sums[j][i]);
                    }
                }
            }
            for (j, sums) in sums.iter().enumerate() {
                for (i, sum) in sums.iter().enumerate() {
                    S::store(out.row(i).add(j * S::LANES), *sum);
                }
            }
            N
        }
    }

    /// Of 16 columns of P groups.
    #[inline(always)]
    unsafe fn ask_for_next<S: Simd, const P: usize>(&self, codes: *const u8, panel: usize) {
        let Some(ahead) = self.ahead else { return };
        for line in (0..P * 16 * S::LANES).step_by(64) {
            let (group, line) = (line / (16 * S::LANES), line % (16 * S::LANES));
            unsafe { S::prefetch(codes.wrapping_add(group * panel + line).wrapping_offset(ahead)) }
        }
    }
}
