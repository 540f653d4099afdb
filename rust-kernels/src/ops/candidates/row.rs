//! Computes the candidates of a request from one row of logits.
use super::{ApplyMask, Best, Draw, Exact, LogitTransform, PART, Penalties, Row, SUMMED, Spread, Sums};
use super::{Survey, TransformLogits, Weigh, adjust, select, survey::CHUNK};
use crate::executor::Run;
use crate::kernels::dot::Dot;
use crate::step::{DrawRequest, HEAD_WORDS, LogitsRequest};

/// Number of best logits per row that are recomputed exactly: the 20 that a request may report, and a reserve that may
/// overtake them.
const SHARPENED: usize = 32;

/// The original (token, logit) of each logit that a request changed, sorted by token.
pub type Raw = Vec<(i32, f32)>;

/// A row of logits and its request. Call `survey` and `mask` for each part, then `choose`, then `weigh` for each part,
/// then `draw`. Threads may share the calls for parts. The result does not depend on the number of threads.
pub struct LogitsRow<'a> {
    pub run: &'a Run<'a>,
    pub request: &'a LogitsRequest,
    pub form: LogitTransform,
    pub count: usize,
    pub logits: *mut f32,
    /// Scratch memory: the maximum of each chunk of CHUNK logits.
    pub maxima: *mut f32,
    pub exact: Option<Sharpener<'a>>,
    /// Scratch memory: the sums over each part of PART logits.
    pub sums: *mut Sums,
    /// Scratch memory: the largest logit after all changes, then the sum of weights of each part of SUMMED logits.
    pub weights: *mut f64,
}

