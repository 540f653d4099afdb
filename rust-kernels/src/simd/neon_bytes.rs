//! NEON's byte products: widening multiplications, `sdot`, `usdot`, and `usmmla` for two rows by two.
//!
//! Stable Rust has no intrinsics for the last three, so they are inline assembly.
use super::RowPairs;
use super::neon::{MATRIX, Neon, WIDENING};
use std::arch::aarch64::*;
use std::arch::asm;

/// Computes acc + the products of four columns per lane with bytes 4 * I..4 * I + 4 of x. Safety: the CPU has the
/// extension.
macro_rules! dot {
    ($instruction:literal of $extension:literal, $acc:ident, $w:expr, $x:ident, $i:literal) => {
        // Kernels enable the extension themselves. The directive is for copies of this code outside the kernels.
        asm!(
            concat!(".arch_extension ", $extension),
            concat!($instruction, " {acc:v}.4s, {w:v}.16b, {x:v}.4b[", $i, "]"),
            acc = inout(vreg) $acc,
            w = in(vreg) $w,
            x = in(vreg) $x,
            options(pure, nomem, nostack, preserves_flags)
        )
    };
}

impl<const DOT: u8> Neon<DOT> {
    /// Computes `dot16` by widening multiplications for two of a vector's four lanes. Returns one 32-bit sum for each
    /// pair of columns. Products are at most (2^BITS - 1) * 127, or 128 * 127 for 8 bits. So 16 bits hold sums of four
    /// products for codes of up to 6 bits, and sums of two for more bits.
    ///
    /// # Safety
    /// As `Simd`.
    #[inline(always)]
    unsafe fn pairs<const BITS: u32>(w: [int8x8_t; 4], x: [int8x8_t; 4]) -> int32x4_t {
        unsafe {
            let first = vmlal_s8(vmull_s8(w[0], x[0]), w[1], x[1]);
            if BITS <= 6 {
                return vpaddlq_s16(vmlal_s8(vmlal_s8(first, w[2], x[2]), w[3], x[3]));
            }
            vpadalq_s16(vpaddlq_s16(first), vmlal_s8(vmull_s8(w[2], x[2]), w[3], x[3]))
        }
    }

    /// Computes `dot16` by widening multiplications, without a previous sum.
    ///
    /// # Safety
    /// As `Simd`.
    #[inline(always)]
    unsafe fn widening<const BITS: u32>([a, b, c, d]: [int8x16_t; 4], x: int8x16_t) -> int32x4_t {
        unsafe {
            let x = vreinterpretq_s32_s8(x);
            let x = [
                vreinterpret_s8_s32(vdup_laneq_s32::<0>(x)),
                vreinterpret_s8_s32(vdup_laneq_s32::<1>(x)),
                vreinterpret_s8_s32(vdup_laneq_s32::<2>(x)),
                vreinterpret_s8_s32(vdup_laneq_s32::<3>(x)),
            ];
            let low = [vget_low_s8(a), vget_low_s8(b), vget_low_s8(c), vget_low_s8(d)];
            let high = [vget_high_s8(a), vget_high_s8(b), vget_high_s8(c), vget_high_s8(d)];
            vpaddq_s32(Self::pairs::<BITS>(low, x), Self::pairs::<BITS>(high, x))
        }
    }

    /// Returns codes as signed bytes. An 8-bit code stands for code - 128, so its sign bit is flipped.
    ///
    /// # Safety
    /// As `Simd`.
    #[inline(always)]
    unsafe fn signed<const BITS: u32>(w: uint8x16_t) -> int8x16_t {
        unsafe { vreinterpretq_s8_u8(if BITS == 8 { veorq_u8(w, vdupq_n_u8(0x80)) } else { w }) }
    }

    /// Computes `Simd::dot16` with x in a vector.
    ///
    /// # Safety
    /// As `Simd`.
    #[inline(always)]
    pub(super) unsafe fn bytes<const BITS: u32>(self, acc: int32x4_t, w: [uint8x16_t; 4], x: int8x16_t) -> int32x4_t {
        unsafe {
            if DOT == MATRIX {
                let mut sum = acc;
                dot!("usdot" of "i8mm", sum, w[0], x, 0);
                dot!("usdot" of "i8mm", sum, w[1], x, 1);
                dot!("usdot" of "i8mm", sum, w[2], x, 2);
                dot!("usdot" of "i8mm", sum, w[3], x, 3);
                return sum;
            }
            let w = [
                Self::signed::<BITS>(w[0]),
                Self::signed::<BITS>(w[1]),
                Self::signed::<BITS>(w[2]),
                Self::signed::<BITS>(w[3]),
            ];
            Self::signed_products::<BITS>(acc, w, x)
        }
    }

