//! Q6_K: 256 6-bit codes, offset by 32. Sixteen sub-blocks of 16 have signed byte scales under one f16 factor.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes};
use crate::simd::Simd;

pub struct Q6K;

/// Code of element k. Each half of the block holds 128 elements in four runs of 32. Their low bits are the low or
/// high nibbles of 64 bytes, their high bits are pairs of bits of 32 bytes.
#[inline(always)]
fn code(block: &[u8], k: usize) -> u8 {
    let (half, run, i) = (k / 128, k % 128 / 32, k % 32);
    let low = block[64 * half + run % 2 * 32 + i] >> (4 * (run / 2)) & 15;
    let high = block[128 + 32 * half + i] >> (2 * run) & 3;
    low | high << 4
}

/// d times the two signed scales of block b. d comes first, and each block has two bytes; Q3_K uses it too. Safety:
/// as BlockFormat::scales.
#[inline(always)]
pub(super) unsafe fn signed_scales<S: Simd>(s: S, unit: *const u8, b: usize) -> [S::F; 2] {
    unsafe {
        let d = s.load_f16(unit.cast());
        let at = unit.add((2 + 2 * b) * S::LANES).cast();
        [s.mul(d, s.load_i8(at)), s.mul(d, s.load_i8(at.add(S::LANES)))]
    }
}

impl GgufType for Q6K {
    const NAME: &'static str = "Q6_K";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 210; // ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 208);
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(block[192 + k / 16] as i8) * f32::from(code(block, k) as i8 - 32);
        }
    }
}

impl BlockFormat for Q6K {
    const BITS: u32 = 6;
    const OFFSET: i32 = 32;
    const SUB: usize = 16;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 6;
    const UNIT_SCALES: usize = 2; // d: f16
    const BLOCK_SCALES: usize = 2; // scales: [i8; 2]

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(0, &block[208..]);
        for part in 0..2 {
            to.byte(part, block[192 + 2 * b + part]);
        }
        let codes = std::array::from_fn(|k| code(block, BLOCK * b + k));
        to.split_codes::<4, 2>(&codes);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            planes::groups!(G => planes::get_split::<S, 4, 2, G>(s, p))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { signed_scales(s, unit, b) }
    }
}
