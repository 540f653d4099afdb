//! Reduces a sequence's rows to one: the mean, the first or the last. With a norm, each row is normalized first.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::{inverse_rms, scale_by};
use crate::program::{Operands, Program, Rows};
use crate::simd::{Kernel, Simd};
use crate::step::Sequence;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Mean,
    First,
    Last,
    /// Every so many rows of the step become one.
    Merged(usize),
}

pub struct Pool {
    x: usize,
    norm: Option<Norm>,
    way: Way,
    out: usize,
    columns: usize,
}

#[derive(Clone, Copy)]
struct Norm {
    weight: usize,
    eps: f32,
}

impl Decode for Pool {
    fn decode(o: &mut Operands) -> Result<Self> {
        let x = o.step_float(None)?;
        let columns = o.buffer(x)?.columns;
        let (weight, eps) = (o.optional()?, o.f32()?);
        let way = match o.size()? {
            0 => Way::Mean,
            1 => Way::First,
            2 => Way::Last,
            code => bail!("a sequence cannot be pooled in the unknown way {code}"),
        };
        let out = o.float(Some(columns))?;
        o.rows_are(out, Rows::Pools)?;
        if let Some(weight) = weight {
            o.vector(weight, columns)?;
        }
        Ok(Self { x, norm: weight.map(|weight| Norm { weight, eps }), way, out, columns })
    }
}

impl Op for Pool {
    fn scratch(&self, _: &Program) -> usize {
        self.columns.next_multiple_of(16)
    }

    fn pools(&self) -> Option<Way> {
        Some(self.way)
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.step.pools.is_empty()
    }

    fn run(&self, run: &Run, work: &Work) {
        let columns = self.columns;
        let norm = self.norm.map(|Norm { weight, eps }| (run.vector(weight, columns), eps));
        for item in work.single_items(run.step.pools.len()).flatten() {
            let &Sequence { start, length, .. } = &run.step.sequences[run.step.pools[item].sequence];
            let (from, rows) = match self.way {
                Way::Mean => (start, length),
                Way::First => (start, 1),
                Way::Last => (start + length - 1, 1),
                Way::Merged(_) => unreachable!("decoding knows no such pool"),
            };
            let (x, stride, out) = (run.float(self.x, from), run.stride(self.x), run.float(self.out, item));
            // SAFETY: the rows are the sequence's, the output has a row for it, the scratch holds one row.
            unsafe { run.isa.run(Mean { x, stride, rows, columns, norm, normed: work.scratch, out }) }
        }
    }
}

/// The mean of some rows, added one after the other. With a norm, each row is normalized first.
///
/// # Safety
/// `x` holds the rows, `stride` floats apart, padded to whole vectors of any instruction set. `normed` and `out` hold
/// one row; the norm's weight holds `columns` floats.
pub struct Mean {
    pub x: *const f32,
    pub stride: usize,
    pub rows: usize,
    pub columns: usize,
    /// Weight and epsilon.
    pub norm: Option<(*const f32, f32)>,
    pub normed: *mut f32,
    pub out: *mut f32,
}

impl Kernel for Mean {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, stride, rows, columns, norm, normed, out } = self;
        let vectors = || (0..columns).step_by(S::LANES);
        unsafe {
            for i in vectors() {
                s.store(out.add(i), s.splat(0.0));
            }
            for row in 0..rows {
                let mut row = x.add(row * stride);
                if let Some((weight, eps)) = norm {
                    scale_by(s, row, weight, columns, inverse_rms(s, row, columns, eps), normed);
                    row = normed;
                }
                for i in vectors() {
                    s.store(out.add(i), s.add(s.load(out.add(i)), s.load(row.add(i))));
                }
            }
            let count = s.splat(rows as f32);
            for i in vectors() {
                s.store(out.add(i), s.div(s.load(out.add(i)), count));
            }
        }
    }
}
