//! How codes that are indices of a grid's points become vectors of codes: by looking up words of 16 bits, two in each lane.
use super::{BLOCK, Slot, planes};
use crate::groups;
use crate::simd::Simd;

/// A grid of points of eight values as `eights` looks it up: the low nibbles of a word's two bytes are columns 0 to 3, the
/// high ones columns 4 to 7, two to a nibble.
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

/// A grid of points of four values as `fours` looks it up: column k in nibble 0, 2, 1 or 3.
pub(super) const fn fours_table<const N: usize>(points: &[u16; N]) -> [u16; N] {
    let (mut table, mut i) = ([0; N], 0);
    while i < N {
        let p = points[i];
        table[i] = p & 0xf00f | (p & 0x00f0) << 4 | (p & 0x0f00) >> 4;
        i += 1;
    }
    table
}

/// What `eights` makes of values, by what they stand for: odd columns have their value two bits higher.
pub(super) const fn of_values(codes: [u8; 3]) -> [u8; 16] {
    let (mut table, mut i) = ([0; 16], 0);
    while i < 3 {
        table[i] = codes[i];
        table[4 * i] = codes[i];
        i += 1;
    }
    table
}

/// Four indices of BITS bits beyond eight, in each lane, as two words in each of two vectors: indices 0 and 1, then 2
/// and 3. `low` has their low bytes as `Slot::indices` puts them. In `high` the higher bits of 0 and 2 stand above
/// each other from the lane's bit 0 on, those of 1 and 3 from bit 16 on; its other bits do not matter.
#[inline(always)]
pub(super) fn indices<S: Simd, const BITS: u32>(s: S, low: S::B, high: S::B) -> [S::B; 2] {
    let (even, odd) = (s.b_and32(low, 0x00ff_00ff), s.b_and32(s.b_shr32(low, 8), 0x00ff_00ff));
    if BITS == 0 {
        return [even, odd];
    }
    let mask = 0x0100_0100 * ((1 << BITS) - 1);
    [s.b_or(even, s.b_and32(s.b_shl32(high, 8), mask)), s.b_or(odd, s.b_and32(s.b_shl32(high, 8 - BITS), mask))]
}

/// Values of a block of four points of eight, out of `eights_table`: those of odd columns four times what they are.
#[inline(always)]
pub(super) fn eights<S: Simd, const N: usize>(s: S, table: &[u16; N], index: [S::B; 2]) -> [S::B; 8] {
    let [a, b] = s.b_lookup16(table, index);
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (two_points(s, a), two_points(s, b));
    [a0, a1, a2, a3, b0, b1, b2, b3]
}

// Here and in the formats no closures: those that are not inlined would not be compiled for the instruction set.

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

/// Values of half a block of four points of four, out of `fours_table`.
#[inline(always)]
pub(super) fn fours<S: Simd, const N: usize>(s: S, table: &[u16; N], index: [S::B; 2]) -> [S::B; 4] {
    let [a, b] = s.b_lookup16(table, index);
    [low_point(s, a), high_point(s, a), low_point(s, b), high_point(s, b)]
}

/// The values of the point in the low or high half of each lane.
#[inline(always)]
fn low_point<S: Simd>(s: S, v: S::B) -> S::B {
    s.b_or(s.b_and32(v, 0x0000_0f0f), s.b_and32(s.b_shl32(v, 12), 0x0f0f_0000))
}

#[inline(always)]
fn high_point<S: Simd>(s: S, v: S::B) -> S::B {
    s.b_or(s.b_and32(s.b_shr32(v, 16), 0x0000_0f0f), s.b_and32(s.b_shr32(v, 4), 0x0f0f_0000))
}

/// Codes of magnitudes that `table` looks up, and of their negatives where `signs`, a plane of one bit, has one.
/// `twice` is the sum of a code and that of the negative.
#[inline(always)]
pub(super) fn signed<S: Simd>(s: S, values: [S::B; 8], table: &[u8; 16], signs: S::B, twice: u8) -> [S::B; 8] {
    groups!(G => s.b_mirror(s.b_lookup(table, values[G]), signs, 1 << G, twice))
}

/// Seven signs and the eighth, which makes the number of negative values even.
pub(super) const fn even_signs(seven: u32) -> u8 {
    (seven & 127) as u8 | ((seven & 127).count_ones() as u8 & 1) << 7
}

/// Nibble n of the integers at byte `at` of each row's scales, as a number. Safety: as BlockFormat::scales.
#[inline(always)]
pub(super) unsafe fn nibble_of<S: Simd>(s: S, unit: *const u8, at: usize, n: usize) -> S::F {
    unsafe { s.b_to_f(s.b_and32(s.b_shr32(s.b_load(unit.add(at * S::LANES)), 4 * n as u32), 15)) }
}

impl Slot<'_> {
    /// Adds bits to an integer of 32 bits among the scales of the unit, at byte `at` of the row's.
    #[inline(always)]
    pub(super) fn unit_bits(&mut self, at: usize, bits: u32) {
        let to = &mut self.scales[at * self.lanes + 4 * self.lane..][..4];
        for (to, byte) in to.iter_mut().zip(bits.to_le_bytes()) {
            *to |= byte;
        }
    }

    /// Puts four indices' low bytes into vector VECTOR of the planes.
    #[inline(always)]
    pub(super) fn indices<const VECTOR: usize>(&mut self, low: [u8; 4]) {
        self.bytes::<VECTOR>([low[0], low[2], low[1], low[3]]);
    }

    /// Puts the row's four bytes into vector VECTOR of the planes.
    #[inline(always)]
    pub(super) fn bytes<const VECTOR: usize>(&mut self, bytes: [u8; 4]) {
        self.planes[4 * (VECTOR * self.lanes + self.lane)..][..4].copy_from_slice(&bytes);
    }

    /// Puts the signs of 32 columns, eight to a byte, into plane VECTOR of one bit.
    #[inline(always)]
    pub(super) fn signs<const VECTOR: usize>(&mut self, signs: [u8; 4]) {
        let bits: [u8; BLOCK] = std::array::from_fn(|k| (signs[k / 8] >> (k % 8) & 1) << VECTOR);
        planes::put::<1, VECTOR, VECTOR>(self.planes, self.lanes, self.lane, &bits);
    }
}
