import { z } from "@hono/zod-openapi";
import { boundedArray, LIMITS, text, unsupported } from "../core/fields.ts";
import { checkImageUrl, dataUrl, IMAGE } from "../generation/image_urls.ts";
import { callArguments, callId, type ChatMessageBody, type Part } from "../generation/messages.ts";

/** Images in base64. In a prompt, the images come before the text. */
export const images = boundedArray(z.string(), 0, LIMITS.contentParts).nullish().openapi({
  description: "PNG, JPEG, WebP or GIF images in base64, which the model sees before the text",
});

export function checkImages({ images }: { images?: readonly string[] | null }, ctx: z.RefinementCtx): void {
  for (const [i, image] of (images ?? []).entries()) {
    checkImageUrl(ctx, ["images", i], image && dataUrl(image));
  }
}

/** Returns the text, after the images if there are any. `place`: the field that has the field of the images. */
export function withImages(
  text: string,
  images: readonly string[] | null | undefined,
  place = "",
): string | Part[] {
  if (!images?.length) return text;
  const parts = images.map((image, i): Part => ({
    type: IMAGE,
    image_url: dataUrl(image),
    param: `${place}images[${i}]`,
  }));
  return text === "" ? parts : [...parts, { type: "text", text }];
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
}).superRefine((message, ctx) => {
  const { role, images } = message;
  if (role === "user") checkImages(message, ctx);
  else if (role !== "tool" && images?.length) unsupported(ctx, "images", "images of this role");
}).openapi("OllamaMessage");

export const messages = boundedArray(message, 0, LIMITS.messages);

type Messages = readonly z.output<typeof message>[];

/** Returns the messages in OpenAI's format. */
export function conversationOf(messages: Messages): ChatMessageBody[] {
  return messages.map(({ role, content, thinking, tool_calls, tool_name, tool_call_id, images }, i) => {
    const text = content ?? "";
    const said = { role, content: withImages(text, images, `messages[${i}].`) };
    if (role === "tool") return { ...said, tool_call_id, ...(tool_name ? { name: tool_name } : {}) };
    if (role !== "assistant") return said;
    return {
      role,
      content: text === "" && tool_calls?.length ? null : text,
      ...(thinking ? { reasoning_content: thinking } : {}),
      ...(tool_calls?.length ? { tool_calls } : {}),
    };
  });
}
