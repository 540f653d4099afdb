//! Puts rows that the step brings, for example an image's, in place of a buffer's rows, or adds them. Other rows stay.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;

pub struct Given {
    x: usize,
    columns: usize,
    /// Columns of a given row, and the first one that the op reads.
    width: usize,
    first: usize,
    /// Adds to the buffer's rows instead of replacing them.
    adds: bool,
}

impl Decode for Given {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, width, first, adds) = (o.step_float(None)?, o.size()?, o.size()?, o.flag()?);
        let columns = o.buffer(x)?.columns;
        if first.checked_add(columns).is_none_or(|end| end > width) {
            bail!("{columns} columns from column {first} on do not fit given rows of {width} columns");
        }
        Ok(Self { x, columns, width, first, adds })
    }
}

impl Op for Given {
    fn given(&self) -> Option<usize> {
        Some(self.width)
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.step.given.is_empty()
    }

    fn run(&self, run: &Run, work: &Work) {
        let given = &run.step.given;
        for i in work.items(given.len()).flatten() {
            let from = &given.row(i)[self.first..self.first + self.columns];
            // SAFETY: the buffer's rows hold these columns, and decoding the step checked that no row is given twice.
            let x = unsafe { std::slice::from_raw_parts_mut(run.float(self.x, given.rows[i]), self.columns) };
            if self.adds {
                x.iter_mut().zip(from).for_each(|(x, y)| *x += y);
            } else {
                x.copy_from_slice(from);
            }
        }
    }
}
