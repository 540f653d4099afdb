//! Each op's words, and what its operands must be.
use super::{Exact, Op, Out, Part, Program, Rows};
use crate::bail;
use crate::error::Result;
use crate::ops::gemm::Epilogue;
use crate::ops::rope::RopeShape;
use crate::ops::short_conv::TAPS;
use crate::weights::Weights;
use crate::words::Words;

/// What rows that read two planes come in, where others follow: a panel of any instruction set.
const FINE_ROUND: usize = 16;

impl Program {
    pub(super) fn decode_op(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        Ok(match w.u32()? {
            0 => {
                let (weight, out) = (w.size()?, self.step_float(w, None)?);
                self.shape(weights, weight, self.vocab, self.buffers[out].columns)?;
                Op::Embed { weight, out }
            }
            1 => Op::RopeTable { out: self.step_float(w, Some(2 * self.frequencies.len()))? },
            2 => {
                let (x, weight, eps, out) = (self.step_float(w, None)?, w.size()?, w.f32()?, self.fine_out(w)?);
                let columns = self.buffers[x].columns;
                weights.vector(weight, columns)?;
                self.width(out, columns)?;
                self.same_rows(&[out.float, out.quant, out.fine])?;
                Op::RmsNorm { x, weight, eps, out }
            }
            3 => self.decode_matmul(w, weights)?,
            4 => {
                let (x, gate, up, out) = (self.out(w)?, w.size()?, w.size()?, self.out(w)?);
                let (columns, ffn) = (self.columns(x)?, self.columns(out)?);
                self.same_rows(&[x.float, x.quant, out.float, out.quant])?;
                self.width(out, ffn)?;
                for matrix in [gate, up] {
                    self.shape(weights, matrix, ffn, columns)?;
                    self.operand(weights, matrix, x)?;
                }
                Op::SwiGlu { x, gate, up, out }
            }
            5 => self.decode_rope_append(w, weights)?,
            6 => {
                let (q, out) = (self.step_float(w, None)?, self.step_float(w, None)?);
                let (heads, scale) = (self.heads(w)?, w.f32()?);
                let wide = heads.heads * heads.head_dim;
                if self.buffers[q].columns != heads.query_columns() || self.buffers[out].columns != wide {
                    bail!("attention over {wide} columns has operands of other widths");
                }
                Op::Attention { q, out, heads, scale }
            }
            7 => {
                let (x, out) = (self.float(w, None)?, self.out(w)?);
                self.width(out, self.buffers[x].columns)?;
                self.same_rows(&[Some(x), out.quant])?;
                let Some(out) = out.quant else { bail!("quantize without a quantised output") };
                Op::Quantize { x, out }
            }
            8 => {
                let logits = self.float(w, Some(self.vocab))?;
                self.rows_are(logits, Rows::Logits)?;
                Op::Candidates { logits, exact: self.exact(w, weights, logits)? }
            }
            9 => self.decode_short_conv(w, weights)?,
            10 => self.decode_delta_rule(w, weights)?,
            code => bail!("unknown code {code}"),
        })
    }

    fn decode_matmul(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        let x = self.fine_out(w)?;
        let (columns, count) = (self.columns(x)?, w.size()?);
        let mut parts = Vec::new();
        for _ in 0..count {
            let (weight, bias, out) = (w.size()?, Self::optional(w.u32()?), self.float(w, None)?);
            let epilogue = if w.u32()? == 0 { Epilogue::Store } else { Epilogue::Add };
            let (fine, rows) = (w.size()?, self.buffers[out].columns);
            self.same_rows(&[x.float, x.quant, x.fine, Some(out)])?;
            self.shape(weights, weight, rows, columns)?;
            // Both kinds of rows begin with a panel of their own.
            if fine > rows || (fine < rows && !fine.is_multiple_of(FINE_ROUND)) {
                bail!("{fine} of {rows} rows of tensor {weight} cannot read two planes");
            }
            if fine > 0 {
                self.operand(weights, weight, Out { quant: x.fine, float: None, fine: None })?;
            }
            if fine < rows {
                self.operand(weights, weight, x)?;
            }
            if let Some(bias) = bias {
                weights.vector(bias, rows)?;
            }
            parts.push(Part { weight, bias, out, epilogue, fine });
        }
        Ok(Op::MatMul { x, parts })
    }

