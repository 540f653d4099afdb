import { z } from "@hono/zod-openapi";
import {
  type ChatMessage,
  completed,
  isReservedVariable,
  mapInSlices,
  RESERVED_TEMPLATE_VARIABLES,
} from "../../engine/mod.ts";
import { boundedArray, boundedRecord, documented, LIMITS, refuse, text } from "../core/fields.ts";
import { jsonObject } from "./constraints.ts";
import { checkImageUrl, IMAGE, urlOf } from "./image_urls.ts";

const imageUrl = z.union([z.string(), z.object({ url: z.string(), detail: z.string().nullish() })]).nullish();

const part = z.object({
  type: z.string().openapi({ enum: ["text", IMAGE] }),
  text: z.string().nullish().openapi({ type: "string", description: "Of a part of type text" }),
  image_url: imageUrl.openapi({
    description:
      "Of a part of type image_url, in messages of the user and results of tools: a data URL with a PNG, JPEG, WebP or GIF " +
      "image in base64. Results of tools leave out images that cannot be read",
  }),
}).superRefine((part, ctx) => {
  if (part.type === IMAGE) return;
  if (part.type !== "text") {
    refusePart(ctx, ["type"], part.type);
  } else if (typeof part.text !== "string") {
    refuse(ctx, ["text"], "missing_required_parameter", "A content part of type text needs the field text");
  }
}).openapi({ required: ["type"] });

/** A part of a message: a text, or an image with the name of its field in the request. The image may be an uploaded file. */
export type Part = z.output<typeof part> & { readonly param?: string; readonly file_id?: string };

function refusePart(ctx: z.RefinementCtx, path: (string | number)[], type: string): void {
  const why = type === IMAGE
    ? "only messages of the user and of tools may have images"
    : `must be "text" or "${IMAGE}"`;
  const message = `Unsupported content part of type ${JSON.stringify(type.slice(0, 60))}: ${why}`;
  refuse(ctx, path, "unsupported_content", message);
}

const content = z.union([z.string(), boundedArray(part, 0, LIMITS.contentParts)], {
  error: "must be a text or an array of parts",
});

const name = text(1, 256);

const NO_CALLS = { tool_calls: { type: ["array", "null"], maxItems: 0 }, function_call: { type: "null" } };

/**
 * Arguments of an earlier call, as an object or as the text that a model wrote. A token limit may have cut that text,
 * so it need not be JSON.
 */
export const callArguments = z.union([z.string(), jsonObject], { error: "must be an object or a text" })
  .nullish();

/** Returns the arguments as the JSON text that OpenAI's format has. */
export function argumentsText(given: z.output<typeof callArguments>): string {
  return typeof given === "string" ? given : JSON.stringify(given ?? {});
}

/** Schema of a call's id. Calls and results without ids are paired by order. */
export const callId = text(0, 256).nullish();

const calledFunction = z.object({ name, arguments: callArguments });

const toolCall = z.object({
  id: callId,
  type: z.literal("function").nullish(),
  function: calledFunction,
}).openapi("MessageToolCall");

const chatMessage = z.object({
  role: z.enum(["system", "developer", "user", "assistant", "tool", "function"]),
  content: content.nullish(),
  name: text(0, 256).nullish(),
  reasoning_content: z.string().nullish(),
  reasoning: z.string().nullish().openapi({ description: "Another name of reasoning_content" }),
  tool_calls: boundedArray(toolCall, 0, LIMITS.toolCalls).nullish(),
  tool_call_id: callId,
  function_call: calledFunction.nullish().openapi({ description: "Older than tool_calls" }),
}).superRefine((message, ctx) => {
  const { role } = message;
  const needs = (field: "content" | "name") => {
    const value = message[field];
    if (value !== undefined && value !== null && (field === "content" || value !== "")) return;
    refuse(ctx, [field], "missing_required_parameter", `A message of role ${role} needs ${field}`);
  };
  if (role === "function") needs("name");
  if (role !== "tool" && role !== "function" && Array.isArray(message.content)) {
    for (const [at, part] of message.content.entries()) {
      if (part.type !== IMAGE) continue;
      if (role === "user") checkImageUrl(ctx, ["content", at, IMAGE], urlOf(part));
      else refusePart(ctx, ["content", at, "type"], IMAGE);
    }
  }
  if (role !== "assistant") {
    needs("content");
    if (role !== "tool" && Array.isArray(message.content) && message.content.length === 0) {
      ctx.addIssue({ code: "too_small", origin: "array", minimum: 1, path: ["content"], input: [] });
    }
    for (const field of ["tool_calls", "function_call"] as const) {
      const value = message[field] ?? [];
      if (Array.isArray(value) && value.length === 0) continue;
      refuse(
        ctx,
        [field],
        "invalid_value",
        `Only a message of role assistant may have ${field} (got role ${role})`,
      );
    }
  }
  const ids = message.tool_calls?.map(({ id }) => id) ?? [];
  ids.forEach((id, i) => {
    if (!id || ids.indexOf(id) === i) return;
    const path = ["tool_calls", i, "id"];
    ctx.addIssue({
      code: "custom",
      path,
      message: "must differ from the ids of earlier calls",
      input: id,
    });
  });
}).openapi("ChatMessage", {
  anyOf: [
    { properties: { role: { type: "string", enum: ["assistant"] } } },
    {
      required: ["content"],
      properties: {
        role: { type: "string", enum: ["system", "developer", "user"] },
        content: { type: ["string", "array"], minItems: 1 },
        ...NO_CALLS,
      },
    },
    {
      required: ["content"],
      properties: {
        role: { type: "string", enum: ["tool"] },
        content: { type: ["string", "array"] },
        ...NO_CALLS,
      },
    },
    {
      required: ["content", "name"],
      properties: {
        role: { type: "string", enum: ["function"] },
        content: { type: ["string", "array"], minItems: 1 },
        name: { type: "string", minLength: 1 },
        ...NO_CALLS,
      },
    },
  ],
} as never);

