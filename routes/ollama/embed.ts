import { z } from "@hono/zod-openapi";
import { boundedArray, documented, LIMITS } from "../core/fields.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { nanosecondsOf } from "./answer.ts";
import { OLLAMA_ERRORS } from "./errors.ts";
import { loadOrUnload, modelFields, modelsFor } from "./models.ts";
import { options } from "./options.ts";
import { rowsOf } from "./rows.ts";

const request = z.object({
  ...modelFields,
  input: z.union([z.string(), boundedArray(z.string(), 0, LIMITS.texts)], {
    error: `must be a text or an array of up to ${LIMITS.texts} texts`,
  }).openapi({ description: "If there is no text, the model is only loaded" }),
  truncate: z.boolean().nullish().openapi({
    description: "true, the default: a text longer than the context is truncated at its end",
  }),
  dimensions: documented(z.number().int().min(0).max(LIMITS.maxTokens).nullish(), {
    type: ["integer", "null"],
    description:
      "Number of leading floats to keep of each row, which is then scaled to length 1; 0, the default, keeps all",
  }),
  options,
}).openapi("OllamaEmbedRequest");

const answer = z.object({
  model: z.string(),
  embeddings: z.array(z.array(z.number())),
  total_duration: z.number().int().optional(),
  load_duration: z.number().int().optional(),
  prompt_eval_count: z.number().int().optional(),
}).openapi("OllamaEmbed");

export const embed = generation({
  path: "/api/embed",
  operationId: "ollamaEmbed",
  tag: "Ollama",
  ability: "embeddings",
  summary: "A vector of length 1 for each text, in Ollama's format",
  request,
  answer,
  errors: OLLAMA_ERRORS,
  example: { model: "demo", input: ["a fox in the snow", "a hare in the grass"] },
  forms: () => [],
  modelsFor,
  async instead(models, body, signal) {
    if (body.input.length > 0) return undefined;
    await loadOrUnload(models, body, signal);
    return Response.json({ model: body.model ?? "", embeddings: [] });
  },
  prepare(engine, body, runOptions) {
    const started = performance.now();
    const { loadMs = 0 } = runOptions;
    const asked = {
      texts: typeof body.input === "string" ? [body.input] : body.input,
      param: "input",
      options: body.options,
      truncate: body.truncate ?? true,
      dimensions: body.dimensions || undefined,
    };
    return Promise.resolve({
      stream: false,
      answer: async (signal) => {
        const { rows, tokens } = await rowsOf(engine, asked, runOptions, signal);
        return {
          model: body.model ?? engine.model.id,
          embeddings: rows,
          total_duration: nanosecondsOf(loadMs + performance.now() - started),
          load_duration: nanosecondsOf(loadMs),
          prompt_eval_count: tokens,
        };
      },
    });
  },
});
