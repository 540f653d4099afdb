//! The first product of low-rank adapters: the rows of x, each with the matrix of every adapter that it uses.
//! `expert_sum` adds the second product.
use super::experts::{Chosen, Groups, panels_of};
use super::product::{Operand, Product};
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::kernels::float_gemm::FloatRows;
use crate::kernels::gemm::{Epilogue, Gemm};
use crate::program::{Operands, Out};

/// Maximum rows of a work item. A matrix has few panels, so threads share the rows too.
const MOST_ROWS: usize = 32;

pub struct LowRank {
    x: usize,
    chosen: Chosen,
    weight: usize,
    out: usize,
}

/// Consecutive rows that use the same adapter.
struct Stretch {
    adapter: usize,
    row: usize,
    /// The first of their rows in the output.
    at: usize,
    rows: usize,
}

impl Decode for LowRank {
    fn decode(o: &mut Operands) -> Result<Self> {
        let (x, chosen, weight) = (o.step_float(None)?, Chosen::decode(o)?, o.size()?);
        let Out { float: Some(out), quant: None, .. } = o.chosen_out(chosen.choice)? else {
            bail!("adapters' products must be floats");
        };
        chosen.shape(o, weight, o.buffer(out)?.columns, o.buffer(x)?.columns)?;
        o.reads(weight, Out { float: Some(x), quant: None, fine: None })?;
        Ok(Self { x, chosen, weight, out })
    }
}

impl Op for LowRank {
    fn is_idle(&self, run: &Run) -> bool {
        self.chosen.is_unused(run)
    }

    fn run(&self, run: &Run, work: &Work) {
        let (isa, matrix, adapters) = (run.isa, run.matrix(self.weight), self.chosen.choice.experts);
        let stretches = stretches(&Groups::new(run, self.chosen));
        let panels = matrix.rows / adapters / isa.lanes();
        for range in work.items(stretches.len() * panels) {
            let mut item = range.start;
            while item < range.end {
                let (stretch, first) = (&stretches[item / panels], item % panels);
                let count = (panels - first).min(range.end - item);
                item += count;
                let (row, n) = (first * isa.lanes(), stretch.rows);
                let float = FloatRows { base: run.float(self.x, stretch.row), stride: run.stride(self.x) };
                let x = Operand { m: n, float: Some(float), quant: None, fine: None };
                let args = Gemm {
                    panels: panels_of(isa, matrix, adapters, stretch.adapter, row),
                    panel_bytes: matrix.panel_bytes,
                    rows: count * isa.lanes(),
                    columns: matrix.columns,
                    from: 0,
                    to: n,
                    out: run.float(self.out, stretch.at).wrapping_add(row),
                    ldo: run.stride(self.out),
                    bias: std::ptr::null(),
                    epilogue: Epilogue::Store,
                };
                // SAFETY: the panels are the adapter's, the rows are the step's; the matrix reads floats and needs
                // no scratch.
                unsafe { Product::of(isa, x, std::ptr::null_mut()).multiply(&args, matrix) }
            }
        }
    }
}

fn stretches(groups: &Groups) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    for group in &groups.groups {
        for (i, member) in groups.members(group).iter().enumerate() {
            match found.last_mut() {
                Some(last) if i > 0 && last.rows < MOST_ROWS && last.row + last.rows == member.row => last.rows += 1,
                _ => found.push(Stretch { adapter: group.expert, row: member.row, at: group.at + i, rows: 1 }),
            }
        }
    }
    found
}
