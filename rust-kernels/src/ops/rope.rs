//! Rotary positions and per-head norms.
use super::norm::{inverse_rms, scale_by};
use crate::simd::{Kernel, Simd};

/// Fills one row of the table: cos of every angle, then sin.
///
/// # Safety
/// `table` holds 2 * `frequencies.len()` floats.
pub unsafe fn rope_table(position: usize, frequencies: &[f64], table: *mut f32) {
    let half = frequencies.len();
    for (i, frequency) in frequencies.iter().enumerate() {
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        // SAFETY: i < half.
        unsafe {
            *table.add(i) = cos as f32;
            *table.add(half + i) = sin as f32;
        }
    }
}

/// How heads are turned.
#[derive(Clone, Copy)]
pub struct RopeShape {
    pub head_dim: usize,
    /// Leading dimensions that are rotated.
    pub rotated: usize,
    /// Pairs (2i, 2i + 1) as in llama's GGUF layout; otherwise (i, i + rotated / 2).
    pub interleaved: bool,
    pub eps: f32,
}

/// Normalises (with a weight) and rotates one head in place.
///
/// # Safety
/// `x` holds head_dim floats, `table` `rotated`, `weight` head_dim or is null.
pub struct NormAndRotate<'a> {
    pub x: *mut f32,
    pub weight: *const f32,
    pub table: *const f32,
    pub shape: &'a RopeShape,
}

impl Kernel for NormAndRotate<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { x, weight, table, shape } = self;
        unsafe {
            if !weight.is_null() {
                let factor = inverse_rms::<S>(x, shape.head_dim, shape.eps);
                scale_by::<S>(x, weight, shape.head_dim, factor, x);
            }
            let half = shape.rotated / 2;
            if shape.interleaved {
                for i in 0..half {
                    rotate_pair(x.add(2 * i), x.add(2 * i + 1), *table.add(i), *table.add(half + i));
                }
                return;
            }
            let whole = half / S::LANES * S::LANES;
            for i in (0..whole).step_by(S::LANES) {
                let (cos, sin) = (S::load(table.add(i)), S::load(table.add(half + i)));
                let (a, b) = (S::load(x.add(i)), S::load(x.add(half + i)));
                S::store(x.add(i), S::sub(S::mul(a, cos), S::mul(b, sin)));
                S::store(x.add(half + i), S::add(S::mul(a, sin), S::mul(b, cos)));
            }
            for i in whole..half {
                rotate_pair(x.add(i), x.add(half + i), *table.add(i), *table.add(half + i));
            }
        }
    }
}

#[inline(always)]
unsafe fn rotate_pair(first: *mut f32, second: *mut f32, cos: f32, sin: f32) {
    unsafe {
        let (a, b) = (*first, *second);
        *first = a * cos - b * sin;
        *second = a * sin + b * cos;
    }
}
