//! Which rows of a step chose which experts, and a matrix an expert in one tensor.
use super::product::Operand;
use crate::bail;
use crate::error::Result;
use crate::executor::Run;
use crate::kernels::float_gemm::FloatRows;
use crate::kernels::quant_rows::{QuantRows, row_bytes, tile_rows};
use crate::program::{Choice, Operands, Out};
use crate::simd::{Isa, Kernel, Simd};
use crate::weights::Matrix;
use std::ops::Range;

/// What an expert's rows come in, so that each expert begins with a panel of any instruction set.
const ROW_STEP: usize = 16;

/// Rows of a tile that an expert's products are kept in, and floats of it.
pub const TILE_ROWS: usize = 128;
pub const TILE: usize = TILE_ROWS * 288;
/// Rows of experts that few rows chose: bound by memory, so that a thread reads long stretches of each.
const FEW_ROWS: usize = 16;
/// Bytes at the beginning of a stretch of panels that are asked for while something else is computed.
const ASKED_BYTES: usize = 4096;

/// Columns of a tile, where `most` rows chose one expert.
pub fn tile_columns(most: usize) -> usize {
    if most <= FEW_ROWS { TILE / FEW_ROWS } else { TILE / TILE_ROWS }
}

/// Asks for the beginning of a stretch of panels, which the core does not know of until it is there.
pub struct Ask(pub *const u8);

impl Kernel for Ask {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        for line in (0..ASKED_BYTES).step_by(64) {
            s.prefetch_l2(self.0.wrapping_add(line));
        }
    }
}

/// The experts that each row of the step chose, as `route` leaves them: their numbers, then their weights.
#[derive(Clone, Copy)]
pub struct Chosen {
    buffer: usize,
    pub choice: Choice,
}

impl Chosen {
    /// # Errors
    /// A buffer that cannot hold them.
    pub fn decode(o: &mut Operands) -> Result<Self> {
        let (buffer, choice) = o.choice()?;
        Ok(Self { buffer, choice })
    }

    /// That the tensor has a matrix of that shape for each expert.
    pub fn shape(&self, o: &Operands, tensor: usize, rows: usize, columns: usize) -> Result<()> {
        if !rows.is_multiple_of(ROW_STEP) {
            bail!("an expert's rows must be a multiple of {ROW_STEP} (got {rows}), of tensor {tensor}");
        }
        o.shape(tensor, self.choice.experts * rows, columns)
    }

    /// Where `route` puts a row's choice.
    pub fn row(&self, run: &Run, row: usize) -> *mut f32 {
        run.float(self.buffer, row)
    }
}

/// Panels of one expert's matrix, from its row `row` on.
pub fn panels_of(isa: Isa, matrix: &Matrix, experts: usize, expert: usize, row: usize) -> *const u8 {
    let first = expert * (matrix.rows / experts) + row;
    matrix.panels.wrapping_add(first / isa.lanes() * matrix.panel_bytes)
}

/// The rows that chose one expert.
pub struct Group {
    pub expert: usize,
    /// Where they are among `Groups::rows`.
    pub range: Range<usize>,
    /// The first of them in a buffer of `Rows::Chosen`.
    pub at: usize,
}

/// A row of the step that chose an expert, and the expert's weight.
#[derive(Clone, Copy, Default)]
pub struct Member {
    pub row: usize,
    pub weight: f32,
}

/// The rows of a step by the experts that they chose. It follows from what `route` left alone, so each thread makes its
/// own and all are the same.
pub struct Groups {
    /// Of the experts that were chosen, ascending.
    pub groups: Vec<Group>,
    /// Group by group, in the order of the step.
    pub members: Vec<Member>,
    /// Rows of a tile in buffers of `Rows::Chosen`.
    pub tile: usize,
    /// Rows of the largest group.
    pub most: usize,
}

impl Groups {
    pub fn new(run: &Run, chosen: Chosen) -> Self {
        let (m, Choice { experts, used }) = (run.tokens(), chosen.choice);
        // SAFETY: the buffer has a row for each token, as wide as this.
        let choice = |row: usize| unsafe { std::slice::from_raw_parts(chosen.row(run, row), 2 * used) };
        // A plan that is not of this house may have left anything there, and change it meanwhile.
        let expert = |number: &f32| (*number as usize).min(experts - 1);
        let numbers: Vec<usize> = (0..m).flat_map(|row| choice(row)[..used].iter().map(expert)).collect();
        let mut ends = vec![0; experts];
        numbers.iter().for_each(|expert| ends[*expert] += 1);
        let most = ends.iter().copied().max().unwrap_or(0);
        let (tile, mut groups) = (tile_rows(most, run.isa.tile()), Vec::new());
        let (mut start, mut at) = (0, 0);
        for (expert, end) in ends.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            let range = start..start + *end;
            *end = start; // from here on where its next row belongs
            start = range.end;
            groups.push(Group { expert, at, range: range.clone() });
            at += range.len().next_multiple_of(tile);
        }
        let mut members = vec![Member::default(); numbers.len()];
        for (i, expert) in numbers.iter().enumerate() {
            let row = i / used;
            members[ends[*expert]] = Member { row, weight: choice(row)[used + i % used] };
            ends[*expert] += 1;
        }
        Self { groups, members, tile, most }
    }

    pub fn members(&self, group: &Group) -> &[Member] {
        &self.members[group.range.clone()]
    }

    /// A value of `Rows::Chosen` in the forms that are there.
    pub fn operand(&self, run: &Run, x: Out) -> Operand {
        Operand {
            m: self.members.len(),
            float: x.float.map(|i| run.float_rows(i)),
            quant: x.quant.map(|i| QuantRows { tile: self.tile, ..run.quant_rows(i) }),
            fine: None,
        }
    }

    /// The rows of one group out of such a value.
    pub fn rows_of(&self, group: &Group, x: &Operand) -> Operand {
        let float = |x: FloatRows| FloatRows { base: x.base.wrapping_add(group.at * x.stride), ..x };
        let quant = |x: QuantRows| QuantRows { base: x.base.wrapping_add(group.at * row_bytes(x.columns)), ..x };
        Operand { m: group.range.len(), float: x.float.map(float), quant: x.quant.map(quant), fine: None }
    }
}
