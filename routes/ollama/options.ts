import { z } from "@hono/zod-openapi";
import { type Engine, EngineError } from "../../engine/mod.ts";
import { ApiError } from "../core/errors.ts";
import { generationFields, LIMITS, refuse, samplingFields, stopField } from "../core/fields.ts";

const { model: _, stream: _stream, ...sampling } = samplingFields;

const fields = {
  ...sampling,
  seed: z.number().int().min(-1).max(Number.MAX_SAFE_INTEGER).nullish().openapi({
    description: "-1, the default: a different seed for each request",
  }),
  stop: stopField,
  num_predict: z.number().int().min(-2).max(LIMITS.maxTokens).nullish().openapi({
    description:
      "Maximum tokens of the answer; 0 only computes the prompt; below 0, the default, only the context limits it",
  }),
  num_ctx: z.number().int().min(1).max(LIMITS.maxTokens).nullish().openapi({
    description: "Maximum tokens of prompt and answer together; at most the server's context",
  }),
  repeat_last_n: z.number().int().min(-1).max(LIMITS.maxTokens).nullish().openapi({
    description:
      "0: no penalties; -1 (the default): penalties count tokens of the whole context. Other values are refused with penalties",
  }),
};

const PENALTIES: readonly string[] = [
  "repeat_penalty",
  "repetition_penalty",
  "presence_penalty",
  "frequency_penalty",
];

export const options = z.object(fields).superRefine((given, ctx) => {
  const isPenalized = Object.entries(given).some(([name, value]) =>
    PENALTIES.includes(name) && value && !(name.startsWith("rep") && value === 1)
  );
  if (isPenalized && given.repeat_last_n && given.repeat_last_n > 0) {
    const message =
      'Unsupported parameter "options.repeat_last_n": penalties count tokens of the whole context here; ' +
      "send -1, or 0 for no penalties";
    refuse(ctx, ["repeat_last_n"], "unsupported_parameter", message);
  }
}).nullish();

export type Options = z.output<typeof options>;

/** Returns the options under the names that all generations share. */
export function generationOptions(given: Options): z.output<z.ZodObject<typeof generationFields>> {
  const { seed, repetition_penalty, repeat_last_n, presence_penalty, frequency_penalty, ...others } = given ??
    {};
  const penalties = { repetition_penalty, presence_penalty, frequency_penalty };
  return { ...others, seed: seed === -1 ? undefined : seed, ...(repeat_last_n === 0 ? {} : penalties) };
}

/** Returns the context that the request asks for. Throws ApiError 400 where it is more than the server's. */
export function contextOf(engine: Engine, given: Options): number {
  const { contextLength } = engine.model;
  const asked = given?.num_ctx ?? contextLength;
  if (asked <= contextLength) return asked;
  const message =
    `Invalid "options.num_ctx": must be at most ${contextLength}, the context of this server's model ` +
    `(got ${asked}); leave it out`;
  throw new ApiError(400, "invalid_value", message, { param: "options.num_ctx" });
}

/** Returns the maximum tokens of the answer, or undefined for no limit. Throws ApiError, and EngineError. */
export function maxTokensOf(engine: Engine, given: Options, promptTokens: number): number | undefined {
  const context = contextOf(engine, given);
  const most = given?.num_predict ?? -1;
  const asked = most < 0 ? undefined : most;
  if (!given?.num_ctx) return asked;
  if (promptTokens < context) return Math.min(asked ?? Infinity, context - promptTokens);
  const message = `The prompt has ${promptTokens} tokens; "options.num_ctx" leaves room for ${context - 1}`;
  throw new EngineError("context_length_exceeded", message, {
    n_prompt_tokens: promptTokens,
    n_ctx: context,
  });
}
