/** Small models for tests of plans. */
import { parseGguf } from "../gguf/reader.ts";
import { GgufBuilder } from "../gguf/testing.ts";
import type { GgufFile, TensorType } from "../gguf/types.ts";
import type { Plan } from "./plan.ts";
import { printPlan } from "./print.ts";

export interface SmallTransformer {
  readonly architecture: "llama" | "qwen2" | "qwen3" | "qwen3moe";
  /** Tensor type of the matrices. */
  readonly type: TensorType;
  /** Tensor types of single matrices, by name without block and `.weight`. */
  readonly types?: Readonly<Record<string, TensorType>>;
  /**
   * Whether the file has optional parts: biases of q, k and v; norms of each head; an output matrix. By default none.
   */
  readonly biases?: boolean;
  readonly headNorms?: boolean;
  readonly output?: boolean;
}

/** Experts of the test model "qwen3moe": their count, the number that a row chooses, and their width. */
const EXPERTS = { count: 6, used: 2, feedForward: 256 };

/** A test model of three layers of Gated DeltaNet, one of attention, and a layer that drafts and is left out. */
export interface SmallHybrid {
  readonly architecture: "qwen35";
  /** Tensor type of the matrices. */
  readonly type: TensorType;
}

/** A test model of two layers of short convolutions and one of attention. lfm2moe has experts in the last two. */
export interface SmallLfm2 {
  readonly architecture: "lfm2" | "lfm2moe";
  /** Tensor type of the matrices. */
  readonly type: TensorType;
}

/**
 * A test model: one Mamba2 layer, one attention layer without positions, and a feed-forward block, which is a separate
 * layer in nemotron_h. falcon-h1 has all three in one layer, with positions.
 */
export interface SmallMambaHybrid {
  readonly architecture: "granitehybrid" | "nemotron_h" | "falcon-h1";
  /** Tensor type of the matrices. */
  readonly type: TensorType;
}

/** Returns a plan's text without the architecture's name. Plans with equal texts compute the same. */
export const graphOf = (plan: Plan) => printPlan({ ...plan, architecture: "" });

const VOCAB = 8;
const EMBEDDING = 256;
const FEED_FORWARD = 512;
const HEADS = 8;
const KV_HEADS = 2;
const HEAD = 32;
const LAYERS = 2;

/**
 * Returns a small test file of the architecture: 256 wide, eight query heads of 32 over two KV heads, all weights zero.
 */
export function smallModel(options: SmallTransformer | SmallHybrid | SmallLfm2 | SmallMambaHybrid): GgufFile {
  switch (options.architecture) {
    case "qwen35":
      return smallHybrid(options);
    case "lfm2":
    case "lfm2moe":
      return smallLfm2(options);
    case "granitehybrid":
    case "nemotron_h":
    case "falcon-h1":
      return smallMambaHybrid(options);
    default:
      return smallTransformer(options);
  }
}

/** Parts that the small test models share: the dense decoders' keys, tokens, and methods that add tensors. */
class SmallFile {
  readonly builder = new GgufBuilder();

  constructor(readonly architecture: string, layers: number, private readonly type: TensorType) {
    this.builder.set("general.architecture", "STRING", architecture);
    this.keys({
      block_count: layers,
      context_length: 128,
      embedding_length: EMBEDDING,
      feed_forward_length: FEED_FORWARD,
      "attention.head_count": HEADS,
      "attention.head_count_kv": KV_HEADS,
      "attention.key_length": HEAD,
      "attention.value_length": HEAD,
    });
    // The epsilon is a power of two, which prints the same as a 32-bit float.
    this.builder.set(`${architecture}.attention.layer_norm_rms_epsilon`, "FLOAT32", 2 ** -20);
    const tokens = Array.from({ length: VOCAB }, (_, i) => `t${i}`);
    this.builder.array("tokenizer.ggml.tokens", "STRING", tokens);
  }

