//! Op: chooses the blocks of positions that a row attends to.
//!
//! With weights (DeepSeek's lightning indexer), a row gets one list, and the score of position p is the sum over heads
//! of weight * max(0, query . key of p). Without weights (MiniMax M3), a row gets one list per head, and the score of
//! position p is query . key of p. A block's score is the largest score of its positions. A list has the blocks with
//! the largest scores; of equal scores, the earlier block wins. A number of last blocks, up to the row's own, is always
//! chosen. A row that has no more blocks than a list holds gets no list and attends to all positions. Sources:
//! "DeepSeek-V3.2" (arXiv 2512.02556), section 2.1; Hugging Face transformers, models/minimax_m3_vl.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::kv::{Block, FloatMatrix, KV_BLOCK, KvFormat, KvType, MAX_ROWS, Queries};
use crate::kernels::kv::{int16::Int16, q4_0::Q4_0, q8_0::Q8_0};
use crate::program::{Heads, Operands, Program, Rows};
use crate::simd::{Isa, Kernel, Simd};
use std::marker::PhantomData;

pub struct Choose {
    q: usize,
    /// One weight per head. Without weights, each head has its own list.
    weights: Option<usize>,
    heads: Heads,
    out: usize,
    blocks: Blocks,
}

/// Sizes of the blocks and lists.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// Positions per block.
    pub length: usize,
    /// Blocks per list.
    pub wanted: usize,
    /// Number of last blocks, up to the row's own, that each list always includes.
    pub local: usize,
}

/// Maximum number of blocks: f32 represents smaller indices exactly.
const MAX_BLOCK: usize = 1 << 24;

impl Decode for Choose {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (q, weights, heads) = (o.step_float(None)?, o.optional()?, o.heads()?);
        let (out, length, local) = (o.step_float(None)?, o.size()?, o.size()?);
        if heads.kv_heads != 1 || heads.heads > MAX_ROWS || heads.gated {
            bail!("positions are chosen by 1 to {MAX_ROWS} heads over one KV head (got {})", heads.heads);
        }
        o.is_float(q, Some(heads.query_columns()))?;
        if let Some(weights) = weights {
            o.is_float(weights, Some(heads.heads))?;
            o.rows_are(weights, Rows::Step)?;
        }
        let (columns, lists) = (o.buffer(out)?.columns, if weights.is_some() { 1 } else { heads.heads });
        if columns == 0 || !columns.is_multiple_of(lists) {
            bail!("{columns} columns cannot hold {lists} lists of the same length");
        }
        let wanted = columns / lists;
        if length == 0 || local > wanted {
            bail!("blocks must have at least 1 position, and at most {wanted} are local (got {length} and {local})");
        }
        if o.program.kv.window(heads.layer) != usize::MAX {
            bail!("layer {}'s cache must keep all positions", heads.layer);
        }
        Ok(Self { q, weights, heads, out, blocks: Blocks { length, wanted, local } })
    }
}

impl Op for Choose {
    fn scratch(&self, p: &Program) -> usize {
        scratch_len(p.kv.kind, self.heads.head_dim)
    }

    fn run(&self, run: &Run, work: &Work) {
        let h = &self.heads;
        let layer = &run.p.kv.layers[h.layer];
        for row in work.items(run.tokens()).flatten() {
            let sequence = &run.step.sequences[run.step.sequence_of[row]];
            let seen = run.step.position_of[row] + 1;
            if seen <= self.blocks.wanted.saturating_mul(self.blocks.length) {
                continue;
            }
            let table = &sequence.block_tables[layer.group];
            let [keys, _] = run.kv_block(h.layer, 0);
            let q: Vec<*const f32> =
                (0..h.heads).map(|i| run.float(self.q, row).wrapping_add(i * h.query_stride()).cast_const()).collect();
            let args = Scores {
                q: &q,
                head_dim: h.head_dim,
                weights: self.weights.map_or(std::ptr::null(), |weights| run.float(weights, row).cast_const()),
                keys,
                block_stride: run.p.kv.block_bytes[0],
                block_table: &table.blocks,
                seen: seen.min(MAX_BLOCK.saturating_mul(self.blocks.length)),
                scratch: work.scratch,
            };
            // SAFETY: decoding checked the widths; decoding the step checked the blocks, and the table has those of all
            // positions, because the layer has no window.
            unsafe {
                let lists = best_blocks(run.isa, run.p.kv.kind, &args, self.blocks);
                let out = std::slice::from_raw_parts_mut(run.float(self.out, row), run.p.buffers[self.out].columns);
                for (to, block) in out.iter_mut().zip(lists.into_iter().flatten()) {
                    *to = block as f32;
                }
            }
        }
    }
}

/// Floats of scratch memory for heads of `head_dim`.
pub fn scratch_len(kind: KvType, head_dim: usize) -> usize {
    MAX_ROWS * KV_BLOCK + KV_BLOCK + kind.scratch_len(head_dim)
}

/// Returns the blocks of each list, in ascending order. There must be more than `of.wanted` blocks.
///
/// # Safety
/// The pointers hold what `Scores` says. The table has the blocks of all positions.
pub unsafe fn best_blocks(isa: Isa, kind: KvType, scores: &Scores, of: Blocks) -> Vec<Vec<u32>> {
    let lists = if scores.weights.is_null() { scores.q.len() } else { 1 };
    let mut best: Vec<Best> = (0..lists).map(|_| Best::new(of, scores.seen)).collect();
    // SAFETY: guaranteed by the caller.
    unsafe {
        match kind {
            KvType::Int16 => isa.run(Score(scores, &mut best, PhantomData::<Int16>)),
            KvType::Q8_0 => isa.run(Score(scores, &mut best, PhantomData::<Q8_0>)),
            KvType::Q4_0 => isa.run(Score(scores, &mut best, PhantomData::<Q4_0>)),
        }
    }
    best.iter_mut().map(Best::blocks).collect()
}

