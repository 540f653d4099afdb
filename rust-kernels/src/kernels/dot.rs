//! Dot products of floats.
use crate::simd::{Kernel, Simd};

/// The sum of a[i] * b[i].
///
/// # Safety
/// `a` and `b` hold `n` floats, a multiple of LANES; S as simd says.
#[inline(always)]
pub unsafe fn dot<S: Simd>(a: *const f32, b: *const f32, n: usize) -> f32 {
    unsafe {
        let mut sum = S::splat(0.0);
        for i in (0..n).step_by(S::LANES) {
            sum = S::fma(S::load(a.add(i)), S::load(b.add(i)), sum);
        }
        S::sum(sum)
    }
}

/// `dot` as a kernel.
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
    unsafe fn run<S: Simd>(self) -> f32 {
        unsafe { dot::<S>(self.a, self.b, self.n) }
    }
}
