import { z } from "@hono/zod-openapi";
import { ANTHROPIC_ERRORS } from "./errors.ts";
import { countRequest, planOf } from "./request.ts";
import { promptLength } from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { imageSender } from "../generation/images.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";

const answer = z.object({ input_tokens: z.number().int() }).openapi("MessageTokensCount");

/** Counts the tokens of the prompt that /v1/messages would build. */
export const countTokens = endpoint({
  method: "post",
  path: "/v1/messages/count_tokens",
  operationId: "countMessageTokens",
  tag: "Generation",
  summary: "Count the tokens of a conversation in Anthropic's format",
  body: countRequest,
  example: { model: "demo", messages: [{ role: "user", content: "Who are you?" }] },
  answer,
  answers: "Number of prompt tokens",
  errors: ANTHROPIC_ERRORS,
  refusals: MODEL_REFUSALS,
}, (incoming, context) => {
  const { body, raw } = incoming;
  return withModel(context.models, body.model, raw, async (engine) => {
    const plan = await planOf(engine, body, imageSender(incoming, context));
    return { input_tokens: promptLength(plan, engine.tokenizer) };
  });
});
