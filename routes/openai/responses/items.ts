import { z } from "@hono/zod-openapi";
import { boundedArray, LIMITS, refuse, text } from "../../core/fields.ts";
import { jsonObject } from "../../generation/constraints.ts";
import { checkImageUrl, IMAGE } from "../../generation/image_urls.ts";
import {
  argumentsText,
  callArguments,
  callId,
  type ChatMessageBody,
  type Part,
} from "../../generation/messages.ts";
import { type CalledTool, joinedName, SHELL } from "./called_tool.ts";

/* The input of a /v1/responses request, turned into chat messages. */

const texts = [
  z.object({ type: z.literal("input_text"), text: z.string() }),
  z.object({ type: z.literal("output_text"), text: z.string() }),
  z.object({ type: z.literal("refusal"), refusal: z.string() }),
] as const;

const image = z.object({
  type: z.literal("input_image"),
  image_url: z.string().nullish().openapi({
    description: "A data URL with a PNG, JPEG, WebP or GIF image in base64",
  }),
  file_id: z.string().nullish().openapi({ description: "Instead of image_url: the id of an uploaded image" }),
  detail: z.string().nullish(),
});

const said = z.discriminatedUnion("type", [...texts, image], {
  error: 'must be "input_text", "output_text" or "input_image"',
});

const content = z.union([z.string(), boundedArray(said, 0, LIMITS.contentParts)], {
  error: "must be a text or an array of parts",
});

type Content = z.output<typeof content>;

/** Field for an item's id: clients send items back with the ids that this server assigned. */
const itemId = { id: z.string().nullish() };

const message = z.object({
  type: z.literal("message").optional(),
  ...itemId,
  role: z.enum(["user", "assistant", "system", "developer"]),
  content,
}).superRefine(({ role, content }, ctx) => {
  if (typeof content === "string") return;
  for (const [i, part] of content.entries()) {
    if (part.type !== "input_image") continue;
    const isFile = !part.image_url && part.file_id;
    if (role === "user") { if (!isFile) checkImageUrl(ctx, ["content", i, IMAGE], part.image_url); }
    else {
      const message = "Only messages of the user and outputs of tools may have images";
      refuse(ctx, ["content", i, "type"], "unsupported_content", message);
    }
  }
});

const id = text(1, 256);

const called = { ...itemId, call_id: callId, name: id, namespace: id.nullish() };

const functionCall = z.object({ type: z.literal("function_call"), ...called, arguments: callArguments });

const customCall = z.object({ type: z.literal("custom_tool_call"), ...called, input: z.string() });

/** Ids of a shell call: clients that do not know the call's id send the item's id. */
const shellId = { id: id.nullish(), call_id: id.nullish() };

const shellCall = z.object({
  type: z.literal("local_shell_call"),
  ...shellId,
  action: jsonObject,
}).superRefine(checkShellId);

const shellOutput = z.object({
  type: z.literal("local_shell_call_output"),
  ...shellId,
  output: content,
}).superRefine(checkShellId);

function checkShellId(item: { id?: string | null; call_id?: string | null }, ctx: z.RefinementCtx): void {
  if (item.call_id || item.id) return;
  refuse(
    ctx,
    ["call_id"],
    "missing_required_parameter",
    'An item of a local shell call needs "call_id" or "id"',
  );
}

const answered = { ...itemId, call_id: callId, output: content };

const functionOutput = z.object({ type: z.literal("function_call_output"), ...answered });

const customOutput = z.object({ type: z.literal("custom_tool_call_output"), ...answered });

/**
 * Schema of a search on OpenAI's servers. The prompt omits it, because the assistant's next message contains its
 * results.
 */
const search = z.object({ type: z.literal("web_search_call"), ...itemId });

/** A reference to an item of a stored response. */
const reference = z.object({ type: z.literal("item_reference"), id });

const thoughts = boundedArray(z.object({ text: z.string() }), 0, LIMITS.contentParts).nullish();

const reasoning = z.object({
  type: z.literal("reasoning"),
  ...itemId,
  summary: thoughts,
  content: thoughts,
});

const ITEMS = [
  message,
  functionCall,
  functionOutput,
  customCall,
  customOutput,
  shellCall,
  shellOutput,
  reasoning,
  search,
  reference,
] as const;

const item = z.discriminatedUnion("type", ITEMS, {
  error:
    'must be "message", "reasoning", "function_call", "custom_tool_call", "local_shell_call", one of these ' +
    'calls with "_output", "web_search_call", or "item_reference"',
});

export const inputField = z.union([z.string(), boundedArray(item, 1, LIMITS.messages)], {
  error: "must be a text or an array of items",
});

type Input = z.output<typeof inputField>;

export type AnyItem = z.output<typeof item>;
/** An item that is not a reference. */
export type Item = Exclude<AnyItem, { type: "item_reference" }>;
type CallItem = Extract<Item, { type: "function_call" | "custom_tool_call" | "local_shell_call" }>;
type Named = Pick<CalledTool, "name" | "namespace">;

