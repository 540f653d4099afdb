//! Op: begins the draft of a plan. Drafts run this op and the ops after it; other steps run the ops before it. Each row
//! of a draft continues from a row of the previous step.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;

pub struct Recall {
    x: usize,
    out: usize,
    columns: usize,
}

impl Decode for Recall {
    fn decode(o: &mut Operands) -> Result<Self> {
        if o.program.draft.is_some() {
            bail!("a plan may have one draft");
        }
        let x = o.step_float(None)?;
        let columns = o.buffer(x)?.columns;
        Ok(Self { x, out: o.step_float(Some(columns))?, columns })
    }
}

impl Op for Recall {
    fn begins_draft(&self) -> bool {
        true
    }

    fn run(&self, run: &Run, work: &Work) {
        for row in work.items(run.tokens()).flatten() {
            let x = run.float(self.x, run.step.drafts[row]);
            // SAFETY: decoding the plan checked the widths; decoding the step checked the rows.
            unsafe { run.float(self.out, row).copy_from_nonoverlapping(x, self.columns) };
        }
    }
}
