//! Attention's products in 16-bit integers (kernels/pairs.rs). Queries, keys and values have one scale per head and
//! token. A row's weights have one scale per chunk of positions. This rounding loses far less accuracy than the 8-bit
//! rounding of the op's inputs and outputs.
use super::products::Products;
use super::tile::{CHUNK, Parts, Rows};
use crate::kernels::float_gemm::FloatRows;
use crate::kernels::pairs::{
    MOST, MOST_WEIGHTS, PAIR, Pairs, SEGMENT, SUMMED, Size, codes, inverse, larger, place, write_pairs,
};
use crate::simd::Simd;

/// Number of keys whose codes alternate in memory: a multiple of every PAIR_ROWS.
const GROUP: usize = 8;

/// Products in 16-bit integers. The layouts of the codes are:
/// - queries: [TILE / LANES][dim / 2][LANES x 2 dimensions]
/// - keys: [CHUNK / GROUP][dim / 2][GROUP][2 dimensions]
/// - values: [CHUNK / 2][dim][2 positions]
pub struct Int16;

/// Statistics that determine the scale of a row's weight codes. A weight counts times its value's scale. The fields are
/// the largest weight, the largest sum of SUMMED weights, the sum of the current SUMMED weights, and the sum of all
/// earlier ones.
#[derive(Clone, Copy)]
pub struct Measure<F> {
    top: F,
    largest: F,
    sum: F,
    whole: F,
}

impl Products for Int16 {
    type Measure<S: Simd> = Measure<S::F>;

    fn vectors<S: Simd>() -> usize {
        2
    }

    #[inline(always)]
    unsafe fn query<S: Simd>(s: S, q: *const f32, scale: f32, p: &Parts, to: &Rows, r: usize) {
        unsafe {
            let q = p.whole(q, 0);
            let size = Size::of(s, q, p.dim).scale();
            *to.query_scales.add(r) = size * scale;
            let row = to.q.cast::<i16>().add(r / S::LANES * S::LANES * p.dim);
            if S::PAIRS_TOGETHER {
                return write_pairs(s, q, p.dim, size, row.add(r % S::LANES * 2), 2 * S::LANES);
            }
            codes(
                s,
                p.dim,
                size,
                |d| s.load(q.add(d)),
                |d, code| {
                    *row.add(d / 2 * 2 * S::LANES + place(S::LANES, false, r % S::LANES, d % 2)) = code;
                },
            );
        }
    }

