import { z } from "@hono/zod-openapi";
import { type FileRecord, UPLOAD_PURPOSES, type UploadPurpose } from "../../jobs/types.ts";
import { check } from "../core/check.ts";
import { storage } from "../core/context.ts";
import { endpoint } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import { cursor, digits, expiry, KEPT_SECONDS, listOf, pageOf } from "../core/lists.ts";
import { readUpload } from "../core/upload.ts";

/* OpenAI's files: the inputs and outputs of batches, and images. */

const MAX_LIST = 10_000;

const purpose = z.enum([...UPLOAD_PURPOSES, "batch_output"]);

const file = z.object({
  id: z.string(),
  object: z.literal("file"),
  bytes: z.number().int(),
  created_at: z.number().int(),
  expires_at: z.number().int().nullable(),
  filename: z.string(),
  purpose,
  status: z.literal("processed"),
}).openapi("File");

const params = z.object({ id: z.string().openapi({ example: "file-0123456789abcdef" }) });
const missing = { 404: "No such file" };

/** Describes an upload in the document. The upload is read as a stream, and its fields by `readFields`. */
const form = z.object({
  file: z.string().min(1).openapi({
    format: "binary",
    description: "An image, or one line per request of a batch; must not be empty",
  }),
  purpose: z.enum(UPLOAD_PURPOSES).optional().openapi({
    description:
      "batch for requests, vision or user_data for an image. Only Anthropic's clients may leave it out",
  }),
  expires_after: expiry.optional().openapi({
    description: "In JSON, or as fields `expires_after[anchor]` and `expires_after[seconds]`; " +
      "without it the file stays until it is deleted",
  }),
}).openapi("FileUpload");

const upload = endpoint({
  method: "post",
  path: "/v1/files",
  operationId: "createFile",
  tag: "Files",
  summary: "Upload a file of batch requests, or an image",
  form,
  answer: file,
  answers: "The file",
  leadsTo: ["retrieveFile", "downloadFile", "deleteFile"],
  refusals: {
    400: "A wrong field, or an invalid or incomplete form",
    413: "The file, or all files together, would be too large",
    429: "Too many files are being uploaded",
    507: "No room for the file on the disk",
  },
}, async ({ raw, owner, sender }, context) => {
  const service = storage(context);
  const form = await readUpload(raw, context.limits, () => service.beginUpload(sender));
  const { filename, sink } = form.file;
  try {
    // Anthropic's clients send no purpose, and Anthropic's message batches read no files.
    const usual: Record<string, string> = raw.headers.has("anthropic-version")
      ? { purpose: "user_data" }
      : {};
    const { purpose, keepSeconds } = readFields({ ...usual, ...form.fields }, form.repeated);
    if (sink.bytes === 0) {
      const message = 'Invalid "file": must not be empty; a batch file has a line for each request';
      throw new ApiError(400, "invalid_value", message, { param: "file" });
    }
    return fileBody(await service.addFile(owner, sink, { filename, keepSeconds, purpose }));
  } finally {
    await sink.discard();
  }
});

const list = endpoint({
  method: "get",
  path: "/v1/files",
  operationId: "listFiles",
  tag: "Files",
  summary: "List files",
  query: z.object({
    after: cursor,
    limit: digits(1, MAX_LIST).optional().openapi({ description: `Default ${MAX_LIST}` }),
    order: z.enum(["asc", "desc"]).optional().openapi({
      description: "Order by creation time; default desc",
    }),
    purpose: purpose.optional(),
  }),
  answer: listOf(file, "FileList"),
  answers: "A page",
}, ({ query: { after, limit, order, purpose }, owner }, context) => {
  const page = { after, limit: limit ?? MAX_LIST, purpose, newestFirst: order !== "asc" };
  const { data, hasMore } = storage(context).files(owner, page);
  return pageOf(data.map(fileBody), hasMore);
});

const one = endpoint({
  method: "get",
  path: "/v1/files/{id}",
  operationId: "retrieveFile",
  tag: "Files",
  summary: "Describe one file",
  params,
  answer: file,
  answers: "The file",
  refusals: missing,
}, ({ params, owner }, context) => fileBody(storage(context).file(owner, params.id)));

