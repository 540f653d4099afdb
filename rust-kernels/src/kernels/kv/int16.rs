//! Keys and values in 16 bits: integers with one scale per head and token (kernels/pairs.rs). Queries and weights
//! become integers too. The rounding error is smaller than with keys and values in f16.
//!
//! # Layout
//! A block has codes, then scales. Codes are in vectors of two per lane, for `dot_pair`.
//! - Keys have positions in the lanes: [KV_BLOCK / LANES][head_dim / 2][LANES x 2 dimensions].
//! - Values have dimensions in the lanes: [head_dim / LANES][KV_BLOCK / 2][LANES x 2 positions].
//! - A scale is the upper half of a float: [KV_BLOCK].
mod scratch;

use self::scratch::Scratch;
use super::{Block, FloatMatrix, HALF_MAX, KV_BLOCK, KvFormat, MAX_BLOCKS, MAX_ROWS, Queries};
use crate::kernels::pairs::{MOST, PAIR, Pairs, SEGMENT, SUMMED, Size, codes, place};
use crate::simd::Simd;
use std::ops::Range;

/// Number of positions whose attention weights share a scale.
const CHUNK: usize = MAX_BLOCKS * KV_BLOCK;
/// Number of query rows whose codes alternate: [row / GROUP][head_dim / 2][GROUP][2].
const GROUP: usize = 8;
/// Up to this number of query rows, values are read block by block, and the next block is prefetched meanwhile. With
/// more rows, each vector of dimensions is computed for all blocks at once, so that its sums stay in registers.
const FEW: usize = 8;

/// Returns the index of code d of the key in `slot` of its block. `together` is `Simd::PAIRS_TOGETHER`.
#[inline(always)]
pub const fn key_index(lanes: usize, together: bool, head_dim: usize, d: usize, slot: usize) -> usize {
    (slot / lanes * head_dim + d / 2 * 2) * lanes + place(lanes, together, slot % lanes, d % 2)
}

/// Returns the index of code d of the value in `slot` of its block. `together` is `Simd::PAIRS_TOGETHER`.
#[inline(always)]
pub const fn value_index(lanes: usize, together: bool, d: usize, slot: usize) -> usize {
    (d / lanes * KV_BLOCK + slot / 2 * 2) * lanes + place(lanes, together, d % lanes, slot % 2)
}

/// Returns the index of the scale of the key or value in `slot`, counted in 16-bit codes from the block's start.
#[inline(always)]
pub const fn scale_index(head_dim: usize, slot: usize) -> usize {
    KV_BLOCK * head_dim + slot
}

pub struct Int16;

impl KvFormat for Int16 {
    fn scratch_len(head_dim: usize) -> usize {
        MAX_ROWS * (head_dim / 2 + 1) + MAX_ROWS * (CHUNK / 2 + 1) + CHUNK + MAX_ROWS * head_dim
    }

    #[inline(always)]
    unsafe fn append_key<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            let block = block.cast::<i16>();
            let scale = upper_half(finite_size(s, x, head_dim).scale());
            write_scale(block, head_dim, slot, scale);
            each_code(s, x, head_dim, scale, |d, code| {
                *block.add(key_index(S::LANES, S::PAIRS_TOGETHER, head_dim, d, slot)) = code;
            });
        }
    }

    #[inline(always)]
    unsafe fn append_value<S: Simd>(s: S, x: *const f32, head_dim: usize, block: *mut u8, slot: usize) {
        unsafe {
            let block = block.cast::<i16>();
            let scale = upper_half(finite_size(s, x, head_dim).top / MOST);
            write_scale(block, head_dim, slot, scale);
            each_code(s, x, head_dim, scale, |d, code| {
                *block.add(value_index(S::LANES, S::PAIRS_TOGETHER, d, slot)) = code;
            });
        }
    }

    #[inline(always)]
    unsafe fn prepare<S: Simd>(s: S, queries: &Queries) {
        unsafe {
            let to = Scratch::new(queries);
            for (r, q) in queries.q.iter().enumerate() {
                // Queries are not clamped as keys and values are, because NaN must stay NaN.
                let scale = Size::of(s, *q, queries.head_dim).scale();
                *to.query_scales.add(r) = scale;
                let to_codes = to.query(queries, r);
                let put = |d: usize, code: i16| *to_codes.add(d / 2 * 2 * GROUP + d % 2) = code;
                codes(s, queries.head_dim, scale, |d| s.load(q.add(d)), put);
            }
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix) {
        s.prefetch_l2(scales(keys.at, queries.head_dim).wrapping_byte_offset(keys.ahead()).cast());
        unsafe {
            if rows.len() <= S::PAIRS_IN_ORDER {
                score::<S, 1>(s, queries, rows, keys, out)
            } else {
                score::<S, 2>(s, queries, rows, keys, out)
            }
        }
    }

    #[inline(always)]
    unsafe fn before_mix<S: Simd>(s: S, head_dim: usize, values: &[Block]) {
        for block in values {
            s.prefetch(scales(block.at, head_dim).cast());
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
            let (to, dim) = (Scratch::new(queries), queries.head_dim);
            to.widen_scales(s, values, dim, depth);
            for r in rows.clone() {
                to.round_weights(s, r, weights.row(r), depth);
            }
            if rows.len() > FEW {
                let tiles = ValueTiles { from: &to, first: 0, values, depth, dim, out };
                return tiles.mix::<S, false>(s, rows);
            }
            let sums = FloatMatrix { at: to.sums, stride: dim };
            for r in rows.clone() {
                std::slice::from_raw_parts_mut(sums.row(r), dim).fill(0.0);
            }
            for (i, block) in values.iter().enumerate() {
                let (values, first) = (std::slice::from_ref(block), i * KV_BLOCK);
                let depth = (depth - first).min(KV_BLOCK);
                let tiles = ValueTiles { from: &to, first, values, depth, dim, out: sums };
                tiles.mix::<S, true>(s, rows.clone());
            }
            for r in rows {
                let (scale, from, to) = (s.splat(*to.weight_scales.add(r)), sums.row(r), out.row(r));
                for d in (0..dim).step_by(S::LANES) {
                    s.store(to.add(d), s.fma(s.load(from.add(d)), scale, s.load(to.add(d))));
                }
            }
        }
    }
}

