//! Op: Mamba2's recurrence, token by token, with a tile of the state in the first-level cache.
//!
//! A head's state is a matrix h [channel][state size]. Each token computes h <- a h + dt x B^T with dt =
//! softplus(step + bias) and a = e^(decay dt). It reads y = h C + skip x, and the result is y silu(gate). Memory
//! holds H = h / s, where s is the product of all a. A token then costs two multiply-adds per element, H += (dt / s)
//! x B^T and y += H C, and no product with a. If s leaves the range in which f32 can divide by it, H is multiplied by
//! s and s restarts at 1. This depends only on the head's own tokens.
//!
//! Each lane holds one channel, and channels are independent. A tile of channels goes through a chunk of tokens,
//! several at a time while an element is in a register. Each element sums tokens in order, and each token sums elements
//! in order. So no sum depends on where a step ends. Sums of chunked matrix products would depend on that, and they
//! cost the same number of multiply-adds. Source: "Transformers are SSMs" (arXiv 2405.21060), section 7.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::silu;
use crate::kernels::softplus::softplus;
use crate::program::{MambaHeads, Operands};
use crate::simd::{Kernel, Simd, exp};

pub struct Mamba2 {
    x: usize,
    decay: usize,
    skip: usize,
    bias: usize,
    heads: MambaHeads,
}

impl Decode for Mamba2 {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, decay, skip, bias) = (o.step_float(None)?, o.size()?, o.size()?, o.size()?);
        let heads = o.mamba_heads()?;
        o.is_float(x, Some(heads.columns()))?;
        for vector in [decay, skip, bias] {
            o.vector(vector, heads.heads)?;
        }
        Ok(Self { x, decay, skip, bias, heads })
    }
}

impl Op for Mamba2 {
    fn run(&self, run: &Run, work: &Work) {
        let h = &self.heads;
        let (inner, vectors) = (h.inner(), h.vectors());
        let carried = run.p.recurrent.layers[h.layer];
        let states = carried.offset + carried.conv_floats();
        let len = state_len(h.head_dim, h.state_size);
        for item in work.single_items(run.step.sequences.len() * h.heads).flatten() {
            let (sequence, head) = (&run.step.sequences[item / h.heads], item % h.heads);
            let group = head / (h.heads / h.groups);
            run.carry(sequence, states + head * len, len, |tokens, state| {
                // SAFETY: decoding checked the widths and vector lengths; each head of a sequence is one item.
                unsafe {
                    let row = run.float(self.x, sequence.start + tokens.start);
                    run.isa.run(&MambaHead {
                        gate: row.add(head * h.head_dim),
                        x: row.add(inner + head * h.head_dim),
                        write: row.add(2 * inner + group * h.state_size),
                        read: row.add(2 * inner + vectors + group * h.state_size),
                        step: row.add(2 * inner + 2 * vectors + head),
                        stride: run.stride(self.x),
                        decay: *run.vector(self.decay, h.heads).add(head),
                        skip: *run.vector(self.skip, h.heads).add(head),
                        bias: *run.vector(self.bias, h.heads).add(head),
                        state,
                        dim: h.head_dim,
                        state_size: h.state_size,
                        tokens: tokens.len(),
                    });
                }
            });
        }
    }
}

/// Largest supported dimension of a head, and of its state.
pub const MAX_SIZE: usize = 256;
/// Number of tokens that a tile processes before the next tile starts.
const CHUNK: usize = 64;
/// Lower bound of s, the product of the decays. The inverse of this bound is the upper bound of s.
const SMALLEST: f32 = 1.0 / (1u64 << 60) as f32;

/// Returns the number of floats in a head's state: H, then `dim` floats of which the first is s. A zero there means s =
/// 1.
pub const fn state_len(dim: usize, state_size: usize) -> usize {
    dim * (state_size + 1)
}

/// One head and the tokens of one sequence. Each pointer is at the first token's numbers; token t's numbers are t
/// strides further on.
pub struct MambaHead {
    /// Gate of the results, [dim]. The results are multiplied by silu(gate).
    pub gate: *const f32,
    /// Inputs, [dim]. The kernel overwrites them with the results.
    pub x: *mut f32,
    /// The vectors B and C, [state_size] each. B writes x into the state, C reads the state.
    pub write: *const f32,
    pub read: *const f32,
    /// The head's input for the step size of each token: dt = softplus(step + bias).
    pub step: *const f32,
    pub stride: usize,
    pub decay: f32,
    pub skip: f32,
    pub bias: f32,
    /// The head's state: H as [dim / tile][state_size][tile], then s. `tile_vectors` gives the width of each tile.
    pub state: *mut f32,
    pub dim: usize,
    pub state_size: usize,
    pub tokens: usize,
}

/// Factors of a chunk's tokens, computed from their step sizes.
struct Steps {
    /// Factor dt / s with which a token is written into H.
    write: [f32; CHUNK],
    /// Factor s with which H is read after the token.
    read: [f32; CHUNK],
    /// Factor by which H is multiplied before the token; almost always 1.
    fold: [f32; CHUNK],
}

