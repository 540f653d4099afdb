//! Rotary positions, per-head norms, and the append to the KV cache.
use super::norm::{inverse_rms, scale_by};
use crate::simd::Simd;

/// Tokens of a KV block; engine/backend/backend.ts has the same number.
pub const KV_BLOCK: usize = 32;
/// Tokens that lie side by side in a key block: keys are [KV_BLOCK / KEY_GROUP][head_dim][KEY_GROUP], so that a
/// vector of positions is one load, and one token's append touches a cache line for two dimensions.
pub const KEY_GROUP: usize = 16;

/// Where element d of the key in `slot` stands in its block.
#[inline(always)]
pub const fn key_index(head_dim: usize, d: usize, slot: usize) -> usize {
    (slot / KEY_GROUP * head_dim + d) * KEY_GROUP + slot % KEY_GROUP
}

/// The largest finite half: values beyond are clamped, so that a masked position never multiplies 0 by infinity.
const HALF_MAX: f32 = 65504.0;

/// Fills one row of the table: cos of every angle, then sin.
///
/// # Safety
/// `table` holds 2 * `frequencies.len()` floats.
pub unsafe fn rope_table(position: usize, frequencies: &[f64], table: *mut f32) {
    let half = frequencies.len();
    for (i, frequency) in frequencies.iter().enumerate() {
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        // SAFETY: i < half.
        unsafe {
            *table.add(i) = cos as f32;
            *table.add(half + i) = sin as f32;
        }
    }
}

/// How heads are turned.
#[derive(Clone, Copy)]
pub struct RopeShape {
    pub head_dim: usize,
    /// Leading dimensions that are rotated.
    pub rotated: usize,
    /// Pairs (2i, 2i + 1) as in llama's GGUF layout; otherwise (i, i + rotated / 2).
    pub interleaved: bool,
    pub eps: f32,
}

/// Normalises (with a weight) and rotates one head in place.
///
/// # Safety
/// `x` holds head_dim floats, `table` `rotated`, `weight` head_dim or is null; S as simd says.
#[inline(always)]
pub unsafe fn norm_and_rotate<S: Simd>(x: *mut f32, weight: *const f32, table: *const f32, shape: &RopeShape) {
    unsafe {
        if !weight.is_null() {
            let factor = inverse_rms::<S>(x, shape.head_dim, shape.eps);
            scale_by::<S>(x, weight, shape.head_dim, factor, x);
        }
        let half = shape.rotated / 2;
        if shape.interleaved {
            for i in 0..half {
                rotate_pair(x.add(2 * i), x.add(2 * i + 1), *table.add(i), *table.add(half + i));
            }
            return;
        }
        let whole = half / S::LANES * S::LANES;
        for i in (0..whole).step_by(S::LANES) {
            let (cos, sin) = (S::load(table.add(i)), S::load(table.add(half + i)));
            let (a, b) = (S::load(x.add(i)), S::load(x.add(half + i)));
            S::store(x.add(i), S::sub(S::mul(a, cos), S::mul(b, sin)));
            S::store(x.add(half + i), S::add(S::mul(a, sin), S::mul(b, cos)));
        }
        for i in whole..half {
            rotate_pair(x.add(i), x.add(half + i), *table.add(i), *table.add(half + i));
        }
    }
}

#[inline(always)]
unsafe fn rotate_pair(first: *mut f32, second: *mut f32, cos: f32, sin: f32) {
    unsafe {
        let (a, b) = (*first, *second);
        *first = a * cos - b * sin;
        *second = a * sin + b * cos;
    }
}

/// Writes one key into its block, transposed: element d to `key_index`.
///
/// # Safety
/// `x` holds head_dim floats, `block` head_dim * KV_BLOCK halves; S as simd says.
#[inline(always)]
pub unsafe fn append_key<S: Simd>(x: *const f32, head_dim: usize, block: *mut u16, slot: usize) {
    let mut halves = [0u16; 16];
    for d in (0..head_dim).step_by(S::LANES) {
        unsafe {
            let n = S::LANES.min(head_dim - d);
            store_halves::<S>(x.add(d), n, halves.as_mut_ptr());
            for (i, half) in halves.iter().enumerate().take(n) {
                *block.add(key_index(head_dim, d + i, slot)) = *half;
            }
        }
    }
}

/// Writes one value into its block: [slot][head_dim].
///
/// # Safety
/// `x` holds head_dim floats, `block` is [KV_BLOCK][head_dim] halves; S as simd says.
#[inline(always)]
pub unsafe fn append_value<S: Simd>(x: *const f32, head_dim: usize, block: *mut u16, slot: usize) {
    let mut halves = [0u16; 16];
    for d in (0..head_dim).step_by(S::LANES) {
        unsafe {
            let n = S::LANES.min(head_dim - d);
            store_halves::<S>(x.add(d), n, halves.as_mut_ptr());
            std::ptr::copy_nonoverlapping(halves.as_ptr(), block.add(slot * head_dim + d), n);
        }
    }
}

/// Converts n <= LANES floats to halves, clamped to the finite range.
#[inline(always)]
unsafe fn store_halves<S: Simd>(x: *const f32, n: usize, halves: *mut u16) {
    unsafe {
        let mut lanes = [0f32; 16];
        std::ptr::copy_nonoverlapping(x, lanes.as_mut_ptr(), n);
        let clamped = S::max(S::min(S::load(lanes.as_ptr()), S::splat(HALF_MAX)), S::splat(-HALF_MAX));
        S::store_f16(halves, clamped);
    }
}
