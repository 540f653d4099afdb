//! Bit planes: how the codes of a block of 32 columns x LANES rows lie in a panel.
//!
//! A plane holds WIDTH (1, 2, 4 or 8) bits of each code in WIDTH vectors of 4 * LANES bytes. Group g (columns
//! 4g..4g+4) stands in vector g % WIDTH at bit g / WIDTH * WIDTH; in a vector, byte 4 * lane + c is column 4g + c
//! of row `lane`. Five-bit codes are a plane of four and a plane of one, and so on: planes follow each other from the low
//! bits to the high, so that the plane of bits SHIFT.. starts after SHIFT vectors.
use super::BLOCK;
use crate::simd::Simd;

/// Bytes of a block's codes of `bits` bits.
#[inline(always)]
pub const fn plane_bytes(bits: usize, lanes: usize) -> usize {
    bits * 4 * lanes
}

/// Puts bits SHIFT..SHIFT+WIDTH of one row's codes into their plane of a block whose `planes` were zero.
#[inline(always)]
pub fn put<const WIDTH: usize, const SHIFT: usize>(planes: &mut [u8], lanes: usize, lane: usize, codes: &[u8; BLOCK]) {
    let mask = 0x0101_0101 * ((1u32 << WIDTH) - 1);
    let plane = &mut planes[plane_bytes(SHIFT, lanes)..plane_bytes(SHIFT + WIDTH, lanes)];
    let (groups, _) = codes.as_chunks::<4>();
    for (vector, row) in plane.chunks_exact_mut(4 * lanes).enumerate() {
        // Four codes at a time; what a shift carries into a neighbour is masked away.
        let mut word = 0;
        for (bit, group) in groups.iter().skip(vector).step_by(WIDTH).enumerate() {
            word |= (u32::from_le_bytes(*group) >> SHIFT & mask) << (bit * WIDTH);
        }
        row[4 * lane..4 * lane + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// Group G's bits out of the plane of bits SHIFT..SHIFT+WIDTH, at bit SHIFT of each byte.
///
/// # Safety
/// `planes` points at the planes of a block.
#[inline(always)]
pub unsafe fn get<S: Simd, const WIDTH: usize, const SHIFT: usize, const G: usize>(s: S, planes: *const u8) -> S::B {
    unsafe {
        let v = s.b_load(planes.add(plane_bytes(SHIFT + G % WIDTH, S::LANES)));
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

/// The eight vectors of a block, `$e` with `$G` a constant 0..8.
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

    fn round_trip<const WIDTH: usize, const SHIFT: usize>() {
        let (scalar, lanes) = (Scalar::new().expect("everywhere"), Scalar::LANES);
        let code = |lane: usize, k: usize| ((lane * 37 + k * 11) % 256) as u8;
        let mut planes = vec![0; plane_bytes(8, lanes)];
        for lane in 0..lanes {
            put::<WIDTH, SHIFT>(&mut planes, lanes, lane, &std::array::from_fn(|k| code(lane, k)));
        }
        // SAFETY: the planes have their full size.
        let vectors = groups!(G => unsafe { get::<Scalar, WIDTH, SHIFT, G>(scalar, planes.as_ptr()) });
        let mask = (((1 << WIDTH) - 1) << SHIFT) as u8;
        for (g, v) in vectors.iter().enumerate() {
            for (i, got) in v.iter().enumerate() {
                assert_eq!(*got, code(i / 4, 4 * g + i % 4) & mask, "bits {SHIFT} + {WIDTH}, group {g}, byte {i}");
            }
        }
        let outside = planes.iter().enumerate().filter(|(i, _)| !(SHIFT..SHIFT + WIDTH).contains(&(i / (4 * lanes))));
        assert!(outside.into_iter().all(|(_, byte)| *byte == 0), "bits {SHIFT} + {WIDTH} spill");
    }

    #[test]
    fn every_plane_gives_back_what_was_put() {
        round_trip::<1, 0>();
        round_trip::<1, 2>();
        round_trip::<1, 4>();
        round_trip::<2, 0>();
        round_trip::<2, 4>();
        round_trip::<4, 0>();
        round_trip::<8, 0>();
    }
}
