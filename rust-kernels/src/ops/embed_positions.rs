//! Op: adds learned positions. Each token's row is increased by the row of the token's position. With token types, also
//! by the row of the first type.
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Program};
use crate::simd::{Kernel, Simd};

pub struct EmbedPositions {
    x: usize,
    /// Indices of two matrices: one row per position, and one row per token type.
    positions: Option<usize>,
    types: Option<usize>,
    columns: usize,
    /// Number of positions that the matrix has.
    longest: usize,
}

impl Decode for EmbedPositions {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, positions, types) = (o.step_float(None)?, o.optional()?, o.optional()?);
        let columns = o.buffer(x)?.columns;
        let mut longest = usize::MAX;
        for (matrix, is_positions) in [(positions, true), (types, false)] {
            let Some(matrix) = matrix else { continue };
            let m = o.weights.matrix(matrix)?;
            if m.columns != columns || m.rows == 0 {
                bail!("tensor {matrix} must have rows of {columns} columns (got {} x {})", m.rows, m.columns);
            }
            if is_positions {
                longest = m.rows;
            }
        }
        Ok(Self { x, positions, types, columns, longest })
    }
}

impl Op for EmbedPositions {
    fn scratch(&self, _: &Program) -> usize {
        self.columns.next_multiple_of(16)
    }

    fn positions(&self) -> Option<usize> {
        Some(self.longest)
    }

    fn run(&self, run: &Run, work: &Work) {
        let (columns, added) = (self.columns, work.scratch);
        for row in work.items(run.tokens()).flatten() {
            let x = run.float(self.x, row);
            // SAFETY: positions are below `longest`, decoding checked the widths, the scratch holds a row.
            unsafe {
                for (matrix, at) in [(self.types, 0), (self.positions, run.step.position_of[row])] {
                    let Some(matrix) = matrix else { continue };
                    run.matrix_row(run.matrix(matrix), at, added);
                    run.isa.run(AddRow { x, added, columns });
                }
            }
        }
    }
}

/// Adds two rows: x += added.
///
/// # Safety
/// Both rows hold `columns` floats, padded to whole vectors of any instruction set.
struct AddRow {
    x: *mut f32,
    added: *const f32,
    columns: usize,
}

impl Kernel for AddRow {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, added, columns } = self;
        for i in (0..columns).step_by(S::LANES) {
            unsafe { s.store(x.add(i), s.add(s.load(x.add(i)), s.load(added.add(i)))) }
        }
    }
}
