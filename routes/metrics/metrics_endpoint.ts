import { endpoint } from "../core/endpoint.ts";

export const metrics = endpoint({
  method: "get",
  path: "/metrics",
  operationId: "getMetrics",
  tag: "Operation",
  summary: "Figures for Prometheus",
  content: { "text/plain": { type: "string" } },
  answers: "Prometheus' text format",
}, (_, { metrics }) => new Response(metrics.text(), { headers: { "content-type": metrics.contentType } }));
