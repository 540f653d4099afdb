//! A plan as the executor sees it: decoded from words, every index and shape checked against the weights.
//! engine/plan/encode.ts writes these words; the two change together, with VERSION.
mod checks;
mod ops;

use crate::bail;
use crate::error::{Error, Result};
use crate::formats::BLOCK;
use crate::ops::delta_rule::MAX_DIM;
use crate::ops::gemm::Epilogue;
use crate::ops::kv::KvType;
use crate::ops::quantize::{FineRows, row_bytes};
use crate::ops::rope::RopeShape;
use crate::ops::short_conv::TAPS;
use crate::weights::Weights;
use crate::words::Words;

pub const MAGIC: u32 = 0x4e4c_5043; // "CPLN"
pub const VERSION: u32 = 5;
/// Rows of a step, at most: what is allocated for one is bounded by it.
const MOST_ROWS: usize = 1 << 16;
/// KV heads, and their dimension, at most: products of both with a few words more stay below 2^64.
const MOST_HEADS: usize = 1 << 16;
/// Rows that quantised buffers are rounded up to: the widest tile.
pub const ROW_ROUND: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Float,
    /// 8-bit blocks.
    Quant,
    /// 8-bit blocks in two planes.
    Fine,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// One row for each token of the step.
    Step,
    /// One row for each row whose logits are wanted.
    Logits,
}

impl Rows {
    pub fn of_what(self) -> &'static str {
        match self {
            Self::Step => "token of the step",
            Self::Logits => "row of logits",
        }
    }
}

/// A matrix of activations in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub kind: Kind,
    pub rows: Rows,
    pub columns: usize,
    pub offset: usize,
}

impl Buffer {
    /// Floats between two rows of a float buffer.
    pub fn stride(&self) -> usize {
        self.columns.next_multiple_of(16)
    }

    /// None where the size is beyond all memory. Columns are below 2^32, so a row's bytes do not overflow.
    fn bytes(&self, rows: usize) -> Option<usize> {
        match self.kind {
            Kind::Float => rows.checked_mul(self.stride() * 4),
            Kind::Quant => rows.checked_next_multiple_of(ROW_ROUND)?.checked_mul(row_bytes(self.columns)),
            Kind::Fine => FineRows::planes(rows, ROW_ROUND)?.checked_mul(row_bytes(self.columns)),
        }
    }
}

/// Where an op's rows go: as floats, as 8-bit blocks of one plane or of two.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub float: Option<usize>,
    pub quant: Option<usize>,
    pub fine: Option<usize>,
}

impl Out {
    /// The forms that are there; after decoding, at least one.
    pub fn forms(&self) -> impl Iterator<Item = usize> {
        [self.float, self.quant, self.fine].into_iter().flatten()
    }
}

/// One matrix of a MatMul. `weight` and `bias` are tensor indices.
#[derive(Clone, Copy)]
pub struct Part {
    pub weight: usize,
    pub bias: Option<usize>,
    pub out: usize,
    pub epilogue: Epilogue,
    /// Its first rows, which read x in two planes.
    pub fine: usize,
}

/// What the best logits are computed from once more: rows of floats, and the matrix.
#[derive(Clone, Copy)]
pub struct Exact {
    pub x: usize,
    pub weight: usize,
}

/// Heads of the attention ops.
#[derive(Clone, Copy)]
pub struct Heads {
    pub layer: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// In the queries' rows each head is followed by a gate as wide, which its result is weighed with.
    pub gated: bool,
}

impl Heads {
    /// Floats from one head of a row of queries to the next.
    pub fn query_stride(&self) -> usize {
        self.head_dim * if self.gated { 2 } else { 1 }
    }

    pub fn query_columns(&self) -> usize {
        self.heads * self.query_stride()
    }
}

/// Heads of the recurrent ops: value head h reads key head h % key_heads.
#[derive(Clone, Copy)]
pub struct DeltaHeads {
    /// Among the layers that have a state.
    pub layer: usize,
    pub key_heads: usize,
    pub value_heads: usize,
    pub head_dim: usize,
}

