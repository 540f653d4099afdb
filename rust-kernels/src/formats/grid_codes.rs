//! Codes that are indices of grid points. Each lane looks up two 16-bit words, which become vectors of codes.
use super::{BLOCK, Slot, planes};
use crate::groups;
use crate::simd::Simd;

/// Converts a grid of eight-value points for `eights`. The low nibbles of a word's two bytes hold columns 0 to 3, the
/// high nibbles columns 4 to 7, two columns per nibble.
pub(super) const fn eights_table<const N: usize>(points: &[u16; N]) -> [u16; N] {
    let (mut table, mut i) = ([0; N], 0);
    while i < N {
        let mut k = 0;
        while k < 8 {
            table[i] |= (points[i] >> (2 * k) & 3) << (8 * (k / 2 % 2) + 4 * (k / 4) + 2 * (k % 2));
            k += 1;
        }
        i += 1;
    }
    table
}

/// Converts a grid of four-value points for `fours`: columns 0 to 3 are in nibbles 0, 2, 1 and 3.
pub(super) const fn fours_table<const N: usize>(points: &[u16; N]) -> [u16; N] {
    let (mut table, mut i) = ([0; N], 0);
    while i < N {
        let p = points[i];
        table[i] = p & 0xf00f | (p & 0x00f0) << 4 | (p & 0x0f00) >> 4;
        i += 1;
    }
    table
}

/// The codes of the values that `eights` returns. Values of odd columns are two bits higher.
pub(super) const fn of_values(codes: [u8; 3]) -> [u8; 16] {
    let (mut table, mut i) = ([0; 16], 0);
    while i < 3 {
        table[i] = codes[i];
        table[4 * i] = codes[i];
        i += 1;
    }
    table
}

/// Four indices per lane, of BITS bits beyond eight, as two words in each of two vectors: indices 0 and 1, then 2 and
/// 3. `low` has their low bytes in the layout of `Slot::indices`. In `high`, the higher bits of indices 0 and 2 start
/// at bit 0 of the lane, index 2 above index 0. Those of 1 and 3 start at bit 16. Other bits are ignored.
#[inline(always)]
pub(super) fn indices<S: Simd, const BITS: u32>(s: S, low: S::B, high: S::B) -> [S::B; 2] {
    let (even, odd) = (s.b_and32(low, 0x00ff_00ff), s.b_and32(s.b_shr32(low, 8), 0x00ff_00ff));
    if BITS == 0 {
        return [even, odd];
    }
    let mask = 0x0100_0100 * ((1 << BITS) - 1);
    [s.b_or(even, s.b_and32(s.b_shl32(high, 8), mask)), s.b_or(odd, s.b_and32(s.b_shl32(high, 8 - BITS), mask))]
}

/// Values of a block of four eight-value points, from `eights_table`. Values of odd columns are multiplied by four.
#[inline(always)]
pub(super) fn eights<S: Simd, const N: usize>(s: S, table: &[u16; N], index: [S::B; 2]) -> [S::B; 8] {
    let [a, b] = s.b_lookup16(table, index);
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (two_points(s, a), two_points(s, b));
    [a0, a1, a2, a3, b0, b1, b2, b3]
}

// No closures here and in the formats: without inlining they would not be compiled for the instruction set.

#[inline(always)]
fn two_points<S: Simd>(s: S, v: S::B) -> [S::B; 4] {
    const VALUES: u32 = 0x0c03_0c03;
    let v4 = s.b_shr32(v, 4);
    [
        s.b_and32(s.b_pairs::<false>(v), VALUES),
        s.b_and32(s.b_pairs::<false>(v4), VALUES),
        s.b_and32(s.b_pairs::<true>(v), VALUES),
        s.b_and32(s.b_pairs::<true>(v4), VALUES),
    ]
}

/// Values of half a block of four four-value points, from `fours_table`.
#[inline(always)]
pub(super) fn fours<S: Simd, const N: usize>(s: S, table: &[u16; N], index: [S::B; 2]) -> [S::B; 4] {
    let [a, b] = s.b_lookup16(table, index);
    [low_point(s, a), high_point(s, a), low_point(s, b), high_point(s, b)]
}

/// The values of the point in the low or the high half of each lane.
#[inline(always)]
fn low_point<S: Simd>(s: S, v: S::B) -> S::B {
    s.b_or(s.b_and32(v, 0x0000_0f0f), s.b_and32(s.b_shl32(v, 12), 0x0f0f_0000))
}

#[inline(always)]
fn high_point<S: Simd>(s: S, v: S::B) -> S::B {
    s.b_or(s.b_and32(s.b_shr32(v, 16), 0x0000_0f0f), s.b_and32(s.b_shr32(v, 4), 0x0f0f_0000))
}

/// Codes of magnitudes from `table`, mirrored where `signs`, a plane of one bit, has a 1. `twice` is the sum of a
/// code and its negative's code.
#[inline(always)]
pub(super) fn signed<S: Simd>(s: S, values: [S::B; 8], table: &[u8; 16], signs: S::B, twice: u8) -> [S::B; 8] {
    groups!(G => s.b_mirror(s.b_lookup(table, values[G]), signs, 1 << G, twice))
}

/// Seven signs, and an eighth that makes the number of negative values even.
pub(super) const fn even_signs(seven: u32) -> u8 {
    (seven & 127) as u8 | ((seven & 127).count_ones() as u8 & 1) << 7
}

/// Nibble n of the integers at byte `at` of each row's scales, as a number. Safety: as BlockFormat::scales.
#[inline(always)]
pub(super) unsafe fn nibble_of<S: Simd>(s: S, unit: *const u8, at: usize, n: usize) -> S::F {
    unsafe { s.b_to_f(s.b_and32(s.b_shr32(s.b_load(unit.add(at * S::LANES)), 4 * n as u32), 15)) }
}

impl Slot<'_> {
    /// Adds bits to the 32-bit integer at byte `at` of the row's unit scales.
    #[inline(always)]
    pub(super) fn unit_bits(&mut self, at: usize, bits: u32) {
        let to = &mut self.scales[at * self.lanes + 4 * self.lane..][..4];
        for (to, byte) in to.iter_mut().zip(bits.to_le_bytes()) {
            *to |= byte;
        }
    }

    /// Writes the low bytes of four indices to vector VECTOR of the planes.
    #[inline(always)]
    pub(super) fn indices<const VECTOR: usize>(&mut self, low: [u8; 4]) {
        self.bytes::<VECTOR>([low[0], low[2], low[1], low[3]]);
    }

    /// Writes the row's four bytes to vector VECTOR of the planes.
    #[inline(always)]
    pub(super) fn bytes<const VECTOR: usize>(&mut self, bytes: [u8; 4]) {
        self.planes[4 * (VECTOR * self.lanes + self.lane)..][..4].copy_from_slice(&bytes);
    }

    /// Writes the signs of 32 columns, eight per byte, to the 1-bit plane VECTOR.
    #[inline(always)]
    pub(super) fn signs<const VECTOR: usize>(&mut self, signs: [u8; 4]) {
        let bits: [u8; BLOCK] = std::array::from_fn(|k| (signs[k / 8] >> (k % 8) & 1) << VECTOR);
        planes::put::<1, VECTOR, VECTOR>(self.planes, self.lanes, self.lane, &bits);
    }
}
