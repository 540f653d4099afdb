//! Q1_0: 128 signs with one f16 scale. A set bit is the scale, a clear bit its negative.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes};
use crate::simd::Simd;

pub struct Q1_0;

/// Bit k of a block.
#[inline(always)]
fn bit(block: &[u8], k: usize) -> u8 {
    block[2 + k / 8] >> (k % 8) & 1
}

impl GgufType for Q1_0 {
    const NAME: &'static str = "Q1_0";
    const BLOCK_COLUMNS: usize = 128;
    const BLOCK_BYTES: usize = 18; // d: f16, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 0);
        for (k, y) in out.iter_mut().enumerate() {
            *y = if bit(block, k) == 1 { d } else { -d };
        }
    }
}

impl BlockFormat for Q1_0 {
    const BITS: u32 = 2; // codes are 0 and 2
    const OFFSET: i32 = 1;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 1;
    const UNIT_SCALES: usize = 4; // d: [f16; 2], one for each 128 columns
    const BLOCK_SCALES: usize = 0;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(b / 4 * 2, block);
        to.codes::<1>(&std::array::from_fn(|k| bit(block, BLOCK * (b % 4) + k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::doubled_bits(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add(b / 4 * 2 * S::LANES).cast()); 2] }
    }
}
