//! Q5_K: 256 5-bit codes with the scales and mins of Q4_K.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes, q4_k};
use crate::simd::Simd;

pub struct Q5K;

/// Code of element k: bit k / 32 of 32 bytes above the nibble of Q4_K's layout.
#[inline(always)]
fn code(qh_qs: &[u8], k: usize) -> u8 {
    q4_k::low_code(&qh_qs[32..], k) | (qh_qs[k % 32] >> (k / 32) & 1) << 4
}

impl GgufType for Q5K {
    const NAME: &'static str = "Q5_K";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 176; // d, dmin: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (k, y) in out.iter_mut().enumerate() {
            let (scale, min) = q4_k::scale_min(&block[4..16], k / 32);
            *y = d * f32::from(scale) * f32::from(code(&block[16..], k)) - dmin * f32::from(min);
        }
    }
}

impl BlockFormat for Q5K {
    const BITS: u32 = 5;
    const OFFSET: i32 = 0;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;
    const STORED_BITS: usize = 5;
    const UNIT_SCALES: usize = q4_k::UNIT_SCALES;
    const BLOCK_SCALES: usize = q4_k::BLOCK_SCALES;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        q4_k::pack_scales(block, b, to);
        let codes = std::array::from_fn(|k| code(&block[16..], BLOCK * b + k));
        to.split_codes::<4, 1>(&codes);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            planes::groups!(G => planes::get_split::<S, 4, 1, G>(s, p))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [q4_k::scale(s, unit, b); 2] }
    }

    #[inline(always)]
    unsafe fn mins<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [q4_k::min(s, unit, b); 2] }
    }
}