export type ChatMessageBody = Omit<z.output<typeof chatMessage>, "content"> & {
  content?: string | Part[] | null;
};

const RESERVED_NAMES = RESERVED_TEMPLATE_VARIABLES.join(", ");

const VARIABLE_NAME = /^[A-Za-z][A-Za-z0-9_]{0,63}$/;

const templateVariable = z.union([
  text(0, LIMITS.templateVariableCharacters),
  z.number(),
  z.boolean(),
  z.null(),
], { error: "must be a text, a number, true, false or null" });

const templateVariables = documented(
  boundedRecord(
    {
      test: (name) => VARIABLE_NAME.test(name) && !isReservedVariable(name),
      rule:
        "must have names of 1 to 64 letters, digits and _ that begin with a letter and are not reserved by the template " +
        `(${RESERVED_NAMES})`,
    },
    templateVariable,
    LIMITS.templateVariables,
  ).nullish(),
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

/** Options for continuing the last message. */
export const prefillFields = {
  continue_final_message: z.boolean().nullish().openapi({
    description:
      "Whether the answer continues the last message; default true if it is the assistant's and has no calls",
  }),
  add_generation_prompt: z.boolean().nullish().openapi({
    description: "true: the assistant's last message is complete, and the answer is a new message",
  }),
};

interface Prefill {
  messages: readonly ChatMessageBody[];
  continue_final_message?: boolean | null;
  add_generation_prompt?: boolean | null;
}

/** Refuses to continue a message that cannot be continued. */
export function checkPrefill(body: Prefill, ctx: z.RefinementCtx): void {
  const { continue_final_message: asked, add_generation_prompt: head } = body;
  if (asked && head) {
    const message =
      '"continue_final_message" and "add_generation_prompt" contradict each other: an answer continues a message or begins one';
    return refuse(ctx, ["add_generation_prompt"], "conflicting_parameters", message);
  }
  if (canContinue(body.messages)) {
    if (asked !== false || head !== false) return;
    const message =
      '"continue_final_message" or "add_generation_prompt" must be true: the answer continues a message or begins one';
    return refuse(ctx, ["add_generation_prompt"], "conflicting_parameters", message);
  }
  const field = asked ? "continue_final_message" : head === false ? "add_generation_prompt" : undefined;
  if (field === undefined) return;
  const message =
    `Invalid "${field}": the last message must be the assistant's, and without calls, to be continued`;
  refuse(ctx, [field], "invalid_value", message);
}

/**
 * Returns whether the answer continues the last message. As in llama-server, the default is true for the assistant's
 * message.
 */
export function continuesLast(body: Prefill): boolean {
  if (!canContinue(body.messages)) return false;
  return body.continue_final_message ?? body.add_generation_prompt !== true;
}

function canContinue(messages: readonly ChatMessageBody[]): boolean {
  const last = messages.at(-1);
  return last?.role === "assistant" && !last.tool_calls?.length && !last.function_call;
}

/**
 * Returns the messages as chat templates expect them. Text parts are joined by line breaks, calls in the older format
 * become tool calls, and calls and results without ids are paired. The template itself handles `developer`.
 */
export function toMessages(messages: readonly ChatMessageBody[]): ChatMessage[] {
  const plain = mapInSlices(messages, (message): ChatMessage => {
    const { role, content, function_call, tool_calls, reasoning, ...others } = message;
    const named = { ...others, reasoning_content: others.reasoning_content ?? reasoning };
    const given = Object.entries(named).filter(([, value]) => value !== undefined && value !== null);
    const made = (function_call ? [{ function: function_call }] : tool_calls ?? []).map((call) => ({
      ...call,
      type: "function",
      function: { ...call.function, arguments: argumentsText(call.function.arguments) },
    }));
    return {
      ...Object.fromEntries(given),
      role: role === "function" ? "tool" : role,
      ...(made.length > 0 ? { tool_calls: made } : {}),
      content: contentOf(content),
    };
  });
  return completed(plain);
}

function contentOf(content: ChatMessageBody["content"]): ChatMessage["content"] {
  if (!Array.isArray(content)) return content?.toWellFormed() ?? null;
  const parts: { type: string; text?: string }[] = [];
  let texts: string[] = [];
  const addText = () => {
    if (texts.length > 0) parts.push({ type: "text", text: texts.join("\n").toWellFormed() });
    texts = [];
  };
  for (const { type, text } of content) {
    if (type !== IMAGE) {
      texts.push(text ?? "");
      continue;
    }
    addText();
    parts.push({ type: "image" });
  }
  if (parts.length === 0) return texts.join("\n").toWellFormed();
  addText();
  return parts;
}
