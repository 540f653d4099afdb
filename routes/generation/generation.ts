import {
  type ChatReader,
  type Constraint,
  type Engine,
  EngineError,
  finish,
  type GenerateRequest,
  SAMPLING_SETTINGS,
  type SamplingParams,
  type Sender,
  type Usage,
  type UsedAdapter,
} from "../../engine/mod.ts";
import type { OwnedResponses } from "../../jobs/service/response_store.ts";
import type { Account } from "../access/account.ts";
import type { z } from "@hono/zod-openapi";
import type { AskedForm } from "./constraints.ts";
import { overflowOf } from "../core/context_overflow.ts";
import { ApiError, queueFull, shuttingDown } from "../core/errors.ts";
import { firstWrong, type samplingFields } from "../core/fields.ts";
import { merge } from "../core/merge.ts";
import type { ImageSender } from "./images.ts";
import { type Piece, PieceReader } from "../../engine/answers/pieces.ts";
import { noteEnd, noteStart, secondsUntilRoom } from "../core/queue.ts";
import type { AnswerHead, UsageBody } from "./answers.ts";

/** Options of a request that its sender decides outside the body. */
export interface RunOptions extends ImageSender {
  /** Counts the request and its answers. */
  readonly account?: Account;
  /** Stored responses of the sender; undefined if the server stores none. */
  readonly responses?: OwnedResponses;
  /** Milliseconds that the request waited for its model to be loaded. */
  readonly loadMs?: number;
}

/** A validated request, which can be run once: as a whole answer or, if supported, as a stream of chunks. */
export interface Prepared {
  readonly stream: boolean;
  answer(signal: AbortSignal): Promise<Record<string, unknown>>;
  chunks?(signal: AbortSignal): AsyncGenerator<Record<string, unknown>>;
  /** Returns the events that end a failed stream; by default an error in the format of a refusal. */
  failure?(error: ApiError): object[];
  /** Returns the line that keeps an idle stream of JSON lines open. */
  waiting?(): object;
}

/** A request that keeps its engine loaded until `release`, which must be called once. */
export interface Running extends Prepared {
  readonly release: () => void;
}

/** Body fields of every generation. */
type Body = z.output<z.ZodObject<typeof samplingFields>> & {
  readonly stop?: string | readonly string[] | null;
  readonly lora?: readonly UsedAdapter[] | null;
};

/** A request for the engine, the account that counts its answer, and the reader of a chat's answer. */
export interface CountedRequest extends GenerateRequest {
  readonly account?: Account;
  readonly reader?: () => ChatReader;
}

/** Returns the engine options that every generation shares. */
export function engineRequest(
  engine: Engine,
  body: Body,
  options: RunOptions,
): Omit<CountedRequest, "prompt" | "maxTokens" | "logprobs"> {
  const stop = typeof body.stop === "string" ? [body.stop] : body.stop ?? [];
  return {
    sampling: samplingOf(engine, body),
    ...adaptersOf(engine, body.lora),
    stop: stop.map((text) => text.toWellFormed()),
    ignoreEos: body.ignore_eos ?? false,
    priority: options.priority ?? "interactive",
    cacheSalt: options.cacheSalt,
    weight: options.weight,
    account: options.account,
  };
}

/** Returns the adapters that the request chooses. Throws ApiError 400 for one that the model does not have. */
function adaptersOf({ model }: Engine, lora: Body["lora"]): Pick<GenerateRequest, "adapters"> {
  const { length } = model.adapters ?? [];
  if (lora === undefined || lora === null || (length === 0 && lora.length === 0)) return {};
  const refuse = (code: string, problem: string) => {
    throw new ApiError(400, code, problem, { param: "lora" });
  };
  if (length === 0) {
    refuse(
      "unsupported_parameter",
      'Unsupported parameter "lora": the model was loaded without adapters; leave it out',
    );
  }
  const ids = lora.map(({ id }) => id);
  const wrong = ids.find((id, i) => id >= length || ids.indexOf(id) < i);
  if (wrong !== undefined) {
    refuse(
      "invalid_value",
      `Invalid "lora": ids must be from 0 to ${length - 1}, each at most once (got ${wrong})`,
    );
  }
  return { adapters: lora };
}

