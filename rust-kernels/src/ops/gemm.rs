//! y = W x for weights in panels of small integers and activations in 8 bits: GEMV, thin and wide GEMM are one
//! kernel with a register tile of 1 to 16 tokens.
//!
//! A row of y is added up in one float order whatever the tile: block after block,
//! acc += x.scale * (scale * float(sum of code products)), so results do not depend on what else is in a batch.
use super::quantize::QuantRows;
use crate::formats::{BLOCK, BlockFormat, UNIT, UNIT_BLOCKS};
use crate::simd::Simd;
use crate::unroll16;

/// What is done with the sums of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    Store,
    /// Adds to what the output holds: a residual connection.
    Add,
}

/// How far ahead of its use a panel's code is asked for. The hardware's own prefetch stops at each page; with this a
/// core reads 20 to 40 % faster where it waits for memory (docs/BENCHMARKS.md). Where many tokens share a panel it
/// only costs registers, and is left out.
const PREFETCH_BYTES: usize = 4096;

/// Some panels of W times all rows of x.
#[derive(Clone, Copy)]
pub struct Gemm {
    /// The first panel to compute.
    pub panels: *const u8,
    pub panel_bytes: usize,
    /// Rows of W to compute; the last panel may be partial.
    pub rows: usize,
    pub columns: usize,
    /// Rows of x to compute: `from` is a multiple of x's tile.
    pub from: usize,
    pub to: usize,
    /// Element (from, first row): [to - from][ldo].
    pub out: *mut f32,
    pub ldo: usize,
    /// One float a row of W, or null.
    pub bias: *const f32,
    pub epilogue: Epilogue,
}

/// Floats of scratch that `prepare` fills for m rows.
pub fn corrections_len(m: usize, columns: usize, widest: usize) -> usize {
    m.next_multiple_of(widest) * (columns / BLOCK) * 2
}

/// Precomputes, for each row and block of x, what a format's offset or min multiplies.
/// Layout as the tiles of x: [tile][block][1 or 2][T]: -OFFSET * sum as i32, or scale * sum as f32 where HAS_MIN.
///
/// # Safety
/// `x` holds m rows; `corrections` has `corrections_len` floats.
pub unsafe fn prepare<S: Simd, F: BlockFormat>(x: &QuantRows, m: usize, corrections: *mut f32) {
    let (blocks, t) = (x.columns / BLOCK, x.tile);
    let offset = if F::BITS == 8 { S::WIDE_BIAS } else { F::OFFSET };
    let parts = BLOCK / F::SUB;
    for tile in 0..m.div_ceil(t) {
        for b in 0..blocks {
            // SAFETY: the tile and the block are within x, and the target was sized for them.
            unsafe {
                let (meta, to) = (x.meta(tile, b, 0), corrections.add((tile * blocks + b) * parts * t));
                let sums = meta.add(t).cast::<i32>();
                for slot in 0..t.min(m - tile * t) {
                    let (first, second) = (*sums.add(slot), *sums.add(t + slot));
                    let values = if parts == 1 { [first + second, 0] } else { [first, second] };
                    for (part, value) in values.into_iter().take(parts).enumerate() {
                        let at = to.add(part * t + slot);
                        if F::HAS_MIN {
                            *at = *meta.add(slot) * value as f32;
                        } else {
                            at.cast::<i32>().write(-offset * value);
                        }
                    }
                }
            }
        }
    }
}

/// Computes `args.rows` rows of W x. `corrections` is what `prepare` made of x for this format.
///
/// # Safety
/// All pointers hold what `args` says; S as simd says.
#[inline(always)]
pub unsafe fn gemm<S: Simd, F: BlockFormat>(args: &Gemm, x: &QuantRows, corrections: *const f32) {
    // Rows of x whose codes stay in a core's L2 while the panels pass by.
    let chunk = (320 * 1024 / args.columns / S::TILE).max(1) * S::TILE;
    for start in (args.from..args.to).step_by(chunk) {
        let end = args.to.min(start + chunk);
        for p in 0..args.rows.div_ceil(S::LANES) {
            let mut t = start;
            while t < end {
                let left = (end - t).min(x.tile - t % x.tile);
                // SAFETY: the tile lies within one tile of x, as `run` wants.
                t += unsafe {
                    match left {
                        16.. if S::TILE >= 16 && end - start > 16 => run::<S, F, 16, false>(args, x, corrections, p, t),
                        16.. if S::TILE >= 16 => run::<S, F, 16, true>(args, x, corrections, p, t),
                        8.. if S::TILE >= 8 => run::<S, F, 8, true>(args, x, corrections, p, t),
                        4.. if S::TILE >= 4 => run::<S, F, 4, true>(args, x, corrections, p, t),
                        2.. => run::<S, F, 2, true>(args, x, corrections, p, t),
                        _ => run::<S, F, 1, true>(args, x, corrections, p, t),
                    }
                };
            }
        }
    }
}

