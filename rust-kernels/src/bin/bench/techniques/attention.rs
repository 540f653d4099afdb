//! Attention of many sequences: prefix.
use super::{Bench, Case};
use compy::kernels::Kernels;
use compy::ops::attention::{Attention, CHUNK, Part, scratch_len};
use compy::ops::rope::KV_BLOCK;

/// Qwen3-0.6B: a layer's KV heads, the query heads of each, and their width.
const KV_HEADS: usize = 8;
const GROUP: usize = 2;
const HEAD_DIM: usize = 128;
/// Tokens of its own that each sequence has after the prefix.
const OWN: usize = CHUNK;
/// Halves of a block of a head, and of a layer.
const HEAD_BLOCK: usize = HEAD_DIM * KV_BLOCK;
const LAYER_BLOCK: usize = KV_HEADS * HEAD_BLOCK;

/// Sequences that begin with the same blocks and decode one token each.
struct Sequences {
    shared: usize,
    keys: Vec<u16>,
    values: Vec<u16>,
    tables: Vec<Vec<i32>>,
    queries: Vec<f32>,
    out: Vec<f32>,
    scratch: Vec<f32>,
}

impl Sequences {
    fn new(count: usize, shared: usize) -> Self {
        let (common, own) = (shared / KV_BLOCK, OWN / KV_BLOCK);
        let blocks = common + count * own;
        let table = |i: usize| (0..common).chain(common + i * own..common + (i + 1) * own).map(|b| b as i32).collect();
        // Halves from 0.5 to 1, a few of them.
        let halves = |seed: usize| {
            (0..blocks * LAYER_BLOCK).map(move |i| 0x3800 | ((i * 2_654_435_761 + seed) >> 7 & 0x3ff) as u16)
        };
        let rows = count * KV_HEADS * GROUP * HEAD_DIM;
        Self {
            shared,
            keys: halves(0).collect(),
            values: halves(77).collect(),
            tables: (0..count).map(table).collect(),
            queries: (0..rows).map(|i| (i % 101) as f32 / 50.0 - 1.0).collect(),
            out: vec![0.0; rows],
            scratch: vec![0.0; scratch_len(HEAD_DIM)],
        }
    }

    /// Attention of one layer, `together` sequences a tile.
    fn attend(&mut self, k: &Kernels, together: usize) {
        let all: Vec<usize> = (0..self.tables.len()).collect();
        for members in all.chunks(together) {
            for head in 0..KV_HEADS {
                self.tile(k, members, head);
            }
        }
    }

    fn tile(&mut self, k: &Kernels, members: &[usize], head: usize) {
        let rows: Vec<usize> =
            members.iter().flat_map(|i| (0..GROUP).map(move |r| (i * KV_HEADS + head) * GROUP + r)).collect();
        let parts: Vec<_> = members.iter().map(|i| Part { rows: GROUP, block_table: &self.tables[*i] }).collect();
        let at = |row: &usize| row * HEAD_DIM;
        let args = Attention {
            q: &rows.iter().map(|row| self.queries[at(row)..].as_ptr()).collect::<Vec<_>>(),
            out: &rows.iter().map(|row| self.out[at(row)..].as_mut_ptr()).collect::<Vec<_>>(),
            positions: &vec![self.shared + OWN - 1; rows.len()],
            parts: &parts,
            shared: if members.len() > 1 { self.shared } else { 0 },
            keys: self.keys.as_ptr(),
            values: self.values.as_ptr(),
            block_stride: LAYER_BLOCK,
            head_offset: head * HEAD_BLOCK,
            head_dim: HEAD_DIM,
            scale: 0.1,
            gated: false,
            scratch: self.scratch.as_mut_ptr(),
        };
        // SAFETY: the table was detected; tables, queries and results are as large as the arguments say.
        unsafe { (k.attention)(&args) }
    }
}

impl Bench<'_> {
    /// Sequences that decode after a common prefix: a pass over its keys and values for all, against one for each.
    pub(super) fn common_prefix(&mut self) -> Result<(), String> {
        if !self.wants("prefix") {
            return Ok(());
        }
        for (count, shared) in [(4, 512), (16, 512), (16, 2048)] {
            let (mut on, mut off) = (Sequences::new(count, shared), Sequences::new(count, shared));
            let what = format!("{count} sequences, {shared} tokens in common, {OWN} of their own");
            let case = Case { id: "prefix", what: &what, threads: 1, on: "together", off: "each alone" };
            let k = self.k;
            self.compare(&case, |_| on.attend(k, count), |_| off.attend(k, 1));
            if on.out != off.out {
                return Err("Attention together differs from attention alone".into());
            }
        }
        Ok(())
    }
}
