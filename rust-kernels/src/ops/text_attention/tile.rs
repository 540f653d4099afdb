//! Computes bidirectional attention by tiles. A tile is some rows of a text under one KV head, with one row per lane.
//!
//! A vector holds one dimension of the queries of LANES rows, or two dimensions in 16 bits. Attention weights have the
//! same layout, with positions instead of dimensions. Each key and value element is broadcast to all rows, and the
//! softmax works per lane, so rows are independent. Chunks start at multiples of CHUNK positions, so a row's result
//! does not depend on its tile.
use super::float::Float;
use super::int16::Int16;
use super::products::Products;
use crate::kernels::float_gemm::FloatRows;
use crate::simd::{Isa, Kernel, Simd, exp};
use std::marker::PhantomData;
use std::ops::Range;

/// Maximum number of query rows in one call. They share the stored keys and values of each chunk.
pub const ROWS: usize = 8 * TILE;
/// Number of query rows that process a chunk of positions together.
pub const TILE: usize = 64;
/// Number of positions after which the running softmax is rescaled.
pub const CHUNK: usize = 64;
/// How many rows ahead a query is prefetched while queries are stored in their layout.
const AHEAD: usize = 8;
/// Initial largest score. It is below every score, and finite, so that the difference of two such numbers is not NaN.
const LEAST: f32 = -3e38;
/// Added to the scores of positions to which a row does not attend.
const UNSEEN: f32 = -1e38;

/// Operands of one call: some rows of a text, for the query heads that share a KV head.
pub struct TextTile<'a> {
    /// The text's rows in the buffers of queries, results, keys and values. Each starts at row 0 of the text and at the
    /// first of these heads.
    pub q: FloatRows,
    pub out: FloatRows,
    pub keys: FloatRows,
    pub values: FloatRows,
    /// Number of tokens in the text.
    pub tokens: usize,
    /// The first token of the tile, and its number of tokens. With `group` heads each, they have at most ROWS rows.
    pub first: usize,
    pub count: usize,
    pub group: usize,
    pub head_dim: usize,
    pub scale: f32,
    /// Number of positions to which a row attends on each side; usize::MAX means all.
    pub reach: usize,
    /// Whether attention's products use 16-bit integers instead of floats.
    pub rounds: bool,
    /// Number of floats from one of these heads to the next in a token's query.
    pub step: usize,
    /// ALiBi slopes of these heads: scores decrease by the slope per token of distance. May be empty.
    pub slopes: &'a [f32],
    /// Scratch memory of `scratch_len` floats, aligned to a cache line.
    pub scratch: *mut f32,
}

/// Dimensions of a stored head. Those behind the head's own dimensions are zero.
const fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(16)
}

/// Number of floats in `Parts`; `rows_len` returns the same for `Rows`.
const fn parts_len(head_dim: usize) -> usize {
    let dim = padded(head_dim);
    2 * CHUNK * dim + CHUNK * TILE + CHUNK * TILE / 2 + 2 * CHUNK + 2 * TILE + 2 * dim
}
const fn rows_len(head_dim: usize) -> usize {
    2 * TILE * padded(head_dim) + 5 * TILE
}

/// Returns the number of scratch floats for heads of `head_dim`.
pub fn scratch_len(head_dim: usize) -> usize {
    parts_len(head_dim) + ROWS / TILE * rows_len(head_dim)
}

/// Computes out = softmax(scale q K) V for the tile's rows.
///
/// # Safety
/// The rows of `q` and `out` have `group` heads from their base on. The rows of `keys` and `values` have one head.
/// The tile is within the text, and `scratch` has `scratch_len` floats.
pub unsafe fn attend(isa: Isa, tile: &TextTile) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if tile.rounds {
            isa.run(Attend(tile, PhantomData::<Int16>));
        } else {
            isa.run(Attend(tile, PhantomData::<Float>));
        }
    }
}

struct Attend<'a, P>(&'a TextTile<'a>, PhantomData<P>);

/// Hands out parts of the scratch memory, one behind the other.
struct Cut(*mut f32);