  keys(values: Readonly<Record<string, number>>): void {
    for (const [key, value] of Object.entries(values)) {
      this.builder.set(`${this.architecture}.${key}`, "UINT32", value);
    }
  }

  matrix(name: string, columns: number, rows: number, type: TensorType = this.type): void {
    this.builder.tensor(`${name}.weight`, type, [columns, rows]);
  }

  /** Adds the router and the experts of a layer. */
  experts(prefix: string, types: Readonly<Record<string, TensorType>>): void {
    const { count, feedForward } = EXPERTS;
    this.matrix(`${prefix}ffn_gate_inp`, EMBEDDING, count, "F32");
    for (const name of ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]) {
      const shape = name === "ffn_down_exps" ? [feedForward, EMBEDDING] : [EMBEDDING, feedForward];
      this.builder.tensor(`${prefix}${name}.weight`, types[name] ?? this.type, [...shape, count]);
    }
  }

  vector(name: string, ...shape: number[]): void {
    this.builder.tensor(name, "F32", shape);
  }

  parse(): GgufFile {
    return parseGguf(this.builder.build().bytes);
  }
}

/** Returns a test file of two transformer layers. */
export function smallTransformer(options: SmallTransformer): GgufFile {
  const { architecture, type, types = {} } = options;
  const file = new SmallFile(architecture, LAYERS, type);
  if (architecture === "qwen3moe") {
    const { count, used, feedForward } = EXPERTS;
    file.keys({ expert_count: count, expert_used_count: used, expert_feed_forward_length: feedForward });
  }
  const matrix = (prefix: string, name: string, columns: number, rows: number) =>
    file.matrix(prefix + name, columns, rows, types[name]);
  matrix("", "token_embd", EMBEDDING, VOCAB);
  for (let layer = 0; layer < LAYERS; layer++) {
    const prefix = `blk.${layer}.`;
    const attention = { attn_q: HEADS * HEAD, attn_k: KV_HEADS * HEAD, attn_v: KV_HEADS * HEAD };
    for (const [name, rows] of Object.entries(attention)) {
      matrix(prefix, name, EMBEDDING, rows);
      if (options.biases) file.vector(`${prefix}${name}.bias`, rows);
    }
    for (const name of options.headNorms ? ["attn_q_norm", "attn_k_norm"] : []) {
      file.vector(`${prefix}${name}.weight`, HEAD);
    }
    matrix(prefix, "attn_output", HEADS * HEAD, EMBEDDING);
    if (architecture === "qwen3moe") file.experts(prefix, types);
    else {
      for (const name of ["ffn_gate", "ffn_up"]) matrix(prefix, name, EMBEDDING, FEED_FORWARD);
      matrix(prefix, "ffn_down", FEED_FORWARD, EMBEDDING);
    }
    for (const name of ["attn_norm", "ffn_norm"]) file.vector(`${prefix}${name}.weight`, EMBEDDING);
  }
  file.vector("output_norm.weight", EMBEDDING);
  if (options.output) matrix("", "output", EMBEDDING, VOCAB);
  return file.parse();
}

/** Shape of the test model's Gated DeltaNet: two key heads and four value heads of 64. */
const DELTA = { keyHeads: 2, valueHeads: 4, headDim: 64 };

