import { z } from "@hono/zod-openapi";

const HOUR = 3600;
const DAY = 24 * HOUR;

/** Numbers in a query or a form come as text. */
const digits = (min: number, max: number) =>
  z.string().regex(/^\d{1,9}$/, `allowed is a whole number from ${min} to ${max}`).transform(Number)
    .pipe(z.number().int().min(min).max(max));

const cursor = z.string().min(1).max(100).openapi({
  description: "The id of the last entry of the page before",
});

export const fileQuery = z.object({
  after: cursor.optional(),
  limit: digits(1, 10_000).optional().openapi({ description: "1 to 10,000, default 10,000" }),
  order: z.enum(["asc", "desc"]).optional().openapi({ description: "By creation; default desc" }),
  purpose: z.enum(["batch", "batch_output"]).optional(),
});

export const batchQuery = z.object({
  after: cursor.optional(),
  limit: digits(1, 100).optional().openapi({ description: "1 to 100, default 20" }),
});

/** The fields of an upload beside the file itself. */
export const uploadFields = z.object({
  purpose: z.enum(["batch"]),
  "expires_after[anchor]": z.enum(["created_at"]).optional(),
  "expires_after[seconds]": digits(HOUR, 30 * DAY).optional(),
}).superRefine((fields, ctx) => {
  const given = ["anchor", "seconds"].filter((name) => `expires_after[${name}]` in fields);
  if (given.length !== 1) return;
  const missing = given[0] === "anchor" ? "seconds" : "anchor";
  const message = `Missing required parameter "expires_after[${missing}]"`;
  const path = [`expires_after[${missing}]`];
  ctx.addIssue({ code: "custom", path, message, params: { code: "missing_required_parameter" } });
});

/** As the document shows an upload; it is read as a stream, not by this schema. */
export const uploadForm = z.object({
  file: z.string().openapi({ format: "binary" }),
  purpose: z.enum(["batch"]),
  expires_after: z.object({ anchor: z.enum(["created_at"]), seconds: z.number().int() }).optional(),
}).openapi("FileUpload");

export const file = z.object({
  id: z.string(),
  object: z.literal("file"),
  bytes: z.number().int(),
  created_at: z.number().int(),
  expires_at: z.number().int().nullable(),
  filename: z.string(),
  purpose: z.enum(["batch", "batch_output"]),
  status: z.literal("processed"),
}).openapi("File");

export const fileDeleted = z.object({ id: z.string(), object: z.literal("file"), deleted: z.literal(true) })
  .openapi("FileDeleted");

const MAX_METADATA = 16;

const metadata = z.custom<Record<string, string>>((value) => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const entries = Object.entries(value);
  return entries.length <= MAX_METADATA && entries.every(([key, text]) => {
    return key.length >= 1 && key.length <= 64 && key.isWellFormed() && typeof text === "string" &&
      text.length <= 512 && text.isWellFormed();
  });
}, {
  error:
    `Invalid "metadata": allowed is an object of at most ${MAX_METADATA} texts of up to 512 characters, ` +
    "their names of 1 to 64",
}).openapi({ type: "object", additionalProperties: { type: "string" } });

/** `24h`, `7d` -> seconds; undefined where it is no window. */
export function windowSeconds(window: string): number | undefined {
  const [, count, unit] = /^(\d{1,3})([hd])$/.exec(window) ?? [];
  const seconds = Number(count) * (unit === "h" ? HOUR : DAY);
  return seconds >= HOUR && seconds <= 30 * DAY ? seconds : undefined;
}

export const batchRequest = z.object({
  input_file_id: z.string().min(1).max(100),
  endpoint: z.enum(["/v1/chat/completions", "/v1/completions"]),
  completion_window: z.string().max(10).refine((window) => windowSeconds(window) !== undefined, {
    error: 'Invalid "completion_window": allowed is 1h to 720h, or 1d to 30d, such as "24h"',
  }).openapi({
    description: "After this time lines without an answer expire: 1h to 720h, or 1d to 30d",
    example: "24h",
  }),
  metadata: metadata.nullish(),
  output_expires_after: z.object({
    anchor: z.enum(["created_at"]),
    seconds: z.number().int().min(HOUR).max(30 * DAY),
  }).nullish(),
  strict: z.boolean().nullish().openapi({
    description: "Fail when any line is bad (the default); false answers bad lines in the error file",
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

export const batch = z.object({
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

export const batchEvent = z.object({
  object: z.literal("batch.progress"),
  batch,
  prompt_tokens_per_second: z.number().nullable(),
  output_tokens_per_second: z.number().nullable(),
  eta_seconds: z.number().nullable(),
}).openapi("BatchProgress");

/** A page of a list. */
export function listOf<Schema extends z.ZodType>(entry: Schema, name: string) {
  return z.object({
    object: z.literal("list"),
    data: z.array(entry),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  }).openapi(name);
}

export type FileBody = z.output<typeof file>;
export type BatchBody = z.output<typeof batch>;
export type BatchEventBody = z.output<typeof batchEvent>;
