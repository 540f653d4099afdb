//! Decodes the operands of an op. Each method reads or finds one operand, or returns an error that says why the op
//! cannot use it.
use super::{Buffer, Choice, ConvHeads, DeltaHeads, Heads, Kind, MambaHeads, Out, Program, Rows, StateLayer};
use crate::bail;
use crate::error::Result;
use crate::formats::FormatKernels;
use crate::weights::Weights;
use crate::words::{NONE, Words};

/// Maximum number of query heads per KV head.
const MAX_GROUP: usize = 256;

/// The inputs for decoding an op: its words, the buffers of the plan so far, and the weights.
pub struct Operands<'a, 'w> {
    pub words: &'a mut Words<'w>,
    pub program: &'a Program,
    pub weights: &'a Weights,
}

/// The columns of heads in a row: the first head's column, and the distance to the next.
#[derive(Clone, Copy)]
pub struct HeadPlace {
    pub column: usize,
    /// Number of columns from one head to the next.
    pub step: usize,
}

impl Operands<'_, '_> {
    /// # Errors
    /// The words end too early, or the operand has the wrong kind. The same holds for the methods below.
    pub fn size(&mut self) -> Result<usize> {
        self.words.size()
    }

    pub fn f32(&mut self) -> Result<f32> {
        self.words.f32()
    }

