//! Wide GEMM: a register tile of several panels and four tokens, or one panel and four or eight, over a unit of 256 columns of the
//! panels that is decoded once, into memory that a first-level cache holds, and used for all tokens.
//!
//! Sums wait in memory while the next unit is decoded; as floats they lose nothing there.
use super::gemm::{DotBits, Gemm, after, finish_rows, prefetch_out};
use super::quant_rows::QuantRows;
use super::scaling::{FACTORS, Factors, Tokens, parts};
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::Simd;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Tokens of the tallest register tile, which tiles of x hold at least.
pub const fn tokens<S: Simd>() -> usize {
    if S::PANELS > 2 { 8 } else { 4 }
}
/// Most panels of a register tile, and lanes of a vector.
const PANELS: usize = 3;
const LANES: usize = 16;
/// Bytes of a block's decoded codes.
pub(super) const CODE_BYTES: usize = BLOCK * LANES;
/// Tokens whose sums are kept at once.
pub(super) const CHUNK: usize = 128;

/// A unit of some panels, decoded: [panel][block], LANES rows in the lanes.
#[repr(C, align(64))]
pub(super) struct Unit {
    /// Columns 4g.. of every row in vector g.
    codes: [[[u8; CODE_BYTES]; UNIT_BLOCKS]; PANELS],
    /// Of each part, as `Factors::store` leaves them.
    pub factors: [[[[f32; FACTORS * LANES]; 2]; UNIT_BLOCKS]; PANELS],
}

/// Where a unit's codes are: bytes from a block to the next, and from a panel to the next.
pub(super) struct Codes {
    pub base: *const u8,
    pub block: usize,
    pub panel: usize,
}

impl Codes {
    /// Codes that were decoded.
    pub fn of_unit(unit: *const Unit) -> Self {
        Self { base: unit.cast(), block: CODE_BYTES, panel: UNIT_BLOCKS * CODE_BYTES }
    }

    /// Where a block of panel j is decoded to.
    ///
    /// # Safety
    /// `unit` has the panel and the block.
    #[inline(always)]
    pub unsafe fn decoded(unit: *mut Unit, j: usize, b: usize) -> *mut u8 {
        unsafe { (&raw mut (*unit).codes[j][b]).cast() }
    }
}

/// Sums of a chunk: [token][panel], LANES rows in the lanes.
#[repr(C, align(64))]
pub(super) struct Sums([[f32; PANELS * LANES]; CHUNK]);

/// As `BlockGemm`, with tiles of x of `tokens` at least.
///
/// # Safety
/// As `BlockGemm`.
#[inline(always)]
pub unsafe fn gemm<S: Simd, F: BlockFormat>(s: S, args: &Gemm, x: &QuantRows, corrections: *const f32) {
    let (mut unit, mut sums) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let x = Operand { x, corrections };
    let panels = args.rows.div_ceil(S::LANES);
    for from in (args.from..args.to).step_by(CHUNK) {
        let to = args.to.min(from + CHUNK);
        let mut p = 0;
        while p < panels {
            // SAFETY: panels p.. and rows from..to are within `args`; the memory is this call's own.
            p += unsafe {
                match (panels - p).min(S::PANELS) {
                    3.. => panels_of::<S, F, 3, 4>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr()),
                    2 if S::PANELS == 2 => {
                        panels_of::<S, F, 2, 4>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr())
                    }
                    // Four chains of sums would not hide the products' latency.
                    _ if S::PANELS > 2 => {
                        panels_of::<S, F, 1, 8>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr())
                    }
                    _ => panels_of::<S, F, 1, 4>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr()),
                }
            };
        }
    }
}

/// Activations with what `Prepare` made of them.
pub(super) struct Operand<'a> {
    pub x: &'a QuantRows,
    pub corrections: *const f32,
}

