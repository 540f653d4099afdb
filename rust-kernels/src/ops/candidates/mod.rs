//! The output of a step: for each row with logits, the best candidates, the spread of all logits, and a drawn token.
mod adjust;
mod draw;
mod form;
mod row;
mod select;
mod survey;

pub use self::adjust::{ApplyMask, Penalties, adjust};
pub use self::draw::{Draw, SUMMED, Weigh};
pub use self::form::{LogitTransform, TransformLogits};
pub use self::select::{Best, select};
pub use self::survey::{PART, Row, Spread, Sums, Survey};

use self::row::{LogitsRow, Raw, Sharpener};
use super::{Decode, Op};
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Program, Rows};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

pub struct Candidates {
    logits: usize,
    /// Number of logits per row. In a draft, a row may have only the first tokens of the vocabulary.
    count: usize,
    exact: Option<Exact>,
    form: LogitTransform,
    /// By row: the original values of changed logits, kept between two passes.
    raw: Mutex<BTreeMap<usize, Raw>>,
}

/// Inputs for the exact computation of the best logits: float rows and the matrix.
#[derive(Clone, Copy)]
struct Exact {
    x: usize,
    weight: usize,
    columns: usize,
    form: LogitTransform,
}

impl Decode for Candidates {
    fn decode(o: &mut Operands) -> Result<Self> {
        let logits = o.float(None)?;
        o.rows_are(logits, Rows::Logits)?;
        let (count, vocab) = (o.buffer(logits)?.columns, o.program.vocab);
        if count == 0 || count > vocab {
            bail!("buffer {logits} must have 1 to {vocab} columns, for tokens of the vocabulary (got {count})");
        }
        let (x, weight, scale, softcap) = (o.optional()?, o.optional()?, o.f32()?, o.f32()?);
        let form = LogitTransform { scale, softcap };
        let (Some(x), Some(weight)) = (x, weight) else {
            return Ok(Self { logits, count, exact: None, form, raw: Mutex::default() });
        };
        o.is_float(x, None)?;
        o.same_rows(&[Some(x), Some(logits)])?;
        let columns = o.buffer(x)?.columns;
        if !columns.is_multiple_of(16) {
            bail!("buffer {x} must have a multiple of 16 columns (got {columns})");
        }
        o.shape(weight, count, columns)?;
        let exact = Some(Exact { x, weight, columns, form });
        Ok(Self { logits, count, exact, form, raw: Mutex::default() })
    }
}

impl Candidates {
    /// Returns the number of parts per row for `survey`, and for `weigh`.
    fn parts(&self) -> [usize; 2] {
        [self.count.div_ceil(PART), self.count.div_ceil(SUMMED)]
    }

    /// Returns offsets in a row's scratch memory, in floats: of the matrix row, the sums, the weights and the end. The
    /// maxima are at offset 0.
    fn places(&self) -> [usize; 4] {
        let [surveyed, weighed] = self.parts();
        let exact = Row::maxima(self.count).next_multiple_of(16);
        let sums = exact + self.exact.map_or(0, |exact| exact.columns);
        let weights = sums + surveyed * size_of::<Sums>() / size_of::<f32>();
        [exact, sums, weights, weights + (1 + weighed) * size_of::<f64>() / size_of::<f32>()]
    }

    /// Returns row `index` of the step, with its scratch memory.
    fn row<'a>(&'a self, run: &'a Run, index: usize, scratch: *mut f32) -> LogitsRow<'a> {
        let [exact, sums, weights, _] = self.places().map(|place| scratch.wrapping_add(place));
        LogitsRow {
            run,
            request: &run.step.logits[index],
            form: self.form,
            count: self.count,
            logits: run.float(self.logits, index),
            maxima: scratch,
            exact: self.exact.map(|of| Sharpener { of, run, index, scratch: exact }),
            sums: sums.cast(),
            weights: weights.cast(),
        }
    }

    /// Returns the original logits of rows that still need a drawn token.
    fn raw(&self) -> MutexGuard<'_, BTreeMap<usize, Raw>> {
        self.raw.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Whether the threads share the work of each row, because there are fewer rows than threads. Row i then uses the
/// scratch memory of thread i. Steps over whole texts may pause, and then repeat an op from its first pass.
fn shares_rows(run: &Run, threads: usize) -> bool {
    run.step.logits.len() < threads && !run.p.whole_texts
}

impl Op for Candidates {
    fn scratch(&self, _: &Program) -> usize {
        self.places()[3]
    }

    fn is_idle(&self, run: &Run) -> bool {
        run.step.logits.is_empty()
    }

    fn passes(&self, run: &Run, threads: usize) -> usize {
        match shares_rows(run, threads) {
            false => 1,
            true if run.step.logits.iter().all(|request| request.draw.is_none()) => 2,
            true => 4,
        }
    }

    fn run(&self, run: &Run, work: &Work) {
        let (rows, [surveyed, weighed]) = (run.step.logits.len(), self.parts());
        if !shares_rows(run, work.threads) {
            for index in work.single_items(rows).flatten() {
                let row = self.row(run, index, work.scratch);
                (0..surveyed).for_each(|part| row.survey(part));
                // Wait for the mask only now, because it is computed while the model runs.
                if !(0..surveyed).all(|part| row.mask(part)) {
                    return; // the step must stop
                }
                let raw = row.choose();
                (0..weighed).for_each(|part| row.weigh(part));
                row.draw(&raw);
            }
            return;
        }
        let row = |index: usize| self.row(run, index, run.scratch_of(index));
        match work.pass {
            0 => {
                for item in work.items(rows * surveyed).flatten() {
                    let (row, part) = (row(item / surveyed), item % surveyed);
                    row.survey(part);
                    if !row.mask(part) {
                        return; // the step must stop
                    }
                }
            }
            1 => work.single_items(rows).flatten().for_each(|index| {
                let raw = row(index).choose();
                if run.step.logits[index].draw.is_some() {
                    self.raw().insert(index, raw);
                }
            }),
            2 => work.items(rows * weighed).flatten().for_each(|item| row(item / weighed).weigh(item % weighed)),
            _ => work.single_items(rows).flatten().for_each(|index| {
                let raw = self.raw().remove(&index).unwrap_or_default();
                row(index).draw(&raw);
            }),
        }
    }
}
