import { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { attention } from "../../plan/ops/attention.ts";
import { headMatmul } from "../../plan/ops/head_matmul.ts";
import { join } from "../../plan/ops/join.ts";
import { fused, linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeAppend, type RopeOptions } from "../../plan/ops/rope_append.ts";
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
  /** Dimensions of a query head, including the rotated ones, and of a head's output. */
  readonly keyLength: number;
  readonly valueLength: number;
  /** Rank of the queries' low-rank product; 0 where one matrix makes them. */
  readonly queryRank: number;
  readonly eps: number;
  /** Factor on the scores. */
  readonly scale: number;
  /** Growth of queries with their position; by default none. */
  readonly temperature?: RopeOptions["temperature"];
}

const MAX_RANK = 65_536;

/**
 * Reads the hyper-parameters of latent attention. The score factor defaults to 1 / sqrt(key length). Throws
 * GgufError(GGUF_HPARAM) naming the key.
 */
export function readLatentHeads(file: GgufFile, h: Hparams): LatentHeads {
  const keys = new ArchitectureKeys(file.metadata, h.architecture);
  if (!keys.has("attention.key_length_mla")) {
    const allowed =
      "there: older files have keys and values of latent attention in one tensor (attn_kv_b); convert the " +
      "model anew, or take a file of April 2025 or later";
    keys.refuse("attention.key_length_mla", "nothing", allowed);
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
  if (h.valueLength !== rank) {
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
    queryRank: readQueryRank(keys),
    eps,
    scale: 1 / Math.sqrt(keyLength),
  };
}

/** Models without a query rank leave the key out, or set 0. */
function readQueryRank(keys: ArchitectureKeys): number {
  const name = "attention.q_lora_rank";
  return keys.metadata.getCount(keys.name(name), 0) === 0 ? 0 : keys.count(name, MAX_RANK);
}

/**
 * Returns the output of attention, [rows, heads x valueLength]. Queries are projected into the latent space,
 * so the cache holds only latent rows; the result is projected back to values.
 */
export function latentAttention(
  b: PlanBuilder,
  x: Value,
  table: Value,
  of: LatentHeads,
  name: TensorName,
): Value {
  const { heads, rank, rotated, eps, temperature } = of;
  const width = rotated + rank;
  const shape = {
    layer: b.kvLayer({ heads: 1, headDim: width }),
    heads,
    kvHeads: 1,
    headDim: width,
    gated: false,
  };
  const asked = of.queryRank === 0
    ? { name: name("attn_q"), rows: heads * of.keyLength }
    : { name: name("attn_q_a"), rows: of.queryRank };
  // Rounding values costs the most accuracy, and this row holds the values of all heads.
  const [latent, place] = fused(name("attn_kv_a_mqa"), [rank, rotated]);
  const [q, made, turned] = linear(b, x, [asked, { ...latent, fine: rank }, place]);
  const key = join(b, turned, rmsNorm(b, made, name("attn_kv_a_norm"), eps));
  const queries = headMatmul(b, of.queryRank === 0 ? q : queriesOf(b, q, of, name), {
    name: name("attn_k_b"),
    heads,
    rows: rank,
    rest: rotated,
    keeps: true,
  });
  const turning = { table, rotated, interleaved: true, eps, vFrom: rotated, temperature };
  ropeAppend(b, [queries, key, key], shape, turning);
  const read = attention(b, queries, shape, of.scale);
  return headMatmul(b, read, {
    name: name("attn_v_b"),
    heads,
    rows: of.valueLength,
    rest: rotated,
    keeps: false,
    fine: true,
  });
}

/** Returns queries, [rows, heads x keyLength], with each head's rotated dimensions last. */
function queriesOf(
  b: PlanBuilder,
  q: Value,
  { heads, keyLength, eps }: LatentHeads,
  name: TensorName,
): Value {
  const normed = rmsNorm(b, q, name("attn_q_a_norm"), eps);
  return linear(b, normed, [{ name: name("attn_q_b"), rows: heads * keyLength }])[0];
}
