//! Changes a row's logits as its request asks: penalties, bias and masks.
use super::survey::{CHUNK, Row, largest_of};
use crate::simd::{Kernel, Simd};

/// A request's penalties, and how often each token occurs in its text so far.
pub struct Penalties<'a> {
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
    pub tokens: &'a [i32],
    pub counts: &'a [i32],
}

/// Applies penalties and bias to a row's logits. `raw` receives the original (token, logit) of each changed token,
/// sorted by token.
pub fn adjust(row: &mut Row, penalties: &Penalties, bias: (&[i32], &[f32]), raw: &mut Vec<(i32, f32)>) {
    raw.clear();
    let touched = penalties.tokens.iter().chain(bias.0);
    raw.extend(touched.map(|t| (*t, row.logits[*t as usize])));
    raw.sort_unstable_by_key(|pair| pair.0);
    raw.dedup_by_key(|pair| pair.0);
    for (token, count) in penalties.tokens.iter().zip(penalties.counts) {
        let mut x = row.logits[*token as usize];
        x = if x > 0.0 { x / penalties.repetition } else { x * penalties.repetition };
        if *count > 0 {
            x -= penalties.presence + penalties.frequency * *count as f32;
        }
        row.set(*token as usize, x);
    }
    for (token, value) in bias.0.iter().zip(bias.1) {
        row.set(*token as usize, row.logits[*token as usize] + value);
    }
}

/// Kernel that sets the logits of all tokens without a bit in `mask` to -infinity.
pub struct ApplyMask<'a, 'b> {
    pub row: &'a mut Row<'b>,
    pub mask: &'a [u32],
}

impl Kernel for ApplyMask<'_, '_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Row { logits, maxima } = self.row;
        for ((words, chunk), largest) in
            self.mask.chunks(CHUNK / 32).zip(logits.chunks_mut(CHUNK)).zip(maxima.iter_mut())
        {
            if words.iter().all(|word| *word == u32::MAX) {
                continue;
            }
            if words.iter().all(|word| *word == 0) {
                chunk.fill(f32::NEG_INFINITY);
                *largest = f32::NEG_INFINITY;
                continue;
            }
            for (word, part) in words.iter().zip(chunk.chunks_mut(32)) {
                remove(part, *word);
            }
            // SAFETY: the kernel's only operand is a slice.
            *largest = unsafe { largest_of(s, chunk) };
        }
    }
}

/// Sets the logits whose bit in `word` is 0 to -infinity. Masks of texts often forbid few tokens of a word; then only
/// these logits are visited.
#[inline(always)]
fn remove(part: &mut [f32], word: u32) {
    if word.count_zeros() > 8 {
        for (i, x) in part.iter_mut().enumerate() {
            *x = if word >> i & 1 == 0 { f32::NEG_INFINITY } else { *x };
        }
        return;
    }
    let mut forbidden = !word;
    while forbidden != 0 {
        if let Some(x) = part.get_mut(forbidden.trailing_zeros() as usize) {
            *x = f32::NEG_INFINITY;
        }
        forbidden &= forbidden - 1;
    }
}
