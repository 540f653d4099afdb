/**
 * Seeded models for tests: GGUF files of small shapes, in any format, the same bytes on every machine. Weights come
 * out near a standard deviation of 0.02; block formats are random codes under scales that give that spread, so no
 * quantiser is involved and a block may hold every code and every scale that its format allows.
 */

import { dequantize } from "../engine/backend/webgpu/kernels/testing_dequantize.ts";
import { GgufBuilder } from "../engine/gguf/testing.ts";
import { byteLengthOf, layoutOf } from "../engine/gguf/tensor_types.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { CODE_OF_BYTE } from "../engine/tokenizer/byte_codes.ts";
import { Random, seedOf } from "./random.ts";

/** What a synthetic model is; the same values give the same bytes. */
export interface SynthOptions {
  readonly architecture: Architecture;
  /** One type for every matrix, or several that the matrices take in turn. */
  readonly types: readonly TensorType[];
  readonly seed: number;
  readonly layers?: number;
  /** Tokens; not fewer than 258. */
  readonly vocabulary?: number;
  /** A chat template, and the marks that it writes or models answer with: tokens of their own, after the first 258. */
  readonly chat?: { readonly template: string; readonly marks: readonly string[] };
  /** What the file says of whole texts. */
  readonly texts?: SynthTexts;
  /** Writes what the matrices stand for in F32: the same model for arithmetic that rounds no activations. */
  readonly dequantized?: boolean;
}

/** Keys and tensors of models that embed or rank. */
export interface SynthTexts {
  /** `pooling_type`. */
  readonly pooling?: number;
  /** Rows of the head that ranks. */
  readonly labels?: number;
  /** Texts end with EOS. */
  readonly addEos?: boolean;
  /** Makes a prompt of a query and a document. */
  readonly template?: string;
}

export type Architecture = "llama" | "qwen2" | "qwen3" | "qwen3moe" | "qwen35";

interface Shape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly ropeBase: number;
  /** Has a matrix of its own for the output. */
  readonly untied?: boolean;
  /** Has Llama 3's factors on the rotary frequencies. */
  readonly ropeFactors?: boolean;
  readonly biases?: boolean;
  readonly headNorms?: boolean;
  /** Dimensions of a head that are rotated; by default all. */
  readonly rotated?: number;
  /** Three layers of four are Gated DeltaNet, and attention has output gates. */
  readonly delta?: { readonly keyHeads: number; readonly valueHeads: number; readonly headDim: number };
  /** Every feed-forward layer is a mixture of experts, of which a row chooses `used`. */
  readonly experts?: { readonly count: number; readonly used: number; readonly feedForward: number };
  readonly layers?: number;
}

const SHAPES: Readonly<Record<Architecture, Shape>> = {
  llama: { heads: 8, kvHeads: 4, headDim: 32, ropeBase: 5e5, untied: true, ropeFactors: true },
  qwen2: { heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e6, biases: true },
  qwen3: { heads: 8, kvHeads: 4, headDim: 64, ropeBase: 1e6, headNorms: true },
  qwen3moe: {
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    headNorms: true,
    experts: { count: 12, used: 3, feedForward: 256 },
  },
  qwen35: {
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e7,
    headNorms: true,
    rotated: 16,
    delta: { keyHeads: 2, valueHeads: 8, headDim: 32 },
    layers: 8,
  },
};
const EMBEDDING = 256;
const FEED_FORWARD = 768;
const LAYERS = 4;
/** No multiple of any panel's rows, so that the last panel of the output is partial. */
const VOCABULARY = 500;
const SIGMA = 0.02;
/** Of routers: logits that are some units apart, as trained ones are, so that rounding seldom changes a choice. */
const ROUTER_SIGMA = 0.3;