/// One panel times M rows of x from row t; returns M.
#[inline(always)]
unsafe fn run<S: Simd, F: BlockFormat, const M: usize, const PREFETCH: bool>(
    args: &Gemm,
    x: &QuantRows,
    corrections: *const f32,
    p: usize,
    t: usize,
) -> usize {
    unsafe {
        let acc = tile::<S, F, M, PREFETCH>(args.panels.add(p * args.panel_bytes), x, corrections, t);
        finish_tile::<S, M>(args, &acc, t, p * S::LANES);
    }
    M
}

/// The register tile: LANES rows of W times M rows of x.
#[inline(always)]
unsafe fn tile<S: Simd, F: BlockFormat, const M: usize, const PREFETCH: bool>(
    panel: *const u8,
    x: &QuantRows,
    corrections: *const f32,
    t: usize,
) -> [S::F; M] {
    unsafe {
        let parts = BLOCK / F::SUB;
        let (blocks, width) = (x.columns / BLOCK, x.tile);
        let (index, slot) = (t / width, t % width);
        let mut tokens = Tokens {
            codes: x.codes(index, 0, slot).cast_const(),
            scales: x.meta(index, 0, slot).cast_const(),
            corrections: corrections.add(index * blocks * parts * width + slot),
            width,
        };
        let mut acc = [S::splat(0.0); M];
        let mut unit = panel;
        for start in (0..x.columns).step_by(UNIT) {
            let in_unit = if x.columns - start >= UNIT { UNIT_BLOCKS } else { (x.columns - start) / BLOCK };
            for b in 0..in_unit {
                if PREFETCH {
                    let next = unit.wrapping_add(PREFETCH_BYTES + b * code_bytes::<S, F>());
                    for line in (0..code_bytes::<S, F>()).step_by(64) {
                        S::prefetch(next.wrapping_add(line));
                    }
                }
                let w = Weights::<S> {
                    codes: F::codes::<S>(unit, in_unit, b),
                    scales: F::scales::<S>(unit, in_unit, b),
                    mins: F::mins::<S>(unit, in_unit, b),
                };
                // A loop of 16 would stay a loop, with `acc` in memory.
                unroll16!(I => if I < M { acc[I] = accumulate::<S, F, I>(&w, &tokens, acc[I]) });
                tokens.codes = tokens.codes.add(width * BLOCK);
                tokens.scales = tokens.scales.add(3 * width);
                tokens.corrections = tokens.corrections.add(parts * width);
            }
            let (scale_bytes, code_bytes) = F::unit_layout(in_unit, S::LANES);
            unit = unit.add(scale_bytes + code_bytes);
        }
        acc
    }
}

/// Bytes of a block's codes.
#[inline(always)]
const fn code_bytes<S: Simd, F: BlockFormat>() -> usize {
    4 * S::LANES * F::STORED_BITS
}

/// A block of a panel, decoded: 32 columns of LANES rows.
struct Weights<S: Simd> {
    codes: [S::B; 8],
    scales: [S::F; 2],
    mins: [S::F; 2],
}

/// The same block of a tile's tokens: token i's codes at `codes + 32 i`, its scale at `scales + i`, and so on.
struct Tokens {
    codes: *const i8,
    scales: *const f32,
    corrections: *const f32,
    width: usize,
}

