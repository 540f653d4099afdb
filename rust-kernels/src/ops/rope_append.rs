//! Op: normalizes and rotates the heads of queries and keys (RoPE), and appends keys and values to the KV cache. A
//! layer that reads another layer's cache has only queries. A layer whose attention is not computed has only keys and
//! values.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::kv::KV_BLOCK;
use crate::kernels::norm::{inverse_rms, scale_by};
use crate::program::{Heads, Operands, Program, Rows};
use crate::simd::{Kernel, Simd};

pub struct RopeAppend {
    /// Buffer of the queries; None if the op only appends keys and values, which later rows read.
    q: Option<usize>,
    /// Buffers of keys and values; None if the layer reads another layer's cache.
    kept: Option<[usize; 2]>,
    /// Buffer with the rotation angles of each row; None if heads have no positions.
    table: Option<usize>,
    q_norm: Option<usize>,
    k_norm: Option<usize>,
    /// Whether values are normalized (without weights).
    v_norm: bool,
    /// First column of the appended values; the columns before it are set to zero.
    v_from: usize,
    heads: Heads,
    rope: RopeShape,
    temperature: Temperature,
}

/// Multiplies queries after the rotation by 1 + beta ln(1 + floor((position + offset) / period)).
struct Temperature {
    /// Factor of the logarithm; 0 turns the multiplication off.
    beta: f32,
    period: usize,
    offset: usize,
}

impl Temperature {
    fn at(&self, position: usize) -> f32 {
        (1.0 + f64::from(self.beta) * ((1 + (position + self.offset) / self.period) as f64).ln()) as f32
    }
}

impl Decode for RopeAppend {
    fn decode(o: &mut Operands) -> Result<Self> {
        let q = o.optional()?;
        let kept = match [o.optional()?, o.optional()?] {
            [Some(k), Some(v)] => Some([k, v]),
            [None, None] if q.is_some() => None,
            _ => bail!("keys and values must come together"),
        };
        let (table, q_norm, k_norm) = (o.optional()?, o.optional()?, o.optional()?);
        let heads = o.heads()?;
        let (rotated, interleaved, eps, v_norm) = (o.size()?, o.flag()?, o.f32()?, o.flag()?);
        let (dim, kv) = (heads.head_dim, heads.kv_heads * heads.head_dim);
        if let Some(q) = q {
            o.is_float(q, Some(heads.query_columns()))?;
            o.rows_are(q, Rows::Step)?;
        }
        o.angles(table, rotated, dim)?;
        for buffer in kept.into_iter().flatten() {
            o.is_float(buffer, Some(kv))?;
            o.rows_are(buffer, Rows::Step)?;
        }
        for norm in [q_norm, k_norm].into_iter().flatten() {
            o.vector(norm, dim)?;
        }
        let temperature = Temperature { beta: o.f32()?, period: o.size()?, offset: o.size()? };
        if temperature.beta != 0.0 && temperature.period == 0 {
            bail!("a temperature must have a period of at least 1 (got 0)");
        }
        let rope = RopeShape { head_dim: dim, rotated, interleaved, eps, norm_last: o.flag()?, unweighted: o.flag()? };
        let v_from = o.size()?;
        if v_from >= dim || (v_norm && v_from > 0) {
            bail!("values must start at a column below {dim}, or at 0 if they are normalized (got {v_from})");
        }
        Ok(Self { q, kept, table, q_norm, k_norm, v_norm, v_from, heads, rope, temperature })
    }
}

impl Op for RopeAppend {
    fn scratch(&self, _: &Program) -> usize {
        if self.v_norm || self.v_from > 0 { self.heads.head_dim } else { 0 }
    }

