//! y = W x for weights in panels of floats and f32 activations.
//!
//! As in `gemm`, a row is added up in one order, column after column, whatever the tile.
use super::gemm::{Gemm, finish_tile};
use crate::formats::FloatFormat;
use crate::simd::Simd;

/// f32 rows of x, `stride` floats apart.
#[derive(Clone, Copy)]
pub struct FloatRows {
    pub base: *mut f32,
    pub stride: usize,
}

/// Computes `args.rows` rows of W x.
///
/// # Safety
/// All pointers hold what `args` says; S as simd says.
#[inline(always)]
pub unsafe fn float_gemm<S: Simd, F: FloatFormat>(args: &Gemm, x: &FloatRows) {
    let panels = args.rows.div_ceil(S::LANES);
    // Rows of x whose floats stay in a core's L2 while the panels pass by.
    let chunk = (320 * 1024 / 4 / args.columns / 8).max(1) * 8;
    for start in (args.from..args.to).step_by(chunk) {
        let end = args.to.min(start + chunk);
        let mut p = 0;
        while p < panels {
            let wide = panels - p >= 4;
            let mut t = start;
            // SAFETY: rows t.. and panels p.. are within `args`, as `run` wants.
            while t < end {
                t += unsafe {
                    match (end - t, wide) {
                        (4.., true) => run::<S, F, 4, 4>(args, x, p, t),
                        (_, true) => run::<S, F, 1, 4>(args, x, p, t),
                        (4.., false) => run::<S, F, 4, 1>(args, x, p, t),
                        (_, false) => run::<S, F, 1, 1>(args, x, p, t),
                    }
                };
            }
            p += if wide { 4 } else { 1 };
        }
    }
}

/// P panels times M rows of x; returns M. One chain of additions a sum, P * M of them side by side.
#[inline(always)]
unsafe fn run<S: Simd, F: FloatFormat, const M: usize, const P: usize>(
    args: &Gemm,
    x: &FloatRows,
    p: usize,
    t: usize,
) -> usize {
    unsafe {
        let column_bytes = F::BLOCK_BYTES * S::LANES;
        let mut acc = [[S::splat(0.0); M]; P];
        let panel = args.panels.add(p * args.panel_bytes);
        let rows = x.base.add(t * x.stride);
        for k in 0..args.columns {
            for j in 0..P {
                let w = F::load::<S>(panel.add(j * args.panel_bytes + k * column_bytes));
                for i in 0..M {
                    acc[j][i] = S::fma(w, S::splat(*rows.add(i * x.stride + k)), acc[j][i]);
                }
            }
        }
        for j in 0..P {
            finish_tile::<S, M>(args, &acc[j], t, (p + j) * S::LANES);
        }
    }
    M
}
