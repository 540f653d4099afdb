//! The gated units of the experts that each row chose; `expert_activated` is the same without a gate. Rows of an
//! expert are gathered, so that its weights are read once.
use super::experts::{Chosen, Group, Groups, PrefetchPanels, TILE, TILE_ROWS, panels_of, tile_columns};
use super::glu::ActivationRow;
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

/// For each chosen expert: activation(gate x) * (up x).
pub struct ExpertGlu(Unit);

impl Decode for ExpertGlu {
    fn decode(o: &mut Operands) -> Result<Self> {
        Ok(Self(Unit::decode(o, true)?))
    }
}

impl Op for ExpertGlu {
    fn scratch(&self, p: &Program) -> usize {
        self.0.scratch(p)
    }

    fn run(&self, run: &Run, work: &Work) {
        self.0.run(run, work);
    }
}

/// The experts' products, followed by an activation.
pub(super) struct Unit {
    x: Out,
    chosen: Chosen,
    /// The operand of the activation.
    inner: Affine,
    /// The factor of the activation's results.
    up: Option<Affine>,
    /// Rows of each expert's gate matrix, and of its up matrix.
    rows: usize,
    activation: Activation,
    /// As `ActivationRow::limit`.
    limit: f32,
    out: Out,
}

impl Unit {
    /// # Errors
    /// The words are not such an op, or its operands do not fit.
    pub fn decode(o: &mut Operands, gated: bool) -> Result<Self> {
        let (x, chosen, inner) = (o.step_out()?, Chosen::decode(o)?, Affine::decode(o)?);
        let mut up = if gated { Some(Affine::decode(o)?) } else { None };
        let (activation, limit) = Activation::decode(o, gated)?;
        let out = o.chosen_out(chosen.choice)?;
        let (columns, width) = (o.columns(x)?, o.columns(out)?);
        o.width(out, width)?;
        let rows = up.as_mut().map_or(Ok(width), |up| Affine::halve(&inner, up, width))?;
        let matrices: Vec<&Affine> = [Some(&inner), up.as_ref()].into_iter().flatten().collect();
        for part in &matrices {
            chosen.shape(o, part.weight, rows, columns)?;
            o.reads(part.weight, x)?;
            part.check_bias(o, chosen.choice.experts * rows)?;
        }
        // Rows are gathered only in the kinds of buffers that the matrices read.
        let read = |block: bool| {
            matrices.iter().any(|part| o.weights.matrix(part.weight).is_ok_and(|m| m.format.is_block() == block))
        };
        let x = Out { float: x.float.filter(|_| read(false)), quant: x.quant.filter(|_| read(true)), fine: None };
        Ok(Self { x, chosen, inner, up, rows: width, activation, limit, out })
    }

    pub fn scratch(&self, p: &Program) -> usize {
        2 * TILE + Gathered::scratch(p, self.x)
    }

    pub fn run(&self, run: &Run, work: &Work) {
        let mut groups = Groups::new(run, self.chosen);
        // The largest groups come last, where runs are short.
        let mut order = std::mem::take(&mut groups.groups);
        order.sort_by_key(|group| group.range.len());
        let kernels =
            [&self.inner, self.up.as_ref().unwrap_or(&self.inner)].map(|part| &run.matrix(part.weight).format.kernels);
        let rows = self.rows;
        let step = whole_blocks(run.isa, kernels, order.len() * rows, groups.most, work.threads);
        let steps = rows.div_ceil(step);
        let mut gathered = Gathered::new(run, self.x, work.scratch.wrapping_add(2 * TILE));
        for range in work.tapering(order.len() * steps, [1, (tile_columns(groups.most) / step).max(1)]) {
            let mut at = range.start;
            while at < range.end {
                let (group, first) = (&order[at / steps], at % steps);
                let last = steps.min(first + range.end - at);
                at += last - first;
                let next = (at < range.end).then(|| self.panels(run, &self.inner, order[at / steps].expert, 0));
                let columns = first * step..rows.min(last * step);
                self.multiply(run, work, &groups, group, &mut gathered, columns, next);
            }
        }
    }

