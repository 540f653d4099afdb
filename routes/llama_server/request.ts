import { z } from "@hono/zod-openapi";
import type { Engine, PromptImage } from "../../engine/mod.ts";
import { type AskedForm, checkForms, constraintFields, formOf } from "../generation/constraints.ts";
import {
  boundedArray,
  generationFields,
  LIMITS,
  loraField,
  samplingFields,
  special,
  stopField,
  text,
  unsupported,
} from "../core/fields.ts";
import {
  checkForm,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
} from "../generation/generation.ts";
import { llamaServerEvents, wholeLlamaServer } from "./answer.ts";
import { biasesOf, logitBiasField } from "./logit_bias.ts";
import { paced } from "../core/paced.ts";

/* Requests in llama-server's format. */

/** Fields that all generations in this format share. */
export const llamaServerFields = {
  ...samplingFields,
  lora: loraField,
  n_predict: z.number().int().min(-1).max(LIMITS.maxTokens).nullish().openapi({
    description:
      "Maximum tokens of the answer; 0 only computes the prompt; -1, the default: only the context limits it",
  }),
  max_tokens: generationFields.max_tokens.openapi({
    description: "Another name of n_predict, which wins if both are given",
  }),
  seed: z.number().int().min(-1).max(Number.MAX_SAFE_INTEGER).nullish().openapi({
    description: "-1, the default: a different seed for each request",
  }),
  logit_bias: logitBiasField,
  stop: stopField,
  grammar: constraintFields.grammar,
  json_schema: constraintFields.json_schema,
  return_progress: z.boolean().nullish().openapi({
    description: "Stream progress while a long prompt is read",
  }),
  n_probs: special({ enum: [0, null], description: "Not supported; /v1/completions has logprobs" }),
  response_fields: boundedArray(text(1, 200), 0, 100).nullish().openapi({
    description: "Fields to return, such as content or timings/prompt_ms; default all",
  }),
};

type Fields = z.output<z.ZodObject<typeof llamaServerFields>>;

export function checkLlamaServer(body: Fields, ctx: z.RefinementCtx): void {
  checkForms(body, ctx);
  if (body.n_probs !== undefined && body.n_probs !== null && body.n_probs !== 0) {
    unsupported(ctx, "n_probs", "probabilities in this shape (/v1/completions has logprobs)");
  }
}

/** Returns the maximum tokens for the engine, or undefined for no limit. */
export function maxTokensOf({ n_predict, max_tokens }: Fields): number | undefined {
  return n_predict === -1 ? undefined : n_predict ?? max_tokens ?? undefined;
}

/** Returns all forms that the request demands for parts of the answer. */
export function formsOf(body: Fields): AskedForm[] {
  return [formOf(body) ?? []].flat();
}

/** Prepares the request. `truncated`: the prompt omits a part of the request. Throws ApiError. */
export async function prepareLlamaServer(
  engine: Engine,
  body: Fields,
  options: RunOptions,
  prompt: { tokens: number[]; images?: readonly PromptImage[]; truncated: boolean },
): Promise<Prepared> {
  const [form] = formsOf(body);
  await checkForm(engine, form?.constraint, form ? [form] : [], options);
  const seed = body.seed === -1 ? undefined : body.seed;
  const logit_bias = await paced(() => biasesOf(engine, body.logit_bias));
  const fields = { ...body, seed, logit_bias };
  const request = {
    ...engineRequest(engine, fields, options),
    prompt: prompt.tokens,
    images: prompt.images,
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