/** The bytes of a model file. */
export function synthesize(options: SynthOptions): Uint8Array<ArrayBuffer> {
  const { architecture, seed, vocabulary = VOCABULARY } = options;
  const shape = SHAPES[architecture];
  const layers = options.layers ?? shape.layers ?? LAYERS;
  const builder = new GgufBuilder();
  describe(builder, architecture, layers, vocabulary, options.chat);
  describeTexts(builder, architecture, options.texts ?? {});
  let matrices = 0;
  const random = (name: string) => new Random(seedOf(`${architecture} ${seed} ${name}`));
  const matrix = (name: string, ...shape: number[]) => {
    const type = options.types[matrices++ % options.types.length];
    const count = shape.reduce((product, n) => product * n);
    const values = weights(type, count, random(name));
    if (!options.dequantized) return void builder.tensor(`${name}.weight`, type, shape, values);
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    const floats = Float32Array.from(dequantize(type, bytes, count));
    builder.tensor(`${name}.weight`, "F32", shape, floats);
  };
  const vector = (name: string, length: number, mean = 1, spread = 0.1) => {
    const source = random(name);
    const values = Float32Array.from({ length }, () => mean + spread * source.normal());
    builder.tensor(name, "F32", [length], values);
  };

  matrix("token_embd", EMBEDDING, vocabulary);
  if (shape.untied) matrix("output", EMBEDDING, vocabulary);
  // Spreads the logits, so that most greedy choices are clear.
  vector("output_norm.weight", EMBEDDING, 6);
  if (shape.ropeFactors) {
    const length = shape.headDim / 2;
    const factors = Float32Array.from({ length }, (_, i) => 1 + 7 * i / (length - 1));
    builder.tensor("rope_freqs.weight", "F32", [length], factors);
  }
  const attention = (block: string) => {
    const queries = shape.delta ? 2 * shape.heads : shape.heads;
    const parts = { attn_q: queries, attn_k: shape.kvHeads, attn_v: shape.kvHeads };
    for (const [part, heads] of Object.entries(parts)) {
      matrix(`${block}.${part}`, EMBEDDING, heads * shape.headDim);
      if (shape.biases) vector(`${block}.${part}.bias`, heads * shape.headDim, 0);
    }
    matrix(`${block}.attn_output`, shape.heads * shape.headDim, EMBEDDING);
    if (shape.headNorms) {
      for (const norm of ["attn_q_norm", "attn_k_norm"]) vector(`${block}.${norm}.weight`, shape.headDim);
    }
  };
  const deltaNet = (block: string, { keyHeads, valueHeads, headDim }: NonNullable<Shape["delta"]>) => {
    const channels = (2 * keyHeads + valueHeads) * headDim;
    matrix(`${block}.attn_qkv`, EMBEDDING, channels);
    matrix(`${block}.attn_gate`, EMBEDDING, valueHeads * headDim);
    const taps = Float32Array.from(
      { length: 4 * channels },
      ((r) => () => 0.4 * r.normal())(random(`${block}.conv`)),
    );
    builder.tensor(`${block}.ssm_conv1d.weight`, "F32", [4, channels], taps);
    vector(`${block}.ssm_dt.bias`, valueHeads, 0, 0.5);
    vector(`${block}.ssm_a`, valueHeads, -1, 0.3);
    for (const name of ["ssm_alpha", "ssm_beta"]) matrix(`${block}.${name}`, EMBEDDING, valueHeads);
    vector(`${block}.ssm_norm.weight`, headDim);
    matrix(`${block}.ssm_out`, valueHeads * headDim, EMBEDDING);
  };
  const mixture = (block: string, { count, feedForward }: NonNullable<Shape["experts"]>) => {
    const source = random(`${block}.ffn_gate_inp`);
    const router = Float32Array.from({ length: EMBEDDING * count }, () => ROUTER_SIGMA * source.normal());
    builder.tensor(`${block}.ffn_gate_inp.weight`, "F32", [EMBEDDING, count], router);
    matrix(`${block}.ffn_gate_exps`, EMBEDDING, feedForward, count);
    matrix(`${block}.ffn_up_exps`, EMBEDDING, feedForward, count);
    matrix(`${block}.ffn_down_exps`, feedForward, EMBEDDING, count);
  };
  for (let layer = 0; layer < layers; layer++) {
    const block = `blk.${layer}`;
    vector(`${block}.attn_norm.weight`, EMBEDDING);
    if (shape.delta && (layer + 1) % 4 !== 0) deltaNet(block, shape.delta);
    else attention(block);
    vector(`${block}.${shape.delta ? "post_attention_norm" : "ffn_norm"}.weight`, EMBEDDING);
    if (shape.experts) {
      mixture(block, shape.experts);
      continue;
    }
    matrix(`${block}.ffn_gate`, EMBEDDING, FEED_FORWARD);
    matrix(`${block}.ffn_up`, EMBEDDING, FEED_FORWARD);
    matrix(`${block}.ffn_down`, FEED_FORWARD, EMBEDDING);
  }
  const { labels = 0 } = options.texts ?? {};
  if (labels > 0) matrix("cls.output", EMBEDDING, labels);
  return builder.build().bytes;
}

