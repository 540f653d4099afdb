//! Recurrent state: each sequence has a slot for its layers without a KV cache.
use super::Run;
use crate::step::Sequence;
use std::ops::Range;

impl Run<'_> {
    /// Runs `work` over the sequence's tokens, on `len` floats of its state, `offset` floats into its slot. Copies
    /// the state to the slots that the step saves.
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
            // SAFETY: as above.
            unsafe { at(save.slot).copy_from_nonoverlapping(own, len) };
            done = save.after;
        }
        if done < sequence.length {
            work(done..sequence.length, own);
        }
    }
}
