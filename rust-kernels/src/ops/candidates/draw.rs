//! Draws a random token from the whole vocabulary, weighted by the softmax of the logits.
use super::survey::{CHUNK, Row};
use crate::simd::{Kernel, Simd, exp};
use std::mem::MaybeUninit;

/// Number of logits in each partial sum.
pub const SUMMED: usize = 4 * CHUNK;

/// Kernel that returns the sum of the weights e^((logit - top) / temperature) over at most SUMMED logits. `top` is the
/// row's largest logit.
pub struct Weigh<'a, 'b> {
    pub part: &'a Row<'b>,
    pub top: f32,
    pub temperature: f32,
}

impl Kernel for Weigh<'_, '_> {
    type Output = f64;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> f64 {
        let Self { part: Row { logits, maxima }, top, temperature } = self;
        if maxima.iter().all(|largest| *largest == f32::NEG_INFINITY) {
            return 0.0;
        }
        let mut weights = MaybeUninit::<[f32; SUMMED]>::uninit();
        f64::from(unsafe { weigh(s, logits, top, scale_of(temperature), weights.as_mut_ptr().cast()) })
    }
}

/// Draws a token from the whole vocabulary; `mark` is a random 32-bit number. Adds up e^(logit / temperature) in token
/// order, and returns the token at which the sum passes (mark + 1/2) / 2^32 of the total. Never draws a NaN. Returns
/// None if no logit is above -infinity. `sums` has the result of `Weigh` for each part of SUMMED logits. `top` is the
/// row's largest logit.
pub struct Draw<'a, 'b> {
    pub row: &'a Row<'b>,
    pub top: f32,
    pub temperature: f32,
    pub mark: u32,
    pub sums: &'a [f64],
}

impl Kernel for Draw<'_, '_> {
    type Output = Option<usize>;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> Option<usize> {
        let Self { row, top, temperature, mark, sums } = self;
        if top == f32::NEG_INFINITY {
            return None;
        }
        let wanted = (f64::from(mark) + 0.5) / 2f64.powi(32) * sums.iter().sum::<f64>();
        let (c, before) = reach(sums.iter().copied(), wanted);
        let part = &row.logits[c * SUMMED..row.logits.len().min((c + 1) * SUMMED)];
        let mut weights = [0.0; SUMMED];
        unsafe { weigh(s, part, top, scale_of(temperature), weights.as_mut_ptr()) };
        let (i, _) = reach(weights[..part.len()].iter().map(|w| f64::from(*w)), wanted - before);
        Some(c * SUMMED + i)
    }
}

fn scale_of(temperature: f32) -> f32 {
    temperature.recip().min(f32::MAX)
}

/// Writes the logits' weights e^((x - top) * scale) to `weights`, and returns their sum. A NaN has the weight 0.
///
/// # Safety
/// `weights` has room for one float per logit of `part`.
#[inline(always)]
unsafe fn weigh<S: Simd>(s: S, part: &[f32], top: f32, scale: f32, weights: *mut f32) -> f32 {
    let whole = part.len() / S::LANES * S::LANES;
    let mut rest = 0.0;
    for (i, x) in part.iter().enumerate().skip(whole) {
        let weight = ((x.max(f32::NEG_INFINITY) - top) * scale).exp();
        unsafe { weights.add(i).write(weight) }
        rest += weight;
    }
    unsafe {
        let mut sums = s.splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            let x = s.max(s.load(part.as_ptr().add(i)), s.splat(f32::NEG_INFINITY));
            let weight = exp(s, s.mul(s.sub(x, s.splat(top)), s.splat(scale)));
            s.store(weights.add(i), weight);
            sums = s.add(sums, weight);
        }
        s.sum(sums) + rest
    }
}

/// Returns the index of the first part with which the running sum exceeds `wanted`, and the sum before that part. If
/// rounding leaves no such part, it returns the last part that is not 0.
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
