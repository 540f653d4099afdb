//! Op: a matrix product with an activation but without a gate, activation(weight x).
use super::glu::Unit;
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Out, Program};

pub struct Activated(Unit);

impl Decode for Activated {
    fn decode(o: &mut Operands) -> Result<Self> {
        Ok(Self(Unit::decode(o, false)?))
    }
}

impl Op for Activated {
    fn scratch(&self, p: &Program) -> usize {
        self.0.scratch(p)
    }

    /// Whether the step has no rows for this op. For example, a head for pooled rows is idle in a step that pools no
    /// sequence.
    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of_any(self.0.x) == 0
    }

    fn takes_copies(&self) -> Option<(Out, Vec<usize>)> {
        Some(self.0.takes_copies())
    }

    fn run(&self, run: &Run, work: &Work) {
        self.0.run(run, work);
    }
}
