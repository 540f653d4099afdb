//! Matrix products for few tokens: a register tile has one panel and 1 to 16 tokens. Codes are decoded into registers.
use super::dot_bits::DotBits;
use super::gemm::{Gemm, finish_tile};
use super::quant_rows::QuantRows;
use super::scaling::{FACTORS, Factors, Tokens, parts};
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::{Ahead, Simd};
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// Computes `BlockGemm` for few tokens. FAR is for one or two tokens on cores with high memory latency.
///
/// # Safety
/// As `BlockGemm`.
#[inline(always)]
pub unsafe fn gemm<S: Simd, F: BlockFormat, const FAR: bool>(
    s: S,
    args: &Gemm,
    x: &QuantRows,
    corrections: *const f32,
) {
    for p in 0..args.rows.div_ceil(S::LANES) {
        let mut t = args.from;
        while t < args.to {
            let left = (args.to - t).min(x.tile - t % x.tile);
            let rows = t..t + left;
            // One incomplete register tile is faster than several complete ones, because each tile is a pass over the
            // panel. Rows beyond x are computed from the contents of x's tile, and their results are dropped.
            // SAFETY: the register tile is within one tile of x, as `run` requires.
            t += unsafe {
                match left {
                    13.. if const { !FAR && S::TILE >= 16 } => {
                        run::<S, F, 2, 8, false>(s, args, x, corrections, p, rows)
                    }
                    5.. if const { !FAR && S::TILE >= 8 } => run::<S, F, 1, 8, false>(s, args, x, corrections, p, rows),
                    4.. if const { !FAR } => run::<S, F, 1, 4, false>(s, args, x, corrections, p, rows),
                    3 if const { !FAR } => run::<S, F, 1, 3, false>(s, args, x, corrections, p, rows),
                    2.. => run::<S, F, 1, 2, FAR>(s, args, x, corrections, p, rows),
                    _ => run::<S, F, 1, 1, FAR>(s, args, x, corrections, p, rows),
                }
            };
        }
    }
}

/// Multiplies one panel by the first G * N of some rows of x, or by all if there are fewer. Returns the number of rows.
#[inline(always)]
unsafe fn run<S: Simd, F: BlockFormat, const G: usize, const N: usize, const FAR: bool>(
    s: S,
    args: &Gemm,
    x: &QuantRows,
    corrections: *const f32,
    p: usize,
    rows: Range<usize>,
) -> usize {
    unsafe {
        let (low, high) = tile::<S, F, G, N, FAR>(s, args.panels.add(p * args.panel_bytes), x, corrections, rows.start);
        for g in 0..G {
            let from = rows.start + g * N;
            let rows = from..rows.end.min(from + N);
            finish_tile::<S::Low, N>(s.halves().0, args, &low[g], rows.clone(), p * S::LANES);
            if S::HALVES {
                finish_tile::<S::High, N>(s.halves().1, args, &high[g], rows, p * S::LANES);
            }
        }
    }
    rows.len().min(G * N)
}

/// The sums in a register tile: one vector for each row of x, in G groups of N rows.
type TileSums<S, const G: usize, const N: usize> = [[<S as Simd>::F; N]; G];

/// Multiplies LANES rows of W by G groups of N rows of x in a register tile. Returns the sums of both halves of the
/// vector; without halves, the sums of the whole vector and an unused value.
#[inline(always)]
unsafe fn tile<S: Simd, F: BlockFormat, const G: usize, const N: usize, const FAR: bool>(
    s: S,
    panel: *const u8,
    x: &QuantRows,
    corrections: *const f32,
    t: usize,
) -> (TileSums<S::Low, G, N>, TileSums<S::High, G, N>) {
    unsafe {
        let mut tokens = Tokens::new::<F>(x, corrections, t, 0);
        let (low, high) = s.halves();
        let (mut acc, mut acc_high) = ([[low.splat(0.0); N]; G], [[high.splat(0.0); N]; G]);
        let mut unit = panel;
        for start in (0..x.columns).step_by(UNIT) {
            let in_unit = ((x.columns - start) / BLOCK).min(UNIT_BLOCKS);
            for b in 0..in_unit {
                let ahead = ahead::<S, F, G, N, FAR>(unit, b);
                add_block::<S::Low, F, G, N>(low, unit, [in_unit, b], &tokens, ahead, &mut acc);
                if S::HALVES {
                    add_block::<S::High, F, G, N>(high, unit, [in_unit, b], &tokens, Ahead::NOTHING, &mut acc_high);
                }
                tokens.next();
            }
            let (scale_bytes, code_bytes) = F::unit_layout(in_unit, S::LANES);
            unit = unit.add(scale_bytes + code_bytes);
        }
        (acc, acc_high)
    }
}

