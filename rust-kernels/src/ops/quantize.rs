//! Op: quantizes float rows to 8-bit blocks, in one plane or two.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::quant_rows::{FineRows, QuantRows, quantize_row, quantize_row_finely};
use crate::program::{Operands, Out};
use crate::simd::{Kernel, Simd};

pub struct Quantize {
    x: usize,
    out: Out,
}

impl Decode for Quantize {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, out) = (o.float(None)?, o.out()?);
        o.width(out, o.buffer(x)?.columns)?;
        o.same_rows(&[Some(x), out.quant, out.fine])?;
        if out.float.is_some() {
            bail!("quantize cannot have a float output");
        }
        Ok(Self { x, out })
    }
}

impl Op for Quantize {
    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of(self.x) == 0
    }

    fn repeats(&self) -> Option<(usize, Out)> {
        Some((self.x, self.out))
    }

    fn run(&self, run: &Run, work: &Work) {
        let out = run.outputs(self.out);
        for row in work.items(run.rows_of(self.x)).flatten() {
            let x = run.float(self.x, row);
            // SAFETY: rows and widths were checked at decode.
            unsafe {
                if let Some(out) = &out.quant {
                    run.isa.run(QuantizeRow { x, out, row });
                }
                if let Some(out) = &out.fine {
                    run.isa.run(QuantizeRowFinely { x, out, row });
                }
            }
        }
    }
}

/// Kernel that calls `quantize_row`.
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

/// Kernel that calls `quantize_row_finely`.
///
/// # Safety
/// As `quantize_row_finely`.
pub struct QuantizeRowFinely<'a> {
    pub x: *const f32,
    pub out: &'a FineRows,
    pub row: usize,
}

impl Kernel for QuantizeRowFinely<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        unsafe { quantize_row_finely(s, self.x, self.out, self.row) }
    }
}
