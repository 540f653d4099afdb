//! Op: gives each head of a row another number of columns. A narrower head loses its last columns; a wider head gets
//! zeros.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Rows};

pub struct HeadColumns {
    x: usize,
    heads: usize,
    out: usize,
    /// Columns of a head before and after.
    from: usize,
    to: usize,
}

impl Decode for HeadColumns {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, heads, out) = (o.step_float(None)?, o.size()?, o.size()?);
        o.is_float(out, None)?;
        o.rows_are(out, Rows::Step)?;
        let [from, to] = [o.buffer(x)?.columns, o.buffer(out)?.columns];
        if heads == 0 || !from.is_multiple_of(heads) || !to.is_multiple_of(heads) {
            bail!("{heads} heads do not divide rows of {from} and {to} columns");
        }
        if x == out {
            bail!("buffer {x} is both read and written");
        }
        Ok(Self { x, heads, out, from: from / heads, to: to / heads })
    }
}

impl Op for HeadColumns {
    fn run(&self, run: &Run, work: &Work) {
        let kept = self.from.min(self.to);
        for row in work.items(run.tokens()).flatten() {
            let (x, out) = (run.float(self.x, row), run.float(self.out, row));
            for head in 0..self.heads {
                // SAFETY: widths were checked at decode.
                unsafe {
                    let out = out.add(head * self.to);
                    out.copy_from_nonoverlapping(x.add(head * self.from), kept);
                    out.add(kept).write_bytes(0, self.to - kept);
                }
            }
        }
    }
}
