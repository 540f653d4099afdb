import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { generationFields, LIMITS, refuse, special, unsupported } from "../core/fields.ts";
import { type AskedForm, checkForms, constraintFields, formOf } from "./constraints.ts";
import { checkForm } from "./generation.ts";
import { type ImageSender, readImages, type SeenPlan } from "./images.ts";
import { checkPrefill, continuesLast, prefillFields, promptFields, toMessages } from "./messages.ts";
import { checkReasoning, reasoningFields, reasoningOf } from "./reasoning.ts";
import { checkTools, toolFields, toolForms, toolsOf } from "./tools.ts";
import { paced } from "../core/paced.ts";

/** Schema of a conversation in OpenAI's format, with all fields that determine its prompt and answer. */
export const chatRequest = z.object({
  ...generationFields,
  ...promptFields,
  ...prefillFields,
  ...constraintFields,
  ...toolFields,
  ...reasoningFields,
  max_completion_tokens: generationFields.max_tokens.openapi({ description: "Supersedes max_tokens" }),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish().openapi({
    description: "Needs logprobs: true",
  }),
  modalities: special({ type: ["array", "null"], items: { type: "string", enum: ["text"] } }),
}).superRefine((body, ctx) => {
  checkForms(body, ctx);
  checkTools(body, ctx);
  checkReasoning(body, ctx);
  checkPrefill(body, ctx);
  checkContinued(body, ctx);
  if (body.top_logprobs && !body.logprobs) {
    refuse(ctx, ["top_logprobs"], "invalid_value", 'Invalid "top_logprobs": needs "logprobs": true');
  }
  const modalities = body.modalities ?? ["text"];
  if (!Array.isArray(modalities) || modalities.some((modality) => modality !== "text")) {
    unsupported(ctx, "modalities", "any output other than text");
  }
}).openapi("ChatCompletionRequest", {
  anyOf: [
    { properties: { top_logprobs: { enum: [0, null] } } },
    { properties: { logprobs: { type: "boolean", enum: [true] } }, required: ["logprobs"] },
  ],
});

export type ChatBody = z.output<typeof chatRequest>;

/**
 * Refuses a constraint or a forced call if the answer continues a message: the client wrote the message's beginning,
 * which may not match the constraint.
 */
function checkContinued(body: ChatBody, ctx: z.RefinementCtx): void {
  if (!continuesLast(body)) return;
  const form = formOf(body);
  const choice = toolsOf(body)?.choice ?? "auto";
  const forced = choice === "required" || typeof choice === "object";
  const param = form?.param ?? (forced ? body.tool_choice ? "tool_choice" : "function_call" : undefined);
  if (param === undefined) return;
  const message = `"${param}" cannot be enforced if the answer continues the last message; ` +
    'let the conversation end with the user\'s message, or send "add_generation_prompt": true';
  refuse(ctx, param.split("."), "conflicting_parameters", message);
}

/** Returns all constraints that the request has for parts of the answer. */
export function chatForms(body: ChatBody): AskedForm[] {
  return [formOf(body) ?? [], toolForms(toolsOf(body))].flat();
}

/**
 * Returns the prompt and the constraint of its answer. Throws ApiError, or the engine's error if the chat template
 * refuses the conversation.
 */
export async function chatPlan(
  engine: Engine,
  body: ChatBody,
  sender: ImageSender,
): Promise<SeenPlan> {
  const { messages, images } = await readImages(engine, body.messages, sender);
  const tools = toolsOf(body);
  const variables = body.chat_template_kwargs ?? {};
  const plan = await paced(() =>
    engine.chatForm.plan({
      messages: toMessages(messages),
      ...(tools ? { tools: tools.tools, toolChoice: tools.choice, parallelToolCalls: tools.parallel } : {}),
      constraint: formOf(body)?.constraint,
      ...reasoningOf(body, variables),
      variables,
      continueFinal: continuesLast(body),
    })
  );
  await checkForm(engine, plan.constraint, chatForms(body), sender);
  return { ...plan, images };
}
