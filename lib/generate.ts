import {
  type Piece,
  PieceReader,
  type PromptProgress,
  type ScoredToken,
  textOf,
} from "../engine/answers/pieces.ts";
import {
  type ChatReader,
  type Engine,
  type GenerateRequest,
  type TokenEvent,
  type Tokenizer,
  tryJson,
  type Usage as EngineUsage,
} from "../engine/mod.ts";
import { type AnswerStream, LazyAnswer } from "./answer_stream.ts";
import { CompyError, refuse } from "./errors.ts";
import { readImages } from "./messages.ts";
import { checkOptions, constraintOf, GENERATE_OPTIONS, type GenerateOptions, requestOf } from "./options.ts";

/**
 * Progress of a long prompt: `processed` of `total` tokens are computed; `cached` of them came from the KV cache.
 *
 * ```ts
 * import { loadModel, type Progress } from "compy";
 *
 * await using model = await loadModel();
 * const show = ({ processed, total }: Progress) => console.log(`${processed} of ${total} tokens are read`);
 * for await (const { progress } of model.chat("word ".repeat(200), { maxTokens: 1 })) if (progress) show(progress);
 * ```
 */
export type Progress = PromptProgress;

/**
 * A token of an answer with its log-probability and its alternatives.
 *
 * ```ts
 * import { loadModel, type TokenScore } from "compy";
 *
 * await using model = await loadModel();
 * const { tokens = [] } = await model.chat("Yes or no?", { choices: ["yes", "no"], logprobs: 2 }).answer();
 * const sure = ({ text, logprob }: TokenScore) => `${text}: ${(100 * Math.exp(logprob)).toFixed()} %`;
 * console.log(tokens.map(sure));
 * ```
 */
export interface TokenScore {
  /** Token id. */
  readonly token: number;
  /** The token's own text; U+FFFD for a token that is only a part of a character. */
  readonly text: string;
  /** Natural logarithm of the token's probability. */
  readonly logprob: number;
  /** The most probable tokens at this position, best first. */
  readonly top: readonly { readonly token: number; readonly text: string; readonly logprob: number }[];
}

/**
 * A part of a generated text: either `text` or `progress` is set.
 *
 * ```ts
 * import { type GeneratedPart, loadModel } from "compy";
 *
 * await using model = await loadModel();
 * const parts: GeneratedPart[] = await Array.fromAsync(model.generate("Once upon", { maxTokens: 5 }));
 * console.log(parts.map(({ text }) => text));
 * ```
 */
export interface GeneratedPart {
  /** A further piece of the text. */
  readonly text?: string;
  /** The tokens of the text piece; only with `logprobs`. */
  readonly tokens?: readonly TokenScore[];
  /** Progress of a long prompt, before the first text. */
  readonly progress?: Progress;
}

/**
 * Token counts of a request.
 *
 * ```ts
 * import { loadModel, type Usage } from "compy";
 *
 * const computed = ({ promptTokens, cachedTokens }: Usage) => promptTokens - cachedTokens;
 * await using model = await loadModel();
 * const { usage } = await model.chat("Hi", { maxTokens: 5 }).answer();
 * console.log(computed(usage), usage.completionTokens);
 * ```
 */
export interface Usage {
  /** Number of tokens in the prompt. */
  readonly promptTokens: number;
  /** Number of tokens in the answer, including its thinking. */
  readonly completionTokens: number;
  /** Number of prompt tokens that came from the KV cache. */
  readonly cachedTokens: number;
  /** Number of answer tokens that are thinking. */
  readonly reasoningTokens: number;
  /**
   * Counts of correct and wrong draft tokens; only for requests that used drafts. Wrong ones are not part of the
   * answer.
   */
  readonly drafts?: { readonly accepted: number; readonly rejected: number };
}

/**
 * Durations of a request in milliseconds.
 *
 * ```ts
 * import { loadModel, type Timings } from "compy";
 *
 * const firstToken = ({ queueMs, prefillMs }: Timings) => queueMs + prefillMs;
 * await using model = await loadModel();
 * const { timings } = await model.chat("Hi", { maxTokens: 5 }).answer();
 * console.log(`the first token after ${firstToken(timings).toFixed(1)} ms`);
 * ```
 */
export interface Timings {
  /** Milliseconds from the request to its start. */
  readonly queueMs: number;
  /** Milliseconds from the start to the end of the prompt. */
  readonly prefillMs: number;
  /** Milliseconds from the end of the prompt to the end of the answer. */
  readonly decodeMs: number;
}

/**
 * A whole generated text.
 *
 * ```ts
 * import { type GeneratedText, loadModel } from "compy";
 *
 * await using model = await loadModel();
 * const generated: GeneratedText = await model.generate("Once upon", { maxTokens: 5, seed: 1 }).answer();
 * console.log(generated.text, generated.finishReason);
 * ```
 */
export interface GeneratedText {
  /** The generated text. */
  readonly text: string;
  /** The text parsed as JSON; only with a `schema` and a complete answer. */
  readonly json?: unknown;
  /** The tokens of the text, with scores; only with `logprobs`. */
  readonly tokens?: readonly TokenScore[];
  /** Token counts of the request. */
  readonly usage: Usage;
  /** Durations of the request. */
  readonly timings: Timings;
  /**
   * Reason why the text ended. `stop`: the model ended it, or a stop text came. `length`: `maxTokens` or the context
   * window was reached. `cancelled`: the caller left.
   */
  readonly finishReason: "stop" | "length" | "cancelled";
  /** The stop text that ended the answer. */
  readonly stop?: string;
}

