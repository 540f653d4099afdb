import { greedyRequest } from "../backend/backend.ts";
import { Random } from "../sampling/random.ts";
import { adaptersOf } from "../schedule/adapters.ts";
import { checkPrompt } from "../schedule/request.ts";
import { newParts, type PooledOutput, type Sequence } from "../schedule/sequence.ts";
import { OutputText } from "../output/stop.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { ModelInfo } from "../api/engine.ts";
import { EngineError, type Wording } from "../api/errors.ts";
import type { EmbedRequest, EmbedResult } from "../api/request.ts";
import { DEFAULT_SAMPLING } from "../api/sampling.ts";

export const NO_VECTORS_ON_GPU: Wording = [
  "The GPU does not support embeddings and ranking yet: use ",
  { backend: "cpu" },
];

export interface EmbeddingsContext {
  readonly model: ModelInfo;
  readonly tokenizer: Tokenizer;
  /** Maximum number of tokens in one sequence. */
  readonly contextLength: number;
  /** Maximum rows of one step. The scheduler fills a step with `stepRows` rows. */
  readonly maxRows: number;
  readonly stepRows: number;
  /** Maximum number of embedding requests in progress. */
  readonly most: number;
  /** Returns the next sequence number; the numbers give the order of arrival. */
  nextId(): number;
  /** Queues a text's sequence in the scheduler. */
  add(sequence: Sequence): void;
  cancel(sequence: Sequence): void;
}

/**
 * Runs embedding requests. A request may have thousands of texts, but only texts for the next two steps are queued at a
 * time. A request that arrives meanwhile therefore waits at most two steps.
 */
export class Embeddings {
  readonly #context: EmbeddingsContext;
  /** Fields that all texts share. The engine ignores them because embedding samples no token. */
  readonly #common: Common;
  #underWay = 0;

  constructor(context: EmbeddingsContext) {
    this.#context = context;
    this.#common = commonFields(context.tokenizer);
  }

