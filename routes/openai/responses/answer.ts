import { z } from "@hono/zod-openapi";
import { storedFields } from "../../generation/answers.ts";
import { documented } from "../../core/fields.ts";

/* Answers of /v1/responses: the object, its items, and the events of a stream. */

const itemStatus = z.enum(["in_progress", "completed", "incomplete"]);

const scored = { token: z.string(), logprob: z.number(), bytes: z.array(z.number().int()) };
const logprobs = z.array(z.object({ ...scored, top_logprobs: z.array(z.object(scored)) }));

const noAnnotations = documented(z.array(z.unknown()), { type: "array", maxItems: 0 });

const outputText = z.object({
  type: z.literal("output_text"),
  text: z.string(),
  annotations: noAnnotations,
  logprobs,
});
const reasoningText = z.object({ type: z.literal("reasoning_text"), text: z.string() });
const summaryText = z.object({ type: z.literal("summary_text"), text: z.string() });

const messageItem = z.object({
  type: z.literal("message"),
  id: z.string(),
  role: z.literal("assistant"),
  status: itemStatus,
  content: z.array(outputText),
});

const reasoningItem = z.object({
  type: z.literal("reasoning"),
  id: z.string(),
  status: itemStatus,
  summary: z.array(summaryText),
  content: z.array(reasoningText).optional(),
});

const calledName = { name: z.string(), namespace: z.string().optional() };

const callItem = z.object({
  type: z.literal("function_call"),
  id: z.string(),
  call_id: z.string(),
  ...calledName,
  arguments: z.string().openapi({ description: "JSON, which follows the tool's schema" }),
  status: itemStatus,
});

const customCallItem = z.object({
  type: z.literal("custom_tool_call"),
  id: z.string(),
  call_id: z.string(),
  ...calledName,
  input: z.string(),
  status: itemStatus,
});

const shellCallItem = z.object({
  type: z.literal("local_shell_call"),
  id: z.string(),
  call_id: z.string(),
  action: z.object({
    type: z.literal("exec"),
    command: z.array(z.string()),
    env: z.record(z.string(), z.string()),
    working_directory: z.string().optional(),
    timeout_ms: z.number().optional(),
  }),
  status: itemStatus,
});

const outputItem = z.discriminatedUnion("type", [
  messageItem,
  reasoningItem,
  callItem,
  customCallItem,
  shellCallItem,
]);

const usage = z.object({
  input_tokens: z.number().int(),
  input_tokens_details: z.object({
    cached_tokens: z.number().int(),
    cache_write_tokens: z.number().int(),
    ...storedFields,
  }),
  output_tokens: z.number().int(),
  output_tokens_details: z.object({ reasoning_tokens: z.number().int() }),
  total_tokens: z.number().int(),
});

const reasonIncomplete = z.object({ reason: z.literal("max_output_tokens") });

/** Schema of the request's settings in an answer, with defaults for missing ones. */
const settings = {
  instructions: z.string().nullable(),
  max_output_tokens: z.number().int().nullable(),
  metadata: z.record(z.string(), z.string()),
  parallel_tool_calls: z.boolean(),
  reasoning: z.object({ effort: z.string().nullable(), summary: z.string().nullable() }),
  temperature: z.number(),
  text: z.object({ format: z.looseObject({ type: z.string() }) }),
  tool_choice: z.union([z.string(), z.looseObject({ type: z.string() })]),
  tools: z.array(z.looseObject({ type: z.string() })),
  top_logprobs: z.number().int(),
  top_p: z.number(),
  previous_response_id: z.string().nullable(),
  store: z.boolean().openapi({ description: "Whether the server has stored the response" }),
};

export const responseAnswer = z.object({
  id: z.string(),
  object: z.literal("response"),
  created_at: z.number().int(),
  completed_at: z.number().int().nullable(),
  status: z.enum(["in_progress", "completed", "incomplete", "failed", "cancelled"]),
  background: z.literal(false),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  incomplete_details: reasonIncomplete.nullable(),
  model: z.string(),
  output: z.array(outputItem),
  truncation: z.literal("disabled"),
  usage: usage.nullable(),
  ...settings,
}).openapi("Response");

export type ResponseSettings = z.output<z.ZodObject<typeof settings>>;
export type ResponseAnswer = z.output<typeof responseAnswer>;
export type OutputItem = z.output<typeof outputItem>;
export type ItemStatus = z.output<typeof itemStatus>;
export type ResponseLogprobs = z.output<typeof logprobs>;
export type ResponseUsage = z.output<typeof usage>;

function event<Fields extends z.ZodRawShape>(type: string, fields: Fields) {
  return z.object({ type: z.literal(type), sequence_number: z.number().int(), ...fields });
}

const inItem = { item_id: z.string(), output_index: z.number().int() };
const inContent = { ...inItem, content_index: z.number().int() };
const inSummary = { ...inItem, summary_index: z.number().int() };
const contentPart = z.discriminatedUnion("type", [outputText, reasoningText]);

const errorFields = { message: z.string(), param: z.string().nullable(), code: z.string().nullable() };

/** An event of a stream. OpenAI's client has a type for each. */
export const responseEvent = z.discriminatedUnion("type", [
  ...["created", "in_progress", "completed", "incomplete", "failed"].map((what) =>
    event(`response.${what}`, { response: responseAnswer })
  ),
  ...["added", "done"].map((what) =>
    event(`response.output_item.${what}`, { output_index: z.number().int(), item: outputItem })
  ),
  ...["added", "done"].map((what) =>
    event(`response.content_part.${what}`, { ...inContent, part: contentPart })
  ),
  event("response.output_text.delta", { ...inContent, delta: z.string(), logprobs }),
  event("response.output_text.done", { ...inContent, text: z.string(), logprobs }),
  event("response.reasoning_text.delta", { ...inContent, delta: z.string() }),
  event("response.reasoning_text.done", { ...inContent, text: z.string() }),
  ...["added", "done"].map((what) =>
    event(`response.reasoning_summary_part.${what}`, { ...inSummary, part: summaryText })
  ),
  event("response.reasoning_summary_text.delta", { ...inSummary, delta: z.string() }),
  event("response.reasoning_summary_text.done", { ...inSummary, text: z.string() }),
  event("response.function_call_arguments.delta", { ...inItem, delta: z.string() }),
  event("response.function_call_arguments.done", { ...inItem, name: z.string(), arguments: z.string() }),
  event("response.custom_tool_call_input.delta", { ...inItem, delta: z.string() }),
  event("response.custom_tool_call_input.done", { ...inItem, input: z.string() }),
  event("error", {
    ...errorFields,
    error: z.object({ type: z.string(), ...errorFields }).catchall(z.number()),
  }),
] as unknown as [ReturnType<typeof event>, ...ReturnType<typeof event>[]]);
