//! Storage formats of weights and their conversion to numbers: the techniques T1, T3 and F16.
use super::{Bench, Case, GATES, MODEL, agree};
use crate::operands::{Activations, Output, Weights, format_named, multiply};
use compy::kernels::dot::Dot;
use compy::kernels::float_gemm::FloatRows;
use compy::kernels::gemm::{Epilogue, Gemm};
use compy::simd::Isa;

/// Columns of four panels of floats that fill half of a 32 KB first-level cache.
const BUFFER_COLUMNS: usize = 64;
const BUFFER_PANELS: usize = 4;

impl Bench<'_> {
    /// T1: products of quantized blocks, against conversion of rows to floats first, and against a float copy of the
    /// weights.
    pub(super) fn no_float_copy(&mut self) -> Result<(), String> {
        if !self.wants("T1") {
            return Ok(());
        }
        let floats = self.weights("F32", GATES, MODEL)?;
        for (i, name) in ["Q8_0", "Q4_0"].into_iter().enumerate() {
            let (w, widen) = (self.weights(name, GATES, MODEL)?, self.off.widen[i]);
            let (x, mut out) = self.operands(&w, 1);
            let (mut row, mut other, k) = (vec![0.0; MODEL], Output::new(1, GATES), self.k);
            let what = format!("{name}, one token");
            // As many rows as the packed copies have, so that they come from memory too.
            let raw: Vec<u8> = w.raw.repeat(w.copies);
            let case = Case {
                id: "T1",
                what: &what,
                threads: 1,
                on: "integer kernel",
                off: "each row to floats, then a dot product",
            };
            self.compare(
                &case,
                |turn| multiply(&w, turn, &x, &mut out),
                |turn| {
                    let raw = &raw[turn % w.copies * w.raw.len()..][..w.raw.len()];
                    for (bytes, y) in raw.chunks_exact(w.stride).zip(&mut other.values) {
                        // SAFETY: both vectors have MODEL floats.
                        *y = unsafe {
                            widen(k, bytes, &mut row);
                            k.run(Dot { a: row.as_ptr(), b: x.floats.as_ptr(), n: MODEL })
                        };
                    }
                },
            );
            agree(&out, &other)?;
            let case = Case { id: "T1", what: &what, threads: 1, on: "integer kernel", off: "weights kept as floats" };
            let mut other = Output::new(1, GATES);
            self.compare(
                &case,
                |turn| multiply(&w, turn, &x, &mut out),
                |turn| multiply(&floats, turn, &x, &mut other),
            );
        }
        Ok(())
    }

    /// T3: explicit vectors against plain loops over rows, compiled for the same CPU.
    pub(super) fn explicit_vectors(&mut self) -> Result<(), String> {
        if !self.wants("T3") {
            return Ok(());
        }
        for (i, name) in ["Q8_0", "Q4_0"].into_iter().enumerate() {
            for m in [1, 16] {
                let w = Weights::new(self.k, name, 256, MODEL, 0)?;
                let (x, mut out) = self.operands(&w, m);
                let single = Activations::tiled(self.k, m, MODEL, 1);
                let (mut other, plain, k) = (Output::new(m, w.rows), self.off.plain[i], self.k);
                let what = format!("{name}, {m} tokens, in cache");
                let case =
                    Case { id: "T3", what: &what, threads: 1, on: "vectors by hand", off: "left to the compiler" };
                self.compare(
                    &case,
                    |turn| multiply(&w, turn, &x, &mut out),
                    |_| {
                        for (r, row) in w.raw.chunks_exact(w.stride).enumerate() {
                            for t in 0..m {
                                // SAFETY: row and token are there.
                                other.values[t * other.ldo + r] = unsafe { plain(k, row, &single.quant, t) };
                            }
                        }
                    },
                );
                agree(&out, &other)?;
            }
        }
        Ok(())
    }

    /// F16 weights widened in registers, against a buffer of floats in L1, and against F32 weights.
    pub(super) fn half_floats(&mut self) -> Result<(), String> {
        if !self.wants("F16") {
            return Ok(());
        }
        // From 13 tokens on the kernel itself uses such a buffer.
        for m in [1, 8] {
            let (half, full) = (self.weights("F16", GATES, MODEL)?, self.weights("F32", GATES, MODEL)?);
            let (x, mut out) = self.operands(&half, m);
            let mut other = Output::new(m, GATES);
            let what = format!("{m} tokens, in memory");
            let case = Case {
                id: "F16",
                what: &what,
                threads: 1,
                on: "widened in registers",
                off: "through a buffer of floats in L1",
            };
            let (k, widen) = (self.k, self.off.widen_f16);
            let mut buffer = vec![0.0f32; BUFFER_COLUMNS * BUFFER_PANELS * k.lanes()];
            self.compare(
                &case,
                |turn| multiply(&half, turn, &x, &mut out),
                |turn| buffered(k, widen, &half, turn, &x, &mut other, &mut buffer),
            );
            agree(&out, &other)?;
            let case = Case { id: "F16", what: &what, threads: 1, on: "weights of F16", off: "weights of F32" };
            self.compare(
                &case,
                |turn| multiply(&half, turn, &x, &mut out),
                |turn| multiply(&full, turn, &x, &mut other),
            );
        }
        Ok(())
    }
}

/// F16 panels through a buffer: widens a run of columns of four panels, then uses it for all tokens.
fn buffered(
    k: Isa,
    widen: unsafe fn(Isa, *const u16, &mut [f32]),
    w: &Weights,
    copy: usize,
    x: &Activations,
    out: &mut Output,
    buffer: &mut [f32],
) {
    let floats = BUFFER_COLUMNS * k.lanes();
    let f32_kernels = &format_named("F32").expect("registered").kernels;
    let compy::formats::FormatKernels::Float(kernels) = f32_kernels else { unreachable!("F32 is a float format") };
    for p in (0..w.panels()).step_by(BUFFER_PANELS) {
        let count = (w.panels() - p).min(BUFFER_PANELS);
        for start in (0..w.columns).step_by(BUFFER_COLUMNS) {
            for (i, part) in buffer.chunks_exact_mut(floats).take(count).enumerate() {
                // SAFETY: the columns are within panel p + i.
                unsafe {
                    let panel = w.copy(copy).add((p + i) * w.panel_bytes).cast::<u16>();
                    widen(k, panel.add(start * k.lanes()), part);
                }
            }
            // SAFETY: row 0's part is within the output.
            let to = unsafe { out.values.as_mut_ptr().add(p * k.lanes()) };
            let args = Gemm {
                panels: buffer.as_ptr().cast(),
                panel_bytes: 4 * floats,
                rows: count * k.lanes(),
                columns: BUFFER_COLUMNS,
                from: 0,
                to: x.m,
                out: to,
                ldo: out.ldo,
                bias: std::ptr::null(),
                epilogue: if start == 0 { Epilogue::Store } else { Epilogue::Add(1.0) },
            };
            // SAFETY: the buffer holds `count` panels of BUFFER_COLUMNS; x has these columns from `start` on.
            unsafe {
                let rows = FloatRows { base: x.floats.as_ptr().add(start).cast_mut(), stride: x.columns };
                (kernels.gemm)(k, &args, &rows);
            }
        }
    }
}