/** Returns the sampling parameters of the request, with defaults for missing ones. */
function samplingOf(engine: Engine, body: Body): SamplingParams {
  const values = SAMPLING_SETTINGS.map(([name, { api, kind, min, off, default: unset }]) => {
    const value = (body as Record<string, unknown>)[api.name] ?? unset;
    if (kind === "biases") return [name, logitBias(engine, body.logit_bias ?? {})];
    return [name, off !== undefined && Number(value) < Number(min) ? off : value];
  });
  return Object.fromEntries(values);
}

function logitBias(engine: Engine, biases: Record<string, number>): Map<number, number> {
  const entries = Object.entries(biases).map(([id, bias]): [number, number] => [Number(id), bias]);
  for (const [id] of entries) checkToken(engine, id, "logit_bias");
  return new Map(entries);
}

/** Throws ApiError 400 for an id outside the vocabulary. */
export function checkToken(engine: Engine, id: number, param: string): void {
  if (id < engine.tokenizer.vocabSize) return;
  const last = engine.tokenizer.vocabSize - 1;
  const message = `Invalid "${param}": token ids must be from 0 to ${last} (got ${id})`;
  throw new ApiError(400, "invalid_value", message, { param });
}

/** Throws ApiError 400 if an id is outside the vocabulary. */
export function checkTokens(engine: Engine, ids: readonly number[], param: string): void {
  const { vocabSize } = engine.tokenizer;
  const at = finish(firstWrong(ids, (id) => id < vocabSize));
  if (at >= 0) checkToken(engine, ids[at], param);
}

/** Returns the tokens of a prompt given as text or ids. Throws ApiError 400 for invalid ids and for an empty prompt. */
export function promptTokens(engine: Engine, prompt: string | number[]): number[] {
  if (typeof prompt !== "string") {
    checkTokens(engine, prompt, "prompt");
    return prompt;
  }
  const ids = engine.encodePrompt(prompt.toWellFormed());
  if (ids.length > 0) return ids;
  throw new ApiError(400, "invalid_value", 'Invalid "prompt": must have at least one token (got 0)', {
    param: "prompt",
  });
}

/** Returns `n` requests that differ only in their seeds, so that a seeded request always gets the same answers. */
export function answersTo(request: CountedRequest, n: number): CountedRequest[] {
  const seed = request.sampling?.seed;
  if (seed === undefined) return Array.from({ length: n }, () => request);
  return Array.from(
    { length: n },
    (_, i) => ({ ...request, sampling: { ...request.sampling, seed: seed + i } }),
  );
}

/**
 * Checks that an answer can follow the constraint, before anything is queued or streamed. Otherwise throws ApiError 400
 * that names a parameter in `asked`.
 */
export async function checkForm(
  engine: Engine,
  constraint: Constraint | undefined,
  asked: readonly AskedForm[],
  sender: Sender,
): Promise<void> {
  if (!constraint) return;
  const whole = await refusalOf(engine, constraint, sender);
  if (whole === undefined) return;
  for (const { constraint, param } of asked) {
    const own = await refusalOf(engine, constraint, sender);
    if (own !== undefined) throw new ApiError(400, "invalid_constraint", own, { param });
  }
  throw new ApiError(400, "invalid_constraint", whole, { param: asked[0]?.param });
}

/** Returns why no answer can follow the constraint, or undefined. */
async function refusalOf(
  engine: Engine,
  constraint: Constraint,
  { cacheSalt, priority }: Sender,
): Promise<string | undefined> {
  try {
    await engine.checkConstraint(constraint, { cacheSalt, priority });
  } catch (error) {
    if (error instanceof EngineError && error.code === "invalid_constraint") return error.message;
    throw error;
  }
}

/**
 * Runs the requests in parallel; each piece has the index of its request. Leaving the iteration, `signal`, or the
 * failure of one request cancels all. Throws as PieceReader.
 */
export function generate(
  engine: Engine,
  requests: readonly CountedRequest[],
  signal: AbortSignal,
): AsyncGenerator<Piece> {
  if (requests.length === 1) return generateOne(engine, { ...requests[0], signal }, 0);
  return generateAll(engine, requests, signal);
}

