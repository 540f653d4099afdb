import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { retryAfter } from "./answers.ts";
import type { Account } from "./account.ts";
import { readJson } from "./body.ts";
import type { Caller } from "./caller.ts";
import { check } from "./check.ts";
import type { AppContext, Env } from "./context.ts";
import { type ErrorShape, OPENAI_ERRORS } from "./errors.ts";
import { documented } from "./fields.ts";

type Schema = z.ZodType;
type Fields = z.ZodObject;
type None = undefined;

/** What a handler gets of a request; what its endpoint has a schema for has passed it. */
export interface Incoming<Params, Query, Body> {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  /** As it came, for bodies that are streamed. */
  readonly raw: Request;
  readonly caller: Caller;
  readonly account: Account;
  /** Whose files and batches the request sees: the caller's. */
  readonly owner: string;
}

type Output<S> = S extends Schema ? z.output<S> : undefined;

/** An answer in server-sent events: the objects in them, and the name of their schema. */
export interface EventsSpec {
  readonly name: string;
  readonly schema: Schema;
  /** Each event has a name, the `type` of its object, and no `[DONE]` ends the stream. */
  readonly named?: boolean;
  /** No `[DONE]` ends the stream: its last object says that it is the last. */
  readonly withoutDone?: boolean;
}

/** How an endpoint looks in the OpenAPI document, and what its requests are checked by. */
export interface EndpointSpec<P, Q, B, A> {
  readonly method: "get" | "post" | "delete";
  /** As in OpenAPI: `/v1/files/{id}`. */
  readonly path: string;
  /** hono's pattern, where a parameter may contain slashes. */
  readonly pattern?: string;
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly params?: P;
  readonly query?: Q;
  /** Of a JSON body. */
  readonly body?: B;
  readonly example?: B extends Schema ? z.input<B> : never;
  /** Of a form; the handler reads it. */
  readonly form?: Schema;
  /** Of a JSON answer. */
  readonly answer?: A;
  /** Answers of other media types, with their schemas. */
  readonly content?: Record<string, Schema | { readonly type: "string"; readonly format?: string }>;
  readonly events?: EventsSpec;
  /** Where refusals do not look as OpenAI's do. */
  readonly errors?: ErrorShape;
  readonly answers: string;
  /** Of a GET that may load a model: pages of other sites may not cause that. */
  readonly loads?: boolean;
  /** Operations that take the id of the answer. */
  readonly leadsTo?: readonly string[];
  /** Refusals beside those that follow from the method, the parameters and the body, by status. */
  readonly refusals?: Readonly<Record<number, string>>;
}

/** One operation of the API: a path, its schemas, and what answers it. */
export interface Endpoint {
  readonly route: ReturnType<typeof routeOf>;
  readonly pattern: string;
  readonly events: EventsSpec | undefined;
  readonly errors: ErrorShape | undefined;
  /** It is a GET that may load a model. */
  readonly loads: boolean;
  answer(c: Context<Env>, context: AppContext): Promise<Response>;
}

/**
 * An endpoint whose document and checks are one: the handler sees nothing that its schemas refuse. It gives the JSON of the
 * answer, or a Response of its own. OpenAPIHono.openapi() would read and check bodies without a bound on their size, depth
 * and time.
 */
export function endpoint<
  P extends Fields | None = None,
  Q extends Fields | None = None,
  B extends Schema | None = None,
  A extends Schema | None = None,
>(
  spec: EndpointSpec<P, Q, B, A>,
  handle: (
    incoming: Incoming<Output<P>, Output<Q>, Output<B>>,
    context: AppContext,
  ) => Output<A> | Response | Promise<Output<A> | Response>,
): Endpoint {
  const route = routeOf(spec as EndpointSpec<Fields, Fields, Schema, Schema>);
  return {
    route,
    pattern: spec.pattern ?? route.getRoutingPath(),
    events: spec.events,
    errors: spec.errors,
    loads: spec.loads ?? false,
    async answer(c, context) {
      const incoming = {
        params: spec.params && check(spec.params, c.req.param()),
        query: spec.query && check(spec.query, c.req.query()),
        body: spec.body && check(spec.body, await readJson(c.req.raw, context.limits)),
        raw: c.req.raw,
        caller: c.get("caller"),
        account: c.get("record"),
        owner: c.get("caller").owner,
      };
      const answer = await handle(incoming as Incoming<Output<P>, Output<Q>, Output<B>>, context);
      // Through the context, so that headers set there are sent too.
      return answer instanceof Response ? c.newResponse(answer.body, answer) : c.json(answer as object);
    },
  };
}

