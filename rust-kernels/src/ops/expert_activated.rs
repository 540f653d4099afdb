//! Op: multiplies rows by the matrix of each chosen expert and applies an activation, without a gate: activation(weight
//! x).
use super::expert_glu::Unit;
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Program};

pub struct ExpertActivated(Unit);

impl Decode for ExpertActivated {
    fn decode(o: &mut Operands) -> Result<Self> {
        Ok(Self(Unit::decode(o, false)?))
    }
}

impl Op for ExpertActivated {
    fn scratch(&self, p: &Program) -> usize {
        self.0.scratch(p)
    }

    fn run(&self, run: &Run, work: &Work) {
        self.0.run(run, work);
    }
}
