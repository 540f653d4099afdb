import { z } from "@hono/zod-openapi";
import { endpoint } from "../shared/endpoint.ts";
import { notReady, shuttingDown } from "../shared/errors.ts";

const status = z.object({ status: z.enum(["ok", "ready"]) }).openapi("Status");

/** The process lives. */
const alive = endpoint({
  method: "get",
  path: "/health",
  operationId: "getHealth",
  tag: "Operation",
  summary: "Whether the process lives",
  answer: status,
  answers: "It does",
}, () => ({ status: "ok" as const }));

/** It takes new work, and its engine is ready. */
const ready = endpoint({
  method: "get",
  path: "/ready",
  operationId: "getReadiness",
  tag: "Operation",
  summary: "Whether new work is welcome",
  answer: status,
  answers: "It is",
  refusals: {
    503: "The model is being loaded, has failed, or the server is shutting down: `code` says which",
  },
}, (_, { engine, lifecycle }) => {
  if (lifecycle.draining) throw shuttingDown();
  const refusal = notReady(engine.state);
  if (refusal) throw refusal;
  return { status: "ready" as const };
});

export const health = [alive, ready];
