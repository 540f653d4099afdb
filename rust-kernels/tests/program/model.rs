//! A tiny model with every op, and its messages, whose words the tests and the fuzzer change.
use compy::formats::{Format, format_named};
use compy::model::Model;
use compy::simd::Isa;
use compy::weights::{Source, packed_bytes};
use std::io::Write;

/// Stands for "no operand".
pub const NONE: u32 = u32::MAX;
/// The number of experts, and of experts that a row chooses.
const EXPERTS: [u32; 2] = [4, 2];
const EPS: u32 = 0x358637bd; // 1e-6
const ONE: u32 = 0x3f80_0000; // 1
pub const VOCAB: u32 = 40;

/// A tensor of the model: id, GGUF's type name, rows and columns. A vector has 0 rows.
type Tensor = (u32, &'static str, usize, usize);

/// Tensors in the order of their indices.
pub mod tensor {
    pub const EMBD: u32 = 0;
    pub const NORM: u32 = 1;
    pub const Q: u32 = 2;
    pub const K: u32 = 3;
    pub const V: u32 = 4;
    pub const ATTN_OUT: u32 = 5;
    pub const GATE: u32 = 6;
    pub const UP: u32 = 7;
    pub const DOWN: u32 = 8;
    pub const HEAD_NORM: u32 = 9;
    pub const Q_BIAS: u32 = 10;
    pub const QKV: u32 = 11;
    pub const DELTA_GATE: u32 = 12;
    pub const ALPHA: u32 = 13;
    pub const BETA: u32 = 14;
    pub const CONV: u32 = 15;
    pub const DECAY: u32 = 16;
    pub const DT_BIAS: u32 = 17;
    pub const DELTA_NORM: u32 = 18;
    pub const ROUTER: u32 = 19;
    pub const CHOICE_BIAS: u32 = 20;
    pub const EXPERT_GATE: u32 = 21;
    pub const EXPERT_UP: u32 = 22;
    pub const EXPERT_DOWN: u32 = 23;
    pub const GATED_CONV: u32 = 24;
    pub const MAMBA_CONV: u32 = 25;
    pub const GATE_BIAS: u32 = 26;
    pub const EXPERT_GATE_BIAS: u32 = 27;
    pub const EXPERT_DOWN_BIAS: u32 = 28;
    pub const ONE: u32 = 29;
}

#[rustfmt::skip]
const TENSORS: [Tensor; 30] = [
    (tensor::EMBD, "Q8_0", VOCAB as usize, 64), (tensor::NORM, "F32", 0, 64), (tensor::Q, "Q4_0", 64, 64),
    (tensor::K, "Q8_0", 32, 64), (tensor::V, "F16", 32, 64), (tensor::ATTN_OUT, "MXFP4", 64, 64),
    (tensor::GATE, "Q5_1", 96, 64), (tensor::UP, "Q8_0", 96, 64), (tensor::DOWN, "F32", 64, 96),
    (tensor::HEAD_NORM, "F16", 0, 16), (tensor::Q_BIAS, "F32", 0, 64), (tensor::QKV, "Q8_0", 128, 64),
    (tensor::DELTA_GATE, "IQ4_NL", 64, 64), (tensor::ALPHA, "Q8_0", 2, 64), (tensor::BETA, "BF16", 2, 64),
    (tensor::CONV, "F32", 0, 512), (tensor::DECAY, "F32", 0, 2), (tensor::DT_BIAS, "F32", 0, 2),
    (tensor::DELTA_NORM, "F32", 0, 32), (tensor::ROUTER, "F32", 4, 64), (tensor::CHOICE_BIAS, "F32", 0, 4),
    (tensor::EXPERT_GATE, "Q4_0", 4 * 32, 64), (tensor::EXPERT_UP, "F16", 4 * 32, 64),
    (tensor::EXPERT_DOWN, "Q8_0", 4 * 64, 32), (tensor::GATED_CONV, "F32", 0, 192),
    (tensor::MAMBA_CONV, "F32", 0, 256),
    (tensor::GATE_BIAS, "F32", 0, 96),
    (tensor::EXPERT_GATE_BIAS, "F32", 0, 4 * 32), (tensor::EXPERT_DOWN_BIAS, "F32", 0, 4 * 64),
    (tensor::ONE, "F32", 0, 1),
];

/// Buffers of `Plan::whole` in the order of their indices.
pub mod buffer {
    pub const X: u32 = 0;
    pub const ANGLES: u32 = 1;
    pub const NORMED_QUANT: u32 = 2;
    pub const NORMED: u32 = 3;
    pub const NORMED_FINE: u32 = 4;
    pub const Q: u32 = 5;
    pub const K: u32 = 6;
    pub const V: u32 = 7;
    pub const ATTN: u32 = 8;
    pub const ATTN_QUANT: u32 = 9;
    pub const FFN: u32 = 10;
    pub const QKV: u32 = 11;
    pub const GATE: u32 = 12;
    pub const ALPHA: u32 = 13;
    pub const BETA: u32 = 14;
    pub const DELTA: u32 = 15;
    pub const LAST: u32 = 16;
    pub const LAST_QUANT: u32 = 17;
    pub const LOGITS: u32 = 18;
    pub const ROUTER: u32 = 19;
    pub const CHOSEN: u32 = 20;
    pub const EXPERT_FFN: u32 = 21;
    pub const POOLED: u32 = 22;
    pub const GATES: u32 = 23;
    pub const MAMBA: u32 = 24;
    pub const SINGLE: u32 = 25;
    pub const GATED: u32 = 26;
    pub const ADAPTED: u32 = 27;
}

/// Buffers of `Plan::texts` in the order of their indices.
pub mod text_buffer {
    pub const X: u32 = 0;
    pub const ANGLES: u32 = 1;
    pub const NORMED: u32 = 2;
    pub const NORMED_QUANT: u32 = 3;
    pub const NORMED_FINE: u32 = 4;
    pub const Q: u32 = 5;
    pub const KV: u32 = 6;
    pub const ATTN: u32 = 7;
    pub const POOLED: u32 = 8;
}

/// Buffers of `Plan::drafting` in the order of their indices.
pub mod draft_buffer {
    pub const X: u32 = 0;
    pub const BEFORE: u32 = 1;
    pub const JOINED: u32 = 2;
    pub const LAST: u32 = 3;
    pub const LAST_QUANT: u32 = 4;
    pub const LOGITS: u32 = 5;
    pub const POOLED: u32 = 6;
    pub const RECALLED: u32 = 7;
    pub const EMBEDDED: u32 = 8;
}

/// A model with its weights loaded.
pub fn model(isa: Isa, threads: usize) -> Model {
    let model = Model::new(isa, threads, &[]).expect("threads");
    let (path, offsets) = file();
    let source = |(_, name, rows, columns): Tensor, offset| Source {
        format: known(name).id,
        columns,
        rows: rows.max(1),
        offset,
    };
    let matrices = TENSORS.into_iter().filter(|t| t.2 > 0);
    let bytes = matrices.map(|t| packed_bytes(&source(t, 0), isa).expect("a shape") as u64).sum();
    model.open(path.to_str().expect("UTF-8"), TENSORS.len(), bytes).expect("the file");
    for (tensor, offset) in TENSORS.into_iter().zip(offsets) {
        model.load(tensor.0 as usize, &source(tensor, offset), tensor.2 == 0).expect("a tensor");
    }
    std::fs::remove_file(path).expect("the file was there");
    model
}

fn known(name: &str) -> &'static Format {
    format_named(name).expect("a format")
}

