//! From a row of logits to its best candidates and the log of the sum of exponentials.
use crate::simd::{Kernel, Simd, exp};

/// Candidates as (logit, token).
pub type Best = Vec<(f32, i32)>;

/// Counts of a token in the text so far.
pub struct Penalties<'a> {
    pub repetition: f32,
    pub presence: f32,
    pub frequency: f32,
    pub tokens: &'a [i32],
    pub counts: &'a [i32],
}

/// The sum of a[i] * b[i].
///
/// # Safety
/// `a` and `b` hold `n` floats, a multiple of LANES; S as simd says.
#[inline(always)]
pub unsafe fn dot<S: Simd>(a: *const f32, b: *const f32, n: usize) -> f32 {
    unsafe {
        let mut sum = S::splat(0.0);
        for i in (0..n).step_by(S::LANES) {
            sum = S::fma(S::load(a.add(i)), S::load(b.add(i)), sum);
        }
        S::sum(sum)
    }
}

/// `dot` as a kernel.
///
/// # Safety
/// As `dot`.
pub struct Dot {
    pub a: *const f32,
    pub b: *const f32,
    pub n: usize,
}

impl Kernel for Dot {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        unsafe { dot::<S>(self.a, self.b, self.n) }
    }
}

/// log(sum(e^x)) of logits.
pub struct LogSumExp<'a>(pub &'a [f32]);

impl Kernel for LogSumExp<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        let logits = self.0;
        unsafe {
            let whole = logits.len() / S::LANES * S::LANES;
            let mut largest = S::splat(f32::NEG_INFINITY);
            for chunk in logits[..whole].chunks_exact(S::LANES) {
                largest = S::max(largest, S::load(chunk.as_ptr()));
            }
            let top = logits[whole..].iter().copied().fold(S::largest(largest), f32::max);
            let mut sums = S::splat(0.0);
            for chunk in logits[..whole].chunks_exact(S::LANES) {
                sums = S::add(sums, exp::<S>(S::sub(S::load(chunk.as_ptr()), S::splat(top))));
            }
            let rest: f32 = logits[whole..].iter().map(|x| (x - top).exp()).sum();
            top + (S::sum(sums) + rest).ln()
        }
    }
}

/// Applies penalties and bias in place; `raw` receives (token, logit before) of each token touched, sorted.
pub fn adjust(logits: &mut [f32], penalties: &Penalties, bias: (&[i32], &[f32]), raw: &mut Vec<(i32, f32)>) {
    raw.clear();
    let touched = penalties.tokens.iter().chain(bias.0);
    raw.extend(touched.map(|t| (*t, logits[*t as usize])));
    raw.sort_unstable_by_key(|pair| pair.0);
    raw.dedup_by_key(|pair| pair.0);
    for (token, count) in penalties.tokens.iter().zip(penalties.counts) {
        let x = &mut logits[*token as usize];
        *x = if *x > 0.0 { *x / penalties.repetition } else { *x * penalties.repetition };
        if *count > 0 {
            *x -= penalties.presence + penalties.frequency * *count as f32;
        }
    }
    for (token, value) in bias.0.iter().zip(bias.1) {
        logits[*token as usize] += value;
    }
}

/// Takes tokens out whose bit in `mask` is 0.
pub fn apply_mask(logits: &mut [f32], mask: &[u32]) {
    for (word, chunk) in mask.iter().zip(logits.chunks_mut(32)) {
        if *word != u32::MAX {
            for (i, x) in chunk.iter_mut().enumerate() {
                if word >> i & 1 == 0 {
                    *x = f32::NEG_INFINITY;
                }
            }
        }
    }
}

/// The `k` largest logits as (logit, token), best first; the lower token first among equals. NaN is never chosen.
pub struct Select<'a> {
    pub logits: &'a [f32],
    pub k: usize,
    pub best: &'a mut Best,
}

impl Kernel for Select<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { logits, k, best } = self;
        best.clear();
        // `best` collects up to 2k hopefuls above `floor`, then is cut back to k, which raises the floor.
        let mut floor = f32::NEG_INFINITY;
        for (c, chunk) in logits.chunks(64).enumerate() {
            if best.len() >= k && unsafe { largest::<S>(chunk) } <= floor {
                continue;
            }
            for (i, x) in chunk.iter().enumerate() {
                if *x > floor || (best.len() < k && !x.is_nan()) {
                    best.push((*x, (64 * c + i) as i32));
                    if best.len() == 2 * k {
                        floor = cut(best, k);
                    }
                }
            }
        }
        cut(best, k);
        best.sort_unstable_by(order);
    }
}

#[inline(always)]
unsafe fn largest<S: Simd>(chunk: &[f32]) -> f32 {
    if chunk.len() < 64 {
        return f32::INFINITY;
    }
    unsafe {
        let mut top = S::splat(f32::NEG_INFINITY);
        for i in (0..64).step_by(S::LANES) {
            // The order of operands keeps NaN out.
            top = S::max(S::load(chunk.as_ptr().add(i)), top);
        }
        S::largest(top)
    }
}

fn order(a: &(f32, i32), b: &(f32, i32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Keeps the k best, unsorted; returns the least of them.
fn cut(best: &mut Best, k: usize) -> f32 {
    if best.len() < k {
        return f32::NEG_INFINITY;
    }
    let floor = best.select_nth_unstable_by(k - 1, order).1.0;
    best.truncate(k);
    floor
}
