//! Quantizes 32 floats to 4 bits, as in GGUF's Q4_0: a code c stands for (c - 8) * scale.
use super::SCALED;
use crate::kernels::kv::HALF_MAX;
use crate::simd::Simd;

/// The code of the number furthest from zero, for each set of codes that `quantize` tries, less 8 and before it is
/// rounded. The best of four leaves a tenth less error than -8 alone.
const EXTREMES: [f32; 4] = [-8.5, -8.0, -7.5, -7.0];
/// Numbers below this size have the scale 0 as a half float.
const LEAST: f32 = 1e-7;

/// Returns the codes of the numbers at `x`, and their scale as a half float. Of some sets of codes it takes the one
/// that is most nearly parallel to x. The scale of a KEY gives the codes' product with x its exact size, so that scores
/// are not systematically too small. Other scales leave the least sum of squared errors.
///
/// # Safety
/// `x` holds SCALED finite floats.
#[inline(always)]
pub unsafe fn quantize<S: Simd, const KEY: bool>(s: S, x: *const f32) -> ([u8; SCALED], u16) {
    unsafe {
        let (inverse, scale) = best::<S, KEY>(s, x);
        let mut halves = [0u16; 16];
        s.store_f16(halves.as_mut_ptr(), s.splat(scale.clamp(-HALF_MAX, HALF_MAX)));
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

/// Returns the factor by which numbers become codes, and the scale by which codes become numbers.
#[inline(always)]
unsafe fn best<S: Simd, const KEY: bool>(s: S, x: *const f32) -> (f32, f32) {
    unsafe {
        let (mut above, mut below, mut size) = (s.splat(0.0), s.splat(0.0), s.splat(0.0));
        for i in (0..SCALED).step_by(S::LANES) {
            let x = s.load(x.add(i));
            above = s.max(above, x);
            below = s.max(below, s.sub(s.splat(0.0), x));
            size = s.fma(x, x, size);
        }
        let (above, below) = (s.largest(above), s.largest(below));
        let furthest = if above > below { above } else { -below };
        if furthest.abs() < LEAST {
            return (0.0, 0.0);
        }
        let size = s.sum(size);
        let (mut best, mut found) = (0.0, (0.0, 0.0));
        for extreme in EXTREMES {
            let inverse = extreme / furthest;
            let (mut products, mut squares) = (s.splat(0.0), s.splat(0.0));
            for i in (0..SCALED).step_by(S::LANES) {
                let x = s.load(x.add(i));
                let code = code(s, x, s.splat(inverse));
                products = s.fma(x, code, products);
                squares = s.fma(code, code, squares);
            }
            let (products, squares) = (s.sum(products), s.sum(squares));
            // With the best scale for these codes, the sum of squared errors is that of x less this number.
            let explained = products * products / squares;
            if explained > best {
                (best, found) = (explained, (inverse, if KEY { size / products } else { products / squares }));
            }
        }
        found
    }
}
