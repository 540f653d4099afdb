//! Op: the gated delta rule, token by token, with the state in the first-level cache.
//!
//! A head's state S is a matrix [value dimension][key dimension]. Each token computes S <- a S + d k^T with
//! d = beta (v - a S k), and reads o = S q. The state's rows are independent. So a tile of rows, one per lane, is taken through all
//! tokens while it is in the cache. The pass that writes token t's update also computes the products with token t + 1's
//! key and query. No pass is needed for o = a (S q) + d (k . q), so there is one pass per token.
//!
//! The chunked form replaces these passes by products of small matrices. It suits machines whose matrix units are
//! faster than their vectors. Here chunks of 16 save little and longer chunks less (docs/lab/2026-11.md). Its sums
//! would also depend on where a prompt is split. The sums here do not. Source: "Gated Delta Networks" (arXiv
//! 2412.06464), equation 10.
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::silu;
use crate::kernels::dot::dot;
use crate::kernels::norm::{Outputs, inverse_rms};
use crate::program::{DeltaHeads, Operands, Out, Program};
use crate::simd::{Kernel, Simd};

pub struct DeltaRule {
    qkv: usize,
    gate: usize,
    alpha: usize,
    beta: usize,
    decay: usize,
    bias: usize,
    norm: usize,
    heads: DeltaHeads,
    eps: f32,
    out: Out,
}

impl Decode for DeltaRule {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (qkv, gate) = (o.step_float(None)?, o.step_float(None)?);
        let (alpha, beta) = (o.step_float(None)?, o.step_float(None)?);
        let (decay, bias, norm) = (o.size()?, o.size()?, o.size()?);
        let (heads, eps, out) = (o.delta_heads()?, o.f32()?, o.fine_out()?);
        let inner = heads.value_heads * heads.head_dim;
        let widths = [heads.channels(), inner, heads.beta_columns(), heads.beta_columns()];
        for (buffer, columns) in [qkv, gate, alpha, beta].into_iter().zip(widths) {
            o.is_float(buffer, Some(columns))?;
        }
        o.width(out, inner)?;
        o.same_rows(&[Some(qkv), out.float, out.quant, out.fine])?;
        for (vector, len) in [(decay, heads.value_heads), (bias, heads.value_heads), (norm, heads.head_dim)] {
            o.vector(vector, len)?;
        }
        Ok(Self { qkv, gate, alpha, beta, decay, bias, norm, heads, eps, out })
    }
}

impl Op for DeltaRule {
    fn scratch(&self, _: &Program) -> usize {
        scratch_len(self.heads.head_dim)
    }

    fn run(&self, run: &Run, work: &Work) {
        let (h, dim) = (&self.heads, self.heads.head_dim);
        let out = run.outputs(self.out);
        let carried = run.p.recurrent.layers[h.layer];
        let states = carried.offset + carried.conv_floats();
        for item in work.single_items(run.step.sequences.len() * h.value_heads).flatten() {
            let (sequence, head) = (&run.step.sequences[item / h.value_heads], item % h.value_heads);
            let (key_head, [beta, alpha]) = (h.key_head(head), h.beta_and_alpha(head));
            run.carry(sequence, states + head * dim * dim, dim * dim, |tokens, state| {
                let row = sequence.start + tokens.start;
                // SAFETY: decoding checked the widths and vector lengths; each head of a sequence is one item.
                unsafe {
                    let qkv = run.float(self.qkv, row);
                    run.isa.run(&DeltaHead {
                        q: qkv.add(key_head * dim),
                        k: qkv.add((h.key_heads + key_head) * dim),
                        v: qkv.add((2 * h.key_heads + head) * dim),
                        stride: run.stride(self.qkv),
                        gate: run.float(self.gate, row).add(head * dim),
                        gate_stride: run.stride(self.gate),
                        alpha: run.float(self.alpha, row).add(alpha),
                        alpha_stride: run.stride(self.alpha),
                        beta: run.float(self.beta, row).add(beta),
                        beta_stride: run.stride(self.beta),
                        decay: *run.vector(self.decay, h.value_heads).add(head),
                        bias: *run.vector(self.bias, h.value_heads).add(head),
                        norm: run.vector(self.norm, dim),
                        eps: self.eps,
                        state,
                        dim,
                        tokens: tokens.len(),
                        out: &out,
                        row,
                        column: head * dim,
                        scratch: work.scratch,
                    });
                }
            });
        }
    }
}

