//! RoPE angles, shared by all layers with the same table.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, RopeAngles};
use crate::step::Place;

pub struct RopeTable {
    out: usize,
    table: usize,
}

impl Decode for RopeTable {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (out, table) = (o.step_float(None)?, o.size()?);
        let Some(angles) = o.program.rope.get(table) else {
            bail!("table {table} of angles is out of range 0..{}", o.program.rope.len());
        };
        o.is_float(out, Some(2 * angles.frequencies.len()))?;
        Ok(Self { out, table })
    }
}

impl Op for RopeTable {
    fn run(&self, run: &Run, work: &Work) {
        let table = &run.p.rope[self.table];
        for row in work.items(run.tokens()).flatten() {
            // SAFETY: the buffer's rows hold 2 * frequencies floats; decoding checked it.
            unsafe { angles(run.step.places[row], table, run.float(self.out, row)) }
        }
    }
}

/// Fills one row of the table: the cosine of every angle, then the sine, both multiplied by the magnitude. A place has a
/// position on each axis.
///
/// # Safety
/// `table` holds two floats per pair.
pub unsafe fn angles(place: Place, RopeAngles { frequencies, axes, magnitude }: &RopeAngles, table: *mut f32) {
    let half = frequencies.len();
    for (i, (frequency, axis)) in frequencies.iter().zip(axes).enumerate() {
        let (sin, cos) = (f64::from(place[*axis]) * frequency).sin_cos();
        // SAFETY: i < half.
        unsafe {
            *table.add(i) = (magnitude * cos) as f32;
            *table.add(half + i) = (magnitude * sin) as f32;
        }
    }
}
