import { z } from "@hono/zod-openapi";
import type { Engine, GenerateRequest, Usage } from "../../engine/types.ts";
import {
  answerHead,
  chatLogprobs as logprobsSchema,
  finishReason,
  promptProgress,
  usage,
} from "../shared/answers.ts";
import {
  generationFields,
  LIMITS,
  refuse,
  refuseConstraints,
  refusedFields,
  special,
  unsupported,
} from "../shared/fields.ts";
import {
  answersTo,
  checkModel,
  engineRequest,
  generate,
  headOf,
  type Prepared,
  type RunOptions,
  usageOf,
} from "../shared/generation.ts";
import { generation } from "../shared/generation_endpoint.ts";
import { chatLogprobs } from "../shared/logprobs.ts";
import { promptFields, toMessages } from "../shared/messages.ts";
import type { Piece, ScoredToken } from "../shared/piece_reader.ts";

const NO_TOOLS = { type: ["array", "null"], maxItems: 0, description: "Not supported" };
const NO_CHOICE = { enum: ["none", "auto", null], description: "Tools are not supported" };

const request = z.object({
  ...generationFields,
  ...promptFields,
  max_completion_tokens: generationFields.max_tokens.openapi({ description: "Supersedes max_tokens" }),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish().openapi({
    description: "Needs logprobs: true",
  }),
  ...refusedFields,
  tools: special(NO_TOOLS),
  functions: special(NO_TOOLS),
  tool_choice: special(NO_CHOICE),
  function_call: special(NO_CHOICE),
  modalities: special({ type: ["array", "null"], items: { type: "string", enum: ["text"] } }),
}).superRefine((body, ctx) => {
  refuseConstraints(body, ctx);
  refuseTools(body, ctx);
  if (body.top_logprobs && !body.logprobs) {
    refuse(ctx, ["top_logprobs"], "invalid_value", 'Invalid "top_logprobs": needs "logprobs": true');
  }
  const modalities = body.modalities ?? ["text"];
  if (!Array.isArray(modalities) || modalities.some((modality) => modality !== "text")) {
    unsupported(ctx, "modalities", "any output but text");
  }
}).openapi("ChatCompletionRequest", {
  anyOf: [
    { properties: { top_logprobs: { enum: [0, null] } } },
    { properties: { logprobs: { type: "boolean", enum: [true] } }, required: ["logprobs"] },
  ],
});

type Body = z.output<typeof request>;

function refuseTools(body: { [key: string]: unknown }, ctx: z.RefinementCtx): void {
  for (const field of ["tools", "functions"]) {
    const value = body[field] ?? [];
    if (!Array.isArray(value) || value.length > 0) unsupported(ctx, field, "tool calls");
  }
  for (const field of ["tool_choice", "function_call"]) {
    const value = body[field] ?? "none";
    if (value !== "none" && value !== "auto") unsupported(ctx, field, "tool calls");
  }
}

const answer = z.object({
  ...answerHead,
  object: z.literal("chat.completion"),
  choices: z.array(z.object({
    index: z.number().int(),
    message: z.object({ role: z.literal("assistant"), content: z.string(), refusal: z.null() }),
    logprobs: logprobsSchema.nullable(),
    finish_reason: finishReason,
  })),
  usage,
}).openapi("ChatCompletion");

type Answer = z.output<typeof answer>;

const chunk = z.object({
  ...answerHead,
  object: z.literal("chat.completion.chunk"),
  choices: z.array(z.object({
    index: z.number().int(),
    delta: z.object({
      role: z.literal("assistant").optional(),
      content: z.string().optional(),
      refusal: z.null().optional(),
    }),
    logprobs: logprobsSchema.nullable(),
    finish_reason: finishReason.nullable(),
  })),
  usage: usage.nullable().optional(),
  prompt_progress: promptProgress.optional(),
});

type Chunk = z.output<typeof chunk>;
type Choice = Chunk["choices"][number];

export const chatCompletions = generation({
  path: "/v1/chat/completions",
  operationId: "createChatCompletion",
  summary: "Answer a conversation",
  request,
  answer,
  chunk: { name: "ChatCompletionChunk", schema: chunk },
  example: {
    model: "demo",
    messages: [{ role: "user", content: "Who are you?" }],
    max_tokens: 40,
    temperature: 0,
  },
  prepare,
});

/** Throws ApiError, or what the engine throws for a template that refuses. */
function prepare(engine: Engine, body: Body, options: RunOptions): Prepared {
  checkModel(engine, body.model);
  const n = body.n ?? 1;
  const first: GenerateRequest = {
    ...engineRequest(engine, body, options),
    prompt: encodeMessages(engine, body),
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    logprobs: body.logprobs ? body.top_logprobs ?? 0 : undefined,
  };
  const requests = answersTo(first, n);
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeChat(engine, body, generate(engine, requests, signal)),
    chunks: (signal) => chatChunks(engine, body, generate(engine, requests, signal)),
  };
}

function encodeMessages(engine: Engine, body: Body): number[] {
  const variables = body.chat_template_kwargs ?? {};
  return engine.encodeChat(toMessages(body.messages), { addGenerationPrompt: true, variables });
}

async function wholeChat(
  engine: Engine,
  body: Body,
  pieces: AsyncIterable<Piece>,
): Promise<Answer> {
  const n = body.n ?? 1;
  const texts: string[] = new Array(n).fill("");
  const tokens: ScoredToken[][] = Array.from({ length: n }, () => []);
  const reasons: ("stop" | "length")[] = new Array(n).fill("length");
  const usages: Usage[] = new Array(n);
  for await (const piece of pieces) {
    if (piece.type === "text") {
      texts[piece.index] += piece.text;
      for (const token of piece.tokens) tokens[piece.index].push(token);
    } else if (piece.type === "finish") {
      reasons[piece.index] = piece.reason;
      usages[piece.index] = piece.usage;
    }
  }
  return {
    ...headOf(engine, "chatcmpl"),
    object: "chat.completion",
    choices: texts.map((content, index) => ({
      index,
      message: { role: "assistant", content, refusal: null },
      logprobs: body.logprobs ? chatLogprobs(engine, tokens[index]) : null,
      finish_reason: reasons[index],
    })),
    usage: usageOf(usages, n),
  };
}

async function* chatChunks(
  engine: Engine,
  body: Body,
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<Chunk> {
  const n = body.n ?? 1;
  const withUsage = body.stream_options?.include_usage ?? false;
  const head = {
    ...headOf(engine, "chatcmpl"),
    object: "chat.completion.chunk" as const,
    ...(withUsage ? { usage: null } : {}),
  };
  const usages: Usage[] = new Array(n);
  const started: boolean[] = new Array(n).fill(false);
  const choice = (index: number, delta: Choice["delta"], rest: Partial<Choice> = {}): Chunk => ({
    ...head,
    choices: [{ index, delta, logprobs: null, finish_reason: null, ...rest }],
  });
  for await (const piece of pieces) {
    const { index } = piece;
    if (!started[index]) {
      started[index] = true;
      yield choice(index, { role: "assistant", content: "", refusal: null });
    }
    if (piece.type === "progress" && body.return_progress) {
      yield { ...choice(index, {}), prompt_progress: piece.progress };
    } else if (piece.type === "text") {
      const logprobs = body.logprobs ? chatLogprobs(engine, piece.tokens) : null;
      yield choice(index, { content: piece.text }, { logprobs });
    } else if (piece.type === "finish") {
      usages[index] = piece.usage;
      yield choice(index, {}, { finish_reason: piece.reason });
    }
  }
  if (withUsage) yield { ...head, choices: [], usage: usageOf(usages, n) };
}
