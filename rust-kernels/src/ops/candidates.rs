//! What goes back: of each row whose logits are wanted the best candidates, and the log of the sum of exponentials.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::dot::Dot;
use crate::program::{Operands, Program, Rows};
use crate::simd::{Kernel, Simd, exp};
use crate::step::LogitsRequest;

/// Logits of a row that are computed twice: all that a request may have reported (20), and those that may overtake them.
const SHARPENED: usize = 32;

pub struct Candidates {
    logits: usize,
    exact: Option<Exact>,
}

/// What the best logits are computed from once more: rows of floats, and the matrix.
#[derive(Clone, Copy)]
struct Exact {
    x: usize,
    weight: usize,
    columns: usize,
}

impl Decode for Candidates {
    fn decode(o: &mut Operands) -> Result<Self> {
        let logits = o.float(Some(o.program.vocab))?;
        o.rows_are(logits, Rows::Logits)?;
        let (Some(x), Some(weight)) = (o.optional()?, o.optional()?) else { return Ok(Self { logits, exact: None }) };
        o.is_float(x, None)?;
        o.same_rows(&[Some(x), Some(logits)])?;
        let columns = o.buffer(x)?.columns;
        if !columns.is_multiple_of(16) {
            bail!("buffer {x} must have a multiple of 16 columns (got {columns})");
        }
        o.shape(weight, o.program.vocab, columns)?;
        Ok(Self { logits, exact: Some(Exact { x, weight, columns }) })
    }
}

impl Op for Candidates {
    fn scratch(&self, _: &Program) -> usize {
        self.exact.map_or(0, |exact| exact.columns)
    }

    fn run(&self, run: &Run, work: &Work) {
        let (mut best, mut raw) = (Vec::new(), Vec::new());
        for row in work.single_items(run.step.logits.len()).flatten() {
            let request = &run.step.logits[row];
            let mask = match request.mask.map(|index| run.mask(index)) {
                Some(None) => return, // The step is to stop.
                mask => mask.flatten(),
            };
            // SAFETY: one row of the buffer, which only this item touches.
            let logits = unsafe { std::slice::from_raw_parts_mut(run.float(self.logits, row), run.p.vocab) };
            let mut chosen = Chosen { run, row, logits, best: &mut best, scratch: work.scratch };
            let (total, probed) = match &mask {
                None => chosen.among_all(self.exact, &request.probe),
                Some(mask) => chosen.among_allowed(self.exact, &request.probe, mask),
            };
            let penalties = Penalties {
                repetition: request.repetition,
                presence: request.presence,
                frequency: request.frequency,
                tokens: &request.penalty_tokens,
                counts: &request.penalty_counts,
            };
            adjust(logits, &penalties, (&request.bias_tokens, &request.bias_values), &mut raw);
            // SAFETY: its operands are slices.
            unsafe { run.isa.run(Select { logits, k: request.candidates, best: &mut best }) };
            if mask.is_some() {
                best.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
            }
            answer(run, request, total, &best, &raw, &probed);
        }
    }
}

/// One row's logits on their way to candidates.
struct Chosen<'a> {
    run: &'a Run<'a>,
    row: usize,
    logits: &'a mut [f32],
    best: &'a mut Best,
    scratch: *mut f32,
}

