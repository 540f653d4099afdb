import type { Draw, LogitsRequest } from "../backend/backend.ts";
import { longestSequence } from "../cache/kv_blocks.ts";
import type { EventStream } from "../loop/event_stream.ts";
import { Dry } from "../sampling/dry.ts";
import { Random } from "../sampling/random.ts";
import { candidatesWanted, drawOf, TokenCounts, usesPenalties } from "../sampling/sampler.ts";
import type { EngineLimits } from "./limits.ts";
import { newParts, type Sequence } from "./sequence.ts";
import { OutputText } from "../output/stop.ts";
import { type Tokenizer, TooManyTokens } from "../tokenizer/types.ts";
import { adaptersOf } from "./adapters.ts";
import type { AdapterInfo, ModelInfo } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";
import type { GenerateRequest } from "../api/request.ts";
import {
  DEFAULT_SAMPLING,
  isSamplingValue,
  SAMPLING_SETTINGS,
  type SamplingParams,
  samplingRule,
} from "../api/sampling.ts";
import { NO_IMAGES, placeImages, prefixKey } from "./images.ts";

/** Maximum number of alternatives per token that a request may ask for (the OpenAI API's limit). */
const MAX_LOGPROBS = 20;
/**
 * Prompts of up to this number of context windows are tokenized completely, so that the error can state their length.
 * The second number limits the tokens beyond the context, because tokenizing takes CPU time.
 */
const COUNTED_CONTEXTS = 4;
const MOST_COUNTED_BEYOND = 12_288;
const NO_MARKERS: ReadonlySet<number> = new Set();

export interface SequenceContext {
  readonly id: number;
  readonly stream: EventStream;
  readonly tokenizer: Tokenizer;
  readonly vocabSize: number;
  /** Maximum tokens of one sequence: the model's context length, or what the KV pool can hold. */
  readonly contextLength: number;
  /** Maximum tokens of one sequence that the model was trained for. */
  readonly trainedContext?: number;
  /** Whether the backend computes several steps per call and samples their tokens. */
  readonly draws: boolean;
  /** Whether prompts are stored on a disk. */
  readonly stores: boolean;
  /** The model's adapters. */
  readonly adapters?: readonly AdapterInfo[];
  /** Whether the model takes images. */
  readonly images?: boolean;
}

/** Checks a request and returns its sequence. Throws EngineError invalid_request or context_length_exceeded. */
export function createSequence(request: GenerateRequest, context: SequenceContext): Sequence {
  const params = withDefaults(request.sampling ?? {});
  checkOptions(request);
  checkTokens(request, context.vocabSize);
  checkSampling(params, context.vocabSize);
  const { images = [] } = request;
  if (images.length > 0 && !context.images) throw new EngineError("not_supported", NO_IMAGES);
  const { tokens: prompt, placed } = images.length === 0
    ? { tokens: request.prompt, placed: undefined }
    : placeImages(request.prompt, images, context.tokenizer);
  if (placed?.some(({ image }) => image.together) && request.promptLogprobs) {
    throw new EngineError("not_supported", "The model gives no log-probabilities of prompts with images");
  }
  const promptLength = prompt.length;
  const maxLength = lengthLimit(promptLength, request.maxTokens, context);
  checkPrompt("prompt", prompt, context.vocabSize);
  const counts = usesPenalties(params) ? new TokenCounts() : undefined;
  for (const token of counts ? prompt : []) counts!.addPrompt(token);
  const random = params.seed === undefined ? Random.unpredictable() : new Random(params.seed);
  const ends = Int32Array.from(request.ignoreEos ? [] : context.tokenizer.endTokens);
  const draw = drawOf(params, random, ends, {
    severalSteps: context.draws,
    masked: request.constraint !== undefined,
  });
  const logprobs = request.logprobs ?? 0;
  const candidates = candidatesWanted(params, logprobs, draw?.whole);
  const mustStore = context.stores && !placed && request.priority === "batch" && request.maxTokens === 0 &&
    !request.promptLogprobs;
  const parts = newParts(mustStore);
  const salt = request.cacheSalt ?? "";
  if (request.promptLogprobs) {
    parts.progress.scores.push({ token: request.prompt[0], logprob: null, top: [] });
  }
  return {
    id: context.id,
    batch: request.priority === "batch",
    stream: context.stream,
    tokens: Int32Array.from(prompt),
    length: promptLength,
    promptLength,
    maxLength,
    salt,
    ...adaptersOf(request.adapters, context.adapters, prefixKey(salt, images)),
    images: placed && { placed, rows: [] },
    weight: request.weight ?? 1,
    request: request.prompt,
    sampler: {
      params,
      random,
      counts,
      dry: params.dryMultiplier > 0 ? new Dry(params, context.tokenizer, prompt) : undefined,
      logits: logitsTemplate(params, Math.min(context.vocabSize, candidates), draw),
    },
    ignoreEos: request.ignoreEos ?? false,
    output: new OutputText(context.tokenizer.streamDecoder({ continuation: true }), request.stop ?? []),
    logprobs: request.logprobs,
    form: undefined,
    markers: request.markers ?? NO_MARKERS,
    promptLogprobs: request.promptLogprobs ?? false,
    unlisten: () => {},
    submittedAt: performance.now(),
    ...parts,
  };
}

