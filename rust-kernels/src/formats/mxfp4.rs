//! MXFP4: 32 4-bit floats (E2M1) with one power of two (E8M0), from the OCP Microscaling Formats (MX) specification
//! 1.0. Values are doubled and scales halved, so that codes are integers.
use super::{BlockFormat, GgufType, Slot, nibble, planes};
use crate::half::e8m0_half;
use crate::simd::Simd;

pub struct Mxfp4;

/// Twice the value of each nibble.
pub(super) const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
pub(super) const OFFSET: i8 = 12;

/// The values as codes of 5 bits.
pub(super) const CODES: [u8; 16] = {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = (VALUES[i] + OFFSET) as u8;
        i += 1;
    }
    codes
};

impl GgufType for Mxfp4 {
    const NAME: &'static str = "MXFP4";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 17; // e: u8, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = e8m0_half(block[0]);
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(VALUES[usize::from(nibble(&block[1..], k))]);
        }
    }

    /// NaN is 255 in E8M0.
    fn find_nan(blocks: &[u8]) -> Option<usize> {
        blocks.chunks_exact(Self::BLOCK_BYTES).position(|block| block[0] == u8::MAX)
    }
}

impl BlockFormat for Mxfp4 {
    const BITS: u32 = 5;
    const OFFSET: i32 = OFFSET as i32;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 4;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 1; // e: u8

    fn pack_block(block: &[u8], _b: usize, to: &mut Slot) {
        to.byte(0, block[0]);
        to.codes::<4>(&std::array::from_fn(|k| nibble(&block[1..], k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::look_up(s, &CODES, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_e8m0_half(unit.add(b * S::LANES)); 2] }
    }
}
