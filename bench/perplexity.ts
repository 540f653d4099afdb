import { basename } from "@std/path";
import { type Candidates, greedyRequest, type KvType } from "../engine/backend/backend.ts";
import {
  type AnyBackend,
  defaultBackend,
  prepareBackend,
  type PrepareOptions,
} from "../engine/backend/choose.ts";
import { describeModel } from "../engine/load/describe.ts";
import { isSameToken } from "../engine/load/load_draft.ts";
import { MAX_ROWS } from "../engine/load/size.ts";
import { DEFAULT_KV_TYPE } from "../engine/plan/choices.ts";
import { isEncoder, type Plan, withContext } from "../engine/plan/plan.ts";
import type { Tokenizer } from "../engine/tokenizer/types.ts";
import { checkMemory } from "./memory.ts";
import type { BenchOptions } from "./model.ts";
import { blocksOf, Steps } from "./steps.ts";
import {
  compareRows,
  type Divergence,
  divergenceOf,
  type Estimate,
  estimate,
  perplexityOf,
  type TokenScore,
} from "./token_scores.ts";

type ModelOptions =
  & Pick<BenchOptions, "model" | "kvType" | "activations" | "warn" | "freeBytes">
  & PrepareOptions;

export interface PerplexityOptions extends ModelOptions {
  readonly text: string;
  /** Number of tokens in a chunk. */
  readonly chunkTokens: number;
  /** Maximum number of chunks; by default the whole text. */
  readonly chunks?: number;
  /** Path of a reference model with the same tokenizer. Its KV cache has the default type. */
  readonly against?: string;
  /** Ends the measurement early. The report then covers the complete chunks. */
  readonly signal?: AbortSignal;
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

/** Maximum logits of one step, to bound its memory: 32 MB of floats. A step has at least one row with logits. */
const STEP_LOGITS = 2 ** 23;
const MAX_LOGIT_ROWS = 256;

/** Names of the settings of the measured memory, for messages. */
const SETTINGS = { all: "--ctx", less: "fewer tokens (--ctx)" };

/**
 * Measures how well a model predicts a text, as llama.cpp's perplexity tool does: each chunk is a separate sequence,
 * and the second half of its tokens is scored. Throws as loading a model does, and for a text shorter than a chunk.
 */
export async function measurePerplexity(options: PerplexityOptions): Promise<PerplexityReport> {
  const { chunkTokens, signal, against, onChunk = () => {} } = options;
  using open = new DisposableStack();
  const openScorer = async (given: PerplexityOptions) => {
    const scorer = await Scorer.open(given);
    open.defer(() => scorer.close());
    return scorer;
  };
  const scorer = await openScorer(options);
  const chunks = chunksOf(scorer.tokenizer, options);
  const reference = against === undefined
    ? undefined
    : await openScorer({ ...options, model: against, kvType: DEFAULT_KV_TYPE });
  if (reference) checkTokenizers(scorer, reference, options.text);
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
    model: scorer.name,
    backend: scorer.backend.info,
    choice: scorer.choice,
    kvType: scorer.plan.kv.type,
    chunkTokens,
    chunks: done,
    wanted: chunks.length,
    tokens: scores.length,
    nll: estimate(nlls),
    perplexity: perplexityOf(nlls),
    ...(divergence && { against: { model: reference!.name, ...divergence } }),
  };
}

/** Returns the whole chunks of the text. BOS, if the model wants it, replaces the first token of each. */
export function chunksOf(
  tokenizer: Pick<Tokenizer, "bosToken" | "encode">,
  { text, chunkTokens, chunks = Infinity }: Pick<PerplexityOptions, "text" | "chunkTokens" | "chunks">,
): Int32Array[] {
  // llama.cpp also drops one line end at the end of the text.
  const tokens = tokenizer.encode(text.replace(/\n$/, ""), { addSpecial: true });
  const count = Math.floor(tokens.length / chunkTokens);
  if (count === 0) {
    throw new Error(`The text has ${tokens.length} tokens, fewer than a chunk of ${chunkTokens} (--ctx)`);
  }
  const [first] = tokenizer.encode("", { addSpecial: true });
  return Array.from({ length: Math.min(chunks, count) }, (_, i) => {
    const chunk = Int32Array.from(tokens.slice(i * chunkTokens, (i + 1) * chunkTokens));
    if (first !== undefined && first === tokenizer.bosToken) chunk[0] = first;
    return chunk;
  });
}

function checkTokenizers(scorer: Scorer, reference: Scorer, text: string): void {
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
        throw new Error(`${scorer.name} gave no usable logits: its weights may be damaged`);
      }
      scores.push(score);
    }
  }
  return scores;
}

/** A loaded model that scores tokens, without a scheduler and a prefix cache. */
class Scorer {
  readonly #steps: Steps;
  readonly #vocabulary: Int32Array;

  private constructor(
    readonly name: string,
    readonly backend: AnyBackend,
    readonly choice: string,
    readonly plan: Plan,
    readonly tokenizer: Tokenizer,
    private readonly logitRows: number,
    blocks: number,
  ) {
    this.#steps = new Steps(backend, plan, blocks);
    this.#vocabulary = Int32Array.from({ length: plan.vocabSize }, (_, token) => token);
  }

  static async open(given: PerplexityOptions): Promise<Scorer> {
    const { model, chunkTokens } = given;
    const options = { ...given, backend: given.backend ?? defaultBackend(given.warn) };
    const described = await describeModel({ ...options, speculate: "off" });
    const name = basename(model).replace(/\.gguf$/, "");
    const built = await described.plan();
    if (isEncoder(built)) throw new Error(`${name} gives vectors for texts and predicts no tokens`);
    if (chunkTokens > built.contextLength) {
      throw new Error(
        `Cannot score chunks of ${chunkTokens} tokens (--ctx): the model's context holds ${built.contextLength}`,
      );
    }
    const plan = withContext(built, chunkTokens);
    const blocks = blocksOf(chunkTokens);
    const size = {
      kvBlocks: blocks * plan.kv.windows.length,
      stateSlots: plan.states.length > 0 ? 1 : 0,
      maxRows: MAX_ROWS,
      maxLogitRows: Math.max(1, Math.min(MAX_LOGIT_ROWS, Math.floor(STEP_LOGITS / plan.vocabSize))),
    };
    checkMemory(plan, size, { ...options, weights: (await described.weightBytes()).all }, SETTINGS);
    const { backend, choice } = await prepareBackend(described.file, plan, size, options);
    return new Scorer(name, backend, choice, plan, described.tokenizer, size.maxLogitRows, blocks);
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
        : Math.min(length - 1, from + this.logitRows);
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
    return (await this.backend.step(this.#steps.textStep(chunk, from, to, requests))).rows;
  }

  close(): void {
    this.backend.close();
  }
}
