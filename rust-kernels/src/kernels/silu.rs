//! The activation of SwiGLU, of the short convolution and of gates.
use crate::simd::{Simd, exp};

/// x / (1 + e^-x).
///
/// # Safety
/// S as simd says.
#[inline(always)]
pub unsafe fn silu<S: Simd>(x: S::F) -> S::F {
    unsafe {
        let negated = S::sub(S::splat(0.0), x);
        S::div(x, S::add(S::splat(1.0), exp::<S>(negated)))
    }
}
