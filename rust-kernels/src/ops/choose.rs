//! Op: chooses the positions that a row attends to (DeepSeek's lightning indexer).
//!
//! Position p has the score sum over heads of weight * max(0, query . key of p). The row sees the positions with the
//! largest scores; of equal scores, the earlier position counts more. A row that has at most as many positions sees all
//! and gets no list. Source: "DeepSeek-V3.2" (arXiv 2512.02556), section 2.1.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::kv::{Block, FloatMatrix, KV_BLOCK, KvFormat, KvType, MAX_ROWS, Queries};
use crate::kernels::kv::{int16::Int16, q4_0::Q4_0, q8_0::Q8_0};
use crate::program::{Heads, Operands, Program};
use crate::simd::{Isa, Kernel, Simd};
use std::marker::PhantomData;

pub struct Choose {
    q: usize,
    /// A weight per head.
    weights: usize,
    heads: Heads,
    out: usize,
    /// Number of positions that a row sees.
    choices: usize,
}

/// The largest position that f32 holds exactly, and all before it.
const MAX_POSITION: usize = 1 << 24;

impl Decode for Choose {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (q, weights, heads) = (o.step_float(None)?, o.step_float(None)?, o.heads()?);
        let out = o.step_float(None)?;
        let choices = o.buffer(out)?.columns;
        if heads.kv_heads != 1 || heads.heads > MAX_ROWS || heads.gated {
            bail!("positions are chosen by 1 to {MAX_ROWS} heads over one KV head (got {})", heads.heads);
        }
        o.is_float(q, Some(heads.query_columns()))?;
        o.is_float(weights, Some(heads.heads))?;
        if o.program.kv.window(heads.layer) != usize::MAX {
            bail!("layer {}'s cache must keep all positions", heads.layer);
        }
        Ok(Self { q, weights, heads, out, choices })
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
            if seen <= self.choices {
                continue;
            }
            let table = &sequence.block_tables[layer.group];
            let [keys, _] = run.kv_block(h.layer, 0);
            let q: Vec<*const f32> =
                (0..h.heads).map(|i| run.float(self.q, row).wrapping_add(i * h.query_stride()).cast_const()).collect();
            let args = Scores {
                q: &q,
                head_dim: h.head_dim,
                weights: run.float(self.weights, row),
                keys,
                block_stride: run.p.kv.block_bytes[0],
                block_table: &table.blocks,
                seen: seen.min(MAX_POSITION),
                scratch: work.scratch,
            };
            // SAFETY: decoding checked the widths; decoding the step checked the blocks, and the table has those of all
            // positions, because the layer has no window.
            unsafe {
                let out = std::slice::from_raw_parts_mut(run.float(self.out, row), self.choices);
                for (to, position) in out.iter_mut().zip(best_positions(run.isa, run.p.kv.kind, &args, self.choices)) {
                    *to = position as f32;
                }
            }
        }
    }
}

/// Floats of scratch memory for heads of `head_dim`.
pub fn scratch_len(kind: KvType, head_dim: usize) -> usize {
    MAX_ROWS * KV_BLOCK + KV_BLOCK + kind.scratch_len(head_dim)
}

/// Returns the `wanted` positions with the largest scores, ascending.
///
/// # Safety
/// The pointers hold what `Scores` says. The table has the blocks of all positions.
pub unsafe fn best_positions(isa: Isa, kind: KvType, of: &Scores, wanted: usize) -> Vec<u32> {
    let mut best = Best::new(wanted);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match kind {
            KvType::Int16 => isa.run(Score(of, &mut best, PhantomData::<Int16>)),
            KvType::Q8_0 => isa.run(Score(of, &mut best, PhantomData::<Q8_0>)),
            KvType::Q4_0 => isa.run(Score(of, &mut best, PhantomData::<Q4_0>)),
        }
    }
    best.positions()
}

/// The best positions so far: at least the wanted number, if there were as many.
struct Best {
    wanted: usize,
    candidates: Vec<(f32, u32)>,
}

impl Best {
    fn new(wanted: usize) -> Self {
        Self { wanted, candidates: Vec::with_capacity(2 * wanted + KV_BLOCK) }
    }

    /// Adds a block's scores, from position `start` on.
    fn add(&mut self, start: usize, scores: &[f32]) {
        self.candidates.extend(scores.iter().zip(start as u32..).map(|(score, position)| (*score, position)));
        if self.candidates.len() >= 2 * self.wanted {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.candidates.len() > self.wanted {
            let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
            self.candidates.select_nth_unstable_by(self.wanted - 1, order);
            self.candidates.truncate(self.wanted);
        }
    }

    /// Returns the wanted number of positions, ascending.
    fn positions(&mut self) -> Vec<u32> {
        self.cut();
        let mut positions: Vec<u32> = self.candidates.iter().map(|(_, position)| *position).collect();
        positions.sort_unstable();
        positions
    }
}

/// A row's queries, and the keys that it scores.
pub struct Scores<'a> {
    /// At most MAX_ROWS queries of head_dim floats.
    pub q: &'a [*const f32],
    pub head_dim: usize,
    /// One float per query.
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
/// As `best_positions`.
struct Score<'a, 'b, K>(&'a Scores<'b>, &'a mut Best, PhantomData<K>);

impl<K: KvFormat> Kernel for Score<'_, '_, K> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self(a, best, _) = self;
        let heads = a.q.len();
        let products = FloatMatrix { at: a.scratch, stride: KV_BLOCK };
        unsafe {
            let scores = products.row(MAX_ROWS);
            let queries = Queries { q: a.q, head_dim: a.head_dim, scratch: scores.add(KV_BLOCK) };
            K::prepare(s, &queries);
            for start in (0..a.seen).step_by(KV_BLOCK) {
                let index = start / KV_BLOCK;
                let at = |i: usize| a.keys.add(a.block_table[i] as usize * a.block_stride);
                let block = Block { at: at(index), next: at((index + 1).min(a.block_table.len() - 1)) };
                K::scores(s, &queries, 0..heads, block, products);
                for i in (0..KV_BLOCK).step_by(S::LANES) {
                    let mut sum = s.splat(0.0);
                    for head in 0..heads {
                        let product = s.max(s.splat(0.0), s.load(products.row(head).add(i)));
                        sum = s.fma(s.splat(*a.weights.add(head)), product, sum);
                    }
                    s.store(scores.add(i), sum);
                }
                best.add(start, std::slice::from_raw_parts(scores, KV_BLOCK.min(a.seen - start)));
            }
        }
    }
}