impl Chosen<'_> {
    /// The log-sum-exp and the probed tokens' logits, once the best logits have been computed again.
    fn among_all(&mut self, exact: Option<Exact>, probe: &[i32]) -> (f32, Vec<f32>) {
        if let Some(exact) = exact {
            self.find_best();
            let tokens = self.best.iter().map(|(_, token)| *token).chain(probe.iter().copied());
            exact.sharpen(self.run, self.row, tokens, self.logits, self.scratch);
        }
        (self.log_sum_exp(), self.probed(probe))
    }

    /// The same where a part of the tokens may come: the others' logits are minus infinity afterwards.
    fn among_allowed(&mut self, exact: Option<Exact>, probe: &[i32], mask: &[u32]) -> (f32, Vec<f32>) {
        if let Some(exact) = exact {
            exact.sharpen(self.run, self.row, probe.iter().copied(), self.logits, self.scratch);
        }
        let (total, probed) = (self.log_sum_exp(), self.probed(probe));
        // SAFETY: its operands are slices.
        unsafe { self.run.isa.run(ApplyMask { logits: self.logits, mask }) };
        let Some(exact) = exact else { return (total, probed) };
        self.find_best();
        self.best.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
        exact.sharpen(self.run, self.row, self.best.iter().map(|(_, token)| *token), self.logits, self.scratch);
        (corrected(total, self.best, self.logits), probed)
    }

    fn find_best(&mut self) {
        // SAFETY: its operands are slices; here and below.
        unsafe { self.run.isa.run(Select { logits: self.logits, k: SHARPENED, best: self.best }) };
    }

    fn log_sum_exp(&self) -> f32 {
        unsafe { self.run.isa.run(LogSumExp(self.logits)) }
    }

    fn probed(&self, probe: &[i32]) -> Vec<f32> {
        probe.iter().map(|t| self.logits[*t as usize]).collect()
    }
}

impl Exact {
    /// Computes the logits of `tokens` again, from the row as it was before it was rounded to 8 bits.
    fn sharpen(self, run: &Run, row: usize, tokens: impl Iterator<Item = i32>, logits: &mut [f32], scratch: *mut f32) {
        let (m, x) = (run.matrix(self.weight), run.float(self.x, row));
        for token in tokens {
            // SAFETY: the token is below the matrix's rows; the scratch row and x hold its columns.
            unsafe {
                run.matrix_row(m, token as usize, scratch);
                logits[token as usize] = run.isa.run(Dot { a: scratch, b: x, n: self.columns });
            }
        }
    }
}

/// Writes one request's answer; the words are laid out in `LogitsRequest::answer_words`.
fn answer(run: &Run, request: &LogitsRequest, total: f32, best: &[(f32, i32)], raw: &[(i32, f32)], probed: &[f32]) {
    // SAFETY: the words are this request's.
    let put = |at: usize, word: u32| unsafe { run.answer(request.answer + at, word) };
    put(0, best.len() as u32);
    put(1, total.to_bits());
    let k = request.candidates;
    for (i, (logit, token)) in best.iter().enumerate() {
        let before = raw.binary_search_by_key(token, |pair| pair.0).map_or(*logit, |at| raw[at].1);
        put(2 + i, *token as u32);
        put(2 + k + i, logit.to_bits());
        put(2 + 2 * k + i, before.to_bits());
    }
    for (i, logit) in probed.iter().enumerate() {
        put(2 + 3 * k + i, logit.to_bits());
    }
}

/// Candidates as (logit, token).
pub type Best = Vec<(f32, i32)>;

/// Counts of a token in the text so far.
pub struct Penalties<'a> {
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
    pub tokens: &'a [i32],
    pub counts: &'a [i32],
}

/// log(sum(e^x)) of logits.
pub struct LogSumExp<'a>(pub &'a [f32]);

impl Kernel for LogSumExp<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> f32 {
        let logits = self.0;
        unsafe {
            let whole = logits.len() / S::LANES * S::LANES;
            let mut largest = s.splat(f32::NEG_INFINITY);
            for chunk in logits[..whole].chunks_exact(S::LANES) {
                largest = s.max(largest, s.load(chunk.as_ptr()));
            }
            let top = logits[whole..].iter().copied().fold(s.largest(largest), f32::max);
            let mut sums = s.splat(0.0);
            for chunk in logits[..whole].chunks_exact(S::LANES) {
                sums = s.add(sums, exp(s, s.sub(s.load(chunk.as_ptr()), s.splat(top))));
            }
            let rest: f32 = logits[whole..].iter().map(|x| (x - top).exp()).sum();
            top + (s.sum(sums) + rest).ln()
        }
    }
}

