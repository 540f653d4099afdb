//! Each technique on and off: the kernel beside what it would be without, in turn in the same run.
use crate::Settings;
use crate::figures::{field, last_level_cache, median, quantile, seconds};
use crate::operands::{Activations, Output, Weights, gemm_args, multiply, multiply_all, run_kernel};
use crate::variants::{GemmFn, Variants, variants};
use compy::kernels::Kernels;
use compy::ops::float_gemm::FloatRows;
use compy::ops::gemm::{Epilogue, Gemm};
use compy::pool::Pool;
use std::cell::RefCell;

/// Qwen3-0.6B: the width of the model, of its queries, of its keys and of its gates.
const MODEL: usize = 1024;
const QUERIES: usize = 2048;
const KEYS: usize = 1024;
const GATES: usize = 3072;

/// Shorter work is repeated until a sample takes this long.
const SAMPLE_SECONDS: f64 = 1e-3;
/// Columns of four panels of floats that fill half of a 32 KB first-level cache.
const BUFFER_COLUMNS: usize = 64;
const BUFFER_PANELS: usize = 4;

struct Bench<'a> {
    k: &'static Kernels,
    off: &'static Variants,
    threads: usize,
    rounds: usize,
    /// Bytes of weights that no cache holds.
    total: usize,
    wanted: Vec<&'a str>,
    rows: Vec<String>,
}

pub fn measure(k: &'static Kernels, settings: &Settings) -> Result<(), String> {
    let threads = settings.count("threads")?;
    let mut bench = Bench {
        k,
        off: variants(k.isa),
        threads,
        rounds: settings.count("rounds")?,
        total: 2 * last_level_cache(),
        wanted: settings.list("only").unwrap_or_default(),
        rows: Vec::new(),
    };
    bench.no_float_copy()?;
    bench.explicit_vectors()?;
    bench.residual_in_place()?;
    bench.prefetch()?;
    bench.gemv_for_one()?;
    bench.parts_in_one_call()?;
    bench.column_tiles()?;
    bench.half_floats()?;
    bench.tiled()?;
    println!(
        "{{\"kind\": \"techniques\", \"isa\": \"{}\", \"threads\": {threads}, \"rounds\": {}, \"rows\": [\n{}\n]}}",
        k.isa,
        bench.rounds,
        bench.rows.join(",\n")
    );
    Ok(())
}

/// What stands in a report beside the times.
struct Case<'a> {
    id: &'a str,
    what: &'a str,
    threads: usize,
    on: &'a str,
    off: &'a str,
}

