//! Op: RMSNorm with float and quantized outputs. If its outputs have one row per row of logits, it only reads rows with
//! logits.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::{Outputs, inverse_rms, scale_by};
use crate::program::{Operands, Out, Program, Rows};
use crate::simd::{Kernel, Simd};

pub struct RmsNorm {
    x: usize,
    weight: Option<usize>,
    eps: f32,
    /// Factor by which the normalized rows are multiplied.
    scale: f32,
    out: Out,
    columns: usize,
    /// Whether the op only reads rows with logits.
    gather: bool,
}

impl Decode for RmsNorm {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, weight, eps, scale, out) = (o.float(None)?, o.optional()?, o.f32()?, o.f32()?, o.fine_out()?);
        let columns = o.buffer(x)?.columns;
        if let Some(weight) = weight {
            o.vector(weight, columns)?;
        }
        o.width(out, columns)?;
        o.same_rows(&[out.float, out.quant, out.fine])?;
        let rows = |i: usize| o.program.buffers[i].rows;
        let gather = rows(x) == Rows::Step && out.forms().any(|i| rows(i) == Rows::Logits);
        if !gather {
            o.same_rows(&[Some(x), out.float, out.quant, out.fine])?;
        }
        Ok(Self { x, weight, eps, scale, out, columns, gather })
    }
}

impl Op for RmsNorm {
    fn scratch(&self, _: &Program) -> usize {
        self.columns
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of_any(self.out) == 0
    }

    fn repeats(&self) -> Option<(usize, Out)> {
        Some((self.x, self.out))
    }

    fn run(&self, run: &Run, work: &Work) {
        let &Self { columns, eps, scale, .. } = self;
        let (out, weight) = (run.outputs(self.out), run.vector_or_null(self.weight, columns));
        for row in work.items(run.rows_of_any(self.out)).flatten() {
            let x = run.float(self.x, if self.gather { run.step.logits[row].row } else { row });
            // SAFETY: rows and widths were checked at decode.
            unsafe { run.isa.run(NormRow { x, weight, columns, eps, scale, out: &out, row, scratch: work.scratch }) }
        }
    }
}

/// Computes y = scale * x / sqrt(mean(x^2) + eps) * weight for one row. A null `weight` counts as ones.
///
/// # Safety
/// `x`, `weight` and `scratch` hold `columns` floats; the outputs have the row.
pub struct NormRow<'a> {
    pub x: *const f32,
    pub weight: *const f32,
    pub columns: usize,
    pub eps: f32,
    pub scale: f32,
    pub out: &'a Outputs,
    pub row: usize,
    /// Receives the row if there is no float output.
    pub scratch: *mut f32,
}

impl Kernel for NormRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, weight, columns, eps, scale, out, row, scratch } = self;
        unsafe {
            let y = out.float_row(row, scratch);
            let factor = scale * inverse_rms(s, x, columns, eps);
            scale_by(s, x, weight, columns, factor, y);
            out.quantize(s, y, row);
        }
    }
}