/// Updates the state token by token and replaces each token's x by (h C + skip x) * silu(gate).
///
/// # Safety
/// The pointers hold what the struct says; dim is a multiple of 16.
impl Kernel for &MambaHead {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let mut steps = Steps { write: [0.0; CHUNK], read: [0.0; CHUNK], fold: [1.0; CHUNK] };
        for start in (0..self.tokens).step_by(CHUNK) {
            let n = CHUNK.min(self.tokens - start);
            unsafe {
                scale(s, self, start, n, &mut steps);
                let mut vector = 0;
                while vector * S::LANES < self.dim {
                    let wide = tile_vectors(self.dim / S::LANES - vector);
                    match wide {
                        2 => scan::<S, 2>(s, self, start, n, &steps, vector * S::LANES),
                        _ => scan::<S, 1>(s, self, start, n, &steps, vector * S::LANES),
                    }
                    vector += wide;
                }
            }
        }
    }
}

/// Returns the number of vectors in the next tile if `left` vectors are left. Two vectors of sixteen lanes with a state
/// size of 128 fill half of a first-level cache.
pub const fn tile_vectors(left: usize) -> usize {
    if left >= 2 { 2 } else { 1 }
}

/// Computes the step sizes and decays of the chunk's n tokens, and the factors derived from them.
#[inline(always)]
unsafe fn scale<S: Simd>(s: S, a: &MambaHead, start: usize, n: usize, steps: &mut Steps) {
    unsafe {
        let (mut sizes, mut decays) = ([0f32; CHUNK], [0f32; CHUNK]);
        for t in 0..n {
            sizes[t] = *a.step.add((start + t) * a.stride) + a.bias;
        }
        for t in (0..n).step_by(S::LANES) {
            let size = softplus(s, s.load(sizes.as_ptr().add(t)));
            s.store(sizes.as_mut_ptr().add(t), size);
            s.store(decays.as_mut_ptr().add(t), exp(s, s.mul(s.splat(a.decay), size)));
        }
        let kept = a.state.add(a.dim * a.state_size);
        let mut product = if *kept == 0.0 { 1.0 } else { *kept };
        for t in 0..n {
            product *= decays[t];
            let fits = (SMALLEST..=1.0 / SMALLEST).contains(&product);
            steps.fold[t] = if fits { 1.0 } else { product };
            if !fits {
                product = 1.0;
            }
            steps.write[t] = sizes[t] / product;
            steps.read[t] = product;
        }
        *kept = product;
    }
}

/// Updates one tile of H, from channel `column` on, with the chunk's n tokens.
#[inline(always)]
unsafe fn scan<S: Simd, const W: usize>(s: S, a: &MambaHead, start: usize, n: usize, steps: &Steps, column: usize) {
    unsafe {
        let mut t = 0;
        while t < n {
            if steps.fold[t] != 1.0 {
                fold::<S, W>(s, a, steps.fold[t], column);
            }
            // Tokens are processed in groups. Only the first token of a group may need H to be multiplied by a factor
            // (`fold`).
            let together = (1..4).find(|i| t + i >= n || steps.fold[t + i] != 1.0).unwrap_or(4);
            if const { S::FLOAT_PANELS == 4 } && together == 4 {
                tokens::<S, W, 4>(s, a, start, t, steps, column);
                t += 4;
            } else if together >= 2 {
                tokens::<S, W, 2>(s, a, start, t, steps, column);
                t += 2;
            } else {
                tokens::<S, W, 1>(s, a, start, t, steps, column);
                t += 1;
            }
        }
    }
}

/// Multiplies the tile's H by a factor.
#[inline(always)]
unsafe fn fold<S: Simd, const W: usize>(s: S, a: &MambaHead, factor: f32, column: usize) {
    unsafe {
        let tile = a.state.add(column * a.state_size);
        for i in (0..W * S::LANES * a.state_size).step_by(S::LANES) {
            s.store(tile.add(i), s.mul(s.load(tile.add(i)), s.splat(factor)));
        }
    }
}

/// Updates a tile of H with T tokens of the chunk, from token t on.
#[inline(always)]
unsafe fn tokens<S: Simd, const W: usize, const T: usize>(
    s: S,
    a: &MambaHead,
    start: usize,
    t: usize,
    steps: &Steps,
    column: usize,
) {
    unsafe {
        let at = |i: usize| (start + t + i) * a.stride;
        let tile = a.state.add(column * a.state_size);
        let mut inputs = [[s.splat(0.0); W]; T];
        for i in 0..T {
            for v in 0..W {
                let x = s.load(a.x.add(at(i) + column + v * S::LANES));
                inputs[i][v] = s.mul(x, s.splat(steps.write[t + i]));
            }
        }
        let (write, read): ([_; T], [_; T]) =
            (std::array::from_fn(|i| a.write.add(at(i))), std::array::from_fn(|i| a.read.add(at(i))));
        let mut sums = [[s.splat(0.0); W]; T];
        for n in 0..a.state_size {
            let row = tile.add(n * W * S::LANES);
            let mut state = [s.splat(0.0); W];
            for v in 0..W {
                state[v] = s.load(row.add(v * S::LANES));
            }
            for i in 0..T {
                let (b, c) = (s.splat(*write[i].add(n)), s.splat(*read[i].add(n)));
                for v in 0..W {
                    state[v] = s.fma(inputs[i][v], b, state[v]);
                    sums[i][v] = s.fma(state[v], c, sums[i][v]);
                }
            }
            for v in 0..W {
                s.store(row.add(v * S::LANES), state[v]);
            }
        }
        for i in 0..T {
            for v in 0..W {
                let place = at(i) + column + v * S::LANES;
                let skipped = s.mul(s.splat(a.skip), s.load(a.x.add(place)));
                let y = s.fma(s.splat(steps.read[t + i]), sums[i][v], skipped);
                s.store(a.x.add(place), s.mul(y, silu(s, s.load(a.gate.add(place)))));
            }
        }
    }
}