    #[inline(always)]
    unsafe fn keys<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts) {
        unsafe {
            for i in 0..n {
                let key = p.whole(rows.base.add((start + i) * rows.stride), 0);
                let scale = Size::of(s, key, p.dim).scale();
                *p.key_scales.add(i) = scale;
                write_pairs(s, key, p.dim, scale, key_codes(p, i), 2 * GROUP);
            }
        }
    }

    #[inline(always)]
    unsafe fn values<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts) {
        unsafe {
            for i in (0..n).step_by(2) {
                // If the number of values is odd, the last is paired with itself, and the copy has a weight of 0.
                let a = p.whole(rows.base.add((start + i) * rows.stride), 0);
                let b = p.whole(rows.base.add((start + (i + 1).min(n - 1)) * rows.stride), 1);
                let (size, other) = (value_scale(s, a, p.dim), value_scale(s, b, p.dim));
                *p.value_scales.add(i) = size;
                *p.value_scales.add(i + 1) = other;
                let (size, other) = (s.splat(inverse(size)), s.splat(inverse(other)));
                let to = p.values.cast::<i16>().add(i * p.dim);
                for d in (0..p.dim).step_by(S::LANES) {
                    s.store_pairs(to.add(2 * d), s.mul(s.load(a.add(d)), size), s.mul(s.load(b.add(d)), other));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize) {
        let mut i = 0;
        while i < n {
            i += unsafe {
                match n - i {
                    8.. if const { S::PAIR_ROWS >= 8 } => scores::<S, 8, V>(s, p, rows, first, i),
                    4.. if const { S::PAIR_ROWS >= 4 } => scores::<S, 4, V>(s, p, rows, first, i),
                    2.. => scores::<S, 2, V>(s, p, rows, first, i),
                    _ => scores::<S, 1, V>(s, p, rows, first, i),
                }
            };
        }
    }

    #[inline(always)]
    fn measure<S: Simd>(s: S) -> Self::Measure<S> {
        let zero = s.splat(0.0);
        Measure { top: zero, largest: zero, sum: zero, whole: zero }
    }

    #[inline(always)]
    unsafe fn weigh<S: Simd>(s: S, p: &Parts, i: usize, weight: S::F, to: &mut Self::Measure<S>) -> S::F {
        if i.is_multiple_of(SUMMED) {
            to.largest = s.max(to.sum, to.largest);
            to.whole = s.add(to.whole, to.sum);
            to.sum = s.splat(0.0);
        }
        let product = s.mul(weight, s.splat(unsafe { *p.value_scales.add(i) }));
        to.top = s.max(product, to.top);
        to.sum = s.add(to.sum, product);
        product
    }

    #[inline(always)]
    unsafe fn weighed<S: Simd>(s: S, p: &Parts, first: usize, n: usize, by: Self::Measure<S>) {
        unsafe {
            let zero = s.splat(0.0);
            let sums = s.mul(s.max(by.sum, by.largest), s.splat(1.0 / MOST_WEIGHTS));
            let scale = s.max(sums, s.mul(by.top, s.splat(1.0 / MOST)));
            // A NaN in a value makes the scale of the weights NaN.
            s.store(p.weight_scales.add(first), s.fma(s.add(by.whole, by.sum), zero, scale));
            let inverse = s.zero_below(scale, s.splat(f32::MIN_POSITIVE), s.div(s.splat(1.0), scale));
            for i in (0..n).step_by(2) {
                let a = s.mul(s.load(p.score(i, first)), inverse);
                let b = if i + 1 < n { s.mul(s.load(p.score(i + 1, first)), inverse) } else { zero };
                let to = weights(p, first).add(i * S::LANES);
                if S::PAIRS_TOGETHER {
                    s.store_pairs(to, a, b);
                } else {
                    s.store_i16(to, a);
                    s.store_i16(to.add(S::LANES), b);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn mix<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize) {
        unsafe {
            let mut d = 0;
            while d < p.dim {
                d += match S::PAIR_ROWS {
                    8 => mix::<S, 8, V>(s, p, rows, first, n, d),
                    4 => mix::<S, 4, V>(s, p, rows, first, n, d),
                    _ => mix::<S, 2, V>(s, p, rows, first, n, d),
                };
            }
        }
    }
}

/// Returns the address of the first codes of key `i` of the chunk.
#[inline(always)]
fn key_codes(p: &Parts, i: usize) -> *mut i16 {
    p.keys.cast::<i16>().wrapping_add(i / GROUP * GROUP * p.dim + i % GROUP * 2)
}

/// Computes products with the keys of N positions, from position `at` on; returns N.
#[inline(always)]
unsafe fn scores<S: Simd, const N: usize, const V: usize>(
    s: S,
    p: &Parts,
    rows: &Rows,
    first: usize,
    at: usize,
) -> usize {
    unsafe {
        let mut sums = [[s.splat(0.0); V]; N];
        for d in (0..p.dim).step_by(SEGMENT) {
            let pairs = Pairs {
                x: key_codes(p, at).add(d * GROUP),
                row: PAIR,
                pair: GROUP * PAIR,
                w: rows.q.cast::<i16>().add(first * p.dim + d * S::LANES).cast(),
                next: 2 * p.dim * S::LANES,
                pairs: (p.dim - d).min(SEGMENT) / 2,
                ahead: 0,
            };
            pairs.add::<S, N, V>(s, &mut sums);
        }
        for v in 0..V {
            let scale = s.load(rows.query_scales.add(first + v * S::LANES));
            for i in 0..N {
                let scale = s.mul(scale, s.splat(*p.key_scales.add(at + i)));
                s.store(p.score(at + i, first + v * S::LANES), s.mul(sums[i][v], scale));
            }
        }
    }
    N
}

/// Returns the address of the weight codes of a vector of rows: [CHUNK / 2][LANES x 2 positions].
#[inline(always)]
fn weights(p: &Parts, first: usize) -> *mut i16 {
    p.weights.wrapping_add(first * CHUNK)
}

/// Returns the scale for a value's codes; NaN if the value contains NaN.
///
/// # Safety
/// `value` holds `dim` floats.
#[inline(always)]
unsafe fn value_scale<S: Simd>(s: S, value: *const f32, dim: usize) -> f32 {
    let Size { norm, top } = unsafe { Size::of(s, value, dim) };
    larger(top / MOST, norm * 0.0)
}

/// Adds N dimensions of the weighted values, from dimension `d` on; returns N.
#[inline(always)]
unsafe fn mix<S: Simd, const N: usize, const V: usize>(
    s: S,
    p: &Parts,
    rows: &Rows,
    first: usize,
    n: usize,
    d: usize,
) -> usize {
    unsafe {
        let mut sums = [[s.splat(0.0); V]; N];
        for start in (0..n).step_by(SUMMED) {
            let pairs = Pairs {
                x: p.values.cast::<i16>().add(start * p.dim + 2 * d),
                row: PAIR,
                pair: PAIR * p.dim,
                w: weights(p, first).add(start * S::LANES).cast(),
                next: 2 * CHUNK * S::LANES,
                pairs: (n - start).min(SUMMED).div_ceil(2),
                ahead: 0,
            };
            pairs.add::<S, N, V>(s, &mut sums);
        }
        for v in 0..V {
            let factor = s.load(p.factor.add(first + v * S::LANES));
            let scale = s.load(p.weight_scales.add(first + v * S::LANES));
            for i in 0..N {
                let to = rows.sum(d + i, first + v * S::LANES);
                s.store(to, s.fma(sums[i][v], scale, s.mul(s.load(to), factor)));
            }
        }
    }
    N
}
