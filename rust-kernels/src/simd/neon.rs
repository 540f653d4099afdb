//! NEON: four lanes. Its byte products are in `neon_bytes`.
//!
//! Inline assembly replaces intrinsics that stable Rust lacks (half float conversions, prefetch).
use super::Simd;
use std::arch::aarch64::*;
use std::arch::asm;

/// Token for NEON. DOT: the instructions that multiply bytes, one of the constants below.
#[derive(Clone, Copy)]
pub struct Neon<const DOT: u8>(pub(super) ());

/// Value of DOT: widening multiplications, which every CPU has.
pub const WIDENING: u8 = 0;
/// Value of DOT: `sdot` of the dotprod extension.
pub const SDOT: u8 = 1;
/// Value of DOT: `usdot` and `usmmla` of the i8mm extension. They take unsigned codes, where `sdot` needs signed ones.
pub const MATRIX: u8 = 2;

/// Prefetches the cache line at p. `how` is the kind of hint that `prfm` takes.
macro_rules! prefetch {
    ($how:literal, $p:ident) => {
        // SAFETY: this is only a hint, and its address may be invalid.
        unsafe { asm!(concat!("prfm ", $how, ", [{p}]"), p = in(reg) $p.addr(), options(nomem, nostack, preserves_flags)) }
    };
}

/// Shifts by n < 8 bits. The instruction needs a constant; after inlining n is a constant.
macro_rules! shift {
    ($shift:ident, $a:ident, $n:ident) => {
        match $n {
            0 => $a,
            1 => $shift::<1>($a),
            2 => $shift::<2>($a),
            3 => $shift::<3>($a),
            4 => $shift::<4>($a),
            5 => $shift::<5>($a),
            6 => $shift::<6>($a),
            _ => $shift::<7>($a),
        }
    };
}

type F = float32x4_t;
type I = int32x4_t;
type B = uint8x16_t;

impl<const DOT: u8> Simd for Neon<DOT> {
    const LANES: usize = 4;
    const TILE: usize = 8;
    const PANELS: usize = 3;
    const FLOAT_PANELS: usize = 4;
    const WIDE_TOKENS: usize = 17;
    const WIDE_TOKENS_SLOW: usize = 17;
    const WIDE_BIAS: i32 = if DOT == MATRIX { 128 } else { 0 };
    // Codes of a lane are not adjacent, because `smlal` takes four codes of four lanes.
    const PAIRS_TOGETHER: bool = false;
    const PAIR_ROWS: usize = 8;
    const ROW_PAIRS: bool = DOT == MATRIX;
    type F = F;
    type I = I;
    type B = B;
    one_register! {}