/// Largest supported dimension of a head.
pub const MAX_DIM: usize = 256;
/// Number of tokens whose gates and results are in memory at a time.
const CHUNK: usize = 64;
/// Number of vectors in a tile of the state.
pub(super) const WIDE: usize = 2;

/// One value head and the tokens of one sequence. Each pointer is at the first token's numbers; token t's numbers are
/// `t` strides further on.
pub struct DeltaHead<'a> {
    pub q: *const f32,
    pub k: *const f32,
    pub v: *const f32,
    /// Number of floats from one token to the next in q, k and v.
    pub stride: usize,
    /// Gate of the results, which are multiplied by silu(gate).
    pub gate: *const f32,
    pub gate_stride: usize,
    /// Inputs of the head's two numbers per token: a = e^(decay * softplus(alpha + bias)), and beta, to which a sigmoid
    /// is applied.
    pub alpha: *const f32,
    pub alpha_stride: usize,
    pub beta: *const f32,
    pub beta_stride: usize,
    pub decay: f32,
    pub bias: f32,
    /// Weight of the RMSNorm of each result, [dim].
    pub norm: *const f32,
    pub eps: f32,
    /// The head's state, [dim / tile][dim][tile]. A tile is WIDE vectors of values.
    pub state: *mut f32,
    pub dim: usize,
    pub tokens: usize,
    /// The outputs. The results go to their columns `column..column + dim` of rows `row..row + tokens`.
    pub out: &'a Outputs,
    pub row: usize,
    pub column: usize,
    /// Scratch memory of `scratch_len(dim)` floats.
    pub scratch: *mut f32,
}

pub const fn scratch_len(dim: usize) -> usize {
    CHUNK * dim
}

/// Numbers of a chunk's tokens: a, beta and the product of key and query.
struct Gates {
    decay: [f32; CHUNK],
    beta: [f32; CHUNK],
    /// The product k . q.
    overlap: [f32; CHUNK],
}

/// Updates the state token by token and writes each token's y = RMSNorm(S q) * silu(gate).
///
/// # Safety
/// The pointers hold what the struct says; dim is a multiple of 32.
impl Kernel for &DeltaHead<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let a = self;
        let mut gates = Gates { decay: [0.0; CHUNK], beta: [0.0; CHUNK], overlap: [0.0; CHUNK] };
        for start in (0..a.tokens).step_by(CHUNK) {
            let n = CHUNK.min(a.tokens - start);
            unsafe {
                for t in 0..n {
                    let at = start + t;
                    let alpha = *a.alpha.add(at * a.alpha_stride) + a.bias;
                    gates.decay[t] = (a.decay * softplus(alpha)).exp();
                    gates.beta[t] = 1.0 / (1.0 + (-*a.beta.add(at * a.beta_stride)).exp());
                    gates.overlap[t] = dot(s, a.k.add(at * a.stride), a.q.add(at * a.stride), a.dim);
                }
                for column in (0..a.dim).step_by(WIDE * S::LANES) {
                    scan(s, a, start, n, &gates, column);
                }
                for t in 0..n {
                    finish(s, a, start + t, a.scratch.add(t * a.dim));
                }
            }
        }
    }
}