  /** Resolves to one row per text. Throws EngineError, or the reason of `signal` if aborted. */
  async run(request: EmbedRequest): Promise<EmbedResult> {
    const { signal } = request;
    signal?.throwIfAborted();
    const whole = this.#check(request);
    const { cacheSalt = "", adapters } = request;
    const used = adaptersOf(adapters, this.#context.model.adapters, cacheSalt);
    if (this.#underWay >= this.#context.most) {
      const message =
        `The queue is full (${this.#underWay} requests for embeddings under way): try again later`;
      throw new EngineError("queue_full", message);
    }
    const texts = new Texts(request, { ...this.#context, common: { ...this.#common, ...used }, whole });
    const abort = () => texts.fail(signal!.reason);
    signal?.addEventListener("abort", abort, { once: true });
    this.#underWay++;
    try {
      return await texts.run();
    } finally {
      this.#underWay--;
      signal?.removeEventListener("abort", abort);
    }
  }

  /**
   * Checks the texts of a request. Returns whether all rows of a text must be computed in one step. Throws EngineError.
   */
  #check({ inputs }: EmbedRequest): boolean {
    const { model, contextLength, maxRows } = this.#context;
    const { pooled } = model;
    if (!pooled) {
      throw new EngineError("not_supported", NO_VECTORS_ON_GPU);
    }
    const whole = pooled.encoder === true || pooled.kind === "mean" || pooled.kind === "cls";
    const most = whole ? Math.min(maxRows, contextLength) : contextLength;
    const holder = most === contextLength
      ? "the context holds"
      : `a step, in which ${pooled.encoder ? "an encoder" : `"${pooled.kind}"`} needs all of them, has`;
    for (const [index, tokens] of inputs.entries()) {
      const several = inputs.length > 1;
      if (tokens.length > most) {
        const message = `${
          several ? `Text ${index}` : "The text"
        } has ${tokens.length} tokens, but ${holder} ${most}: shorten it`;
        const details = { n_prompt_tokens: tokens.length, n_ctx: most };
        throw new EngineError("context_length_exceeded", message, details);
      }
      checkPrompt(several ? `text ${index}` : "text", tokens, model.vocabSize);
    }
    return whole;
  }
}

type Common = ReturnType<typeof commonFields>;

interface TextsContext extends EmbeddingsContext {
  readonly common: Common & Pick<Sequence, "adapters" | "prefixKey">;
  readonly whole: boolean;
}

/** The texts of one embedding request. */
class Texts {
  readonly #request: EmbedRequest;
  readonly #context: TextsContext;
  readonly #rows: Float32Array[];
  readonly #live = new Set<Sequence>();
  readonly #done = Promise.withResolvers<EmbedResult>();
  /** Index of the next text to queue. `#scheduled` counts the tokens of the queued texts. */
  #next = 0;
  #scheduled = 0;
  #usage = { promptTokens: 0, cachedTokens: 0 };

  constructor(request: EmbedRequest, context: TextsContext) {
    this.#request = request;
    this.#context = context;
    this.#rows = new Array(request.inputs.length);
  }

  run(): Promise<EmbedResult> {
    this.#feed();
    return this.#done.promise;
  }

  fail(error: unknown): void {
    const live = [...this.#live];
    this.#live.clear();
    this.#next = this.#request.inputs.length;
    this.#done.reject(error);
    for (const sequence of live) this.#context.cancel(sequence);
  }

  #feed(): void {
    const { inputs } = this.#request;
    while (this.#next < inputs.length && this.#scheduled < 2 * this.#context.stepRows) {
      const sequence = this.#sequenceOf(this.#next++);
      this.#scheduled += sequence.length;
      this.#live.add(sequence);
      this.#context.add(sequence);
    }
    if (this.#live.size === 0) this.#done.resolve({ rows: this.#rows, usage: this.#usage });
  }

  #sequenceOf(index: number): Sequence {
    const { common, whole, nextId } = this.#context;
    const { inputs, priority, cacheSalt = "", weight = 1 } = this.#request;
    const { length } = inputs[index];
    const fail = (error: Error) => {
      this.#live.delete(sequence);
      this.fail(error);
    };
    const pooled: PooledOutput = {
      whole,
      give: (row) => this.#take(index, sequence, row),
      cancel: () =>
        fail(new EngineError("engine_closed", "The engine is shutting down and takes no new requests")),
    };
    const sequence: Sequence = {
      ...common,
      ...newParts(false),
      id: nextId(),
      batch: priority === "batch",
      tokens: Int32Array.from(inputs[index]),
      length,
      promptLength: length,
      maxLength: length,
      salt: cacheSalt,
      weight,
      request: this.#request,
      stream: { full: false, push: () => {}, fail },
      pooled,
    };
    return sequence;
  }

  #take(index: number, sequence: Sequence, row: Float32Array): void {
    this.#live.delete(sequence);
    if (!row.every(Number.isFinite)) {
      const message = `The model gave no usable row for text ${index}: its weights may be damaged`;
      return this.fail(new EngineError("engine_failed", message));
    }
    this.#rows[index] = row;
    this.#scheduled -= sequence.length;
    this.#usage.promptTokens += sequence.length;
    this.#usage.cachedTokens += sequence.admission.reused;
    this.#feed();
  }
}

/** Returns the fields that the texts share. Computing a text does not change these fields. */
function commonFields(tokenizer: Tokenizer) {
  return {
    sampler: {
      params: DEFAULT_SAMPLING,
      random: new Random(0),
      counts: undefined,
      dry: undefined,
      logits: greedyRequest(0),
    },
    ignoreEos: false,
    output: new OutputText(tokenizer.streamDecoder(), []),
    logprobs: undefined,
    form: undefined,
    markers: new Set<number>(),
    promptLogprobs: false,
    unlisten: () => {},
    submittedAt: 0,
  };
}
