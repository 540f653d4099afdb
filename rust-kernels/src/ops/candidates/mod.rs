//! The output of a step: for each row with logits, the best candidates, the spread of all logits, and a drawn token.
mod adjust;
mod draw;
mod form;
mod select;
mod survey;

pub use self::adjust::{ApplyMask, Penalties, adjust};
pub use self::draw::Draw;
pub use self::form::{LogitTransform, TransformLogits};
pub use self::select::{Best, select};
pub use self::survey::{Row, Spread, Sums, Survey};

use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::dot::Dot;
use crate::program::{Operands, Program, Rows};
use crate::step::{DrawRequest, HEAD_WORDS, LogitsRequest};

/// Logits per row that are computed again exactly: the 20 that a request may report, and those that may overtake
/// them.
const SHARPENED: usize = 32;

pub struct Candidates {
    logits: usize,
    /// Logits of a row. In a draft it may be only the first of the vocabulary.
    count: usize,
    exact: Option<Exact>,
    form: LogitTransform,
}

/// Inputs for the exact computation of the best logits: float rows and the matrix.
#[derive(Clone, Copy)]
struct Exact {
    x: usize,
    weight: usize,
    columns: usize,
    form: LogitTransform,
}

impl Decode for Candidates {
    fn decode(o: &mut Operands) -> Result<Self> {
        let logits = o.float(None)?;
        o.rows_are(logits, Rows::Logits)?;
        let (count, vocab) = (o.buffer(logits)?.columns, o.program.vocab);
        if count == 0 || count > vocab {
            bail!("buffer {logits} must have 1 to {vocab} columns, for tokens of the vocabulary (got {count})");
        }
        let (x, weight, scale, softcap) = (o.optional()?, o.optional()?, o.f32()?, o.f32()?);
        let form = LogitTransform { scale, softcap };
        let (Some(x), Some(weight)) = (x, weight) else { return Ok(Self { logits, count, exact: None, form }) };
        o.is_float(x, None)?;
        o.same_rows(&[Some(x), Some(logits)])?;
        let columns = o.buffer(x)?.columns;
        if !columns.is_multiple_of(16) {
            bail!("buffer {x} must have a multiple of 16 columns (got {columns})");
        }
        o.shape(weight, count, columns)?;
        Ok(Self { logits, count, exact: Some(Exact { x, weight, columns, form }), form })
    }
}

impl Candidates {
    /// Floats of scratch memory before the matrix row, which is aligned to a cache line.
    fn maxima(&self) -> usize {
        Row::maxima(self.count).next_multiple_of(16)
    }
}

impl Op for Candidates {
    fn scratch(&self, _: &Program) -> usize {
        self.maxima() + self.exact.map_or(0, |exact| exact.columns)
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.step.logits.is_empty()
    }

    fn run(&self, run: &Run, work: &Work) {
        let (mut best, mut raw, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for index in work.single_items(run.step.logits.len()).flatten() {
            let request = &run.step.logits[index];
            // SAFETY: one row of the buffer, which only this item uses, and the thread's own memory.
            let mut row = unsafe {
                let maxima = Row::maxima(self.count);
                Row {
                    logits: std::slice::from_raw_parts_mut(run.float(self.logits, index), self.count),
                    maxima: std::slice::from_raw_parts_mut(work.scratch, maxima),
                }
            };
            let exact_row = work.scratch.wrapping_add(self.maxima());
            let exact = self.exact.map(|of| Sharpener { of, run, index, scratch: exact_row });
            // SAFETY: the kernel's operands are slices; here and below.
            let surveyed = unsafe { run.isa.run(Survey { row: &mut row, form: self.form }) };
            // Wait for the mask only now, because it is computed while the model runs.
            let mask = match request.mask.map(|mask| run.mask(mask)) {
                Some(None) => return, // the step must stop
                mask => mask.flatten(),
            };
            let mut chosen = Chosen { run, row: &mut row, sums: surveyed, exact, best: &mut best };
            let (spread, probed) = match &mask {
                None => chosen.among_all(&request.probe),
                Some(mask) => chosen.among_allowed(&request.probe, mask),
            };
            let penalties = Penalties {
                repetition: request.repetition,
                presence: request.presence,
                frequency: request.frequency,
                tokens: &request.penalty_tokens,
                counts: &request.penalty_counts,
            };
            adjust(&mut row, &penalties, (&request.bias_tokens, &request.bias_values), &mut raw);
            select(&row, request.candidates, &mut best);
            if mask.is_some() {
                best.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
            }
            let drawn = request.draw.as_ref().and_then(|draw| {
                let DrawRequest { temperature, mark } = *draw;
                let token = unsafe { run.isa.run(Draw { row: &row, temperature, mark, sums: &mut sums }) }?;
                Some((row.logits[token], token as i32))
            });
            answer(run, request, &spread, &best, drawn, &raw, &probed);
        }
    }
}

/// One row's logits during the selection of candidates.
struct Chosen<'a, 'b> {
    run: &'a Run<'a>,
    row: &'a mut Row<'b>,
    sums: Sums,
    exact: Option<Sharpener<'a>>,
    best: &'a mut Best,
}

impl Chosen<'_, '_> {
    /// Recomputes the best logits. Returns the spread of the logits and the probed tokens' logits.
    fn among_all(&mut self, probe: &[i32]) -> (Spread, Vec<f32>) {
        self.sharpen_best();
        self.sharpen(probe.iter().copied());
        (self.sums.spread(), self.probed(probe))
    }