/// A file with all tensors, filled with numbers of ordinary size, and the offset of each tensor.
fn file() -> (std::path::PathBuf, Vec<u64>) {
    static FILES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = FILES.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let path = std::env::temp_dir().join(format!("compy-program-{}-{number}", std::process::id()));
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    for (index, name, rows, columns) in TENSORS {
        let layout = known(name);
        offsets.push(bytes.len() as u64);
        for i in 0..rows.max(1) * columns / layout.block_columns {
            let hash = |at: usize| ((i * 131 + at * 31 + index as usize * 7) % 251) as u8;
            let x = f32::from(hash(0)) / 256.0 - 0.5;
            match name {
                "F32" => bytes.extend(x.to_le_bytes()),
                "F16" => bytes.extend(compy::half::f32_to_f16(x).to_le_bytes()),
                "BF16" => bytes.extend(((x.to_bits() >> 16) as u16).to_le_bytes()),
                "MXFP4" => bytes.extend((0..layout.block_bytes).map(|at| if at == 0 { 120 } else { hash(at) })),
                // 0x2c00 and the like: half floats up to 1/16.
                _ => {
                    bytes.extend((0..layout.block_bytes).map(|at| if at % 2 == 1 && at < 4 { 0x24 } else { hash(at) }))
                }
            }
        }
    }
    std::fs::File::create(&path).and_then(|mut file| file.write_all(&bytes)).expect("a temporary file");
    (path, offsets)
}

