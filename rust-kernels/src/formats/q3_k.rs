//! Q3_K: 256 3-bit codes, offset by 4. Sixteen sub-blocks of 16 have 6-bit scales, offset by 32, under one f16
//! factor.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at, planes, q2_k::low_code, q6_k};
use crate::simd::Simd;

pub struct Q3K;

/// Code of element k: bit k / 32 of 32 bytes above the two bits of Q2_K's layout.
#[inline(always)]
fn code(block: &[u8], k: usize) -> u8 {
    low_code(&block[32..], k) | (block[k % 32] >> (k / 32) & 1) << 2
}

/// The signed scale of sub-block j from 12 bytes: nibbles of the first eight, and pairs of bits of the last four
/// above them.
#[inline]
fn scale(packed: &[u8], j: usize) -> i8 {
    let low = packed[j % 8] >> (j / 8 * 4) & 15;
    let high = packed[8 + j % 4] >> (j / 4 * 2) & 3;
    (low | high << 4) as i8 - 32
}

impl GgufType for Q3K {
    const NAME: &'static str = "Q3_K";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 110; // hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = half_at(block, 108);
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(scale(&block[96..], k / 16)) * f32::from(code(block, k) as i8 - 4);
        }
    }
}

impl BlockFormat for Q3K {
    const BITS: u32 = 3;
    const OFFSET: i32 = 4;
    const SUB: usize = 16;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 3;
    const UNIT_SCALES: usize = 2; // d: f16
    const BLOCK_SCALES: usize = 2; // scales: [i8; 2]

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(0, &block[108..]);
        for part in 0..2 {
            to.byte(part, scale(&block[96..], 2 * b + part) as u8);
        }
        let codes = std::array::from_fn(|k| code(block, BLOCK * b + k));
        to.split_codes::<2, 1>(&codes);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let p = Self::planes::<S>(unit, blocks, b);
            planes::groups!(G => planes::get_split::<S, 2, 1, G>(s, p))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { q6_k::signed_scales(s, unit, b) }
    }
}
