//! Draws a random token from the whole vocabulary, weighted by the softmax of the logits.
use super::survey::{CHUNK, Row};
use crate::simd::{Kernel, Simd, exp};

/// Draws a token from the whole vocabulary; `mark` is a random 32-bit number. Adds up e^(logit / temperature) in token
/// order, and returns the token at which the sum passes (mark + 1/2) / 2^32 of the total. Never draws a NaN. Returns
/// None if no logit is above -infinity.
pub struct Draw<'a, 'b> {
    pub row: &'a Row<'b>,
    pub temperature: f32,
    pub mark: u32,
    pub sums: &'a mut Vec<f64>,
}

/// Number of logits in each partial sum.
const SUMMED: usize = 4 * CHUNK;

impl Kernel for Draw<'_, '_> {
    type Output = Option<usize>;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> Option<usize> {
        let Self { row, temperature, mark, sums } = self;
        let top = row.top();
        if top == f32::NEG_INFINITY {
            return None;
        }
        let scale = temperature.recip().min(f32::MAX);
        let mut weights = [0.0; SUMMED];
        sums.clear();
        for (part, maxima) in row.logits.chunks(SUMMED).zip(row.maxima.chunks(SUMMED / CHUNK)) {
            let empty = maxima.iter().all(|largest| *largest == f32::NEG_INFINITY);
            sums.push(if empty { 0.0 } else { f64::from(unsafe { weigh(s, part, top, scale, &mut weights) }) });
        }
        let wanted = (f64::from(mark) + 0.5) / 2f64.powi(32) * sums.iter().sum::<f64>();
        let (c, before) = reach(sums.iter().copied(), wanted);
        let part = &row.logits[c * SUMMED..row.logits.len().min((c + 1) * SUMMED)];
        unsafe { weigh(s, part, top, scale, &mut weights) };
        let (i, _) = reach(weights[..part.len()].iter().map(|w| f64::from(*w)), wanted - before);
        Some(c * SUMMED + i)
    }
}

/// Writes the logits' weights e^((x - top) * scale), 0 for NaN. Returns the sum of the weights.
#[inline(always)]
unsafe fn weigh<S: Simd>(s: S, part: &[f32], top: f32, scale: f32, weights: &mut [f32; SUMMED]) -> f32 {
    let whole = part.len() / S::LANES * S::LANES;
    for i in whole..part.len() {
        weights[i] = ((part[i].max(f32::NEG_INFINITY) - top) * scale).exp();
    }
    let rest: f32 = weights[whole..part.len()].iter().sum();
    unsafe {
        let mut sums = s.splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            let x = s.max(s.load(part.as_ptr().add(i)), s.splat(f32::NEG_INFINITY));
            let weight = exp(s, s.mul(s.sub(x, s.splat(top)), s.splat(scale)));
            s.store(weights.as_mut_ptr().add(i), weight);
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
