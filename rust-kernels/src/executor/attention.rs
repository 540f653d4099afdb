//! The KV cache: what is appended to it, and attention over it.
use super::Run;
use super::groups::Group;
use super::scratch::Scratch;
use crate::memory::Region;
use crate::ops::attention::{Attention, Part};
use crate::ops::kv::{KV_BLOCK, MAX_ROWS};
use crate::ops::rope::NormAndRotate;
use crate::ops::rope::RopeShape;
use crate::pool::Items;
use crate::program::Heads;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

impl Run<'_> {
    /// Bytes from a layer's start to a block's and head's keys (or values). The cache is [block][layer][head]: a
    /// block's layers lie together, so that what a sequence uses is made of few pages.
    fn kv_offset(&self, block: usize, head: usize) -> usize {
        let kv = &self.p.kv;
        (block * kv.layers * kv.heads + head) * kv.block_bytes()
    }

    fn kv_layer(&self, region: &Region, layer: usize) -> *mut u8 {
        region.at(layer * self.kv_offset(0, self.p.kv.heads))
    }

    pub(super) fn rope_append<'i>(
        &self,
        [q, k, v, table]: [usize; 4],
        norms: [Option<usize>; 2],
        h: &Heads,
        rope: &RopeShape,
        items: impl Fn(usize) -> Items<'i>,
    ) {
        let dim = h.head_dim;
        let group = h.heads / h.kv_heads;
        let [q_norm, k_norm] = norms.map(|n| n.map_or(std::ptr::null(), |n| self.vector(n, dim)));
        let (keys, values) = (self.kv_layer(&self.e.keys, h.layer), self.kv_layer(&self.e.values, h.layer));
        let rows = self.step.tokens.len();
        for item in items(rows * h.kv_heads).flatten() {
            let (row, head) = (item / h.kv_heads, item % h.kv_heads);
            let sequence = &self.step.sequences[self.step.sequence_of[row]];
            let position = self.step.position_of[row];
            let block = sequence.block_table[position / KV_BLOCK] as usize;
            let slot = position % KV_BLOCK;
            // SAFETY: widths, norms and table were checked at decode, the block when the step was decoded; each (row,
            // head) is one item.
            unsafe {
                let angles = self.float(table, row);
                for i in head * group..(head + 1) * group {
                    self.isa.run(NormAndRotate {
                        x: self.float(q, row).add(i * h.query_stride()),
                        weight: q_norm,
                        table: angles,
                        shape: rope,
                    });
                }
                let (key, value) = (self.float(k, row).add(head * dim), self.float(v, row).add(head * dim));
                self.isa.run(NormAndRotate { x: key, weight: k_norm, table: angles, shape: rope });
                let at = self.kv_offset(block, head);
                (self.kv.append_key)(self.isa, key, dim, keys.add(at), slot);
                (self.kv.append_value)(self.isa, value, dim, values.add(at), slot);
            }
        }
    }

    pub(super) fn attention(
        &self,
        buffers: [usize; 2],
        h: &Heads,
        scale: f32,
        threads: usize,
        next: &AtomicUsize,
        s: &Scratch,
    ) {
        let group = h.heads / h.kv_heads;
        let tokens = (MAX_ROWS / group).max(1);
        // Few sequences a tile where there are many threads: all are to have one.
        let decoding = self.step.sequences.len() * h.kv_heads;
        let together = decoding.div_ceil(2 * threads).min(tokens);
        let tiles = |g: &Group| match g.members[..] {
            [one] => self.step.sequences[one].length.div_ceil(tokens),
            _ => g.members.len().div_ceil(together),
        };
        let total: usize = self.groups.iter().map(tiles).sum();
        for item in Items::new(next, total * h.kv_heads, 1).flatten() {
            // The last first: a prompt's later tokens see more, and the longest items are not to come at the end.
            let (mut tile, head) = (total - 1 - item / h.kv_heads, item % h.kv_heads);
            let mut index = 0;
            while tile >= tiles(&self.groups[index]) {
                tile -= tiles(&self.groups[index]);
                index += 1;
            }
            let g = &self.groups[index];
            let mut rows = Tile::new(self, buffers, h, head);
            match g.members[..] {
                [one] => {
                    let start = tile * tokens;
                    rows.add(one, start..self.step.sequences[one].length.min(start + tokens));
                }
                _ => {
                    let start = tile * together;
                    g.members[start..g.members.len().min(start + together)].iter().for_each(|i| rows.add(*i, 0..1));
                }
            }
            rows.attend(g.shared, scale, s);
        }
    }
}

/// Query rows under one KV head.
struct Tile<'a> {
    run: &'a Run<'a>,
    buffers: [usize; 2],
    heads: &'a Heads,
    head: usize,
    rows: usize,
    queries: [*const f32; MAX_ROWS],
    results: [*mut f32; MAX_ROWS],
    positions: [usize; MAX_ROWS],
    parts: usize,
    tables: [Part<'a>; MAX_ROWS],
}

impl<'a> Tile<'a> {
    fn new(run: &'a Run<'a>, buffers: [usize; 2], heads: &'a Heads, head: usize) -> Self {
        Self {
            run,
            buffers,
            heads,
            head,
            rows: 0,
            queries: [std::ptr::null(); MAX_ROWS],
            results: [std::ptr::null_mut(); MAX_ROWS],
            positions: [0; MAX_ROWS],
            parts: 0,
            tables: [const { Part { rows: 0, block_table: &[] } }; MAX_ROWS],
        }
    }

    /// Adds some tokens of a sequence.
    fn add(&mut self, index: usize, tokens: Range<usize>) {
        let (h, sequence) = (self.heads, &self.run.step.sequences[index]);
        let group = h.heads / h.kv_heads;
        self.tables[self.parts] = Part { rows: tokens.len() * group, block_table: &sequence.block_table };
        self.parts += 1;
        for token in tokens {
            for i in self.head * group..(self.head + 1) * group {
                // SAFETY: the row is one of the sequence's, the head one of the buffer's.
                unsafe {
                    let [q, out] = self.buffers.map(|b| self.run.float(b, sequence.start + token));
                    self.queries[self.rows] = q.add(i * h.query_stride());
                    self.results[self.rows] = out.add(i * h.head_dim);
                }
                self.positions[self.rows] = sequence.cached + token;
                self.rows += 1;
            }
        }
    }

    fn attend(&self, shared: usize, scale: f32, s: &Scratch) {
        let (run, h) = (self.run, self.heads);
        let args = Attention {
            q: &self.queries[..self.rows],
            out: &self.results[..self.rows],
            positions: &self.positions[..self.rows],
            parts: &self.tables[..self.parts],
            shared,
            keys: run.kv_layer(&run.e.keys, h.layer),
            values: run.kv_layer(&run.e.values, h.layer),
            block_stride: run.kv_offset(1, 0),
            head_offset: run.kv_offset(0, self.head),
            head_dim: h.head_dim,
            scale,
            gated: h.gated,
            scratch: s.attention,
        };
        // SAFETY: the tables cover the positions, RopeAppend wrote them before the barrier.
        unsafe { (run.kv.attend)(run.isa, &args) }
    }
}
