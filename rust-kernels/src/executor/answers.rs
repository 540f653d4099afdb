//! What goes back: the candidates of each row whose logits are wanted.
use super::{Run, Scratch};
use crate::ops::candidates::Dot;
use crate::ops::candidates::LogSumExp;
use crate::ops::candidates::Select;
use crate::ops::candidates::{Penalties, adjust, apply_mask};
use crate::pool::Items;
use crate::program::Exact;
use crate::step::LogitsRequest;
use std::sync::atomic::AtomicUsize;

/// Logits of a row that are computed twice: all that a request may have reported (20), and those that may overtake them.
const SHARPENED: usize = 32;

impl Run<'_> {
    pub(super) fn candidates(&self, logits: usize, exact: Option<Exact>, next: &AtomicUsize, scratch: &Scratch) {
        let (mut best, mut raw) = (Vec::new(), Vec::new());
        for row in Items::new(next, self.step.logits.len(), 1).flatten() {
            let request = &self.step.logits[row];
            // SAFETY: one row of the buffer, which only this item touches.
            let logits = unsafe { std::slice::from_raw_parts_mut(self.float(logits, row), self.p.vocab) };
            if let Some(exact) = exact {
                // SAFETY: its operands are a slice.
                unsafe { self.isa.run(Select { logits, k: SHARPENED, best: &mut best }) };
                let tokens = best.iter().map(|(_, token)| *token).chain(request.probe.iter().copied());
                self.sharpen(exact, row, tokens, logits, scratch);
            }
            let probed: Vec<f32> = request.probe.iter().map(|t| logits[*t as usize]).collect();
            // SAFETY: its operands are a slice.
            let total = unsafe { self.isa.run(LogSumExp(logits)) };
            let penalties = Penalties {
                repetition: request.repetition,
                presence: request.presence,
                frequency: request.frequency,
                tokens: &request.penalty_tokens,
                counts: &request.penalty_counts,
            };
            adjust(logits, &penalties, (&request.bias_tokens, &request.bias_values), &mut raw);
            apply_mask(logits, &request.mask);
            // SAFETY: as above.
            unsafe { self.isa.run(Select { logits, k: request.candidates, best: &mut best }) };
            self.answer(request, total, &best, &raw, &probed);
        }
    }

    /// Computes the logits of `tokens` again, from the row as it was before it was rounded to 8 bits.
    fn sharpen(&self, e: Exact, row: usize, tokens: impl Iterator<Item = i32>, logits: &mut [f32], scratch: &Scratch) {
        let (m, x) = (self.matrix(e.weight), self.float(e.x, row));
        for token in tokens {
            // SAFETY: the token is below the matrix's rows; the scratch row and x hold its columns.
            unsafe {
                self.decode_row(m, token as usize, scratch.row);
                logits[token as usize] = self.isa.run(Dot { a: scratch.row, b: x, n: m.columns });
            }
        }
    }

    /// Writes one request's answer; the words are laid out in `LogitsRequest::answer_words`.
    fn answer(&self, request: &LogitsRequest, total: f32, best: &[(f32, i32)], raw: &[(i32, f32)], probed: &[f32]) {
        let put = |at: usize, word: u32| {
            // SAFETY: `run` checked the output's size against the sum of all answers.
            unsafe { self.output.add(4 * (request.answer + at)).cast::<[u8; 4]>().write(word.to_le_bytes()) }
        };
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
}
