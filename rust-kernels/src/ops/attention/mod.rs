//! Attention over the KV cache. Query rows with the same keys and values are processed together.
pub mod groups;
mod tile;

pub use self::tile::{AttentionTile, CHUNK, Part, attend, scratch_len};

use self::groups::Group;
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::kv::MAX_ROWS;
use crate::program::{Heads, Operands, Program, Rows as StepRows};
use std::ops::Range;

/// Minimum query heads per KV head that read its keys and values together, if there are as many.
const EACH: usize = 4;

pub struct Attention {
    q: usize,
    out: usize,
    heads: Heads,
    scale: f32,
    /// Positions that a row attends to, up to and including its own; usize::MAX means all.
    window: usize,
    /// As `AttentionTile::chunked`.
    chunked: bool,
    /// A vector: one score per head that takes part in the softmax.
    sinks: Option<usize>,
    /// As `AttentionTile::softcap`.
    softcap: f32,
    /// The blocks that each row attends to; None means all positions.
    chosen: Option<Chosen>,
    /// Whether rows of an image attend only to positions up to their own, as other rows do.
    causal: bool,
}

/// Lists of the blocks of positions that each row attends to, in ascending order. A row that has no more blocks than a
/// list holds attends to all positions.
struct Chosen {
    buffer: usize,
    /// Blocks per list.
    count: usize,
    /// Positions per block.
    length: usize,
    /// Whether each KV head has its own list. Otherwise all heads share one list.
    per_head: bool,
}

impl Chosen {
    /// Reads the operand. Returns None if the plan omits it.
    fn decode(o: &mut Operands, kv_heads: usize) -> Result<Option<Self>> {
        let (buffer, count, length) = (o.optional()?, o.size()?, o.size()?);
        let Some(buffer) = buffer else { return Ok(None) };
        o.is_float(buffer, None)?;
        o.rows_are(buffer, StepRows::Step)?;
        let columns = o.buffer(buffer)?.columns;
        let per_head = columns != count;
        if count == 0 || length == 0 || per_head && Some(columns) != count.checked_mul(kv_heads) {
            bail!("{columns} columns cannot hold 1 or {kv_heads} lists of {count} blocks of {length} positions");
        }
        Ok(Some(Self { buffer, count, length, per_head }))
    }
}

impl Decode for Attention {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (q, out) = (o.step_float(None)?, o.step_float(None)?);
        let (heads, scale, window, chunked) = (o.heads()?, o.f32()?, o.size()?, o.flag()?);
        let (sinks, softcap) = (o.optional()?, o.f32()?);
        let window = if window == 0 { usize::MAX } else { window };
        o.is_float(q, Some(heads.query_columns()))?;
        o.is_float(out, Some(heads.heads * heads.head_dim))?;
        let kept = o.program.kv.window(heads.layer);
        if window > kept {
            bail!("layer {}'s cache has a window of {kept} positions, but the attention sees more", heads.layer);
        }
        if let Some(sinks) = sinks {
            o.vector(sinks, heads.heads)?;
        }
        if !(softcap >= 0.0 && softcap.is_finite()) {
            bail!("scores must be capped at a positive number, or at 0 for none (got {softcap})");
        }
        let chosen = Chosen::decode(o, heads.kv_heads)?;
        let causal = o.flag()?;
        Ok(Self { q, out, heads, scale, window, chunked, sinks, softcap, chosen, causal })
    }
}

impl Op for Attention {
    fn scratch(&self, p: &Program) -> usize {
        scratch_len(p.kv.kind, self.heads.head_dim)
    }

    fn run(&self, run: &Run, work: &Work) {
        let h = &self.heads;
        let tokens = (MAX_ROWS / (h.heads / h.kv_heads)).max(1);
        // With many threads, tiles have few sequences, so that every thread gets a tile.
        let decoding = run.step.sequences.len() * h.kv_heads;
        let together = decoding.div_ceil(2 * work.threads).min(tokens);
        let tiles = |g: &Group| match g.members[..] {
            [one] => run.step.sequences[one].length.div_ceil(tokens),
            _ => g.members.len().div_ceil(together),
        };
        let groups = &run.groups[run.p.kv.layers[h.layer].group];
        let total: usize = groups.iter().map(tiles).sum();
        let group = h.heads / h.kv_heads;
        let pieces = pieces(group, total * h.kv_heads, work.threads);
        let across = h.kv_heads * pieces;
        // Last tiles first: later tokens of a prompt see more positions, and the longest items should not come at the
        // end.
        let tile_of = |item: usize| {
            let (mut tile, mut index) = (total - 1 - item / across, 0);
            while tile >= tiles(&groups[index]) {
                tile -= tiles(&groups[index]);
                index += 1;
            }
            (&groups[index], tile)
        };
        let items = total * across;
        // Heads of a block are adjacent in memory. A thread takes several in a row and knows what to prefetch next.
        for item in work.tapering(items, [1, across]).flatten() {
            let ((g, tile), piece) = (tile_of(item), item % across);
            let mut rows = Rows::new(run, self, piece / pieces, cut_evenly(group, piece % pieces, pieces));
            match g.members[..] {
                [one] => {
                    let start = tile * tokens;
                    rows.add(one, start..run.step.sequences[one].length.min(start + tokens));
                }
                _ => {
                    let start = tile * together;
                    g.members[start..g.members.len().min(start + together)].iter().for_each(|i| rows.add(*i, 0..1));
                }
            }
            let next = (item + 1) % items;
            let after = self.first_keys(run, tile_of(next).0, next % across / pieces);
            rows.attend(g.shared, after, work.scratch);
        }
    }
}

