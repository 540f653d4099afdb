import { OpenAPIHono, z } from "@hono/zod-openapi";
import type { BatchService } from "../../jobs/service.ts";
import type { BatchRecord, BatchView } from "../../jobs/types.ts";
import { readJson } from "../shared/body.ts";
import { type AppContext, type Env, jsonContent, onlyMethods } from "../shared/context.ts";
import { clientLeft } from "../shared/errors.ts";
import { pageOf } from "./files.ts";
import { errorAnswer } from "../shared/answers.ts";
import { check } from "../shared/check.ts";
import {
  batch,
  type BatchBody,
  batchEvent,
  type BatchEventBody,
  batchQuery,
  batchRequest,
  listOf,
  windowSeconds,
} from "../schemas/files.ts";
import { eventStream } from "../shared/sse.ts";

const DEFAULT_LIST = 20;

/** OpenAI's batches, and the progress of one as server-sent events. */
export function batchRoutes({ limits, report }: AppContext, service: BatchService) {
  const app = new OpenAPIHono<Env>();
  describe(app);

  app.post("/v1/batches", async (c) => {
    const body = check(batchRequest, await readJson(c.req.raw, limits));
    const created = service.createBatch(c.get("owner"), {
      inputFileId: body.input_file_id,
      endpoint: body.endpoint,
      completionWindow: body.completion_window,
      windowSeconds: windowSeconds(body.completion_window)!,
      metadata: body.metadata ?? null,
      strict: body.strict ?? true,
      outputSeconds: body.output_expires_after?.seconds ?? null,
    });
    return c.json(batchBody(created));
  });
  app.get("/v1/batches", (c) => {
    const { after, limit } = check(batchQuery, c.req.query());
    const { data, hasMore } = service.batches(c.get("owner"), { after, limit: limit ?? DEFAULT_LIST });
    return c.json(pageOf(data.map(batchBody), hasMore));
  });
  app.all("/v1/batches", onlyMethods("GET, POST"));

  app.get("/v1/batches/:id", (c) => c.json(batchBody(service.batch(c.get("owner"), c.req.param("id")))));
  app.all("/v1/batches/:id", onlyMethods("GET"));

  app.post("/v1/batches/:id/cancel", (c) => {
    return c.json(batchBody(service.cancelBatch(c.get("owner"), c.req.param("id"))));
  });
  app.all("/v1/batches/:id/cancel", onlyMethods("POST"));

  app.get("/v1/batches/:id/events", async (c) => {
    const abort = new AbortController();
    c.req.raw.signal.addEventListener("abort", () => abort.abort(clientLeft()), { once: true });
    const owner = c.get("owner");
    const { id } = service.batch(owner, c.req.param("id"));
    if (c.req.method === "HEAD") {
      return c.body(null, 200, { "content-type": "text/event-stream; charset=utf-8" });
    }
    return await eventStream(events(service.watch(owner, id, abort.signal)), abort, limits, report);
  });
  app.all("/v1/batches/:id/events", onlyMethods("GET"));
  return app;
}

async function* events(views: AsyncIterable<BatchView>): AsyncGenerator<BatchEventBody> {
  for await (const view of views) {
    yield {
      object: "batch.progress",
      batch: batchBody(view.batch),
      prompt_tokens_per_second: view.promptRate,
      output_tokens_per_second: view.outputRate,
      eta_seconds: view.remaining,
    };
  }
}

function batchBody(record: BatchRecord): BatchBody {
  const { counts, problems } = record;
  return {
    id: record.id,
    object: "batch",
    endpoint: record.endpoint,
    errors: problems.length > 0 ? { object: "list", data: [...problems] } : null,
    input_file_id: record.inputFileId,
    completion_window: record.completionWindow,
    status: record.status,
    output_file_id: record.outputFileId,
    error_file_id: record.errorFileId,
    created_at: record.createdAt,
    in_progress_at: record.inProgressAt,
    expires_at: record.expiresAt,
    finalizing_at: record.finalizingAt,
    completed_at: record.completedAt,
    failed_at: record.failedAt,
    expired_at: record.expiredAt,
    cancelling_at: record.cancellingAt,
    cancelled_at: record.cancelledAt,
    request_counts: { total: counts.total, completed: counts.completed, failed: counts.failed },
    usage: {
      input_tokens: counts.promptTokens,
      input_tokens_details: { cached_tokens: counts.cachedTokens },
      output_tokens: counts.outputTokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: counts.promptTokens + counts.outputTokens,
    },
    metadata: record.metadata,
  };
}

function describe(app: OpenAPIHono<Env>): void {
  const params = z.object({ id: z.string() });
  const refusal = (description: string) => ({ description, ...jsonContent(errorAnswer) });
  const one = { 200: { description: "The batch", ...jsonContent(batch) } };
  const missing = { 404: refusal("No such batch") };
  const { openAPIRegistry: registry } = app;
  registry.registerPath({
    method: "post",
    path: "/v1/batches",
    summary: "Answer the requests of an uploaded file",
    request: { body: { required: true, ...jsonContent(batchRequest) } },
    responses: { ...one, 400: refusal("A wrong field"), 404: refusal("No such file") },
  });
  registry.registerPath({
    method: "get",
    path: "/v1/batches",
    summary: "List batches, newest first",
    request: { query: batchQuery },
    responses: { 200: { description: "A page", ...jsonContent(listOf(batch, "BatchList")) } },
  });
  registry.registerPath({
    method: "get",
    path: "/v1/batches/{id}",
    summary: "Describe one batch",
    request: { params },
    responses: { ...one, ...missing },
  });
  registry.registerPath({
    method: "post",
    path: "/v1/batches/{id}/cancel",
    summary: "Stop answering; lines without an answer go to the error file",
    request: { params },
    responses: { ...one, 400: refusal("It has ended"), ...missing },
  });
  registry.registerPath({
    method: "get",
    path: "/v1/batches/{id}/events",
    summary: "Follow a batch",
    request: { params },
    responses: {
      200: {
        description:
          "An event for each change, at most one a second, until the batch has ended; then `data: [DONE]`",
        content: { "text/event-stream": { schema: batchEvent } },
      },
      ...missing,
    },
  });
}
