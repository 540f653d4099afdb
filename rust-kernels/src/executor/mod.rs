//! Runs a program's ops on the thread pool. An op hands out its work in items, and a barrier stands between ops. A
//! result never depends on which thread computes an item.
mod carry;
mod run;
mod work;

pub use self::run::Run;
pub use self::work::Work;

use crate::bail;
use crate::cache::{Part, total};
use crate::clock::Instant;
use crate::error::{Error, Result};
use crate::masks::Masks;
use crate::memory::{Pages, Region};
use crate::ops::attention::groups::groups;
use crate::pool::{Apart, Pool};
use crate::program::{OwnRow, Program};
use crate::simd::Isa;
use crate::step::Step;
use crate::weights::Weights;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// The outcome of `Executor::run`.
pub enum Progress {
    /// The step computed its answers.
    Done,
    /// The caller stopped the step. It computed no answers.
    Stopped,
    /// The step paused in this op and must be resumed there. The op may have finished some of its items.
    Paused(usize),
}

/// A program with the memory that it runs in.
pub struct Executor {
    program: Program,
    arena: Region,
    keys: Region,
    values: Region,
    /// Recurrent states: [slot][layer], in the layout of `RecurrentShape`.
    states: Region,
    /// Scratch memory of each thread.
    scratch: Vec<Region>,
    /// Rows that each thread computes for itself.
    own: Vec<Region>,
    /// The counters that hand out each op's items.
    counters: Vec<Apart<AtomicUsize>>,
    /// Nanoseconds spent in each op, over all steps.
    times: Vec<AtomicU64>,
}

impl Executor {
    /// # Errors
    /// The memory cannot be reserved.
    pub fn new(program: Program, threads: usize) -> Result<Self> {
        let floats = program.ops.iter().map(|op| op.scratch(&program)).max().unwrap_or(0);
        let own = program.own_rows.iter().flatten().map(|row| row.bytes).max().unwrap_or(0);
        let regions = |bytes: usize, what| -> Result<Vec<Region>> {
            (0..threads).map(|_| Region::new(bytes, Pages::Small, what)).collect()
        };
        Ok(Self {
            arena: Region::new(program.arena_bytes, Pages::Huge, "activations")?,
            keys: Region::new(program.kv_bytes[0], Pages::Huge, "the KV cache's keys")?,
            values: Region::new(program.kv_bytes[1], Pages::Huge, "the KV cache's values")?,
            states: Region::new(program.state_bytes, Pages::Huge, "recurrent states")?,
            scratch: regions(4 * floats, "scratch")?,
            own: regions(own, "a thread's rows")?,
            counters: program.ops.iter().map(|_| Apart::default()).collect(),
            times: program.ops.iter().map(|_| AtomicU64::new(0)).collect(),
            program,
        })
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Nanoseconds spent in each op since the last call.
    pub fn take_times(&self) -> Vec<u64> {
        self.times.iter().map(|t| t.swap(0, SeqCst)).collect()
    }

    /// Copies `parts` of this program's cache to `output` and returns the bytes written.
    ///
    /// # Errors
    /// The output is too small.
    pub fn read_cache(&mut self, parts: &[Part], output: &mut [u8]) -> Result<usize> {
        let (bytes, room) = (total(parts), output.len());
        if bytes > room {
            bail!("KV blocks and states of {bytes} bytes do not fit an output of {room}");
        }
        let mut rest = output;
        for (region, at, bytes) in parts.iter().flat_map(|part| self.spans(*part)) {
            let (to, behind) = rest.split_at_mut(bytes);
            // SAFETY: `spans` lie within their region; no step runs while `self` is borrowed.
            to.copy_from_slice(unsafe { std::slice::from_raw_parts(region.at(at), bytes) });
            rest = behind;
        }
        Ok(bytes)
    }

    /// Copies `input`, in the layout of `read_cache`, back into the cache.
    ///
    /// # Errors
    /// The input's size differs from that of the parts.
    pub fn write_cache(&mut self, parts: &[Part], input: &[u8]) -> Result<()> {
        let (bytes, given) = (total(parts), input.len());
        if bytes != given {
            bail!("KV blocks and states have {bytes} bytes (got {given})");
        }
        let mut rest = input;
        for (region, at, bytes) in parts.iter().flat_map(|part| self.spans(*part)) {
            let (from, behind) = rest.split_at(bytes);
            // SAFETY: `spans` lie within their region; no step runs while `self` is borrowed alone.
            unsafe { std::slice::from_raw_parts_mut(region.at(at), bytes) }.copy_from_slice(from);
            rest = behind;
        }
        Ok(())
    }

    /// The memory of a part: regions, offsets and bytes.
    fn spans(&self, part: Part) -> impl Iterator<Item = (&Region, usize, usize)> + use<'_> {
        let spans = match part {
            Part::Kv { at, bytes } => [Some((&self.keys, at[0], bytes[0])), Some((&self.values, at[1], bytes[1]))],
            Part::State { at, bytes } => [Some((&self.states, at, bytes)), None],
        };
        for (region, at, bytes) in spans.iter().flatten() {
            assert!(at + bytes <= region.len());
        }
        spans.into_iter().flatten()
    }