function withDefaults(given: Partial<SamplingParams>): SamplingParams {
  const set = Object.entries(given).filter(([, value]) => value !== undefined);
  return { ...DEFAULT_SAMPLING, ...Object.fromEntries(set) };
}

/** Maximum tokens of one sequence: in this engine, and in the model's own context. */
export type Contexts = Pick<SequenceContext, "contextLength" | "trainedContext">;

/** Returns the maximum tokens of one sequence that the model and the KV pool can hold. */
export function contextsOf({ contextLength, trainedContext }: ModelInfo, limits: EngineLimits): Contexts {
  const { kvBlocks, kvWindows: windows = [], maxRows } = limits;
  const longest = longestSequence({ windows, maxRows }, kvBlocks);
  return { contextLength: Math.min(contextLength, longest), trainedContext };
}

function lengthLimit(promptLength: number, maxTokens: number | undefined, contexts: Contexts): number {
  const room = contexts.contextLength - promptLength;
  if (room < 0 || (room === 0 && maxTokens !== 0)) throw contextOverflow(promptLength, contexts);
  return promptLength + Math.min(room, maxTokens ?? room);
}

/** Returns the error for a prompt that does not fit. `about` is "at least " for a prompt that was not fully counted. */
function contextOverflow(
  promptLength: number,
  { contextLength, trainedContext = 0 }: Contexts,
  about = "",
): EngineError {
  return new EngineError(
    "context_length_exceeded",
    [
      `The prompt has ${about}${promptLength} tokens, but the context holds ${contextLength}, ` +
      `with at least one for the answer: shorten the prompt`,
      ...(trainedContext > contextLength
        ? [`; the model can hold ${trainedContext} tokens with a higher value of `, { ctx: undefined }]
        : []),
    ],
    { n_prompt_tokens: promptLength, n_ctx: contextLength },
  );
}

/** Returns the error for a text that is far too long for an encoder and was not fully counted. */
function textOverflow(atLeast: number, contextLength: number): EngineError {
  return new EngineError(
    "context_length_exceeded",
    `The text has at least ${atLeast} tokens, but the context holds ${contextLength}: shorten it`,
    { n_prompt_tokens: atLeast, n_ctx: contextLength },
  );
}

/**
 * Runs `encode` with a token limit. Refuses a prompt far beyond the context window before tokenizing all of it, which
 * would take seconds. Throws EngineError context_length_exceeded.
 */
export function encodeBounded<T>(
  encode: (atMost: number) => T,
  contexts: Contexts,
  isEncoder = false,
): T {
  const { contextLength } = contexts;
  try {
    return encode(Math.min(COUNTED_CONTEXTS * contextLength, contextLength + MOST_COUNTED_BEYOND));
  } catch (error) {
    if (!(error instanceof TooManyTokens)) throw error;
    if (isEncoder) throw textOverflow(error.atLeast, contextLength);
    throw contextOverflow(error.atLeast, contexts, "at least ");
  }
}

