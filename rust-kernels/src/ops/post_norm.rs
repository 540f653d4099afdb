//! Op: adds the RMSNorm of groups of columns to a residual, then multiplies the sum by the layer's scale.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::norm::inverse_rms;
use crate::program::Operands;
use crate::simd::{Kernel, Simd};

pub struct PostNorm {
    x: usize,
    weight: Option<usize>,
    /// Number of columns that are normalized together. All groups use the same weights.
    group: usize,
    eps: f32,
    /// Factor by which the normalized rows are multiplied.
    scale: f32,
    /// Index of a vector with one number, the factor of the sum.
    layer_scale: Option<usize>,
    to: usize,
    columns: usize,
}

impl Decode for PostNorm {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, weight, group, eps, scale) = (o.step_float(None)?, o.optional()?, o.size()?, o.f32()?, o.f32()?);
        let columns = o.buffer(x)?.columns;
        let (layer_scale, to) = (o.optional()?, o.step_float(Some(columns))?);
        if group == 0 || !columns.is_multiple_of(group) {
            bail!("{columns} columns cannot be normed in groups of {group}");
        }
        if x == to {
            bail!("buffer {x} cannot be added to itself");
        }
        for (vector, len) in [(weight, group), (layer_scale, 1)] {
            if let Some(vector) = vector {
                o.vector(vector, len)?;
            }
        }
        Ok(Self { x, weight, group, eps, scale, layer_scale, to, columns })
    }
}

impl Op for PostNorm {
    fn run(&self, run: &Run, work: &Work) {
        let &Self { columns, group, eps, scale, .. } = self;
        let weight = run.vector_or_null(self.weight, group);
        // SAFETY: the vector has one number; decoding checked it.
        let layer_scale = self.layer_scale.map_or(1.0, |index| unsafe { *run.vector(index, 1) });
        for row in work.items(run.tokens()).flatten() {
            let (x, to) = (run.float(self.x, row), run.float(self.to, row));
            // SAFETY: rows and widths were checked at decode.
            unsafe { run.isa.run(PostNormRow { x, weight, columns, group, eps, scale, layer_scale, to }) }
        }
    }
}

/// Computes to = (to + scale * x / sqrt(mean(x^2) + eps) * weight) * layer_scale for one row, each group of columns
/// separately. A null `weight` counts as ones.
///
/// # Safety
/// `x` and `to` hold `columns` floats, a multiple of `group`; `weight` holds `group`.
pub struct PostNormRow {
    pub x: *const f32,
    pub weight: *const f32,
    pub columns: usize,
    pub group: usize,
    pub eps: f32,
    pub scale: f32,
    pub layer_scale: f32,
    pub to: *mut f32,
}

impl Kernel for PostNormRow {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, weight, columns, group, eps, scale, layer_scale, to } = self;
        let whole = group / S::LANES * S::LANES;
        for start in (0..columns).step_by(group) {
            unsafe {
                let (x, to) = (x.add(start), to.add(start));
                let factor = scale * inverse_rms(s, x, group, eps);
                for i in (0..whole).step_by(S::LANES) {
                    let mut y = s.mul(s.load(x.add(i)), s.splat(factor));
                    if !weight.is_null() {
                        y = s.mul(y, s.load(weight.add(i)));
                    }
                    s.store(to.add(i), s.mul(s.add(s.load(to.add(i)), y), s.splat(layer_scale)));
                }
                for i in whole..group {
                    let y = *x.add(i) * factor * if weight.is_null() { 1.0 } else { *weight.add(i) };
                    *to.add(i) = (*to.add(i) + y) * layer_scale;
                }
            }
        }
    }
}
