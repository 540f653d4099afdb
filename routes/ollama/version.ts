import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { OLLAMA_ERRORS } from "./errors.ts";

/** The version of Ollama whose API these endpoints follow: clients choose features by it. */
const FOLLOWED = "0.13.4";

export const version = endpoint({
  method: "get",
  path: "/api/version",
  operationId: "ollamaVersion",
  tag: "Ollama",
  summary: "The version of Ollama whose API the server follows",
  answer: z.object({ version: z.string() }).openapi("OllamaVersion"),
  errors: OLLAMA_ERRORS,
  answers: "The version",
}, () => ({ version: FOLLOWED }));
