//! The gated units of the experts that each row chose. Rows of an expert are put together, so that its weights are read once.
use super::experts::{Chosen, Group, Groups, panels_of};
use super::glu::{ActivationRow, COLUMNS, ROWS};
use super::product::{Affine, Operand, Product};
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::activations::Activation;
use crate::kernels::float_gemm::FloatRows;
use crate::kernels::gemm::{Epilogue, Gemm, corrections_len};
use crate::kernels::norm::Outputs;
use crate::kernels::quant_rows::{QuantRows, copy_row, row_bytes, tile_rows};
use crate::kernels::tiles::whole_blocks;
use crate::program::{Operands, Out, Program, ROW_ROUND};
use std::ops::Range;

pub struct ExpertGlu {
    x: Out,
    chosen: Chosen,
    gate: Affine,
    up: Affine,
    /// Of each expert's gate, and of what it gates.
    rows: usize,
    activation: Activation,
    out: Out,
}

impl Decode for ExpertGlu {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, chosen, gate, mut up) = (o.step_out()?, Chosen::decode(o)?, Affine::decode(o)?, Affine::decode(o)?);
        let (activation, out) = (Activation::of_code(o.words.u32()?)?, o.chosen_out(chosen.choice)?);
        let (columns, ffn) = (o.columns(x)?, o.columns(out)?);
        o.width(out, ffn)?;
        let rows = Affine::halve(&gate, &mut up, ffn)?;
        for part in [&gate, &up] {
            chosen.shape(o, part.weight, rows, columns)?;
            o.reads(part.weight, x)?;
            part.check_bias(o, chosen.choice.experts * rows)?;
        }
        // Rows are put together in the forms that are read, and no others.
        let matrices = [gate.weight, up.weight];
        let read =
            |block: bool| matrices.iter().any(|w| o.weights.matrix(*w).is_ok_and(|m| m.format.is_block() == block));
        let x = Out { float: x.float.filter(|_| read(false)), quant: x.quant.filter(|_| read(true)), fine: None };
        Ok(Self { x, chosen, gate, up, rows: ffn, activation, out })
    }
}

impl Op for ExpertGlu {
    fn scratch(&self, p: &Program) -> usize {
        2 * ROWS * COLUMNS + Gathered::scratch(p, self.x)
    }

    fn run(&self, run: &Run, work: &Work) {
        let mut groups = Groups::new(run, self.chosen);
        // Those that take longest come last, where runs are short.
        let mut order = std::mem::take(&mut groups.groups);
        order.sort_by_key(|group| group.range.len());
        let matrices = [&self.gate, &self.up].map(|part| run.matrix(part.weight));
        let rows = self.rows;
        let kernels = matrices.map(|w| &w.format.kernels);
        let step = whole_blocks(run.isa, kernels, order.len() * rows, groups.most, work.threads);
        let steps = rows.div_ceil(step);
        let mut gathered = Gathered::new(run, self.x, work.scratch.wrapping_add(2 * ROWS * COLUMNS));
        for range in work.tapering(order.len() * steps, [1, (COLUMNS / step).max(1)]) {
            let mut at = range.start;
            while at < range.end {
                let (group, first) = (&order[at / steps], at % steps);
                let last = steps.min(first + range.end - at);
                self.multiply(run, work, &groups, group, &mut gathered, first * step..rows.min(last * step));
                at += last - first;
            }
        }
    }
}