impl Bench<'_> {
    fn wants(&self, id: &str) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&id)
    }

    fn weights(&self, name: &str, rows: usize, columns: usize) -> Result<Weights, String> {
        Weights::new(self.k, name, rows, columns, self.total)
    }

    fn operands(&self, w: &Weights, m: usize) -> (Activations, Output) {
        let mut x = Activations::new(self.k, m, w.columns);
        x.prepare(w);
        (x, Output::new(m, w.rows))
    }

    /// Times `on` and `off` in turn. Each is told which copy of the weights to use.
    fn compare(&mut self, case: &Case, mut on: impl FnMut(usize), mut off: impl FnMut(usize)) {
        eprintln!("{}: {}", case.id, case.what);
        let (mut times, mut turn) = ([vec![], vec![]], 0);
        let threads = case.threads;
        let mut sample = |run: &mut dyn FnMut(usize), calls: usize| {
            seconds(threads, || {
                for _ in 0..calls {
                    run(turn);
                    turn += 1;
                }
            }) / calls as f64
        };
        let mut calls = [1; 2];
        let variants: [&mut dyn FnMut(usize); 2] = [&mut on, &mut off];
        for round in 0..=self.rounds {
            for i in 0..2 {
                // Who comes first changes from round to round.
                let i = (i + round) % 2;
                let took = sample(variants[i], calls[i]);
                if round == 0 {
                    calls[i] = (SAMPLE_SECONDS / took).ceil().clamp(1.0, 1e4) as usize;
                } else {
                    times[i].push(took);
                }
            }
        }
        let gains: Vec<f64> = times[1].iter().zip(&times[0]).map(|(off, on)| off / on).collect();
        self.rows.push(format!(
            "{{\"id\": \"{}\", \"what\": \"{}\", \"threads\": {threads}, \"on\": \"{}\", \"off\": \"{}\", {}, {}, {}, {}, {}}}",
            case.id,
            case.what,
            case.on,
            case.off,
            field("on_us", 1e6 * median(&times[0])),
            field("off_us", 1e6 * median(&times[1])),
            field("gain", median(&gains)),
            field("gain_low", quantile(&gains, 0.25)),
            field("gain_high", quantile(&gains, 0.75)),
        ));
    }

    /// T1: products of quantised blocks, against rows made floats first, and against a copy of the weights in floats.
    fn no_float_copy(&mut self) -> Result<(), String> {
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
                        // SAFETY: the table and its variants were detected; both vectors have MODEL floats.
                        *y = unsafe {
                            widen(bytes, &mut row);
                            (k.dot)(row.as_ptr(), x.floats.as_ptr(), MODEL)
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

    /// T3: vectors written out, against plain loops over rows, compiled for the same CPU.
    fn explicit_vectors(&mut self) -> Result<(), String> {
        if !self.wants("T3") {
            return Ok(());
        }
        for (i, name) in ["Q8_0", "Q4_0"].into_iter().enumerate() {
            for m in [1, 16] {
                let w = Weights::new(self.k, name, 256, MODEL, 0)?;
                let (x, mut out) = self.operands(&w, m);
                let single = Activations::tiled(self.k, m, MODEL, 1);
                let (mut other, plain) = (Output::new(m, w.rows), self.off.plain[i]);
                let what = format!("{name}, {m} tokens, in cache");
                let case =
                    Case { id: "T3", what: &what, threads: 1, on: "vectors by hand", off: "left to the compiler" };
                self.compare(
                    &case,
                    |turn| multiply(&w, turn, &x, &mut out),
                    |_| {
                        for (r, row) in w.raw.chunks_exact(w.stride).enumerate() {
                            for t in 0..m {
                                // SAFETY: the variants belong to the detected table; row and token are there.
                                other.values[t * other.ldo + r] = unsafe { plain(row, &single.quant, t) };
                            }
                        }
                    },
                );
                agree(&out, &other)?;
            }
        }
        Ok(())
    }

    /// T5: the residual added where the product is stored, against a pass of its own.
    fn residual_in_place(&mut self) -> Result<(), String> {
        if !self.wants("T5") {
            return Ok(());
        }
        for m in [1, 512] {
            let w = self.weights("Q8_0", MODEL, GATES)?;
            let (x, mut out) = self.operands(&w, m);
            let (mut product, mut sums) = (Output::new(m, w.rows), Output::new(m, w.rows));
            let what = format!("Q8_0, {m} tokens, {MODEL} x {GATES}");
            let case = Case {
                id: "T5",
                what: &what,
                threads: 1,
                on: "added as it is stored",
                off: "added in a pass of its own",
            };
            self.compare(
                &case,
                |turn| {
                    let base = out.values.as_mut_ptr();
                    let args = gemm_args(&w, turn, 0..w.panels(), 0..m, base, out.ldo);
                    run_kernel(&w, &x, &Gemm { epilogue: Epilogue::Add, ..args });
                },
                |turn| {
                    multiply(&w, turn, &x, &mut product);
                    for (sum, y) in sums.values.iter_mut().zip(&product.values) {
                        *sum += y;
                    }
                },
            );
        }
        Ok(())
    }

    /// T6: codes asked for ahead of their use.
    fn prefetch(&mut self) -> Result<(), String> {
        // NEON's trait has no prefetch to leave out.
        if !self.wants("T6") || cfg!(not(target_arch = "x86_64")) {
            return Ok(());
        }
        for (i, name) in ["Q8_0", "Q4_0", "Q4_K"].into_iter().enumerate() {
            for m in [1, 4, 16] {
                let w = self.weights(name, GATES, MODEL)?;
                let (x, mut out) = self.operands(&w, m);
                let mut other = Output::new(m, w.rows);
                let gemm = self.off.unprefetched[i];
                let what = format!("{name}, {m} tokens, in memory");
                let case = Case { id: "T6", what: &what, threads: 1, on: "4 KB ahead", off: "the hardware's alone" };
                self.compare(
                    &case,
                    |turn| multiply(&w, turn, &x, &mut out),
                    |turn| run_variant(gemm, &w, turn, &x, &mut other),
                );
                agree(&out, &other)?;
            }
        }
        Ok(())
    }

    /// T7: one token by the kernel for one, against the widest tile of which one row counts.
    fn gemv_for_one(&mut self) -> Result<(), String> {
        if !self.wants("T7") {
            return Ok(());
        }
        for name in ["Q8_0", "Q4_0", "Q6_K"] {
            let w = self.weights(name, GATES, MODEL)?;
            let (x, mut out) = self.operands(&w, 1);
            let (wide, mut other) = self.operands(&w, self.k.tile);
            let (what, off) = (format!("{name}, one token"), format!("tile of {}", self.k.tile));
            let case = Case { id: "T7", what: &what, threads: 1, on: "tile of one", off: &off };
            self.compare(&case, |turn| multiply(&w, turn, &x, &mut out), |turn| multiply(&w, turn, &wide, &mut other));
        }
        Ok(())
    }

    /// T8: matrices that read the same x in one job with x prepared once, against a job for each.
    fn parts_in_one_call(&mut self) -> Result<(), String> {
        if !self.wants("T8") {
            return Ok(());
        }
        for (parts, heights) in [("Q, K, V", vec![QUERIES, KEYS, KEYS]), ("gate, up", vec![GATES, GATES])] {
            let total = self.total / heights.len();
            let matrices = heights
                .iter()
                .map(|&rows| Weights::new(self.k, "Q4_0", rows, MODEL, total))
                .collect::<Result<Vec<_>, _>>()?;
            for m in [1, 16] {
                self.one_job_or_many(&format!("{parts} of Q4_0, {m} tokens"), &matrices, m, 1)?;
                if self.threads > 1 {
                    let what = format!("{parts} of Q4_0, {m} tokens, {} threads", self.threads);
                    self.one_job_or_many(&what, &matrices, m, self.threads)?;
                }
            }
        }
        Ok(())
    }

    fn one_job_or_many(&mut self, what: &str, matrices: &[Weights], m: usize, threads: usize) -> Result<(), String> {
        let k = self.k;
        let (mut x, _) = self.operands(&matrices[0], m);
        let (mut apart, _) = self.operands(&matrices[0], m);
        let mut outs: Vec<_> = matrices.iter().map(|w| Output::new(m, w.rows)).collect();
        let mut others: Vec<_> = matrices.iter().map(|w| Output::new(m, w.rows)).collect();
        let mut pool = Pool::new(threads).map_err(|e| format!("Cannot start {threads} threads: {e}"))?;
        let pool = RefCell::new(&mut pool);
        let case = Case { id: "T8", what, threads, on: "one job", off: "a job for each" };
        self.compare(
            &case,
            |turn| {
                x.quantize(k);
                x.prepare(&matrices[0]);
                let mut parts: Vec<_> = matrices.iter().zip(&mut outs).collect();
                multiply_all(&mut pool.borrow_mut(), &mut parts, turn, &x);
            },
            |turn| {
                for (w, out) in matrices.iter().zip(&mut others) {
                    apart.quantize(k);
                    apart.prepare(w);
                    multiply_all(&mut pool.borrow_mut(), &mut [(w, out)], turn, &apart);
                }
            },
        );
        outs.iter().zip(&others).try_for_each(|(on, off)| agree(on, off))
    }

    /// T9: rows of x in chunks that a second-level cache holds while all panels pass, against all rows for each panel.
    fn column_tiles(&mut self) -> Result<(), String> {
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
            let step = if name == "F16" { BUFFER_PANELS } else { 1 };
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

    /// F16 weights widened in registers, against a buffer of floats in L1, and against weights of F32.
    fn half_floats(&mut self) -> Result<(), String> {
        if !self.wants("F16") {
            return Ok(());
        }
        for m in [1, 16] {
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
            let mut buffer = vec![0.0f32; BUFFER_COLUMNS * BUFFER_PANELS * k.lanes];
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

    /// Tiles: rows side by side in GEMV, against row after row; a panel used for all tokens, against a pass for each.
    fn tiled(&mut self) -> Result<(), String> {
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

/// A kernel of `variants` on all of W.
fn run_variant(gemm: GemmFn, w: &Weights, copy: usize, x: &Activations, out: &mut Output) {
    let args = gemm_args(w, copy, 0..w.panels(), 0..x.m, out.values.as_mut_ptr(), out.ldo);
    // SAFETY: the variants belong to a table that was detected, W and x to the variant.
    unsafe { gemm(&args, &x.quant, x.corrections()) }
}

/// As many passes over W as there are tokens; x is in tiles of one.
pub fn one_token_at_a_time(w: &Weights, copy: usize, x: &Activations, out: &mut Output) {
    for t in 0..x.m {
        // SAFETY: row t is within the output.
        let to = unsafe { out.values.as_mut_ptr().add(t * out.ldo) };
        run_kernel(w, x, &gemm_args(w, copy, 0..w.panels(), t..t + 1, to, out.ldo));
    }
}

/// Rows of floats as a file has them, in as many copies as the panels.
pub struct Rows(Vec<f32>, usize);

impl Rows {
    pub fn new(w: &Weights) -> Self {
        let (words, _) = w.raw.as_chunks::<4>();
        let one: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        Self(one.repeat(w.copies), w.rows * w.columns)
    }

    /// A dot product after the other.
    pub fn multiply(&self, k: &Kernels, turn: usize, x: &Activations, out: &mut Output) {
        let start = turn % (self.0.len() / self.1) * self.1;
        for (row, y) in self.0[start..start + self.1].chunks_exact(x.columns).zip(&mut out.values) {
            // SAFETY: both have x.columns floats; the table was detected.
            *y = unsafe { (k.dot)(row.as_ptr(), x.floats.as_ptr(), x.columns) };
        }
    }
}

/// F16 panels through a buffer: a run of columns of four panels is widened, then used for all tokens.
fn buffered(
    k: &Kernels,
    widen: unsafe fn(*const u16, &mut [f32]),
    w: &Weights,
    copy: usize,
    x: &Activations,
    out: &mut Output,
    buffer: &mut [f32],
) {
    let floats = BUFFER_COLUMNS * k.lanes;
    let f32_kernels = (k.format)(0).expect("F32 has kernels");
    let compy::kernels::FormatKernels::Float(kernels) = f32_kernels else { unreachable!("F32 is a float format") };
    for p in (0..w.panels()).step_by(BUFFER_PANELS) {
        let count = (w.panels() - p).min(BUFFER_PANELS);
        for start in (0..w.columns).step_by(BUFFER_COLUMNS) {
            for (i, part) in buffer.chunks_exact_mut(floats).take(count).enumerate() {
                // SAFETY: the columns are within panel p + i.
                unsafe {
                    let panel = w.copy(copy).add((p + i) * w.panel_bytes).cast::<u16>();
                    widen(panel.add(start * k.lanes), part);
                }
            }
            // SAFETY: row 0's part of the output is within it.
            let to = unsafe { out.values.as_mut_ptr().add(p * k.lanes) };
            let args = Gemm {
                panels: buffer.as_ptr().cast(),
                panel_bytes: 4 * floats,
                rows: count * k.lanes,
                columns: BUFFER_COLUMNS,
                from: 0,
                to: x.m,
                out: to,
                ldo: out.ldo,
                bias: std::ptr::null(),
                epilogue: if start == 0 { Epilogue::Store } else { Epilogue::Add },
            };
            // SAFETY: the buffer holds `count` panels of BUFFER_COLUMNS, x has these columns from `start`.
            unsafe {
                let rows = FloatRows { base: x.floats.as_ptr().add(start).cast_mut(), stride: x.columns };
                (kernels.gemm)(&args, &rows);
            }
        }
    }
}

/// Both computed the same product: 8-bit activations may differ from floats by a few hundredths of the largest.
fn agree(on: &Output, off: &Output) -> Result<(), String> {
    let largest = on.values.iter().fold(0f32, |a, y| a.max(y.abs()));
    let apart = on.values.iter().zip(&off.values).fold(0f32, |a, (x, y)| a.max((x - y).abs()));
    if largest > 0.0 && apart <= 0.05 * largest {
        return Ok(());
    }
    Err(format!("The variants disagree: by {apart} where the largest value is {largest}"))
}
