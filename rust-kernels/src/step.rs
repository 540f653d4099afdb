//! The input of a step, decoded and checked. engine/backend/cpu/step_words.ts writes these words.
use crate::bail;
use crate::error::Result;
use crate::kernels::kv::KV_BLOCK;
use crate::masks::Masks;
use crate::ops::pool::Way;
use crate::program::{Choice, Program};
use crate::words::{NONE, Words};
use std::collections::{HashMap, HashSet};

/// The rows of one sequence.
pub struct Sequence {
    pub start: usize,
    pub length: usize,
    /// Tokens in the cache before the step.
    pub cached: usize,
    /// One table for each group of layers in the KV cache.
    pub block_tables: Vec<BlockTable>,
    /// Only for programs with recurrent layers.
    pub state: Option<StateUse>,
    /// Adapters with the factors of their products, in ascending order.
    pub adapters: Vec<(usize, f32)>,
}

/// The blocks of a sequence's keys and values, in the layers of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTable {
    /// Number of leading blocks that the table omits, because no row's window reaches them.
    pub first: usize,
    /// The blocks after the omitted ones.
    pub blocks: Vec<i32>,
}

impl BlockTable {
    /// The block of a position. The table must contain it.
    pub fn at(&self, position: usize) -> usize {
        self.blocks[position / KV_BLOCK - self.first] as usize
    }
}

/// The slots of recurrent state that a sequence's rows use.
pub struct StateUse {
    /// The slot of the state before the rows; None for the first rows of a sequence.
    pub read: Option<usize>,
    /// The slot of the state after the rows. May be the slot that was read.
    pub write: usize,
    /// In ascending order of rows.
    pub saves: Vec<Save>,
}

/// Copies the state after the first `after` rows to `slot`.
pub struct Save {
    pub after: usize,
    pub slot: usize,
}

/// What a step computes from one row's logits, and where the answer goes.
pub struct LogitsRequest {
    pub row: usize,
    pub candidates: usize,
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
    pub penalty_tokens: Vec<i32>,
    pub penalty_counts: Vec<i32>,
    pub bias_tokens: Vec<i32>,
    pub bias_values: Vec<f32>,
    /// Index of a mask that arrives while the step runs.
    pub mask: Option<usize>,
    pub probe: Vec<i32>,
    pub draw: Option<DrawRequest>,
    /// First word of the answer in the output.
    pub answer: usize,
}

/// Draws a token from the whole vocabulary, after penalties, bias and mask.
pub struct DrawRequest {
    pub temperature: f32,
    /// Position in the distribution, in steps of 2^-32.
    pub mark: u32,
}

/// Words at the head of an answer: count, log-sum-exp, standard deviation.
pub const HEAD_WORDS: usize = 3;

impl LogitsRequest {
    /// Whether the request leaves the logits as they are.
    fn is_plain(&self) -> bool {
        self.penalty_tokens.is_empty() && self.bias_tokens.is_empty() && self.mask.is_none()
    }

    /// Words of the answer: head, ids, logits, raw logits, probed logits. A drawn token adds its id, logit and raw
    /// logit.
    pub fn answer_words(&self) -> usize {
        HEAD_WORDS + 3 * self.candidates + self.probe.len() + if self.draw.is_some() { 3 } else { 0 }
    }
}

/// Axes of a position: time, height and width.
pub const AXES: usize = 3;

/// A row's position on each axis, by which rotary tables turn it. In text all are equal.
pub type Place = [u32; AXES];

/// Rows that a step brings, for example those of an image.
pub struct GivenRows {
    /// In ascending order.
    pub rows: Vec<usize>,
    columns: usize,
    values: Vec<f32>,
}

impl GivenRows {
    fn decode(w: &mut Words, p: &Program, rows: usize) -> Result<Self> {
        let count = w.size()?;
        let Some(columns) = p.given.or((count == 0).then_some(0)) else {
            bail!("Given rows need a plan that reads them");
        };
        let places: Vec<usize> = w.u32s(count)?.into_iter().map(|row| row as usize).collect();
        if !places.is_sorted_by(|a, b| a < b) || places.last().is_some_and(|last| *last >= rows) {
            bail!("Given rows must be in ascending order and below {rows}");
        }
        Ok(Self { rows: places, columns, values: w.f32s(count.saturating_mul(columns))? })
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.columns..][..self.columns]
    }
}

/// A sequence to be pooled, and where the result goes.
pub struct PoolRequest {
    pub sequence: usize,
    /// First word of the answer in the output.
    pub answer: usize,
}

