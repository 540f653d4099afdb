/** Parts shared by encoders: models that attend in both directions and return rows of texts, not tokens. */
import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import { type ModelPooling, RANK_HEAD } from "../../gguf/hparams/pooling.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { activated } from "../../plan/ops/activated.ts";
import type { Learned } from "../../plan/ops/embed_positions.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { fused, linear } from "../../plan/ops/matmul.ts";
import { pool } from "../../plan/ops/pool.ts";
import { rotate, type RotateOptions } from "../../plan/ops/rotate.ts";
import { type HeadColumns, textAttention, type TextAttentionOptions } from "../../plan/ops/text_attention.ts";
import type { TensorName } from "../architecture.ts";
import { textRow } from "../text_row.ts";

type QueriesKeysValues = [q: HeadColumns, k: HeadColumns, v: HeadColumns];

/**
 * Whether a layer's values read rows in two 8-bit planes, if weights are quantized in blocks. Rounding values costs the
 * most accuracy. Two planes in every second layer cost about 3 % of a text's time.
 */
export function hasFineValues(layer: number): boolean {
  return layer % 2 === 0;
}

/** Returns a layer's queries, keys and values, from one fused matrix or from three. */
export function layerHeads(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  name: TensorName,
  layer: number,
): QueriesKeysValues {
  const fused = b.file.tensors.has(`${name("attn_qkv")}.weight`);
  return (fused ? fusedHeads : separateHeads)(b, x, h, name, hasFineValues(layer));
}

/** Returns a layer's queries, keys and values from three matrices. */
export function separateHeads(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  name: TensorName,
  fineValues = false,
): QueriesKeysValues {
  const values = h.headCountKv * h.keyLength;
  const [q, k, v] = linear(b, x, [
    { name: name("attn_q"), rows: h.headCount * h.keyLength },
    { name: name("attn_k"), rows: h.headCountKv * h.keyLength },
    { name: name("attn_v"), rows: values, fine: fineValues ? values : 0 },
  ]).map((value) => ({ value, column: 0 }));
  return [q, k, v];
}

/** Returns a layer's heads from one fused matrix: all queries, then all keys, then all values. */
export function fusedHeads(
  b: PlanBuilder,
  x: Value,
  h: Hparams,
  name: TensorName,
  fineValues = false,
): QueriesKeysValues {
  const [queries, keys] = [h.headCount, h.headCountKv].map((heads) => heads * h.keyLength);
  if (fineValues) {
    const [ofScores, ofValues] = fused(name("attn_qkv"), [queries + keys, keys]);
    const [value, values] = linear(b, x, [ofScores, { ...ofValues, fine: keys }]);
    return [{ value, column: 0 }, { value, column: queries }, { value: values, column: 0 }];
  }
  const [value] = linear(b, x, [{ name: name("attn_qkv"), rows: queries + 2 * keys }]);
  return [{ value, column: 0 }, { value, column: queries }, { value, column: queries + keys }];
}

/** Returns a layer's heads from one fused matrix: query, key and value of the first head, then of the next head. */
export function headsInTurn(b: PlanBuilder, x: Value, h: Hparams, name: TensorName): QueriesKeysValues {
  const step = 3 * h.keyLength;
  const [value] = linear(b, x, [{ name: name("attn_qkv"), rows: step * h.headCount }]);
  const part = (i: number) => ({ value, column: i * h.keyLength, step });
  return [part(0), part(1), part(2)];
}

/** Rotation, norms and attention window of an encoder's heads. */
export interface TwoWays extends Pick<RotateOptions, "interleaved">, TextAttentionOptions {
  /** Rotary angles of the leading dimensions; undefined: heads have no positions. */
  readonly table?: Value;
  /** RMSNorm of each query and key head, before rotation. */
  readonly headNorms?: boolean;
}

/** Returns the output of bidirectional attention: [rows, heads x headDim]. */
export function attendBothWays(
  b: PlanBuilder,
  [q, k, v]: QueriesKeysValues,
  h: Hparams,
  { table, headNorms, interleaved, ...options }: TwoWays,
  name: TensorName,
): Value {
  const { headCount: heads, headCountKv: kvHeads, keyLength: headDim } = h;
  if (table) {
    const turn = { table, rotated: h.ropeDimensionCount, interleaved, eps: h.epsilon };
    const norm = (part: string) => headNorms ? name(part) : undefined;
    rotate(b, q, heads, headDim, { ...turn, norm: norm("attn_q_norm") });
    rotate(b, k, kvHeads, headDim, { ...turn, norm: norm("attn_k_norm") });
  }
  const shape = { heads, kvHeads, headDim, reader: name("attn_output") };
  return textAttention(b, [q, k, v], shape, 1 / Math.sqrt(headDim), options);
}

/** Returns the token type embeddings; undefined if the file has none. */
export function tokenTypes({ file }: PlanBuilder): Learned["types"] {
  const tensor = file.tensors.get("token_types.weight");
  const count = file.metadata.getCount("tokenizer.ggml.token_type_count", tensor?.shape[1] ?? 1);
  return tensor && { name: "token_types", count };
}

/** Name of a classifier's dense layer, which precedes the label matrix. */
const HEAD = "cls";

/** A ranking head: it reads the first row or the mean of all rows, and has an activation. */
export interface RankHead {
  readonly of: "cls" | "mean";
  readonly activation: "tanh" | "gelu";
}

/**
 * Returns one row per text. To rank, the row passes the file's optional dense layer and norm, then the label matrix.
 */
export function poolEncoder(
  b: PlanBuilder,
  x: Value,
  { epsilon, embeddingLength }: Hparams,
  { kind, labels }: ModelPooling,
  { of, activation }: RankHead,
): Value {
  if (kind !== "rank") {
    b.leaveOut((name) => name.startsWith(`${HEAD}.`));
    return pool(b, x, kind);
  }
  let row = pool(b, x, of);
  if (b.file.tensors.has(`${HEAD}.weight`)) row = activated(b, row, HEAD, embeddingLength, activation);
  if (b.file.tensors.has(`${HEAD}.norm.weight`)) row = layerNorm(b, row, `${HEAD}.norm`, epsilon);
  return textRow(b, row, RANK_HEAD, labels);
}

/** Norms the rows and returns one row per text. Throws GgufError if the file asks to rank. */
export function poolNormed(
  b: PlanBuilder,
  x: Value,
  { epsilon: eps }: Hparams,
  { kind }: ModelPooling,
): Value {
  if (kind === "rank") {
    const keys = ArchitectureKeys.of(b.file.metadata);
    return keys.refuse("pooling_type", "4", "mean, cls or last; this model does not rank");
  }
  return pool(b, x, kind, { name: "output_norm", eps });
}
