//! Walks a program's ops with the thread pool: the work of an op is handed out in items, and a barrier stands
//! between ops. Which thread computes an item never changes its result.
use crate::error::{Error, Result};
use crate::kernels::{FormatKernels, Kernels};
use crate::memory::{Pages, Region};
use crate::ops::attention::{Attention, MAX_ROWS, scratch_len};
use crate::ops::candidates::{Penalties, adjust, apply_mask};
use crate::ops::float_gemm::FloatRows;
use crate::ops::gemm::{Epilogue, Gemm, corrections_len};
use crate::ops::norm::Outputs;
use crate::ops::quantize::{QuantRows, tile_rows};
use crate::ops::rope::{KV_BLOCK, RopeShape, rope_table};
use crate::pool::{Items, Pool, Worker};
use crate::program::{Buffer, Heads, Op, Out, Part, Program, ROW_ROUND, Rows};
use crate::step::{LogitsRequest, Step};
use crate::weights::{Matrix, Weights};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Rows and columns of the tile that SwiGLU keeps gate and up in.
const SWIGLU_ROWS: usize = 64;
const SWIGLU_COLUMNS: usize = 256;
/// Items a thread and op: enough that a thread which lost its core for a while does not hold up the rest.
const ITEMS_PER_THREAD: usize = 6;

/// A program with the memory that it runs in.
pub struct Executor {
    program: Program,
    arena: Region,
    keys: Region,
    values: Region,
    scratch: Vec<Region>,
    counters: Vec<AtomicUsize>,
    /// Nanoseconds spent in each op, over all steps.
    times: Vec<AtomicU64>,
}

