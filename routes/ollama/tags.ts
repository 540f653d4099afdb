import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { OLLAMA_ERRORS } from "./errors.ts";
import { entriesOf, modelEntry } from "./models.ts";

export const tags = endpoint({
  method: "get",
  path: "/api/tags",
  operationId: "ollamaTags",
  tag: "Ollama",
  summary: "List the models in Ollama's format",
  answer: z.object({ models: z.array(modelEntry) }).openapi("OllamaTags"),
  errors: OLLAMA_ERRORS,
  answers: "The models, one entry for each of their names",
}, async (_, { models }) => ({ models: (await Promise.all(models.list().map(entriesOf))).flat() }));