/// A buffer's kind, kind of rows, and columns. Rows of kind 2 have a row for each of two experts of four.
pub type Buffer = [u32; 3];

/// A plan before encoding.
#[derive(Clone)]
pub struct Plan {
    /// Rows, rows of logits, vocabulary; the KV cache's type, blocks, groups and layers; each group's window; each
    /// layer's heads, dimension and group; layers and slots of recurrent state; for each such layer the convolution's
    /// channels and inputs, and the matrices' heads, rows and columns.
    pub head: [u32; 32],
    pub frequencies: [usize; 2],
    pub buffers: Vec<Buffer>,
    pub ops: Vec<Vec<u32>>,
}

impl Plan {
    /// Every op except those of `texts`, in a meaningful order.
    #[rustfmt::skip]
    pub fn whole(kv_type: u32) -> Self {
        use buffer::*;
        let (float, quant, fine) = (0, 1, 2);
        let (heads, delta) = ([1, 4, 2, 16, 0], [0, 1, 2, 32, 0]);
        let chosen = [CHOSEN, EXPERTS[0], EXPERTS[1]];
        let streams = [4, X, NORMED, Q, ATTN];
        let of = |code: u32, words: &[&[u32]]| [&[code], &words.concat()[..]].concat();
        Self {
            head: [
                8, 4, VOCAB, kv_type, 32, 2, 2, 3, 0, 1, 48, 0, 2, 16, 1, //
                3, 6, 128, 3, 2, 32, 32, 64, 2, 0, 0, 0, 64, 3, 2, 16, 17,
            ],
            frequencies: [3, 8],
            buffers: vec![
                [float, 0, 64], [float, 0, 16], [quant, 0, 64], [float, 0, 64], [fine, 0, 64], [float, 0, 64],
                [float, 0, 32], [float, 0, 32], [float, 0, 64], [quant, 0, 64], [float, 0, 96], [float, 0, 128],
                [float, 0, 64], [float, 0, 2], [float, 0, 2], [quant, 0, 64], [float, 1, 64], [quant, 1, 64],
                [float, 1, VOCAB], [float, 0, 4], [float, 0, 4], [quant, 2, 32], [float, 3, 64],
                [float, 0, 192], [float, 0, 98], [float, 0, 1], [float, 0, 4], [float, 2, 32],
            ],
            ops: vec![
                of(0, &[&[tensor::EMBD, 2f32.to_bits(), X]]),
                of(1, &[&[ANGLES, 1]]),
                of(2, &[&[X, tensor::NORM, EPS, ONE, NORMED, NORMED_QUANT, NORMED_FINE]]),
                of(3, &[
                    &[NORMED, NORMED_QUANT, NORMED_FINE, 3],
                    &[tensor::Q, tensor::Q_BIAS, Q, NONE, 0], &[tensor::K, NONE, K, NONE, 16],
                    &[tensor::V, NONE, V, NONE, 0],
                ]),
                of(5, &[&[Q, K, V, ANGLES, tensor::HEAD_NORM, tensor::HEAD_NORM], &heads, &[16, 0, EPS, 1, EPS, 3, 1, 0, 0, 0]]),
                of(6, &[&[Q, ATTN], &heads, &[0.25f32.to_bits(), 3, 0, tensor::CHOICE_BIAS, 50f32.to_bits(), NONE, 0, 0, 0]]),
                // A layer that reads another layer's cache.
                of(5, &[&[Q, NONE, NONE, ANGLES, NONE, NONE], &heads, &[16, 1, EPS, 0, 0, 0, 0, 1, 1, 0]]),
                of(6, &[&[Q, ATTN], &heads, &[0.25f32.to_bits(), 0, 0, NONE, 0, NONE, 0, 0, 1]]),
                of(7, &[&[ATTN, NONE, ATTN_QUANT]]),
                of(3, &[&[NONE, ATTN_QUANT, NONE, 1], &[tensor::ATTN_OUT, NONE, X, ONE, 0]]),
                of(2, &[&[X, tensor::NORM, EPS, ONE, NORMED, NORMED_QUANT, NONE]]),
                of(3, &[
                    &[NORMED, NORMED_QUANT, NONE, 4],
                    &[tensor::QKV, NONE, QKV, NONE, 0], &[tensor::DELTA_GATE, NONE, GATE, NONE, 0],
                    &[tensor::ALPHA, NONE, ALPHA, NONE, 0], &[tensor::BETA, NONE, BETA, NONE, 0],
                ]),
                of(9, &[&[QKV, 0, tensor::CONV, NONE, NONE, NONE], &[0, 4, 32, 1], &[EPS]]),
                of(10, &[
                    &[QKV, GATE, ALPHA, BETA, tensor::DECAY, tensor::DT_BIAS, tensor::DELTA_NORM], &delta,
                    &[EPS, NONE, DELTA, NONE],
                ]),
                of(3, &[&[NONE, DELTA, NONE, 1], &[tensor::DELTA_GATE, NONE, X, 0.5f32.to_bits(), 0]]),
                of(2, &[&[X, tensor::NORM, EPS, ONE, NONE, NORMED_QUANT, NONE]]),
                of(4, &[&[NONE, NORMED_QUANT, tensor::GATE, tensor::GATE_BIAS, tensor::UP, NONE, 1, 0, FFN, NONE]]),
                of(3, &[&[FFN, NONE, NONE, 1], &[tensor::DOWN, NONE, X, ONE, 0]]),
                of(2, &[&[X, tensor::NORM, EPS, ONE, NORMED, NORMED_QUANT, NONE]]),
                of(3, &[&[NORMED, NORMED_QUANT, NONE, 1], &[tensor::ROUTER, NONE, ROUTER, NONE, 0]]),
                of(12, &[&[ROUTER, tensor::CHOICE_BIAS, 1, 1, 2f32.to_bits(), tensor::CHOICE_BIAS, 2, 1], &chosen]),
                of(13, &[
                    &[NORMED, NORMED_QUANT], &chosen, &[tensor::EXPERT_GATE, tensor::EXPERT_GATE_BIAS],
                    &[tensor::EXPERT_UP, NONE, 5, 0, NONE, EXPERT_FFN],
                ]),
                of(14, &[&chosen, &[NONE, EXPERT_FFN, tensor::EXPERT_DOWN, tensor::EXPERT_DOWN_BIAS, X, 1]]),
                of(12, &[&[ROUTER, NONE, 0, 0, 1f32.to_bits(), NONE, 1, 1], &chosen]),
                of(14, &[&chosen, &[NONE, EXPERT_FFN, tensor::EXPERT_DOWN, NONE, ATTN, 0]]),
                of(2, &[&[X, tensor::NORM, EPS, ONE, LAST, LAST_QUANT, NONE]]),
                of(3, &[&[NONE, LAST_QUANT, NONE, 1], &[tensor::EMBD, NONE, LOGITS, NONE, 0]]),
                of(8, &[&[LOGITS, LAST, tensor::EMBD, ONE, 30f32.to_bits()]]),
                of(11, &[&[X, tensor::NORM, EPS, 0, POOLED]]),
                of(15, &[&[POOLED]]),
                of(28, &[&[GATES, tensor::GATED_CONV, 1, 3, NORMED, NORMED_QUANT, NORMED_FINE]]),
                of(9, &[&[MAMBA, 32, tensor::MAMBA_CONV, NONE, NONE, tensor::Q_BIAS], &[2, 4, 16, 0], &[EPS]]),
                of(26, &[&[MAMBA, tensor::DECAY, tensor::DT_BIAS, tensor::DT_BIAS], &[2, 2, 16, 1, 16]]),
                of(27, &[&[MAMBA, 32, tensor::DELTA_NORM, 1, EPS, K, NONE, NONE]]),
                of(17, &[&[NONE, NORMED_QUANT, tensor::GATE, tensor::GATE_BIAS, 2, FFN, NONE]]),
                of(19, &[&[ATTN, tensor::HEAD_NORM, 16, EPS, ONE, tensor::ONE, X]]),
                of(20, &[&[SINGLE, 1, ATTN, 0, NONE, X]]),
                of(20, &[&[ROUTER, 2, X, 8, GATED, NONE]]),
                of(33, &[
                    &[NORMED, NORMED_QUANT], &chosen, &[tensor::EXPERT_GATE, tensor::EXPERT_GATE_BIAS, 3],
                    &[NONE, EXPERT_FFN],
                ]),
                of(34, &[&[QKV, 32, V, NONE, NONE]]),
                of(35, &[&streams, &[tensor::NORM, tensor::MAMBA_CONV, tensor::Q_BIAS, EPS, ONE, GATE]]),
                of(36, &[
                    &[GATE], &streams, &[tensor::NORM, tensor::MAMBA_CONV, tensor::HEAD_NORM, EPS, tensor::NORM],
                    &[NONE, NORMED_QUANT, NORMED_FINE],
                ]),
                of(37, &[&[X, 2, Q, ATTN, EPS, GATE]]),
                of(38, &[&[Q, ONE, ATTN, GATE, NORMED_QUANT, NONE]]),
                of(39, &[&[QKV, tensor::GATE, 2, 0, 0, 1, FFN]]),
                of(40, &[&chosen]),
                of(41, &[&[NORMED], &chosen, &[tensor::EXPERT_UP, ADAPTED, NONE]]),
                of(44, &[&[NORMED, 0]]),
                of(44, &[&[ADAPTED, 1], &chosen]),
                of(49, &[&[X, tensor::ONE, NONE, ATTN]]),
            ],
        }
    }