    /// Like `among_all`, if only some tokens are allowed. The logits of other tokens become -infinity.
    fn among_allowed(&mut self, probe: &[i32], mask: &[u32]) -> (Spread, Vec<f32>) {
        self.sharpen(probe.iter().copied());
        let probed = self.probed(probe);
        // SAFETY: the kernel's operands are slices.
        unsafe { self.run.isa.run(ApplyMask { row: self.row, mask }) };
        self.sharpen_best();
        (self.sums.spread(), probed)
    }

    fn sharpen_best(&mut self) {
        if self.exact.is_none() {
            return;
        }
        select(self.row, SHARPENED, self.best);
        self.best.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
        let tokens: Vec<i32> = self.best.iter().map(|(_, token)| *token).collect();
        self.sharpen(tokens.into_iter());
    }

    fn sharpen(&mut self, tokens: impl Iterator<Item = i32>) {
        let Some(exact) = &self.exact else { return };
        let count = self.row.logits.len();
        for token in tokens.map(|token| token as usize).filter(|token| *token < count) {
            let logit = exact.logit(token);
            self.sums.replace(self.row.logits[token], logit);
            self.row.set(token, logit);
        }
    }

    fn probed(&self, probe: &[i32]) -> Vec<f32> {
        probe.iter().map(|t| self.row.logits.get(*t as usize).copied().unwrap_or(f32::NEG_INFINITY)).collect()
    }
}

/// Recomputes logits of a row from the hidden state before it was quantized to 8 bits.
struct Sharpener<'a> {
    of: Exact,
    run: &'a Run<'a>,
    index: usize,
    /// Room for a row of the matrix.
    scratch: *mut f32,
}

impl Sharpener<'_> {
    fn logit(&self, token: usize) -> f32 {
        let Exact { x, weight, columns, form } = self.of;
        let run = self.run;
        // SAFETY: the token is below the matrix's rows; the scratch row and x hold its columns.
        unsafe {
            run.matrix_row(run.matrix(weight), token, self.scratch);
            let mut logit = run.isa.run(Dot { a: self.scratch, b: run.float(x, self.index), n: columns });
            if !form.is_plain() {
                run.isa.run(TransformLogits { logits: std::slice::from_mut(&mut logit), form });
            }
            logit
        }
    }
}

/// Writes one request's answer in the layout of `LogitsRequest::answer_words`.
fn answer(
    run: &Run,
    request: &LogitsRequest,
    spread: &Spread,
    best: &[(f32, i32)],
    drawn: Option<(f32, i32)>,
    raw: &[(i32, f32)],
    probed: &[f32],
) {
    // SAFETY: the words are this request's.
    let put = |at: usize, word: u32| unsafe { run.answer(request.answer + at, word) };
    put(0, best.len() as u32);
    put(1, spread.log_sum_exp.to_bits());
    put(2, spread.deviation.to_bits());
    let k = request.candidates;
    let candidate = |at: usize, step: usize, (logit, token): (f32, i32)| {
        let before = raw.binary_search_by_key(&token, |pair| pair.0).map_or(logit, |at| raw[at].1);
        put(at, token as u32);
        put(at + step, logit.to_bits());
        put(at + 2 * step, before.to_bits());
    };
    for (i, pair) in best.iter().enumerate() {
        candidate(HEAD_WORDS + i, k, *pair);
    }
    for (i, logit) in probed.iter().enumerate() {
        put(HEAD_WORDS + 3 * k + i, logit.to_bits());
    }
    if request.draw.is_some() {
        // Without candidates no token is drawn. Readers see that from the count.
        candidate(HEAD_WORDS + 3 * k + probed.len(), 1, drawn.unwrap_or((0.0, 0)));
    }
}