export function smallHybrid({ architecture, type }: SmallHybrid): GgufFile {
  const { keyHeads, valueHeads, headDim } = DELTA;
  const file = new SmallFile(architecture, 5, type);
  file.keys({
    "rope.dimension_count": 16,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": valueHeads * headDim,
    "ssm.state_size": headDim,
    "ssm.time_step_rank": valueHeads,
    "ssm.group_count": keyHeads,
    full_attention_interval: 4,
    nextn_predict_layers: 1,
  });
  file.builder.array(`${architecture}.rope.dimension_sections`, "INT32", [3, 3, 2, 0]);
  file.matrix("token_embd", EMBEDDING, VOCAB);
  for (let layer = 0; layer < 5; layer++) {
    const prefix = `blk.${layer}.`;
    file.vector(`${prefix}attn_norm.weight`, EMBEDDING);
    if (layer < 3) {
      const channels = (2 * keyHeads + valueHeads) * headDim;
      file.matrix(`${prefix}attn_qkv`, EMBEDDING, channels);
      file.matrix(`${prefix}attn_gate`, EMBEDDING, valueHeads * headDim);
      file.vector(`${prefix}ssm_conv1d.weight`, 4, channels);
      for (const name of ["ssm_dt.bias", "ssm_a"]) file.vector(prefix + name, valueHeads);
      for (const name of ["ssm_alpha", "ssm_beta"]) file.matrix(prefix + name, EMBEDDING, valueHeads);
      file.vector(`${prefix}ssm_norm.weight`, headDim);
      file.matrix(`${prefix}ssm_out`, valueHeads * headDim, EMBEDDING);
    } else {
      file.matrix(`${prefix}attn_q`, EMBEDDING, 2 * HEADS * HEAD);
      for (const name of ["attn_k", "attn_v"]) file.matrix(prefix + name, EMBEDDING, KV_HEADS * HEAD);
      for (const name of ["attn_q_norm", "attn_k_norm"]) file.vector(`${prefix}${name}.weight`, HEAD);
      file.matrix(`${prefix}attn_output`, HEADS * HEAD, EMBEDDING);
    }
    file.vector(`${prefix}post_attention_norm.weight`, EMBEDDING);
    for (const name of ["ffn_gate", "ffn_up"]) file.matrix(prefix + name, EMBEDDING, FEED_FORWARD);
    file.matrix(`${prefix}ffn_down`, FEED_FORWARD, EMBEDDING);
  }
  file.matrix("blk.4.nextn.eh_proj", 2 * EMBEDDING, EMBEDDING);
  for (const norm of ["enorm", "hnorm"]) file.vector(`blk.4.nextn.${norm}.weight`, EMBEDDING);
  file.vector("output_norm.weight", EMBEDDING);
  return file.parse();
}

export function smallLfm2({ architecture, type }: SmallLfm2): GgufFile {
  const file = new SmallFile(architecture, 3, type);
  file.keys({ "shortconv.l_cache": 3 });
  file.builder.array(`${architecture}.attention.head_count_kv`, "INT32", [0, 0, KV_HEADS]);
  const mixture = architecture === "lfm2moe";
  if (mixture) {
    const { count, used, feedForward } = EXPERTS;
    file.keys({ expert_count: count, expert_used_count: used, expert_feed_forward_length: feedForward });
    file.keys({ expert_gating_func: 2, leading_dense_block_count: 1 });
  }
  file.matrix("token_embd", EMBEDDING, VOCAB);
  for (let layer = 0; layer < 3; layer++) {
    const prefix = `blk.${layer}.`;
    for (const name of ["attn_norm", "ffn_norm"]) file.vector(`${prefix}${name}.weight`, EMBEDDING);
    if (layer < 2) {
      file.matrix(`${prefix}shortconv.in_proj`, EMBEDDING, 3 * EMBEDDING);
      file.vector(`${prefix}shortconv.conv.weight`, 3, EMBEDDING);
      file.matrix(`${prefix}shortconv.out_proj`, EMBEDDING, EMBEDDING);
    } else {
      file.matrix(`${prefix}attn_q`, EMBEDDING, HEADS * HEAD);
      for (const name of ["attn_k", "attn_v"]) file.matrix(prefix + name, EMBEDDING, KV_HEADS * HEAD);
      for (const name of ["attn_q_norm", "attn_k_norm"]) file.vector(`${prefix}${name}.weight`, HEAD);
      file.matrix(`${prefix}attn_output`, HEADS * HEAD, EMBEDDING);
    }
    if (mixture && layer > 0) {
      file.experts(prefix, {});
      file.vector(`${prefix}exp_probs_b.bias`, EXPERTS.count);
      continue;
    }
    for (const name of ["ffn_gate", "ffn_up"]) file.matrix(prefix + name, EMBEDDING, FEED_FORWARD);
    file.matrix(`${prefix}ffn_down`, FEED_FORWARD, EMBEDDING);
  }
  file.vector("token_embd_norm.weight", EMBEDDING);
  return file.parse();
}

