//! TQ1_0: 256 values -1, 0 and 1 with one f16 scale, five values per byte. A byte is a fraction of 256. Its base-3
//! digits after the point are the values plus 1.
use super::{BLOCK, BlockFormat, GgufType, Slot, half_at};
use crate::groups;
use crate::simd::Simd;

pub struct Tq1_0;

/// Vectors per unit that blocks share, and groups of four columns of each block in them.
const SHARED: usize = 5;
const SHARED_GROUPS: usize = 3;

/// Digit n of a byte.
fn digit(byte: u8, n: usize) -> u8 {
    let rest = (0..n).fold(byte, |rest, _| rest.wrapping_mul(3));
    ((u16::from(rest) * 3) >> 8) as u8
}

/// Code of element k. 32 bytes hold five runs of 32 codes, 16 bytes five runs of 16, 4 bytes four runs of 4.
fn code(block: &[u8], k: usize) -> u8 {
    match k {
        0..160 => digit(block[k % 32], k / 32),
        160..240 => digit(block[32 + k % 16], (k - 160) / 16),
        _ => digit(block[48 + k % 4], (k - 240) / 4),
    }
}

/// The byte with these digits.
fn byte(digits: [u8; 5]) -> u8 {
    let number = digits.iter().fold(0u16, |number, digit| 3 * number + u16::from(*digit));
    (number * 256).div_ceil(243) as u8
}

/// The place of group j of block b in the shared vectors: vector and digit.
#[inline(always)]
fn shared(b: usize, j: usize) -> (usize, usize) {
    let slot = SHARED_GROUPS * b + j;
    (slot % SHARED, slot / SHARED)
}

/// The four bytes of shared vector v.
fn shared_bytes(block: &[u8], v: usize) -> [u8; 4] {
    std::array::from_fn(|c| {
        byte(std::array::from_fn(|n| {
            let slot = SHARED * n + v;
            let k = BLOCK * (slot / SHARED_GROUPS) + 4 * (5 + slot % SHARED_GROUPS) + c;
            if k < 256 { code(block, k) } else { 0 }
        }))
    })
}

impl GgufType for Tq1_0 {
    const NAME: &'static str = "TQ1_0";
    const BLOCK_COLUMNS: usize = 256;
    const BLOCK_BYTES: usize = 54; // qs: [u8; 48], qh: [u8; 4], d: f16

    fn dequantize(block: &[u8], out: &mut [f32]) {
        for (k, y) in out.iter_mut().enumerate() {
            *y = half_at(block, 52) * f32::from(code(block, k) as i8 - 1);
        }
    }
}

impl BlockFormat for Tq1_0 {
    const BITS: u32 = 2;
    const OFFSET: i32 = 1;
    const SUB: usize = 32;
    const HAS_MIN: bool = false;
    const STORED_BITS: usize = 1; // groups 0 to 4
    const SLOW_CODES: bool = true;
    const UNIT_SCALES: usize = 2 + 4 * SHARED; // d: f16, groups 5 to 7 of all blocks
    const BLOCK_SCALES: usize = 0;
    const CODES_ALIGN: usize = 2;

    fn pack_block(block: &[u8], b: usize, to: &mut Slot) {
        to.unit_half(0, &block[52..]);
        if b == 0 {
            for v in 0..SHARED {
                to.unit_bits(2 + 4 * v, u32::from_le_bytes(shared_bytes(block, v)));
            }
        }
        to.bytes::<0>(std::array::from_fn(|c| byte(std::array::from_fn(|g| code(block, BLOCK * b + 4 * g + c)))));
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(s: S, unit: *const u8, blocks: usize, b: usize) -> [S::B; 8] {
        unsafe {
            let v0 = s.b_load(Self::planes::<S>(unit, blocks, b));
            let v1 = s.b_triple(v0);
            let v2 = s.b_triple(v1);
            let v3 = s.b_triple(v2);
            let v4 = s.b_triple(v3);
            let rests =
                [v0, v1, v2, v3, v4, of_shared(s, unit, b, 0), of_shared(s, unit, b, 1), of_shared(s, unit, b, 2)];
            groups!(G => s.b_thirds(rests[G]))
        }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(s: S, unit: *const u8, _blocks: usize, _b: usize) -> [S::F; 2] {
        unsafe { [s.load_f16(unit.cast()); 2] }
    }
}

/// Group j of block b in the shared vectors, with its digit first. Safety: as BlockFormat::codes.
#[inline(always)]
unsafe fn of_shared<S: Simd>(s: S, unit: *const u8, b: usize, j: usize) -> S::B {
    let (v, n) = shared(b, j);
    let mut rest = unsafe { s.b_load(unit.add((2 + 4 * v) * S::LANES)) };
    for _ in 0..n {
        rest = s.b_triple(rest);
    }
    rest
}
