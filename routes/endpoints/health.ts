import { OpenAPIHono, z } from "@hono/zod-openapi";
import { type AppContext, type Env, jsonContent, onlyMethods } from "../shared/context.ts";
import { notReady, shuttingDown } from "../shared/errors.ts";
import { errorAnswer } from "../shared/answers.ts";

const status = z.object({ status: z.enum(["ok", "ready"]) }).openapi("Status");

/** `/health`: the process lives. `/ready`: it takes new work, and its engine is ready. */
export function healthRoutes({ engine, lifecycle }: AppContext) {
  const app = new OpenAPIHono<Env>();
  app.openAPIRegistry.registerPath({
    method: "get",
    path: "/health",
    summary: "Whether the process lives",
    responses: { 200: { description: "It does", ...jsonContent(status) } },
  });
  app.get("/health", (c) => c.json<z.output<typeof status>>({ status: "ok" }));
  app.all("/health", onlyMethods("GET"));

  app.openAPIRegistry.registerPath({
    method: "get",
    path: "/ready",
    summary: "Whether new work is welcome",
    responses: {
      200: { description: "It is", ...jsonContent(status) },
      503: {
        description:
          "The model is being loaded, has failed, or the server is shutting down: `code` says which",
        ...jsonContent(errorAnswer),
      },
    },
  });
  app.get("/ready", (c) => {
    if (lifecycle.draining) throw shuttingDown();
    const refusal = notReady(engine.state);
    if (refusal) throw refusal;
    return c.json<z.output<typeof status>>({ status: "ready" });
  });
  app.all("/ready", onlyMethods("GET"));
  return app;
}
