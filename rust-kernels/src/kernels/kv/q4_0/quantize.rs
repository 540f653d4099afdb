//! Quantizes 32 floats to 4 bits, as in GGUF's Q4_0: a code c stands for (c - 8) * scale.
use super::SCALED;
use crate::kernels::kv::HALF_MAX;
use crate::simd::Simd;

/// The code of the number furthest from zero, for each scale that `quantize` tries. Rounded it is -8 or -7. Trying
/// several scales leaves a tenth less error (docs/lab/2026-11.md).
const EXTREMES: [f32; 4] = [-8.5, -8.0, -7.5, -7.0];
/// Numbers below this size have the scale 0 as a half float.
const LEAST: f32 = 1e-7;

/// Returns the codes of the numbers at `x`, and their scale as a half float.
///
/// # Safety
/// `x` holds SCALED finite floats.
#[inline(always)]
pub unsafe fn quantize<S: Simd>(s: S, x: *const f32) -> ([u8; SCALED], u16) {
    unsafe {
        let scale = best_scale(s, x);
        let mut halves = [0u16; 16];
        s.store_f16(halves.as_mut_ptr(), s.splat(scale));
        let mut rounded = [0f32; 16];
        s.store(rounded.as_mut_ptr(), s.load_f16(halves.as_ptr()));
        let inverse = if rounded[0] == 0.0 { 0.0 } else { 1.0 / rounded[0] };
        let mut codes = [0i8; SCALED];
        for i in (0..SCALED).step_by(S::LANES) {
            s.store_i8(codes.as_mut_ptr().add(i), code(s, s.load(x.add(i)), s.splat(inverse)));
        }
        (codes.map(|code| (code + 8).cast_unsigned()), halves[0])
    }
}

/// Returns the codes of some numbers as integral floats, in -8..=7.
#[inline(always)]
fn code<S: Simd>(s: S, x: S::F, inverse: S::F) -> S::F {
    s.max(s.min(s.round(s.mul(x, inverse)), s.splat(7.0)), s.splat(-8.0))
}

/// Returns the scale that leaves the least sum of squared errors, among those of EXTREMES. For the codes of each, it
/// takes the scale that fits these codes best. The scale is in the range of half floats.
#[inline(always)]
unsafe fn best_scale<S: Simd>(s: S, x: *const f32) -> f32 {
    unsafe {
        let (mut above, mut below) = (s.splat(0.0), s.splat(0.0));
        for i in (0..SCALED).step_by(S::LANES) {
            let x = s.load(x.add(i));
            above = s.max(above, x);
            below = s.max(below, s.sub(s.splat(0.0), x));
        }
        let (above, below) = (s.largest(above), s.largest(below));
        let furthest = if above > below { above } else { -below };
        if furthest.abs() < LEAST {
            return 0.0;
        }
        let (mut best, mut scale) = (0.0, 0.0);
        for extreme in EXTREMES {
            let inverse = s.splat(extreme / furthest);
            let (mut products, mut squares) = (s.splat(0.0), s.splat(0.0));
            for i in (0..SCALED).step_by(S::LANES) {
                let x = s.load(x.add(i));
                let code = code(s, x, inverse);
                products = s.fma(x, code, products);
                squares = s.fma(code, code, squares);
            }
            let (products, squares) = (s.sum(products), s.sum(squares));
            // With the best scale for these codes, the sum of squared errors is that of x less this number.
            let explained = products * products / squares;
            if explained > best {
                (best, scale) = (explained, products / squares);
            }
        }
        scale.clamp(-HALF_MAX, HALF_MAX)
    }
}
