//! Layers without a KV cache: what a sequence carries from token to token lies in its slot.
use super::Run;
use super::scratch::Scratch;
use crate::ops::delta_rule::DeltaRule;
use crate::ops::short_conv::{ShortConv, TAPS};
use crate::pool::Items;
use crate::program::{DeltaHeads, Out};
use crate::step::Sequence;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

/// Operands of the delta rule.
pub(super) struct DeltaOperands {
    pub qkv: usize,
    pub gate: usize,
    pub alpha: usize,
    pub beta: usize,
    pub decay: usize,
    pub bias: usize,
    pub norm: usize,
}

impl Run<'_> {
    /// Floats from a slot's start to a layer's states.
    fn layer_offset(&self, layer: usize) -> usize {
        layer * self.p.recurrent.layer_floats()
    }

    /// Lets `work` take `len` floats of the sequence's state, `offset` into its slot, through its tokens: from where the
    /// step finds it, and copied wherever the step wants it kept.
    fn carry(&self, sequence: &Sequence, offset: usize, len: usize, work: impl Fn(Range<usize>, *mut f32)) {
        let state = sequence.state.as_ref().expect("checked when the step was decoded");
        let slot_floats = self.p.recurrent.layers * self.p.recurrent.layer_floats();
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

    pub(super) fn short_conv<'i>(
        &self,
        x: usize,
        taps: &[f32],
        h: &DeltaHeads,
        eps: f32,
        items: impl Fn(usize) -> Items<'i>,
    ) {
        let (dim, stride) = (h.head_dim, self.p.buffers[x].stride());
        for item in items(self.step.sequences.len() * h.heads()).flatten() {
            let (sequence, head) = (&self.step.sequences[item / h.heads()], item % h.heads());
            // Keys are unit vectors, and queries too, but for attention's usual factor.
            let length = match head {
                q if q < h.key_heads => 1.0 / (dim as f32).sqrt(),
                k if k < 2 * h.key_heads => 1.0,
                _ => 0.0,
            };
            let len = (TAPS - 1) * dim;
            self.carry(sequence, self.layer_offset(h.layer) + head * len, len, |tokens, state| {
                // SAFETY: widths were checked at decode; each head of a sequence is one item.
                unsafe {
                    self.isa.run(&ShortConv {
                        x: self.float(x, sequence.start + tokens.start).add(head * dim),
                        stride,
                        tokens: tokens.len(),
                        taps: taps.as_ptr().add(head * TAPS * dim),
                        state,
                        dim,
                        length,
                        eps,
                    });
                }
            });
        }
    }

    pub(super) fn delta_rule(
        &self,
        o: &DeltaOperands,
        h: &DeltaHeads,
        eps: f32,
        out: Out,
        next: &AtomicUsize,
        s: &Scratch,
    ) {
        let dim = h.head_dim;
        let stride = |buffer: usize| self.p.buffers[buffer].stride();
        let outputs = self.outputs(out);
        let states = self.layer_offset(h.layer) + self.p.recurrent.conv_floats();
        for item in Items::new(next, self.step.sequences.len() * h.value_heads, 1).flatten() {
            let (sequence, head) = (&self.step.sequences[item / h.value_heads], item % h.value_heads);
            let key_head = head % h.key_heads;
            self.carry(sequence, states + head * dim * dim, dim * dim, |tokens, state| {
                let row = sequence.start + tokens.start;
                // SAFETY: as above; the vectors' lengths were checked at decode.
                unsafe {
                    let qkv = self.float(o.qkv, row);
                    self.isa.run(&DeltaRule {
                        q: qkv.add(key_head * dim),
                        k: qkv.add((h.key_heads + key_head) * dim),
                        v: qkv.add((2 * h.key_heads + head) * dim),
                        stride: stride(o.qkv),
                        gate: self.float(o.gate, row).add(head * dim),
                        gate_stride: stride(o.gate),
                        alpha: self.float(o.alpha, row).add(head),
                        alpha_stride: stride(o.alpha),
                        beta: self.float(o.beta, row).add(head),
                        beta_stride: stride(o.beta),
                        decay: *self.vector(o.decay, h.value_heads).add(head),
                        bias: *self.vector(o.bias, h.value_heads).add(head),
                        norm: self.vector(o.norm, dim),
                        eps,
                        state,
                        dim,
                        tokens: tokens.len(),
                        out: &outputs,
                        row,
                        column: head * dim,
                        scratch: s.delta,
                    });
                }
            });
        }
    }
}
