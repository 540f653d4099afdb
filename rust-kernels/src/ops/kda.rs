//! Op: Kimi Delta Attention, the gated delta rule with a decay for each key dimension.
//!
//! Each token computes S <- S diag(a) + d k^T with d = beta (v - S (a k)), and reads o = S q = S_before (a q) + d (k . q).
//! So a pass over the state multiplies by a k and a q in place of k and q; the rest is as in `delta_rule`. Source: "Kimi
//! Linear" (arXiv 2510.26692), section 3.
use super::delta_rule::{WIDE, pass};
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::dot::dot;
use crate::kernels::norm::{Outputs, inverse_rms};
use crate::kernels::softplus::softplus;
use crate::program::{DeltaHeads, Operands, Out, Program};
use crate::simd::{Kernel, Simd, exp};

pub struct Kda {
    qkv: usize,
    gate: usize,
    alpha: usize,
    beta: usize,
    decay: usize,
    bias: usize,
    norm: usize,
    /// As `KdaHead::bound`.
    bound: f32,
    heads: DeltaHeads,
    eps: f32,
    out: Out,
}

impl Decode for Kda {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (qkv, gate) = (o.step_float(None)?, o.step_float(None)?);
        let (alpha, beta) = (o.step_float(None)?, o.step_float(None)?);
        let (decay, bias, norm) = (o.size()?, o.size()?, o.size()?);
        let (bound, heads, eps, out) = (o.f32()?, o.delta_heads()?, o.f32()?, o.fine_out()?);
        let (count, inner) = (heads.value_heads, heads.value_heads * heads.head_dim);
        if heads.key_heads != count || heads.in_groups {
            bail!("each of the {count} value heads must have a key head (got {})", heads.key_heads);
        }
        if bound.is_nan() || bound > 0.0 {
            bail!("the decay's lower bound must be below 0, or 0 for none (got {bound})");
        }
        for (buffer, columns) in [qkv, gate, alpha, beta].into_iter().zip([heads.channels(), inner, inner, count]) {
            o.is_float(buffer, Some(columns))?;
        }
        o.width(out, inner)?;
        o.same_rows(&[Some(qkv), out.float, out.quant, out.fine])?;
        for (vector, len) in [(decay, count), (bias, inner), (norm, heads.head_dim)] {
            o.vector(vector, len)?;
        }
        Ok(Self { qkv, gate, alpha, beta, decay, bias, norm, bound, heads, eps, out })
    }
}

impl Op for Kda {
    fn scratch(&self, _: &Program) -> usize {
        scratch_len(self.heads.head_dim)
    }

