//! Op: LayerNorm with float and quantized outputs. If its outputs have one row per row of logits, it only reads rows
//! with logits.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::{Outputs, center_and_scale};
use crate::program::{Operands, Out, Program, Rows};
use crate::simd::{Kernel, Simd};

pub struct LayerNorm {
    x: usize,
    weight: usize,
    bias: Option<usize>,
    /// Number of groups of columns that are normalized separately.
    groups: usize,
    eps: f32,
    out: Out,
    columns: usize,
    /// Whether the op only reads rows with logits.
    gather: bool,
}

impl Decode for LayerNorm {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, weight, bias, groups) = (o.float(None)?, o.size()?, o.optional()?, o.size()?);
        let (eps, out) = (o.f32()?, o.fine_out()?);
        let columns = o.buffer(x)?.columns;
        if groups == 0 || !columns.is_multiple_of(groups) {
            bail!("{columns} columns cannot be normed in {groups} groups");
        }
        for vector in [Some(weight), bias].into_iter().flatten() {
            o.vector(vector, columns)?;
        }
        o.width(out, columns)?;
        o.same_rows(&[out.float, out.quant, out.fine])?;
        let rows = |i: usize| o.program.buffers[i].rows;
        let gather = rows(x) == Rows::Step && out.forms().any(|i| rows(i) == Rows::Logits);
        if !gather {
            o.same_rows(&[Some(x), out.float, out.quant, out.fine])?;
        }
        Ok(Self { x, weight, bias, groups, eps, out, columns, gather })
    }
}

impl Op for LayerNorm {
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
        let &Self { columns, groups, eps, .. } = self;
        let (out, weight) = (run.outputs(self.out), run.vector(self.weight, columns));
        let bias = self.bias.map_or(std::ptr::null(), |bias| run.vector(bias, columns));
        for row in work.items(run.rows_of_any(self.out)).flatten() {
            let x = run.float(self.x, if self.gather { run.step.logits[row].row } else { row });
            let scratch = work.scratch;
            // SAFETY: rows and widths were checked at decode.
            unsafe { run.isa.run(LayerNormRow { x, weight, bias, columns, groups, eps, out: &out, row, scratch }) }
        }
    }
}

/// Computes y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias for each group of one row.
///
/// # Safety
/// `x`, `weight` and `scratch` hold `columns` floats, a multiple of `groups`. So does `bias` unless null. The outputs
/// have the row.
pub struct LayerNormRow<'a> {
    pub x: *const f32,
    pub weight: *const f32,
    pub bias: *const f32,
    pub columns: usize,
    pub groups: usize,
    pub eps: f32,
    pub out: &'a Outputs,
    pub row: usize,
    /// Receives the row if there is no float output.
    pub scratch: *mut f32,
}

impl Kernel for LayerNormRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, weight, bias, columns, groups, eps, out, row, scratch } = self;
        let width = columns / groups;
        unsafe {
            let y = out.float_row(row, scratch);
            for first in (0..groups).map(|group| group * width) {
                let bias = if bias.is_null() { bias } else { bias.add(first) };
                center_and_scale(s, x.add(first), [weight.add(first), bias], width, eps, y.add(first));
            }
            out.quantize(s, y, row);
        }
    }
}
