//! The weighted sum of each row's experts, added in the order of the experts' numbers.
use super::experts::{Chosen, Group, Groups, Member, PrefetchPanels, TILE, TILE_ROWS, panels_of, tile_columns};
use super::product::{Affine, Product};
use super::{Decode, Op};
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::gemm::{Epilogue, Gemm, corrections_len};
use crate::kernels::tiles::Tiles;
use crate::program::{Operands, Out, Program, ROW_ROUND};
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Minimum bytes of an expert that a thread reads at a time, if each thread then still gets RUNS_PER_THREAD runs.
const STRETCH_BYTES: usize = 24 * 1024;
const RUNS_PER_THREAD: usize = 8;

pub struct ExpertSum {
    x: Out,
    chosen: Chosen,
    down: Affine,
    out: usize,
    /// Whether the sum is added to the contents of `out`: a residual connection.
    add: bool,
}

impl Decode for ExpertSum {
    fn decode(o: &mut Operands) -> Result<Self> {
        let chosen = Chosen::decode(o)?;
        let (x, down) = (o.chosen_out(chosen.choice)?, Affine::decode(o)?);
        let (out, add) = (o.step_float(None)?, o.flag()?);
        let columns = o.buffer(out)?.columns;
        chosen.shape(o, down.weight, columns, o.columns(x)?)?;
        o.reads(down.weight, x)?;
        down.check_bias(o, chosen.choice.experts * columns)?;
        Ok(Self { x, chosen, down, out, add })
    }
}

impl Op for ExpertSum {
    fn scratch(&self, p: &Program) -> usize {
        TILE + self.x.quant.map_or(0, |i| corrections_len(self.most_rows(p), p.buffers[i].columns, ROW_ROUND))
    }

    /// Idle if there is nothing to add.
    fn is_idle(&self, run: &Run) -> bool {
        self.add && self.chosen.is_unused(run)
    }

    /// Every item sums all experts of its columns, so no item waits for another.
    fn run(&self, run: &Run, work: &Work) {
        let (groups, matrix) = (Groups::new(run, self.chosen), run.matrix(self.down.weight));
        let rows = groups.operand(run, self.x);
        let corrections = work.scratch.wrapping_add(TILE);
        let product = |group: &Group| {
            let before = rows.quant.map_or(0, |x| corrections_len(group.at, x.columns, 1));
            Product::of(run.isa, groups.rows_of(group, &rows), corrections.wrapping_add(before))
        };
        let mut products: Vec<Product> = groups.groups.iter().map(product).collect();
        let lanes = run.isa.lanes();
        let panels = matrix.rows / self.chosen.choice.experts / lanes;
        let tiles = Tiles::new(run.isa, &matrix.format.kernels, panels, groups.most, panels / work.threads);
        let most = tiles.most.min(tile_columns(groups.most) / lanes / tiles.tile);
        let stretch = STRETCH_BYTES.div_ceil(tiles.tile * matrix.panel_bytes);
        let least = stretch.min(tiles.count() / (work.threads * RUNS_PER_THREAD)).clamp(1, most);
        for range in work.tapering(tiles.count(), [least, most]) {
            let panels = tiles.panels_of(range);
            let columns = panels.start * lanes..panels.end * lanes;
            if !self.add {
                for row in 0..run.tokens() {
                    // SAFETY: the columns are the row's.
                    unsafe { run.float(self.out, row).add(columns.start).write_bytes(0, columns.len()) }
                }
            }
            let mut next = groups.groups.iter().skip(1).map(|group| self.panels(run, group.expert, columns.start));
            for (group, product) in groups.groups.iter().zip(&mut products) {
                if let Some(next) = next.next() {
                    // SAFETY: nothing is read.
                    unsafe { run.isa.run(PrefetchPanels(next)) }
                }
                let tile = (work.scratch, tile_columns(groups.most));
                self.add_group(run, group.expert, groups.members(group), product, &columns, tile);
            }
        }
    }
}

impl ExpertSum {
    fn most_rows(&self, p: &Program) -> usize {
        self.chosen.choice.rows(p.max_rows).expect("checked at decode")
    }

    /// Panels of one expert's matrix from row `row` on.
    fn panels(&self, run: &Run, expert: usize, row: usize) -> *const u8 {
        panels_of(run.isa, run.matrix(self.down.weight), self.chosen.choice.experts, expert, row)
    }

    /// Adds columns of one expert's results to the rows that chose it. The tile has `ldo` columns.
    fn add_group(
        &self,
        run: &Run,
        expert: usize,
        members: &[Member],
        product: &mut Product,
        columns: &Range<usize>,
        (tile, ldo): (*mut f32, usize),
    ) {
        let matrix = run.matrix(self.down.weight);
        let experts = self.chosen.choice.experts;
        let bias = self.down.bias(run, matrix.rows, expert * (matrix.rows / experts) + columns.start);
        for (part, members) in members.chunks(TILE_ROWS).enumerate() {
            let from = part * TILE_ROWS;
            let args = Gemm {
                panels: self.panels(run, expert, columns.start),
                panel_bytes: matrix.panel_bytes,
                rows: columns.len(),
                columns: matrix.columns,
                from,
                to: from + members.len(),
                out: tile,
                ldo,
                bias,
                epilogue: Epilogue::Store,
            };
            // SAFETY: the columns are whole panels of the expert's matrix; the tile holds them.
            unsafe { product.multiply(&args, matrix) }
            for (i, member) in members.iter().enumerate() {
                // SAFETY: the columns are the row's, and no other thread writes them.
                unsafe {
                    let to = run.float(self.out, member.row).add(columns.start);
                    run.isa.run(AddScaled { x: tile.add(i * ldo), by: member.weight, n: columns.len(), to });
                }
            }
        }
    }
}

/// to += by * x.
///
/// # Safety
/// `x` and `to` hold `n` floats, a multiple of LANES.
pub struct AddScaled {
    pub x: *const f32,
    pub by: f32,
    pub n: usize,
    pub to: *mut f32,
}

impl Kernel for AddScaled {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, by, n, to } = self;
        unsafe {
            for i in (0..n).step_by(S::LANES) {
                s.store(to.add(i), s.fma(s.splat(by), s.load(x.add(i)), s.load(to.add(i))));
            }
        }
    }
}
