//! Op: shifts rows by one token, so that each token gets the previous token's row. The state keeps a sequence's last
//! row from step to step. It is zero before the first token.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;

/// Number of columns per item of work.
const COLUMNS: usize = 512;

pub struct Shift {
    x: usize,
    out: usize,
    columns: usize,
    /// Offset in floats from a slot's start to the layer's state, which is one row.
    state: usize,
}

impl Decode for Shift {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, layer) = (o.step_float(None)?, o.size()?);
        let columns = o.buffer(x)?.columns;
        let out = o.step_float(Some(columns))?;
        Ok(Self { x, out, columns, state: o.conv_state(layer, 1, columns)? })
    }
}

impl Op for Shift {
    fn run(&self, run: &Run, work: &Work) {
        let blocks = self.columns.div_ceil(COLUMNS);
        for item in work.items(run.step.sequences.len() * blocks).flatten() {
            let (sequence, column) = (&run.step.sequences[item / blocks], item % blocks * COLUMNS);
            let count = COLUMNS.min(self.columns - column);
            run.carry(sequence, self.state + column, count, |tokens, state| {
                let mut before = state.cast_const();
                for row in tokens.map(|token| sequence.start + token) {
                    // SAFETY: decoding checked the widths; each block of columns of a sequence is one item.
                    unsafe { run.float(self.out, row).add(column).copy_from_nonoverlapping(before, count) };
                    before = unsafe { run.float(self.x, row).add(column) };
                }
                // SAFETY: decoding checked the widths, as above. The rows are not in the state, and there is at least
                // one.
                unsafe { state.copy_from_nonoverlapping(before, count) };
            });
        }
    }
}
