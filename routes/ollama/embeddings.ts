import { z } from "@hono/zod-openapi";
import { generation } from "../generation/generation_endpoint.ts";
import { OLLAMA_ERRORS } from "./errors.ts";
import { loadOrUnload, modelFields, modelsFor } from "./models.ts";
import { options } from "./options.ts";
import { rowsOf } from "./rows.ts";

const request = z.object({
  ...modelFields,
  prompt: z.string().nullish().openapi({ description: "If missing, the model is only loaded" }),
  options,
}).openapi("OllamaEmbeddingsRequest");

/** Endpoint /api/embeddings, the predecessor of /api/embed. */
export const embeddings = generation({
  path: "/api/embeddings",
  operationId: "ollamaEmbeddings",
  tag: "Ollama",
  ability: "embeddings",
  summary: "A vector of length 1 for one text, in Ollama's older format",
  request,
  answer: z.object({ embedding: z.array(z.number()) }).openapi("OllamaEmbeddings"),
  errors: OLLAMA_ERRORS,
  example: { model: "demo", prompt: "a fox in the snow" },
  forms: () => [],
  modelsFor,
  async instead(models, body, signal) {
    if (body.prompt) return undefined;
    await loadOrUnload(models, body, signal);
    return Response.json({ embedding: [] });
  },
  prepare(engine, { prompt, options }, runOptions) {
    const asked = { texts: [prompt!], param: "prompt", options, truncate: true };
    return Promise.resolve({
      stream: false,
      answer: async (signal) => {
        const { rows: [embedding] } = await rowsOf(engine, asked, runOptions, signal);
        return { embedding };
      },
    });
  },
});
