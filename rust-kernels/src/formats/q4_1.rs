//! Q4_1: 32 codes of 4 bits under one f16 scale, above one f16 floor.
use super::{BlockFormat, GgufType, Slot, half_at, nibble, planes};
use crate::simd::Simd;

pub struct Q4_1;

/// A half float with its sign turned: the file's floor is added, a panel's min is taken off.
#[inline]
pub(super) fn negated(half: &[u8]) -> [u8; 2] {
    [half[0], half[1] ^ 0x80]
}

impl GgufType for Q4_1 {
    const NAME: &'static str = "Q4_1";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 20; // d, m: f16, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(block, 0), half_at(block, 2));
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(nibble(&block[4..], k)) + m;
        }
    }
}

impl BlockFormat for Q4_1 {
    const BITS: u32 = 4;
    const OFFSET: i32 = 0;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;
    const STORED_BITS: usize = 4;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 4; // d, -m: f16

    fn pack_block(block: &[u8], _b: usize, to: &mut Slot) {
        to.half(0, block);
        to.half(2, &negated(&block[2..]));
        to.codes::<4>(&std::array::from_fn(|k| nibble(&block[4..], k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            planes::groups!(G => planes::get::<S, 4, G>(s, p))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add(4 * b * S::LANES).cast()); 2] }
    }

    #[inline(always)]
    unsafe fn mins<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add((4 * b + 2) * S::LANES).cast()); 2] }
    }
}
