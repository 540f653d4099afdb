//! Attention over a paged KV cache: causal, except between the rows of an image.
//!
//! One call computes a tile of query rows that read the same KV head. The rows are several tokens of one sequence, or
//! one token each of several sequences with the same first blocks. Each token has the query heads of the group. The
//! cache's type (`kv`) defines the products with keys and values. The softmax is online: it rescales every CHUNK
//! positions, at fixed positions. So a row's result does not depend on its tile or on how its prompt was split.
use crate::kernels::activations::{Function, Tanh};
use crate::kernels::kv::{Block, FloatMatrix, KV_BLOCK, KvFormat, KvType, MAX_BLOCKS, MAX_ROWS, PADDED, Queries};
use crate::kernels::kv::{int16::Int16, q4_0::Q4_0, q8_0::Q8_0};
use crate::simd::{Isa, Kernel, Simd, exp};
use std::marker::PhantomData;
use std::ops::Range;

/// Index of the keys and index of the values in a pair.
const KEYS: usize = 0;
const VALUES: usize = 1;
/// Positions between two rescalings of the running softmax.
pub const CHUNK: usize = MAX_BLOCKS * KV_BLOCK;

/// The rows of one sequence in a tile.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    pub rows: usize,
    /// Index of the first block in `block_table`: the block in which the first row's window starts.
    pub first_block: usize,
    pub block_table: &'a [i32],
}

/// A tile of query rows.
pub struct AttentionTile<'a> {
    /// Query row r has head_dim floats at `q[r]`; its result goes to `out[r]`.
    pub q: &'a [*const f32],
    pub out: &'a [*mut f32],
    /// Position of each query row, ascending within each part. A row's `window` ends with its own position. With
    /// `chunked`, a row attends to the positions of its own chunk.
    pub positions: &'a [usize],
    /// End of the positions that each row attends to. It lies after the row's own position. Ascending within each part.
    pub ends: &'a [usize],
    /// The sequences of the rows, in order.
    pub parts: &'a [Part<'a>],
    /// Number of leading positions whose blocks all parts share and to which all rows attend: a multiple of CHUNK.
    pub shared: usize,
    /// Positions that a row attends to, up to and including its own; usize::MAX means all.
    pub window: usize,
    /// Whether `window` is the size of a chunk. Chunks start at its multiples, and a row attends only within its own.
    pub chunked: bool,
    /// One score per row that takes part in its softmax without a value. May be empty.
    pub sinks: &'a [f32],
    /// For each row, the ascending blocks of positions that it attends to; null if it attends to all. May be empty.
    pub chosen: &'a [*const f32],
    /// Number of blocks per row, and of positions per block.
    pub choices: [usize; 2],
    /// The layer's keys and values, and the distance in bytes between their blocks.
    pub cache: [*const u8; 2],
    pub block_stride: [usize; 2],
    /// Offset in bytes of this head in a block of keys, and in a block of values.
    pub head_offset: [usize; 2],
    /// The block that the thread will probably read after this tile.
    pub after: *const u8,
    pub head_dim: usize,
    pub scale: f32,
    /// Scaled scores become softcap * tanh(score / softcap); 0 leaves them.
    pub softcap: f32,
    /// Whether a gate of head_dim floats follows each query. Its sigmoid multiplies the result.
    pub gated: bool,
    /// `scratch_len` floats, aligned to a cache line.
    pub scratch: *mut f32,
}

/// Floats of scratch memory for heads of `head_dim`.
pub fn scratch_len(kind: KvType, head_dim: usize) -> usize {
    MAX_ROWS * (CHUNK + head_dim + 16) + 2 * MAX_ROWS + kind.scratch_len(head_dim)
}

/// Computes the tile over a cache of type `kind`.
///
/// # Safety
/// All pointers hold what the struct says. The tables cover the last positions, which were appended.
pub unsafe fn attend(isa: Isa, kind: KvType, tile: &AttentionTile) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match kind {
            KvType::Int16 => isa.run(Attend(tile, PhantomData::<Int16>)),
            KvType::Q8_0 => isa.run(Attend(tile, PhantomData::<Q8_0>)),
            KvType::Q4_0 => isa.run(Attend(tile, PhantomData::<Q4_0>)),
        }
    }
}

/// `attend`, over a cache of type K.
///
/// # Safety
/// As `attend`.
struct Attend<'a, K>(&'a AttentionTile<'a>, PhantomData<K>);

