/**
 * Tiny, complete, seeded checkpoints for tests, in the folder formats of Hugging Face and MLX, with random weights.
 * Each format stores the same values, to the bit. A matrix has E2M1 codes with power-of-two scales, which BF16 and F16
 * represent exactly. Adding 1 to a norm rounds nothing.
 */

import { join } from "@std/path";
import type { Dtype } from "../convert/checkpoint/tensors.ts";
import { CODE_OF_BYTE } from "../engine/tokenizer/byte_codes.ts";
import { Random, seedOf } from "./random.ts";

export type ModelType = "llama" | "qwen3" | "qwen3_5";

export interface CheckpointOptions {
  readonly model: ModelType;
  /** Format of the matrices; the last two are MLX's. */
  readonly weights: "F32" | "F16" | "BF16" | "MXFP4" | "affine";
  /** Names, norms and convolutions in Hugging Face's or MLX's format. */
  readonly layout: "hf" | "mlx";
  readonly seed: number;
  /** Number of weight files. */
  readonly shards?: number;
  /** Whether a qwen3_5 checkpoint has a draft layer. */
  readonly drafts?: boolean;
}

export interface StoredTensor {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** A checkpoint in memory, which a test may change before writing. */
export interface TinyCheckpoint {
  readonly config: Record<string, unknown>;
  readonly tokenizer: Record<string, unknown>;
  readonly tokenizerConfig: Record<string, unknown>;
  readonly tensors: Map<string, StoredTensor>;
  /** The values of every tensor, by the names and in the order of Hugging Face's text models. */
  readonly values: ReadonlyMap<string, Float32Array>;
  readonly shards: number;
}

/** Sizes of the tiny models. Three V heads per K head make every head order distinguishable. */
export const TINY = {
  layers: 4,
  hidden: 128,
  feedForward: 256,
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  vocabulary: 320,
  epsilon: 1e-6,
  kHeads: 2,
  vHeads: 6,
  linearDim: 32,
  taps: 4,
  interval: 4,
  /** Share of a head that is rotated, for qwen3_5. */
  partialRotary: 0.25,
  ropeBase: { llama: 5e5, qwen3: 1e6, qwen3_5: 1e7 },
} as const;

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

export function tinyCheckpoint(options: CheckpointOptions): TinyCheckpoint {
  const values = new Map<string, Float32Array>();
  const tensors = new Map<string, StoredTensor>();
  const random = (name: string) => new Random(seedOf(`${options.model} ${options.seed} ${name}`));
  const matrix = (module: string, rows: number, columns: number) => {
    const stored = storeMatrix(
      options,
      rows,
      columns,
      random(module),
      (v) => values.set(`${module}.weight`, v),
    );
    for (const [part, tensor] of Object.entries(stored)) {
      tensors.set(`${rename(options, module)}.${part}`, tensor);
    }
  };
  const vector = (name: string, shape: readonly number[], value: (random: Random) => number, added = 0) => {
    const source = random(name);
    const held = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => value(source));
    values.set(name, held);
    const moved = options.layout === "mlx" ? added : 0;
    tensors.set(rename(options, name), storeFloats("BF16", shape, held.map((v) => v + moved)));
  };
  addTensors(options, matrix, vector);
  return {
    config: configOf(options),
    ...tokenizerOf(options.model),
    tensors,
    values,
    shards: options.shards ?? 1,
  };
}

type AddMatrix = (module: string, rows: number, columns: number) => void;
type AddVector = (
  name: string,
  shape: readonly number[],
  value: (random: Random) => number,
  added?: number,
) => void;

/** Returns a multiple of 1/64 between -1/4 and 1/4, so that BF16 represents both it and it plus 1. */
const small = (random: Random) => (random.below(33) - 16) / 64;
const nearOne = (random: Random) => 1 + small(random);

