import { z } from "@hono/zod-openapi";
import {
  type Engine,
  type GenerateRequest,
  SAMPLING_SETTINGS,
  type SamplingParams,
  type Usage,
} from "../../engine/mod.ts";
import { progressBody, promptProgress, storedFields } from "../generation/answers.ts";
import { storedOf } from "../generation/generation.ts";
import { type Piece, textOf, type Timings } from "../../engine/answers/pieces.ts";

/* Answers in llama-server's format, with the fields that apply to this server. */

const count = z.number().int();

const timings = z.object({
  cache_n: count,
  prompt_n: count.openapi({ description: "Prompt tokens that were not found in the cache" }),
  prompt_ms: z.number(),
  prompt_per_second: z.number(),
  predicted_n: count,
  predicted_ms: z.number(),
  predicted_per_second: z.number(),
  draft_n: count.optional().openapi({ description: "Number of draft tokens, if tokens were drafted" }),
  draft_n_accepted: count.optional().openapi({ description: "Accepted draft tokens" }),
});

/** Sampling settings except biases, under llama-server's names. */
const SETTINGS = SAMPLING_SETTINGS.filter(([, { kind }]) => kind !== "biases")
  .map(([name, { llamaServer, api, kind }]) => ({ name, field: llamaServer ?? api.name, kind }));

const VALUES = { number: z.number(), whole: count, texts: z.array(z.string()), biases: z.never() };

export const samplingSettings = z.object({
  ...Object.fromEntries(SETTINGS.map(({ field, kind }) => [field, VALUES[kind]])),
  seed: z.number().int().openapi({ description: "-1: a different seed for each request" }),
  n_predict: count.openapi({ description: "-1: only the context limits it" }),
  stop: z.array(z.string()),
  ignore_eos: z.boolean(),
});

const answer = {
  index: z.literal(0),
  content: z.string(),
  tokens: z.array(count).max(0),
  stop: z.boolean().openapi({ description: "In streams: whether this is the last event" }),
};

const ending = {
  id_slot: z.literal(-1),
  model: z.string(),
  tokens_predicted: count,
  tokens_evaluated: count,
  tokens_cached: count,
  generation_settings: samplingSettings,
  truncated: z.boolean().openapi({
    description: "Whether files of input_extra were left out because the context was full",
  }),
  stop_type: z.enum(["eos", "limit", "word"]),
  stopping_word: z.string(),
  timings,
  ...storedFields,
};

/** Schema of an answer. Any field may be missing, because `response_fields` selects fields. */
export const llamaServerAnswer = z.object({ ...answer, ...ending }).partial().catchall(z.unknown()).openapi(
  "LlamaServerAnswer",
);

export const llamaServerEvent = z.object({
  ...answer,
  ...z.object(ending).partial().shape,
  prompt_progress: promptProgress.optional(),
}).partial().catchall(z.unknown());

type Answer = z.output<z.ZodObject<typeof answer & typeof ending>>;

export interface LlamaServerShape {
  readonly request: GenerateRequest;
  readonly truncated: boolean;
  readonly withProgress: boolean;
  /** Fields to return; undefined means all. */
  readonly fields: readonly string[] | undefined;
}

export async function* llamaServerEvents(
  engine: Engine,
  shape: LlamaServerShape,
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<Record<string, unknown>> {
  for await (const piece of pieces) {
    const part = { index: 0, content: "", tokens: [], stop: false };
    if (piece.type === "part") yield { ...part, content: textOf(piece) };
    if (piece.type === "progress" && shape.withProgress) {
      yield { ...part, prompt_progress: progressBody(piece.progress) };
    }
    if (piece.type === "finish") yield chosen(answerOf(engine, shape, "", piece), shape.fields);
  }
}

export async function wholeLlamaServer(
  engine: Engine,
  shape: LlamaServerShape,
  pieces: AsyncIterable<Piece>,
): Promise<Record<string, unknown>> {
  let content = "";
  let answer: Answer | undefined;
  for await (const piece of pieces) {
    if (piece.type === "part") content += textOf(piece);
    if (piece.type === "finish") answer = answerOf(engine, shape, content, piece);
  }
  return chosen(answer!, shape.fields);
}

function answerOf(
  engine: Engine,
  { request, truncated }: LlamaServerShape,
  content: string,
  { reason, stop, usage, timings }: Extract<Piece, { type: "finish" }>,
): Answer {
  const { promptTokens, completionTokens, cachedTokens } = usage;
  return {
    index: 0,
    content,
    tokens: [],
    stop: true,
    id_slot: -1,
    model: engine.model.id,
    tokens_predicted: completionTokens,
    tokens_evaluated: promptTokens,
    tokens_cached: cachedTokens,
    generation_settings: settingsOf(request.sampling as SamplingParams, request),
    truncated,
    stop_type: stop !== undefined ? "word" : reason === "stop" ? "eos" : "limit",
    stopping_word: stop ?? "",
    timings: timingsOf(timings, usage),
    ...storedOf([usage]),
  };
}

function timingsOf({ prefillMs, decodeMs }: Timings, usage: Usage) {
  const { promptTokens, cachedTokens, completionTokens, drafts } = usage;
  const read = promptTokens - cachedTokens;
  return {
    cache_n: cachedTokens,
    prompt_n: read,
    prompt_ms: prefillMs,
    prompt_per_second: perSecond(read, prefillMs),
    predicted_n: completionTokens,
    predicted_ms: decodeMs,
    predicted_per_second: perSecond(completionTokens, decodeMs),
    ...drafts && { draft_n: drafts.accepted + drafts.rejected, draft_n_accepted: drafts.accepted },
  };
}

function perSecond(count: number, ms: number): number {
  return ms > 0 ? (1000 * count) / ms : 0;
}

export function settingsOf(
  sampling: SamplingParams,
  request: Pick<GenerateRequest, "maxTokens" | "stop" | "ignoreEos">,
): z.output<typeof samplingSettings> {
  return {
    ...Object.fromEntries(SETTINGS.map(({ name, field }) => [field, sampling[name]])),
    seed: sampling.seed ?? -1,
    n_predict: request.maxTokens ?? -1,
    stop: [...request.stop ?? []],
    ignore_eos: request.ignoreEos ?? false,
  };
}

/** Returns only the requested fields. A field of an inner object moves to the top level, named by its path. */
function chosen(answer: Answer, fields: readonly string[] | undefined): Record<string, unknown> {
  if (!fields?.length) return answer;
  return Object.fromEntries(fields.flatMap((path) => {
    let value: unknown = answer;
    for (const name of path.split("/")) {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return [];
      value = (value as Record<string, unknown>)[name];
    }
    return [[path, value]];
  }));
}
