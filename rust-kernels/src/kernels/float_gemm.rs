//! y = W x for weights in panels of floats and f32 activations.
//!
//! Each result is the sum over the columns in order, whatever the tile. So it does not depend on the other tokens.
use super::gemm::{Gemm, after, finish_rows, finish_tile, prefetch_out};
use crate::formats::FloatFormat;
use crate::simd::{Kernel, Simd};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// The rows of x as f32, `stride` floats apart.
#[derive(Clone, Copy)]
pub struct FloatRows {
    pub base: *mut f32,
    pub stride: usize,
}

impl FloatRows {
    /// Returns the address of element k of row t. Safety: the element is within the matrix.
    #[inline(always)]
    unsafe fn at(&self, t: usize, k: usize) -> *const f32 {
        unsafe { self.base.add(t * self.stride + k) }
    }
}

/// Maximum panels in a register tile, and maximum lanes of a vector.
const PANELS: usize = 4;
const LANES: usize = 16;
/// With many tokens, this number of columns is converted to f32 at once. With `PANELS` panels they fill half of a
/// first-level cache.
const UNIT: usize = 64;
/// From this number of tokens on, it is faster to convert columns to f32 once for all tokens.
pub const WIDE_TOKENS: usize = 13;
/// Tokens in a register tile. Fewer tokens wait for memory, whether or not several panels share a register tile.
pub const TILE_TOKENS: usize = 4;
/// From this number of tokens on, an incomplete register tile of TILE_TOKENS is faster than one token at a time.
const FULL_FROM: usize = 3;
/// Number of panels in a register tile for few tokens.
pub const THIN_PANELS: usize = 4;
/// How many bytes ahead a panel is prefetched, because the hardware prefetcher stops at each page.
const PREFETCH_BYTES: usize = 2048;
/// Number of tokens whose sums are computed together. Their columns of a unit stay in a first-level cache beside the
/// unit.
const CHUNK: usize = 48;

/// A unit of columns of some panels, converted to f32: [column][panel], with LANES rows in the lanes.
#[repr(C, align(64))]
struct Unit([[f32; PANELS * LANES]; UNIT]);

/// The sums of a chunk of tokens: [token][panel], with LANES rows in the lanes.
#[repr(C, align(64))]
struct Sums([[f32; PANELS * LANES]; CHUNK]);

/// Computes `args.rows` rows of W x.
///
/// # Safety
/// All pointers hold what `args` says.
pub struct FloatGemm<'a, F> {
    pub args: &'a Gemm,
    pub x: &'a FloatRows,
    pub format: PhantomData<F>,
}

impl<F: FloatFormat> Kernel for FloatGemm<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { args, x, .. } = self;
        let (mut unit, mut sums) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let panels = args.rows.div_ceil(S::LANES);
        for from in (args.from..args.to).step_by(CHUNK) {
            let rows = from..args.to.min(from + CHUNK);
            let mut p = 0;
            while p < panels {
                let (unit, sums) = (unit.as_mut_ptr(), sums.as_mut_ptr());
                // SAFETY: the panels from p on and the rows are within `args`; no other call uses `unit` and `sums`.
                p += unsafe {
                    match (panels - p, rows.len() < WIDE_TOKENS) {
                        // If a vector takes two registers, several tokens are multiplied by one panel at a time. The
                        // sums of several tokens and panels would not fit in registers.
                        (THIN_PANELS.., true) if !S::HALVES || rows.len() < FULL_FROM => {
                            thin::<S, F, THIN_PANELS>(s, args, x, p, &rows)
                        }
                        (_, true) => thin::<S, F, 1>(s, args, x, p, &rows),
                        (4.., _) if const { S::FLOAT_PANELS == 4 } => {
                            panels_of::<S, F, 4>(s, args, x, p, &rows, unit, sums)
                        }
                        (2.., _) if const { S::FLOAT_PANELS > 1 } => {
                            panels_of::<S, F, 2>(s, args, x, p, &rows, unit, sums)
                        }
                        _ => panels_of::<S, F, 1>(s, args, x, p, &rows, unit, sums),
                    }
                };
            }
        }
    }
}

/// Multiplies P panels, from panel p on, by few rows of x. Converts the weights to f32 in registers. Returns P.
#[inline(always)]
unsafe fn thin<S: Simd, F: FloatFormat, const P: usize>(
    s: S,
    args: &Gemm,
    x: &FloatRows,
    p: usize,
    rows: &Range<usize>,
) -> usize {
    let mut t = rows.start;
    while t < rows.end {
        // SAFETY: `rows` are rows of x.
        t += unsafe {
            match rows.end - t {
                FULL_FROM.. => thin_tile::<S, F, P, TILE_TOKENS>(s, args, x, p, t..rows.end),
                _ => thin_tile::<S, F, P, 1>(s, args, x, p, t..rows.end),
            }
        };
    }
    P
}

