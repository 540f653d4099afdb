//! Converts 16-bit floats, 8-bit exponents and 8-bit floats in plain Rust. Vector conversions are tested against this
//! code.

/// Converts an IEEE binary16 number to f32, exactly.
#[inline]
pub fn f16_to_f32(h: u16) -> f32 {
    let (sign, exponent, mantissa) = (u32::from(h & 0x8000) << 16, u32::from(h >> 10) & 31, u32::from(h & 0x3ff));
    match exponent {
        0 => f32::from_bits(sign | (mantissa as f32 / (1 << 24) as f32).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | mantissa << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | mantissa << 13),
    }
}

/// Rounds an f32 to IEEE binary16. Ties go to even, overflow to infinity.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, magnitude) = ((bits >> 16) as u16 & 0x8000, bits & 0x7fff_ffff);
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00; // NaN
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00; // 65536 or more
    }
    if magnitude < 0x3880_0000 {
        // Below 2^-14 the result is subnormal. Adding 0.5 makes the float unit round it.
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0x3f00_0000) as u16;
    }
    let odd = (magnitude >> 13) & 1;
    sign | ((magnitude - 0x3800_0000 + 0xfff + odd) >> 13) as u16
}

#[inline]
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// Returns 2^(e - 128), exactly. This is half of the E8M0 value, because MXFP4's code table is doubled.
#[inline]
pub fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}

/// Returns half of the unsigned E4M3 value, exactly, because NVFP4's code table is doubled. e is below 128. The largest
/// result is 240, because E4M3's largest exponent is a number too.
#[inline]
pub fn e4m3_half(e: u8) -> f32 {
    let (exponent, fraction) = (u32::from(e >> 3), u32::from(e & 7));
    if exponent == 0 { fraction as f32 / 1024.0 } else { f32::from_bits((exponent + 119) << 23 | fraction << 20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_survives_the_round_trip_for_every_value() {
        for h in 0..=u16::MAX {
            let x = f16_to_f32(h);
            if x.is_nan() {
                assert!(f16_to_f32(f32_to_f16(x)).is_nan());
            } else {
                assert_eq!(f32_to_f16(x), h, "{h:#06x} = {x}");
            }
        }
    }

    #[test]
    fn f32_to_f16_rounds_to_nearest_with_ties_to_even() {
        for h in 0..0x7bffu16 {
            let (low, high) = (f16_to_f32(h), f16_to_f32(h + 1));
            let middle = (low + high) / 2.0;
            assert_eq!(f32_to_f16(middle), h + (h & 1));
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() - 1)), h);
            assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() + 1)), h + 1);
        }
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(65519.9), 0x7bff);
    }

    #[test]
    fn e8m0_half_is_exact_down_to_subnormals() {
        assert_eq!(e8m0_half(0), f32::MIN_POSITIVE / 4.0);
        assert_eq!(e8m0_half(1), f32::MIN_POSITIVE / 2.0);
        assert_eq!(e8m0_half(2), f32::MIN_POSITIVE); // 2^-126
        assert_eq!(e8m0_half(128), 1.0);
        assert_eq!(e8m0_half(254), 1.0 / f32::MIN_POSITIVE);
    }

    #[test]
    fn e4m3_half_has_a_bias_of_seven_and_subnormals() {
        let halves =
            [(0, 0.0), (1, 1.0 / 1024.0), (7, 7.0 / 1024.0), (8, 8.0 / 1024.0), (56, 0.5), (60, 0.75), (126, 224.0)];
        for (e, want) in halves {
            assert_eq!(e4m3_half(e), want, "{e}");
        }
    }
}
