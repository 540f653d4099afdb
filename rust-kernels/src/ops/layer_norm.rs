//! LayerNorm, in the forms that its readers need.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::{Outputs, center_and_scale};
use crate::kernels::quant_rows::{quantize_row, quantize_row_finely};
use crate::program::{Operands, Out, Program};
use crate::simd::{Kernel, Simd};

pub struct LayerNorm {
    x: usize,
    weight: usize,
    bias: Option<usize>,
    eps: f32,
    out: Out,
    columns: usize,
}

impl Decode for LayerNorm {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, weight, bias) = (o.float(None)?, o.size()?, o.optional()?);
        let (eps, out) = (o.f32()?, o.fine_out()?);
        let columns = o.buffer(x)?.columns;
        for vector in [Some(weight), bias].into_iter().flatten() {
            o.vector(vector, columns)?;
        }
        o.width(out, columns)?;
        o.same_rows(&[Some(x), out.float, out.quant, out.fine])?;
        Ok(Self { x, weight, bias, eps, out, columns })
    }
}

impl Op for LayerNorm {
    fn scratch(&self, _: &Program) -> usize {
        self.columns
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of(self.x) == 0
    }

    fn run(&self, run: &Run, work: &Work) {
        let &Self { columns, eps, .. } = self;
        let (out, weight) = (run.outputs(self.out), run.vector(self.weight, columns));
        let bias = self.bias.map_or(std::ptr::null(), |bias| run.vector(bias, columns));
        for row in work.items(run.rows_of(self.x)).flatten() {
            let (x, scratch) = (run.float(self.x, row), work.scratch);
            // SAFETY: rows and widths were checked at decode.
            unsafe { run.isa.run(LayerNormRow { x, weight, bias, columns, eps, out: &out, row, scratch }) }
        }
    }
}

/// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias for one row.
///
/// # Safety
/// `x`, `weight` and `scratch` hold `columns` floats, and `bias` or is null; the outputs have the row.
pub struct LayerNormRow<'a> {
    pub x: *const f32,
    pub weight: *const f32,
    pub bias: *const f32,
    pub columns: usize,
    pub eps: f32,
    pub out: &'a Outputs,
    pub row: usize,
    /// Used where no float output is wanted.
    pub scratch: *mut f32,
}

impl Kernel for LayerNormRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, weight, bias, columns, eps, out, row, scratch } = self;
        unsafe {
            let y = if out.float.is_null() { scratch } else { out.float.add(row * out.float_stride) };
            center_and_scale(s, x, [weight, bias], columns, eps, y);
            if let Some(quant) = &out.quant {
                quantize_row(s, y, quant, row);
            }
            if let Some(fine) = &out.fine {
                quantize_row_finely(s, y, fine, row);
            }
        }
    }
}
