import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, flag, floats, integer, optional, real, weights } from "../operands.ts";
import type { HeadShape } from "../values.ts";

/**
 * Op that norms q and k heads (optional), rotates them (with a table), and appends k and v to the KV cache. Without k
 * and v, the layer reads an earlier layer's cache. Without q, it only stores k and v for later rows.
 */
export const ROPE_APPEND = opKind({
  op: "rope_append",
  code: 5,
  operands: {
    q: optional(floats("update")),
    k: optional(floats("update")),
    v: optional(floats("read")),
    table: optional(floats("read")),
    qNorm: optional(weights),
    kNorm: optional(weights),
    heads: attentionHeads,
    rotated: integer,
    interleaved: flag,
    eps: real,
    /** Whether values are normed, without weights. */
    vNorm: flag,
    beta: real,
    period: integer,
    offset: integer,
    /** Whether heads are normed after rotation instead of before. */
    normLast: flag,
    /** Whether heads without a norm tensor are normed, too. */
    unweighted: flag,
    /** First column of the values to store; columns before it are zeros. */
    vFrom: integer,
  },
  text: (op, t) => {
    const { layer, heads, kvHeads, headDim, gated } = op.heads;
    const what = `layer ${layer}, ${heads}/${kvHeads} heads of ${headDim}, rotated ${op.rotated}` +
      (op.interleaved ? " interleaved" : "") + (gated ? ", gated" : "") +
      (op.vNorm ? ", values normed" : "") + (op.normLast ? ", normed last" : "") +
      (op.vFrom ? `, values from column ${op.vFrom} on` : "") +
      (op.unweighted ? ", normed without weights" : "") +
      (op.beta
        ? `, temperature ${op.beta} a power of ${op.period}${op.offset ? `, offset ${op.offset}` : ""}`
        : "");
    const buffers = [op.q, op.k, op.v, op.table].filter((id) => id !== undefined);
    const operands = [t.buffers(...buffers), t.tensors(op.qNorm, op.kNorm)].filter(Boolean);
    return `rope_append(${operands.join(", ")}; ${what})`;
  },
});

export interface RopeOptions {
  /** Rotary angles; undefined: heads have no positions. */
  readonly table?: Value;
  /** Number of leading dimensions of a head that are rotated; 0 without a table. */
  readonly rotated: number;
  readonly interleaved: boolean;
  readonly eps: number;
  /** Tensor names of the per-head norms. */
  readonly qNorm?: string;
  readonly kNorm?: string;
  /** Whether heads are normed after rotation instead of before. */
  readonly normLast?: boolean;
  /** Whether value heads are normed, without weights. */
  readonly vNorm?: boolean;
  /** First column of a value head to store; columns before it are zeros. */
  readonly vFrom?: number;
  /** Whether heads without a norm tensor are normed, too. */
  readonly unweighted?: boolean;
  /** Query temperature: queries are multiplied by 1 + beta ln(1 + floor((position + offset) / period)). */
  readonly temperature?: { readonly beta: number; readonly period: number; readonly offset?: number };
}

/**
 * Rotates queries and keys by position, in place, and stores keys and values. Pass only queries for a layer that reads
 * another layer's cache, and only keys and values to store them for later rows. If values are the same `Value` as the
 * keys, they are stored before norm and rotation.
 */
export function ropeAppend(
  b: PlanBuilder,
  [q, k, v]: readonly (Value | undefined)[],
  heads: HeadShape,
  rope: RopeOptions,
): void {
  const norm = (name?: string) => name ? b.vector(`${name}.weight`, heads.headDim) : undefined;
  b.push(ROPE_APPEND, {
    q: q && b.asFloat(q),
    k: k && b.asFloat(k),
    v: v && b.asFloat(v),
    table: rope.table && b.asFloat(rope.table),
    qNorm: norm(rope.qNorm),
    kNorm: norm(rope.kNorm),
    heads,
    rotated: rope.rotated,
    interleaved: rope.interleaved,
    eps: rope.eps,
    vNorm: rope.vNorm ?? false,
    beta: rope.temperature?.beta ?? 0,
    period: rope.temperature?.period ?? 0,
    offset: rope.temperature?.offset ?? 0,
    normLast: rope.normLast ?? false,
    unweighted: rope.unweighted ?? false,
    vFrom: rope.vFrom ?? 0,
  });
}