/// Applies penalties and bias in place; `raw` receives (token, logit before) of each token touched, sorted.
pub fn adjust(logits: &mut [f32], penalties: &Penalties, bias: (&[i32], &[f32]), raw: &mut Vec<(i32, f32)>) {
    raw.clear();
    let touched = penalties.tokens.iter().chain(bias.0);
    raw.extend(touched.map(|t| (*t, logits[*t as usize])));
    raw.sort_unstable_by_key(|pair| pair.0);
    raw.dedup_by_key(|pair| pair.0);
    for (token, count) in penalties.tokens.iter().zip(penalties.counts) {
        let x = &mut logits[*token as usize];
        *x = if *x > 0.0 { *x / penalties.repetition } else { *x * penalties.repetition };
        if *count > 0 {
            *x -= penalties.presence + penalties.frequency * *count as f32;
        }
    }
    for (token, value) in bias.0.iter().zip(bias.1) {
        logits[*token as usize] += value;
    }
}

/// A log-sum-exp after the logits of the tokens in `before` have changed to what is in `logits` now.
fn corrected(total: f32, before: &Best, logits: &[f32]) -> f32 {
    let weight = |logit: f32| f64::from(logit - total).exp();
    let change: f64 = before.iter().map(|(old, token)| weight(logits[*token as usize]) - weight(*old)).sum();
    total + change.ln_1p() as f32
}

/// Takes tokens out whose bit in `mask` is 0.
pub struct ApplyMask<'a> {
    pub logits: &'a mut [f32],
    pub mask: &'a [u32],
}

impl Kernel for ApplyMask<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, _: S) {
        for (word, chunk) in self.mask.iter().zip(self.logits.chunks_mut(32)) {
            if *word != u32::MAX {
                for (i, x) in chunk.iter_mut().enumerate() {
                    *x = if word >> i & 1 == 0 { f32::NEG_INFINITY } else { *x };
                }
            }
        }
    }
}

/// The `k` largest logits as (logit, token), best first; the lower token first among equals. NaN is never chosen.
pub struct Select<'a> {
    pub logits: &'a [f32],
    pub k: usize,
    pub best: &'a mut Best,
}

impl Kernel for Select<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { logits, k, best } = self;
        best.clear();
        // `best` collects up to 2k hopefuls above `floor`, then is cut back to k, which raises the floor.
        let mut floor = f32::NEG_INFINITY;
        for (c, chunk) in logits.chunks(64).enumerate() {
            if best.len() >= k && unsafe { largest(s, chunk) } <= floor {
                continue;
            }
            for (i, x) in chunk.iter().enumerate() {
                if *x > floor || (best.len() < k && !x.is_nan()) {
                    best.push((*x, (64 * c + i) as i32));
                    if best.len() == 2 * k {
                        floor = cut(best, k);
                    }
                }
            }
        }
        cut(best, k);
        best.sort_unstable_by(order);
    }
}

#[inline(always)]
unsafe fn largest<S: Simd>(s: S, chunk: &[f32]) -> f32 {
    if chunk.len() < 64 {
        return f32::INFINITY;
    }
    unsafe {
        let mut top = s.splat(f32::NEG_INFINITY);
        for i in (0..64).step_by(S::LANES) {
            // The order of operands keeps NaN out.
            top = s.max(s.load(chunk.as_ptr().add(i)), top);
        }
        s.largest(top)
    }
}

fn order(a: &(f32, i32), b: &(f32, i32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Keeps the k best, unsorted; returns the least of them.
fn cut(best: &mut Best, k: usize) -> f32 {
    if best.len() < k {
        return f32::NEG_INFINITY;
    }
    let floor = best.select_nth_unstable_by(k - 1, order).1.0;
    best.truncate(k);
    floor
}
