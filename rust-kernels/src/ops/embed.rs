//! Rows of the embedding matrix, one for each token.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;

pub struct Embed {
    weight: usize,
    out: usize,
}

impl Decode for Embed {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (weight, out) = (o.size()?, o.step_float(None)?);
        o.shape(weight, o.program.vocab, o.buffer(out)?.columns)?;
        Ok(Self { weight, out })
    }
}

impl Op for Embed {
    fn run(&self, run: &Run, work: &Work) {
        let m = run.matrix(self.weight);
        for row in work.items(run.tokens()).flatten() {
            let token = run.step.tokens[row] as usize;
            // SAFETY: the token is below the matrix's rows, the output row has its columns.
            unsafe { run.matrix_row(m, token, run.float(self.out, row)) }
        }
    }
}
