//! BF16: the upper halves of floats, widened in registers.
use super::{FloatFormat, GgufType, u16_at};
use crate::half::bf16_to_f32;
use crate::simd::Simd;

pub struct Bf16;

impl GgufType for Bf16 {
    const NAME: &'static str = "BF16";
    const BLOCK_COLUMNS: usize = 1;
    const BLOCK_BYTES: usize = 2;

    fn dequantize(block: &[u8], out: &mut [f32]) {
        out[0] = bf16_to_f32(u16_at(block, 0));
    }
}

impl FloatFormat for Bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F {
        unsafe { s.load_bf16(p.cast()) }
    }
}