impl Cut {
    fn take(&mut self, floats: usize) -> *mut f32 {
        let taken = self.0;
        self.0 = taken.wrapping_add(floats);
        taken
    }
}

/// Memory for one chunk of positions, which all rows share. A matrix with one row per lane is TILE floats wide.
#[derive(Clone, Copy)]
pub struct Parts {
    pub dim: usize,
    /// The head's own dimensions, at most `dim`.
    own: usize,
    /// Two heads of `dim` floats, for `whole`.
    spare: *mut f32,
    /// Keys and values: CHUNK times `dim` floats each, or integers with scales. `Products` defines the layout.
    pub keys: *mut f32,
    pub values: *mut f32,
    pub key_scales: *mut f32,
    pub value_scales: *mut f32,
    /// Scores, which become weights, [CHUNK][TILE]; `weights` holds them as integers.
    scores: *mut f32,
    pub weights: *mut i16,
    /// Factors by which older sums are multiplied, [TILE].
    pub factor: *mut f32,
    /// Scales of the weights' integers, [TILE].
    pub weight_scales: *mut f32,
}

impl Parts {
    fn of(tile: &TextTile) -> Self {
        let (dim, mut from) = (padded(tile.head_dim), Cut(tile.scratch));
        Self {
            dim,
            own: tile.head_dim,
            keys: from.take(CHUNK * dim),
            values: from.take(CHUNK * dim),
            key_scales: from.take(CHUNK),
            value_scales: from.take(CHUNK),
            scores: from.take(CHUNK * TILE),
            weights: from.take(CHUNK * TILE / 2).cast(),
            factor: from.take(TILE),
            weight_scales: from.take(TILE),
            spare: from.take(2 * dim),
        }
    }

    /// Returns the head with all `dim` dimensions: the head itself, or a copy in one of two spare places.
    #[inline(always)]
    pub unsafe fn whole(&self, head: *const f32, place: usize) -> *const f32 {
        if self.own == self.dim {
            return head;
        }
        let to = self.spare.wrapping_add(place * self.dim);
        unsafe {
            to.copy_from_nonoverlapping(head, self.own);
            to.add(self.own).write_bytes(0, self.dim - self.own);
        }
        to
    }

    /// Returns the address of the scores or weights of a vector of rows at a position of the chunk.
    #[inline(always)]
    pub fn score(&self, position: usize, first: usize) -> *mut f32 {
        self.scores.wrapping_add(position * TILE + first)
    }
}

/// State of TILE query rows, which is kept from chunk to chunk.
#[derive(Clone, Copy)]
pub struct Rows {
    /// The queries: TILE times `dim` floats, or integers with scales.
    pub q: *mut f32,
    pub query_scales: *mut f32,
    /// Sums of weighted values, [dim][TILE].
    acc: *mut f32,
    /// The largest score so far, the sum of weights and the position of each row, [TILE] each.
    top: *mut f32,
    total: *mut f32,
    place: *mut f32,
    /// The ALiBi slope of each row's head, [TILE].
    slope: *mut f32,
}

impl Rows {
    /// Returns the memory of the `index`th group of TILE rows.
    fn of(tile: &TextTile, index: usize) -> Self {
        let dim = padded(tile.head_dim);
        let mut from = Cut(tile.scratch.wrapping_add(parts_len(dim) + index * rows_len(dim)));
        Self {
            q: from.take(TILE * dim),
            acc: from.take(TILE * dim),
            query_scales: from.take(TILE),
            top: from.take(TILE),
            total: from.take(TILE),
            place: from.take(TILE),
            slope: from.take(TILE),
        }
    }

    /// Returns the address of the sums of a vector of rows in dimension `d`.
    #[inline(always)]
    pub fn sum(&self, d: usize, first: usize) -> *mut f32 {
        self.acc.wrapping_add(d * TILE + first)
    }
}