/// Returns the codes to prefetch during block b of a unit. They take as many bytes as the block's codes and are some
/// distance ahead (docs/lab/2026-11.md, T6). With few tokens, the core itself already loads ahead. A longer distance
/// would fill the first-level cache's few miss buffers, and these loads would wait. With several tokens, the sums take
/// so long that the core does not load that far ahead.
#[inline(always)]
pub(super) fn ahead<S: Simd, F: BlockFormat, const G: usize, const N: usize, const FAR: bool>(
    unit: *const u8,
    b: usize,
) -> Ahead {
    let is_few = G * N <= 2;
    let bytes = if is_few && !FAR { 1024 } else { 4096 };
    let code_bytes = F::code_bytes(S::LANES);
    Ahead::new::<1>(unit.wrapping_add(bytes + b * code_bytes), 0, code_bytes, is_few)
}

/// Adds the products of block b with the tile's tokens.
#[inline(always)]
unsafe fn add_block<S: Simd, F: BlockFormat, const G: usize, const N: usize>(
    s: S,
    unit: *const u8,
    place: [usize; 2],
    tokens: &Tokens,
    ahead: Ahead,
    acc: &mut TileSums<S, G, N>,
) {
    unsafe {
        add_part::<S, F, G, N>(s, unit, place, 0, tokens, ahead, acc);
        if const { F::SUB == 16 } {
            add_part::<S, F, G, N>(s, unit, place, 1, tokens, ahead, acc);
        }
    }
}

/// Adds the products of one part of block b with the tile's tokens. Decodes only this part's codes, to save registers.
#[inline(always)]
unsafe fn add_part<S: Simd, F: BlockFormat, const G: usize, const N: usize>(
    s: S,
    unit: *const u8,
    [blocks, b]: [usize; 2],
    part: usize,
    tokens: &Tokens,
    ahead: Ahead,
    acc: &mut [[S::F; N]; G],
) {
    unsafe {
        let ahead = |group| ahead.part(G * part + group, G * parts::<F>());
        if const { G == 1 } {
            let codes = F::codes(s, unit, blocks, b);
            let w = Factors::new::<F>(s, unit, blocks, b, part);
            if const { S::ADDS_TILES && N == 4 && F::BITS == 8 && F::SUB == BLOCK && !F::HAS_MIN } {
                ahead(0).prefetch::<S, 1>(s, 0, 1);
                let mut factors = [0f32; FACTORS * 16];
                w.store::<F>(s, factors.as_mut_ptr());
                let tile = tokens.times(1, unit, factors.as_ptr(), 0);
                s.add_row_block(codes, tile, acc[0].as_mut_ptr().cast());
                return;
            }
            add_group::<S, F, N>(s, &codes, &w, [part, 0], tokens, ahead(0), &mut acc[0]);
            return;
        }
        // The sums of this many tokens usually take longer than reading memory. They leave no register for prefetches
        // between them.
        ahead(0).prefetch::<S, 1>(s, 0, 1);
        let codes = F::codes(s, unit, blocks, b);
        let w = Factors::new::<F>(s, unit, blocks, b, part);
        add_group::<S, F, N>(s, &codes, &w, [part, 0], tokens, Ahead::NOTHING, &mut acc[0]);
        // This fence keeps the compiler from computing both groups at once, because their sums do not fit in registers
        // together.
        compiler_fence(Ordering::SeqCst);
        ahead(1).prefetch::<S, 1>(s, 0, 1);
        add_group::<S, F, N>(s, &codes, &w, [part, N], tokens, Ahead::NOTHING, &mut acc[1]);
        if const { F::SUB == 16 } {
            compiler_fence(Ordering::SeqCst);
        }
    }
}

/// Adds the products of one part with N tokens, from token `from` of the tile on.
#[inline(always)]
unsafe fn add_group<S: Simd, F: BlockFormat, const N: usize>(
    s: S,
    codes: &[S::B; 8],
    w: &Factors<S>,
    [part, from]: [usize; 2],
    tokens: &Tokens,
    ahead: Ahead,
    acc: &mut [S::F; N],
) {
    unsafe {
        let [a, b, c, d, e, f, g, h] = *codes;
        let x = tokens.codes.add(from * BLOCK);
        let mut sums = [s.i_splat(0); N];
        for i in 0..N {
            sums[i] = tokens.first::<S, F>(s, part, from + i);
        }
        if const { F::SUB == 32 } {
            s.dot32_rows_bits::<F, N>(&mut sums, *codes, x, ahead);
        } else if part == 0 {
            s.dot16_rows_bits::<F, N>(&mut sums, [a, b, c, d], x, ahead);
        } else {
            s.dot16_rows_bits::<F, N>(&mut sums, [e, f, g, h], x.add(16), ahead);
        }
        for i in 0..N {
            acc[i] = tokens.add::<S, F>(s, w, sums[i], part, from + i, acc[i]);
        }
    }
}
