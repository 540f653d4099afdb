//! Gives an op the recurrent state of a sequence. Each sequence has a slot for its layers without a KV cache.
use super::Run;
use crate::step::Sequence;
use std::ops::Range;

impl Run<'_> {
    /// Runs `work` on the sequence's tokens and on `len` floats of its state, which start `offset` floats into its
    /// slot. Then copies these floats to each slot in which the step saves the state.
    pub fn carry(&self, sequence: &Sequence, offset: usize, len: usize, work: impl Fn(Range<usize>, *mut f32)) {
        let state = sequence.state.as_ref().expect("checked when the step was decoded");
        let slot_floats = self.p.recurrent.slot_floats;
        let at = |slot: usize| self.e.states.at(4 * (slot * slot_floats + offset)).cast::<f32>();
        let own = at(state.write);
        // SAFETY: step decoding checked the slots: no sequence writes a slot that another one reads or writes.
        unsafe {
            match state.read {
                None => own.write_bytes(0, len),
                Some(from) if from != state.write => own.copy_from_nonoverlapping(at(from), len),
                Some(_) => {}
            }
        }
        let mut done = 0;
        for save in &state.saves {
            work(done..save.after, own);
            // SAFETY: step decoding checked the slots, as above: no sequence writes a slot that another one uses.
            unsafe { at(save.slot).copy_from_nonoverlapping(own, len) };
            done = save.after;
        }
        if done < sequence.length {
            work(done..sequence.length, own);
        }
    }
}