pub struct Step {
    pub tokens: Vec<i32>,
    /// For each row: its index into `sequences`, and its position.
    pub sequence_of: Vec<usize>,
    pub position_of: Vec<usize>,
    /// For each row: the end of the positions to which it attends.
    pub end_of: Vec<usize>,
    /// For each row: where rotary tables see it.
    pub places: Vec<Place>,
    pub given: GivenRows,
    pub sequences: Vec<Sequence>,
    pub logits: Vec<LogitsRequest>,
    pub pools: Vec<PoolRequest>,
    /// For a draft: the row of the previous step that each row continues from. Empty for other steps.
    pub drafts: Vec<usize>,
    /// First word of the tallies in the output.
    pub tallies: usize,
    pub output_words: usize,
}

impl Step {
    /// # Errors
    /// The words are not a step of this program.
    pub fn decode(bytes: &[u8], p: &Program, masks: &Masks) -> Result<Self> {
        let mut w = Words::new(bytes);
        let (rows, sequences, logits, pools) = (w.size()?, w.size()?, w.size()?, w.u32()?);
        // A draft has no pooled rows.
        let (draft, pools) = if pools == NONE { (true, 0) } else { (false, pools as usize) };
        if rows == 0 || rows > p.max_rows || logits > p.max_logit_rows {
            bail!("A step of {rows} rows and {logits} logits; at most {} and {}", p.max_rows, p.max_logit_rows);
        }
        let mut step = Self {
            tokens: w.i32s(rows)?,
            sequence_of: Vec::with_capacity(rows),
            position_of: Vec::with_capacity(rows),
            end_of: Vec::with_capacity(rows),
            places: Vec::with_capacity(rows),
            given: GivenRows { rows: Vec::new(), columns: 0, values: Vec::new() },
            sequences: Vec::with_capacity(sequences.min(rows)),
            logits: Vec::with_capacity(logits),
            pools: Vec::new(),
            drafts: Vec::new(),
            tallies: 0,
            output_words: 0,
        };
        ids(&step.tokens, p.vocab, "token")?;
        if draft {
            step.drafts = decode_drafts(&mut w, p, rows)?;
        }
        for _ in 0..sequences {
            step.decode_sequence(&mut w, p)?;
        }
        step.check_slots()?;
        if step.sequence_of.len() != rows {
            bail!("{} of {rows} rows belong to a sequence", step.sequence_of.len());
        }
        for _ in 0..logits {
            let mut request = decode_logits(&mut w, p, rows, masks)?;
            if draft && !request.is_plain() {
                bail!(
                    "A draft takes no penalties, biases or masks: its logits may be only the first of the vocabulary"
                );
            }
            request.answer = step.output_words;
            step.output_words += request.answer_words();
            step.logits.push(request);
        }
        let most = match p.pooling.map(|pooling| pooling.way) {
            Some(Way::Merged(count)) if pools > 0 && pools * count != rows => {
                bail!("{rows} rows cannot be merged to {pools}, {count} to one");
            }
            Some(Way::Merged(_)) => rows,
            _ => sequences,
        };
        if pools > most {
            bail!("{pools} of {sequences} sequences cannot be pooled");
        }
        for _ in 0..pools {
            step.decode_pool(&mut w, p)?;
        }
        step.tallies = step.output_words;
        step.output_words += if draft { 0 } else { p.tallies };
        step.given = GivenRows::decode(&mut w, p, rows)?;
        // A step without adapters ends here.
        if !w.is_empty() {
            for sequence in &mut step.sequences {
                sequence.adapters = decode_adapters(&mut w, p)?;
            }
        }
        Ok(step)
    }

    fn decode_pool(&mut self, w: &mut Words, p: &Program) -> Result<()> {
        let (sequence, answer) = (w.size()?, self.output_words);
        let Some(pooling) = p.pooling else { bail!("A pooled row needs a plan that pools") };
        let Some(rows) = self.sequences.get(sequence) else {
            bail!("A pooled row of sequence {sequence}, which is out of range 0..{}", self.sequences.len());
        };
        if pooling.way != Way::Last && rows.cached > 0 {
            bail!(
                "Sequence {sequence} must begin in the step that pools it by its {:?} (got {} tokens before)",
                pooling.way,
                rows.cached
            );
        }
        self.output_words += pooling.columns;
        self.pools.push(PoolRequest { sequence, answer });
        Ok(())
    }

