//! Activations in 8 bits: blocks of 32 columns with one f32 scale.
//!
//! # Layout
//! Rows are in tiles of T (1, 2, 4, 8 or 16), so that a kernel reads its tokens as one stream. A tile starts with T x
//! 32 codes for each block. Behind all codes it has, for each block, T scales (f32), T sums of the first 16 codes and
//! T sums of the second 16 (i32). A tile has T * row_bytes(columns) bytes.
//!
//! Instructions that multiply two rows by two need rows in pairs. The 64 codes of two rows of a tile's block then
//! alternate: eight of the first row, eight of the second, and so on.
use crate::formats::BLOCK;
use crate::simd::{Isa, Simd};

/// The quantized rows of a matrix of activations.
#[derive(Clone, Copy)]
pub struct QuantRows {
    pub base: *mut u8,
    pub columns: usize,
    /// Rows of a tile.
    pub tile: usize,
    /// Whether rows are in pairs if a tile has several rows (`Simd::ROW_PAIRS`).
    pub paired: bool,
}

/// Adjacent columns of a row in a pair.
const PAIR_COLUMNS: usize = 8;

/// Rows in two planes. The second plane holds the rounding errors of the first. Together they keep about 15 bits of
/// each number.
#[derive(Clone, Copy)]
pub struct FineRows {
    pub rows: QuantRows,
    /// Index of the second plane's first row in `rows`.
    pub rest: usize,
}

impl FineRows {
    /// `count` rows at `base`, which has room for `planes(count)` rows. Few rows share a tile with their second
    /// plane, so that one pass over the weights serves both.
    pub fn new(base: *mut u8, columns: usize, count: usize, isa: Isa) -> Self {
        let widest = isa.tile();
        let rest = if 2 * count <= widest { count } else { count.next_multiple_of(widest) };
        let tile = tile_rows(2 * count, widest);
        Self { rows: QuantRows { base, columns, tile, paired: isa.row_pairs() }, rest }
    }

    /// Rows of both planes of `count` rows, gaps included. `widest` is the widest tile of any kernel.
    pub fn planes(count: usize, widest: usize) -> Option<usize> {
        count.checked_next_multiple_of(widest)?.checked_mul(2)
    }
}

/// Bytes per row: codes, and a scale and two sums per block, padded so that tiles start on cache lines.
#[inline]
pub const fn row_bytes(columns: usize) -> usize {
    (columns + columns / BLOCK * 12).next_multiple_of(64)
}

/// Rows per tile for `rows` rows.
pub fn tile_rows(rows: usize, widest: usize) -> usize {
    rows.next_power_of_two().min(widest)
}

impl QuantRows {
    /// Whether the codes of two rows of a tile alternate.
    #[inline(always)]
    pub fn in_pairs(&self) -> bool {
        self.paired && self.tile > 1
    }

    /// The codes of row `slot` of a tile in block b. If rows are in pairs, these are its first `PAIR_COLUMNS` codes.
    ///
    /// # Safety
    /// The row and block are within the matrix.
    #[inline(always)]
    pub unsafe fn codes(&self, tile: usize, b: usize, slot: usize) -> *mut i8 {
        let (row, first) = if self.in_pairs() { (slot & !1, slot % 2 * PAIR_COLUMNS) } else { (slot, 0) };
        unsafe { self.tile(tile).add((b * self.tile + row) * BLOCK + first).cast() }
    }

    /// Offset of column c of a row's block from its first column.
    #[inline(always)]
    fn column(&self, c: usize) -> usize {
        if self.in_pairs() { c + c / PAIR_COLUMNS * PAIR_COLUMNS } else { c }
    }

    /// Copies a row's codes of a block out of the tile.
    ///
    /// # Safety
    /// The row and block are within the matrix.
    #[inline(always)]
    pub unsafe fn block(&self, tile: usize, b: usize, slot: usize) -> [i8; BLOCK] {
        let mut block = [0; BLOCK];
        for c in (0..BLOCK).step_by(PAIR_COLUMNS) {
            unsafe {
                let codes = self.codes(tile, b, slot).add(self.column(c));
                block[c..].as_mut_ptr().copy_from_nonoverlapping(codes, PAIR_COLUMNS);
            }
        }
        block
    }

    /// Copies a row's codes of a block into the tile.
    ///
    /// # Safety
    /// The row and block are within the matrix.
    #[inline(always)]
    unsafe fn put_block(&self, tile: usize, b: usize, slot: usize, block: &[i8; BLOCK]) {
        for c in (0..BLOCK).step_by(PAIR_COLUMNS) {
            unsafe {
                let codes = self.codes(tile, b, slot).add(self.column(c));
                codes.copy_from_nonoverlapping(block[c..].as_ptr(), PAIR_COLUMNS);
            }
        }
    }

    /// Address of the scale (f32) of row `slot` of a tile in block b. Its sums (i32) follow at +T and +2T.
    ///
    /// # Safety
    /// The row and block are within the matrix.
    #[inline(always)]
    pub unsafe fn meta(&self, tile: usize, b: usize, slot: usize) -> *mut f32 {
        unsafe { self.tile(tile).add(self.tile * self.columns).cast::<f32>().add(b * 3 * self.tile + slot) }
    }

