//! The plan, decoded from words; every index and shape is checked against the weights. engine/plan/encode.ts writes
//! these words. Both change together, with VERSION. Each op's module in `ops` decodes the words after its code.
mod buffer;
mod kv;
mod operands;
mod own_rows;
mod recurrent;

pub use self::buffer::{Buffer, Choice, Kind, Out, Rows};
pub use self::kv::{Heads, KvLayer, KvShape};
pub use self::operands::{HeadPlace, Operands};
pub use self::own_rows::OwnRow;
pub use self::recurrent::{ConvHeads, DeltaHeads, MambaHeads, RecurrentShape, StateLayer};

use crate::bail;
use crate::error::Result;
use crate::formats::BLOCK;
use crate::ops::pool::Way;
use crate::ops::{self, Op};
use crate::step::{AXES, Step};
use crate::weights::Weights;
use crate::words::Words;
use std::ops::Range;

pub const MAGIC: u32 = 0x4e4c_5043; // "CPLN"
pub const VERSION: u32 = 18;
/// Maximum rows of a step, which bounds its allocations.
const MOST_ROWS: usize = 1 << 16;
/// Maximum sums that a step returns, which bounds its output: far more than any model has.
const MOST_TALLIES: usize = 1 << 30;
/// Maximum KV heads, and their maximum dimension. Products of both and a few words stay below 2^64.
const MOST_HEADS: usize = 1 << 16;
/// Quantized buffers round their rows up to this number: the widest tile.
pub const ROW_ROUND: usize = 16;

pub struct Program {
    pub max_rows: usize,
    pub max_logit_rows: usize,
    pub vocab: usize,
    pub kv: KvShape,
    /// Bytes of the cache's keys and of its values.
    pub kv_bytes: [usize; 2],
    pub recurrent: RecurrentShape,
    pub state_bytes: usize,
    /// Rotation angles of RoPE.
    pub rope: Vec<RopeAngles>,
    pub buffers: Vec<Buffer>,
    pub ops: Vec<Box<dyn Op>>,
    /// For each op: the layout of the rows that a thread computes for itself.
    pub own_rows: Vec<Option<OwnRow>>,
    /// Index of the first draft op. Drafts run the ops from it on, other steps the ops before it. None without
    /// drafts.
    pub draft: Option<usize>,
    /// How sequences are pooled. None if the plan does not return pooled rows.
    pub pooling: Option<Pooling>,
    /// Columns of the rows that steps may bring. None if no op reads them.
    pub given: Option<usize>,
    /// Words of sums that the ops add to a step's output.
    pub tallies: usize,
    /// Whether each text must be in one step.
    pub whole_texts: bool,
    /// Maximum tokens of a sequence.
    pub positions: usize,
    /// The buffer of each row's adapters, their number, and how many a sequence can use. None without adapters.
    pub adapters: Option<(usize, Choice)>,
    pub arena_bytes: usize,
}

/// RoPE's rotation of pairs of dimensions.
pub struct RopeAngles {
    /// Angle per position, for each pair.
    pub frequencies: Vec<f64>,
    /// For each pair, the axis of the position that turns it.
    pub axes: Vec<usize>,
    /// Factor of cosine and sine.
    pub magnitude: f64,
}

impl RopeAngles {
    fn decode(w: &mut Words) -> Result<Self> {
        let (pairs, magnitude) = (w.size()?, w.f64()?);
        let frequencies = (0..pairs).map(|_| w.f64()).collect::<Result<_>>()?;
        let axes = (0..pairs).map(|_| w.size()).collect::<Result<Vec<_>>>()?;
        if let Some(axis) = axes.iter().find(|axis| **axis >= AXES) {
            bail!("a pair turns by axis {axis}, which is out of range 0..{AXES}");
        }
        Ok(Self { frequencies, axes, magnitude })
    }
}

/// The result of a pooled sequence.
#[derive(Clone, Copy)]
pub struct Pooling {
    pub way: Way,
    pub columns: usize,
}

