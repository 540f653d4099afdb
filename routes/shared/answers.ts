import { z } from "@hono/zod-openapi";

const finishReason = z.enum(["stop", "length"]);
const head = { id: z.string(), created: z.number().int(), model: z.string(), system_fingerprint: z.string() };

export const usage = z.object({
  prompt_tokens: z.number().int(),
  completion_tokens: z.number().int(),
  total_tokens: z.number().int(),
  prompt_tokens_details: z.object({ cached_tokens: z.number().int() }),
  completion_tokens_details: z.object({ reasoning_tokens: z.number().int() }),
}).openapi("Usage");

const scored = { token: z.string(), logprob: z.number(), bytes: z.array(z.number().int()).nullable() };

const chatLogprobs = z.object({
  content: z.array(z.object({ ...scored, top_logprobs: z.array(z.object(scored)) })),
  refusal: z.null(),
});

export const chatCompletion = z.object({
  ...head,
  object: z.literal("chat.completion"),
  choices: z.array(z.object({
    index: z.number().int(),
    message: z.object({ role: z.literal("assistant"), content: z.string(), refusal: z.null() }),
    logprobs: chatLogprobs.nullable(),
    finish_reason: finishReason,
  })),
  usage,
}).openapi("ChatCompletion");

const promptProgress = z.object({
  total: z.number().int(),
  cache: z.number().int(),
  processed: z.number().int(),
  time_ms: z.number(),
});

export const chatChunk = z.object({
  ...head,
  object: z.literal("chat.completion.chunk"),
  choices: z.array(z.object({
    index: z.number().int(),
    delta: z.object({
      role: z.literal("assistant").optional(),
      content: z.string().optional(),
      refusal: z.null().optional(),
    }),
    logprobs: chatLogprobs.nullable(),
    finish_reason: finishReason.nullable(),
  })),
  usage: usage.nullable().optional(),
  prompt_progress: promptProgress.optional(),
}).openapi("ChatCompletionChunk");

const completionLogprobs = z.object({
  tokens: z.array(z.string()),
  token_logprobs: z.array(z.number().nullable()),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  text_offset: z.array(z.number().int()).openapi({ description: "Unicode characters before the token" }),
});

const completionChoice = z.object({
  text: z.string(),
  index: z.number().int(),
  logprobs: completionLogprobs.nullable(),
  finish_reason: finishReason.nullable(),
});

/** Chunks of a stream have the same shape as the whole. */
export const completion = z.object({
  ...head,
  object: z.literal("text_completion"),
  choices: z.array(completionChoice),
  usage: usage.nullable().optional(),
  prompt_progress: promptProgress.optional(),
}).openapi("Completion");

export const errorAnswer = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }).catchall(z.number()),
}).openapi("Error");

export type UsageBody = z.output<typeof usage>;
export type ChatLogprobs = z.output<typeof chatLogprobs>;
export type ChatCompletion = z.output<typeof chatCompletion>;
export type ChatChunk = z.output<typeof chatChunk>;
export type CompletionLogprobs = z.output<typeof completionLogprobs>;
export type Completion = z.output<typeof completion>;
export type PromptProgress = z.output<typeof promptProgress>;
