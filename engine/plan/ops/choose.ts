import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, floats, integer, optional } from "../operands.ts";
import type { HeadShape } from "../values.ts";

/**
 * Chooses the blocks of `length` tokens that a row attends to. With weights (DeepSeek's lightning indexer), a row gets
 * one list, and the score of position p is the sum over heads of weight * max(0, q . key of p). Without weights
 * (MiniMax M3), a row gets one list per head, and the score of position p is q . key of p. The score of a block is the
 * largest score of its positions. A list has the blocks with the largest scores, in ascending order; of equal scores,
 * the earlier block wins. The last `local` blocks, up to the row's own, are always chosen. A row that has no more
 * blocks than a list holds gets no list and attends to all tokens.
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
    keysOnly: true,
  }),
});

/** The blocks of tokens that each row attends to: one list per row, or one list per row and choosing head. */
export interface Choices {
  readonly lists: Value;
  /** Number of blocks per list. */
  readonly count: number;
  /** Number of tokens per block. */
  readonly length: number;
}

export interface ChooseOptions {
  /** Number of blocks that a row attends to, per list. */
  readonly count: number;
  /** Factors of the heads' scores, which are then added. Without weights, each head chooses its own blocks. */
  readonly weights?: Value;
  /** Number of tokens per block; by default 1. */
  readonly length?: number;
  /** Number of most recent blocks that are always chosen; by default 0. */
  readonly local?: number;
}

/** Returns the blocks that each row attends to. All heads read the keys of one KV head. */
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
