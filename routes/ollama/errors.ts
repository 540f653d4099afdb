import { z } from "@hono/zod-openapi";
import type { ApiError, ErrorShape } from "../core/errors.ts";

/** Ollama's error format, plus our code and field name. */
export const OLLAMA_ERRORS: ErrorShape = {
  name: "OllamaError",
  schema: z.object({ error: z.string(), code: z.string(), param: z.string().nullable() })
    .catchall(z.number()).openapi("OllamaError"),
  body: ({ message, code, param, details }: ApiError) => ({ error: message, code, param, ...details }),
};