impl Executor {
    /// # Errors
    /// Where memory cannot be reserved.
    pub fn new(program: Program, threads: usize) -> Result<Self> {
        let kv = &program.kv;
        let cache = kv.layers * kv.blocks * kv.heads * kv.head_dim * KV_BLOCK * 2;
        let floats = Scratch::floats(&program);
        Ok(Self {
            arena: Region::new(program.arena_bytes, Pages::Small, "activations")?,
            keys: Region::new(cache, Pages::Huge, "the KV cache's keys")?,
            values: Region::new(cache, Pages::Huge, "the KV cache's values")?,
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
        kernels: &Kernels,
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
        let (halted, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let run = Run { e: self, p: &self.program, weights, k: kernels, step, output: output.as_mut_ptr() };
        let run = Shared(run);
        let (began, last) = (Instant::now(), AtomicU64::new(0));
        pool.run(&|worker| {
            for (i, op) in self.program.ops.iter().enumerate() {
                let done = catch_unwind(AssertUnwindSafe(|| run.get().op(op, &self.counters[i], worker)));
                if done.is_err() {
                    failed.store(true, SeqCst);
                }
                worker.barrier(|| {
                    halted.store(stop.load(SeqCst) || failed.load(SeqCst), SeqCst);
                    let now = began.elapsed().as_nanos() as u64;
                    self.times[i].fetch_add(now - last.swap(now, SeqCst), SeqCst);
                });
                if halted.load(SeqCst) {
                    return;
                }
            }
        });
        if failed.load(SeqCst) {
            return Err(Error::new("A kernel panicked; the step's results are void"));
        }
        Ok(!halted.load(SeqCst))
    }
}

/// A thread's scratch memory, in floats.
struct Scratch {
    corrections: *mut f32,
    row: *mut f32,
    gate: *mut f32,
    up: *mut f32,
    attention: *mut f32,
}

impl Scratch {
    fn sizes(p: &Program) -> [usize; 5] {
        let columns = p.buffers.iter().map(|b| b.columns).max().unwrap_or(0);
        let rows = p.max_rows.max(p.max_logit_rows);
        let tile = SWIGLU_ROWS * SWIGLU_COLUMNS;
        let sizes = [corrections_len(rows, columns, ROW_ROUND), columns, tile, tile, scratch_len(p.kv.head_dim)];
        sizes.map(|n| n.next_multiple_of(16) + 16)
    }

    fn floats(p: &Program) -> usize {
        Self::sizes(p).iter().sum()
    }

    fn new(p: &Program, region: &Region) -> Self {
        let mut at = 0;
        let [corrections, row, gate, up, attention] = Self::sizes(p).map(|n| {
            at += n;
            region.at(4 * (at - n)).cast()
        });
        Self { corrections, row, gate, up, attention }
    }
}

/// One step under way, as every thread sees it.
struct Run<'a> {
    e: &'a Executor,
    p: &'a Program,
    weights: &'a Weights,
    k: &'a Kernels,
    step: &'a Step,
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
            Op::Attention { q, out, heads, scale } => self.attention(*q, *out, heads, *scale, next, &scratch),
            Op::Quantize { x, out } => self.quantize(*x, *out, items),
            Op::Candidates { logits } => self.candidates(*logits, next),
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

    fn quant(&self, index: usize) -> QuantRows {
        let buffer = &self.p.buffers[index];
        let tile = tile_rows(self.rows_of(buffer), self.k.tile);
        QuantRows { base: self.e.arena.at(buffer.offset), columns: buffer.columns, tile }
    }

    fn outputs(&self, out: Out) -> Outputs {
        Outputs {
            float: out.float.map_or(std::ptr::null_mut(), |i| self.float(i, 0)),
            float_stride: out.float.map_or(0, |i| self.p.buffers[i].stride()),
            quant: out.quant.map(|i| self.quant(i)),
        }
    }

    // The program was checked against the weights when it was decoded.
    fn matrix(&self, index: usize) -> &Matrix {
        self.weights.matrix(index).expect("checked at decode")
    }

    fn vector(&self, index: usize, len: usize) -> *const f32 {
        self.weights.vector(index, len).expect("checked at decode").as_ptr()
    }

    fn embed(&self, weight: usize, out: usize, items: Items) {
        let m = self.matrix(weight);
        for row in items.flatten() {
            let token = self.step.tokens[row] as usize;
            let (panel, lane) = (token / self.k.lanes, token % self.k.lanes);
            // SAFETY: the token is below the matrix's rows, the output row has its columns.
            unsafe {
                let panel = m.panels.add(panel * m.panel_bytes);
                let read = match &m.kernels {
                    FormatKernels::Block(k) => k.row,
                    FormatKernels::Float(k) => k.row,
                };
                read(panel, m.columns, lane, self.float(out, row));
            }
        }
    }

    fn rope_table(&self, out: usize, items: Items) {
        for row in items.flatten() {
            // SAFETY: the buffer's rows hold 2 * frequencies floats, checked at decode.
            unsafe { rope_table(self.step.position_of[row], &self.p.frequencies, self.float(out, row)) }
        }
    }

    fn rms_norm<'i>(
        &self,
        x: usize,
        weight: usize,
        eps: f32,
        out: Out,
        items: impl Fn(usize) -> Items<'i>,
        s: &Scratch,
    ) {
        let (from, columns) = (&self.p.buffers[x], self.p.buffers[x].columns);
        let to = &self.p.buffers[out.float.or(out.quant).expect("checked at decode")];
        let gather = from.rows == Rows::Step && to.rows == Rows::Logits;
        let (outputs, weight) = (self.outputs(out), self.vector(weight, columns));
        for row in items(self.rows_of(to)).flatten() {
            let source = if gather { self.step.logits[row].row } else { row };
            // SAFETY: rows and widths were checked at decode.
            unsafe { (self.k.rms_norm)(self.float(x, source), weight, columns, eps, &outputs, row, s.row) }
        }
    }

    fn quantize<'i>(&self, x: usize, out: usize, items: impl Fn(usize) -> Items<'i>) {
        let quant = self.quant(out);
        for row in items(self.rows_of(&self.p.buffers[x])).flatten() {
            // SAFETY: rows and widths were checked at decode.
            unsafe { (self.k.quantize_row)(self.float(x, row), &quant, row) }
        }
    }

