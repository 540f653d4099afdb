//! GEMV and thin GEMM: a register tile of one panel and 1 to 16 tokens, over codes that are decoded into registers.
use super::gemm::{DotBits, Factors, Gemm, Tokens, finish_tile};
use super::quantize::QuantRows;
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::Simd;
use std::sync::atomic::{Ordering, compiler_fence};

/// How far ahead of its use a panel's code is asked for. The hardware's own prefetch stops at each page; with this a
/// core reads 20 to 40 % faster where it waits for memory (docs/BENCHMARKS.md).
const PREFETCH_BYTES: usize = 4096;

/// As `gemm::gemm`.
///
/// # Safety
/// As `gemm::gemm`.
#[inline(always)]
pub unsafe fn gemm<S: Simd, F: BlockFormat>(args: &Gemm, x: &QuantRows, corrections: *const f32) {
    for p in 0..args.rows.div_ceil(S::LANES) {
        let mut t = args.from;
        while t < args.to {
            let left = (args.to - t).min(x.tile - t % x.tile);
            // SAFETY: the tile lies within one tile of x, as `run` wants.
            t += unsafe {
                match left {
                    16.. if S::TILE >= 16 => run::<S, F, 2, 8>(args, x, corrections, p, t),
                    8.. if S::TILE >= 8 => run::<S, F, 1, 8>(args, x, corrections, p, t),
                    4.. => run::<S, F, 1, 4>(args, x, corrections, p, t),
                    2.. => run::<S, F, 1, 2>(args, x, corrections, p, t),
                    _ => run::<S, F, 1, 1>(args, x, corrections, p, t),
                }
            };
        }
    }
}

/// One panel times G * N rows of x from row t; returns how many rows.
#[inline(always)]
unsafe fn run<S: Simd, F: BlockFormat, const G: usize, const N: usize>(
    args: &Gemm,
    x: &QuantRows,
    corrections: *const f32,
    p: usize,
    t: usize,
) -> usize {
    unsafe {
        let acc = tile::<S, F, G, N>(args.panels.add(p * args.panel_bytes), x, corrections, t);
        for (g, acc) in acc.iter().enumerate() {
            finish_tile::<S, N>(args, acc, t + g * N, p * S::LANES);
        }
    }
    G * N
}

/// The register tile: LANES rows of W times G groups of N rows of x.
#[inline(always)]
unsafe fn tile<S: Simd, F: BlockFormat, const G: usize, const N: usize>(
    panel: *const u8,
    x: &QuantRows,
    corrections: *const f32,
    t: usize,
) -> [[S::F; N]; G] {
    unsafe {
        let mut tokens = Tokens::new::<F>(x, corrections, t, 0);
        let mut acc = [[S::splat(0.0); N]; G];
        let mut unit = panel;
        for start in (0..x.columns).step_by(UNIT) {
            let in_unit = ((x.columns - start) / BLOCK).min(UNIT_BLOCKS);
            for b in 0..in_unit {
                let next = unit.wrapping_add(PREFETCH_BYTES + b * F::code_bytes(S::LANES));
                prefetch_part::<S, F, G>(next, 0);
                let codes = F::codes::<S>(unit, in_unit, b);
                let w = Factors { scales: F::scales::<S>(unit, in_unit, b), mins: F::mins::<S>(unit, in_unit, b) };
                add_group::<S, F, N>(&codes, &w, &tokens, 0, &mut acc[0]);
                if G == 2 {
                    // Sums of sixteen tokens side by side would not fit in the registers.
                    compiler_fence(Ordering::SeqCst);
                    prefetch_part::<S, F, G>(next, 1);
                    add_group::<S, F, N>(&codes, &w, &tokens, N, &mut acc[1]);
                }
                tokens.next();
            }
            let (scale_bytes, code_bytes) = F::unit_layout(in_unit, S::LANES);
            unit = unit.add(scale_bytes + code_bytes);
        }
        acc
    }
}

/// Asks for part `part` of G of the codes of the block at `next`.
#[inline(always)]
unsafe fn prefetch_part<S: Simd, F: BlockFormat, const G: usize>(next: *const u8, part: usize) {
    for line in (64 * part..F::code_bytes(S::LANES)).step_by(64 * G) {
        unsafe { S::prefetch(next.wrapping_add(line)) }
    }
}

/// Adds a block's part of the products with N tokens from token `from` of the tile.
#[inline(always)]
unsafe fn add_group<S: Simd, F: BlockFormat, const N: usize>(
    codes: &[S::B; 8],
    w: &Factors<S>,
    tokens: &Tokens,
    from: usize,
    acc: &mut [S::F; N],
) {
    unsafe {
        let [a, b, c, d, e, f, g, h] = *codes;
        let x = tokens.codes.add(from * BLOCK);
        let mut low = [S::i_splat(0); N];
        let mut high = low;
        for i in 0..N {
            [low[i], high[i]] = tokens.first::<S, F>(from + i);
        }
        S::dot16_rows_bits::<F, N>(&mut low, [a, b, c, d], x);
        S::dot16_rows_bits::<F, N>(if F::SUB == 32 { &mut low } else { &mut high }, [e, f, g, h], x.add(16));
        for i in 0..N {
            acc[i] = tokens.add::<S, F>(w, [low[i], high[i]], from + i, acc[i]);
        }
    }
}
