//! Op: copies a range of each row's columns to float and quantized outputs.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::Outputs;
use crate::program::{Operands, Out};
use crate::simd::{Kernel, Simd};

pub struct Columns {
    x: usize,
    /// The first column of x that is copied.
    first: usize,
    columns: usize,
    out: Out,
}

impl Decode for Columns {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, first, out) = (o.step_float(None)?, o.size()?, o.fine_out()?);
        let (columns, width) = (o.columns(out)?, o.buffer(x)?.columns);
        if first.checked_add(columns).is_none_or(|end| end > width) {
            bail!("{columns} columns from column {first} on do not fit a buffer of {width} columns");
        }
        o.width(out, columns)?;
        o.same_rows(&[Some(x), out.float, out.quant, out.fine])?;
        if out.float == Some(x) {
            bail!("buffer {x} is both read and written");
        }
        Ok(Self { x, first, columns, out })
    }
}

impl Op for Columns {
    fn repeats(&self) -> Option<(usize, Out)> {
        Some((self.x, self.out))
    }

    fn run(&self, run: &Run, work: &Work) {
        let (columns, out) = (self.columns, run.outputs(self.out));
        for row in work.items(run.rows_of(self.x)).flatten() {
            // SAFETY: rows and widths were checked at decode.
            unsafe { run.isa.run(PutRow { x: run.float(self.x, row).add(self.first), columns, out: &out, row }) }
        }
    }
}

/// Kernel that calls `Outputs::put` for a whole row.
///
/// # Safety
/// `x` holds `columns` floats; the outputs have the row and the same number of columns.
pub struct PutRow<'a> {
    pub x: *const f32,
    pub columns: usize,
    pub out: &'a Outputs,
    pub row: usize,
}

impl Kernel for PutRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        unsafe { self.out.put(s, self.x, self.columns, self.row, 0) }
    }
}