/// The candidates for a list so far. After more than `of.wanted` blocks, it holds at least the best `of.wanted` of
/// them.
struct Best {
    of: Blocks,
    /// Index of the first local block.
    local: usize,
    candidates: Vec<(f32, u32)>,
}

impl Best {
    fn new(of: Blocks, seen: usize) -> Self {
        let local = seen.div_ceil(of.length).saturating_sub(of.local);
        Self { of, local, candidates: Vec::with_capacity(2 * of.wanted + KV_BLOCK) }
    }

    /// Adds the scores of positions from `start` on. Call it in the order of positions.
    #[inline(always)]
    fn add<S: Simd>(&mut self, s: S, start: usize, scores: &[f32]) {
        if self.of.length == 1 && start + scores.len() <= self.local {
            self.candidates.extend(scores.iter().zip(start as u32..).map(|(score, block)| (*score, block)));
            if self.candidates.len() >= 2 * self.of.wanted {
                self.cut();
            }
            return;
        }
        let mut at = 0;
        while at < scores.len() {
            let block = (start + at) / self.of.length;
            let end = scores.len().min((block + 1).saturating_mul(self.of.length) - start);
            let score = if block < self.local { largest(s, &scores[at..end]) } else { f32::INFINITY };
            match self.candidates.last_mut() {
                Some((best, last)) if *last == block as u32 => *best = best.max(score),
                _ => {
                    // Cut only between two blocks: the current block must stay the last candidate.
                    if self.candidates.len() >= 2 * self.of.wanted {
                        self.cut();
                    }
                    self.candidates.push((score, block as u32));
                }
            }
            at = end;
        }
    }

    fn cut(&mut self) {
        if self.candidates.len() > self.of.wanted {
            let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
            self.candidates.select_nth_unstable_by(self.of.wanted - 1, order);
            self.candidates.truncate(self.of.wanted);
        }
    }

    /// Returns the best `of.wanted` blocks, in ascending order.
    fn blocks(&mut self) -> Vec<u32> {
        self.cut();
        let mut blocks: Vec<u32> = self.candidates.iter().map(|(_, block)| *block).collect();
        blocks.sort_unstable();
        blocks
    }
}

/// Returns the largest score. `scores` must not be empty.
#[inline(always)]
fn largest<S: Simd>(s: S, scores: &[f32]) -> f32 {
    let whole = scores.chunks_exact(S::LANES);
    let rest = whole.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if whole.len() == 0 {
        return rest;
    }
    // SAFETY: a chunk has LANES floats.
    let vector = whole.fold(s.splat(f32::NEG_INFINITY), |most, x| s.max(most, unsafe { s.load(x.as_ptr()) }));
    rest.max(s.largest(vector))
}

/// A row's queries, and the keys that it scores.
pub struct Scores<'a> {
    /// At most MAX_ROWS queries of head_dim floats.
    pub q: &'a [*const f32],
    pub head_dim: usize,
    /// One weight per query. If null, each query has its own list.
    pub weights: *const f32,
    pub keys: *const u8,
    pub block_stride: usize,
    pub block_table: &'a [i32],
    /// Number of positions to score.
    pub seen: usize,
    /// Scratch memory of `scratch_len` floats.
    pub scratch: *mut f32,
}

/// Scores all positions of a row over a cache of type K.
///
/// # Safety
/// As `best_blocks`.
struct Score<'a, 'b, K>(&'a Scores<'b>, &'a mut [Best], PhantomData<K>);

impl<K: KvFormat> Kernel for Score<'_, '_, K> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self(a, best, _) = self;
        let heads = a.q.len();
        let products = FloatMatrix { at: a.scratch, stride: KV_BLOCK };
        unsafe {
            let sums = products.row(MAX_ROWS);
            let queries = Queries { q: a.q, head_dim: a.head_dim, scratch: sums.add(KV_BLOCK) };
            K::prepare(s, &queries);
            for start in (0..a.seen).step_by(KV_BLOCK) {
                let index = start / KV_BLOCK;
                let at = |i: usize| a.keys.add(a.block_table[i] as usize * a.block_stride);
                let block = Block { at: at(index), next: at((index + 1).min(a.block_table.len() - 1)) };
                K::scores(s, &queries, 0..heads, block, products);
                let mut scores = products;
                if !a.weights.is_null() {
                    weigh(s, a.weights, products, heads, sums);
                    scores.at = sums;
                }
                for (list, best) in best.iter_mut().enumerate() {
                    let row = std::slice::from_raw_parts(scores.row(list), KV_BLOCK.min(a.seen - start));
                    best.add(s, start, row);
                }
            }
        }
    }
}

/// For each of KV_BLOCK positions, writes the sum over heads of weight * max(0, product) to `sums`.
///
/// # Safety
/// `weights` has one float per head, and `products` has one row per head.
#[inline(always)]
unsafe fn weigh<S: Simd>(s: S, weights: *const f32, products: FloatMatrix, heads: usize, sums: *mut f32) {
    for i in (0..KV_BLOCK).step_by(S::LANES) {
        unsafe {
            let mut sum = s.splat(0.0);
            for head in 0..heads {
                let product = s.max(s.splat(0.0), s.load(products.row(head).add(i)));
                sum = s.fma(s.splat(*weights.add(head)), product, sum);
            }
            s.store(sums.add(i), sum);
        }
    }
}
