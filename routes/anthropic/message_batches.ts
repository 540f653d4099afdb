import { z } from "@hono/zod-openapi";
import { type BatchRecord, hasEnded, ServiceError } from "../../jobs/types.ts";
import { storage } from "../core/context.ts";
import { endpoint } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import { digits } from "../core/lists.ts";
import { messageAnswer } from "./answer.ts";
import { batchRequests, writeBatchLines } from "./batch_lines.ts";
import { batchResults } from "./batch_results.ts";
import { ANTHROPIC_ERRORS } from "./errors.ts";

/* Anthropic's message batches, run as batches of OpenAI's API. */

const PREFIX = "msgbatch_";
const DEFAULT_LIST = 20;
const DAY = 24 * 3600;
/** Seconds for which a batch's requests and results are kept. */
const KEPT_SECONDS = 29 * DAY;

const time = z.string().openapi({ format: "date-time" });
const count = z.number().int();

const batch = z.object({
  id: z.string(),
  type: z.literal("message_batch"),
  processing_status: z.enum(["in_progress", "canceling", "ended"]),
  request_counts: z.object({
    processing: count,
    succeeded: count,
    errored: count,
    canceled: count,
    expired: count,
  }),
  created_at: time,
  expires_at: time,
  ended_at: time.nullable(),
  cancel_initiated_at: time.nullable(),
  archived_at: z.null(),
  results_url: z.string().nullable().openapi({
    description:
      "A path without a host, so that it is valid behind every proxy; null until the batch has ended",
  }),
}).openapi("MessageBatch");

const result = z.object({
  custom_id: z.string(),
  result: z.discriminatedUnion("type", [
    z.object({ type: z.literal("succeeded"), message: messageAnswer }),
    z.object({ type: z.literal("errored"), error: ANTHROPIC_ERRORS.schema }),
    z.object({ type: z.literal("canceled") }),
    z.object({ type: z.literal("expired") }),
  ]),
}).openapi("MessageBatchResult");

const params = z.object({ id: z.string().openapi({ example: "msgbatch_0123456789abcdef" }) });
const missing = { 404: "No such batch" };
const head = { tag: "Batches", errors: ANTHROPIC_ERRORS } as const;

const create = endpoint({
  ...head,
  method: "post",
  path: "/v1/messages/batches",
  operationId: "createMessageBatch",
  summary: "Answer many conversations in Anthropic's format",
  streamed: batchRequests,
  example: {
    requests: [{
      custom_id: "first",
      params: { model: "demo", max_tokens: 40, messages: [{ role: "user", content: "Who are you?" }] },
    }],
  },
  answer: batch,
  answers: "The batch",
  leadsTo: ["retrieveMessageBatch", "cancelMessageBatch"],
  refusals: {
    413: "The body, a request, or all files together would be too large",
    429: "Too many files are being uploaded",
    507: "No room for the batch on the disk",
  },
}, async ({ raw, owner, sender }, context) => {
  const service = storage(context);
  const hold = context.bodies.hold(sender);
  const sink = await service.beginUpload(sender);
  try {
    const total = await writeBatchLines(raw, context.limits, sink, hold);
    const file = await service.addFile(owner, sink, {
      filename: "message_batch.jsonl",
      keepSeconds: KEPT_SECONDS,
    });
    const spec = {
      inputFileId: file.id,
      endpoint: "/v1/messages",
      completionWindow: "24h",
      windowSeconds: DAY,
      metadata: null,
      strict: false,
      outputSeconds: KEPT_SECONDS,
    };
    try {
      return batchBody(service.createBatch(owner, spec, { prefix: PREFIX, total }));
    } catch (error) {
      await service.deleteFile(owner, file.id).catch(() => {});
      throw error;
    }
  } finally {
    hold.release();
    await sink.discard();
  }
});

const list = endpoint({
  ...head,
  method: "get",
  path: "/v1/messages/batches",
  operationId: "listMessageBatches",
  summary: "List batches of messages, newest first",
  query: z.object({
    after_id: z.string().min(1).max(100).optional().openapi({
      description: "Id of a batch: return only older batches",
    }),
    before_id: z.string().min(1).max(100).optional().openapi({
      description: "Id of a batch: return only newer batches",
    }),
    limit: digits(1, 1000).optional().openapi({ description: `Default ${DEFAULT_LIST}` }),
  }),
  answer: z.object({
    data: z.array(batch),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  }).openapi("MessageBatchList"),
  answers: "A page",
}, ({ query: { after_id: after, before_id: before, limit = DEFAULT_LIST }, owner }, context) => {
  if (after !== undefined && before !== undefined) {
    const message = '"after_id" and "before_id" cannot be given together';
    throw new ApiError(400, "conflicting_parameters", message, { param: "before_id" });
  }
  try {
    const { data, hasMore } = storage(context).batches(owner, { after, before, limit, prefix: PREFIX });
    const bodies = data.map(batchBody);
    return {
      data: bodies,
      first_id: bodies.at(0)?.id ?? null,
      last_id: bodies.at(-1)?.id ?? null,
      has_more: hasMore,
    };
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== "cursor_not_found") throw error;
    const param = after === undefined ? "before_id" : "after_id";
    throw new ApiError(400, "invalid_value", `Invalid "${param}": there is no such batch`, { param });
  }
});

