import { OpenAPIHono, type z } from "@hono/zod-openapi";
import { readJson } from "./shared/body.ts";
import { type AppContext, type Env, jsonContent, onlyMethods } from "./shared/context.ts";
import { clientLeft } from "./shared/errors.ts";
import { type ExecutableUrl, prepare } from "./execute.ts";
import { errorAnswer } from "./shared/answers.ts";
import { eventStream } from "./shared/sse.ts";
import { wholeAnswer } from "./shared/whole_answer.ts";

interface GenerationSchemas {
  readonly summary: string;
  readonly request: z.ZodType;
  readonly answer: z.ZodType;
  /** One event of the stream. */
  readonly chunk: z.ZodType;
}

/** An endpoint that answers with a text, whole or streamed. A client that leaves cancels its work. */
export function generationRoutes(context: AppContext, url: ExecutableUrl, schemas: GenerationSchemas) {
  const app = new OpenAPIHono<Env>();
  const refusal = (description: string) => ({ description, ...jsonContent(errorAnswer) });
  app.openAPIRegistry.registerPath({
    method: "post",
    path: url,
    summary: schemas.summary,
    request: { body: { required: true, ...jsonContent(schemas.request) } },
    responses: {
      200: {
        description: "The answer, or with `stream` its chunks as server-sent events, then `data: [DONE]`",
        content: {
          "application/json": { schema: schemas.answer },
          "text/event-stream": { schema: schemas.chunk },
        },
      },
      400: refusal("A wrong or unsupported field, or a prompt longer than the context"),
      404: refusal("Another model than the one that runs"),
      429: refusal("The queue is full; come back after `retry-after` seconds"),
    },
  });
  app.post(url, async (c) => {
    const abort = new AbortController();
    c.req.raw.signal.addEventListener("abort", () => abort.abort(clientLeft()), { once: true });
    const body = await readJson(c.req.raw, context.limits);
    const prepared = prepare(context.engine, url, body, { cacheSalt: c.get("cacheSalt") });
    return prepared.stream
      ? await eventStream(prepared.chunks(abort.signal), abort, context.limits, context.report)
      : await wholeAnswer(prepared.answer(abort.signal), abort, context.limits, context.report);
  });
  app.all(url, onlyMethods("POST"));
  return app;
}
