//! Q8_0: 32 signed bytes under one f16 scale.
use super::{BLOCK, BlockFormat, GgufType, planes, put_half, u16_at};
use crate::half::f16_to_f32;
use crate::simd::Simd;

pub struct Q8_0;

impl GgufType for Q8_0 {
    const NAME: &'static str = "Q8_0";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 34; // d: f16, qs: [i8; 32]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let d = f16_to_f32(u16_at(block, 0));
        for (y, q) in out.iter_mut().zip(&block[2..34]) {
            *y = d * f32::from(*q as i8);
        }
    }
}

impl BlockFormat for Q8_0 {
    const BITS: u32 = 8;
    const OFFSET: i32 = 128;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;

    fn unit_layout(blocks: usize, lanes: usize) -> (usize, usize) {
        (2 * blocks * lanes, blocks * planes::plane_bytes(8, lanes))
    }

    fn pack_unit(src: &[u8], stride: usize, blocks: usize, lanes: usize, unit: &mut [u8]) {
        let (scales, codes) = unit.split_at_mut(2 * blocks * lanes);
        for (b, plane) in codes.chunks_exact_mut(planes::plane_bytes(8, lanes)).enumerate() {
            for lane in 0..lanes {
                let block = &src[lane * stride + b * 34..][..34];
                put_half(scales, 2 * b * lanes, lane, block);
                let codes: [u8; BLOCK] = std::array::from_fn(|k| block[2 + k] ^ 0x80);
                planes::put::<8, 0>(plane, lanes, lane, &codes);
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let plane = unit.add(2 * blocks * S::LANES + b * planes::plane_bytes(8, S::LANES));
            planes::groups!(G => planes::get::<S, 8, 0, G>(plane))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(unit: *const u8, _blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [S::load_f16(unit.add(2 * b * S::LANES).cast()); 2] }
    }
}
