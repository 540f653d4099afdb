import { type Candidates, greedyRequest, type KvType } from "../engine/backend/backend.ts";
import type { AnyBackend } from "../engine/backend/choose.ts";
import { isSameToken } from "../engine/load/draft_vocabulary.ts";
import { MAX_ROWS } from "../engine/load/size.ts";
import { DEFAULT_KV_TYPE } from "../engine/plan/choices.ts";
import { ChunkModel, type ChunkOptions, chunksOf } from "./chunks.ts";
import {
  compareRows,
  type Divergence,
  divergenceOf,
  type Estimate,
  estimate,
  perplexityOf,
  type TokenScore,
} from "./token_scores.ts";

export interface PerplexityOptions extends ChunkOptions {
  /** Path of a reference model with the same tokenizer. Its KV cache has the default type. */
  readonly against?: string;
  /** Called after each chunk with the perplexity so far. */
  readonly onChunk?: (done: number, total: number, perplexity: number) => void;
}

export interface PerplexityReport {
  readonly model: string;
  readonly backend: AnyBackend["info"];
  /** Reason for the backend, as in BenchReport. */
  readonly choice: string;
  readonly kvType: KvType;
  readonly chunkTokens: number;
  /** Number of scored chunks, and of chunks to score; they differ if `signal` ended the run. */
  readonly chunks: number;
  readonly wanted: number;
  /** Number of scored tokens. Without any, the estimates are NaN. */
  readonly tokens: number;
  readonly nll: Estimate;
  readonly perplexity: Estimate;
  readonly against?: Divergence & { readonly model: string };
}

/**
 * Measures how well a model predicts a text, as llama.cpp's perplexity tool does: each chunk is a separate sequence,
 * and the second half of its tokens is scored. Throws as loading a model does, and for a text shorter than a chunk.
 */
export async function measurePerplexity(options: PerplexityOptions): Promise<PerplexityReport> {
  const { chunkTokens, signal, against, onChunk = () => {} } = options;
  using open = new DisposableStack();
  const openScorer = async (given: PerplexityOptions) => {
    const model = await ChunkModel.open(given);
    open.defer(() => model.close());
    return new Scorer(model);
  };
  const scorer = await openScorer(options);
  const { model } = scorer;
  const chunks = chunksOf(model.tokenizer, options);
  const reference = against === undefined
    ? undefined
    : await openScorer({ ...options, model: against, kvType: DEFAULT_KV_TYPE });
  if (reference) checkTokenizers(model, reference.model, options.text);
  const scores: TokenScore[] = [];
  let [done, sum] = [0, 0];
  for (const chunk of chunks) {
    const scored = await scoreChunk(chunk, scorer, reference, signal);
    if (!scored) break;
    for (const score of scored) {
      scores.push(score);
      sum += score.nll;
    }
    onChunk(++done, chunks.length, Math.exp(sum / scores.length));
  }
  const nlls = scores.map(({ nll }) => nll);
  const divergence = divergenceOf(scores);
  return {
    model: model.name,
    backend: model.backend.info,
    choice: model.choice,
    kvType: model.plan.kv.type,
    chunkTokens,
    chunks: done,
    wanted: chunks.length,
    tokens: scores.length,
    nll: estimate(nlls),
    perplexity: perplexityOf(nlls),
    ...(divergence && { against: { model: reference!.model.name, ...divergence } }),
  };
}

function checkTokenizers(scorer: ChunkModel, reference: ChunkModel, text: string): void {
  const [own, other] = [scorer.tokenizer, reference.tokenizer];
  const isSame = scorer.plan.vocabSize === reference.plan.vocabSize && own.vocabSize === other.vocabSize &&
    Array.from({ length: own.vocabSize }).every((_, token) => isSameToken(token, own, other)) &&
    own.encode(text, { addSpecial: true }).join() === other.encode(text, { addSpecial: true }).join();
  if (isSame) return;
  throw new Error(`Cannot compare ${scorer.name} with ${reference.name}: their tokenizers differ`);
}

/** Returns the scores of the second half of a chunk; undefined if the signal ended it early. */
async function scoreChunk(
  chunk: Int32Array,
  scorer: Scorer,
  reference: Scorer | undefined,
  signal: AbortSignal | undefined,
): Promise<TokenScore[] | undefined> {
  const scores: TokenScore[] = [];
  const first = Math.floor(chunk.length / 2);
  for (const { from, to } of scorer.partsOf(chunk.length, first)) {
    if (signal?.aborted) return undefined;
    const scored = from >= first;
    const rows = await scorer.step(chunk, from, to, scored && (reference ? "vocabulary" : "token"));
    const others = await reference?.step(chunk, from, to, scored && "vocabulary");
    for (const [i, { probed, logSumExp }] of rows.entries()) {
      const token = chunk[from + i + 1];
      const score = others ? compareRows(probed, others[i].probed, token) : { nll: logSumExp - probed[0] };
      if (!Number.isFinite(score.nll)) {
        throw new Error(`${scorer.model.name} gave no usable logits: its weights may be damaged`);
      }
      scores.push(score);
    }
  }
  return scores;
}

/** A loaded model that scores tokens. */
class Scorer {
  readonly #vocabulary: Int32Array;

  constructor(readonly model: ChunkModel) {
    this.#vocabulary = Int32Array.from({ length: model.plan.vocabSize }, (_, token) => token);
  }

  /**
   * Returns the steps for a chunk's tokens except the last one, which predicts nothing. From `first` on, rows have
   * logits.
   */
  partsOf(length: number, first: number): { from: number; to: number }[] {
    const parts = [];
    for (let from = 0; from < length - 1;) {
      const to = from < first
        ? Math.min(first, from + MAX_ROWS)
        : Math.min(length - 1, from + this.model.logitRows);
      parts.push({ from, to });
      from = to;
    }
    return parts;
  }

  /** Computes tokens `from` to `to`. Returns each row's logits of the token after it, or of the whole vocabulary. */
  async step(
    chunk: Int32Array,
    from: number,
    to: number,
    wanted: "token" | "vocabulary" | false,
  ): Promise<readonly Candidates[]> {
    const requests = Array.from({ length: wanted ? to - from : 0 }, (_, row) => ({
      ...greedyRequest(row),
      probe: wanted === "token" ? chunk.subarray(from + row + 1, from + row + 2) : this.#vocabulary,
    }));
    return (await this.model.step(chunk, from, to, requests)).rows;
  }
}