function addTensors(
  { model, layout, drafts }: CheckpointOptions,
  matrix: AddMatrix,
  vector: AddVector,
): void {
  const { hidden, feedForward, heads, kvHeads, headDim, kHeads, vHeads, linearDim, taps } = TINY;
  // Qwen3.5 stores norm weights as the distance from 1.
  const norm = (name: string, length: number) =>
    model === "qwen3_5" ? vector(name, [length], small, 1) : vector(name, [length], nearOne);
  matrix("model.embed_tokens", TINY.vocabulary, hidden);
  if (model !== "qwen3") matrix("lm_head", TINY.vocabulary, hidden);
  for (let i = 0; i < TINY.layers + (drafts ? 1 : 0); i++) {
    const layer = i < TINY.layers ? `model.layers.${i}` : "mtp.layers.0";
    norm(`${layer}.input_layernorm.weight`, hidden);
    if (model === "qwen3_5" && i < TINY.layers && (i + 1) % TINY.interval !== 0) {
      const linear = `${layer}.linear_attn`;
      const channels = (2 * kHeads + vHeads) * linearDim;
      matrix(`${linear}.in_proj_qkv`, channels, hidden);
      matrix(`${linear}.in_proj_z`, vHeads * linearDim, hidden);
      matrix(`${linear}.in_proj_a`, vHeads, hidden);
      matrix(`${linear}.in_proj_b`, vHeads, hidden);
      matrix(`${linear}.out_proj`, hidden, vHeads * linearDim);
      const shape = layout === "hf" ? [channels, 1, taps] : [channels, taps, 1];
      vector(`${linear}.conv1d.weight`, shape, (random) => 2 * small(random));
      vector(`${linear}.dt_bias`, [vHeads], (random) => 4 * small(random));
      vector(`${linear}.A_log`, [vHeads], (random) => 4 * small(random));
      vector(`${linear}.norm.weight`, [linearDim], nearOne);
    } else {
      const attention = `${layer}.self_attn`;
      // Each of Qwen3.5's queries has a gate.
      matrix(`${attention}.q_proj`, (model === "qwen3_5" ? 2 : 1) * heads * headDim, hidden);
      matrix(`${attention}.k_proj`, kvHeads * headDim, hidden);
      matrix(`${attention}.v_proj`, kvHeads * headDim, hidden);
      matrix(`${attention}.o_proj`, hidden, heads * headDim);
      if (model !== "llama") {
        norm(`${attention}.q_norm.weight`, headDim);
        norm(`${attention}.k_norm.weight`, headDim);
      }
    }
    norm(`${layer}.post_attention_layernorm.weight`, hidden);
    matrix(`${layer}.mlp.gate_proj`, feedForward, hidden);
    matrix(`${layer}.mlp.up_proj`, feedForward, hidden);
    matrix(`${layer}.mlp.down_proj`, hidden, feedForward);
  }
  norm("model.norm.weight", hidden);
  if (model !== "qwen3_5") return;
  const vision = layout === "hf" ? "model.visual" : "vision_tower";
  vector(`${vision}.patch_embed.weight`, [4, 4], small);
  if (layout !== "hf" && !drafts) return;
  norm("mtp.norm.weight", hidden);
  if (!drafts) return;
  matrix("mtp.fc", hidden, 2 * hidden);
  for (const name of ["pre_fc_norm_embedding", "pre_fc_norm_hidden"]) norm(`mtp.${name}.weight`, hidden);
}

/** Hugging Face stores Qwen3.5's text part beside its vision part; MLX uses other names for it. */
function rename({ model, layout }: CheckpointOptions, name: string): string {
  if (model !== "qwen3_5" || /^(model\.visual|vision_tower)\./.test(name)) return name;
  if (layout === "hf" && name.startsWith("mtp.")) return name;
  if (layout === "mlx") return `language_model.${name}`;
  return name.replace(/^model\./, "model.language_model.");
}

/** Stores one matrix; `keep` receives its values. */
function storeMatrix(
  { weights }: CheckpointOptions,
  rows: number,
  columns: number,
  random: Random,
  keep: (values: Float32Array) => void,
): Record<string, StoredTensor> {
  const codes = Uint8Array.from({ length: rows * columns }, () => random.below(16));
  const groups = rows * columns / 32;
  // The standard deviations are about 0.02 to 0.1, so that neither logits nor states vanish.
  const exponents = Uint8Array.from({ length: groups }, () => 120 + random.below(3));
  const packed = new Uint8Array(codes.length / 2);
  for (let i = 0; i < codes.length; i++) packed[i >> 1] |= codes[i] << 4 * (i & 1);
  const weight: StoredTensor = { dtype: "U32", shape: [rows, columns / 8], bytes: packed };
  if (weights === "affine") {
    const shared = rows * columns / 64;
    const scale = Float32Array.from({ length: shared }, () => (random.below(64) + 32) / 4096);
    const bias = Float32Array.from({ length: shared }, (_, i) => -scale[i] * 8 + scale[i] * random.below(2));
    keep(Float32Array.from(codes, (code, i) => code * scale[i >> 6] + bias[i >> 6]));
    const shape = [rows, columns / 64];
    return { weight, scales: storeFloats("BF16", shape, scale), biases: storeFloats("F32", shape, bias) };
  }
  const values = Float32Array.from(codes, (code, i) => {
    const magnitude = E2M1[code & 7] * 2 ** (exponents[i >> 5] - 127);
    return code & 8 ? -magnitude : magnitude;
  });
  keep(values);
  if (weights !== "MXFP4") return { weight: storeFloats(weights, [rows, columns], values) };
  return { weight, scales: { dtype: "U8", shape: [rows, columns / 32], bytes: exponents } };
}

export function storeFloats(
  dtype: "F32" | "F16" | "BF16",
  shape: readonly number[],
  values: Float32Array,
): StoredTensor {
  const typed = dtype === "F32"
    ? Float32Array.from(values)
    : dtype === "F16"
    ? Float16Array.from(values)
    : Uint16Array.from(new Uint32Array(Float32Array.from(values).buffer), (word) => word >>> 16);
  return { dtype, shape, bytes: new Uint8Array(typed.buffer) };
}

