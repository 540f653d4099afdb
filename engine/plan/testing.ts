/** Small models for tests of plans. */
import { parseGguf } from "../gguf/reader.ts";
import { GgufBuilder } from "../gguf/testing.ts";
import type { GgufFile, TensorType } from "../gguf/types.ts";

export interface SmallTransformer {
  readonly architecture: "llama" | "qwen2" | "qwen3" | "qwen3moe";
  /** Format of the matrices. */
  readonly type: TensorType;
  /** Of single matrices, by name without block and `.weight`. */
  readonly types?: Readonly<Record<string, TensorType>>;
  /** Biases of q, k and v; norms of each head; an output matrix of its own. Default none. */
  readonly biases?: boolean;
  readonly headNorms?: boolean;
  readonly output?: boolean;
}

/** Experts of "qwen3moe", and how many of them a row chooses. */
const EXPERTS = { count: 6, used: 2, feedForward: 256 };

/** Three layers of Gated DeltaNet, one of attention, and a drafting layer that is left out. */
export interface SmallHybrid {
  readonly architecture: "qwen35";
  /** Format of the matrices. */
  readonly type: TensorType;
}

/** Two layers of short convolutions, and one of attention; with experts in the last two. */
export interface SmallLfm2 {
  readonly architecture: "lfm2" | "lfm2moe";
  /** Format of the matrices. */
  readonly type: TensorType;
}

const VOCAB = 8;
const EMBEDDING = 256;
const FEED_FORWARD = 512;
const HEADS = 8;
const KV_HEADS = 2;
const HEAD = 32;
const LAYERS = 2;

/** A small file of the architecture, 256 wide, eight heads of 32 over two, with weights of zero. */
export function smallModel(options: SmallTransformer | SmallHybrid | SmallLfm2): GgufFile {
  switch (options.architecture) {
    case "qwen35":
      return smallHybrid(options);
    case "lfm2":
    case "lfm2moe":
      return smallLfm2(options);
    default:
      return smallTransformer(options);
  }
}

/** What all small models have: the keys of the dense decoders, tokens, and ways to add tensors. */
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
    // A power of two, which prints the same as a 32-bit float.
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

  /** The router and the experts of a layer. */
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

/** A file of two layers. */
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

/** Gated DeltaNet: two key heads and four value heads of 64. */
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
  for (let layer = 0; layer < 4; layer++) {
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
