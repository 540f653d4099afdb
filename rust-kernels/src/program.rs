//! A plan as the executor sees it: decoded from words, every index and shape checked against the weights.
//! engine/plan/encode.ts writes these words; the two change together, with VERSION.
use crate::bail;
use crate::error::Result;
use crate::formats::BLOCK;
use crate::ops::gemm::Epilogue;
use crate::ops::quantize::row_bytes;
use crate::ops::rope::{KV_BLOCK, RopeShape};
use crate::weights::Weights;
use crate::words::Words;

pub const MAGIC: u32 = 0x4e4c_5043; // "CPLN"
pub const VERSION: u32 = 2;
/// "No such operand" among the words.
const NONE: u32 = u32::MAX;
/// Rows that quantised buffers are rounded up to: the widest tile.
pub const ROW_ROUND: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Float,
    Quant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// One row for each token of the step.
    Step,
    /// One row for each row whose logits are wanted.
    Logits,
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
        }
    }
}

/// Where an op's rows go: as floats, as 8-bit blocks, or both.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub float: Option<usize>,
    pub quant: Option<usize>,
}

/// One matrix of a MatMul. `weight` and `bias` are tensor indices.
#[derive(Clone, Copy)]
pub struct Part {
    pub weight: usize,
    pub bias: Option<usize>,
    pub out: usize,
    pub epilogue: Epilogue,
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
}

/// Shapes of the KV cache; the same in every layer.
#[derive(Clone, Copy)]
pub struct KvShape {
    pub layers: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub blocks: usize,
}

impl KvShape {
    /// Bytes of all keys, which are those of all values; None where they are beyond all memory.
    fn bytes(&self) -> Option<usize> {
        [self.blocks, self.heads, self.head_dim, KV_BLOCK * 2].iter().try_fold(self.layers, |n, m| n.checked_mul(*m))
    }
}

pub struct Program {
    pub max_rows: usize,
    pub max_logit_rows: usize,
    pub vocab: usize,
    pub kv: KvShape,
    /// Bytes of the cache's keys; its values take as many.
    pub kv_bytes: usize,
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
        let kv = KvShape { layers: w.size()?, heads: w.size()?, head_dim: w.size()?, blocks: w.size()? };
        let Some(kv_bytes) = kv.bytes() else {
            bail!(
                "A KV cache of {} blocks, {} layers and {} heads is beyond all memory",
                kv.blocks,
                kv.layers,
                kv.heads
            );
        };
        let arena_bytes = w.u64()? as usize;
        let count = w.size()?;
        let frequencies = (0..count).map(|_| w.f64()).collect::<Result<_>>()?;
        let mut p = Self {
            max_rows,
            max_logit_rows,
            vocab,
            kv,
            kv_bytes,
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
        let kind = if w.u32()? == 0 { Kind::Float } else { Kind::Quant };
        let rows = if w.u32()? == 0 { Rows::Step } else { Rows::Logits };
        let (columns, offset) = (w.size()?, w.u64()? as usize);
        let buffer = Buffer { kind, rows, columns, offset };
        let most = if rows == Rows::Step { self.max_rows } else { self.max_logit_rows };
        let end = buffer.bytes(most).and_then(|bytes| offset.checked_add(bytes));
        if columns == 0 || !offset.is_multiple_of(64) || end.is_none_or(|end| end > self.arena_bytes) {
            bail!("A buffer of {columns} columns at byte {offset} does not fit an arena of {}", self.arena_bytes);
        }
        if kind == Kind::Quant && !columns.is_multiple_of(BLOCK) {
            bail!("A quantised buffer has {columns} columns, no multiple of {BLOCK}");
        }
        Ok(buffer)
    }

