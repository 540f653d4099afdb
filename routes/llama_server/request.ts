import { z } from "@hono/zod-openapi";
import { type Engine, SAMPLING_SETTINGS } from "../../engine/mod.ts";
import { type AskedForm, checkForms, constraintFields, formOf } from "../generation/constraints.ts";
import { boundedArray, LIMITS, samplingFields, special, text, unsupported } from "../core/fields.ts";
import { foreignForms } from "../generation/foreign_forms.ts";
import {
  checkForm,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
} from "../generation/generation.ts";
import { llamaServerEvents, wholeLlamaServer } from "./answer.ts";
import { biasesOf, logitBiasField } from "./logit_bias.ts";

/* Requests in llama-server's format. */

/** Sampling fields with another name here than in OpenAI's format. */
const RENAMED = SAMPLING_SETTINGS.flatMap(([, { api, llamaServer }]) =>
  llamaServer === undefined ? [] : [{ name: api.name, here: llamaServer }]
);

const sampling = Object.fromEntries(
  Object.entries(samplingFields).map(([field, schema]) => [
    RENAMED.find(({ name }) => name === field)?.here ?? field,
    schema,
  ]),
) as typeof samplingFields;

const stopText = text(1, LIMITS.stopCharacters);

const foreign = foreignForms(
  ["grammar", "json_schema"],
  'use "grammar" or "json_schema", and /v1/chat/completions for calls',
);

/** Fields that all generations in this format share. */
export const llamaServerFields = {
  ...sampling,
  n_predict: z.number().int().min(-1).max(LIMITS.maxTokens).nullish().openapi({
    description:
      "Most tokens of the answer; 0 only reads the prompt, -1 (the default) is no bound but the context",
  }),
  seed: z.number().int().min(-1).max(Number.MAX_SAFE_INTEGER).nullish().openapi({
    description: "-1 (the default): another one each time",
  }),
  logit_bias: logitBiasField,
  stop: boundedArray(stopText, 0, LIMITS.stopSequences).nullish(),
  grammar: constraintFields.grammar,
  json_schema: constraintFields.json_schema,
  ...foreign.fields,
  return_progress: z.boolean().nullish().openapi({
    description: "Stream progress while a long prompt is read",
  }),
  n_probs: special({ enum: [0, null], description: "Not supported; /v1/completions has logprobs" }),
  response_fields: boundedArray(text(1, 200), 0, 100).nullish().openapi({
    description: "Fields that the answer has, those of inner objects as timings/prompt_ms; default all",
  }),
};

type Fields = z.output<z.ZodObject<typeof llamaServerFields>>;

export function checkLlamaServer(body: Fields, ctx: z.RefinementCtx): void {
  foreign.check(body, ctx);
  checkForms(body, ctx);
  if (body.n_probs !== undefined && body.n_probs !== null && body.n_probs !== 0) {
    unsupported(ctx, "n_probs", "probabilities in this shape (/v1/completions has logprobs)");
  }
}

/** Returns the maximum tokens for the engine, or undefined for no limit. */
export function maxTokensOf({ n_predict }: Fields): number | undefined {
  return n_predict === -1 ? undefined : n_predict ?? undefined;
}

/** Returns all forms that the request demands of parts of the answer. */
export function formsOf(body: Fields): AskedForm[] {
  return [formOf(body) ?? []].flat();
}

/** Prepares the request. `truncated`: the prompt does not include everything from the request. Throws ApiError. */
export async function prepareLlamaServer(
  engine: Engine,
  body: Fields,
  options: RunOptions,
  prompt: { tokens: number[]; truncated: boolean },
): Promise<Prepared> {
  const [form] = formsOf(body);
  await checkForm(engine, form?.constraint, form ? [form] : []);
  const seed = body.seed === -1 ? undefined : body.seed;
  const logit_bias = biasesOf(engine, body.logit_bias);
  const values = body as Record<string, unknown>;
  const renamed = Object.fromEntries(RENAMED.map(({ name, here }) => [name, values[here]]));
  const fields = { ...body, ...renamed, seed, logit_bias };
  const request = {
    ...engineRequest(engine, fields, options),
    prompt: prompt.tokens,
    constraint: form?.constraint,
    maxTokens: maxTokensOf(body),
  };
  const shape = {
    request,
    truncated: prompt.truncated,
    withProgress: body.return_progress ?? false,
    fields: body.response_fields ?? undefined,
  };
  const run = (signal: AbortSignal) => generate(engine, [request], signal);
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeLlamaServer(engine, shape, run(signal)),
    chunks: (signal) => llamaServerEvents(engine, shape, run(signal)),
  };
}
