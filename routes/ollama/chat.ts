import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { refuse } from "../core/fields.ts";
import type { AskedForm } from "../generation/constraints.ts";
import type { Prepared, RunOptions } from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { continuesLast } from "../generation/messages.ts";
import { checkTools, toolFields, toolForms, toolsOf } from "../generation/tools.ts";
import { chatAnswer, emptyAnswer } from "./answer.ts";
import { conversationOf, messages } from "./conversation.ts";
import { OLLAMA_ERRORS } from "./errors.ts";
import { loadOrUnload, modelsFor } from "./models.ts";
import { answerFields, checkAnswer, formOf, planOf, prepareAnswer } from "./request.ts";

const request = z.object({
  ...answerFields,
  messages: messages.nullish().openapi({ description: "If there are none, the model is only loaded" }),
  tools: toolFields.tools,
}).superRefine((body, ctx) => {
  checkAnswer(body, ctx);
  checkTools(body, ctx);
  if (!formOf(body) || !continuesLast({ messages: conversationOf(body.messages ?? []) })) return;
  const message = '"format" cannot be enforced if the answer continues the last message; ' +
    "let the conversation end with the user's message";
  refuse(ctx, ["format"], "conflicting_parameters", message);
}).openapi("OllamaChatRequest");

type Body = z.output<typeof request>;

export const chat = generation({
  path: "/api/chat",
  operationId: "ollamaChat",
  tag: "Ollama",
  summary: "Answer a conversation in Ollama's format",
  request,
  answer: chatAnswer,
  chunk: { name: "OllamaChat", schema: chatAnswer, lines: true },
  errors: OLLAMA_ERRORS,
  example: {
    model: "demo",
    messages: [{ role: "user", content: "Who are you?" }],
    options: { num_predict: 40 },
  },
  forms: formsOf,
  prepare,
  modelsFor,
  async instead(models, body, signal) {
    if (body.messages?.length) return undefined;
    const done = await loadOrUnload(models, body, signal);
    return Response.json(emptyAnswer(body.model ?? "", "message", done));
  },
});

function formsOf(body: Body): AskedForm[] {
  return [formOf(body) ?? [], toolForms(toolsOf(body))].flat();
}

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const conversation = conversationOf(body.messages ?? []);
  const plan = await planOf(engine, body, options, {
    messages: conversation,
    tools: toolsOf(body)?.tools,
    continueFinal: continuesLast({ messages: conversation }),
  });
  return await prepareAnswer(engine, body, options, plan, { forms: formsOf(body), form: "message" });
}
