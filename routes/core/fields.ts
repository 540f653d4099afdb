import { z } from "@hono/zod-openapi";
import {
  finish,
  MAX_ADAPTERS,
  MAX_SCALE,
  type Paced,
  SAMPLING,
  SAMPLING_SETTINGS,
  type SamplingParams,
  type SamplingSetting,
} from "../../engine/mod.ts";

/** Limits of a single request. */
export const LIMITS = {
  choices: 128,
  topLogprobs: 20,
  stopTexts: 1024,
  infillFiles: 1000,
  stopCharacters: 1024,
  allStopCharacters: 16_384,
  breakers: 64,
  breakerCharacters: 40,
  logitBiases: 1024,
  biasCharacters: 256,
  messages: 10_000,
  contentParts: 1000,
  templateVariables: 16,
  templateVariableCharacters: 1000,
  maxTokens: 2 ** 31 - 1,
  grammarCharacters: 2 ** 18,
  guidedChoices: 10_000,
  tools: 512,
  toolBytes: 2 ** 20,
  toolCalls: 128,
  included: 64,
  texts: 2048,
} as const;

const int = (min: number, max: number) => z.number().int().min(min).max(max);
const between = (min: number, max: number) => z.number().min(min).max(max);

/** Returns an array schema that checks the length before the entries, so that a million bad entries cost one error. */
export function boundedArray<Schema extends z.ZodType>(schema: Schema, min: number, max: number) {
  return z.preprocess((value, ctx) => {
    if (!Array.isArray(value) || value.length <= max) return value;
    ctx.addIssue({ code: "too_big", origin: "array", maximum: max, inclusive: true, input: value });
    return z.NEVER;
  }, inSlices(z.array(schema).min(min).max(max)));
}

/** Number of array entries to check before a possible pause; they take up to about 1 ms. */
const ENTRIES_PER_OFFER = 16;

/** Makes an array schema check long arrays in slices, with pauses. */
function inSlices<Schema extends z.ZodType>(array: z.ZodArray<Schema>): z.ZodArray<Schema> {
  const { parse } = array._zod;
  const part = z.array(array.element);
  function* parsing({ value, issues }: z.core.ParsePayload<unknown[]>): Paced<z.core.ParsePayload> {
    const checked: unknown[] = [];
    for (let start = 0; start < value.length; start += ENTRIES_PER_OFFER) {
      if (start > 0) yield;
      const result = part.safeParse(value.slice(start, start + ENTRIES_PER_OFFER), { reportInput: true });
      if (!result.success) {
        for (const issue of result.error.issues) {
          const [at, ...path] = issue.path;
          issues.push({ ...issue, path: [start + (at as number), ...path] } as z.core.$ZodRawIssue);
        }
        break;
      }
      for (const entry of result.data) checked.push(entry);
    }
    return { value: checked, issues };
  }
  array._zod.parse = (payload, context) => {
    const { value } = payload;
    if (!Array.isArray(value) || value.length <= ENTRIES_PER_OFFER) return parse(payload, context);
    const result = finish(parsing({ value, issues: [] }));
    payload.value = result.value as never;
    // The schema's result is reused after a pause, so it must not change.
    payload.issues.push(...result.issues);
    return payload;
  };
  return array;
}

/** Returns a record schema that checks at most `most` entries and stops at the first bad one. */
export function boundedRecord<Value>(
  names: { readonly test: (name: string) => boolean; readonly rule: string },
  values: z.ZodType<Value>,
  most: number,
) {
  return z.custom<Record<string, Value>>().superRefine((given: unknown, ctx) => {
    if (typeof given !== "object" || given === null || Array.isArray(given)) {
      return ctx.addIssue({ code: "invalid_type", expected: "object", input: given });
    }
    const entries = Object.entries(given);
    if (entries.length > most) {
      return ctx.addIssue({ code: "too_big", origin: "array", maximum: most, inclusive: true, input: given });
    }
    for (const [name, value] of entries) {
      if (!names.test(name)) return ctx.addIssue({ code: "custom", message: names.rule, input: name });
      const { error } = values.safeParse(value, { reportInput: true });
      if (error) return ctx.addIssue({ ...error.issues[0], path: [name] } as z.core.$ZodRawIssue);
    }
  });
}

/** A JSON Schema 2020-12 object; the types of the OpenAPI library cover only a part of that standard. */
type JsonSchema = Readonly<Record<string, unknown>>;

/** Sets the OpenAPI description of a schema that is checked by hand. */
export function documented<Schema extends z.ZodType>(schema: Schema, shown: JsonSchema): Schema {
  return schema.openapi(shown as never);
}

/** Adds an error that reaches the client unchanged, with its own code. */
export function refuse(ctx: z.RefinementCtx, path: PropertyKey[], code: string, message: string): void {
  ctx.addIssue({ code: "custom", path, message, params: { code } });
}

