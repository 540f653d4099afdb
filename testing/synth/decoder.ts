/** What families of decoders have in common. */
import type { Dimensions } from "./family.ts";
import type { SynthFile } from "./file.ts";

export interface DecoderShape extends Dimensions {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly ropeBase: number;
  /** Dimensions of a head that are rotated; by default all. */
  readonly rotated?: number;
  /** Has a matrix of its own for the output. */
  readonly untied?: boolean;
  readonly biases?: boolean;
  readonly headNorms?: boolean;
}

/** The keys that decoders have, and `more` counts. */
export function writeCounts(
  file: SynthFile,
  shape: DecoderShape,
  more: Readonly<Record<string, number>> = {},
) {
  file.counts({
    block_count: shape.layers,
    context_length: shape.context,
    embedding_length: shape.embedding,
    ...shape.feedForward > 0 && { feed_forward_length: shape.feedForward },
    "attention.head_count": shape.heads,
    "attention.head_count_kv": shape.kvHeads,
    "attention.key_length": shape.headDim,
    "attention.value_length": shape.headDim,
    "rope.dimension_count": shape.rotated ?? shape.headDim,
    vocab_size: shape.vocabulary,
    ...more,
  });
}

export function writeReals(file: SynthFile, { ropeBase }: DecoderShape): void {
  file.key("rope.freq_base", "FLOAT32", ropeBase);
  file.key("attention.layer_norm_rms_epsilon", "FLOAT32", 1e-6);
}

/** The embedding, the output matrix where it is another one, and the norm before it. */
export function writeEnds(file: SynthFile, { embedding, vocabulary, untied }: DecoderShape): void {
  file.matrix("token_embd", embedding, vocabulary);
  if (untied) file.matrix("output", embedding, vocabulary);
  // Spreads the logits, so that most greedy choices are clear.
  file.vector("output_norm.weight", embedding, 6);
}

/** q, k, v and the output; `queries` are the heads of q's rows. */
export function writeAttention(
  file: SynthFile,
  block: string,
  shape: DecoderShape,
  queries: number = shape.heads,
): void {
  const { embedding, heads, kvHeads, headDim } = shape;
  const parts = { attn_q: queries, attn_k: kvHeads, attn_v: kvHeads };
  for (const [part, heads] of Object.entries(parts)) {
    file.matrix(`${block}.${part}`, embedding, heads * headDim);
    if (shape.biases) file.vector(`${block}.${part}.bias`, heads * headDim, 0);
  }
  file.matrix(`${block}.attn_output`, heads * headDim, embedding);
  if (shape.headNorms) {
    for (const norm of ["attn_q_norm", "attn_k_norm"]) file.vector(`${block}.${norm}.weight`, headDim);
  }
}

export function writeFeedForward(
  file: SynthFile,
  block: string,
  { embedding, feedForward }: Pick<DecoderShape, "embedding" | "feedForward">,
): void {
  file.matrix(`${block}.ffn_gate`, embedding, feedForward);
  file.matrix(`${block}.ffn_up`, embedding, feedForward);
  file.matrix(`${block}.ffn_down`, feedForward, embedding);
}

/** Of routers: logits that are some units apart, as trained ones are, so that rounding seldom changes a choice. */
const ROUTER_SIGMA = 0.3;

export interface ExpertsShape {
  readonly count: number;
  readonly used: number;
  readonly feedForward: number;
}

export function expertCounts({ count, used, feedForward }: ExpertsShape): Record<string, number> {
  return { expert_count: count, expert_used_count: used, expert_feed_forward_length: feedForward };
}

/** A router and its experts. */
export function writeExperts(
  file: SynthFile,
  block: string,
  embedding: number,
  { count, feedForward }: ExpertsShape,
): void {
  writeRouter(file, block, embedding, count);
  file.matrix(`${block}.ffn_gate_exps`, embedding, feedForward, count);
  writeUngatedExperts(file, block, embedding, { count, feedForward });
}

/** The expert that every row goes through. */
export function writeSharedExpert(file: SynthFile, block: string, embedding: number, width: number): void {
  for (const name of ["ffn_gate_shexp", "ffn_up_shexp"]) file.matrix(`${block}.${name}`, embedding, width);
  file.matrix(`${block}.ffn_down_shexp`, width, embedding);
}

export function writeRouter(file: SynthFile, block: string, embedding: number, count: number): void {
  const router = `${block}.ffn_gate_inp`;
  file.floats(`${router}.weight`, [embedding, count], (random) => ROUTER_SIGMA * random.normal(), router);
}

/** Experts without gates, which read and make rows of that width. */
export function writeUngatedExperts(
  file: SynthFile,
  block: string,
  width: number,
  { count, feedForward }: Omit<ExpertsShape, "used">,
): void {
  file.matrix(`${block}.ffn_up_exps`, width, feedForward, count);
  file.matrix(`${block}.ffn_down_exps`, feedForward, width, count);
}