impl<P: Products> Kernel for Attend<'_, P> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let t = self.0;
        unsafe {
            let (p, rows) = (Parts::of(t), t.count * t.group);
            let tiles =
                || (0..rows).step_by(TILE).map(|first| (Rows::of(t, first / TILE), first..rows.min(first + TILE)));
            for (to, rows) in tiles() {
                begin::<S, P>(s, t, &p, &to, rows);
            }
            let mut start = t.first.saturating_sub(t.reach) / CHUNK * CHUNK;
            let end = (t.first + t.count).saturating_add(t.reach).min(t.tokens);
            while start < end {
                let n = CHUNK.min(end - start);
                P::keys(s, &t.keys, start, n, &p);
                P::values(s, &t.values, start, n, &p);
                // Prefetch the next chunk's keys and values during the products of this chunk.
                let (next, part) = (start + n, CHUNK.div_ceil(rows.div_ceil(TILE)));
                for (i, (to, rows)) in tiles().enumerate() {
                    let wanted = (next + i * part).min(end)..(next + (i + 1) * part).min(end);
                    prefetch_rows(s, &t.keys, wanted.clone(), p.dim);
                    prefetch_rows(s, &t.values, wanted, p.dim);
                    let [one, last] = [rows.start, rows.end - 1].map(|r| t.first + r / t.group);
                    if start > last.saturating_add(t.reach) || (start + n - 1).saturating_add(t.reach) < one {
                        continue;
                    }
                    // Whether some row does not attend to some position of the chunk.
                    let partly = last - start.min(last) > t.reach || (start + n - 1).saturating_sub(one) > t.reach;
                    let adjust =
                        Adjustments { start, reach: partly.then_some(t.reach as f32), slopes: !t.slopes.is_empty() };
                    chunk::<S, P>(s, &p, &to, rows.len().div_ceil(S::LANES), n, adjust);
                }
                start = next;
            }
            for (from, rows) in tiles() {
                finish(t, &from, rows);
            }
        }
    }
}

/// Prefetches one head's floats in each of some rows.
#[inline(always)]
fn prefetch_rows<S: Simd>(s: S, from: &FloatRows, rows: Range<usize>, dim: usize) {
    for row in rows {
        for d in (0..dim).step_by(16) {
            s.prefetch_l2(from.base.wrapping_add(row * from.stride + d).cast());
        }
    }
}

/// Stores the queries in the layout for products, with zeros in unused lanes. Sets all sums to zero.
#[inline(always)]
unsafe fn begin<S: Simd, P: Products>(s: S, t: &TextTile, p: &Parts, to: &Rows, rows: Range<usize>) {
    unsafe {
        if !rows.len().is_multiple_of(S::LANES) {
            std::slice::from_raw_parts_mut(to.q, TILE * p.dim).fill(0.0);
            std::slice::from_raw_parts_mut(to.query_scales, TILE).fill(0.0);
        }
        for r in 0..rows.len().next_multiple_of(S::LANES) {
            let row = (rows.start + r).min(rows.end - 1);
            let token = t.first + row / t.group;
            if rows.start + r == row {
                let later = t.first + (row + AHEAD).min(t.count * t.group - 1) / t.group;
                prefetch_rows(s, &t.q, later..later + 1, (t.group - 1) * t.step + p.dim);
                let q = t.q.base.add(token * t.q.stride + row % t.group * t.step);
                P::query(s, q, t.scale, p, to, r);
            }
            *to.place.add(r) = token as f32;
            *to.slope.add(r) = t.slopes.get(row % t.group).copied().unwrap_or(0.0);
            *to.top.add(r) = LEAST;
            *to.total.add(r) = 0.0;
        }
        std::slice::from_raw_parts_mut(to.acc, p.dim * TILE).fill(0.0);
    }
}

/// Divides the sums of weighted values by the sums of weights, and writes the results.
#[inline(always)]
unsafe fn finish(t: &TextTile, from: &Rows, rows: Range<usize>) {
    unsafe {
        for (r, row) in rows.enumerate() {
            let out = t.out.base.add((t.first + row / t.group) * t.out.stride + row % t.group * t.head_dim);
            let inverse = 1.0 / *from.total.add(r);
            for d in 0..t.head_dim {
                *out.add(d) = *from.sum(d, r) * inverse;
            }
        }
    }
}

