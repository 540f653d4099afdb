//! Q2_K: 256 2-bit codes. Sixteen sub-blocks of 16 have 4-bit scales and mins under two f16 factors.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes};
use crate::simd::Simd;

pub struct Q2K;

/// Bits 2j and 2j + 1 of 32 bytes are run j of 32 elements, for each half of the block. Q3_K uses it too.
#[inline(always)]
pub(super) fn low_code(qs: &[u8], k: usize) -> u8 {
    qs[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3
}

/// The low and high nibbles of the bytes of one sub-block as floats. With v = 16 * min + scale, v / 16 - 15 / 32
/// differs from min by less than a half. Safety: as BlockFormat::scales.
#[inline(always)]
unsafe fn scale_min<S: Simd>(s: S, unit: *const u8, b: usize, part: usize) -> (S::F, S::F) {
    unsafe {
        let v = s.load_u8(unit.add((4 + 2 * b + part) * S::LANES));
        let min = s.round(s.fma(v, s.splat(1.0 / 16.0), s.splat(-15.0 / 32.0)));
        (s.fnma(min, s.splat(16.0), v), min)
    }
}

impl GgufType for Q2K {
    const NAME: &'static str = "Q2_K";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 84; // scales: [u8; 16], qs: [u8; 64], d, dmin: f16

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let (d, dmin) = (half_at(block, 80), half_at(block, 82));
        for (k, y) in out.iter_mut().enumerate() {
            let (scale, min) = (block[k / 16] & 15, block[k / 16] >> 4);
            *y = d * f32::from(scale) * f32::from(low_code(&block[16..], k)) - dmin * f32::from(min);
        }
    }
}

impl BlockFormat for Q2K {
    const BITS: u32 = 2;
    const OFFSET: i32 = 0;
    const SUB: usize = 16;
    const HAS_MIN: bool = true;
    const STORED_BITS: usize = 2;
    const UNIT_SCALES: usize = 4; // d, dmin: f16
    const BLOCK_SCALES: usize = 2; // scale | min << 4: [u8; 2]

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(0, &block[80..]);
        to.unit_half(2, &block[82..]);
        for part in 0..2 {
            to.byte(part, block[2 * b + part]);
        }
        to.codes::<2>(&std::array::from_fn(|k| low_code(&block[16..], BLOCK * b + k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::all::<S, 2>(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let d = s.load_f16(unit.cast());
            [s.mul(d, scale_min(s, unit, b, 0).0), s.mul(d, scale_min(s, unit, b, 1).0)]
        }
    }

    #[inline(always)]
    unsafe fn mins<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let dmin = s.load_f16(unit.add(2 * S::LANES).cast());
            [s.mul(dmin, scale_min(s, unit, b, 0).1), s.mul(dmin, scale_min(s, unit, b, 1).1)]
        }
    }
}
