//! Op: multiplies each head's part of a row by the head's own matrix. Latent attention uses it to map queries into the
//! space of its KV cache, and results back.
use super::experts::panels_of;
use super::product::{Operand, Product};
use super::quantize::{QuantizeRow, QuantizeRowFinely};
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::formats::FormatKernels;
use crate::kernels::float_gemm::FloatRows;
use crate::kernels::gemm::{Epilogue, Gemm};
use crate::kernels::quant_rows::{FineRows, QuantRows, row_bytes, tile_rows};
use crate::program::{Operands, Program, ROW_ROUND};
use std::ops::Range;

/// Number of rows that a head's matrix multiplies at once.
const ROWS: usize = 64;

pub struct HeadMatMul {
    x: usize,
    weight: usize,
    out: usize,
    heads: usize,
    /// Numbers of columns and rows of a head's matrix.
    columns: usize,
    rows: usize,
    /// Columns of a head's part of a row that are not multiplied. With `keeps` they are behind the multiplied columns,
    /// else in front.
    rest: usize,
    /// Whether these remaining columns are copied in front of the products. Otherwise they are dropped.
    keeps: bool,
    /// Whether quantized weights read x as 8-bit blocks in two planes.
    fine: bool,
}

impl Decode for HeadMatMul {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, weight, heads, rest) = (o.step_float(None)?, o.size()?, o.size()?, o.size()?);
        let (keeps, fine, out) = (o.flag()?, o.flag()?, o.step_float(None)?);
        let (from, to) = (o.buffer(x)?.columns, o.buffer(out)?.columns);
        if heads == 0 || !from.is_multiple_of(heads) || !to.is_multiple_of(heads) {
            bail!("{from} and {to} columns cannot be split into {heads} heads");
        }
        let (from, to, kept) = (from / heads, to / heads, if keeps { rest } else { 0 });
        if rest >= from || kept >= to {
            bail!("heads of {from} and {to} columns cannot leave {rest} columns out of the product");
        }
        let (columns, rows) = (from - rest, to - kept);
        if !rows.is_multiple_of(ROW_ROUND) {
            bail!("a head's rows must be a multiple of {ROW_ROUND} (got {rows}), of tensor {weight}");
        }
        o.shape(weight, heads * rows, columns)?;
        Ok(Self { x, weight, out, heads, columns, rows, rest, keeps, fine })
    }
}

impl Op for HeadMatMul {
    fn scratch(&self, _: &Program) -> usize {
        Product::scratch_of(ROWS, self.columns, self.fine) + self.planes() * ROWS * row_bytes(self.columns) / 4
    }

    fn run(&self, run: &Run, work: &Work) {
        let parts = run.tokens().div_ceil(ROWS);
        for item in work.items(self.heads * parts).flatten() {
            let (head, first) = (item / parts, item % parts * ROWS);
            let rows = first..run.tokens().min(first + ROWS);
            if self.keeps {
                self.keep(run, head, rows.clone());
            }
            self.multiply(run, head, rows, work.scratch);
        }
    }
}

impl HeadMatMul {
    fn planes(&self) -> usize {
        if self.fine { 2 } else { 1 }
    }

    /// Returns the address of a head's multiplied part in a row, and the address of its products.
    fn at(&self, run: &Run, head: usize, row: usize) -> [*mut f32; 2] {
        let (skipped, kept) = if self.keeps { (0, self.rest) } else { (self.rest, 0) };
        let x = run.float(self.x, row).wrapping_add(head * (self.columns + self.rest) + skipped);
        let out = run.float(self.out, row).wrapping_add(head * (self.rows + kept) + kept);
        [x, out]
    }

    fn keep(&self, run: &Run, head: usize, rows: Range<usize>) {
        for row in rows {
            let [x, out] = self.at(run, head, row);
            // SAFETY: widths were checked at decode.
            unsafe { out.sub(self.rest).copy_from_nonoverlapping(x.add(self.columns), self.rest) }
        }
    }

    fn multiply(&self, run: &Run, head: usize, rows: Range<usize>, scratch: *mut f32) {
        let (matrix, isa, m) = (run.matrix(self.weight), run.isa, rows.len());
        let [x, out] = self.at(run, head, rows.start);
        let x = FloatRows { base: x, stride: run.stride(self.x) };
        let room = scratch.wrapping_add(Product::scratch_of(ROWS, self.columns, self.fine)).cast();
        let operand = match matrix.format.kernels {
            FormatKernels::Float(_) => Operand { m, float: Some(x), quant: None, fine: None },
            FormatKernels::Block(_) if self.fine => {
                Operand { m, float: None, quant: None, fine: Some(FineRows::new(room, self.columns, m, isa)) }
            }
            FormatKernels::Block(_) => {
                let tile = tile_rows(m, isa.tile());
                let quant = QuantRows { base: room, columns: self.columns, tile, paired: isa.row_pairs() };
                Operand { m, float: None, quant: Some(quant), fine: None }
            }
        };
        let args = Gemm {
            panels: panels_of(isa, matrix, self.heads, head, 0),
            panel_bytes: matrix.panel_bytes,
            rows: self.rows,
            columns: self.columns,
            from: 0,
            to: m,
            out,
            ldo: run.stride(self.out),
            bias: std::ptr::null(),
            epilogue: Epilogue::Store,
        };
        // SAFETY: decoding checked the widths. The scratch memory has room for ROWS rows, and there are at most ROWS.
        unsafe {
            for row in 0..m {
                let x = x.base.add(row * x.stride);
                if let Some(out) = &operand.quant {
                    isa.run(QuantizeRow { x, out, row });
                }
                if let Some(out) = &operand.fine {
                    isa.run(QuantizeRowFinely { x, out, row });
                }
            }
            Product::of(isa, operand, scratch).multiply(&args, matrix);
        }
    }
}
