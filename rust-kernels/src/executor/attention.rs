//! The KV cache: what is appended to it, and attention over it.
use super::Run;
use super::scratch::Scratch;
use crate::memory::Region;
use crate::ops::attention::{Attention, MAX_ROWS};
use crate::ops::rope::{KV_BLOCK, RopeShape};
use crate::pool::Items;
use crate::program::Heads;
use std::sync::atomic::AtomicUsize;

impl Run<'_> {
    /// Elements from a layer's start to a block's and head's keys (or values). The cache is [block][layer][head]: a
    /// block's layers lie together, so that what a sequence uses is made of few pages.
    fn kv_offset(&self, block: usize, head: usize) -> usize {
        let kv = &self.p.kv;
        (block * kv.layers * kv.heads + head) * kv.head_dim * KV_BLOCK
    }

    fn kv_layer(&self, region: &Region, layer: usize) -> *mut u16 {
        region.at(2 * layer * self.kv_offset(0, self.p.kv.heads)).cast()
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
            // Rows of one head after the other: neighbours share the cache lines of a transposed key block.
            let (row, head) = (item % rows, item / rows);
            let sequence = &self.step.sequences[self.step.sequence_of[row]];
            let position = self.step.position_of[row];
            let block = sequence.block_table[position / KV_BLOCK] as usize;
            let slot = position % KV_BLOCK;
            // SAFETY: widths, norms and table were checked at decode, the block when the step was decoded; each (row,
            // head) is one item.
            unsafe {
                let angles = self.float(table, row);
                for i in head * group..(head + 1) * group {
                    (self.k.norm_and_rotate)(self.float(q, row).add(i * h.query_stride()), q_norm, angles, rope);
                }
                let (key, value) = (self.float(k, row).add(head * dim), self.float(v, row).add(head * dim));
                (self.k.norm_and_rotate)(key, k_norm, angles, rope);
                let at = self.kv_offset(block, head);
                (self.k.append_key)(key, dim, keys.add(at), slot);
                (self.k.append_value)(value, dim, values.add(at), slot);
            }
        }
    }

    pub(super) fn attention(&self, q: usize, out: usize, h: &Heads, scale: f32, next: &AtomicUsize, s: &Scratch) {
        let group = h.heads / h.kv_heads;
        let tokens = (MAX_ROWS / group).max(1);
        let tiles = |i: usize| self.step.sequences[i].length.div_ceil(tokens);
        let total: usize = (0..self.step.sequences.len()).map(tiles).sum();
        let (keys, values) = (self.kv_layer(&self.e.keys, h.layer), self.kv_layer(&self.e.values, h.layer));
        // One cursor is enough: items come in ascending order.
        let (mut index, mut first) = (0, 0);
        for item in Items::new(next, total * h.kv_heads, 1).flatten() {
            let (tile, head) = (item / h.kv_heads, item % h.kv_heads);
            while tile - first >= tiles(index) {
                first += tiles(index);
                index += 1;
            }
            let sequence = &self.step.sequences[index];
            let start = (tile - first) * tokens;
            let count = tokens.min(sequence.length - start);
            let rows = count * group;
            let mut queries = [std::ptr::null::<f32>(); MAX_ROWS];
            let mut results = [std::ptr::null_mut::<f32>(); MAX_ROWS];
            let mut positions = [0usize; MAX_ROWS];
            for r in 0..rows {
                let (token, i) = (start + r / group, head * group + r % group);
                // SAFETY: the row is one of the sequence's, the head one of the buffer's.
                unsafe {
                    queries[r] = self.float(q, sequence.start + token).add(i * h.query_stride());
                    results[r] = self.float(out, sequence.start + token).add(i * h.head_dim);
                }
                positions[r] = sequence.cached + token;
            }
            let args = Attention {
                q: &queries[..rows],
                out: &results[..rows],
                positions: &positions[..rows],
                keys,
                values,
                block_stride: self.kv_offset(1, 0),
                head_offset: self.kv_offset(0, head),
                block_table: &sequence.block_table,
                head_dim: h.head_dim,
                scale,
                gated: h.gated,
                scratch: s.attention,
            };
            // SAFETY: the table covers the positions, RopeAppend wrote them before the barrier.
            unsafe { (self.k.attention)(&args) }
        }
    }
}
