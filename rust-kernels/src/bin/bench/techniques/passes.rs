//! Passes over memory that are saved or started early: the techniques T5, T6 and T8.
use super::{Bench, Case, GATES, KEYS, MODEL, QUERIES, agree};
use crate::operands::{Activations, Output, Weights, gemm_args, multiply, multiply_all, run_kernel};
use crate::variants::GemmFn;
use compy::kernels::gemm::{Epilogue, Gemm};
use compy::pool::Pool;
use std::cell::RefCell;

impl Bench<'_> {
    /// T5: adding the residual where the product is stored, against a separate pass.
    pub(super) fn residual_in_place(&mut self) -> Result<(), String> {
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
                    run_kernel(&w, &x, &Gemm { epilogue: Epilogue::Add(1.0), ..args });
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

    /// T6: prefetching codes ahead of their use.
    pub(super) fn prefetch(&mut self) -> Result<(), String> {
        if !self.wants("T6") {
            return Ok(());
        }
        for (i, name) in ["Q8_0", "Q4_0", "Q4_K"].into_iter().enumerate() {
            for m in [1, 4, 16] {
                let w = self.weights(name, GATES, MODEL)?;
                let (x, mut out) = self.operands(&w, m);
                let mut other = Output::new(m, w.rows);
                let gemm = self.off.unprefetched[i];
                let what = format!("{name}, {m} tokens, in memory");
                let on = if m <= 2 { "2 KB ahead, to L2" } else { "4 KB ahead" };
                let case = Case { id: "T6", what: &what, threads: 1, on, off: "the hardware's alone" };
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

    /// T8: matrices that read the same x in one job, with x prepared once, against a job each.
    pub(super) fn parts_in_one_call(&mut self) -> Result<(), String> {
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
}

/// Runs a kernel of `variants` on all of W.
fn run_variant(gemm: GemmFn, w: &Weights, copy: usize, x: &Activations, out: &mut Output) {
    let args = gemm_args(w, copy, 0..w.panels(), 0..x.m, out.values.as_mut_ptr(), out.ldo);
    // SAFETY: W and x belong to the variant.
    unsafe { gemm(w.isa(), &args, &x.quant, x.corrections()) }
}
