//! The function softplus, ln(1 + e^x), which turns any number into a positive step size.
use crate::simd::{Simd, exp};

/// Returns ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), within about 4 units in the last place.
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let zero = s.splat(0.0);
    let e = exp(s, s.sub(zero, s.abs(x)));
    // With w = e / (2 + e) <= 1/3, ln(1 + e) = 2 artanh(w). The error of artanh's series up to w^17 is below 1e-9.
    let w = s.div(e, s.add(s.splat(2.0), e));
    let square = s.mul(w, w);
    let mut sum = s.splat(1.0 / 17.0);
    for n in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = s.fma(sum, square, s.splat(1.0 / n));
    }
    s.add(s.max(zero, x), s.mul(s.add(w, w), sum))
}
