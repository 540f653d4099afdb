//! A running step. Ops find their operands through it.
use super::Executor;
use crate::kernels::float_gemm::FloatRows;
use crate::kernels::norm::Outputs;
use crate::kernels::quant_rows::{FineRows, QuantRows, tile_rows};
use crate::masks::{Mask, Masks};
use crate::ops::attention::groups::Group;
use crate::program::{Buffer, Out, OwnRow, Program, Rows};
use crate::simd::Isa;
use crate::step::Step;
use crate::weights::{Matrix, Weights};
use std::sync::atomic::AtomicBool;

/// A running step, as every thread sees it. Ops name their operands by index; `Run` returns the addresses.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub(super) e: &'a Executor,
    pub p: &'a Program,
    pub(super) weights: &'a Weights,
    pub isa: Isa,
    pub step: &'a Step,
    /// For each group of layers in the KV cache: the groups of sequences that share blocks.
    pub groups: &'a [Vec<Group>],
    /// The layout and address of this thread's own copy of an op's result, if the op is repeated by every thread.
    pub(super) own: Option<(OwnRow, *mut u8)>,
    pub(super) masks: &'a Masks,
    pub(super) stop: &'a AtomicBool,
    pub(super) output: *mut u8,
}

impl Run<'_> {
    /// Number of rows (tokens) of the step.
    pub fn tokens(&self) -> usize {
        self.step.tokens.len()
    }

    pub fn rows_of(&self, index: usize) -> usize {
        self.buffer_rows(&self.p.buffers[index])
    }

    fn buffer_rows(&self, buffer: &Buffer) -> usize {
        match buffer.rows {
            Rows::Step => self.step.tokens.len(),
            Rows::Logits => self.step.logits.len(),
            Rows::Pools => self.step.pools.len(),
            Rows::Chosen(_) => unreachable!("only ops that count these rows themselves get such a buffer"),
        }
    }

    /// Returns the number of rows of an op's operand or result in any form: floats or quantized.
    pub fn rows_of_any(&self, out: Out) -> usize {
        self.rows_of(out.forms().next().expect("checked at decode"))
    }

    /// Returns the address of a buffer, or of this thread's own copy of it.
    fn base(&self, index: usize) -> *mut u8 {
        let own = self.own.and_then(|(row, base)| Some(base.wrapping_add(row.place(index)?)));
        own.unwrap_or_else(|| self.e.arena.at(self.p.buffers[index].offset))
    }

    /// Returns the address of row `row` of a float buffer.
    pub fn float(&self, index: usize, row: usize) -> *mut f32 {
        self.base(index).wrapping_add(4 * row * self.stride(index)).cast()
    }

    /// Returns the number of floats between two rows of a float buffer.
    pub fn stride(&self, index: usize) -> usize {
        self.p.buffers[index].stride()
    }

    pub fn float_rows(&self, index: usize) -> FloatRows {
        FloatRows { base: self.float(index, 0), stride: self.stride(index) }
    }

    pub fn quant(&self, index: usize) -> QuantRows {
        let tile = tile_rows(self.rows_of(index), self.isa.tile());
        QuantRows { tile, ..self.quant_rows(index) }
    }

    /// Returns the quantized rows of a buffer with one row per tile. A caller that knows the number of rows sets the
    /// tile.
    pub fn quant_rows(&self, index: usize) -> QuantRows {
        let columns = self.p.buffers[index].columns;
        QuantRows { base: self.base(index), columns, tile: 1, paired: self.isa.row_pairs() }
    }

    pub fn fine(&self, index: usize) -> FineRows {
        let buffer = &self.p.buffers[index];
        FineRows::new(self.base(index), buffer.columns, self.buffer_rows(buffer), self.isa)
    }

    pub fn outputs(&self, out: Out) -> Outputs {
        Outputs {
            float: out.float.map_or(std::ptr::null_mut(), |i| self.float(i, 0)),
            float_stride: out.float.map_or(0, |i| self.stride(i)),
            quant: out.quant.map(|i| self.quant(i)),
            fine: out.fine.map(|i| self.fine(i)),
        }
    }

    // Finds matrix `index`. It exists, because `Program::decode` checked the program against the weights.
    pub fn matrix(&self, index: usize) -> &Matrix {
        self.weights.matrix(index).expect("checked at decode")
    }

    pub fn vector(&self, index: usize, len: usize) -> *const f32 {
        self.weights.vector(index, len).expect("checked at decode").as_ptr()
    }

    /// Returns the address of a vector's floats, or null if the op has no vector.
    pub fn vector_or_null(&self, index: Option<usize>, len: usize) -> *const f32 {
        index.map_or(std::ptr::null(), |index| self.vector(index, len))
    }

    /// Decodes row `row` of a matrix to floats at `out`.
    ///
    /// # Safety
    /// `row` is below the matrix's rows, `out` has room for its columns.
    pub unsafe fn matrix_row(&self, m: &Matrix, row: usize, out: *mut f32) {
        let (panel, lane) = (row / self.isa.lanes(), row % self.isa.lanes());
        // SAFETY: guaranteed by the caller.
        unsafe { m.format.row(self.isa, m.panels.add(panel * m.panel_bytes), m.columns, lane, out) }
    }

    /// Returns the addresses of a layer's keys and of its values in a block.
    pub fn kv_block(&self, layer: usize, block: usize) -> [*mut u8; 2] {
        let (kv, offset) = (&self.p.kv, self.p.kv.layers[layer].offset);
        let at = |i: usize| block * kv.block_bytes[i] + offset[i];
        [self.e.keys.at(at(0)), self.e.values.at(at(1))]
    }

    /// Returns the scratch memory of a thread. In an op with several passes, all threads may use it.
    pub fn scratch_of(&self, thread: usize) -> *mut f32 {
        self.e.scratch[thread].at(0).cast()
    }

    /// Waits for mask `index` of the step. Returns None if the step must stop.
    pub fn mask(&self, index: usize) -> Option<Mask> {
        self.masks.wait(index, self.stop)
    }

    /// Writes word `at` of the step's output.
    ///
    /// # Safety
    /// `at` is below `step.output_words`, and no other thread writes this word.
    pub unsafe fn answer(&self, at: usize, word: u32) {
        // SAFETY: `Executor::run` checked the output's size against the sum of all answers.
        unsafe { self.output.add(4 * at).cast::<[u8; 4]>().write(word.to_le_bytes()) }
    }
}
