//! Q4_0: 32 4-bit codes, offset by 8, with one f16 scale.
use super::{BlockFormat, GgufType, Slot, half_at, nibble, planes};
use crate::simd::Simd;

pub struct Q4_0;

impl GgufType for Q4_0 {
    const NAME: &'static str = "Q4_0";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 18; // d: f16, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 0);
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(nibble(&block[2..], k) as i8 - 8);
        }
    }
}

impl BlockFormat for Q4_0 {
    const BITS: u32 = 4;
    const OFFSET: i32 = 8;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 4;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 2; // d: f16

    fn pack_block(block: &[u8], _b: usize, to: &mut Slot) {
        to.half(0, block);
        to.codes::<4>(&std::array::from_fn(|k| nibble(&block[2..], k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::all::<S, 4>(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add(2 * b * S::LANES).cast()); 2] }
    }
}
