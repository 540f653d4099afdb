import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { attention } from "../../plan/ops/attention.ts";
import type { Choices } from "../../plan/ops/choose.ts";
import { gate } from "../../plan/ops/gate.ts";
import { headMatmul } from "../../plan/ops/head_matmul.ts";
import { join } from "../../plan/ops/join.ts";
import { fused, type Linear, linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeAppend, type RopeOptions } from "../../plan/ops/rope_append.ts";
import type { HeadShape } from "../../plan/plan.ts";
import type { HeadRowsOf } from "../../plan/tensor_rows.ts";
import type { TensorName } from "../architecture.ts";

/**
 * Latent attention: all heads read one cached row per token. It has `rotated` dimensions with positions, and
 * `rank` dimensions that keys and values are made from. Source: "DeepSeek-V2" (arXiv 2405.04434), section
 * 2.1.
 */
export interface LatentHeads {
  readonly heads: number;
  readonly rank: number;
  readonly rotated: number;
  /** Number of dimensions of a query head, including the rotated ones, and of a head's output. */
  readonly keyLength: number;
  readonly valueLength: number;
  /**
   * Whether one tensor, `attn_kv_b`, holds the matrices for keys and values: for each head the rows for keys, then the
   * rows for values. Otherwise there are two tensors, and the matrices for keys are transposed.
   */
  readonly joined?: boolean;
  /** Whether rotated pairs are (2i, 2i + 1) instead of (i, i + half). */
  readonly interleaved: boolean;
  /** Rank of the queries' low-rank product; 0: one matrix computes the queries. */
  readonly queryRank: number;
  readonly eps: number;
  /** Factor on attention scores. */
  readonly scale: number;
  /** Whether a sigmoid gate per head, computed from the input rows, scales the output. */
  readonly headGates?: boolean;
  /** Growth of queries with their position; by default none. */
  readonly temperature?: RopeOptions["temperature"];
}

const MAX_RANK = 65_536;

/**
 * Reads the hyper-parameters of latent attention. The score factor defaults to 1 / sqrt(key length). Some converters
 * do not write the length of a value in the cache: `anyValueLength` ignores it. Throws GgufError(GGUF_HPARAM) naming the
 * key.
 */
export function readLatentHeads(file: GgufFile, h: Hparams, anyValueLength = false): LatentHeads {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  // Files from before April 2025 lack the key and have the tensor attn_kv_b.
  if (!keys.has("attention.key_length_mla") && h.headCountKv === h.headCount) {
    return readJoinedHeads(file, h, true);
  }
  if (h.headCountKv !== 1) {
    keys.refuse("attention.head_count_kv", String(h.headCountKv), "1 in latent attention");
  }
  const { ropeDimensionCount: rotated, headCount: heads, keyLength: width, epsilon: eps } = h;
  const rank = keys.count("attention.kv_lora_rank", MAX_RANK);
  if (width !== rank + rotated) {
    const allowed = `${rank + rotated}, the rank and the rotated dimensions`;
    keys.refuse("attention.key_length", String(width), allowed);
  }
  if (!anyValueLength && h.valueLength !== rank) {
    keys.refuse("attention.value_length", String(h.valueLength), `${rank}, the rank`);
  }
  const keyLength = keys.count("attention.key_length_mla", MAX_RANK);
  if (keyLength <= rotated) {
    keys.refuse("attention.key_length_mla", String(keyLength), `above the ${rotated} rotated dimensions`);
  }
  return {
    heads,
    rank,
    rotated,
    keyLength,
    valueLength: keys.count("attention.value_length_mla", MAX_RANK),
    interleaved: true,
    queryRank: readQueryRank(keys),
    eps,
    scale: 1 / Math.sqrt(keyLength),
  };
}

/**
 * Reads the latent attention of a file with `attn_kv_b`. The file's keys describe attention without latent rows, so the
 * number of KV heads equals the number of heads. Throws GgufError(GGUF_HPARAM) naming the key.
 */
export function readJoinedHeads(file: GgufFile, h: Hparams, interleaved: boolean): LatentHeads {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  const { headCount: heads, keyLength, valueLength, ropeDimensionCount: rotated, epsilon: eps } = h;
  if (h.headCountKv !== heads) {
    const allowed = `${heads}, the number of heads, if attn_kv_b has keys and values`;
    keys.refuse("attention.head_count_kv", String(h.headCountKv), allowed);
  }
  if (keyLength === rotated) {
    keys.refuse("rope.dimension_count", String(rotated), `below the ${keyLength} dimensions of a key`);
  }
  return {
    heads,
    rank: keys.count("attention.kv_lora_rank", MAX_RANK),
    rotated,
    keyLength,
    valueLength,
    joined: true,
    interleaved,
    queryRank: readQueryRank(keys),
    eps,
    scale: 1 / Math.sqrt(keyLength),
  };
}

