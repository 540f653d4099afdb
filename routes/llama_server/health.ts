import { z } from "@hono/zod-openapi";
import { endpoint } from "../core/endpoint.ts";
import { notReady, shuttingDown } from "../core/errors.ts";

const status = z.object({ status: z.literal("ready") }).openapi("Status");

const liveness = z.object({
  status: z.literal("ok"),
  device_losses: z.number().int().optional().openapi({
    description: "Times that a model's GPU was lost; absent if none was lost",
  }),
}).openapi("Health");

/** Liveness endpoint: succeeds while the process runs. */
const alive = endpoint({
  method: "get",
  path: "/health",
  operationId: "getHealth",
  tag: "Operation",
  summary: "Whether the process is alive",
  answer: liveness,
  answers: "The process is alive",
}, (_, { models }) => {
  const losses = models.list().reduce((sum, { engine }) => sum + (engine?.stats().deviceLosses ?? 0), 0);
  return { status: "ok" as const, ...losses > 0 ? { device_losses: losses } : {} };
});

/** Readiness endpoint: succeeds while the server accepts new work and has a model for it. */
const ready = endpoint({
  method: "get",
  path: "/ready",
  operationId: "getReadiness",
  tag: "Operation",
  summary: "Whether the server accepts new work",
  answer: status,
  answers: "The server accepts new work",
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
