import { z } from "@hono/zod-openapi";
import { type Engine, withPauses } from "../../engine/mod.ts";
import { chatAnswer, chatChunk, chatChunks, type ChatShape, wholeChat } from "../generation/chat_answer.ts";
import { checkForms, constraintFields, formOf } from "../generation/constraints.ts";
import { foreignForms } from "../generation/foreign_forms.ts";
import { generationFields, LIMITS, refuse, special, unsupported } from "../core/fields.ts";
import {
  answersTo,
  checkForm,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
} from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import {
  checkPrefill,
  continuesLast,
  prefillFields,
  promptFields,
  toMessages,
} from "../generation/messages.ts";
import { checkReasoning, reasoningFields, reasoningOf } from "../generation/reasoning.ts";
import { checkTools, toolFields, toolForms, toolsOf } from "../generation/tools.ts";

const foreign = foreignForms(
  [...Object.keys(constraintFields), ...Object.keys(toolFields)],
  'use "response_format", or "tools"',
);

const request = z.object({
  ...generationFields,
  ...promptFields,
  ...prefillFields,
  ...constraintFields,
  ...toolFields,
  ...reasoningFields,
  max_completion_tokens: generationFields.max_tokens.openapi({ description: "Supersedes max_tokens" }),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish().openapi({
    description: "Needs logprobs: true",
  }),
  ...foreign.fields,
  modalities: special({ type: ["array", "null"], items: { type: "string", enum: ["text"] } }),
}).superRefine((body, ctx) => {
  foreign.check(body, ctx);
  checkForms(body, ctx);
  checkTools(body, ctx);
  checkReasoning(body, ctx);
  checkPrefill(body, ctx);
  checkContinued(body, ctx);
  if (body.top_logprobs && !body.logprobs) {
    refuse(ctx, ["top_logprobs"], "invalid_value", 'Invalid "top_logprobs": needs "logprobs": true');
  }
  const modalities = body.modalities ?? ["text"];
  if (!Array.isArray(modalities) || modalities.some((modality) => modality !== "text")) {
    unsupported(ctx, "modalities", "any output but text");
  }
}).openapi("ChatCompletionRequest", {
  anyOf: [
    { properties: { top_logprobs: { enum: [0, null] } } },
    { properties: { logprobs: { type: "boolean", enum: [true] } }, required: ["logprobs"] },
  ],
});

type Body = z.output<typeof request>;

/**
 * Refuses a form or a forced call when the answer continues a message: the request wrote its beginning, which need not
 * follow the form.
 */
function checkContinued(body: Body, ctx: z.RefinementCtx): void {
  if (!continuesLast(body)) return;
  const form = formOf(body);
  const choice = toolsOf(body)?.choice ?? "auto";
  const forced = choice === "required" || typeof choice === "object";
  const param = form?.param ?? (forced ? body.tool_choice ? "tool_choice" : "function_call" : undefined);
  if (param === undefined) return;
  const message = `"${param}" cannot be kept where the answer continues the last message; ` +
    'let the conversation end with the user\'s message, or send "add_generation_prompt": true';
  refuse(ctx, param.split("."), "conflicting_parameters", message);
}

export const chatCompletions = generation({
  path: "/v1/chat/completions",
  operationId: "createChatCompletion",
  summary: "Answer a conversation",
  request,
  answer: chatAnswer,
  chunk: { name: "ChatCompletionChunk", schema: chatChunk },
  example: {
    model: "demo",
    messages: [{ role: "user", content: "Who are you?" }],
    max_tokens: 40,
    temperature: 0,
  },
  forms: (body) => [formOf(body) ?? [], toolForms(toolsOf(body))].flat(),
  prepare,
});

/** Throws ApiError, or the engine's error if the chat template refuses. */
async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const n = body.n ?? 1;
  const tools = toolsOf(body);
  const form = formOf(body);
  const variables = body.chat_template_kwargs ?? {};
  const plan = await withPauses(() =>
    engine.chatForm.plan({
      messages: toMessages(body.messages),
      ...(tools ? { tools: tools.tools, toolChoice: tools.choice, parallelToolCalls: tools.parallel } : {}),
      constraint: form?.constraint,
      ...reasoningOf(body, variables),
      variables,
      continueFinal: continuesLast(body),
    })
  );
  await checkForm(engine, plan.constraint, [form ?? [], toolForms(tools)].flat());
  const requests = answersTo({
    ...engineRequest(engine, body, options),
    ...plan,
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    logprobs: body.logprobs ? body.top_logprobs ?? 0 : undefined,
  }, n);
  const shape: ChatShape = {
    n,
    logprobs: body.logprobs ?? false,
    calls: tools && (tools.older ? "function_call" : "tool_calls"),
    withUsage: body.stream_options?.include_usage ?? false,
    withProgress: body.return_progress ?? false,
  };
  const run = (signal: AbortSignal) => generate(engine, requests, signal);
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeChat(engine, shape, run(signal)),
    chunks: (signal) => chatChunks(engine, shape, run(signal)),
  };
}
