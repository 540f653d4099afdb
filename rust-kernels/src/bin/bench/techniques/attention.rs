//! Attention of sequences that decode: the techniques `prefix` and `kv`.
use super::{Bench, Case};
use compy::kernels::kv::{KV_BLOCK, KvType};
use compy::ops::attention::{AttentionTile, CHUNK, Part, attend, scratch_len};
use compy::simd::Isa;

/// Qwen3-0.6B: a layer's KV heads, query heads per KV head, and head dimension.
const KV_HEADS: usize = 8;
const GROUP: usize = 2;
const HEAD_DIM: usize = 128;
/// Tokens of each sequence after the shared prefix.
const OWN: usize = CHUNK;

/// The shape of the sequences' KV caches.
#[derive(Clone, Copy)]
struct Shape {
    kind: KvType,
    layers: usize,
    count: usize,
    /// Tokens of the shared prefix, in the same blocks, and tokens of each sequence behind them.
    shared: usize,
    own: usize,
}

impl Shape {
    fn head_block(&self) -> usize {
        self.kind.block_bytes(HEAD_DIM)
    }

    /// As in the executor: a block's layers are adjacent.
    fn block_stride(&self) -> usize {
        self.layers * KV_HEADS * self.head_block()
    }

    fn blocks(&self) -> usize {
        (self.shared + self.count * self.own) / KV_BLOCK
    }
}

/// Sequences that decode one token each.
struct Sequences {
    shape: Shape,
    keys: Vec<u8>,
    values: Vec<u8>,
    tables: Vec<Vec<i32>>,
    queries: Vec<f32>,
    out: Vec<f32>,
    scratch: Vec<f32>,
}

impl Sequences {
    fn new(k: Isa, shape: Shape) -> Self {
        let (common, own) = (shape.shared / KV_BLOCK, shape.own / KV_BLOCK);
        let table = |i: usize| (0..common).chain(common + i * own..common + (i + 1) * own).map(|b| b as i32).collect();
        let rows = shape.count * KV_HEADS * GROUP * HEAD_DIM;
        let mut sequences = Self {
            shape,
            keys: vec![0; shape.blocks() * shape.block_stride()],
            values: vec![0; shape.blocks() * shape.block_stride()],
            tables: (0..shape.count).map(table).collect(),
            queries: (0..rows).map(|i| (i % 101) as f32 / 50.0 - 1.0).collect(),
            out: vec![0.0; rows],
            scratch: vec![0.0; scratch_len(shape.kind, HEAD_DIM)],
        };
        sequences.fill(k);
        sequences
    }

    /// Fills heads with a few different numbers, the same in all layers.
    fn fill(&mut self, k: Isa) {
        let (append, bytes) = (self.shape.kind.appenders(), self.shape.head_block());
        let heads = self.keys.chunks_mut(bytes).zip(self.values.chunks_mut(bytes));
        for (i, (keys, values)) in heads.enumerate() {
            for slot in 0..KV_BLOCK {
                let seed = i / (self.shape.layers * KV_HEADS) * KV_BLOCK + slot;
                let x: Vec<f32> = (0..HEAD_DIM).map(|d| ((seed * 31 + d * 7) % 97) as f32 / 100.0 - 0.48).collect();
                // SAFETY: the head is within its block.
                unsafe {
                    (append.key)(k, x.as_ptr(), HEAD_DIM, keys.as_mut_ptr(), slot);
                    (append.value)(k, x.as_ptr(), HEAD_DIM, values.as_mut_ptr(), slot);
                }
            }
        }
    }

    /// Attention of one layer with `together` sequences per tile.
    fn attend(&mut self, k: Isa, layer: usize, together: usize) {
        let all: Vec<usize> = (0..self.tables.len()).collect();
        for members in all.chunks(together) {
            for head in 0..KV_HEADS {
                self.tile(k, layer, members, head);
            }
        }
    }

    fn tile(&mut self, k: Isa, layer: usize, members: &[usize], head: usize) {
        let rows: Vec<usize> =
            members.iter().flat_map(|i| (0..GROUP).map(move |r| (i * KV_HEADS + head) * GROUP + r)).collect();
        let parts: Vec<_> =
            members.iter().map(|i| Part { rows: GROUP, first_block: 0, block_table: &self.tables[*i] }).collect();
        let at = |row: &usize| row * HEAD_DIM;
        let Shape { shared, own, .. } = self.shape;
        let args = AttentionTile {
            q: &rows.iter().map(|row| self.queries[at(row)..].as_ptr()).collect::<Vec<_>>(),
            out: &rows.iter().map(|row| self.out[at(row)..].as_mut_ptr()).collect::<Vec<_>>(),
            positions: &vec![shared + own - 1; rows.len()],
            parts: &parts,
            shared: if members.len() > 1 { shared } else { 0 },
            sinks: &[],
            window: usize::MAX,
            keys: self.keys.as_ptr(),
            values: self.values.as_ptr(),
            block_stride: self.shape.block_stride(),
            head_offset: (layer * KV_HEADS + head) * self.shape.head_block(),
            after: std::ptr::null(),
            head_dim: HEAD_DIM,
            softcap: 0.0,
            scale: 0.1,
            gated: false,
            scratch: self.scratch.as_mut_ptr(),
        };
        // SAFETY: the instruction set was detected; tables, queries and results have the sizes in the arguments.
        unsafe { attend(k, self.shape.kind, &args) }
    }
}

impl Bench<'_> {
    /// Sequences that decode after a shared prefix: one pass over its keys and values for all, against one pass each.
    pub(super) fn common_prefix(&mut self) -> Result<(), String> {
        if !self.wants("prefix") {
            return Ok(());
        }
        for (count, shared) in [(4, 512), (16, 512), (16, 2048)] {
            let (k, shape) = (self.k, Shape { kind: KvType::Int16, layers: 1, count, shared, own: OWN });
            let (mut on, mut off) = (Sequences::new(k, shape), Sequences::new(k, shape));
            let what = format!("{count} sequences, {shared} tokens in common, {OWN} of their own");
            let case = Case { id: "prefix", what: &what, threads: 1, on: "together", off: "each alone" };
            self.compare(&case, |_| on.attend(k, 0, count), |_| off.attend(k, 0, 1));
            if on.out != off.out {
                return Err("Attention together differs from attention alone".into());
            }
        }
        Ok(())
    }

    /// A cache in 8 bits against one in 16 bits. Both exceed the processor's caches.
    pub(super) fn eight_bit_cache(&mut self) -> Result<(), String> {
        if !self.wants("kv") {
            return Ok(());
        }
        for (count, own) in [(1, 512), (1, 2048), (1, 4096), (16, 512)] {
            let (k, layers) = (self.k, self.total.div_ceil(4 * count * own * KV_HEADS * HEAD_DIM).next_multiple_of(2));
            let of = |kind| Sequences::new(k, Shape { kind, layers, count, shared: 0, own });
            let (mut on, mut off) = (of(KvType::Q8_0), of(KvType::Int16));
            let what = format!("{count} sequences of {own} tokens");
            let case = Case { id: "kv", what: &what, threads: 1, on: "Q8_0", off: "Int16" };
            self.compare(&case, |turn| on.attend(k, turn % layers, 1), |turn| off.attend(k, turn % layers, 1));
            let apart = on.out.iter().zip(&off.out).fold(0f32, |most, (x, y)| most.max((x - y).abs()));
            if apart.is_nan() || apart > 0.02 {
                return Err(format!("Attention in 8 bits is {apart} from that in halves"));
            }
        }
        Ok(())
    }
}
