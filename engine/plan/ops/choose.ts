import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, floats, integer, optional } from "../operands.ts";
import type { HeadShape } from "../values.ts";

/**
 * Chooses the blocks of `length` tokens that a row attends to. With weights (DeepSeek's lightning indexer), a row gets one
 * list, and position p scores the sum over heads of weight * max(0, q . key of p). Without weights (MiniMax M3), a row gets
 * a list per head, and position p scores q . key of p. A block scores as its best position. A list has the blocks with the
 * largest scores, ascending; of equal scores, the earlier block wins. The last `local` blocks, up to the row's own, are
 * always chosen. A row with at most as many blocks gets no list and sees all.
 */
export const CHOOSE = opKind({
  op: "choose",
  code: 48,
  operands: {
    q: floats("read"),
    weights: optional(floats("read")),
    heads: attentionHeads,
    out: floats("write"),
    length: integer,
    local: integer,
  },
  text: (op, t) => {
    const read = op.weights === undefined ? t.buffer(op.q) : t.buffers(op.q, op.weights);
    const blocks = op.length === 1 ? "" : `, blocks of ${op.length}, ${op.local} local`;
    const what = `layer ${op.heads.layer}, ${op.heads.heads} heads${blocks}`;
    return `${t.buffer(op.out)} = choose(${read}; ${what})`;
  },
  context: ({ heads: { layer, heads, headDim } }) => ({
    operations: 2 * heads * headDim,
    cache: layer,
    window: undefined,
  }),
});

/** The blocks of tokens that each row attends to: one list, or one per head that chose. */
export interface Choices {
  readonly lists: Value;
  /** Number of blocks per list. */
  readonly count: number;
  /** Number of tokens per block. */
  readonly length: number;
}

export interface ChooseOptions {
  /** Number of blocks that each row attends to. */
  readonly count: number;
  /** Factors of the heads, whose scores are added; by default each head chooses for itself. */
  readonly weights?: Value;
  /** Number of tokens per block; by default 1. */
  readonly length?: number;
  /** Number of last blocks that are always chosen; by default 0. */
  readonly local?: number;
}

/** Returns the blocks that each row attends to. The heads read one KV head's keys. */
export function choose(
  b: PlanBuilder,
  q: Value,
  heads: HeadShape,
  { count, weights, length = 1, local = 0 }: ChooseOptions,
): Choices {
  const lists = b.floats("chosen", q.rows, weights ? count : heads.heads * count);
  b.push(CHOOSE, {
    q: b.asFloat(q),
    weights: weights && b.asFloat(weights),
    heads,
    out: b.asFloat(lists),
    length,
    local,
  });
  return { lists, count, length };
}
