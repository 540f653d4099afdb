import { z } from "@hono/zod-openapi";
import { boundedArray, LIMITS, text } from "../../core/fields.ts";
import type { ChatMessageBody } from "../../generation/messages.ts";

/* The input of a /v1/responses request, turned into chat messages. */

const part = z.discriminatedUnion("type", [
  z.object({ type: z.literal("input_text"), text: z.string() }),
  z.object({ type: z.literal("output_text"), text: z.string() }),
  z.object({ type: z.literal("refusal"), refusal: z.string() }),
], { error: 'must be "input_text" or "output_text": this model reads text only' });

const content = z.union([z.string(), boundedArray(part, 0, LIMITS.contentParts)], {
  error: "must be a text or an array of text parts",
});

type Content = z.output<typeof content>;

const message = z.object({
  type: z.literal("message").optional(),
  role: z.enum(["user", "assistant", "system", "developer"]),
  content,
});

const id = text(1, 256);

const functionCall = z.object({
  type: z.literal("function_call"),
  call_id: id,
  name: id,
  arguments: z.string(),
});

const functionOutput = z.object({
  type: z.literal("function_call_output"),
  call_id: id,
  output: content,
});

const thoughts = boundedArray(z.object({ text: z.string() }), 0, LIMITS.contentParts).nullish();

const reasoning = z.object({ type: z.literal("reasoning"), summary: thoughts, content: thoughts });

const item = z.discriminatedUnion("type", [message, functionCall, functionOutput, reasoning], {
  error: ({ input }) => {
    const kept = (input as { type?: unknown } | undefined)?.type === "item_reference";
    return 'must be "message", "function_call", "function_call_output" or "reasoning": ' +
      (kept
        ? "nothing is kept here that could be referred to, so send the item itself"
        : "there are no others here");
  },
});

export const inputField = z.union([z.string(), boundedArray(item, 1, LIMITS.messages)], {
  error: "must be a text or an array of items",
});

type Input = z.output<typeof inputField>;

/**
 * Returns the chat messages. Consecutive thoughts, texts and calls of the assistant become one message, as chat
 * templates expect.
 */
export function toChat(input: Input, instructions: string | null | undefined): ChatMessageBody[] {
  const items = typeof input === "string"
    ? [{ type: "message" as const, role: "user" as const, content: input }]
    : input;
  const messages: ChatMessageBody[] = [];
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
  for (const item of items) {
    if (item.type === "reasoning") {
      const thought = thoughtOf(item);
      if (thought !== "") {
        turn((last) => hasSpoken(last) || last.reasoning_content !== undefined).reasoning_content = thought;
      }
    } else if (item.type === "function_call") {
      const { call_id: id, name, arguments: text } = item;
      const message = turn(() => false);
      const call = { id, type: "function" as const, function: { name, arguments: text } };
      (message.tool_calls ??= []).push(call);
    } else if (item.type === "function_call_output") {
      messages.push({ role: "tool", tool_call_id: item.call_id, content: textOf(item.output) });
    } else if (item.role === "assistant") {
      turn(hasSpoken).content = textOf(item.content);
    } else {
      messages.push({ role: item.role, content: textOf(item.content) });
    }
  }
  return messages;
}

function textOf(content: Content): string {
  if (typeof content === "string") return content;
  return content.map((part) => part.type === "refusal" ? part.refusal : part.text).join("\n");
}

/** Returns the reasoning text, or its summary if there is none. */
function thoughtOf({ content, summary }: z.output<typeof reasoning>): string {
  const texts = content?.length ? content : summary ?? [];
  return texts.map(({ text }) => text).join("\n\n");
}
