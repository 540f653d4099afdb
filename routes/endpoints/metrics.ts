import { OpenAPIHono } from "@hono/zod-openapi";
import { type AppContext, type Env, onlyMethods } from "../shared/context.ts";

export function metricsRoutes({ engine, metrics }: AppContext) {
  const app = new OpenAPIHono<Env>();
  app.openAPIRegistry.registerPath({
    method: "get",
    path: "/metrics",
    summary: "Counters for Prometheus",
    responses: {
      200: {
        description: "Prometheus' text format",
        content: { "text/plain": { schema: { type: "string" } } },
      },
    },
  });
  app.get("/metrics", (c) => {
    return c.text(metrics.text(engine.stats(), engine.state), 200, {
      "content-type": "text/plain; version=0.0.4; charset=utf-8",
    });
  });
  app.all("/metrics", onlyMethods("GET"));
  return app;
}
