//! Op: returns one row of floats per pooled sequence as the step's output.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Rows};

pub struct ReturnPooled {
    x: usize,
    columns: usize,
}

impl Decode for ReturnPooled {
    fn decode(o: &mut Operands) -> Result<Self> {
        let x = o.float(None)?;
        o.rows_are(x, Rows::Pools)?;
        Ok(Self { x, columns: o.buffer(x)?.columns })
    }
}

impl Op for ReturnPooled {
    fn returns(&self) -> Option<usize> {
        Some(self.columns)
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.step.pools.is_empty()
    }

    fn run(&self, run: &Run, work: &Work) {
        for item in work.single_items(run.step.pools.len()).flatten() {
            let (row, answer) = (run.float(self.x, item), run.step.pools[item].answer);
            for i in 0..self.columns {
                // SAFETY: the item owns the row, and only its sequence writes these words of the output.
                unsafe { run.answer(answer + i, (*row.add(i)).to_bits()) }
            }
        }
    }
}
