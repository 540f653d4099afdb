//! Concatenates groups of consecutive rows, or averages them: an image's neighbouring patches become one row.
use super::pool::{Mean, Way};
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Rows};

pub struct Merge {
    x: usize,
    /// Rows of a group.
    count: usize,
    out: usize,
    columns: usize,
    /// Whether a group becomes its mean.
    averages: bool,
}

impl Decode for Merge {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, count, averages) = (o.step_float(None)?, o.size()?, o.flag()?);
        let columns = o.buffer(x)?.columns;
        let Some(wide) = columns.checked_mul(count).filter(|wide| *wide > 0) else {
            bail!("{count} rows of {columns} columns cannot be merged");
        };
        let out = o.float(Some(if averages { columns } else { wide }))?;
        o.rows_are(out, Rows::Pools)?;
        Ok(Self { x, count, out, columns, averages })
    }
}

impl Op for Merge {
    fn pools(&self) -> Option<Way> {
        Some(Way::Merged(self.count))
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.step.pools.is_empty()
    }

    fn run(&self, run: &Run, work: &Work) {
        for item in work.items(run.step.pools.len()).flatten() {
            let out = run.float(self.out, item);
            if self.averages {
                let (x, stride) = (run.float(self.x, item * self.count), run.stride(self.x));
                let mean = Mean {
                    x,
                    stride,
                    rows: self.count,
                    columns: self.columns,
                    norm: None,
                    normed: std::ptr::null_mut(),
                    out,
                };
                // SAFETY: decoding checked the widths; decoding the step, that every group has its rows.
                unsafe { run.isa.run(mean) }
                continue;
            }
            for i in 0..self.count {
                let x = run.float(self.x, item * self.count + i);
                // SAFETY: decoding checked the widths; decoding the step, that every group has its rows.
                unsafe { out.add(i * self.columns).copy_from_nonoverlapping(x, self.columns) }
            }
        }
    }
}
