//! What goes back: of each row whose logits are wanted the best candidates, how all logits spread, and a token drawn from all.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::{Function, Tanh};
use crate::kernels::dot::Dot;
use crate::program::{Operands, Program, Rows};
use crate::simd::{Kernel, Simd, exp};
use crate::step::{DrawRequest, HEAD_WORDS, LogitsRequest};

/// Logits of a row that are computed twice: all that a request may have reported (20), and those that may overtake them.
const SHARPENED: usize = 32;

pub struct Candidates {
    logits: usize,
    exact: Option<Exact>,
    form: LogitForm,
}

/// What the best logits are computed from once more: rows of floats, and the matrix.
#[derive(Clone, Copy)]
struct Exact {
    x: usize,
    weight: usize,
    columns: usize,
    form: LogitForm,
}

impl Decode for Candidates {
    fn decode(o: &mut Operands) -> Result<Self> {
        let logits = o.float(Some(o.program.vocab))?;
        o.rows_are(logits, Rows::Logits)?;
        let (x, weight, scale, softcap) = (o.optional()?, o.optional()?, o.f32()?, o.f32()?);
        let form = LogitForm { scale, softcap };
        let (Some(x), Some(weight)) = (x, weight) else { return Ok(Self { logits, exact: None, form }) };
        o.is_float(x, None)?;
        o.same_rows(&[Some(x), Some(logits)])?;
        let columns = o.buffer(x)?.columns;
        if !columns.is_multiple_of(16) {
            bail!("buffer {x} must have a multiple of 16 columns (got {columns})");
        }
        o.shape(weight, o.program.vocab, columns)?;
        Ok(Self { logits, exact: Some(Exact { x, weight, columns, form }), form })
    }
}

impl Op for Candidates {
    fn scratch(&self, _: &Program) -> usize {
        self.exact.map_or(0, |exact| exact.columns)
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.step.logits.is_empty()
    }

    fn run(&self, run: &Run, work: &Work) {
        let (mut best, mut raw, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for row in work.single_items(run.step.logits.len()).flatten() {
            let request = &run.step.logits[row];
            let mask = match request.mask.map(|index| run.mask(index)) {
                Some(None) => return, // The step is to stop.
                mask => mask.flatten(),
            };
            // SAFETY: one row of the buffer, which only this item touches.
            let logits = unsafe { std::slice::from_raw_parts_mut(run.float(self.logits, row), run.p.vocab) };
            if !self.form.is_plain() {
                // SAFETY: its operands are slices.
                unsafe { run.isa.run(FormLogits { logits, form: self.form }) }
            }
            let mut chosen = Chosen { run, row, logits, best: &mut best, scratch: work.scratch };
            let (spread, probed) = match &mask {
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
            let drawn = request.draw.as_ref().and_then(|draw| {
                let DrawRequest { temperature, mark } = *draw;
                let token = unsafe { run.isa.run(Draw { logits, temperature, mark, sums: &mut sums }) }?;
                Some((logits[token], token as i32))
            });
            answer(run, request, &spread, &best, drawn, &raw, &probed);
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
    /// The logits' spread and the probed tokens' logits, once the best logits have been computed again.
    fn among_all(&mut self, exact: Option<Exact>, probe: &[i32]) -> (Spread, Vec<f32>) {
        if let Some(exact) = exact {
            self.find_best();
            let tokens = self.best.iter().map(|(_, token)| *token).chain(probe.iter().copied());
            exact.sharpen(self.run, self.row, tokens, self.logits, self.scratch);
        }
        (self.spread(), self.probed(probe))
    }

    /// The same where a part of the tokens may come: the others' logits are minus infinity afterwards.
    fn among_allowed(&mut self, exact: Option<Exact>, probe: &[i32], mask: &[u32]) -> (Spread, Vec<f32>) {
        if let Some(exact) = exact {
            exact.sharpen(self.run, self.row, probe.iter().copied(), self.logits, self.scratch);
        }
        let (mut spread, probed) = (self.spread(), self.probed(probe));
        // SAFETY: its operands are slices.
        unsafe { self.run.isa.run(ApplyMask { logits: self.logits, mask }) };
        let Some(exact) = exact else { return (spread, probed) };
        self.find_best();
        self.best.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
        exact.sharpen(self.run, self.row, self.best.iter().map(|(_, token)| *token), self.logits, self.scratch);
        spread.log_sum_exp = corrected(spread.log_sum_exp, self.best, self.logits);
        (spread, probed)
    }

    fn find_best(&mut self) {
        // SAFETY: its operands are slices; here and below.
        unsafe { self.run.isa.run(Select { logits: self.logits, k: SHARPENED, best: self.best }) };
    }

    fn spread(&self) -> Spread {
        unsafe { self.run.isa.run(SpreadOf(self.logits)) }
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
                let logit = &mut logits[token as usize];
                *logit = run.isa.run(Dot { a: scratch, b: x, n: self.columns });
                if !self.form.is_plain() {
                    run.isa.run(FormLogits { logits: std::slice::from_mut(logit), form: self.form });
                }
            }
        }
    }
}

/// Writes one request's answer; the words are laid out in `LogitsRequest::answer_words`.
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
        // No token is drawn where there is no candidate: that is told by their count.
        candidate(HEAD_WORDS + 3 * k + probed.len(), 1, drawn.unwrap_or((0.0, 0)));
    }
}

