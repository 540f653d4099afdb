import { z } from "@hono/zod-openapi";
import { type ChatMessage, isReservedVariable, RESERVED_TEMPLATE_VARIABLES } from "../../engine/types.ts";
import { boundedArray, documented, LIMITS, refuse, special, text } from "./fields.ts";

const textPart = z.object({
  type: z.string().openapi({ enum: ["text"] }),
  text: z.string().nullish().openapi({ type: "string" }),
}).superRefine((part, ctx) => {
  if (part.type !== "text") {
    const type = JSON.stringify(part.type.slice(0, 60));
    const message = `Unsupported content part of type ${type}: this model reads text only`;
    refuse(ctx, ["type"], "unsupported_content", message);
  } else if (typeof part.text !== "string") {
    refuse(ctx, ["text"], "missing_required_parameter", "A content part of type text needs the field text");
  }
}).openapi({ required: ["type", "text"] });

const content = z.union([z.string(), boundedArray(textPart, 1, LIMITS.contentParts)], {
  error: "must be a text or an array of text parts",
});

const chatMessage = z.object({
  role: z.enum(["system", "developer", "user", "assistant", "tool"]),
  content: content.nullish(),
  name: text(0, 256).nullish(),
  reasoning_content: z.string().nullish(),
  tool_calls: special({ description: "Handed to the template" }),
  tool_call_id: text(0, 256).nullish(),
}).superRefine((message, ctx) => {
  if (message.role !== "assistant" && (message.content === undefined || message.content === null)) {
    refuse(ctx, ["content"], "missing_required_parameter", `A message of role ${message.role} needs content`);
  }
}).openapi("ChatMessage", {
  anyOf: [
    { properties: { role: { type: "string", enum: ["assistant"] } } },
    { required: ["content"], properties: { content: { type: ["string", "array"] } } },
  ],
});

export type ChatMessageBody = z.output<typeof chatMessage>;

const RESERVED_NAMES = RESERVED_TEMPLATE_VARIABLES.join(", ");

const VARIABLE_NAME = /^[A-Za-z][A-Za-z0-9_]{0,63}$/;

const templateVariable = z.union([
  text(0, LIMITS.templateVariableCharacters),
  z.number(),
  z.boolean(),
  z.null(),
]);

const templateVariables = documented(
  z.custom<Record<string, z.output<typeof templateVariable>>>((value) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
    const entries = Object.entries(value);
    return entries.length <= LIMITS.templateVariables && entries.every(([name, variable]) => {
      return VARIABLE_NAME.test(name) && !isReservedVariable(name) &&
        templateVariable.safeParse(variable).success;
    });
  }, {
    error: `Invalid "chat_template_kwargs": must be an object of at most ${LIMITS.templateVariables} ` +
      `texts, numbers and booleans, none of them named like the template's own (${RESERVED_NAMES})`,
  }).nullish(),
  {
    type: ["object", "null"],
    propertyNames: { pattern: VARIABLE_NAME.source, not: { enum: [...RESERVED_TEMPLATE_VARIABLES] } },
    additionalProperties: {
      anyOf: [
        { type: "string", maxLength: LIMITS.templateVariableCharacters },
        { type: ["number", "boolean", "null"] },
      ],
    },
    maxProperties: LIMITS.templateVariables,
    description: "Variables for the model's template, such as enable_thinking",
  },
);

export const promptFields = {
  messages: boundedArray(chatMessage, 1, LIMITS.messages),
  chat_template_kwargs: templateVariables,
};

/** Messages as templates know them: text parts are joined by line breaks. The template itself reads `developer`. */
export function toMessages(messages: readonly ChatMessageBody[]): ChatMessage[] {
  return messages.map(({ role, content, ...others }) => {
    const text = Array.isArray(content) ? content.map((part) => part.text).join("\n") : content ?? null;
    const given = Object.entries(others).filter(([, value]) => value !== undefined && value !== null);
    return {
      ...Object.fromEntries(given),
      role,
      content: text === null ? null : text.toWellFormed(),
    };
  });
}
