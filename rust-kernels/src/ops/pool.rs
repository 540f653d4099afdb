//! A sequence's rows as one: their mean, the first or the last. It goes back beside the candidates.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Program};
use crate::simd::{Kernel, Simd};
use crate::step::Sequence;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Mean,
    First,
    Last,
}

/// What a plan pools sequences to.
#[derive(Clone, Copy)]
pub struct Pooling {
    pub columns: usize,
    pub way: Way,
}

pub struct Pool {
    x: usize,
    pooling: Pooling,
}

impl Decode for Pool {
    fn decode(o: &mut Operands) -> Result<Self> {
        let x = o.step_float(None)?;
        let way = match o.size()? {
            0 => Way::Mean,
            1 => Way::First,
            2 => Way::Last,
            code => bail!("a sequence cannot be pooled in the unknown way {code}"),
        };
        Ok(Self { x, pooling: Pooling { columns: o.buffer(x)?.columns, way } })
    }
}

impl Op for Pool {
    fn scratch(&self, _: &Program) -> usize {
        self.pooling.columns.next_multiple_of(16)
    }

    fn pooling(&self) -> Option<Pooling> {
        Some(self.pooling)
    }

    fn run(&self, run: &Run, work: &Work) {
        let Pooling { columns, way } = self.pooling;
        for item in work.single_items(run.step.pools.len()).flatten() {
            let pool = &run.step.pools[item];
            let &Sequence { start, length, .. } = &run.step.sequences[pool.sequence];
            let (from, rows) = match way {
                Way::Mean => (start, length),
                Way::First => (start, 1),
                Way::Last => (start + length - 1, 1),
            };
            let (x, stride) = (run.float(self.x, from), run.stride(self.x));
            // SAFETY: the rows are the sequence's, the scratch holds a row, the words are this request's.
            unsafe {
                run.isa.run(Mean { x, stride, rows, columns, out: work.scratch });
                for i in 0..columns {
                    run.answer(pool.answer + i, (*work.scratch.add(i)).to_bits());
                }
            }
        }
    }
}

/// The mean of some rows, which are added up one after the other.
///
/// # Safety
/// `x` holds the rows, `stride` floats apart and whole vectors of any set long; `out` one of them.
pub struct Mean {
    pub x: *const f32,
    pub stride: usize,
    pub rows: usize,
    pub columns: usize,
    pub out: *mut f32,
}

impl Kernel for Mean {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, stride, rows, columns, out } = self;
        for i in (0..columns).step_by(S::LANES) {
            unsafe {
                let count = s.splat(rows as f32);
                let sum = (0..rows).fold(s.splat(0.0), |sum, row| s.add(sum, s.load(x.add(row * stride + i))));
                s.store(out.add(i), s.div(sum, count));
            }
        }
    }
}