/** Returns a text schema with a length in code points, as JSON Schema counts, instead of UTF-16 units. */
export function text(min: number, max: number) {
  return z.string().superRefine((value, ctx) => {
    // For most texts, the UTF-16 length decides without counting code points.
    const length = value.length <= max && value.length >= 2 * min ? value.length : characters(value, 2 * max);
    if (length < min) {
      ctx.addIssue({ code: "too_small", origin: "string", minimum: min, inclusive: true, input: value });
    }
    if (length > max) {
      ctx.addIssue({ code: "too_big", origin: "string", maximum: max, inclusive: true, input: value });
    }
  }).openapi({ minLength: min, maxLength: max });
}

/** Returns the number of code points. For a text over `units` UTF-16 units, returns Infinity without counting. */
function characters(value: string, units: number): number {
  if (value.length > units) return Infinity;
  let count = 0;
  for (const _ of value) count++;
  return count;
}

const stopText = text(1, LIMITS.stopCharacters);

/** Schema of stop texts. The limits bound their cost per answer and per character; llama-server has no limits. */
export const stopTexts = boundedArray(stopText, 0, LIMITS.stopTexts).superRefine((texts, ctx) => {
  const all = texts.reduce((sum, { length }) => sum + length, 0);
  if (all <= LIMITS.allStopCharacters) return;
  const message = `must have at most ${LIMITS.allStopCharacters} characters together`;
  ctx.addIssue({ code: "custom", message, input: all });
});
export const stopField = z.union([stopText, stopTexts], {
  error:
    `must be a text or up to ${LIMITS.stopTexts} texts, each of 1 to ${LIMITS.stopCharacters} characters`,
}).nullish();

const MAX_TOKEN_ID = 2 ** 31 - 1;

/**
 * References to OpenAPI schemas. TokenId is bounded by the vocabulary's size, and PromptText by the tokens that ""
 * becomes.
 */
export const TOKEN_ID = { $ref: "#/components/schemas/TokenId" };
export const PROMPT_TEXT = { $ref: "#/components/schemas/PromptText" };

const isTokenId = (id: unknown): id is number =>
  Number.isInteger(id) && id as number >= 0 && id as number <= MAX_TOKEN_ID;

export const isTokenIds = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every(isTokenId);

/** Returns the index of the first entry that is not right, or -1. */
export function* firstWrong<T>(ids: readonly T[], isRight: (id: T) => boolean): Paced<number> {
  for (let at = 0; at < ids.length; at++) {
    if (!isRight(ids[at])) return at;
    if (at % IDS_PER_OFFER === IDS_PER_OFFER - 1) yield;
  }
  return -1;
}

/** Number of token ids to check before a possible pause. */
const IDS_PER_OFFER = 1 << 14;

/** Reports the first entry that is not a token id. `path` leads to the array. */
export function checkTokenIds(ids: readonly unknown[], ctx: z.RefinementCtx, path: PropertyKey[] = []): void {
  const at = finish(firstWrong(ids, isTokenId));
  if (at < 0) return;
  ctx.addIssue({ code: "custom", path: [...path, at], message: "must be a token id", input: ids[at] });
}

/** Schema of token ids, checked by hand: a generated check would build an error for each of a million bad ids. */
export const tokenIds = documented(
  z.custom<number[]>(Array.isArray, { error: "must be an array of token ids", abort: true }).superRefine(
    (ids, ctx) => checkTokenIds(ids, ctx),
  ),
  { type: "array", items: TOKEN_ID },
);

/** Range of a logit bias. */
export const tokenBias = between(-100, 100);

/** OpenAPI description of biases by token id. */
export const BIASES_BY_ID = {
  propertyNames: { $ref: "#/components/schemas/TokenIdText" },
  additionalProperties: { type: "number", minimum: -100, maximum: 100 },
  maxProperties: LIMITS.logitBiases,
};

/** Schema of token biases by id. Ids outside the vocabulary are refused later, when the model is known. */
const tokenBiases = boundedRecord(
  { test: (id) => /^(?:0|[1-9]\d{0,8})$/.test(id), rule: "must have token ids as names" },
  tokenBias,
  LIMITS.logitBiases,
);

/**
 * Field of llama-server's mirostat sampling, which is refused: it does not work with the few candidates that remain
 * here.
 */
const mirostat = special({ enum: [0, null], description: "Not supported" }).superRefine((value, ctx) => {
  if (value === undefined || value === null || value === 0) return;
  const message = 'Unsupported parameter "mirostat": must be 0 (off); use top_p, min_p or typical_p instead';
  refuse(ctx, [], "unsupported_parameter", message);
});

