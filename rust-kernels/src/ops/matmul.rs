//! Products of several matrices with the same rows (q, k and v), with bias and residual in the epilogue.
use super::product::{Product, some_rows};
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::gemm::{Epilogue, Gemm};
use crate::kernels::tiles::{Tiles, cut_rows, cuts, runs};
use crate::program::{Operands, Out, Program};
use std::ops::Range;

/// Rows that read two planes are a multiple of this if others follow: a panel in every instruction set.
const FINE_ROUND: usize = 16;

pub struct MatMul {
    x: Out,
    parts: Vec<Part>,
}

/// One matrix. `weight` and `bias` are tensor indices.
struct Part {
    weight: usize,
    bias: Option<usize>,
    out: usize,
    epilogue: Epilogue,
    /// Number of leading rows that read x in two planes.
    fine: usize,
}

impl Decode for MatMul {
    fn decode(o: &mut Operands) -> Result<Self> {
        let x = o.fine_out()?;
        let (columns, count) = (o.columns(x)?, o.size()?);
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push(Part::decode(o, x, columns)?);
        }
        Ok(Self { x, parts })
    }
}

impl Part {
    fn decode(o: &mut Operands, x: Out, columns: usize) -> Result<Self> {
        let (weight, bias, out) = (o.size()?, o.optional()?, o.float(None)?);
        let epilogue = o.optional_f32()?.map_or(Epilogue::Store, Epilogue::Add);
        let (fine, rows) = (o.size()?, o.buffer(out)?.columns);
        o.same_rows(&[x.float, x.quant, x.fine, Some(out)])?;
        o.shape(weight, rows, columns)?;
        // Both kinds of rows start with a panel.
        if fine > rows || (fine < rows && !fine.is_multiple_of(FINE_ROUND)) {
            bail!("{fine} of {rows} rows of tensor {weight} cannot read two planes");
        }
        if fine > 0 {
            o.reads(weight, Out { quant: x.fine, float: None, fine: None })?;
        }
        if fine < rows {
            o.reads(weight, x)?;
        }
        if let Some(bias) = bias {
            o.vector(bias, rows)?;
        }
        Ok(Self { weight, bias, out, epilogue, fine })
    }

    /// Multiplies panels `panels` of the matrix with rows `tokens` of x.
    fn run(&self, run: &Run, product: &mut Product, panels: Range<usize>, tokens: &Range<usize>) {
        let (matrix, lanes) = (run.matrix(self.weight), run.isa.lanes());
        let row = panels.start * lanes;
        let rows = (panels.end * lanes).min(matrix.rows) - row;
        // SAFETY: the panels are the matrix's; decoding checked output, bias and operand.
        unsafe {
            let bias = self.bias.map(|b| run.vector(b, matrix.rows).add(row));
            let args = Gemm {
                panels: matrix.panels.add(panels.start * matrix.panel_bytes),
                panel_bytes: matrix.panel_bytes,
                rows,
                columns: matrix.columns,
                from: tokens.start,
                to: tokens.end,
                out: run.float(self.out, tokens.start).add(row),
                ldo: run.stride(self.out),
                bias: bias.unwrap_or(std::ptr::null()),
                epilogue: self.epilogue,
            };
            let fine = self.fine.saturating_sub(row).min(rows);
            if fine > 0 {
                product.multiply_finely(&some_rows(&args, lanes, 0..fine), matrix);
            }
            if fine < rows {
                product.multiply(&some_rows(&args, lanes, fine..rows), matrix);
            }
        }
    }
}

impl Op for MatMul {
    fn scratch(&self, p: &Program) -> usize {
        Product::scratch(p, self.x)
    }

    /// Idle without rows: a step without logits does not read the output matrix.
    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of_any(self.x) == 0
    }

    fn takes_copies(&self) -> Option<(Out, Vec<usize>)> {
        Some((self.x, self.parts.iter().map(|part| part.out).collect()))
    }

    fn run(&self, run: &Run, work: &Work) {
        let mut product = Product::new(run, self.x, work.scratch);
        let panels_of = |part: &Part| run.matrix(part.weight).rows.div_ceil(run.isa.lanes());
        let share = self.parts.iter().map(panels_of).sum::<usize>() / work.threads;
        let tiles_of = |part: &Part| {
            let format = &run.matrix(part.weight).format.kernels;
            Tiles::new(run.isa, format, panels_of(part), product.m, share)
        };
        let tiles: Vec<Tiles> = self.parts.iter().map(tiles_of).collect();
        // A run of tiles may cross from one part into the next.
        let (total, most) = runs(tiles.iter().copied());
        let cuts = cuts(product.m, total, work.threads);
        for range in work.tapering(cuts * total, [1, most]) {
            let mut first = 0;
            for cut in 0..cuts {
                let tokens = cut_rows(product.m, cut, cuts);
                for (part, tiles) in self.parts.iter().zip(&tiles) {
                    let (start, end) = (range.start.max(first), range.end.min(first + tiles.count()));
                    if start < end && !tokens.is_empty() {
                        part.run(run, &mut product, tiles.panels_of(start - first..end - first), &tokens);
                    }
                    first += tiles.count();
                }
            }
        }
    }
}