function describeTexts(
  builder: GgufBuilder,
  architecture: Architecture,
  { pooling, labels = 0, addEos, template }: SynthTexts,
): void {
  const names = Array.from({ length: labels }, (_, i) => `label ${i}`);
  if (labels > 0) builder.array(`${architecture}.classifier.output_labels`, "STRING", names);
  if (pooling !== undefined) builder.set(`${architecture}.pooling_type`, "UINT32", pooling);
  if (addEos) builder.set("tokenizer.ggml.add_eos_token", "BOOL", true);
  if (template !== undefined) builder.set("tokenizer.chat_template.rerank", "STRING", template);
}

function describe(
  builder: GgufBuilder,
  architecture: Architecture,
  layers: number,
  vocabulary: number,
  chat: SynthOptions["chat"],
): void {
  const shape = SHAPES[architecture];
  const counts = {
    block_count: layers,
    context_length: 2048,
    embedding_length: EMBEDDING,
    feed_forward_length: FEED_FORWARD,
    "attention.head_count": shape.heads,
    "attention.head_count_kv": shape.kvHeads,
    "attention.key_length": shape.headDim,
    "attention.value_length": shape.headDim,
    "rope.dimension_count": shape.rotated ?? shape.headDim,
    vocab_size: vocabulary,
  };
  const deltaCounts = shape.delta && {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": shape.delta.valueHeads * shape.delta.headDim,
    "ssm.state_size": shape.delta.headDim,
    "ssm.time_step_rank": shape.delta.valueHeads,
    "ssm.group_count": shape.delta.keyHeads,
    full_attention_interval: 4,
  };
  const expertCounts = shape.experts && {
    expert_count: shape.experts.count,
    expert_used_count: shape.experts.used,
    expert_feed_forward_length: shape.experts.feedForward,
  };
  builder.set("general.architecture", "STRING", architecture).set("general.name", "STRING", "synthetic");
  for (const [key, value] of Object.entries({ ...counts, ...deltaCounts, ...expertCounts })) {
    builder.set(`${architecture}.${key}`, "UINT32", value);
  }
  if (shape.delta) builder.array(`${architecture}.rope.dimension_sections`, "INT32", [3, 3, 2, 0]);
  builder.set(`${architecture}.rope.freq_base`, "FLOAT32", shape.ropeBase);
  builder.set(`${architecture}.attention.layer_norm_rms_epsilon`, "FLOAT32", 1e-6);

  const bytes = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
  const tokens = [...bytes, "<|endoftext|>", "th"];
  const types = [...bytes.map(() => 1), 3, 1];
  for (const mark of chat?.marks ?? []) {
    tokens.push(mark);
    types.push(4);
  }
  for (let i = tokens.length; i < vocabulary; i++) {
    tokens.push(`<unused${i}>`);
    types.push(5);
  }
  builder.set("tokenizer.ggml.model", "STRING", "gpt2").set("tokenizer.ggml.pre", "STRING", "default");
  builder.array("tokenizer.ggml.tokens", "STRING", tokens).array("tokenizer.ggml.token_type", "INT32", types);
  builder.array("tokenizer.ggml.merges", "STRING", ["t h"]);
  builder.set("tokenizer.ggml.bos_token_id", "UINT32", 256).set("tokenizer.ggml.eos_token_id", "UINT32", 256);
  builder.set("tokenizer.ggml.add_bos_token", "BOOL", false);
  if (chat) builder.set("tokenizer.chat_template", "STRING", chat.template);
}

