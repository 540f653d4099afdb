//! The activation of SwiGLU, of the short convolution and of gates.
use crate::simd::{Simd, exp};

/// x / (1 + e^-x).
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    let negated = s.sub(s.splat(0.0), x);
    s.div(x, s.add(s.splat(1.0), exp(s, negated)))
}