    fn run(&self, run: &Run, work: &Work) {
        let (h, dim) = (&self.heads, self.heads.head_dim);
        let (heads, out) = (h.value_heads, run.outputs(self.out));
        let carried = run.p.recurrent.layers[h.layer];
        let states = carried.offset + carried.conv_floats();
        for item in work.single_items(run.step.sequences.len() * heads).flatten() {
            let (sequence, head) = (&run.step.sequences[item / heads], item % heads);
            run.carry(sequence, states + head * dim * dim, dim * dim, |tokens, state| {
                let row = sequence.start + tokens.start;
                // SAFETY: decoding checked the widths and vector lengths; each head of a sequence is one item.
                unsafe {
                    let qkv = run.float(self.qkv, row);
                    run.isa.run(&KdaHead {
                        q: qkv.add(head * dim),
                        k: qkv.add((heads + head) * dim),
                        v: qkv.add((2 * heads + head) * dim),
                        stride: run.stride(self.qkv),
                        gate: run.float(self.gate, row).add(head * dim),
                        gate_stride: run.stride(self.gate),
                        alpha: run.float(self.alpha, row).add(head * dim),
                        alpha_stride: run.stride(self.alpha),
                        beta: run.float(self.beta, row).add(head),
                        beta_stride: run.stride(self.beta),
                        decay: *run.vector(self.decay, heads).add(head),
                        bias: run.vector(self.bias, heads * dim).add(head * dim),
                        bound: self.bound,
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

/// Number of tokens whose decays and results are in memory at a time.
const CHUNK: usize = 16;

/// One head and the tokens of one sequence. Each pointer is at the first token's numbers; token t's numbers are `t`
/// strides further on.
pub struct KdaHead<'a> {
    pub q: *const f32,
    pub k: *const f32,
    pub v: *const f32,
    /// Number of floats from one token to the next in q, k and v.
    pub stride: usize,
    /// Gate of the results, which are multiplied by sigmoid(gate), [dim].
    pub gate: *const f32,
    pub gate_stride: usize,
    /// Inputs of the decays, [dim]: a = e^g, with g = decay * softplus(alpha + bias), or with a bound
    /// g = bound * sigmoid(decay * (alpha + bias)).
    pub alpha: *const f32,
    pub alpha_stride: usize,
    /// Input of the update's weight, to which a sigmoid is applied.
    pub beta: *const f32,
    pub beta_stride: usize,
    pub decay: f32,
    pub bias: *const f32,
    /// Lower bound of g; 0 means that there is none.
    pub bound: f32,
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
    4 * CHUNK * dim
}

/// Numbers of a chunk's tokens.
struct Rows {
    dim: usize,
    /// Rows of results, of decays a, of a k and of a q: CHUNK of each.
    at: *mut f32,
    beta: [f32; CHUNK],
    /// The products k . q.
    overlap: [f32; CHUNK],
}

impl Rows {
    /// # Safety
    /// `kind` is below 4 and t below CHUNK.
    unsafe fn row(&self, kind: usize, t: usize) -> *mut f32 {
        unsafe { self.at.add((kind * CHUNK + t) * self.dim) }
    }
}

const RESULT: usize = 0;
const DECAY: usize = 1;
const KEY: usize = 2;
const QUERY: usize = 3;

/// Updates the state token by token and writes each token's y = RMSNorm(S q) * sigmoid(gate).
///
/// # Safety
/// The pointers hold what the struct says; dim is a multiple of 32.
impl Kernel for &KdaHead<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let a = self;
        let mut rows = Rows { dim: a.dim, at: a.scratch, beta: [0.0; CHUNK], overlap: [0.0; CHUNK] };
        for start in (0..a.tokens).step_by(CHUNK) {
            let n = CHUNK.min(a.tokens - start);
            unsafe {
                for t in 0..n {
                    let (k, q) = (a.k.add((start + t) * a.stride), a.q.add((start + t) * a.stride));
                    rows.beta[t] = 1.0 / (1.0 + (-*a.beta.add((start + t) * a.beta_stride)).exp());
                    rows.overlap[t] = dot(s, k, q, a.dim);
                    for c in (0..a.dim).step_by(S::LANES) {
                        let x = s.add(s.load(a.alpha.add((start + t) * a.alpha_stride + c)), s.load(a.bias.add(c)));
                        let decay = exp(s, a.log_decay(s, x));
                        s.store(rows.row(DECAY, t).add(c), decay);
                        s.store(rows.row(KEY, t).add(c), s.mul(decay, s.load(k.add(c))));
                        s.store(rows.row(QUERY, t).add(c), s.mul(decay, s.load(q.add(c))));
                    }
                }
                for column in (0..a.dim).step_by(WIDE * S::LANES) {
                    scan(s, a, start, n, &rows, column);
                }
                for t in 0..n {
                    finish(s, a, start + t, rows.row(RESULT, t));
                }
            }
        }
    }
}

impl KdaHead<'_> {
    #[inline(always)]
    fn log_decay<S: Simd>(&self, s: S, x: S::F) -> S::F {
        let decay = s.splat(self.decay);
        if self.bound == 0.0 { s.mul(decay, softplus(s, x)) } else { sigmoid(s, s.splat(self.bound), s.mul(decay, x)) }
    }
}

/// Returns y / (1 + e^-x).
#[inline(always)]
fn sigmoid<S: Simd>(s: S, y: S::F, x: S::F) -> S::F {
    s.div(y, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), x))))
}

/// Updates one tile of the state, from value `column` on, with the chunk's n tokens. Writes the tokens' S q to the
/// rows of results.
#[inline(always)]
unsafe fn scan<S: Simd>(s: S, a: &KdaHead, start: usize, n: usize, rows: &Rows, column: usize) {
    unsafe {
        let tile = a.state.add(column * a.dim);
        let read = |t: usize| [rows.row(KEY, t).cast_const(), rows.row(QUERY, t).cast_const()];
        let key = |t: usize| a.k.add((start + t) * a.stride);
        let none = [s.splat(0.0); WIDE];
        let mut products = pass::<S, false, true, true>(s, tile, a.dim, rows.row(DECAY, 0), none, key(0), read(0));
        for t in 0..n {
            let (beta, overlap) = (s.splat(rows.beta[t]), s.splat(rows.overlap[t]));
            let mut update = none;
            for v in 0..WIDE {
                let value = s.load(a.v.add((start + t) * a.stride + column + v * S::LANES));
                update[v] = s.mul(beta, s.sub(value, products[0][v]));
                let result = s.fma(update[v], overlap, products[1][v]);
                s.store(rows.row(RESULT, t).add(column + v * S::LANES), result);
            }
            let decay = rows.row(DECAY, t);
            products = if t + 1 < n {
                pass::<S, true, true, true>(s, tile, a.dim, decay, update, key(t), read(t + 1))
            } else {
                pass::<S, true, false, true>(s, tile, a.dim, decay, update, key(t), read(t))
            };
        }
    }
}

/// Normalizes token t's result `y` in place, multiplies it by its gate, and writes it to the outputs.
#[inline(always)]
unsafe fn finish<S: Simd>(s: S, a: &KdaHead, t: usize, y: *mut f32) {
    unsafe {
        let gate = a.gate.add(t * a.gate_stride);
        let factor = s.splat(inverse_rms(s, y, a.dim, a.eps));
        for c in (0..a.dim).step_by(S::LANES) {
            let normed = s.mul(s.mul(s.load(y.add(c)), factor), s.load(a.norm.add(c)));
            s.store(y.add(c), sigmoid(s, normed, s.load(gate.add(c))));
        }
        a.out.put(s, y, a.dim, a.row + t, a.column);
    }
}
