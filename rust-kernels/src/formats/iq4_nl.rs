//! IQ4_NL: 32 nibbles that look up signed bytes, with one f16 scale.
use super::{BlockFormat, GgufType, Slot, half_at, nibble, planes};
use crate::simd::Simd;

pub struct Iq4Nl;

/// The values of the nibbles: https://github.com/ggml-org/llama.cpp, kvalues_iq4nl.
pub(super) const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The values as codes, which stand for code - 128.
const CODES: [u8; 16] = {
    let mut codes = [0; 16];
    let mut i = 0;
    while i < 16 {
        codes[i] = VALUES[i] as u8 ^ 0x80;
        i += 1;
    }
    codes
};

/// The codes of a block whose planes are four bits of look-up. Safety: as BlockFormat::planes.
#[inline(always)]
pub(super) unsafe fn codes<S: Simd>(s: S, planes: *const u8) -> [S::B; 8] {
    unsafe { planes::look_up(s, &CODES, planes) }
}

impl GgufType for Iq4Nl {
    const NAME: &'static str = "IQ4_NL";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 18; // d: f16, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 0);
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(VALUES[usize::from(nibble(&block[2..], k))]);
        }
    }
}

impl BlockFormat for Iq4Nl {
    const BITS: u32 = 8;
    const OFFSET: i32 = 128;
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
        unsafe { codes(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.add(2 * b * S::LANES).cast()); 2] }
    }
}