/**
 * Half floats of a block: where they stand, and their value at a standard deviation of 1. It is one over the standard
 * deviation of what they multiply, when every code is as likely as any other; mins centre the codes.
 */
interface Scales {
  readonly halves: readonly (readonly [at: number, value: number])[];
  /** Quantisers write such scales with either sign. */
  readonly signed?: boolean;
}

const SCALES: Partial<Readonly<Record<TensorType, Scales>>> = {
  Q4_0: { halves: [[0, 1 / 4.61]], signed: true },
  Q4_1: { halves: [[0, 1 / 4.61], [2, -7.5 / 4.61]] },
  Q5_0: { halves: [[0, 1 / 9.23]], signed: true },
  Q5_1: { halves: [[0, 1 / 9.23], [2, -15.5 / 9.23]] },
  Q8_0: { halves: [[0, 1 / 73.9]] },
  Q2_K: { halves: [[80, 1 / 13.9], [82, 1.5 / 13.9]] },
  Q3_K: { halves: [[108, 1 / 43.3]], signed: true },
  Q4_K: { halves: [[0, 1 / 258], [2, 7.5 / 258]] },
  Q5_K: { halves: [[0, 1 / 527], [2, 15.5 / 527]] },
  Q6_K: { halves: [[208, 1 / 1367]], signed: true },
  IQ4_NL: { halves: [[0, 1 / 67.4]], signed: true },
  IQ4_XS: { halves: [[0, 1 / 1247]], signed: true },
};

/** `count` weights of a type. */
export function weights(type: TensorType, count: number, random: Random): ArrayBufferView {
  switch (type) {
    case "F32":
      return normals(new Float32Array(count), random);
    case "F16":
      return normals(new Float16Array(count), random);
    case "BF16": {
      const words = new Uint32Array(normals(new Float32Array(count), random).buffer);
      const halves = new Uint16Array(count);
      for (let i = 0; i < count; i++) halves[i] = (words[i] + 0x8000) >>> 16;
      return halves;
    }
    default:
      return blocks(type, count, random);
  }
}

function normals<T extends Float32Array<ArrayBuffer> | Float16Array<ArrayBuffer>>(out: T, random: Random): T {
  for (let i = 0; i < out.length; i++) out[i] = SIGMA * random.normal();
  return out;
}

function blocks(type: TensorType, count: number, random: Random): Uint8Array {
  const bytes = random.bytes(byteLengthOf(type, count));
  const view = new DataView(bytes.buffer);
  const size = layoutOf(type).bytes;
  for (let block = 0; block < bytes.length; block += size) {
    // An MXFP4 block has an exponent: its spread is about 5.9 x 2^(exponent - 128).
    if (type === "MXFP4") {
      bytes[block] = 118 + random.below(3);
      continue;
    }
    const { halves, signed } = SCALES[type]!;
    const scale = SIGMA * (0.7 + 0.6 * random.unit()) * (signed && random.below(2) ? -1 : 1);
    for (const [at, value] of halves) view.setFloat16(block + at, scale * value, true);
  }
  return bytes;
}