impl<K: KvFormat> Kernel for Attend<'_, K> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let a = self.0;
        unsafe {
            let rows = a.q.len();
            let stride = a.head_dim.next_multiple_of(PADDED);
            let scores = FloatMatrix { at: a.scratch, stride: CHUNK };
            let acc = FloatMatrix { at: scores.row(MAX_ROWS), stride };
            let top = acc.at.add(MAX_ROWS * (a.head_dim + 16));
            let total = top.add(MAX_ROWS);
            std::slice::from_raw_parts_mut(acc.at, rows * stride).fill(0.0);
            let (tops, totals) =
                (std::slice::from_raw_parts_mut(top, rows), std::slice::from_raw_parts_mut(total, rows));
            if a.sinks.is_empty() {
                tops.fill(f32::NEG_INFINITY);
                totals.fill(0.0);
            } else {
                // The sink comes first, with weight e^0. It counts for every row, whatever its window.
                tops.copy_from_slice(a.sinks);
                totals.fill(1.0);
            }
            let queries = Queries { q: a.q, head_dim: a.head_dim, scratch: total.add(MAX_ROWS) };
            K::prepare(s, &queries);
            let running = Running { queries, scores, acc, top, total };
            // First the shared positions for all rows together, then each part's own. `chunk` is inlined only once.
            let everything = Part { rows, ..a.parts[0] };
            // The block in which a row's window starts. Earlier blocks are not read and may not exist.
            let begin = |r: usize| first_seen(a, r) / KV_BLOCK * KV_BLOCK;
            let mut first = 0;
            for (i, part) in std::iter::once(&everything).chain(a.parts).enumerate() {
                let end = first + part.rows;
                let positions = if i == 0 {
                    (0..rows).map(begin).min().unwrap_or(0)..a.shared
                } else {
                    begin(first).max(a.shared)..a.ends[end - 1]
                };
                let mut start = positions.start;
                while start < positions.end {
                    let next = positions.end.min((start / CHUNK + 1) * CHUNK);
                    // A chunk is skipped only if no row attends to it. In other chunks, rows that do not attend keep
                    // their sums.
                    if sees(a, first..end, start..next) {
                        chunk::<S, K>(s, a, &running, first..end, start..next, part);
                    }
                    start = next;
                }
                first = if i == 0 { 0 } else { end };
            }
            for r in 0..rows {
                K::finish(s, acc.row(r), a.head_dim);
                let inverse = 1.0 / *total.add(r);
                for d in 0..a.head_dim {
                    *a.out[r].add(d) = *acc.row(r).add(d) * inverse;
                }
                if a.gated {
                    weigh(s, a.out[r], a.q[r].add(a.head_dim), a.head_dim);
                }
            }
        }
    }
}

/// The online softmax of a tile.
struct Running<'a> {
    queries: Queries<'a>,
    scores: FloatMatrix,
    acc: FloatMatrix,
    /// One float per row.
    top: *mut f32,
    total: *mut f32,
}

/// The first position that a row sees.
#[inline(always)]
fn first_seen(a: &AttentionTile, row: usize) -> usize {
    let position = a.positions[row];
    if a.chunked { position / a.window * a.window } else { (position + 1).saturating_sub(a.window) }
}

/// Processes a chunk of positions for some rows, or a part of a chunk that starts with a block.
#[inline(always)]
unsafe fn chunk<S: Simd, K: KvFormat>(
    s: S,
    a: &AttentionTile,
    to: &Running,
    rows: Range<usize>,
    positions: Range<usize>,
    part: &Part,
) {
    unsafe {
        let (start, n) = (positions.start, positions.len());
        // Returns the head's keys or values in the block of position b. Beyond the table, returns the last block;
        // nothing reads it then.
        let at = |i: usize, b: usize| {
            let table = part.block_table;
            let block = table[(b / KV_BLOCK - part.first_block).min(table.len() - 1)];
            a.cache[i].add(block as usize * a.block_stride[i] + a.head_offset[i])
        };
        for (i, b) in positions.clone().step_by(KV_BLOCK).enumerate() {
            let next = if b + KV_BLOCK < positions.end { at(KEYS, b + KV_BLOCK) } else { at(VALUES, start) };
            let scores = FloatMatrix { at: to.scores.at.add(i * KV_BLOCK), ..to.scores };
            K::scores(s, &to.queries, rows.clone(), Block { at: at(KEYS, b), next }, scores);
        }
        let mut values = [Block { at: a.after, next: a.after }; MAX_BLOCKS];
        let seen = a.ends[rows.end - 1];
        for (i, b) in positions.clone().step_by(KV_BLOCK).enumerate() {
            let after = b + KV_BLOCK;
            let next = if after < positions.end {
                at(VALUES, after)
            } else if after < seen {
                at(KEYS, after)
            } else {
                a.after
            };
            values[i] = Block { at: at(VALUES, b), next };
        }
        let values = &values[..n.div_ceil(KV_BLOCK)];
        K::before_mix(s, a.head_dim, values);
        for r in rows.clone() {
            let mut seen = [first_seen(a, r), a.ends[r]].map(|p| p.saturating_sub(start).min(n));
            let mut scale = a.scale;
            if a.softcap > 0.0 {
                cap(s, to.scores.row(r), n, scale, a.softcap);
                scale = 1.0;
            }
            if let Some(chosen) = a.blocks_of(r) {
                let mut kept = 0; // scores before this index are final
                let scores = std::slice::from_raw_parts_mut(to.scores.row(r), n);
                for block in chosen.within(positions.clone()) {
                    let [first, end] = [block.start, block.end].map(|p| p.max(start + kept) - start);
                    scores[kept..first].fill(f32::NEG_INFINITY);
                    kept = end;
                }
                scores[kept..].fill(f32::NEG_INFINITY);
                if kept == 0 {
                    seen = [0; 2];
                }
            }
            let factor = softmax_chunk(s, to.scores.row(r), seen, n, scale, to.top.add(r), to.total.add(r));
            rescale(s, to.acc.row(r), to.acc.stride, factor);
        }
        K::mix(s, &to.queries, rows, to.scores, n, values, to.acc);
    }
}