    /// The ops of `whole`, then three ops: each head chooses blocks, attention reads these blocks, and weighted heads
    /// choose positions.
    #[rustfmt::skip]
    pub fn choosing(kv_type: u32) -> Self {
        use buffer::*;
        let of = |code: u32, words: &[&[u32]]| [&[code], &words.concat()[..]].concat();
        let mut plan = Self::whole(kv_type);
        plan.head[11] = 1; // the first layer keeps all positions
        plan.ops.extend([
            of(48, &[&[FFN, NONE], &[0, 2, 1, 48, 0], &[ALPHA, 2, 1]]),
            of(6, &[&[Q, ATTN], &[1, 4, 2, 16, 0], &[0.25f32.to_bits(), 0, 0, NONE, 0, ALPHA, 1, 2, 1]]),
            of(48, &[&[FFN, ALPHA], &[0, 2, 1, 48, 0], &[BETA, 1, 0]]),
        ]);
        plan
    }

    /// The plan without tallies, which return values of buffers that no op of the plan writes.
    pub fn without_tallies(mut self) -> Self {
        self.ops.retain(|op| op[0] != 44);
        self
    }

    /// The ops of an encoder, which needs whole texts in one step. A text has at most as many tokens as there are
    /// positions.
    #[rustfmt::skip]
    pub fn texts() -> Self {
        use text_buffer::*;
        let (float, quant, fine) = (0, 1, 2);
        let of = |code: u32, words: &[&[u32]]| [&[code], &words.concat()[..]].concat();
        Self {
            buffers: vec![
                [float, 0, 64], [float, 0, 16], [float, 0, 64], [quant, 0, 64], [fine, 0, 64], [float, 0, 64],
                [float, 0, 64], [float, 0, 64], [float, 3, 64],
            ],
            ops: vec![
                of(0, &[&[tensor::EMBD, ONE, X]]),
                of(23, &[&[X, tensor::UP, tensor::V]]),
                of(1, &[&[ANGLES, 1]]),
                of(22, &[&[X, tensor::NORM, tensor::Q_BIAS, 4, EPS, NORMED, NORMED_QUANT, NORMED_FINE]]),
                of(3, &[
                    &[NORMED, NORMED_QUANT, NONE, 2], &[tensor::Q, NONE, Q, NONE, 0], &[tensor::ATTN_OUT, NONE, KV, NONE, 0],
                ]),
                of(24, &[&[Q, 0, 16, 4, 16, ANGLES, tensor::HEAD_NORM, 16, 0, EPS, 0]]),
                of(24, &[&[KV, 0, 16, 2, 16, ANGLES, NONE, 16, 1, EPS, 0]]),
                of(25, &[&[Q, 0, 16, KV, 0, 16, KV, 32, 16], &[ATTN, 4, 2, 16, 0.25f32.to_bits(), 4, 1, 0]]),
                of(11, &[&[ATTN, tensor::NORM, EPS, 0, POOLED]]),
                of(15, &[&[POOLED]]),
                of(24, &[&[KV, 32, 16, 2, 16, NONE, NONE, 0, 0, EPS, 1]]),
            ],
            ..Self::whole(0)
        }
    }