const remove = endpoint({
  method: "delete",
  path: "/v1/files/{id}",
  operationId: "deleteFile",
  tag: "Files",
  summary: "Delete a file",
  params,
  answer: z.object({ id: z.string(), object: z.literal("file"), deleted: z.literal(true) })
    .openapi("FileDeleted"),
  answers: "It is gone",
  refusals: {
    400: "An unfinished batch uses the file",
    ...missing,
    507: "No room on the disk to record the change",
  },
}, async ({ params: { id }, owner }, context) => {
  await storage(context).deleteFile(owner, id);
  return { id, object: "file" as const, deleted: true as const };
});

const content = endpoint({
  method: "get",
  path: "/v1/files/{id}/content",
  operationId: "downloadFile",
  tag: "Files",
  summary: "Download a file",
  params,
  content: { "application/octet-stream": { type: "string", format: "binary" } },
  answers: "The content",
  refusals: { ...missing, 429: "Too many files are being downloaded" },
}, async ({ params, raw, owner, sender }, context) => {
  const service = storage(context);
  const { id, bytes } = service.file(owner, params.id);
  const headers = {
    "content-type": "application/octet-stream",
    "content-length": String(bytes),
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
  };
  // A HEAD answer's body is never read, so an opened file would never be closed.
  if (raw.method === "HEAD") return new Response(null, { headers });
  return new Response(await service.openContent(owner, id, sender), { headers });
});

export const files = [upload, list, one, remove, content];

function fileBody({ id, bytes, createdAt, expiresAt, filename, purpose }: FileRecord): z.output<typeof file> {
  return {
    id,
    object: "file",
    bytes,
    created_at: createdAt,
    expires_at: expiresAt,
    filename,
    purpose,
    status: "processed",
  };
}

const fields = z.object({
  purpose: z.enum(UPLOAD_PURPOSES),
  "expires_after[anchor]": z.enum(["created_at"]).optional(),
  "expires_after[seconds]": digits(KEPT_SECONDS.min, KEPT_SECONDS.max).optional(),
});

/** Returns the checked form fields of an upload. `keepSeconds` is null for a file without an expiry. Throws ApiError. */
function readFields(
  given: Record<string, string>,
  repeated: ReadonlySet<string>,
): { purpose: UploadPurpose; keepSeconds: number | null } {
  const twice = ["expires_after", ...Object.keys(fields.shape)].find((name) => repeated.has(name));
  if (twice !== undefined) {
    throw new ApiError(400, "invalid_form", `The form must have "${twice}" once`, { param: twice });
  }
  const { expires_after: json, ...others } = given;
  for (const name of Object.keys(others)) {
    if (!/^expires?.?after/i.test(name) || name in fields.shape) continue;
    const message =
      `Invalid "${name}": an expiry must be "expires_after[anchor]" and "expires_after[seconds]", ` +
      'or "expires_after" in JSON';
    throw new ApiError(400, "invalid_value", message, { param: name });
  }
  const checked = check(fields, others);
  const { purpose } = checked;
  const anchor = checked["expires_after[anchor]"];
  const seconds = checked["expires_after[seconds]"];
  if ((anchor === undefined) !== (seconds === undefined)) {
    const param = `expires_after[${anchor === undefined ? "anchor" : "seconds"}]`;
    throw new ApiError(400, "missing_required_parameter", `Missing required parameter "${param}"`, { param });
  }
  if (json === undefined) return { purpose, keepSeconds: seconds ?? null };
  if (seconds !== undefined) {
    const message = 'Invalid "expires_after": must be given once (got it in JSON and as fields)';
    throw new ApiError(400, "invalid_value", message, { param: "expires_after" });
  }
  const expires = check(z.object({ expires_after: expiry }), { expires_after: parsed(json) });
  return { purpose, keepSeconds: expires.expires_after.seconds };
}

/** Returns the parsed JSON, or the text itself if it is not JSON. */
function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}
