import { z } from "@hono/zod-openapi";
import { storedFields } from "../generation/answers.ts";

/** Answers and events in Anthropic's format. Fields that only Anthropic's own models have are null. */

/** The block has no `citations`: clients' schemas, such as those of `@ai-sdk/anthropic`, refuse null there. */
const textBlock = z.object({ type: z.literal("text"), text: z.string() });
const thinkingBlock = z.object({ type: z.literal("thinking"), thinking: z.string(), signature: z.string() });
const toolUseBlock = z.object({
  type: z.literal("tool_use"),
  id: z.string(),
  name: z.string(),
  input: z.record(z.string(), z.unknown()).openapi({
    description: "Matches the tool's schema; {} if the answer ends inside it",
  }),
  caller: z.object({ type: z.literal("direct") }),
});
const contentBlock = z.discriminatedUnion("type", [textBlock, thinkingBlock, toolUseBlock]);

const stopReason = z.enum([
  "end_turn",
  "max_tokens",
  "stop_sequence",
  "tool_use",
  "model_context_window_exceeded",
]);

const usage = z.object({
  input_tokens: z.number().int().openapi({ description: "Prompt tokens that were not found in the cache" }),
  cache_creation_input_tokens: z.number().int(),
  cache_read_input_tokens: z.number().int(),
  output_tokens: z.number().int(),
  output_tokens_details: z.object({ thinking_tokens: z.number().int() }),
  server_tool_use: z.null(),
  ...storedFields,
});

const ending = {
  stop_reason: stopReason.nullable(),
  stop_sequence: z.string().nullable(),
  stop_details: z.null(),
  container: z.null(),
};

export const messageAnswer = z.object({
  id: z.string(),
  type: z.literal("message"),
  role: z.literal("assistant"),
  model: z.string(),
  content: z.array(contentBlock),
  ...ending,
  usage: usage.extend({
    cache_creation: z.null(),
    inference_geo: z.null(),
    service_tier: z.literal("standard"),
    speed: z.null(),
  }),
}).openapi("Message");

const index = z.number().int();

const delta = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text_delta"), text: z.string() }),
  z.object({ type: z.literal("thinking_delta"), thinking: z.string() }),
  z.object({ type: z.literal("signature_delta"), signature: z.string() }),
  z.object({ type: z.literal("input_json_delta"), partial_json: z.string() }),
]);

export const messageEvent = z.discriminatedUnion("type", [
  z.object({ type: z.literal("message_start"), message: messageAnswer }),
  z.object({ type: z.literal("ping") }),
  z.object({ type: z.literal("content_block_start"), index, content_block: contentBlock }),
  z.object({ type: z.literal("content_block_delta"), index, delta }),
  z.object({ type: z.literal("content_block_stop"), index }),
  z.object({ type: z.literal("message_delta"), delta: z.object(ending), usage }),
  z.object({ type: z.literal("message_stop") }),
]);

export type MessageAnswer = z.output<typeof messageAnswer>;
export type MessageEvent = z.output<typeof messageEvent>;
export type ContentBlock = z.output<typeof contentBlock>;
export type MessageUsage = z.output<typeof usage>;
export type StopReason = z.output<typeof stopReason>;
