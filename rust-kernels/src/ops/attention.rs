//! Causal attention over a paged KV cache of halves.
//!
//! One call serves a tile of query rows that read the same KV head: several tokens of one sequence, or one of each of
//! several sequences that begin with the same blocks, times the query heads of the group. Keys lie transposed in their
//! blocks ([KV_BLOCK / KEY_GROUP][head_dim][KEY_GROUP]), values straight ([KV_BLOCK][head_dim]), so that both products
//! are the same outer-product kernel with positions or dimensions in the lanes. The softmax is taken online, CHUNK positions at a time at absolute positions, so a row's result does not
//! depend on the tile it stands in, nor on how its prompt was cut.
use super::rope::{KEY_GROUP, KV_BLOCK};
use crate::simd::{Simd, exp};
use std::ops::Range;

/// Positions between two rescalings of the running softmax.
pub const CHUNK: usize = 128;
/// Most query rows of a tile.
pub const MAX_ROWS: usize = 64;
/// Query rows from which a block of keys or values is widened to floats once for all of them: conversions take as
/// many instructions as half a dozen multiply-adds.
const WIDEN_ROWS: usize = 16;

/// The rows of one sequence in a tile.
pub struct Part<'a> {
    pub rows: usize,
    pub block_table: &'a [i32],
}

/// A tile of query rows.
pub struct Attention<'a> {
    /// Query row r, head_dim floats, at `q[r]`; its result goes to `out[r]`.
    pub q: &'a [*const f32],
    pub out: &'a [*mut f32],
    /// Position of each query row: it sees the cache up to and including it. Ascending in each part.
    pub positions: &'a [usize],
    /// The rows' sequences, one after the other.
    pub parts: &'a [Part<'a>],
    /// Leading positions that all parts have in the same blocks and all rows see: a multiple of CHUNK.
    pub shared: usize,
    /// Keys and values of the layer, and elements from one block to the next.
    pub keys: *const u16,
    pub values: *const u16,
    pub block_stride: usize,
    /// Elements from a block's start to the head in question.
    pub head_offset: usize,
    pub head_dim: usize,
    pub scale: f32,
    /// A gate of head_dim floats follows each query: its sigmoid weighs the result.
    pub gated: bool,
    /// `scratch_len(head_dim)` floats.
    pub scratch: *mut f32,
}

pub const fn scratch_len(head_dim: usize) -> usize {
    MAX_ROWS * (CHUNK + head_dim + 16) + 2 * MAX_ROWS + KV_BLOCK * head_dim
}

/// Computes the tile.
///
/// # Safety
/// All pointers hold what the struct says, the tables cover the last positions, which were appended; S as simd
/// says.
#[inline(always)]
pub unsafe fn attention<S: Simd>(a: &Attention) {
    unsafe {
        let rows = a.q.len();
        let stride = a.head_dim.next_multiple_of(S::LANES);
        let scores = a.scratch;
        let acc = scores.add(MAX_ROWS * CHUNK);
        let top = acc.add(MAX_ROWS * (a.head_dim + 16));
        let total = top.add(MAX_ROWS);
        let wide = total.add(MAX_ROWS);
        std::slice::from_raw_parts_mut(acc, rows * stride).fill(0.0);
        std::slice::from_raw_parts_mut(top, rows).fill(f32::NEG_INFINITY);
        std::slice::from_raw_parts_mut(total, rows).fill(0.0);
        let running = Running { scores, acc, stride, top, total, wide };
        // What is shared for all rows together, then what is each part's own: `chunk` is inlined, once.
        let everything = Part { rows, block_table: a.parts[0].block_table };
        let mut first = 0;
        for (i, part) in std::iter::once(&everything).chain(a.parts).enumerate() {
            let end = first + part.rows;
            let positions = if i == 0 { 0..a.shared } else { a.shared..a.positions[end - 1] + 1 };
            for start in positions.clone().step_by(CHUNK) {
                chunk::<S>(a, &running, first..end, start..positions.end.min(start + CHUNK), part.block_table);
            }
            first = if i == 0 { 0 } else { end };
        }
        for r in 0..rows {
            let inverse = 1.0 / *total.add(r);
            for d in 0..a.head_dim {
                *a.out[r].add(d) = *acc.add(r * stride + d) * inverse;
            }
            if a.gated {
                weigh::<S>(a.out[r], a.q[r].add(a.head_dim), a.head_dim);
            }
        }
    }
}

/// The online softmax of a tile: row r's are at `scores + r * CHUNK`, `acc + r * stride`, `top + r`, `total + r`.
struct Running {
    scores: *mut f32,
    acc: *mut f32,
    stride: usize,
    top: *mut f32,
    total: *mut f32,
    /// Room for a block of keys or values as floats.
    wide: *mut f32,
}