/// Multiplies P panels by the first N of some rows of x, or by all if there are fewer. Returns the number of rows. An
/// incomplete tile repeats the last row.
#[inline(always)]
unsafe fn thin_tile<S: Simd, F: FloatFormat, const P: usize, const N: usize>(
    s: S,
    args: &Gemm,
    x: &FloatRows,
    p: usize,
    rows: Range<usize>,
) -> usize {
    let n = rows.len().min(N);
    unsafe {
        let column_bytes = F::BLOCK_BYTES * S::LANES;
        let panel = args.panels.add(p * args.panel_bytes);
        let mut from = [x.at(rows.start, 0); N];
        for i in 0..N {
            from[i] = x.at(rows.start + i.min(n - 1), 0);
        }
        let mut acc = [[s.splat(0.0); N]; P];
        if !(F::IS_F16 && s.f16_sums(&mut acc, panel, args.panel_bytes, args.columns, &from)) {
            acc = [[s.splat(0.0); N]; P];
            for k in 0..args.columns {
                for j in 0..P {
                    let column = panel.add(j * args.panel_bytes + k * column_bytes);
                    s.prefetch(column.wrapping_add(PREFETCH_BYTES));
                    let w = F::load(s, column);
                    for i in 0..N {
                        acc[j][i] = s.fma(w, s.splat(*from[i].add(k)), acc[j][i]);
                    }
                }
            }
        }
        for j in 0..P {
            finish_tile::<S, N>(s, args, &acc[j], rows.start..rows.start + n, (p + j) * S::LANES);
        }
    }
    n
}

/// Multiplies P panels, from panel p on, by rows of x. Converts each unit of columns to f32 once and uses it for all
/// rows. Returns P.
#[inline(always)]
unsafe fn panels_of<S: Simd, F: FloatFormat, const P: usize>(
    s: S,
    args: &Gemm,
    x: &FloatRows,
    p: usize,
    rows: &Range<usize>,
    unit: *mut Unit,
    sums: *mut Sums,
) -> usize {
    unsafe {
        let column_bytes = F::BLOCK_BYTES * S::LANES;
        let panel = args.panels.add(p * args.panel_bytes);
        let sums = sums.cast::<f32>();
        for start in (0..args.columns).step_by(UNIT) {
            let columns = UNIT.min(args.columns - start);
            let w = widen::<S, F, P>(s, panel.add(start * column_bytes), args.panel_bytes, columns, unit);
            let last = start + columns == args.columns;
            let ahead = after::<P>(args, p, (!last).then_some((start + UNIT) * column_bytes), UNIT * column_bytes);
            let mut t = rows.start;
            while t < rows.end {
                ahead.parts(t - rows.start..rows.end.min(t + 6) - rows.start, rows.len()).prefetch::<S, P>(s, 0, 1);
                if last {
                    prefetch_out::<S, P>(s, args, p, t..rows.end.min(t + 6));
                }
                let sums = sums.add((t - rows.start) * P * S::LANES);
                let done = match rows.end - t {
                    6.. if const { S::FLOAT_PANELS == 4 } => tile::<S, P, 6>(s, &w, columns, x, t, start, sums),
                    4.. => tile::<S, P, 4>(s, &w, columns, x, t, start, sums),
                    2.. => tile::<S, P, 2>(s, &w, columns, x, t, start, sums),
                    _ => tile::<S, P, 1>(s, &w, columns, x, t, start, sums),
                };
                if last {
                    finish_rows::<S, P>(s, args, sums, p, t..t + done);
                }
                t += done;
            }
        }
    }
    P
}

/// Columns of panels as f32, in vectors of LANES. `column` and `panel` are the numbers of floats to the next column and
/// to the next panel.
struct Floats {
    base: *const f32,
    column: usize,
    panel: usize,
}

/// Returns some columns of P panels as f32. F32 weights stay in place, other formats are converted into `unit`.
#[inline(always)]
unsafe fn widen<S: Simd, F: FloatFormat, const P: usize>(
    s: S,
    from: *const u8,
    panel_bytes: usize,
    columns: usize,
    unit: *mut Unit,
) -> Floats {
    if const { F::BLOCK_BYTES == 4 } {
        return Floats { base: from.cast(), column: S::LANES, panel: panel_bytes / 4 };
    }
    let unit = unit.cast::<f32>();
    for k in 0..columns {
        for j in 0..P {
            unsafe {
                let w = F::load(s, from.add(j * panel_bytes + k * F::BLOCK_BYTES * S::LANES));
                s.store(unit.add((k * P + j) * S::LANES), w);
            }
        }
    }
    Floats { base: unit, column: P * S::LANES, panel: S::LANES }
}

/// Multiplies P panels by N rows of x, from row t on, in one register tile. Covers the columns from `start` on. Adds to
/// `sums`, or overwrites them at column 0. Returns N.
#[inline(always)]
unsafe fn tile<S: Simd, const P: usize, const N: usize>(
    s: S,
    floats: &Floats,
    columns: usize,
    x: &FloatRows,
    t: usize,
    start: usize,
    sums: *mut f32,
) -> usize {
    unsafe {
        let mut acc = [[s.splat(0.0); P]; N];
        if start > 0 {
            for i in 0..N {
                for j in 0..P {
                    acc[i][j] = s.load(sums.add((i * P + j) * S::LANES));
                }
            }
        }
        for k in 0..columns {
            let mut w = [s.splat(0.0); P];
            for j in 0..P {
                w[j] = s.load(floats.base.add(k * floats.column + j * floats.panel));
            }
            for i in 0..N {
                let value = s.splat(*x.at(t + i, start + k));
                for j in 0..P {
                    acc[i][j] = s.fma(w[j], value, acc[i][j]);
                }
            }
        }
        for i in 0..N {
            for j in 0..P {
                s.store(sums.add((i * P + j) * S::LANES), acc[i][j]);
            }
        }
    }
    N
}
