//! Products with rows of x in pairs (`QuantRows`), for instructions that multiply two rows of W by two rows of x:
//! eight columns yield four sums. Panels have their usual layout; decoding pairs their rows.
//!
//! Sums keep the instructions' layout until all columns are summed, and scales are repeated to match. Each float is
//! added in the same order as in other kernels, so results are bit-identical.
use super::gemm::{BlockGemm, Gemm, after, finish_rows, finish_tile, prefetch_out};
use super::scaling::{FACTORS, Factors, Tokens, parts};
use super::thin_gemm;
use super::wide_gemm::{CHUNK, Operand};
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::{Kernel, RowPairs, Simd};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Maximum panels of a register tile.
const PANELS: usize = 3;
/// Rows of W in a panel: two pairs.
const LANES: usize = 4;
/// Columns of a vector of codes, and vectors per block.
const COLUMNS: usize = 8;
const STEPS: usize = BLOCK / COLUMNS;
/// Rows of x of the tallest register tile.
const TALL: usize = 8;

/// A unit of some panels, decoded: [panel][block].
#[repr(C, align(64))]
struct Unit {
    /// [columns][pair of rows]
    codes: [[[[[u8; 2 * COLUMNS]; 2]; STEPS]; UNIT_BLOCKS]; PANELS],
    /// The factors of each part and pair of rows, as `Factors::store` writes them.
    factors: [[[[[f32; FACTORS * LANES]; 2]; 2]; UNIT_BLOCKS]; PANELS],
}

/// Sums of a chunk: [pair of rows of x][panel][pair of rows of W]. Complete sums are [row of x][panel].
#[repr(C, align(64))]
struct Sums([[f32; PANELS * LANES]; CHUNK]);

/// `BlockGemm` for rows in pairs.
pub struct PairGemm<'a, P, F>(pub P, pub BlockGemm<'a, F>);

impl<P: RowPairs, F: BlockFormat> Kernel for PairGemm<'_, P, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) {
        let Self(s, BlockGemm { args, x, corrections, .. }) = self;
        let x = Operand { x, corrections };
        // SAFETY: guaranteed by the caller.
        unsafe {
            if args.to - args.from >= wide_tokens::<P, F>() && x.x.tile >= TALL {
                wide::<P, F>(s, args, &x);
            } else {
                thin::<P, F>(s, args, &x);
            }
        }
    }
}

const fn wide_tokens<S: Simd, F: BlockFormat>() -> usize {
    if F::SLOW_CODES { S::WIDE_TOKENS_SLOW } else { S::WIDE_TOKENS }
}

/// A block's codes for both pairs of rows of a panel, COLUMNS columns at a time.
#[inline(always)]
fn pairs<S: RowPairs>(s: S, [a, b, c, d, e, f, g, h]: [S::B; 8]) -> [[S::B; 2]; STEPS] {
    [s.pair_codes(a, b), s.pair_codes(c, d), s.pair_codes(e, f), s.pair_codes(g, h)]
}

/// Register tiles of one panel and up to TALL rows of x. Codes are decoded into registers.
#[inline(always)]
unsafe fn thin<S: RowPairs, F: BlockFormat>(s: S, args: &Gemm, x: &Operand) {
    for p in 0..args.rows.div_ceil(LANES) {
        let mut t = args.from;
        while t < args.to {
            let left = (args.to - t).min(x.x.tile - t % x.x.tile);
            // SAFETY: the register tile is within one tile of x.
            t += unsafe {
                match left {
                    5.. => thin_tile::<S, F, 4, 8>(s, args, x, p, t..t + left),
                    3.. => thin_tile::<S, F, 2, 4>(s, args, x, p, t..t + left),
                    _ => thin_tile::<S, F, 1, 2>(s, args, x, p, t..t + left),
                }
            };
        }
    }
}

