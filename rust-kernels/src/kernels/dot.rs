//! The dot product of two vectors of floats.
use crate::simd::{Kernel, Simd};

/// Returns the dot product of `a` and `b`: the sum of a[i] * b[i].
///
/// # Safety
/// `a` and `b` hold `n` floats, a multiple of LANES.
#[inline(always)]
pub unsafe fn dot<S: Simd>(s: S, a: *const f32, b: *const f32, n: usize) -> f32 {
    unsafe {
        let mut sum = s.splat(0.0);
        for i in (0..n).step_by(S::LANES) {
            sum = s.fma(s.load(a.add(i)), s.load(b.add(i)), sum);
        }
        s.sum(sum)
    }
}

/// The dot product `dot` as a kernel.
///
/// # Safety
/// As `dot`.
pub struct Dot {
    pub a: *const f32,
    pub b: *const f32,
    pub n: usize,
}

impl Kernel for Dot {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> f32 {
        unsafe { dot(s, self.a, self.b, self.n) }
    }
}
