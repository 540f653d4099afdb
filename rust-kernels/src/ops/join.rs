//! Concatenates the columns of two rows.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;

pub struct Join {
    first: usize,
    second: usize,
    out: usize,
    /// Columns of both.
    columns: [usize; 2],
}

impl Decode for Join {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (first, second) = (o.float(None)?, o.float(None)?);
        let columns = [o.buffer(first)?.columns, o.buffer(second)?.columns];
        // Column counts are 32-bit words, so their sum does not overflow.
        let out = o.float(Some(columns[0] + columns[1]))?;
        o.same_rows(&[Some(first), Some(second), Some(out)])?;
        Ok(Self { first, second, out, columns })
    }
}

impl Op for Join {
    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of(self.out) == 0
    }

    fn run(&self, run: &Run, work: &Work) {
        let [first, second] = self.columns;
        for row in work.items(run.rows_of(self.out)).flatten() {
            let out = run.float(self.out, row);
            // SAFETY: widths were checked at decode.
            unsafe {
                out.copy_from_nonoverlapping(run.float(self.first, row), first);
                out.add(first).copy_from_nonoverlapping(run.float(self.second, row), second);
            }
        }
    }
}
