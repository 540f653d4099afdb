//! What operands must be: each reads or finds one, or says why it cannot be used.
use super::{Buffer, DeltaHeads, Heads, Kind, Out, Program, Rows};
use crate::bail;
use crate::error::Result;
use crate::weights::Weights;
use crate::words::{NONE, Words};

impl Program {
    pub(super) fn heads(&self, w: &mut Words) -> Result<Heads> {
        let (layer, heads, kv_heads, head_dim) = (w.size()?, w.size()?, w.size()?, w.size()?);
        let h = Heads { layer, heads, kv_heads, head_dim, gated: w.u32()? != 0 };
        let same = h.kv_heads == self.kv.heads && h.head_dim == self.kv.head_dim && h.layer < self.kv.layers;
        if !same
            || h.kv_heads == 0
            || !h.heads.is_multiple_of(h.kv_heads)
            || h.head_dim == 0
            || !h.head_dim.is_multiple_of(16)
        {
            bail!("{} heads over {} of {} in layer {layer} do not fit the KV cache", heads, kv_heads, head_dim);
        }
        if h.heads / h.kv_heads > crate::ops::kv::MAX_ROWS {
            let most = crate::ops::kv::MAX_ROWS;
            bail!("a KV head must have at most {most} query heads (got {})", h.heads / h.kv_heads);
        }
        Ok(h)
    }

    pub(super) fn delta_heads(&self, w: &mut Words) -> Result<DeltaHeads> {
        let layer = w.size()?;
        if layer >= self.recurrent.layers {
            bail!("layer {layer} has no recurrent state: there are {}", self.recurrent.layers);
        }
        Ok(DeltaHeads { layer, ..self.recurrent.heads })
    }

    pub(super) fn optional(word: u32) -> Option<usize> {
        (word != NONE).then_some(word as usize)
    }

    /// The buffer of that index.
    fn buffer(&self, index: usize) -> Result<&Buffer> {
        match self.buffers.get(index) {
            Some(buffer) => Ok(buffer),
            None => bail!("buffer {index} is out of range 0..{}", self.buffers.len()),
        }
    }

    /// A float buffer's index.
    pub(super) fn float(&self, w: &mut Words, columns: Option<usize>) -> Result<usize> {
        let index = w.size()?;
        self.is_float(index, columns)?;
        Ok(index)
    }

    pub(super) fn is_float(&self, index: usize, columns: Option<usize>) -> Result<()> {
        let buffer = self.buffer(index)?;
        if buffer.kind != Kind::Float {
            bail!("buffer {index} must hold floats (got {:?})", buffer.kind);
        }
        if let Some(columns) = columns
            && buffer.columns != columns
        {
            bail!("buffer {index} must have {columns} columns (got {})", buffer.columns);
        }
        Ok(())
    }

    /// A float buffer's index, with a row for each token of the step.
    pub(super) fn step_float(&self, w: &mut Words, columns: Option<usize>) -> Result<usize> {
        let index = self.float(w, columns)?;
        self.rows_are(index, Rows::Step)?;
        Ok(index)
    }

    pub(super) fn rows_are(&self, index: usize, rows: Rows) -> Result<()> {
        if self.buffer(index)?.rows != rows {
            bail!("buffer {index} must have a row for each {}", rows.of_what());
        }
        Ok(())
    }

    /// Forms of ops that neither read nor write two planes.
    pub(super) fn out(&self, w: &mut Words) -> Result<Out> {
        self.forms(Out { float: Self::optional(w.u32()?), quant: Self::optional(w.u32()?), fine: None })
    }

    pub(super) fn fine_out(&self, w: &mut Words) -> Result<Out> {
        let (float, quant) = (Self::optional(w.u32()?), Self::optional(w.u32()?));
        self.forms(Out { float, quant, fine: Self::optional(w.u32()?) })
    }

    fn forms(&self, out: Out) -> Result<Out> {
        for (index, kind) in [(out.float, Kind::Float), (out.quant, Kind::Quant), (out.fine, Kind::Fine)] {
            if let Some(index) = index
                && self.buffer(index)?.kind != kind
            {
                bail!("buffer {index} must be of the form {kind:?} (got {:?})", self.buffer(index)?.kind);
            }
        }
        Ok(out)
    }

    pub(super) fn columns(&self, out: Out) -> Result<usize> {
        match out.forms().next() {
            Some(index) => Ok(self.buffers[index].columns),
            None => bail!("an op without operands"),
        }
    }

    pub(super) fn same_rows(&self, buffers: &[Option<usize>]) -> Result<()> {
        let mut rows = buffers.iter().flatten().map(|i| self.buffers[*i].rows);
        let first = rows.next();
        if rows.any(|r| Some(r) != first) {
            bail!("operands must all have a row for each token, or all for each row of logits");
        }
        Ok(())
    }

    pub(super) fn width(&self, out: Out, columns: usize) -> Result<()> {
        let found: Vec<_> = out.forms().map(|i| self.buffers[i].columns).collect();
        if found.is_empty() || found.iter().any(|c| *c != columns) {
            bail!("outputs must have {columns} columns (got {found:?})");
        }
        Ok(())
    }

    pub(super) fn shape(&self, weights: &Weights, matrix: usize, rows: usize, columns: usize) -> Result<()> {
        let m = weights.matrix(matrix)?;
        if (m.rows, m.columns) != (rows, columns) {
            bail!("tensor {matrix} must be {rows} x {columns} (got {} x {})", m.rows, m.columns);
        }
        Ok(())
    }

    /// That x is there in the form that the matrix's kernels read, with the right width.
    pub(super) fn operand(&self, weights: &Weights, matrix: usize, x: Out) -> Result<()> {
        let m = weights.matrix(matrix)?;
        let index = match m.format.kernels {
            crate::formats::FormatKernels::Block(_) => x.quant,
            crate::formats::FormatKernels::Float(_) => x.float,
        };
        match index {
            Some(i) if self.buffers[i].columns == m.columns => Ok(()),
            _ => bail!("no operand is in the form that the kernels of tensor {matrix} read"),
        }
    }
}
