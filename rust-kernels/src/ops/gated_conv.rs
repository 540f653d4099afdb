//! Op: the gated short convolution of LFM2. This is a causal convolution per channel, with one gate before it and one
//! behind it. Source: "LFM2 Technical Report" (arXiv 2511.23404), section 2.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::formats::BLOCK;
use crate::kernels::norm::Outputs;
use crate::program::{Operands, Out, Program};
use crate::simd::{Kernel, Simd};

/// Maximum number of inputs of a result: the token's own input and the inputs of earlier tokens.
pub const MOST_TAPS: usize = 16;
/// Number of channels per item of work: two blocks of quantized activations.
const CHANNELS: usize = 2 * BLOCK;

pub struct GatedConv {
    /// Buffer whose rows have three parts: gate before, gate behind, input.
    x: usize,
    /// Convolution weights, [block of channels][tap][channel of the block].
    weights: Vec<f32>,
    taps: usize,
    channels: usize,
    /// Offset in floats from a slot's start to the layer's state, which is [block of channels][taps - 1][channel of the
    /// block].
    state: usize,
    out: Out,
}

impl Decode for GatedConv {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, weight, layer, taps, out) = (o.step_float(None)?, o.size()?, o.size()?, o.size()?, o.fine_out()?);
        let channels = o.columns(out)?;
        if !(2..=MOST_TAPS).contains(&taps) || !channels.is_multiple_of(BLOCK) {
            bail!("a gated convolution of {taps} taps over {channels} channels is not supported");
        }
        o.width(out, channels)?;
        o.same_rows(&[Some(x), out.float, out.quant, out.fine])?;
        o.is_float(x, Some(3 * channels))?;
        let weights = by_block(o.vector(weight, taps * channels)?, taps);
        let state = o.conv_state(layer, taps - 1, channels)?;
        Ok(Self { x, weights, taps, channels, state, out })
    }
}

/// Reorders convolution weights from [channel][tap] to the kernel's order.
fn by_block(weights: &[f32], taps: usize) -> Vec<f32> {
    let blocks = weights.chunks(taps * CHANNELS);
    blocks.flat_map(|block| (0..taps).flat_map(move |tap| block.iter().skip(tap).step_by(taps))).copied().collect()
}

impl Op for GatedConv {
    fn scratch(&self, _: &Program) -> usize {
        CHANNELS
    }

    fn run(&self, run: &Run, work: &Work) {
        let &Self { taps, channels, .. } = self;
        let (blocks, stride, out) = (channels.div_ceil(CHANNELS), run.stride(self.x), run.outputs(self.out));
        for item in work.items(run.step.sequences.len() * blocks).flatten() {
            let (sequence, column) = (&run.step.sequences[item / blocks], item % blocks * CHANNELS);
            let count = CHANNELS.min(channels - column);
            let (offset, len) = (self.state + column * (taps - 1), count * (taps - 1));
            run.carry(sequence, offset, len, |tokens, state| {
                let row = sequence.start + tokens.start;
                // SAFETY: decoding checked the widths; each block of channels of a sequence is one item.
                unsafe {
                    run.isa.run(GatedConvBlock {
                        x: run.float(self.x, row).add(column),
                        stride,
                        width: channels,
                        tokens: tokens.len(),
                        weights: self.weights.as_ptr().add(column * taps),
                        taps,
                        state,
                        count,
                        out: &out,
                        row,
                        column,
                        scratch: work.scratch,
                    });
                }
            });
        }
    }
}

/// Computes a block of channels for tokens of one sequence, token by token: y = behind * (sum of weights * gated
/// inputs). A gated input is the input times its own gate `before`.
///
/// # Safety
/// The pointers hold what their comments say. `count` is a multiple of 32, `taps` at least 2. The outputs have rows
/// from `row` on.
pub struct GatedConvBlock<'a> {
    /// Address of the first token's first channel in the first of three parts, which are `width` apart: gate before,
    /// gate behind, input.
    pub x: *const f32,
    pub width: usize,
    /// Number of floats from one token to the next in x.
    pub stride: usize,
    pub tokens: usize,
    /// Convolution weights, [taps][count], oldest input first.
    pub weights: *const f32,
    pub taps: usize,
    /// The gated inputs before the first token, [taps - 1][count], oldest first. The kernel replaces them by those
    /// before the next token.
    pub state: *mut f32,
    pub count: usize,
    pub out: &'a Outputs,
    /// Where the results go in the outputs: the row of the first token, and the column of the first channel.
    pub row: usize,
    pub column: usize,
    /// Scratch memory of `count` floats.
    pub scratch: *mut f32,
}

impl Kernel for GatedConvBlock<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { width, stride, tokens, weights, taps, state, count, out, row, column, scratch, .. } = self;
        unsafe {
            for t in 0..tokens {
                let x = self.x.add(t * stride);
                for c in (0..count).step_by(S::LANES) {
                    let (weights, past) = (weights.add(c), state.add(c));
                    let (before, behind) = (s.load(x.add(c)), s.load(x.add(width + c)));
                    let input = s.mul(before, s.load(x.add(2 * width + c)));
                    let mut y = s.mul(s.load(weights), s.load(past));
                    for i in 1..taps - 1 {
                        let older = s.load(past.add(i * count));
                        y = s.fma(s.load(weights.add(i * count)), older, y);
                        s.store(past.add((i - 1) * count), older);
                    }
                    y = s.fma(s.load(weights.add((taps - 1) * count)), input, y);
                    s.store(past.add((taps - 2) * count), input);
                    s.store(scratch.add(c), s.mul(behind, y));
                }
                out.put(s, scratch, count, row + t, column);
            }
        }
    }
}
