import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { PlanBuilder, Value } from "../../plan/builder.ts";
import { candidates } from "../../plan/ops/candidates.ts";
import { embed } from "../../plan/ops/embed.ts";
import { join } from "../../plan/ops/join.ts";
import { keep } from "../../plan/ops/keep.ts";
import { linear } from "../../plan/ops/matmul.ts";
import { recall } from "../../plan/ops/recall.ts";
import { rmsNorm } from "../../plan/ops/rms_norm.ts";
import { shift } from "../../plan/ops/shift.ts";
import type { TensorName } from "../architecture.ts";
import { layersBeforeDrafts } from "../left_out.ts";

/** The parts of a family's ordinary layer, as the draft layer uses them. */
export interface DraftBlock {
  /** Adds the ops that append keys and values of the rows to a new KV cache. */
  keys(rows: Value, name: TensorName): void;
  /** Adds the layer's output to the rows. The layer attends to the cache that `keys` fills. */
  layer(rows: Value, name: TensorName): void;
}

/** A draft layer has all tensors of TENSORS, and one of QUERIES. */
const TENSORS = ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_norm"];
const QUERIES = ["attn_q", "attn_qkv", "attn_q_a"];

/** Whether the file has a draft layer with the tensors that identify it. */
export function fileHasDraftLayer(file: GgufFile, h: Hparams): boolean {
  const layer = layersBeforeDrafts(file, h);
  const has = (tensor: string) => file.tensors.has(`blk.${layer}.${tensor}.weight`);
  return layer < h.blockCount && TENSORS.every(has) && QUERIES.some(has);
}

/**
 * Builds the extra layer that drafts. From a token and the previous row after the output norm, it computes a
 * row that predicts the token after next. Every step appends keys and values of all its tokens to this
 * layer's cache.
 * A draft continues from a row of the previous step, or of the previous draft. The first token has zeros as
 * previous row. If the file has several draft layers, the first is used.
 * Sources: "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 2.2. The choice of the previous row,
 * and the pairing of tokens and positions, follow llama.cpp.
 */
export function addDraftLayer(b: PlanBuilder, x: Value, h: Hparams, block: DraftBlock): void {
  const name = (tensor: string) => `blk.${layersBeforeDrafts(b.file, h)}.${tensor}`;
  const firstOf = (...tensors: string[]) =>
    tensors.find((name) => b.file.tensors.has(`${name}.weight`)) ?? tensors.at(-1)!;
  const norm = (rows: Value, name: string) => rmsNorm(b, rows, name, h.epsilon);
  const begin = (before: Value) => {
    const embedding = firstOf(name("nextn.embed_tokens"), "token_embd");
    const token = embed(b, embedding, h.vocabSize, h.embeddingLength);
    const both = join(b, norm(token, name("nextn.enorm")), before);
    return linear(b, both, [{ name: name("nextn.eh_proj"), rows: h.embeddingLength }])[0];
  };
  const hidden = norm(norm(x, "output_norm"), name("nextn.hnorm"));
  block.keys(begin(shift(b, hidden)), name);
  b.atEnd(() => {
    const row = begin(recall(b, hidden));
    block.layer(row, name);
    // Ling's files call the norm `layer_output_norm`.
    const last = firstOf(name("nextn.shared_head_norm"), name("layer_output_norm"), "output_norm");
    const head = firstOf(name("nextn.shared_head_head"), "output", "token_embd");
    candidates(b, rmsNorm(b, row, last, h.epsilon, "logits"), h.vocabSize, {}, head, draftTokens(b, h));
    keep(b, norm(norm(row, last), name("nextn.hnorm")), hidden);
  });
}

/** A vocabulary of at least this many tokens is large: most of a draft's cost is its output matrix. */
const LARGE_VOCABULARY = 32_768;
/** Share of a large vocabulary that drafts are chosen from. */
const DRAFTED = 1 / 4;
/** The number of rows must be a multiple of every kernel's panel. */
const ROWS = 16;

/**
 * Returns the number of tokens to choose drafts from. Vocabularies are in the order of their merges or scores, so
 * the first tokens are the most frequent. For fewer tokens than the vocabulary has, memory holds a copy of their rows.
 */
export function draftTokens({ draftTokens }: PlanBuilder, { vocabSize }: Hparams): number {
  if (draftTokens !== undefined) return Math.min(draftTokens, vocabSize);
  return vocabSize < LARGE_VOCABULARY ? vocabSize : ROWS * Math.ceil(DRAFTED * vocabSize / ROWS);
}
