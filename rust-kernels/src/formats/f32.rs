//! F32: plain floats.
use super::{FloatFormat, GgufType};

use crate::simd::Simd;

pub struct F32;

impl GgufType for F32 {
    const NAME: &'static str = "F32";
    const BLOCK_COLUMNS: usize = 1;
    const BLOCK_BYTES: usize = 4;

    fn dequantize(block: &[u8], out: &mut [f32]) {
        out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    }
}

impl FloatFormat for F32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::F {
        unsafe { s.load(p.cast()) }
    }
}
