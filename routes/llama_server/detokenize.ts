import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { modelField, tokenIds } from "../core/fields.ts";
import { checkTokens } from "../generation/generation.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";
import { paced } from "../core/paced.ts";

const request = z.object({ model: modelField, tokens: tokenIds }).openapi("DetokenizeRequest");

const answer = z.object({ content: z.string(), prompt: z.string() }).openapi("DetokenizeAnswer");

/** Endpoint /detokenize. llama-server's clients read `content` of the answer, vLLM's read `prompt`. */
export const detokenize = endpoint({
  method: "post",
  path: "/detokenize",
  operationId: "detokenize",
  tag: "Tokenizer",
  summary: "Detokenize token ids",
  body: request,
  example: { tokens: [71, 72] },
  answer,
  answers: "The text",
  refusals: MODEL_REFUSALS,
}, ({ body: { model, tokens }, raw }, { models }) =>
  withModel(models, model, raw, async (engine) => {
    const content = await paced(() => {
      checkTokens(engine, tokens, "tokens");
      return engine.tokenizer.decode(tokens, { special: true });
    });
    return { content, prompt: content };
  }));