    fn decode_rope_append(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        let (q, k) = (self.step_float(w, None)?, self.step_float(w, None)?);
        let (v, table) = (self.step_float(w, None)?, self.step_float(w, None)?);
        let (q_norm, k_norm) = (Self::optional(w.u32()?), Self::optional(w.u32()?));
        let heads = self.heads(w)?;
        let (rotated, interleaved, eps) = (w.size()?, w.u32()? != 0, w.f32()?);
        let (dim, kv) = (heads.head_dim, heads.kv_heads * heads.head_dim);
        let widths = [q, k, v].map(|b| self.buffers[b].columns);
        if widths != [heads.query_columns(), kv, kv] || self.buffers[table].columns != rotated {
            bail!("rope over {} heads has operands of widths {widths:?}", heads.heads);
        }
        if rotated > dim || rotated != 2 * self.frequencies.len() {
            bail!("{rotated} rotated dimensions of {dim}, with {} frequencies", self.frequencies.len());
        }
        for norm in [q_norm, k_norm].into_iter().flatten() {
            weights.vector(norm, dim)?;
        }
        let rope = RopeShape { head_dim: dim, rotated, interleaved, eps };
        Ok(Op::RopeAppend { q, k, v, table, q_norm, k_norm, heads, rope })
    }

    fn exact(&self, w: &mut Words, weights: &Weights, logits: usize) -> Result<Option<Exact>> {
        let (x, weight) = (Self::optional(w.u32()?), Self::optional(w.u32()?));
        let (Some(x), Some(weight)) = (x, weight) else { return Ok(None) };
        self.is_float(x, None)?;
        if !self.buffers[x].columns.is_multiple_of(16) {
            bail!("buffer {x} must have a multiple of 16 columns (got {})", self.buffers[x].columns);
        }
        self.same_rows(&[Some(x), Some(logits)])?;
        self.shape(weights, weight, self.vocab, self.buffers[x].columns)?;
        Ok(Some(Exact { x, weight }))
    }

    fn decode_short_conv(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        let (x, weight, heads, eps) = (self.step_float(w, None)?, w.size()?, self.delta_heads(w)?, w.f32()?);
        let channels = heads.channels();
        self.is_float(x, Some(channels))?;
        let taps = by_head(weights.vector(weight, TAPS * channels)?, heads.head_dim);
        Ok(Op::ShortConv { x, taps, heads, eps })
    }

    fn decode_delta_rule(&self, w: &mut Words, weights: &Weights) -> Result<Op> {
        let (qkv, gate) = (self.step_float(w, None)?, self.step_float(w, None)?);
        let (alpha, beta) = (self.step_float(w, None)?, self.step_float(w, None)?);
        let (decay, bias, norm) = (w.size()?, w.size()?, w.size()?);
        let (heads, eps, out) = (self.delta_heads(w)?, w.f32()?, self.fine_out(w)?);
        let inner = heads.value_heads * heads.head_dim;
        let widths = [heads.channels(), inner, heads.value_heads, heads.value_heads];
        for (buffer, columns) in [qkv, gate, alpha, beta].into_iter().zip(widths) {
            self.is_float(buffer, Some(columns))?;
        }
        self.width(out, inner)?;
        self.same_rows(&[Some(qkv), out.float, out.quant, out.fine])?;
        for (vector, len) in [(decay, heads.value_heads), (bias, heads.value_heads), (norm, heads.head_dim)] {
            weights.vector(vector, len)?;
        }
        Ok(Op::DeltaRule { qkv, gate, alpha, beta, decay, bias, norm, heads, eps, out })
    }
}

/// The weights of a convolution, [channel][tap], as its kernel reads them: [head][tap][channel of the head].
fn by_head(weights: &[f32], head_dim: usize) -> Vec<f32> {
    let heads = weights.chunks_exact(TAPS * head_dim);
    heads.flat_map(|head| (0..TAPS).flat_map(move |tap| head.iter().skip(tap).step_by(TAPS))).copied().collect()
}