impl ExpertGlu {
    /// Columns of the output of one expert, for all rows that chose it.
    fn multiply(
        &self,
        run: &Run,
        work: &Work,
        groups: &Groups,
        group: &Group,
        gathered: &mut Gathered,
        columns: Range<usize>,
    ) {
        let tiles = [work.scratch, work.scratch.wrapping_add(ROWS * COLUMNS)];
        let out = groups.operand(run, self.out);
        let out = Outputs {
            float: out.float.map_or(std::ptr::null_mut(), |rows| rows.base),
            float_stride: out.float.map_or(0, |rows| rows.stride),
            quant: out.quant,
            fine: None,
        };
        let (n, start, experts) = (columns.len(), columns.start, self.chosen.choice.experts);
        for first in (0..group.range.len()).step_by(gathered.capacity) {
            let m = gathered.gather(run, groups, group, first);
            for from in (0..m).step_by(ROWS) {
                let to = m.min(from + ROWS);
                for (part, tile) in [&self.gate, &self.up].into_iter().zip(tiles) {
                    let matrix = run.matrix(part.weight);
                    let args = Gemm {
                        panels: panels_of(run.isa, matrix, experts, group.expert, part.first + start),
                        panel_bytes: matrix.panel_bytes,
                        rows: n,
                        columns: matrix.columns,
                        from,
                        to,
                        out: tile,
                        ldo: COLUMNS,
                        bias: part.bias(run, matrix.rows, group.expert * (matrix.rows / experts) + part.first + start),
                        epilogue: Epilogue::Store,
                    };
                    // SAFETY: the columns begin with a block, so with a panel; the tile holds them.
                    unsafe { gathered.product.multiply(&args, matrix) }
                }
                for i in from..to {
                    let [x, up] = tiles.map(|tile| tile.wrapping_add((i - from) * COLUMNS));
                    let (activation, row) = (self.activation, group.at + first + i);
                    // SAFETY: the row is within the tiles and the outputs.
                    unsafe { run.isa.run(ActivationRow { activation, x, up, n, out: &out, row, start }) }
                }
            }
        }
    }
}

/// Rows of x that chose an expert, put together in a thread's own memory.
struct Gathered {
    x: Out,
    /// Rows at most: all that a step has, since a row chooses an expert once.
    capacity: usize,
    rows: Operand,
    corrections: *mut f32,
    /// The expert, and the first of its rows.
    held: Option<(usize, usize)>,
    product: Product,
}

impl Gathered {
    /// Floats for corrections, 8-bit rows and rows of floats.
    fn parts(p: &Program, x: Out) -> [usize; 3] {
        let capacity = Self::capacity(p);
        let columns = |index: usize| p.buffers[index].columns;
        [
            x.quant.map_or(0, |i| corrections_len(capacity, columns(i), ROW_ROUND).next_multiple_of(16)),
            x.quant.map_or(0, |i| capacity * row_bytes(columns(i)) / 4),
            x.float.map_or(0, |i| capacity * p.buffers[i].stride()),
        ]
    }

    fn capacity(p: &Program) -> usize {
        p.max_rows.next_multiple_of(ROW_ROUND)
    }

    fn scratch(p: &Program, x: Out) -> usize {
        Self::parts(p, x).into_iter().sum()
    }

    /// `scratch` is what the function of that name says.
    fn new(run: &Run, x: Out, scratch: *mut f32) -> Self {
        let [corrections, quant, _] = Self::parts(run.p, x);
        let quant_at = scratch.wrapping_add(corrections).cast();
        let float_at = scratch.wrapping_add(corrections + quant);
        let rows = Operand {
            m: 0,
            float: x.float.map(|i| FloatRows { base: float_at, stride: run.stride(i) }),
            quant: x.quant.map(|i| QuantRows { base: quant_at, ..run.quant_rows(i) }),
            fine: None,
        };
        let product = Product::of(run.isa, rows, scratch);
        Self { x, capacity: Self::capacity(run.p), rows, corrections: scratch, held: None, product }
    }

    /// Puts the group's rows from `part` on together, as many as there is room for; returns how many.
    fn gather(&mut self, run: &Run, groups: &Groups, group: &Group, part: usize) -> usize {
        let m = (group.range.len() - part).min(self.capacity);
        if self.held == Some((group.expert, part)) {
            return m;
        }
        self.rows.m = m;
        if let Some(quant) = &mut self.rows.quant {
            quant.tile = tile_rows(m, run.isa.tile());
        }
        for (i, member) in groups.members(group)[part..part + m].iter().enumerate() {
            // SAFETY: the row is x's, and there is room for `capacity` rows in whole tiles.
            unsafe {
                if let (Some(to), Some(from)) = (&self.rows.quant, self.x.quant) {
                    copy_row(&run.quant(from), member.row, to, i);
                }
                if let (Some(to), Some(from)) = (&self.rows.float, self.x.float) {
                    let to = to.base.add(i * to.stride);
                    to.copy_from_nonoverlapping(run.float(from, member.row), run.stride(from));
                }
            }
        }
        self.held = Some((group.expert, part));
        self.product = Product::of(run.isa, self.rows, self.corrections);
        m
    }
}
