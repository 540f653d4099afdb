//! Attention's products in floats: each element of a key or value is broadcast to all query rows.
use super::products::Products;
use super::tile::{Parts, Rows, TILE};
use crate::kernels::float_gemm::FloatRows;
use crate::simd::Simd;

/// Number of positions or dimensions in a register tile. All head dimensions are multiples of it.
const STEP: usize = 4;

/// Products in floats. Queries are [dim][TILE] floats, keys and values [CHUNK][dim].
pub struct Float;

impl Products for Float {
    type Measure<S: Simd> = ();

    fn vectors<S: Simd>() -> usize {
        S::FLOAT_PANELS
    }

    #[inline(always)]
    unsafe fn query<S: Simd>(_: S, q: *const f32, scale: f32, p: &Parts, to: &Rows, r: usize) {
        unsafe {
            let q = p.whole(q, 0);
            for d in 0..p.dim {
                *to.q.add(d * TILE + r) = *q.add(d) * scale;
            }
        }
    }

    #[inline(always)]
    unsafe fn keys<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts) {
        unsafe { copy(s, rows, start, n, p, p.keys) }
    }

    #[inline(always)]
    unsafe fn values<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts) {
        unsafe { copy(s, rows, start, n, p, p.values) }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize) {
        let mut i = 0;
        while i < n {
            i += unsafe {
                if n - i >= STEP {
                    scores::<S, STEP, V>(s, p, rows, first, i)
                } else {
                    scores::<S, 1, V>(s, p, rows, first, i)
                }
            };
        }
    }

    #[inline(always)]
    fn measure<S: Simd>(_: S) {}

    #[inline(always)]
    unsafe fn weigh<S: Simd>(_: S, _: &Parts, _: usize, weight: S::F, (): &mut ()) -> S::F {
        weight
    }

    #[inline(always)]
    unsafe fn weighed<S: Simd>(_: S, _: &Parts, _: usize, _: usize, (): ()) {}

    #[inline(always)]
    unsafe fn mix<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize) {
        for d in (0..p.dim).step_by(STEP) {
            unsafe { mix::<S, V>(s, p, rows, first, n, d) }
        }
    }
}

/// Copies a head of n rows, from row `start` on, to adjacent memory. In their buffer the rows may be so far apart
/// that they evict each other from a first-level cache.
#[inline(always)]
unsafe fn copy<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, p: &Parts, to: *mut f32) {
    for i in 0..n {
        unsafe {
            let head = p.whole(rows.base.add((start + i) * rows.stride), 0);
            for d in (0..p.dim).step_by(S::LANES) {
                s.store(to.add(i * p.dim + d), s.load(head.add(d)));
            }
        }
    }
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
        let mut acc = [[s.splat(0.0); V]; N];
        for d in 0..p.dim {
            let mut q = [s.splat(0.0); V];
            for v in 0..V {
                q[v] = s.load(rows.q.add(d * TILE + first + v * S::LANES));
            }
            for i in 0..N {
                let key = s.splat(*p.keys.add((at + i) * p.dim + d));
                for v in 0..V {
                    acc[i][v] = s.fma(q[v], key, acc[i][v]);
                }
            }
        }
        for i in 0..N {
            for v in 0..V {
                s.store(p.score(at + i, first + v * S::LANES), acc[i][v]);
            }
        }
    }
    N
}

/// Adds STEP dimensions of the weighted values, from dimension `d` on.
#[inline(always)]
unsafe fn mix<S: Simd, const V: usize>(s: S, p: &Parts, rows: &Rows, first: usize, n: usize, d: usize) {
    unsafe {
        let mut acc = [[s.splat(0.0); V]; STEP];
        for v in 0..V {
            let factor = s.load(p.factor.add(first + v * S::LANES));
            for i in 0..STEP {
                acc[i][v] = s.mul(s.load(rows.sum(d + i, first + v * S::LANES)), factor);
            }
        }
        for position in 0..n {
            let mut weight = [s.splat(0.0); V];
            for v in 0..V {
                weight[v] = s.load(p.score(position, first + v * S::LANES));
            }
            for i in 0..STEP {
                let value = s.splat(*p.values.add(position * p.dim + d + i));
                for v in 0..V {
                    acc[i][v] = s.fma(weight[v], value, acc[i][v]);
                }
            }
        }
        for i in 0..STEP {
            for v in 0..V {
                s.store(rows.sum(d + i, first + v * S::LANES), acc[i][v]);
            }
        }
    }
}