/**
 * A text while it is generated.
 *
 * ```ts
 * import { type Generation, loadModel } from "compy";
 *
 * async function firstWords(generation: Generation): Promise<string> {
 *   let words = "";
 *   for await (const { text = "" } of generation) {
 *     words += text;
 *     if (words.length > 20) break; // what is left is not computed
 *   }
 *   return words;
 * }
 *
 * await using model = await loadModel();
 * console.log(await firstWords(model.generate("Once upon a time")));
 * ```
 */
export type Generation = AnswerStream<GeneratedPart, GeneratedText>;

/** Continues a prompt. Errors are thrown when the answer is read. */
export function generate(
  engine: Engine,
  given: string | readonly number[],
  asked: GenerateOptions,
): Generation {
  // The prompt is copied now, because it is only read when the caller reads the answer.
  const prompt = Array.isArray(given) ? [...given] : given;
  const options = { ...asked };
  return new LazyAnswer<GeneratedPart, GeneratedText>(async (signal, emit) => {
    checkOptions(options, GENERATE_OPTIONS);
    const events = readEvents(engine, {
      ...requestOf(options, signal),
      prompt: promptTokens(engine, prompt),
      ...await readImages(engine, options.images ?? [], signal),
      constraint: constraintOf(options),
    });
    const score = scorer(engine.tokenizer, options);
    const tokens: ScoredToken[] = [];
    let text = "";
    for await (const piece of events.pieces) {
      if (piece.type === "progress") emit({ progress: piece.progress });
      if (piece.type !== "part") continue;
      const more = textOf(piece);
      text += more;
      tokens.push(...piece.tokens);
      emit({ text: more, ...score(piece.tokens) });
    }
    const { reason, ...end } = events.end(options.signal);
    return { text, ...jsonOf(text, options, reason), ...score(tokens), ...end, finishReason: reason };
  }, options.signal);
}

function promptTokens(engine: Engine, prompt: string | readonly number[]): readonly number[] {
  if (typeof prompt !== "string") {
    if (!Array.isArray(prompt)) refuse("prompt", "must be a string or token ids", prompt);
    return prompt;
  }
  const ids = engine.encodePrompt(prompt.toWellFormed());
  return ids.length > 0 ? ids : refuse("prompt", "must have at least one token", prompt);
}

type Finish = Extract<TokenEvent, { type: "finish" }>;

/** Returns an answer's pieces and, after the last piece, its end. Leaving the iteration early cancels the answer. */
export function readEvents(engine: Engine, request: GenerateRequest, chat?: ChatReader) {
  const { id, pooled } = engine.model;
  if (pooled?.encoder) {
    const instead = pooled.kind === "rank" ? "rerank()" : "embed()";
    const message =
      `The model "${id}" returns vectors for texts and generates no text: use ${instead}, or another model`;
    throw new CompyError("not_supported", message);
  }
  let finish: Finish | undefined;
  async function* pieces(): AsyncGenerator<Piece> {
    const reader = new PieceReader(engine, 0, request.logprobs !== undefined, chat);
    for await (const event of engine.submit(request)) {
      if (event.type === "finish") finish = event;
      if (event.type !== "finish" || event.reason !== "cancelled") yield* reader.read(event);
    }
  }
  return {
    pieces: pieces(),
    /**
     * Returns how the answer ended. Throws the reason of the caller's signal if that ended the answer, CompyError if
     * the model was closed.
     */
    end(caller: AbortSignal | undefined): {
      reason: Finish["reason"];
      stop?: string;
      usage: Usage;
      timings: Timings;
    } {
      const { reason, stop, usage, timings } = finish!;
      if (reason === "cancelled") {
        caller?.throwIfAborted();
        if (!request.signal!.aborted) {
          throw new CompyError("engine_closed", "The model was closed before the answer was complete");
        }
      }
      return { reason, ...(stop === undefined ? {} : { stop }), usage: usageOf(usage), timings };
    },
  };
}

function usageOf(
  { promptTokens, completionTokens, cachedTokens, thinkingTokens = 0, drafts }: EngineUsage,
): Usage {
  return {
    promptTokens,
    completionTokens,
    cachedTokens,
    reasoningTokens: thinkingTokens,
    ...drafts && { drafts },
  };
}

/** Returns a function that adds readable tokens to a text; it adds nothing without `logprobs`. */
export function scorer(tokenizer: Tokenizer, { logprobs }: GenerateOptions) {
  const text = (token: number) => tokenizer.decode([token], { special: true, continuation: true });
  return (scored: readonly ScoredToken[]): { tokens?: TokenScore[] } => {
    if (logprobs === undefined) return {};
    const tokens = scored.map(({ token, logprob, top }) => ({
      token,
      text: text(token),
      logprob,
      top: top.map(({ token, logprob }) => ({ token, text: text(token), logprob })),
    }));
    return { tokens };
  };
}

/** Returns the answer parsed as JSON; undefined without a `schema` or for an incomplete answer. */
export function jsonOf(text: string, { schema }: GenerateOptions, reason: string): { json?: unknown } {
  if (schema === undefined || reason !== "stop") return {};
  const json = tryJson(text);
  return json === undefined ? {} : { json };
}
