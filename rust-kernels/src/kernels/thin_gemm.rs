//! GEMV and thin GEMM: a register tile of one panel and 1 to 16 tokens, over codes that are decoded into registers.
use super::gemm::{DotBits, Gemm, finish_tile};
use super::quant_rows::QuantRows;
use super::scaling::{Factors, Tokens};
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::Simd;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// As `BlockGemm`; FAR where memory is far: for one token or two.
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
            // A register tile that is not full is faster than several that are: each is a pass over the panel. What it
            // makes of rows that x does not have, from whatever x's own tile holds there, goes nowhere.
            // SAFETY: the register tile lies within one tile of x, as `run` wants.
            t += unsafe {
                match left {
                    13.. if !FAR && S::TILE >= 16 => run::<S, F, 2, 8, false>(s, args, x, corrections, p, rows),
                    5.. if !FAR && S::TILE >= 8 => run::<S, F, 1, 8, false>(s, args, x, corrections, p, rows),
                    3.. if !FAR => run::<S, F, 1, 4, false>(s, args, x, corrections, p, rows),
                    2.. => run::<S, F, 1, 2, FAR>(s, args, x, corrections, p, rows),
                    _ => run::<S, F, 1, 1, FAR>(s, args, x, corrections, p, rows),
                }
            };
        }
    }
}

/// One panel times the first G * N of some rows of x, or all if they are fewer; returns how many.
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

/// The sums of G groups of N rows of x.
type TileSums<S, const G: usize, const N: usize> = [[<S as Simd>::F; N]; G];

/// The register tile: LANES rows of W times G groups of N rows of x; the sums of both halves, or the whole and nothing.
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
                let next = unit.wrapping_add(prefetch_bytes::<G, N, FAR>() + b * F::code_bytes(S::LANES));
                prefetch_part::<S, F, G, N>(s, next, 0);
                add_block::<S::Low, F, G, N>(low, unit, [in_unit, b], &tokens, next, &mut acc);
                if S::HALVES {
                    add_block::<S::High, F, G, N>(high, unit, [in_unit, b], &tokens, next, &mut acc_high);
                }
                tokens.next();
            }
            let (scale_bytes, code_bytes) = F::unit_layout(in_unit, S::LANES);
            unit = unit.add(scale_bytes + code_bytes);
        }
        (acc, acc_high)
    }
}

/// Whether a tile of G * N tokens asks the second-level cache only. With few tokens the core's own loads are ahead, and would
/// wait for the first level's few buffers of misses if those were full of lines that are wanted later.
const fn asks_l2<const G: usize, const N: usize>() -> bool {
    G * N <= 2
}

/// How far ahead of its use a panel's code is asked for (docs/BENCHMARKS.md, T6). Sums of several tokens take so long that
/// the core itself does not look as far.
pub(super) const fn prefetch_bytes<const G: usize, const N: usize, const FAR: bool>() -> usize {
    if asks_l2::<G, N>() && !FAR { 1024 } else { 4096 }
}

/// Asks for part `part` of G of the codes of the block at `next`.
#[inline(always)]
pub(super) fn prefetch_part<S: Simd, F: BlockFormat, const G: usize, const N: usize>(
    s: S,
    next: *const u8,
    part: usize,
) {
    for line in (64 * part..F::code_bytes(S::LANES)).step_by(64 * G) {
        let line = next.wrapping_add(line);
        if asks_l2::<G, N>() { s.prefetch_l2(line) } else { s.prefetch(line) }
    }
}

/// Adds block b of the products with the tile's tokens.
#[inline(always)]
unsafe fn add_block<S: Simd, F: BlockFormat, const G: usize, const N: usize>(
    s: S,
    unit: *const u8,
    place: [usize; 2],
    tokens: &Tokens,
    next: *const u8,
    acc: &mut TileSums<S, G, N>,
) {
    unsafe {
        add_part::<S, F, G, N>(s, unit, place, 0, tokens, next, acc);
        if F::SUB == 16 {
            add_part::<S, F, G, N>(s, unit, place, 1, tokens, next, acc);
        }
    }
}

/// Adds a part of block b of the products with the tile's tokens. Its codes are decoded here, so that registers hold no
/// others.
#[inline(always)]
unsafe fn add_part<S: Simd, F: BlockFormat, const G: usize, const N: usize>(
    s: S,
    unit: *const u8,
    [blocks, b]: [usize; 2],
    part: usize,
    tokens: &Tokens,
    next: *const u8,
    acc: &mut [[S::F; N]; G],
) {
    unsafe {
        let codes = F::codes(s, unit, blocks, b);
        let w = Factors::new::<F>(s, unit, blocks, b, part);
        add_group::<S, F, N>(s, &codes, &w, part, tokens, 0, &mut acc[0]);
        if G == 2 {
            // Sums of sixteen tokens side by side would not fit in the registers.
            compiler_fence(Ordering::SeqCst);
            if part == 0 {
                prefetch_part::<S, F, G, N>(s, next, 1);
            }
            add_group::<S, F, N>(s, &codes, &w, part, tokens, N, &mut acc[1]);
            if F::SUB == 16 {
                compiler_fence(Ordering::SeqCst);
            }
        }
    }
}

/// Adds a part of the products with N tokens from token `from` of the tile.
#[inline(always)]
unsafe fn add_group<S: Simd, F: BlockFormat, const N: usize>(
    s: S,
    codes: &[S::B; 8],
    w: &Factors<S>,
    part: usize,
    tokens: &Tokens,
    from: usize,
    acc: &mut [S::F; N],
) {
    unsafe {
        let [a, b, c, d, e, f, g, h] = *codes;
        let x = tokens.codes.add(from * BLOCK);
        let mut sums = [s.i_splat(0); N];
        for i in 0..N {
            sums[i] = tokens.first::<S, F>(s, part, from + i);
        }
        if F::SUB == 32 {
            s.dot32_rows_bits::<F, N>(&mut sums, *codes, x);
        } else if part == 0 {
            s.dot16_rows_bits::<F, N>(&mut sums, [a, b, c, d], x);
        } else {
            s.dot16_rows_bits::<F, N>(&mut sums, [e, f, g, h], x.add(16));
        }
        for i in 0..N {
            acc[i] = tokens.add::<S, F>(s, w, sums[i], part, from + i, acc[i]);
        }
    }
}