    fn matmul(&self, x: Out, parts: &[Part], next: &AtomicUsize, threads: usize, s: &Scratch) {
        let m = self.rows_of(&self.p.buffers[x.float.or(x.quant).expect("checked at decode")]);
        let panels = |part: &Part| self.matrix(part.weight).rows.div_ceil(self.k.lanes);
        let total: usize = parts.iter().map(panels).sum();
        let grain = (total / (threads * ITEMS_PER_THREAD)).clamp(1, 16);
        let mut prepared = None;
        // A run of items may cross from one part into the next.
        for range in Items::new(next, total, grain) {
            let mut first = 0;
            for part in parts {
                let count = panels(part);
                let (start, end) = (range.start.max(first), range.end.min(first + count));
                if start < end {
                    let matrix = self.matrix(part.weight);
                    let row = (start - first) * self.k.lanes;
                    let rows = ((end - first) * self.k.lanes).min(matrix.rows) - row;
                    // SAFETY: the panels are the matrix's; output, bias and operand were checked at decode.
                    let args = unsafe {
                        let bias = part.bias.map(|b| self.vector(b, matrix.rows).add(row));
                        Gemm {
                            panels: matrix.panels.add((start - first) * matrix.panel_bytes),
                            panel_bytes: matrix.panel_bytes,
                            rows,
                            columns: matrix.columns,
                            from: 0,
                            to: m,
                            out: self.float(part.out, 0).add(row),
                            ldo: self.p.buffers[part.out].stride(),
                            bias: bias.unwrap_or(std::ptr::null()),
                            epilogue: part.epilogue,
                        }
                    };
                    self.gemm(&args, matrix, x, m, &mut prepared, s);
                }
                first += count;
            }
        }
    }

    /// Runs a matrix's own kernel; `prepared` remembers for which format the scratch holds corrections of x.
    fn gemm(&self, args: &Gemm, matrix: &Matrix, x: Out, m: usize, prepared: &mut Option<u32>, s: &Scratch) {
        match &matrix.kernels {
            FormatKernels::Block(k) => {
                let rows = self.quant(x.quant.expect("checked at decode"));
                // SAFETY: x holds m rows, scratch was sized for the largest operand.
                unsafe {
                    if *prepared != Some(matrix.format) {
                        (k.prepare)(&rows, m, s.corrections);
                        *prepared = Some(matrix.format);
                    }
                    (k.gemm)(args, &rows, s.corrections);
                }
            }
            FormatKernels::Float(k) => {
                let index = x.float.expect("checked at decode");
                let rows = FloatRows { base: self.float(index, 0), stride: self.p.buffers[index].stride() };
                // SAFETY: as above.
                unsafe { (k.gemm)(args, &rows) }
            }
        }
    }