    fn decode_op(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        Ok(match w.u32()? {
            0 => {
                let (weight, out) = (w.size()?, self.float(w, None)?);
                self.shape(weights, weight, self.vocab, self.buffers[out].columns)?;
                Op::Embed { weight, out }
            }
            1 => Op::RopeTable { out: self.float(w, Some(2 * self.frequencies.len()))? },
            2 => {
                let (x, weight, eps, out) = (self.float(w, None)?, w.size()?, w.f32()?, self.out(w)?);
                let columns = self.buffers[x].columns;
                weights.vector(weight, columns)?;
                self.width(out, columns)?;
                Op::RmsNorm { x, weight, eps, out }
            }
            3 => self.decode_matmul(w, weights)?,
            4 => {
                let (x, gate, up, out) = (self.out(w)?, w.size()?, w.size()?, self.out(w)?);
                let (columns, ffn) = (self.columns(x)?, self.columns(out)?);
                self.same_rows(&[x.float, x.quant, out.float, out.quant])?;
                self.width(out, ffn)?;
                for matrix in [gate, up] {
                    self.shape(weights, matrix, ffn, columns)?;
                    self.operand(weights, matrix, x)?;
                }
                Op::SwiGlu { x, gate, up, out }
            }
            5 => self.decode_rope_append(w, weights)?,
            6 => {
                let (q, out, heads, scale) = (self.float(w, None)?, self.float(w, None)?, self.heads(w)?, w.f32()?);
                let wide = heads.heads * heads.head_dim;
                self.same_rows(&[Some(q), Some(out)])?;
                if self.buffers[q].columns != wide || self.buffers[out].columns != wide {
                    bail!("attention over {wide} columns has operands of other widths");
                }
                Op::Attention { q, out, heads, scale }
            }
            7 => {
                let (x, out) = (self.float(w, None)?, self.out(w)?);
                self.width(out, self.buffers[x].columns)?;
                self.same_rows(&[Some(x), out.quant])?;
                let Some(out) = out.quant else { bail!("quantize without a quantised output") };
                Op::Quantize { x, out }
            }
            8 => {
                let logits = self.float(w, Some(self.vocab))?;
                if self.buffers[logits].rows != Rows::Logits {
                    bail!("candidates of a buffer that has no logit rows");
                }
                Op::Candidates { logits, exact: self.exact(w, weights, logits)? }
            }
            code => bail!("unknown code {code}"),
        })
    }

    fn decode_matmul(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        let x = self.out(w)?;
        let (columns, count) = (self.columns(x)?, w.size()?);
        let mut parts = Vec::new();
        for _ in 0..count {
            let (weight, bias, out) = (w.size()?, Self::optional(w.u32()?), self.float(w, None)?);
            let epilogue = if w.u32()? == 0 { Epilogue::Store } else { Epilogue::Add };
            let rows = self.buffers[out].columns;
            self.same_rows(&[x.float, x.quant, Some(out)])?;
            self.shape(weights, weight, rows, columns)?;
            self.operand(weights, weight, x)?;
            if let Some(bias) = bias {
                weights.vector(bias, rows)?;
            }
            parts.push(Part { weight, bias, out, epilogue });
        }
        Ok(Op::MatMul { x, parts })
    }

    fn decode_rope_append(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        let (q, k, v, table) = (self.float(w, None)?, self.float(w, None)?, self.float(w, None)?, self.float(w, None)?);
        let (q_norm, k_norm) = (Self::optional(w.u32()?), Self::optional(w.u32()?));
        let heads = self.heads(w)?;
        let (rotated, interleaved, eps) = (w.size()?, w.u32()? != 0, w.f32()?);
        self.same_rows(&[Some(q), Some(k), Some(v), Some(table)])?;
        let (dim, kv) = (heads.head_dim, heads.kv_heads * heads.head_dim);
        let widths = [q, k, v].map(|b| self.buffers[b].columns);
        if widths != [heads.heads * dim, kv, kv] || self.buffers[table].columns != rotated {
            bail!("rope over {} heads has operands of widths {widths:?}", heads.heads);
        }
        if rotated > dim || rotated != 2 * self.frequencies.len() {
            bail!("{rotated} rotated dimensions of {dim}, with {} frequencies", self.frequencies.len());
        }
        for norm in [q_norm, k_norm].into_iter().flatten() {
            weights.vector(norm, dim)?;
        }
        let rope = RopeShape { head_dim: dim, rotated, interleaved, eps };
        Ok(Op::RopeAppend { q, k, v, table, q_norm, k_norm, heads, rope })
    }

