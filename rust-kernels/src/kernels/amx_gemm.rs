//! The product of many rows on AMX. Its registers sum a block's products of 16 rows of x with 16 of W; the sums go
//! through memory that a first-level cache holds, and vectors scale them and add them up in the order of all other kernels,
//! so that they are the same bits.
//!
//! Registers and vectors do not work side by side, and each change from one to the other costs some cycles: all sums of
//! a unit come first, or of two blocks where memory is waited for.
use super::gemm::{BlockGemm, Gemm, after, finish_rows, prefetch_out};
use super::scaling::{Factors, Tokens};
use super::wide_gemm::{CHUNK, CODE_BYTES, Codes, Operand, Sums, Unit, decode, in_place};
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::amx::{Amx, ROW_BYTES, ROWS, SUMS, Vectors, W, X};
use crate::simd::{Ahead, Kernel, Simd};
use crate::unroll16;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Panels that share what is loaded of x.
const PANELS: usize = SUMS.len();
/// Rows of x whose sums are held in vectors at once: those of two panels leave room for the scales of both.
const HELD: usize = 8;

/// Blocks whose sums go through memory at once where lines are asked for meanwhile: those wait as long as registers multiply.
const BLOCKS: usize = 2;

/// Sums of some blocks' products: [panel][block][row of x], rows of W in the lanes.
#[repr(C, align(64))]
struct Dots([[[[i32; ROWS]; ROWS]; UNIT_BLOCKS]; PANELS]);

/// What a call works in.
struct Memory {
    unit: *mut Unit,
    dots: *mut Dots,
    /// [row of x][panel], rows of W in the lanes.
    sums: *mut f32,
}

/// Whether AVX-512 would take longer by itself: not where an eighth of the tiles of x is empty, nor with one tile of x where
/// codes must be decoded into memory first.
pub fn pays<F: BlockFormat>(rows: usize) -> bool {
    (in_place::<F>() || rows >= Amx::WIDE_TOKENS) && 8 * rows >= 7 * rows.next_multiple_of(ROWS)
}

/// `BlockGemm` for x in tiles of 16 and formats with one scale a block. Its vectors are AVX-512's.
pub struct AmxGemm<'a, F>(pub Amx, pub BlockGemm<'a, F>);

impl<F: BlockFormat> Kernel for AmxGemm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) {
        let Self(amx, BlockGemm { args, x, corrections, .. }) = self;
        let (mut unit, mut dots) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let mut sums = MaybeUninit::<Sums>::uninit();
        let memory = Memory { unit: unit.as_mut_ptr(), dots: dots.as_mut_ptr(), sums: sums.as_mut_ptr().cast() };
        let (x, panels) = (Operand { x, corrections }, args.rows.div_ceil(ROWS));
        amx.shape(BLOCK);
        for from in (args.from..args.to).step_by(CHUNK) {
            let rows = from..args.to.min(from + CHUNK);
            let mut p = 0;
            while p < panels {
                // SAFETY: the panels and the rows are within `args`; the memory is this call's own.
                p += unsafe {
                    if rows.len() > ROWS && p + PANELS <= panels {
                        panels_of::<F, PANELS>(amx, args, &x, p, rows.clone(), &memory)
                    } else {
                        panels_of::<F, 1>(amx, args, &x, p, rows.clone(), &memory)
                    }
                };
            }
        }
        amx.release();
    }
}

/// P panels from panel p times rows of x, at most CHUNK; returns P.
#[inline(always)]
unsafe fn panels_of<F: BlockFormat, const P: usize>(
    amx: Amx,
    args: &Gemm,
    x: &Operand,
    p: usize,
    rows: Range<usize>,
    memory: &Memory,
) -> usize {
    let s = amx.vectors();
    unsafe {
        let panel = args.panels.add(p * args.panel_bytes);
        let groups = rows.len().div_ceil(ROWS);
        let mut at = 0;
        for start in (0..args.columns).step_by(UNIT) {
            let blocks = ((args.columns - start) / BLOCK).min(UNIT_BLOCKS);
            let codes = decode::<Vectors, F, P>(s, panel.add(at), args.panel_bytes, blocks, memory.unit);
            let (scale_bytes, code_bytes) = F::unit_layout(blocks, ROWS);
            at += scale_bytes + code_bytes;
            let last = start + UNIT >= args.columns;
            let ahead = after::<Vectors, P>(args, p, (!last).then_some(at), scale_bytes + code_bytes);
            for (group, t) in rows.clone().step_by(ROWS).enumerate() {
                let rows = t..rows.end.min(t + ROWS);
                if last {
                    prefetch_out::<Vectors, P>(s, args, p, rows.clone());
                }
                let tokens = Tokens::of_width::<F>(ROWS, x.x, x.corrections, t, start / BLOCK);
                let sums = memory.sums.add(group * ROWS * P * ROWS);
                let memory = Memory { sums, ..*memory };
                if in_place::<F>() && groups <= P {
                    let ahead = ahead.of_panel(group, 0, 0, P > 1);
                    tile::<F, P, true>(amx, &codes, blocks, tokens, start == 0, &memory, ahead);
                } else {
                    let ahead = ahead.part(group, groups);
                    if !in_place::<F>() {
                        ahead.ask::<Vectors, P>(s, 0, 1);
                    }
                    tile::<F, P, false>(amx, &codes, blocks, tokens, start == 0, &memory, ahead);
                }
                if last {
                    finish_rows::<Vectors, P>(s, args, sums, p, rows);
                }
            }
        }
    }
    P
}

