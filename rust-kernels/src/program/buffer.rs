//! Matrices of activations in the arena.
use super::ROW_ROUND;
use crate::bail;
use crate::error::Result;
use crate::kernels::quant_rows::{FineRows, row_bytes};
use crate::words::Words;

/// Experts, and those of a row, at most: far more than any model has. What is allocated for a step is bounded by it.
const MOST_EXPERTS: usize = 1 << 16;
const MOST_USED: usize = 1 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Float,
    /// 8-bit blocks.
    Quant,
    /// 8-bit blocks in two planes.
    Fine,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// One row for each token of the step.
    Step,
    /// One row for each row whose logits are wanted.
    Logits,
    /// One row for each sequence that is pooled.
    Pools,
    /// One row for each expert that a token of the step chose, those of an expert together.
    Chosen(Choice),
}

/// How many experts there are, and how many of them each row chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    pub experts: usize,
    pub used: usize,
}

impl Choice {
    /// # Errors
    /// Past the end of the words, or numbers that no model has.
    pub(super) fn decode(w: &mut Words) -> Result<Self> {
        let choice = Self { experts: w.size()?, used: w.size()? };
        if choice.used == 0 || choice.used > choice.experts.min(MOST_USED) || choice.experts > MOST_EXPERTS {
            bail!("{} of {} experts cannot be chosen", choice.used, choice.experts);
        }
        Ok(choice)
    }

    /// Rows that a buffer of `Rows::Chosen` has room for: each expert's begin with a tile. None beyond all memory.
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

/// A matrix of activations in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub kind: Kind,
    pub rows: Rows,
    pub columns: usize,
    pub offset: usize,
}

impl Buffer {
    /// Floats between two rows of a float buffer.
    pub fn stride(&self) -> usize {
        self.columns.next_multiple_of(16)
    }

    /// None where the size is beyond all memory. Columns are below 2^32, so a row's bytes do not overflow.
    pub(super) fn bytes(&self, rows: usize) -> Option<usize> {
        match self.kind {
            Kind::Float => rows.checked_mul(self.stride() * 4),
            Kind::Quant => rows.checked_next_multiple_of(ROW_ROUND)?.checked_mul(row_bytes(self.columns)),
            Kind::Fine => FineRows::planes(rows, ROW_ROUND)?.checked_mul(row_bytes(self.columns)),
        }
    }
}

/// Where an op's rows go: as floats, as 8-bit blocks of one plane or of two.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub float: Option<usize>,
    pub quant: Option<usize>,
    pub fine: Option<usize>,
}

impl Out {
    /// The forms that are there; after decoding, at least one.
    pub fn forms(&self) -> impl Iterator<Item = usize> {
        [self.float, self.quant, self.fine].into_iter().flatten()
    }
}