/// Computes `KvFormat::scores`, V vectors of positions at a time.
///
/// # Safety
/// As `KvFormat::scores`.
#[inline(always)]
unsafe fn score<S: Simd, const V: usize>(s: S, queries: &Queries, rows: Range<usize>, keys: Block, out: FloatMatrix) {
    let (from, dim) = (Scratch::new(queries), queries.head_dim);
    let vector = dim / 2 * PAIR * S::LANES;
    for slot in (0..KV_BLOCK).step_by(V * S::LANES) {
        let mut r = rows.start;
        while r < rows.end {
            unsafe {
                let tile = KeyTile {
                    queries: from.query(queries, r),
                    query_scales: from.query_scales.add(r),
                    keys: keys.at.add(slot / S::LANES * vector),
                    scales: scales(keys.at, dim).add(slot),
                    pairs: dim / 2,
                    ahead: if r == rows.start { keys.ahead() } else { 0 },
                    out: FloatMatrix { at: out.row(r).add(slot), ..out },
                };
                r += match (rows.end - r).min(GROUP - r % GROUP) {
                    8.. if const { S::PAIR_ROWS >= 8 } => tile.products::<S, 8, V>(s),
                    4.. if const { S::PAIR_ROWS >= 4 } => tile.products::<S, 4, V>(s),
                    2.. => tile.products::<S, 2, V>(s),
                    _ => tile.products::<S, 1, V>(s),
                };
            }
        }
    }
}

/// Returns the address of a block's scales, which take one cache line.
#[inline(always)]
const fn scales(block: *const u8, head_dim: usize) -> *const u16 {
    block.cast::<u16>().wrapping_add(scale_index(head_dim, 0))
}

/// Rounds a scale up to a float whose lower 16 bits are zero. Returns 0 if the scale is too small to divide by.
fn upper_half(scale: f32) -> f32 {
    if scale < f32::MIN_POSITIVE {
        return 0.0;
    }
    f32::from_bits((scale.to_bits() + 0xffff) & 0xffff_0000)
}

/// # Safety
/// `block` is a whole block.
#[inline(always)]
unsafe fn write_scale(block: *mut i16, head_dim: usize, slot: usize, scale: f32) {
    unsafe { *block.cast::<u16>().add(scale_index(head_dim, slot)) = (scale.to_bits() >> 16) as u16 }
}

/// Loads LANES floats, clamped to the range of half floats.
#[inline(always)]
unsafe fn finite<S: Simd>(s: S, x: *const f32) -> S::F {
    unsafe { s.max(s.min(s.load(x), s.splat(HALF_MAX)), s.splat(-HALF_MAX)) }
}

/// Returns the sizes of a head's numbers after `finite` has clamped them.
///
/// # Safety
/// `x` holds `n` floats, a multiple of 16.
#[inline(always)]
unsafe fn finite_size<S: Simd>(s: S, x: *const f32, n: usize) -> Size {
    unsafe { Size::with(s, n, |d| finite(s, x.add(d))) }
}

/// Passes the code of each of a head's numbers to `put`, after `finite` has clamped the number.
#[inline(always)]
unsafe fn each_code<S: Simd>(s: S, x: *const f32, n: usize, scale: f32, put: impl FnMut(usize, i16)) {
    unsafe { codes(s, n, scale, |d| finite(s, x.add(d)), put) }
}

/// The operands of the products of some queries with the keys at some vectors of positions.
struct KeyTile {
    queries: *const i16,
    query_scales: *const f32,
    keys: *const u8,
    scales: *const u16,
    pairs: usize,
    ahead: isize,
    out: FloatMatrix,
}

