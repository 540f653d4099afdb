//! Op: RMSNorm of each group of columns, as for Mamba2's gated results. Source: "Transformers are SSMs" (arXiv
//! 2405.21060), section 7.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::formats::BLOCK;
use crate::kernels::norm::{Outputs, inverse_rms, scale_by};
use crate::kernels::quant_rows::{quantize_block, quantize_block_finely};
use crate::program::{Operands, Out, Program};
use crate::simd::{Kernel, Simd};

pub struct GroupedNorm {
    x: usize,
    /// The first column that the op reads.
    first: usize,
    weight: usize,
    groups: usize,
    /// Number of columns in a group.
    width: usize,
    eps: f32,
    out: Out,
}

impl Decode for GroupedNorm {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, first, weight, groups) = (o.step_float(None)?, o.size()?, o.size()?, o.size()?);
        let (eps, out) = (o.f32()?, o.fine_out()?);
        let (columns, width) = (o.columns(out)?, o.buffer(x)?.columns);
        if groups == 0 || !columns.is_multiple_of(groups) || !(columns / groups).is_multiple_of(BLOCK) {
            bail!("{columns} columns cannot be normed in {groups} groups of a multiple of {BLOCK}");
        }
        if first.checked_add(columns).is_none_or(|end| end > width) {
            bail!("{columns} columns from column {first} on do not fit a buffer of {width} columns");
        }
        o.width(out, columns)?;
        o.same_rows(&[Some(x), out.float, out.quant, out.fine])?;
        o.vector(weight, columns)?;
        Ok(Self { x, first, weight, groups, width: columns / groups, eps, out })
    }
}

impl Op for GroupedNorm {
    fn scratch(&self, _: &Program) -> usize {
        self.width
    }

    fn run(&self, run: &Run, work: &Work) {
        let &Self { groups, width, eps, .. } = self;
        let (out, weight) = (run.outputs(self.out), run.vector(self.weight, groups * width));
        for item in work.items(run.rows_of(self.x) * groups).flatten() {
            let (row, column) = (item / groups, item % groups * width);
            // SAFETY: rows and widths were checked at decode.
            unsafe {
                run.isa.run(NormGroup {
                    x: run.float(self.x, row).add(self.first + column),
                    weight: weight.add(column),
                    width,
                    eps,
                    out: &out,
                    row,
                    column,
                    scratch: work.scratch,
                });
            }
        }
    }
}

/// Computes y = x / sqrt(mean(x^2) + eps) * weight for one group of a row.
///
/// # Safety
/// `x`, `weight` and `scratch` hold `width` floats, a multiple of 32. The outputs have the row, and the group from
/// `column` on.
pub struct NormGroup<'a> {
    pub x: *const f32,
    pub weight: *const f32,
    pub width: usize,
    pub eps: f32,
    pub out: &'a Outputs,
    pub row: usize,
    pub column: usize,
    /// Receives the group if there is no float output.
    pub scratch: *mut f32,
}

impl Kernel for NormGroup<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, weight, width, eps, out, row, column, scratch } = self;
        unsafe {
            let y = if out.float.is_null() { scratch } else { out.float.add(row * out.float_stride + column) };
            scale_by(s, x, weight, width, inverse_rms(s, x, width, eps), y);
            for b in 0..width / BLOCK {
                if let Some(quant) = &out.quant {
                    quantize_block(s, y.add(b * BLOCK), quant, row, column / BLOCK + b);
                }
                if let Some(fine) = &out.fine {
                    quantize_block_finely(s, y.add(b * BLOCK), fine, row, column / BLOCK + b);
                }
            }
        }
    }
}
