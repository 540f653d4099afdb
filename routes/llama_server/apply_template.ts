import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { chatPlan, chatRequest } from "../generation/chat_request.ts";
import { imageSender } from "../generation/images.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";
import { paced } from "../core/paced.ts";

const answer = z.object({ prompt: z.string() }).openapi("ApplyTemplateAnswer");

/** Endpoint /apply-template, in llama-server's format. */
export const applyTemplate = endpoint({
  method: "post",
  path: "/apply-template",
  operationId: "applyTemplate",
  tag: "Tokenizer",
  summary: "Show the prompt of a conversation",
  description:
    "Takes the body of /v1/chat/completions. /completion computes the same prompt from the returned text.",
  body: chatRequest,
  example: { messages: [{ role: "user", content: "Hi" }] },
  answer,
  answers: "The prompt",
  refusals: MODEL_REFUSALS,
}, (incoming, context) => {
  const { body, raw } = incoming;
  return withModel(context.models, body.model, raw, async (engine) => {
    const { prompt } = await chatPlan(engine, body, imageSender(incoming, context));
    return { prompt: await paced(() => textOf(engine, prompt)) };
  });
});

/** Returns a prompt's text, without the first token if the tokenizer adds it to every text. */
function textOf(engine: Engine, prompt: readonly number[]): string {
  const { bosToken } = engine.tokenizer;
  const isAdded = prompt[0] === bosToken && engine.encodePrompt("")[0] === bosToken;
  return engine.tokenizer.decode(isAdded ? prompt.slice(1) : prompt, { special: true });
}
