//! SwiGLU: silu(gate) * up, both products of the same rows.
use super::product::Product;
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::formats::BLOCK;
use crate::kernels::gemm::{Epilogue, Gemm};
use crate::kernels::norm::Outputs;
use crate::kernels::quant_rows::quantize_block;
use crate::kernels::silu::silu;
use crate::kernels::tiles::whole_blocks;
use crate::program::{Operands, Out, Program};
use crate::simd::{Kernel, Simd};
use crate::weights::Matrix;
use std::ops::Range;

/// Rows and columns of the tile that gate and up are kept in.
pub(super) const ROWS: usize = 128;
pub(super) const COLUMNS: usize = 288;

pub struct SwiGlu {
    x: Out,
    gate: usize,
    up: usize,
    out: Out,
}

impl Decode for SwiGlu {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, gate, up, out) = (o.out()?, o.size()?, o.size()?, o.out()?);
        let (columns, ffn) = (o.columns(x)?, o.columns(out)?);
        o.same_rows(&[x.float, x.quant, out.float, out.quant])?;
        o.width(out, ffn)?;
        for matrix in [gate, up] {
            o.shape(matrix, ffn, columns)?;
            o.reads(matrix, x)?;
        }
        Ok(Self { x, gate, up, out })
    }
}

impl Op for SwiGlu {
    fn scratch(&self, p: &Program) -> usize {
        2 * ROWS * COLUMNS + Product::scratch(p, self.x)
    }

    fn run(&self, run: &Run, work: &Work) {
        let tiles = [work.scratch, work.scratch.wrapping_add(ROWS * COLUMNS)];
        let mut product = Product::new(run, self.x, work.scratch.wrapping_add(2 * ROWS * COLUMNS));
        let (m, matrices) = (product.m, [self.gate, self.up].map(|w| run.matrix(w)));
        let rows = matrices[0].rows;
        let step = whole_blocks(run.isa, matrices.map(|w| &w.format.kernels), rows, m, work.threads);
        let out = run.outputs(self.out);
        for columns in work.tapering(rows, [step, COLUMNS]) {
            for from in (0..m).step_by(ROWS) {
                let tokens = from..m.min(from + ROWS);
                for (matrix, tile) in matrices.into_iter().zip(tiles) {
                    // SAFETY: the columns begin with a block, so with a panel; the tile holds them.
                    unsafe { product.multiply(&gemm(run, matrix, &columns, &tokens, tile), matrix) }
                }
                for row in tokens {
                    let [gate, up] = tiles.map(|tile| tile.wrapping_add((row - from) * COLUMNS));
                    let (n, start) = (columns.len(), columns.start);
                    // SAFETY: the row is within the tiles and the outputs.
                    unsafe { run.isa.run(SwigluRow { gate, up, n, out: &out, row, start }) }
                }
            }
        }
    }
}

/// Rows `columns` of a matrix times some tokens, to a tile.
fn gemm(run: &Run, matrix: &Matrix, columns: &Range<usize>, tokens: &Range<usize>, tile: *mut f32) -> Gemm {
    Gemm {
        panels: matrix.panels.wrapping_add(columns.start / run.isa.lanes() * matrix.panel_bytes),
        panel_bytes: matrix.panel_bytes,
        rows: columns.len(),
        columns: matrix.columns,
        from: tokens.start,
        to: tokens.end,
        out: tile,
        ldo: COLUMNS,
        bias: std::ptr::null(),
        epilogue: Epilogue::Store,
    }
}

/// Columns `start..start + n` of one row: y = gate / (1 + e^-gate) * up. `gate` is overwritten.
///
/// # Safety
/// `gate` and `up` hold `n` floats, rounded up to whole vectors; with a quantised output `start` and `n` are
/// multiples of 32; the outputs have the row.
pub struct SwigluRow<'a> {
    pub gate: *mut f32,
    pub up: *const f32,
    pub n: usize,
    pub out: &'a Outputs,
    pub row: usize,
    pub start: usize,
}

impl Kernel for SwigluRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { gate, up, n, out, row, start } = self;
        unsafe {
            for i in (0..n).step_by(S::LANES) {
                s.store(gate.add(i), s.mul(silu(s, s.load(gate.add(i))), s.load(up.add(i))));
            }
            if !out.float.is_null() {
                std::ptr::copy_nonoverlapping(gate, out.float.add(row * out.float_stride + start), n);
            }
            if let Some(quant) = &out.quant {
                for b in 0..n / BLOCK {
                    quantize_block(s, gate.add(b * BLOCK), quant, row, start / BLOCK + b);
                }
            }
        }
    }
}