impl DeltaHeads {
    /// Queries, keys and values of a row.
    pub fn channels(&self) -> usize {
        self.heads() * self.head_dim
    }

    /// Heads of queries, keys and values.
    pub fn heads(&self) -> usize {
        2 * self.key_heads + self.value_heads
    }
}

pub enum Op {
    Embed {
        weight: usize,
        out: usize,
    },
    RopeTable {
        out: usize,
    },
    RmsNorm {
        x: usize,
        weight: usize,
        eps: f32,
        out: Out,
    },
    MatMul {
        x: Out,
        parts: Vec<Part>,
    },
    SwiGlu {
        x: Out,
        gate: usize,
        up: usize,
        out: Out,
    },
    RopeAppend {
        q: usize,
        k: usize,
        v: usize,
        table: usize,
        q_norm: Option<usize>,
        k_norm: Option<usize>,
        heads: Heads,
        rope: RopeShape,
    },
    Attention {
        q: usize,
        out: usize,
        heads: Heads,
        scale: f32,
    },
    Quantize {
        x: usize,
        out: usize,
    },
    Candidates {
        logits: usize,
        exact: Option<Exact>,
    },
    ShortConv {
        x: usize,
        /// [head][tap][channel of the head]
        taps: Vec<f32>,
        heads: DeltaHeads,
        eps: f32,
    },
    DeltaRule {
        qkv: usize,
        gate: usize,
        alpha: usize,
        beta: usize,
        decay: usize,
        bias: usize,
        norm: usize,
        heads: DeltaHeads,
        eps: f32,
        out: Out,
    },
}

/// Shapes of the KV cache; the same in every layer that has one.
#[derive(Clone, Copy)]
pub struct KvShape {
    pub kind: KvType,
    pub layers: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub blocks: usize,
}

impl KvShape {
    /// Bytes of a head's keys in a block.
    pub fn block_bytes(&self) -> usize {
        self.kind.block_bytes(self.head_dim)
    }

    /// Bytes of all keys, which are those of all values; None where they are beyond all memory.
    fn bytes(&self) -> Option<usize> {
        [self.blocks, self.heads, self.layers].iter().try_fold(self.block_bytes(), |n, m| n.checked_mul(*m))
    }
}

/// What sequences carry from token to token in layers without a KV cache: a slot for each sequence, and in it, layer by
/// layer, the convolution's last inputs [head][TAPS - 1][head_dim], then a matrix [head_dim][head_dim] a value head.
#[derive(Clone, Copy)]
pub struct RecurrentShape {
    pub layers: usize,
    pub heads: DeltaHeads,
    pub slots: usize,
}

impl RecurrentShape {
    /// Floats of a layer's inputs of the convolution.
    pub fn conv_floats(&self) -> usize {
        (TAPS - 1) * self.heads.channels()
    }

    /// Floats of a layer in a slot.
    pub fn layer_floats(&self) -> usize {
        self.conv_floats() + self.heads.value_heads * self.heads.head_dim * self.heads.head_dim
    }

    /// Bytes of all slots. Refuses heads that the kernels cannot hold, and sizes beyond all memory.
    fn bytes(&self) -> Result<usize> {
        let h = &self.heads;
        if self.layers == 0 {
            return Ok(0);
        }
        let fits = h.head_dim.is_multiple_of(32) && (32..=MAX_DIM).contains(&h.head_dim);
        if !fits || h.key_heads == 0 || !h.value_heads.is_multiple_of(h.key_heads) || h.value_heads > 1 << 16 {
            bail!("recurrent heads: {} over {} of {} are not supported", h.value_heads, h.key_heads, h.head_dim);
        }
        let bytes = [self.layers, self.slots, 4].iter().try_fold(self.layer_floats(), |n, m| n.checked_mul(*m));
        bytes.ok_or_else(|| Error::new(format!("{} recurrent states are beyond all memory", self.slots)))
    }
}

pub struct Program {
    pub max_rows: usize,
    pub max_logit_rows: usize,
    pub vocab: usize,
    pub kv: KvShape,
    /// Bytes of the cache's keys; its values take as many.
    pub kv_bytes: usize,
    pub recurrent: RecurrentShape,
    pub state_bytes: usize,
    pub frequencies: Vec<f64>,
    pub buffers: Vec<Buffer>,
    pub ops: Vec<Op>,
    pub arena_bytes: usize,
}

