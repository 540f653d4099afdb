import { z } from "@hono/zod-openapi";
import type { PromptProgress } from "../../engine/answers/pieces.ts";

export const finishReason = z.enum(["stop", "length"]);
/** Fields that all chunks of an answer share. */
export const answerHead = {
  id: z.string(),
  created: z.number().int(),
  model: z.string(),
  system_fingerprint: z.string(),
};

/** Usage of a request that only reads texts. */
export const inputUsage = z.object({ prompt_tokens: z.number().int(), total_tokens: z.number().int() });

export function inputUsageOf(
  { promptTokens }: { readonly promptTokens: number },
): z.output<typeof inputUsage> {
  return { prompt_tokens: promptTokens, total_tokens: promptTokens };
}

/** Fields of a prompt that was only prefilled and stored. */
export const storedFields = {
  stored_tokens: z.number().int().optional().openapi({
    description:
      "Of batch lines with `max_tokens` 0, if prompts are stored on a disk: number of stored tokens",
  }),
  stored_in: z.string().optional().openapi({
    description: "Identifies the model and the settings that can use the stored tokens",
  }),
};

export const usage = z.object({
  prompt_tokens: z.number().int(),
  completion_tokens: z.number().int(),
  total_tokens: z.number().int(),
  prompt_tokens_details: z.object({ cached_tokens: z.number().int(), ...storedFields }),
  completion_tokens_details: z.object({
    reasoning_tokens: z.number().int(),
    accepted_prediction_tokens: z.number().int().optional().openapi({
      description: "Accepted draft tokens, if tokens were drafted",
    }),
    rejected_prediction_tokens: z.number().int().optional().openapi({
      description: "Rejected draft tokens. They are not part of the other counts",
    }),
  }),
}).openapi("Usage");

const scored = { token: z.string(), logprob: z.number(), bytes: z.array(z.number().int()).nullable() };

export const chatLogprobs = z.object({
  content: z.array(z.object({ ...scored, top_logprobs: z.array(z.object(scored)) })),
  refusal: z.null(),
});

export const promptProgress = z.object({
  total: z.number().int(),
  cache: z.number().int(),
  processed: z.number().int(),
  time_ms: z.number(),
});

export const completionLogprobs = z.object({
  tokens: z.array(z.string()),
  token_logprobs: z.array(z.number().nullable()),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  text_offset: z.array(z.number().int()).openapi({ description: "Unicode characters before the token" }),
});

export const errorAnswer = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }).catchall(z.number()),
}).openapi("Error");

/** Header of refusals that are temporary. */
export const retryAfter = z.object({
  "retry-after": z.string().regex(/^\d+$/).optional().openapi({ description: "Seconds to wait" }),
});

export type AnswerHead = z.output<z.ZodObject<typeof answerHead>>;
export type UsageBody = z.output<typeof usage>;
export type ChatLogprobs = z.output<typeof chatLogprobs>;
export type CompletionLogprobs = z.output<typeof completionLogprobs>;

export function progressBody({ total, cached, processed, timeMs }: PromptProgress) {
  return { total, cache: cached, processed, time_ms: timeMs };
}
