import type { PlanBuilder, Value } from "../builder.ts";
import { opKind } from "../op.ts";
import { attentionHeads, chosenBlocks, flag, floats, integer, optional, real, weights } from "../operands.ts";
import type { HeadShape } from "../values.ts";
import type { Choices } from "./choose.ts";

/** Number of tokens in a chunk. Kernels read or skip whole chunks. */
const CHUNK = 128;

/**
 * Attention: out = softmax(scale q K) V over the positions of the sequence's cache up to the row's own. A `window` of
 * 0 means all of these positions; else a row attends to the last `window` of them. With `chunked`, positions form chunks
 * of `window`, and a row attends only to its own chunk. A head's sink is one more score in its softmax. A sink has no
 * value, so it only takes weight from the other scores. If softcap is not 0, scores are softcap tanh(score / softcap).
 */
export const ATTENTION = opKind({
  op: "attention",
  code: 6,
  operands: {
    q: floats("read"),
    out: floats("write"),
    heads: attentionHeads,
    scale: real,
    window: integer,
    chunked: flag,
    sinks: optional(weights),
    softcap: real,
    /** The blocks of tokens that rows attend to. A row with no more blocks than a list holds attends to all tokens. */
    chosen: chosenBlocks,
    /** Whether rows of an image attend only to positions up to their own, as other rows do. */
    causal: flag,
  },
  text: (op, t) => {
    const window = op.window === 0 ? "" : `, ${op.chunked ? "chunks of" : "window"} ${op.window}`;
    const sinks = op.sinks === undefined ? "" : `, sinks ${t.tensor(op.sinks)}`;
    const softcap = op.softcap === 0 ? "" : `, softcap ${op.softcap}`;
    const read = op.chosen === undefined ? t.buffer(op.q) : t.buffers(op.q, op.chosen.buffer);
    const chosen = op.chosen ? `, ${op.chosen.count} blocks of ${op.chosen.length}` : "";
    const causal = op.causal ? ", images causal" : "";
    const what = `layer ${op.heads.layer}, scale ${op.scale}${window}${sinks}${softcap}${chosen}${causal}`;
    return `${t.buffer(op.out)} = attention(${read}; ${what})`;
  },
  mixer: ({ window, chunked, chosen }) => {
    if (chosen !== undefined) return "sparse attention";
    return window === 0 ? "attention" : `attention ${chunked ? "in chunks of" : "to"} ${window} tokens`;
  },
  context: ({ heads: { layer, heads, headDim }, window, chosen }) => ({
    operations: 2 * 2 * heads * headDim, // two products over headDim
    cache: layer,
    window: window || undefined,
    // Kernels read whole chunks. The number of chunks is bounded only if each block fills whole chunks.
    reads: chosen && chosen.length % CHUNK === 0 ? chosen.count * chosen.length : undefined,
  }),
});

export interface AttentionOptions {
  /** Number of tokens that a row attends to, including itself; by default all. */
  readonly window?: number;
  /** Whether rows attend within chunks of `window` tokens instead of to the last `window` tokens. */
  readonly chunked?: boolean;
  /** Full name of a vector with one sink score per head. */
  readonly sinks?: string;
  /** Magnitude to which tanh bounds scores; by default unbounded. */
  readonly softcap?: number;
  /** The blocks of tokens that each row attends to, from `choose`; by default all tokens. */
  readonly chosen?: Choices;
  /** Whether rows of an image attend only to positions up to their own; by default to the whole image. */
  readonly causal?: boolean;
}

/** Returns the attention output over the sequence's tokens so far, or over a window of these tokens. */
export function attention(
  b: PlanBuilder,
  q: Value,
  heads: HeadShape,
  scale: number,
  { window = 0, chunked = false, sinks: name, softcap = 0, chosen, causal = false }: AttentionOptions = {},
): Value {
  const out = b.floats("attn", q.rows, heads.heads * heads.headDim);
  const sinks = name === undefined ? undefined : b.vector(name, heads.heads);
  b.push(ATTENTION, {
    q: b.asFloat(q),
    out: b.asFloat(out),
    heads,
    scale,
    window,
    chunked,
    sinks,
    softcap,
    chosen: chosen && { buffer: b.asFloat(chosen.lists), count: chosen.count, length: chosen.length },
    causal,
  });
  return out;
}
