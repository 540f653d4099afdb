//! Bit planes: the layout of the codes of a block of 32 columns x LANES rows in a panel.
//!
//! A plane holds WIDTH (1, 2, 4 or 8) bits of each code in WIDTH vectors of 4 * LANES bytes. Group g (columns
//! 4g..4g+4) is in vector g % WIDTH at bit g / WIDTH * WIDTH. In a vector, byte 4 * lane + c is column 4g + c of row
//! `lane`. Five-bit codes have a plane of four bits and a plane of one, and so on. Planes are stored from the high
//! bits to the low bits, so a plane starts after as many vectors as there are bits ABOVE it. Decoding a code starts
//! with its high bits, and a core that reads lines out of memory order fetches them later (docs/lab/2026-11.md).
use super::BLOCK;
use crate::simd::Simd;

/// Bytes of a block's codes of `bits` bits.
#[inline(always)]
pub const fn plane_bytes(bits: usize, lanes: usize) -> usize {
    bits * 4 * lanes
}

/// Writes bits SHIFT..SHIFT+WIDTH of one row's codes to their plane. `planes` must be zero before.
#[inline(always)]
pub fn put<const WIDTH: usize, const SHIFT: usize, const ABOVE: usize>(
    planes: &mut [u8],
    lanes: usize,
    lane: usize,
    codes: &[u8; BLOCK],
) {
    let mask = 0x0101_0101 * ((1u32 << WIDTH) - 1);
    let plane = &mut planes[plane_bytes(ABOVE, lanes)..plane_bytes(ABOVE + WIDTH, lanes)];
    let (groups, _) = codes.as_chunks::<4>();
    for (vector, row) in plane.chunks_exact_mut(4 * lanes).enumerate() {
        // Four codes at a time. The mask removes bits that a shift carries into a neighbouring code.
        let mut word = 0;
        for (bit, group) in groups.iter().skip(vector).step_by(WIDTH).enumerate() {
            word |= (u32::from_le_bytes(*group) >> SHIFT & mask) << (bit * WIDTH);
        }
        row[4 * lane..4 * lane + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// Group G of codes with a single plane of BITS bits.
///
/// # Safety
/// `planes` points at the planes of a block.
#[inline(always)]
pub unsafe fn get<S: Simd, const BITS: usize, const G: usize>(s: S, planes: *const u8) -> S::B {
    unsafe { part::<S, BITS, 0, 0, G>(s, planes) }
}

/// Group G of codes with a plane of the LOW lower bits and a plane of the HIGH higher bits.
///
/// # Safety
/// As `get`.
#[inline(always)]
pub unsafe fn get_split<S: Simd, const LOW: usize, const HIGH: usize, const G: usize>(s: S, planes: *const u8) -> S::B {
    unsafe { s.b_or(part::<S, LOW, 0, HIGH, G>(s, planes), part::<S, HIGH, LOW, 0, G>(s, planes)) }
}

/// Group G's bits from the plane of bits SHIFT..SHIFT+WIDTH, at bit SHIFT of each byte.
///
/// # Safety
/// As `get`.
#[inline(always)]
unsafe fn part<S: Simd, const WIDTH: usize, const SHIFT: usize, const ABOVE: usize, const G: usize>(
    s: S,
    planes: *const u8,
) -> S::B {
    unsafe {
        let v = s.b_load(planes.add(plane_bytes(ABOVE + G % WIDTH, S::LANES)));
        if WIDTH == 8 {
            return v;
        }
        let bit = G / WIDTH * WIDTH;
        let moved = if bit > SHIFT {
            s.b_shr(v, (bit - SHIFT) as u32)
        } else if bit < SHIFT {
            s.b_shl(v, (SHIFT - bit) as u32)
        } else {
            v
        };
        s.b_and(moved, (((1u16 << WIDTH) - 1) << SHIFT) as u8)
    }
}

/// All codes of a block with a single plane of BITS bits.
///
/// # Safety
/// As `get`.
#[inline(always)]
pub unsafe fn all<S: Simd, const BITS: usize>(s: S, planes: *const u8) -> [S::B; 8] {
    unsafe { groups!(G => get::<S, BITS, G>(s, planes)) }
}

/// Twice each bit of a block with a plane of one bit.
///
/// # Safety
/// As `get`.
#[inline(always)]
pub unsafe fn doubled_bits<S: Simd>(s: S, planes: *const u8) -> [S::B; 8] {
    unsafe { groups!(G => part::<S, 1, 1, 0, G>(s, planes)) }
}

/// The codes that a block's nibbles look up in `table`.
///
/// # Safety
/// As `get`.
#[inline(always)]
pub unsafe fn look_up<S: Simd>(s: S, table: &[u8; 16], planes: *const u8) -> [S::B; 8] {
    unsafe { groups!(G => s.b_lookup(table, get::<S, 4, G>(s, planes))) }
}

/// The eight vectors of a block: `$e` with the constants 0..8 as `$G`.
#[macro_export]
macro_rules! groups {
    ($G:ident => $e:expr) => {
        [
            { const $G: usize = 0; $e }, { const $G: usize = 1; $e }, { const $G: usize = 2; $e },
            { const $G: usize = 3; $e }, { const $G: usize = 4; $e }, { const $G: usize = 5; $e },
            { const $G: usize = 6; $e }, { const $G: usize = 7; $e },
        ]
    };
}
pub use crate::groups;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::scalar::Scalar;

    fn round_trip<const WIDTH: usize, const SHIFT: usize, const ABOVE: usize>() {
        let (scalar, lanes) = (Scalar::new().expect("everywhere"), Scalar::LANES);
        let code = |lane: usize, k: usize| ((lane * 37 + k * 11) % 256) as u8;
        let mut planes = vec![0; plane_bytes(8, lanes)];
        for lane in 0..lanes {
            put::<WIDTH, SHIFT, ABOVE>(&mut planes, lanes, lane, &std::array::from_fn(|k| code(lane, k)));
        }
        // SAFETY: the planes have their full size.
        let vectors = groups!(G => unsafe { part::<Scalar, WIDTH, SHIFT, ABOVE, G>(scalar, planes.as_ptr()) });
        let mask = (((1 << WIDTH) - 1) << SHIFT) as u8;
        for (g, v) in vectors.iter().enumerate() {
            for (i, got) in v.iter().enumerate() {
                assert_eq!(*got, code(i / 4, 4 * g + i % 4) & mask, "bits {SHIFT} + {WIDTH}, group {g}, byte {i}");
            }
        }
        let outside = planes.iter().enumerate().filter(|(i, _)| !(ABOVE..ABOVE + WIDTH).contains(&(i / (4 * lanes))));
        assert!(outside.into_iter().all(|(_, byte)| *byte == 0), "bits {SHIFT} + {WIDTH} spill");
    }

    #[test]
    fn planes_return_the_codes_that_were_put() {
        round_trip::<1, 0, 0>();
        round_trip::<1, 2, 0>();
        round_trip::<1, 4, 3>();
        round_trip::<2, 0, 1>();
        round_trip::<2, 4, 0>();
        round_trip::<4, 0, 2>();
        round_trip::<8, 0, 0>();
    }

    #[test]
    fn put_stores_high_bits_before_low_bits() {
        let (scalar, lanes) = (Scalar::new().expect("everywhere"), Scalar::LANES);
        let codes: [u8; BLOCK] = std::array::from_fn(|k| (k * 23 % 64) as u8);
        let mut planes = vec![0; plane_bytes(6, lanes)];
        for lane in 0..lanes {
            put::<4, 0, 2>(&mut planes, lanes, lane, &codes);
            put::<2, 4, 0>(&mut planes, lanes, lane, &codes);
        }
        // SAFETY: the planes have their full size.
        let vectors = groups!(G => unsafe { get_split::<Scalar, 4, 2, G>(scalar, planes.as_ptr()) });
        for (g, v) in vectors.iter().enumerate() {
            assert!(v.iter().enumerate().all(|(i, got)| *got == codes[4 * g + i % 4]), "group {g}");
        }
    }
}