const one = endpoint({
  ...head,
  method: "get",
  path: "/v1/messages/batches/{id}",
  operationId: "retrieveMessageBatch",
  summary: "Describe one batch of messages",
  params,
  answer: batch,
  answers: "The batch",
  refusals: missing,
}, ({ params, owner }, context) => batchBody(storage(context).batch(owner, idOf(params))));

const cancel = endpoint({
  ...head,
  method: "post",
  path: "/v1/messages/batches/{id}/cancel",
  operationId: "cancelMessageBatch",
  summary: "Cancel a batch; its results list requests without an answer as canceled",
  params,
  answer: batch,
  answers: "The batch",
  refusals: { 400: "It has ended", ...missing, 507: "No room on the disk to record the change" },
}, ({ params, owner }, context) => batchBody(storage(context).cancelBatch(owner, idOf(params))));

const results = endpoint({
  ...head,
  method: "get",
  path: "/v1/messages/batches/{id}/results",
  operationId: "downloadMessageBatchResults",
  summary: "Download the results of an ended batch, as JSON lines",
  params,
  content: { "application/x-jsonl": result },
  answers: "One line per request; answered requests come first",
  refusals: { 400: "It has not ended", ...missing, 429: "Too many files are being downloaded" },
}, ({ params, raw, owner, sender }, context) => {
  const headers = { "content-type": "application/x-jsonl" };
  const { answers, end } = storage(context).answers(owner, idOf(params), sender);
  if (raw.method === "HEAD") {
    end();
    return new Response(null, { headers });
  }
  const lines = ReadableStream.from(batchResults(answers));
  return new Response(lines.pipeThrough(new TransformStream({ flush: end, cancel: end })), { headers });
});

const remove = endpoint({
  ...head,
  method: "delete",
  path: "/v1/messages/batches/{id}",
  operationId: "deleteMessageBatch",
  summary: "Delete an ended batch, its requests and its results",
  params,
  answer: z.object({ id: z.string(), type: z.literal("message_batch_deleted") }).openapi(
    "MessageBatchDeleted",
  ),
  answers: "It is gone",
  refusals: { 400: "It has not ended", ...missing, 507: "No room on the disk to record the change" },
}, async ({ params, owner }, context) => {
  const id = idOf(params);
  await storage(context).deleteBatch(owner, id);
  return { id, type: "message_batch_deleted" as const };
});

export const messageBatches = [create, list, one, cancel, results, remove];

/** Returns the batch's id. Throws ServiceError for a batch of another API. */
function idOf({ id }: z.output<typeof params>): string {
  if (id.startsWith(PREFIX)) return id;
  throw new ServiceError("batch_not_found", `There is no batch ${JSON.stringify(id.slice(0, 100))} here`);
}

function batchBody(record: BatchRecord): z.output<typeof batch> {
  const { id, status, ending, createdAt, expiresAt, cancellingAt } = record;
  const endedAt = record.completedAt ?? record.cancelledAt ?? record.expiredAt ?? record.failedAt;
  const isEnded = hasEnded(record);
  const hasResults = isEnded && status !== "failed";
  return {
    id,
    type: "message_batch",
    processing_status: isEnded ? "ended" : ending === "cancel" ? "canceling" : "in_progress",
    request_counts: countsOf(record),
    created_at: timeOf(createdAt)!,
    expires_at: timeOf(expiresAt)!,
    ended_at: timeOf(endedAt),
    cancel_initiated_at: timeOf(cancellingAt),
    archived_at: null,
    results_url: hasResults ? `/v1/messages/batches/${id}/results` : null,
  };
}

/**
 * Returns a batch's counts. While it ends early, requests without an answer cannot be distinguished from failed ones.
 */
function countsOf(record: BatchRecord) {
  const { counts: { total, completed, failed }, status, ending, unanswered = 0 } = record;
  const lost = status === "failed" ? total - completed : failed - unanswered;
  const errored = hasEnded(record) || ending === null ? lost : 0;
  return {
    processing: hasEnded(record) ? 0 : total - completed - errored,
    succeeded: completed,
    errored,
    canceled: ending === "cancel" ? unanswered : 0,
    expired: ending === "expire" ? unanswered : 0,
  };
}

function timeOf(seconds: number | null): string | null {
  return seconds === null ? null : new Date(1000 * seconds).toISOString();
}
