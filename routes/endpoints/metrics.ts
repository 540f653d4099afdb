import { endpoint } from "../shared/endpoint.ts";

export const metrics = endpoint({
  method: "get",
  path: "/metrics",
  operationId: "getMetrics",
  tag: "Operation",
  summary: "Counters for Prometheus",
  content: { "text/plain": { type: "string" } },
  answers: "Prometheus' text format",
}, (_, { models, metrics, connections }) => {
  const headers = { "content-type": "text/plain; version=0.0.4; charset=utf-8" };
  return new Response(metrics.text(models.list(), connections()), { headers });
});
