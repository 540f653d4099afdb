//! Op: bidirectional attention. Each row of a text attends to all rows of the text, or to nearby rows only. A step must
//! contain the whole text, and nothing is cached.
mod float;
mod int16;
mod products;
mod tile;

pub use self::tile::{CHUNK, ROWS, TextTile, attend, scratch_len};

use self::tile::TILE;

use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::float_gemm::FloatRows;
use crate::program::{HeadPlace, Operands, Program};

/// Number of items of work per thread. With several items no thread waits long for another.
const ITEMS: usize = 4;

/// The buffer and the columns of some heads.
#[derive(Clone, Copy)]
struct HeadColumns {
    buffer: usize,
    place: HeadPlace,
}

pub struct TextAttention {
    q: HeadColumns,
    k: HeadColumns,
    v: HeadColumns,
    out: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    scale: f32,
    /// Number of positions to which a row attends on each side; usize::MAX means all.
    reach: usize,
    /// Whether attention's products use 16-bit integers instead of floats.
    rounds: bool,
    /// ALiBi slopes: each head's scores decrease by its slope per token of distance. May be empty.
    slopes: Vec<f32>,
}

impl Decode for TextAttention {
    fn decode(o: &mut Operands) -> Result<Self> {
        let mut columns = || Ok(HeadColumns { buffer: o.step_float(None)?, place: o.head_place()? });
        let (q, k, v) = (columns()?, columns()?, columns()?);
        let (out, heads, kv_heads, head_dim) = (o.step_float(None)?, o.size()?, o.size()?, o.size()?);
        let (scale, window, rounds, count) = (o.f32()?, o.size()?, o.flag()?, o.size()?);
        let slopes = (0..count).map(|_| o.f32()).collect::<Result<Vec<f32>>>()?;
        for (at, count) in [(q, heads), (k, kv_heads), (v, kv_heads)] {
            o.heads_within(at.buffer, at.place, count, head_dim)?;
        }
        if !head_dim.is_multiple_of(8) {
            bail!("heads must have a multiple of 8 dimensions (got {head_dim})");
        }
        if !heads.is_multiple_of(kv_heads) || heads / kv_heads > TILE {
            bail!("{heads} heads must be a multiple of the {kv_heads} KV heads, and at most {TILE} for each");
        }
        if count != 0 && (count != heads || slopes.iter().any(|slope| !(0.0..=1.0).contains(slope))) {
            bail!("slopes must be {heads} numbers from 0 to 1, one per head, or none (got {slopes:?})");
        }
        o.is_float(out, Some(heads * head_dim))?;
        let reach = if window == 0 { usize::MAX } else { window / 2 };
        Ok(Self { q, k, v, out, heads, kv_heads, head_dim, scale, reach, rounds, slopes })
    }
}

impl Op for TextAttention {
    fn scratch(&self, _: &Program) -> usize {
        scratch_len(self.head_dim)
    }

    fn whole_texts(&self) -> bool {
        true
    }

    /// Splits the work into items. An item is some rows of a text under one KV head: as many rows as possible, but
    /// several items per thread.
    fn run(&self, run: &Run, work: &Work) {
        let (group, dim, sequences) = (self.heads / self.kv_heads, self.head_dim, &run.step.sequences);
        let rows: usize = sequences.iter().map(|text| text.length * group).sum();
        let each = rows * self.kv_heads / (ITEMS * work.threads);
        let tokens = (each / TILE * TILE).clamp(TILE, ROWS) / group;
        let tiles = |index: usize| sequences[index].length.div_ceil(tokens);
        let total: usize = (0..sequences.len()).map(tiles).sum();
        // A thread takes items in ascending order, so their texts are in ascending order too.
        let (mut index, mut before) = (0, 0);
        for item in work.single_items(total * self.kv_heads).flatten() {
            let (tile, head) = (item / self.kv_heads, item % self.kv_heads);
            while tile - before >= tiles(index) {
                before += tiles(index);
                index += 1;
            }
            let text = &sequences[index];
            let first = (tile - before) * tokens;
            let count = tokens.min(text.length - first);
            let rows = |at: HeadColumns, heads: usize| FloatRows {
                // SAFETY: decoding checked that the head is within the buffer's rows, and the rows belong to the text.
                base: unsafe { run.float(at.buffer, text.start).add(at.place.column + heads * at.place.step) },
                stride: run.stride(at.buffer),
            };
            let out = HeadColumns { buffer: self.out, place: HeadPlace { column: 0, step: dim } };
            let heads = head * group..(head + 1) * group;
            let tile = TextTile {
                q: rows(self.q, head * group),
                out: rows(out, head * group),
                keys: rows(self.k, head),
                values: rows(self.v, head),
                tokens: text.length,
                first,
                count,
                group,
                head_dim: dim,
                scale: self.scale,
                reach: self.reach,
                rounds: self.rounds,
                step: self.q.place.step,
                slopes: if self.slopes.is_empty() { &[] } else { &self.slopes[heads] },
                scratch: work.scratch,
            };
            // SAFETY: all rows belong to the text, and the scratch memory has the size that the op asks for.
            unsafe { attend(run.isa, &tile) }
        }
    }
}
