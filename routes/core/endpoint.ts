import { createRoute, type OpenAPIHono, z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { retryAfter } from "../generation/answers.ts";
import type { Account } from "../access/account.ts";
import { workFor } from "../../engine/mod.ts";
import { announcedBytes, readJson } from "./body.ts";
import type { BodyHold } from "./body_budget.ts";
import type { Caller } from "../access/caller.ts";
import { check } from "./check.ts";
import type { AppContext, Env } from "./context.ts";
import { type ErrorShape, OPENAI_ERRORS, shuttingDown } from "./errors.ts";
import { documented } from "./fields.ts";
import { checkBody, WARNING_HEADER, warningHeader } from "./parameters.ts";
import { jsonAnswer, paced } from "./paced.ts";
import { EVENTS, LINES } from "./sse.ts";

type Schema = z.ZodType;
type Fields = z.ZodObject;
type None = undefined;

/** A request as its handler receives it. Parts with a schema have been validated. */
export interface Incoming<Params, Query, Body> {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  /** The original request, for bodies that are streamed. */
  readonly raw: Request;
  readonly caller: Caller;
  readonly account: Account;
  /** Owner of the files and batches that the request can see. */
  readonly owner: string;
  /** Names the caller's key, or its address on a server without keys. */
  readonly sender: string;
}

type Output<S> = S extends Schema ? z.output<S> : undefined;

/** Describes an answer that is sent as server-sent events or JSON lines: the schema of their objects, and its name. */
export interface EventsSpec {
  readonly name: string;
  readonly schema: Schema;
  /** Whether each event is named after the `type` of its object, and the stream ends without `[DONE]`. */
  readonly named?: boolean;
  /** Whether the stream ends without `[DONE]`, because its last object marks the end. */
  readonly withoutDone?: boolean;
  /** Whether each object is a line of JSON instead of a server-sent event. */
  readonly lines?: boolean;
}

/** Describes an endpoint for the OpenAPI document and validates its requests. */
export interface EndpointSpec<P, Q, B, A> {
  readonly method: "get" | "post" | "delete";
  /** The endpoint's path in OpenAPI's notation: `/v1/files/{id}`. */
  readonly path: string;
  /** The endpoint's path as a Hono pattern, if a parameter may contain slashes. */
  readonly pattern?: string;
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly params?: P;
  readonly query?: Q;
  /** Schema of a JSON body. */
  readonly body?: B;
  readonly example?: B extends Schema ? z.input<B> : unknown;
  /** Returns warnings for the client and the operator about parts of a body that the server ignores. */
  readonly warnings?: (body: Output<B>) => readonly string[];
  /** Schema of a form, which the handler reads itself. */
  readonly form?: Schema;
  /** Schema of a JSON body that the handler itself reads while it arrives. */
  readonly streamed?: Schema;
  /** Schema of a JSON answer. */
  readonly answer?: A;
  /** Answers of other media types, with their schemas. */
  readonly content?: Record<string, Schema | { readonly type: "string"; readonly format?: string }>;
  readonly events?: EventsSpec;
  /** The endpoint's error format, if it differs from OpenAI's. */
  readonly errors?: ErrorShape;
  readonly answers: string;
  /** Whether a GET may load a model. Pages of other sites must not trigger that. */
  readonly loads?: boolean;
  /** Operations that use an id from this answer (links in the OpenAPI document). */
  readonly leadsTo?: readonly string[];
  /** Refusals by status, besides those that the method, the parameters and the body imply. */
  readonly refusals?: Readonly<Record<number, string>>;
}

/** One operation of the API: its path, schemas and handler. */
export interface Endpoint {
  readonly route: ReturnType<typeof routeOf>;
  readonly pattern: string;
  readonly events: EventsSpec | undefined;
  readonly errors: ErrorShape | undefined;
  /** Whether a GET may load a model. */
  readonly loads: boolean;
  handler(context: AppContext): (c: Context<Env>) => Promise<Response>;
}

/**
 * Builds an endpoint with one schema for document and validation. The handler receives only validated input. The
 * handler returns the answer as JSON or as a Response. OpenAPIHono.openapi() is not used, because it would read and
 * check bodies without limits on size, depth and time.
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
    handler: (context) => async (c) => {
      if (context.lifecycle.draining && spec.method !== "get") throw shuttingDown();
      const { caller, record } = c.var;
      const sender = {
        name: senderOf(c),
        spent: (ms: number) => caller.allowance.work(ms),
        signal: c.req.raw.signal,
      };
      const hold = holdOf(c, context);
      const response = await workFor(sender, async () => {
        const incoming = {
          params: spec.params && check(spec.params, c.req.param()),
          query: spec.query && check(spec.query, c.req.query()),
          body: spec.body && await bodyOf(c, context, hold, spec.body, spec.warnings),
          raw: c.req.raw,
          caller,
          account: record,
          owner: caller.owner,
          sender: senderOf(c),
        };
        const answer = await handle(incoming as Incoming<Output<P>, Output<Q>, Output<B>>, context);
        return answer instanceof Response ? answer : await jsonAnswer(answer);
      }).catch((error) => {
        hold.release();
        throw error;
      });
      // The response is created from the context, so that headers set there are sent too.
      return c.newResponse(releasedAfter(response.body, hold), response);
    },
  };
}

/** Names the sender of a request: its key, or its address on a server without keys. */
function senderOf(c: Context<Env>): string {
  return c.get("caller").name ?? c.env?.address ?? "";
}

/** The bytes that a request's body reserves in a memory budget. */
interface HeldBody extends BodyHold {
  /** Maximum bytes of the body. */
  readonly most: number;
  /** Whether the bytes stay reserved until the request ends, because the body's images stay in memory. */
  readonly lasts: boolean;
}

/** Returns the reservation of a request's body in a memory budget. Bodies with large images have their own budget. */
function holdOf(c: Context<Env>, { models, limits, bodies, imageBodies }: AppContext): HeldBody {
  const sender = senderOf(c);
  const isLarge = announcedBytes(c.req.raw) > limits.bodyBytes &&
    models.list().some(({ engine }) => engine === undefined || engine.model.images);
  return isLarge
    ? { ...imageBodies.hold(sender), most: limits.imageBodyBytes, lasts: true }
    : { ...bodies.hold(sender), most: limits.bodyBytes, lasts: false };
}

/** Returns a response's stream that releases the request body's bytes when it ends. */
function releasedAfter(body: ReadableStream | null, { lasts, release }: HeldBody): ReadableStream | null {
  if (!lasts || !body) {
    release();
    return body;
  }
  return body.pipeThrough(new TransformStream({ flush: release, cancel: release }));
}

/** Reads and checks a request's body. Warnings go to the answer's header and to the operator. */
async function bodyOf<B extends Schema>(
  c: Context<Env>,
  { limits, strictParameters, warn }: AppContext,
  hold: HeldBody,
  schema: B,
  ignored: ((body: Output<B>) => readonly string[]) | undefined,
): Promise<z.output<B>> {
  c.get("caller").allowance.check();
  const value = await readJson(c.req.raw, limits, hold, hold.most);
  if (!hold.lasts) hold.release();
  const { body, told } = await paced(() => {
    const told: string[] = [];
    const options = { strictParameters, warn: (sentence: string) => void told.push(sentence) };
    return { body: checkBody(schema, value, options, ignored as never), told };
  });
  if (told.length > 0) c.header(WARNING_HEADER, warningHeader(told));
  for (const sentence of told) warn?.(sentence, senderOf(c));
  return body;
}

/** Adds an endpoint to the app and to its OpenAPI document. */
export function mount(app: OpenAPIHono<Env>, context: AppContext, endpoint: Endpoint): void {
  const { route, pattern, events, errors, handler } = endpoint;
  if (events) app.openAPIRegistry.register(events.name, events.schema);
  if (errors) app.openAPIRegistry.register(errors.name, errors.schema);
  app.openAPIRegistry.registerPath(route);
  app.on(route.method, pattern, handler(context));
}

/**
 * Sets the error format for all errors on the paths of a pattern. Call it before any middleware that may refuse a
 * request.
 */
export function shapeErrors(
  app: OpenAPIHono<Env>,
  { pattern, errors }: Pick<Endpoint, "pattern" | "errors">,
): void {
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
    ...(spec.events
      ? { [spec.events.lines ? LINES : EVENTS]: { schema: eventOf(spec.events, errors) } }
      : {}),
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
      ...(spec.streamed ? { body: { required: true, content: json(spec.streamed, example) } } : {}),
    },
    responses: {
      200: { description: spec.answers, content, ...(spec.leadsTo ? { links: linksTo(spec.leadsTo) } : {}) },
      ...Object.fromEntries(
        Object.entries(refusals).map(([status, why]) => [status, refusal(+status, why, errors)]),
      ),
    },
  });
}

/** Returns the refusals common to all requests of this kind. */
function commonRefusals(
  { method, body: read, form, streamed, query, loads }: EndpointSpec<unknown, unknown, unknown, unknown>,
) {
  const changes = method !== "get" || loads;
  const body = read ?? streamed;
  return {
    400: body || form || query
      ? "A wrong or missing field, which `param` names"
      : "The Host header or the path is not valid",
    403: changes
      ? "The Host header names another machine, or a web page of another site sent the request"
      : "The Host header names another machine",
    ...(body || form
      ? {
        408: "The body did not arrive in time",
        413: "The body is too large",
        415: `The body is not ${body ? "JSON" : "multipart/form-data"}, or it is compressed`,
      }
      : {}),
    500: "The server failed; its log says why",
    ...(changes ? { 503: "The server is shutting down" } : {}),
  };
}

/** Returns the schema of one line, or of one server-sent event: `data` is JSON, except for `[DONE]`. */
function eventOf({ name, named, withoutDone, lines, schema }: EventsSpec, errors: ErrorShape) {
  if (lines) return z.union([schema, errors.schema]);
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
