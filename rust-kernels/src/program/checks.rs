//! What operands must be: each reads or finds one, or says why it cannot be used.
use super::{DeltaHeads, Heads, Kind, Out, Program, Rows};
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
            bail!("{} heads over {} of {} do not fit the KV cache", h.heads, h.kv_heads, h.head_dim);
        }
        if h.heads / h.kv_heads > crate::ops::kv::MAX_ROWS {
            bail!("{} query heads a KV head are not supported", h.heads / h.kv_heads);
        }
        Ok(h)
    }

    pub(super) fn delta_heads(&self, w: &mut Words) -> Result<DeltaHeads> {
        let layer = w.size()?;
        if layer >= self.recurrent.layers {
            bail!("a state of layer {layer}, of {}", self.recurrent.layers);
        }
        Ok(DeltaHeads { layer, ..self.recurrent.heads })
    }

    pub(super) fn optional(word: u32) -> Option<usize> {
        (word != NONE).then_some(word as usize)
    }

    /// A float buffer's index.
    pub(super) fn float(&self, w: &mut Words, columns: Option<usize>) -> Result<usize> {
        let index = w.size()?;
        match self.buffers.get(index) {
            Some(b) if b.kind == Kind::Float && columns.is_none_or(|c| c == b.columns) => Ok(index),
            _ => bail!("buffer {index} is not what is wanted here"),
        }
    }

    /// That the buffer holds floats of that width, a row for each token of the step.
    pub(super) fn step_rows(&self, index: usize, columns: usize) -> Result<()> {
        match self.buffers.get(index) {
            Some(b) if b.kind == Kind::Float && b.rows == Rows::Step && b.columns == columns => Ok(()),
            _ => bail!("buffer {index} is not {columns} columns of floats for each token"),
        }
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
        let is = |index: Option<usize>, kind| index.is_none_or(|i| self.buffers.get(i).is_some_and(|b| b.kind == kind));
        if !is(out.float, Kind::Float) || !is(out.quant, Kind::Quant) || !is(out.fine, Kind::Fine) {
            bail!("buffers {out:?} are not what is wanted here");
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
            bail!("operands of one op have other numbers of rows");
        }
        Ok(())
    }

    pub(super) fn width(&self, out: Out, columns: usize) -> Result<()> {
        let found: Vec<_> = out.forms().map(|i| self.buffers[i].columns).collect();
        if found.is_empty() || found.iter().any(|c| *c != columns) {
            bail!("outputs of {found:?} columns, {columns} wanted");
        }
        Ok(())
    }

    pub(super) fn shape(&self, weights: &Weights, matrix: usize, rows: usize, columns: usize) -> Result<()> {
        let m = weights.matrix(matrix)?;
        if (m.rows, m.columns) != (rows, columns) {
            bail!("tensor {matrix} is {} x {}, {rows} x {columns} wanted", m.rows, m.columns);
        }
        Ok(())
    }

    /// That x is there in the form that the matrix's kernels read, with the right width.
    pub(super) fn operand(&self, weights: &Weights, matrix: usize, x: Out) -> Result<()> {
        let m = weights.matrix(matrix)?;
        let index = match m.kernels {
            crate::kernels::FormatKernels::Block(_) => x.quant,
            crate::kernels::FormatKernels::Float(_) => x.float,
        };
        match index {
            Some(i) if self.buffers[i].columns == m.columns => Ok(()),
            _ => bail!("tensor {matrix} finds no operand in the form that it needs"),
        }
    }
}
