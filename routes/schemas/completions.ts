import { z } from "@hono/zod-openapi";
import {
  generationFields,
  LIMITS,
  refuse,
  refuseConstraints,
  refusedFields,
  unsupported,
} from "../shared/fields.ts";

type Prompt = string | string[] | number[] | number[][];

const isId = (value: unknown) =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31;
const isIds = (value: unknown) => Array.isArray(value) && value.length > 0 && value.every(isId);

/** Checked by hand: a prompt may hold a million ids, and a schema would build an error for each bad one. */
function isPrompt(value: unknown): value is Prompt {
  if (typeof value === "string") return true;
  if (!Array.isArray(value) || value.length === 0) return false;
  if (isIds(value)) return true;
  if (value.length > LIMITS.choices) return false;
  return value.every((prompt) => typeof prompt === "string") || value.every(isIds);
}

export const tokenIds = z.custom<number[]>((value) => Array.isArray(value) && value.every(isId), {
  error: 'Invalid "tokens": allowed is an array of token ids',
}).openapi({ type: "array", items: { type: "integer", minimum: 0 } });

const prompt = z.custom<Prompt>(isPrompt, {
  error:
    `Invalid "prompt": allowed is a text, an array of token ids, or an array of up to ${LIMITS.choices} of either`,
}).openapi({
  type: ["string", "array"],
  oneOf: [
    { type: "string" },
    { type: "array", items: { type: "string" }, maxItems: LIMITS.choices },
    { type: "array", items: { type: "integer", minimum: 0 } },
    {
      type: "array",
      items: { type: "array", items: { type: "integer", minimum: 0 } },
      maxItems: LIMITS.choices,
    },
  ],
});

export const completionRequest = z.object({
  ...generationFields,
  prompt,
  max_tokens: generationFields.max_tokens.openapi({ description: "Default 16" }),
  logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish(),
  echo: z.boolean().nullish(),
  best_of: z.number().int().min(1).max(LIMITS.choices).nullish().openapi({ description: "Only 1 or n" }),
  ...refusedFields,
  suffix: z.unknown().optional(),
}).superRefine((body, ctx) => {
  refuseConstraints(body, ctx);
  if (body.suffix !== undefined && body.suffix !== null && body.suffix !== "") {
    unsupported(ctx, "suffix", "text that is to follow the answer");
  }
  const n = body.n ?? 1;
  if (body.best_of && body.best_of !== 1 && body.best_of !== n) {
    unsupported(ctx, "best_of", "choosing the best of more answers than n");
  }
  const choices = n * promptCount(body.prompt);
  if (choices > LIMITS.choices) {
    const message =
      `Invalid "prompt": found ${choices} answers in one request (prompts x n), allowed is ${LIMITS.choices}`;
    refuse(ctx, ["prompt"], "invalid_value", message);
  }
}).openapi("CompletionRequest");

export type CompletionBody = z.output<typeof completionRequest>;

function promptCount(prompt: Prompt): number {
  return typeof prompt === "string" || typeof prompt[0] === "number" ? 1 : prompt.length;
}

/** The prompts of a request, each a text or token ids. */
export function promptsOf(prompt: Prompt): (string | number[])[] {
  if (typeof prompt === "string") return [prompt];
  return typeof prompt[0] === "number" ? [prompt as number[]] : prompt as (string | number[])[];
}
