//! IQ3_XXS: 256 values in runs of four. An 8-bit index selects a point of a grid of magnitudes. Of eight signs seven
//! are stored; an even number of values is negative. Each 32 values have a 4-bit scale under one f16 factor.
use super::grid_codes::{even_signs, fours, fours_table, indices, nibble_of, signed};
use super::{BlockFormat, GgufType, Slot, grids, half_at, planes, u32_at};
use crate::simd::Simd;

pub struct Iq3Xxs;

const MAGNITUDES: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
const OFFSET: u8 = MAGNITUDES[7];

/// The magnitudes as codes.
const CODES: [u8; 16] = {
    let (mut codes, mut i) = ([0; 16], 0);
    while i < 8 {
        codes[i] = OFFSET + MAGNITUDES[i];
        i += 1;
    }
    codes
};

static TABLE: [u16; 256] = fours_table(&grids::IQ3_XXS);

impl GgufType for Iq3Xxs {
    const NAME: &'static str = "IQ3_XXS";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 98; // d: f16, qs: [u8; 64], [(signs: 4 x 7 bits, scale: 4 bits); 8]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (k, y) in out.iter_mut().enumerate() {
            let rest = u32_at(block, 66 + k / 32 * 4);
            let scale = half_at(block, 0) * (0.5 + (rest >> 28) as f32) * 0.5;
            let code = grids::of_four(grids::IQ3_XXS[usize::from(block[2 + k / 4])], k % 4);
            let value = scale * f32::from(MAGNITUDES[usize::from(code)]);
            *y = if even_signs(rest >> (k / 8 % 4 * 7)) >> (k % 8) & 1 == 1 { -value } else { value };
        }
    }
}

impl BlockFormat for Iq3Xxs {
    const BITS: u32 = 7;
    const OFFSET: i32 = OFFSET as i32;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 3; // indices of both halves, signs
    const SLOW_CODES: bool = true;
    const UNIT_SCALES: usize = 6; // d: f16, 8 scales of 4 bits
    const BLOCK_SCALES: usize = 0;
    const CODES_ALIGN: usize = 2;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        let (index, rest) = (&block[2 + 8 * b..], u32_at(block, 66 + 4 * b));
        to.unit_half(0, block);
        to.unit_bits(2, (rest >> 28) << (4 * b));
        to.indices::<0>([index[0], index[1], index[2], index[3]]);
        to.indices::<1>([index[4], index[5], index[6], index[7]]);
        to.signs::<2>(std::array::from_fn(|i| even_signs(rest >> (7 * i))));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            let (first, second) = (s.b_load(p), s.b_load(p.add(planes::plane_bytes(1, S::LANES))));
            let signs = s.b_load(p.add(planes::plane_bytes(2, S::LANES)));
            let [c0, c1, c2, c3] = fours(s, &TABLE, indices::<S, 0>(s, first, first));
            let [c4, c5, c6, c7] = fours(s, &TABLE, indices::<S, 0>(s, second, second));
            signed(s, [c0, c1, c2, c3, c4, c5, c6, c7], &CODES, signs, 2 * OFFSET)
        }
    }

    /// d (2 scale + 1) / 4, exactly.
    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let scale = s.fma(nibble_of(s, unit, 2, b), s.splat(0.5), s.splat(0.25));
            [s.mul(s.load_f16(unit.cast()), scale); 2]
        }
    }
}