    /// Panels of one expert's matrix, from row `row` of this half on.
    fn panels(&self, run: &Run, part: &Affine, expert: usize, row: usize) -> *const u8 {
        let matrix = run.matrix(part.weight);
        panels_of(run.isa, matrix, self.chosen.choice.experts, expert, part.first + row)
    }

    /// Computes columns of one expert's output for all rows that chose it. `next` is the address of the panels that
    /// follow.
    #[allow(clippy::too_many_arguments)]
    fn multiply(
        &self,
        run: &Run,
        work: &Work,
        groups: &Groups,
        group: &Group,
        gathered: &mut Gathered,
        columns: Range<usize>,
        next: Option<*const u8>,
    ) {
        let tiles = [work.scratch, work.scratch.wrapping_add(TILE)];
        let ldo = tile_columns(groups.most);
        let out = groups.operand(run, self.out);
        let out = Outputs {
            float: out.float.map_or(std::ptr::null_mut(), |rows| rows.base),
            float_stride: out.float.map_or(0, |rows| rows.stride),
            quant: out.quant,
            fine: None,
        };
        let (n, start, experts) = (columns.len(), columns.start, self.chosen.choice.experts);
        let parts = || [Some(&self.inner), self.up.as_ref()].into_iter().flatten();
        for part in parts() {
            // SAFETY: nothing is read.
            unsafe { run.isa.run(PrefetchPanels(self.panels(run, part, group.expert, start))) }
        }
        for first in (0..group.range.len()).step_by(gathered.capacity) {
            let m = gathered.gather(run, groups, group, first);
            for from in (0..m).step_by(TILE_ROWS) {
                let to = m.min(from + TILE_ROWS);
                for (part, tile) in parts().zip(tiles) {
                    let matrix = run.matrix(part.weight);
                    let args = Gemm {
                        panels: self.panels(run, part, group.expert, start),
                        panel_bytes: matrix.panel_bytes,
                        rows: n,
                        columns: matrix.columns,
                        from,
                        to,
                        out: tile,
                        ldo,
                        bias: part.bias(run, matrix.rows, group.expert * (matrix.rows / experts) + part.first + start),
                        epilogue: Epilogue::Store,
                    };
                    // SAFETY: the columns start with a block, so with a panel; the tile holds them.
                    unsafe { gathered.product.multiply(&args, matrix) }
                }
                if let Some(next) = next {
                    // SAFETY: nothing is read.
                    unsafe { run.isa.run(PrefetchPanels(next)) }
                }
                for i in from..to {
                    let [x, up] = tiles.map(|tile| tile.wrapping_add((i - from) * ldo));
                    let up = if self.up.is_some() { up } else { std::ptr::null_mut() };
                    let (activation, limit, row) = (self.activation, self.limit, group.at + first + i);
                    // SAFETY: the row is within the tiles and the outputs.
                    unsafe { run.isa.run(ActivationRow { activation, limit, x, up, n, out: &out, row, start }) }
                }
            }
        }
    }
}

/// Rows of x that chose an expert, gathered in a thread's own memory.
struct Gathered {
    x: Out,
    /// Maximum rows: all rows of a step, because a row chooses an expert at most once.
    capacity: usize,
    rows: Operand,
    corrections: *mut f32,
    /// The expert whose rows are gathered, and the first of them.
    held: Option<(usize, usize)>,
    product: Product,
}

impl Gathered {
    /// Floats for corrections, 8-bit rows and float rows.
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

    /// `scratch` holds as many floats as the function `scratch` returns.
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

    /// Gathers the group's rows from `part` on, as many as fit. Returns their number.
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
            // SAFETY: the row is one of x's, and there is room for `capacity` rows in whole tiles.
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
