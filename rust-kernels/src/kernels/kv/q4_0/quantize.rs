//! Quantizes 32 floats to BITS bits. A code c stands for (c - 2^(BITS - 1)) * scale. With 4 bits this is GGUF's Q4_0.
use super::SCALED;
use crate::kernels::kv::HALF_MAX;
use crate::simd::Simd;

/// `quantize` tries one set of codes per entry. The entry is the unrounded signed code of the number furthest from
/// zero, as a multiple of 2^(BITS - 1). With 4 bits, the best of the four sets has a tenth less error than the set of
/// -1.
const EXTREMES: [f32; 4] = [-1.0625, -1.0, -0.9375, -0.875];
/// Numbers below this size have the scale 0 as a half float.
const LEAST: f32 = 1e-7;

/// Returns the codes of the numbers at `x`, and their scale as a half float. It tries several sets of codes, each with
/// its best scale, and takes the set with the least sum of squared errors.
///
/// # Safety
/// `x` holds SCALED finite floats.
#[inline(always)]
pub unsafe fn quantize<S: Simd, const BITS: u32>(s: S, x: *const f32) -> ([u8; SCALED], u16) {
    unsafe {
        let (inverse, scale) = best::<S, BITS>(s, x);
        let mut halves = [0u16; 16];
        s.store_f16(halves.as_mut_ptr(), s.splat(scale.clamp(-HALF_MAX, HALF_MAX)));
        let mut codes = [0i8; SCALED];
        for i in (0..SCALED).step_by(S::LANES) {
            s.store_i8(codes.as_mut_ptr().add(i), code::<S, BITS>(s, s.load(x.add(i)), s.splat(inverse)));
        }
        (codes.map(|code| (code + (1 << (BITS - 1))).cast_unsigned()), halves[0])
    }
}

/// Returns the numbers' codes as integral floats in -2^(BITS - 1)..2^(BITS - 1).
#[inline(always)]
fn code<S: Simd, const BITS: u32>(s: S, x: S::F, inverse: S::F) -> S::F {
    let most = (1 << (BITS - 1)) as f32;
    s.max(s.min(s.round(s.mul(x, inverse)), s.splat(most - 1.0)), s.splat(-most))
}

/// Returns the factor by which numbers become codes, and the scale by which codes become numbers.
#[inline(always)]
unsafe fn best<S: Simd, const BITS: u32>(s: S, x: *const f32) -> (f32, f32) {
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
            return (0.0, 0.0);
        }
        let (mut best, mut found) = (0.0, (0.0, 0.0));
        for extreme in EXTREMES {
            let inverse = extreme * (1 << (BITS - 1)) as f32 / furthest;
            let (mut products, mut squares) = (s.splat(0.0), s.splat(0.0));
            for i in (0..SCALED).step_by(S::LANES) {
                let x = s.load(x.add(i));
                let code = code::<S, BITS>(s, x, s.splat(inverse));
                products = s.fma(x, code, products);
                squares = s.fma(code, code, squares);
            }
            let (products, squares) = (s.sum(products), s.sum(squares));
            // With the best scale for these codes, the sum of squared errors is that of x less this number.
            let explained = products * products / squares;
            if explained > best {
                (best, found) = (explained, (inverse, products / squares));
            }
        }
        found
    }
}
