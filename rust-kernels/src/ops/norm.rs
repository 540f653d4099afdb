//! RMSNorm, and rows handed on in the forms that their readers need.
use super::quantize::{FineRows, QuantRows, quantize_row, quantize_row_finely};
use crate::simd::{Kernel, Simd};

/// Where an op puts its rows: any may be absent.
#[derive(Clone, Copy)]
pub struct Outputs {
    pub float: *mut f32,
    /// Floats between rows.
    pub float_stride: usize,
    pub quant: Option<QuantRows>,
    pub fine: Option<FineRows>,
}

/// y = x / sqrt(mean(x^2) + eps) * weight for one row.
///
/// # Safety
/// `x`, `weight` and `scratch` hold `columns` floats; the outputs have the row.
pub struct NormRow<'a> {
    pub x: *const f32,
    pub weight: *const f32,
    pub columns: usize,
    pub eps: f32,
    pub out: &'a Outputs,
    pub row: usize,
    /// Used where no float output is wanted.
    pub scratch: *mut f32,
}

impl Kernel for NormRow<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { x, weight, columns, eps, out, row, scratch } = self;
        unsafe {
            let y = if out.float.is_null() { scratch } else { out.float.add(row * out.float_stride) };
            let factor = inverse_rms::<S>(x, columns, eps);
            scale_by::<S>(x, weight, columns, factor, y);
            if let Some(quant) = &out.quant {
                quantize_row::<S>(y, quant, row);
            }
            if let Some(fine) = &out.fine {
                quantize_row_finely::<S>(y, fine, row);
            }
        }
    }
}

/// 1 / sqrt(mean(x^2) + eps).
///
/// # Safety
/// `x` holds `n` floats; S as simd says.
#[inline(always)]
pub unsafe fn inverse_rms<S: Simd>(x: *const f32, n: usize, eps: f32) -> f32 {
    unsafe {
        let whole = n / S::LANES * S::LANES;
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            let v = S::load(x.add(i));
            squares = S::fma(v, v, squares);
        }
        let mut sum = S::sum(squares);
        for i in whole..n {
            sum += *x.add(i) * *x.add(i);
        }
        1.0 / (sum / n as f32 + eps).sqrt()
    }
}

/// y = x * factor * weight.
///
/// # Safety
/// All three hold `n` floats; `y` may be `x`; S as simd says.
#[inline(always)]
pub unsafe fn scale_by<S: Simd>(x: *const f32, weight: *const f32, n: usize, factor: f32, y: *mut f32) {
    unsafe {
        let whole = n / S::LANES * S::LANES;
        for i in (0..whole).step_by(S::LANES) {
            let v = S::mul(S::mul(S::load(x.add(i)), S::splat(factor)), S::load(weight.add(i)));
            S::store(y.add(i), v);
        }
        for i in whole..n {
            *y.add(i) = *x.add(i) * factor * *weight.add(i);
        }
    }
}
