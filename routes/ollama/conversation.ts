import { z } from "@hono/zod-openapi";
import { boundedArray, LIMITS, special, text, unsupported } from "../core/fields.ts";
import { callArguments, callId, type ChatMessageBody } from "../generation/messages.ts";

export const images = special({ type: ["array", "null"], maxItems: 0, description: "Not supported" });

export function checkImages({ images }: { images?: unknown }, ctx: z.RefinementCtx): void {
  if (images === undefined || images === null || (Array.isArray(images) && images.length === 0)) return;
  unsupported(ctx, "images", "images: this model reads text only");
}

const toolCall = z.object({
  id: callId,
  function: z.object({ name: text(1, 256), arguments: callArguments }),
});

const message = z.object({
  role: z.enum(["system", "user", "assistant", "tool"]),
  content: z.string().nullish(),
  thinking: z.string().nullish(),
  tool_calls: boundedArray(toolCall, 0, LIMITS.toolCalls).nullish(),
  tool_name: text(0, 256).nullish(),
  tool_call_id: callId,
  images,
}).superRefine(checkImages).openapi("OllamaMessage");

export const messages = boundedArray(message, 0, LIMITS.messages);

type Messages = readonly z.output<typeof message>[];

/** Returns the messages in OpenAI's format. */
export function conversationOf(messages: Messages): ChatMessageBody[] {
  return messages.map(({ role, content, thinking, tool_calls, tool_name, tool_call_id }) => {
    const said = { role, content: content ?? "" };
    if (role === "tool") return { ...said, tool_call_id, ...(tool_name ? { name: tool_name } : {}) };
    if (role !== "assistant") return said;
    return {
      role,
      content: said.content === "" && tool_calls?.length ? null : said.content,
      ...(thinking ? { reasoning_content: thinking } : {}),
      ...(tool_calls?.length ? { tool_calls } : {}),
    };
  });
}
