//! A tile of attention in both directions: some rows of a text under one KV head, with the rows in the lanes.
//!
//! Queries are laid out so that one vector holds one dimension of as many rows, and weights so that it holds one position's.
//! Then keys and values are read as they come, one number at a time for all rows, the softmax goes down the lanes, and a row
//! never meets another: its result does not depend on the tile that it stands in.
use crate::kernels::float_gemm::FloatRows;
use crate::simd::{Isa, Kernel, Simd, exp};

/// Rows of queries in a tile.
pub const ROWS: usize = 64;
/// Positions between two rescalings of the running softmax.
const CHUNK: usize = 64;
/// Positions, or dimensions, of a register tile; all head dimensions are multiples of it.
const STEP: usize = 4;
/// Below every score, and finite: the difference of two such is a number.
const LEAST: f32 = -3e38;
/// What a score loses whose position the row does not see.
const UNSEEN: f32 = -1e38;

/// Some rows of a text, for the heads of queries that share a KV head.
pub struct TextTile {
    /// Row 0 of the text in each, at the first of the heads in question.
    pub q: FloatRows,
    pub out: FloatRows,
    pub keys: FloatRows,
    pub values: FloatRows,
    /// Tokens of the text.
    pub tokens: usize,
    /// The tile's first token, and how many it has: with `group` heads each, at most ROWS rows.
    pub first: usize,
    pub count: usize,
    pub group: usize,
    pub head_dim: usize,
    pub scale: f32,
    /// How far a row sees to both sides; usize::MAX is all.
    pub reach: usize,
    /// `scratch_len` floats, at a cache line's begin.
    pub scratch: *mut f32,
}

/// Floats of working memory, for heads of `head_dim`.
pub fn scratch_len(head_dim: usize) -> usize {
    2 * ROWS * head_dim + 2 * CHUNK * head_dim + CHUNK * ROWS + 4 * ROWS
}

/// out = softmax(scale q K) V of the tile's rows.
///
/// # Safety
/// The rows of all four have the heads in question: `group` of them for `q` and `out`. `head_dim` is a multiple of 16, the tile
/// lies in the text, and `scratch` is as long as said.
pub unsafe fn attend(isa: Isa, tile: &TextTile) {
    // SAFETY: the caller's promise.
    unsafe { isa.run(Attend(tile)) }
}

struct Attend<'a>(&'a TextTile);

/// What a tile works on. Matrices with rows of queries in the lanes are ROWS floats wide.
#[derive(Clone, Copy)]
struct Parts {
    dim: usize,
    /// [dim][ROWS]: queries, scaled; sums of weighed values.
    q: *mut f32,
    acc: *mut f32,
    /// [CHUNK][dim].
    keys: *mut f32,
    values: *mut f32,
    /// [CHUNK][ROWS]: scores, then weights.
    scores: *mut f32,
    /// [ROWS]: the largest score so far, the sum of weights, what older sums are scaled by, the rows' positions.
    top: *mut f32,
    total: *mut f32,
    factor: *mut f32,
    place: *mut f32,
}

impl Parts {
    /// Safety: as `attend`.
    unsafe fn of(tile: &TextTile) -> Self {
        let dim = tile.head_dim;
        let mut at = tile.scratch;
        let mut take = |floats: usize| {
            let taken = at;
            at = at.wrapping_add(floats);
            taken
        };
        Self {
            dim,
            q: take(ROWS * dim),
            acc: take(ROWS * dim),
            keys: take(CHUNK * dim),
            values: take(CHUNK * dim),
            scores: take(CHUNK * ROWS),
            top: take(ROWS),
            total: take(ROWS),
            factor: take(ROWS),
            place: take(ROWS),
        }
    }
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let t = self.0;
        unsafe {
            let p = Parts::of(t);
            let vectors = (t.count * t.group).div_ceil(S::LANES);
            begin(t, &p, vectors * S::LANES);
            let last = t.first + t.count - 1;
            let mut start = t.first.saturating_sub(t.reach);
            let end = last.saturating_add(t.reach).saturating_add(1).min(t.tokens);
            while start < end {
                let n = CHUNK.min(end - start);
                copy(s, &t.keys, start, n, p.dim, p.keys);
                copy(s, &t.values, start, n, p.dim, p.values);
                // Whether some row does not see some position.
                let partly = last - start.min(last) > t.reach || (start + n - 1).saturating_sub(t.first) > t.reach;
                let window = partly.then_some((t.reach as f32, start));
                let mut v = 0;
                while v < vectors {
                    v += match (vectors - v).min(S::FLOAT_PANELS) {
                        4 => chunk::<S, 4>(s, &p, v * S::LANES, n, window),
                        3 => chunk::<S, 3>(s, &p, v * S::LANES, n, window),
                        2 => chunk::<S, 2>(s, &p, v * S::LANES, n, window),
                        _ => chunk::<S, 1>(s, &p, v * S::LANES, n, window),
                    };
                }
                start += n;
            }
            finish(t, &p);
        }
    }
}