    #[inline(always)]
    unsafe fn tile(&self, tile: usize) -> *mut u8 {
        unsafe { self.base.add(tile * self.tile * row_bytes(self.columns)) }
    }
}

/// Quantizes 32 floats into block `b` of row `row`: scale = max |x| / 127, codes rounded to nearest. A block with NaN
/// or infinity gets a NaN scale, so that every result computed from it is NaN.
///
/// # Safety
/// `x` points at 32 floats; `out` has the row and the block.
#[inline(always)]
pub unsafe fn quantize_block<S: Simd>(s: S, x: *const f32, out: &QuantRows, row: usize, b: usize) {
    unsafe {
        let vectors = BLOCK / S::LANES;
        let mut top = s.splat(0.0);
        let mut zeros = s.splat(0.0);
        for v in 0..vectors {
            let x = s.load(x.add(v * S::LANES));
            top = s.max(top, s.abs(x));
            zeros = s.fma(x, s.splat(0.0), zeros);
        }
        let (tile, slot) = (row / out.tile, row % out.tile);
        let (codes, meta) = (out.codes(tile, b, slot), out.meta(tile, b, slot));
        let put_sums = |first: i32, second: i32| {
            meta.add(out.tile).cast::<i32>().write(first);
            meta.add(2 * out.tile).cast::<i32>().write(second);
        };
        if s.sum(zeros).is_nan() {
            out.put_block(tile, b, slot, &[0; BLOCK]);
            meta.write(f32::NAN);
            return put_sums(0, 0);
        }
        let top = s.largest(top);
        let scale = top / 127.0;
        // If the scale is too small to invert, the block is zero to within f32's range.
        let inverse = if scale > f32::MIN_POSITIVE { 127.0 / top } else { 0.0 };
        let mut sums = [s.i_splat(0); 2];
        for v in 0..vectors {
            let scaled = s.mul(s.load(x.add(v * S::LANES)), s.splat(inverse));
            let c = v * S::LANES;
            let q = s.store_i8(codes.add(if S::ROW_PAIRS { out.column(c) } else { c }), scaled);
            let half = 2 * v / vectors;
            sums[half] = s.i_add(sums[half], q);
        }
        meta.write(if inverse > 0.0 { scale } else { 0.0 });
        put_sums(s.i_sum(sums[0]), s.i_sum(sums[1]));
    }
}

/// Quantizes 32 floats in two planes.
///
/// # Safety
/// `x` points at 32 floats; `out` has the row and the block.
#[inline(always)]
pub unsafe fn quantize_block_finely<S: Simd>(s: S, x: *const f32, out: &FineRows, row: usize, b: usize) {
    unsafe {
        let rows = &out.rows;
        quantize_block(s, x, rows, row, b);
        let (tile, slot) = (row / rows.tile, row % rows.tile);
        let (codes, scale) = (rows.block(tile, b, slot), s.splat(*rows.meta(tile, b, slot)));
        let mut rest = [0f32; BLOCK];
        for c in (0..BLOCK).step_by(S::LANES) {
            let left = s.fnma(scale, s.load_i8(codes[c..].as_ptr()), s.load(x.add(c)));
            s.store(rest.as_mut_ptr().add(c), left);
        }
        quantize_block(s, rest.as_ptr(), rows, out.rest + row, b);
    }
}

/// Quantizes a whole row.
///
/// # Safety
/// `x` points at `out.columns` floats, a multiple of 32; `out` has the row.
#[inline(always)]
pub unsafe fn quantize_row<S: Simd>(s: S, x: *const f32, out: &QuantRows, row: usize) {
    for b in 0..out.columns / BLOCK {
        unsafe { quantize_block(s, x.add(b * BLOCK), out, row, b) }
    }
}

/// Quantizes a whole row in two planes.
///
/// # Safety
/// As `quantize_row`.
#[inline(always)]
pub unsafe fn quantize_row_finely<S: Simd>(s: S, x: *const f32, out: &FineRows, row: usize) {
    for b in 0..out.rows.columns / BLOCK {
        unsafe { quantize_block_finely(s, x.add(b * BLOCK), out, row, b) }
    }
}

/// Copies row `row` of `from` to row `to_row` of `to`. Their tiles may differ.
///
/// # Safety
/// Both have the row and the same number of columns.
pub unsafe fn copy_row(from: &QuantRows, row: usize, to: &QuantRows, to_row: usize) {
    let (tile, slot) = (row / from.tile, row % from.tile);
    let (to_tile, to_slot) = (to_row / to.tile, to_row % to.tile);
    for b in 0..from.columns / BLOCK {
        unsafe {
            to.put_block(to_tile, b, to_slot, &from.block(tile, b, slot));
            let (meta, copy) = (from.meta(tile, b, slot), to.meta(to_tile, b, to_slot));
            for word in 0..3 {
                *copy.add(word * to.tile) = *meta.add(word * from.tile);
            }
        }
    }
}
