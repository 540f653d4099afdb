//! A short causal convolution over each channel's own past, then silu: what a Gated DeltaNet puts its queries, keys and
//! values through. Source: "Gated Delta Networks" (arXiv 2412.06464), section 3.4.
use crate::simd::{Kernel, Simd, exp};

/// Inputs that a result is made of: the token's own and those of the tokens before it.
pub const TAPS: usize = 4;

/// The channels of one head, over tokens of one sequence.
pub struct ShortConv {
    /// Token t's inputs at `x + t * stride`; the results take their place.
    pub x: *mut f32,
    pub stride: usize,
    pub tokens: usize,
    /// [TAPS][dim], the oldest input's first.
    pub taps: *const f32,
    /// [TAPS - 1][dim]: the inputs before the first token's, the oldest first; then those before the next token's.
    pub state: *mut f32,
    pub dim: usize,
    /// Length that each result vector is brought to; 0 leaves it as it is.
    pub length: f32,
    /// A vector shorter than this is divided by this instead.
    pub eps: f32,
}

/// y = silu(sum of taps * inputs), scaled to `length`, token after token.
///
/// # Safety
/// The pointers hold what the struct says, dim is a multiple of 16.
impl Kernel for &ShortConv {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let a = self;
        unsafe {
            for t in 0..a.tokens {
                let x = a.x.add(t * a.stride);
                let mut squares = S::splat(0.0);
                for c in (0..a.dim).step_by(S::LANES) {
                    let (taps, past) = (a.taps.add(c), a.state.add(c));
                    let input = S::load(x.add(c));
                    let mut y = S::mul(S::load(taps), S::load(past));
                    for i in 1..TAPS - 1 {
                        let older = S::load(past.add(i * a.dim));
                        y = S::fma(S::load(taps.add(i * a.dim)), older, y);
                        S::store(past.add((i - 1) * a.dim), older);
                    }
                    y = S::fma(S::load(taps.add((TAPS - 1) * a.dim)), input, y);
                    S::store(past.add((TAPS - 2) * a.dim), input);
                    let y = silu::<S>(y);
                    squares = S::fma(y, y, squares);
                    S::store(x.add(c), y);
                }
                if a.length > 0.0 {
                    let factor = S::splat(a.length / S::sum(squares).sqrt().max(a.eps));
                    for c in (0..a.dim).step_by(S::LANES) {
                        S::store(x.add(c), S::mul(S::load(x.add(c)), factor));
                    }
                }
            }
        }
    }
}

/// x / (1 + e^-x).
///
/// # Safety
/// S as simd says.
#[inline(always)]
pub unsafe fn silu<S: Simd>(x: S::F) -> S::F {
    unsafe {
        let negated = S::sub(S::splat(0.0), x);
        S::div(x, S::add(S::splat(1.0), exp::<S>(negated)))
    }
}
