//! NVFP4: 64 4-bit floats (E2M1); each 16 share an unsigned 8-bit float (E4M3). Values are doubled and scales halved,
//! so that codes are integers. The scale 127 stands for 0. Files have another factor beside the tensor, because
//! scales are at most 448.
use super::mxfp4::{CODES, OFFSET, VALUES};
use super::{BlockFormat, GgufType, Slot, planes};
use crate::half::e4m3_half;
use crate::simd::Simd;

pub struct Nvfp4;

/// Scale j of a block without its sign bit, which is ignored.
fn scale(block: &[u8], j: usize) -> u8 {
    if block[j] == 127 { 0 } else { block[j] & 127 }
}

/// Element k. The low nibbles of 8 bytes are the first 8 of 16 elements, the high nibbles the rest.
fn code(block: &[u8], k: usize) -> u8 {
    let byte = block[4 + k / 16 * 8 + k % 8];
    if k % 16 < 8 { byte & 15 } else { byte >> 4 }
}

impl GgufType for Nvfp4 {
    const NAME: &'static str = "NVFP4";
    const BLOCK_COLUMNS: usize = 64;
    const BLOCK_BYTES: usize = 36; // d: [u8; 4], qs: [u8; 32]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (k, y) in out.iter_mut().enumerate() {
            *y = e4m3_half(scale(block, k / 16)) * f32::from(VALUES[usize::from(code(block, k))]);
        }
    }
}

impl BlockFormat for Nvfp4 {
    const BITS: u32 = 5;
    const OFFSET: i32 = OFFSET as i32;
    const SUB: usize = 16;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 4;
    const UNIT_SCALES: usize = 4; // the factor: f32
    const BLOCK_SCALES: usize = 2; // d: [u8; 2]
    const HAS_FACTOR: bool = true;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        if b == 0 {
            to.unit_factor();
        }
        let b = b % 2;
        for part in 0..2 {
            to.byte(part, scale(block, 2 * b + part));
        }
        to.codes::<4>(&std::array::from_fn(|k| code(block, 32 * b + k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::look_up(s, &CODES, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let (factor, at) = (s.load(unit.cast()), unit.add((4 + 2 * b) * S::LANES));
            [s.mul(factor, s.load_e4m3_half(at)), s.mul(factor, s.load_e4m3_half(at.add(S::LANES)))]
        }
    }
}
