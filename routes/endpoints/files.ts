import { OpenAPIHono, z } from "@hono/zod-openapi";
import type { BatchService } from "../../jobs/service.ts";
import type { FileRecord } from "../../jobs/types.ts";
import { type AppContext, type Env, jsonContent, onlyMethods } from "../shared/context.ts";
import { ApiError } from "../shared/errors.ts";
import { errorAnswer } from "../shared/answers.ts";
import { check } from "../shared/check.ts";
import {
  file,
  type FileBody,
  fileDeleted,
  fileQuery,
  listOf,
  uploadFields,
  uploadForm,
} from "../schemas/files.ts";
import { readUpload } from "../shared/upload.ts";

const MAX_LIST = 10_000;

/** OpenAI's files: what batches read and write. */
export function fileRoutes({ limits }: AppContext, service: BatchService) {
  const app = new OpenAPIHono<Env>();
  describe(app);

  app.post("/v1/files", async (c) => {
    const form = await readUpload(c.req.raw, limits, () => service.beginUpload());
    const { filename, sink } = form.file;
    try {
      const fields = check(uploadFields, form.fields);
      if (sink.bytes === 0) {
        throw new ApiError(
          400,
          "invalid_value",
          "The file is empty; a batch file has a line for each request",
          {
            param: "file",
          },
        );
      }
      const keepSeconds = fields["expires_after[seconds]"] ?? null;
      return c.json(fileBody(await service.addFile(c.get("owner"), sink, { filename, keepSeconds })));
    } finally {
      await sink.discard();
    }
  });

  app.get("/v1/files", (c) => {
    const { after, limit, order, purpose } = check(fileQuery, c.req.query());
    const page = { after, limit: limit ?? MAX_LIST, purpose, newestFirst: order !== "asc" };
    const { data, hasMore } = service.files(c.get("owner"), page);
    return c.json(pageOf(data.map(fileBody), hasMore));
  });
  app.all("/v1/files", onlyMethods("GET, POST"));

  app.get("/v1/files/:id", (c) => c.json(fileBody(service.file(c.get("owner"), c.req.param("id")))));
  app.delete("/v1/files/:id", async (c) => {
    const id = c.req.param("id");
    await service.deleteFile(c.get("owner"), id);
    return c.json<z.output<typeof fileDeleted>>({ id, object: "file", deleted: true });
  });
  app.all("/v1/files/:id", onlyMethods("GET, DELETE"));

  app.get("/v1/files/:id/content", async (c) => {
    const { id, bytes } = service.file(c.get("owner"), c.req.param("id"));
    const headers = {
      "content-type": "application/octet-stream",
      "content-length": String(bytes),
      "content-disposition": "attachment",
      "x-content-type-options": "nosniff",
    };
    // Nobody would read, and so close, the file of a HEAD request.
    if (c.req.method === "HEAD") return c.body(null, 200, headers);
    const content = await service.openContent(c.get("owner"), id);
    return c.body(content.readable, 200, headers);
  });
  app.all("/v1/files/:id/content", onlyMethods("GET"));
  return app;
}

function fileBody({ id, bytes, createdAt, expiresAt, filename, purpose }: FileRecord): FileBody {
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

/** A page of a list in OpenAI's shape. */
export function pageOf<T extends { id: string }>(data: T[], hasMore: boolean) {
  return {
    object: "list" as const,
    data,
    first_id: data.at(0)?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: hasMore,
  };
}

function describe(app: OpenAPIHono<Env>): void {
  const params = z.object({ id: z.string() });
  const refusal = (description: string) => ({ description, ...jsonContent(errorAnswer) });
  const missing = { 404: refusal("No such file") };
  const { openAPIRegistry: registry } = app;
  registry.registerPath({
    method: "post",
    path: "/v1/files",
    summary: "Upload a file of batch requests",
    request: { body: { required: true, content: { "multipart/form-data": { schema: uploadForm } } } },
    responses: {
      200: { description: "The file", ...jsonContent(file) },
      400: refusal("A wrong field or a broken form"),
      413: refusal("The file is too large"),
    },
  });
  registry.registerPath({
    method: "get",
    path: "/v1/files",
    summary: "List files",
    request: { query: fileQuery },
    responses: { 200: { description: "A page", ...jsonContent(listOf(file, "FileList")) } },
  });
  registry.registerPath({
    method: "get",
    path: "/v1/files/{id}",
    summary: "Describe one file",
    request: { params },
    responses: { 200: { description: "The file", ...jsonContent(file) }, ...missing },
  });
  registry.registerPath({
    method: "delete",
    path: "/v1/files/{id}",
    summary: "Delete a file",
    request: { params },
    responses: {
      200: { description: "It is gone", ...jsonContent(fileDeleted) },
      400: refusal("A batch that has not ended reads it"),
      ...missing,
    },
  });
  registry.registerPath({
    method: "get",
    path: "/v1/files/{id}/content",
    summary: "Download a file",
    request: { params },
    responses: {
      200: {
        description: "The content",
        content: { "application/octet-stream": { schema: { type: "string", format: "binary" } } },
      },
      ...missing,
    },
  });
}
