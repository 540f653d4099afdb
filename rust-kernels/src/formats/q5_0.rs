//! Q5_0: 32 5-bit codes, offset by 16, with one f16 scale.
use super::{BlockFormat, GgufType, Slot, half_at, nibble, planes};
use crate::simd::Simd;

pub struct Q5_0;

/// Code of element k: bit k of the first four bytes above a nibble of the rest. Q5_1 uses it too.
#[inline(always)]
pub(super) fn code(qh_qs: &[u8], k: usize) -> u8 {
    nibble(&qh_qs[4..], k) | (qh_qs[k / 8] >> (k % 8) & 1) << 4
}

impl GgufType for Q5_0 {
    const NAME: &'static str = "Q5_0";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 22; // d: f16, qh: [u8; 4], qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 0);
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(code(&block[2..], k) as i8 - 16);
        }
    }
}

impl BlockFormat for Q5_0 {
    const BITS: u32 = 5;
    const OFFSET: i32 = 16;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 5;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 2; // d: f16

    fn pack_block(block: &[u8], _b: usize, to: &mut Slot) {
        to.half(0, block);
        let codes = std::array::from_fn(|k| code(&block[2..], k));
        to.split_codes::<4, 1>(&codes);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            planes::groups!(G => planes::get_split::<S, 4, 1, G>(s, p))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add(2 * b * S::LANES).cast()); 2] }
    }
}
