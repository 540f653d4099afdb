//! F16: half floats, widened in registers.
use super::{FloatFormat, GgufType, u16_at};
use crate::half::f16_to_f32;
use crate::simd::Simd;

pub struct F16;

impl GgufType for F16 {
    const NAME: &'static str = "F16";
    const BLOCK_COLUMNS: usize = 1;
    const BLOCK_BYTES: usize = 2;

    fn dequantize(block: &[u8], out: &mut [f32]) {
        out[0] = f16_to_f32(u16_at(block, 0));
    }
}

impl FloatFormat for F16 {
    const IS_F16: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F {
        unsafe { s.load_f16(p.cast()) }
    }
}