/// Whether any of the rows attends to any of the positions.
#[inline(always)]
fn sees(a: &AttentionTile, mut rows: Range<usize>, positions: Range<usize>) -> bool {
    // SAFETY: each list has the number of blocks in the tile's `choices`.
    rows.any(|r| unsafe { a.blocks_of(r) }.is_none_or(|chosen| chosen.within(positions.clone()).next().is_some()))
}

/// The blocks of positions that a row attends to.
struct ChosenBlocks<'a> {
    blocks: &'a [f32],
    length: usize,
}

impl ChosenBlocks<'_> {
    /// Returns the non-empty parts of the blocks within a range of positions. A list may hold any numbers: the parts
    /// are always within the range.
    fn within(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (length, Range { start, end }) = (self.length, range);
        let first_of = move |block: f32| (block as usize).saturating_mul(length);
        let first = self.blocks.partition_point(|block| first_of(*block).saturating_add(length) <= start);
        self.blocks[first..]
            .iter()
            .map(move |block| first_of(*block))
            .take_while(move |at| *at < end)
            .map(move |at| Range { start: at.max(start), end: at.saturating_add(length).clamp(start, end) })
    }
}

impl AttentionTile<'_> {
    /// Returns the blocks that a row attends to; None if it attends to all positions.
    ///
    /// # Safety
    /// The row's list has the number of blocks in the tile's `choices`.
    #[inline(always)]
    unsafe fn blocks_of(&self, row: usize) -> Option<ChosenBlocks<'_>> {
        let list = self.chosen.get(row).filter(|list| !list.is_null())?;
        let [count, length] = self.choices;
        // SAFETY: guaranteed by the caller.
        Some(ChosenBlocks { blocks: unsafe { std::slice::from_raw_parts(*list, count) }, length })
    }
}

/// x * sigmoid(gate), in place; n is a multiple of 16.
#[inline(always)]
unsafe fn weigh<S: Simd>(s: S, x: *mut f32, gate: *const f32, n: usize) {
    for i in (0..n).step_by(S::LANES) {
        unsafe {
            let negated = s.sub(s.splat(0.0), s.load(gate.add(i)));
            s.store(x.add(i), s.div(s.load(x.add(i)), s.add(s.splat(1.0), exp(s, negated))));
        }
    }
}

/// scores = softcap * tanh(scale * scores / softcap), for a row's first n scores, padded to a whole vector.
#[inline(always)]
unsafe fn cap<S: Simd>(s: S, scores: *mut f32, n: usize, scale: f32, softcap: f32) {
    let inner = s.splat(scale / softcap);
    for i in (0..n).step_by(S::LANES) {
        unsafe {
            let capped = Tanh::of(s, s.mul(s.load(scores.add(i)), inner));
            s.store(scores.add(i), s.mul(capped, s.splat(softcap)));
        }
    }
}

/// Turns a row of scores into weights e^(s - top), with 0 before `first` and from `end` on. Returns the factor of
/// older sums.
#[inline(always)]
unsafe fn softmax_chunk<S: Simd>(
    s: S,
    scores: *mut f32,
    [first, end]: [usize; 2],
    n: usize,
    scale: f32,
    top: *mut f32,
    total: *mut f32,
) -> f32 {
    unsafe {
        // Whole vectors: the row has CHUNK floats.
        let whole = n.next_multiple_of(S::LANES);
        if first >= end {
            // The row sees nothing here. A row that has seen nothing yet has no largest score to subtract.
            std::slice::from_raw_parts_mut(scores, whole).fill(0.0);
            return 1.0;
        }
        for i in (0..first).chain(end..whole) {
            *scores.add(i) = f32::NEG_INFINITY;
        }
        let mut largest = s.splat(f32::NEG_INFINITY);
        for i in (0..whole).step_by(S::LANES) {
            let scaled = s.mul(s.load(scores.add(i)), s.splat(scale));
            s.store(scores.add(i), scaled);
            largest = s.max(largest, scaled);
        }
        let old = *top;
        let new = old.max(s.largest(largest));
        let mut sum = s.splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            let w = exp(s, s.sub(s.load(scores.add(i)), s.splat(new)));
            s.store(scores.add(i), w);
            sum = s.add(sum, w);
        }
        let factor = if old == new { 1.0 } else { (old - new).exp() };
        *top = new;
        *total = *total * factor + s.sum(sum);
        factor
    }
}

#[inline(always)]
unsafe fn rescale<S: Simd>(s: S, acc: *mut f32, n: usize, factor: f32) {
    if factor == 1.0 {
        return;
    }
    for i in (0..n).step_by(S::LANES) {
        unsafe { s.store(acc.add(i), s.mul(s.load(acc.add(i)), s.splat(factor))) }
    }
}
