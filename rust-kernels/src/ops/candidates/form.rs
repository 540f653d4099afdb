//! Applies the model's own transform to its logits: a scale and a softcap.
use crate::kernels::activations::{Function, Tanh};
use crate::simd::{Kernel, Simd};

/// The model's transform of its logits: multiplies by `scale`, then applies softcap * tanh(x / softcap) unless
/// `softcap` is 0.
#[derive(Clone, Copy)]
pub struct LogitTransform {
    pub scale: f32,
    pub softcap: f32,
}

impl LogitTransform {
    pub fn is_plain(self) -> bool {
        self.scale == 1.0 && self.softcap == 0.0
    }
}

/// Kernel that transforms logits in place. NaN stays NaN.
pub struct TransformLogits<'a> {
    pub logits: &'a mut [f32],
    pub form: LogitTransform,
}

impl Kernel for TransformLogits<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let (chunks, rest) = split(self.logits, S::LANES);
        for chunk in chunks {
            unsafe { s.store(chunk.as_mut_ptr(), formed(s, self.form, s.load(chunk.as_ptr()))) }
        }
        // The last few logits are computed in the same way, on a copy padded to a whole vector.
        let mut padded = [0f32; 16];
        padded[..rest.len()].copy_from_slice(rest);
        unsafe { s.store(padded.as_mut_ptr(), formed(s, self.form, s.load(padded.as_ptr()))) }
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

/// Splits logits into whole vectors and the rest.
fn split(logits: &mut [f32], lanes: usize) -> (std::slice::ChunksExactMut<'_, f32>, &mut [f32]) {
    let (whole, rest) = logits.split_at_mut(logits.len() / lanes * lanes);
    (whole.chunks_exact_mut(lanes), rest)
}

#[inline(always)]
fn formed<S: Simd>(s: S, form: LogitTransform, logits: S::F) -> S::F {
    let x = s.mul(logits, s.splat(form.scale));
    if form.softcap == 0.0 {
        return x;
    }
    let cap = s.splat(form.softcap);
    s.mul(cap, Tanh::of(s, s.div(x, cap)))
}