    /// Computes `Simd::dot16_signed` with x in a vector.
    ///
    /// # Safety
    /// As `Simd`.
    #[inline(always)]
    pub(super) unsafe fn signed_bytes(self, acc: int32x4_t, w: [uint8x16_t; 4], x: int8x16_t) -> int32x4_t {
        unsafe {
            let w = [
                vreinterpretq_s8_u8(w[0]),
                vreinterpretq_s8_u8(w[1]),
                vreinterpretq_s8_u8(w[2]),
                vreinterpretq_s8_u8(w[3]),
            ];
            Self::signed_products::<8>(acc, w, x)
        }
    }

    /// Computes acc + the products of signed bytes.
    ///
    /// # Safety
    /// As `Simd`.
    #[inline(always)]
    unsafe fn signed_products<const BITS: u32>(acc: int32x4_t, w: [int8x16_t; 4], x: int8x16_t) -> int32x4_t {
        unsafe {
            if DOT == WIDENING {
                return vaddq_s32(acc, Self::widening::<BITS>(w, x));
            }
            let mut sum = acc;
            dot!("sdot" of "dotprod", sum, w[0], x, 0);
            dot!("sdot" of "dotprod", sum, w[1], x, 1);
            dot!("sdot" of "dotprod", sum, w[2], x, 2);
            dot!("sdot" of "dotprod", sum, w[3], x, 3);
            sum
        }
    }
}

impl RowPairs for Neon<MATRIX> {
    #[inline(always)]
    fn pair_codes(self, a: Self::B, b: Self::B) -> [Self::B; 2] {
        unsafe {
            let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
            [vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))]
        }
    }

    #[inline(always)]
    fn repeat_rows(self, a: Self::F) -> [Self::F; 2] {
        unsafe { [vzip1q_f32(a, a), vzip2q_f32(a, a)] }
    }

    #[inline(always)]
    unsafe fn load_pair(self, p: *const f32) -> Self::F {
        unsafe { vreinterpretq_f32_u64(vdupq_n_u64(p.cast::<u64>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn load_pair_i(self, p: *const i32) -> Self::I {
        unsafe { vreinterpretq_s32_u64(vdupq_n_u64(p.cast::<u64>().read_unaligned())) }
    }

    #[inline(always)]
    fn rows_of_x(self, [a, b]: [Self::F; 2]) -> [Self::F; 2] {
        unsafe { [vuzp1q_f32(a, b), vuzp2q_f32(a, b)] }
    }

    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::B, x: Self::B) -> Self::I {
        let mut sum = acc;
        // SAFETY: the token exists, so the CPU has the extension.
        unsafe {
            asm!(
                ".arch_extension i8mm",
                "usmmla {acc:v}.4s, {w:v}.16b, {x:v}.16b",
                acc = inout(vreg) sum,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Simd;

    #[test]
    fn row_pairs_give_the_products_of_each_row() {
        let Some(s) = Neon::<MATRIX>::new() else { return };
        // Codes of four rows and eight columns in panel layout: columns 0..4 of every row, then columns 4..8.
        let codes: [u8; 32] = std::array::from_fn(|i| if i % 7 == 0 { 255 } else { (i * 151 + 3) as u8 });
        let x: [i8; 16] = std::array::from_fn(|i| if i % 5 == 0 { -127 } else { (i * 89 + 7) as i8 });
        let (starts, scales) = ([1_000_000, -7], [1.0, 2.0, 4.0, 8.0f32]);
        let mut got = [[0f32; 4]; 2];
        // SAFETY: each array is as long as the load or store needs.
        unsafe {
            let w = s.pair_codes(s.b_load(codes.as_ptr()), s.b_load(codes[16..].as_ptr()));
            let (first, x) = (s.load_pair_i(starts.as_ptr()), s.b_load(x.as_ptr().cast()));
            let scale = s.repeat_rows(s.load(scales.as_ptr()));
            let sums = [0, 1].map(|h| s.mul(scale[h], s.i_to_f(s.dot_pairs(first, w[h], x))));
            for (got, sums) in got.iter_mut().zip(s.rows_of_x(sums)) {
                s.store(got.as_mut_ptr(), sums);
            }
        }
        for (i, got) in got.iter().enumerate() {
            for (r, got) in got.iter().enumerate() {
                let code = |c: usize| i32::from(codes[c / 4 * 16 + 4 * r + c % 4]);
                let products: i32 = (0..8).map(|c| code(c) * i32::from(x[8 * i + c])).sum();
                assert_eq!(*got, scales[r] * (starts[i] + products) as f32, "row {r} of W, row {i} of x");
            }
        }
    }
}
