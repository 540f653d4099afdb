import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { notReady, shuttingDown } from "../core/errors.ts";

const status = z.object({ status: z.literal("ready") }).openapi("Status");

const liveness = z.object({
  status: z.literal("ok"),
  device_losses: z.number().int().optional().openapi({
    description: "Times that a GPU was lost on which a model was computed; left out where none was",
  }),
}).openapi("Health");

/** Succeeds while the process runs. */
const alive = endpoint({
  method: "get",
  path: "/health",
  operationId: "getHealth",
  tag: "Operation",
  summary: "Whether the process lives",
  answer: liveness,
  answers: "It does",
}, (_, { models }) => {
  const losses = models.list().reduce((sum, { engine }) => sum + (engine?.stats().deviceLosses ?? 0), 0);
  return { status: "ok" as const, ...losses > 0 ? { device_losses: losses } : {} };
});

/** Succeeds while the server takes new work and has a model for it. */
const ready = endpoint({
  method: "get",
  path: "/ready",
  operationId: "getReadiness",
  tag: "Operation",
  summary: "Whether new work is welcome",
  answer: status,
  answers: "It is",
  refusals: {
    503: "Every model is being loaded or has failed, or the server is shutting down: `code` says which",
  },
}, (_, { models, lifecycle }) => {
  if (lifecycle.draining) throw shuttingDown();
  const refusal = notReady(models.list().map(({ state }) => state));
  if (refusal) throw refusal;
  return { status: "ready" as const };
});

export const health = [alive, ready];
