//! Buffers: matrices of activations in the arena, which is the memory of a plan.
use super::ROW_ROUND;
use crate::bail;
use crate::error::Result;
use crate::kernels::quant_rows::{FineRows, row_bytes};
use crate::words::Words;

/// Limits on the number of experts, and on experts per row: far more than any model has. They bound how much memory a
/// step can allocate.
const MOST_EXPERTS: usize = 1 << 16;
const MOST_USED: usize = 1 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Float,
    /// 8-bit blocks in one plane.
    Quant,
    /// 8-bit blocks in two planes.
    Fine,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// The buffer has one row for each token of the step.
    Step,
    /// The buffer has one row for each row of the step that returns logits.
    Logits,
    /// The buffer has one row for each pooled sequence.
    Pools,
    /// The buffer has one row for each expert that a token of the step has chosen, grouped by expert.
    Chosen(Choice),
}

/// The number of experts, and how many of them each row uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    pub experts: usize,
    pub used: usize,
}

impl Choice {
    /// # Errors
    /// The words end too early, or the numbers are out of range.
    pub(super) fn decode(w: &mut Words) -> Result<Self> {
        let choice = Self { experts: w.size()?, used: w.size()? };
        if choice.used == 0 || choice.used > choice.experts.min(MOST_USED) || choice.experts > MOST_EXPERTS {
            bail!("{} of {} experts cannot be chosen", choice.used, choice.experts);
        }
        Ok(choice)
    }

    /// Returns the number of rows of a `Rows::Chosen` buffer, in which each expert's rows start at a tile. None on
    /// overflow.
    pub fn rows(self, tokens: usize) -> Option<usize> {
        let chosen = tokens.checked_mul(self.used)?;
        chosen.checked_add(chosen.min(self.experts).checked_mul(ROW_ROUND - 1)?)
    }
}

impl Rows {
    pub fn of_what(self) -> &'static str {
        match self {
            Self::Step => "token of the step",
            Self::Logits => "row of logits",
            Self::Pools => "pooled sequence",
            Self::Chosen(_) => "expert that a token chose",
        }
    }
}

/// A buffer: a matrix of activations in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub kind: Kind,
    pub rows: Rows,
    pub columns: usize,
    pub offset: usize,
}

impl Buffer {
    /// Returns the number of floats between two rows of a float buffer.
    pub fn stride(&self) -> usize {
        self.columns.next_multiple_of(16)
    }

    /// Returns the size of `rows` rows in bytes; None on overflow. Columns are below 2^32, so the size of one row does
    /// not overflow.
    pub(super) fn bytes(&self, rows: usize) -> Option<usize> {
        match self.kind {
            Kind::Float => rows.checked_mul(self.stride() * 4),
            Kind::Quant => rows.checked_next_multiple_of(ROW_ROUND)?.checked_mul(row_bytes(self.columns)),
            Kind::Fine => FineRows::planes(rows, ROW_ROUND)?.checked_mul(row_bytes(self.columns)),
        }
    }
}

/// The buffers that receive an op's result: as floats, as 8-bit blocks in one plane, as 8-bit blocks in two planes.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub float: Option<usize>,
    pub quant: Option<usize>,
    pub fine: Option<usize>,
}

impl Out {
    /// Returns the indices of the buffers that the result has. After decoding there is at least one.
    pub fn forms(&self) -> impl Iterator<Item = usize> {
        [self.float, self.quant, self.fine].into_iter().flatten()
    }
}
