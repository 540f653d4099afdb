import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { OLLAMA_ERRORS } from "./errors.ts";
import { entriesOf, modelEntry } from "./models.ts";

/** Expiry time for a model that stays loaded, because Ollama's clients require one. */
const NEVER = "9999-12-31T23:59:59.000Z";

const running = modelEntry.extend({
  expires_at: z.string().openapi({
    format: "date-time",
    description: "Time when the model is unloaded if no request comes",
  }),
  size_vram: z.number().int(),
  context_length: z.number().int(),
});

export const ps = endpoint({
  method: "get",
  path: "/api/ps",
  operationId: "ollamaPs",
  tag: "Ollama",
  summary: "List the models that are loaded, in Ollama's format",
  answer: z.object({ models: z.array(running) }).openapi("OllamaPs"),
  errors: OLLAMA_ERRORS,
  answers: "The models that are loaded",
}, async (_, { models }) => {
  const entries = models.list().map(async (model) => {
    const { engine, unloadsAt } = model;
    if (engine === undefined) return [];
    const [entry] = await entriesOf(model);
    return [{
      ...entry,
      expires_at: unloadsAt === undefined
        ? NEVER
        : new Date(Math.min(unloadsAt, Date.parse(NEVER))).toISOString(),
      size_vram: engine.model.backend === "webgpu" ? entry.size : 0,
      context_length: engine.model.contextLength,
    }];
  });
  return { models: (await Promise.all(entries)).flat() };
});
