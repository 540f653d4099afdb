//! Op: copies each token's row of the embedding matrix.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::scale_by;
use crate::program::Operands;
use crate::simd::{Kernel, Simd};

pub struct Embed {
    weight: usize,
    /// Factor by which the rows are multiplied.
    scale: f32,
    out: usize,
    columns: usize,
}

impl Decode for Embed {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (weight, scale, out) = (o.size()?, o.f32()?, o.step_float(None)?);
        let columns = o.buffer(out)?.columns;
        o.shape(weight, o.program.vocab, columns)?;
        Ok(Self { weight, scale, out, columns })
    }
}

impl Op for Embed {
    fn run(&self, run: &Run, work: &Work) {
        let m = run.matrix(self.weight);
        for row in work.items(run.tokens()).flatten() {
            let (token, x) = (run.step.tokens[row] as usize, run.float(self.out, row));
            // SAFETY: the token is below the matrix's rows; the output row has its columns.
            unsafe {
                run.matrix_row(m, token, x);
                if self.scale != 1.0 {
                    run.isa.run(ScaleRow { x, columns: self.columns, by: self.scale });
                }
            }
        }
    }
}

/// Multiplies a row by a number: x = x * by.
///
/// # Safety
/// `x` holds `columns` floats.
pub struct ScaleRow {
    pub x: *mut f32,
    pub columns: usize,
    pub by: f32,
}

impl Kernel for ScaleRow {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, columns, by } = self;
        unsafe { scale_by(s, x, std::ptr::null(), columns, by, x) }
    }
}
