//! Op: bounds values from below and from above. Each bound is a tensor of one number.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Rows};

pub struct Clamp {
    x: usize,
    out: usize,
    columns: usize,
    least: Option<usize>,
    most: Option<usize>,
}

impl Decode for Clamp {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, least, most, out) = (o.step_float(None)?, o.optional()?, o.optional()?, o.size()?);
        let columns = o.buffer(x)?.columns;
        o.is_float(out, Some(columns))?;
        o.rows_are(out, Rows::Step)?;
        for bound in [least, most].into_iter().flatten() {
            o.vector(bound, 1)?;
        }
        if x == out {
            bail!("buffer {out} is both read and written");
        }
        Ok(Self { x, out, columns, least, most })
    }
}

impl Op for Clamp {
    fn run(&self, run: &Run, work: &Work) {
        // SAFETY: decoding checked that a bound has one number.
        let bound = |of: Option<usize>, none| of.map_or(none, |of| unsafe { *run.vector(of, 1) });
        let (least, most) = (bound(self.least, f32::NEG_INFINITY), bound(self.most, f32::INFINITY));
        for row in work.items(run.tokens()).flatten() {
            // SAFETY: rows and widths were checked at decode.
            let (x, out) = unsafe {
                (
                    std::slice::from_raw_parts(run.float(self.x, row), self.columns),
                    std::slice::from_raw_parts_mut(run.float(self.out, row), self.columns),
                )
            };
            for (x, out) in x.iter().zip(out) {
                // NaN stays NaN.
                *out = if *x < least {
                    least
                } else if *x > most {
                    most
                } else {
                    *x
                };
            }
        }
    }
}