/** Returns the query rank; 0 if the key is missing. */
function readQueryRank(keys: ArchitectureKeys): number {
  const name = "attention.q_lora_rank";
  return keys.metadata.getCount(keys.name(name), 0) === 0 ? 0 : keys.count(name, MAX_RANK);
}

/**
 * Returns the output of attention, [rows, heads x valueLength]. Queries are projected into the latent space, so the
 * cache holds only latent rows; attention's result is projected back to values. Without a table, heads have no positions.
 * `chooseFor` returns the positions that rows see, from the input rows and the queries' latent rows; by default all.
 */
export function latentAttention(
  b: PlanBuilder,
  x: Value,
  table: Value | undefined,
  of: LatentHeads,
  name: TensorName,
  chooseFor?: (x: Value, latent: Value) => Choices,
): Value {
  const { heads, rank, rotated } = of;
  const asked = of.queryRank === 0
    ? { name: name("attn_q"), rows: heads * of.keyLength }
    : { name: name("attn_q_a"), rows: of.queryRank };
  const gates = of.headGates ? [{ name: name("attn_gate"), rows: heads }] : [];
  const [q, latent, place, gated] = linear(b, x, [asked, ...latentRow(of, name), ...gates]);
  const key = keyOf(b, [latent, place], of, name);
  const normed = of.queryRank === 0 ? q : rmsNorm(b, q, name("attn_q_a_norm"), of.eps);
  const chosen = chooseFor?.(x, normed);
  const queries = headMatmul(b, of.queryRank === 0 ? q : queriesOf(b, normed, of, name), {
    weight: headMatrices(of, "k", name),
    heads,
    rows: rank,
    rest: rotated,
    keeps: true,
  });
  const shape = append(b, queries, key, table, of);
  const read = attention(b, queries, shape, of.scale, { chosen });
  const values = headMatmul(b, read, {
    weight: headMatrices(of, "v", name),
    heads,
    rows: of.valueLength,
    rest: rotated,
    keeps: false,
    fine: true,
  });
  return of.headGates ? gate(b, gated, values, { activation: "sigmoid" }) : values;
}

/** Returns each head's matrix that maps queries to the latent space (`k`), or latent results to values (`v`). */
function headMatrices(of: LatentHeads, part: "k" | "v", name: TensorName): string | HeadRowsOf {
  if (!of.joined) return name(`attn_${part}_b.weight`);
  const keys = of.keyLength - of.rotated;
  const both = { name: name("attn_kv_b.weight"), of: keys + of.valueLength };
  return part === "k" ? { ...both, first: 0, transposed: true } : { ...both, first: keys };
}

/** Appends the latent rows of x to a new KV cache, and computes nothing else of the attention. */
export function latentKeys(b: PlanBuilder, x: Value, table: Value, of: LatentHeads, name: TensorName): void {
  append(b, undefined, keyOf(b, linear(b, x, latentRow(of, name)), of, name), table, of);
}

/** Returns the matrices of the latent row and of its rotated dimensions. */
function latentRow({ rank, rotated }: LatentHeads, name: TensorName): Linear[] {
  const [latent, place] = fused(name("attn_kv_a_mqa"), [rank, rotated]);
  // Rounding values costs the most accuracy, and this row holds the values of all heads.
  return [{ ...latent, fine: rank }, place];
}

/** Returns the row to cache: the rotated dimensions, then the normed latent row. */
function keyOf(b: PlanBuilder, [latent, place]: Value[], { eps }: LatentHeads, name: TensorName): Value {
  return join(b, place, rmsNorm(b, latent, name("attn_kv_a_norm"), eps));
}

/** Rotates queries, if there are any, and appends the latent rows to a new KV cache. */
function append(
  b: PlanBuilder,
  queries: Value | undefined,
  key: Value,
  table: Value | undefined,
  { heads, rank, rotated, interleaved, eps, temperature }: LatentHeads,
): HeadShape {
  const headDim = rotated + rank;
  const shape = { layer: b.kvLayer({ heads: 1, headDim }), heads, kvHeads: 1, headDim, gated: false };
  const turning = {
    table,
    rotated: table ? rotated : 0,
    interleaved,
    eps,
    vFrom: rotated,
    temperature,
  };
  ropeAppend(b, [queries, key, key], shape, turning);
  return shape;
}

/** Returns the queries of normed latent rows, [rows, heads x keyLength], with each head's rotated dimensions last. */
function queriesOf(
  b: PlanBuilder,
  normed: Value,
  { heads, keyLength }: LatentHeads,
  name: TensorName,
): Value {
  return linear(b, normed, [{ name: name("attn_q_b"), rows: heads * keyLength }])[0];
}
