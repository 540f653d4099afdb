import { z } from "@hono/zod-openapi";
import type { BatchRecord, BatchView } from "../../jobs/types.ts";
import { GENERATION_URLS } from "../generations.ts";
import { abortWhenLeft } from "../core/client.ts";
import { storage } from "../core/context.ts";
import { endpoint } from "../core/endpoint.ts";
import { metadata, text } from "../core/fields.ts";
import { cursor, digits, expiry, listOf, pageOf } from "../core/lists.ts";
import { eventStream } from "../core/sse.ts";

/* OpenAI's batches, and the progress of a batch as server-sent events. */

const DEFAULT_LIST = 20;

/** Pattern of a batch's completion window: 1h to 720h, 1d to 30d. */
const WINDOW = /^(?:(?:[1-9][0-9]?|[1-6][0-9]{2}|7[01][0-9]|720)h|(?:[1-9]|[12][0-9]|30)d)$/;

function windowSeconds(window: string): number {
  return parseInt(window) * (window.endsWith("h") ? 3600 : 24 * 3600);
}

const request = z.object({
  input_file_id: text(1, 100).openapi({ example: "file-0123456789abcdef" }),
  endpoint: z.enum(GENERATION_URLS),
  completion_window: z.string().regex(WINDOW, {
    error: 'must be 1h to 720h, or 1d to 30d, such as "24h"',
  }).openapi({
    description: "Time after which unanswered lines expire: 1h to 720h, or 1d to 30d",
    example: "24h",
  }),
  metadata,
  output_expires_after: expiry.nullish(),
  strict: z.boolean().nullish().openapi({
    description:
      "Whether the batch fails if any line is bad (default true); false writes bad lines to the error file",
  }),
}).openapi("BatchRequest");

const status = z.enum([
  "validating",
  "failed",
  "in_progress",
  "finalizing",
  "completed",
  "expired",
  "cancelling",
  "cancelled",
]);

const time = z.number().int().nullable();

const batch = z.object({
  id: z.string(),
  object: z.literal("batch"),
  endpoint: z.string(),
  errors: z.object({
    object: z.literal("list"),
    data: z.array(z.object({
      code: z.string(),
      line: z.number().int().nullable(),
      message: z.string(),
      param: z.string().nullable(),
    })),
  }).nullable(),
  input_file_id: z.string(),
  completion_window: z.string(),
  status,
  output_file_id: z.string().nullable(),
  error_file_id: z.string().nullable(),
  created_at: z.number().int(),
  in_progress_at: time,
  expires_at: time,
  finalizing_at: time,
  completed_at: time,
  failed_at: time,
  expired_at: time,
  cancelling_at: time,
  cancelled_at: time,
  request_counts: z.object({
    total: z.number().int(),
    completed: z.number().int(),
    failed: z.number().int(),
  }),
  usage: z.object({
    input_tokens: z.number().int(),
    input_tokens_details: z.object({ cached_tokens: z.number().int() }),
    output_tokens: z.number().int(),
    output_tokens_details: z.object({ reasoning_tokens: z.number().int() }),
    total_tokens: z.number().int(),
  }),
  metadata: z.record(z.string(), z.string()).nullable(),
}).openapi("Batch");

const batchEvent = z.object({
  object: z.literal("batch.progress"),
  batch,
  prompt_tokens_per_second: z.number().nullable(),
  output_tokens_per_second: z.number().nullable(),
  eta_seconds: z.number().nullable(),
});

const params = z.object({ id: z.string().openapi({ example: "batch_0123456789abcdef" }) });
const missing = { 404: "No such batch" };

const create = endpoint({
  method: "post",
  path: "/v1/batches",
  operationId: "createBatch",
  tag: "Batches",
  summary: "Answer the requests of an uploaded file",
  body: request,
  example: {
    input_file_id: "file-0123456789abcdef",
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
    metadata: { name: "evaluation" },
  },
  answer: batch,
  answers: "The batch",
  leadsTo: ["retrieveBatch", "followBatch", "cancelBatch"],
  refusals: { 404: "No such file", 507: "No room for the batch" },
}, ({ body, owner }, context) => {
  const created = storage(context).createBatch(owner, {
    inputFileId: body.input_file_id,
    endpoint: body.endpoint,
    completionWindow: body.completion_window,
    windowSeconds: windowSeconds(body.completion_window),
    metadata: body.metadata ?? null,
    strict: body.strict ?? true,
    outputSeconds: body.output_expires_after?.seconds ?? null,
  });
  return batchBody(created);
});

const list = endpoint({
  method: "get",
  path: "/v1/batches",
  operationId: "listBatches",
  tag: "Batches",
  summary: "List batches, newest first",
  query: z.object({
    after: cursor,
    limit: digits(1, 100).optional().openapi({ description: `Default ${DEFAULT_LIST}` }),
  }),
  answer: listOf(batch, "BatchList"),
  answers: "A page",
}, ({ query: { after, limit }, owner }, context) => {
  const { data, hasMore } = storage(context).batches(owner, { after, limit: limit ?? DEFAULT_LIST });
  return pageOf(data.map(batchBody), hasMore);
});

const one = endpoint({
  method: "get",
  path: "/v1/batches/{id}",
  operationId: "retrieveBatch",
  tag: "Batches",
  summary: "Describe one batch",
  params,
  answer: batch,
  answers: "The batch",
  refusals: missing,
}, ({ params, owner }, context) => batchBody(storage(context).batch(owner, params.id)));

const cancel = endpoint({
  method: "post",
  path: "/v1/batches/{id}/cancel",
  operationId: "cancelBatch",
  tag: "Batches",
  summary: "Cancel a batch; unanswered lines go to the error file",
  params,
  answer: batch,
  answers: "The batch",
  refusals: { 400: "It has ended", ...missing, 507: "No room on the disk to record the change" },
}, ({ params, owner }, context) => batchBody(storage(context).cancelBatch(owner, params.id)));

const follow = endpoint({
  method: "get",
  path: "/v1/batches/{id}/events",
  operationId: "followBatch",
  tag: "Batches",
  summary: "Follow a batch",
  params,
  events: { name: "BatchProgress", schema: batchEvent },
  answers: "An event for each change, at most one per second, until the batch has ended; then `data: [DONE]`",
  refusals: missing,
}, async ({ params, raw, owner }, context) => {
  const service = storage(context);
  const abort = abortWhenLeft(raw);
  const { id } = service.batch(owner, params.id);
  if (raw.method === "HEAD") {
    return new Response(null, { headers: { "content-type": "text/event-stream; charset=utf-8" } });
  }
  const views = service.watch(owner, id, abort.signal);
  return await eventStream(events(views), abort, context.limits, context.report);
});

export const batches = [create, list, one, cancel, follow];

async function* events(views: AsyncIterable<BatchView>): AsyncGenerator<z.output<typeof batchEvent>> {
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

function batchBody(record: BatchRecord): z.output<typeof batch> {
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
      output_tokens_details: { reasoning_tokens: counts.reasoningTokens },
      total_tokens: counts.promptTokens + counts.outputTokens,
    },
    metadata: record.metadata,
  };
}