/// One panel times M pairs, which are N rows of x or fewer; returns the number of rows.
#[inline(always)]
unsafe fn thin_tile<S: RowPairs, F: BlockFormat, const M: usize, const N: usize>(
    s: S,
    args: &Gemm,
    x: &Operand,
    p: usize,
    rows: Range<usize>,
) -> usize {
    unsafe {
        let mut tokens = Tokens::new::<F>(x.x, x.corrections, rows.start, 0);
        let mut acc = [[s.splat(0.0); 2]; M];
        let mut unit = args.panels.add(p * args.panel_bytes);
        for start in (0..args.columns).step_by(UNIT) {
            let blocks = ((args.columns - start) / BLOCK).min(UNIT_BLOCKS);
            for b in 0..blocks {
                thin_gemm::ahead::<S, F, 1, N, false>(unit, b).prefetch::<S, 1>(s, 0, 1);
                let codes = pairs(s, F::codes(s, unit, blocks, b));
                for part in 0..parts::<F>() {
                    let w = Factors::new::<F>(s, unit, blocks, b, part).in_pairs(s);
                    let mut dots = first::<S, F, M>(s, &tokens, part);
                    for k in steps::<F>(part) {
                        for (i, dots) in dots.iter_mut().enumerate() {
                            let x = s.b_load(tokens.codes.add(2 * (BLOCK * i + COLUMNS * k)).cast());
                            *dots = [s.dot_pairs(dots[0], codes[k][0], x), s.dot_pairs(dots[1], codes[k][1], x)];
                        }
                    }
                    for i in 0..M {
                        acc[i] = tokens.add_pair::<S, F>(s, &w, dots[i], part, 2 * i, acc[i]);
                    }
                }
                tokens.next();
            }
            let (scale_bytes, code_bytes) = F::unit_layout(blocks, LANES);
            unit = unit.add(scale_bytes + code_bytes);
        }
        let mut sums = [s.splat(0.0); N];
        for i in 0..M {
            [sums[2 * i], sums[2 * i + 1]] = s.rows_of_x(acc[i]);
        }
        let rows = rows.start..rows.end.min(rows.start + N);
        finish_tile::<S, N>(s, args, &sums, rows.clone(), p * LANES);
        rows.len()
    }
}

/// Indices of the vectors of a part's columns.
#[inline(always)]
fn steps<F: BlockFormat>(part: usize) -> Range<usize> {
    let steps = F::SUB / COLUMNS;
    part * steps..(part + 1) * steps
}

/// Initial sums of a part's products with M pairs.
#[inline(always)]
unsafe fn first<S: RowPairs, F: BlockFormat, const M: usize>(s: S, x: &Tokens, part: usize) -> [[S::I; 2]; M] {
    let mut dots = [[s.i_splat(0); 2]; M];
    for (i, dots) in dots.iter_mut().enumerate() {
        *dots = [unsafe { x.first_pair::<S, F>(s, part, 2 * i) }; 2];
    }
    dots
}

/// Register tiles of PANELS panels and four rows of x, or of one panel and eight rows. A unit of the panels is
/// decoded once.
#[inline(always)]
unsafe fn wide<S: RowPairs, F: BlockFormat>(s: S, args: &Gemm, x: &Operand) {
    let (mut unit, mut sums) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let (unit, sums) = (unit.as_mut_ptr(), sums.as_mut_ptr());
    let panels = args.rows.div_ceil(LANES);
    for from in (args.from..args.to).step_by(CHUNK) {
        let rows = from..args.to.min(from + CHUNK);
        let mut p = 0;
        while p < panels {
            // SAFETY: panels p.. and the rows are within `args`; no other call uses the memory.
            p += unsafe {
                if panels - p >= PANELS {
                    panels_of::<S, F, PANELS, 2>(s, args, x, p, rows.clone(), unit, sums)
                } else {
                    panels_of::<S, F, 1, 4>(s, args, x, p, rows.clone(), unit, sums)
                }
            };
        }
    }
}