/// What a model makes of its logits: `scale` times them, and then softcap * tanh(x / softcap) where `softcap` is not 0.
#[derive(Clone, Copy)]
pub struct LogitForm {
    pub scale: f32,
    pub softcap: f32,
}

impl LogitForm {
    fn is_plain(self) -> bool {
        self.scale == 1.0 && self.softcap == 0.0
    }
}

/// Gives logits their form in place, each by itself; those that are not numbers stay so.
pub struct FormLogits<'a> {
    pub logits: &'a mut [f32],
    pub form: LogitForm,
}

impl Kernel for FormLogits<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let (chunks, rest) = split(self.logits, S::LANES);
        for chunk in chunks {
            unsafe { s.store(chunk.as_mut_ptr(), formed(s, self.form, s.load(chunk.as_ptr()))) }
        }
        // The last few take the same steps on a padded copy.
        let mut padded = [0f32; 16];
        padded[..rest.len()].copy_from_slice(rest);
        unsafe { s.store(padded.as_mut_ptr(), formed(s, self.form, s.load(padded.as_ptr()))) }
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

/// Whole vectors, and what is left.
fn split(logits: &mut [f32], lanes: usize) -> (std::slice::ChunksExactMut<'_, f32>, &mut [f32]) {
    let (whole, rest) = logits.split_at_mut(logits.len() / lanes * lanes);
    (whole.chunks_exact_mut(lanes), rest)
}

#[inline(always)]
fn formed<S: Simd>(s: S, form: LogitForm, logits: S::F) -> S::F {
    let x = s.mul(logits, s.splat(form.scale));
    if form.softcap == 0.0 {
        return x;
    }
    let cap = s.splat(form.softcap);
    s.mul(cap, Tanh::of(s, s.div(x, cap)))
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

/// How a row's logits are spread.
pub struct Spread {
    /// log(sum(e^x)).
    pub log_sum_exp: f32,
    /// The standard deviation.
    pub deviation: f32,
}

/// Finds the spread of logits.
pub struct SpreadOf<'a>(pub &'a [f32]);

