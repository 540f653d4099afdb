//! IQ2_XXS: 256 values in runs of eight. An 8-bit index selects a point of a grid of magnitudes. Seven signs are
//! stored; an even number of values is negative. Each 32 values have a 4-bit scale under one f16 factor.
use super::grid_codes::{eights, eights_table, even_signs, indices, nibble_of, of_values, signed};
use super::{BlockFormat, GgufType, Slot, grids, half_at, planes, u32_at};
use crate::simd::Simd;

pub struct Iq2Xxs;

/// The magnitudes of IQ2's grids.
pub(super) const MAGNITUDES: [u8; 3] = [8, 25, 43];
pub(super) const OFFSET: u8 = MAGNITUDES[2];
/// The magnitudes as codes.
pub(super) const CODES: [u8; 16] = of_values([OFFSET + MAGNITUDES[0], OFFSET + MAGNITUDES[1], OFFSET + MAGNITUDES[2]]);

static TABLE: [u16; 256] = eights_table(&grids::IQ2_XXS);

/// The eight values of a point of IQ2's grids, with signs, times a scale.
pub(super) fn dequantize_eight(point: u16, signs: u8, scale: f32, out: &mut [f32]) {
    for (k, y) in out.iter_mut().enumerate() {
        let value = scale * f32::from(MAGNITUDES[usize::from(grids::of_eight(point, k))]);
        *y = if signs >> k & 1 == 1 { -value } else { value };
    }
}

/// The indices of 32 values, and their signs and scale in one word.
fn run(block: &[u8], b: usize) -> (&[u8], u32) {
    (&block[2 + 8 * b..][..4], u32_at(block, 6 + 8 * b))
}

impl GgufType for Iq2Xxs {
    const NAME: &'static str = "IQ2_XXS";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 66; // d: f16, qs: [(index: [u8; 4], signs: 4 x 7 bits, scale: 4 bits); 8]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(8).enumerate() {
            let (index, rest) = run(block, i / 4);
            let scale = half_at(block, 0) * (0.5 + (rest >> 28) as f32) * 0.25;
            let point = grids::IQ2_XXS[usize::from(index[i % 4])];
            dequantize_eight(point, even_signs(rest >> (7 * (i % 4))), scale, out);
        }
    }
}

impl BlockFormat for Iq2Xxs {
    const BITS: u32 = 7;
    const OFFSET: i32 = OFFSET as i32;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 2; // indices, signs
    const SLOW_CODES: bool = true;
    const UNIT_SCALES: usize = 6; // d: f16, 8 scales of 4 bits
    const BLOCK_SCALES: usize = 0;
    const CODES_ALIGN: usize = 2;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        let (index, rest) = run(block, b);
        to.unit_half(0, block);
        to.unit_bits(2, (rest >> 28) << (4 * b));
        to.indices::<0>([index[0], index[1], index[2], index[3]]);
        to.signs::<1>(std::array::from_fn(|i| even_signs(rest >> (7 * i))));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            let (low, signs) = (s.b_load(p), s.b_load(p.add(planes::plane_bytes(1, S::LANES))));
            signed(s, eights(s, &TABLE, indices::<S, 0>(s, low, low)), &CODES, signs, 2 * OFFSET)
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [eighths(s, s.load_f16(unit.cast()), nibble_of(s, unit, 2, b)); 2] }
    }
}

/// d (2 scale + 1) / 8, exactly.
#[inline(always)]
pub(super) fn eighths<S: Simd>(s: S, d: S::F, scale: S::F) -> S::F {
    s.mul(d, s.fma(scale, s.splat(0.25), s.splat(0.125)))
}
