import { z } from "@hono/zod-openapi";
import { isReservedVariable, RESERVED_TEMPLATE_VARIABLES } from "../../engine/types.ts";
import {
  boundedArray,
  generationFields,
  LIMITS,
  refuse,
  refuseConstraints,
  refusedFields,
  unsupported,
} from "../shared/fields.ts";

const textPart = z.object({ type: z.string(), text: z.string().nullish() }).superRefine((part, ctx) => {
  if (part.type !== "text") {
    const type = JSON.stringify(part.type.slice(0, 60));
    const message = `Unsupported content part of type ${type}: this model reads text only`;
    refuse(ctx, ["type"], "unsupported_content", message);
  } else if (typeof part.text !== "string") {
    refuse(ctx, ["text"], "missing_required_parameter", "A content part of type text needs the field text");
  }
});

const content = z.union([z.string(), boundedArray(textPart, 1, LIMITS.contentParts)], {
  error: "allowed is a text or an array of text parts",
});

const chatMessage = z.object({
  role: z.enum(["system", "developer", "user", "assistant", "tool"]),
  content: content.nullish(),
  name: z.string().max(256).nullish(),
  reasoning_content: z.string().nullish(),
  tool_calls: z.unknown().optional(),
  tool_call_id: z.string().max(256).nullish(),
}).superRefine((message, ctx) => {
  if (message.role !== "assistant" && (message.content === undefined || message.content === null)) {
    refuse(ctx, ["content"], "missing_required_parameter", `A message of role ${message.role} needs content`);
  }
}).openapi("ChatMessage");

export type ChatMessageBody = z.output<typeof chatMessage>;

const RESERVED_NAMES = RESERVED_TEMPLATE_VARIABLES.join(", ");

const templateVariable = z.union([
  z.string().max(LIMITS.templateVariableCharacters),
  z.number(),
  z.boolean(),
  z.null(),
]);

const templateVariables = z.custom<Record<string, z.output<typeof templateVariable>>>((value) => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const entries = Object.entries(value);
  return entries.length <= LIMITS.templateVariables && entries.every(([name, variable]) => {
    return /^[A-Za-z][A-Za-z0-9_]{0,63}$/.test(name) && !isReservedVariable(name) &&
      templateVariable.safeParse(variable).success;
  });
}, {
  error: `Invalid "chat_template_kwargs": allowed is an object of at most ${LIMITS.templateVariables} ` +
    `texts, numbers and booleans, none of them named like the template's own (${RESERVED_NAMES})`,
}).openapi({ type: "object", additionalProperties: {} });

export const promptFields = {
  messages: boundedArray(chatMessage, 1, LIMITS.messages),
  chat_template_kwargs: templateVariables.nullish().openapi({
    description: "Variables for the model's template, such as enable_thinking",
  }),
};

const anything = z.unknown().optional();

export const chatRequest = z.object({
  ...generationFields,
  ...promptFields,
  max_completion_tokens: generationFields.max_tokens.openapi({ description: "Supersedes max_tokens" }),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish(),
  ...refusedFields,
  tools: anything.openapi({ description: "Only an empty array" }),
  tool_choice: anything.openapi({ description: "Only none or auto" }),
  functions: anything,
  function_call: anything,
  modalities: anything.openapi({ description: 'Only ["text"]' }),
}).superRefine((body, ctx) => {
  refuseConstraints(body, ctx);
  refuseTools(body, ctx);
  if (body.top_logprobs && !body.logprobs) {
    refuse(ctx, ["top_logprobs"], "invalid_value", 'Invalid "top_logprobs": it needs "logprobs": true');
  }
  const modalities = body.modalities ?? ["text"];
  if (!Array.isArray(modalities) || modalities.some((modality) => modality !== "text")) {
    unsupported(ctx, "modalities", "any output but text");
  }
}).openapi("ChatCompletionRequest");

export type ChatBody = z.output<typeof chatRequest>;

function refuseTools(body: { [key: string]: unknown }, ctx: z.RefinementCtx): void {
  for (const field of ["tools", "functions"]) {
    const value = body[field] ?? [];
    if (!Array.isArray(value) || value.length > 0) unsupported(ctx, field, "tool calls");
  }
  for (const field of ["tool_choice", "function_call"]) {
    const value = body[field] ?? "none";
    if (value !== "none" && value !== "auto") unsupported(ctx, field, "tool calls");
  }
}
