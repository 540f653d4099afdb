//! What goes back: the candidates of each row whose logits are wanted.
use super::Run;
use crate::ops::candidates::{Penalties, adjust, apply_mask};
use crate::pool::Items;
use crate::step::LogitsRequest;
use std::sync::atomic::AtomicUsize;

impl Run<'_> {
    pub(super) fn candidates(&self, logits: usize, next: &AtomicUsize) {
        let (mut best, mut raw) = (Vec::new(), Vec::new());
        for row in Items::new(next, self.step.logits.len(), 1).flatten() {
            let request = &self.step.logits[row];
            // SAFETY: one row of the buffer, which only this item touches.
            let logits = unsafe { std::slice::from_raw_parts_mut(self.float(logits, row), self.p.vocab) };
            let probed: Vec<f32> = request.probe.iter().map(|t| logits[*t as usize]).collect();
            // SAFETY: the table's promise.
            let total = unsafe { (self.k.log_sum_exp)(logits) };
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
            unsafe { (self.k.select)(logits, request.candidates, &mut best) };
            self.answer(request, total, &best, &raw, &probed);
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
