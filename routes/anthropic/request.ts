import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { type AskedForm, isGiven, jsonSchema } from "../generation/constraints.ts";
import {
  boundedArray,
  LIMITS,
  modelField,
  refuse,
  samplingFields,
  special,
  stopTexts,
  unsupported,
} from "../core/fields.ts";
import { checkForm } from "../generation/generation.ts";
import { type ImageSender, readImages, type SeenPlan } from "../generation/images.ts";
import { toMessages } from "../generation/messages.ts";
import { message, texts } from "./content.ts";
import { conversationOf } from "./conversation.ts";
import { checkTools, toolFields, toolForms, toolsOf } from "./tools.ts";
import { paced } from "../core/paced.ts";

/** Effort when the request gives none: the default of chat templates that know several efforts. */
const USUAL_EFFORT = "medium";
/** Error code that makes Anthropic's clients send the whole conversation instead. */
const NO_THREADS = "thread_unsupported_request";
const EFFORTS = ["low", "medium", "high", "xhigh", "max"] as const;

const shown = {
  display: z.enum(["summarized", "omitted"]).nullish().openapi({
    description: "omitted: thinking is returned only in signatures; summarized: the whole thinking",
  }),
};

const thinking = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("enabled"),
    budget_tokens: z.number().int().min(0).max(LIMITS.maxTokens).openapi({
      description: "Maximum tokens of thinking; then its end is forced",
    }),
    ...shown,
  }),
  z.object({ type: z.literal("adaptive"), ...shown }),
  z.object({ type: z.literal("disabled") }),
], { error: 'must be "enabled", "adaptive" or "disabled"' });

const format = z.object({ type: z.literal("json_schema"), schema: jsonSchema });

/** Fields that determine the prompt. */
const promptFields = {
  model: modelField,
  messages: boundedArray(message, 1, LIMITS.messages),
  system: texts.nullish(),
  ...toolFields,
  thinking: thinking.nullish().openapi({ description: "If missing, thinking is off" }),
  output_config: z.object({
    effort: z.enum(EFFORTS).nullish().openapi({
      description: "Thinking effort, for templates that support it",
    }),
    format: format.nullish(),
  }).nullish(),
  output_format: format.nullish().openapi({ description: "The older name of output_config.format" }),
  mcp_servers: special({ type: ["array", "null"], maxItems: 0, description: "Not supported" }),
  thread: special({ type: "null", description: "Not supported: the server stores nothing" }),
};

export const messagesRequest = z.object({
  ...samplingFields,
  ...promptFields,
  max_tokens: z.number().int().min(0).max(LIMITS.maxTokens).openapi({
    description: "0 only computes the prompt",
  }),
  stop_sequences: stopTexts.nullish(),
}).superRefine(checkPrompt).openapi("MessagesRequest");

export const countRequest = z.object(promptFields).superRefine(checkPrompt).openapi("CountTokensRequest");

export type MessagesBody = z.output<typeof messagesRequest>;
type PromptBody = z.output<z.ZodObject<typeof promptFields>>;

function checkPrompt(body: PromptBody, ctx: z.RefinementCtx): void {
  checkTools(body, ctx);
  if (Array.isArray(body.mcp_servers) ? body.mcp_servers.length > 0 : isGiven(body.mcp_servers)) {
    unsupported(ctx, "mcp_servers", "tools that the server would have to call");
  }
  if (isGiven(body.thread)) {
    const message =
      'Unsupported parameter "thread": this server stores no conversations; send all messages each time';
    refuse(ctx, ["thread"], NO_THREADS, message);
  }
  if (isGiven(body.output_config?.format) && isGiven(body.output_format)) {
    const message = '"output_config.format" and "output_format" both constrain the answer; send one of them';
    refuse(ctx, ["output_format"], "conflicting_parameters", message);
  }
  const choice = body.tool_choice?.type;
  const bound = formOf(body)?.param ?? (choice === "any" || choice === "tool" ? "tool_choice" : undefined);
  if (bound !== undefined && continuesLast(body)) {
    const message = `"${bound}" cannot be enforced if the answer continues the last message; ` +
      "let the conversation end with the user's message";
    refuse(ctx, bound.split("."), "conflicting_parameters", message);
  }
}

function formOf({ output_config, output_format }: PromptBody): AskedForm | undefined {
  const schema = output_config?.format?.schema ?? output_format?.schema;
  if (schema === undefined) return undefined;
  const param = output_config?.format ? "output_config.format.schema" : "output_format.schema";
  return { param, constraint: { kind: "json_schema", schema } };
}

/** Returns all forms that the request demands for parts of the answer. */
export function formsOf(body: PromptBody): AskedForm[] {
  return [formOf(body) ?? [], toolForms(body)].flat();
}

/** Returns true if the answer continues the last message: it is the assistant's and calls no tool. */
function continuesLast({ messages }: PromptBody): boolean {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return false;
  return typeof last.content === "string" || last.content.every(({ type }) => type !== "tool_use");
}

/** Returns how thoughts are returned: not at all, as text, or in signatures only. */
export function thoughtsOf({ thinking }: PromptBody): "none" | "shown" | "omitted" {
  if (!thinking || thinking.type === "disabled") return "none";
  return thinking.display === "omitted" ? "omitted" : "shown";
}

/**
 * Returns the prompt and the form of its answer. Throws ApiError, or the engine's error if the chat template refuses.
 */
export async function planOf(engine: Engine, body: PromptBody, sender: ImageSender): Promise<SeenPlan> {
  const tools = toolsOf(body);
  const { thinking } = body;
  const conversation = await paced(() => conversationOf(body));
  const { messages, images } = await readImages(engine, conversation, sender);
  const plan = await paced(() =>
    engine.chatForm.plan({
      messages: toMessages(messages),
      ...(tools ? { tools: tools.tools, toolChoice: tools.choice, parallelToolCalls: tools.parallel } : {}),
      constraint: formOf(body)?.constraint,
      effort: thoughtsOf(body) === "none" ? false : body.output_config?.effort ?? USUAL_EFFORT,
      ...(thinking?.type === "enabled" ? { thinkingBudget: thinking.budget_tokens } : {}),
      continueFinal: continuesLast(body),
    })
  );
  await checkForm(engine, plan.constraint, formsOf(body), sender);
  return { ...plan, images };
}
