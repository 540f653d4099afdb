//! Op: a short causal convolution per channel, then silu. Gated DeltaNet applies it to queries, keys and values; Mamba2
//! to x, B and C. Sources: "Gated Delta Networks" (arXiv 2412.06464), section 3.4; "Transformers are SSMs" (arXiv
//! 2405.21060), section 7.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::silu;
use crate::program::{ConvHeads, Operands};
use crate::simd::{Kernel, Simd};

pub struct ShortConv {
    x: usize,
    /// The column of the first channel.
    first: usize,
    /// Convolution weights, [head][tap][channel of the head].
    taps: Vec<f32>,
    bias: Option<usize>,
    heads: ConvHeads,
    eps: f32,
}

impl Decode for ShortConv {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, first, weight) = (o.step_float(None)?, o.size()?, o.size()?);
        let (keys, values, bias) = (o.optional()?, o.optional()?, o.optional()?);
        let (heads, eps) = (o.conv_heads()?, o.f32()?);
        let (channels, columns) = (heads.channels(), o.buffer(x)?.columns);
        if first.checked_add(channels).is_none_or(|end| end > columns) {
            bail!("{channels} channels from column {first} on do not fit a buffer of {columns} columns");
        }
        let taps = match [keys, values] {
            [None, None] => by_head(o.vector(weight, TAPS * channels)?, heads.head_dim),
            [Some(keys), Some(values)] => {
                let keyed = heads.key_heads * heads.head_dim;
                let mut taps = Vec::with_capacity(TAPS * channels);
                for (part, channels) in [(weight, keyed), (keys, keyed), (values, channels - 2 * keyed)] {
                    taps.extend(by_head(o.vector(part, TAPS * channels)?, heads.head_dim));
                }
                taps
            }
            _ => bail!("the weights of keys and values must come together"),
        };
        if let Some(bias) = bias {
            o.vector(bias, channels)?;
        }
        Ok(Self { x, first, taps, bias, heads, eps })
    }
}

/// Reorders convolution weights from [channel][tap] to the kernel's order, [head][tap][channel of the head].
fn by_head(weights: &[f32], head_dim: usize) -> Vec<f32> {
    let heads = weights.chunks_exact(TAPS * head_dim);
    heads.flat_map(|head| (0..TAPS).flat_map(move |tap| head.iter().skip(tap).step_by(TAPS))).copied().collect()
}

impl Op for ShortConv {
    fn run(&self, run: &Run, work: &Work) {
        let h = &self.heads;
        let (dim, stride) = (h.head_dim, run.stride(self.x));
        let bias = self.bias.map(|bias| run.vector(bias, h.channels()));
        for item in work.items(run.step.sequences.len() * h.heads).flatten() {
            let (sequence, head) = (&run.step.sequences[item / h.heads], item % h.heads);
            // Keys get length 1. Queries get length 1 / sqrt(dim), which includes attention's usual factor.
            let length = match head {
                q if q < h.key_heads => 1.0 / (dim as f32).sqrt(),
                k if k < 2 * h.key_heads => 1.0,
                _ => 0.0,
            };
            let len = (TAPS - 1) * dim;
            run.carry(sequence, run.p.recurrent.layers[h.layer].offset + head * len, len, |tokens, state| {
                // SAFETY: decoding checked the widths; each head of a sequence is one item.
                unsafe {
                    run.isa.run(&ConvHead {
                        x: run.float(self.x, sequence.start + tokens.start).add(self.first + head * dim),
                        stride,
                        tokens: tokens.len(),
                        taps: self.taps.as_ptr().add(head * TAPS * dim),
                        bias: bias.map_or(std::ptr::null(), |bias| bias.add(head * dim)),
                        state,
                        dim,
                        length,
                        eps: self.eps,
                    });
                }
            });
        }
    }
}

/// Number of inputs of a result: the token's own input and the inputs of the tokens before it.
pub const TAPS: usize = 4;

/// The channels of one head, and the tokens of one sequence.
pub struct ConvHead {
    /// The inputs: token t's are at `x + t * stride`. The kernel overwrites them with the results.
    pub x: *mut f32,
    pub stride: usize,
    pub tokens: usize,
    /// Convolution weights, [TAPS][dim], oldest input first.
    pub taps: *const f32,
    /// The bias, one number per channel ([dim]), or null.
    pub bias: *const f32,
    /// The inputs before the first token, [TAPS - 1][dim], oldest first. The kernel replaces them by those before the
    /// next token.
    pub state: *mut f32,
    pub dim: usize,
    /// Length to which each result vector is scaled; 0 turns scaling off.
    pub length: f32,
    /// Lower bound of the length by which a vector is divided.
    pub eps: f32,
}

/// Computes y = silu(bias + sum of taps * inputs), scaled to `length`, token by token.
///
/// # Safety
/// The pointers hold what the struct says; dim is a multiple of 16.
impl Kernel for &ConvHead {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let a = self;
        unsafe {
            for t in 0..a.tokens {
                let x = a.x.add(t * a.stride);
                let mut squares = s.splat(0.0);
                for c in (0..a.dim).step_by(S::LANES) {
                    let (taps, past) = (a.taps.add(c), a.state.add(c));
                    let input = s.load(x.add(c));
                    let mut y = if a.bias.is_null() {
                        s.mul(s.load(taps), s.load(past))
                    } else {
                        s.fma(s.load(taps), s.load(past), s.load(a.bias.add(c)))
                    };
                    for i in 1..TAPS - 1 {
                        let older = s.load(past.add(i * a.dim));
                        y = s.fma(s.load(taps.add(i * a.dim)), older, y);
                        s.store(past.add((i - 1) * a.dim), older);
                    }
                    y = s.fma(s.load(taps.add((TAPS - 1) * a.dim)), input, y);
                    s.store(past.add((TAPS - 2) * a.dim), input);
                    let y = silu(s, y);
                    squares = s.fma(y, y, squares);
                    s.store(x.add(c), y);
                }
                if a.length > 0.0 {
                    let factor = s.splat(a.length / s.sum(squares).sqrt().max(a.eps));
                    for c in (0..a.dim).step_by(S::LANES) {
                        s.store(x.add(c), s.mul(s.load(x.add(c)), factor));
                    }
                }
            }
        }
    }
}
