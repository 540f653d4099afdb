import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import { OLLAMA_ERRORS } from "./errors.ts";

/** Refuses: no request may make the server download, write or delete models. */
export const pull = endpoint({
  method: "post",
  path: "/api/pull",
  operationId: "ollamaPull",
  tag: "Ollama",
  summary: "Refused: requests download no models",
  answer: z.object({ status: z.string() }).openapi("OllamaPull"),
  errors: OLLAMA_ERRORS,
  answers: "Never",
}, () => {
  const message =
    "This server downloads no models for requests; whoever runs it gets one with the command pull and " +
    "serves it. GET /api/tags lists the models that it has";
  throw new ApiError(403, "pull_not_allowed", message);
});
