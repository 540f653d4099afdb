//! Op: stores a draft's rows in the buffer from which `recall` read them, so that the next draft continues from them.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;

pub struct Keep {
    x: usize,
    to: usize,
    columns: usize,
}

impl Decode for Keep {
    fn decode(o: &mut Operands) -> Result<Self> {
        if o.program.draft.is_none() {
            bail!("only a draft keeps rows");
        }
        let x = o.step_float(None)?;
        let columns = o.buffer(x)?.columns;
        Ok(Self { x, to: o.step_float(Some(columns))?, columns })
    }
}

impl Op for Keep {
    fn run(&self, run: &Run, work: &Work) {
        for row in work.items(run.tokens()).flatten() {
            let to = run.float(self.to, run.step.drafts[row]);
            // SAFETY: decoding checked the widths; the step's rows go to different rows of the buffer.
            unsafe { to.copy_from_nonoverlapping(run.float(self.x, row), self.columns) };
        }
    }
}
