//! Ops that multiply by weights: their items are runs of panels.
use super::scratch::{SWIGLU_COLUMNS, SWIGLU_ROWS, Scratch};
use super::{ITEMS_PER_THREAD, Run};
use crate::kernels::FormatKernels;
use crate::ops::float_gemm::FloatRows;
use crate::ops::gemm::{Epilogue, Gemm};
use crate::pool::Items;
use crate::program::{Out, Part};
use crate::weights::Matrix;
use std::sync::atomic::AtomicUsize;

impl Run<'_> {
    pub(super) fn matmul(&self, x: Out, parts: &[Part], next: &AtomicUsize, threads: usize, s: &Scratch) {
        let m = self.rows_of(&self.p.buffers[x.float.or(x.quant).expect("checked at decode")]);
        let panels = |part: &Part| self.matrix(part.weight).rows.div_ceil(self.k.lanes);
        let total: usize = parts.iter().map(panels).sum();
        let grain = (total / (threads * ITEMS_PER_THREAD)).clamp(1, 16);
        let mut prepared = None;
        // A run of items may cross from one part into the next.
        for range in Items::new(next, total, grain) {
            let mut first = 0;
            for part in parts {
                let count = panels(part);
                let (start, end) = (range.start.max(first), range.end.min(first + count));
                if start < end {
                    let matrix = self.matrix(part.weight);
                    let row = (start - first) * self.k.lanes;
                    let rows = ((end - first) * self.k.lanes).min(matrix.rows) - row;
                    // SAFETY: the panels are the matrix's; output, bias and operand were checked at decode.
                    let args = unsafe {
                        let bias = part.bias.map(|b| self.vector(b, matrix.rows).add(row));
                        Gemm {
                            panels: matrix.panels.add((start - first) * matrix.panel_bytes),
                            panel_bytes: matrix.panel_bytes,
                            rows,
                            columns: matrix.columns,
                            from: 0,
                            to: m,
                            out: self.float(part.out, 0).add(row),
                            ldo: self.p.buffers[part.out].stride(),
                            bias: bias.unwrap_or(std::ptr::null()),
                            epilogue: part.epilogue,
                        }
                    };
                    self.gemm(&args, matrix, x, m, &mut prepared, s);
                }
                first += count;
            }
        }
    }

    /// Runs a matrix's own kernel; `prepared` remembers for which format the scratch holds corrections of x.
    fn gemm(&self, args: &Gemm, matrix: &Matrix, x: Out, m: usize, prepared: &mut Option<u32>, s: &Scratch) {
        match &matrix.kernels {
            FormatKernels::Block(k) => {
                let rows = self.quant(x.quant.expect("checked at decode"));
                // SAFETY: x holds m rows, scratch was sized for the largest operand.
                unsafe {
                    if *prepared != Some(matrix.format) {
                        (k.prepare)(&rows, m, s.corrections);
                        *prepared = Some(matrix.format);
                    }
                    (k.gemm)(args, &rows, s.corrections);
                }
            }
            FormatKernels::Float(k) => {
                let index = x.float.expect("checked at decode");
                let rows = FloatRows { base: self.float(index, 0), stride: self.p.buffers[index].stride() };
                // SAFETY: as above.
                unsafe { (k.gemm)(args, &rows) }
            }
        }
    }

    pub(super) fn swiglu(
        &self,
        x: Out,
        weights: [usize; 2],
        out: Out,
        next: &AtomicUsize,
        threads: usize,
        s: &Scratch,
    ) {
        let m = self.rows_of(&self.p.buffers[x.float.or(x.quant).expect("checked at decode")]);
        let [gate, up] = weights.map(|w| self.matrix(w));
        let width = (gate.rows / (threads * ITEMS_PER_THREAD) / 32 * 32).clamp(32, SWIGLU_COLUMNS);
        let outputs = self.outputs(out);
        let mut prepared = [None, None];
        let same = gate.format == up.format;
        for chunk in Items::new(next, gate.rows.div_ceil(width), 1).flatten() {
            let start = chunk * width;
            let rows = width.min(gate.rows - start);
            for from in (0..m).step_by(SWIGLU_ROWS) {
                let to = m.min(from + SWIGLU_ROWS);
                for (i, (matrix, tile)) in [(gate, s.gate), (up, s.up)].into_iter().enumerate() {
                    // SAFETY: start is a multiple of 32, so of LANES; the tiles hold SWIGLU_ROWS x SWIGLU_COLUMNS.
                    let args = Gemm {
                        panels: unsafe { matrix.panels.add(start / self.k.lanes * matrix.panel_bytes) },
                        panel_bytes: matrix.panel_bytes,
                        rows,
                        columns: matrix.columns,
                        from,
                        to,
                        out: tile,
                        ldo: SWIGLU_COLUMNS,
                        bias: std::ptr::null(),
                        epilogue: Epilogue::Store,
                    };
                    // Two formats share the scratch for corrections only if they are one.
                    let memory = if same {
                        &mut prepared[0]
                    } else {
                        prepared[i] = None;
                        &mut prepared[i]
                    };
                    self.gemm(&args, matrix, x, m, memory, s);
                }
                for row in from..to {
                    let at = (row - from) * SWIGLU_COLUMNS;
                    // SAFETY: the row is within the tiles and the outputs.
                    unsafe { (self.k.swiglu)(s.gate.add(at), s.up.add(at), rows, &outputs, row, start) }
                }
            }
        }
    }
}
