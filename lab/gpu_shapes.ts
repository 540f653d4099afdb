/** Published models by their shapes alone: plans of them can be counted where there are no weights. */
import { buildPlan } from "../engine/architectures/registry.ts";
import { MetadataMap } from "../engine/gguf/metadata.ts";
import { byteLengthOf } from "../engine/gguf/tensor_types.ts";
import type { GgufFile, MetadataValue, TensorInfo, TensorType } from "../engine/gguf/types.ts";
import type { Plan } from "../engine/plan/plan.ts";

export interface DenseShape {
  readonly name: string;
  readonly type: TensorType;
  readonly layers: number;
  readonly width: number;
  readonly feedForward: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabulary: number;
}

const QWEN3_0_6B = {
  layers: 28,
  width: 1024,
  feedForward: 3072,
  heads: 16,
  kvHeads: 8,
  headDim: 128,
  vocabulary: 151_936,
};
const QWEN3_4B = { ...QWEN3_0_6B, layers: 36, width: 2560, feedForward: 9728, heads: 32 };

/** What is counted where no file is named. */
export const SHAPES: readonly DenseShape[] = [
  { name: "Qwen3-0.6B", type: "Q8_0", ...QWEN3_0_6B },
  inType("Q4_0"),
  inType("MXFP4"),
  inType("F16"),
];

/** The shape of Qwen3-4B in a format. */
export function inType(type: TensorType): DenseShape {
  return { name: "Qwen3-4B", type, ...QWEN3_4B };
}

/** The plan of a Qwen3 of that shape. */
export function planOf(shape: DenseShape): Plan {
  const { name, type, layers, width, feedForward, heads, kvHeads, headDim, vocabulary } = shape;
  const keys: Record<string, MetadataValue> = {
    block_count: layers,
    context_length: 40_960,
    embedding_length: width,
    feed_forward_length: feedForward,
    "attention.head_count": heads,
    "attention.head_count_kv": kvHeads,
    "attention.key_length": headDim,
    "attention.value_length": headDim,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e6,
  };
  const metadata = new Map<string, MetadataValue>([["general.architecture", "qwen3"]]);
  for (const [key, value] of Object.entries(keys)) metadata.set(`qwen3.${key}`, value);
  metadata.set("tokenizer.ggml.tokens", Array<string>(vocabulary).fill(""));
  const tensors = new Map<string, TensorInfo>();
  const tensor = (of: string, type: TensorType, ...shape: number[]) => {
    const byteLength = byteLengthOf(type, shape.reduce((a, b) => a * b, 1));
    tensors.set(`${of}.weight`, { name: `${of}.weight`, type, shape, path: name, offset: 0, byteLength });
  };
  tensor("token_embd", type, width, vocabulary);
  for (let layer = 0; layer < layers; layer++) {
    const at = `blk.${layer}.`;
    tensor(`${at}attn_norm`, "F32", width);
    tensor(`${at}attn_q`, type, width, heads * headDim);
    tensor(`${at}attn_k`, type, width, kvHeads * headDim);
    tensor(`${at}attn_v`, type, width, kvHeads * headDim);
    for (const norm of ["attn_q_norm", "attn_k_norm"]) tensor(at + norm, "F32", headDim);
    tensor(`${at}attn_output`, type, heads * headDim, width);
    tensor(`${at}ffn_norm`, "F32", width);
    for (const product of ["ffn_gate", "ffn_up"]) tensor(at + product, type, width, feedForward);
    tensor(`${at}ffn_down`, type, feedForward, width);
  }
  tensor("output_norm", "F32", width);
  const file: GgufFile = {
    path: name,
    paths: [name],
    fileSize: 0,
    version: 3,
    metadata: new MetadataMap(metadata),
    tensors,
    open: () => Promise.reject(new Error(`Cannot open ${name}: it is only a shape`)),
  };
  return buildPlan(file);
}