    /// Rows joined with the previous ones, and a draft that continues from rows of the previous step.
    #[rustfmt::skip]
    pub fn drafting() -> Self {
        use draft_buffer::*;
        let (float, quant) = (0, 1);
        let of = |code: u32, words: &[&[u32]]| [&[code], &words.concat()[..]].concat();
        let logits = |x: u32| [
            of(2, &[&[x, tensor::NORM, EPS, ONE, LAST, LAST_QUANT, NONE]]),
            of(3, &[&[NONE, LAST_QUANT, NONE, 1], &[tensor::EMBD, NONE, LOGITS, NONE, 0]]),
            of(8, &[&[LOGITS, NONE, NONE, ONE, 0]]),
        ];
        let whole = Self::whole(0);
        let mut head = whole.head;
        head[23] = 1; // inputs in the state of the second layer
        let main = [of(0, &[&[tensor::EMBD, ONE, X]]), of(29, &[&[X, 1, BEFORE]]), of(30, &[&[X, BEFORE, JOINED]])];
        let pooled = [of(11, &[&[JOINED, NONE, 0, 2, POOLED]]), of(15, &[&[POOLED]])];
        let draft = [of(31, &[&[X, RECALLED]]), of(0, &[&[tensor::EMBD, ONE, EMBEDDED]])];
        let kept = [of(32, &[&[EMBEDDED, X]])];
        Self {
            head,
            buffers: vec![
                [float, 0, 64], [float, 0, 64], [float, 0, 128], [float, 1, 64], [quant, 1, 64], [float, 1, VOCAB],
                [float, 3, 128], [float, 0, 64], [float, 0, 64],
            ],
            ops: [&main[..], &logits(X), &pooled, &draft, &logits(RECALLED), &kept].concat(),
            ..whole
        }
    }