    fn run(&self, run: &Run, work: &Work) {
        let (h, dim) = (&self.heads, self.heads.head_dim);
        let group = h.heads / h.kv_heads;
        let [q_norm, k_norm] = [self.q_norm, self.k_norm].map(|n| run.vector_or_null(n, dim));
        let append = run.p.kv.kind.appenders();
        for item in work.items(run.tokens() * h.kv_heads).flatten() {
            let (row, head) = (item / h.kv_heads, item % h.kv_heads);
            let sequence = &run.step.sequences[run.step.sequence_of[row]];
            let position = run.step.position_of[row];
            let block = sequence.block_tables[run.p.kv.layers[h.layer].group].at(position);
            let slot = position % KV_BLOCK;
            let table = self.table.map_or(std::ptr::null_mut(), |table| run.float(table, row));
            let shape = &self.rope;
            let factor = (self.temperature.beta != 0.0).then(|| self.temperature.at(position));
            // SAFETY: decoding the plan checked widths, norms and table; decoding the step checked the block. Each
            // (row, head) is one item.
            unsafe {
                for i in head * group..(head + 1) * group {
                    let Some(q) = self.q else { break };
                    let x = run.float(q, row).add(i * h.query_stride());
                    run.isa.run(NormAndRotate { x, weight: q_norm, table, shape });
                    if let Some(factor) = factor {
                        std::slice::from_raw_parts_mut(x, dim).iter_mut().for_each(|x| *x *= factor);
                    }
                }
                let Some(kept) = self.kept else { continue };
                let [key, mut value] = kept.map(|buffer| run.float(buffer, row).add(head * dim));
                let at = run.p.kv.layers[h.layer].head_bytes.map(|bytes| head * bytes);
                let [keys, values] = run.kv_block(h.layer, block);
                // Values are appended first, because the same buffer may have the keys, which are then normalized and
                // rotated in place.
                if self.v_norm {
                    run.isa.run(NormHead { x: value, n: dim, eps: shape.eps, out: work.scratch });
                    value = work.scratch;
                }
                if self.v_from > 0 {
                    let to = std::slice::from_raw_parts_mut(work.scratch, dim);
                    to[..self.v_from].fill(0.0);
                    to[self.v_from..]
                        .copy_from_slice(std::slice::from_raw_parts(value.add(self.v_from), dim - self.v_from));
                    value = work.scratch;
                }
                (append.value)(run.isa, value, dim, values.add(at[1]), slot);
                run.isa.run(NormAndRotate { x: key, weight: k_norm, table, shape });
                (append.key)(run.isa, key, dim, keys.add(at[0]), slot);
            }
        }
    }
}

/// Settings for the norm and the rotation (RoPE) of heads.
#[derive(Clone, Copy)]
pub struct RopeShape {
    pub head_dim: usize,
    /// Number of leading dimensions that are rotated; 0 if the table is null.
    pub rotated: usize,
    /// Whether dimensions (2i, 2i + 1) are rotated as pairs, as in llama's GGUF layout. Otherwise (i, i + rotated / 2)
    /// are.
    pub interleaved: bool,
    pub eps: f32,
    /// Whether heads are normalized after the rotation instead of before.
    pub norm_last: bool,
    /// Whether heads without a weight are normalized, too.
    pub unweighted: bool,
}

/// Normalizes a head without weights: out = x / sqrt(mean(x^2) + eps).
///
/// # Safety
/// `x` and `out` hold `n` floats.
pub struct NormHead {
    pub x: *const f32,
    pub n: usize,
    pub eps: f32,
    pub out: *mut f32,
}

impl Kernel for NormHead {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, n, eps, out } = self;
        unsafe { scale_by(s, x, std::ptr::null(), n, inverse_rms(s, x, n, eps), out) }
    }
}

/// Normalizes one head (with a weight) and rotates it, in place.
///
/// # Safety
/// `x` holds head_dim floats. `table` holds `rotated` floats, and may be null if there are none. `weight` holds
/// head_dim floats or is null.
pub struct NormAndRotate<'a> {
    pub x: *mut f32,
    pub weight: *const f32,
    pub table: *const f32,
    pub shape: &'a RopeShape,
}

impl Kernel for NormAndRotate<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        unsafe {
            if self.shape.norm_last {
                self.rotate(s);
                self.norm(s);
            } else {
                self.norm(s);
                self.rotate(s);
            }
        }
    }
}

impl NormAndRotate<'_> {
    #[inline(always)]
    unsafe fn norm<S: Simd>(&self, s: S) {
        let Self { x, weight, shape, .. } = *self;
        if weight.is_null() && !shape.unweighted {
            return;
        }
        unsafe {
            let factor = inverse_rms(s, x, shape.head_dim, shape.eps);
            scale_by(s, x, weight, shape.head_dim, factor, x);
        }
    }

    #[inline(always)]
    unsafe fn rotate<S: Simd>(&self, s: S) {
        let Self { x, table, shape, .. } = *self;
        unsafe {
            let half = shape.rotated / 2;
            if shape.interleaved {
                for i in 0..half {
                    rotate_pair(x.add(2 * i), x.add(2 * i + 1), *table.add(i), *table.add(half + i));
                }
                return;
            }
            let whole = half / S::LANES * S::LANES;
            for i in (0..whole).step_by(S::LANES) {
                let (cos, sin) = (s.load(table.add(i)), s.load(table.add(half + i)));
                let (a, b) = (s.load(x.add(i)), s.load(x.add(half + i)));
                s.store(x.add(i), s.sub(s.mul(a, cos), s.mul(b, sin)));
                s.store(x.add(half + i), s.add(s.mul(a, sin), s.mul(b, cos)));
            }
            for i in whole..half {
                rotate_pair(x.add(i), x.add(half + i), *table.add(i), *table.add(half + i));
            }
        }
    }
}

#[inline(always)]
unsafe fn rotate_pair(first: *mut f32, second: *mut f32, cos: f32, sin: f32) {
    unsafe {
        let (a, b) = (*first, *second);
        *first = a * cos - b * sin;
        *second = a * sin + b * cos;
    }
}