impl Kernel for SpreadOf<'_> {
    type Output = Spread;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> Spread {
        let logits = self.0;
        unsafe {
            let whole = logits.len() / S::LANES * S::LANES;
            let mut largest = s.splat(f32::NEG_INFINITY);
            for chunk in logits[..whole].chunks_exact(S::LANES) {
                largest = s.max(largest, s.load(chunk.as_ptr()));
            }
            let top = logits[whole..].iter().copied().fold(s.largest(largest), f32::max);
            let (mut sums, mut distances, mut squares) = (s.splat(0.0), s.splat(0.0), s.splat(0.0));
            for chunk in logits[..whole].chunks_exact(S::LANES) {
                let below = s.sub(s.load(chunk.as_ptr()), s.splat(top));
                sums = s.add(sums, exp(s, below));
                distances = s.add(distances, below);
                squares = s.fma(below, below, squares);
            }
            let rest = || logits[whole..].iter().map(|x| x - top);
            let sum = s.sum(sums) + rest().map(f32::exp).sum::<f32>();
            let n = logits.len() as f32;
            let mean = (s.sum(distances) + rest().sum::<f32>()) / n;
            let variance = (s.sum(squares) + rest().map(|x| x * x).sum::<f32>()) / n - mean * mean;
            Spread { log_sum_exp: top + sum.ln(), deviation: variance.max(0.0).sqrt() }
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

/// Draws a token out of the whole vocabulary: the one at the share (mark + 1/2) / 2^32 of the sum of e^(logit / temperature), in the
/// order of tokens. NaN is never drawn; nothing is where there is no logit above -infinity.
pub struct Draw<'a> {
    pub logits: &'a [f32],
    pub temperature: f32,
    pub mark: u32,
    pub sums: &'a mut Vec<f64>,
}

/// Logits that are summed before the sums are.
const CHUNK: usize = 256;

impl Kernel for Draw<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> Option<usize> {
        let Self { logits, temperature, mark, sums } = self;
        let top = unsafe { greatest(s, logits) };
        if top == f32::NEG_INFINITY {
            return None;
        }
        let scale = temperature.recip().min(f32::MAX);
        let mut weights = [0.0; CHUNK];
        sums.clear();
        for chunk in logits.chunks(CHUNK) {
            sums.push(f64::from(unsafe { weigh(s, chunk, top, scale, &mut weights) }));
        }
        let wanted = (f64::from(mark) + 0.5) / 2f64.powi(32) * sums.iter().sum::<f64>();
        let (c, before) = reach(sums.iter().copied(), wanted);
        let chunk = &logits[c * CHUNK..logits.len().min((c + 1) * CHUNK)];
        unsafe { weigh(s, chunk, top, scale, &mut weights) };
        let (i, _) = reach(weights[..chunk.len()].iter().map(|w| f64::from(*w)), wanted - before);
        Some(c * CHUNK + i)
    }
}

/// The greatest logit; NaN does not count.
#[inline(always)]
unsafe fn greatest<S: Simd>(s: S, logits: &[f32]) -> f32 {
    let chunks = logits.chunks_exact(S::LANES);
    let rest = chunks.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    unsafe {
        let mut top = s.splat(f32::NEG_INFINITY);
        for chunk in chunks {
            // The order of operands keeps NaN out.
            top = s.max(s.load(chunk.as_ptr()), top);
        }
        s.largest(top).max(rest)
    }
}

/// e^((x - top) * scale) of each logit, 0 of NaN; returns the sum.
#[inline(always)]
unsafe fn weigh<S: Simd>(s: S, chunk: &[f32], top: f32, scale: f32, weights: &mut [f32; CHUNK]) -> f32 {
    let whole = chunk.len() / S::LANES * S::LANES;
    for i in whole..chunk.len() {
        weights[i] = ((chunk[i].max(f32::NEG_INFINITY) - top) * scale).exp();
    }
    let rest: f32 = weights[whole..chunk.len()].iter().sum();
    unsafe {
        let mut sums = s.splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            let x = s.max(s.load(chunk.as_ptr().add(i)), s.splat(f32::NEG_INFINITY));
            let weight = exp(s, s.mul(s.sub(x, s.splat(top)), s.splat(scale)));
            s.store(weights.as_mut_ptr().add(i), weight);
            sums = s.add(sums, weight);
        }
        s.sum(sums) + rest
    }
}

/// The first part with which the sum exceeds `wanted`, and the sum before it; the last part that is not 0 where rounding has
/// left none.
fn reach(parts: impl Iterator<Item = f64>, wanted: f64) -> (usize, f64) {
    let (mut sum, mut last) = (0.0, (0, 0.0));
    for (i, part) in parts.enumerate() {
        if part > 0.0 {
            last = (i, sum);
            sum += part;
            if sum > wanted {
                break;
            }
        }
    }
    last
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
