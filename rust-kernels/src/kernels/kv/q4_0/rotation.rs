//! Rotates heads by Hadamard matrices, which spread outliers over all dimensions of a piece. The matrices are symmetric
//! and orthogonal, so each rotation is its own inverse. Scores of rotated queries and keys are those of the originals.
//!
//! Every instruction set adds the same floats in the same order, so a rotation has the same bits on all of them.
use crate::simd::Simd;

/// The largest number of dimensions of a piece.
pub const MOST: usize = 512;
/// Number of floats that `within` rotates: at least LANES of every instruction set.
const GROUP: usize = 16;

/// Returns the number of dimensions of the next piece if `rest` dimensions are left: a power of two, at most MOST.
pub fn piece(rest: usize) -> usize {
    (1 << rest.ilog2()).min(MOST)
}

/// Rotates the first n floats, in place.
///
/// # Safety
/// `x` holds n floats; n is a power of two, at least GROUP.
#[inline(always)]
pub unsafe fn rotate_piece<S: Simd>(s: S, x: *mut f32, n: usize) {
    unsafe {
        for i in (0..n).step_by(GROUP) {
            let group = x.add(i).cast::<[f32; GROUP]>();
            group.write(within(group.read()));
        }
        let mut stride = GROUP;
        while stride < n {
            for i in (0..n).step_by(2 * stride) {
                for d in (i..i + stride).step_by(S::LANES) {
                    let (a, b) = (s.load(x.add(d)), s.load(x.add(d + stride)));
                    s.store(x.add(d), s.add(a, b));
                    s.store(x.add(d + stride), s.sub(a, b));
                }
            }
            stride *= 2;
        }
        let length = s.splat(1.0 / (n as f32).sqrt());
        for d in (0..n).step_by(S::LANES) {
            s.store(x.add(d), s.mul(s.load(x.add(d)), length));
        }
    }
}

/// Rotates the first `width` floats piece by piece, in place.
///
/// # Safety
/// `x` holds `width` floats, a multiple of GROUP.
#[inline(always)]
pub unsafe fn rotate<S: Simd>(s: S, x: *mut f32, width: usize) {
    let mut start = 0;
    while start < width {
        let n = piece(width - start);
        unsafe { rotate_piece(s, x.add(start), n) }
        start += n;
    }
}

/// Adds and subtracts at the strides below GROUP.
#[inline(always)]
fn within(x: [f32; GROUP]) -> [f32; GROUP] {
    stage::<8>(stage::<4>(stage::<2>(stage::<1>(x))))
}

#[inline(always)]
fn stage<const STRIDE: usize>(x: [f32; GROUP]) -> [f32; GROUP] {
    std::array::from_fn(|i| if i & STRIDE == 0 { x[i] + x[i + STRIDE] } else { x[i - STRIDE] - x[i] })
}
