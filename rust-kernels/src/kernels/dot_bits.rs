//! Calls the dot products of `Simd` with the code width of a format.
use crate::formats::BlockFormat;
use crate::simd::{Ahead, Pace, Simd};

/// Passes the format's code width to `Simd`'s dot products. The methods list the widths, because a const generic cannot
/// name an associated constant.
pub(super) trait DotBits: Simd {
    #[inline(always)]
    unsafe fn dot16_rows_bits<F: BlockFormat, const N: usize>(
        self,
        acc: &mut [Self::I; N],
        w: [Self::B; 4],
        x: *const i8,
        ahead: Ahead,
    ) {
        unsafe {
            match F::BITS {
                0..=5 => self.dot16_rows::<5, N>(acc, w, x, ahead),
                6 => self.dot16_rows::<6, N>(acc, w, x, ahead),
                7 => self.dot16_rows::<7, N>(acc, w, x, ahead),
                _ => self.dot16_rows::<8, N>(acc, w, x, ahead),
            }
        }
    }

    #[inline(always)]
    unsafe fn dot32_rows_bits<F: BlockFormat, const N: usize>(
        self,
        acc: &mut [Self::I; N],
        w: [Self::B; 8],
        x: *const i8,
        ahead: Ahead,
    ) {
        unsafe {
            match F::BITS {
                0..=4 => self.dot32_rows::<4, N>(acc, w, x, ahead),
                5 => self.dot32_rows::<5, N>(acc, w, x, ahead),
                6 => self.dot32_rows::<6, N>(acc, w, x, ahead),
                7 => self.dot32_rows::<7, N>(acc, w, x, ahead),
                _ => self.dot32_rows::<8, N>(acc, w, x, ahead),
            }
        }
    }

    #[inline(always)]
    unsafe fn dot16_unit_bits<F: BlockFormat, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
    ) {
        unsafe {
            match F::BITS {
                0..=5 => self.dot16_unit::<5, P, N>(acc, w, panel, x),
                6 => self.dot16_unit::<6, P, N>(acc, w, panel, x),
                7 => self.dot16_unit::<7, P, N>(acc, w, panel, x),
                _ => self.dot16_unit::<8, P, N>(acc, w, panel, x),
            }
        }
    }

    #[inline(always)]
    unsafe fn dot32_unit_bits<F: BlockFormat, const P: usize, const N: usize>(
        self,
        acc: &mut [[Self::I; N]; P],
        w: *const u8,
        panel: usize,
        x: *const i8,
        next: &mut Pace,
    ) {
        unsafe {
            match F::BITS {
                0..=4 => self.dot32_unit::<4, P, N>(acc, w, panel, x, next),
                5 => self.dot32_unit::<5, P, N>(acc, w, panel, x, next),
                6 => self.dot32_unit::<6, P, N>(acc, w, panel, x, next),
                7 => self.dot32_unit::<7, P, N>(acc, w, panel, x, next),
                _ => self.dot32_unit::<8, P, N>(acc, w, panel, x, next),
            }
        }
    }

    #[inline(always)]
    unsafe fn put_codes_bits<F: BlockFormat>(self, to: *mut u8, g: usize, codes: Self::B) {
        unsafe { if F::BITS < 8 { self.put_codes::<7>(to, g, codes) } else { self.put_codes::<8>(to, g, codes) } }
    }
}
impl<S: Simd> DotBits for S {}
