//! Wide GEMM: a register tile of several panels and four tokens, or of one panel and four or eight tokens. A unit of
//! 256 columns of the panels is decoded once into the first-level cache and used for all tokens.
//!
//! Sums wait in memory while the next unit is decoded. As floats they lose nothing there.
use super::dot_bits::DotBits;
use super::gemm::{Gemm, after, finish_rows, prefetch_out};
use super::quant_rows::{QuantRows, row_bytes};
use super::scaling::{FACTORS, Factors, Tokens, parts};
use crate::formats::{BLOCK, BlockFormat, Decoding, UNIT, UNIT_BLOCKS};
use crate::simd::{Pace, RegisterTile, Simd, UNIT_BLOCK_CODES, UNIT_BLOCK_FACTORS, UNIT_PANEL_CODES};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Tokens of the tallest register tile. Tiles of x have at least as many rows.
pub const fn tokens<S: Simd>() -> usize {
    if S::PANELS > 2 { 8 } else { 4 }
}
/// Maximum panels of a register tile, and lanes of a vector.
const PANELS: usize = 3;
const LANES: usize = 16;
/// Bytes of a block's decoded codes.
pub(super) const CODE_BYTES: usize = BLOCK * LANES;
/// Steps of a block, between which lines are prefetched.
const HALVES: usize = 2;
/// Tokens per chunk of sums.
pub(super) const CHUNK: usize = 128;

/// A unit of some panels, decoded: [panel][block], LANES rows in the lanes.
#[repr(C, align(64))]
pub(super) struct Unit {
    /// Vector g holds columns 4g.. of every row.
    codes: [[[u8; CODE_BYTES]; UNIT_BLOCKS]; PANELS],
    pub factors: [[FactorsOfBlock; UNIT_BLOCKS]; PANELS],
}

/// The factors of each part, as `Factors::store` writes them.
pub(super) type FactorsOfBlock = [[f32; FACTORS * LANES]; 2];

/// The position of a unit's codes, and the bytes to the next block and to the next panel.
pub(super) struct Codes {
    pub base: *const u8,
    pub block: usize,
    pub panel: usize,
}

impl Codes {
    /// Decoded codes.
    pub fn of_unit(unit: *const Unit) -> Self {
        Self { base: unit.cast(), block: CODE_BYTES, panel: UNIT_BLOCKS * CODE_BYTES }
    }

    /// Address for the decoded codes of block b of panel j.
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

/// `BlockGemm` for tiles of x with at least `tokens` rows.
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
            // SAFETY: panels p.. and rows from..to are within `args`; no other call uses the memory.
            p += unsafe {
                match (panels - p).min(S::PANELS) {
                    3.. if const { S::PANELS > 2 } => {
                        panels_of::<S, F, 3, 4>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr())
                    }
                    2 if const { S::PANELS == 2 } => {
                        panels_of::<S, F, 2, 4>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr())
                    }
                    // Only four chains of sums would not hide the products' latency.
                    _ if const { S::PANELS > 2 } => {
                        panels_of::<S, F, 1, 8>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr())
                    }
                    _ => panels_of::<S, F, 1, 4>(s, args, &x, p, from..to, unit.as_mut_ptr(), sums.as_mut_ptr()),
                }
            };
        }
    }
}