impl Attention {
    /// Address of the first keys that a group's rows read under a KV head.
    fn first_keys(&self, run: &Run, group: &Group, head: usize) -> *const u8 {
        let kept = &run.p.kv.layers[self.heads.layer];
        let block = run.step.sequences[group.members[0]].block_tables[kept.group].blocks[0];
        run.kv_block(self.heads.layer, block as usize)[0].wrapping_add(head * kept.head_bytes[0])
    }
}

/// Number of pieces that a KV head's query heads are split into. Idle threads get a piece each, with at least EACH
/// heads. A piece has at most MAX_ROWS heads. A row's result does not depend on the other rows of its tile.
fn pieces(group: usize, tiles: usize, threads: usize) -> usize {
    threads.div_ceil(tiles.max(1)).min(group / EACH).max(group.div_ceil(MAX_ROWS))
}

/// Part `part` of `parts` almost equal parts of 0..n.
fn cut_evenly(n: usize, part: usize, parts: usize) -> Range<usize> {
    n * part / parts..n * (part + 1) / parts
}

/// Query rows under one KV head.
struct Rows<'a> {
    run: &'a Run<'a>,
    op: &'a Attention,
    head: usize,
    /// The query heads.
    group: Range<usize>,
    rows: usize,
    queries: [*const f32; MAX_ROWS],
    results: [*mut f32; MAX_ROWS],
    positions: [usize; MAX_ROWS],
    ends: [usize; MAX_ROWS],
    sinks: [f32; MAX_ROWS],
    /// The list of chosen blocks of each row; null if the row attends to all positions.
    chosen: [*const f32; MAX_ROWS],
    parts: usize,
    tables: [Part<'a>; MAX_ROWS],
}

impl<'a> Rows<'a> {
    /// Rows of query heads `of`, counted within those of the KV head.
    fn new(run: &'a Run<'a>, op: &'a Attention, head: usize, of: Range<usize>) -> Self {
        let first = head * (op.heads.heads / op.heads.kv_heads);
        Self {
            run,
            op,
            head,
            group: first + of.start..first + of.end,
            rows: 0,
            queries: [std::ptr::null(); MAX_ROWS],
            results: [std::ptr::null_mut(); MAX_ROWS],
            positions: [0; MAX_ROWS],
            ends: [0; MAX_ROWS],
            sinks: [0.0; MAX_ROWS],
            chosen: [std::ptr::null(); MAX_ROWS],
            parts: 0,
            tables: [const { Part { rows: 0, first_block: 0, block_table: &[] } }; MAX_ROWS],
        }
    }

    /// Adds some tokens of a sequence.
    fn add(&mut self, index: usize, tokens: Range<usize>) {
        let (h, sequence) = (&self.op.heads, &self.run.step.sequences[index]);
        let table = &sequence.block_tables[self.run.p.kv.layers[h.layer].group];
        self.tables[self.parts] =
            Part { rows: tokens.len() * self.group.len(), first_block: table.first, block_table: &table.blocks };
        self.parts += 1;
        let sinks = self.op.sinks.map(|sinks| self.run.vector(sinks, h.heads));
        for token in tokens {
            let seen = sequence.cached + token + 1;
            let chosen = self.op.chosen.as_ref().filter(|of| seen > of.count.saturating_mul(of.length));
            let chosen = chosen.map_or(std::ptr::null_mut(), |of| {
                let list = if of.per_head { self.head } else { 0 };
                self.run.float(of.buffer, sequence.start + token).wrapping_add(list * of.count)
            });
            for i in self.group.clone() {
                // SAFETY: the row is one of the sequence's, the head one of the buffer's.
                unsafe {
                    let [q, out] = [self.op.q, self.op.out].map(|b| self.run.float(b, sequence.start + token));
                    self.queries[self.rows] = q.add(i * h.query_stride());
                    self.results[self.rows] = out.add(i * h.head_dim);
                    if let Some(sinks) = sinks {
                        self.sinks[self.rows] = *sinks.add(i);
                    }
                }
                self.chosen[self.rows] = chosen;
                self.positions[self.rows] = sequence.cached + token;
                self.ends[self.rows] = if self.op.causal { seen } else { self.run.step.end_of[sequence.start + token] };
                self.rows += 1;
            }
        }
    }

    fn attend(&self, shared: usize, after: *const u8, scratch: *mut f32) {
        let (run, h) = (self.run, &self.op.heads);
        let [keys, values] = run.kv_block(h.layer, 0);
        let args = AttentionTile {
            q: &self.queries[..self.rows],
            out: &self.results[..self.rows],
            positions: &self.positions[..self.rows],
            ends: &self.ends[..self.rows],
            parts: &self.tables[..self.parts],
            shared,
            window: self.op.window,
            chunked: self.op.chunked,
            sinks: if self.op.sinks.is_some() { &self.sinks[..self.rows] } else { &[] },
            chosen: if self.op.chosen.is_some() { &self.chosen[..self.rows] } else { &[] },
            choices: self.op.chosen.as_ref().map_or([0, 1], |of| [of.count, of.length]),
            cache: [keys, values],
            block_stride: run.p.kv.block_bytes,
            head_offset: run.p.kv.layers[h.layer].head_bytes.map(|bytes| self.head * bytes),
            after,
            head_dim: h.head_dim,
            scale: self.op.scale,
            softcap: self.op.softcap,
            gated: h.gated,
            scratch,
        };
        // SAFETY: the tables cover the positions; RopeAppend wrote them before the barrier.
        unsafe { attend(run.isa, run.p.kv.kind, &args) }
    }
}
