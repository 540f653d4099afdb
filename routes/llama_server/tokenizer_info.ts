import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { modelQuery } from "../core/fields.ts";
import { MODEL_REFUSALS, textOfToken, withModel } from "../core/models.ts";

const special = z.string().nullable();

const answer = z.object({
  eos_token: special,
  bos_token: special,
  pad_token: special,
  chat_template: z.string(),
  model_max_length: z.number().int(),
}).openapi("TokenizerInfo");

/**
 * Endpoint for tokenizer information in vLLM's format, for clients that render conversations themselves (lm-eval's
 * remote tokenizer).
 */
export const tokenizerInfo = endpoint({
  method: "get",
  path: "/tokenizer_info",
  operationId: "getTokenizerInfo",
  tag: "Tokenizer",
  summary: "The control tokens and the chat template",
  query: z.object({ model: modelQuery }),
  loads: true,
  answer,
  refusals: MODEL_REFUSALS,
  answers: "The text of each token, and the chat template in Jinja",
}, ({ query, raw }, { models }) =>
  withModel(models, query.model, raw, (engine) => ({
    eos_token: textOfToken(engine, engine.tokenizer.eosToken),
    bos_token: textOfToken(engine, engine.tokenizer.bosToken),
    pad_token: textOfToken(engine, engine.tokenizer.padToken),
    chat_template: engine.chatTemplate.source,
    model_max_length: engine.model.contextLength,
  })));
