//! Q5_1: 32 5-bit codes with one f16 scale and one f16 minimum.
use super::{BlockFormat, GgufType, Slot, half_at, planes, q4_1, q4_1::SCALE_BITS, q5_0::code};
use crate::simd::Simd;

pub struct Q5_1;

impl GgufType for Q5_1 {
    const NAME: &'static str = "Q5_1";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 24; // d, m: f16, qh: [u8; 4], qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(block, 0), half_at(block, 2));
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(code(&block[4..], k)) + m;
        }
    }
}

impl BlockFormat for Q5_1 {
    const BITS: u32 = 5;
    const OFFSET: i32 = 0;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;
    const STORED_BITS: usize = SCALE_BITS + 5;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 0;

    fn pack_block(block: &[u8], _b: usize, to: &mut Slot) {
        q4_1::pack_scales(block, to);
        let codes = std::array::from_fn(|k| code(&block[4..], k));
        planes::put::<4, 0, { SCALE_BITS + 1 }>(to.planes, to.lanes, to.lane, &codes);
        planes::put::<1, 4, SCALE_BITS>(to.planes, to.lanes, to.lane, &codes);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = q4_1::codes(Self::planes::<S>(unit, blocks, b), S::LANES);
            planes::groups!(G => planes::get_split::<S, 4, 1, G>(s, p))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [q4_1::scale(s, Self::planes::<S>(unit, blocks, b)); 2] }
    }

    #[inline(always)]
    unsafe fn mins<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [q4_1::min(s, Self::planes::<S>(unit, blocks, b)); 2] }
    }
}
