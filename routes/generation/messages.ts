import { z } from "@hono/zod-openapi";
import {
  type ChatMessage,
  completed,
  isReservedVariable,
  mapInSlices,
  MOST_IMAGE_BYTES,
  RESERVED_TEMPLATE_VARIABLES,
} from "../../engine/mod.ts";
import { boundedArray, boundedRecord, documented, LIMITS, refuse, text } from "../core/fields.ts";
import { ApiError } from "../core/errors.ts";
import { jsonObject } from "./constraints.ts";

/** Text in the prompt in place of an image that a tool returned. */
export const IMAGE_LEFT_OUT = "[image left out: this model reads text only]";

export const IMAGE = "image_url";

/** The only URLs of images: the server fetches none. */
const DATA_URL = /^data:[^,]{0,256};base64,/i;
/** Maximum characters of an image's URL: the base64 of the largest image. */
const MOST_URL = Math.ceil(MOST_IMAGE_BYTES / 3) * 4 + 512;

const imageUrl = z.union([z.string(), z.object({ url: z.string(), detail: z.string().nullish() })]).nullish();

/** An image is read in the user's messages, and left out of the results of tools. */
const part = z.object({
  type: z.string().openapi({ enum: ["text", IMAGE] }),
  text: z.string().nullish().openapi({ type: "string", description: "Of a part of type text" }),
  image_url: imageUrl.openapi({
    description:
      "Of a part of type image_url, in messages of the user: a data URL with a PNG, JPEG, WebP or GIF image in base64",
  }),
}).superRefine((part, ctx) => {
  if (part.type === IMAGE) return;
  if (part.type !== "text") {
    refusePart(ctx, ["type"], part.type);
  } else if (typeof part.text !== "string") {
    refuse(ctx, ["text"], "missing_required_parameter", "A content part of type text needs the field text");
  }
}).openapi({ required: ["type"] });

function refusePart(ctx: z.RefinementCtx, path: (string | number)[], type: string): void {
  refuse(ctx, path, "unsupported_content", unreadable(type));
}

/** Returns the refusal of a part that the model cannot read. */
export function unreadable(type: string): string {
  return `Unsupported content part of type ${JSON.stringify(type.slice(0, 60))}: this model reads text only`;
}

/** Returns the URL of a user's image; "" where there is none. */
export function urlOf({ image_url }: z.output<typeof part>): string {
  return (typeof image_url === "string" ? image_url : image_url?.url) ?? "";
}

function checkImage(ctx: z.RefinementCtx, path: (string | number)[], given: z.output<typeof part>): void {
  const url = urlOf(given);
  if (url === "") {
    return refuse(
      ctx,
      path,
      "missing_required_parameter",
      `A content part of type ${IMAGE} needs ${IMAGE}.url`,
    );
  }
  if (!DATA_URL.test(url)) {
    const message =
      `Invalid ${IMAGE}: it must be a data URL, such as "data:image/png;base64,…"; the server fetches no images`;
    return refuse(ctx, path, "unsupported_image_url", message);
  }
  if (url.length <= MOST_URL) return;
  refuse(
    ctx,
    path,
    "invalid_image",
    `Invalid ${IMAGE}: the image must have at most ${MOST_IMAGE_BYTES} bytes`,
  );
}

const content = z.union([z.string(), boundedArray(part, 0, LIMITS.contentParts)], {
  error: "must be a text or an array of text parts",
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
      if (role === "user") checkImage(ctx, ["content", at, IMAGE], part);
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

export type ChatMessageBody = z.output<typeof chatMessage>;

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
 * become tool calls, and calls and results without ids are paired. The template itself handles `developer`. Throws
 * ApiError 400 for an image of the user, unless `images`.
 */
export function toMessages(messages: readonly ChatMessageBody[], images = false): ChatMessage[] {
  if (!images) refuseImages(messages);
  const plain = mapInSlices(messages, (message): ChatMessage => {
    const { role, content, function_call, tool_calls, reasoning, ...others } = message;
    if (imageIn(message) >= 0) return { role, content: (content as z.output<typeof part>[]).map(partOf) };
    const text = Array.isArray(content) ? content.map(textOf).join("\n") : content ?? null;
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
      content: text === null ? null : text.toWellFormed(),
    };
  });
  return completed(plain);
}

/** Returns the index of the first image in a user's message; -1 if there is none. */
function imageIn({ role, content }: ChatMessageBody): number {
  return role === "user" && Array.isArray(content) ? content.findIndex(({ type }) => type === IMAGE) : -1;
}

function refuseImages(messages: readonly ChatMessageBody[]): void {
  const index = messages.findIndex((message) => imageIn(message) >= 0);
  if (index < 0) return;
  const param = `messages[${index}].content[${imageIn(messages[index])}].type`;
  throw new ApiError(400, "unsupported_content", unreadable(IMAGE), { param });
}

function partOf({ type, text }: z.output<typeof part>): { type: string; text?: string } {
  return type === IMAGE ? { type: "image" } : { type, text: (text ?? "").toWellFormed() };
}

function textOf({ type, text }: z.output<typeof part>): string {
  return type === IMAGE ? IMAGE_LEFT_OUT : text ?? "";
}