/// Adjustments of a chunk's scores: positions out of reach and ALiBi slopes.
#[derive(Clone, Copy)]
struct Adjustments {
    /// First position of the chunk.
    start: usize,
    /// Number of positions to which rows attend on each side; None if all rows attend to the whole chunk.
    reach: Option<f32>,
    /// Whether scores decrease with the distance between row and position.
    slopes: bool,
}

/// Processes the n positions of a chunk for `vectors` vectors of rows.
#[inline(always)]
unsafe fn chunk<S: Simd, P: Products>(s: S, p: &Parts, rows: &Rows, vectors: usize, n: usize, adjust: Adjustments) {
    let mut v = 0;
    while v < vectors {
        let first = v * S::LANES;
        v += unsafe {
            match (vectors - v).min(P::vectors::<S>()) {
                4 => attend_to::<S, P, 4>(s, p, rows, first, n, adjust),
                3 => attend_to::<S, P, 3>(s, p, rows, first, n, adjust),
                2 => attend_to::<S, P, 2>(s, p, rows, first, n, adjust),
                _ => attend_to::<S, P, 1>(s, p, rows, first, n, adjust),
            }
        };
    }
}

/// Processes the n positions of a chunk for V vectors of rows, from row `first` on; returns V.
#[inline(always)]
unsafe fn attend_to<S: Simd, P: Products, const V: usize>(
    s: S,
    p: &Parts,
    rows: &Rows,
    first: usize,
    n: usize,
    adjust: Adjustments,
) -> usize {
    unsafe {
        P::scores::<S, V>(s, p, rows, first, n);
        for v in 0..V {
            softmax_rows::<S, P>(s, p, rows, first + v * S::LANES, n, adjust);
        }
        P::mix::<S, V>(s, p, rows, first, n);
    }
    V
}

/// Turns the scores of a vector of rows at n positions into weights e^(score - largest). Positions out of reach get 0.
#[inline(always)]
unsafe fn softmax_rows<S: Simd, P: Products>(
    s: S,
    p: &Parts,
    rows: &Rows,
    first: usize,
    n: usize,
    adjust: Adjustments,
) {
    unsafe {
        let at = |i: usize| p.score(i, first);
        let (place, one) = (s.load(rows.place.add(first)), s.splat(1.0));
        let distance = |i: usize| s.abs(s.sub(place, s.splat((adjust.start + i) as f32)));
        // Returns 1 in lanes whose row attends to the position, else 0.
        let sees = |reach: f32, i: usize| s.zero_below(s.splat(reach), distance(i), one);
        if adjust.slopes {
            let slope = s.load(rows.slope.add(first));
            (0..n).for_each(|i| s.store(at(i), s.fnma(slope, distance(i), s.load(at(i)))));
        }
        let old = s.load(rows.top.add(first));
        let mut top = old;
        for i in 0..n {
            let mut score = s.load(at(i));
            if let Some(reach) = adjust.reach {
                score = s.fnma(s.sub(one, sees(reach, i)), s.splat(-UNSEEN), score);
                s.store(at(i), score);
            }
            top = s.max(score, top);
        }
        let (mut sum, mut measure) = (s.splat(0.0), P::measure(s));
        for i in 0..n {
            let mut weight = exp(s, s.sub(s.load(at(i)), top));
            if let Some(reach) = adjust.reach {
                weight = s.mul(weight, sees(reach, i));
            }
            s.store(at(i), P::weigh(s, p, i, weight, &mut measure));
            sum = s.add(sum, weight);
        }
        P::weighed(s, p, first, n, measure);
        let factor = exp(s, s.sub(old, top));
        s.store(rows.top.add(first), top);
        s.store(p.factor.add(first), factor);
        s.store(rows.total.add(first), s.fma(s.load(rows.total.add(first)), factor, sum));
    }
}