    fn swiglu(&self, x: Out, weights: [usize; 2], out: Out, next: &AtomicUsize, threads: usize, s: &Scratch) {
        let m = self.rows_of(&self.p.buffers[x.float.or(x.quant).expect("checked at decode")]);
        let [gate, up] = weights.map(|w| self.matrix(w));
        let width = (gate.rows / (threads * ITEMS_PER_THREAD) / 32 * 32).clamp(32, SWIGLU_COLUMNS);
        let outputs = self.outputs(out);
        let mut prepared = [None, None];
        let same = gate.format == up.format;
        for chunk in Items::new(next, gate.rows.div_ceil(width), 1).flatten() {
            let start = chunk * width;
            let rows = width.min(gate.rows - start);
            for from in (0..m).step_by(SWIGLU_ROWS) {
                let to = m.min(from + SWIGLU_ROWS);
                for (i, (matrix, tile)) in [(gate, s.gate), (up, s.up)].into_iter().enumerate() {
                    // SAFETY: start is a multiple of 32, so of LANES; the tiles hold SWIGLU_ROWS x SWIGLU_COLUMNS.
                    let args = Gemm {
                        panels: unsafe { matrix.panels.add(start / self.k.lanes * matrix.panel_bytes) },
                        panel_bytes: matrix.panel_bytes,
                        rows,
                        columns: matrix.columns,
                        from,
                        to,
                        out: tile,
                        ldo: SWIGLU_COLUMNS,
                        bias: std::ptr::null(),
                        epilogue: Epilogue::Store,
                    };
                    // Two formats share the scratch for corrections only if they are one.
                    let memory = if same {
                        &mut prepared[0]
                    } else {
                        prepared[i] = None;
                        &mut prepared[i]
                    };
                    self.gemm(&args, matrix, x, m, memory, s);
                }
                for row in from..to {
                    let at = (row - from) * SWIGLU_COLUMNS;
                    // SAFETY: the row is within the tiles and the outputs.
                    unsafe { (self.k.swiglu)(s.gate.add(at), s.up.add(at), rows, &outputs, row, start) }
                }
            }
        }
    }

    /// Elements from a layer's start to a block's and head's keys (or values). The cache is [block][layer][head]: a
    /// block's layers lie together, so that what a sequence uses is made of few pages.
    fn kv_offset(&self, block: usize, head: usize) -> usize {
        let kv = &self.p.kv;
        (block * kv.layers * kv.heads + head) * kv.head_dim * KV_BLOCK
    }

    fn kv_layer(&self, region: &Region, layer: usize) -> *mut u16 {
        region.at(2 * layer * self.kv_offset(0, self.p.kv.heads)).cast()
    }

