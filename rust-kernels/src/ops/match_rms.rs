//! Op: scales rows so that their root mean square equals that of another row. Can also compute the mean of all these
//! rows.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::{inverse_rms, scale_by};
use crate::program::Operands;
use crate::simd::{Kernel, Simd};

/// Maximum number of rows that the op scales: far more than any model has.
const MOST: usize = 16;

pub struct MatchRms {
    like: usize,
    xs: Vec<usize>,
    /// Lower bound of the root mean square by which a row is divided.
    least: f32,
    mean: Option<usize>,
    columns: usize,
}

impl Decode for MatchRms {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (like, count) = (o.step_float(None)?, o.size()?);
        if !(1..=MOST).contains(&count) {
            bail!("1 to {MOST} buffers can be scaled to another's size (got {count})");
        }
        let columns = o.buffer(like)?.columns;
        let xs = (0..count).map(|_| o.step_float(Some(columns))).collect::<Result<Vec<_>>>()?;
        let (least, mean) = (o.f32()?, o.optional()?);
        if let Some(mean) = mean {
            o.is_float(mean, Some(columns))?;
            o.same_rows(&[Some(like), Some(mean)])?;
        }
        let all: Vec<_> = [like].into_iter().chain(xs.iter().copied()).chain(mean).collect();
        if let Some(i) = (1..all.len()).find(|&i| all[..i].contains(&all[i])) {
            bail!("buffer {} cannot be two operands", all[i]);
        }
        Ok(Self { like, xs, least, mean, columns })
    }
}

impl Op for MatchRms {
    fn run(&self, run: &Run, work: &Work) {
        for row in work.items(run.tokens()).flatten() {
            let mut xs = [std::ptr::null_mut(); MOST];
            for (x, buffer) in xs.iter_mut().zip(&self.xs) {
                *x = run.float(*buffer, row);
            }
            let mean = self.mean.map_or(std::ptr::null_mut(), |mean| run.float(mean, row));
            let (like, xs) = (run.float(self.like, row), &xs[..self.xs.len()]);
            // SAFETY: rows and widths were checked at decode.
            unsafe { run.isa.run(MatchRow { like, xs, least: self.least, columns: self.columns, mean }) }
        }
    }
}

/// Computes x *= rms(like) / max(rms(x), least) for each row x. Also writes the mean of `like` and all x unless `mean`
/// is null.
///
/// # Safety
/// All rows hold `columns` floats and do not overlap.
pub struct MatchRow<'a> {
    pub like: *const f32,
    pub xs: &'a [*mut f32],
    pub least: f32,
    pub columns: usize,
    pub mean: *mut f32,
}

impl Kernel for MatchRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { like, xs, least, columns, mean } = self;
        unsafe {
            // This also holds for a row of zeros: its inverse RMS is infinite, and the inverse of infinity is 0.
            let rms = |x: *const f32| 1.0 / inverse_rms(s, x, columns, 0.0);
            let wanted = rms(like);
            for &x in xs {
                scale_by(s, x, std::ptr::null(), columns, wanted / rms(x).max(least), x);
            }
            if mean.is_null() {
                return;
            }
            let (whole, part) = (columns / S::LANES * S::LANES, 1.0 / (1 + xs.len()) as f32);
            for i in (0..whole).step_by(S::LANES) {
                let mut sum = s.load(like.add(i));
                for &x in xs {
                    sum = s.add(sum, s.load(x.add(i)));
                }
                s.store(mean.add(i), s.mul(sum, s.splat(part)));
            }
            for i in whole..columns {
                *mean.add(i) = xs.iter().fold(*like.add(i), |sum, x| sum + *x.add(i)) * part;
            }
        }
    }
}