impl LogitsRow<'_> {
    /// Transforms and surveys part `part` of PART logits.
    pub fn survey(&self, part: usize) {
        // SAFETY: only this call uses the part; the kernel's operands are slices.
        unsafe {
            let sums = self.run.isa.run(Survey { row: &mut self.slice(part, PART), form: self.form });
            self.sums.add(part).write(sums);
        }
    }

    /// Waits for the request's mask and applies it to a surveyed part. Returns false if the step must stop.
    pub fn mask(&self, part: usize) -> bool {
        let Some(mask) = self.request.mask else { return true };
        let Some(mask) = self.run.mask(mask) else { return false };
        // Probes need the logits before the mask; `choose` then applies it.
        if self.request.probe.is_empty() {
            let words = &mask[part * PART / 32..mask.len().min((part + 1) * PART / 32)];
            // SAFETY: only this call uses the part; the kernel's operands are slices.
            unsafe { self.run.isa.run(ApplyMask { row: &mut self.slice(part, PART), mask: words }) }
        }
        true
    }

    /// Chooses the candidates, and writes the answer without the drawn token. Returns the original logits.
    pub fn choose(&self) -> Raw {
        let (request, run) = (self.request, self.run);
        // SAFETY: only this call uses the row, and `survey` has written the sums of all parts.
        let (row, mut sums) = unsafe { (self.slice(0, self.count), Sums::NONE) };
        (0..self.count.div_ceil(PART)).for_each(|part| sums.add(unsafe { self.sums.add(part).read() }));
        let mut chosen = Chosen { row, sums, exact: self.exact.as_ref(), best: Vec::new() };
        let mask = request.mask.filter(|_| !request.probe.is_empty()).and_then(|mask| run.mask(mask));
        let probed = match mask {
            None => {
                chosen.sharpen_best();
                chosen.probe(&request.probe)
            }
            Some(mask) => {
                let probed = chosen.probe(&request.probe);
                // SAFETY: the kernel's operands are slices.
                unsafe { run.isa.run(ApplyMask { row: &mut chosen.row, mask: &mask }) };
                chosen.sharpen_best();
                probed
            }
        };
        let Chosen { mut row, sums, mut best, .. } = chosen;
        let mut raw = Vec::new();
        let penalties = Penalties {
            repetition: request.repetition,
            presence: request.presence,
            frequency: request.frequency,
            tokens: &request.penalty_tokens,
            counts: &request.penalty_counts,
        };
        adjust(&mut row, &penalties, (&request.bias_tokens, &request.bias_values), &mut raw);
        select(&row, request.candidates, &mut best);
        if request.mask.is_some() {
            best.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
        }
        if request.draw.is_some() {
            // SAFETY: the scratch memory has room for the largest logit.
            unsafe { self.weights.write(row.top().into()) }
        }
        self.answer(&sums.spread(), &best, &raw, &probed);
        raw
    }

    /// Sums the weights of part `part` of SUMMED logits, if the request draws a token.
    pub fn weigh(&self, part: usize) {
        let Some(DrawRequest { temperature, .. }) = self.request.draw else { return };
        // SAFETY: no thread changes the row now, and only this call uses the part; the kernel's operands are slices.
        unsafe {
            let sum = self.run.isa.run(Weigh { part: &self.slice(part, SUMMED), top: self.top(), temperature });
            self.weights.add(1 + part).write(sum);
        }
    }

    /// Draws a token if the request asks for one, and adds it to the answer.
    pub fn draw(&self, raw: &Raw) {
        let Some(DrawRequest { temperature, mark }) = self.request.draw else { return };
        // SAFETY: only this call uses the row, and `weigh` has written the sums of all parts.
        let (row, sums) = unsafe {
            let sums = std::slice::from_raw_parts(self.weights.add(1), self.count.div_ceil(SUMMED));
            (self.slice(0, self.count), sums)
        };
        // SAFETY: the kernel's operands are slices.
        let token = unsafe { self.run.isa.run(Draw { row: &row, top: self.top(), temperature, mark, sums }) };
        let drawn = token.map(|token| (row.logits[token], token as i32));
        // If there are no candidates, no token is drawn. Readers see this from the count.
        let LogitsRequest { candidates, probe, .. } = self.request;
        self.candidate(HEAD_WORDS + 3 * candidates + probe.len(), 1, drawn.unwrap_or((0.0, 0)), raw);
    }

    fn top(&self) -> f32 {
        // SAFETY: `choose` has written the largest logit.
        unsafe { self.weights.read() as f32 }
    }

    /// Returns the logits of part `part`; each part has `size` logits.
    ///
    /// # Safety
    /// No other code uses the part during the lifetime of the result. `size` is a multiple of CHUNK, or `part` is 0.
    unsafe fn slice(&self, part: usize, size: usize) -> Row<'_> {
        let first = part * size;
        let count = size.min(self.count - first);
        // SAFETY: the part lies within the row, and only the caller uses it.
        unsafe {
            Row {
                logits: std::slice::from_raw_parts_mut(self.logits.add(first), count),
                maxima: std::slice::from_raw_parts_mut(self.maxima.add(first / CHUNK), Row::maxima(count)),
            }
        }
    }

    /// Writes the answer in the layout of `LogitsRequest::answer_words`.
    fn answer(&self, spread: &Spread, best: &[(f32, i32)], raw: &Raw, probed: &[f32]) {
        let k = self.request.candidates;
        self.put(0, best.len() as u32);
        self.put(1, spread.log_sum_exp.to_bits());
        self.put(2, spread.deviation.to_bits());
        for (i, pair) in best.iter().enumerate() {
            self.candidate(HEAD_WORDS + i, k, *pair, raw);
        }
        for (i, logit) in probed.iter().enumerate() {
            self.put(HEAD_WORDS + 3 * k + i, logit.to_bits());
        }
    }

    /// Writes a token, its logit and its original logit, `step` words apart.
    fn candidate(&self, at: usize, step: usize, (logit, token): (f32, i32), raw: &Raw) {
        let before = raw.binary_search_by_key(&token, |pair| pair.0).map_or(logit, |at| raw[at].1);
        self.put(at, token as u32);
        self.put(at + step, logit.to_bits());
        self.put(at + 2 * step, before.to_bits());
    }

    fn put(&self, at: usize, word: u32) {
        // SAFETY: the words belong to this request.
        unsafe { self.run.answer(self.request.answer + at, word) }
    }
}

/// One row's logits during the selection of candidates.
struct Chosen<'a> {
    row: Row<'a>,
    sums: Sums,
    exact: Option<&'a Sharpener<'a>>,
    best: Best,
}

impl Chosen<'_> {
    fn sharpen_best(&mut self) {
        if self.exact.is_none() {
            return;
        }
        select(&self.row, SHARPENED, &mut self.best);
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

    /// Recomputes the logits of `tokens` and returns them; -infinity for a token beyond the row.
    fn probe(&mut self, tokens: &[i32]) -> Vec<f32> {
        self.sharpen(tokens.iter().copied());
        tokens.iter().map(|t| self.row.logits.get(*t as usize).copied().unwrap_or(f32::NEG_INFINITY)).collect()
    }
}

/// Recomputes logits of a row from the float hidden state instead of its 8-bit codes.
pub struct Sharpener<'a> {
    pub of: Exact,
    pub run: &'a Run<'a>,
    pub index: usize,
    /// Room for a row of the matrix.
    pub scratch: *mut f32,
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
