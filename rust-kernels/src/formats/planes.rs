//! Bit planes: how the codes of a block of 32 columns x LANES rows lie in a panel.
//!
//! A plane holds WIDTH (1, 2, 4 or 8) bits of each code in WIDTH vectors of 4 * LANES bytes. Group g (columns
//! 4g..4g+4) stands in vector g % WIDTH at bit g / WIDTH * WIDTH; in a vector, byte 4 * lane + c is column 4g + c
//! of row `lane`. Five-bit codes are a plane of four and a plane of one, and so on.
use super::BLOCK;
use crate::simd::Simd;

/// Bytes of a plane for one block.
pub const fn plane_bytes(width: usize, lanes: usize) -> usize {
    width * 4 * lanes
}

/// Puts bits SHIFT..SHIFT+WIDTH of one row's codes into a plane that was zero.
#[inline(always)]
pub fn put<const WIDTH: usize, const SHIFT: u32>(plane: &mut [u8], lanes: usize, lane: usize, codes: &[u8; BLOCK]) {
    let mask = ((1u16 << WIDTH) - 1) as u8;
    for g in 0..8 {
        let (vector, bit) = (g % WIDTH, g / WIDTH * WIDTH);
        let at = vector * 4 * lanes + 4 * lane;
        for c in 0..4 {
            plane[at + c] |= (codes[4 * g + c] >> SHIFT & mask) << bit;
        }
    }
}

/// Group G's bits of a plane, at bit SHIFT of each byte.
///
/// # Safety
/// `plane` points at a plane of WIDTH; S as simd says.
#[inline(always)]
pub unsafe fn get<S: Simd, const WIDTH: usize, const SHIFT: u32, const G: usize>(plane: *const u8) -> S::B {
    unsafe {
        let v = S::b_load(plane.add(G % WIDTH * 4 * S::LANES));
        if WIDTH == 8 {
            return v;
        }
        let bit = (G / WIDTH * WIDTH) as u32;
        let moved = if bit > SHIFT {
            S::b_shr(v, bit - SHIFT)
        } else if bit < SHIFT {
            S::b_shl(v, SHIFT - bit)
        } else {
            v
        };
        S::b_and(moved, (((1u16 << WIDTH) - 1) << SHIFT) as u8)
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

    fn round_trip<const WIDTH: usize>() {
        let lanes = Scalar::LANES;
        let code = |lane: usize, k: usize| ((lane * 37 + k * 11) % (1 << WIDTH)) as u8;
        let mut plane = vec![0; plane_bytes(WIDTH, lanes)];
        for lane in 0..lanes {
            put::<WIDTH, 0>(&mut plane, lanes, lane, &std::array::from_fn(|k| code(lane, k)));
        }
        // SAFETY: the plane has its full size, and Scalar runs everywhere.
        let vectors = groups!(G => unsafe { get::<Scalar, WIDTH, 0, G>(plane.as_ptr()) });
        for (g, v) in vectors.iter().enumerate() {
            for (i, got) in v.iter().enumerate() {
                assert_eq!(*got, code(i / 4, 4 * g + i % 4), "width {WIDTH}, group {g}, byte {i}");
            }
        }
    }

    #[test]
    fn every_width_gives_back_what_was_put() {
        round_trip::<1>();
        round_trip::<2>();
        round_trip::<4>();
        round_trip::<8>();
    }
}