function configOf({ model, weights }: CheckpointOptions): Record<string, unknown> {
  const text = {
    hidden_size: TINY.hidden,
    intermediate_size: TINY.feedForward,
    num_hidden_layers: TINY.layers,
    num_attention_heads: TINY.heads,
    num_key_value_heads: TINY.kvHeads,
    head_dim: TINY.headDim,
    vocab_size: TINY.vocabulary,
    max_position_embeddings: 2048,
    rms_norm_eps: TINY.epsilon,
    tie_word_embeddings: model === "qwen3",
    hidden_act: "silu",
    attention_bias: false,
  };
  const modes = { MXFP4: { group_size: 32, bits: 4, mode: "mxfp4" }, affine: { group_size: 64, bits: 4 } };
  const quantization = weights === "MXFP4" || weights === "affine" ? { quantization: modes[weights] } : {};
  if (model !== "qwen3_5") {
    return {
      model_type: model,
      ...text,
      rope_theta: TINY.ropeBase[model],
      rope_scaling: null,
      ...quantization,
    };
  }
  return {
    model_type: model,
    text_config: {
      model_type: "qwen3_5_text",
      ...text,
      attn_output_gate: true,
      linear_num_key_heads: TINY.kHeads,
      linear_num_value_heads: TINY.vHeads,
      linear_key_head_dim: TINY.linearDim,
      linear_value_head_dim: TINY.linearDim,
      linear_conv_kernel_dim: TINY.taps,
      full_attention_interval: TINY.interval,
      layer_types: Array.from(
        { length: TINY.layers },
        (_, i) => (i + 1) % TINY.interval === 0 ? "full_attention" : "linear_attention",
      ),
      rope_parameters: {
        rope_type: "default",
        rope_theta: TINY.ropeBase[model],
        partial_rotary_factor: TINY.partialRotary,
        mrope_section: [3, 3, 2],
        mrope_interleaved: true,
      },
    },
    vision_config: { depth: 1 },
    ...quantization,
  };
}

/** Pre-tokenizer expressions of the published tokenizers. */
export const WORDS = {
  llama:
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  qwen3:
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  qwen3_5:
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  o200k:
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  tekken:
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  seed:
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
} as const;

const TEMPLATE =
  "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n" +
  "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/**
 * Returns byte-level BPE with two merges and, as in published checkpoints, fewer tokens than the embedding has rows.
 */
export function tokenizerOf(model: ModelType): Pick<TinyCheckpoint, "tokenizer" | "tokenizerConfig"> {
  const tokens = [...Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code)), "th", "the"];
  const added = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"].map((content, i) => {
    return { id: tokens.length + i, content, special: content !== "<think>", normalized: false };
  });
  const tokenizer = {
    version: "1.0",
    added_tokens: added,
    normalizer: model === "llama" ? null : { type: "NFC" },
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: WORDS[model] }, behavior: "Isolated", invert: false },
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
      ],
    },
    post_processor: { type: "ByteLevel", trim_offsets: false },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      byte_fallback: false,
      ignore_merges: model === "llama",
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: [["t", "h"], "th e"],
    },
  };
  const tokenizerConfig = {
    add_bos_token: false,
    bos_token: null,
    eos_token: "<|im_end|>",
    pad_token: { content: "<|endoftext|>" },
    chat_template: TEMPLATE,
  };
  return { tokenizer, tokenizerConfig };
}

/** Returns the bytes of a safetensors file. */
export function safetensors(
  tensors: Iterable<readonly [name: string, tensor: StoredTensor]>,
): Uint8Array<ArrayBuffer> {
  const all = [...tensors];
  let at = 0;
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  for (const [name, { dtype, shape, bytes }] of all) {
    header[name] = { dtype, shape, data_offsets: [at, at += bytes.length] };
  }
  return withHeader(JSON.stringify(header), all.map(([, { bytes }]) => bytes));
}

/** Returns the bytes of a safetensors file with any header and data. */
export function withHeader(header: string, data: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(header);
  const out = new Uint8Array(8 + text.length + data.reduce((sum, { length }) => sum + length, 0));
  new DataView(out.buffer).setBigUint64(0, BigInt(text.length), true);
  out.set(text, 8);
  let at = 8 + text.length;
  for (const bytes of data) {
    out.set(bytes, at);
    at += bytes.length;
  }
  return out;
}

/** Writes the checkpoint's folder; with several shards also an index. */
export async function writeCheckpoint(
  folder: string,
  checkpoint: Omit<TinyCheckpoint, "values">,
): Promise<void> {
  const { config, tokenizer, tokenizerConfig, tensors, shards } = checkpoint;
  const json = (name: string, value: unknown) =>
    Deno.writeTextFile(join(folder, name), JSON.stringify(value));
  await json("config.json", config);
  await json("tokenizer.json", tokenizer);
  await json("tokenizer_config.json", tokenizerConfig);
  if (shards === 1) return await Deno.writeFile(join(folder, "model.safetensors"), safetensors(tensors));
  const map: Record<string, string> = {};
  for (let i = 0; i < shards; i++) {
    const name = `model-0000${i + 1}-of-0000${shards}.safetensors`;
    const part = [...tensors].filter((_, at) => at % shards === i);
    for (const [tensor] of part) map[tensor] = name;
    await Deno.writeFile(join(folder, name), safetensors(part));
  }
  await json("model.safetensors.index.json", { metadata: {}, weight_map: map });
}