function logitsTemplate(sampling: SamplingParams, candidates: number, draw?: Draw): LogitsRequest {
  return {
    row: 0,
    candidates,
    repetitionPenalty: sampling.repetitionPenalty,
    presencePenalty: sampling.presencePenalty,
    frequencyPenalty: sampling.frequencyPenalty,
    penaltyTokens: new Int32Array(0),
    penaltyCounts: new Int32Array(0),
    biasTokens: Int32Array.from(sampling.logitBias.keys()),
    biasValues: Float32Array.from(sampling.logitBias.values()),
    probe: new Int32Array(0),
    draw,
  };
}

/** Throws EngineError invalid_request, naming the field, if the prompt is empty or has an unknown token. */
export function checkPrompt(field: string, prompt: readonly number[], vocabSize: number): void {
  check(field, prompt.length > 0, "must have at least one token", "none");
  // A prompt may have a million tokens, so the message is built only for a wrong token.
  const wrong = prompt.findIndex((token) => !isToken(token, vocabSize));
  if (wrong >= 0) checkToken(field, prompt[wrong], vocabSize);
}

function checkSampling(sampling: SamplingParams, vocabSize: number): void {
  for (const [name, setting] of SAMPLING_SETTINGS) {
    if (setting.kind !== "number" && setting.kind !== "whole" || sampling[name] === setting.default) continue;
    check(name, isSamplingValue(sampling[name], setting), `must be ${samplingRule(setting)}`, sampling[name]);
  }
  const isGiven = (text: string) => text !== "";
  check("dryBreakers", sampling.dryBreakers.every(isGiven), "must be non-empty texts", '""');
  for (const [token, bias] of sampling.logitBias) {
    checkToken("logitBias", token, vocabSize);
    check("logitBias", Number.isFinite(bias), "values must be finite numbers", bias);
  }
}

function checkOptions({ maxTokens, logprobs, stop = [] }: GenerateRequest): void {
  check(
    "maxTokens",
    maxTokens === undefined || (Number.isSafeInteger(maxTokens) && maxTokens >= 0),
    "must be a whole number, 0 or more",
    maxTokens,
  );
  check(
    "logprobs",
    logprobs === undefined || (Number.isInteger(logprobs) && logprobs >= 0 && logprobs <= MAX_LOGPROBS),
    `must be a whole number from 0 to ${MAX_LOGPROBS}`,
    logprobs,
  );
  for (const text of stop) {
    check(
      "stop",
      text.length > 0 && text.isWellFormed(),
      "must be well-formed text, not empty",
      JSON.stringify(text),
    );
  }
}

function checkTokens({ markers = NO_MARKERS, thinking }: GenerateRequest, vocabSize: number): void {
  for (const token of markers) checkToken("markers", token, vocabSize);
  if (!thinking) return;
  const { begin, end, budget, headers } = thinking;
  for (const token of [...begin, ...end, ...headers ? [...headers.begin, headers.end] : []]) {
    checkToken("thinking", token, vocabSize);
  }
  check("thinking", end.length > 0, "must have an end", "none");
  const counted = budget === Infinity || (Number.isSafeInteger(budget) && budget >= 0);
  check("thinking", counted, "the budget must be a whole number, 0 or more", budget);
}

function isToken(token: number, vocabSize: number): boolean {
  return Number.isInteger(token) && token >= 0 && token < vocabSize;
}

function checkToken(field: string, token: number, vocabSize: number): void {
  check(
    field,
    isToken(token, vocabSize),
    `tokens must be whole numbers from 0 to ${vocabSize - 1}`,
    token,
  );
}

function check(field: string, valid: boolean, rule: string, got: unknown): void {
  if (valid) return;
  throw new EngineError("invalid_request", `Invalid ${field}: ${rule} (got ${got})`);
}
