import { z } from "@hono/zod-openapi";
import type { Engine, Usage } from "../../engine/mod.ts";
import {
  answerHead,
  type CompletionLogprobs,
  completionLogprobs as logprobsSchema,
  finishReason,
  progressBody,
  promptProgress,
  usage,
} from "../generation/answers.ts";
import { checkForms, constraintFields, formOf } from "../generation/constraints.ts";
import { generationFields, LIMITS, refuse, special, unsupported } from "../core/fields.ts";
import {
  answersTo,
  checkForm,
  type CountedRequest,
  engineRequest,
  generate,
  headOf,
  type Prepared,
  promptTokens,
  type RunOptions,
  usageOf,
} from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { completionLogprobs, placePrompt } from "../generation/logprobs.ts";
import { characters, type Piece, textOf } from "../../engine/answers/pieces.ts";
import { each, textsOrIds } from "../generation/texts_or_ids.ts";
import { paced } from "../core/paced.ts";

/** Default of `max_tokens` for completions, as in OpenAI's API. */
const DEFAULT_MAX_TOKENS = 16;

const request = z.object({
  ...generationFields,
  prompt: textsOrIds(LIMITS.choices),
  max_tokens: generationFields.max_tokens.openapi({
    description: `Default ${DEFAULT_MAX_TOKENS}; 0 only computes the prompt`,
  }),
  logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish(),
  echo: z.boolean().nullish(),
  best_of: z.number().int().min(1).max(LIMITS.choices).nullish().openapi({ description: "Only 1 or n" }),
  ...constraintFields,
  suffix: special({ enum: ["", null], description: "Not supported" }),
}).superRefine((body, ctx) => {
  checkForms(body, ctx);
  if (body.suffix !== undefined && body.suffix !== null && body.suffix !== "") {
    unsupported(ctx, "suffix", "text after the answer");
  }
  const n = body.n ?? 1;
  if (body.best_of && body.best_of !== 1 && body.best_of !== n) {
    unsupported(ctx, "best_of", "choosing the best of more answers than n");
  }
  const choices = n * each(body.prompt).length;
  if (choices > LIMITS.choices) {
    const message =
      `Invalid "prompt": prompts x n must be at most ${LIMITS.choices} answers (got ${choices}); ` +
      "send fewer prompts in a request, or a smaller n";
    refuse(ctx, ["prompt"], "invalid_value", message);
  }
}).openapi("CompletionRequest");

type Body = z.output<typeof request>;

const choice = z.object({
  text: z.string(),
  index: z.number().int(),
  logprobs: logprobsSchema.nullable(),
  finish_reason: finishReason.nullable(),
});

/** Schema of an answer. Chunks of a stream have the same format as a whole answer. */
const answer = z.object({
  ...answerHead,
  object: z.literal("text_completion"),
  choices: z.array(choice),
  usage: usage.nullable().optional(),
  prompt_progress: promptProgress.optional(),
}).openapi("Completion");

type Answer = z.output<typeof answer>;
type Choice = z.output<typeof choice>;

export const completions = generation({
  path: "/v1/completions",
  operationId: "createCompletion",
  summary: "Continue a text, or token ids",
  request,
  answer,
  chunk: { name: "Completion", schema: answer },
  example: { model: "demo", prompt: "Once upon a time", max_tokens: 12, temperature: 0 },
  forms: (body) => [formOf(body) ?? []].flat(),
  prepare,
});

/** Prepares a completion. Throws ApiError. */
async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const withLogprobs = typeof body.logprobs === "number";
  const form = formOf(body);
  await checkForm(engine, form?.constraint, form ? [form] : [], options);
  const base = engineRequest(engine, body, options);
  const prompts = each(body.prompt);
  const tokens = await paced(() => prompts.map((prompt) => promptTokens(engine, prompt)));
  const requests = tokens.flatMap((prompt) => {
    const request: CountedRequest = {
      ...base,
      prompt,
      maxTokens: body.max_tokens ?? DEFAULT_MAX_TOKENS,
      logprobs: body.logprobs ?? undefined,
      promptLogprobs: withLogprobs && (body.echo ?? false),
      constraint: form?.constraint,
    };
    return answersTo(request, body.n ?? 1);
  });
  const echoOf = (prompt: string | number[]) => {
    if (!body.echo) return "";
    // The echo is the text that the model read, because many JSON readers refuse lone surrogates.
    return typeof prompt === "string"
      ? prompt.toWellFormed()
      : engine.tokenizer.decode(prompt, { special: true });
  };
  const echoes = await paced(() => prompts.map(echoOf));
  const run = (signal: AbortSignal) => generate(engine, requests, signal);
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeCompletion(engine, body, echoes, run(signal)),
    chunks: (signal) => completionChunks(engine, body, echoes, run(signal)),
  };
}

