//! The shapes of tiles: the techniques T7, T9 and `tile`.
use super::{Bench, Case, GATES, MODEL, agree};
use crate::operands::{Activations, Output, Weights, gemm_args, multiply, run_kernel};
use compy::kernels::dot::Dot;
use compy::simd::Isa;

/// Panels of floats that the kernel processes side by side.
const FLOAT_PANELS: usize = 4;

impl Bench<'_> {
    /// T7: one token with the kernel for one token, against the widest tile with one row in use.
    pub(super) fn gemv_for_one(&mut self) -> Result<(), String> {
        if !self.wants("T7") {
            return Ok(());
        }
        for name in ["Q8_0", "Q4_0", "Q6_K"] {
            let w = self.weights(name, GATES, MODEL)?;
            let (x, mut out) = self.operands(&w, 1);
            let (wide, mut other) = self.operands(&w, self.k.tile());
            let (what, off) = (format!("{name}, one token"), format!("tile of {}", self.k.tile()));
            let case = Case { id: "T7", what: &what, threads: 1, on: "tile of one", off: &off };
            self.compare(&case, |turn| multiply(&w, turn, &x, &mut out), |turn| multiply(&w, turn, &wide, &mut other));
        }
        Ok(())
    }

    /// T9: chunks of rows of x that fit in a second-level cache during all panels, against all rows for each panel.
    pub(super) fn column_tiles(&mut self) -> Result<(), String> {
        if !self.wants("T9") {
            return Ok(());
        }
        for (name, rows, columns, m) in
            [("Q4_0", MODEL, GATES, 512), ("Q4_0", GATES, MODEL, 512), ("F16", GATES, MODEL, 512)]
        {
            let w = Weights::new(self.k, name, rows, columns, 0)?;
            let (x, mut out) = self.operands(&w, m);
            let mut other = Output::new(m, w.rows);
            let what = format!("{name}, {m} tokens, {rows} x {columns}");
            let case = Case {
                id: "T9",
                what: &what,
                threads: 1,
                on: "chunks of x in L2",
                off: "all of x for each run of panels",
            };
            let step = if name == "F16" { FLOAT_PANELS } else { self.k.panels() };
            self.compare(
                &case,
                |turn| multiply(&w, turn, &x, &mut out),
                |turn| {
                    for p in (0..w.panels()).step_by(step) {
                        let panels = p..w.panels().min(p + step);
                        let base = other.values.as_mut_ptr();
                        run_kernel(&w, &x, &gemm_args(&w, turn, panels, 0..m, base, other.ldo));
                    }
                },
            );
            agree(&out, &other)?;
        }
        Ok(())
    }

    /// Tiles: rows side by side in GEMV against one row after the other; a panel used for all tokens against a pass
    /// for each token.
    pub(super) fn tiled(&mut self) -> Result<(), String> {
        if !self.wants("tile") {
            return Ok(());
        }
        let k = self.k;
        for (place, total) in [("in memory", self.total), ("in cache", 0)] {
            let w = Weights::new(k, "F32", if total == 0 { 64 } else { GATES }, MODEL, total)?;
            let (x, mut out) = self.operands(&w, 1);
            let mut other = Output::new(1, w.rows);
            let raw = Rows::new(&w);
            let what = format!("F32, one token, {place}");
            let case = Case { id: "tile", what: &what, threads: 1, on: "panels of rows", off: "row by row" };
            self.compare(&case, |turn| multiply(&w, turn, &x, &mut out), |turn| raw.multiply(k, turn, &x, &mut other));
            agree(&out, &other)?;
        }
        for (m, rows) in [(16, GATES), (16, 256)] {
            let w = Weights::new(k, "Q4_0", rows, MODEL, if rows == GATES { self.total } else { 0 })?;
            let (x, mut out) = self.operands(&w, m);
            let mut single = Activations::tiled(k, m, MODEL, 1);
            single.prepare(&w);
            let mut other = Output::new(m, w.rows);
            let what = format!("Q4_0, {m} tokens, {}", if rows == GATES { "in memory" } else { "in cache" });
            let case = Case {
                id: "tile",
                what: &what,
                threads: 1,
                on: "register tile of tokens",
                off: "a pass for each token",
            };
            self.compare(
                &case,
                |turn| multiply(&w, turn, &x, &mut out),
                |turn| one_token_at_a_time(&w, turn, &single, &mut other),
            );
            agree(&out, &other)?;
        }
        Ok(())
    }
}

/// One pass over W per token; x is in tiles of one row.
pub fn one_token_at_a_time(w: &Weights, copy: usize, x: &Activations, out: &mut Output) {
    for t in 0..x.m {
        // SAFETY: row t is within the output.
        let to = unsafe { out.values.as_mut_ptr().add(t * out.ldo) };
        run_kernel(w, x, &gemm_args(w, copy, 0..w.panels(), t..t + 1, to, out.ldo));
    }
}

/// Float rows as in a file, in as many copies as the panels.
pub struct Rows(Vec<f32>, usize);

impl Rows {
    pub fn new(w: &Weights) -> Self {
        let (words, _) = w.raw.as_chunks::<4>();
        let one: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        Self(one.repeat(w.copies), w.rows * w.columns)
    }

    /// Computes one dot product after the other.
    pub fn multiply(&self, k: Isa, turn: usize, x: &Activations, out: &mut Output) {
        let start = turn % (self.0.len() / self.1) * self.1;
        for (row, y) in self.0[start..start + self.1].chunks_exact(x.columns).zip(&mut out.values) {
            // SAFETY: both have x.columns floats; the instruction set was detected.
            *y = unsafe { k.run(Dot { a: row.as_ptr(), b: x.floats.as_ptr(), n: x.columns }) };
        }
    }
}