impl KeyTile {
    /// Computes the scores of R query rows; returns R.
    ///
    /// # Safety
    /// The rows and positions exist.
    #[inline(always)]
    unsafe fn products<S: Simd, const R: usize, const V: usize>(&self, s: S) -> usize {
        unsafe {
            let mut sums = [[s.splat(0.0); V]; R];
            for start in (0..self.pairs).step_by(SEGMENT / 2) {
                let pairs = Pairs {
                    x: self.queries.add(start * GROUP * 2),
                    row: PAIR,
                    pair: GROUP * PAIR,
                    w: self.keys.add(start * PAIR * S::LANES),
                    next: self.pairs * PAIR * S::LANES,
                    pairs: (self.pairs - start).min(SEGMENT / 2),
                    ahead: self.ahead,
                };
                pairs.add::<S, R, V>(s, &mut sums);
            }
            for v in 0..V {
                let scale = s.load_bf16(self.scales.add(v * S::LANES));
                for r in 0..R {
                    let sum = s.mul(sums[r][v], scale);
                    s.store(self.out.row(r).add(v * S::LANES), s.mul(sum, s.splat(*self.query_scales.add(r))));
                }
            }
        }
        R
    }
}

/// The operands of the products of attention weights, from position `first` on, with the values at these positions.
struct ValueTiles<'a> {
    from: &'a Scratch,
    first: usize,
    values: &'a [Block],
    depth: usize,
    dim: usize,
    out: FloatMatrix,
}

impl ValueTiles<'_> {
    /// Computes the weighted values of some rows, in register tiles. With CARRIED, the sums continue from `out`.
    /// Otherwise they are multiplied by the rows' scales and added to `out`.
    ///
    /// # Safety
    /// As `KvFormat::mix`.
    #[inline(always)]
    unsafe fn mix<S: Simd, const CARRIED: bool>(&self, s: S, rows: Range<usize>) {
        let mut d = 0;
        while d < self.dim {
            // Takes one vector at a time if memory should be read in order. Also takes one for the rest of a head_dim
            // that is not a multiple of two vectors.
            let two = rows.len() > S::PAIRS_IN_ORDER && self.dim - d >= 2 * S::LANES;
            let mut r = rows.start;
            while r < rows.end {
                let ahead = r == rows.start;
                // SAFETY: guaranteed by the caller.
                r += unsafe {
                    match (rows.end - r, two) {
                        (8.., true) if const { S::PAIR_ROWS >= 8 } => self.tile::<S, 8, 2, CARRIED>(s, r, d, ahead),
                        (4.., true) if const { S::PAIR_ROWS >= 4 } => self.tile::<S, 4, 2, CARRIED>(s, r, d, ahead),
                        (2.., true) => self.tile::<S, 2, 2, CARRIED>(s, r, d, ahead),
                        (_, true) => self.tile::<S, 1, 2, CARRIED>(s, r, d, ahead),
                        (8.., false) if const { S::PAIR_ROWS >= 8 } => self.tile::<S, 8, 1, CARRIED>(s, r, d, ahead),
                        (4.., false) if const { S::PAIR_ROWS >= 4 } => self.tile::<S, 4, 1, CARRIED>(s, r, d, ahead),
                        (2.., false) => self.tile::<S, 2, 1, CARRIED>(s, r, d, ahead),
                        (_, false) => self.tile::<S, 1, 1, CARRIED>(s, r, d, ahead),
                    }
                };
            }
            d += if two { 2 * S::LANES } else { S::LANES };
        }
    }

    /// Computes R rows, from r on, in V vectors of dimensions, from d on. Returns R.
    ///
    /// # Safety
    /// As `mix`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const V: usize, const CARRIED: bool>(
        &self,
        s: S,
        r: usize,
        d: usize,
        ahead: bool,
    ) -> usize {
        unsafe {
            let out = |i: usize, v: usize| self.out.row(r + i).add(d + v * S::LANES);
            let mut sums = [[s.splat(0.0); V]; R];
            if CARRIED {
                sums = std::array::from_fn(|i| std::array::from_fn(|v| s.load(out(i, v))));
            }
            for start in (0..self.depth).step_by(SUMMED) {
                let block = self.values[start / KV_BLOCK];
                let pairs = Pairs {
                    x: self.from.weights.add(r * CHUNK + self.first + start),
                    row: 2 * CHUNK,
                    pair: PAIR,
                    w: block.at.add(2 * value_index(S::LANES, true, d, start % KV_BLOCK)),
                    next: KV_BLOCK * 2 * S::LANES,
                    pairs: (self.depth - start).min(SUMMED).div_ceil(2),
                    ahead: if ahead { block.ahead() } else { 0 },
                };
                pairs.add::<S, R, V>(s, &mut sums);
            }
            for i in 0..R {
                let scale = s.splat(*self.from.weight_scales.add(r + i));
                for v in 0..V {
                    let to = out(i, v);
                    s.store(to, if CARRIED { sums[i][v] } else { s.fma(sums[i][v], scale, s.load(to)) });
                }
            }
        }
        R
    }
}