impl Program {
    /// # Errors
    /// Words that are no plan, or a plan that does not fit the weights.
    pub fn decode(bytes: &[u8], weights: &Weights) -> Result<Self> {
        let mut w = Words::new(bytes);
        let (magic, version) = (w.u32()?, w.u32()?);
        if magic != MAGIC || version != VERSION {
            bail!("Not a plan of version {VERSION}: found {magic:#x}, version {version}");
        }
        let (max_rows, max_logit_rows, vocab) = (w.size()?, w.size()?, w.size()?);
        if max_rows.max(max_logit_rows) > MOST_ROWS {
            bail!("A step may have at most {MOST_ROWS} rows (got {max_rows}, {max_logit_rows} of them with logits)");
        }
        let kind = match w.u32()? {
            0 => KvType::F16,
            1 => KvType::Q8_0,
            code => bail!("A KV cache of the unknown type {code}"),
        };
        let kv = KvShape { kind, layers: w.size()?, heads: w.size()?, head_dim: w.size()?, blocks: w.size()? };
        if kv.heads.max(kv.head_dim) > MOST_HEADS {
            bail!("KV heads and their dimension must be at most {MOST_HEADS} (got {} of {})", kv.heads, kv.head_dim);
        }
        let Some(kv_bytes) = kv.bytes() else {
            bail!(
                "A KV cache of {} blocks, {} layers and {} heads is beyond all memory",
                kv.blocks,
                kv.layers,
                kv.heads
            );
        };
        let recurrent = RecurrentShape {
            layers: w.size()?,
            heads: DeltaHeads { layer: 0, key_heads: w.size()?, value_heads: w.size()?, head_dim: w.size()? },
            slots: w.size()?,
        };
        let state_bytes = recurrent.bytes()?;
        let arena_bytes = w.u64()? as usize;
        let count = w.size()?;
        let frequencies = (0..count).map(|_| w.f64()).collect::<Result<_>>()?;
        let mut p = Self {
            max_rows,
            max_logit_rows,
            vocab,
            kv,
            kv_bytes,
            recurrent,
            state_bytes,
            frequencies,
            buffers: Vec::new(),
            ops: Vec::new(),
            arena_bytes,
        };
        for _ in 0..w.size()? {
            let buffer = p.decode_buffer(&mut w)?;
            p.buffers.push(buffer);
        }
        for i in 0..w.size()? {
            let op = match p.decode_op(&mut w, weights) {
                Ok(op) => op,
                Err(e) => bail!("Op {i} of the plan: {e}"),
            };
            p.ops.push(op);
        }
        if !w.is_empty() {
            bail!("The plan has words after its last op");
        }
        Ok(p)
    }

    fn decode_buffer(&self, w: &mut Words) -> Result<Buffer> {
        let kind = match w.u32()? {
            0 => Kind::Float,
            1 => Kind::Quant,
            2 => Kind::Fine,
            code => bail!("A buffer of the unknown form {code}"),
        };
        let rows = match w.u32()? {
            0 => Rows::Step,
            1 => Rows::Logits,
            code => bail!("A buffer of the unknown kind of rows {code}"),
        };
        let (columns, offset) = (w.size()?, w.u64()? as usize);
        let buffer = Buffer { kind, rows, columns, offset };
        let most = if rows == Rows::Step { self.max_rows } else { self.max_logit_rows };
        let end = buffer.bytes(most).and_then(|bytes| offset.checked_add(bytes));
        if columns == 0 || !offset.is_multiple_of(64) || end.is_none_or(|end| end > self.arena_bytes) {
            bail!("A buffer of {columns} columns at byte {offset} does not fit an arena of {}", self.arena_bytes);
        }
        if kind != Kind::Float && !columns.is_multiple_of(BLOCK) {
            bail!("A quantised buffer has {columns} columns, no multiple of {BLOCK}");
        }
        Ok(buffer)
    }
}
