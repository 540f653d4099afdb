import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { refuse, special, unsupported } from "../core/fields.ts";
import type { AskedForm } from "../generation/constraints.ts";
import { type Prepared, promptTokens, type RunOptions } from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { infillPrompt } from "../generation/infill_prompt.ts";
import { emptyAnswer, generateAnswer } from "./answer.ts";
import { checkImages, images, withImages } from "./conversation.ts";
import { OLLAMA_ERRORS } from "./errors.ts";
import { loadOrUnload, modelsFor } from "./models.ts";
import { contextOf } from "./options.ts";
import { answerFields, checkAnswer, formOf, planOf, prepareAnswer } from "./request.ts";
import { paced } from "../core/paced.ts";

/** Share of the context reserved for the answer in a gap. */
const ANSWER_SHARE = 1 / 8;

const request = z.object({
  ...answerFields,
  prompt: z.string().nullish().openapi({
    description: "If missing, without images, the model is only loaded",
  }),
  suffix: z.string().nullish().openapi({
    description: "Text after the answer, for models that fill gaps",
  }),
  system: z.string().nullish(),
  raw: z.boolean().nullish().openapi({
    description: "The prompt is the whole text, without the chat template",
  }),
  context: special({ type: ["array", "null"], maxItems: 0, description: "Not supported; use /api/chat" }),
  images,
}).superRefine((body, ctx) => {
  checkAnswer(body, ctx);
  checkImages(body, ctx);
  const { context } = body;
  if (context !== undefined && context !== null && !(Array.isArray(context) && context.length === 0)) {
    unsupported(ctx, "context", "earlier turns as tokens (/api/chat takes messages)");
  }
  if (!isPlain(body)) return;
  for (const field of ["system", "think", "images"] as const) {
    if (!body[field] || Array.isArray(body[field]) && body[field].length === 0) continue;
    const message =
      `"${field}" needs the chat template, which "raw" and "suffix" leave out; send one of them`;
    refuse(ctx, [field], "conflicting_parameters", message);
  }
}).openapi("OllamaGenerateRequest");

type Body = z.output<typeof request>;

export const generate = generation({
  path: "/api/generate",
  operationId: "ollamaGenerate",
  tag: "Ollama",
  summary: "Answer a prompt, continue a text or fill a gap in Ollama's format",
  request,
  answer: generateAnswer,
  chunk: { name: "OllamaGenerate", schema: generateAnswer, lines: true },
  errors: OLLAMA_ERRORS,
  example: { model: "demo", prompt: "Who are you?", options: { num_predict: 40 } },
  forms: formsOf,
  prepare,
  modelsFor,
  async instead(models, body, signal) {
    if (body.prompt || body.suffix || body.images?.length) return undefined;
    const done = await loadOrUnload(models, body, signal);
    return Response.json(emptyAnswer(body.model ?? "", "response", done));
  },
});

/** Returns true if the prompt is a raw text, not a message of a conversation. */
function isPlain({ raw, suffix }: Body): boolean {
  return raw === true || Boolean(suffix);
}

function formsOf(body: Body): AskedForm[] {
  return [formOf(body) ?? []].flat();
}

async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const { system } = body;
  const prompt = body.prompt ?? "";
  const messages = [
    ...(system ? [{ role: "system" as const, content: system }] : []),
    { role: "user" as const, content: withImages(prompt, body.images) },
  ];
  const plan = isPlain(body)
    ? {
      prompt: await paced(() => body.suffix ? gapTokens(engine, body) : promptTokens(engine, prompt)),
      constraint: formOf(body)?.constraint,
      images: [],
    }
    : await planOf(engine, body, options, { messages });
  return await prepareAnswer(engine, body, options, plan, { forms: formsOf(body), form: "response" });
}

function gapTokens(engine: Engine, { prompt, suffix, options }: Body): number[] {
  return infillPrompt(engine, {
    prefix: prompt?.toWellFormed() ?? "",
    suffix: suffix!.toWellFormed(),
    start: "",
    files: [],
    room: Math.ceil(contextOf(engine, options) * ANSWER_SHARE),
  }).tokens;
}
