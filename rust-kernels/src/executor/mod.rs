//! Walks a program's ops with the thread pool: the work of an op is handed out in items, and a barrier stands
//! between ops. Which thread computes an item never changes its result.
mod answers;
mod attention;
mod delta;
mod groups;
mod matrices;
mod rows;
mod scratch;
pub mod tiles;

use self::delta::DeltaOperands;
use self::groups::{Group, groups};
use self::scratch::Scratch;
use crate::error::{Error, Result};
use crate::memory::{Pages, Region};
use crate::ops::kv::KvKernels;
use crate::ops::norm::Outputs;
use crate::ops::quantize::{FineRows, QuantRows, tile_rows};
use crate::pool::{Items, Pool, Worker};
use crate::program::{Buffer, Op, Out, Program, Rows};
use crate::simd::Isa;
use crate::step::Step;
use crate::weights::{Matrix, Weights};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Items a thread and op: enough that a thread which lost its core for a while does not hold up the rest.
const ITEMS_PER_THREAD: usize = 6;
/// A program with the memory that it runs in.
pub struct Executor {
    program: Program,
    arena: Region,
    keys: Region,
    values: Region,
    /// Recurrent states: [slot][layer], as `RecurrentShape` says.
    states: Region,
    scratch: Vec<Region>,
    counters: Vec<AtomicUsize>,
    /// Nanoseconds spent in each op, over all steps.
    times: Vec<AtomicU64>,
}

impl Executor {
    /// # Errors
    /// Where memory cannot be reserved.
    pub fn new(program: Program, threads: usize) -> Result<Self> {
        let floats = Scratch::floats(&program);
        Ok(Self {
            arena: Region::new(program.arena_bytes, Pages::Small, "activations")?,
            keys: Region::new(program.kv_bytes, Pages::Huge, "the KV cache's keys")?,
            values: Region::new(program.kv_bytes, Pages::Huge, "the KV cache's values")?,
            states: Region::new(program.state_bytes, Pages::Huge, "recurrent states")?,
            scratch: (0..threads).map(|_| Region::new(4 * floats, Pages::Small, "scratch")).collect::<Result<_>>()?,
            counters: program.ops.iter().map(|_| AtomicUsize::new(0)).collect(),
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

    /// Runs one step; the answers go to `output`. Returns false if `stop` ended it early.
    ///
    /// # Errors
    /// An output that is too small, or a kernel that panicked.
    pub fn run(
        &self,
        weights: &Weights,
        isa: Isa,
        pool: &mut Pool,
        step: &Step,
        stop: &AtomicBool,
        output: &mut [u8],
    ) -> Result<bool> {
        if output.len() < 4 * step.output_words {
            return Err(Error::new(format!("The step's answer takes {} bytes", 4 * step.output_words)));
        }
        for counter in &self.counters {
            counter.store(0, SeqCst);
        }
        let halted = AtomicBool::new(false);
        let (e, p, output) = (self, &self.program, output.as_mut_ptr());
        let kv = p.kv.kind.kernels();
        let run = Run { e, p, weights, isa, kv, step, groups: groups(&step.sequences), output };
        let run = Shared(run);
        let (began, last) = (Instant::now(), AtomicU64::new(0));
        let done = pool.run(&|worker| {
            for (i, op) in self.program.ops.iter().enumerate() {
                run.get().op(op, &self.counters[i], worker);
                worker.barrier(|| {
                    halted.store(stop.load(SeqCst), SeqCst);
                    let now = began.elapsed().as_nanos() as u64;
                    self.times[i].fetch_add(now - last.swap(now, SeqCst), SeqCst);
                });
                if halted.load(SeqCst) {
                    return;
                }
            }
        });
        match done {
            Ok(()) => Ok(!halted.load(SeqCst)),
            Err(panic) => Err(Error::new(format!("A kernel panicked ({panic}); the step's results are void"))),
        }
    }
}

/// One step under way, as every thread sees it.
struct Run<'a> {
    e: &'a Executor,
    p: &'a Program,
    weights: &'a Weights,
    isa: Isa,
    /// Of the cache's type.
    kv: KvKernels,
    step: &'a Step,
    /// Of the step's sequences.
    groups: Vec<Group>,
    output: *mut u8,
}

struct Shared<'a>(Run<'a>);
// SAFETY: threads write disjoint items of an op's outputs and read only what earlier ops wrote, with a barrier between.
unsafe impl Sync for Shared<'_> {}
impl<'a> Shared<'a> {
    fn get(&self) -> &Run<'a> {
        &self.0
    }
}