/// Activations and the output of `Prepare`.
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
        let panels = args.panels.add(p * args.panel_bytes);
        let (tiles, mut at) = (rows.len().div_ceil(N), 0);
        for start in (0..args.columns).step_by(UNIT) {
            let blocks = ((args.columns - start) / BLOCK).min(UNIT_BLOCKS);
            let packed = Packed { unit: panels.add(at), panel_bytes: args.panel_bytes, blocks };
            let decodes_first = const { matches!(decoding::<S, F>(), Decoding::Slow) || in_memory::<S, F, P, N>() };
            if decodes_first {
                for b in 0..blocks {
                    packed.decode::<S, F, P>(s, b, unit);
                }
            }
            let (scale_bytes, code_bytes) = F::unit_layout(blocks, S::LANES);
            at += scale_bytes + code_bytes;
            let last = start + UNIT >= args.columns;
            let next = after::<P>(args, p, (!last).then_some(at), scale_bytes + code_bytes).into_l1();
            let steps = if const { in_memory::<S, F, P, N>() } { 1 } else { blocks * HALVES };
            let mut next = next.over(tiles * steps);
            for (i, t) in rows.clone().step_by(N).enumerate() {
                if last {
                    prefetch_out::<S, P>(s, args, p, t..rows.end.min(t + N));
                }
                let tokens = Tokens::new::<F>(x.x, x.corrections, t, start / BLOCK);
                let sums = sums.cast::<f32>().add(i * N * P * S::LANES);
                let decode = i == 0 && !decodes_first;
                let flags = [decode, start == 0];
                // A tile of four costs as much for one token as for four.
                if const { S::PANELS == 2 } && rows.end - t <= 2 {
                    tile::<S, F, P, 2>(s, &packed, unit, tokens, sums, flags, &mut next);
                } else if const { in_memory::<S, F, P, N>() } {
                    next.step::<S, P>(s);
                    let distance = x.x.tile * row_bytes(x.x.columns);
                    tile_in_memory::<S, F, P>(
                        s,
                        tokens.times(
                            blocks,
                            (&raw const (*unit).codes).cast(),
                            (&raw const (*unit).factors).cast(),
                            distance,
                        ),
                        sums,
                        start == 0,
                    );
                } else {
                    tile::<S, F, P, N>(s, &packed, unit, tokens, sums, flags, &mut next);
                }
                if last {
                    finish_rows::<S, P>(s, args, sums, p, t..rows.end.min(t + N));
                }
            }
        }
    }
    P
}

/// How a format's codes are decoded for the set's products.
const fn decoding<S: Simd, F: BlockFormat>() -> Decoding {
    match Decoding::of::<F>() {
        Decoding::None if !S::BYTES_AS_STORED => Decoding::Fast,
        decoding => decoding,
    }
}

/// Whether `tile_in_memory` computes register tiles of P panels and N tokens.
const fn in_memory<S: Simd, F: BlockFormat, const P: usize, const N: usize>() -> bool {
    S::ADDS_TILES && F::SUB == BLOCK && F::BITS != 6 && P == S::PANELS && N == 4
}

/// Whether a block's sums start from `Simd::first_sums`. They take the place of the mins, which these formats lack.
const fn starts_from_codes<S: Simd, F: BlockFormat>() -> bool {
    assert!(F::BITS < 8 || (F::SUB == BLOCK && !F::HAS_MIN));
    F::BITS == 8 && S::FIRST_SUMS
}

/// Bytes of a decoded block's first 16 columns.
#[inline(always)]
fn half_bytes<S: Simd, F: BlockFormat>() -> usize {
    if F::BITS < 8 { S::unit_code_bytes::<7>() } else { S::unit_code_bytes::<8>() }
}

/// A packed unit of some panels, the first at `unit`.
struct Packed {
    unit: *const u8,
    panel_bytes: usize,
    blocks: usize,
}

impl Packed {
    /// The position of its codes after decoding.
    ///
    /// # Safety
    /// The panels are F's.
    #[inline(always)]
    unsafe fn codes<S: Simd, F: BlockFormat>(&self, unit: *const Unit) -> Codes {
        if const { !matches!(decoding::<S, F>(), Decoding::None) } {
            return Codes::of_unit(unit);
        }
        let base = unsafe { self.unit.add(F::unit_layout(self.blocks, S::LANES).0) };
        Codes { base, block: F::code_bytes(S::LANES), panel: self.panel_bytes }
    }

