//! Q4_K: 256 4-bit codes. Eight sub-blocks of 32 have 6-bit scales and mins under two f16 factors.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes};
use crate::simd::Simd;

pub struct Q4K;

/// The 6-bit scale and min of sub-block j from the 12 packed bytes that Q4_K and Q5_K share.
#[inline]
pub(super) fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let high = |at: usize| (packed[at] >> 6) << 4;
        (packed[j + 4] & 15 | high(j - 4), packed[j + 4] >> 4 | high(j))
    }
}

/// Nibble of element k. Sub-blocks 2i and 2i + 1 are the low and high nibbles of bytes 32i..32i+32.
#[inline(always)]
pub(super) fn low_code(qs: &[u8], k: usize) -> u8 {
    let byte = qs[k / 64 * 32 + k % 32];
    if k % 64 < 32 { byte & 15 } else { byte >> 4 }
}

/// Bytes of a row's scales: d and dmin as f16, then scale and min of each block.
pub(super) const UNIT_SCALES: usize = 4;
pub(super) const BLOCK_SCALES: usize = 2;

/// Packs d, dmin, and the scale and min of block b.
#[inline(always)]
pub(super) fn pack_scales(block: &[u8], b: usize, to: &mut Slot) {
    to.unit_half(0, block);
    to.unit_half(2, &block[2..]);
    let (scale, min) = scale_min(&block[4..16], b);
    to.byte(0, scale);
    to.byte(1, min);
}

/// d * scale of block b. Safety: as BlockFormat::scales.
#[inline(always)]
pub(super) unsafe fn scale<S: Simd>(s: S, unit: *const u8, b: usize) -> S::F {
    unsafe { s.mul(s.load_f16(unit.cast()), s.load_u8(unit.add((4 + 2 * b) * S::LANES))) }
}

/// dmin * min of block b. Safety: as BlockFormat::mins.
#[inline(always)]
pub(super) unsafe fn min<S: Simd>(s: S, unit: *const u8, b: usize) -> S::F {
    unsafe { s.mul(s.load_f16(unit.add(2 * S::LANES).cast()), s.load_u8(unit.add((5 + 2 * b) * S::LANES))) }
}

impl GgufType for Q4K {
    const NAME: &'static str = "Q4_K";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 144; // d, dmin: f16, scales: [u8; 12], qs: [u8; 128]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (k, y) in out.iter_mut().enumerate() {
            let (scale, min) = scale_min(&block[4..16], k / 32);
            *y = d * f32::from(scale) * f32::from(low_code(&block[16..], k)) - dmin * f32::from(min);
        }
    }
}

impl BlockFormat for Q4K {
    const BITS: u32 = 4;
    const OFFSET: i32 = 0;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;
    const STORED_BITS: usize = 4;
    const UNIT_SCALES: usize = UNIT_SCALES;
    const BLOCK_SCALES: usize = BLOCK_SCALES;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        pack_scales(block, b, to);
        to.codes::<4>(&std::array::from_fn(|k| low_code(&block[16..], BLOCK * b + k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::all::<S, 4>(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [scale(s, unit, b); 2] }
    }

    #[inline(always)]
    unsafe fn mins<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [min(s, unit, b); 2] }
    }
}