impl Program {
    /// # Errors
    /// The words are not a plan, or the plan does not fit the weights.
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
        let kv = KvShape::decode(&mut w)?;
        let kv_bytes = kv.bytes()?;
        let recurrent = RecurrentShape::decode(&mut w)?;
        let state_bytes = recurrent.bytes()?;
        let arena_bytes = w.u64()? as usize;
        let tables = w.size()?;
        let rope = (0..tables).map(|_| RopeAngles::decode(&mut w)).collect::<Result<_>>()?;
        let mut p = Self {
            max_rows,
            max_logit_rows,
            vocab,
            kv,
            kv_bytes,
            recurrent,
            state_bytes,
            rope,
            draft: None,
            pooling: None,
            given: None,
            tallies: 0,
            whole_texts: false,
            positions: usize::MAX,
            adapters: None,
            buffers: Vec::new(),
            ops: Vec::new(),
            own_rows: Vec::new(),
            arena_bytes,
        };
        for _ in 0..w.size()? {
            let buffer = p.decode_buffer(&mut w)?;
            p.buffers.push(buffer);
        }
        for i in 0..w.size()? {
            match ops::decode(&mut Operands { words: &mut w, program: &p, weights }) {
                Ok(op) => {
                    if op.begins_draft() {
                        p.draft = Some(i);
                    }
                    p.ops.push(op);
                }
                Err(e) => bail!("Op {i} of the plan: {e}"),
            }
        }
        if !w.is_empty() {
            bail!("The plan has words after its last op");
        }
        p.own_rows = own_rows::find(&p);
        p.pooling = p.find_pooling()?;
        p.adapters = p.ops.iter().find_map(|op| op.adapters());
        p.given = p.find_given()?;
        p.tallies = p.ops.iter().map(|op| op.tallies()).fold(0, usize::saturating_add);
        if p.tallies > MOST_TALLIES {
            bail!("A step may return at most {MOST_TALLIES} sums (got {})", p.tallies);
        }
        p.whole_texts = p.ops.iter().any(|op| op.whole_texts());
        p.positions = p.ops.iter().filter_map(|op| op.positions()).min().unwrap_or(usize::MAX);
        Ok(p)
    }

    /// Indices of the ops that a step runs.
    pub fn ops_of(&self, step: &Step) -> Range<usize> {
        let end = self.draft.unwrap_or(self.ops.len());
        if step.drafts.is_empty() { 0..end } else { end..self.ops.len() }
    }

    fn find_pooling(&self) -> Result<Option<Pooling>> {
        let ways: Vec<_> = self.ops.iter().filter_map(|op| op.pools()).collect();
        let returns: Vec<_> = self.ops.iter().filter_map(|op| op.returns()).collect();
        match (&ways[..], &returns[..]) {
            ([], []) => Ok(None),
            (&[way, ref others @ ..], &[columns]) if others.iter().all(|other| *other == way) => {
                Ok(Some(Pooling { way, columns }))
            }
            _ => bail!(
                "A plan may have one way to pool and one op that returns pooled rows (got {} and {} ops)",
                ways.len(),
                returns.len()
            ),
        }
    }

    fn find_given(&self) -> Result<Option<usize>> {
        let mut widths = self.ops.iter().filter_map(|op| op.given());
        let first = widths.next();
        match widths.find(|width| Some(*width) != first) {
            Some(width) => bail!("Given rows must have the same columns for all ops (got {first:?} and {width})"),
            None => Ok(first),
        }
    }

    /// Maximum rows of a buffer of this kind; None on overflow.
    pub fn most_rows(&self, rows: Rows) -> Option<usize> {
        match rows {
            Rows::Step => Some(self.max_rows),
            Rows::Logits => Some(self.max_logit_rows),
            Rows::Pools => Some(self.max_rows),
            Rows::Chosen(choice) => choice.rows(self.max_rows),
        }
    }

    fn decode_buffer(&self, w: &mut Words) -> Result<Buffer> {
        let kind = match w.u32()? {
            0 => Kind::Float,
            1 => Kind::Quant,
            2 => Kind::Fine,
            code => bail!("A buffer of unknown kind {code}"),
        };
        let rows = match w.u32()? {
            0 => Rows::Step,
            1 => Rows::Logits,
            2 => Rows::Chosen(Choice::decode(w)?),
            3 => Rows::Pools,
            code => bail!("A buffer with unknown kind of rows {code}"),
        };
        let (columns, offset) = (w.size()?, w.u64()? as usize);
        let buffer = Buffer { kind, rows, columns, offset };
        let bytes = self.most_rows(rows).and_then(|most| buffer.bytes(most));
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        if columns == 0 || !offset.is_multiple_of(64) || end.is_none_or(|end| end > self.arena_bytes) {
            bail!("A buffer of {columns} columns at byte {offset} does not fit an arena of {}", self.arena_bytes);
        }
        if kind != Kind::Float && !columns.is_multiple_of(BLOCK) {
            bail!("A quantized buffer has {columns} columns, not a multiple of {BLOCK}");
        }
        Ok(buffer)
    }
}