    /// Decodes block b of P panels.
    ///
    /// # Safety
    /// The panels are F's and have the block; `to` has room.
    #[inline(always)]
    unsafe fn decode<S: Simd, F: BlockFormat, const P: usize>(&self, s: S, b: usize, to: *mut Unit) {
        for j in 0..P {
            unsafe {
                let unit = self.unit.add(j * self.panel_bytes);
                decode_factors::<S, F>(s, unit, [self.blocks, b], &raw mut (*to).factors[j][b]);
                if const { !matches!(decoding::<S, F>(), Decoding::None) } {
                    let (w, codes) = (F::codes(s, unit, self.blocks, b), Codes::decoded(to, j, b));
                    if const { starts_from_codes::<S, F>() } {
                        s.put_first_sums((&raw mut (*to).factors[j][b][0]).cast::<f32>().add(2 * S::LANES), w);
                    }
                    for g in 0..8 {
                        s.put_codes_bits::<F>(codes.add(half_bytes::<S, F>() * (g / 4)), g % 4, w[g]);
                    }
                }
            }
        }
    }
}

/// Decodes the factors of each part of block b of a panel.
///
/// # Safety
/// As `BlockFormat::scales`, with `blocks` blocks; `to` has room for the parts.
#[inline(always)]
pub(super) unsafe fn decode_factors<S: Simd, F: BlockFormat>(
    s: S,
    unit: *const u8,
    [blocks, b]: [usize; 2],
    to: *mut FactorsOfBlock,
) {
    for part in 0..parts::<F>() {
        unsafe { Factors::new::<F>(s, unit, blocks, b, part).store::<F>(s, (&raw mut (*to)[part]).cast()) };
    }
}

/// The register tile: `blocks` blocks of P panels times N tokens. Adds to `sums`, or overwrites them with `start`.
#[inline(always)]
unsafe fn tile<S: Simd, F: BlockFormat, const P: usize, const N: usize>(
    s: S,
    packed: &Packed,
    unit: *mut Unit,
    mut x: Tokens,
    sums: *mut f32,
    [decode, start]: [bool; 2],
    next: &mut Pace,
) {
    unsafe {
        let codes = packed.codes::<S, F>(unit);
        let mut acc = [[s.splat(0.0); N]; P];
        if !start {
            for j in 0..P {
                for i in 0..N {
                    acc[j][i] = s.load(sums.add((i * P + j) * S::LANES));
                }
            }
        }
        for b in 0..packed.blocks {
            if decode {
                packed.decode::<S, F, P>(s, b, unit);
            }
            let (base, panel) = (codes.base.add(b * codes.block), codes.panel);
            for part in 0..parts::<F>() {
                let mut dots = [[s.i_splat(0); N]; P];
                for i in 0..N {
                    let first = x.first::<S, F>(s, part, i);
                    for j in 0..P {
                        dots[j][i] = if const { starts_from_codes::<S, F>() } {
                            s.first_sums((&raw const (*unit).factors[j][b][0]).cast::<f32>().add(2 * S::LANES))
                        } else {
                            first
                        };
                    }
                }
                if const { F::SUB == BLOCK } {
                    s.dot32_unit_bits::<F, P, N>(&mut dots, base, panel, x.codes, next);
                } else {
                    next.step::<S, P>(s);
                    let codes = base.add(half_bytes::<S, F>() * part);
                    s.dot16_unit_bits::<F, P, N>(&mut dots, codes, panel, x.codes.add(16 * part));
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

/// Like `tile`, for a decoded unit. Uses `Simd::add_tile`, which adds to the sums in memory.
#[inline(always)]
unsafe fn tile_in_memory<S: Simd, F: BlockFormat, const P: usize>(
    s: S,
    tile: RegisterTile,
    sums: *mut f32,
    start: bool,
) {
    const {
        assert!(UNIT_BLOCK_CODES == CODE_BYTES && UNIT_PANEL_CODES == UNIT_BLOCKS * CODE_BYTES);
        assert!(4 * UNIT_BLOCK_FACTORS == size_of::<FactorsOfBlock>());
    };
    unsafe {
        if start {
            for i in 0..4 * P {
                s.store(sums.add(i * S::LANES), s.splat(0.0));
            }
        }
        s.add_tile(F::BITS, F::HAS_MIN, tile, sums);
    }
}
