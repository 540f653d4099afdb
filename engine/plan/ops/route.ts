import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { chosenExperts, flag, floats, integer, optional, real, weights } from "../operands.ts";
import type { Chosen } from "../values.ts";

/**
 * Chooses the highest-scoring experts per row and computes their weights.
 *
 * - Scores are the softmax of the logits, or with `sigmoid` their sigmoids.
 * - Experts are chosen by score + bias, the lower number first among equals, and listed in ascending order.
 * - Weights are the scores. With `divided` they are divided by the sum of the chosen scores, for sigmoids by max(sum,
 *   2^-14). All weights are multiplied by `scale`, and each by its expert's entry in `scales`.
 * - With several equally large `groups`, a row chooses within `groupsUsed` groups. These have the highest sum
 *   of their two largest score + bias; among equals the lower group wins.
 */
export const ROUTE = opKind({
  op: "route",
  code: 12,
  operands: {
    logits: floats("read"),
    bias: optional(weights),
    sigmoid: flag,
    divided: flag,
    scale: real,
    scales: optional(weights),
    groups: integer,
    groupsUsed: integer,
    chosen: chosenExperts("write"),
  },
  text: (op, t) => {
    const operands = [t.buffer(op.logits), t.tensors(op.bias)].filter(Boolean).join(", ");
    const scale = op.scale === 1 ? "" : `, scale ${op.scale}`;
    const scales = op.scales === undefined ? "" : `, each times ${t.tensor(op.scales)}`;
    const { used, count } = op.chosen;
    const groups = op.groups === 1 ? "" : ` in ${op.groupsUsed} of ${op.groups} groups`;
    return `${t.buffer(op.chosen.buffer)} = route(${operands}; ${used} of ${count}${groups} by ${
      op.sigmoid ? "sigmoid" : "softmax"
    }${op.divided ? "" : ", not divided"}${scale}${scales})`;
  },
});

export interface RouteOptions {
  /** Number of experts that each row chooses. There is one logit per expert. */
  readonly used: number;
  /** Whether scores are sigmoids of the logits instead of their softmax. */
  readonly sigmoid?: boolean;
  /** Tensor that biases the scores for the choice, but not the weights. */
  readonly bias?: string;
  /** Whether weights are divided by the sum of the chosen scores; by default true. */
  readonly divided?: boolean;
  /** Factor on the weights of all experts; by default 1. */
  readonly scale?: number;
  /** Name of a tensor with one factor per expert on its weight. */
  readonly scales?: string;
  /** Number of groups of experts (`count`), and of groups from which a row chooses (`used`); by default one group. */
  readonly groups?: { readonly count: number; readonly used: number };
}

/** Returns the experts that each row chooses by its router logits. */
export function route(
  b: PlanBuilder,
  logits: Value,
  { used, sigmoid = false, bias, divided = true, scale = 1, scales, groups }: RouteOptions,
): Chosen {
  const buffer = b.asFloat(b.floats("chosen", logits.rows, 2 * used));
  const chosen = { buffer, count: logits.columns, used };
  b.push(ROUTE, {
    logits: b.asFloat(logits),
    bias: bias === undefined ? undefined : b.vector(bias, logits.columns),
    sigmoid,
    divided,
    scale,
    scales: scales === undefined ? undefined : b.vector(scales, logits.columns),
    groups: groups?.count ?? 1,
    groupsUsed: groups?.used ?? 1,
    chosen,
  });
  return chosen;
}
