import type { Engine, GenerateRequest, Usage } from "../../engine/types.ts";
import { ApiError } from "../shared/errors.ts";
import {
  answerHead,
  answersTo,
  checkModel,
  checkToken,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
  usageOf,
} from "../shared/generation.ts";
import { completionLogprobs, placePrompt } from "../shared/logprobs.ts";
import { characters, type Piece } from "../shared/piece_reader.ts";
import type { Completion, CompletionLogprobs } from "../shared/answers.ts";
import { type CompletionBody, promptsOf } from "../schemas/completions.ts";

/** OpenAI's default for this endpoint. */
const DEFAULT_MAX_TOKENS = 16;

/** Throws ApiError. */
export function prepareCompletion(engine: Engine, body: CompletionBody, options: RunOptions): Prepared {
  checkModel(engine, body.model);
  const withLogprobs = typeof body.logprobs === "number";
  const base = engineRequest(engine, body, options);
  const prompts = promptsOf(body.prompt);
  const requests = prompts.flatMap((prompt) => {
    const request: GenerateRequest = {
      ...base,
      prompt: encodePrompt(engine, prompt),
      maxTokens: body.max_tokens ?? DEFAULT_MAX_TOKENS,
      logprobs: body.logprobs ?? undefined,
      promptLogprobs: withLogprobs && (body.echo ?? false),
    };
    return answersTo(request, body.n ?? 1);
  });
  const echoes = prompts.map((prompt) => {
    if (!body.echo) return "";
    // What the model read: many JSON readers refuse half a surrogate pair.
    return typeof prompt === "string"
      ? prompt.toWellFormed()
      : engine.tokenizer.decode(prompt, { special: true });
  });
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeCompletion(engine, body, echoes, generate(engine, requests, signal)),
    chunks: (signal) => completionChunks(engine, body, echoes, generate(engine, requests, signal)),
  };
}

function encodePrompt(engine: Engine, prompt: string | number[]): number[] {
  if (typeof prompt !== "string") {
    checkToken(engine, prompt.reduce((most, id) => Math.max(most, id), 0), "prompt");
    return prompt;
  }
  const ids = engine.encodePrompt(prompt.toWellFormed());
  if (ids.length > 0) return ids;
  throw new ApiError(400, "invalid_value", 'Invalid "prompt": it has no tokens, allowed is at least one', {
    param: "prompt",
  });
}

type CompletionChoice = Completion["choices"][number];

/** Each piece as a part of its choice; whole answers and streams are made of the same parts. */
async function* choiceParts(
  engine: Engine,
  body: CompletionBody,
  echoes: readonly string[],
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<{ part: CompletionChoice; piece: Piece }> {
  const n = body.n ?? 1;
  const withLogprobs = typeof body.logprobs === "number";
  const echoed = new Set<number>();
  for await (const piece of pieces) {
    const { index } = piece;
    const echo = echoes[Math.floor(index / n)];
    const part = (
      text: string,
      logprobs: CompletionLogprobs | null,
      finish: CompletionChoice["finish_reason"],
    ) => ({
      part: { text, index, logprobs, finish_reason: finish },
      piece,
    });
    // With log-probabilities the engine tells of the prompt itself, before any text.
    const startsText = piece.type === "prompt" || (!withLogprobs && piece.type !== "progress");
    if (echo !== "" && startsText && !echoed.has(index)) {
      echoed.add(index);
      const tokens = piece.type === "prompt" ? placePrompt(engine, piece.tokens, echo) : undefined;
      yield part(echo, tokens ? completionLogprobs(engine, tokens, 0) : null, null);
    }
    if (piece.type === "progress") {
      yield part("", null, null);
    } else if (piece.type === "text") {
      const logprobs = withLogprobs ? completionLogprobs(engine, piece.tokens, characters(echo)) : null;
      yield part(piece.text, logprobs, null);
    } else if (piece.type === "finish") {
      yield part("", null, piece.reason);
    }
  }
}

async function wholeCompletion(
  engine: Engine,
  body: CompletionBody,
  echoes: readonly string[],
  pieces: AsyncIterable<Piece>,
): Promise<Completion> {
  const n = body.n ?? 1;
  const usages: Usage[] = new Array(echoes.length * n);
  const withLogprobs = typeof body.logprobs === "number";
  const choices = Array.from(usages, (_, index): CompletionChoice => ({
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
  return { ...answerHead(engine, "cmpl"), object: "text_completion", choices, usage: usageOf(usages, n) };
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
  body: CompletionBody,
  echoes: readonly string[],
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<Completion> {
  const withUsage = body.stream_options?.include_usage ?? false;
  const n = body.n ?? 1;
  const usages: Usage[] = new Array(echoes.length * n);
  const head = {
    ...answerHead(engine, "cmpl"),
    object: "text_completion" as const,
    ...(withUsage ? { usage: null } : {}),
  };
  for await (const { part, piece } of choiceParts(engine, body, echoes, pieces)) {
    if (piece.type === "progress") {
      if (body.return_progress) yield { ...head, choices: [part], prompt_progress: piece.progress };
      continue;
    }
    if (piece.type === "finish") usages[part.index] = piece.usage;
    yield { ...head, choices: [part] };
  }
  if (withUsage) yield { ...head, choices: [], usage: usageOf(usages, n) };
}