/// P panels from panel p times rows of x, M pairs at a time; returns P.
#[inline(always)]
unsafe fn panels_of<S: RowPairs, F: BlockFormat, const P: usize, const M: usize>(
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
        let n = 2 * M;
        let tiles = rows.len().div_ceil(n);
        let mut at = 0;
        for start in (0..args.columns).step_by(UNIT) {
            let blocks = ((args.columns - start) / BLOCK).min(UNIT_BLOCKS);
            decode::<S, F, P>(s, panel.add(at), args.panel_bytes, blocks, unit);
            let (scale_bytes, code_bytes) = F::unit_layout(blocks, LANES);
            at += scale_bytes + code_bytes;
            let last = start + UNIT >= args.columns;
            let ahead = after::<P>(args, p, (!last).then_some(at), scale_bytes + code_bytes);
            for (i, t) in rows.clone().step_by(n).enumerate() {
                ahead.prefetch::<S, P>(s, i, tiles);
                let tokens = Tokens::new::<F>(x.x, x.corrections, t, start / BLOCK);
                let sums = sums.cast::<f32>().add(i * n * P * LANES);
                if last {
                    prefetch_out::<S, P>(s, args, p, t..rows.end.min(t + n));
                }
                tile::<S, F, P, M>(s, unit, blocks, tokens, sums, [start == 0, last]);
                if last {
                    finish_rows::<S, P>(s, args, sums, p, t..rows.end.min(t + n));
                }
            }
        }
    }
    P
}

/// Decodes a unit of P panels, the first at `unit`.
#[inline(always)]
unsafe fn decode<S: RowPairs, F: BlockFormat, const P: usize>(
    s: S,
    unit: *const u8,
    panel_bytes: usize,
    blocks: usize,
    to: *mut Unit,
) {
    for j in 0..P {
        for b in 0..blocks {
            unsafe {
                let unit = unit.add(j * panel_bytes);
                for (k, pair) in pairs(s, F::codes(s, unit, blocks, b)).into_iter().enumerate() {
                    for h in 0..2 {
                        s.b_store((&raw mut (*to).codes[j][b][k][h]).cast(), pair[h]);
                    }
                }
                for part in 0..parts::<F>() {
                    for (h, w) in Factors::new::<F>(s, unit, blocks, b, part).in_pairs(s).into_iter().enumerate() {
                        w.store::<F>(s, (&raw mut (*to).factors[j][b][part][h]).cast());
                    }
                }
            }
        }
    }
}

/// The register tile: `blocks` blocks of P panels times M pairs. Adds to `sums`, or overwrites them with `start`.
/// With `end` it stores them by rows of x.
#[inline(always)]
unsafe fn tile<S: RowPairs, F: BlockFormat, const P: usize, const M: usize>(
    s: S,
    unit: *const Unit,
    blocks: usize,
    mut x: Tokens,
    sums: *mut f32,
    [start, end]: [bool; 2],
) {
    unsafe {
        let mut acc = [[[s.splat(0.0); 2]; M]; P];
        if !start {
            for j in 0..P {
                for i in 0..M {
                    let sums = sums.add((i * P + j) * 2 * LANES);
                    acc[j][i] = [s.load(sums), s.load(sums.add(LANES))];
                }
            }
        }
        for b in 0..blocks {
            for part in 0..parts::<F>() {
                let mut dots = [first::<S, F, M>(s, &x, part); P];
                for k in steps::<F>(part) {
                    for j in 0..P {
                        let w = (&raw const (*unit).codes[j][b][k]).cast::<u8>();
                        let w = [s.b_load(w), s.b_load(w.add(2 * COLUMNS))];
                        for i in 0..M {
                            let x = s.b_load(x.codes.add(2 * (BLOCK * i + COLUMNS * k)).cast());
                            dots[j][i] = [s.dot_pairs(dots[j][i][0], w[0], x), s.dot_pairs(dots[j][i][1], w[1], x)];
                        }
                    }
                }
                for j in 0..P {
                    let w = &raw const (*unit).factors[j][b][part];
                    let w = [
                        Factors::load::<F>(s, (&raw const (*w)[0]).cast()),
                        Factors::load::<F>(s, (&raw const (*w)[1]).cast()),
                    ];
                    for i in 0..M {
                        acc[j][i] = x.add_pair::<S, F>(s, &w, dots[j][i], part, 2 * i, acc[j][i]);
                    }
                }
            }
            x.next();
        }
        for j in 0..P {
            for i in 0..M {
                if end {
                    let [a, b] = s.rows_of_x(acc[j][i]);
                    s.store(sums.add((2 * i * P + j) * LANES), a);
                    s.store(sums.add(((2 * i + 1) * P + j) * LANES), b);
                } else {
                    let sums = sums.add((i * P + j) * 2 * LANES);
                    s.store(sums, acc[j][i][0]);
                    s.store(sums.add(LANES), acc[j][i][1]);
                }
            }
        }
    }
}
