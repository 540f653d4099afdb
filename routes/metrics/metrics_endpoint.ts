import { endpoint } from "../core/endpoint.ts";

export const metrics = endpoint({
  method: "get",
  path: "/metrics",
  operationId: "getMetrics",
  tag: "Operation",
  summary: "Figures for Prometheus",
  content: { "text/plain": { type: "string" } },
  answers: "Prometheus' text format",
}, async (_, { metrics }) => {
  return new Response(await metrics.text(), { headers: { "content-type": metrics.contentType } });
});
