//! Q4_0: 32 codes of 4 bits, offset by 8, under one f16 scale.
use super::{BLOCK, BlockFormat, GgufType, planes, put_half, u16_at};
use crate::half::f16_to_f32;
use crate::simd::Simd;

pub struct Q4_0;

/// Code of element k: low nibbles hold the first 16 elements, high nibbles the rest.
#[inline]
fn code(qs: &[u8], k: usize) -> u8 {
    if k < 16 { qs[k] & 15 } else { qs[k - 16] >> 4 }
}

impl GgufType for Q4_0 {
    const NAME: &'static str = "Q4_0";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 18; // d: f16, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = f16_to_f32(u16_at(block, 0));
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(code(&block[2..], k) as i8 - 8);
        }
    }
}

impl BlockFormat for Q4_0 {
    const BITS: u32 = 4;
    const OFFSET: i32 = 8;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    fn unit_layout(blocks: usize, lanes: usize) -> (usize, usize) {
        (2 * blocks * lanes, blocks * planes::plane_bytes(4, lanes))
    }

    fn pack_unit(src: &[u8], stride: usize, blocks: usize, lanes: usize, unit: &mut [u8]) {
        let (scales, codes) = unit.split_at_mut(2 * blocks * lanes);
        for (b, plane) in codes.chunks_exact_mut(planes::plane_bytes(4, lanes)).enumerate() {
            plane.fill(0);
            for lane in 0..lanes {
                let block = &src[lane * stride + b * 18..][..18];
                put_half(scales, 2 * b * lanes, lane, block);
                let codes: [u8; BLOCK] = std::array::from_fn(|k| code(&block[2..], k));
                planes::put::<4, 0>(plane, lanes, lane, &codes);
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let plane = unit.add(2 * blocks * S::LANES + b * planes::plane_bytes(4, S::LANES));
            planes::groups!(G => planes::get::<S, 4, 0, G>(plane))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [S::load_f16(unit.add(2 * b * S::LANES).cast()); 2] }
    }
}