    fn rope_append<'i>(
        &self,
        [q, k, v, table]: [usize; 4],
        norms: [Option<usize>; 2],
        h: &Heads,
        rope: &RopeShape,
        items: impl Fn(usize) -> Items<'i>,
    ) {
        let dim = h.head_dim;
        let group = h.heads / h.kv_heads;
        let [q_norm, k_norm] = norms.map(|n| n.map_or(std::ptr::null(), |n| self.vector(n, dim)));
        let (keys, values) = (self.kv_layer(&self.e.keys, h.layer), self.kv_layer(&self.e.values, h.layer));
        let rows = self.step.tokens.len();
        for item in items(rows * h.kv_heads).flatten() {
            // Rows of one head after the other: neighbours share the cache lines of a transposed key block.
            let (row, head) = (item % rows, item / rows);
            let sequence = &self.step.sequences[self.step.sequence_of[row]];
            let position = self.step.position_of[row];
            let block = sequence.block_table[position / KV_BLOCK] as usize;
            let slot = position % KV_BLOCK;
            // SAFETY: widths, norms and table were checked at decode, the block when the step was decoded; each (row,
            // head) is one item.
            unsafe {
                let angles = self.float(table, row);
                for i in head * group..(head + 1) * group {
                    (self.k.norm_and_rotate)(self.float(q, row).add(i * dim), q_norm, angles, rope);
                }
                let (key, value) = (self.float(k, row).add(head * dim), self.float(v, row).add(head * dim));
                (self.k.norm_and_rotate)(key, k_norm, angles, rope);
                let at = self.kv_offset(block, head);
                (self.k.append_key)(key, dim, keys.add(at), slot);
                (self.k.append_value)(value, dim, values.add(at), slot);
            }
        }
    }

    fn attention(&self, q: usize, out: usize, h: &Heads, scale: f32, next: &AtomicUsize, s: &Scratch) {
        let group = h.heads / h.kv_heads;
        let tokens = (MAX_ROWS / group).max(1);
        let tiles = |i: usize| self.step.sequences[i].length.div_ceil(tokens);
        let total: usize = (0..self.step.sequences.len()).map(tiles).sum();
        let (keys, values) = (self.kv_layer(&self.e.keys, h.layer), self.kv_layer(&self.e.values, h.layer));
        // One cursor is enough: items come in ascending order.
        let (mut index, mut first) = (0, 0);
        for item in Items::new(next, total * h.kv_heads, 1).flatten() {
            let (tile, head) = (item / h.kv_heads, item % h.kv_heads);
            while tile - first >= tiles(index) {
                first += tiles(index);
                index += 1;
            }
            let sequence = &self.step.sequences[index];
            let start = (tile - first) * tokens;
            let count = tokens.min(sequence.length - start);
            let rows = count * group;
            let mut queries = [std::ptr::null::<f32>(); MAX_ROWS];
            let mut results = [std::ptr::null_mut::<f32>(); MAX_ROWS];
            let mut positions = [0usize; MAX_ROWS];
            for r in 0..rows {
                let (token, i) = (start + r / group, head * group + r % group);
                // SAFETY: the row is one of the sequence's, the head one of the buffer's.
                unsafe {
                    queries[r] = self.float(q, sequence.start + token).add(i * h.head_dim);
                    results[r] = self.float(out, sequence.start + token).add(i * h.head_dim);
                }
                positions[r] = sequence.cached + token;
            }
            let args = Attention {
                q: &queries[..rows],
                out: &results[..rows],
                positions: &positions[..rows],
                keys,
                values,
                block_stride: self.kv_offset(1, 0),
                head_offset: self.kv_offset(0, head),
                block_table: &sequence.block_table,
                head_dim: h.head_dim,
                scale,
                scratch: s.attention,
            };
            // SAFETY: the table covers the positions, RopeAppend wrote them before the barrier.
            unsafe { (self.k.attention)(&args) }
        }
    }

    fn candidates(&self, logits: usize, next: &AtomicUsize) {
        let (mut best, mut raw) = (Vec::new(), Vec::new());
        for row in Items::new(next, self.step.logits.len(), 1).flatten() {
            let request = &self.step.logits[row];
            // SAFETY: one row of the buffer, which only this item touches.
            let logits = unsafe { std::slice::from_raw_parts_mut(self.float(logits, row), self.p.vocab) };
            let probed: Vec<f32> = request.probe.iter().map(|t| logits[*t as usize]).collect();
            // SAFETY: the table's promise.
            let total = unsafe { (self.k.log_sum_exp)(logits) };
            let penalties = Penalties {
                repetition: request.repetition,
                presence: request.presence,
                frequency: request.frequency,
                tokens: &request.penalty_tokens,
                counts: &request.penalty_counts,
            };
            adjust(logits, &penalties, (&request.bias_tokens, &request.bias_values), &mut raw);
            apply_mask(logits, &request.mask);
            // SAFETY: as above.
            unsafe { (self.k.select)(logits, request.candidates, &mut best) };
            self.answer(request, total, &best, &raw, &probed);
        }
    }

    /// Writes one request's answer; the words are laid out in `LogitsRequest::answer_words`.
    fn answer(&self, request: &LogitsRequest, total: f32, best: &[(f32, i32)], raw: &[(i32, f32)], probed: &[f32]) {
        let put = |at: usize, word: u32| {
            // SAFETY: `run` checked the output's size against the sum of all answers.
            unsafe { self.output.add(4 * (request.answer + at)).cast::<[u8; 4]>().write(word.to_le_bytes()) }
        };
        put(0, best.len() as u32);
        put(1, total.to_bits());
        let k = request.candidates;
        for (i, (logit, token)) in best.iter().enumerate() {
            let before = raw.binary_search_by_key(token, |pair| pair.0).map_or(*logit, |at| raw[at].1);
            put(2 + i, *token as u32);
            put(2 + k + i, logit.to_bits());
            put(2 + 2 * k + i, before.to_bits());
        }
        for (i, logit) in probed.iter().enumerate() {
            put(2 + 3 * k + i, logit.to_bits());
        }
    }
}