    fn exact(&self, w: &mut Words, weights: &Weights, logits: usize) -> Result<Option<Exact>> {
        let (x, weight) = (Self::optional(w.u32()?), Self::optional(w.u32()?));
        let (Some(x), Some(weight)) = (x, weight) else { return Ok(None) };
        if self.buffers.get(x).is_none_or(|b| b.kind != Kind::Float) {
            bail!("buffer {x} is not what is wanted here");
        }
        self.same_rows(&[Some(x), Some(logits)])?;
        self.shape(weights, weight, self.vocab, self.buffers[x].columns)?;
        Ok(Some(Exact { x, weight }))
    }

    fn heads(&self, w: &mut Words) -> Result<Heads> {
        let h = Heads { layer: w.size()?, heads: w.size()?, kv_heads: w.size()?, head_dim: w.size()? };
        let same = h.kv_heads == self.kv.heads && h.head_dim == self.kv.head_dim && h.layer < self.kv.layers;
        if !same
            || h.kv_heads == 0
            || !h.heads.is_multiple_of(h.kv_heads)
            || h.head_dim == 0
            || !h.head_dim.is_multiple_of(16)
        {
            bail!("{} heads over {} of {} do not fit the KV cache", h.heads, h.kv_heads, h.head_dim);
        }
        if h.heads / h.kv_heads > crate::ops::attention::MAX_ROWS {
            bail!("{} query heads a KV head are not supported", h.heads / h.kv_heads);
        }
        Ok(h)
    }

    fn optional(word: u32) -> Option<usize> {
        (word != NONE).then_some(word as usize)
    }

    /// A float buffer's index.
    fn float(&self, w: &mut Words, columns: Option<usize>) -> Result<usize> {
        let index = w.size()?;
        match self.buffers.get(index) {
            Some(b) if b.kind == Kind::Float && columns.is_none_or(|c| c == b.columns) => Ok(index),
            _ => bail!("buffer {index} is not what is wanted here"),
        }
    }

    fn out(&self, w: &mut Words) -> Result<Out> {
        let out = Out { float: Self::optional(w.u32()?), quant: Self::optional(w.u32()?) };
        let is = |index: Option<usize>, kind| index.is_none_or(|i| self.buffers.get(i).is_some_and(|b| b.kind == kind));
        if !is(out.float, Kind::Float) || !is(out.quant, Kind::Quant) {
            bail!("buffers {out:?} are not what is wanted here");
        }
        Ok(out)
    }

    fn columns(&self, out: Out) -> Result<usize> {
        match out.float.or(out.quant) {
            Some(index) => Ok(self.buffers[index].columns),
            None => bail!("an op without operands"),
        }
    }

    fn same_rows(&self, buffers: &[Option<usize>]) -> Result<()> {
        let mut rows = buffers.iter().flatten().map(|i| self.buffers[*i].rows);
        let first = rows.next();
        if rows.any(|r| Some(r) != first) {
            bail!("operands of one op have other numbers of rows");
        }
        Ok(())
    }

    fn width(&self, out: Out, columns: usize) -> Result<()> {
        let found: Vec<_> = [out.float, out.quant].into_iter().flatten().map(|i| self.buffers[i].columns).collect();
        if found.is_empty() || found.iter().any(|c| *c != columns) {
            bail!("outputs of {found:?} columns, {columns} wanted");
        }
        Ok(())
    }

    fn shape(&self, weights: &Weights, matrix: usize, rows: usize, columns: usize) -> Result<()> {
        let m = weights.matrix(matrix)?;
        if (m.rows, m.columns) != (rows, columns) {
            bail!("tensor {matrix} is {} x {}, {rows} x {columns} wanted", m.rows, m.columns);
        }
        Ok(())
    }

    /// That x is there in the form that the matrix's kernels read, with the right width.
    fn operand(&self, weights: &Weights, matrix: usize, x: Out) -> Result<()> {
        let m = weights.matrix(matrix)?;
        let index = match m.kernels {
            crate::kernels::FormatKernels::Block(_) => x.quant,
            crate::kernels::FormatKernels::Float(_) => x.float,
        };
        match index {
            Some(i) if self.buffers[i].columns == m.columns => Ok(()),
            _ => bail!("tensor {matrix} finds no operand in the form that it needs"),
        }
    }
}
