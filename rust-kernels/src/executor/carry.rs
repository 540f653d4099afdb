//! What a sequence carries from token to token in layers without a KV cache lies in its slot.
use super::Run;
use crate::step::Sequence;
use std::ops::Range;

impl Run<'_> {
    /// Lets `work` take `len` floats of the sequence's state, `offset` into its slot, through its tokens: from where the
    /// step finds it, and copied wherever the step wants it kept.
    pub fn carry(&self, sequence: &Sequence, offset: usize, len: usize, work: impl Fn(Range<usize>, *mut f32)) {
        let state = sequence.state.as_ref().expect("checked when the step was decoded");
        let slot_floats = self.p.recurrent.slot_floats;
        let at = |slot: usize| self.e.states.at(4 * (slot * slot_floats + offset)).cast::<f32>();
        let own = at(state.write);
        // SAFETY: slots were checked when the step was decoded: no two sequences write one, or one that another reads.
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
