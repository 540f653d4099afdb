import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { chosenExperts, flag, floats, integer, optional, real, weights } from "../operands.ts";
import type { Chosen } from "../plan.ts";

/**
 * For each row the experts of the largest scores, ascending by their numbers, and their weights; of equal scores the lower
 * number is chosen. Scores are the softmax of the logits, or with `sigmoid` sigmoids, and chosen by score + bias. Weights are the
 * scores, with `divided` over the sum of the chosen, of sigmoids over max(sum, 2^-14). All weights are times `scale`, and each is times
 * its expert's of `scales`. Of several `groups` of equally many experts, a row chooses from the `groupsUsed` whose two largest score + bias
 * are the most together, of equals the lower.
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
  /** Experts that each row chooses, of as many as there are logits. */
  readonly used: number;
  /** Scores are sigmoids and not the softmax. */
  readonly sigmoid?: boolean;
  /** What a tensor of this name adds to the scores counts for the choice alone. */
  readonly bias?: string;
  /** Whether weights are divided by the sum of the chosen; by default they are. */
  readonly divided?: boolean;
  /** What all weights are multiplied by; by default 1. */
  readonly scale?: number;
  /** A tensor of this name multiplies each expert's weight by its own number. */
  readonly scales?: string;
  /** Experts are in `count` groups, of which `used` may be chosen from; by default in one. */
  readonly groups?: { readonly count: number; readonly used: number };
}

/** The experts that each row chooses by the logits of its router. */
export function route(
  b: PlanBuilder,
  logits: Value,
  { used, sigmoid = false, bias, divided = true, scale = 1, scales, groups }: RouteOptions,
): Chosen {
  const buffer = b.asFloat(b.floats("chosen", logits.rows, 2 * used));
  const chosen = { buffer, count: logits.columns, used };
  b.push({
    op: "route",
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
