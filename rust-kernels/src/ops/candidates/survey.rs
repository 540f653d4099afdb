//! Surveys all logits of a row in one pass, so that later selections can skip most of them.
use super::form::{LogitTransform, TransformLogits};
use crate::simd::{Kernel, Simd, exp};

/// Number of logits for which one maximum is stored.
pub const CHUNK: usize = 64;
/// Number of logits per part, a multiple of CHUNK. A part stays in the first-level cache during several passes over it.
pub const PART: usize = 1024;

/// The logits of a row, and the maximum of each CHUNK of them. NaN is ignored; a chunk of NaN has the maximum
/// -infinity.
pub struct Row<'a> {
    pub logits: &'a mut [f32],
    pub maxima: &'a mut [f32],
}

impl Row<'_> {
    /// Returns the number of maxima for `vocab` logits.
    pub const fn maxima(vocab: usize) -> usize {
        vocab.div_ceil(CHUNK)
    }

    pub fn set(&mut self, token: usize, logit: f32) {
        let before = std::mem::replace(&mut self.logits[token], logit);
        let first = token / CHUNK * CHUNK;
        let largest = &mut self.maxima[token / CHUNK];
        if logit > *largest {
            *largest = logit;
        } else if before == *largest {
            let end = self.logits.len().min(first + CHUNK);
            *largest = self.logits[first..end].iter().copied().fold(f32::NEG_INFINITY, f32::max);
        }
    }

    /// Returns the largest logit of the row.
    pub fn top(&self) -> f32 {
        self.maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// Kernel that transforms the logits, stores the maximum of each chunk, and returns the sums over all logits.
pub struct Survey<'a, 'b> {
    pub row: &'a mut Row<'b>,
    pub form: LogitTransform,
}

impl Kernel for Survey<'_, '_> {
    type Output = Sums;

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) -> Sums {
        let Self { row, form } = self;
        let mut all = Sums::NONE;
        for (part, maxima) in row.logits.chunks_mut(PART).zip(row.maxima.chunks_mut(PART / CHUNK)) {
            // SAFETY: all operands of the kernels are slices.
            unsafe {
                if !form.is_plain() {
                    TransformLogits { logits: part, form }.run(s);
                }
                let mut top = f32::NEG_INFINITY;
                for (chunk, largest) in part.chunks(CHUNK).zip(maxima) {
                    *largest = largest_of(s, chunk);
                    top = top.max(*largest);
                }
                all.add(sums_of(s, part, top));
            }
        }
        all
    }
}

/// Returns the largest number of a chunk; -infinity if the chunk has only NaN.
#[inline(always)]
pub unsafe fn largest_of<S: Simd>(s: S, chunk: &[f32]) -> f32 {
    let vectors = chunk.chunks_exact(S::LANES);
    let rest = vectors.remainder().iter().copied().fold(f32::NEG_INFINITY, f32::max);
    unsafe {
        let mut top = s.splat(f32::NEG_INFINITY);
        for vector in vectors {
            // With this order of operands `max` ignores NaN.
            top = s.max(s.load(vector.as_ptr()), top);
        }
        s.largest(top).max(rest)
    }
}

#[inline(always)]
unsafe fn sums_of<S: Simd>(s: S, part: &[f32], top: f32) -> Sums {
    // If no logit is above -infinity, a distance from the largest logit would be undefined.
    let top = if top == f32::NEG_INFINITY { 0.0 } else { top };
    let vectors = part.chunks_exact(S::LANES);
    let rest = vectors.remainder().iter().map(|x| f64::from(x - top));
    let (mut exps, mut distances, mut squares) = (s.splat(0.0), s.splat(0.0), s.splat(0.0));
    unsafe {
        for vector in vectors {
            let below = s.sub(s.load(vector.as_ptr()), s.splat(top));
            exps = s.add(exps, exp(s, below));
            distances = s.add(distances, below);
            squares = s.fma(below, below, squares);
        }
        Sums {
            count: part.len() as f64,
            top,
            exps: f64::from(s.sum(exps)) + rest.clone().map(f64::exp).sum::<f64>(),
            distances: f64::from(s.sum(distances)) + rest.clone().sum::<f64>(),
            squares: f64::from(s.sum(squares)) + rest.map(|x| x * x).sum::<f64>(),
        }
    }
}

/// Statistics of some logits x: how many there are, and the sums of e^(x - top), x - top and (x - top)^2. `top` is
/// their largest.
#[derive(Clone, Copy)]
pub struct Sums {
    count: f64,
    top: f32,
    exps: f64,
    distances: f64,
    squares: f64,
}

/// The two results of the sums over all logits.
pub struct Spread {
    /// Logarithm of the softmax's denominator: log(sum(e^x)).
    pub log_sum_exp: f32,
    /// Standard deviation of the logits.
    pub deviation: f32,
}

impl Sums {
    pub const NONE: Self = Self { count: 0.0, top: f32::NEG_INFINITY, exps: 0.0, distances: 0.0, squares: 0.0 };

    /// Adds the sums over further logits. The order of the calls changes the result, because each addition rounds.
    pub fn add(&mut self, other: Self) {
        let top = self.top.max(other.top);
        let (a, b) = (self.below(top), other.below(top));
        *self = Self {
            count: a.count + b.count,
            top,
            exps: a.exps + b.exps,
            distances: a.distances + b.distances,
            squares: a.squares + b.squares,
        };
    }

    /// Returns the same sums relative to another top.
    fn below(self, top: f32) -> Self {
        if self.top == top || self.count == 0.0 {
            return Self { top, ..self };
        }
        let shift = f64::from(self.top) - f64::from(top);
        Self {
            top,
            exps: self.exps * shift.exp(),
            distances: self.distances + self.count * shift,
            squares: self.squares + shift * (2.0 * self.distances + self.count * shift),
            ..self
        }
    }

    /// Updates the sums as if the logit `before` had been `now`.
    pub fn replace(&mut self, before: f32, now: f32) {
        if before == now {
            return;
        }
        let [before, now] = [before, now].map(|x| f64::from(x) - f64::from(self.top));
        self.exps += now.exp() - before.exp();
        self.distances += now - before;
        self.squares += now * now - before * before;
    }

    pub fn spread(&self) -> Spread {
        let mean = self.distances / self.count;
        let variance = self.squares / self.count - mean * mean;
        Spread {
            log_sum_exp: (f64::from(self.top) + self.exps.ln()) as f32,
            deviation: variance.max(0.0).sqrt() as f32,
        }
    }
}
