import { z } from "@hono/zod-openapi";
import { boundedArray, LIMITS, special, text, unsupported } from "../core/fields.ts";
import { jsonObject } from "../generation/constraints.ts";
import { type ChatMessageBody, olderId } from "../generation/messages.ts";

export const images = special({ type: ["array", "null"], maxItems: 0, description: "Not supported" });

export function checkImages({ images }: { images?: unknown }, ctx: z.RefinementCtx): void {
  if (images === undefined || images === null || (Array.isArray(images) && images.length === 0)) return;
  unsupported(ctx, "images", "images: this model reads text only");
}

const toolCall = z.object({
  id: text(0, 256).nullish(),
  function: z.object({ name: text(1, 256), arguments: jsonObject.nullish() }),
});

const message = z.object({
  role: z.enum(["system", "user", "assistant", "tool"]),
  content: z.string().nullish(),
  thinking: z.string().nullish(),
  tool_calls: boundedArray(toolCall, 0, LIMITS.toolCalls).nullish(),
  tool_name: text(0, 256).nullish(),
  tool_call_id: text(0, 256).nullish(),
  images,
}).superRefine(checkImages).openapi("OllamaMessage");

export const messages = boundedArray(message, 0, LIMITS.messages);

type Messages = readonly z.output<typeof message>[];

/**
 * Returns the messages in OpenAI's format. Calls without ids get some; a result without one belongs to the first open
 * call of its tool, or to the first open call.
 */
export function conversationOf(messages: Messages): ChatMessageBody[] {
  let count = 0;
  let open: { readonly id: string; readonly name: string }[] = [];
  return messages.map(({ role, content, thinking, tool_calls, tool_name, tool_call_id }) => {
    const said = { content: content ?? "" };
    if (role === "tool") {
      const named = open.find(({ id, name }) => tool_call_id ? id === tool_call_id : name === tool_name);
      const id = tool_call_id || (named ?? open.at(0))?.id || olderId(++count);
      open = open.filter((call) => call.id !== id);
      return { role, ...said, tool_call_id: id, ...(tool_name ? { name: tool_name } : {}) };
    }
    if (role !== "assistant") return { role, ...said };
    const calls = tool_calls?.map(({ id, function: { name, arguments: given } }) => {
      return { id: id || olderId(++count), function: { name, arguments: JSON.stringify(given ?? {}) } };
    }) ?? [];
    if (calls.length > 0) open = calls.map(({ id, function: { name } }) => ({ id, name }));
    return {
      role,
      content: said.content === "" && calls.length > 0 ? null : said.content,
      ...(thinking ? { reasoning_content: thinking } : {}),
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    };
  });
}
