//! Q6_K: 256 codes of 6 bits, offset by 32; sixteen sub-blocks of 16 with signed byte scales under one f16.
use super::{BLOCK, BlockFormat, GgufType, planes, put_half, u16_at};
use crate::half::f16_to_f32;
use crate::simd::Simd;

pub struct Q6K;

/// Code of element k. Each half of the block holds 128 elements: four runs of 32 take their low bits from the
/// low or high nibbles of 64 bytes and their high bits from two bits of 32 bytes.
#[inline]
fn code(block: &[u8], k: usize) -> u8 {
    let (half, run, i) = (k / 128, k % 128 / 32, k % 32);
    let low = block[64 * half + run % 2 * 32 + i] >> (4 * (run / 2)) & 15;
    let high = block[128 + 32 * half + i] >> (2 * run) & 3;
    low | high << 4
}

/// Bytes of a unit's scales: d as f16, then two signed scales a block; LANES of each, padded to whole vectors.
const fn scale_bytes(blocks: usize, lanes: usize) -> usize {
    ((2 + 2 * blocks) * lanes).next_multiple_of(4 * lanes)
}

impl GgufType for Q6K {
    const NAME: &'static str = "Q6_K";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 210; // ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = f16_to_f32(u16_at(block, 208));
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

    fn unit_layout(blocks: usize, lanes: usize) -> (usize, usize) {
        (scale_bytes(blocks, lanes), blocks * planes::plane_bytes(6, lanes))
    }

    fn pack_unit(src: &[u8], stride: usize, blocks: usize, lanes: usize, unit: &mut [u8]) {
        unit.fill(0);
        let (scales, codes) = unit.split_at_mut(scale_bytes(blocks, lanes));
        for lane in 0..lanes {
            let block = &src[lane * stride..][..210];
            put_half(scales, 0, lane, &block[208..]);
            for j in 0..2 * blocks {
                scales[(2 + j) * lanes + lane] = block[192 + j];
            }
            for (b, planes_of_block) in codes.chunks_exact_mut(planes::plane_bytes(6, lanes)).enumerate() {
                let (low, high) = planes_of_block.split_at_mut(planes::plane_bytes(4, lanes));
                let codes: [u8; BLOCK] = std::array::from_fn(|k| code(block, BLOCK * b + k));
                planes::put::<4, 0>(low, lanes, lane, &codes);
                planes::put::<2, 4>(high, lanes, lane, &codes);
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let low = unit.add(scale_bytes(blocks, S::LANES) + b * planes::plane_bytes(6, S::LANES));
            let high = low.add(planes::plane_bytes(4, S::LANES));
            planes::groups!(G => S::b_or(planes::get::<S, 4, 0, G>(low), planes::get::<S, 2, 4, G>(high)))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe {
            let d = S::load_f16(unit.cast());
            let at = unit.add((2 + 2 * b) * S::LANES).cast();
            [S::mul(d, S::load_i8(at)), S::mul(d, S::load_i8(at.add(S::LANES)))]
        }
    }
}