    /// The words, with buffers one behind the other.
    pub fn bytes(&self) -> Vec<u8> {
        let mut words = vec![0x4e4c_5043, compy::program::VERSION];
        words.extend(self.head);
        let mut offsets = vec![0u64];
        for [form, rows, columns] in &self.buffers {
            let rows = match rows {
                2 => EXPERTS[1] * self.head[0] + 15 * EXPERTS[0],
                3 => self.head[0],
                _ => self.head[*rows as usize & 1],
            };
            let rows = u64::from(rows).next_multiple_of(16) * if *form == 2 { 2 } else { 1 };
            let row = u64::from(*columns).next_multiple_of(16) * 4 + 64;
            offsets.push((offsets[offsets.len() - 1] + rows * row).next_multiple_of(64));
        }
        let long = |x: u64| [x as u32, (x >> 32) as u32];
        words.extend(long(offsets[self.buffers.len()]));
        words.push(self.frequencies.len() as u32);
        for count in self.frequencies {
            words.push(count as u32);
            words.extend(long(1.25f64.to_bits())); // the magnitude
            words.extend((0..count).flat_map(|i| long(0.1f64.powi(i as i32).to_bits())));
            words.extend((0..count).map(|_| 0)); // all turn by time
        }
        words.push(self.buffers.len() as u32);
        for (buffer, offset) in self.buffers.iter().zip(&offsets) {
            words.extend(&buffer[..2]);
            words.extend(EXPERTS.iter().filter(|_| buffer[1] == 2));
            words.push(buffer[2]);
            words.extend(long(*offset));
        }
        words.push(self.ops.len() as u32);
        words.extend(self.ops.iter().flatten());
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }
}