/** Shape of the test model's Mamba2: eight heads of 32 in two groups, over a state of 64. */
const MAMBA = { heads: 8, headDim: 32, groups: 2, stateSize: 64 };

export function smallMambaHybrid({ architecture, type }: SmallMambaHybrid): GgufFile {
  const [granite, both] = [architecture === "granitehybrid", architecture === "falcon-h1"];
  const layers = both ? 1 : granite ? 2 : 3;
  const file = new SmallFile(architecture, layers, type);
  const inner = MAMBA.heads * MAMBA.headDim;
  const channels = inner + 2 * MAMBA.groups * MAMBA.stateSize;
  file.keys({
    "ssm.conv_kernel": 4,
    "ssm.inner_size": inner,
    "ssm.state_size": MAMBA.stateSize,
    "ssm.time_step_rank": MAMBA.heads,
    "ssm.group_count": MAMBA.groups,
  });
  const counts = (key: string, values: number[]) =>
    file.builder.array(`${architecture}.${key}`, "INT32", values.slice(0, layers));
  if (!both) counts("attention.head_count_kv", [0, KV_HEADS, 0]);
  if (!both && !granite) counts("feed_forward_length", [0, 0, FEED_FORWARD]);
  // The factors are powers of two, which print the same as 32-bit floats.
  const scales = { embedding_scale: 8, residual_scale: 0.25, "attention.scale": 0.0625, logit_scale: 4 };
  for (const [key, value] of Object.entries(granite ? scales : {})) {
    file.builder.set(`${architecture}.${key}`, "FLOAT32", value);
  }
  if (granite) file.builder.set(`${architecture}.rope.scaling.finetuned`, "BOOL", false);
  file.matrix("token_embd", EMBEDDING, VOCAB);
  for (let layer = 0; layer < layers; layer++) {
    const prefix = `blk.${layer}.`;
    file.vector(`${prefix}attn_norm.weight`, EMBEDDING);
    if (layer === 0) {
      file.matrix(`${prefix}ssm_in`, EMBEDDING, inner + channels + MAMBA.heads);
      file.vector(`${prefix}ssm_conv1d.weight`, 4, channels);
      file.vector(`${prefix}ssm_conv1d.bias`, channels);
      file.vector(`${prefix}ssm_dt.bias`, MAMBA.heads);
      for (const name of ["ssm_a", "ssm_d"]) file.vector(prefix + name, 1, MAMBA.heads);
      if (!both) file.vector(`${prefix}ssm_norm.weight`, inner / MAMBA.groups, MAMBA.groups);
      file.matrix(`${prefix}ssm_out`, inner, EMBEDDING);
    }
    if (both || layer === 1) {
      file.matrix(`${prefix}attn_q`, EMBEDDING, HEADS * HEAD);
      for (const name of ["attn_k", "attn_v"]) file.matrix(prefix + name, EMBEDDING, KV_HEADS * HEAD);
      file.matrix(`${prefix}attn_output`, HEADS * HEAD, EMBEDDING);
    }
    if (granite || both) {
      file.vector(`${prefix}ffn_norm${both ? "" : ".weight"}`, EMBEDDING);
      file.matrix(`${prefix}ffn_gate`, EMBEDDING, FEED_FORWARD);
    } else if (layer < 2) continue;
    file.matrix(`${prefix}ffn_up`, EMBEDDING, FEED_FORWARD);
    file.matrix(`${prefix}ffn_down`, FEED_FORWARD, EMBEDDING);
  }
  file.vector("output_norm.weight", EMBEDDING);
  return file.parse();
}
