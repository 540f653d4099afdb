/** Small models for tests of plans. */
import { parseGguf } from "../gguf/reader.ts";
import { GgufBuilder } from "../gguf/testing.ts";
import type { GgufFile, TensorType } from "../gguf/types.ts";

export interface SmallTransformer {
  readonly architecture: "llama" | "qwen2" | "qwen3";
  /** Format of the matrices. */
  readonly type: TensorType;
  /** Of single matrices, by name without block and `.weight`. */
  readonly types?: Readonly<Record<string, TensorType>>;
  /** Biases of q, k and v; norms of each head; an output matrix of its own. Default none. */
  readonly biases?: boolean;
  readonly headNorms?: boolean;
  readonly output?: boolean;
}

const VOCAB = 8;
const EMBEDDING = 256;
const FEED_FORWARD = 512;
const HEADS = 8;
const KV_HEADS = 2;
const HEAD = 32;
const LAYERS = 2;

/** A file of two layers, 256 wide, eight heads of 32 over two, with weights of zero. */
export function smallTransformer(options: SmallTransformer): GgufFile {
  const { architecture, type, types = {} } = options;
  const builder = new GgufBuilder().set("general.architecture", "STRING", architecture);
  const keys = {
    block_count: LAYERS,
    context_length: 128,
    embedding_length: EMBEDDING,
    feed_forward_length: FEED_FORWARD,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.key_length": HEAD,
    "attention.value_length": HEAD,
  };
  for (const [key, value] of Object.entries(keys)) builder.set(`${architecture}.${key}`, "UINT32", value);
  // A power of two, which prints the same as a 32-bit float.
  builder.set(`${architecture}.attention.layer_norm_rms_epsilon`, "FLOAT32", 2 ** -20);
  builder.array("tokenizer.ggml.tokens", "STRING", Array.from({ length: VOCAB }, (_, i) => `t${i}`));

  const matrix = (prefix: string, name: string, columns: number, rows: number) =>
    builder.tensor(`${prefix}${name}.weight`, types[name] ?? type, [columns, rows]);
  const vector = (name: string, length: number) => builder.tensor(name, "F32", [length]);
  matrix("", "token_embd", EMBEDDING, VOCAB);
  for (let layer = 0; layer < LAYERS; layer++) {
    const prefix = `blk.${layer}.`;
    const attention = { attn_q: HEADS * HEAD, attn_k: KV_HEADS * HEAD, attn_v: KV_HEADS * HEAD };
    for (const [name, rows] of Object.entries(attention)) {
      matrix(prefix, name, EMBEDDING, rows);
      if (options.biases) vector(`${prefix}${name}.bias`, rows);
    }
    for (const name of options.headNorms ? ["attn_q_norm", "attn_k_norm"] : []) {
      vector(`${prefix}${name}.weight`, HEAD);
    }
    matrix(prefix, "attn_output", HEADS * HEAD, EMBEDDING);
    for (const name of ["ffn_gate", "ffn_up"]) matrix(prefix, name, EMBEDDING, FEED_FORWARD);
    matrix(prefix, "ffn_down", FEED_FORWARD, EMBEDDING);
    for (const name of ["attn_norm", "ffn_norm"]) vector(`${prefix}${name}.weight`, EMBEDDING);
  }
  vector("output_norm.weight", EMBEDDING);
  if (options.output) matrix("", "output", EMBEDDING, VOCAB);
  return parseGguf(builder.build().bytes);
}
