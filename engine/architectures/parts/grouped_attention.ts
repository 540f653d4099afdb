import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { attention } from "../../plan/ops/attention.ts";
import type { Choices } from "../../plan/ops/choose.ts";
import { gate } from "../../plan/ops/gate.ts";
import { headColumns } from "../../plan/ops/head_columns.ts";
import { layerNorm } from "../../plan/ops/layer_norm.ts";
import { fused, type Linear, linear } from "../../plan/ops/matmul.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { ropeAppend, type RopeOptions } from "../../plan/ops/rope_append.ts";
import type { HeadShape } from "../../plan/plan.ts";
import type { TensorName } from "../architecture.ts";
import type { Traits } from "../traits.ts";

/** Number of query heads per KV head from which values read rows in two 8-bit planes. */
const SHARED_BY = 2;

/** A layer's grouped heads and their attention options. */
export interface GroupedHeads {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Dimensions of a value head, at most headDim; by default headDim. The cache holds zeros after a narrower head. */
  readonly valueDim?: number;
  /** Rotary angles of the `rotated` leading dimensions; undefined: heads have no positions. */
  readonly table?: Value;
  readonly rotated: number;
  /** Whether rotated pairs are (2i, 2i + 1) instead of (i, i + half). */
  readonly interleaved?: boolean;
  readonly eps: number;
  /** Whether each query and key head has an RMSNorm, before rotation or, with normsLast, after it. */
  readonly headNorms?: boolean;
  readonly normsLast?: boolean;
  /** Whether an RMSNorm covers all query heads together and another all key heads, before rotation. */
  readonly rowNorms?: boolean;
  /** Whether each query and key head has a LayerNorm with its own weights, before rotation. */
  readonly headLayerNorms?: boolean;
  /** Whether each query and key head is normed without weights. */
  readonly unweightedNorms?: boolean;
  /** Factor on attention scores; by default 1 / sqrt(headDim). */
  readonly scale?: number;
  /** Number of tokens that a row attends to, including itself; by default all. */
  readonly window?: number;
  /** Whether a row attends within its chunk of `window` tokens instead. */
  readonly chunked?: boolean;
  /** Whether rows of a span attend only to positions up to their own, like rows outside spans. */
  readonly causal?: boolean;
  /** Computes from the input rows which blocks of tokens each row attends to; by default all tokens. */
  readonly chooseFor?: (x: Value, name: TensorName) => Choices;
  /** Whether q, k and v are one tensor. */
  readonly fused?: boolean;
  /** Options that scale queries by their positions. */
  readonly temperature?: RopeOptions["temperature"];
  /** Each head has a sink: a score that takes attention weight but has no value. */
  readonly sinks?: boolean;
  /** Magnitude to which tanh bounds attention scores. */
  readonly softcap?: number;
  /** Gates that scale the attention output, computed from the input rows: one per column, or one per head. */
  readonly outputGate?: Traits["outputGate"];
}

/**
 * Builds attention of grouped heads with a new KV cache, and the file's biases if any. Returns the output:
 * [rows, heads x valueDim].
 */
export function groupedAttention(b: PlanBuilder, x: Value, of: GroupedHeads, name: TensorName): Value {
  const { heads, headDim, valueDim = headDim, scale = 1 / Math.sqrt(headDim) } = of;
  const { window, chunked, softcap, causal, outputGate } = of;
  const [q, k, v] = projections(of, name);
  const rows = outputGate?.perHead ? heads : heads * valueDim;
  const gates = outputGate ? [{ name: name("attn_gate"), rows }] : [];
  const [queries, keys, values, gated] = linear(b, x, [q, k, v, ...gates]);
  const normed = normRow(b, queries, "attn_q_norm", of.heads, of, name);
  const shape = append(b, [normed, keys, values], of, name);
  const sinks = of.sinks ? name("attn_sinks.weight") : undefined;
  const chosen = of.chooseFor?.(x, name);
  const read = attention(b, normed, shape, scale, { window, chunked, sinks, softcap, chosen, causal });
  const attn = valueDim === headDim ? read : headColumns(b, read, heads, valueDim);
  return outputGate ? gate(b, gated, attn, outputGate) : attn;
}

/** Appends the keys and values of x to a new KV cache, and computes nothing else of the attention. */
export function groupedKeys(b: PlanBuilder, x: Value, of: GroupedHeads, name: TensorName): void {
  append(b, [undefined, ...linear(b, x, projections(of, name).slice(1))], of, name);
}

/** Returns the matrices of queries, keys and values. */
function projections(
  { heads, kvHeads, headDim, valueDim = headDim, ...of }: GroupedHeads,
  name: TensorName,
): Linear[] {
  const rows = [heads * headDim, kvHeads * headDim, kvHeads * valueDim];
  const separate = ["attn_q", "attn_k", "attn_v"].map((part, i) => ({ name: name(part), rows: rows[i] }));
  const [q, k, v]: Linear[] = of.fused ? fused(name("attn_qkv"), rows) : separate;
  // Rounding values costs the most accuracy (docs/lab/2026-11.md, "Trained weights"). Where heads share
  // values, their product is small.
  return [q, k, { ...v, fine: SHARED_BY <= heads / kvHeads ? v.rows : 0 }];
}

/** Rotates queries, if there are any, and appends keys and values to a new KV cache. */
function append(
  b: PlanBuilder,
  [q, k, v]: readonly (Value | undefined)[],
  of: GroupedHeads,
  name: TensorName,
): HeadShape {
  const { heads, kvHeads, headDim, valueDim = headDim, table } = of;
  const shape = { layer: b.kvLayer({ heads: kvHeads, headDim }), heads, kvHeads, headDim, gated: false };
  const values = valueDim === headDim ? v : headColumns(b, v!, kvHeads, headDim);
  ropeAppend(b, [q, normRow(b, k!, "attn_k_norm", kvHeads, of, name), values], shape, {
    table,
    rotated: table ? of.rotated : 0,
    interleaved: of.interleaved ?? false,
    eps: of.eps,
    qNorm: of.headNorms && q ? name("attn_q_norm") : undefined,
    kNorm: of.headNorms ? name("attn_k_norm") : undefined,
    normLast: of.normsLast,
    unweighted: of.unweightedNorms,
    temperature: of.temperature,
  });
  return shape;
}

/** Norms queries or keys outside `ropeAppend`, where the family does. */
function normRow(
  b: PlanBuilder,
  row: Value,
  part: string,
  heads: number,
  of: GroupedHeads,
  name: TensorName,
): Value {
  if (of.headLayerNorms) return layerNorm(b, row, name(part), of.eps, row.rows, heads);
  return of.rowNorms ? rmsNorm(b, row, name(part), of.eps) : row;
}