    /// The place of op `i`'s result, if each thread computes it for itself. For a single row, that is faster than a
    /// barrier.
    fn own_row(&self, i: usize, run: &Run) -> Option<OwnRow> {
        let row = self.program.own_rows[i]?;
        (run.rows_of_any(row.out) == 1).then_some(row)
    }

    /// Prepares a step. Returns its first op.
    pub fn begin(&self, step: &Step) -> usize {
        for counter in &self.counters {
            counter.0.store(0, SeqCst);
        }
        self.program.ops_of(step).start
    }

    /// Runs a step from op `from` on, and writes its answers to `output`. `stop` ends the step early. A step over whole
    /// texts, which may take seconds, pauses when `pause` returns true.
    ///
    /// # Errors
    /// The output is too small, or a kernel panicked.
    pub fn run(
        &self,
        weights: &Weights,
        isa: Isa,
        pool: &mut Pool,
        (step, from): (&Step, usize),
        (masks, stop, pause): (&Masks, &AtomicBool, &(dyn Fn() -> bool + Sync)),
        output: &mut [u8],
    ) -> Result<Progress> {
        if output.len() < 4 * step.output_words {
            return Err(Error::new(format!("The step's answer takes {} bytes", 4 * step.output_words)));
        }
        let (halted, pauses_at) = (AtomicBool::new(false), AtomicUsize::new(usize::MAX));
        let (asked, paused, threads) = (AtomicUsize::new(0), AtomicBool::new(false), pool.threads());
        // The first answers are false, so that the step always comes further.
        let pauses = || {
            if asked.fetch_add(1, SeqCst) >= threads && pause() {
                paused.store(true, SeqCst);
            }
            paused.load(SeqCst)
        };
        let halt = self.program.whole_texts.then_some(&pauses as &(dyn Fn() -> bool + Sync));
        let (e, p, output) = (self, &self.program, output.as_mut_ptr());
        let groups: Vec<_> = (0..p.kv.windows.len()).map(|group| groups(&step.sequences, group)).collect();
        let run = Run { e, p, weights, isa, step, groups: &groups, own: None, masks, stop, output };
        let run = Shared(run);
        let (began, last) = (Instant::now(), AtomicU64::new(0));
        let done = pool.run(&|worker| {
            let mut run = *run.get();
            let take_time = |i: usize| {
                let now = began.elapsed().as_nanos() as u64;
                // The clocks of WebAssembly threads may differ slightly.
                self.times[i].fetch_add(now.saturating_sub(last.swap(now, SeqCst)), SeqCst);
            };
            for i in from..self.program.ops_of(step).end {
                let op = &self.program.ops[i];
                if op.is_idle(&run) {
                    continue;
                }
                let scratch = self.scratch[worker.index].at(0).cast();
                if let Some(row) = self.own_row(i, &run) {
                    // The first thread writes the shared copy, which later ops may read.
                    run.own = (worker.index > 0).then(|| (row, self.own[worker.index].at(0)));
                    op.run(&run, &Work { next: &AtomicUsize::new(0), halt: None, threads: 1, pass: 0, scratch });
                    if worker.index == 0 {
                        take_time(i);
                    }
                    continue;
                }
                let (next, passes) = (&self.counters[i].0, op.passes(&run, worker.threads()));
                for pass in 0..passes {
                    op.run(&run, &Work { next, halt, threads: worker.threads(), pass, scratch });
                    // Only the leader decides. Otherwise a thread could already pause in the next op before another
                    // thread reads the flag here.
                    worker.barrier(|| {
                        halted.store(stop.load(SeqCst), SeqCst);
                        if paused.load(SeqCst) {
                            pauses_at.store(i, SeqCst);
                        }
                        if pass + 1 < passes {
                            next.store(0, SeqCst);
                        }
                        take_time(i);
                    });
                    if halted.load(SeqCst) || pauses_at.load(SeqCst) == i {
                        return;
                    }
                }
                run.own = None;
            }
        });
        match done {
            Ok(()) if halted.load(SeqCst) => Ok(Progress::Stopped),
            Ok(()) => match pauses_at.load(SeqCst) {
                usize::MAX => Ok(Progress::Done),
                at => Ok(Progress::Paused(at)),
            },
            Err(panic) => Err(Error::new(format!("A kernel panicked ({panic}); the step's results are void"))),
        }
    }
}

struct Shared<'a>(Run<'a>);
// SAFETY: threads write disjoint items of an op's outputs. They read only results of earlier ops, behind a barrier.
unsafe impl Sync for Shared<'_> {}
impl<'a> Shared<'a> {
    fn get(&self) -> &Run<'a> {
        &self.0
    }
}
