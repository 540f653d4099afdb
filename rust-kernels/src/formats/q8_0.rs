//! Q8_0: 32 signed bytes with one f16 scale.
use super::{BlockFormat, GgufType, Slot, half_at, planes};
use crate::simd::Simd;

pub struct Q8_0;

impl GgufType for Q8_0 {
    const NAME: &'static str = "Q8_0";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 34; // d: f16, qs: [i8; 32]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 0);
        for (y, q) in out.iter_mut().zip(&block[2..34]) {
            *y = d * f32::from(*q as i8);
        }
    }
}

impl BlockFormat for Q8_0 {
    const BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 8;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 2; // d: f16

    fn pack_block(block: &[u8], _b: usize, to: &mut Slot) {
        to.half(0, block);
        to.codes::<8>(&std::array::from_fn(|k| block[2 + k] ^ 0x80));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::all::<S, 8>(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add(2 * b * S::LANES).cast()); 2] }
    }
}