/** Returns a call as the model wrote it: its id, its flat name and its arguments. */
function callOf(item: CallItem, nameOf: (called: CalledTool) => string) {
  switch (item.type) {
    case "function_call":
      return callBody(
        item.call_id,
        nameOf({ ...named(item), type: "function" }),
        argumentsText(item.arguments),
      );
    case "custom_tool_call": {
      const text = JSON.stringify({ input: item.input });
      return callBody(item.call_id, nameOf({ ...named(item), type: "custom" }), text);
    }
    case "local_shell_call": {
      const { type: _, ...action } = item.action;
      const given = Object.entries(action).filter(([, value]) => value !== null);
      const text = JSON.stringify(Object.fromEntries(given));
      return callBody((item.call_id ?? item.id)!, nameOf({ type: SHELL, name: SHELL }), text);
    }
  }
}

function named({ name, namespace }: { name: string; namespace?: string | null }): Named {
  return { name, namespace: namespace ?? undefined };
}

function callBody(id: string | null | undefined, name: string, text: string) {
  return { id, type: "function" as const, function: { name, arguments: text } };
}

/** Returns the id of the call that an output belongs to. `shellIds`: ids of calls by the ids of their items. */
function outputId(
  item: Extract<Item, { output: unknown }>,
  shellIds: ReadonlyMap<string, string>,
): string | null | undefined {
  if (item.type !== "local_shell_call_output") return item.call_id;
  return item.call_id ?? shellIds.get(item.id!) ?? item.id!;
}

/** Returns the input as items. */
export function itemsOf(input: Input): AnyItem[] {
  return typeof input === "string" ? [{ type: "message", role: "user", content: input }] : input;
}

/**
 * Returns the chat messages. `nameOf` returns the name under which the model reads a tool. Consecutive
 * thinking, texts and calls of the assistant become one message, as chat templates expect. `earlier`: the number of
 * items that are not in the request's input.
 */
export function toChat(
  items: readonly Item[],
  instructions: string | null | undefined,
  nameOf: (called: CalledTool) => string = ({ name, namespace }) => joinedName(name, namespace),
  earlier = 0,
): ChatMessageBody[] {
  const messages: ChatMessageBody[] = [];
  const shellIds = new Map<string, string>();
  if (instructions) messages.push({ role: "system", content: instructions });
  /** Returns the assistant's last message, or a new one if the next item no longer fits into it. */
  const turn = (isPast: (message: ChatMessageBody) => boolean) => {
    const last = messages.at(-1);
    if (last?.role === "assistant" && !isPast(last)) return last;
    const next: ChatMessageBody = { role: "assistant", content: null };
    messages.push(next);
    return next;
  };
  const hasSpoken = ({ content, tool_calls }: ChatMessageBody) =>
    content !== null || tool_calls !== undefined;
  for (const [i, item] of items.entries()) {
    const place = i < earlier ? undefined : `input[${i - earlier}]`;
    if (item.type === "reasoning") {
      const thought = thoughtOf(item);
      if (thought !== "") {
        turn((last) => hasSpoken(last) || last.reasoning_content !== undefined).reasoning_content = thought;
      }
    } else if ("output" in item) {
      const content = partsOf(item.output, place && `${place}.output`);
      messages.push({ role: "tool", tool_call_id: outputId(item, shellIds), content });
    } else if ("role" in item) {
      const content = partsOf(item.content, place && `${place}.content`);
      if (item.role === "assistant") turn(hasSpoken).content = content;
      else messages.push({ role: item.role, content });
    } else if (item.type !== "web_search_call") {
      const call = callOf(item, nameOf);
      if (item.type === "local_shell_call" && item.id && call.id) shellIds.set(item.id, call.id);
      (turn(() => false).tool_calls ??= []).push(call);
    }
  }
  return messages;
}

/** Returns a content as text or, with images, as parts. `place`: the content's field. */
function partsOf(content: Content, place = "previous_response_id"): string | Part[] {
  if (typeof content === "string") return content;
  const parts = content.map((part, i): Part => {
    if (part.type !== "input_image") {
      return { type: "text", text: part.type === "refusal" ? part.refusal : part.text };
    }
    const file = part.image_url ? undefined : part.file_id ?? undefined;
    const field = file === undefined ? IMAGE : "file_id";
    const param = place === "previous_response_id" ? place : `${place}[${i}].${field}`;
    return { type: IMAGE, image_url: part.image_url ?? "", file_id: file, param };
  });
  return parts.some(({ type }) => type === IMAGE) ? parts : parts.map(({ text }) => text).join("\n");
}

/** Returns the reasoning text, or its summary if there is none. */
function thoughtOf({ content, summary }: z.output<typeof reasoning>): string {
  const texts = content?.length ? content : summary ?? [];
  return texts.map(({ text }) => text).join("\n\n");
}
