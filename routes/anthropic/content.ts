import { z } from "@hono/zod-openapi";
import { boundedArray, LIMITS, text } from "../core/fields.ts";
import { jsonObject } from "../generation/constraints.ts";
import { checkImageUrl, dataUrl } from "../generation/image_urls.ts";
import { callArguments, callId } from "../generation/messages.ts";

/** Content blocks in Anthropic's format, as far as models support them. */

const textBlock = z.object({ type: z.literal("text"), text: z.string() }).openapi("MessagesTextBlock");

/** A text, or an array of text blocks. */
export const texts = z.union([z.string(), boundedArray(textBlock, 0, LIMITS.contentParts)], {
  error: "must be a text or an array of blocks of text",
});

const plainText = z.object({ type: z.literal("text"), data: z.string() });
const blocksOfText = z.object({ type: z.literal("content"), content: texts });

const noCitations = z.object({
  enabled: z.literal(false, { error: "must be false: citations are not supported" }).nullish(),
}).nullish();

const documentBlock = z.object({
  type: z.literal("document"),
  source: z.discriminatedUnion("type", [plainText, blocksOfText], {
    error: 'must be "text" or "content": other documents are not supported',
  }),
  title: z.string().nullish(),
  context: z.string().nullish(),
  citations: noCitations,
}).openapi("MessagesDocumentBlock");

const searchResultBlock = z.object({
  type: z.literal("search_result"),
  source: z.string(),
  title: z.string(),
  content: boundedArray(textBlock, 0, LIMITS.contentParts),
  citations: noCitations,
}).openapi("MessagesSearchResultBlock");

/** An image block of a tool's result. Its source may have any shape: a refusal would end an agent's session. */
const returnedImage = z.object({ type: z.literal("image"), source: jsonObject });

const imageBlock = z.object({
  type: z.literal("image"),
  source: z.discriminatedUnion("type", [
    z.object({ type: z.literal("base64"), media_type: z.string(), data: z.string() }),
    z.object({ type: z.literal("url"), url: z.string() }),
    z.object({ type: z.literal("file"), file_id: text(1, 256) }),
  ], { error: 'must be "base64" or "file"' }),
}).superRefine(({ source }, ctx) => {
  if (source.type === "file") return;
  const field = source.type === "url" ? "url" : "data";
  checkImageUrl(ctx, ["source", field], urlOfSource(source));
}).openapi("MessagesImageBlock", {
  description:
    "A PNG, JPEG, WebP or GIF image in base64, or the id of an uploaded image; URLs only of hosts that the server allows",
});

/** Returns the id of an uploaded image; "" for a source of another type. */
export function fileOfSource({ type, file_id }: { type?: unknown; file_id?: unknown }): string {
  return type === "file" && typeof file_id === "string" ? file_id : "";
}

/** Returns the URL of an image; "" for a source of another type. */
export function urlOfSource({ type, data, url }: { type?: unknown; data?: unknown; url?: unknown }): string {
  if (type === "base64" && typeof data === "string") return data && dataUrl(data);
  return type === "url" && typeof url === "string" ? url : "";
}

const toolResultBlock = z.object({
  type: z.literal("tool_result"),
  tool_use_id: callId,
  content: z.union([
    z.string(),
    boundedArray(
      z.discriminatedUnion("type", [textBlock, documentBlock, searchResultBlock, returnedImage], {
        error: 'must be "text", "document", "search_result" or "image"',
      }),
      0,
      LIMITS.contentParts,
    ),
  ], { error: "must be a text or an array of blocks" }).nullish(),
  is_error: z.boolean().nullish(),
}).openapi("MessagesToolResultBlock");

const thinkingBlock = z.object({
  type: z.literal("thinking"),
  thinking: z.string(),
  signature: z.string().nullish(),
}).openapi("MessagesThinkingBlock");

const redactedThinkingBlock = z.object({ type: z.literal("redacted_thinking"), data: z.string() });

const toolUseBlock = z.object({
  type: z.literal("tool_use"),
  id: callId,
  name: text(1, 256),
  input: callArguments,
}).openapi("MessagesToolUseBlock");

const userContent = z.union([
  z.string(),
  boundedArray(
    z.discriminatedUnion("type", [
      textBlock,
      imageBlock,
      toolResultBlock,
      documentBlock,
      searchResultBlock,
    ], {
      error:
        'must be "text", "image", "tool_result", "document" or "search_result" in a message of role user',
    }),
    0,
    LIMITS.contentParts,
  ),
], { error: "must be a text or an array of blocks" });

const assistantContent = z.union([
  z.string(),
  boundedArray(
    z.discriminatedUnion("type", [textBlock, thinkingBlock, redactedThinkingBlock, toolUseBlock], {
      error: 'must be "text", "thinking", "redacted_thinking" or "tool_use" in a message of role assistant',
    }),
    0,
    LIMITS.contentParts,
  ),
], { error: "must be a text or an array of blocks" });

export const message = z.discriminatedUnion("role", [
  z.object({ role: z.literal("user"), content: userContent }),
  z.object({ role: z.literal("assistant"), content: assistantContent }),
  z.object({ role: z.literal("system"), content: texts }),
], { error: 'must be "user", "assistant" or "system"' });

export type Message = z.output<typeof message>;
export type ToolResult = z.output<typeof toolResultBlock>;
export type Image = z.output<typeof imageBlock | typeof returnedImage>;
export type TextLike = z.output<
  typeof textBlock | typeof documentBlock | typeof searchResultBlock
>;

/** Returns the text of the blocks, joined by line breaks as the parts of an OpenAI message are. */
export function joined(content: string | readonly TextLike[]): string {
  return typeof content === "string" ? content : content.map(textOf).join("\n");
}

export function textOf(block: TextLike): string {
  switch (block.type) {
    case "text":
      return block.text;
    case "document": {
      const { source, title, context } = block;
      const body = source.type === "text" ? source.data : joined(source.content);
      return [title, context, body].filter(Boolean).join("\n");
    }
    case "search_result":
      return [block.title, block.source, joined(block.content)].filter(Boolean).join("\n");
  }
}
