//! Ops that multiply by weights: their items are runs of panels.
use super::Run;
use super::scratch::{SWIGLU_COLUMNS, SWIGLU_ROWS, Scratch};
use super::tiles::{Tiles, runs, swiglu_step};
use crate::formats::FormatKernels;
use crate::ops::float_gemm::FloatRows;
use crate::ops::gemm::{Epilogue, Gemm};
use crate::ops::quantize::FineRows;
use crate::ops::swiglu::SwigluRow;
use crate::pool::Items;
use crate::program::{Out, Part};
use crate::weights::Matrix;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

/// Columns of the tile that both planes' products of few rows are kept in.
const FINE_COLUMNS: usize = 256;
/// Bytes of weights that stay in a core's L2 from one plane's pass to the other's.
const L2_BYTES: usize = 256 * 1024;

/// For which format the scratch holds corrections of x, and whether of both planes.
type Prepared = Option<(u32, bool)>;

impl Run<'_> {
    pub(super) fn matmul(&self, x: Out, parts: &[Part], next: &AtomicUsize, threads: usize, s: &Scratch) {
        let m = self.rows_of_any(x);
        let panels_of = |part: &Part| self.matrix(part.weight).rows.div_ceil(self.isa.lanes());
        let share = parts.iter().map(panels_of).sum::<usize>() / threads;
        let tiles_of =
            |part: &Part| Tiles::new(self.isa, &self.matrix(part.weight).format.kernels, panels_of(part), m, share);
        let mut prepared = None;
        // A run of items may cross from one part into the next.
        for range in runs(next, parts.iter().map(tiles_of), threads) {
            let mut first = 0;
            for part in parts {
                let tiles = tiles_of(part);
                let (start, end) = (range.start.max(first), range.end.min(first + tiles.count()));
                if start < end {
                    let matrix = self.matrix(part.weight);
                    let panels = tiles.panels_of(start - first..end - first);
                    let row = panels.start * self.isa.lanes();
                    let rows = (panels.end * self.isa.lanes()).min(matrix.rows) - row;
                    // SAFETY: the panels are the matrix's; output, bias and operand were checked at decode.
                    let args = unsafe {
                        let bias = part.bias.map(|b| self.vector(b, matrix.rows).add(row));
                        Gemm {
                            panels: matrix.panels.add(panels.start * matrix.panel_bytes),
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
                    let fine = part.fine.saturating_sub(row).min(rows);
                    if fine > 0 {
                        let x = self.fine(x.fine.expect("checked at decode"));
                        self.gemm_finely(&self.some_rows(&args, 0..fine), matrix, &x, &mut prepared, s);
                    }
                    if fine < rows {
                        self.gemm(&self.some_rows(&args, fine..rows), matrix, x, m, &mut prepared, s);
                    }
                }
                first += tiles.count();
            }
        }
    }

    /// The part of a product that belongs to some rows of W, which begin with a panel.
    fn some_rows(&self, args: &Gemm, rows: Range<usize>) -> Gemm {
        // SAFETY: the rows are args' own.
        unsafe {
            Gemm {
                panels: args.panels.add(rows.start / self.isa.lanes() * args.panel_bytes),
                rows: rows.len(),
                out: args.out.add(rows.start),
                bias: if args.bias.is_null() { args.bias } else { args.bias.add(rows.start) },
                ..*args
            }
        }
    }

    /// Runs a matrix's own kernel.
    fn gemm(&self, args: &Gemm, matrix: &Matrix, x: Out, m: usize, prepared: &mut Prepared, s: &Scratch) {
        match &matrix.format.kernels {
            FormatKernels::Block(k) => {
                let rows = self.quant(x.quant.expect("checked at decode"));
                // SAFETY: x holds m rows, scratch was sized for the largest operand.
                unsafe {
                    if *prepared != Some((matrix.format.id, false)) {
                        (k.prepare)(self.isa, &rows, m, s.corrections);
                        *prepared = Some((matrix.format.id, false));
                    }
                    (k.gemm)(self.isa, args, &rows, s.corrections);
                }
            }
            FormatKernels::Float(k) => {
                let index = x.float.expect("checked at decode");
                let rows = FloatRows { base: self.float(index, 0), stride: self.p.buffers[index].stride() };
                // SAFETY: as above.
                unsafe { (k.gemm)(self.isa, args, &rows) }
            }
        }
    }

    /// As `gemm`, of x in two planes.
    fn gemm_finely(&self, args: &Gemm, matrix: &Matrix, x: &FineRows, prepared: &mut Prepared, s: &Scratch) {
        let FormatKernels::Block(k) = &matrix.format.kernels else { unreachable!("checked at decode") };
        let (m, end) = (args.to, x.rest + args.to);
        // SAFETY: x holds both planes of all rows, and the scratch was sized for as many.
        unsafe {
            if *prepared != Some((matrix.format.id, true)) {
                (k.prepare)(self.isa, &x.rows, end, s.corrections);
                *prepared = Some((matrix.format.id, true));
            }
        }
        let few = end <= self.isa.tile(); // one tile then holds both planes
        let panels = if few { FINE_COLUMNS / self.isa.lanes() } else { (L2_BYTES / args.panel_bytes).max(1) };
        let step = panels * self.isa.lanes();
        for row in (0..args.rows).step_by(step) {
            let first = self.some_rows(args, row..args.rows.min(row + step));
            let rest = Gemm { from: x.rest, to: end, bias: std::ptr::null(), epilogue: Epilogue::Add, ..first };
            let both = Gemm { from: 0, out: s.gate, ldo: FINE_COLUMNS, epilogue: Epilogue::Store, ..rest };
            // SAFETY: as above; the tile holds all rows of both planes and FINE_COLUMNS of each.
            unsafe {
                if few {
                    (k.gemm)(self.isa, &both, &x.rows, s.corrections);
                    add_planes(&first, s.gate, m);
                } else {
                    (k.gemm)(self.isa, &first, &x.rows, s.corrections);
                    (k.gemm)(self.isa, &rest, &x.rows, s.corrections);
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
        let step = swiglu_step(self.isa, [&gate.format.kernels, &up.format.kernels], gate.rows, m, threads);
        let outputs = self.outputs(out);
        let mut prepared = [None, None];
        let same = gate.format.id == up.format.id;
        for Range { start, end } in Items::tapering(next, gate.rows, [step, SWIGLU_COLUMNS], threads) {
            let rows = end - start;
            for from in (0..m).step_by(SWIGLU_ROWS) {
                let to = m.min(from + SWIGLU_ROWS);
                for (i, (matrix, tile)) in [(gate, s.gate), (up, s.up)].into_iter().enumerate() {
                    // SAFETY: start is a multiple of BLOCK, so of LANES; the tiles hold SWIGLU_ROWS x SWIGLU_COLUMNS.
                    let args = Gemm {
                        panels: unsafe { matrix.panels.add(start / self.isa.lanes() * matrix.panel_bytes) },
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
                    unsafe {
                        self.isa.run(SwigluRow {
                            gate: s.gate.add(at),
                            up: s.up.add(at),
                            n: rows,
                            out: &outputs,
                            row,
                            start,
                        })
                    }
                }
            }
        }
    }
}

/// Does with the products of m rows of x, and of their rests behind them, what a pass over each plane would do, in the
/// same float order.
///
/// # Safety
/// `products` holds 2 m rows of FINE_COLUMNS; `args` has m rows, and bias and output for them.
unsafe fn add_planes(args: &Gemm, products: *const f32, m: usize) {
    for row in 0..m {
        // SAFETY: the caller's promise.
        unsafe {
            let [coarse, rest] = [row, m + row].map(|r| products.add(r * FINE_COLUMNS));
            let out = args.out.add(row * args.ldo);
            for i in 0..args.rows {
                let mut y = *coarse.add(i);
                if !args.bias.is_null() {
                    y += *args.bias.add(i);
                }
                if args.epilogue == Epilogue::Add {
                    y += *out.add(i);
                }
                *out.add(i) = *rest.add(i) + y;
            }
        }
    }
}
