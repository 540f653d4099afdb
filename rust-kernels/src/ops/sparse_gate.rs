//! Op: multiplies values by gates, and treats all gates as zero that are not far above their row's mean. If gates are
//! normally distributed, only the largest few remain. Source: Hugging Face transformers, models/gemma3n.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::formats::BLOCK;
use crate::kernels::activations::{Function, Gelu};
use crate::kernels::norm::Outputs;
use crate::program::{Operands, Out, Program};
use crate::simd::{Kernel, Simd};

/// Number of columns per item of work.
const COLUMNS: usize = 2048;

pub struct SparseGate {
    gate: usize,
    x: usize,
    /// Cutoff of the gates, in standard deviations above their mean.
    deviations: f32,
    out: Out,
    columns: usize,
}

impl Decode for SparseGate {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (gate, deviations) = (o.step_float(None)?, o.f32()?);
        let columns = o.buffer(gate)?.columns;
        let (x, out) = (o.step_float(Some(columns))?, o.fine_out()?);
        if columns == 0 || !columns.is_multiple_of(BLOCK) {
            bail!("gates must have a multiple of {BLOCK} columns (got {columns})");
        }
        o.width(out, columns)?;
        o.same_rows(&[Some(gate), out.float, out.quant, out.fine])?;
        if out.float == Some(gate) {
            bail!("buffer {gate} is both read and written");
        }
        Ok(Self { gate, x, deviations, out, columns })
    }
}

impl Op for SparseGate {
    fn scratch(&self, _: &Program) -> usize {
        COLUMNS
    }

    fn run(&self, run: &Run, work: &Work) {
        let &Self { columns, deviations, .. } = self;
        let (out, cuts) = (run.outputs(self.out), columns.div_ceil(COLUMNS));
        // The last cutoff and its row: a thread with several items of a row computes the cutoff only once.
        let mut known = None;
        for item in work.items(run.tokens() * cuts).flatten() {
            let (row, start) = (item / cuts, item % cuts * COLUMNS);
            let (gate, x) = (run.float(self.gate, row), run.float(self.x, row).wrapping_add(start));
            // SAFETY: rows and widths were checked at decode.
            unsafe {
                let cutoff = match known {
                    Some((of, cutoff)) if of == row => cutoff,
                    _ => run.isa.run(Cutoff { x: gate, columns, deviations }),
                };
                known = Some((row, cutoff));
                let (gate, n) = (gate.add(start), COLUMNS.min(columns - start));
                run.isa.run(SparseGateRow { gate, cutoff, x, n, out: &out, row, start, scratch: work.scratch });
            }
        }
    }
}

/// Returns the cutoff of a row: mean(x) + deviations * sqrt(mean((x - mean(x))^2)).
///
/// # Safety
/// `x` holds `columns` floats, a multiple of 32.
pub struct Cutoff {
    pub x: *const f32,
    pub columns: usize,
    pub deviations: f32,
}

impl Kernel for Cutoff {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> f32 {
        let (n, vectors) = (self.columns as f32, (0..self.columns).step_by(S::LANES));
        let (mut sum, mut squares) = (s.splat(0.0), s.splat(0.0));
        unsafe {
            for i in vectors.clone() {
                sum = s.add(sum, s.load(self.x.add(i)));
            }
            let mean = s.sum(sum) / n;
            for i in vectors {
                let v = s.sub(s.load(self.x.add(i)), s.splat(mean));
                squares = s.fma(v, v, squares);
            }
            self.deviations.mul_add((s.sum(squares) / n).sqrt(), mean)
        }
    }
}

/// Computes y = gelu(max(gate - cutoff, 0)) * x for columns `start..start + n` of a row, with GELU's tanh
/// approximation.
///
/// # Safety
/// `gate`, `x` and `scratch` hold `n` floats; `start` and `n` are multiples of 32; the outputs have the row.
pub struct SparseGateRow<'a> {
    pub gate: *const f32,
    pub cutoff: f32,
    pub x: *const f32,
    pub n: usize,
    pub out: &'a Outputs,
    pub row: usize,
    pub start: usize,
    pub scratch: *mut f32,
}

impl Kernel for SparseGateRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { gate, cutoff, x, n, out, row, start, scratch } = self;
        unsafe {
            for i in (0..n).step_by(S::LANES) {
                // If an operand is NaN, `max` returns the second, so NaN stays NaN.
                let above = s.max(s.splat(0.0), s.sub(s.load(gate.add(i)), s.splat(cutoff)));
                s.store(scratch.add(i), s.mul(Gelu::of(s, above), s.load(x.add(i))));
            }
            out.put(s, scratch, n, row, start);
        }
    }
}
