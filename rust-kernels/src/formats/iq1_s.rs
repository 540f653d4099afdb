//! IQ1_S: 256 values in runs of eight. An 11-bit index selects a point of a grid of -1, 0 and 1. Each 32 values have
//! a 3-bit scale under one f16 factor, and a bit says whether 1/8 is added or subtracted. Codes are eighths.
use super::grid_codes::{eights, eights_table, indices, of_values};
use super::iq2_xxs::eighths;
use super::{BlockFormat, GgufType, Slot, grids, half_at, u16_at};
use crate::groups;
use crate::simd::Simd;

pub struct Iq1S;

pub(super) const OFFSET: i32 = 9;
/// Codes of -1, 0 and 1 minus 1/8. Adding 1/8 instead sets the bit `MORE`.
pub(super) const CODES: [u8; 16] = of_values([0, 8, 16]);
pub(super) const MORE: u32 = 2;

pub(super) static TABLE: [u16; 2048] = eights_table(&grids::IQ1);

/// The eight values of a point.
pub(super) fn dequantize_eight(index: u16, less: bool, scale: f32, out: &mut [f32]) {
    for (k, y) in out.iter_mut().enumerate() {
        let value = f32::from(grids::of_eight(grids::IQ1[usize::from(index)], k)) - 1.0;
        *y = scale * (value + if less { -0.125 } else { 0.125 });
    }
}

/// The index of run i of eight values.
fn index(block: &[u8], i: usize) -> u16 {
    u16::from(block[2 + i]) | (head(block, i / 4) >> (3 * (i % 4)) & 7) << 8
}

/// The high bits of block b's indices, the scale at bit 12, and bit 15 for subtracting 1/8.
fn head(block: &[u8], b: usize) -> u16 {
    u16_at(block, 34 + 2 * b)
}

impl GgufType for Iq1S {
    const NAME: &'static str = "IQ1_S";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 50; // d: f16, qs: [u8; 32], qh: [u16; 8]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(8).enumerate() {
            let head = head(block, i / 4);
            let scale = half_at(block, 0) * f32::from(2 * (head >> 12 & 7) + 1);
            dequantize_eight(index(block, i), head >> 15 == 1, scale, out);
        }
    }
}

impl BlockFormat for Iq1S {
    const BITS: u32 = 5;
    const OFFSET: i32 = OFFSET;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 1; // low bits of indices
    const SLOW_CODES: bool = true;
    const UNIT_SCALES: usize = 18; // d: f16, for each two blocks 24 high bits of indices, and two fields at `nibble`
    const BLOCK_SCALES: usize = 0;
    const CODES_ALIGN: usize = 2;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        let (indices, head): ([u16; 4], u16) = (std::array::from_fn(|i| index(block, 4 * b + i)), head(block, b));
        let at = 2 + b / 2 * 4;
        to.unit_half(0, block);
        for (i, index) in indices.iter().enumerate() {
            to.unit_bits(at, u32::from(index >> 8) << (b % 2 * 6 + i / 2 * 3 + 16 * (i % 2)));
        }
        // The scale below a bit for adding 1/8.
        to.unit_bits(at, u32::from(head >> 12 ^ 8) << nibble(b));
        to.indices::<0>(indices.map(|index| index as u8));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let head = s.b_load(unit.add((2 + b / 2 * 4) * S::LANES));
            let low = s.b_load(Self::planes::<S>(unit, blocks, b));
            let points = eights(s, &TABLE, indices::<S, 3>(s, low, s.b_shr32(head, b as u32 % 2 * 6)));
            let more = s.b_and32(s.b_shr32(head, nibble(b) + 2), MORE);
            let more = s.b_or(more, s.b_shl32(more, 8));
            let more = s.b_or(more, s.b_shl32(more, 16));
            groups!(G => s.b_or(s.b_lookup(&CODES, points[G]), more))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let head = s.b_load(unit.add((2 + b / 2 * 4) * S::LANES));
            let scale = s.b_to_f(s.b_and32(s.b_shr32(head, nibble(b)), 7));
            [eighths(s, s.load_f16(unit.cast()), scale); 2]
        }
    }
}

/// Position of block b's four bits in the integer of two blocks.
#[inline(always)]
fn nibble(b: usize) -> u32 {
    12 + 16 * (b as u32 % 2)
}