    wrappers! {
        fn splat(self, x: f32) -> F = vdupq_n_f32(x);
        unsafe fn load(self, p: *const f32) -> F = vld1q_f32(p);
        unsafe fn store(self, p: *mut f32, v: F) = vst1q_f32(p, v);
        fn add(self, a: F, b: F) -> F = vaddq_f32(a, b);
        fn sub(self, a: F, b: F) -> F = vsubq_f32(a, b);
        fn mul(self, a: F, b: F) -> F = vmulq_f32(a, b);
        fn div(self, a: F, b: F) -> F = vdivq_f32(a, b);
        fn fma(self, a: F, b: F, c: F) -> F = vfmaq_f32(c, a, b);
        fn fnma(self, a: F, b: F, c: F) -> F = vfmsq_f32(c, a, b);
        fn max(self, a: F, b: F) -> F = vbslq_f32(vcgtq_f32(a, b), a, b); // fmax would return NaN if either side is NaN
        fn min(self, a: F, b: F) -> F = vbslq_f32(vcltq_f32(a, b), a, b);
        fn abs(self, a: F) -> F = vabsq_f32(a);
        fn round(self, a: F) -> F = vrndnq_f32(a);
        fn pow2(self, n: F) -> F =
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127))));
        fn zero_below(self, x: F, limit: F, y: F) -> F =
            vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(x, limit), vreinterpretq_u32_f32(y)));
        fn sum(self, a: F) -> f32 = vaddvq_f32(a);
        fn largest(self, a: F) -> f32 = vmaxvq_f32(a);
        unsafe fn load_bf16(self, p: *const u16) -> F = vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p)));
        unsafe fn load_u8(self, p: *const u8) -> F = vcvtq_f32_u32(load_bytes(p));
        unsafe fn store_i16(self, p: *mut i16, v: F) = vst1_s16(p, vmovn_s32(vcvtnq_s32_f32(v)));
        fn i_splat(self, x: i32) -> I = vdupq_n_s32(x);
        fn i_add(self, a: I, b: I) -> I = vaddq_s32(a, b);
        fn i_sum(self, a: I) -> i32 = vaddvq_s32(a);
        fn i_to_f(self, a: I) -> F = vcvtq_f32_s32(a);
        fn i_as_f(self, a: I) -> F = vreinterpretq_f32_s32(a);
        unsafe fn dot16_signed(self, acc: I, w: [B; 4], x: *const i8) -> I = self.signed_bytes(acc, w, vld1q_s8(x));
        fn prefetch(self, p: *const u8) = prefetch!("pldl1keep", p);
        fn prefetch_l2(self, p: *const u8) = prefetch!("pldl2keep", p);
        fn prefetch_write(self, p: *const u8) = prefetch!("pstl1keep", p);
        unsafe fn b_load(self, p: *const u8) -> B = vld1q_u8(p);
        unsafe fn b_store(self, p: *mut u8, v: B) = vst1q_u8(p, v);
        fn b_and(self, a: B, mask: u8) -> B = vandq_u8(a, vdupq_n_u8(mask));
        fn b_or(self, a: B, b: B) -> B = vorrq_u8(a, b);
        fn b_shr(self, a: B, n: u32) -> B = shift!(vshrq_n_u8, a, n);
        fn b_shl(self, a: B, n: u32) -> B = shift!(vshlq_n_u8, a, n);
        fn b_lookup(self, table: &[u8; 16], index: B) -> B = vqtbl1q_u8(vld1q_u8(table.as_ptr()), index);
        fn b_mirror(self, a: B, signs: B, bit: u8, c: u8) -> B =
            vbslq_u8(vtstq_u8(signs, vdupq_n_u8(bit)), vsubq_u8(vdupq_n_u8(c), a), a);
        fn b_triple(self, a: B) -> B = vaddq_u8(vaddq_u8(a, a), a);
        fn b_and32(self, a: B, mask: u32) -> B = vandq_u8(a, vreinterpretq_u8_u32(vdupq_n_u32(mask)));
        fn b_shr32(self, a: B, n: u32) -> B =
            vreinterpretq_u8_u32(vshlq_u32(vreinterpretq_u32_u8(a), vdupq_n_s32(-(n as i32))));
        fn b_shl32(self, a: B, n: u32) -> B =
            vreinterpretq_u8_u32(vshlq_u32(vreinterpretq_u32_u8(a), vdupq_n_s32(n as i32)));
        fn b_to_f(self, a: B) -> F = vcvtq_f32_s32(vreinterpretq_s32_u8(a));
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        unsafe {
            let out: float32x4_t;
            asm!(
                "fcvtl {out:v}.4s, {halves:v}.4h",
                out = lateout(vreg) out,
                halves = in(vreg) vld1_u16(p),
                options(pure, nomem, nostack, preserves_flags)
            );
            out
        }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        unsafe {
            let halves: uint16x4_t;
            asm!(
                "fcvtn {halves:v}.4h, {v:v}.4s",
                halves = lateout(vreg) halves,
                v = in(vreg) v,
                options(pure, nomem, nostack, preserves_flags)
            );
            vst1_u16(p, halves);
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        unsafe {
            let bytes = vreinterpret_s8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        }
    }

    #[inline(always)]
    unsafe fn load_e8m0_half(self, p: *const u8) -> Self::F {
        unsafe {
            let e = load_bytes(p);
            let normal = vshlq_n_u32::<23>(vsubq_u32(e, vdupq_n_u32(1)));
            let subnormal = vshlq_u32(vdupq_n_u32(0x0020_0000), vreinterpretq_s32_u32(e));
            vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), subnormal, normal))
        }
    }

    /// Reads E4M3's bits as half floats. They are too small by 2^8, the difference of the exponent biases. So a factor
    /// of 2^7 gives half of the value.
    #[inline(always)]
    unsafe fn load_e4m3_half(self, p: *const u8) -> Self::F {
        unsafe {
            let halves = vshlq_n_u16::<7>(vmovl_u8(vcreate_u8(u64::from(p.cast::<u32>().read_unaligned()))));
            let words: [u16; 4] = std::mem::transmute(vget_low_u16(halves));
            vmulq_n_f32(self.load_f16(words.as_ptr()), 128.0)
        }
    }

    #[inline(always)]
    unsafe fn store_i8(self, p: *mut i8, v: Self::F) -> Self::I {
        unsafe {
            let q = vcvtnq_s32_f32(v);
            let words = vmovn_s32(q);
            let bytes = vreinterpret_u32_s8(vmovn_s16(vcombine_s16(words, words)));
            p.cast::<u32>().write_unaligned(vget_lane_u32::<0>(bytes));
            q
        }
    }

    #[inline(always)]
    unsafe fn dot16<const BITS: u32>(self, acc: Self::I, w: [Self::B; 4], x: *const i8) -> Self::I {
        unsafe { self.bytes::<BITS>(acc, w, vld1q_s8(x)) }
    }

    #[inline(always)]
    unsafe fn dot_pair(self, acc: Self::I, w: Self::B, x: *const i16) -> Self::I {
        unsafe {
            let (w, x) = (vreinterpretq_s16_u8(w), vreinterpret_s16_s32(vld1_dup_s32(x.cast())));
            let acc = vmlal_lane_s16::<0>(acc, vget_low_s16(w), x);
            vmlal_high_lane_s16::<1>(acc, w, x)
        }
    }

    #[inline(always)]
    fn b_thirds(self, a: Self::B) -> Self::B {
        unsafe {
            let above = vaddq_u8(vcgeq_u8(a, vdupq_n_u8(86)), vcgeq_u8(a, vdupq_n_u8(171)));
            vsubq_u8(vdupq_n_u8(0), above)
        }
    }

    #[inline(always)]
    fn b_pairs<const HIGH: bool>(self, a: Self::B) -> Self::B {
        unsafe {
            const FIRST: [u8; 16] = [0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13];
            vqtbl1q_u8(a, vaddq_u8(vld1q_u8(FIRST.as_ptr()), vdupq_n_u8(if HIGH { 2 } else { 0 })))
        }
    }
}

/// Loads four bytes as unsigned 32-bit integers. Safety: `p` points at four bytes.
#[inline(always)]
unsafe fn load_bytes(p: *const u8) -> uint32x4_t {
    unsafe {
        let bytes = vreinterpret_u8_u32(vdup_n_u32(p.cast::<u32>().read_unaligned()));
        vmovl_u16(vget_low_u16(vmovl_u8(bytes)))
    }
}
