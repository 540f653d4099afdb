//! IQ4_XS: 256 nibbles that look up IQ4_NL's values. Eight sub-blocks of 32 have 6-bit scales, offset by 32, under
//! one f16 factor.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, iq4_nl, nibble};
use crate::simd::Simd;

pub struct Iq4Xs;

/// The signed scale of sub-block j: a nibble of bytes 4..8, and two bits of the u16 at 2 above it.
#[inline]
fn scale(block: &[u8], j: usize) -> i8 {
    let low = block[4 + j / 2] >> (j % 2 * 4) & 15;
    let high = block[2 + j / 4] >> (j % 4 * 2) & 3;
    (low | high << 4) as i8 - 32
}

impl GgufType for Iq4Xs {
    const NAME: &'static str = "IQ4_XS";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 136; // d: f16, scales_h: u16, scales_l: [u8; 4], qs: [u8; 128]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 0);
        for (j, (qs, y)) in block[8..].chunks_exact(16).zip(out.chunks_exact_mut(BLOCK)).enumerate() {
            let scale = d * f32::from(scale(block, j));
            for (k, y) in y.iter_mut().enumerate() {
                *y = scale * f32::from(iq4_nl::VALUES[usize::from(nibble(qs, k))]);
            }
        }
    }
}

impl BlockFormat for Iq4Xs {
    const BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 4;
    const UNIT_SCALES: usize = 2; // d: f16
    const BLOCK_SCALES: usize = 1; // scale: i8

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(0, block);
        to.byte(0, scale(block, b) as u8);
        to.codes::<4>(&std::array::from_fn(|k| nibble(&block[8 + 16 * b..], k)));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { iq4_nl::codes(s, Self::planes::<S>(unit, blocks, b)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [s.mul(s.load_f16(unit.cast()), s.load_i8(unit.add((2 + b) * S::LANES).cast())); 2] }
    }
}
