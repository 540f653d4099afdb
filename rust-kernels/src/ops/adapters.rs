//! The adapters (LoRA) that each row's sequence uses, in the form of chosen experts. An unused place has weight 0.
use super::experts::Chosen;
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Choice, Operands};

pub struct Adapters(Chosen);

impl Decode for Adapters {
    fn decode(o: &mut Operands) -> Result<Self> {
        Ok(Self(Chosen::decode(o)?))
    }
}

impl Op for Adapters {
    fn adapters(&self) -> Option<(usize, Choice)> {
        Some((self.0.buffer(), self.0.choice))
    }

    fn run(&self, run: &Run, work: &Work) {
        let used = self.0.choice.used;
        for row in work.items(run.tokens()).flatten() {
            // SAFETY: the buffer has a row of this width for each token, and no other thread writes it.
            let out = unsafe { std::slice::from_raw_parts_mut(self.0.row(run, row), 2 * used) };
            out.fill(0.0);
            let adapters = &run.step.sequences[run.step.sequence_of[row]].adapters;
            for (i, (number, weight)) in adapters.iter().enumerate() {
                (out[i], out[used + i]) = (*number as f32, *weight);
            }
        }
    }
}
