//! IQ3_S: 256 values in runs of four. A 9-bit index selects a point of a grid of odd magnitudes, and each value has a
//! sign. Each 32 values have a 4-bit scale under one f16 factor.
use super::grid_codes::{fours, fours_table, indices, nibble_of, signed};
use super::{BlockFormat, GgufType, Slot, grids, half_at, planes};
use crate::simd::Simd;

pub struct Iq3S;

const OFFSET: u8 = 15;

/// The magnitudes 1, 3, … 15 as codes.
const CODES: [u8; 16] = {
    let (mut codes, mut i) = ([0; 16], 0);
    while i < 8 {
        codes[i] = OFFSET + 2 * i as u8 + 1;
        i += 1;
    }
    codes
};

static TABLE: [u16; 512] = fours_table(&grids::IQ3_S);

/// The index of run i of four values.
fn index(block: &[u8], i: usize) -> u16 {
    u16::from(block[2 + i]) | u16::from(block[66 + i / 8] >> (i % 8) & 1) << 8
}

/// The scale of block b.
fn scale(block: &[u8], b: usize) -> u8 {
    block[106 + b / 2] >> (4 * (b % 2)) & 15
}

impl GgufType for Iq3S {
    const NAME: &'static str = "IQ3_S";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 110; // d: f16, qs: [u8; 64], qh: [1 bit; 64], signs: [u8; 32], scales: [4 bits; 8]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (k, y) in out.iter_mut().enumerate() {
            let scale = half_at(block, 0) * f32::from(1 + 2 * scale(block, k / 32));
            let code = grids::of_four(grids::IQ3_S[usize::from(index(block, k / 4))], k % 4);
            let value = scale * f32::from(2 * code + 1);
            *y = if block[74 + k / 8] >> (k % 8) & 1 == 1 { -value } else { value };
        }
    }
}

impl BlockFormat for Iq3S {
    const BITS: u32 = 5;
    const OFFSET: i32 = OFFSET as i32;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 3; // low bits of the indices of both halves, signs
    const SLOW_CODES: bool = true;
    const UNIT_SCALES: usize = 14; // d: f16, 8 scales of 4 bits, the indices' ninth bits of 4 + 4 blocks
    const BLOCK_SCALES: usize = 0;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        let indices: [u16; 8] = std::array::from_fn(|i| index(block, 8 * b + i));
        let [i0, i1, i2, i3, i4, i5, i6, i7] = indices.map(|index| index as u8);
        to.unit_half(0, block);
        to.unit_bits(2, u32::from(scale(block, b)) << (4 * b));
        for (i, index) in indices.iter().enumerate() {
            to.unit_bits(6 + b / 4 * 4, u32::from(index >> 8) << (b % 4 * 4 + i / 2 + 16 * (i % 2)));
        }
        to.indices::<0>([i0, i1, i2, i3]);
        to.indices::<1>([i4, i5, i6, i7]);
        to.signs::<2>(std::array::from_fn(|i| block[74 + 4 * b + i]));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            let (first, second) = (s.b_load(p), s.b_load(p.add(planes::plane_bytes(1, S::LANES))));
            let signs = s.b_load(p.add(planes::plane_bytes(2, S::LANES)));
            let high = s.b_shr32(s.b_load(unit.add((6 + b / 4 * 4) * S::LANES)), (b % 4 * 4) as u32);
            let [c0, c1, c2, c3] = fours(s, &TABLE, indices::<S, 1>(s, first, high));
            let [c4, c5, c6, c7] = fours(s, &TABLE, indices::<S, 1>(s, second, s.b_shr32(high, 2)));
            signed(s, [c0, c1, c2, c3, c4, c5, c6, c7], &CODES, signs, 2 * OFFSET)
        }
    }

    /// d (2 scale + 1).
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let scale = s.fma(nibble_of(s, unit, 2, b), s.splat(2.0), s.splat(1.0));
            [s.mul(s.load_f16(unit.cast()), scale); 2]
        }
    }
}
