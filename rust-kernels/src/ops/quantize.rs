//! Rows of floats as 8-bit blocks.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::quant_rows::{QuantRows, quantize_row};
use crate::program::Operands;
use crate::simd::{Kernel, Simd};

pub struct Quantize {
    x: usize,
    out: usize,
}

impl Decode for Quantize {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, out) = (o.float(None)?, o.out()?);
        o.width(out, o.buffer(x)?.columns)?;
        o.same_rows(&[Some(x), out.quant])?;
        let Some(out) = out.quant else { bail!("quantize without a quantised output") };
        Ok(Self { x, out })
    }
}

impl Op for Quantize {
    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of(self.x) == 0
    }

    fn run(&self, run: &Run, work: &Work) {
        let out = run.quant(self.out);
        for row in work.items(run.rows_of(self.x)).flatten() {
            // SAFETY: rows and widths were checked at decode.
            unsafe { run.isa.run(QuantizeRow { x: run.float(self.x, row), out: &out, row }) }
        }
    }
}

/// `quantize_row` as a kernel.
///
/// # Safety
/// As `quantize_row`.
pub struct QuantizeRow<'a> {
    pub x: *const f32,
    pub out: &'a QuantRows,
    pub row: usize,
}

impl Kernel for QuantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        unsafe { quantize_row(s, self.x, self.out, self.row) }
    }
}
