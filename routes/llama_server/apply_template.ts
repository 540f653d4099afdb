import { z } from "@hono/zod-openapi";
import { withPauses } from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { modelField } from "../core/fields.ts";
import { promptFields, toMessages } from "../generation/messages.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";

const request = z.object({ model: modelField, ...promptFields }).openapi("ApplyTemplateRequest");

const answer = z.object({ prompt: z.string() }).openapi("ApplyTemplateAnswer");

/** Uses llama-server's format. */
export const applyTemplate = endpoint({
  method: "post",
  path: "/apply-template",
  operationId: "applyTemplate",
  tag: "Tokenizer",
  summary: "Show the prompt of a conversation",
  body: request,
  example: { messages: [{ role: "user", content: "Hi" }] },
  answer,
  answers: "The prompt",
  refusals: MODEL_REFUSALS,
}, ({ body, raw }, { models }) =>
  withModel(models, body.model, raw, async (engine) => {
    const options = { addGenerationPrompt: true, variables: body.chat_template_kwargs ?? {} };
    const messages = toMessages(body.messages);
    return { prompt: await withPauses(() => engine.chatTemplate.render(messages, options)) };
  }));
