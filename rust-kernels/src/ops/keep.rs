//! Puts a draft's rows where they were recalled from, so that another draft can go on from them.
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
            // SAFETY: widths were checked at decode; the step's rows go to different ones, which the buffer has.
            unsafe { to.copy_from_nonoverlapping(run.float(self.x, row), self.columns) };
        }
    }
}