/// acc + the block's part of the dot products with token I.
#[inline(always)]
unsafe fn accumulate<S: Simd, F: BlockFormat, const I: usize>(w: &Weights<S>, x: &Tokens, acc: S::F) -> S::F {
    unsafe {
        let codes = x.codes.add(I * BLOCK);
        let scale = S::splat(*x.scales.add(I));
        let (first, second) = (x.corrections.add(I), x.corrections.add(x.width + I));
        if F::HAS_MIN {
            let sum = S::fma(block_sum::<S, F>(w, codes, [S::i_splat(0); 2]), scale, acc);
            let sum = S::fnma(w.mins[0], S::splat(*first), sum);
            return if F::SUB == 32 { sum } else { S::fnma(w.mins[1], S::splat(*second), sum) };
        }
        let low = S::i_splat(*first.cast::<i32>());
        let high = if F::SUB == 32 { low } else { S::i_splat(*second.cast::<i32>()) };
        S::fma(block_sum::<S, F>(w, codes, [low, high]), scale, acc)
    }
}

/// scale * (first + sum of code * x) over a block of 32, with two scales where a format has them.
#[inline(always)]
unsafe fn block_sum<S: Simd, F: BlockFormat>(w: &Weights<S>, x: *const i8, first: [S::I; 2]) -> S::F {
    unsafe {
        let [a, b, c, d, e, f, g, h] = w.codes;
        let (low, high) = ([a, b, c, d], [e, f, g, h]);
        if F::SUB == 32 {
            let sum = S::dot16_bits::<F>(first[0], low, x);
            S::mul(w.scales[0], S::i_to_f(S::dot16_bits::<F>(sum, high, x.add(16))))
        } else {
            let sum = S::mul(w.scales[0], S::i_to_f(S::dot16_bits::<F>(first[0], low, x)));
            S::fma(w.scales[1], S::i_to_f(S::dot16_bits::<F>(first[1], high, x.add(16))), sum)
        }
    }
}

/// `dot16` with the format's width: a const generic cannot name an associated constant.
trait DotBits: Simd {
    #[inline(always)]
    unsafe fn dot16_bits<F: BlockFormat>(acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        unsafe {
            match F::BITS {
                0..=5 => Self::dot16::<5>(acc, w, x),
                6 => Self::dot16::<6>(acc, w, x),
                7 => Self::dot16::<7>(acc, w, x),
                _ => Self::dot16::<8>(acc, w, x),
            }
        }
    }
}
impl<S: Simd> DotBits for S {}

/// `finish` for M rows of x from row t. They go through memory, so that one copy of its code serves all of them.
///
/// # Safety
/// As `finish`.
#[inline(always)]
pub(super) unsafe fn finish_tile<S: Simd, const M: usize>(args: &Gemm, acc: &[S::F; M], t: usize, row: usize) {
    unsafe {
        let mut sums = [[0f32; 16]; M];
        unroll16!(I => if I < M { S::store(sums[I].as_mut_ptr(), acc[I]) });
        for i in 0..std::hint::black_box(M) {
            finish::<S>(args, S::load(sums.as_ptr().add(i).cast()), t + i, row);
        }
    }
}

/// Bias, epilogue and store of one row of x and one panel.
///
/// # Safety
/// Row t and panel row `row` are within `args`.
#[inline(always)]
unsafe fn finish<S: Simd>(args: &Gemm, sums: S::F, t: usize, row: usize) {
    unsafe {
        let out = args.out.add((t - args.from) * args.ldo + row);
        let bias = if args.bias.is_null() { args.bias } else { args.bias.add(row) };
        let left = args.rows - row;
        if left >= S::LANES {
            return complete::<S>(args.epilogue, sums, bias, out);
        }
        // A partial panel takes the same steps on padded copies.
        let (mut y, mut b) = ([0f32; 16], [0f32; 16]);
        std::ptr::copy_nonoverlapping(out, y.as_mut_ptr(), left);
        if !bias.is_null() {
            std::ptr::copy_nonoverlapping(bias, b.as_mut_ptr(), left);
        }
        complete::<S>(args.epilogue, sums, if bias.is_null() { bias } else { b.as_ptr() }, y.as_mut_ptr());
        std::ptr::copy_nonoverlapping(y.as_ptr(), out, left);
    }
}

#[inline(always)]
unsafe fn complete<S: Simd>(epilogue: Epilogue, sums: S::F, bias: *const f32, out: *mut f32) {
    unsafe {
        let mut y = sums;
        if !bias.is_null() {
            y = S::add(y, S::load(bias));
        }
        if epilogue == Epilogue::Add {
            y = S::add(y, S::load(out));
        }
        S::store(out, y);
    }
}