const modelId = text(1, 256);
/** Schema of `model`. The OpenAPI document lists the available names, and requires the field if there are several. */
export const modelField = documented(modelId.nullish(), { $ref: "#/components/schemas/ModelChoice" });
export const modelName = documented(modelId, { $ref: "#/components/schemas/ModelId" });
export const modelQuery = documented(modelId.optional(), { $ref: "#/components/schemas/ModelId" });

type SamplingFields = {
  [Name in keyof SamplingParams as typeof SAMPLING[Name]["api"]["name"]]: z.ZodOptional<
    z.ZodNullable<
      z.ZodType<typeof SAMPLING[Name]["kind"] extends "biases" ? Record<string, number> : Value<Name>>
    >
  >;
};
type Value<Name extends keyof SamplingParams> = Exclude<SamplingParams[Name], undefined>;

/** Returns a sampling setting's effect, and the values of its API field that switch it off. */
export function describeSampling({ doc, off, min = -Infinity, api }: SamplingSetting): string {
  const offs = off === undefined
    ? ""
    : api.min! < min
    ? `; ${off} and ${api.min} are off`
    : `; ${off} is off`;
  return `${doc[0].toUpperCase()}${doc.slice(1)}${offs}`;
}

/** Returns the field names of a sampling setting: in OpenAI's API and, if it differs, in llama-server's. */
function namesOf({ api, llamaServer }: SamplingSetting): string[] {
  return llamaServer === undefined ? [api.name] : [api.name, llamaServer];
}

/** Returns the schema of one sampling setting. */
function samplingField(setting: SamplingSetting) {
  const { kind, api: { min = -Infinity, max = Infinity } } = setting;
  const description = describeSampling(setting);
  if (kind === "biases") {
    return documented(tokenBiases.nullish(), { type: ["object", "null"], ...BIASES_BY_ID, description });
  }
  const schema = kind === "number"
    ? between(min, max)
    : kind === "whole"
    ? int(min, max)
    : boundedArray(text(1, LIMITS.breakerCharacters), 0, LIMITS.breakers);
  return schema.nullish().openapi({ description });
}

/** Request fields that every generation supports. */
export const samplingFields = {
  model: modelField,
  ...Object.fromEntries(
    SAMPLING_SETTINGS.flatMap(([, setting]) =>
      namesOf(setting).map((name) => [name, samplingField(setting)])
    ),
  ) as unknown as SamplingFields,
  mirostat,
  stream: z.boolean().nullish(),
  ignore_eos: z.boolean().nullish().openapi({
    description: "Continue past the end of the answer (benchmarks)",
  }),
};

/** Fields that OpenAI's chats and completions support. */
export const loraField = boundedArray(
  z.object({
    id: int(0, MAX_ADAPTERS - 1).openapi({
      description: "The adapter's place in the order of its loading, from 0",
    }),
    scale: z.number().min(-MAX_SCALE).max(MAX_SCALE).openapi({ description: "Factor of its changes" }),
  }),
  0,
  MAX_ADAPTERS,
).nullish().openapi({
  description:
    "The LoRA adapters to use, and no others; by default all that the server loaded, with their scales",
});

export const generationFields = {
  ...samplingFields,
  lora: loraField,
  n: int(1, LIMITS.choices).nullish().openapi({ description: "Answers to each prompt" }),
  max_tokens: int(0, LIMITS.maxTokens).nullish().openapi({ description: "0 only computes the prompt" }),
  stop: stopField,
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  return_progress: z.boolean().nullish().openapi({
    description: "Stream progress while a long prompt is read",
  }),
};

const MAX_METADATA = 16;

const MAX_NAME = 64;
const MAX_TEXT = 512;

const metadataName = text(1, MAX_NAME).refine((name) => name.isWellFormed());
const metadataText = text(0, MAX_TEXT)
  .refine((text) => text.isWellFormed(), "must be valid Unicode: it has half of a surrogate pair");

/** Schema of the client's own texts, which are returned with the answer. */
export const metadata = documented(
  boundedRecord(
    {
      test: (name) => metadataName.safeParse(name).success,
      rule: `must have names of 1 to ${MAX_NAME} characters`,
    },
    metadataText,
    MAX_METADATA,
  ).nullish(),
  {
    type: ["object", "null"],
    propertyNames: { minLength: 1, maxLength: MAX_NAME },
    additionalProperties: { type: "string", maxLength: MAX_TEXT },
    maxProperties: MAX_METADATA,
  },
);

/** Returns the schema of a field that is checked by hand. `shown` describes its allowed values. */
export function special(shown: JsonSchema) {
  return documented(z.unknown().optional(), shown);
}

export function unsupported(ctx: z.RefinementCtx, field: string, what: string): void {
  refuse(
    ctx,
    [field],
    "unsupported_parameter",
    `Unsupported parameter "${field}": this server does not support ${what}; leave it out`,
  );
}
