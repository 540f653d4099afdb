//! The product of many rows on AMX. Its registers sum a block's products of 16 rows of x with 16 of W; the sums go
//! through memory that a first-level cache holds, and vectors scale them and add them up in the order of all other kernels,
//! so that they are the same bits.
//!
//! Registers and vectors do not work side by side, and each change from one to the other costs some cycles: all sums of
//! a unit come first.
use super::gemm::{Ahead, BlockGemm, Gemm, finish_rows, prefetch_out};
use super::quant_rows::QuantRows;
use super::scaling::{Factors, Tokens};
use super::wide_gemm::{CHUNK, Codes, Operand, Sums, Unit, decode};
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::amx::{Amx, ROW_BYTES, ROWS, SUMS, Vectors, W, X};
use crate::simd::{Kernel, Simd};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Panels that share what is loaded of x.
const PANELS: usize = SUMS.len();
/// Rows of x whose sums are held in vectors at once: those of two panels leave room for the scales of both.
const HELD: usize = 8;

/// Sums of a unit's products: [panel][block][row of x], rows of W in the lanes.
#[repr(C, align(64))]
struct Dots([[[[i32; ROWS]; ROWS]; UNIT_BLOCKS]; PANELS]);

/// What a call works in.
struct Memory {
    unit: *mut Unit,
    dots: *mut Dots,
    sums: *mut Sums,
}

/// Whether AVX-512 would take longer by itself: not where an eighth of the tiles of x is empty.
pub fn pays(rows: usize) -> bool {
    rows >= Amx::WIDE_TOKENS && 8 * rows >= 7 * rows.next_multiple_of(ROWS)
}

/// `BlockGemm` for x in tiles of 16 and formats with one scale a block. Its vectors are AVX-512's.
pub struct AmxGemm<'a, F>(pub Amx, pub BlockGemm<'a, F>);

impl<F: BlockFormat> Kernel for AmxGemm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) {
        let Self(amx, BlockGemm { args, x, corrections, .. }) = self;
        let (mut unit, mut dots, mut sums) = (MaybeUninit::uninit(), MaybeUninit::uninit(), MaybeUninit::uninit());
        let memory = Memory { unit: unit.as_mut_ptr(), dots: dots.as_mut_ptr(), sums: sums.as_mut_ptr() };
        let (x, panels) = (Operand { x, corrections }, args.rows.div_ceil(ROWS));
        amx.shape(BLOCK);
        for from in (args.from..args.to).step_by(CHUNK) {
            let rows = from..args.to.min(from + CHUNK);
            for p in (0..panels).step_by(PANELS) {
                // SAFETY: the panels and the rows are within `args`; the memory is this call's own.
                unsafe {
                    if p + PANELS <= panels {
                        panels_of::<F, PANELS>(amx, args, &x, p, rows.clone(), &memory);
                    } else {
                        panels_of::<F, 1>(amx, args, &x, p, rows.clone(), &memory);
                    }
                }
            }
        }
        amx.release();
    }
}

/// P panels from panel p times rows of x, at most CHUNK.
#[inline(always)]
unsafe fn panels_of<F: BlockFormat, const P: usize>(
    amx: Amx,
    args: &Gemm,
    x: &Operand,
    p: usize,
    rows: Range<usize>,
    memory: &Memory,
) {
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
            let next = (!last).then_some(at);
            let ahead = Ahead::after::<Vectors, P>(args, p, next, scale_bytes + code_bytes);
            for (group, t) in rows.clone().step_by(ROWS).enumerate() {
                let rows = t..rows.end.min(t + ROWS);
                ahead.prefetch::<Vectors, P>(s, group..group + 1, groups);
                if last {
                    prefetch_out::<Vectors, P>(s, args, p, rows.clone());
                }
                products::<P>(amx, &codes, x.x, t / ROWS, start / BLOCK, blocks, memory.dots);
                let sums = memory.sums.cast::<f32>().add(group * ROWS * P * ROWS);
                for held in (0..ROWS).step_by(HELD) {
                    let tokens = Tokens::new::<F>(x.x, x.corrections, t + held, start / BLOCK);
                    add::<F, P>(s, memory, blocks, held, tokens, sums.add(held * P * ROWS), start == 0);
                }
                if last {
                    finish_rows::<Vectors, P>(s, args, sums, p, rows);
                }
            }
        }
    }
}

/// The sums of products of P panels' unit with a tile of x, from its block `from`.
#[inline(always)]
unsafe fn products<const P: usize>(
    amx: Amx,
    codes: &Codes,
    x: &QuantRows,
    tile: usize,
    from: usize,
    blocks: usize,
    dots: *mut Dots,
) {
    for b in 0..blocks {
        unsafe {
            let w = codes.base.add(b * codes.block);
            amx.load::<X>(x.codes(tile, from + b, 0).cast(), BLOCK);
            amx.load::<{ W[0] }>(w, ROW_BYTES);
            amx.multiply::<{ SUMS[0] }, X, { W[0] }>();
            if P > 1 {
                amx.load::<{ W[1] }>(w.add(codes.panel), ROW_BYTES);
                amx.multiply::<{ SUMS[1] }, X, { W[1] }>();
            }
            amx.store::<{ SUMS[0] }>(&raw mut (*dots).0[0][b]);
            if P > 1 {
                amx.store::<{ SUMS[1] }>(&raw mut (*dots).0[1][b]);
            }
        }
    }
}

/// Scales a unit's sums of P panels with HELD rows of x, the first at `from` of `dots`, and adds them to `sums`, or starts
/// those.
#[inline(always)]
unsafe fn add<F: BlockFormat, const P: usize>(
    s: Vectors,
    memory: &Memory,
    blocks: usize,
    from: usize,
    mut x: Tokens,
    sums: *mut f32,
    start: bool,
) {
    unsafe {
        let (dots, factors) = (&raw const (*memory.dots).0, &raw const (*memory.unit).factors);
        let mut acc = [[s.splat(0.0); HELD]; P];
        if !start {
            for j in 0..P {
                for i in 0..HELD {
                    acc[j][i] = s.load(sums.add((i * P + j) * ROWS));
                }
            }
        }
        for b in 0..blocks {
            let w: [_; P] = std::array::from_fn(|j| Factors::load::<F>(s, (&raw const (*factors)[j][b][0]).cast()));
            for i in 0..HELD {
                let first = x.first::<Vectors, F>(s, 0, i);
                for j in 0..P {
                    let dots = s.b_load((&raw const (*dots)[j][b][from + i]).cast());
                    acc[j][i] = x.add::<Vectors, F>(s, &w[j], s.i_add(first, dots), 0, i, acc[j][i]);
                }
            }
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

    #[test]
    fn tiles_are_nearly_full() {
        let taken: Vec<_> = (0..=ROWS * 5).filter(|rows| pays(*rows)).collect();
        let wanted: Vec<_> = (32..=32).chain(42..=48).chain(56..=64).chain(70..=80).collect();
        assert_eq!(taken, wanted);
        assert!((112..600).all(pays));
    }
}
