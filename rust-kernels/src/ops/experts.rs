//! The experts that the rows of a step chose, and tensors with one matrix per expert.
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

/// An expert's rows are a multiple of this, so that each expert starts with a panel in every instruction set.
const ROW_STEP: usize = 16;

/// Rows of a tile of an expert's products, and its floats.
pub const TILE_ROWS: usize = 128;
pub const TILE: usize = TILE_ROWS * 288;
/// Up to this number of rows an expert is bound by memory, so a thread reads long stretches of each expert.
const FEW_ROWS: usize = 16;
/// Bytes that are prefetched at the start of a stretch of panels during other computations.
const ASKED_BYTES: usize = 4096;

/// Columns of a tile if at most `most` rows chose one expert.
pub fn tile_columns(most: usize) -> usize {
    if most <= FEW_ROWS { TILE / FEW_ROWS } else { TILE / TILE_ROWS }
}

/// Prefetches the start of a stretch of panels, which the hardware prefetcher cannot predict.
pub struct PrefetchPanels(pub *const u8);

impl Kernel for PrefetchPanels {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        for line in (0..ASKED_BYTES).step_by(64) {
            s.prefetch_l2(self.0.wrapping_add(line));
        }
    }
}

/// The experts that each row of the step chose, as `route` writes them: their numbers, then their weights.
#[derive(Clone, Copy)]
pub struct Chosen {
    buffer: usize,
    pub choice: Choice,
}

impl Chosen {
    /// # Errors
    /// The buffer cannot hold the choice.
    pub fn decode(o: &mut Operands) -> Result<Self> {
        let (buffer, choice) = o.choice()?;
        Ok(Self { buffer, choice })
    }

    /// Checks that the tensor has a matrix of that shape for each expert.
    pub fn shape(&self, o: &Operands, tensor: usize, rows: usize, columns: usize) -> Result<()> {
        if !rows.is_multiple_of(ROW_STEP) {
            bail!("an expert's rows must be a multiple of {ROW_STEP} (got {rows}), of tensor {tensor}");
        }
        o.shape(tensor, self.choice.experts * rows, columns)
    }

    /// Whether the choices are adapters and no sequence of the step uses any. Depends on the step only: no barrier
    /// stands behind an op that is not run, so another thread may already overwrite the choices.
    pub fn is_unused(&self, run: &Run) -> bool {
        let (adapters, sequences) = (run.p.adapters, &run.step.sequences);
        adapters.is_some_and(|(buffer, _)| buffer == self.buffer) && sequences.iter().all(|s| s.adapters.is_empty())
    }

    /// The buffer with the choices.
    pub fn buffer(&self) -> usize {
        self.buffer
    }

    /// Address of a row's choice.
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
    /// Indices of the rows in `Groups::members`.
    pub range: Range<usize>,
    /// The group's first row in a buffer of `Rows::Chosen`.
    pub at: usize,
}

/// A row of the step that chose an expert, and the expert's weight.
#[derive(Clone, Copy, Default)]
pub struct Member {
    pub row: usize,
    pub weight: f32,
}

/// The rows of a step, grouped by expert. Choices of weight 0 add nothing and are left out. Depends only on the output of `route`, so each thread computes the same
/// groups for itself.
pub struct Groups {
    /// The groups of the chosen experts, in ascending order.
    pub groups: Vec<Group>,
    /// The members of all groups, in the order of groups, then rows.
    pub members: Vec<Member>,
    /// Rows of a tile in buffers of `Rows::Chosen`.
    pub tile: usize,
    /// Rows of the largest group.
    pub most: usize,
}

impl Groups {
    pub fn new(run: &Run, chosen: Chosen) -> Self {
        let (m, Choice { experts, used }) = (run.tokens(), chosen.choice);
        // SAFETY: the buffer has a row of this width for each token.
        let choice = |row: usize| unsafe { std::slice::from_raw_parts(chosen.row(run, row), 2 * used) };
        // A malformed plan may leave anything there and change it during this op.
        let expert = |number: &f32| (*number as usize).min(experts - 1);
        let chosen = |row: usize| {
            let (numbers, weights) = choice(row).split_at(used);
            let each = numbers.iter().map(expert).zip(weights).filter(|(_, weight)| **weight != 0.0);
            each.map(move |(expert, weight)| (expert, Member { row, weight: *weight }))
        };
        let chosen: Vec<(usize, Member)> = (0..m).flat_map(chosen).collect();
        let mut ends = vec![0; experts];
        chosen.iter().for_each(|(expert, _)| ends[*expert] += 1);
        let most = ends.iter().copied().max().unwrap_or(0);
        let (tile, mut groups) = (tile_rows(most, run.isa.tile()), Vec::new());
        let (mut start, mut at) = (0, 0);
        for (expert, end) in ends.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            let range = start..start + *end;
            *end = start; // from here on the index of its next row
            start = range.end;
            groups.push(Group { expert, at, range: range.clone() });
            at += range.len().next_multiple_of(tile);
        }
        let mut members = vec![Member::default(); chosen.len()];
        for (expert, member) in chosen {
            members[ends[expert]] = member;
            ends[expert] += 1;
        }
        Self { groups, members, tile, most }
    }

    pub fn members(&self, group: &Group) -> &[Member] {
        &self.members[group.range.clone()]
    }

    /// A value of `Rows::Chosen` in the buffers that exist.
    pub fn operand(&self, run: &Run, x: Out) -> Operand {
        Operand {
            m: self.members.len(),
            float: x.float.map(|i| run.float_rows(i)),
            quant: x.quant.map(|i| QuantRows { tile: self.tile, ..run.quant_rows(i) }),
            fine: None,
        }
    }

    /// The rows of one group in such a value.
    pub fn rows_of(&self, group: &Group, x: &Operand) -> Operand {
        let float = |x: FloatRows| FloatRows { base: x.base.wrapping_add(group.at * x.stride), ..x };
        let quant = |x: QuantRows| QuantRows { base: x.base.wrapping_add(group.at * row_bytes(x.columns)), ..x };
        Operand { m: group.range.len(), float: x.float.map(float), quant: x.quant.map(quant), fine: None }
    }
}
