//! Computes root mean squares, means and variances, and writes the outputs of ops.
use super::quant_rows::{
    FineRows, QuantRows, quantize_block, quantize_block_finely, quantize_row, quantize_row_finely,
};
use crate::formats::BLOCK;
use crate::simd::Simd;

/// The outputs of an op: floats, 8-bit blocks in one plane, and in two planes. Each is optional.
#[derive(Clone, Copy)]
pub struct Outputs {
    pub float: *mut f32,
    /// Floats between two rows of the float output.
    pub float_stride: usize,
    pub quant: Option<QuantRows>,
    pub fine: Option<FineRows>,
}

impl Outputs {
    /// Returns the address of row `row` of the float output, or `scratch` if there is no float output.
    #[inline(always)]
    pub fn float_row(&self, row: usize, scratch: *mut f32) -> *mut f32 {
        if self.float.is_null() { scratch } else { self.float.wrapping_add(row * self.float_stride) }
    }

    /// Quantizes the whole row at `y` into the quantized outputs.
    ///
    /// # Safety
    /// The outputs have the row, and `y` has their columns.
    #[inline(always)]
    pub unsafe fn quantize<S: Simd>(&self, s: S, y: *const f32, row: usize) {
        unsafe {
            if let Some(quant) = &self.quant {
                quantize_row(s, y, quant, row);
            }
            if let Some(fine) = &self.fine {
                quantize_row_finely(s, y, fine, row);
            }
        }
    }

    /// Writes the `n` floats at `y` to a row, from `column` on.
    ///
    /// # Safety
    /// The outputs have the row and the columns. With a quantized output, `column` and `n` are multiples of 32.
    #[inline(always)]
    pub unsafe fn put<S: Simd>(&self, s: S, y: *const f32, n: usize, row: usize, column: usize) {
        unsafe {
            if !self.float.is_null() {
                std::ptr::copy_nonoverlapping(y, self.float.add(row * self.float_stride + column), n);
            }
            if let Some(quant) = &self.quant {
                for b in 0..n / BLOCK {
                    quantize_block(s, y.add(b * BLOCK), quant, row, column / BLOCK + b);
                }
            }
            if let Some(fine) = &self.fine {
                for b in 0..n / BLOCK {
                    quantize_block_finely(s, y.add(b * BLOCK), fine, row, column / BLOCK + b);
                }
            }
        }
    }
}

/// Returns 1 / sqrt(mean(x^2) + eps).
///
/// # Safety
/// `x` holds `n` floats.
#[inline(always)]
pub unsafe fn inverse_rms<S: Simd>(s: S, x: *const f32, n: usize, eps: f32) -> f32 {
    unsafe {
        let whole = n / S::LANES * S::LANES;
        let mut squares = s.splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            let v = s.load(x.add(i));
            squares = s.fma(v, v, squares);
        }
        let mut sum = s.sum(squares);
        for i in whole..n {
            sum += *x.add(i) * *x.add(i);
        }
        1.0 / (sum / n as f32 + eps).sqrt()
    }
}

/// Computes y = x * factor * weight, or x * factor if `weight` is null.
///
/// # Safety
/// All hold `n` floats; `y` may be `x`.
#[inline(always)]
pub unsafe fn scale_by<S: Simd>(s: S, x: *const f32, weight: *const f32, n: usize, factor: f32, y: *mut f32) {
    unsafe {
        let whole = n / S::LANES * S::LANES;
        if weight.is_null() {
            for i in (0..whole).step_by(S::LANES) {
                s.store(y.add(i), s.mul(s.load(x.add(i)), s.splat(factor)));
            }
            for i in whole..n {
                *y.add(i) = *x.add(i) * factor;
            }
            return;
        }
        for i in (0..whole).step_by(S::LANES) {
            let v = s.mul(s.mul(s.load(x.add(i)), s.splat(factor)), s.load(weight.add(i)));
            s.store(y.add(i), v);
        }
        for i in whole..n {
            *y.add(i) = *x.add(i) * factor * *weight.add(i);
        }
    }
}

/// Computes y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias.
///
/// # Safety
/// `x`, the weight and `y` hold `n` floats; so does the bias unless null. `y` may be `x`.
#[inline(always)]
pub unsafe fn center_and_scale<S: Simd>(
    s: S,
    x: *const f32,
    [weight, bias]: [*const f32; 2],
    n: usize,
    eps: f32,
    y: *mut f32,
) {
    unsafe {
        let whole = n / S::LANES * S::LANES;
        let mut sums = s.splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            sums = s.add(sums, s.load(x.add(i)));
        }
        let mean = (whole..n).fold(s.sum(sums), |sum, i| sum + *x.add(i)) / n as f32;
        let mut squares = s.splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            let v = s.sub(s.load(x.add(i)), s.splat(mean));
            squares = s.fma(v, v, squares);
        }
        let rest = |i: usize| *x.add(i) - mean;
        let variance = (whole..n).fold(s.sum(squares), |sum, i| sum + rest(i) * rest(i)) / n as f32;
        let factor = 1.0 / (variance + eps).sqrt();
        for i in (0..whole).step_by(S::LANES) {
            let v = s.mul(s.sub(s.load(x.add(i)), s.splat(mean)), s.splat(factor));
            let added = if bias.is_null() { s.splat(0.0) } else { s.load(bias.add(i)) };
            s.store(y.add(i), s.fma(v, s.load(weight.add(i)), added));
        }
        for i in whole..n {
            let added = if bias.is_null() { 0.0 } else { *bias.add(i) };
            *y.add(i) = (rest(i) * factor).mul_add(*weight.add(i), added);
        }
    }
}