    fn decode_sequence(&mut self, w: &mut Words, p: &Program) -> Result<()> {
        let (start, length, cached) = (w.size()?, w.size()?, w.size()?);
        let (read, write, saves, placed, spans) = (w.u32()?, w.u32()?, w.size()?, w.u32()?, w.size()?);
        let saves = w.u32s(saves.saturating_mul(2))?;
        let spans = w.u32s(spans.saturating_mul(2))?;
        let index = self.sequences.len();
        if start != self.sequence_of.len() || length == 0 || length > self.tokens.len() - start {
            bail!("Sequence {index} must have the next rows in order (got {length} rows from row {start} on)");
        }
        if length > p.positions.saturating_sub(cached) || (p.whole_texts && cached > 0) {
            let what = if p.whole_texts { "must be in one step, with" } else { "may have" };
            let most = p.positions;
            bail!("Sequence {index} {what} at most {most} tokens (got {length} rows after {cached})");
        }
        if placed == 0 {
            self.places.extend((cached..cached + length).map(|position| [position as u32; AXES]));
        } else {
            let places = w.u32s(length * AXES)?;
            self.places.extend_from_slice(places.as_chunks::<AXES>().0);
        }
        let block_tables = match decode_tables(w, p, cached, length) {
            Ok(tables) => tables,
            Err(e) => bail!("Sequence {index}: {e}"),
        };
        for i in 0..length {
            self.sequence_of.push(index);
            self.position_of.push(cached + i);
            self.end_of.push(cached + i + 1);
        }
        let mut last = cached;
        for [first, end] in spans.as_chunks::<2>().0.iter().map(|span| span.map(|position| position as usize)) {
            if first < last || end <= first || end > cached + length {
                bail!(
                    "Sequence {index} must have spans in order within its rows, {cached}..{} (got {first}..{end})",
                    cached + length
                );
            }
            self.end_of[start + first - cached..start + end - cached].fill(end);
            last = end;
        }
        let carries = self.drafts.is_empty() && !p.recurrent.layers.is_empty();
        let state = match decode_state(p, carries, [read, write], &saves, length, cached) {
            Ok(state) => state,
            Err(e) => bail!("Sequence {index}: {e}"),
        };
        self.sequences.push(Sequence { start, length, cached, block_tables, state, adapters: Vec::new() });
        Ok(())
    }

    /// Checks that only one sequence writes a slot, and that no other sequence reads it.
    fn check_slots(&self) -> Result<()> {
        let mut writers = HashMap::new();
        let states = || self.sequences.iter().enumerate().filter_map(|(i, s)| Some((i, s.state.as_ref()?)));
        for (i, state) in states() {
            for slot in state.saves.iter().map(|s| s.slot).chain([state.write]) {
                if writers.insert(slot, i).is_some() {
                    bail!("Sequence {i} writes slot {slot}, which is written already");
                }
            }
        }
        for (i, state) in states() {
            if let Some(read) = state.read
                && read != state.write
                && writers.contains_key(&read)
            {
                bail!("Sequence {i} reads slot {read}, which is written in the same step");
            }
        }
        Ok(())
    }
}

/// Decodes a table for each group of layers. It must reach from the first block of the first row's window to the
/// block of the last row.
fn decode_tables(w: &mut Words, p: &Program, cached: usize, length: usize) -> Result<Vec<BlockTable>> {
    let mut tables = Vec::with_capacity(p.kv.windows.len());
    for (group, window) in p.kv.windows.iter().enumerate() {
        let (first, count) = (w.size()?, w.size()?);
        let table = BlockTable { first, blocks: w.i32s(count)? };
        let wanted = (cached + 1).saturating_sub(*window) / KV_BLOCK..(cached + length).div_ceil(KV_BLOCK);
        if first > wanted.start || first + count < wanted.end {
            bail!(
                "group {group} has KV blocks {first}..{}, but {} tokens need {}..{}",
                first + count,
                cached + length,
                wanted.start,
                wanted.end
            );
        }
        ids(&table.blocks, p.kv.blocks, "KV block")?;
        tables.push(table);
    }
    Ok(tables)
}

/// The rows of the previous step that a draft's rows continue from, each row at most once.
fn decode_drafts(w: &mut Words, p: &Program, rows: usize) -> Result<Vec<usize>> {
    if p.draft.is_none() {
        bail!("A draft needs a plan with draft ops");
    }
    let drafts: Vec<usize> = w.u32s(rows)?.into_iter().map(|row| row as usize).collect();
    let mut seen = HashSet::new();
    match drafts.iter().find(|row| **row >= p.max_rows || !seen.insert(**row)) {
        Some(row) => bail!("A draft continues from row {row}, which is out of range 0..{} or taken twice", p.max_rows),
        None => Ok(drafts),
    }
}

