//! IQ2_S: 256 values in runs of eight. A 10-bit index selects a point of a grid of magnitudes, and each value has a
//! sign. Each 16 values have a 4-bit scale under one f16 factor.
use super::grid_codes::{eights, eights_table, indices, nibble_of, signed};
use super::iq2_xxs::{CODES, OFFSET, dequantize_eight, eighths};
use super::{BlockFormat, GgufType, Slot, grids, half_at, planes};
use crate::simd::Simd;

pub struct Iq2S;

static TABLE: [u16; 1024] = eights_table(&grids::IQ2_S);

/// The index of run i of eight values.
fn index(block: &[u8], i: usize) -> u16 {
    u16::from(block[2 + i]) | u16::from(block[66 + i / 4] >> (2 * (i % 4)) & 3) << 8
}

/// The scale of sub-block j.
fn scale(block: &[u8], j: usize) -> u8 {
    block[74 + j / 2] >> (4 * (j % 2)) & 15
}

impl GgufType for Iq2S {
    const NAME: &'static str = "IQ2_S";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 82; // d: f16, qs: [u8; 32], signs: [u8; 32], qh: [2 bits; 32], scales: [4 bits; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(8).enumerate() {
            let scale = half_at(block, 0) * (0.5 + f32::from(scale(block, i / 2))) * 0.25;
            dequantize_eight(grids::IQ2_S[usize::from(index(block, i))], block[34 + i], scale, out);
        }
    }
}

impl BlockFormat for Iq2S {
    const BITS: u32 = 7;
    const OFFSET: i32 = OFFSET as i32;
    const SUB: usize = 16;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 2; // low bits of indices, signs
    const SLOW_CODES: bool = true;
    const UNIT_SCALES: usize = 18; // d: f16, 8 + 8 scales of 4 bits, the indices' high bits of 4 + 4 blocks
    const BLOCK_SCALES: usize = 0;
    const CODES_ALIGN: usize = 2;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        let indices: [u16; 4] = std::array::from_fn(|i| index(block, 4 * b + i));
        to.unit_half(0, block);
        for part in 0..2 {
            to.unit_bits(2 + 4 * part, u32::from(scale(block, 2 * b + part)) << (4 * b));
        }
        for (i, index) in indices.iter().enumerate() {
            to.unit_bits(10 + b / 4 * 4, u32::from(index >> 8) << (b % 4 * 4 + i / 2 * 2 + 16 * (i % 2)));
        }
        to.indices::<0>(indices.map(|index| index as u8));
        to.signs::<1>(std::array::from_fn(|i| block[34 + 4 * b + i]));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            let (low, signs) = (s.b_load(p), s.b_load(p.add(planes::plane_bytes(1, S::LANES))));
            let high = s.b_shr32(s.b_load(unit.add((10 + b / 4 * 4) * S::LANES)), (b % 4 * 4) as u32);
            signed(s, eights(s, &TABLE, indices::<S, 2>(s, low, high)), &CODES, signs, 2 * OFFSET)
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let d = s.load_f16(unit.cast());
            [eighths(s, d, nibble_of(s, unit, 2, b)), eighths(s, d, nibble_of(s, unit, 6, b))]
        }
    }
}