    pub fn flag(&mut self) -> Result<bool> {
        match self.words.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            word => bail!("a flag must be 0 or 1 (got {word})"),
        }
    }

    /// Reads an index, or none.
    pub fn optional(&mut self) -> Result<Option<usize>> {
        let word = self.words.u32()?;
        Ok((word != NONE).then_some(word as usize))
    }

    /// Reads a number, or none.
    pub fn optional_f32(&mut self) -> Result<Option<f32>> {
        let word = self.words.u32()?;
        Ok((word != NONE).then_some(f32::from_bits(word)))
    }

    pub fn head_place(&mut self) -> Result<HeadPlace> {
        Ok(HeadPlace { column: self.size()?, step: self.size()? })
    }

    /// Reads the heads of an attention op. They must match the KV cache.
    pub fn heads(&mut self) -> Result<Heads> {
        let (layer, heads, kv_heads, head_dim) = (self.size()?, self.size()?, self.size()?, self.size()?);
        let (h, kv) = (Heads { layer, heads, kv_heads, head_dim, gated: self.flag()? }, &self.program.kv);
        let same = kv.layers.get(layer).is_some_and(|kept| (kept.heads, kept.head_dim) == (kv_heads, head_dim));
        if !same || !heads.is_multiple_of(kv_heads) {
            bail!("{heads} heads over {kv_heads} of {head_dim} in layer {layer} do not fit the KV cache");
        }
        if heads / kv_heads > MAX_GROUP {
            bail!("a KV head must have at most {MAX_GROUP} query heads (got {})", heads / kv_heads);
        }
        Ok(h)
    }

    /// Reads the heads of a delta rule layer, which must match its recurrent state.
    pub fn delta_heads(&mut self) -> Result<DeltaHeads> {
        let (layer, key_heads, value_heads, head_dim) = (self.size()?, self.size()?, self.size()?, self.size()?);
        let heads = DeltaHeads { layer, key_heads, value_heads, head_dim, in_groups: self.flag()? };
        heads.check(self.state(layer)?)?;
        Ok(heads)
    }

    /// Reads the channels of a convolution layer, which must match its recurrent state.
    pub fn conv_heads(&mut self) -> Result<ConvHeads> {
        let (layer, heads, head_dim, key_heads) = (self.size()?, self.size()?, self.size()?, self.size()?);
        let heads = ConvHeads { layer, heads, head_dim, key_heads };
        heads.check(self.state(layer)?)?;
        Ok(heads)
    }

    /// Reads the heads of a Mamba2 layer, which must match its recurrent state.
    pub fn mamba_heads(&mut self) -> Result<MambaHeads> {
        let (layer, heads, head_dim) = (self.size()?, self.size()?, self.size()?);
        let heads = MambaHeads { layer, heads, head_dim, groups: self.size()?, state_size: self.size()? };
        heads.check(self.state(layer)?)?;
        Ok(heads)
    }

    fn state(&self, layer: usize) -> Result<&StateLayer> {
        if self.program.draft.is_some() {
            bail!("a draft carries no recurrent state");
        }
        let layers = &self.program.recurrent.layers;
        match layers.get(layer) {
            Some(state) => Ok(state),
            None => bail!("layer {layer} has no recurrent state: there are {}", layers.len()),
        }
    }

    /// Returns the offset of a layer's state in a slot. The state must hold only the last inputs of a convolution.
    pub fn conv_state(&self, layer: usize, inputs: usize, channels: usize) -> Result<usize> {
        let state = self.state(layer)?;
        if [state.channels, state.inputs, state.matrix_floats()] != [channels, inputs, 0] {
            bail!("the last {inputs} inputs of {channels} channels do not fit the state of layer {layer}");
        }
        Ok(state.offset)
    }

    /// Reads the index of a float buffer, which must have `columns` columns if given.
    pub fn float(&mut self, columns: Option<usize>) -> Result<usize> {
        let index = self.size()?;
        self.is_float(index, columns)?;
        Ok(index)
    }

    /// Reads the index of a float buffer that has a row for each token of the step.
    pub fn step_float(&mut self, columns: Option<usize>) -> Result<usize> {
        let index = self.float(columns)?;
        self.rows_are(index, Rows::Step)?;
        Ok(index)
    }

    /// Reads the buffers of a result whose 8-bit blocks are in one plane or in two. The buffer's kind says which.
    pub fn out(&mut self) -> Result<Out> {
        let (float, blocks) = (self.optional()?, self.optional()?);
        let kind = blocks.map(|index| self.buffer(index)).transpose()?.map(|buffer| buffer.kind);
        let (quant, fine) = if kind == Some(Kind::Fine) { (None, blocks) } else { (blocks, None) };
        self.forms(Out { float, quant, fine })
    }

    /// Reads the buffers of a result with blocks in one plane and a row for each token of the step.
    pub fn step_out(&mut self) -> Result<Out> {
        let out = Out { float: self.optional()?, quant: self.optional()?, fine: None };
        let out = self.forms(out)?;
        for index in out.forms() {
            self.rows_are(index, Rows::Step)?;
        }
        Ok(out)
    }

    /// Reads the buffers of a result with blocks in one plane, in two planes, or both.
    pub fn fine_out(&mut self) -> Result<Out> {
        let out = Out { float: self.optional()?, quant: self.optional()?, fine: self.optional()? };
        self.forms(out)
    }

    /// Reads the index of the float buffer with the experts that each row chose: their numbers, then their weights.
    pub fn choice(&mut self) -> Result<(usize, Choice)> {
        let (buffer, choice) = (self.size()?, Choice::decode(self.words)?);
        self.is_float(buffer, Some(2 * choice.used))?;
        self.rows_are(buffer, Rows::Step)?;
        Ok((buffer, choice))
    }

    /// Reads the buffers of a value that has a row for each expert that a row of the step chose.
    pub fn chosen_out(&mut self, choice: Choice) -> Result<Out> {
        let out = Out { float: self.optional()?, quant: self.optional()?, fine: None };
        self.kinds(out)?;
        for index in out.forms() {
            self.rows_are(index, Rows::Chosen(choice))?;
        }
        Ok(out)
    }

    fn forms(&self, out: Out) -> Result<Out> {
        for index in out.forms() {
            self.is_plain(index)?;
        }
        self.kinds(out)
    }

    fn kinds(&self, out: Out) -> Result<Out> {
        for (index, kind) in [(out.float, Kind::Float), (out.quant, Kind::Quant), (out.fine, Kind::Fine)] {
            if let Some(index) = index
                && self.buffer(index)?.kind != kind
            {
                bail!("buffer {index} must be of kind {kind:?} (got {:?})", self.buffer(index)?.kind);
            }
        }
        Ok(out)
    }

    /// Returns the buffer with this index.
    pub fn buffer(&self, index: usize) -> Result<&Buffer> {
        match self.program.buffers.get(index) {
            Some(buffer) => Ok(buffer),
            None => bail!("buffer {index} is out of range 0..{}", self.program.buffers.len()),
        }
    }

    /// Rejects a buffer whose number of rows depends on the experts that rows choose. Only ops for experts support such
    /// buffers.
    fn is_plain(&self, index: usize) -> Result<()> {
        match self.buffer(index)?.rows {
            Rows::Step | Rows::Logits | Rows::Pools => Ok(()),
            rows => bail!("buffer {index} has a row for each {}, which this op cannot use", rows.of_what()),
        }
    }

    /// Checks that the buffer holds floats, with `columns` columns if given.
    pub fn is_float(&self, index: usize, columns: Option<usize>) -> Result<()> {
        self.is_plain(index)?;
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

    pub fn rows_are(&self, index: usize, rows: Rows) -> Result<()> {
        if self.buffer(index)?.rows != rows {
            bail!("buffer {index} must have a row for each {}", rows.of_what());
        }
        Ok(())
    }

    /// Checks that all buffers have the same number of rows.
    pub fn same_rows(&self, buffers: &[Option<usize>]) -> Result<()> {
        let mut rows = buffers.iter().flatten().map(|i| self.program.buffers[*i].rows);
        let first = rows.next();
        if rows.any(|r| Some(r) != first) {
            bail!(
                "operands must all have a row for each token, or all for each row of logits, or all for each pooled sequence"
            );
        }
        Ok(())
    }

    /// Checks that a table has the angles to rotate the first `rotated` of a head's `head_dim` dimensions.
    pub fn angles(&self, table: Option<usize>, rotated: usize, head_dim: usize) -> Result<()> {
        match table {
            Some(table) => {
                self.is_float(table, Some(rotated))?;
                self.rows_are(table, Rows::Step)?;
            }
            None if rotated > 0 => bail!("{rotated} dimensions cannot be rotated without a table"),
            None => {}
        }
        if rotated > head_dim || !rotated.is_multiple_of(2) {
            bail!("rotated dimensions must be an even number of at most {head_dim} (got {rotated})");
        }
        Ok(())
    }

    /// Checks that the heads lie within the buffer's rows without overlap.
    pub fn heads_within(&self, buffer: usize, place: HeadPlace, heads: usize, head_dim: usize) -> Result<()> {
        let HeadPlace { column, step } = place;
        let columns = self.buffer(buffer)?.columns;
        if head_dim == 0 || head_dim > columns {
            bail!(
                "heads must have at least 1 dimension, and at most the {columns} columns of their rows (got {head_dim})"
            );
        }
        let between = heads.checked_sub(1).and_then(|n| n.checked_mul(step));
        if step < head_dim || between.is_none_or(|n| n > columns - head_dim || column > columns - head_dim - n) {
            bail!(
                "{heads} heads of {head_dim} columns, {step} columns apart from column {column} on, do not fit in rows of {columns} columns"
            );
        }
        Ok(())
    }

    /// Returns the number of columns of an operand in any form: floats or quantized.
    pub fn columns(&self, out: Out) -> Result<usize> {
        match out.forms().next() {
            Some(index) => Ok(self.buffer(index)?.columns),
            None => bail!("an op without operands"),
        }
    }

    /// Checks that a result has a buffer, and that each of its buffers has `columns` columns.
    pub fn width(&self, out: Out, columns: usize) -> Result<()> {
        let found: Vec<_> = out.forms().map(|i| self.program.buffers[i].columns).collect();
        if found.is_empty() || found.iter().any(|c| *c != columns) {
            bail!("outputs must have {columns} columns (got {found:?})");
        }
        Ok(())
    }

    /// Checks that a matrix has `rows` rows and `columns` columns.
    pub fn shape(&self, matrix: usize, rows: usize, columns: usize) -> Result<()> {
        let m = self.weights.matrix(matrix)?;
        if (m.rows, m.columns) != (rows, columns) {
            bail!("tensor {matrix} must be {rows} x {columns} (got {} x {})", m.rows, m.columns);
        }
        Ok(())
    }

    /// Returns the vector with this index, which must have `len` floats.
    pub fn vector(&self, index: usize, len: usize) -> Result<&[f32]> {
        self.weights.vector(index, len)
    }

    /// Checks that x has a form (floats or 8-bit blocks) that the matrix's kernels can read, with the right width.
    pub fn reads(&self, matrix: usize, x: Out) -> Result<()> {
        let m = self.weights.matrix(matrix)?;
        let index = match m.format.kernels {
            FormatKernels::Block(_) => x.quant.or(x.fine),
            FormatKernels::Float(_) => x.float,
        };
        match index {
            Some(i) if self.program.buffers[i].columns == m.columns => Ok(()),
            _ => bail!("no operand has the kind of buffer that the kernels of tensor {matrix} read"),
        }
    }
}
