//! Q2_0: 64 2-bit codes, offset by 1, with one f16 scale: -1, 0, 1 and 2.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes};
use crate::simd::Simd;

pub struct Q2_0;

/// Code k of a block.
#[inline(always)]
fn code(block: &[u8], k: usize) -> u8 {
    block[2 + k / 4] >> (k % 4 * 2) & 3
}

impl GgufType for Q2_0 {
    const NAME: &'static str = "Q2_0";
    const BLOCK_COLUMNS: usize = 64;
    const BLOCK_BYTES: usize = 18; // d: f16, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 0);
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(code(block, k) as i8 - 1);
        }
    }
}

impl BlockFormat for Q2_0 {
    const BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 2;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 1; // two blocks share d: f16

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(b / 2 * 2, block);
        to.codes::<2>(&std::array::from_fn(|k| code(block, BLOCK * (b % 2) + k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::all::<S, 2>(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add(b / 2 * 2 * S::LANES).cast()); 2] }
    }
}