/// `saves` holds pairs of rows and slot.
fn decode_state(
    p: &Program,
    carries: bool,
    [read, write]: [u32; 2],
    saves: &[u32],
    length: usize,
    cached: usize,
) -> Result<Option<StateUse>> {
    if !carries {
        if read != NONE || write != NONE || !saves.is_empty() {
            bail!("a draft, or a model without recurrent state, must not name slots");
        }
        return Ok(None);
    }
    let (pairs, _) = saves.as_chunks::<2>();
    let saves: Vec<Save> =
        pairs.iter().map(|[after, slot]| Save { after: *after as usize, slot: *slot as usize }).collect();
    let read = (read != NONE).then_some(read as usize);
    let mut slots = saves.iter().map(|s| s.slot).chain(read).chain([write as usize]);
    if let Some(slot) = slots.find(|slot| *slot >= p.recurrent.slots) {
        bail!("slot {slot} is out of range 0..{}", p.recurrent.slots);
    }
    if read.is_none() != (cached == 0) {
        bail!("{cached} cached tokens do not fit a state that is read from {read:?}");
    }
    let ascending = saves.is_sorted_by(|a, b| a.after < b.after);
    if !ascending || saves.iter().any(|s| s.after == 0 || s.after > length) {
        bail!("states must be saved in ascending order, after 1 to {length} rows");
    }
    Ok(Some(StateUse { read, write: write as usize, saves }))
}

/// The adapters of a sequence, each at most once.
fn decode_adapters(w: &mut Words, p: &Program) -> Result<Vec<(usize, f32)>> {
    let Some((_, Choice { experts, used })) = p.adapters else { bail!("Adapters need a plan that has some") };
    let count = w.size()?;
    if count > used {
        bail!("A sequence may use at most {used} adapters (got {count})");
    }
    let adapters = (0..count).map(|_| Ok((w.size()?, w.f32()?))).collect::<Result<Vec<_>>>()?;
    let ascending = adapters.is_sorted_by(|a, b| a.0 < b.0);
    if !ascending || adapters.iter().any(|(number, factor)| *number >= experts || !factor.is_finite()) {
        bail!("adapters must be in ascending order and below {experts}, with finite factors (got {adapters:?})");
    }
    Ok(adapters)
}

fn decode_logits(w: &mut Words, p: &Program, rows: usize, masks: &Masks) -> Result<LogitsRequest> {
    let (row, candidates) = (w.size()?, w.size()?);
    let (repetition, presence, frequency) = (w.f32()?, w.f32()?, w.f32()?);
    let (temperature, mark) = (w.f32()?, w.u32()?);
    let (penalties, biases, mask, probe) = (w.size()?, w.size()?, w.size()?, w.size()?);
    if row >= rows || candidates == 0 || candidates > p.vocab || repetition.is_nan() || repetition <= 0.0 {
        bail!("Logits of row {row} with {candidates} candidates and a repetition penalty of {repetition}");
    }
    if temperature.is_nan() || temperature < 0.0 {
        bail!("A token of row {row} to be drawn at temperature {temperature}");
    }
    let mask = mask.checked_sub(1);
    if let Some(mask) = mask
        && !masks.is_expected(mask, p.vocab)
    {
        bail!("Logits of row {row} with mask {mask}, which was not announced, or not for a vocabulary of {}", p.vocab);
    }
    let request = LogitsRequest {
        row,
        candidates,
        repetition,
        presence,
        frequency,
        penalty_tokens: w.i32s(penalties)?,
        penalty_counts: w.i32s(penalties)?,
        bias_tokens: w.i32s(biases)?,
        bias_values: w.f32s(biases)?,
        mask,
        probe: w.i32s(probe)?,
        draw: (temperature > 0.0).then_some(DrawRequest { temperature, mark }),
        answer: 0,
    };
    ids(&request.penalty_tokens, p.vocab, "penalised token")?;
    ids(&request.bias_tokens, p.vocab, "biased token")?;
    ids(&request.probe, p.vocab, "probed token")?;
    Ok(request)
}

fn ids(values: &[i32], limit: usize, what: &str) -> Result<()> {
    match values.iter().find(|v| **v < 0 || **v as usize >= limit) {
        Some(v) => bail!("{what} {v} is out of range 0..{limit}"),
        None => Ok(()),
    }
}