/// Takes some rows through a chunk of positions, or the begin of one.
#[inline(always)]
unsafe fn chunk<S: Simd>(a: &Attention, to: &Running, rows: Range<usize>, positions: Range<usize>, table: &[i32]) {
    unsafe {
        let (start, n) = (positions.start, positions.len());
        let queries = &a.q[rows.clone()];
        // Position b's block of the head; beyond the table its last, of which nothing is read then.
        let at = |base: *const u16, b: usize| {
            let block = table[(b / KV_BLOCK).min(table.len() - 1)];
            base.add(block as usize * a.block_stride + a.head_offset)
        };
        for (i, b) in positions.clone().step_by(KV_BLOCK).enumerate() {
            let next = if b + KV_BLOCK < positions.end { at(a.keys, b + KV_BLOCK) } else { at(a.values, start) };
            let rhs =
                Rhs { base: at(a.keys, b), row: KEY_GROUP, group: KEY_GROUP, next_group: a.head_dim * KEY_GROUP, next };
            let out = to.scores.add(rows.start * CHUNK + i * KV_BLOCK);
            if rows.len() >= WIDEN_ROWS {
                let rhs = rhs.widen::<S>(KV_BLOCK * a.head_dim, to.wide);
                product::<S, _>(queries, a.head_dim, &rhs, KV_BLOCK, out, CHUNK, false);
            } else {
                product::<S, _>(queries, a.head_dim, &rhs, KV_BLOCK, out, CHUNK, false);
            }
        }
        for r in rows.clone() {
            let visible = (a.positions[r] + 1).saturating_sub(start).min(n);
            let scores = to.scores.add(r * CHUNK);
            let factor = softmax_chunk::<S>(scores, visible, n, a.scale, to.top.add(r), to.total.add(r));
            rescale::<S>(to.acc.add(r * to.stride), to.stride, factor);
        }
        let acc = to.acc.add(rows.start * to.stride);
        for (i, b) in positions.clone().step_by(KV_BLOCK).enumerate() {
            let after = b + KV_BLOCK;
            let next = at(if after < positions.end { a.values } else { a.keys }, after);
            let weights: [*const f32; MAX_ROWS] =
                std::array::from_fn(|r| to.scores.wrapping_add((rows.start + r) * CHUNK + i * KV_BLOCK).cast_const());
            let weights = &weights[..rows.len()];
            let depth = (n - i * KV_BLOCK).min(KV_BLOCK);
            let rhs = Rhs { base: at(a.values, b), row: a.head_dim, group: a.head_dim, next_group: 0, next };
            if rows.len() >= WIDEN_ROWS {
                let rhs = rhs.widen::<S>(depth * a.head_dim, to.wide);
                product::<S, _>(weights, depth, &rhs, a.head_dim, acc, to.stride, true);
            } else {
                product::<S, _>(weights, depth, &rhs, a.head_dim, acc, to.stride, true);
            }
        }
    }
}

/// x * sigmoid(gate), in place; n is a multiple of 16.
#[inline(always)]
unsafe fn weigh<S: Simd>(x: *mut f32, gate: *const f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        unsafe {
            let negated = S::sub(S::splat(0.0), S::load(gate.add(i)));
            S::store(x.add(i), S::div(S::load(x.add(i)), S::add(S::splat(1.0), exp::<S>(negated))));
        }
    }
}

/// What the right-hand side of `product` is made of.
trait Element: Copy {
    /// LANES elements as floats. Safety: S as simd says.
    unsafe fn load<S: Simd>(p: *const Self) -> S::F;
    /// Whether the elements come from memory, in the order in which they are used.
    const STREAMED: bool;
}

impl Element for u16 {
    const STREAMED: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u16) -> S::F {
        unsafe { S::load_f16(p) }
    }
}

impl Element for f32 {
    const STREAMED: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const f32) -> S::F {
        unsafe { S::load(p) }
    }
}

/// The right-hand side of `product`: `row` elements from k to k + 1, columns in groups of `group` that lie
/// `next_group` elements apart. At `next` is what will be wanted after it, laid out alike: hardware prefetch stops at each
/// page, and blocks are two pages long.
struct Rhs<E> {
    base: *const E,
    row: usize,
    group: usize,
    next_group: usize,
    next: *const E,
}

impl<E> Rhs<E> {
    /// Column `col` of row 0. Safety: within the matrix.
    #[inline(always)]
    unsafe fn column(&self, col: usize) -> *const E {
        unsafe { self.base.add(col / self.group * self.next_group + col % self.group) }
    }
}

impl Rhs<u16> {
    /// The same as floats, in `wide`. Safety: `n` elements, a multiple of 16, here and there; S as simd says.
    #[inline(always)]
    unsafe fn widen<S: Simd>(&self, n: usize, wide: *mut f32) -> Rhs<f32> {
        for i in (0..n).step_by(S::LANES) {
            unsafe { S::store(wide.add(i), S::load_f16(self.base.add(i))) }
        }
        Rhs { base: wide, row: self.row, group: self.group, next_group: self.next_group, next: wide }
    }
}