impl Run<'_> {
    fn op(&self, op: &Op, next: &AtomicUsize, worker: &Worker) {
        let scratch = Scratch::new(self.p, &self.e.scratch[worker.index]);
        let items = |total: usize| Items::new(next, total, total / (worker.threads() * ITEMS_PER_THREAD));
        match op {
            Op::Embed { weight, out } => self.embed(*weight, *out, items(self.step.tokens.len())),
            Op::RopeTable { out } => self.rope_table(*out, items(self.step.tokens.len())),
            Op::RmsNorm { x, weight, eps, out } => self.rms_norm(*x, *weight, *eps, *out, items, &scratch),
            Op::MatMul { x, parts } => self.matmul(*x, parts, next, worker.threads(), &scratch),
            Op::SwiGlu { x, gate, up, out } => self.swiglu(*x, [*gate, *up], *out, next, worker.threads(), &scratch),
            Op::RopeAppend { q, k, v, table, q_norm, k_norm, heads, rope } => {
                self.rope_append([*q, *k, *v, *table], [*q_norm, *k_norm], heads, rope, items)
            }
            Op::Attention { q, out, heads, scale } => {
                self.attention([*q, *out], heads, *scale, worker.threads(), next, &scratch)
            }
            Op::Quantize { x, out } => self.quantize(*x, *out, items),
            Op::Candidates { logits, exact } => self.candidates(*logits, *exact, next, &scratch),
            Op::ShortConv { x, taps, heads, eps } => self.short_conv(*x, taps, heads, *eps, items),
            Op::DeltaRule { qkv, gate, alpha, beta, decay, bias, norm, heads, eps, out } => {
                let [qkv, gate, alpha, beta, decay, bias, norm] = [*qkv, *gate, *alpha, *beta, *decay, *bias, *norm];
                let operands = DeltaOperands { qkv, gate, alpha, beta, decay, bias, norm };
                self.delta_rule(&operands, heads, *eps, *out, next, &scratch)
            }
        }
    }

    fn rows_of(&self, buffer: &Buffer) -> usize {
        match buffer.rows {
            Rows::Step => self.step.tokens.len(),
            Rows::Logits => self.step.logits.len(),
        }
    }

    /// Row `row` of a float buffer.
    fn float(&self, index: usize, row: usize) -> *mut f32 {
        let buffer = &self.p.buffers[index];
        self.e.arena.at(buffer.offset + 4 * row * buffer.stride()).cast()
    }

    /// Rows of an op's operand or result.
    fn rows_of_any(&self, out: Out) -> usize {
        self.rows_of(&self.p.buffers[out.forms().next().expect("checked at decode")])
    }

    fn fine(&self, index: usize) -> FineRows {
        let buffer = &self.p.buffers[index];
        FineRows::new(self.e.arena.at(buffer.offset), buffer.columns, self.rows_of(buffer), self.isa.tile())
    }

    fn quant(&self, index: usize) -> QuantRows {
        let buffer = &self.p.buffers[index];
        let tile = tile_rows(self.rows_of(buffer), self.isa.tile());
        QuantRows { base: self.e.arena.at(buffer.offset), columns: buffer.columns, tile }
    }

    fn outputs(&self, out: Out) -> Outputs {
        Outputs {
            float: out.float.map_or(std::ptr::null_mut(), |i| self.float(i, 0)),
            float_stride: out.float.map_or(0, |i| self.p.buffers[i].stride()),
            quant: out.quant.map(|i| self.quant(i)),
            fine: out.fine.map(|i| self.fine(i)),
        }
    }

    // The program was checked against the weights when it was decoded.
    fn matrix(&self, index: usize) -> &Matrix {
        self.weights.matrix(index).expect("checked at decode")
    }

    fn vector(&self, index: usize, len: usize) -> *const f32 {
        self.weights.vector(index, len).expect("checked at decode").as_ptr()
    }
}