/** Yields each piece as a part of its choice. Whole answers and streams are built from the same parts. */
async function* choiceParts(
  engine: Engine,
  body: Body,
  echoes: readonly string[],
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<{ part: Choice; piece: Piece }> {
  const n = body.n ?? 1;
  const withLogprobs = typeof body.logprobs === "number";
  const echoed = new Set<number>();
  for await (const piece of pieces) {
    const { index } = piece;
    const echo = echoes[Math.floor(index / n)];
    const part = (
      text: string,
      logprobs: CompletionLogprobs | null,
      finish: Choice["finish_reason"],
    ) => ({
      part: { text, index, logprobs, finish_reason: finish },
      piece,
    });
    // With log-probabilities, the engine reports the prompt itself before any text.
    const startsText = piece.type === "prompt" || (!withLogprobs && piece.type !== "progress");
    if (echo !== "" && startsText && !echoed.has(index)) {
      echoed.add(index);
      const tokens = piece.type === "prompt" ? placePrompt(engine, piece.tokens, echo) : undefined;
      yield part(echo, tokens ? completionLogprobs(engine, tokens, 0) : null, null);
    }
    if (piece.type === "progress") {
      yield part("", null, null);
    } else if (piece.type === "part") {
      const logprobs = withLogprobs ? completionLogprobs(engine, piece.tokens, characters(echo)) : null;
      yield part(textOf(piece), logprobs, null);
    } else if (piece.type === "finish") {
      yield part("", null, piece.reason === "stop" ? "stop" : "length");
    }
  }
}

async function wholeCompletion(
  engine: Engine,
  body: Body,
  echoes: readonly string[],
  pieces: AsyncIterable<Piece>,
): Promise<Answer> {
  const n = body.n ?? 1;
  const usages: Usage[] = new Array(echoes.length * n);
  const withLogprobs = typeof body.logprobs === "number";
  const choices = Array.from(usages, (_, index): Choice => ({
    text: "",
    index,
    logprobs: withLogprobs ? { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] } : null,
    finish_reason: null,
  }));
  for await (const { part, piece } of choiceParts(engine, body, echoes, pieces)) {
    const choice = choices[part.index];
    choice.text += part.text;
    choice.finish_reason = part.finish_reason;
    if (choice.logprobs && part.logprobs) append(choice.logprobs, part.logprobs);
    if (piece.type === "finish") usages[part.index] = piece.usage;
  }
  return { ...headOf(engine, "cmpl"), object: "text_completion", choices, usage: usageOf(usages, n) };
}

function append(all: CompletionLogprobs, more: CompletionLogprobs): void {
  for (let i = 0; i < more.tokens.length; i++) {
    all.tokens.push(more.tokens[i]);
    all.token_logprobs.push(more.token_logprobs[i]);
    all.top_logprobs.push(more.top_logprobs[i]);
    all.text_offset.push(more.text_offset[i]);
  }
}

async function* completionChunks(
  engine: Engine,
  body: Body,
  echoes: readonly string[],
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<Answer> {
  const withUsage = body.stream_options?.include_usage ?? false;
  const n = body.n ?? 1;
  const usages: Usage[] = new Array(echoes.length * n);
  const head = {
    ...headOf(engine, "cmpl"),
    object: "text_completion" as const,
    ...(withUsage ? { usage: null } : {}),
  };
  for await (const { part, piece } of choiceParts(engine, body, echoes, pieces)) {
    if (piece.type === "progress") {
      if (body.return_progress) {
        yield { ...head, choices: [part], prompt_progress: progressBody(piece.progress) };
      }
      continue;
    }
    if (piece.type === "finish") usages[part.index] = piece.usage;
    yield { ...head, choices: [part] };
  }
  if (withUsage) yield { ...head, choices: [], usage: usageOf(usages, n) };
}
