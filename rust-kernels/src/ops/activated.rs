//! A product and an activation of it, without a gate: activation(weight x).
use super::glu::Unit;
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::Activation;
use crate::program::{Operands, Program};

pub struct Activated(Unit);

impl Decode for Activated {
    fn decode(o: &mut Operands) -> Result<Self> {
        let unit = Unit::decode(o, false)?;
        if unit.activation == Activation::SwigluOai {
            bail!("an activation of a gate and what it gates, without what it gates");
        }
        Ok(Self(unit))
    }
}

impl Op for Activated {
    fn scratch(&self, p: &Program) -> usize {
        self.0.scratch(p)
    }

    /// A step that pools nothing reads nothing of a head for pooled rows.
    fn is_idle(&self, run: &Run) -> bool {
        run.rows_of_any(self.0.x) == 0
    }

    fn run(&self, run: &Run, work: &Work) {
        self.0.run(run, work);
    }
}