/// c[r][0..n] (+)= sum over k of lhs[r][k] * rhs[k][0..n].
#[inline(always)]
unsafe fn product<S: Simd, E: Element>(
    lhs: &[*const f32],
    depth: usize,
    rhs: &Rhs<E>,
    n: usize,
    c: *mut f32,
    ldc: usize,
    add: bool,
) {
    unsafe {
        let mut r = 0;
        while r < lhs.len() {
            let left = lhs.len() - r;
            let rows = if left >= 8 && S::LANES >= 16 {
                8
            } else if left >= 4 {
                4
            } else if left >= 2 {
                2
            } else {
                1
            };
            let mut col = 0;
            while col < n {
                // The last columns of a head_dim that is no multiple of two vectors go one vector at a time.
                let two = n - col >= 2 * S::LANES;
                let (l, out) = (&lhs[r..], c.add(r * ldc + col));
                let columns = [rhs.column(col), rhs.column(if two { col + S::LANES } else { col })];
                let ahead = (rhs.next as isize).wrapping_sub(rhs.base as isize);
                let rhs = Columns { at: columns, row: rhs.row, ahead };
                match (rows, two) {
                    (8, true) => block::<S, _, 8, 2>(l, depth, &rhs, out, ldc, add),
                    (4, true) => block::<S, _, 4, 2>(l, depth, &rhs, out, ldc, add),
                    (2, true) => block::<S, _, 2, 2>(l, depth, &rhs, out, ldc, add),
                    (_, true) => block::<S, _, 1, 2>(l, depth, &rhs, out, ldc, add),
                    (8, false) => block::<S, _, 8, 1>(l, depth, &rhs, out, ldc, add),
                    (4, false) => block::<S, _, 4, 1>(l, depth, &rhs, out, ldc, add),
                    (2, false) => block::<S, _, 2, 1>(l, depth, &rhs, out, ldc, add),
                    (_, false) => block::<S, _, 1, 1>(l, depth, &rhs, out, ldc, add),
                }
                col += if two { 2 * S::LANES } else { S::LANES };
            }
            r += rows;
        }
    }
}

/// Two vectors of columns of a right-hand side: their places in row 0, elements to the next row, bytes to what follows.
struct Columns<E> {
    at: [*const E; 2],
    row: usize,
    ahead: isize,
}

/// R rows times V <= 2 vectors of `product`.
#[inline(always)]
unsafe fn block<S: Simd, E: Element, const R: usize, const V: usize>(
    lhs: &[*const f32],
    depth: usize,
    rhs: &Columns<E>,
    c: *mut f32,
    ldc: usize,
    add: bool,
) {
    unsafe {
        let mut acc = [[S::splat(0.0); V]; R];
        if add {
            for r in 0..R {
                for v in 0..V {
                    acc[r][v] = S::load(c.add(r * ldc + v * S::LANES));
                }
            }
        }
        let lhs: [*const f32; R] = std::array::from_fn(|r| lhs[r]);
        for k in 0..depth {
            let mut w = [S::splat(0.0); V];
            for v in 0..V {
                let place = rhs.at[v].add(k * rhs.row);
                if E::STREAMED {
                    S::prefetch(place.wrapping_byte_offset(rhs.ahead).cast());
                }
                w[v] = E::load::<S>(place);
            }
            for r in 0..R {
                let x = S::splat(*lhs[r].add(k));
                for v in 0..V {
                    acc[r][v] = S::fma(x, w[v], acc[r][v]);
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                S::store(c.add(r * ldc + v * S::LANES), acc[r][v]);
            }
        }
    }
}

/// Turns a row of scores into weights e^(s - top), 0 beyond `visible`; returns what older sums are scaled by.
#[inline(always)]
unsafe fn softmax_chunk<S: Simd>(
    scores: *mut f32,
    visible: usize,
    n: usize,
    scale: f32,
    top: *mut f32,
    total: *mut f32,
) -> f32 {
    unsafe {
        // Whole vectors: the row has CHUNK floats.
        let end = n.next_multiple_of(S::LANES);
        for i in visible..end {
            *scores.add(i) = f32::NEG_INFINITY;
        }
        let mut largest = S::splat(f32::NEG_INFINITY);
        for i in (0..end).step_by(S::LANES) {
            let s = S::mul(S::load(scores.add(i)), S::splat(scale));
            S::store(scores.add(i), s);
            largest = S::max(largest, s);
        }
        let old = *top;
        let new = old.max(S::largest(largest));
        let mut sum = S::splat(0.0);
        for i in (0..end).step_by(S::LANES) {
            let w = exp::<S>(S::sub(S::load(scores.add(i)), S::splat(new)));
            S::store(scores.add(i), w);
            sum = S::add(sum, w);
        }
        let factor = if old == new { 1.0 } else { (old - new).exp() };
        *top = new;
        *total = *total * factor + S::sum(sum);
        factor
    }
}

#[inline(always)]
unsafe fn rescale<S: Simd>(acc: *mut f32, n: usize, factor: f32) {
    if factor == 1.0 {
        return;
    }
    for i in (0..n).step_by(S::LANES) {
        unsafe { S::store(acc.add(i), S::mul(S::load(acc.add(i)), S::splat(factor))) }
    }
}