/// Adds the products of a unit of P panels with a tile of x to `sums`, or starts those. Asks for what is `ahead`: with FEW tiles of
/// x, line by line.
#[inline(always)]
unsafe fn tile<F: BlockFormat, const P: usize, const FEW: bool>(
    amx: Amx,
    codes: &Codes,
    blocks: usize,
    mut x: Tokens,
    start: bool,
    memory: &Memory,
    ahead: Ahead,
) {
    for b in (0..blocks).step_by(if FEW { BLOCKS } else { UNIT_BLOCKS }) {
        let n = if FEW { (blocks - b).min(BLOCKS) } else { blocks };
        // SAFETY: the blocks are the unit's.
        unsafe {
            products::<P>(amx, codes.base.add(b * codes.block), codes.panel, x.codes.cast(), n, memory.dots);
            let (s, start) = (amx.vectors(), start && b == 0);
            add::<F, P, 0, FEW>(s, memory, b..b + n, x, start, ahead);
            add::<F, P, HELD, FEW>(s, memory, b..b + n, x, start, ahead);
            for _ in 0..n {
                x.next();
            }
        }
    }
}

/// The sums of products of n blocks of P panels, at `w` and each `panel` bytes further, with a tile of x.
#[inline(always)]
unsafe fn products<const P: usize>(amx: Amx, w: *const u8, panel: usize, x: *const u8, n: usize, dots: *mut Dots) {
    for i in 0..n {
        unsafe {
            let w = w.add(i * CODE_BYTES);
            amx.load::<X>(x.add(i * ROWS * BLOCK), BLOCK);
            amx.load::<{ W[0] }>(w, ROW_BYTES);
            amx.multiply::<{ SUMS[0] }, X, { W[0] }>();
            if P > 1 {
                amx.load::<{ W[1] }>(w.add(panel), ROW_BYTES);
                amx.multiply::<{ SUMS[1] }, X, { W[1] }>();
            }
            amx.store::<{ SUMS[0] }>(&raw mut (*dots).0[0][i]);
            if P > 1 {
                amx.store::<{ SUMS[1] }>(&raw mut (*dots).0[1][i]);
            }
        }
    }
}

/// Scales the sums of some blocks of P panels with HELD rows of x, the first at FROM of `dots`, and adds them to `sums`, or starts
/// those.
#[inline(always)]
unsafe fn add<F: BlockFormat, const P: usize, const FROM: usize, const FEW: bool>(
    s: Vectors,
    memory: &Memory,
    blocks: Range<usize>,
    mut x: Tokens,
    start: bool,
    ahead: Ahead,
) {
    unsafe {
        let (dots, factors) = (&raw const (*memory.dots).0, &raw const (*memory.unit).factors);
        let sums = memory.sums.add(FROM * P * ROWS);
        let mut acc = [[s.splat(0.0); HELD]; P];
        if !start {
            for j in 0..P {
                for i in 0..HELD {
                    acc[j][i] = s.load(sums.add((i * P + j) * ROWS));
                }
            }
        }
        let (scale_bytes, code_bytes) = F::unit_layout(UNIT_BLOCKS, ROWS);
        let block_bytes = (scale_bytes + code_bytes) / UNIT_BLOCKS;
        for (n, b) in blocks.enumerate() {
            let lines = ahead.of_panel(0, b * block_bytes, block_bytes, P > 1).part(FROM / HELD, ROWS / HELD);
            if !FEW && in_place::<F>() {
                ahead.ask::<Vectors, P>(s, ROWS / HELD * b + FROM / HELD, ROWS / HELD * UNIT_BLOCKS);
            }
            let w: [_; P] = std::array::from_fn(|j| Factors::load::<F>(s, (&raw const (*factors)[j][b][0]).cast()));
            unroll16!(I => if I < HELD {
                let i = I % HELD;
                if FEW && i.is_multiple_of(2) {
                    lines.ask::<Vectors, 1>(s, i / 2, HELD / 2);
                }
                let first = x.first::<Vectors, F>(s, 0, FROM + i);
                for j in 0..P {
                    let dots = s.b_load((&raw const (*dots)[j][n][FROM + i]).cast());
                    acc[j][i] = x.add::<Vectors, F>(s, &w[j], s.i_add(first, dots), 0, FROM + i, acc[j][i]);
                }
            });
            x.next();
        }
        for j in 0..P {
            for i in 0..HELD {
                s.store(sums.add((i * P + j) * ROWS), acc[j][i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{Q4_0, Q8_0};

    #[test]
    fn tiles_are_nearly_full() {
        let taken: Vec<_> = (1..=ROWS * 5).filter(|rows| pays::<Q4_0>(*rows)).collect();
        let wanted: Vec<_> = (32..=32).chain(42..=48).chain(56..=64).chain(70..=80).collect();
        assert_eq!(taken, wanted);
        let taken: Vec<_> = (1..=ROWS * 2).filter(|rows| pays::<Q8_0>(*rows)).collect();
        assert_eq!(taken, (14..=16).chain(28..=32).collect::<Vec<_>>());
        assert!((112..600).all(pays::<Q4_0>));
    }
}
