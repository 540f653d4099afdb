//! Returns sums of squares over the step's rows, one for each column of x: how much a matrix's inputs weigh. With experts,
//! each expert has sums over the rows that chose it, and their number.
use super::experts::{Chosen, Groups};
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Kind, Operands, Rows};

/// Columns that a thread adds up at a time.
const WIDTH: usize = 256;

pub struct Tally {
    x: usize,
    columns: usize,
    /// The choices of the rows, and whether x has a row for each choice instead of each token.
    chosen: Option<(Chosen, bool)>,
    /// The op's first word among those of all tallies.
    first: usize,
}

impl Decode for Tally {
    fn decode(o: &mut Operands) -> Result<Self> {
        let x = o.size()?;
        let (kind, rows, columns) = (o.buffer(x)?.kind, o.buffer(x)?.rows, o.buffer(x)?.columns);
        if kind != Kind::Float {
            bail!("buffer {x} must hold floats (got {kind:?})");
        }
        if o.program.draft.is_some() {
            bail!("a draft returns no tallies");
        }
        let chosen = if o.flag()? { Some(Chosen::decode(o)?) } else { None };
        match (rows, &chosen) {
            (Rows::Step, _) => {}
            (Rows::Chosen(choice), Some(chosen)) if choice == chosen.choice => {}
            _ => bail!("buffer {x} must have a row for each token of the step, or for each expert that it chose"),
        }
        let chosen = chosen.map(|chosen| (chosen, rows != Rows::Step));
        let first = o.program.ops.iter().map(|op| op.tallies()).fold(0, usize::saturating_add);
        Ok(Self { x, columns, chosen, first })
    }
}

impl Op for Tally {
    fn tallies(&self) -> usize {
        self.chosen.map_or(self.columns, |(chosen, _)| (self.columns + 1).saturating_mul(chosen.choice.experts))
    }

    fn run(&self, run: &Run, work: &Work) {
        let Some((chosen, grouped)) = self.chosen else {
            let rows: Vec<usize> = (0..run.tokens()).collect();
            for item in work.single_items(self.columns.div_ceil(WIDTH)).flatten() {
                self.add_up(run, &rows, item * WIDTH, 0);
            }
            return;
        };
        let (groups, experts) = (Groups::new(run, chosen), chosen.choice.experts);
        for expert in work.single_items(experts).flatten() {
            let group = groups.groups.iter().find(|group| group.expert == expert);
            let rows: Vec<usize> = group.map_or(Vec::new(), |group| match grouped {
                true => (group.at..group.at + group.range.len()).collect(),
                false => groups.members(group).iter().map(|member| member.row).collect(),
            });
            for first in (0..self.columns).step_by(WIDTH) {
                self.add_up(run, &rows, first, expert * self.columns);
            }
            self.answer(run, experts * self.columns + expert, rows.len() as f32);
        }
    }
}

impl Tally {
    /// Adds up the squares of up to WIDTH columns. `to` is the word of column 0.
    fn add_up(&self, run: &Run, rows: &[usize], first: usize, to: usize) {
        let mut sums = [0.0f32; WIDTH];
        let sums = &mut sums[..WIDTH.min(self.columns - first)];
        for row in rows {
            // SAFETY: the buffer has this row, and the columns are the row's.
            let x = unsafe { std::slice::from_raw_parts(run.float(self.x, *row).add(first), sums.len()) };
            sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
        }
        for (i, sum) in sums.iter().enumerate() {
            self.answer(run, to + first + i, *sum);
        }
    }

    fn answer(&self, run: &Run, word: usize, value: f32) {
        // SAFETY: the words of all tallies follow `step.tallies`, and each is an item's own.
        unsafe { run.answer(run.step.tallies + self.first + word, value.to_bits()) }
    }
}