/// Updates one tile of the state, from value `column` on, with the chunk's n tokens. Writes the tokens' S q to the
/// scratch rows.
#[inline(always)]
unsafe fn scan<S: Simd>(s: S, a: &DeltaHead, start: usize, n: usize, gates: &Gates, column: usize) {
    unsafe {
        let tile = a.state.add(column * a.dim);
        let key = |t: usize| a.k.add((start + t) * a.stride);
        let query = |t: usize| a.q.add((start + t) * a.stride);
        let none = [s.splat(0.0); WIDE];
        let decay = |t: usize| gates.decay.as_ptr().add(t);
        let mut products = pass::<S, false, true, false>(s, tile, a.dim, decay(0), none, key(0), [key(0), query(0)]);
        for t in 0..n {
            let (kept, beta) = (s.splat(gates.decay[t]), s.splat(gates.beta[t]));
            let overlap = s.splat(gates.overlap[t]);
            let mut update = none;
            for v in 0..WIDE {
                let value = s.load(a.v.add((start + t) * a.stride + column + v * S::LANES));
                update[v] = s.mul(beta, s.fnma(kept, products[0][v], value));
                let result = s.fma(update[v], overlap, s.mul(kept, products[1][v]));
                s.store(a.scratch.add(t * a.dim + column + v * S::LANES), result);
            }
            products = if t + 1 < n {
                let next = [key(t + 1), query(t + 1)];
                pass::<S, true, true, false>(s, tile, a.dim, decay(t), update, key(t), next)
            } else {
                pass::<S, true, false, false>(s, tile, a.dim, decay(t), update, key(t), [key(t), query(t)])
            };
        }
    }
}

/// Makes one pass over a tile. With WRITE, it computes S <- decay S + update k^T. With READ, it returns S next_k and S
/// next_q. The decay is one number, or with CHANNELS one per key dimension.
#[inline(always)]
pub(super) unsafe fn pass<S: Simd, const WRITE: bool, const READ: bool, const CHANNELS: bool>(
    s: S,
    tile: *mut f32,
    dim: usize,
    decay: *const f32,
    update: [S::F; WIDE],
    k: *const f32,
    [next_k, next_q]: [*const f32; 2],
) -> [[S::F; WIDE]; 2] {
    unsafe {
        let whole = s.splat(*decay);
        // Separate sums for even and odd keys hide the latency of multiply-adds.
        let mut sums = [[[s.splat(0.0); WIDE]; 2]; 2];
        for i in (0..dim).step_by(2) {
            for odd in 0..2 {
                let row = tile.add((i + odd) * WIDE * S::LANES);
                let kept = if CHANNELS { s.splat(*decay.add(i + odd)) } else { whole };
                for v in 0..WIDE {
                    let mut state = s.load(row.add(v * S::LANES));
                    if WRITE {
                        state = s.fma(update[v], s.splat(*k.add(i + odd)), s.mul(state, kept));
                        s.store(row.add(v * S::LANES), state);
                    }
                    if READ {
                        sums[odd][0][v] = s.fma(state, s.splat(*next_k.add(i + odd)), sums[odd][0][v]);
                        sums[odd][1][v] = s.fma(state, s.splat(*next_q.add(i + odd)), sums[odd][1][v]);
                    }
                }
            }
        }
        let mut totals = sums[0];
        for i in 0..2 {
            for v in 0..WIDE {
                totals[i][v] = s.add(sums[0][i][v], sums[1][i][v]);
            }
        }
        totals
    }
}

/// Normalizes token t's result `y` in place, multiplies it by its gate, and writes it to the outputs.
#[inline(always)]
unsafe fn finish<S: Simd>(s: S, a: &DeltaHead, t: usize, y: *mut f32) {
    unsafe {
        let gate = a.gate.add(t * a.gate_stride);
        let factor = s.splat(inverse_rms(s, y, a.dim, a.eps));
        for c in (0..a.dim).step_by(S::LANES) {
            let normed = s.mul(s.mul(s.load(y.add(c)), factor), s.load(a.norm.add(c)));
            s.store(y.add(c), s.mul(normed, silu(s, s.load(gate.add(c)))));
        }
        let row = a.row + t;
        a.out.put(s, y, a.dim, row, a.column);
    }
}

/// Returns ln(1 + e^x). In f32 this equals x if e^x is large.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
