//! Ops that multiply by weights: their items are runs of panels.
use super::scratch::{SWIGLU_COLUMNS, SWIGLU_ROWS, Scratch};
use super::{ITEMS_PER_THREAD, Run};
use crate::kernels::{BlockKernels, FormatKernels};
use crate::ops::float_gemm::FloatRows;
use crate::ops::gemm::{Epilogue, Gemm};
use crate::ops::quantize::QuantRows;
use crate::pool::Items;
use crate::program::{Out, Part};
use crate::weights::Matrix;
use std::sync::atomic::AtomicUsize;

/// For which format the scratch holds corrections of x, and whether of both planes.
type Prepared = Option<(u32, bool)>;

impl Run<'_> {
    pub(super) fn matmul(&self, x: Out, parts: &[Part], next: &AtomicUsize, threads: usize, s: &Scratch) {
        let m = self.rows_of_any(x);
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
                    match (&matrix.kernels, x.fine) {
                        (FormatKernels::Block(k), Some(fine)) if part.fine => {
                            self.gemm_finely(&args, matrix.format, k, &self.quant(fine), &mut prepared, s);
                        }
                        _ => self.gemm(&args, matrix, x, m, &mut prepared, s),
                    }
                }
                first += count;
            }
        }
    }

    /// Runs a matrix's own kernel.
    fn gemm(&self, args: &Gemm, matrix: &Matrix, x: Out, m: usize, prepared: &mut Prepared, s: &Scratch) {
        match &matrix.kernels {
            FormatKernels::Block(k) => {
                let rows = self.quant(x.quant.expect("checked at decode"));
                // SAFETY: x holds m rows, scratch was sized for the largest operand.
                unsafe {
                    if *prepared != Some((matrix.format, false)) {
                        (k.prepare)(&rows, m, s.corrections);
                        *prepared = Some((matrix.format, false));
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

    /// As `gemm`, of x in two planes: they go through the matrix's own kernel side by side, a row of each, so that a step
    /// of one token reads the matrix once, and their products are added up.
    fn gemm_finely(
        &self,
        args: &Gemm,
        format: u32,
        k: &BlockKernels,
        x: &QuantRows,
        prepared: &mut Prepared,
        s: &Scratch,
    ) {
        let planes = 2 * args.to;
        // SAFETY: x holds both planes of all rows, and the scratch was sized for as many.
        unsafe {
            if *prepared != Some((format, true)) {
                (k.prepare)(x, planes, s.corrections);
                *prepared = Some((format, true));
            }
        }
        for from in (0..planes).step_by(SWIGLU_ROWS) {
            let to = planes.min(from + SWIGLU_ROWS);
            let tile = Gemm {
                from,
                to,
                out: s.gate,
                ldo: SWIGLU_COLUMNS,
                bias: std::ptr::null(),
                epilogue: Epilogue::Store,
                ..*args
            };
            // SAFETY: an item has at most 16 panels, which the tile is wide enough for; rows are within the output.
            unsafe {
                (k.gemm)(&tile, x, s.corrections);
                for row in (from..to).step_by(2) {
                    add_planes(args, s.gate.add((row - from) * SWIGLU_COLUMNS), row / 2);
                }
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
        let m = self.rows_of_any(x);
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

/// Adds two rows of products up, and does with the sums of row `row` what `args` say.
///
/// # Safety
/// `products` holds two rows of SWIGLU_COLUMNS; `args` has the row.
unsafe fn add_planes(args: &Gemm, products: *const f32, row: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let out = std::slice::from_raw_parts_mut(args.out.add(row * args.ldo), args.rows);
        let coarse = std::slice::from_raw_parts(products, args.rows);
        let rest = std::slice::from_raw_parts(products.add(SWIGLU_COLUMNS), args.rows);
        for (i, y) in out.iter_mut().enumerate() {
            let bias = if args.bias.is_null() { 0.0 } else { *args.bias.add(i) };
            let sum = coarse[i] + rest[i] + bias;
            *y = if args.epilogue == Epilogue::Add { *y + sum } else { sum };
        }
    }
}
