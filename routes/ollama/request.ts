import { z } from "@hono/zod-openapi";
import { type ChatRequest, type Engine, promptLength } from "../../engine/mod.ts";
import { ApiError } from "../core/errors.ts";
import { LIMITS, refuse, special, unsupported } from "../core/fields.ts";
import { ANY_OBJECT, type AskedForm, jsonForm, jsonSchema } from "../generation/constraints.ts";
import {
  checkForm,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
} from "../generation/generation.ts";
import { type ImageSender, readImages, type SeenPlan } from "../generation/images.ts";
import { type ChatMessageBody, toMessages } from "../generation/messages.ts";
import { answerChunks, type AnswerForm, chunkOf, wholeAnswer } from "./answer.ts";
import { modelFields } from "./models.ts";
import { generationOptions, maxTokensOf, options } from "./options.ts";
import { paced } from "../core/paced.ts";

/** Effort of `think: true`: the default of chat templates that know several efforts. */
const USUAL_EFFORT = "medium";

const format = z.union([z.enum(["", "json"]), jsonSchema], { error: 'must be "json" or a JSON schema' });

const think = z.union([z.boolean(), z.enum(["low", "medium", "high", "max"])], {
  error: 'must be true, false, "low", "medium", "high" or "max"',
});

/** Fields that Ollama's chats and generations share. */
export const answerFields = {
  ...modelFields,
  format: format.nullish(),
  think: think.nullish().openapi({
    description: "Templates that support reasoning efforts get a string value",
  }),
  options,
  stream: z.boolean().nullish().openapi({ description: "Default true" }),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(LIMITS.topLogprobs).nullish(),
  template: special({ enum: ["", null], description: "Not supported" }),
  truncate: special({ enum: [false, null], description: "Long prompts are refused, never truncated" }),
  shift: special({ enum: [false, null], description: "An answer ends when the context is full" }),
};

type Fields = z.output<z.ZodObject<typeof answerFields>>;

export function checkAnswer(body: Fields, ctx: z.RefinementCtx): void {
  if (body.template) unsupported(ctx, "template", "other templates than the model's");
  if (body.truncate) unsupported(ctx, "truncate", "prompts that are cut");
  if (body.shift) unsupported(ctx, "shift", "context shifting");
  if (body.top_logprobs && !body.logprobs) {
    refuse(ctx, ["top_logprobs"], "invalid_value", 'Invalid "top_logprobs": needs "logprobs": true');
  }
}

/** Returns the form of the answer that `format` requests. */
export function formOf({ format }: Fields): AskedForm | undefined {
  if (format === undefined || format === null || format === "") return undefined;
  return { param: "format", constraint: format === "json" ? ANY_OBJECT : jsonForm(format) };
}

/** Returns the plan of a conversation. Throws ApiError, or the engine's error if the chat template refuses. */
export async function planOf(
  engine: Engine,
  body: Fields,
  sender: ImageSender,
  chat: Pick<ChatRequest, "tools" | "continueFinal"> & { readonly messages: readonly ChatMessageBody[] },
): Promise<SeenPlan> {
  const { think } = body;
  const { messages, images } = await readImages(engine, chat.messages, sender);
  const plan = await paced(() =>
    engine.chatForm.plan({
      ...chat,
      messages: toMessages(messages),
      constraint: formOf(body)?.constraint,
      ...(think === undefined || think === null ? {} : { effort: think === true ? USUAL_EFFORT : think }),
    })
  );
  if (!think || plan.thinking) return { ...plan, images };
  const message = `The model "${engine.model.id}" does not support thinking; leave "think" out`;
  throw new ApiError(400, "not_supported", message, { param: "think" });
}

/** Prepares the request. `forms`: all forms that it demands for parts of the answer. Throws ApiError. */
export async function prepareAnswer(
  engine: Engine,
  body: Fields,
  runOptions: RunOptions,
  plan: Pick<SeenPlan, "prompt" | "images"> & Partial<SeenPlan>,
  { forms, form }: { readonly forms: readonly AskedForm[]; readonly form: AnswerForm },
): Promise<Prepared> {
  const started = performance.now();
  await checkForm(engine, plan.constraint, forms, runOptions);
  const request = {
    ...engineRequest(engine, generationOptions(body.options), runOptions),
    ...plan,
    maxTokens: maxTokensOf(engine, body.options, promptLength(plan, engine.tokenizer)),
    logprobs: body.logprobs ? body.top_logprobs ?? 0 : undefined,
  };
  const { loadMs = 0 } = runOptions;
  const shape = {
    model: body.model ?? engine.model.id,
    form,
    started: started - loadMs,
    loadMs,
    logprobs: body.logprobs ?? false,
  };
  const run = (signal: AbortSignal) => generate(engine, [request], signal);
  return {
    stream: body.stream ?? true,
    answer: (signal) => wholeAnswer(engine, shape, run(signal)),
    chunks: (signal) => answerChunks(engine, shape, run(signal)),
    waiting: () => chunkOf(shape, {}),
  };
}