async function* generateAll(
  engine: Engine,
  requests: readonly CountedRequest[],
  signal: AbortSignal,
): AsyncGenerator<Piece> {
  const abort = new AbortController();
  const stop = () => abort.abort(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    const choices = requests.map((request, i) =>
      generateOne(engine, { ...request, signal: abort.signal }, i)
    );
    yield* merge(choices, abort);
  } finally {
    signal.removeEventListener("abort", stop);
    abort.abort();
  }
}

async function* generateOne(engine: Engine, counted: CountedRequest, index: number): AsyncGenerator<Piece> {
  const { account, reader: chatReader, ...request } = counted;
  const reader = new PieceReader(engine, index, request.logprobs !== undefined, chatReader?.());
  const signal = request.signal!;
  signal.throwIfAborted();
  noteStart(engine);
  const watch = account?.watch(engine.model.id, request);
  let begun = false;
  try {
    for await (const event of engine.submit(request)) {
      begun = true;
      watch?.event(event);
      if (event.type === "finish" && event.reason === "cancelled") {
        signal.throwIfAborted();
        throw shuttingDown();
      }
      yield* reader.read(event);
    }
  } catch (error) {
    if (!begun) watch?.refused();
    signal.throwIfAborted();
    if (error instanceof EngineError && error.code === "queue_full") {
      throw queueFull(error.message, secondsUntilRoom(engine));
    }
    throw overflowOf(error, engine, request.prompt.length);
  } finally {
    if (begun) noteEnd(engine);
  }
}

/**
 * Returns the usage summed over all answers. A prompt with several answers counts once. Tokens that one answer computed
 * do not count as cached, although the others may find them in the cache.
 */
export function usageOf(finishes: readonly Usage[], answersPerPrompt: number): UsageBody {
  const prompts = finishes.filter((_, i) => i % answersPerPrompt === 0);
  const sum = (usages: readonly Usage[], field: Exclude<keyof Usage, "stored" | "drafts">) =>
    usages.reduce((total, usage) => total + (usage[field] ?? 0), 0);
  const found = prompts.map((_, i) => {
    const answers = finishes.slice(i * answersPerPrompt, (i + 1) * answersPerPrompt);
    return Math.min(...answers.map((usage) => usage.cachedTokens));
  });
  const prompt_tokens = sum(prompts, "promptTokens");
  const completion_tokens = sum(finishes, "completionTokens");
  return {
    prompt_tokens,
    completion_tokens,
    total_tokens: prompt_tokens + completion_tokens,
    prompt_tokens_details: {
      cached_tokens: found.reduce((total, tokens) => total + tokens, 0),
      ...storedOf(prompts),
    },
    completion_tokens_details: {
      reasoning_tokens: sum(finishes, "thinkingTokens"),
      ...predictionsOf(finishes),
    },
  };
}

/** Returns the accepted and rejected draft tokens, or undefined if no answer used drafts. */
function predictionsOf(finishes: readonly Usage[]) {
  const drafts = finishes.flatMap(({ drafts }) => drafts ?? []);
  if (drafts.length === 0) return undefined;
  return {
    accepted_prediction_tokens: drafts.reduce((sum, { accepted }) => sum + accepted, 0),
    rejected_prediction_tokens: drafts.reduce((sum, { rejected }) => sum + rejected, 0),
  };
}

/** Returns the stored tokens of prompts that were only read, or undefined if none was stored. */
export function storedOf(
  prompts: readonly Usage[],
): { stored_tokens: number; stored_in: string } | undefined {
  const stored = prompts.flatMap(({ stored }) => stored ?? []);
  if (stored.length === 0) return undefined;
  const stored_tokens = stored.reduce((sum, { tokens }) => sum + tokens, 0);
  return { stored_tokens, stored_in: stored[0].cache };
}

/** Returns the fields that all chunks of one answer share. */
export function headOf(engine: Engine, prefix: string): AnswerHead {
  return {
    id: `${prefix}-${crypto.randomUUID().replaceAll("-", "")}`,
    created: Math.floor(Date.now() / 1000),
    model: engine.model.id,
    system_fingerprint: "compy",
  };
}