/// P panels from panel p times rows of x; returns P.
#[inline(always)]
unsafe fn panels_of<S: Simd, F: BlockFormat, const P: usize, const N: usize>(
    s: S,
    args: &Gemm,
    x: &Operand,
    p: usize,
    rows: Range<usize>,
    unit: *mut Unit,
    sums: *mut Sums,
) -> usize {
    unsafe {
        let panel = args.panels.add(p * args.panel_bytes);
        let tiles = rows.len().div_ceil(N);
        let mut at = 0;
        for start in (0..args.columns).step_by(UNIT) {
            let blocks = ((args.columns - start) / BLOCK).min(UNIT_BLOCKS);
            let codes = decode::<S, F, P>(s, panel.add(at), args.panel_bytes, blocks, unit);
            let (scale_bytes, code_bytes) = F::unit_layout(blocks, S::LANES);
            at += scale_bytes + code_bytes;
            let last = start + UNIT >= args.columns;
            let next = (!last).then_some(at);
            let ahead = after::<S, P>(args, p, next, scale_bytes + code_bytes);
            for (i, t) in rows.clone().step_by(N).enumerate() {
                ahead.ask::<S, P>(s, i, tiles);
                if last {
                    prefetch_out::<S, P>(s, args, p, t..rows.end.min(t + N));
                }
                let tokens = Tokens::new::<F>(x.x, x.corrections, t, start / BLOCK);
                let sums = sums.cast::<f32>().add(i * N * P * S::LANES);
                tile::<S, F, P, N>(s, &codes, unit, blocks, tokens, sums, start == 0);
                if last {
                    finish_rows::<S, P>(s, args, sums, p, t..rows.end.min(t + N));
                }
            }
        }
    }
    P
}

/// Whether codes are used where they are, which are whole bytes.
const fn in_place<F: BlockFormat>() -> bool {
    F::STORED_BITS == 8
}

/// A unit of P panels, the first at `unit`; returns where its codes are.
///
/// # Safety
/// The panels hold so many blocks; `to` has room.
#[inline(always)]
unsafe fn decode<S: Simd, F: BlockFormat, const P: usize>(
    s: S,
    unit: *const u8,
    panel_bytes: usize,
    blocks: usize,
    to: *mut Unit,
) -> Codes {
    unsafe { decode_factors::<S, F, P>(s, unit, panel_bytes, blocks, to) };
    if in_place::<F>() {
        let base = unsafe { unit.add(F::unit_layout(blocks, S::LANES).0) };
        return Codes { base, block: F::code_bytes(S::LANES), panel: panel_bytes };
    }
    for j in 0..P {
        for b in 0..blocks {
            unsafe {
                let (w, codes) = (F::codes(s, unit.add(j * panel_bytes), blocks, b), Codes::decoded(to, j, b));
                for g in 0..8 {
                    s.b_store(codes.add(4 * S::LANES * g), w[g]);
                }
            }
        }
    }
    Codes::of_unit(to)
}

/// What the sums of a unit of P panels are multiplied by.
///
/// # Safety
/// As `decode`.
#[inline(always)]
pub(super) unsafe fn decode_factors<S: Simd, F: BlockFormat, const P: usize>(
    s: S,
    unit: *const u8,
    panel_bytes: usize,
    blocks: usize,
    to: *mut Unit,
) {
    for j in 0..P {
        for b in 0..blocks {
            for part in 0..parts::<F>() {
                unsafe {
                    let factors = (&raw mut (*to).factors[j][b][part]).cast();
                    Factors::new::<F>(s, unit.add(j * panel_bytes), blocks, b, part).store::<F>(s, factors);
                }
            }
        }
    }
}

/// The register tile: adds `blocks` blocks of P panels times N tokens to `sums`, or starts them.
#[inline(always)]
unsafe fn tile<S: Simd, F: BlockFormat, const P: usize, const N: usize>(
    s: S,
    codes: &Codes,
    unit: *const Unit,
    blocks: usize,
    mut x: Tokens,
    sums: *mut f32,
    start: bool,
) {
    unsafe {
        let mut acc = [[s.splat(0.0); N]; P];
        if !start {
            for j in 0..P {
                for i in 0..N {
                    acc[j][i] = s.load(sums.add((i * P + j) * S::LANES));
                }
            }
        }
        for b in 0..blocks {
            let (base, panel) = (codes.base.add(b * codes.block), codes.panel);
            for part in 0..parts::<F>() {
                let mut dots = [[s.i_splat(0); N]; P];
                for i in 0..N {
                    let first = x.first::<S, F>(s, part, i);
                    for j in 0..P {
                        dots[j][i] = first;
                    }
                }
                for half in part..part + F::SUB / 16 {
                    let codes = base.add(16 * S::LANES * half);
                    s.dot16_tile_bits::<F, P, N>(&mut dots, codes, panel, x.codes.add(16 * half));
                }
                for j in 0..P {
                    let w = Factors::load::<F>(s, (&raw const (*unit).factors[j][b][part]).cast());
                    for i in 0..N {
                        acc[j][i] = x.add::<S, F>(s, &w, dots[j][i], part, i, acc[j][i]);
                    }
                }
            }
            x.next();
        }
        for j in 0..P {
            for i in 0..N {
                s.store(sums.add((i * P + j) * S::LANES), acc[j][i]);
            }
        }
    }
}