/// Steps for `Plan::whole`: a prompt and a token of another sequence, then one token each. `Plan::texts` uses the
/// first only.
pub fn steps() -> [Vec<u8>; 2] {
    let one = 1f32.to_bits();
    let plain = |row: u32| vec![row, 3, one, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut first = vec![6, 2, 2, 2, 1, 2, 3, 4, 5, 39];
    // Five rows, to slot 0, with a save after three rows in slot 2. Block 4 is in the small window's group, block 2
    // in the other. One row, to slot 1.
    first.extend([0, 5, 0, NONE, 0, 1, 0, 0, 3, 2, 0, 2, 4, 5, 0, 2, 2, 5]);
    first.extend([5, 1, 0, NONE, 1, 0, 0, 0, 0, 2, 3, 5, 0, 2, 0, 5]);
    first.extend(plain(4));
    // A request that draws, with penalties, a bias and a probed token.
    first.extend([5, 40, 2f32.to_bits(), one, one, one, 0x9e37_79b9, 2, 1, 0, 1, 7, 8, 1, 0, 9, one, 11]);
    first.extend([1, 0, 0]); // both sequences are pooled, and no rows are given
    let mut second = vec![2, 2, 2, 0, 6, 7];
    // One row each. The first has 40 tokens before it, of which the small window has one block.
    second.extend([0, 1, 40, 0, 0, 0, 0, 0, 1, 2, 4, 5, 0, 3, 2, 1, 5]);
    second.extend([1, 1, 1, 1, 4, 1, 0, 0, 1, 5, 0, 2, 3, 5, 0, 2, 0, 5]);
    second.extend([plain(0), plain(1)].concat());
    second.push(0);
    // The first sequence uses one adapter, the other one two.
    second.extend([1, 2, one, 2, 0, one, 3, one]);
    [first, second].map(|words| words.into_iter().flat_map(u32::to_le_bytes).collect())
}