/** Puts an endpoint into the app and its document. */
export function mount(app: OpenAPIHono<Env>, context: AppContext, endpoint: Endpoint): void {
  const { route, pattern, events, errors, answer } = endpoint;
  if (events) app.openAPIRegistry.register(events.name, events.schema);
  if (errors) app.openAPIRegistry.register(errors.name, errors.schema);
  app.openAPIRegistry.registerPath(route);
  app.on(route.method, pattern, (c) => answer(c, context));
}

/** Says how errors look at an endpoint's path, whoever refuses a request there. Comes before all that may. */
export function shapeErrors(app: OpenAPIHono<Env>, { pattern, errors }: Endpoint): void {
  if (!errors) return;
  app.use(pattern, async (c, next) => {
    c.set("errors", errors);
    await next();
    if (errors.idHeader) c.header(errors.idHeader, c.get("requestId"));
  });
}

function routeOf(spec: EndpointSpec<Fields, Fields, Schema, Schema>) {
  const { method, path, operationId, summary, description, tag, params, query, body, form, example } = spec;
  const errors = spec.errors ?? OPENAI_ERRORS;
  const content = {
    ...(spec.answer ? json(spec.answer) : {}),
    ...(spec.events ? { "text/event-stream": { schema: eventOf(spec.events, errors) } } : {}),
    ...Object.fromEntries(
      Object.entries(spec.content ?? {}).map(([type, schema]) => [type, { schema }]),
    ),
  };
  const refusals = { ...commonRefusals(spec), ...spec.refusals };
  return createRoute({
    method,
    path,
    operationId,
    summary,
    ...(description === undefined ? {} : { description }),
    tags: [tag],
    request: {
      ...(params ? { params } : {}),
      ...(query ? { query } : {}),
      ...(body ? { body: { required: true, content: json(body, example) } } : {}),
      ...(form ? { body: { required: true, content: { "multipart/form-data": { schema: form } } } } : {}),
    },
    responses: {
      200: { description: spec.answers, content, ...(spec.leadsTo ? { links: linksTo(spec.leadsTo) } : {}) },
      ...Object.fromEntries(
        Object.entries(refusals).map(([status, why]) => [status, refusal(+status, why, errors)]),
      ),
    },
  });
}

/** What any request of this kind can meet. */
function commonRefusals(
  { method, body, form, query, loads }: EndpointSpec<unknown, unknown, unknown, unknown>,
) {
  const changes = method !== "get" || loads;
  return {
    400: body || form || query
      ? "A wrong or missing field, which `param` names"
      : "The Host header or the path is not valid",
    403: changes
      ? "The Host header names another machine, or a web page of another site sent the request"
      : "The Host header names another machine",
    ...(body || form
      ? {
        408: "The body did not come in time",
        413: "The body is too large",
        415: `The body is not ${body ? "application/json" : "multipart/form-data"}, or it is compressed`,
      }
      : {}),
    500: "The server failed; its log says why",
    ...(changes ? { 503: "The server is shutting down" } : {}),
  };
}

/** One server-sent event, as OpenAPI describes it: `data` is JSON, but for a `[DONE]`. */
function eventOf({ name, named, withoutDone }: EventsSpec, errors: ErrorShape) {
  const schemas = [name, errors.name].map((name) => ({ $ref: `#/components/schemas/${name}` }));
  const object = { type: "string", contentMediaType: "application/json", contentSchema: { anyOf: schemas } };
  if (named) {
    const event = z.string().openapi({ description: "The `type` of the object in `data`" });
    return z.object({ event, data: documented(z.string(), object) });
  }
  if (withoutDone) return z.object({ data: documented(z.string(), object) });
  const data = documented(z.string(), { anyOf: [object, { type: "string", enum: ["[DONE]"] }] });
  return z.object({ data });
}

function linksTo(operations: readonly string[]) {
  const parameters = { id: "$response.body#/id" };
  return Object.fromEntries(operations.map((operationId) => [operationId, { operationId, parameters }]));
}

function refusal(status: number, description: string, errors: ErrorShape) {
  const headers = status === 429 || status === 503 ? { headers: retryAfter } : {};
  return { description, ...headers, content: json(errors.schema) };
}

function json(schema: Schema, example?: unknown) {
  return { "application/json": example === undefined ? { schema } : { schema, example } };
}
