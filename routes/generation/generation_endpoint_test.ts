import { assertEquals } from "@std/assert";
import { OpenAPIHono, z } from "@hono/zod-openapi";
import { type Engine, oneModel } from "../../engine/mod.ts";
import { ResponseStore } from "../../jobs/service/response_store.ts";
import { FakeEngine } from "../testing.ts";
import { anyone } from "../access/caller.ts";
import { BodyBudget } from "../core/body_budget.ts";
import { type AppContext, DEFAULT_LIMITS, type Env } from "../core/context.ts";
import { Metrics } from "../metrics/metrics.ts";
import { mount, shapeErrors } from "../core/endpoint.ts";
import { ApiError, type ErrorShape, toApiError } from "../core/errors.ts";
import { errorResponse } from "../core/error_response.ts";
import { RequestRecord } from "../metrics/request_record.ts";
import { generation } from "./generation_endpoint.ts";

const OWN_ERRORS: ErrorShape = {
  name: "OwnError",
  schema: z.object({ type: z.literal("error"), error: z.object({ code: z.string() }) }).openapi("OwnError"),
  body: ({ code }) => ({ type: "error", error: { code } }),
};

const OWN = generation({
  path: "/own",
  operationId: "own",
  summary: "Answer in a shape of its own",
  request: z.object({ fails: z.boolean() }),
  answer: z.object({}),
  chunk: { name: "OwnEvent", schema: z.object({ type: z.string() }), named: true },
  errors: OWN_ERRORS,
  example: { fails: false },
  forms: () => [],
  prepare: (_engine: Engine, { fails }) => {
    if (fails) return Promise.reject(new ApiError(404, "model_not_found", "There is no such model"));
    return Promise.resolve({
      stream: true,
      answer: () => Promise.resolve({}),
      async *chunks() {
        yield { type: "begin" };
        await Promise.resolve();
        throw new ApiError(500, "engine_failed", "It broke");
      },
    });
  },
});

function appOf(): OpenAPIHono<Env> {
  const context = {
    models: oneModel(new FakeEngine()),
    limits: DEFAULT_LIMITS,
    bodies: new BodyBudget(DEFAULT_LIMITS.bodiesBytes, DEFAULT_LIMITS.bodiesMs),
    imageBodies: new BodyBudget(DEFAULT_LIMITS.imageBodiesBytes, DEFAULT_LIMITS.bodyMs),
    responses: ResponseStore.inMemory({}),
    lifecycle: { draining: false },
    metrics: new Metrics(),
    report: toApiError,
  } as AppContext;
  const app = new OpenAPIHono<Env>();
  shapeErrors(app, OWN.endpoint);
  app.use(async (c, next) => {
    if (c.req.header("authorization") === undefined) throw new ApiError(401, "invalid_api_key", "No key");
    c.set("caller", anyone());
    c.set("record", new RequestRecord(new Metrics()));
    await next();
  });
  mount(app, context, OWN.endpoint);
  app.notFound((c) => errorResponse(new ApiError(404, "unknown_url", "Unknown path"), c));
  app.onError((error, c) => errorResponse(toApiError(error), c));
  return app;
}

const post = (path: string, body: string, headers: Record<string, string> = {}) =>
  appOf().request(path, {
    method: "POST",
    body,
    headers: { authorization: "Bearer key", "content-type": "application/json", ...headers },
  });

Deno.test("generation endpoint: errors before the handler, in the handler and in a stream have the endpoint's own format", async () => {
  const withoutKey = await appOf().request("/own", { method: "POST" });
  assertEquals(withoutKey.status, 401);
  assertEquals(await withoutKey.json(), { type: "error", error: { code: "invalid_api_key" } });
  const refused: [body: string, headers: Record<string, string>, status: number, code: string][] = [
    ["{}", {}, 400, "missing_required_parameter"],
    ["{}", { "content-type": "text/html" }, 415, "unsupported_media_type"],
    ["{}", { "content-length": "999999999999" }, 413, "request_too_large"],
    ['{"fails":true}', {}, 404, "model_not_found"],
  ];
  for (const [body, headers, status, code] of refused) {
    const response = await post("/own", body, headers);
    assertEquals([response.status, await response.json()], [status, { type: "error", error: { code } }]);
  }
  assertEquals(
    await (await post("/own", '{"fails":false}')).text(),
    'event: begin\ndata: {"type":"begin"}\n\n' +
      'event: error\ndata: {"type":"error","error":{"code":"engine_failed"}}\n\n',
  );
});

Deno.test("generation endpoint: other paths keep OpenAI's error format, and the document has both", async () => {
  const elsewhere = await (await post("/nowhere", "{}")).json();
  assertEquals(elsewhere.error, {
    message: "Unknown path",
    type: "invalid_request_error",
    param: null,
    code: "unknown_url",
  });
  const document = appOf().getOpenAPI31Document({ openapi: "3.1.0", info: { title: "", version: "" } });
  const { responses } = document.paths!["/own"].post!;
  assertEquals(responses![415].content["application/json"].schema.$ref, "#/components/schemas/OwnError");
  const event = responses![200].content["text/event-stream"].schema;
  assertEquals(Object.keys(event.properties), ["event", "data"]);
  assertEquals(
    event.properties.data.contentSchema.anyOf.map(({ $ref }: { $ref: string }) => $ref),
    ["#/components/schemas/OwnEvent", "#/components/schemas/OwnError"],
  );
});
