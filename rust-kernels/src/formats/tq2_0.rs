//! TQ2_0: 256 2-bit codes, offset by 1, with one f16 scale: -1, 0 and 1 (the fourth code is 2).
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes, q2_k::low_code};
use crate::simd::Simd;

pub struct Tq2_0;

impl GgufType for Tq2_0 {
    const NAME: &'static str = "TQ2_0";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 66; // qs: [u8; 64], d: f16

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (k, y) in out.iter_mut().enumerate() {
            *y = half_at(block, 64) * f32::from(low_code(block, k) as i8 - 1);
        }
    }
}

impl BlockFormat for Tq2_0 {
    const BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 2;
    const UNIT_SCALES: usize = 2; // d: f16
    const BLOCK_SCALES: usize = 0;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(0, &block[64..]);
        to.codes::<2>(&std::array::from_fn(|k| low_code(block, BLOCK * b + k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::all::<S, 2>(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, _b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.cast()); 2] }
    }
}
