//! Q4_1: 32 4-bit codes with one f16 scale and one f16 minimum.
use super::{BlockFormat, GgufType, Slot, half_at, nibble, planes};
use crate::simd::Simd;

pub struct Q4_1;

/// A half float with its sign flipped: the file's minimum is added, a panel's min is subtracted.
#[inline]
pub(super) fn negated(half: &[u8]) -> [u8; 2] {
    [half[0], half[1] ^ 0x80]
}

/// Bits per code that d and -m take as f16, in a vector in front of each block's planes. With all scales of a unit
/// together, a core would fetch a second stream of lines, which is slower.
pub(super) const SCALE_BITS: usize = 1;

/// Packs d and -m of a block. Q5_1 uses it too.
#[inline(always)]
pub(super) fn pack_scales(block: &[u8], to: &mut Slot) {
    to.half_in_planes::<0>(block);
    to.half_in_planes::<2>(&negated(&block[2..]));
}

/// Address of the codes behind the scales. Safety: as BlockFormat::codes, for the block's planes.
#[inline(always)]
pub(super) unsafe fn codes(block: *const u8, lanes: usize) -> *const u8 {
    unsafe { block.add(planes::plane_bytes(SCALE_BITS, lanes)) }
}

/// d. Safety: as BlockFormat::scales, for the block's planes.
#[inline(always)]
pub(super) unsafe fn scale<S: Simd>(s: S, block: *const u8) -> S::F {
    unsafe { s.load_f16(block.cast()) }
}

/// -m. Safety: as `scale`.
#[inline(always)]
pub(super) unsafe fn min<S: Simd>(s: S, block: *const u8) -> S::F {
    unsafe { s.load_f16(block.add(2 * S::LANES).cast()) }
}

impl GgufType for Q4_1 {
    const NAME: &'static str = "Q4_1";
    const BLOCK_COLUMNS: usize = 32;
    const BLOCK_BYTES: usize = 20; // d, m: f16, qs: [u8; 16]

    fn dequantize(block: &[u8], out: &mut [f32]) {
        let (d, m) = (half_at(block, 0), half_at(block, 2));
        for (k, y) in out.iter_mut().enumerate() {
            *y = d * f32::from(nibble(&block[4..], k)) + m;
        }
    }
}

impl BlockFormat for Q4_1 {
    const BITS: u32 = 4;
    const OFFSET: i32 = 0;
    const SUB: usize = 32;
    const HAS_MIN: bool = true;
    const STORED_BITS: usize = SCALE_BITS + 4;
    const UNIT_SCALES: usize = 0;
    const BLOCK_SCALES: usize = 0;

    fn pack_block(block: &[u8], _b: usize, to: &mut Slot) {
        pack_scales(block, to);
        let codes = std::array::from_fn(|k| nibble(&block[4..], k));
        planes::put::<4, 0, SCALE_BITS>(to.planes, to.lanes, to.lane, &codes);
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe { planes::all::<S, 4>(s, codes(Self::planes::<S>(unit, blocks, b), S::LANES)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [scale(s, Self::planes::<S>(unit, blocks, b)); 2] }
    }

    #[inline(always)]
    unsafe fn mins<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::F; 2] {
        unsafe { [min(s, Self::planes::<S>(unit, blocks, b)); 2] }
    }
}
