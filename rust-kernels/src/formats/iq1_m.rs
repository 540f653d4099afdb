//! IQ1_M: 256 values in runs of eight. An 11-bit index selects a point of a grid of -1, 0 and 1, and a bit says
//! whether 1/8 is added or subtracted. Each 16 values have a 3-bit scale; one f16 factor is stored in four parts.
//! Codes are eighths.
use super::grid_codes::{eights, indices, nibble_of};
use super::iq1_s::{CODES, MORE, OFFSET, TABLE, dequantize_eight};
use super::iq2_xxs::eighths;
use super::{BlockFormat, GgufType, Slot, u16_at};
use crate::groups;
use crate::half::f16_to_f32;
use crate::simd::Simd;

pub struct Iq1M;

/// The index of run i of eight values.
fn index(block: &[u8], i: usize) -> u16 {
    u16::from(block[i]) | u16::from(high(block, i) & 7) << 8
}

/// The high bits of the index of run i, below the bit for subtracting 1/8.
fn high(block: &[u8], i: usize) -> u8 {
    block[32 + i / 2] >> (4 * (i % 2)) & 15
}

/// The scale of sub-block j.
fn scale(block: &[u8], j: usize) -> u16 {
    u16_at(block, 48 + j / 4 * 2) >> (3 * (j % 4)) & 7
}

/// The f16 factor: the highest nibbles of the four words of scales, lowest first.
fn d(block: &[u8]) -> u16 {
    (0..4).map(|i| u16_at(block, 48 + 2 * i) >> 12 << (4 * i)).sum()
}

impl GgufType for Iq1M {
    const NAME: &'static str = "IQ1_M";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 56; // qs: [u8; 32], qh: [4 bits; 32], scales: [u16; 4]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(8).enumerate() {
            let scale = f16_to_f32(d(block)) * f32::from(2 * scale(block, i / 2) + 1);
            dequantize_eight(index(block, i), high(block, i) & 8 != 0, scale, out);
        }
    }
}

impl BlockFormat for Iq1M {
    const BITS: u32 = 5;
    const OFFSET: i32 = OFFSET;
    const SUB: usize = 16;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 1; // low bits of indices
    const SLOW_CODES: bool = true;
    const UNIT_SCALES: usize = 26; // d: f16, 8 + 8 scales of 4 bits, of each two blocks 8 x 4 high bits of indices
    const BLOCK_SCALES: usize = 0;
    const CODES_ALIGN: usize = 2;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(0, &d(block).to_le_bytes());
        for part in 0..2 {
            to.unit_bits(2 + 4 * part, u32::from(scale(block, 2 * b + part)) << (4 * b));
        }
        for i in 0..4 {
            let high = u32::from(high(block, 4 * b + i));
            let (at, shift) = (10 + b / 2 * 4, b % 2 * 8 + 16 * (i % 2));
            to.unit_bits(at, (high & 7) << (shift + i / 2 * 3));
            // A bit says that 1/8 is added.
            to.unit_bits(at, (high >> 3 ^ 1) << (shift + 6 + i / 2));
        }
        to.indices::<0>(std::array::from_fn(|i| block[4 * b + i]));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let high = s.b_shr32(s.b_load(unit.add((10 + b / 2 * 4) * S::LANES)), b as u32 % 2 * 8);
            let low = s.b_load(Self::planes::<S>(unit, blocks, b));
            let points = eights(s, &TABLE, indices::<S, 3>(s, low, high));
            let more = [more(s, s.b_shr32(high, 5)), more(s, s.b_shr32(high, 6))];
            groups!(G => s.b_or(s.b_lookup(&CODES, points[G]), more[G / 4][G / 2 % 2]))
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

/// `MORE` in the bytes of the first and of the second of two points, if bits 1 and 17 of the lane are set.
#[inline(always)]
fn more<S: Simd>(s: S, v: S::B) -> [S::B; 2] {
    let bits = s.b_and32(v, MORE * 0x1_0001);
    let bytes = s.b_or(bits, s.b_shl32(bits, 8));
    [s.b_pairs::<false>(bytes), s.b_pairs::<true>(bytes)]
}