/// Lays out the queries, with zeros in lanes that have no row, and starts the sums.
#[inline(always)]
unsafe fn begin(t: &TextTile, p: &Parts, lanes: usize) {
    unsafe {
        let rows = t.count * t.group;
        for r in 0..lanes {
            let token = t.first + (r / t.group).min(t.count - 1);
            let q = t.q.base.add(token * t.q.stride + r % t.group * p.dim);
            for d in 0..p.dim {
                *p.q.add(d * ROWS + r) = if r < rows { *q.add(d) * t.scale } else { 0.0 };
            }
            *p.place.add(r) = token as f32;
            *p.top.add(r) = LEAST;
            *p.total.add(r) = 0.0;
        }
        std::slice::from_raw_parts_mut(p.acc, p.dim * ROWS).fill(0.0);
    }
}

/// Divides by the sums of weights.
#[inline(always)]
unsafe fn finish(t: &TextTile, p: &Parts) {
    unsafe {
        for r in 0..t.count * t.group {
            let out = t.out.base.add((t.first + r / t.group) * t.out.stride + r % t.group * p.dim);
            let inverse = 1.0 / *p.total.add(r);
            for d in 0..p.dim {
                *out.add(d) = *p.acc.add(d * ROWS + r) * inverse;
            }
        }
    }
}

/// n rows of `dim` floats from row `start` on, side by side: in their buffer they may lie so far apart that they would throw
/// each other out of a first-level cache.
#[inline(always)]
unsafe fn copy<S: Simd>(s: S, rows: &FloatRows, start: usize, n: usize, dim: usize, to: *mut f32) {
    for i in 0..n {
        for d in (0..dim).step_by(S::LANES) {
            unsafe { s.store(to.add(i * dim + d), s.load(rows.base.add((start + i) * rows.stride + d))) }
        }
    }
}

/// Takes V vectors of rows, from row `first` on, through n positions; returns V. `window` is how far rows see, and the first of
/// the positions, where some do not see all of them.
#[inline(always)]
unsafe fn chunk<S: Simd, const V: usize>(
    s: S,
    p: &Parts,
    first: usize,
    n: usize,
    window: Option<(f32, usize)>,
) -> usize {
    unsafe {
        let mut i = 0;
        while i < n {
            i += if n - i >= STEP { scores::<S, STEP, V>(s, p, first, i) } else { scores::<S, 1, V>(s, p, first, i) };
        }
        for v in 0..V {
            soften(s, p, first + v * S::LANES, n, window);
        }
        for d in (0..p.dim).step_by(STEP) {
            mix::<S, V>(s, p, first, n, d);
        }
    }
    V
}

/// Products of V vectors of rows with the keys of N positions, of which `at` is the first; returns N.
#[inline(always)]
unsafe fn scores<S: Simd, const N: usize, const V: usize>(s: S, p: &Parts, first: usize, at: usize) -> usize {
    unsafe {
        let mut acc = [[s.splat(0.0); V]; N];
        for d in 0..p.dim {
            let mut q = [s.splat(0.0); V];
            for v in 0..V {
                q[v] = s.load(p.q.add(d * ROWS + first + v * S::LANES));
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
                s.store(p.scores.add((at + i) * ROWS + first + v * S::LANES), acc[i][v]);
            }
        }
    }
    N
}

/// Turns a vector of rows' scores at n positions into weights e^(score - largest), 0 for what a row does not see.
#[inline(always)]
unsafe fn soften<S: Simd>(s: S, p: &Parts, first: usize, n: usize, window: Option<(f32, usize)>) {
    unsafe {
        let at = |i: usize| p.scores.add(i * ROWS + first);
        let (place, one) = (s.load(p.place.add(first)), s.splat(1.0));
        // 1 where the row sees the position, else 0.
        let sees = |reach: f32, position: usize| {
            s.zero_below(s.splat(reach), s.abs(s.sub(place, s.splat(position as f32))), one)
        };
        let old = s.load(p.top.add(first));
        let mut top = old;
        for i in 0..n {
            let mut score = s.load(at(i));
            if let Some((reach, start)) = window {
                score = s.fnma(s.sub(one, sees(reach, start + i)), s.splat(-UNSEEN), score);
                s.store(at(i), score);
            }
            top = s.max(score, top);
        }
        let mut sum = s.splat(0.0);
        for i in 0..n {
            let mut weight = exp(s, s.sub(s.load(at(i)), top));
            if let Some((reach, start)) = window {
                weight = s.mul(weight, sees(reach, start + i));
            }
            s.store(at(i), weight);
            sum = s.add(sum, weight);
        }
        let factor = exp(s, s.sub(old, top));
        s.store(p.top.add(first), top);
        s.store(p.factor.add(first), factor);
        s.store(p.total.add(first), s.fma(s.load(p.total.add(first)), factor, sum));
    }
}

/// Adds n positions' values, weighed, to V vectors of rows: STEP dimensions of them, of which `d` is the first.
#[inline(always)]
unsafe fn mix<S: Simd, const V: usize>(s: S, p: &Parts, first: usize, n: usize, d: usize) {
    unsafe {
        let place = |i: usize, v: usize| p.acc.add((d + i) * ROWS + first + v * S::LANES);
        let mut acc = [[s.splat(0.0); V]; STEP];
        for v in 0..V {
            let factor = s.load(p.factor.add(first + v * S::LANES));
            for i in 0..STEP {
                acc[i][v] = s.mul(s.load(place(i, v)), factor);
            }
        }
        for position in 0..n {
            let mut weight = [s.splat(0.0); V];
            for v in 0..V {
                weight[v] = s.load(p.scores.add(position * ROWS + first + v * S::LANES));
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
                s.store(place(i, v), acc[i][v]);
            }
        }
    }
}
