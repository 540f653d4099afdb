import { z } from "@hono/zod-openapi";
import { endpoint } from "../shared/endpoint.ts";
import { promptFields, toMessages } from "../shared/messages.ts";

const request = z.object(promptFields).openapi("ApplyTemplateRequest");

const answer = z.object({ prompt: z.string() }).openapi("ApplyTemplateAnswer");

/** In llama-server's shape. */
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
}, ({ body }, { engine }) => {
  const options = { addGenerationPrompt: true, variables: body.chat_template_kwargs ?? {} };
  return { prompt: engine.chatTemplate.render(toMessages(body.messages), options) };
});
