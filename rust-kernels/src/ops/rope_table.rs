//! Angles of rotary positions, for all layers of a step.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::Operands;

pub struct RopeTable {
    out: usize,
}

impl Decode for RopeTable {
    fn decode(o: &mut Operands) -> Result<Self> {
        Ok(Self { out: o.step_float(Some(2 * o.program.frequencies.len()))? })
    }
}

impl Op for RopeTable {
    fn run(&self, run: &Run, work: &Work) {
        for row in work.items(run.tokens()).flatten() {
            // SAFETY: the buffer's rows hold 2 * frequencies floats, checked at decode.
            unsafe { angles(run.step.position_of[row], &run.p.frequencies, run.float(self.out, row)) }
        }
    }
}

/// Fills one row of the table: cos of every angle, then sin.
///
/// # Safety
/// `table` holds 2 * `frequencies.len()` floats.
pub unsafe fn angles(position: usize, frequencies: &[f64], table: *mut f32) {
    let half = frequencies.len();
    for (i, frequency) in frequencies.iter().enumerate() {
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        // SAFETY: i < half.
        unsafe {
            *table.add(i) = cos as f32;
            *table.add(half + i) = sin as f32;
        }
    }
}
