import { type Piece, PieceReader, type PromptProgress, type ScoredToken } from "../engine/answers/pieces.ts";
import {
  type Engine,
  type GenerateRequest,
  type TokenEvent,
  type Tokenizer,
  tryJson,
  type Usage as EngineUsage,
} from "../engine/mod.ts";
import { type AnswerStream, LazyAnswer } from "./answer_stream.ts";
import { CompyError, refuse } from "./errors.ts";
import { checkOptions, constraintOf, GENERATE_OPTIONS, type GenerateOptions, requestOf } from "./options.ts";

/**
 * How much of a long prompt is read: `processed` of `total` tokens, of which `cached` were found in the KV cache.
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
 * A token of an answer, and what else might have stood there.
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
  /** Its id. */
  readonly token: number;
  /** Its text alone; of a token that is a part of a character, the replacement character. */
  readonly text: string;
  /** Natural logarithm of its probability. */
  readonly logprob: number;
  /** The likeliest tokens in its place, best first. */
  readonly top: readonly { readonly token: number; readonly text: string; readonly logprob: number }[];
}

/**
 * A part of a generated text; one of `text` and `progress` is there.
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
  /** More text. */
  readonly text?: string;
  /** The tokens of the text, where `logprobs` were asked for. */
  readonly tokens?: readonly TokenScore[];
  /** Comes before any text, while a long prompt is read. */
  readonly progress?: Progress;
}

/**
 * What a request took, in tokens.
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
  /** Of the prompt. */
  readonly promptTokens: number;
  /** Of the answer, its thinking too. */
  readonly completionTokens: number;
  /** Of the prompt those that were found in the KV cache. */
  readonly cachedTokens: number;
  /** Of the answer those of its thinking. */
  readonly reasoningTokens: number;
  /** Where tokens of the answer were computed by guess: those that proved right, and those that did not and are no part of it. */
  readonly drafts?: { readonly accepted: number; readonly rejected: number };
}

/**
 * How long a request took, in milliseconds.
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
  /** Until it was taken up. */
  readonly queueMs: number;
  /** Until its prompt was read. */
  readonly prefillMs: number;
  /** Until its answer was complete. */
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
  /** The text. */
  readonly text: string;
  /** The text parsed, where a `schema` was given and the answer is whole. */
  readonly json?: unknown;
  /** The tokens of the text, where `logprobs` were asked for. */
  readonly tokens?: readonly TokenScore[];
  /** What it took. */
  readonly usage: Usage;
  /** How long it took. */
  readonly timings: Timings;
  /** Why it ended: by itself or at a stop text, at `maxTokens` or the context's end, or since nobody wanted the rest. */
  readonly finishReason: "stop" | "length" | "cancelled";
  /** The stop text that it ended at. */
  readonly stop?: string;
}

/**
 * A text as it is generated.
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

/** Continues a prompt. What is wrong is thrown where the answer is read. */
export function generate(
  engine: Engine,
  given: string | readonly number[],
  asked: GenerateOptions,
): Generation {
  // As they are now: nothing is read of them before somebody wants the answer.
  const prompt = Array.isArray(given) ? [...given] : given;
  const options = { ...asked };
  return new LazyAnswer<GeneratedPart, GeneratedText>(async (signal, emit) => {
    checkOptions(options, GENERATE_OPTIONS);
    const events = readEvents(engine, {
      ...requestOf(options, signal),
      prompt: promptTokens(engine, prompt),
      constraint: constraintOf(options),
    });
    const score = scorer(engine.tokenizer, options);
    const tokens: ScoredToken[] = [];
    let text = "";
    for await (const piece of events.pieces) {
      if (piece.type === "progress") emit({ progress: piece.progress });
      if (piece.type !== "text") continue;
      text += piece.text;
      tokens.push(...piece.tokens);
      emit({ text: piece.text, ...score(piece.tokens) });
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

/** An answer's pieces, and once they have been read its end. Leaving them early cancels it. */
export function readEvents(engine: Engine, request: GenerateRequest) {
  const { id, pooled } = engine.model;
  if (pooled?.encoder) {
    const instead = pooled.kind === "rank" ? "rerank()" : "embed()";
    const message =
      `The model "${id}" gives vectors for texts and generates no text: use ${instead}, or another model`;
    throw new CompyError("not_supported", message);
  }
  let finish: Finish | undefined;
  async function* pieces(): AsyncGenerator<Piece> {
    const reader = new PieceReader(engine, 0, request.logprobs !== undefined);
    for await (const event of engine.submit(request)) {
      if (event.type === "finish") finish = event;
      if (event.type !== "finish" || event.reason !== "cancelled") yield* reader.read(event);
    }
  }
  return {
    pieces: pieces(),
    /** Throws the reason of the caller's `signal` where that ended it, CompyError where the model was closed meanwhile. */
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

/** Where log-probabilities are asked for, says a text's tokens as people read them. */
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

/** The answer parsed, where it was to be JSON and is whole. */
export function jsonOf(text: string, { schema }: GenerateOptions, reason: string): { json?: unknown } {
  if (schema === undefined || reason !== "stop") return {};
  const json = tryJson(text);
  return json === undefined ? {} : { json };
}
