//! Matrices of activations in the arena.
use super::ROW_ROUND;
use crate::kernels::quant_rows::{FineRows, row_bytes};

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
}

impl Rows {
    pub fn of_what(self) -> &'static str {
        match self {
            Self::Step => "token of the step",
            Self::Logits => "row of logits",
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
