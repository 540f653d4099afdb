import { z } from "@hono/zod-openapi";

/** Bounds of what one request may ask for. */
export const LIMITS = {
  choices: 128,
  topLogprobs: 20,
  stopTexts: 4,
  stopCharacters: 1024,
  logitBiases: 1024,
  messages: 10_000,
  contentParts: 1000,
  templateVariables: 16,
  templateVariableCharacters: 1000,
  maxTokens: 2 ** 31 - 1,
} as const;

const int = (min: number, max: number) => z.number().int().min(min).max(max);
const between = (min: number, max: number) => z.number().min(min).max(max);

/** An array whose length is checked before its entries: a stranger's million bad entries cost one error, not a million. */
export function boundedArray<Schema extends z.ZodType>(schema: Schema, min: number, max: number) {
  return z.preprocess((value, ctx) => {
    if (!Array.isArray(value) || value.length <= max) return value;
    ctx.addIssue({ code: "too_big", origin: "array", maximum: max, inclusive: true, input: value });
    return z.NEVER;
  }, z.array(schema).min(min).max(max));
}

/** Adds an error that reaches the client as it stands, with its own code. */
export function refuse(ctx: z.RefinementCtx, path: PropertyKey[], code: string, message: string): void {
  ctx.addIssue({ code: "custom", path, message, params: { code } });
}

const stopText = z.string().min(1).max(LIMITS.stopCharacters);

/** Token id -> bias. Ids outside the vocabulary are refused where the vocabulary is known. */
const logitBias = z.custom<Record<string, number>>(
  (value) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
    const entries = Object.entries(value);
    return entries.length <= LIMITS.logitBiases && entries.every(([id, bias]) => {
      return /^\d{1,9}$/.test(id) && typeof bias === "number" && bias >= -100 && bias <= 100;
    });
  },
  `Invalid "logit_bias": allowed is an object of at most ${LIMITS.logitBiases} token ids, each with a bias from -100 to 100`,
)
  .openapi({ type: "object", additionalProperties: { type: "number", minimum: -100, maximum: 100 } });

export const modelField = z.string().min(1).max(256).openapi({
  description: "The model's id, as /v1/models lists it",
  example: "demo",
});

/** What both generation endpoints honour. Fields that are not named are accepted and ignored. */
export const generationFields = {
  model: modelField,
  n: int(1, LIMITS.choices).nullish().openapi({ description: "Answers to each prompt" }),
  max_tokens: int(0, LIMITS.maxTokens).nullish(),
  temperature: between(0, 2).nullish().openapi({ description: "0 is greedy; default 1" }),
  top_p: between(0, 1).nullish(),
  top_k: int(-1, LIMITS.maxTokens).nullish().openapi({ description: "0 and -1 are off" }),
  min_p: between(0, 1).nullish(),
  repetition_penalty: between(0.01, 10).nullish().openapi({ description: "1 is off" }),
  presence_penalty: between(-2, 2).nullish(),
  frequency_penalty: between(-2, 2).nullish(),
  logit_bias: logitBias.nullish(),
  // Further answers count on from the seed.
  seed: int(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER - LIMITS.choices).nullish(),
  stop: z.union([stopText, boundedArray(stopText, 0, LIMITS.stopTexts)], {
    error: `allowed is a text or up to ${LIMITS.stopTexts}, each of 1 to ${LIMITS.stopCharacters} characters`,
  }).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  return_progress: z.boolean().nullish().openapi({
    description: "Stream progress while a long prompt is read",
  }),
  ignore_eos: z.boolean().nullish().openapi({ description: "Go on past the end of the answer (benchmarks)" }),
};

/** Ways to constrain an answer that this server does not have: ignoring them would break the caller's promise. */
const CONSTRAINTS = [
  "grammar",
  "json_schema",
  "guided_json",
  "guided_regex",
  "guided_choice",
  "guided_grammar",
  "structured_outputs",
] as const;

const anything = z.unknown().optional();

/** Fields that are known and refused unless they ask for nothing. */
export const refusedFields = {
  response_format: anything.openapi({ description: 'Only {"type":"text"}' }),
  grammar: anything,
  json_schema: anything,
  guided_json: anything,
  guided_regex: anything,
  guided_choice: anything,
  guided_grammar: anything,
  structured_outputs: anything,
};

/** Refuses what `refusedFields` names. */
export function refuseConstraints(body: { [key: string]: unknown }, ctx: z.RefinementCtx): void {
  for (const field of CONSTRAINTS) {
    if (body[field] !== undefined && body[field] !== null) unsupported(ctx, field, "constrained output");
  }
  const format = body.response_format;
  if (format === undefined || format === null) return;
  if (typeof format !== "object" || (format as { type?: unknown }).type !== "text") {
    unsupported(ctx, "response_format", 'any format but {"type":"text"}');
  }
}

export function unsupported(ctx: z.RefinementCtx, field: string, what: string): void {
  refuse(
    ctx,
    [field],
    "unsupported_parameter",
    `Unsupported parameter "${field}": this server does not support ${what}`,
  );
}
